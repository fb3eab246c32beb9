//! The list of days, and which version of each is compiled in: the reader's or the reference.

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

/// All days, in order. Only this table reads the `ref-dayNN` features. Messages use it to report
/// which days are yours, and `engine/operations.rs` uses it to keep kernels away from those days.
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

/// Returns one line with the loop's day, the device, and the days that are yours or the
/// reference's.
pub fn credits(loop_day: usize, device: &str) -> String {
    format!("[loop: day {loop_day}, on {device}; {}]", whose(DAYS))
}

/// Describes which of `days` are yours, as in "yours: day 6; from the reference: days 0–5, 7–17".
pub fn whose(days: &[Day]) -> String {
    let numbers = |reference: bool| {
        let days = days.iter().filter(|day| day.reference == reference);
        days.map(|day| day.number).collect::<Vec<_>>()
    };
    let named = |numbers: &[usize]| {
        let noun = if numbers.len() == 1 { "day" } else { "days" };
        format!("{noun} {}", ranges(numbers))
    };
    match (&numbers(false)[..], &numbers(true)[..]) {
        ([], _) => "all days from the reference".to_string(),
        (_, []) => "all days yours".to_string(),
        (yours, reference) => {
            format!("yours: {}; from the reference: {}", named(yours), named(reference))
        }
    }
}

/// Formats ascending numbers, joining consecutive ones: "0–5, 7, 9–15".
fn ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let run = |run: &[usize]| match (run.first(), run.last()) {
        (Some(first), Some(last)) if first < last => format!("{first}–{last}"),
        _ => run.iter().map(usize::to_string).collect(),
    };
    runs.map(run).collect::<Vec<_>>().join(", ")
}
