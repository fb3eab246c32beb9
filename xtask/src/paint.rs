//! What the runner prints: colour only on a terminal, and never colour or a symbol without the word.

use std::io::{IsTerminal, Write};
use std::sync::OnceLock;

/// A colour of the terminal's own palette, so that it fits light and dark.
#[derive(Clone, Copy)]
pub enum Colour {
    /// Passed.
    Green,
    /// Failed.
    Red,
    /// Not written, or a warning.
    Yellow,
    /// Titles.
    Bold,
    /// What is beside the point.
    Dim,
}

/// `text` in a colour, if standard output may have colours.
pub fn paint(colour: Colour, text: &str) -> String {
    static ON: OnceLock<bool> = OnceLock::new();
    if text.is_empty() || !*ON.get_or_init(|| colours_allowed() && std::io::stdout().is_terminal())
    {
        return text.to_string();
    }
    let code = match colour {
        Colour::Green => "32",
        Colour::Red => "31",
        Colour::Yellow => "33",
        Colour::Bold => "1",
        Colour::Dim => "2",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// Whether messages on standard error may have colours.
pub fn stderr_colours() -> bool {
    colours_allowed() && std::io::stderr().is_terminal()
}

/// `NO_COLOR` (no-color.org), dumb terminals, and Windows consoles that print escapes as they are, forbid colours.
fn colours_allowed() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    let console = !cfg!(windows) || ["WT_SESSION", "ConEmuANSI", "TERM"].iter().any(|n| set(n));
    !set("NO_COLOR") && !dumb && console
}

/// Writes a line to standard output. A reader who pipes into `head` closes it early: that is no error.
pub fn line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Writes a line to standard error, likewise.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// `println!` that survives a closed pipe.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::paint::line(&format!($($text)*)) };
}

/// `eprintln!` that survives a closed pipe.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => { $crate::paint::note(&format!($($text)*)) };
}
