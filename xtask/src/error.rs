//! Errors of two kinds: bad usage (exit code 2) and everything else (exit code 1).

use std::fmt;

/// The command line asks for something that does not exist or makes no sense; the text says what to do.
#[derive(Debug)]
pub struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error that ends the runner with exit code 2.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    Usage(text.into()).into()
}
