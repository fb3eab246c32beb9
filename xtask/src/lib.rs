//! The course's runner as a library, for `cargo xtask` and the crates it starts.

#![warn(missing_docs)]

pub mod backup;
pub mod cargo;
pub mod checking;
pub mod child;
pub mod commands;
pub mod git;
pub mod host;
pub mod progress;
pub mod repo;
pub mod score;
pub mod stubs;
pub mod term;

use std::fmt;

/// Bad usage: the command line asks for something that doesn't exist or makes no sense. The exit
/// code is 2, instead of 1 for all other errors.
#[derive(Debug)]
pub struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Returns an error that ends the runner with exit code 2. `text` is the message for the reader.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    Usage(text.into()).into()
}
