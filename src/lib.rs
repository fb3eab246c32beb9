//! *Can I decode?* A course that teaches LLM decoding by building it. This file is the map, with
//! one module per day.
//!
//! `src/dayNN_*.rs` is yours to write; `solutions/dayNN_*.rs` is the reference. The feature
//! `ref-dayNN` compiles the reference for that day instead of yours, and `ref` does so for every
//! day. The rest is provided, in `crates/`: `kit` has the shared types that the days build on,
//! `formats` reads models' weights, `engine` assembles the days, and `cli` is the command.

#![warn(missing_docs)]

extern crate self as candecode; // so that a day's file reads the same wherever it is compiled

pub use candecode_kit as kit;

// Without forwarding in Cargo.toml, a feature that the kit reads would silently be false in it.
const _: () = assert!(kit::device::METAL || !cfg!(feature = "metal"));
const _: () = assert!(kit::device::CUDA || !cfg!(feature = "cuda"));

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

/// One day of the course.
#[derive(Debug, Clone, Copy)]
pub struct Day {
    /// The day's number, counted from 0.
    pub number: usize,
    /// Base name of the day's files, without the extension.
    pub name: &'static str,
    /// True if `solutions/` is compiled in place of `src/`.
    pub reference: bool,
}

/// All days, in order. Outside the modules above, only this table reads the `ref-dayNN` features.
/// Messages use it to report which days are yours, and the engine uses it to keep kernels away from
/// those days.
pub const DAYS: &[Day] = &[
    Day { number: 0, name: "day00_warm_up", reference: cfg!(feature = "ref-day00") },
    Day { number: 1, name: "day01_attention", reference: cfg!(feature = "ref-day01") },
    Day { number: 2, name: "day02_positions", reference: cfg!(feature = "ref-day02") },
    Day { number: 3, name: "day03_norms_and_mlps", reference: cfg!(feature = "ref-day03") },
    Day { number: 4, name: "day04_attention_block", reference: cfg!(feature = "ref-day04") },
    Day { number: 5, name: "day05_model", reference: cfg!(feature = "ref-day05") },
    Day { number: 6, name: "day06_generate", reference: cfg!(feature = "ref-day06") },
    Day { number: 7, name: "day07_greedy", reference: cfg!(feature = "ref-day07") },
    Day { number: 8, name: "day08_sampling", reference: cfg!(feature = "ref-day08") },
    Day { number: 9, name: "day09_penalties", reference: cfg!(feature = "ref-day09") },
    Day { number: 10, name: "day10_kv_cache", reference: cfg!(feature = "ref-day10") },
    Day { number: 11, name: "day11_beam_search", reference: cfg!(feature = "ref-day11") },
    Day { number: 12, name: "day12_batching", reference: cfg!(feature = "ref-day12") },
    Day { number: 13, name: "day13_speculative", reference: cfg!(feature = "ref-day13") },
    Day { number: 14, name: "day14_guard_rails", reference: cfg!(feature = "ref-day14") },
    Day { number: 15, name: "day15_scheduler", reference: cfg!(feature = "ref-day15") },
    Day { number: 16, name: "day16_cost_of_a_token", reference: cfg!(feature = "ref-day16") },
    Day { number: 17, name: "day17_kernel", reference: cfg!(feature = "ref-day17") },
    Day { number: 18, name: "day18_flash_attention", reference: cfg!(feature = "ref-day18") },
    Day { number: 19, name: "day19_quantized_weights", reference: cfg!(feature = "ref-day19") },
    Day { number: 20, name: "day20_serve", reference: cfg!(feature = "ref-day20") },
    Day { number: 21, name: "day21_pages", reference: cfg!(feature = "ref-day21") },
    Day { number: 22, name: "day22_shared_prefixes", reference: cfg!(feature = "ref-day22") },
    Day { number: 23, name: "day23_token_budget", reference: cfg!(feature = "ref-day23") },
    Day { number: 24, name: "day24_draft_trees", reference: cfg!(feature = "ref-day24") },
];
