//! Copies of the reader's days: none is written over another, and whatever else lies among them is
//! not in the way.

mod common;

use common::{files, Fake};
use std::collections::BTreeSet;
use std::fs;
use std::process::Child;

const DAY: &str = "src/day00_one.rs";
const SECOND: &str = "2026-11-21T09-23-05Z";

/// Starts the runner and doesn't wait for it.
fn start(fake: &Fake, args: &[&str]) -> Child {
    let mut command = fake.command(args);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    command.spawn().unwrap()
}

/// All texts in `src/` and among the backups.
fn texts(fake: &Fake) -> BTreeSet<String> {
    let paths = [files(&fake.path("src")), files(&fake.path(".candecode/backup"))].concat();
    paths.iter().filter_map(|path| fs::read_to_string(path).ok()).collect()
}

#[test]
fn two_runners_at_once_lose_nothing() {
    let fake = Fake::new();
    let commands = [["stubs", "--force"], ["give", "day1"], ["give", "day0"], ["reset", "day1"]];
    for trial in 0..120 {
        let mine = [format!("// one {trial}\n"), format!("// two {trial}\n")];
        fake.write(DAY, &mine[0]);
        fake.write("src/day01_two.rs", &mine[1]);
        let pair = [commands[0], commands[1 + trial % 3]];
        let running = pair.map(|args| start(&fake, &args));
        for mut child in running {
            assert!(child.wait().unwrap().success());
        }
        let found = texts(&fake);
        for text in mine {
            assert!(found.contains(&text), "trial {trial}, {pair:?}: {text:?} is lost");
        }
        fs::remove_dir_all(fake.path(".candecode/backup")).unwrap();
    }
}

#[test]
fn many_commands_at_once_each_keep_a_copy_of_their_own() {
    let fake = Fake::new();
    fake.write(DAY, "// mine\n");
    let running: Vec<Child> =
        (0..12).map(|i| start(&fake, &[["give", "day0"], ["reset", "day0"]][i % 2])).collect();
    for mut child in running {
        assert!(child.wait().unwrap().success());
    }
    assert!(texts(&fake).contains("// mine\n"));
    let (listed, _, code) = fake.say(&["restore"]);
    assert_eq!(code, 0);
    let stamps: Vec<&str> = listed.lines().filter_map(|line| line.split("  ").next()).collect();
    let unique: BTreeSet<&&str> = stamps.iter().collect();
    assert_eq!(unique.len(), stamps.len(), "{listed}");
}

#[test]
fn what_is_no_copy_of_a_day_is_not_listed_and_not_in_the_way() {
    let fake = Fake::new();
    fake.write(DAY, "// mine\n");
    fake.say(&["give", "day0"]);
    let (before, _, _) = fake.say(&["restore"]);
    let backup = |path: &str| format!(".candecode/backup/{path}");
    for stray in [".DS_Store", "Thumbs.db", "desktop.ini", "notes.txt", "2999-01-01T00-00-00Z"] {
        fake.write(&backup(stray), "no folder");
    }
    let copies = fs::read_dir(fake.path(".candecode/backup")).unwrap().flatten();
    let stamp = copies.map(|entry| entry.path()).find(|path| path.is_dir()).unwrap();
    for stray in [
        ".DS_Store",
        "src/.DS_Store",
        "src/._day00_one.rs",
        "src/day00_one.new-123",
        "src/day00_one.rs~",
        "src/.day00_one.rs.swp",
        "Cargo.toml",
    ] {
        fs::write(stamp.join(stray), "stray").unwrap();
    }
    for empty in ["2999-01-02T00-00-00Z", "2999-01-03T00-00-00Z/src", "mine/src/day00_one.rs"] {
        fs::create_dir_all(fake.path(&backup(empty))).unwrap();
    }
    fake.write(&backup("2999-01-04T00-00-00Z/src/day00_one.new-7"), "half");
    let (out, err, code) = fake.say(&["restore"]);
    assert_eq!((out.as_str(), err.as_str(), code), (before.as_str(), "", 0));
    let (_, err, code) = fake.say(&["restore", "2999-01-02T00-00-00Z"]);
    assert!(err.starts_with("error: no backup `2999-01-02") && code == 2, "{err}");
    let name = stamp.file_name().unwrap().to_string_lossy().into_owned();
    assert_eq!(fake.say(&["restore", &name]).2, 0);
    assert_eq!(fake.read(DAY), "// mine\n");
    for stray in [".DS_Store", "src/.DS_Store", "src/._day00_one.rs", "src/day00_one.new-123"] {
        assert!(!fake.path(stray).exists(), "{stray} was brought back");
    }
    assert!(fake.read("Cargo.toml").contains("[workspace]"));
}

#[test]
fn the_newest_copy_is_the_newest_also_within_a_second() {
    let fake = Fake::new();
    let numbers = ["", "-2", "-9", "-10", "-11", "-100"];
    for number in numbers {
        let text = format!("// {number}\n");
        fake.write(&format!(".candecode/backup/{SECOND}{number}/{DAY}"), &text);
    }
    fake.write(&format!(".candecode/backup/my own/{DAY}"), "// by hand\n");
    let (out, _, _) = fake.say(&["restore"]);
    let listed: Vec<&str> = out.lines().filter_map(|line| line.split("  ").next()).collect();
    let expected: Vec<String> = numbers.iter().map(|number| format!("{SECOND}{number}")).collect();
    assert_eq!(listed[0], "my own", "a name that no runner chose is never the newest");
    assert_eq!(listed[1..7], expected, "{out}");
    assert!(out.contains(&format!("`cargo xtask restore {SECOND}-100` brings the newest back")));
    fake.say(&["restore", "day0"]);
    assert_eq!(fake.read(DAY), "// -100\n");
}

#[test]
#[cfg(unix)]
fn what_is_no_file_is_refused_and_not_waited_for() {
    use std::os::unix::fs::symlink;
    for kind in ["pipe", "folder", "device"] {
        let fake = Fake::new();
        let path = fake.path(DAY);
        fs::remove_file(&path).unwrap();
        match kind {
            "pipe" => {
                assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success())
            }
            "folder" => fs::create_dir(&path).unwrap(),
            _ => symlink("/dev/zero", &path).unwrap(),
        }
        fake.write(&format!(".candecode/backup/{SECOND}/{DAY}"), "// kept\n");
        for args in [
            &["give", "day0"][..],
            &["reset", "day0"],
            &["start", "day1"],
            &["stubs", "--force"],
            &["stubs", "--check"],
            &["restore", "day0"],
            &["restore", SECOND],
            &["list"],
            &["check", "day0"],
            &["diff", "day0"],
            &["hint", "day0"],
        ] {
            let mut child = start(&fake, args);
            let began = std::time::Instant::now();
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                if began.elapsed().as_secs() > 60 {
                    child.kill().unwrap();
                    panic!("{args:?} waits for a {kind}");
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            };
            assert_eq!(status.code(), Some(1), "{args:?}, {kind}");
            let (_, err, _) = fake.say(args);
            assert!(err.contains(DAY) && err.contains("move it away"), "{args:?}, {kind}: {err}");
            assert!(!path.is_file(), "{args:?}, {kind}: it is as it was");
        }
    }
}
