//! The stub generator, on small literal sources.

use candecode_course::stubs;

const ALLOW: &str = "#![allow(unused_variables, unused_mut, unused_imports, dead_code)] \
                     // remove when the day is done\n";

const DAY: &str = r#"//! Day 6.

use std::fmt;

/// Keeps the last.
pub fn last(rows: &[f32]) -> Option<f32> {
    // task 6.1: keep the last position of every row
    // <solution>
    helper(rows)
    // </solution>
}

// <solution>
/// Only the reference has this.
fn helper(rows: &[f32]) -> Option<f32> {
    rows.last().copied()
}
// </solution>

/// Given, whole.
pub fn given() -> u32 {
    6
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        // A hint that stays.
        // task 6.2 (optional): write "it" as {}
        // <solution>
        write!(f, "{}", self.0)
        // </solution>
    }

    // <solution>
    fn gone(&self) {}
    // </solution>
}
"#;

const STUB: &str = r#"//! Day 6.

use std::fmt;

/// Keeps the last.
pub fn last(rows: &[f32]) -> Option<f32> {
    // task 6.1: keep the last position of every row
    todo!("day 6, task 1: keep the last position of every row")
}

/// Given, whole.
pub fn given() -> u32 {
    6
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        // A hint that stays.
        // task 6.2 (optional): write "it" as {}
        todo!("day 6, task 2: write \"it\" as {{}}")
    }
}
"#;

#[test]
fn bodies_become_todos_and_helpers_vanish() {
    assert_eq!(stubs::stub(DAY).unwrap(), format!("{ALLOW}{STUB}"));
}

#[test]
fn unmarked_removes_the_solution_markers() {
    let plain = stubs::unmarked(DAY);
    assert!(!plain.contains("solution>") && plain.contains("    // task 6.1: keep"));
    assert_eq!(plain.lines().count() + 8, DAY.lines().count());
}

#[test]
fn windows_line_endings_give_the_same_stub() {
    let windows = DAY.replace('\n', "\r\n");
    assert_eq!(stubs::stub(&windows).unwrap(), format!("{ALLOW}{STUB}"));
}

#[test]
fn tasks_are_returned_in_order_with_their_details() {
    let tasks = stubs::tasks(DAY).unwrap();
    let ids: Vec<_> = tasks.iter().map(|t| (t.id.as_str(), t.further, t.line)).collect();
    assert_eq!(ids, [("6.1", false, 7), ("6.2", true, 28)]);
    assert_eq!(tasks[0].title, "keep the last position of every row");
}

#[test]
fn a_comment_that_resembles_a_task_stays_a_comment() {
    let source = "// task after task\nfn a() {}\n";
    assert_eq!(stubs::tasks(source).unwrap(), []);
    assert_eq!(stubs::stub(source).unwrap(), format!("{ALLOW}{source}"));
}

/// Wraps lines into a function of day 6 and returns the error.
fn error(body: &str) -> String {
    stubs::tasks(&format!("fn a() {{\n{body}\n}}\n")).unwrap_err()
}

#[test]
fn errors_name_the_line() {
    let open = "    // task 6.1: x\n    // <solution>\n    1";
    assert_eq!(error(open), "line 3: `// <solution>` is never closed by `// </solution>`");
    assert_eq!(
        error("    // task 6.1: x\n    1"),
        "line 2: task 6.1 has no solution: `// <solution>` must follow its line"
    );
    assert_eq!(
        error("// </solution>"),
        "line 2: `// </solution>` without `// <solution>` above it"
    );
    assert_eq!(
        error("// <solution>\n// <solution>"),
        "line 3: `// <solution>` inside the region that starts on line 2"
    );
    assert_eq!(
        error("// <solution>\n1\n// task 6.1: x"),
        "line 4: task 6.1 inside a marked region"
    );
    assert!(error("// task 6.0: x").starts_with("line 2: `// task 6.0: x`: expected a task line"));
    assert!(error("// task 6.1 x").starts_with("line 2: `// task 6.1 x`: expected a task line"));
    assert!(error("// task 6.1:").starts_with("line 2: "));
}

#[test]
fn task_numbers_are_unique() {
    let body = "fn f() {\n    // task 6.1: x\n    // <solution>\n    1\n    // </solution>\n}\n";
    assert_eq!(
        stubs::tasks(&body.repeat(2)).unwrap_err(),
        "line 8: duplicate task 6.1, first defined on line 2"
    );
}

#[test]
fn a_task_belongs_to_the_part_above_it() {
    let task = |id: &str| {
        format!(
            "fn f() {{\n    // task {id}: x\n    // <solution>\n    1\n    // </solution>\n}}\n"
        )
    };
    let source = ["// part 1: one\n", &task("6.1"), &task("6.2"), "// part 2: two\n", &task("6.3")];
    let parts = |source: &str| {
        let tasks = stubs::tasks(source).unwrap();
        tasks.into_iter().map(|task| task.part).collect::<Vec<_>>()
    };
    assert_eq!(parts(&source.concat()), [Some(1), Some(1), Some(2)]);
    assert_eq!(parts(&task("6.1")), [None]);
    for wrong in [
        source.concat().replace("part 2", "part 3"),
        source.concat().replace("part 1: one", "no part"),
    ] {
        let error = stubs::tasks(&wrong).unwrap_err();
        assert!(error.contains("parts are counted from 1"), "{error}");
    }
}
