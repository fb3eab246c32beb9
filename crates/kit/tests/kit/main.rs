//! Tests of the kit: supporting code that no day teaches.

mod config;
mod dfa;
mod error;
mod quantized;
mod rng;
mod step;
mod token_bytes;
mod tokenizer;

/// Returns an error's message, with everything that caused it, as a program prints it.
#[track_caller]
fn message<T>(result: anyhow::Result<T>) -> String {
    match result {
        Ok(_) => panic!("this should have been rejected"),
        Err(error) => candecode_kit::error::describe(&error),
    }
}
