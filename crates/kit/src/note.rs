//! Notes for the reader, on standard error. A note that cannot be written costs nothing else.

use std::io::Write as _;

/// Writes a line to standard error. That it is closed or full is no reason to stop: the text goes
/// to standard output.
pub fn write(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// `eprintln!` that survives a standard error that is closed or full.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => { $crate::note::write(format_args!($($text)*)) };
}

pub use note;
