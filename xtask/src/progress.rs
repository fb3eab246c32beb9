//! What the reader has written: read off the `todo!`s that are left in a day's file.

use crate::repo::{Day, Repo};
use anyhow::Result;
use std::collections::BTreeSet;

/// How far a day's file in `src/` is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is no such file.
    Missing,
    /// Exactly the stub: no line of it is the reader's.
    Stub,
    /// Changed, with these tasks still `todo!`; none left: the day is written.
    Begun(BTreeSet<String>),
}

/// How far the reader is with a day.
///
/// # Errors
/// If the reference or the file cannot be read.
pub fn of(repo: &Repo, day: &Day) -> Result<Progress> {
    if !repo.root.join(day.src()).exists() {
        return Ok(Progress::Missing);
    }
    let source = repo.read(&day.src())?;
    let mine: Vec<&str> = source.lines().collect();
    let stub = repo.stub(day)?;
    if mine == stub.lines().collect::<Vec<_>>() {
        return Ok(Progress::Stub);
    }
    Ok(Progress::Begun(unwritten(&source, day.number)))
}

/// The tasks of which the `todo!` stands in `source`, outside comments.
pub fn unwritten(source: &str, day: u32) -> BTreeSet<String> {
    let code = without_comments(source);
    let label = format!("\"day {day}, task ");
    let mut left = BTreeSet::new();
    for after in code.split("todo!(").skip(1) {
        if let Some(rest) = after.trim_start().strip_prefix(&label) {
            let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
            left.insert(format!("{day}.{number}"));
        }
    }
    left
}

/// The source without its comments. Strings stay, for the labels stand in them.
fn without_comments(source: &str) -> String {
    let mut code = String::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let (kept, skipped) = if rest.starts_with("//") {
            (0, rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            (0, block_comment(rest))
        } else if first == '"' {
            (string(rest), 0)
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\\"'") {
            (rest[1..].find('\'').map_or(1, |end| end + 2), 0)
        } else {
            (first.len_utf8(), 0)
        };
        code.push_str(&rest[..kept]);
        rest = &rest[kept + skipped..];
    }
    code
}

/// The length of the string literal that `text` starts with.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// The length of the block comment that `text` starts with; they nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text[at..];
        let step = if rest.starts_with("/*") {
            depth += 1;
            2
        } else if rest.starts_with("*/") {
            depth -= 1;
            2
        } else {
            rest.chars().next().map_or(1, char::len_utf8)
        };
        at += step;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(source: &str) -> Vec<String> {
        unwritten(source, 6).into_iter().collect()
    }

    #[test]
    fn todos_are_found_on_one_line_and_on_two() {
        assert_eq!(left("fn a() { todo!(\"day 6, task 1: x\") }"), ["6.1"]);
        assert_eq!(left("todo!(\n    \"day 6, task 12: x\"\n)"), ["6.12"]);
    }

    #[test]
    fn a_todo_in_a_comment_is_written() {
        assert!(left("// todo!(\"day 6, task 1: x\")\n").is_empty());
        assert!(left("/* a /* b */ todo!(\"day 6, task 1: x\") */").is_empty());
        assert!(left("1; // was todo!(\"day 6, task 1: x\")").is_empty());
    }

    #[test]
    fn strings_and_characters_hide_no_todo() {
        assert_eq!(left("\"http://x\"; todo!(\"day 6, task 1: x\")"), ["6.1"]);
        assert_eq!(left("'\"'; '\\\"'; \"\\\"/*\"; todo!(\"day 6, task 1: x\")"), ["6.1"]);
    }

    #[test]
    fn other_todos_and_other_days_do_not_count() {
        assert!(left("todo!(\"later\"); todo!(\"day 7, task 1: x\"); todo!()").is_empty());
    }
}
