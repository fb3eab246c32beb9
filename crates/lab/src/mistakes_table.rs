//! `cargo xtask mistakes`: runs a day's checks on every known mistake, every correct variant and
//! the stub, and prints a table. Compares it with the day's `record.jsonl`, or writes that.

use anyhow::Result;
use candecode_course::{task_of_check, Day, Repo};
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use xtask::backup;
use xtask::cargo::{self, Built};
use xtask::checking::builds::{self, Mix};
use xtask::checking::known::{self, Known, Mistake};
use xtask::checking::mistakes;
use xtask::checking::outcome::{self, Failure, MistakeRow, Status};
use xtask::checking::runner::DayRun;
use xtask::checking::table::{self, Sum};
use xtask::note;
use xtask::say;
use xtask::term::{paint, Color};

/// The flags of `mistakes`.
#[derive(Args)]
pub struct Mistakes {
    /// The day: `day6` or `6` [default: all]
    #[arg(value_name = "DAY")]
    day: Option<String>,
    /// Write how each mistake fails the checks to tests/dayNN_*/record.jsonl
    #[arg(long)]
    record: bool,
}

/// The number of mistakes that each day needs.
const FEWEST: usize = 6;

/// Runs `mistakes`. The exit code is 0 only if every mistake is caught and named, every variant
/// passes, and the records say what the checks do now.
///
/// # Errors
/// If the usage is wrong, or the repository's programs can't be built or started.
pub fn run(repo: &Repo, args: &Mistakes) -> Result<ExitCode> {
    let days: Vec<Day> = match &args.day {
        Some(day) => vec![repo.day(day)?.clone()],
        None => repo.days.clone(),
    };
    let programs = match builds::build(repo, Mix::Reference, &days, None)? {
        Built::Done(programs) => programs,
        Built::Broken(places) => {
            note!("\n{}", cargo::explain(&places));
            return Ok(ExitCode::FAILURE);
        }
    };
    let mut sum = Sum::default();
    for day in &days {
        let run = mistakes::prove(repo, day, &programs)?;
        let rows = outcome::mistake_rows(&run.report);
        let known = known(repo, day, &rows)?;
        sum.add(show(repo, &run, &rows, &known)?);
        if args.record {
            backup::write(&repo.root.join(day.record()), known.record().as_bytes())?;
            continue;
        }
        let kept = repo.read(&day.record()).unwrap_or_default();
        let changes = changes(&known::parse(&kept)?, &known);
        if !changes.is_empty() {
            say!("{} isn't what the checks do now:", day.record());
            changes.iter().for_each(|line| say!("  {line}"));
            let command = format!("cargo xtask mistakes day{} --record", day.number);
            say!("If that's intended, `{command}` writes it again.\n");
            sum.add(Sum { passed: 0, failed: 1 });
        }
    }
    say!("{}", sum.line());
    Ok(ExitCode::from(u8::from(sum.failed > 0)))
}

/// Returns a day's known mistakes as they are now.
fn known(repo: &Repo, day: &Day, rows: &[MistakeRow]) -> Result<Known> {
    let failures = |name: &str| {
        let row = rows.iter().find(|row| row.kind == "mistake" && row.name == name)?;
        Some(row.failures.clone())
    };
    Ok(Known::of(&repo.mistakes(day)?, &repo.checks(day)?, failures))
}

/// Prints a day's table and any problems with its checkers. Returns the totals, which include each
/// row and each problem.
fn show(repo: &Repo, run: &DayRun, rows: &[MistakeRow], known: &Known) -> Result<Sum> {
    say!("{}", paint(Color::Bold, &run.day.title()));
    let mut lines: Vec<(&str, bool, &str, String)> = Vec::new();
    for mistake in &known.mistakes {
        let named = known.named(mistake);
        let (is_good, word) = judge(mistake, &named);
        let by = format!("by {}", tasks(&known.caught(mistake)));
        lines.push((&mistake.name, is_good, word, by));
        let words = format!("named in {}: {}", tasks(&named), mistake.diagnosis);
        lines.push(("", true, "", words));
    }
    for row in rows.iter().filter(|row| row.kind == "variant") {
        let is_good = row.caught.is_empty();
        let word = if is_good { "passes" } else { "fails" };
        lines.push((&row.name, is_good, word, "another correct solution".to_string()));
    }
    for row in rows.iter().filter(|row| row.kind == "stub") {
        let is_good = row.words == format!("{} checks", row.caught.len());
        let word = if is_good { "not written" } else { "unclear" };
        let by = format!("by {} of {}", row.caught.len(), row.words);
        lines.push((&row.name, is_good, word, by));
    }
    let width = lines.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    for (name, is_good, word, rest) in &lines {
        let (color, symbol) = if *is_good { (Color::Green, "✓") } else { (Color::Red, "✗") };
        match name.is_empty() {
            true => say!("{}", paint(Color::Dim, &format!("{:>16}{rest}", ""))),
            false => {
                let mark = paint(color, &format!("{symbol} {word:<11}"));
                say!("  {mark} {name:<width$}  {rest}");
            }
        }
    }
    let mut failed = run.units.iter().filter(|unit| unit.status != Status::Passed).count();
    table::messages(run, false, &[]);
    // The stub's row names every check.
    let checked = rows.iter().filter(|row| row.kind == "stub").flat_map(|row| &row.caught);
    let checked: Vec<String> = checked.filter_map(|check| task_of_check(check)).collect();
    for task in repo.tasks(&run.day)?.iter().filter(|task| !checked.contains(&task.id)) {
        say!("  task {} has no check", task.id);
        failed += 1;
    }
    let (has, needs) = (known.mistakes.len(), repo.mistakes(&run.day)?.mistakes.len().max(FEWEST));
    if has < needs {
        say!("  {has} known mistakes were tried; there should be {needs}");
        failed += 1;
    }
    say!("");
    let lines = lines.iter().filter(|(name, ..)| !name.is_empty());
    let (good, bad): (Vec<_>, Vec<_>) = lines.partition(|(_, is_good, ..)| *is_good);
    Ok(Sum { passed: good.len(), failed: failed.max(bad.len()) })
}

