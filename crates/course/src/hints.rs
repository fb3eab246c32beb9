//! The hints, three tiers for every task: what `cargo xtask hint` shows, one tier at a time.
//!
//! - `question` makes the reader see what is missing.
//! - `idea` says it in plain words, with a number where one helps.
//! - `shape` is the outline of the code, with the calls to use and their shapes, and `…` in place
//!   of the decisive expressions.
//!
//! In a day's `hints.toml`, a table is named after its task. The lines of `question` and `idea` are
//! prose and are wrapped again; those of `shape` are shown as they are. Hints are for a reader who
//! has read the chapter and is stuck: they don't repeat it, and they don't print the reference.

use crate::task::Task;
use std::collections::BTreeMap;

/// The text of each tier, by the tier's key, for each task.
pub type Hints = BTreeMap<String, BTreeMap<String, String>>;

/// The tiers, from least to most help: their keys, and their names on the screen.
pub const TIERS: [(&str, &str); 3] = [
    ("question", "a question"),
    ("idea", "a sharper question"),
    ("shape", "the shape of the code"),
];

/// Returns the tiers of a task. A challenge has only a question.
pub fn tiers(task: &Task) -> &'static [(&'static str, &'static str)] {
    if task.challenge {
        &TIERS[..1]
    } else {
        &TIERS
    }
}
