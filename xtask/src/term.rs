//! The runner's output. Colors are used only on a terminal, every color or symbol comes with a
//! word, and [`readable`] keeps other programs' control sequences from the terminal.

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;
use std::time::Duration;
use textwrap::WordSplitter;

/// A color from the terminal's own palette, so that it suits both light and dark themes.
#[derive(Clone, Copy)]
pub enum Color {
    /// Passed.
    Green,
    /// Failed.
    Red,
    /// Not written, or a warning.
    Yellow,
    /// Titles.
    Bold,
    /// Less important text.
    Dim,
}

/// Colors `text`. [`line`] and [`note`] strip the color where it isn't supported.
pub fn paint(color: Color, text: &str) -> String {
    let style = match color {
        Color::Green => AnsiColor::Green.on_default(),
        Color::Red => AnsiColor::Red.on_default(),
        Color::Yellow => AnsiColor::Yellow.on_default(),
        Color::Bold => Style::new().bold(),
        Color::Dim => Style::new().dimmed(),
    };
    format!("{style}{text}{style:#}")
}

/// Returns whether to color messages on standard error. Not if it's a file, or with `NO_COLOR`.
pub fn stderr_colors() -> bool {
    AutoStream::choice(&std::io::stderr()) != ColorChoice::Never
}

/// Makes another program's output safe for a terminal: strips control characters, truncates long
/// lines, and cuts the middle out of long texts.
pub fn readable(text: &str) -> String {
    const WIDTH: usize = 1000;
    const HEAD: usize = 60;
    const TAIL: usize = 10;
    let readable_line = |line: &str| {
        let mut chars = line.chars().filter(|c| *c == '\t' || !c.is_control());
        let kept: String = chars.by_ref().take(WIDTH).collect();
        match chars.count() {
            0 => kept,
            more => format!("{kept} … ({more} more characters)"),
        }
    };
    let mut lines: Vec<String> = text.lines().map(readable_line).collect();
    if lines.len() > HEAD + TAIL {
        let more = lines.len() - HEAD - TAIL;
        lines.splice(HEAD..HEAD + more, [format!("… ({more} more lines)")]);
    }
    lines.join("\n")
}

/// Wraps prose to lines of at most `width` characters, without breaking flags at their hyphens.
/// Empty lines separate paragraphs.
pub fn wrap(text: &str, width: usize) -> String {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let options = textwrap::Options::new(width).word_splitter(WordSplitter::NoHyphenation);
    let paragraphs = text.split("\n\n").map(|text| textwrap::fill(&words(text), &options));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// The first error from writing to standard output, if there was one.
static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// Writes a line to standard output. A pipe closed early, for example by `head`, isn't an error.
pub fn line(text: &str) {
    let mut out = anstream::stdout();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(problem) if problem.kind() != ErrorKind::BrokenPipe => {
            let _ = UNWRITTEN.set(problem.to_string());
        }
        _ => {}
    }
}

/// Returns the error that kept output from being written, or `None` if all of it was.
pub fn unwritten() -> Option<&'static str> {
    UNWRITTEN.get().map(String::as_str)
}

/// Writes a line to standard error. Errors are ignored.
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

/// A status line on a terminal's standard error, with the elapsed time. Removed on drop. Shows
/// nothing without a terminal.
pub struct Ticker(ProgressBar);

impl Ticker {
    /// Creates a ticker that shows `text`.
    pub fn new(text: &str) -> Ticker {
        let bar = ProgressBar::new_spinner().with_message(text.to_string());
        if let Ok(style) = ProgressStyle::with_template("{msg} ({elapsed})") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_secs(1));
        Ticker(bar)
    }

    /// Replaces the text.
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
    fn control_characters_are_stripped_and_long_text_is_truncated() {
        assert_eq!(readable("a\x1b[2J\x07b\tc\r\nd"), "a[2Jb\tc\nd");
        assert!(readable(&"x".repeat(100_000)).ends_with("x … (99000 more characters)"));
        let many: String = (0..100).map(|n| format!("{n}\n")).collect();
        let cut = readable(&many);
        assert!(cut.contains("59\n… (30 more lines)\n90") && cut.ends_with("99"), "{cut}");
    }
}
