//! Errors that a command line causes.

use std::fmt;

/// Bad usage: the command line asks for something that doesn't exist or makes no sense. A command
/// exits with code 2, instead of 1 for all other errors.
#[derive(Debug)]
pub struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Returns an error that ends a command with exit code 2. `text` is the message for the reader.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    Usage(text.into()).into()
}
