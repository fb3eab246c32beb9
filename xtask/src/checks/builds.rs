//! Which builds a check needs: one for the reference, one for each day of the reader's.

use crate::progress::{self, Progress};
use crate::repo::{Day, Repo};
use crate::usage;
use anyhow::Result;
use clap::ValueEnum;

/// Whose file a day is compiled from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CodeOf {
    /// `src/`: yours.
    #[value(name = "mine")]
    Reader,
    /// `solutions/`: the reference.
    #[value(name = "ref")]
    Reference,
}

/// The feature that compiles the known mistakes into the test programs.
pub const MISTAKES: &str = "mistakes";

/// One build, and the days checked on it.
#[derive(Debug, PartialEq, Eq)]
pub struct Job {
    /// Cargo's features.
    pub features: Vec<String>,
    /// The days to check.
    pub days: Vec<Day>,
    /// Whose code this is, in words.
    pub words: &'static str,
}

/// All builds of a check, and the days that need none.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// In the order to run them.
    pub jobs: Vec<Job>,
    /// Days without a line of the reader's: known to be unwritten without a build.
    pub stubs: Vec<Day>,
}

/// Plans the check of one day, or of all.
///
/// A day without a line of the reader's is not built, also when it is named.
///
/// # Errors
/// Bad usage: all days from the reference, among the reader's own; or a file that cannot be read.
pub fn plan(repo: &Repo, day: Option<&Day>, solution: CodeOf, rest: CodeOf) -> Result<Plan> {
    let chosen: Vec<Day> = day.map_or_else(|| repo.days.clone(), |day| vec![day.clone()]);
    let job = |reference: &dyn Fn(&Day) -> bool, days: Vec<Day>, words| {
        let mut features = repo.features(reference);
        if solution == CodeOf::Reader {
            features.push(MISTAKES.to_string()); // to name what a failing check has found
        }
        Job { features, days, words }
    };
    match (solution, rest, day) {
        (CodeOf::Reference, CodeOf::Reader, None) => Err(usage(
            "--solution ref takes every day from the reference, so no day is left for --rest mine: \
             name one day",
        )),
        (CodeOf::Reference, CodeOf::Reader, Some(only)) => {
            let words = "the reference, among days of yours";
            Ok(Plan { jobs: vec![job(&|day| day == only, chosen, words)], stubs: vec![] })
        }
        (CodeOf::Reference, CodeOf::Reference, _) => {
            Ok(Plan { jobs: vec![job(&|_| true, chosen, "the reference")], stubs: vec![] })
        }
        (CodeOf::Reader, _, _) => {
            let (stubs, begun) = split(repo, chosen)?;
            let jobs = if rest == CodeOf::Reference {
                let words = "yours, among reference days";
                let alone = |mine: Day| job(&|day| *day != mine, vec![mine.clone()], words);
                begun.into_iter().map(alone).collect()
            } else if begun.is_empty() {
                vec![]
            } else {
                vec![job(&|_| false, begun, "yours, among days of yours")]
            };
            Ok(Plan { jobs, stubs })
        }
    }
}

/// Days without a line of the reader's, and days with one.
fn split(repo: &Repo, days: Vec<Day>) -> Result<(Vec<Day>, Vec<Day>)> {
    let (mut stubs, mut begun) = (vec![], vec![]);
    for day in days {
        match progress::of(repo, &day)? {
            Progress::Stub => stubs.push(day),
            Progress::Begun(_) | Progress::Missing => begun.push(day),
        }
    }
    Ok((stubs, begun))
}
