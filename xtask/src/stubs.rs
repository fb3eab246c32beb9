//! Stubs from the reference: what `src/dayNN_*.rs` is before the reader writes it.
//!
//! `solutions/` is the single source. A body to be written stands between `// <solution>` and `//
//! </solution>`, with its task line above; the stub has `todo!("day 6, task 1: …")` in its place. A
//! marked region without a task line is a helper of the reference, and the stub does not have it.
//!
//! A day in parts has a line `// part 1: title` above the first function of each part, counted from
//! 1. It stays in the stub, and every task below it, down to the next such line, is of that part.
//!
//! Only `std`, and no path to the rest of this crate: the root's `build.rs` includes this file as a
//! module.

/// The first line of every stub. Without it a file of `todo!`s warns about every argument and every
/// import.
const ALLOW: &str = "#![allow(unused_variables, unused_mut, unused_imports, dead_code)] \
                     // remove when the day is done";
const OPEN: &str = "// <solution>";
const CLOSE: &str = "// </solution>";

/// One task of a day, from its line `// task 6.1: title` or `// task 6.5 (further): title`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Day and number: `"6.1"`.
    pub id: String,
    /// Whether it is beyond the day's core.
    pub further: bool,
    /// The part of the day that it is of, if the day has parts.
    pub part: Option<u32>,
    /// What is to be done, in a few words.
    pub title: String,
    /// The line of the source it stands on, from 1.
    pub line: usize,
}

/// A marked region: lines `open..=close` of the source, markers included, counted from 0.
struct Region {
    task: Option<Task>,
    open: usize,
    close: usize,
}

/// The tasks of a reference file, in the order of the file.
///
/// # Errors
/// If markers and task lines do not fit together; the text names the line.
pub fn tasks(source: &str) -> Result<Vec<Task>, String> {
    let lines: Vec<&str> = source.lines().collect();
    Ok(regions(&lines)?.into_iter().filter_map(|region| region.task).collect())
}

/// The stub of a reference file, formatted as rustfmt would, with `\n` line ends.
///
/// # Errors
/// As [`tasks`].
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

/// A reference file as a reader would have written it: without the markers.
pub fn unmarked(source: &str) -> String {
    let marker = |line: &&str| [OPEN, CLOSE].contains(&line.trim());
    source.lines().filter(|line| !marker(line)).map(|line| format!("{line}\n")).collect()
}

/// Appends the lines between two regions, without the blank lines of a vanished helper.
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

/// `todo!("day 6, task 1: title")` at the given indent.
///
/// rustfmt moves a string that is only just too long for its line to one of its own, and leaves
/// longer ones alone.
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

/// Whether a line is the task line of this task, as `// task 6.1: title`.
pub fn is_task_line(line: &str, id: &str) -> bool {
    let rest = line.trim().strip_prefix("// task ").and_then(|rest| rest.strip_prefix(id));
    rest.is_some_and(|rest| rest.starts_with([':', ' ']))
}

