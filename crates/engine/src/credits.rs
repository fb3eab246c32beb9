//! Messages about which version of each day is compiled in: the reader's or the reference.

use candecode::{Day, DAYS};

/// Returns one line with the loop's day, the device, and the days that are yours or the
/// reference's.
pub fn credits(day: usize, device: &str) -> String {
    format!("[loop: day {day}, on {device}; {}]", whose(DAYS))
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
