//! What the runner prints: colour only on a terminal, never colour or a symbol without the word,
//! and nothing of another program's that a terminal would obey.

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;
use std::time::Duration;

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
    /// What matters less.
    Dim,
}

/// `text` in a colour; [`line`] and [`note`] leave it out where there may be none.
pub fn paint(colour: Colour, text: &str) -> String {
    let style = match colour {
        Colour::Green => AnsiColor::Green.on_default(),
        Colour::Red => AnsiColor::Red.on_default(),
        Colour::Yellow => AnsiColor::Yellow.on_default(),
        Colour::Bold => Style::new().bold(),
        Colour::Dim => Style::new().dimmed(),
    };
    format!("{style}{text}{style:#}")
}

/// Whether messages on standard error may have colours: not in a file, nor against `NO_COLOR`.
pub fn stderr_colours() -> bool {
    AutoStream::choice(&std::io::stderr()) != ColorChoice::Never
}

/// What a program said, fit for a terminal: no control characters, long lines and texts cut.
pub fn readable(text: &str) -> String {
    const WIDTH: usize = 1000;
    const HEAD: usize = 60;
    const TAIL: usize = 10;
    let readable_line = |line: &str| {
        let mut chars = line.chars().filter(|c| *c == '\t' || !c.is_control());
        let kept: String = chars.by_ref().take(WIDTH).collect();
        match chars.count() {
            0 => kept,
            more => format!("{kept} … ({more} characters more)"),
        }
    };
    let mut lines: Vec<String> = text.lines().map(readable_line).collect();
    if lines.len() > HEAD + TAIL {
        let more = lines.len() - HEAD - TAIL;
        lines.splice(HEAD..HEAD + more, [format!("… ({more} lines more)")]);
    }
    lines.join("\n")
}

/// Prose in lines of at most `width` characters; empty lines part paragraphs.
pub fn wrap(text: &str, width: usize) -> String {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let paragraphs = text.split("\n\n").map(|text| textwrap::fill(&words(text), width));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// Why a line could not be written to standard output, if one could not.
static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// Writes a line to standard output; that a reader's `head` closes it early is no error.
pub fn line(text: &str) {
    let mut out = anstream::stdout();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(problem) if problem.kind() != ErrorKind::BrokenPipe => {
            let _ = UNWRITTEN.set(problem.to_string());
        }
        _ => {}
    }
}

/// Why something that this program said could not be written; `None` if all of it was.
pub fn unwritten() -> Option<&'static str> {
    UNWRITTEN.get().map(String::as_str)
}

/// Writes a line to standard error, likewise.
pub fn note(text: &str) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// `println!` that survives a closed pipe.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::term::line(&format!($($text)*)) };
}

/// `eprintln!` that survives a closed pipe.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => { $crate::term::note(&format!($($text)*)) };
}

/// A line on a terminal's standard error that says what is going on, and for how long. It goes when
/// this is dropped. Where there is no terminal, nothing is shown.
pub struct Ticker(ProgressBar);

impl Ticker {
    /// Shows `text` until there is another.
    pub fn new(text: &str) -> Ticker {
        let bar = ProgressBar::new_spinner().with_message(text.to_string());
        if let Ok(style) = ProgressStyle::with_template("{msg} ({elapsed})") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_secs(1));
        Ticker(bar)
    }

    /// Shows another text.
    pub fn say(&self, text: String) {
        self.0.set_message(text);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_cut_out_and_length_is_bounded() {
        assert_eq!(readable("a\x1b[2J\x07b\tc\r\nd"), "a[2Jb\tc\nd");
        assert!(readable(&"x".repeat(100_000)).ends_with("x … (99000 characters more)"));
        let many: String = (0..100).map(|n| format!("{n}\n")).collect();
        let cut = readable(&many);
        assert!(cut.contains("59\n… (30 lines more)\n90") && cut.ends_with("99"), "{cut}");
    }
}
