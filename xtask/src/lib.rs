//! The course's runner as a library, for `cargo xtask` and the crates it starts.

#![warn(missing_docs)]

pub mod backup;
pub mod cargo;
pub mod checking;
mod child;
pub mod commands;
mod day_done;
pub mod engine;
pub mod git;
pub mod host;
mod progress;
mod score;
pub mod term;
