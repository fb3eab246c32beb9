//! The stub generator, on small literal sources.

use candecode_course::stubs;
use std::io::Write;
use std::process::{Command, Stdio};

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
fn a_region_must_be_a_whole_body_or_whole_items() {
    let task = "// task 6.1: x\n// <solution>\n1;\n// </solution>";
    assert_eq!(
        error(&format!("{task}\n2")),
        "line 6: code after the solution of task 6.1: the markers must enclose the whole body"
    );
    assert_eq!(
        error("// task 6.1: x\n// <solution>\n// </solution>"),
        "line 3: the solution of task 6.1 is empty"
    );
    assert_eq!(
        error("// <solution>\n1\n// </solution>"),
        "line 2: a marked body needs a line `// task N.M: title` above it"
    );
    assert_eq!(
        stubs::tasks("/// Doc.\n// <solution>\nfn a() {}\n// </solution>\n").unwrap_err(),
        "line 2: `/// Doc.` belongs to the marked item: put it between the markers"
    );
}

#[test]
fn task_numbers_are_unique_and_belong_to_one_day() {
    let body = |id: &str| {
        format!(
            "fn f() {{\n    // task {id}: x\n    // <solution>\n    1\n    // </solution>\n}}\n"
        )
    };
    let twice = body("6.1") + &body("6.1");
    assert_eq!(
        stubs::tasks(&twice).unwrap_err(),
        "line 8: duplicate task 6.1, first defined on line 2"
    );
    let days = body("6.1") + &body("7.1");
    assert_eq!(
        stubs::stub(&days).unwrap_err(),
        "line 8: task 7.1 is from a different day than task 6.1 on line 2"
    );
}

/// Titles of every length near the line's end, at two indents: what rustfmt would change is our
/// mistake.
#[test]
fn rustfmt_changes_nothing() {
    let mut source = String::from("//! Day 6.\n");
    for n in 55..95 {
        let title = "ab ".repeat(40)[..n as usize - 1].trim_end().to_string() + "x";
        let task = |pad: &str, number: u32| {
            let marks = format!("{pad}// <solution>\n{pad}1\n{pad}// </solution>\n");
            format!("{pad}// task 6.{number}: {title}\n{marks}")
        };
        source += &format!("\nfn f{n}() {{\n{}}}\n", task("    ", n));
        let inner = task("        ", 100 + n);
        source += &format!("\nimpl A {{\n    fn f{n}() {{\n{inner}    }}\n}}\n");
    }
    for stub in [stubs::stub(DAY).unwrap(), stubs::stub(&source).unwrap()] {
        assert_eq!(rustfmt(&stub), stub);
    }
}

fn rustfmt(source: &str) -> String {
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2021"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    String::from_utf8(out.stdout).unwrap()
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
