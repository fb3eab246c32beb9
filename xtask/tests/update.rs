//! `update`: the course moves on, and nothing that the reader wrote is lost.

mod common;

use common::{files, Fake};

/// A course with an upstream, and a reader's clone of it.
struct Clone {
    upstream: Fake,
    mine: Fake,
}

impl Clone {
    fn new() -> Clone {
        let upstream = Fake::new();
        upstream.write(".gitignore", "/target/\n/.candecode/\n");
        upstream.write("README.md", "one\n");
        upstream.git(&["init", "-q", "-b", "main"]);
        upstream.git(&["add", "."]);
        upstream.git(&["commit", "-qm", "the course"]);
        let mine = Fake::clone(&upstream);
        Clone { upstream, mine }
    }

    /// A change of the course: of its reference, with the stubs made anew.
    fn moves(&self, edit: impl Fn(String) -> String) {
        let source = self.upstream.read("solutions/day01_two.rs");
        self.upstream.write("solutions/day01_two.rs", &edit(source));
        self.upstream.write("README.md", "two\n");
        assert_eq!(self.upstream.say(&["stubs", "--force"]).2, 0);
        self.upstream.git(&["add", "."]);
        self.upstream.git(&["commit", "-qm", "day 1 takes a number"]);
    }

    /// The usual change: another signature, another title, a new task.
    fn moves_on(&self) {
        self.moves(|source| {
            source
                .replace("pub fn two()", "pub fn two(_times: u32)")
                .replace("twice one", "one and one")
                .replace("/// Four.", "/// Three.\npub fn three() -> u32 {\n    // task 1.3: one more\n    // <solution>\n    3\n    // </solution>\n}\n\n/// Four.")
        });
    }
}

const MINE: &str = "#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
use candecode::day00_one::one;

/// My helper.
fn sum(a: u32, b: u32) -> u32 {
    a + b
}

/// Two.
pub fn two() -> u32 {
    // task 1.1: twice one
    // I think it is a sum.
    sum(one(), one())
}

