//! The functions of a day's file that hold its tasks, and the bodies lifted out of them.
//!
//! What is left is the skeleton: signatures, documentation, imports, helpers, and a mark where a body was. Skeletons of
//! two versions can be merged; then each body goes back to its mark.

use std::collections::BTreeMap;

/// A file without the bodies of its tasks.
#[derive(Debug, PartialEq, Eq)]
pub struct Lifted {
    /// The lines, with a mark for each body that was lifted.
    pub skeleton: Vec<String>,
    /// The bodies, by task.
    pub bodies: BTreeMap<String, Vec<String>>,
}

/// The line that stands for the body of a task: nobody writes it.
pub fn mark(id: &str) -> String {
    format!("\u{1}the body of task {id}\u{1}")
}

/// Lifts the bodies of tasks out of a stub: all that follows a task's line, up to the end of its function.
pub fn stub(lines: &[&str], ids: &[String]) -> Lifted {
    lift(lines, ids, |id| {
        let (name, nth) = function_of(lines, id)?;
        let (start, end) = body(lines, &name, nth)?;
        let line = (start..end).find(|&at| is_task_line(lines[at], id))?;
        Some(Place { keep: start..line + 1, insert: vec![], body: line + 1..end })
    })
}

/// Lifts the same bodies out of the reader's file. A function is known by its name in the stub; comments above the task's
/// line that the reader took away come back.
pub fn mine(lines: &[&str], stub: &[&str], ids: &[String]) -> Lifted {
    lift(lines, ids, |id| {
        let (name, nth) = function_of(stub, id)?;
        let (from, _) = body(stub, &name, nth)?;
        let line = (from..stub.len()).find(|&at| is_task_line(stub[at], id))?;
        let above = &stub[from..=line];
        if heads(stub, &name).count() != heads(lines, &name).count() {
            return None; // which is which?
        }
        let (start, end) = body(lines, &name, nth)?;
        if let Some(line) = (start..end).find(|&at| is_task_line(lines[at], id)) {
            return Some(Place { keep: start..line + 1, insert: vec![], body: line + 1..end });
        }
        // without its line: the body is what follows the code that the stub has above it
        let code = |line: &&&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        let given: Vec<&&str> = above.iter().filter(code).collect();
        let mut at = start;
        for expected in given {
            at = (at..end).find(|&at| !is_comment(lines[at]))?;
            if lines[at].trim() != expected.trim() {
                return None;
            }
            at += 1;
        }
        let insert = above.iter().map(|line| line.to_string()).collect();
        Some(Place { keep: start..start, insert, body: at..end })
    })
}

/// Where a body is, in lines of the file.
struct Place {
    /// What stays in front of it.
    keep: std::ops::Range<usize>,
    /// What is put in front of it.
    insert: Vec<String>,
    body: std::ops::Range<usize>,
}

fn lift(lines: &[&str], ids: &[String], place: impl Fn(&str) -> Option<Place>) -> Lifted {
    let mut places: Vec<(&String, Place)> =
        ids.iter().filter_map(|id| Some((id, place(id)?))).collect();
    places.sort_by_key(|(_, place)| place.body.start);
    let (mut skeleton, mut bodies, mut next) = (Vec::new(), BTreeMap::new(), 0);
    let copy = |range: &[&str]| range.iter().map(|line| line.to_string()).collect::<Vec<_>>();
    for (id, place) in places {
        if place.keep.start < next {
            continue; // inside another: it stays there
        }
        skeleton.extend(copy(&lines[next..place.keep.end]));
        skeleton.extend(place.insert);
        skeleton.push(mark(id));
        bodies.insert(id.clone(), copy(&lines[place.body.clone()]));
        next = place.body.end;
    }
    skeleton.extend(copy(&lines[next..]));
    Lifted { skeleton, bodies }
}

/// The name of the function that a task's line stands in, and which of that name it is.
pub fn function_of(lines: &[&str], id: &str) -> Option<(String, usize)> {
    let task = lines.iter().position(|line| is_task_line(line, id))?;
    let names: Vec<&str> = lines[..task].iter().filter_map(|line| function_name(line)).collect();
    let name = names.last()?.to_string();
    Some((name.clone(), names.iter().filter(|other| **other == name).count() - 1))
}

