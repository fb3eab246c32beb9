//! Ctrl-C: the first one ends a text cleanly, the second ends the program; one at the prompt of a
//! chat ends the chat.

use crate::kit::note::note;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ctrl-C was pressed. A signal belongs to the process, and its handler can only reach what is
/// static.
static ASKED: AtomicBool = AtomicBool::new(false);
/// The chat waits for a line.
static WAITING: AtomicBool = AtomicBool::new(false);

/// From here on Ctrl-C is ours. Before, while a model is fetched, the first one ends the program.
/// Only a signal may end it here and not in `main`, which may be waiting for a line or a product.
pub fn watch() {
    let _ = ctrlc::set_handler(|| {
        if WAITING.load(Ordering::SeqCst) {
            note!("\n[the chat ends]");
            std::process::exit(0);
        }
        if ASKED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    });
}

/// True if the text at work shall end after its token.
pub fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}

/// Does `wait`, in which Ctrl-C ends the program politely: nothing is at work. A request from
/// before it is forgotten.
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    ASKED.store(false, Ordering::SeqCst);
    WAITING.store(true, Ordering::SeqCst);
    let result = wait();
    WAITING.store(false, Ordering::SeqCst);
    result
}
