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

/// A [`Usage`] error with this message.
pub fn usage(message: impl std::fmt::Display) -> anyhow::Error {
    Usage(message.to_string()).into()
}

/// The chain of an error on one line, without candle's backtraces.
pub fn describe(error: &anyhow::Error) -> String {
    let link = |link: &(dyn std::error::Error + 'static)| match link.downcast_ref() {
        Some(error) => plain(error),
        None => link.to_string(),
    };
    error.chain().map(link).collect::<Vec<_>>().join(": ")
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
