//! `cargo xtask mistakes`: runs a day's checks on every known mistake, every correct variant and
//! the stub, and prints a table. Compares it with the day's `record.txt`, or writes that.

use anyhow::Result;
use candecode_course::{task_of_check, Day, Repo};
use clap::Args;
use std::process::ExitCode;
use xtask::backup;
use xtask::cargo::{self, Built};
use xtask::checking::builds::{self, Mix};
use xtask::checking::mistakes;
use xtask::checking::outcome::{self, MistakeRow, Status};
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
    /// Write which checks catch which mistake to tests/dayNN_*/record.txt
    #[arg(long)]
    record: bool,
}

/// Runs `mistakes`. The exit code is 0 only if every mistake is caught and named, every variant
/// passes, and the records have a line for every mistake. Other differences are shown.
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
        sum.add(show(repo, &run)?);
        let record = record(&repo.mistakes(day)?, &outcome::mistake_rows(&run.report));
        if args.record {
            backup::write(&repo.root.join(day.record()), record.as_bytes())?;
        } else if repo.read(&day.record()).ok().as_ref() != Some(&record) {
            let kept = repo.read(&day.record()).unwrap_or_default();
            say!("{} isn't what the checks do now:", day.record());
            changed(&kept, &record).iter().for_each(|line| say!("  {line}"));
            let command = format!("cargo xtask mistakes day{} --record", day.number);
            say!("If that's intended, `{command}` writes it again.\n");
            // A loop that only a time-out ends, or the order of a hash map, can move a check from
            // one run to the next. A mistake without a line is always an error.
            let names = |text: &str| -> Vec<String> {
                let name = |line: &str| line.split(' ').next().unwrap_or_default().to_string();
                text.lines().map(name).collect()
            };
            let failed = usize::from(names(&kept) != names(&record));
            sum.add(Sum { passed: 0, failed });
        }
    }
    say!("{}", sum.line());
    Ok(ExitCode::from(u8::from(sum.failed > 0)))
}

/// Prints a day's table and any problems with its checkers. Returns the totals, which include each
/// row and each problem.
fn show(repo: &Repo, run: &DayRun) -> Result<Sum> {
    say!("{}", paint(Color::Bold, &run.day.title()));
    let rows = outcome::mistake_rows(&run.report);
    let mut rows: Vec<(&MistakeRow, bool, &str)> = rows.iter().map(judge).collect();
    // Tests report in the order they finish.
    rows.sort_by_key(|(row, ..)| {
        ["mistake", "variant", "stub"].iter().position(|k| *k == row.kind)
    });
    let width = rows.iter().map(|(row, _, _)| row.name.len()).max().unwrap_or(0);
    for (row, good, word) in &rows {
        let (color, symbol) = if *good { (Color::Green, "✓") } else { (Color::Red, "✗") };
        let by = match row.kind.as_str() {
            "variant" => "another correct solution".to_string(),
            "stub" => format!("by {} of {}", row.caught.len(), row.words),
            _ => format!("by {}", tasks(&row.caught)),
        };
        let mark = paint(color, &format!("{symbol} {word:<11}"));
        say!("  {mark} {:<width$}  {by}", row.name);
        if row.kind == "mistake" {
            let words = format!("{:>16}named in {}: {}", "", tasks(&row.alone), row.words);
            say!("{}", paint(Color::Dim, &words));
        }
    }
    let mut failed = run.units.iter().filter(|unit| unit.status != Status::Passed).count();
    table::messages(run, false, &[]);
    // The stub's row names every check.
    let checked =
        rows.iter().filter(|(row, ..)| row.kind == "stub").flat_map(|(row, ..)| &row.caught);
    let checked: Vec<String> = checked.filter_map(|check| task_of_check(check)).collect();
    for task in repo.tasks(&run.day)?.iter().filter(|task| !checked.contains(&task.id)) {
        say!("  task {} has no check", task.id);
        failed += 1;
    }
    say!("");
    let good = rows.iter().filter(|(_, good, _)| *good).count();
    Ok(Sum { passed: good, failed: failed.max(rows.len() - good) })
}

