//! The stages of continuous integration, on a small course of two days.

#[path = "../../../xtask/tests/common/mod.rs"]
mod common;

use common::Fake;

#[test]
fn in_a_fork_the_written_days_are_checked() {
    let fake = Fake::new();
    fake.write("event.json", "{\"repository\": {\"fork\": true}}");
    let list = |flags: &[&str], event: bool| {
        let mut command = fake.command(&[&["ci", "--list"], flags].concat());
        command.env_remove("GITHUB_EVENT_PATH");
        if event {
            command.env("GITHUB_EVENT_PATH", fake.path("event.json"));
        }
        common::texts(command.output().unwrap()).0
    };
    let has = |list: &str, stage: &str| list.lines().any(|line| line.starts_with(stage));
    assert!(has(&list(&[], true), "stubs "), "nothing is written: this copy is the course");
    fake.solve("day01_two.rs", |source| {
        source.replace("two() * helper()", "todo!(\"day 1, task 2: twice two\")")
    });
    for stages in [list(&[], true), list(&["--fork"], false)] {
        assert!(
            has(&stages, "mine ") && has(&stages, "teeth ") && !has(&stages, "stubs "),
            "{stages}"
        );
    }
    assert!(has(&list(&[], false), "stubs ") && !has(&list(&[], false), "mine "));
    let (out, err, code) = fake.say(&["ci", "--only", "mine"]);
    assert!(
        out.ends_with("2 passed, 0 failed\n") && code == 0,
        "what is not written is no failure: {out}{err}"
    );
    fake.solve("day01_two.rs", |source| source.replace("one() + one()", "one()"));
    assert_eq!(fake.say(&["ci", "--only", "mine"]).2, 1);
}

#[test]
fn ci_lists_its_stages_and_runs_one() {
    let fake = Fake::new();
    assert!(fake.say(&["ci", "--list"]).0.lines().count() > 10);
    let only = ["stubs", "unwritten", "reference", "teeth"].map(|stage| ["--only", stage]);
    let (out, _, code) = fake.say(&[&["ci"], only.as_flattened()].concat());
    // 3 of the teeth, 4 on the stubs, and the reference's 4 on two kinds of kernels
    assert!(out.ends_with("15 passed, 0 failed\n"), "{out}");
    assert_eq!(code, 0);
    fake.solve("day00_one.rs", |source| source);
    let (out, _, code) = fake.say(&["ci", "--only", "stubs", "--only", "unwritten"]);
    assert!(
        out.contains("task_0_1_is_one on the stubs: passed"),
        "a checker that passes on src/ is no proof: {out}"
    );
    assert!(out.ends_with("3 passed, 2 failed\n"), "{out}");
    assert_eq!((fake.say(&["ci", "--only", "nothing"]).2, code), (2, 1));
}

#[test]
fn teeth_are_shown_one_by_one_and_no_row_is_no_proof() {
    let fake = Fake::new();
    let (out, err, code) = fake.say(&["teeth"]);
    assert!(out.contains("✓ caught      two   by 0.1\n"), "{out}{err}");
    assert!(out.contains("named in 0.1: it is 2\n"), "{out}");
    assert!(out.contains("✓ not written stub  by 1 of 1 checks"), "{out}");
    assert!(out.contains("✓ passes      doubled  another right way"), "{out}");
    assert_eq!((out.lines().last().unwrap_or_default(), code), ("3 passed, 0 failed", 0));

    let tests =
        fake.read("tests/day00_one.rs").replace(r#""alone":["task_0_1_is_one"]"#, r#""alone":[]"#);
    fake.write("tests/day00_one.rs", &tests);
    let (out, _, code) = fake.say(&["teeth", "day0"]);
    assert!(out.contains("✗ not named   two   by 0.1"), "{out}");
    assert_eq!((out.lines().last().unwrap_or_default(), code), ("1 passed, 1 failed", 1));

    let tests = fake.read("tests/day01_two.rs");
    fake.write("tests/day01_two.rs", &tests.replace("    tell(", "    let _ = ("));
    let (out, _, code) = fake.say(&["teeth", "day1"]);
    assert_eq!((out.lines().last().unwrap_or_default(), code), ("0 passed, 1 failed", 1));
}
