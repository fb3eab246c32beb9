//! Which tasks of a day the reader has written, from the day's file alone.

use crate::task::Task;
use std::collections::BTreeSet;

/// The state of a day's file in `src/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The file doesn't exist.
    Missing,
    /// The unchanged stub.
    Stub,
    /// Changed, with these tasks still `todo!`. If none of the core is left, the engine runs the
    /// day.
    Begun(BTreeSet<String>),
}

impl Progress {
    /// Returns whether every core task of the day's `tasks` is written.
    pub fn has_core(&self, tasks: &[Task]) -> bool {
        let is_open =
            |left: &BTreeSet<String>, task: &Task| !task.further && left.contains(&task.id);
        matches!(self, Progress::Begun(left) if !tasks.iter().any(|task| is_open(left, task)))
    }

    /// Returns whether at least one of the day's `tasks` is written. A file that differs from the
    /// stub only in its comments has none.
    pub fn has_a_task(&self, tasks: &[Task]) -> bool {
        matches!(self, Progress::Begun(left) if tasks.iter().any(|task| !left.contains(&task.id)))
    }
}

/// Returns the tasks that still have their `todo!` in `source`, ignoring comments.
pub fn unwritten(source: &str, day: u32) -> BTreeSet<String> {
    let (mut code, mut in_comment) = (String::new(), false);
    for line in source.lines().map(str::trim) {
        in_comment |= line.starts_with("/*");
        if !in_comment && !line.starts_with("//") {
            code += line.split(" // ").next().unwrap_or_default();
        }
        in_comment &= !line.contains("*/");
    }
    let label = format!("\"day {day}, task ");
    let labels = code.split("todo!(").skip(1).filter_map(|after| after.trim().strip_prefix(&label));
    labels
        .map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>())
        .map(|number| format!("{day}.{number}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stubs;

    #[test]
    fn todos_are_found_except_in_comments() {
        let left = |source: &str| unwritten(source, 6).into_iter().collect::<Vec<_>>();
        assert_eq!(left("fn a() { todo!(\"day 6, task 1: x\") }"), ["6.1"]);
        assert_eq!(left("\"http://x\"; todo!(\n    \"day 6, task 12: x\"\n)"), ["6.12"]);
        assert_eq!(left("/* a\n*/\n\"/*\"; todo!(\"day 6, task 2: x\")"), ["6.2"]);
        assert!(left("    //todo!(\"day 6, task 1: x\")\n").is_empty());
        assert!(left("1; // was todo!(\"day 6, task 1: x\")").is_empty());
        assert!(left("/*\ntodo!(\"day 6, task 1: x\")\n*/").is_empty());
        assert!(left("todo!(\"later\"); todo!(\"day 7, task 1: x\"); todo!()").is_empty());
    }

    #[test]
    fn a_day_has_a_task_once_one_is_written() {
        let body = |number: u32, body: &str| {
            format!("fn f{number}() {{\n    // task 8.{number}: x\n{body}}}\n")
        };
        let solved = "    // <solution>\n    1\n    // </solution>\n";
        let tasks = stubs::tasks(&(body(1, solved) + &body(2, solved))).unwrap();
        let todo =
            |n: u32| body(n, &format!("    todo!(\n        \"day 8, task {n}: x\"\n    )\n"));
        let has_a_task = |source: &str| Progress::Begun(unwritten(source, 8)).has_a_task(&tasks);
        assert!(!has_a_task(&(todo(1) + &todo(2))));
        assert!(has_a_task(&(body(1, "    1\n") + &todo(2))));
        assert!(has_a_task("1 // was todo\n// todo!(\"day 8, task 1: x\")\n2"));
        assert!(!Progress::Missing.has_a_task(&tasks) && !Progress::Stub.has_a_task(&tasks));
    }
}