/// Returns whether a mistake is caught and told apart from all others, and a word for that. A
/// mistake that leads to nothing but NaN, panics and loops is never named.
fn judge(mistake: &Mistake, named: &[&str]) -> (bool, &'static str) {
    match (mistake.failures.is_empty(), named.is_empty()) {
        (true, _) => (false, "passes"),
        (false, true) if mistake.can_be_named() => (false, "not named"),
        (false, _) => (true, "caught"),
    }
}

/// Returns the differences between a record and what the mistakes do now.
fn changes(kept: &BTreeMap<String, BTreeMap<String, Failure>>, now: &Known) -> Vec<String> {
    let mut lines = Vec::new();
    for mistake in &now.mistakes {
        let name = &mistake.name;
        let Some(kept) = kept.get(name) else {
            lines.push(format!("{name} isn't recorded"));
            continue;
        };
        let checks: BTreeSet<&String> = kept.keys().chain(mistake.failures.keys()).collect();
        for check in checks {
            let (was, is) = (kept.get(check), mistake.failures.get(check));
            if !was.zip(is).is_some_and(|(was, is)| was.same(is)) {
                lines.push(format!("{name} in {check}: was {was:?}, is {is:?}"));
            }
        }
    }
    let is_known = |name: &String| now.mistakes.iter().any(|mistake| mistake.name == *name);
    let gone = kept.keys().filter(|name| !is_known(name));
    lines.extend(gone.map(|name| format!("{name} is recorded, but isn't a known mistake")));
    lines
}

/// Returns the tasks that some checks belong to, with the number of checks if there are several:
/// `6.1, 6.3 (4)`.
fn tasks(checks: &[&str]) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for task in checks.iter().filter_map(|check| task_of_check(check)) {
        match counts.last_mut().filter(|(known, _)| *known == task) {
            Some((_, count)) => *count += 1,
            None => counts.push((task, 1)),
        }
    }
    let word = |(task, count): &(String, usize)| match count {
        1 => task.clone(),
        n => format!("{task} ({n})"),
    };
    if counts.is_empty() {
        "nothing".to_string()
    } else {
        counts.iter().map(word).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(words: &str) -> Failure {
        Failure { status: Status::Failed, words: words.into() }
    }

    /// Known mistakes `a`, `b`, … with these failures in two checks.
    fn known_with(failures: &[[Option<&str>; 2]]) -> Known {
        let names: Vec<String> = (b'a'..).map(|c| (c as char).to_string()).take(26).collect();
        let entry = |name: &String| {
            let nothing = "find = \"\"\nreplace = \"\"";
            format!("[[mistake]]\nname = \"{name}\"\n{nothing}\ndiagnosis = \"{name}\"\n")
        };
        let text: String = names.iter().take(failures.len()).map(entry).collect();
        let of = |name: &str| {
            let words = failures[names.iter().position(|other| other == name)?];
            let failed = CHECKS.iter().zip(words);
            Some(failed.filter_map(|(c, w)| Some((c.to_string(), failure(w?)))).collect())
        };
        Known::of(&toml::from_str(&text).unwrap(), &CHECKS.map(String::from), of)
    }

    const CHECKS: [&str; 2] = ["task_6_1_b", "task_6_10_c"];

    #[test]
    fn a_mistake_must_be_caught_and_named() {
        let known = known_with(&[
            [None, None],
            [Some("x\n1"), None],
            [Some("x\n2"), None],
            [Some("x\n2"), None],
            [Some("x\nNaN"), None],
        ]);
        let word = |mistake: &Mistake| judge(mistake, &known.named(mistake)).1;
        let words: Vec<&str> = known.mistakes.iter().map(word).collect();
        assert_eq!(words, ["passes", "caught", "not named", "not named", "caught"]);
    }

    #[test]
    fn a_table_without_rows_fails() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let repo = Repo::open(std::path::Path::new(root)).unwrap();
        let run = DayRun::of(&repo.days[0], vec![]);
        let sum = show(&repo, &run, &[], &known(&repo, &run.day, &[]).unwrap()).unwrap();
        assert!(sum.passed == 0 && sum.failed > 0);
    }

    #[test]
    fn a_record_can_be_read_again_and_a_change_is_named() {
        let known = known_with(&[[Some("x\n1"), Some("y\n")], [Some("x\n1"), None]]);
        let record = known.record();
        assert_eq!(record.lines().count(), 2, "a line for each way to fail: {record}");
        assert_eq!(changes(&known::parse(&record).unwrap(), &known), [""; 0]);
        let other = known_with(&[[Some("x\n1.000001"), Some("y\n3")]]);
        let lines = changes(&known::parse(&record).unwrap(), &other);
        assert_eq!(lines.len(), 2, "rounding is no change: {lines:?}");
        assert!(lines[0].starts_with("a in task_6_10_c: ") && lines[1].starts_with("b is"));
    }

    #[test]
    fn checks_are_counted_by_task() {
        assert_eq!(tasks(&["task_6_1_a", "task_6_3_b", "task_6_3_c"]), "6.1, 6.3 (2)");
        assert_eq!(tasks(&[]), "nothing");
    }
}
