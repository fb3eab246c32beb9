//! The known mistakes of a day, and which of them explain what the checks say about the reader's
//! code.
//!
//! How each mistake fails the checks doesn't depend on the reader's code, so it's in the
//! repository: `tests/dayNN_*/record.jsonl`, which `cargo xtask mistakes dayN --record` writes.

use crate::checking::outcome::{Status, Unit, DIAGNOSIS};
use anyhow::{bail, Context, Result};
use candecode_course::{task_of_check, Day, Mistakes, Repo};
use serde_json::{json, Value};
use std::collections::BTreeMap;

/// A failed check, as far as it's compared with others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// How it failed.
    pub status: Status,
    /// The words that were shown and, in a second line, those of the result.
    pub words: String,
}

impl Failure {
    /// Parses a failure from the fields of a record.
    pub fn of(record: &Value) -> Option<Failure> {
        let status = Status::parse(record["status"].as_str()?)?;
        Some(Failure { status, words: record["words"].as_str().unwrap_or_default().to_string() })
    }

    /// Returns whether two failures of one check match word for word. Numbers may differ by as much
    /// as reordering the same operations changes them.
    pub fn same(&self, other: &Failure) -> bool {
        let number = |word: &str| word.parse::<f64>().ok();
        let alike = |(a, b): (&str, &str)| match (number(a), number(b)) {
            _ if a == b => true,
            (Some(a), Some(b)) if a.is_finite() => (a - b).abs() <= 1e-5 * a.abs().max(1.0),
            _ => false,
        };
        let words = |failure: &'_ Failure| failure.words.split_whitespace().count();
        self.status == other.status
            && words(self) == words(other)
            && self.words.split_whitespace().zip(other.words.split_whitespace()).all(alike)
    }

    /// Returns whether it says anything about its cause: it's a wrong result or an error, and more
    /// than NaN, which many mistakes lead to.
    fn is_telling(&self) -> bool {
        let got = self.words.split_once('\n').map_or("", |(_, got)| got);
        let nothing = !got.is_empty() && got.split_whitespace().all(|word| word.contains("NaN"));
        self.status == Status::Failed && !nothing
    }
}

/// What the checks say: by check, `None` if it passed. Checks that didn't run, or whose task isn't
/// written, are missing.
pub type Results = BTreeMap<String, Option<Failure>>;

/// Returns what the checks say about the reader's code.
pub fn results(units: &[Unit]) -> Results {
    let ran = |unit: &&Unit| !matches!(unit.status, Status::Unwritten | Status::Broken);
    let result = |unit: &Unit| match unit.status {
        Status::Passed => None,
        status => Some(Failure { status, words: unit.words.clone() }),
    };
    units.iter().filter(ran).map(|unit| (unit.test.clone(), result(unit))).collect()
}

/// A known mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Its name in the day's `mistakes.toml`.
    pub name: String,
    /// What the reader is told.
    pub diagnosis: String,
    /// How it fails the checks, by check.
    pub failures: BTreeMap<String, Failure>,
    /// The task of the first check that it fails.
    task: Option<String>,
}

impl Mistake {
    /// Returns whether it can be named: whether it leads to more than NaN, panics and loops.
    pub fn can_be_named(&self) -> bool {
        self.failures.values().any(Failure::is_telling)
    }
}

/// The known mistakes of a day.
pub struct Known {
    /// The mistakes, in the order of `mistakes.toml`.
    pub mistakes: Vec<Mistake>,
}

/// Why a check failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause<'a> {
    /// This mistake explains everything.
    Fact(&'a Mistake),
    /// This mistake, or one of these, is likely.
    Perhaps(Vec<&'a Mistake>),
}

impl Cause<'_> {
    /// Returns the lines of a message that name the cause.
    fn lines(&self) -> Vec<String> {
        match self {
            Cause::Fact(one) => vec![format!("{}: {}", DIAGNOSIS[0], one.diagnosis)],
            Cause::Perhaps(some) => {
                let line = |(start, one): (&&str, &&Mistake)| format!("{start}: {}", one.diagnosis);
                DIAGNOSIS[1..].iter().zip(some).map(line).collect()
            }
        }
    }
}

/// How the results and a mistake's compare.
struct Fit<'a> {
    mistake: &'a Mistake,
    /// The checks that fail alike.
    alike: Vec<&'a str>,
    /// The checks of these that say anything about the cause.
    telling: Vec<&'a str>,
    /// The checks that fail in another way, or that the mistake passes.
    unexplained: Vec<&'a str>,
    /// The number of checks that pass, although the mistake fails them.
    refuted: usize,
    /// Whether the mistake fails checks that didn't run.
    unseen: bool,
}

