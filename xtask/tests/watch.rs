//! `watch` at a terminal and at a pipe, on a small course.
#![cfg(unix)]

mod common;

use common::{Fake, Terminal};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

#[test]
fn a_save_is_checked_and_a_done_day_leads_on() {
    let fake = Fake::new();
    let mut term = Terminal::open(&fake, "watch");
    term.sees("── day 0: one ──");
    term.sees("✓ 0 passed  ✗ 0 failed  ○ 1 not written");
    term.sees("○ not written       0.1   say one");
    term.sees("To write in src/day00_one.rs:4. The chapter: book/src/day00_one.md");
    term.sees("waiting for a save of src/day00_one.rs");
    fake.solve("day00_one.rs", |source| source.replace("    1\n", "    2\n"));
    term.sees("✗ failed            0.1   say one");
    term.sees("src/day00_one.rs:3");
    term.sees("✗ failed: task_0_1_is_one");
    term.sees("want: the right one");
    fake.write("src/day00_one.rs", "pub fn one() -> u32 { x }");
    term.sees("cannot find value `x`");
    term.sees("✗ does not compile  0.1");
    fake.solve("day00_one.rs", |source| source);
    term.sees("✓ day 0 is done");
    term.sees("On to day 1: read book/src/day01_two.md");
    term.sees("○ not written       1.1   twice one");
    fake.solve("day01_two.rs", |source| source);
    term.sees("That was the last. Every core task is done.");
    term.ends_sane();
}

#[test]
fn the_keys_do_what_they_say() {
    let fake = Fake::new();
    let hint = "question = \"which?\"\nidea = \"that\"\nshape = \"x\"\n";
    fake.write("xtask/hints.toml", &format!("[\"1.1\"]\n{hint}"));
    fake.solve("day01_two.rs", |source| source.replace("one() + one()", "one() + 2"));
    let mut term = Terminal::open(&fake, "watch day1");
    term.sees("✗ 2 failed");
    term.sees("✗ failed            1.1");
    term.sees("(waiting for a save");
    term.send("h");
    term.sees("hint 1 of 3: a question");
    term.send("h");
    term.sees("hint 2 of 3: the idea");
    term.send("d");
    term.sees("-     one() + 2");
    term.send("n");
    term.sees("✗ failed            1.2");
    term.send("h");
    term.sees("error: xtask/hints.toml: task 1.2 has no `question`");
    term.send("l");
    term.sees("0 of 3 tasks, 0 of 2 days done");
    term.send("n");
    term.sees("── day 0: one ──");
    term.send("n");
    term.sees("── day 1: two ──");
    term.send("q");
    term.ends_sane();
}

#[test]
fn ctrl_c_leaves_the_terminal_sane_while_it_waits_and_while_it_builds() {
    let fake = Fake::new();
    let mut term = Terminal::open(&fake, "watch");
    term.sees("waiting for a save");
    term.control('c');
    term.ends_sane();

    // a build that does not end
    fake.solve("day00_one.rs", |source| source);
    fake.write("build.rs", "fn main() { std::thread::sleep(std::time::Duration::from_secs(600)) }");
    let mut term = Terminal::open(&fake, "watch day0");
    term.sees("building …");
    term.control('c');
    term.ends_sane();
}

#[test]
#[cfg(target_os = "linux")]
fn ctrl_z_stops_it_and_a_request_to_end_leaves_the_terminal_sane() {
    let fake = Fake::new();
    let mut term = Terminal::shell(&fake, "sh -c 'echo pid=$$; exec $XTASK watch'");
    term.sees("pid=");
    let pid = term.sees("\r\n").trim().to_string();
    let kill = |signal: &str| {
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    };
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    term.sees("waiting for a save");
    term.control('z');
    while !state().contains(") T ") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    kill("-CONT");
    term.send("l");
    term.sees("0 of 3 tasks");
    term.sees("waiting for a save");
    kill("-TERM");
    assert_eq!(term.ends_sane(), 130);
}

#[test]
fn without_a_terminal_lines_are_read() {
    let fake = Fake::new();
    let mut command = fake.command(&["watch"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"l\nQ\n").unwrap();
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(out.contains("q quit, then Enter") && out.contains("0 of 3 tasks"), "{out}");
    assert!(!out.contains('\x1b'), "no colour: {out}");
}

#[test]
fn colour_is_for_terminals_that_want_it() {
    let fake = Fake::new();
    let shown = |line: &str| {
        let mut term = Terminal::shell(&fake, line);
        term.sees("Next: task 0.1")
    };
    assert!(shown("env -u NO_COLOR $XTASK list").contains("\x1b[1mday 0: one"), "a terminal");
    for line in [
        "NO_COLOR=1 $XTASK list",
        "env -u NO_COLOR TERM=dumb $XTASK list",
        "env -u NO_COLOR $XTASK list | cat",
    ] {
        let text = shown(line);
        assert!(!text.contains('\x1b') && text.contains("○ not written"), "{line}: {text}");
    }
}
