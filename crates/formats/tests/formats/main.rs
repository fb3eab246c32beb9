//! Tests of a model's files.

mod config;
mod gguf;
mod model_files;
mod random_model;
mod tokenizer;
mod tokenizer_files;
mod tokenizer_json;
mod weights;

/// Returns an error's message, with everything that caused it, as a program prints it.
#[track_caller]
fn message<T>(result: anyhow::Result<T>) -> String {
    match result {
        Ok(_) => panic!("this should have been rejected"),
        Err(error) => candecode_kit::error::describe(&error),
    }
}
