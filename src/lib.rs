//! *Can I decode?* A course that teaches LLM decoding by building it. This file is the map, with
//! one module per day.
//!
//! `src/dayNN_*.rs` is yours to write; `solutions/dayNN_*.rs` is the reference. The feature
//! `ref-dayNN` compiles the reference for that day instead of yours, and `ref` does so for every
//! day. The rest is provided: `kit` has the shared types that the days build on, `engine` assembles
//! the days, `cli` is the command, and `formats` reads models' weights.

#![warn(missing_docs)]

extern crate self as candecode; // so that a day's file reads the same wherever it is compiled

pub use candecode_formats as formats;
pub use candecode_kit as kit;

// Without forwarding in Cargo.toml, a feature that these crates read would silently be false in
// them.
const _: () = assert!(kit::device::METAL || !cfg!(feature = "metal"));
const _: () = assert!(kit::device::CUDA || !cfg!(feature = "cuda"));

#[cfg(feature = "cli")]
pub mod cli;
pub mod days;
pub mod engine;
pub mod kernels;

#[cfg_attr(feature = "ref-day00", path = "../solutions/day00_warm_up.rs")]
pub mod day00_warm_up;
#[cfg_attr(feature = "ref-day01", path = "../solutions/day01_attention.rs")]
pub mod day01_attention;
#[cfg_attr(feature = "ref-day02", path = "../solutions/day02_positions.rs")]
pub mod day02_positions;
#[cfg_attr(feature = "ref-day03", path = "../solutions/day03_norms_and_mlps.rs")]
pub mod day03_norms_and_mlps;
#[cfg_attr(feature = "ref-day04", path = "../solutions/day04_attention_block.rs")]
pub mod day04_attention_block;
#[cfg_attr(feature = "ref-day05", path = "../solutions/day05_model.rs")]
pub mod day05_model;
#[cfg_attr(feature = "ref-day06", path = "../solutions/day06_generate.rs")]
pub mod day06_generate;
#[cfg_attr(feature = "ref-day07", path = "../solutions/day07_greedy.rs")]
pub mod day07_greedy;
#[cfg_attr(feature = "ref-day08", path = "../solutions/day08_sampling.rs")]
pub mod day08_sampling;
#[cfg_attr(feature = "ref-day09", path = "../solutions/day09_penalties.rs")]
pub mod day09_penalties;
#[cfg_attr(feature = "ref-day10", path = "../solutions/day10_kv_cache.rs")]
pub mod day10_kv_cache;
#[cfg_attr(feature = "ref-day11", path = "../solutions/day11_beam_search.rs")]
pub mod day11_beam_search;
#[cfg_attr(feature = "ref-day12", path = "../solutions/day12_batching.rs")]
pub mod day12_batching;
#[cfg_attr(feature = "ref-day13", path = "../solutions/day13_speculative.rs")]
pub mod day13_speculative;
#[cfg_attr(feature = "ref-day14", path = "../solutions/day14_guard_rails.rs")]
pub mod day14_guard_rails;
#[cfg_attr(feature = "ref-day15", path = "../solutions/day15_scheduler.rs")]
pub mod day15_scheduler;
#[cfg_attr(feature = "ref-day16", path = "../solutions/day16_cost_of_a_token.rs")]
pub mod day16_cost_of_a_token;
#[cfg_attr(feature = "ref-day17", path = "../solutions/day17_kernel.rs")]
pub mod day17_kernel;
#[cfg_attr(feature = "ref-day18", path = "../solutions/day18_flash_attention.rs")]
pub mod day18_flash_attention;
#[cfg_attr(feature = "ref-day19", path = "../solutions/day19_quantized_weights.rs")]
pub mod day19_quantized_weights;
#[cfg_attr(feature = "ref-day20", path = "../solutions/day20_serve.rs")]
pub mod day20_serve;
#[cfg_attr(feature = "ref-day21", path = "../solutions/day21_pages.rs")]
pub mod day21_pages;
#[cfg_attr(feature = "ref-day22", path = "../solutions/day22_shared_prefixes.rs")]
pub mod day22_shared_prefixes;
#[cfg_attr(feature = "ref-day23", path = "../solutions/day23_token_budget.rs")]
pub mod day23_token_budget;
#[cfg_attr(feature = "ref-day24", path = "../solutions/day24_draft_trees.rs")]
pub mod day24_draft_trees;
