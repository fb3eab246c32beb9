//! Ctrl-C: the first ends the current text cleanly, and the second ends the program. At a chat's
//! prompt, Ctrl-C ends the chat.

use candecode::kit::note::note;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether Ctrl-C was pressed. Static, because a signal is delivered to the whole process, and its
/// handler can't access anything else.
static ASKED: AtomicBool = AtomicBool::new(false);
/// Whether the chat is waiting for a line.
static WAITING: AtomicBool = AtomicBool::new(false);

/// Takes over Ctrl-C. Until this is called, while a model is being downloaded or loaded, the first
/// Ctrl-C ends the program. The handler has to exit the process itself, because `main` may be
/// blocked on input or a matrix product.
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

/// Returns true if the current text should stop after this token.
pub fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}

/// Runs `wait`, during which Ctrl-C exits normally because nothing is being generated. Clears any
/// earlier request to stop.
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    ASKED.store(false, Ordering::SeqCst);
    WAITING.store(true, Ordering::SeqCst);
    let result = wait();
    WAITING.store(false, Ordering::SeqCst);
    result
}
