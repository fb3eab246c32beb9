//! How answers and errors are written.

use serde_json::{json, Value};

/// An answer, or an error, as the page reads it: `{"error": "…"}`.
pub fn answer(result: Result<Value, String>) -> String {
    match result {
        Ok(answer) => answer.to_string(),
        Err(error) => json!({ "error": error }).to_string(),
    }
}

/// What a panic says: for a `todo!` of a day, the task that is not written yet.
#[cfg(target_arch = "wasm32")]
pub fn of_panic(info: &std::panic::PanicHookInfo) -> String {
    if let Some(task) = candecode::kit::panics::unwritten(info.payload()) {
        return format!("{task}: this is not written yet");
    }
    let message = candecode::kit::panics::panic_message(info.payload());
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    format!("the code at {place} panicked: {message}")
}
