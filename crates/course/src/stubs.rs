//! Generates the stubs (`src/dayNN_*.rs` before the reader changes them) from the reference.
//!
//! `solutions/` is the single source. A body for the reader to write is between `// <solution>`
//! and `// </solution>`, below its task line. In the stub, `todo!("day 6, task 1: …")` replaces it.
//! A marked region without a task line is a helper that only the reference needs, and the stub
//! omits it.
//!
//! A day with parts has a line `// part 1: title` above the first function of each part, numbered
//! from 1. The line stays in the stub, and the tasks between it and the next such line belong to
//! that part.

use crate::task::Task;
use std::ops::Range;

/// The first line of every stub. Without it, a file full of `todo!`s would produce a warning for
/// every argument and import.
const ALLOW: &str = "#![allow(unused_variables, unused_mut, unused_imports, dead_code)] \
                     // remove when the day is done";
const OPEN: &str = "// <solution>";
const CLOSE: &str = "// </solution>";

/// A marked region: lines `open..=close` of the source, counted from 0, including the markers.
struct Region {
    task: Option<Task>,
    open: usize,
    close: usize,
}

/// Returns the tasks of a reference file, in order.
///
/// # Errors
/// If markers and task lines don't match up. The message names the line.
pub fn tasks(source: &str) -> Result<Vec<Task>, String> {
    let lines: Vec<&str> = source.lines().collect();
    Ok(regions(&lines)?.into_iter().filter_map(|region| region.task).collect())
}

/// Returns the stub of a reference file, formatted like rustfmt's output, with `\n` line endings.
///
/// # Errors
/// Same as [`tasks`].
pub fn stub(source: &str) -> Result<String, String> {
    let lines: Vec<&str> = source.lines().collect();
    let mut out = vec![ALLOW.to_string()];
    let mut next = 0;
    for region in regions(&lines)? {
        copy(&lines[next..region.open], &mut out);
        if let Some(task) = &region.task {
            out.push(todo_line(task, indent(lines[region.open])));
        }
        next = region.close + 1;
    }
    copy(&lines[next..], &mut out);
    while out.last().is_some_and(|line| line.is_empty()) {
        out.pop();
    }
    out.push(String::new());
    Ok(out.join("\n"))
}

/// Removes the markers from a reference file, leaving it as a reader would have written it.
pub fn unmarked(source: &str) -> String {
    source.lines().filter(|line| !is_marker(line)).map(|line| format!("{line}\n")).collect()
}

/// Returns whether a line opens or closes a marked region.
pub fn is_marker(line: &str) -> bool {
    matches!(line.trim(), OPEN | CLOSE)
}

/// Returns the lines of each marked region, counted from 0, including the markers. A region that is
/// never closed extends to the end of the file.
pub fn marked_regions(lines: &[&str]) -> Vec<Range<usize>> {
    let opens = (0..lines.len()).filter(|&at| lines[at].trim() == OPEN);
    let end = |open: usize| (open..lines.len()).find(|&at| lines[at].trim() == CLOSE);
    opens.map(|open| open..end(open).map_or(lines.len(), |close| close + 1)).collect()
}

/// Appends the lines between two regions, without the blank lines around a removed helper.
fn copy(lines: &[&str], out: &mut Vec<String>) {
    let blank = |line: &&str| line.trim().is_empty();
    let first = lines.iter().take_while(|line| blank(line)).count();
    let closes = lines.get(first).is_some_and(|l| l.trim().starts_with('}'));
    let before = out.last().map_or("", |l| l.as_str());
    if closes && before.is_empty() {
        out.pop();
    } else if first > 0 && !closes && !before.is_empty() && !before.ends_with('{') {
        out.push(String::new());
    }
    out.extend(lines[first..].iter().map(|l| l.trim_end().to_string()));
}

/// Returns `todo!("day 6, task 1: title")` at the given indent.
///
/// rustfmt moves a string that's just too long for its line to its own line. It leaves longer
/// strings alone.
fn todo_line(task: &Task, indent: usize) -> String {
    let (day, number) = task.id.split_once('.').unwrap_or((&task.id, ""));
    let title =
        task.title.replace('\\', "\\\\").replace('"', "\\\"").replace('{', "{{").replace('}', "}}");
    let text = format!("\"day {day}, task {number}: {title}\"");
    let (pad, width) = (" ".repeat(indent), text.chars().count());
    let one_line = indent + "todo!()".len() + width;
    if one_line > 100 && indent + 4 + width < 100 {
        format!("{pad}todo!(\n{pad}    {text}\n{pad})")
    } else {
        format!("{pad}todo!({text})")
    }
}

