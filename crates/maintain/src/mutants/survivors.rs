//! The committed reports: how many mutants a day has, and why those that survive are no mistakes.

use super::Id;
use anyhow::{Context, Result};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use xtask::backup;
use xtask::repo::{Day, Repo};

/// How many mutants a day has, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// They do not compile.
    pub unviable: u64,
    /// A check fails.
    pub caught: u64,
    /// Of those: the process died or did not end.
    pub stopped: u64,
    /// Every check passes.
    pub survived: u64,
}

/// The report of a day.
#[derive(Default)]
pub struct Report {
    /// What became of the mutants.
    pub counts: Counts,
    /// What made the list, and the compiler.
    pub versions: String,
    /// Survivors, each with the reason why no check can tell it; an empty one is still to be found.
    pub reasons: BTreeMap<Id, String>,
}

/// Where the report of a day is, relative to the root.
pub fn path(day: &Day) -> String {
    format!("tests/mutants/{}.json", &day.name[..5])
}

impl Report {
    /// The report of a day as it is; an empty one, if there is none.
    ///
    /// # Errors
    /// If the file is no report.
    pub fn read(repo: &Repo, day: &Day) -> Result<Self> {
        let path = path(day);
        if !repo.root.join(&path).exists() {
            return Ok(Self::default());
        }
        let value: Value = serde_json::from_str(&repo.read(&path)?).context(path)?;
        let count = |name: &str| value["counts"][name].as_u64().unwrap_or_default();
        let counts = Counts {
            unviable: count("unviable"),
            caught: count("caught"),
            stopped: count("of these stopped"),
            survived: count("survived"),
        };
        let mut reasons = BTreeMap::new();
        for entry in value["survivors"].as_array().into_iter().flatten() {
            let word = |name: &str| entry[name].as_str().unwrap_or_default().to_string();
            let id = Id { function: word("in"), line: word("line"), change: word("change") };
            reasons.insert(id, word("reason"));
        }
        let versions = value["versions"].as_str().unwrap_or_default().to_string();
        Ok(Self { counts, versions, reasons })
    }

    /// Writes the report of a day, and the table of all days.
    ///
    /// # Errors
    /// If there is no space or no permission.
    pub fn write(&self, repo: &Repo, day: &Day) -> Result<()> {
        let counts = self.counts;
        let survivors = self.reasons.iter().map(|(id, reason)| {
            json!({ "in": id.function, "line": id.line, "change": id.change, "reason": reason })
        });
        let value = json!({
            "command": format!("cargo maintain mutants day{}", day.number),
            "versions": self.versions,
            "counts": {
                "unviable": counts.unviable,
                "caught": counts.caught,
                "of these stopped": counts.stopped,
                "survived": counts.survived,
            },
            "survivors": survivors.collect::<Vec<_>>(),
        });
        let text = serde_json::to_string_pretty(&value)? + "\n";
        backup::write(&repo.root.join(path(day)), text.as_bytes())?;
        backup::write(&repo.root.join("tests/mutants/README.md"), table(repo)?.as_bytes())
    }

    /// Survivors without a reason.
    pub fn unexplained(&self) -> Vec<&Id> {
        let open = self.reasons.iter().filter(|(_, reason)| reason.trim().is_empty());
        open.map(|(id, _)| id).collect()
    }
}

const HEAD: &str = "\
# Mutants

`cargo maintain mutants dayN` changes the reference of a day in one small way after the other, and runs that day's checks
on each. A change that some check notices is *caught* (*stopped*: the checks ran into their limit, or the process died).
A change that none notices *survived*: it stands in the day's file with the reason why it is no mistake. This table and
the files are written by the command; the reasons are not.

| day | mutants | do not compile | caught | of these stopped | survived, with a reason | caught of those that compile |
|---|---|---|---|---|---|---|
";

/// The table of all days that have a report.
fn table(repo: &Repo) -> Result<String> {
    let mut text = HEAD.to_string();
    let mut waiting = Vec::new();
    for day in &repo.days {
        let report = Report::read(repo, day)?;
        let Counts { unviable, caught, stopped, survived } = report.counts;
        let viable = caught + survived;
        if viable == 0 {
            waiting.push(day.number.to_string());
            continue;
        }
        let share = 100.0 * caught as f64 / viable as f64;
        let all = unviable + viable;
        let number = day.number;
        let _ = writeln!(
            text,
            "| {number} | {all} | {unviable} | {caught} | {stopped} | {survived} | {share:.1} % |"
        );
    }
    if !waiting.is_empty() {
        let _ = writeln!(text, "\nDays that wait for a run: {}.", waiting.join(", "));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The days themselves are mutated by hand; that the reports still fit is checked with every
    /// other test.
    #[test]
    fn every_survivor_of_a_report_has_its_line_and_a_reason() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let repo = Repo::open(&root).unwrap();
        for day in &repo.days {
            let (report, source) =
                (Report::read(&repo, day).unwrap(), repo.read(&day.solution()).unwrap());
            assert_eq!(report.unexplained(), Vec::<&Id>::new());
            assert_eq!(report.counts.survived as usize, report.reasons.len(), "{}", path(day));
            for id in report.reasons.keys() {
                let there = source.lines().any(|line| line.trim() == id.line);
                assert!(there, "{}: `{}` is gone: run the command again", path(day), id.line);
            }
            let viable = report.counts.caught + report.counts.survived;
            assert!(100 * report.counts.caught >= 95 * viable, "{}: below 95 %", path(day));
        }
    }
}
