//! `cargo xtask diff`: what the reader wrote beside the reference, task by task.

use crate::progress;
use crate::repo::{Day, Repo};
use crate::say;
use crate::stubs::{self, is_task_line};
use crate::term::{paint, Colour};
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
    // Whoever pasted the reference has its markers, too.
    let text = |path: String| repo.read(&path).map(|source| stubs::unmarked(&source));
    let (mine, reference) = (text(day.src())?, text(day.solution())?);
    let unwritten = progress::unwritten(&mine, day.number);
    let (mine, reference): (Vec<_>, Vec<_>) = (mine.lines().collect(), reference.lines().collect());
    say!("{}   - yours   + the reference", paint(Colour::Bold, &day.title()));
    for task in repo.tasks(day)?.iter().filter(|task| only.is_none_or(|id| id == task.id)) {
        say!("\n{}", paint(Colour::Bold, &format!("task {}: {}", task.id, task.title)));
        let function = function_of(&reference, &task.id);
        let body_in = |lines| function.as_ref().and_then(|(name, nth)| body(lines, name, *nth));
        match (body_in(&mine), body_in(&reference)) {
            _ if unwritten.contains(&task.id) => say!("  ○ not written yet"),
            (Some(yours), Some(theirs))
                if mine[yours.0..yours.1] == reference[theirs.0..theirs.1] =>
            {
                say!("  ✓ the same as the reference");
            }
            (Some(yours), Some(theirs)) => {
                let (yours, theirs) = (&mine[yours.0..yours.1], &reference[theirs.0..theirs.1]);
                lines(yours, theirs).iter().for_each(|line| say!("{}", coloured(line)));
            }
            _ => say!("  your file has no such function: see {} and {}", day.src(), day.solution()),
        }
    }
    Ok(())
}

/// The lines that differ between two texts, if `counts` accepts them, each with its sign.
pub fn changed_lines(old: &str, new: &str, counts: impl Fn(&str) -> bool) -> Vec<String> {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let changed = |(sign, line): &(char, &str)| *sign != ' ' && counts(line);
    lines(&old, &new).iter().filter(|line| changed(line)).map(coloured).collect()
}

/// A line behind its sign; what goes is red, what comes is green.
fn coloured((sign, line): &(char, &str)) -> String {
    let text = format!("{sign} {line}");
    match sign {
        '-' => paint(Colour::Red, &text),
        '+' => paint(Colour::Green, &text),
        _ => text,
    }
}

/// The shortest way from one text to the other, by the longest common subsequence of their lines.
fn lines<'a>(a: &[&'a str], b: &[&'a str]) -> Vec<(char, &'a str)> {
    // common[i][j]: how many lines a[i..] and b[j..] have in common
    let mut common = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = if a[i] == b[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
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

/// The name of the function that a task's line stands in, and which of that name it is.
fn function_of(lines: &[&str], id: &str) -> Option<(String, usize)> {
    let task = lines.iter().position(|line| is_task_line(line, id))?;
    let names: Vec<&str> = lines[..task].iter().filter_map(|line| function_name(line)).collect();
    let name = names.last()?.to_string();
    let earlier = names.iter().filter(|other| **other == name).count() - 1;
    Some((name, earlier))
}

/// The lines between the braces of the `nth` function of a name; the indent tells the last.
fn body(lines: &[&str], name: &str, nth: usize) -> Option<(usize, usize)> {
    let mut heads = (0..lines.len()).filter(|&at| function_name(lines[at]) == Some(name));
    let head = heads.nth(nth)?;
    let indent = lines[head].len() - lines[head].trim_start().len();
    let close = format!("{}}}", " ".repeat(indent));
    let end = head + lines[head..].iter().position(|line| line.trim_end() == close)?;
    let open = lines[head..end].iter().position(|line| line.trim_end().ends_with('{'))?;
    Some((head + open + 1, end))
}

/// The name in a line that opens a function.
fn function_name(line: &str) -> Option<&str> {
    let code = line.trim();
    let (before, rest) = code.split_once("fn ")?;
    if code.starts_with("//") || !(before.is_empty() || before.ends_with(' ')) {
        return None;
    }
    rest.split(['(', '<']).next().filter(|name| !name.contains(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_keeps_what_is_common() {
        assert_eq!(
            lines(&["a", "b", "c"], &["a", "x", "c"]),
            [(' ', "a"), ('-', "b"), ('+', "x"), (' ', "c")]
        );
        assert_eq!(changed_lines("a\nb\n", "a\n// c\nd\n", |line| line != "// c"), ["- b", "+ d"]);
    }

    #[test]
    fn the_right_function_of_a_name_is_found() {
        let source: Vec<&str> =
            "fn a(x: u32) -> u32 {\n    // task 6.1: one\n    1\n}\n\nimpl B {\n    fn a(\n        \
             &self,\n    ) {\n        // task 6.2: two\n        2\n    }\n}"
                .lines()
                .collect();
        assert_eq!(function_of(&source, "6.2"), Some(("a".to_string(), 1)));
        assert_eq!(function_of(&source, "6.3"), None);
        assert_eq!(body(&source, "a", 1), Some((9, 11)));
        assert_eq!(body(&["fn a() {", "  1"], "a", 0), None, "no closing brace");
    }
}
