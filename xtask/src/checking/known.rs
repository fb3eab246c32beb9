//! The known mistakes of a day, and which of them explain what the checks say about the reader's
//! code.
//!
//! How each mistake fails the checks doesn't depend on the reader's code, so it's in the
//! repository: `tests/dayNN_*/record.jsonl`, which `cargo xtask mistakes dayN --record` writes.

use crate::checking::outcome::{Failure, Status, Unit, DIAGNOSIS};
use anyhow::{bail, Context, Result};
use candecode_course::{task_of_check, Day, Mistakes, Repo};
use serde_json::{json, Value};
use std::collections::BTreeMap;

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
    /// Returns what the checks say if a reader makes this mistake and no other.
    fn results(&self, checks: &[String]) -> Results {
        checks.iter().map(|check| (check.clone(), self.failures.get(check).cloned())).collect()
    }

    /// Returns whether it can be named: whether it leads to more than NaN, panics and loops.
    pub fn can_be_named(&self) -> bool {
        self.failures.values().any(Failure::is_telling)
    }
}

/// The known mistakes of a day.
pub struct Known {
    /// The mistakes, in the order of `mistakes.toml`.
    pub mistakes: Vec<Mistake>,
    /// The day's checks, in the order of their table.
    checks: Vec<String>,
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
    /// The checks that fail as with the mistake.
    alike: Vec<&'a str>,
    /// The checks of these that say anything about the cause.
    telling: Vec<&'a str>,
    /// The checks that fail in another way than with the mistake.
    otherwise: Vec<&'a str>,
    /// The checks that fail, although the mistake passes them.
    besides: Vec<&'a str>,
    /// The number of checks that pass, although the mistake fails them.
    refuted: usize,
    /// Whether the mistake fails checks that didn't run.
    unseen: bool,
}

impl<'a> Fit<'a> {
    fn new(mistake: &'a Mistake, results: &'a Results) -> Fit<'a> {
        let mut fit = Fit {
            mistake,
            alike: Vec::new(),
            telling: Vec::new(),
            otherwise: Vec::new(),
            besides: Vec::new(),
            refuted: 0,
            unseen: mistake.failures.keys().any(|check| !results.contains_key(check)),
        };
        for (check, found) in results {
            match (found, mistake.failures.get(check)) {
                (Some(found), Some(known)) if known.same(found) => {
                    fit.alike.push(check);
                    fit.telling.extend(found.is_telling().then_some(check.as_str()));
                }
                // A panic in another task hides what the mistake would do there.
                (Some(found), Some(_)) if found.status != Status::Failed && !fit.is_home(check) => {
                    fit.unseen = true;
                }
                (Some(_), Some(_)) => fit.otherwise.push(check),
                (Some(_), None) => fit.besides.push(check),
                (None, Some(_)) => fit.refuted += 1,
                (None, None) => {}
            }
        }
        fit
    }

    /// Returns whether a check belongs to the mistake's task.
    fn is_home(&self, check: &str) -> bool {
        task_of_check(check) == self.mistake.task
    }

    /// Returns whether the mistake explains its own task, and no check that passes refutes it.
    fn explains_its_task(&self) -> bool {
        let is_home = |check: &&str| self.is_home(check);
        let mut missed = self.otherwise.iter().chain(&self.besides).peekable();
        let is_told = match missed.peek() {
            None => !self.telling.is_empty(),
            Some(_) => self.telling.iter().any(is_home),
        };
        self.refuted == 0 && is_told && !missed.any(is_home)
    }

    /// Returns which part of the checks that fail, here or with the mistake, fail alike.
    fn share(&self) -> f64 {
        let alike = self.alike.len();
        let all = alike + self.otherwise.len() + self.besides.len() + self.refuted;
        alike as f64 / all.max(1) as f64
    }

    /// Returns whether the mistake is likely, by the first failure that has no cause yet: it may be
    /// its cause, and explains enough of the others.
    fn is_likely(&self, first: &str) -> bool {
        self.telling.contains(&first) && self.is_home(first) && self.share() >= LIKELY
    }

    /// Returns the cause of the failures that the mistake explains, if it explains its task. One
    /// check can fail in the same way for several reasons, which checks that didn't run would have
    /// told apart.
    fn cause(&self) -> Cause<'a> {
        match self.unseen && self.telling.len() == 1 {
            false => Cause::Fact(self.mistake),
            true => Cause::Perhaps(vec![self.mistake]),
        }
    }
}

