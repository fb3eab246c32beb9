//! `check --watch` on a small course: what it does at each save and for each key.
#![cfg(unix)]

mod common;

use common::{Fake, Session};

#[test]
fn watch_checks_each_save_and_advances_when_a_day_is_done() {
    let fake = Fake::new();
    let mut session = Session::open(&fake, "check --watch");
    session.sees("── day 0: one ──");
    session.sees("✓ 0 passed  ✗ 0 failed  ○ 1 not written");
    session.sees("○ not written       0.1   say one");
    session.sees("Write it in src/day00_one.rs:4. Chapter: book/src/day00_one.md");
    session.sees("waiting for a save of src/day00_one.rs");
    fake.solve("day00_one.rs", |source| source.replace("    1\n", "    2\n"));
    session.sees("✗ failed            0.1   say one");
    session.sees("src/day00_one.rs:3");
    session.sees("✗ failed: task 0.1 · is one");
    session.sees("want: the right one");
    fake.write("src/day00_one.rs", "pub fn one() -> u32 { x }");
    session.sees("cannot find value `x`");
    let shown = session.sees("✗ does not compile: src/day00_one.rs, line 1");
    assert!(!shown.contains("failed"), "{shown}");
    session.sees("The compiler's message is above.");
    fake.solve("day00_one.rs", |source| source);
    session.sees("✓ day 0 is done");
    session.sees("On to day 1: read book/src/day01_two.md");
    session.sees("○ not written       1.1   twice one");
    fake.solve("day01_two.rs", |source| source);
    session.sees("That was the last day. Every core task is done.");
    assert_eq!(session.ends(), 0);
}

/// Day 1 is right, but the engine also needs day 0.
#[test]
fn watch_reports_another_days_error_and_notices_its_fix() {
    let fake = Fake::new();
    fake.write("src/day00_one.rs", "pub fn one() -> u32 { x }");
    let mut session = Session::open(&fake, "check day1 --watch");
    session.sees("○ not written       1.1   twice one");
    fake.solve("day01_two.rs", |source| source);
    session.sees("But `cargo xtask run` does not compile: src/day00_one.rs, line 1. If that day");
    session.sees("(waiting for a save)");
    fake.solve("day00_one.rs", |source| source);
    session.sees("✓ day 1 is done");
    session.sees("That was the last day. Every core task is done.");
    assert_eq!(session.ends(), 0);
}

#[test]
fn each_watch_key_runs_its_command() {
    let fake = Fake::new();
    let hint = "question = \"which?\"\nidea = \"that\"\nshape = \"x\"\n";
    fake.write("tests/day01_two/hints.toml", &format!("[\"1.1\"]\n{hint}"));
    fake.solve("day01_two.rs", |source| source.replace("one() + one()", "one() + 2"));
    let mut session = Session::open(&fake, "check day1 --watch");
    session.sees("✗ 2 failed");
    session.sees("✗ failed            1.1");
    session.sees("(waiting for a save");
    session.send("h");
    session.sees("hint 1 of 3: a question");
    session.send("h");
    session.sees("hint 2 of 3: a sharper question");
    session.send("d");
    session.sees("-     one() + 2");
    session.send("n");
    session.sees("✗ failed            1.2");
    session.send("b");
    session.sees("✗ failed            1.1");
    session.send("b");
    session.sees("No task of this day is skipped.");
    session.send("n");
    session.sees("✗ failed            1.2");
    session.send("h");
    session.sees("error: tests/day01_two/hints.toml: task 1.2 has no `question`");
    session.send("l");
    session.sees("0 of 2 days done, 0 of 3 tasks");
    session.send("n");
    session.sees("── day 0: one ──");
    session.send("n");
    session.sees("── day 1: two ──");
    session.send("q");
    assert_eq!(session.ends(), 0);
}

/// A skipped task comes back when a save changes what its checks say.
#[test]
fn a_skipped_task_that_is_written_after_all_is_shown_again() {
    let fake = Fake::new();
    let mut session = Session::open(&fake, "check day1 --watch");
    session.sees("○ not written       1.1   twice one");
    session.send("n");
    session.sees("○ not written       1.2   twice two");
    fake.solve("day01_two.rs", |source| {
        source
            .replace("one() + one()", "one() + 2")
            .replace("two() * helper()", "todo!(\"day 1, task 2: twice two\")")
    });
    session.sees("✗ failed            1.1   twice one");
    session.send("q");
    assert_eq!(session.ends(), 0);
}

#[test]
fn saves_of_other_files_print_nothing() {
    let fake = Fake::new();
    let mut session = Session::open(&fake, "check day1 --watch");
    session.sees("(waiting for a save of src/day01_two.rs)");
    for text in ["1", "22", "333"] {
        fake.write("src/day00_one.rs", &format!("{}// {text}\n", fake.read("src/day00_one.rs")));
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    session.send("l");
    let shown = session.sees("day 0  one");
    assert!(!shown.contains("waiting for"), "{shown}");
    session.send("q");
    assert_eq!(session.ends(), 0);
}

#[test]
fn watch_without_stdin_waits_for_saves_and_shows_no_color() {
    let fake = Fake::new();
    let mut session = Session::shell(&fake, "exec $XTASK check --watch < /dev/null");
    let shown = session.sees("q quit, then Enter");
    assert!(!shown.contains('\x1b'), "no color: {shown}");
    fake.solve("day00_one.rs", |source| source);
    session.sees("✓ day 0 is done");
    session.interrupt();
    assert_eq!(session.ends(), -1, "ended by the signal");
}