/// The lines of the `nth` function of a name, between its braces: to the one at the indent of its first line.
pub fn body(lines: &[&str], name: &str, nth: usize) -> Option<(usize, usize)> {
    let head = heads(lines, name).nth(nth)?;
    let indent = lines[head].len() - lines[head].trim_start().len();
    let close = format!("{}}}", " ".repeat(indent));
    let end = head + lines[head..].iter().position(|line| line.trim_end() == close)?;
    let open = lines[head..end].iter().position(|line| line.trim_end().ends_with('{'))?;
    Some((head + open + 1, end))
}

/// The lines that open a function of a name.
fn heads<'a>(lines: &'a [&str], name: &'a str) -> impl Iterator<Item = usize> + 'a {
    (0..lines.len()).filter(move |&at| function_name(lines[at]) == Some(name))
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

/// Whether a line is `// task 6.1: …` of this task.
pub fn is_task_line(line: &str, id: &str) -> bool {
    let rest = line.trim().strip_prefix("// task ").and_then(|rest| rest.strip_prefix(id));
    rest.is_some_and(|rest| rest.starts_with([':', ' ']))
}

/// Whether a line is empty or a comment.
fn is_comment(line: &str) -> bool {
    line.trim().is_empty() || line.trim().starts_with("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUB: &str = "/// A.\nfn a(x: u32) -> u32 {\n    // see b\n    // task 6.1: one\n    todo!(\"day 6, task 1: one\")\n}\n\nimpl B {\n    fn a(\n        &self,\n    ) {\n        given();\n        // task 6.2: two\n        todo!(\"day 6, task 2: two\")\n    }\n}";

    fn ids() -> Vec<String> {
        vec!["6.1".into(), "6.2".into()]
    }

    fn lines(text: &str) -> Vec<&str> {
        text.lines().collect()
    }

    #[test]
    fn a_stub_loses_its_todos() {
        let lifted = stub(&lines(STUB), &ids());
        assert_eq!(lifted.bodies["6.1"], ["    todo!(\"day 6, task 1: one\")"]);
        assert_eq!(lifted.bodies["6.2"], ["        todo!(\"day 6, task 2: two\")"]);
        assert_eq!(
            lifted.skeleton[3..6],
            ["    // task 6.1: one".to_string(), mark("6.1"), "}".into()]
        );
    }

    #[test]
    fn a_body_is_found_with_and_without_its_lines() {
        let (stub_lines, skeleton) = (lines(STUB), stub(&lines(STUB), &ids()).skeleton);
        let written = STUB.replace("todo!(\"day 6, task 1: one\")", "x\n    + 1");
        let lifted = mine(&lines(&written), &stub_lines, &ids());
        assert_eq!(lifted.bodies["6.1"], ["    x", "    + 1"]);
        assert_eq!(lifted.skeleton, skeleton);

        let bare = written
            .replace("    // see b\n    // task 6.1: one\n", "")
            .replace("        // task 6.2: two\n", "");
        let lifted = mine(&lines(&bare), &stub_lines, &ids());
        assert_eq!(lifted.bodies["6.1"], ["    x", "    + 1"]);
        assert_eq!(lifted.bodies["6.2"], ["        todo!(\"day 6, task 2: two\")"]);
        assert!(lifted.skeleton.contains(&"    // see b".to_string()));
    }

    #[test]
    fn what_is_not_found_stays_where_it_is() {
        let other = STUB
            .replace("given();\n        // task 6.2: two", "mine();")
            .replace("fn a(x", "fn renamed(x");
        let lifted = mine(&lines(&other), &lines(STUB), &ids());
        assert!(lifted.bodies.is_empty(), "{lifted:?}");
        assert_eq!(lifted.skeleton, lines(&other));
        assert_eq!(body(&lines("fn a() {\n  1"), "a", 0), None, "no closing brace");
    }

    #[test]
    fn the_right_function_of_a_name_is_found() {
        assert_eq!(function_of(&lines(STUB), "6.2"), Some(("a".to_string(), 1)));
        assert_eq!(function_of(&lines(STUB), "6.3"), None);
        assert_eq!(body(&lines(STUB), "a", 1), Some((11, 14)));
    }
}
