//! The runner of the course as a library: the command `cargo xtask` is made of it, and so are the maintainers' tools.

#![warn(missing_docs)]

pub mod backup;
pub mod cargo;
pub mod checks;
pub mod child;
pub mod commands;
pub mod compare;
pub mod compile;
pub mod error;
pub mod eyes;
pub mod git;
pub mod hints;
pub mod hunt;
pub mod keys;
pub mod lift;
pub mod machine;
pub mod moved;
pub mod paint;
pub mod progress;
pub mod repo;
pub mod standing;
pub mod stubs;
pub mod update;
