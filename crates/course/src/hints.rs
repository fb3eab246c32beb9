//! The hints, three tiers for every task.

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
