//! Errors of a template.

use std::fmt;

/// The reason a template failed, and the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The line, from 1.
    pub line: Option<usize>,
    /// The message: the template's own if it called `raise_exception`.
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Error {}

/// Returns an error. The interpreter adds the line.
pub fn fail<T>(message: impl Into<String>) -> Result<T> {
    Err(Error { line: None, message: message.into() })
}
