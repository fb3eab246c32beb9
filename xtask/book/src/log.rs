//! mdBook reports unbalanced tags and the like as log warnings; here they are kept, and fail the
//! build.

use std::fmt::Write;
use std::sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::{span, Event, Level, Metadata, Subscriber};

static KEPT: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Starts to keep warnings and errors. Later calls change nothing.
pub fn install() {
    let _ = tracing::subscriber::set_global_default(Keeper);
}

/// What was logged since the last call.
pub fn take() -> Vec<String> {
    match KEPT.lock() {
        Ok(mut kept) => std::mem::take(&mut *kept),
        Err(_) => Vec::new(),
    }
}

struct Keeper;

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        if let Ok(mut kept) = KEPT.lock() {
            kept.push(message.0);
        }
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}