impl<'a> Fit<'a> {
    fn new(mistake: &'a Mistake, results: &'a Results) -> Fit<'a> {
        let failing = || results.iter().filter_map(|(check, found)| Some((check, found.as_ref()?)));
        let is_alike = |(check, found): &(&String, &Failure)| {
            mistake.failures.get(*check).is_some_and(|known| known.same(found))
        };
        let name = |(check, _): (&'a String, &'a Failure)| check.as_str();
        let passes = |check: &&String| matches!(results.get(*check), Some(None));
        Fit {
            mistake,
            alike: failing().filter(is_alike).map(name).collect(),
            telling: failing()
                .filter(is_alike)
                .filter(|(_, found)| found.is_telling())
                .map(name)
                .collect(),
            unexplained: failing().filter(|one| !is_alike(one)).map(name).collect(),
            refuted: mistake.failures.keys().filter(passes).count(),
            unseen: mistake.failures.keys().any(|check| !results.contains_key(check)),
        }
    }

    /// Returns whether the mistake explains all results.
    fn explains_all(&self) -> bool {
        self.refuted == 0 && self.unexplained.is_empty() && !self.telling.is_empty()
    }

    /// Returns whether the mistake explains its own task, and nothing elsewhere speaks against it.
    fn explains_its_task(&self) -> bool {
        self.refuted == 0
            && self.telling.iter().any(|check| self.is_home(check))
            && !self.unexplained.iter().any(|check| self.is_home(check))
    }

    /// Returns whether a check belongs to the mistake's task.
    fn is_home(&self, check: &str) -> bool {
        task_of_check(check) == self.mistake.task
    }

    /// Returns which part of the checks that fail, here or with the mistake, fail alike.
    fn share(&self) -> f64 {
        let all = self.alike.len() + self.unexplained.len() + self.refuted;
        self.alike.len() as f64 / all.max(1) as f64
    }

    /// Returns whether the mistake may be the cause of this failure.
    fn may_explain(&self, check: &str) -> bool {
        let likely = self.explains_all() || self.explains_its_task();
        self.telling.contains(&check) && (likely || self.is_home(check) && self.share() >= LIKELY)
    }

    /// Returns the cause of the failures that the mistake explains. One check can fail in the same
    /// way for several reasons, which checks that didn't run would have told apart.
    fn cause(&self) -> Cause<'a> {
        match self.unseen && self.telling.len() == 1 {
            false => Cause::Fact(self.mistake),
            true => Cause::Perhaps(vec![self.mistake]),
        }
    }
}

/// The share of failures from which a mistake is likely. Among the known mistakes, of which each
/// was taken for unknown, 2 % are mistaken for another one.
const LIKELY: f64 = 2.0 / 3.0;

impl Known {
    /// Reads a day's known mistakes and their record. A mistake that isn't recorded is left out.
    ///
    /// # Errors
    /// If the files of the repository can't be read.
    pub fn read(repo: &Repo, day: &Day) -> Result<Known> {
        let mut failures = parse(&repo.read(&day.record())?)
            .with_context(|| format!("{} isn't a record", day.record()))?;
        Ok(Known::of(&repo.mistakes(day)?, &repo.checks(day)?, |name| failures.remove(name)))
    }

    /// Returns a day's known mistakes with these failures, by check. Leaves out those without.
    pub fn of(
        mistakes: &Mistakes,
        checks: &[String],
        mut failures: impl FnMut(&str) -> Option<BTreeMap<String, Failure>>,
    ) -> Known {
        let recorded = mistakes.mistakes.iter().filter_map(|mistake| {
            let failures = failures(&mistake.name)?;
            let first = checks.iter().find(|check| failures.contains_key(*check));
            let task = first.and_then(|check| task_of_check(check));
            let (name, diagnosis) = (mistake.name.clone(), mistake.diagnosis.clone());
            Some(Mistake { name, diagnosis, failures, task })
        });
        Known { mistakes: recorded.collect() }
    }

