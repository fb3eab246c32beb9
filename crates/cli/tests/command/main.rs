//! Tests of the command: its flags, what it needs, and runs of the program.
//!
//! They run with the reference: `cargo test -p candecode-cli --features ref --test command`.

#![cfg(feature = "ref")]

mod flags;
mod gguf;
mod memory;
mod threads;
