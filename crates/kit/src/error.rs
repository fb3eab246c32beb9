//! Errors as the reader meets them: what is wrong usage, and one line for each chain of causes.

/// A mistake in the flags: exit code 2.
#[derive(Debug)]
pub struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Nobody reads standard output any more, as after `| head`. `main` ends without a word.
#[derive(Debug)]
pub struct OutputClosed;

impl std::fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("standard output is closed")
    }
}

impl std::error::Error for OutputClosed {}

/// A [`Usage`] error with this message.
pub fn usage(message: impl std::fmt::Display) -> anyhow::Error {
    Usage(message.to_string()).into()
}

/// The chain of an error on one line, without candle's backtraces. Control characters are escaped,
/// except for line breaks and tabs: a message may quote a file or a server, and must not reach the
/// terminal as a command.
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

/// The most characters of a file's or a client's text that a message quotes.
const MOST_SHOWN: usize = 200;

/// Text from a file or a client, as a message quotes it: in quotation marks, otherwise as
/// [`shown`].
pub fn quoted(text: impl std::fmt::Display) -> String {
    format!("\"{}\"", shown(text))
}

/// Text from a file or a client, as a message can show it: control and invisible characters
/// escaped, and cut after 200 characters.
///
/// It also takes numbers, JSON and `format_args!("{shape:?}")`, which can be too long for a
/// message, too.
pub fn shown(text: impl std::fmt::Display) -> String {
    let text = text.to_string();
    let mut rest = text.chars();
    let shown = rest.by_ref().take(MOST_SHOWN).fold(String::new(), push_visible);
    if rest.next().is_some() {
        return shown + "…";
    }
    shown
}

/// Appends a character, escaped as Rust writes it (`\u{1b}`, `\n`) if it is not a visible one.
fn push_visible(mut text: String, c: char) -> String {
    match c {
        '"' | '\'' | '\\' => text.push(c),
        // With a letter in front: on its own, a combining accent is escaped, too.
        _ => text.extend(String::from_iter(['a', c]).escape_debug().skip(1)),
    }
    text
}

/// A candle error without its backtrace: candle prints one when `RUST_BACKTRACE` is set.
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