/// The share of failures from which a mistake is likely. Of the known mistakes, if each is taken
/// for unknown, 3 % are then taken for another one, often for one with the same cause.
const LIKELY: f64 = 0.4;

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
        Known { mistakes: recorded.collect(), checks: checks.to_vec() }
    }

    /// Returns the record: a line for each way in which a check fails, with the mistakes that make
    /// it fail so.
    pub fn record(&self) -> String {
        let mut text = String::new();
        for check in &self.checks {
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
                let line = json!({ "by": by, "check": check, "status": status, "words": words });
                text += &format!("{line}\n");
            }
        }
        text
    }

    /// Returns why the checks fail, by check, as far as known mistakes explain it.
    ///
    /// A mistake is a fact if it explains all checks of its task, and more than any other that
    /// does, and if all checks that it fails elsewhere fail as they do with it, except for those
    /// that another such mistake fails, too, and if other facts explain all failures before it. It
    /// is likely if it only explains its task, or if it explains the first failure and many others.
    pub fn causes<'a>(&'a self, results: &'a Results) -> BTreeMap<&'a str, Cause<'a>> {
        let fits: Vec<Fit> =
            self.mistakes.iter().map(|mistake| Fit::new(mistake, results)).collect();
        let mut of_task: BTreeMap<Option<&str>, Vec<&Fit>> = BTreeMap::new();
        for fit in fits.iter().filter(|fit| fit.explains_its_task()) {
            of_task.entry(fit.mistake.task.as_deref()).or_default().push(fit);
        }
        let sole = of_task.into_values().map(best).filter(|fits| fits.len() == 1);
        let sole: Vec<&Fit> = sole.flatten().collect();
        // One that explains nothing that another doesn't explain as well isn't needed.
        let covers = |fit: &Fit, other: &Fit| {
            other.share() > fit.share() && fit.alike.iter().all(|one| other.alike.contains(one))
        };
        let is_needed = |fit: &&Fit| !sole.iter().any(|other| covers(fit, other));
        let only: Vec<&Fit> = sole.iter().copied().filter(is_needed).collect();
        let fails = |check: &str| {
            only.iter().filter(|fit| fit.mistake.failures.contains_key(check)).count()
        };
        let mut causes = BTreeMap::new();
        for fit in &only {
            if fit.otherwise.iter().all(|check| fails(check) > 1) {
                causes.extend(fit.telling.iter().map(|check| (*check, fit.cause())));
            }
        }
        let failing =
            self.checks.iter().filter(|check| matches!(results.get(*check), Some(Some(_))));
        let failing: Vec<&str> = failing.map(String::as_str).collect();
        // A failure before it that no fact explains may be its cause.
        let facts: Vec<&Fit> = only
            .into_iter()
            .filter(|fit| causes.values().any(|cause| *cause == fit.cause()))
            .collect();
        let explained =
            |check: &str| facts.iter().any(|fit| fit.mistake.failures.contains_key(check));
        let unexplained = failing.iter().position(|check| !explained(check));
        for cause in causes.values_mut() {
            let Cause::Fact(mistake) = *cause else { continue };
            let first = failing.iter().position(|check| mistake.failures.contains_key(*check));
            if unexplained.is_some_and(|at| Some(at) < first) {
                *cause = Cause::Perhaps(vec![mistake]);
            }
        }
        for check in &failing {
            let may = fits.iter().filter(|f| f.explains_its_task() && f.telling.contains(check));
            let may: Vec<&Mistake> = best(may.collect()).iter().map(|fit| fit.mistake).collect();
            // What more mistakes lead to identifies none of them.
            if matches!(may.len(), 1 | 2) {
                causes.entry(*check).or_insert(Cause::Perhaps(may));
            }
        }
        let first = failing.into_iter().find(|check| !causes.contains_key(check));
        let may = fits.iter().filter(|fit| first.is_some_and(|first| fit.is_likely(first)));
        if let [one] = best(may.collect())[..] {
            for check in &one.telling {
                causes.entry(*check).or_insert(Cause::Perhaps(vec![one.mistake]));
            }
        }
        causes
    }

    /// Returns the checks in which a mistake is named as a fact if a reader makes it and no other.
    pub fn named(&self, mistake: &Mistake) -> Vec<&str> {
        let results = mistake.results(&self.checks);
        let causes = self.causes(&results);
        let is_named = |check: &&str| causes.get(check) == Some(&Cause::Fact(mistake));
        self.checks.iter().map(String::as_str).filter(is_named).collect()
    }

    /// Returns the checks that catch a mistake.
    pub fn caught(&self, mistake: &Mistake) -> Vec<&str> {
        let fails = |check: &&str| mistake.failures.contains_key(*check);
        self.checks.iter().map(String::as_str).filter(fails).collect()
    }

    /// Returns the checks that haven't run, but would confirm or refute a cause.
    pub fn undecided(&self, units: &[Unit]) -> Vec<String> {
        let results = results(units);
        let mut mistakes: Vec<&Mistake> = Vec::new();
        for cause in self.causes(&results).into_values() {
            match cause {
                Cause::Fact(one) => mistakes.push(one),
                Cause::Perhaps(some) => mistakes.extend(some),
            }
        }
        let has_run = |check: &String| units.iter().any(|unit| unit.test == *check);
        let decides =
            |check: &&String| mistakes.iter().any(|one| one.failures.contains_key(*check));
        self.checks.iter().filter(decides).filter(|check| !has_run(check)).cloned().collect()
    }

    /// Adds the causes to the messages of the checks that fail. `others` are results of checks that
    /// aren't shown.
    pub fn explain(&self, units: &mut [Unit], others: &[Unit]) {
        let results = results(&[units, others].concat());
        let causes = self.causes(&results);
        for unit in units {
            if let Some(cause) = causes.get(unit.test.as_str()) {
                unit.add_cause(&cause.lines());
            }
        }
    }
}

