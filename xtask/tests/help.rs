//! `hint` and `list` on a small course.

mod common;

use common::Fake;

const HINTS0: &str = r#"
["0.1"]
question = "Which number?"
idea = '''
The smallest that is not
nothing.
'''
shape = '''
fn one() {
    …
}
'''
"#;

const HINTS1: &str = r#"
["1.1"]
question = "q"
idea = "i"
shape = "s"

["1.2"]
question = "q2"
idea = "i2"
shape = "s2"
"#;

fn course() -> Fake {
    let fake = Fake::new();
    fake.write("tests/day00_one/hints.toml", HINTS0);
    fake.write("tests/day01_two/hints.toml", HINTS1);
    fake
}

#[test]
fn hints_are_revealed_one_at_a_time_and_stay_visible() {
    let fake = course();
    let (out, err, code) = fake.say(&["hint"]);
    assert!(
        out.starts_with("task 0.1: say one\n\nhint 1 of 3: a question\nWhich number?\n"),
        "{out}{err}"
    );
    assert!(
        out.ends_with("Next, a sharper question: cargo xtask hint --task 0.1 --more\n"),
        "{out}"
    );
    assert_eq!(code, 0);
    assert!(!fake.say(&["hint"]).0.contains("hint 2"), "asking again is not asking for more");
    let (out, _, _) = fake.say(&["hint", "--more"]);
    assert!(
        out.contains("hint 2 of 3: a sharper question\nThe smallest that is not nothing.\n"),
        "{out}"
    );
    assert!(!out.contains("hint 1"), "{out}");
    let (out, _, _) = fake.say(&["hint", "day0", "--more"]);
    assert!(
        out.contains("hint 3 of 3: the shape of the code\n    fn one() {\n        …\n    }\n"),
        "{out}"
    );
    assert!(out.contains("That was the last hint. Chapter: book/src/day00_one.md."), "{out}");
    let (out, _, _) = fake.say(&["hint"]);
    assert!(
        out.contains("hint 1 of 3") && out.contains("hint 3 of 3"),
        "what was seen stays: {out}"
    );
    assert_eq!(fake.read(".candecode/hints.json"), "{\"0.1\":3}\n");
}

#[test]
fn the_hint_is_for_the_first_unfinished_task() {
    let fake = course();
    fake.solve("day01_two.rs", |source| {
        source.replace("two() * helper()", "todo!(\"day 1, task 2: twice two\")")
    });
    assert!(fake.say(&["hint"]).0.starts_with("task 1.1"), "day 1 is begun, and not checked");
    fake.say(&["check", "day1"]);
    assert!(fake.say(&["hint"]).0.starts_with("task 0.1"), "the core of day 1 is done");
    assert!(fake.say(&["hint", "1"]).0.starts_with("task 1.2"), "optional tasks are left for last");
    let path = fake.say(&["hint", "src/day01_two.rs"]);
    assert!(path.0.starts_with("task 1.2"), "{}", path.1);
    assert!(fake.say(&["hint", "--task", "1.1"]).0.starts_with("task 1.1"));
    assert!(fake.say(&["hint", "day1", "--task", "1"]).0.starts_with("task 1.1"));
    let (_, err, code) = fake.say(&["hint", "day0", "--task", "1.1"]);
    assert!(err.starts_with("error: task 1.1 is not in day 0") && code == 2, "{err}");
    let (_, err, code) = fake.say(&["hint", "--task", "1.7"]);
    assert!(err.starts_with("error: no task `1.7`: day 1 has 1.1, 1.2") && code == 2, "{err}");
    let (_, err, code) = fake.say(&["hint", "day1", "--task", "7"]);
    assert!(err.starts_with("error: no task `1.7`: day 1 has 1.1, 1.2") && code == 2, "{err}");
}

#[test]
fn missing_or_malformed_hints_are_reported() {
    let fake = course();
    fake.write("tests/day01_two/hints.toml", &HINTS1.replace("idea = \"i\"", ""));
    let (_, err, code) = fake.say(&["hint", "1.1", "--more"]);
    assert!(code == 0 && err.is_empty(), "the question: {err}");
    let (_, err, code) = fake.say(&["hint", "1.1", "--more"]);
    let words = "error: tests/day01_two/hints.toml: task 1.1 has no `idea`\n";
    assert_eq!((err.as_str(), code), (words, 1));
    fake.write("tests/day00_one/hints.toml", "[");
    let (_, err, code) = fake.say(&["hint"]);
    assert!(err.starts_with("error: tests/day00_one/hints.toml: ") && code == 1, "{err}");
}

