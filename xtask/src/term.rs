//! What the runner prints: colour only on a terminal, never colour or a symbol without the word,
//! and nothing of another program's that a terminal would obey.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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

/// `NO_COLOR` (no-color.org), dumb terminals and old Windows consoles forbid colours.
fn colours_allowed() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    let console = !cfg!(windows) || ["WT_SESSION", "ConEmuANSI", "TERM"].iter().any(|n| set(n));
    !set("NO_COLOR") && !dumb && console
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
    let paragraph = |text: &str| {
        let (mut wrapped, mut length) = (String::new(), 0);
        for word in text.split_whitespace() {
            let word_length = word.chars().count();
            if length > 0 && length + 1 + word_length > width {
                wrapped.push('\n');
                length = 0;
            } else if length > 0 {
                wrapped.push(' ');
                length += 1;
            }
            wrapped.push_str(word);
            length += word_length;
        }
        wrapped
    };
    text.split("\n\n").map(paragraph).collect::<Vec<_>>().join("\n\n")
}

/// Why a line could not be written to standard output, if one could not.
static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// Writes a line to standard output; that a reader's `head` closes it early is no error.
pub fn line(text: &str) {
    let mut out = std::io::stdout();
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
    let _ = writeln!(std::io::stderr(), "{text}");
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

/// A line on a terminal's standard error that says what is going on, and for how many seconds. It
/// goes when this is dropped. Where there is no terminal, nothing is shown.
pub struct Ticker {
    text: Option<Sender<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Shows `text` until there is another.
    pub fn new(text: &str) -> Ticker {
        if !stderr_colours() {
            return Ticker { text: None, thread: None };
        }
        let (sender, texts) = channel();
        let (mut text, start) = (text.to_string(), Instant::now());
        let thread = std::thread::spawn(move || {
            let mut err = std::io::stderr();
            loop {
                let _ = write!(err, "\r\x1b[K{text} ({} s)", start.elapsed().as_secs());
                match texts.recv_timeout(Duration::from_secs(1)) {
                    Ok(new) => text = new,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            let _ = write!(err, "\r\x1b[K");
        });
        Ticker { text: Some(sender), thread: Some(thread) }
    }

    /// Shows another text.
    pub fn say(&self, text: String) {
        let _ = self.text.as_ref().map(|sender| sender.send(text));
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.text = None;
        let _ = self.thread.take().map(JoinHandle::join);
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
