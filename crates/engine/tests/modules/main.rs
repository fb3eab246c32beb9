//! Tests of the engine's modules, and of the days as it puts them together.
//!
//! They run with the reference: `cargo test -p candecode-engine --features ref --test modules`.

#![cfg(feature = "ref")]

mod automata;
mod bf16;
mod common;
mod gguf;
mod kernel_equality;
mod layer_kernels;
mod masks;
mod memory;
mod model_files;
mod ngram_table;
mod paged_attention;
mod passes;
mod prefixes;
mod quantized;
mod rails;
mod random_model;
mod right_padding;
mod scheduler_interface;
mod sequence;
mod token_rules;
mod tokenizer;
mod weights;
mod widened_model;
