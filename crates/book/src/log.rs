//! mdBook reports unbalanced tags and the like as log warnings; here they are kept, and fail the
//! build.

use std::io::Write;
use std::sync::{Mutex, PoisonError};
use tracing_subscriber::filter::LevelFilter;

static KEPT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Starts to keep warnings and errors. Later calls change nothing.
pub fn install() {
    let kept = tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).without_time();
    let _ = kept.with_ansi(false).with_target(false).with_writer(|| Kept).try_init();
}

/// What was logged since the last call.
pub fn take() -> String {
    let bytes = std::mem::take(&mut *KEPT.lock().unwrap_or_else(PoisonError::into_inner));
    String::from_utf8_lossy(&bytes).trim_end().to_string()
}

struct Kept;

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