/// Four.
pub fn four() -> u32 {
    // task 1.2 (further): twice two
    todo!(\"day 1, task 2: twice two\")
}
";

const MOVED: &str = "#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
use candecode::day00_one::one;

/// My helper.
fn sum(a: u32, b: u32) -> u32 {
    a + b
}

/// Two.
pub fn two(_times: u32) -> u32 {
    // task 1.1: one and one
    // I think it is a sum.
    sum(one(), one())
}

/// Three.
pub fn three() -> u32 {
    // task 1.3: one more
    todo!(\"day 1, task 3: one more\")
}

/// Four.
pub fn four() -> u32 {
    // task 1.2 (further): twice two
    todo!(\"day 1, task 2: twice two\")
}
";

const DAY: &str = "src/day01_two.rs";

#[test]
fn unwritten_days_follow_and_the_clone_is_clean() {
    let course = Clone::new();
    let (out, err, code) = course.mine.say(&["update"]);
    assert!(out.contains("Nothing is new: this is what origin has.") && code == 0, "{out}{err}");
    course.moves_on();
    let (out, err, code) = course.mine.say(&["update"]);
    assert!(out.contains("  day 1 takes a number\n"), "{out}{err}");
    assert!(out.contains("✓ src/day01_two.rs  the new stub"), "{out}");
    assert_eq!(code, 0);
    assert_eq!(course.mine.read(DAY), course.upstream.read(DAY));
    assert_eq!(course.mine.read("README.md"), "two\n");
    assert_eq!(course.mine.git_says(&["status", "--porcelain"]), "");
    assert_eq!(
        course.mine.git_says(&["rev-parse", "HEAD"]),
        course.upstream.git_says(&["rev-parse", "HEAD"])
    );
    assert!(
        files(&course.mine.path(".candecode/backup")).is_empty(),
        "nothing of it was the reader's"
    );
}

#[test]
fn signatures_move_and_bodies_stay() {
    let course = Clone::new();
    course.moves_on();
    course.mine.write(DAY, MINE);
    let (out, err, code) = course.mine.say(&["update"]);
    assert!(out.contains("✓ src/day01_two.rs  yours, in the new signatures"), "{out}{err}");
    assert_eq!((course.mine.read(DAY).as_str(), code), (MOVED, 0));
    assert_eq!(course.mine.git_says(&["status", "--porcelain"]), " M src/day01_two.rs");
    assert_eq!(
        course.mine.git_says(&["rev-parse", "HEAD"]),
        course.upstream.git_says(&["rev-parse", "HEAD"])
    );
    let copies = files(&course.mine.path(".candecode/backup"));
    assert_eq!(copies.len(), 1);
    assert_eq!(std::fs::read_to_string(&copies[0]).unwrap(), MINE);
    assert!(course.mine.say(&["update"]).0.contains("Nothing is new"));
}

#[test]
fn committed_days_move_too_and_no_marker_is_written() {
    let course = Clone::new();
    course.mine.write(DAY, MINE);
    course.mine.write("notes.md", "mine\n");
    course.mine.git(&["add", "."]);
    course.mine.git(&["commit", "-qm", "day 1"]);
    course.moves_on();
    let newer = MINE.replace("a + b", "b + a");
    course.mine.write(DAY, &newer);
    let (out, err, code) = course.mine.say(&["update"]);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(course.mine.read(DAY), MOVED.replace("a + b", "b + a"));
    assert_eq!(course.mine.git_says(&["show", "HEAD:src/day01_two.rs"]) + "\n", MOVED);
    assert_eq!(course.mine.git_says(&["status", "--porcelain"]), " M src/day01_two.rs");
    assert_eq!(
        course.mine.git_says(&["log", "-1", "--format=%P"]).split(' ').count(),
        2,
        "a merge"
    );
    assert_eq!(
        (course.mine.read("notes.md"), course.mine.read("README.md")),
        ("mine\n".into(), "two\n".into())
    );
    // and once more
    course.moves(|source| source.replace("_times", "_n"));
    assert_eq!(course.mine.say(&["update"]).2, 0);
    assert_eq!(course.mine.read(DAY), MOVED.replace("a + b", "b + a").replace("_times", "_n"));
}

#[test]
fn what_cannot_be_merged_is_said_exactly_and_left_as_it_is() {
    let course = Clone::new();
    course.moves_on();
    let mine = MINE.replace("pub fn two()", "pub fn two(mine: u32)");
    course.mine.write(DAY, &mine);
    let (out, err, code) = course.mine.say(&["update"]);
    assert!(out.contains("✗ src/day01_two.rs  yours, as it was: to be done by hand"), "{out}{err}");
    assert!(
        out.contains("  - pub fn two() -> u32 {\n")
            && out.contains("  + pub fn two(_times: u32) -> u32 {\n"),
        "{out}"
    );
    assert_eq!((course.mine.read(DAY), code), (mine, 1));
    assert_eq!(course.mine.read(".candecode/new/day01_two.rs"), course.upstream.read(DAY));
    assert_eq!(course.mine.read("README.md"), "two\n", "all else is up to date");
}

#[test]
fn a_task_that_is_gone_leaves_its_body_in_the_copy() {
    let course = Clone::new();
    course.moves(|source| source[..source.find("/// Four.").unwrap()].to_string());
    course.mine.write(DAY, &MINE.replace("todo!(\"day 1, task 2: twice two\")", "2 * two()"));
    let (out, err, code) = course.mine.say(&["update"]);
    assert!(out.contains("task 1.2 is gone from the course"), "{out}{err}");
    assert_eq!(code, 0);
    let mine = course.mine.read(DAY);
    assert!(mine.contains("sum(one(), one())") && !mine.contains("four"), "{mine}");
}

#[test]
fn what_is_in_the_way_is_named_and_nothing_changes() {
    let course = Clone::new();
    course.moves_on();
    course.mine.write(DAY, MINE);
    let refused = |words: &str| {
        let (out, err, code) = course.mine.say(&["update"]);
        assert!(err.contains(words), "{words}: {out}{err}");
        assert_eq!((course.mine.read(DAY).as_str(), code), (MINE, 1));
    };
    course.mine.write("README.md", "my own\n");
    refused("files of the course are changed: README.md");
    course.mine.git(&["commit", "-qam", "mine"]);
    refused("you and the course changed the same files: README.md");
    course.mine.git(&["reset", "-q", "HEAD~1"]);
    course.mine.git(&["checkout", "-q", "--", "README.md"]);
    course.mine.write(DAY, MINE);
    course.mine.git(&["add", DAY]);
    refused("these are staged and not committed: src/day01_two.rs");
    course.mine.git(&["restore", "--staged", "."]);
    let url = course.upstream.root.display().to_string();
    course.mine.git(&["remote", "set-url", "origin", "/nowhere"]);
    refused("nothing was changed. Is the network there?");
    course.mine.git(&["remote", "set-url", "origin", &url]);
    course.upstream.write("new.txt", "theirs\n");
    course.upstream.git(&["add", "."]);
    course.upstream.git(&["commit", "-qm", "a new file"]);
    course.mine.write("new.txt", "mine\n");
    refused("your days are as they were");
    assert_eq!(course.mine.read("new.txt"), "mine\n");
    assert_eq!(course.mine.git_says(&["diff", "--name-only"]), DAY);
    std::fs::remove_file(course.mine.path("new.txt")).unwrap();
    assert_eq!(course.mine.say(&["update"]).2, 0);
    assert_eq!(course.mine.read(DAY), MOVED);
    assert_eq!(course.mine.say(&["update", "--remote", "nobody"]).2, 2);
}

/// Git that ends the runner at one of its own commands, before or after it.
#[test]
#[cfg(unix)]
fn an_update_that_was_killed_goes_on() {
    use std::os::unix::fs::PermissionsExt;
    let real = String::from_utf8(
        std::process::Command::new("sh").args(["-c", "command -v git"]).output().unwrap().stdout,
    )
    .unwrap();
    for (command, after) in [
        ("fetch", true),
        ("commit-tree", true),
        ("merge", false),
        ("merge", true),
        ("reset", false),
        ("reset", true),
    ] {
        let course = Clone::new();
        course.moves_on();
        course.mine.write(DAY, MINE);
        let run = if after { format!("{} \"$@\"; ", real.trim()) } else { String::new() };
        let script = format!("#!/bin/sh\nif [ \"$1\" = {command} ]; then {run}kill -9 $PPID; exit 1; fi\nexec {} \"$@\"\n", real.trim());
        course.mine.write("target/bin/git", &script);
        let git = course.mine.path("target/bin/git");
        std::fs::set_permissions(&git, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path =
            format!("{}:{}", git.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let out = course.mine.command(&["update"]).env("PATH", path).output().unwrap();
        assert_eq!(out.status.code(), None, "killed at {command}");
        let mine = course.mine.read(DAY);
        assert!(mine == MINE || mine == MOVED, "{command}: {mine}");
        let (out, err, code) = course.mine.say(&["update"]);
        assert_eq!(
            (course.mine.read(DAY).as_str(), code),
            (MOVED, 0),
            "{command} {after}: {out}{err}"
        );
        assert_eq!(course.mine.read("README.md"), "two\n");
        assert_eq!(
            course.mine.git_says(&["status", "--porcelain"]),
            " M src/day01_two.rs",
            "{command}"
        );
        assert!(!course.mine.path(".candecode/update").exists());
        assert!(course.mine.say(&["update"]).0.contains("Nothing is new"));
    }
}

#[test]
#[cfg(unix)]
fn files_that_moved_half_way_are_put_back() {
    let course = Clone::new();
    course.moves_on();
    course.mine.write(DAY, MINE);
    course.mine.git(&["fetch", "-q"]);
    let [head, theirs] =
        ["HEAD", "origin/main"].map(|name| course.mine.git_says(&["rev-parse", name]));
    course.mine.write(".candecode/update/journal", &format!("{head}\n{head}\n{theirs}\n"));
    course.mine.write("README.md", "tw"); // the disk was full
    let (out, err, code) = course.mine.say(&["update"]);
    assert!(out.contains("An earlier update did not end: going on with it."), "{out}{err}");
    assert_eq!((course.mine.read(DAY).as_str(), code), (MOVED, 0), "{out}{err}");
    assert_eq!(course.mine.read("README.md"), "two\n");
}
