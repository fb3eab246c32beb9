//! Formatting of answers and errors.

use serde_json::{json, Value};

/// Formats an answer as JSON, or an error as `{"error": "…"}`.
pub fn answer(result: Result<Value, String>) -> String {
    match result {
        Ok(answer) => answer.to_string(),
        Err(error) => json!({ "error": error }).to_string(),
    }
}

/// Formats a panic's message. For a day's `todo!`, names the task that isn't written yet.
#[cfg(target_arch = "wasm32")]
pub fn of_panic(info: &std::panic::PanicHookInfo) -> String {
    if let Some(task) = candecode::kit::panics::Unwritten::of(info.payload()) {
        return task.to_string();
    }
    let message = candecode::kit::panics::panic_message(info.payload());
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    format!("the code at {place} panicked: {message}")
}
