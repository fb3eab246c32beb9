//! Reporting panics in a day's code, and recognizing a task that isn't written yet.

use candle_core::{Error, Result};
use std::any::Any;
use std::fmt;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

/// A task that isn't written yet, from the message of its `todo!`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwritten {
    /// Day and number, such as `6.1`.
    pub task: String,
    /// What the task asks for.
    pub title: String,
}

impl Unwritten {
    /// Returns the task whose `todo!` caused the panic. None: something else did.
    pub fn of(panic: &(dyn Any + Send)) -> Option<Self> {
        let task = unwritten(panic)?;
        let (numbers, title) = task.split_once(": ")?;
        let (day, number) = numbers.strip_prefix("day ")?.split_once(", task ")?;
        Some(Self { task: format!("{day}.{number}"), title: title.to_string() })
    }

    /// Returns the task that `call` reaches and that isn't written. None if it reaches none,
    /// however it ends.
    pub fn reached_by<T>(call: impl FnOnce() -> T) -> Option<Self> {
        catch_unwind(AssertUnwindSafe(call)).err().and_then(|panic| Self::of(&*panic))
    }

    /// Returns true if a message says that a task isn't written.
    pub fn is_named_by(message: &str) -> bool {
        let rest = message.strip_prefix("task ").and_then(|rest| rest.split_once(' '));
        rest.is_some_and(|(task, rest)| {
            let is_task = task.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            is_task && rest.starts_with("is not written yet")
        })
    }
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {} is not written yet: {}", self.task, self.title)
    }
}

impl std::error::Error for Unwritten {}

/// Runs the reader's code. If it reaches a task that isn't written, returns an error that names the
/// task ([`Unwritten::is_named_by`]). Any other panic goes on.
///
/// # Errors
/// The code's own, or a task that isn't written.
pub fn or_unwritten<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| match Unwritten::of(&*panic) {
        Some(task) => Err(Error::Msg(task.to_string())),
        None => resume_unwind(panic),
    })
}

/// Returns the message of a `todo!`, if that caused the panic: "day 6, task 1: keep the last
/// position of every row".
pub fn unwritten(panic: &(dyn Any + Send)) -> Option<String> {
    let message = panic_message(panic);
    let task = message.strip_prefix("not yet implemented: ")?;
    task.starts_with("day ").then(|| task.to_string())
}

/// Returns the message of a caught panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
        .to_string()
}

/// Location of the last panic in any thread, for [`describe_panic`]. It is a static because a panic
/// hook can't return anything.
static PLACE: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());

thread_local! {
    /// Location of this thread's last panic. Thread-local, because checks run in parallel, and
    /// another check may panic before this one is reported.
    static HERE: std::cell::Cell<String> = const { std::cell::Cell::new(String::new()) };
}

/// Stops panics from printing anything, and records their location for [`describe_panic`].
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|info| {
        if let (Some(place), Ok(mut last)) = (info.location(), PLACE.lock()) {
            *last = place.to_string();
            let _ = HERE.try_with(|here| here.set(place.to_string()));
        }
    }));
}

/// Describes a caught panic: either a task that isn't written yet, or an error with its location.
pub fn describe_panic(panic: &(dyn Any + Send)) -> String {
    if let Some(task) = Unwritten::of(panic) {
        return task.to_string();
    }
    // The panic may have happened in a pool's thread instead of this one.
    let place = match HERE.take() {
        none if none.is_empty() => PLACE.lock().map(|place| place.clone()).unwrap_or_default(),
        here => here,
    };
    format!("error: the code at {place} panicked: {}", panic_message(panic))
}
