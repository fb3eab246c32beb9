//! Scripted sessions: whatever happens in them, every line that the reader wrote is still there at
//! the end, in `src/` or in a copy that `restore` lists.
#![cfg(unix)]

mod common;

use common::{files, Fake, Session};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

const DAY: &str = "src/day01_two.rs";

/// What the reader wrote: lines that are in no stub and no reference.
const LINES: [&str; 3] =
    ["// I think that two is twice one.", "sum(one(), one())", "fn sum(a: u32, b: u32) -> u32 {"];

/// A day as the reader wrote it: its first task, with a helper.
fn written(source: String) -> String {
    let mine =
        source.replace("    one() + one()\n", &format!("    {}\n    {}\n", LINES[0], LINES[1]));
    mine.replace("two() * helper()", "todo!(\"day 1, task 2: twice two\")")
        + &format!("\n{}\n    a + b\n}}\n", LINES[2])
}

/// A course in which day 1 is begun.
fn course() -> Fake {
    let fake = Fake::new();
    fake.solve("day01_two.rs", written);
    fake
}

/// Every line of the reader's is in `src/`, or in one copy; and no conflict marker is anywhere in
/// `src/`.
fn nothing_is_lost(root: &Path, what: &str) {
    let src = std::fs::read_to_string(root.join(DAY)).unwrap_or_default();
    let copies = files(&root.join(".candecode/backup"));
    let texts = copies.iter().map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let whole = |text: &String| LINES.iter().all(|line| text.contains(line));
    assert!([src.clone()].into_iter().chain(texts).any(|text| whole(&text)), "{what}: lost\n{src}");
    assert!(!src.contains("<<<<<<<") && !src.contains(">>>>>>>"), "{what}: {src}");
    assert!(!src.is_empty(), "{what}: half a file");
}

/// Interrupts a command after each of several delays, in a fresh course each time.
fn interrupted(line: &str, prepare: impl Fn(&Fake)) {
    for delay in [0, 1, 2, 3, 5, 8, 13, 21] {
        let fake = course();
        prepare(&fake);
        let mut session = Session::open(&fake, line);
        std::thread::sleep(Duration::from_millis(delay));
        session.interrupt();
        session.ends();
        nothing_is_lost(&fake.root, &format!("{line}, Ctrl-C after {delay} ms"));
    }
}

/// Waits until the checks of a day run: then there is a file for what they report.
fn until_checks_run(fake: &Fake) {
    while files(&fake.path("target/xtask")).is_empty() {
        std::thread::sleep(Duration::from_millis(20)); // if they do not, neither does this
    }
    std::thread::sleep(Duration::from_millis(200));
}

#[test]
fn a_save_while_a_check_runs_is_checked_too() {
    let fake = course();
    let right = fake.read(DAY);
    fake.write(
        DAY,
        &right.replace(
            "sum(one(), one())",
            "{ std::thread::sleep(std::time::Duration::from_secs(2)); sum(one(), one()) + 1 }",
        ),
    );
    let mut session = Session::open(&fake, "watch day1");
    until_checks_run(&fake);
    fake.write(DAY, &right);
    session.sees("✗ failed"); // what was saved first
    session.sees("✓ day 1 is done");
    session.sees("── day 0: one ──");
    session.interrupt();
    session.ends();
    nothing_is_lost(&fake.root, "watch");
}

#[test]
fn an_editor_that_saves_in_two_steps_is_waited_for() {
    let fake = course();
    let mut session = Session::open(&fake, "watch day0");
    session.sees("waiting for a save");
    let (place, aside) = (fake.path("src/day00_one.rs"), fake.path("src/day00_one.rs~"));
    std::fs::rename(&place, &aside).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    fake.solve("day00_one.rs", |source| source);
    std::fs::remove_file(&aside).unwrap();
    session.sees("✓ day 0 is done");
    session.interrupt();
    session.ends();
    nothing_is_lost(&fake.root, "watch");
}

#[test]
fn give_is_interrupted() {
    interrupted("give day1", |_| ());
}

#[test]
fn reset_is_interrupted() {
    interrupted("reset day1", |_| ());
}

#[test]
fn restore_is_interrupted() {
    interrupted("restore $(ls .candecode/backup)", |fake| {
        assert_eq!(fake.say(&["reset", "day1"]).2, 0);
    });
}

#[test]
fn stubs_and_start_are_interrupted() {
    interrupted("stubs --force", |_| ());
    interrupted("start day1", |_| ());
}

