//! Interrupted and concurrent commands: every line that the reader wrote is in `src/` afterwards,
//! or in a copy that `reset --undo` lists.
#![cfg(unix)]

mod common;

use common::{files, Fake, Session};
use std::process::Command;
use std::time::Duration;

const DAY: &str = "src/day01_two.rs";

/// The reader's work: lines that are in neither the stub nor the reference.
const LINES: [&str; 3] =
    ["// I think that two is twice one.", "sum(one(), one())", "fn sum(a: u32, b: u32) -> u32 {"];

/// A course in which day 1 is begun: its first task, with a helper.
fn course() -> Fake {
    let fake = Fake::new();
    fake.solve("day01_two.rs", |source| {
        let mine =
            source.replace("    one() + one()\n", &format!("    {}\n    {}\n", LINES[0], LINES[1]));
        mine.replace("two() * helper()", "todo!(\"day 1, task 2: twice two\")")
            + &format!("\n{}\n    a + b\n}}\n", LINES[2])
    });
    fake
}

/// Asserts that all of the reader's lines are in `src/`, or in one copy.
fn nothing_is_lost(fake: &Fake, what: &str) {
    let src = std::fs::read_to_string(fake.path(DAY)).unwrap_or_default();
    let copies = files(&fake.path(".candecode/backup"));
    let texts = copies.iter().map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let whole = |text: &String| LINES.iter().all(|line| text.contains(line));
    assert!([src.clone()].into_iter().chain(texts).any(|text| whole(&text)), "{what}: lost\n{src}");
    assert!(src.contains("pub fn two"), "{what}: half a file");
}

#[test]
fn an_interrupted_command_loses_nothing() {
    for line in
        ["reset day1 --ref", "reset day1", "reset --undo day1", "stubs --force", "start day1"]
    {
        for delay in [0, 1, 2, 3, 5, 8, 13] {
            let fake = course();
            if line.contains("--undo") {
                assert_eq!(fake.say(&["reset", "day1"]).2, 0);
            }
            let mut session = Session::open(&fake, line);
            std::thread::sleep(Duration::from_millis(delay));
            session.interrupt();
            session.ends();
            nothing_is_lost(&fake, &format!("{line}, Ctrl-C after {delay} ms"));
        }
    }
}

#[test]
fn two_concurrent_commands_lose_nothing() {
    let commands = [&["reset", "day1"][..], &["stubs", "--force"], &["reset", "day1", "--ref"]];
    for trial in 0..30 {
        let fake = course();
        let running = [commands[trial % 3], commands[(trial + 1) % 3]]
            .map(|args| fake.command(args).stdout(std::process::Stdio::null()).spawn().unwrap());
        for mut child in running {
            child.wait().unwrap();
        }
        nothing_is_lost(&fake, &format!("trial {trial}"));
    }
}

/// Under `ulimit -f 0` every write fails, as on a full disk.
#[test]
fn without_room_nothing_changes() {
    for line in
        ["reset day1 --ref", "reset day1", "reset --undo day1", "stubs --force", "start day1"]
    {
        let fake = course();
        if line.contains("--undo") {
            fake.say(&["reset", "day1"]);
        }
        let before = fake.read(DAY);
        let script = format!("trap '' XFSZ; ulimit -f 0; $XTASK {line} >/dev/null 2>/dev/null");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(&fake.root);
        let status = command.env("XTASK", env!("CARGO_BIN_EXE_xtask")).status().unwrap();
        assert_eq!((fake.read(DAY), status.code()), (before, Some(1)), "{line}");
        nothing_is_lost(&fake, line);
        let left = files(&fake.path("src"));
        assert!(left.iter().all(|path| !path.display().to_string().contains("new-")), "{left:?}");
    }
}

#[test]
fn a_save_during_a_check_triggers_another_check() {
    let fake = course();
    let right = fake.read(DAY);
    let slow = "{ std::fs::write(\"begun\", \"\").unwrap(); \
                std::thread::sleep(std::time::Duration::from_secs(2)); sum(one(), one()) + 1 }";
    fake.write(DAY, &right.replace("sum(one(), one())", slow));
    let mut session = Session::open(&fake, "check day1 --watch");
    let checks_run = || fake.path("begun").exists();
    for _ in 0..6000 {
        if checks_run() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(checks_run(), "no check begins");
    std::thread::sleep(Duration::from_millis(200));
    fake.write(DAY, &right);
    session.sees("✗ failed"); // what was saved first
    session.sees("✓ day 1 is done");
    session.sees("── day 0: one ──");
    session.interrupt();
    session.ends();
    nothing_is_lost(&fake, "watch");
}