/// Returns a day's record: a line for each known mistake, with the checks that catch it. A check
/// is its task and its place there: `6.1b` is the second of task 6.1. A star marks those in which
/// the mistake differs from all others.
fn record(mistakes: &candecode_course::Mistakes, rows: &[MistakeRow]) -> String {
    // The stub's row has every check, in the table's order.
    let all = rows.iter().find(|row| row.kind == "stub").map(|row| row.caught.as_slice());
    let all = all.unwrap_or_default();
    let place = |check: &String| {
        let task = task_of_check(check)?;
        let before = all.iter().take_while(|other| *other != check);
        let nth = before.filter(|other| task_of_check(other).as_ref() == Some(&task)).count();
        Some(format!("{task}{}", (b'a' + nth as u8) as char))
    };
    let mut text = String::new();
    for mistake in &mistakes.mistakes {
        let row = rows.iter().find(|row| row.kind == "mistake" && row.name == mistake.name);
        let Some(row) = row else { continue };
        text += &mistake.name;
        for check in all.iter().filter(|check| row.caught.contains(check)) {
            let star = if row.alone.contains(check) { "*" } else { "" };
            text += &format!(" {}{star}", place(check).unwrap_or_default());
        }
        text.push('\n');
    }
    text
}

/// Returns the lines that only one of two texts has, marked as in a diff.
fn changed(old: &str, new: &str) -> Vec<String> {
    let only = |text: &str, other: &str, mark: char| -> Vec<String> {
        let missing = text.lines().filter(|line| !other.lines().any(|known| known == *line));
        missing.map(|line| format!("{mark} {line}")).collect()
    };
    [only(old, new, '-'), only(new, old, '+')].concat()
}

/// Returns the row, true if the result is as expected, and a word for the result.
fn judge(row: &MistakeRow) -> (&MistakeRow, bool, &'static str) {
    let (good, word) = match (row.kind.as_str(), row.caught.is_empty(), row.alone.is_empty()) {
        ("stub", false, _) if row.words == format!("{} checks", row.caught.len()) => {
            (true, "not written")
        }
        ("stub", _, _) => (false, "unclear"),
        ("variant", true, _) => (true, "passes"),
        ("variant", false, _) => (false, "fails"),
        (_, true, _) => (false, "passes"),
        (_, false, true) => (false, "not named"),
        (_, false, false) => (true, "caught"),
    };
    (row, good, word)
}

/// Returns the tasks that some checks belong to, with the number of checks if there are several:
/// `6.1, 6.3 (4)`.
fn tasks(checks: &[String]) -> String {
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

    fn row(kind: &str, caught: &[&str], alone: &[&str], words: &str) -> MistakeRow {
        let list = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let (kind, words) = (kind.to_string(), words.to_string());
        MistakeRow { kind, name: "x".into(), caught: list(caught), alone: list(alone), words }
    }

    #[test]
    fn a_mistake_must_be_caught_and_named_and_a_variant_must_pass() {
        let word = |row: &MistakeRow| (judge(row).1, judge(row).2);
        assert_eq!(word(&row("mistake", &["a"], &["a"], "")), (true, "caught"));
        assert_eq!(word(&row("mistake", &["a"], &[], "")), (false, "not named"));
        assert_eq!(word(&row("mistake", &[], &[], "")), (false, "passes"));
        assert_eq!(word(&row("variant", &[], &[], "")), (true, "passes"));
        assert_eq!(word(&row("variant", &["a"], &[], "")), (false, "fails"));
        assert_eq!(word(&row("stub", &["a"], &[], "1 checks")), (true, "not written"));
        assert_eq!(word(&row("stub", &["a"], &[], "2 checks")), (false, "unclear"));
    }

    #[test]
    fn a_teeth_table_without_rows_fails() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let repo = Repo::open(std::path::Path::new(root)).unwrap();
        let sum = show(&repo, &DayRun::of(&repo.days[0], vec![])).unwrap();
        assert!(sum.passed == 0 && sum.failed > 0);
    }

    #[test]
    fn a_record_has_a_line_for_each_mistake_with_its_checks_in_order() {
        let mistakes: candecode_course::Mistakes = toml::from_str(
            "[[mistake]]\nname = \"x\"\nfind = \"\"\nreplace = \"\"\ndiagnosis = \"\"",
        )
        .unwrap();
        let checks = ["task_6_1_b", "task_6_1_a", "task_6_10_c"];
        let rows = [
            row("mistake", &["task_6_10_c", "task_6_1_a"], &["task_6_1_a"], ""),
            row("stub", &checks, &[], ""),
        ];
        let text = record(&mistakes, &rows);
        assert_eq!(text, "x 6.1b* 6.10a\n");
        assert_eq!(changed(&text, &text), [""; 0]);
        assert_eq!(changed("x 6.1b*\n", &text), ["- x 6.1b*", "+ x 6.1b* 6.10a"]);
    }

    #[test]
    fn checks_are_counted_by_task() {
        let names = ["task_6_1_a", "task_6_3_b", "task_6_3_c"].map(String::from);
        assert_eq!(tasks(&names), "6.1, 6.3 (2)");
        assert_eq!(tasks(&[]), "nothing");
    }
}