#[test]
fn list_shows_whose_code_runs_and_what_was_checked() {
    let fake = Fake::new();
    let (out, _, _) = fake.say(&["list"]);
    let want = "  ○ not written       day 0  one                    0 of 1 task
  ○ not written       day 1  two                    0 of 2 tasks
0 of 2 days done, 0 of 3 tasks; a day's tasks: cargo xtask list day0
Next: task 0.1 in src/day00_one.rs, then cargo xtask check day0
";
    assert_eq!(out, want);
    let (out, _, _) = fake.say(&["list", "day1"]);
    let heading = "day 1: two  (the stub; the engine runs the reference)\n  ○ not written ";
    assert!(out.starts_with(heading) && !out.contains("day 0"), "{out}");
    assert!(out.contains("Chapter: book/src/day01_two.md\n"), "{out}");
    assert!(
        out.ends_with("Next: task 1.1 in src/day01_two.rs, then cargo xtask check day1\n"),
        "{out}"
    );

    fake.say(&["reset", "day1", "--ref"]);
    fake.solve("day00_one.rs", |source| source.replace("    1\n", "    2 - 1\n"));
    let (out, err, _) = fake.say(&["list"]);
    let line = "  ? not checked       day 0  one                    0 of 1 task, yours\n";
    assert!(out.contains(line), "{out}{err}");
    assert!(out.contains("Next: check task 0.1: cargo xtask check day0"), "{out}");
    let given = "✓ passed            day 1  two                    2 of 2 tasks, given\n";
    assert!(out.contains(given), "the reference's code needs no check: {out}");
    fake.say(&["check", "day0"]);
    let (out, _, _) = fake.say(&["list"]);
    assert!(out.contains("✓ passed            day 0  one                    1 of 1 task"), "{out}");
    assert!(out.contains("1 of 2 days done, 1 more given, 1 of 3 tasks;"), "{out}");
    assert!(out.ends_with("\nEvery core task is done.\n"), "{out}");

    fake.write("tests/day00_one/oracle.json", "{}");
    assert!(fake.say(&["list", "day0"]).0.contains("? not checked       0.1"), "a golden changed");
    fake.write("src/day00_one.rs", "pub fn one() -> u32 { x }");
    fake.say(&["check", "day0"]);
    let (out, _, code) = fake.say(&["list", "day0"]);
    assert!(out.contains("✗ does not compile  0.1") && !out.contains("day 1: two"), "{out}");
    assert_eq!(code, 0);
    let (_, err, code) = fake.say(&["list", "day9"]);
    assert!(
        err.starts_with("error: no day `day9`: the days are day0 to day1") && code == 2,
        "{err}"
    );
}

/// A terminal has 24 lines and 80 columns, and the prompt needs a line, too.
#[test]
fn the_help_fits_on_one_screen() {
    let (out, _, code) = Fake::new().say(&["--help"]);
    assert!(out.lines().count() < 24 && code == 0, "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    let names: Vec<&str> =
        out.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    let first = ["check", "run", "hint", "list", "diff", "reset", "book", "doctor"];
    assert_eq!(names[..8], first, "{out}");
    assert!(out.contains("\nMore:\n  chat") && !names.contains(&"give"), "{out}");
}

/// If output can't be written, a command fails and says so. If nobody reads it, that isn't an
/// error.
#[test]
#[cfg(unix)]
fn a_full_stdout_is_an_error_and_a_closed_one_is_not() {
    use std::process::Stdio;
    let full = || Stdio::from(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    let fake = Fake::new();
    for args in [&["list"][..], &["reset", "--undo"], &["reset", "day0"], &["start", "day1"]] {
        let run = |stdout: Stdio| {
            let child = fake.command(args).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
            let out = child.wait_with_output().unwrap();
            (String::from_utf8(out.stderr).unwrap(), out.status.code())
        };
        let (said, code) = run(full());
        assert!(
            said.contains("error: could not write to standard output: No space left"),
            "{args:?}: {said}"
        );
        assert_eq!(code, Some(1), "{args:?}");
        assert_eq!(run(closed()), (String::new(), Some(0)), "{args:?}");
    }
}
