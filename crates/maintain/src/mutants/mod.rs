//! Mutants of a day's reference: small changes, each of which some check of that day should notice.
//!
//! They reach the checks as known mistakes do: `build.rs` puts them into the day's test binary as
//! modules.

pub mod binary;
pub mod cargo_mutants;
pub mod command;
pub mod functions;
pub mod own_mutants;
pub mod sharing;
pub mod survivors;
pub mod trial;
pub mod verdicts;

use std::collections::BTreeMap;
use std::ops::Range;

/// One change of a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The bytes that are replaced.
    pub place: Range<usize>,
    /// What stands there instead.
    pub replacement: String,
    /// What tells it from every other mutant of its day, also when lines move.
    pub id: Id,
}

/// A mutant in words: where it is and what it changes. Lines are quoted, not numbered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// The function it is in.
    pub function: String,
    /// The line it begins on.
    pub line: String,
    /// What it does: "replace < with <=".
    pub change: String,
}

impl Mutant {
    /// A change of `source`, named after the line that it begins on.
    pub fn new(
        source: &str,
        place: Range<usize>,
        function: &str,
        change: &str,
        replacement: &str,
    ) -> Self {
        let line = source[..place.start].rfind('\n').map_or(0, |at| at + 1);
        let line = source[line..].lines().next().unwrap_or_default().trim();
        let id = Id { function: function.into(), line: line.into(), change: change.into() };
        Self { place, replacement: replacement.into(), id }
    }

    /// The reference with the change made.
    pub fn of(&self, source: &str) -> String {
        let (before, after) = (&source[..self.place.start], &source[self.place.end..]);
        format!("{before}{}{after}", self.replacement)
    }

    /// The module of the mutant, inside the reference's: what it has of its own.
    pub fn module(&self, source: &str) -> String {
        sharing::own_items(source, &self.place, &self.of(source))
    }
}

/// Numbers the changes that are the same in words: "replace + with - (2)" is the second on its
/// line.
pub fn told_apart(mut mutants: Vec<Mutant>) -> Vec<Mutant> {
    let mut seen: BTreeMap<Id, usize> = BTreeMap::new();
    for mutant in &mut mutants {
        let count = seen.entry(mutant.id.clone()).or_default();
        *count += 1;
        if *count > 1 {
            mutant.id.change += &format!(" ({count})");
        }
    }
    mutants
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_is_named_by_its_line_and_told_apart_on_it() {
        let source = "fn f() -> u32 {\n    1 + 2 + 3\n}\n";
        let minus = |at: usize| Mutant::new(source, at..at + 1, "f", "replace + with -", "-");
        let mutants = told_apart(vec![minus(22), minus(26)]);
        assert_eq!(mutants[0].of(source), "fn f() -> u32 {\n    1 - 2 + 3\n}\n");
        assert_eq!(mutants[1].id.line, "1 + 2 + 3");
        assert_eq!(mutants[1].id.change, "replace + with - (2)");
    }
}
