//! Panics of a day's code: what is said of one, and whether it was a task that isn't written yet.

/// The words of a `todo!` that was reached, if the panic was one: "day 6, task 1: keep the last
/// position of every row".
pub fn unwritten(panic: &(dyn std::any::Any + Send)) -> Option<String> {
    let message = panic_message(panic);
    let task = message.strip_prefix("not yet implemented: ")?;
    task.starts_with("day ").then(|| task.to_string())
}

/// The message of a caught panic.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
        .to_string()
}

/// Where the last panic happened, for [`describe_panic`]: a panic hook has no other way to say it.
static PLACE: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());

thread_local! {
    /// Where the last panic of this thread happened: checks run side by side, and one may panic
    /// while another is told of.
    static HERE: std::cell::Cell<String> = const { std::cell::Cell::new(String::new()) };
}

/// From here on a panic prints nothing by itself; its place is kept for [`describe_panic`].
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|info| {
        if let (Some(place), Ok(mut last)) = (info.location(), PLACE.lock()) {
            *last = place.to_string();
            let _ = HERE.try_with(|here| here.set(place.to_string()));
        }
    }));
}

/// What to tell the reader of a caught panic: a task that is not written yet, or a panic, with its
/// place.
pub fn describe_panic(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(task) = unwritten(panic) {
        return format!("{task}: this is not written yet");
    }
    // A thread of a pool may have panicked in place of this one.
    let place = match HERE.take() {
        none if none.is_empty() => PLACE.lock().map(|place| place.clone()).unwrap_or_default(),
        here => here,
    };
    format!("error: the code at {place} panicked: {}", panic_message(panic))
}
