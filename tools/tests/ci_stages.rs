//! The stages of continuous integration, on a small course of two days.

#[path = "../../xtask/tests/common/mod.rs"]
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
    assert!(out.ends_with("11 passed, 0 failed\n"), "{out}");
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