/// All marked regions, with every rule of the format checked.
fn regions(lines: &[&str]) -> Result<Vec<Region>, String> {
    let mut found: Vec<Region> = Vec::new();
    let (mut pending, mut open): (Option<Task>, Option<usize>) = (None, None);
    let mut part = None;
    for (at, line) in lines.iter().enumerate() {
        let (text, number) = (line.trim(), at + 1);
        if let Some(next) = part_line(text) {
            if next != part.unwrap_or(0) + 1 || (part.is_none() && !found.is_empty()) {
                return Err(format!(
                    "line {number}: `{text}`: parts are counted from 1, the first stands above all \
                     tasks"
                ));
            }
            part = Some(next);
        }
        match (text, open) {
            (OPEN, Some(start)) => {
                return Err(format!(
                    "line {number}: `{OPEN}` inside the region of line {}",
                    start + 1
                ));
            }
            (OPEN, None) => open = Some(at),
            (CLOSE, None) => {
                return Err(format!("line {number}: `{CLOSE}` without `{OPEN}` above it"))
            }
            (CLOSE, Some(start)) => {
                let region = Region { task: pending.take(), open: start, close: at };
                fits(&region, lines)?;
                found.push(region);
                open = None;
            }
            _ => match (task_line(text, number)?, open) {
                (Some(task), Some(_)) => {
                    return Err(format!("line {number}: task {} inside a marked region", task.id));
                }
                (Some(task), None) => {
                    alone(&pending)?;
                    known(&task, &found)?;
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

/// An error if a task line still waits for its region.
fn alone(pending: &Option<Task>) -> Result<(), String> {
    match pending {
        None => Ok(()),
        Some(task) => Err(format!(
            "line {}: task {} has no solution: `{OPEN}` must follow its line",
            task.line, task.id
        )),
    }
}

/// An error if the task's number is taken, or of another day than the tasks before it.
fn known(task: &Task, found: &[Region]) -> Result<(), String> {
    let day = |id: &str| id.split('.').next().map(str::to_string);
    for other in found.iter().filter_map(|region| region.task.as_ref()) {
        if other.id == task.id {
            return Err(format!(
                "line {}: task {} is numbered twice, first on line {}",
                task.line, task.id, other.line
            ));
        }
        if day(&other.id) != day(&task.id) {
            return Err(format!(
                "line {}: task {} has another day than task {} on line {}",
                task.line, task.id, other.id, other.line
            ));
        }
    }
    Ok(())
}

/// An error if a region is not a whole body (with a task), or not whole items (without).
fn fits(region: &Region, lines: &[&str]) -> Result<(), String> {
    let line = region.open + 1;
    let code = |l: &&&str| !l.trim().is_empty();
    let before = lines[..region.open].iter().rev().find(code).map_or("", |l| l.trim());
    let after = lines[region.close + 1..].iter().find(code).map_or("", |l| l.trim());
    match &region.task {
        Some(task) if !after.starts_with('}') => Err(format!(
            "line {}: code after the solution of task {}: the markers must hold the whole body",
            region.close + 2,
            task.id
        )),
        Some(task) if region.close == region.open + 1 => {
            Err(format!("line {line}: the solution of task {} is empty", task.id))
        }
        None if before.starts_with("///") || before.starts_with("#[") => Err(format!(
            "line {line}: `{before}` belongs to the marked item: put it between the markers"
        )),
        None if before.ends_with('{') && (before.contains("fn ") || before.starts_with(')')) => {
            Err(format!("line {line}: a marked body needs a line `// task N.M: title` above it"))
        }
        _ => Ok(()),
    }
}

/// Reads `// task 6.1: title`; without a digit behind `// task` it is no task line.
fn task_line(text: &str, line: usize) -> Result<Option<Task>, String> {
    let Some(rest) =
        text.strip_prefix("// task ").filter(|r| r.starts_with(|c: char| c.is_ascii_digit()))
    else {
        return Ok(None);
    };
    let parsed = rest.split_once(": ").and_then(|(head, title)| {
        let (id, further) = match head.strip_suffix(" (further)") {
            Some(id) => (id, true),
            None => (head, false),
        };
        let (day, number) = id.split_once('.')?;
        let (day, number): (u32, u32) = (day.parse().ok()?, number.parse().ok()?);
        let title = title.trim().to_string();
        let task = Task { id: format!("{day}.{number}"), further, part: None, title, line };
        (number > 0 && !task.title.is_empty()).then_some(task)
    });
    match parsed {
        Some(task) => Ok(Some(task)),
        None => Err(format!(
            "line {line}: `{text}`: a task line reads `// task 6.1: title` or `// task 6.1 \
             (further): title`"
        )),
    }
}

/// The number in a line `// part 2: title`.
fn part_line(text: &str) -> Option<u32> {
    let (number, title) = text.strip_prefix("// part ")?.split_once(": ")?;
    number.parse().ok().filter(|_| !title.trim().is_empty())
}

/// The number of spaces a line starts with.
fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}