/// Returns whether a line is this task's line, such as `// task 6.1: title`.
pub fn is_task_line(line: &str, id: &str) -> bool {
    let rest = line.trim().strip_prefix("// task ").and_then(|rest| rest.strip_prefix(id));
    rest.is_some_and(|rest| rest.starts_with([':', ' ']))
}

/// Returns all marked regions, after checking every rule of the format.
fn regions(lines: &[&str]) -> Result<Vec<Region>, String> {
    let mut found: Vec<Region> = Vec::new();
    let (mut pending, mut open): (Option<Task>, Option<usize>) = (None, None);
    let mut part = None;
    for (at, line) in lines.iter().enumerate() {
        let (text, number) = (line.trim(), at + 1);
        if let Some(next) = part_line(text) {
            if next != part.unwrap_or(0) + 1 || (part.is_none() && !found.is_empty()) {
                return Err(format!(
                    "line {number}: `{text}`: parts are counted from 1, and the first must come \
                     before all tasks"
                ));
            }
            part = Some(next);
        }
        match (text, open) {
            (OPEN, Some(start)) => {
                return Err(format!(
                    "line {number}: `{OPEN}` inside the region that starts on line {}",
                    start + 1
                ));
            }
            (OPEN, None) => open = Some(at),
            (CLOSE, None) => {
                return Err(format!("line {number}: `{CLOSE}` without `{OPEN}` above it"))
            }
            (CLOSE, Some(start)) => {
                found.push(Region { task: pending.take(), open: start, close: at });
                open = None;
            }
            _ => match (task_line(text, number)?, open) {
                (Some(task), Some(_)) => {
                    return Err(format!("line {number}: task {} inside a marked region", task.id));
                }
                (Some(task), None) => {
                    alone(&pending)?;
                    unique(&task, &found)?;
                    pending = Some(Task { part, ..task });
                }
                (None, None) if !text.is_empty() && !text.starts_with("//") => alone(&pending)?,
                _ => {}
            },
        }
    }
    match open {
        Some(start) => Err(format!("line {}: `{OPEN}` is never closed by `{CLOSE}`", start + 1)),
        None => alone(&pending).map(|()| found),
    }
}

/// Returns an error if a task line is still waiting for its region.
fn alone(pending: &Option<Task>) -> Result<(), String> {
    match pending {
        None => Ok(()),
        Some(task) => Err(format!(
            "line {}: task {} has no solution: `{OPEN}` must follow its line",
            task.line, task.id
        )),
    }
}

/// Returns an error if the task's number is taken.
fn unique(task: &Task, found: &[Region]) -> Result<(), String> {
    let mut tasks = found.iter().filter_map(|region| region.task.as_ref());
    match tasks.find(|other| other.id == task.id) {
        None => Ok(()),
        Some(other) => Err(format!(
            "line {}: duplicate task {}, first defined on line {}",
            task.line, task.id, other.line
        )),
    }
}

/// Parses `// task 6.1: title`. A `// task` line without a number isn't a task line.
fn task_line(text: &str, line: usize) -> Result<Option<Task>, String> {
    let Some(rest) =
        text.strip_prefix("// task ").filter(|r| r.starts_with(|c: char| c.is_ascii_digit()))
    else {
        return Ok(None);
    };
    let parsed = rest.split_once(": ").and_then(|(head, title)| {
        let (id, kind) = head.split_once(' ').unwrap_or((head, ""));
        let challenge = kind == "(challenge)";
        let further = challenge || kind == "(optional)";
        if !further && !kind.is_empty() {
            return None;
        }
        let (day, number) = id.split_once('.')?;
        let (day, number): (u32, u32) = (day.parse().ok()?, number.parse().ok()?);
        let title = title.trim().to_string();
        let task =
            Task { id: format!("{day}.{number}"), further, challenge, part: None, title, line };
        (number > 0 && !task.title.is_empty()).then_some(task)
    });
    match parsed {
        Some(task) => Ok(Some(task)),
        None => Err(format!(
            "line {line}: `{text}`: expected a task line such as `// task 6.1: title`, optionally \
             with `(optional)` or `(challenge)` after the number"
        )),
    }
}

/// Parses a line such as `// part 2: title` and returns its number.
fn part_line(text: &str) -> Option<u32> {
    let (number, title) = text.strip_prefix("// part ")?.split_once(": ")?;
    number.parse().ok().filter(|_| !title.trim().is_empty())
}

/// Returns the number of leading spaces in a line.
fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}
