//! Errors as the user sees them: usage errors, and one line for each chain of causes.

/// A mistake in the command-line flags. Exit code 2.
#[derive(Debug)]
pub struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Standard output was closed, for example by `| head`. `main` exits silently.
#[derive(Debug)]
pub struct OutputClosed;

impl std::fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("standard output is closed")
    }
}

impl std::error::Error for OutputClosed {}

/// Returns a [`Usage`] error with this message.
pub fn usage(message: impl std::fmt::Display) -> anyhow::Error {
    Usage(message.to_string()).into()
}

/// Formats an error's chain on one line, without candle's backtraces. Control characters other than
/// line breaks and tabs are escaped: a message may quote a file or a server, and must not send
/// commands to the terminal.
pub fn describe(error: &anyhow::Error) -> String {
    let link = |link: &(dyn std::error::Error + 'static)| match link.downcast_ref() {
        Some(error) => plain(error),
        None => link.to_string(),
    };
    let text = error.chain().map(link).collect::<Vec<_>>().join(": ");
    text.chars().fold(String::new(), |shown, c| match c {
        '\n' | '\t' => shown + c.encode_utf8(&mut [0; 4]),
        _ => push_visible(shown, c),
    })
}

/// Maximum number of characters that a message quotes from a file or client.
const MOST_SHOWN: usize = 200;

/// Quotes text from a file or client in a message: [`shown`], in quotation marks.
pub fn quoted(text: impl std::fmt::Display) -> String {
    format!("\"{}\"", shown(text))
}

/// Formats text from a file or client for a message: control and invisible characters are escaped,
/// and the text is cut off after 200 characters.
///
/// Also useful for numbers, JSON and `format_args!("{shape:?}")`, which can also be too long for a
/// message.
pub fn shown(text: impl std::fmt::Display) -> String {
    let text = text.to_string();
    let mut rest = text.chars();
    let shown = rest.by_ref().take(MOST_SHOWN).fold(String::new(), push_visible);
    if rest.next().is_some() {
        return shown + "…";
    }
    shown
}

/// Appends a character, escaped as in Rust (`\u{1b}`, `\n`) unless it is visible.
fn push_visible(mut text: String, c: char) -> String {
    match c {
        '"' | '\'' | '\\' => text.push(c),
        // The leading letter keeps combining accents unescaped: an accent on its own would be
        // escaped.
        _ => text.extend(String::from_iter(['a', c]).escape_debug().skip(1)),
    }
    text
}

/// Formats a candle error without the backtrace that candle adds when `RUST_BACKTRACE` is set.
pub fn plain(error: &candle_core::Error) -> String {
    match error {
        candle_core::Error::WithBacktrace { inner, .. } => plain(inner),
        candle_core::Error::Context { inner, context } => {
            format!("{context}: {}", plain(inner))
        }
        candle_core::Error::WithPath { inner, path } => {
            format!("{}: {}", path.display(), plain(inner))
        }
        other => other.to_string(),
    }
}
