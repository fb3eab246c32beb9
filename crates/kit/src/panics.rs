//! Reporting panics in a day's code, and recognizing a task that isn't written yet.

/// Returns the message of a `todo!`, if that caused the panic: "day 6, task 1: keep the last
/// position of every row".
pub fn unwritten(panic: &(dyn std::any::Any + Send)) -> Option<String> {
    let message = panic_message(panic);
    let task = message.strip_prefix("not yet implemented: ")?;
    task.starts_with("day ").then(|| task.to_string())
}

/// Returns the message of a caught panic.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
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
pub fn describe_panic(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(task) = unwritten(panic) {
        return format!("{task}: this is not written yet");
    }
    // The panic may have happened in a pool's thread instead of this one.
    let place = match HERE.take() {
        none if none.is_empty() => PLACE.lock().map(|place| place.clone()).unwrap_or_default(),
        here => here,
    };
    format!("error: the code at {place} panicked: {}", panic_message(panic))
}
