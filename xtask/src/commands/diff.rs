//! `cargo xtask diff`: shows the reader's code next to the reference, task by task.

use crate::say;
use crate::term::{paint, Color};
use anyhow::{ensure, Result};
use candecode_course::stubs::{self, is_task_line};
use candecode_course::{progress, Day, Repo};
use clap::Args;
use similar::{Change, ChangeTag, TextDiff};
use std::process::ExitCode;

/// The arguments of `diff`.
#[derive(Args)]
pub struct Diff {
    /// Which day: `day6` or `6`
    #[arg(value_name = "DAY")]
    day: String,
    /// Only this task, such as `6.1`
    #[arg(long)]
    task: Option<String>,
}

/// Runs `diff`. Skips tasks that aren't written yet, because the reference would spoil them.
///
/// # Errors
/// Bad usage, or a file that can't be read.
pub fn run(repo: &Repo, args: &Diff) -> Result<ExitCode> {
    let day = repo.day(&args.day)?;
    let task = args.task.as_ref().map(|id| repo.task_of(Some(day), id)).transpose()?;
    show_day(repo, day, task.map(|(_, task)| task.id).as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the diff of each of a day's tasks, or of just one.
///
/// # Errors
/// If a file can't be read.
pub fn show_day(repo: &Repo, day: &Day, only: Option<&str>) -> Result<()> {
    ensure!(repo.root.join(day.src()).exists(), repo.missing(day));
    // Remove the `<solution>` markers, which the reader may have pasted along with the code.
    let text = |path: String| repo.read(&path).map(|source| stubs::unmarked(&source));
    let (mine, reference) = (text(day.src())?, text(day.solution())?);
    let unwritten = progress::unwritten(&mine, day.number);
    say!("{}   - yours   + the reference", paint(Color::Bold, &day.title()));
    for task in repo.tasks(day)?.iter().filter(|task| only.is_none_or(|id| id == task.id)) {
        say!("\n{}", paint(Color::Bold, &format!("task {}: {}", task.id, task.title)));
        let function = function_of(&reference, &task.id);
        let body_in = |text| function.and_then(|(name, nth)| body(text, name, nth));
        match (body_in(&mine), body_in(&reference)) {
            _ if unwritten.contains(&task.id) => say!("  ○ not written yet"),
            (Some(yours), Some(theirs)) if yours == theirs => {
                say!("  ✓ same as the reference");
            }
            (Some(yours), Some(theirs)) => {
                let diff = TextDiff::from_lines(&yours, &theirs);
                diff.iter_all_changes().for_each(|line| say!("{}", colored(line)));
            }
            _ => say!(
                "  can't find this task's function in your file; compare {} with {}",
                day.src(),
                day.solution()
            ),
        }
    }
    Ok(())
}

/// Returns the lines that differ between two texts and satisfy `counts`, each with its sign.
pub fn changed_lines(old: &str, new: &str, counts: impl Fn(&str) -> bool) -> Vec<String> {
    let diff = TextDiff::from_lines(old, new);
    let changes = diff.iter_all_changes();
    let changed = changes.filter(|line| line.tag() != ChangeTag::Equal && counts(line.value()));
    changed.map(colored).collect()
}

/// Formats a line with its sign. Removed lines are red, added lines green.
fn colored(line: Change<&str>) -> String {
    let text = format!("{} {}", line.tag(), line.value().trim_end());
    match line.tag() {
        ChangeTag::Delete => paint(Color::Red, &text),
        ChangeTag::Insert => paint(Color::Green, &text),
        ChangeTag::Equal => text,
    }
}

/// Returns the name of the function that contains a task's line, and its index among the functions
/// with that name.
fn function_of<'a>(source: &'a str, id: &str) -> Option<(&'a str, usize)> {
    let before: Vec<&str> = source.lines().take_while(|line| !is_task_line(line, id)).collect();
    let names: Vec<&str> = before.iter().filter_map(|line| function_name(line)).collect();
    let name = names.last().filter(|_| before.len() < source.lines().count())?;
    Some((name, names.iter().filter(|other| *other == name).count() - 1))
}

/// Returns the body of the `nth` function with a name. Finds its end by indentation.
fn body(source: &str, name: &str, nth: usize) -> Option<String> {
    let lines: Vec<&str> = source.lines().collect();
    let mut heads = (0..lines.len()).filter(|&at| function_name(lines[at]) == Some(name));
    let head = heads.nth(nth)?;
    let indent = lines[head].len() - lines[head].trim_start().len();
    let close = format!("{}}}", " ".repeat(indent));
    let end = head + lines[head..].iter().position(|line| line.trim_end() == close)?;
    let open = head + lines[head..end].iter().position(|line| line.trim_end().ends_with('{'))?;
    Some(lines[open + 1..end].iter().map(|line| format!("{line}\n")).collect())
}

/// Returns the name of the function whose signature starts on this line.
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
    fn functions_with_the_same_name_are_told_apart() {
        let source = "fn a(x: u32) -> u32 {
    // task 6.1: one
    1
}

impl B {
    fn a(
        &self,
    ) {
        // task 6.2: two
        2
    }
}
";
        assert_eq!(function_of(source, "6.2"), Some(("a", 1)));
        assert_eq!(function_of(source, "6.3"), None);
        let second = body(source, "a", 1).unwrap();
        assert_eq!(second, "        // task 6.2: two\n        2\n");
        assert_eq!(body("fn a() {\n  1", "a", 0), None, "no closing brace");
    }
}
