//! `cargo xtask diff`: what the reader wrote beside the reference, task by task.

use crate::paint::{paint, Colour};
use crate::progress;
use crate::repo::{Day, Repo};
use crate::say;
use crate::stubs;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

/// The flags of `diff`.
#[derive(Args)]
pub struct Diff {
    /// Which day: `day6` or `6`
    #[arg(value_name = "DAY")]
    day: String,
    /// Only this task, as `6.1`
    #[arg(long)]
    task: Option<String>,
}

/// Runs `diff`. A task that is not written is not shown: its reference would give it away.
///
/// # Errors
/// Bad usage; or a file that cannot be read.
pub fn run(repo: &Repo, args: &Diff) -> Result<ExitCode> {
    show_day(repo, repo.day(&args.day)?, args.task.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a day's tasks, or one of them.
///
/// # Errors
/// If a file cannot be read.
pub fn show_day(repo: &Repo, day: &Day, only: Option<&str>) -> Result<()> {
    // whoever pasted the reference has its markers, too
    let text = |path: String| repo.read(&path).map(|source| stubs::unmarked(&source));
    let (mine, reference) = (text(day.src())?, text(day.solution())?);
    let unwritten = progress::unwritten(&mine, day.number);
    let (mine, reference): (Vec<_>, Vec<_>) = (mine.lines().collect(), reference.lines().collect());
    say!("{}   - yours   + the reference", paint(Colour::Bold, &day.title()));
    for task in repo.tasks(day)?.iter().filter(|task| only.is_none_or(|id| id == task.id)) {
        say!("\n{}", paint(Colour::Bold, &format!("task {}: {}", task.id, task.title)));
        let place = function_of(&reference, &task.id);
        let theirs = place.as_ref().and_then(|(name, nth)| body(&reference, name, *nth));
        let yours = place.as_ref().and_then(|(name, nth)| body(&mine, name, *nth));
        match (theirs, yours) {
            _ if unwritten.contains(&task.id) => say!("  ○ not written yet"),
            (Some(theirs), Some(yours)) => show(yours, theirs),
            _ => say!("  your file has no such function: see {} and {}", day.src(), day.solution()),
        }
    }
    Ok(())
}

/// The name of the function that a task's line stands in, and which of that name it is.
fn function_of(lines: &[&str], id: &str) -> Option<(String, usize)> {
    let task = lines.iter().position(|line| {
        let rest = line.trim().strip_prefix("// task ").and_then(|rest| rest.strip_prefix(id));
        rest.is_some_and(|rest| rest.starts_with([':', ' ']))
    })?;
    let names: Vec<&str> = lines[..task].iter().filter_map(|line| function_name(line)).collect();
    let name = names.last()?.to_string();
    Some((name.clone(), names.iter().filter(|other| **other == name).count() - 1))
}

/// The name in a line that opens a function.
fn function_name(line: &str) -> Option<&str> {
    let code = line.trim();
    let rest = match code.split_once("fn ") {
        Some((before, rest)) if before.is_empty() || before.ends_with(' ') => rest,
        _ => return None,
    };
    let comment = code.starts_with("//");
    rest.split(['(', '<']).next().filter(|name| !comment && !name.contains(' '))
}

/// The body of the `nth` function of a name: to the brace at the indent of its first line, or to the end of the file.
fn body<'a>(lines: &'a [&'a str], name: &str, nth: usize) -> Option<&'a [&'a str]> {
    let mut heads = (0..lines.len()).filter(|&at| function_name(lines[at]) == Some(name));
    let head = heads.nth(nth)?;
    let indent = lines[head].len() - lines[head].trim_start().len();
    let close = format!("{}}}", " ".repeat(indent));
    let end =
        lines[head..].iter().position(|line| *line == close).map_or(lines.len(), |n| head + n);
    let open = lines[head..end].iter().position(|line| line.trim_end().ends_with('{'))?;
    lines.get(head + open + 1..end)
}

/// Prints the lines of both, those in common once.
fn show(yours: &[&str], theirs: &[&str]) {
    if yours == theirs {
        return say!("  ✓ the same as the reference");
    }
    for (sign, line) in compare(yours, theirs) {
        match sign {
            '-' => say!("{}", paint(Colour::Red, &format!("- {line}"))),
            '+' => say!("{}", paint(Colour::Green, &format!("+ {line}"))),
            _ => say!("  {line}"),
        }
    }
}

/// The shortest way from one text to the other, by the longest common subsequence of their lines.
fn compare<'a>(a: &[&'a str], b: &[&'a str]) -> Vec<(char, &'a str)> {
    // common[i][j]: how many lines a[i..] and b[j..] have in common
    let mut common = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = match a[i] == b[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut way) = (0, 0, Vec::new());
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            way.push((' ', a[i]));
            (i, j) = (i + 1, j + 1);
        } else if i < a.len() && (j == b.len() || common[i + 1][j] >= common[i][j + 1]) {
            way.push(('-', a[i]));
            i += 1;
        } else {
            way.push(('+', b[j]));
            j += 1;
        }
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "impl A {\n    pub fn new(x: u32) -> Self {\n        A\n    }\n}\n\nimpl B {\n    pub fn new<T>(\n        x: T,\n    ) -> Self {\n        // task 6.2: make it\n        B\n    }\n}";

    #[test]
    fn the_right_function_of_a_name_is_found() {
        let lines: Vec<&str> = FILE.lines().collect();
        assert_eq!(function_of(&lines, "6.2"), Some(("new".to_string(), 1)));
        assert_eq!(body(&lines, "new", 0), Some(&["        A"][..]));
        assert_eq!(body(&lines, "new", 1).map(<[_]>::len), Some(2));
        assert_eq!(function_of(&lines, "6.3"), None);
    }

    #[test]
    fn a_comparison_keeps_what_is_common() {
        assert_eq!(
            compare(&["a", "b", "c"], &["a", "x", "c"]),
            [(' ', "a"), ('-', "b"), ('+', "x"), (' ', "c")]
        );
    }
}