/// Returns those that explain most: one, or several that explain equally much.
fn best<'f, 'a>(fits: Vec<&'f Fit<'a>>) -> Vec<&'f Fit<'a>> {
    let most = fits.iter().map(|fit| fit.share()).max_by(f64::total_cmp);
    fits.into_iter().filter(|fit| Some(fit.share()) == most).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Each known mistake is a fact, and one that nobody knows yet isn't taken for another. As such
    /// a mistake, each known one is compared with the record of all others: named as a fact, it
    /// would be another mistake, and as a likely one it mostly is.
    #[test]
    fn known_mistakes_are_facts_and_unknown_ones_are_not_taken_for_them() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let repo = Repo::open(&root).unwrap();
        let (mut all, mut unnamed, mut facts, mut likely) = (0, vec![], vec![], vec![]);
        for day in &repo.days {
            let mut known = Known::read(&repo, day).unwrap();
            for at in 0..known.mistakes.len() {
                let name = format!("day {}: {}", day.number, known.mistakes[at].name);
                let mistake = &known.mistakes[at];
                let results = mistake.results(&known.checks);
                let causes = known.causes(&results);
                let is_it = |cause: &Cause| *cause == Cause::Fact(mistake);
                if causes.is_empty() == mistake.can_be_named() || !causes.values().all(is_it) {
                    unnamed.push(name.clone());
                }
                let unknown = known.mistakes.remove(at);
                let results = unknown.results(&known.checks);
                let causes: Vec<Cause> = known.causes(&results).into_values().collect();
                if causes.iter().any(|cause| matches!(cause, Cause::Fact(_))) {
                    facts.push(name);
                } else if !causes.is_empty() {
                    likely.push(name);
                }
                known.mistakes.insert(at, unknown);
                all += 1;
            }
        }
        println!("of {all} mistakes, {} lead to another one that is likely", likely.len());
        assert!(all > 1000 && unnamed.is_empty() && facts.is_empty(), "{unnamed:?} {facts:?}");
        assert!(100 * likely.len() <= 3 * all, "{likely:?}");
    }
}