    /// Returns the record: a line for each way in which a check fails, with the mistakes that make
    /// it fail so.
    pub fn record(&self, checks: &[String]) -> String {
        let mut text = String::new();
        for check in checks {
            let mut ways: Vec<(&Failure, Vec<&str>)> = Vec::new();
            for mistake in &self.mistakes {
                let Some(failure) = mistake.failures.get(check) else { continue };
                match ways.iter_mut().find(|(known, _)| *known == failure) {
                    Some((_, by)) => by.push(&mistake.name),
                    None => ways.push((failure, vec![&mistake.name])),
                }
            }
            for (Failure { status, words }, by) in ways {
                let status = status.name();
                let line = json!({ "check": check, "by": by, "status": status, "words": words });
                text += &format!("{line}\n");
            }
        }
        text
    }

    /// Returns why the checks fail, by check, as far as known mistakes explain it.
    ///
    /// A mistake that explains all results is a fact, and so are several, each of another task,
    /// that explain them together. A mistake is likely if it explains its own task, or most of the
    /// failures.
    pub fn causes<'a>(&'a self, results: &'a Results) -> BTreeMap<&'a str, Cause<'a>> {
        let fits: Vec<Fit> =
            self.mistakes.iter().map(|mistake| Fit::new(mistake, results)).collect();
        let all: Vec<&Fit> = fits.iter().filter(|fit| fit.explains_all()).collect();
        let facts = if all.len() == 1 { all } else { together(&fits, results) };
        if !facts.is_empty() {
            let named = |fit: &&Fit<'a>| {
                let cause = fit.cause();
                fit.telling.clone().into_iter().map(move |check| (check, cause.clone()))
            };
            return facts.iter().flat_map(named).collect();
        }
        let mut causes = BTreeMap::new();
        for check in results.keys() {
            let may: Vec<&Fit> = fits.iter().filter(|fit| fit.may_explain(check)).collect();
            let best = may.iter().map(|fit| fit.share()).max_by(f64::total_cmp);
            let best = may.iter().filter(|fit| Some(fit.share()) == best);
            let named: Vec<&Mistake> = best.map(|fit| fit.mistake).collect();
            // What more mistakes lead to identifies none of them.
            if matches!(named.len(), 1 | 2) {
                causes.insert(check.as_str(), Cause::Perhaps(named));
            }
        }
        causes
    }

    /// Adds the causes to the messages of the checks that fail.
    pub fn explain(&self, units: &mut [Unit]) {
        let results = results(units);
        let causes = self.causes(&results);
        for unit in units {
            if let Some(cause) = causes.get(unit.test.as_str()) {
                unit.add_cause(&cause.lines());
            }
        }
    }
}

/// Returns the mistakes that explain all results together, each as the only one of its task. None
/// of the others is needed. Where two of them fail a check, it may fail in a third way.
fn together<'f, 'a>(fits: &'f [Fit<'a>], results: &Results) -> Vec<&'f Fit<'a>> {
    let mut of_task: BTreeMap<&str, Vec<&Fit>> = BTreeMap::new();
    for fit in fits.iter().filter(|fit| fit.explains_its_task()) {
        of_task.entry(fit.mistake.task.as_deref().unwrap_or_default()).or_default().push(fit);
    }
    let only: Vec<&Fit> = of_task.into_values().filter(|fits| fits.len() == 1).flatten().collect();
    let explained = |check: &String| {
        let fails = only.iter().filter(|fit| fit.mistake.failures.contains_key(check)).count();
        fails > 1 || only.iter().any(|fit| fit.alike.contains(&check.as_str()))
    };
    let mut failing = results.iter().filter(|(_, found)| found.is_some());
    match only.len() > 1 && failing.all(|(check, _)| explained(check)) {
        true => only,
        false => Vec::new(),
    }
}

/// Parses a record: the failures of each mistake, by check.
///
/// # Errors
/// If a line isn't one of a record.
pub fn parse(record: &str) -> Result<BTreeMap<String, BTreeMap<String, Failure>>> {
    let mut mistakes: BTreeMap<String, BTreeMap<String, Failure>> = BTreeMap::new();
    for (at, line) in record.lines().enumerate() {
        let number = at + 1;
        let line: Value = serde_json::from_str(line).with_context(|| format!("line {number}"))?;
        let by = line["by"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let check = line["check"].as_str();
        let (Some(check), Some(failure)) = (check, Failure::of(&line)) else {
            bail!("line {number} lacks a check or its status")
        };
        for name in by {
            let failures = mistakes.entry(name.to_string()).or_default();
            failures.insert(check.to_string(), failure.clone());
        }
    }
    Ok(mistakes)
}
