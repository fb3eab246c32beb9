//! Notes to the user on standard error. Failing to write one is not an error.

use std::io::Write as _;

/// Writes a line to standard error. Errors are ignored if it is closed or full, because the
/// program's output goes to standard output.
pub fn write(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// An `eprintln!` that survives a closed or full standard error.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => { $crate::note::write(format_args!($($text)*)) };
}

pub use note;