/// Runs the runner as somebody who may not write where `lock` says. As root, that somebody is
/// nobody.
fn locked(fake: &Fake, lock: &str, args: &[&str]) -> Output {
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let place = fake.path(lock);
    mode(&fake.root, 0o777);
    mode(&place, 0o555);
    let root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let mut command = Command::new(if root { "setpriv" } else { "env" });
    if root {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    command.arg(env!("CARGO_BIN_EXE_xtask")).args(args).current_dir(&fake.root);
    // nobody owns nothing here; git shall not mind
    command
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*");
    let out = command.output().unwrap();
    mode(&place, 0o755);
    out
}

#[test]
fn a_read_only_src() {
    for args in [["give", "day1"].as_slice(), &["reset", "1"], &["stubs", "--force"]] {
        let fake = course();
        let before = fake.read(DAY);
        let out = locked(&fake, "src", args);
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(error.contains("cannot write"), "{args:?}: {error}");
        assert_eq!((fake.read(DAY), out.status.code()), (before, Some(1)), "{args:?}");
        nothing_is_lost(&fake.root, "a read-only src/");
    }
}

#[test]
fn a_read_only_place_for_copies() {
    for args in [["give", "day1"].as_slice(), &["reset", "1"], &["stubs", "--force"]] {
        let fake = course();
        fake.write(".candecode/backup/x/y", "");
        let before = fake.read(DAY);
        let out = locked(&fake, ".candecode/backup", args);
        assert_eq!(
            (fake.read(DAY), out.status.code()),
            (before, Some(1)),
            "no copy, no change: {args:?}"
        );
        nothing_is_lost(&fake.root, "a read-only .candecode/");
    }
}

#[test]
fn hints_and_lists_need_no_permission() {
    let fake = course();
    fake.write("xtask/hints.toml", "[\"1.1\"]\nquestion = \"q\"\nidea = \"i\"\nshape = \"s\"\n");
    fake.write(".candecode/x", "");
    for args in [["hint", "--task", "1.1"].as_slice(), &["list", "--quick"], &["diff", "1"]] {
        let out = locked(&fake, ".candecode", args);
        assert_eq!(
            out.status.code(),
            Some(0),
            "{args:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
    nothing_is_lost(&fake.root, "hint, list, diff");
}

/// Runs a line of shell in which no file can grow beyond nothing: each write fails, as on a full
/// disk.
fn without_room(fake: &Fake, line: &str) -> Output {
    let script = format!("trap '' XFSZ; ulimit -f 0; {line}");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(&fake.root).env("XTASK", env!("CARGO_BIN_EXE_xtask"));
    command.output().unwrap()
}

#[test]
fn give_and_reset_without_room() {
    for line in
        ["$XTASK give day1", "$XTASK reset day1", "$XTASK stubs --force", "$XTASK start day1"]
    {
        let fake = course();
        let before = fake.read(DAY);
        let out = without_room(&fake, line);
        assert_eq!((fake.read(DAY), out.status.code()), (before, Some(1)), "{line}");
        nothing_is_lost(&fake.root, line);
        let left = files(&fake.path("src"));
        assert!(left.iter().all(|path| !path.display().to_string().contains("new-")), "{left:?}");
    }
}

#[test]
fn restore_without_room() {
    let fake = course();
    fake.say(&["reset", "day1"]);
    let stub = fake.read(DAY);
    let out = without_room(&fake, "$XTASK restore $(ls .candecode/backup)");
    assert_eq!((fake.read(DAY), out.status.code()), (stub, Some(1)));
    nothing_is_lost(&fake.root, "restore");
}

/// A disk of its own, small and full. Only where this system lets us mount one.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk() {
    let fake = course();
    let root = fake.root.display();
    let script = format!(
        "mkdir -p {root}.disk && mount -t tmpfs -o size=600k none {root}.disk || exit 77\n\
         cp -r {root}/. {root}.disk 2>/dev/null; cd {root}.disk\n\
         test -s {DAY} || exit 78\n\
         dd if=/dev/zero of=fill bs=1k 2>/dev/null\n\
         for line in 'give day1' 'reset day1' 'stubs --force' 'start day1' 'hint --task 1.1' 'list --quick'; do\n\
             $XTASK $line >>/dev/null 2>&1; cmp -s {DAY} {root}/{DAY} || exit 79\n\
         done\n\
         rm fill; $XTASK give day1 || exit 80\n\
         rm -rf {root}/.candecode; cp -r .candecode {root}/; cp {DAY} {root}/{DAY}"
    );
    fake.write("xtask/hints.toml", "[\"1.1\"]\nquestion = \"q\"\nidea = \"i\"\nshape = \"s\"\n");
    std::fs::remove_dir_all(fake.path("target")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    let Ok(out) = command.env("XTASK", env!("CARGO_BIN_EXE_xtask")).output() else { return };
    let _ = std::fs::remove_dir(format!("{root}.disk"));
    let words = String::from_utf8_lossy(&out.stderr).into_owned();
    match out.status.code() {
        Some(0) => nothing_is_lost(&fake.root, "a full disk"),
        Some(78..=80) => panic!("{:?} {words}", out.status),
        _ => println!("no disk of our own here: {words}"),
    }
}

#[test]
fn a_whole_day() {
    let fake = course();
    let mut session = Session::shell(
        &fake,
        "$XTASK give day1 && $XTASK reset day1 && $XTASK restore && $XTASK list",
    );
    session.sees("is the reference's code now");
    session.sees("is the stub again");
    session.sees("brings the newest back");
    session.sees("Next: task 0.1");
    assert_eq!(session.ends(), 0);
    nothing_is_lost(&fake.root, "give and reset");
    let first = fake.say(&["restore"]).0.split(' ').next().unwrap().to_string();
    let mut session = Session::open(&fake, &format!("restore {first}"));
    session.sees("is as it was at");
    assert_eq!(session.ends(), 0);
    assert!(LINES.iter().all(|line| fake.read(DAY).contains(line)), "{}", fake.read(DAY));
}
