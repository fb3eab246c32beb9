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
        upstream.write(".gitattributes", include_str!("../../.gitattributes"));
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

    /// Updates: the course is new, and the reader's day is what it was.
    fn updates_and_keeps(&self, mine: &str) -> String {
        let (out, err, code) = self.mine.say(&["update"]);
        assert_eq!(code, 0, "{out}{err}");
        assert_eq!(self.mine.read(DAY), mine, "{out}{err}");
        assert_eq!(self.mine.read("README.md"), "two\n");
        assert!(self.mine.read("solutions/day01_two.rs").contains("_times"), "{out}{err}");
        assert_eq!(self.mine.git_says(&["status", "--porcelain"]), "");
        let copies = files(&self.mine.path(".candecode/backup"));
        let kept = |path: &std::path::PathBuf| std::fs::read_to_string(path).unwrap() == mine;
        assert!(copies.iter().any(kept), "a copy: {copies:?}");
        out
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

const DAY: &str = "src/day01_two.rs";

#[test]
fn unwritten_days_follow_and_the_clone_is_clean() {
    let course = Clone::new();
    let (out, err, code) = course.mine.say(&["update"]);
    assert!(out.contains("Nothing is new: this is what origin has.") && code == 0, "{out}{err}");
    course.moves_on();
    let (out, err, code) = course.mine.say(&["update"]);
    assert!(out.contains("  day 1 takes a number\n"), "{out}{err}");
    assert!(!out.contains("Moved in the course"), "nothing of it was the reader's: {out}");
    assert_eq!(code, 0);
    assert_eq!(course.mine.read(DAY), course.upstream.read(DAY));
    assert_eq!(course.mine.read("README.md"), "two\n");
    assert_eq!(course.mine.git_says(&["status", "--porcelain"]), "");
    let head = |fake: &Fake| fake.git_says(&["rev-parse", "HEAD"]);
    assert_eq!(head(&course.mine), head(&course.upstream));
}

#[test]
fn work_that_is_not_committed_stays_and_moved_signatures_are_listed() {
    let course = Clone::new();
    course.moves_on();
    course.mine.write(DAY, MINE);
    let out = course.updates_and_keeps(MINE);
    for line in [
        "Moved in the course; make these changes in src/day01_two.rs (- goes, + comes):\n",
        "  - pub fn two() -> u32 {\n",
        "  + pub fn two(_times: u32) -> u32 {\n",
        "  + pub fn three() -> u32 {\n",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(course.mine.say(&["update"]).0.contains("Nothing is new"));
    // And once more, now that the day is committed.
    course.moves(|source| source.replace("pub fn three()", "pub fn three(_times: u32)"));
    let out = course.updates_and_keeps(MINE);
    assert!(out.contains("  + pub fn three(_times: u32) -> u32 {\n"), "{out}");
    assert!(!out.contains("pub fn two"), "only what is new: {out}");
}

#[test]
fn committed_work_stays_and_so_does_what_is_newer() {
    let course = Clone::new();
    course.mine.write(DAY, MINE);
    course.mine.write("notes.md", "mine\n");
    course.mine.git(&["add", "."]);
    course.mine.git(&["commit", "-qm", "day 1"]);
    course.moves_on();
    let newer = MINE.replace("a + b", "b + a");
    course.mine.write(DAY, &newer);
    course.updates_and_keeps(&newer);
    assert_eq!(course.mine.read("notes.md"), "mine\n");
    let parents = course.mine.git_says(&["log", "-1", "--format=%P"]);
    assert_eq!(parents.split(' ').count(), 2, "a merge");
    assert!(course.mine.git_says(&["log", "-2", "--format=%s"]).contains("My days"));
}

/// With these settings `git pull` drops a reader's day, and says that all went well.
#[test]
fn settings_that_drop_work_do_not() {
    for settings in [
        ["pull.rebase", "rebase.autoStash"],
        ["merge.autoStash", "pull.rebase"],
        ["pull.ff", "commit.gpgSign"],
    ] {
        for committed in [false, true] {
            let course = Clone::new();
            course.mine.write(DAY, MINE);
            if committed {
                course.mine.git(&["commit", "-qam", "day 1"]);
            }
            for setting in settings {
                course.mine.git(&["config", setting, "true"]);
            }
            course.moves_on();
            course.updates_and_keeps(MINE);
        }
    }
}

#[test]
fn what_is_in_the_way_is_named_and_nothing_changes() {
    let course = Clone::new();
    course.moves_on();
    course.mine.write(DAY, MINE);
    let refused = |words: &str, code: i32| {
        let (out, err, found) = course.mine.say(&["update"]);
        assert!(err.contains(words), "{words}: {out}{err}");
        assert_eq!((course.mine.read(DAY).as_str(), found), (MINE, code));
    };
    course.mine.write("README.md", "my own\n");
    refused("files of the course are changed: README.md\n", 1);
    course.mine.git(&["add", "README.md"]);
    refused("files of the course are changed: README.md\n", 1);
    assert!(!course.mine.git_says(&["log", "-1", "--format=%s"]).contains("My days"));

    course.mine.git(&["commit", "-qm", "mine", "README.md"]);
    refused("you and the course changed the same files: README.md\n", 1);
    assert_eq!(course.mine.read("README.md"), "my own\n");
    assert!(!course.mine.path(".git/MERGE_HEAD").exists());
    course.mine.git(&["checkout", "-q", "HEAD~2", "--", "README.md"]);
    course.mine.git(&["commit", "-qm", "undone"]);

    let url = course.upstream.root.display().to_string();
    course.mine.git(&["remote", "set-url", "origin", "/nowhere"]);
    refused("nothing was changed; is the network there?", 1);
    course.mine.git(&["remote", "set-url", "origin", &url]);

    course.upstream.write("new.txt", "theirs\n");
    course.upstream.git(&["add", "."]);
    course.upstream.git(&["commit", "-qm", "a new file"]);
    course.mine.write("new.txt", "mine\n");
    refused("the course is as it was, and so are your days", 1);
    assert_eq!(course.mine.read("new.txt"), "mine\n");
    std::fs::remove_file(course.mine.path("new.txt")).unwrap();

    std::fs::rename(course.mine.path(DAY), course.mine.path("aside")).unwrap();
    let (_, err, _) = course.mine.say(&["update"]);
    assert!(err.contains("src/day01_two.rs is absent: `cargo xtask reset day1`"), "{err}");
    std::fs::rename(course.mine.path("aside"), course.mine.path(DAY)).unwrap();

    assert_eq!(course.mine.say(&["update", "--remote", "nobody"]).2, 2);
    course.updates_and_keeps(MINE);
}

/// Git that ends the runner at its merge, before or after it. It leaves no lock behind that stops
/// the next update.
#[test]
#[cfg(unix)]
fn an_update_that_was_killed_is_done_again() {
    use std::os::unix::fs::PermissionsExt;
    let real = std::process::Command::new("sh").args(["-c", "command -v git"]).output().unwrap();
    let real = String::from_utf8(real.stdout).unwrap();
    for (command, after) in
        [("fetch", true), ("commit", false), ("commit", true), ("merge", false), ("merge", true)]
    {
        let course = Clone::new();
        course.moves_on();
        course.mine.write(DAY, MINE);
        let run = if after { format!("{} \"$@\"; ", real.trim()) } else { String::new() };
        let script = format!(
            "#!/bin/sh\ncase \" $* \" in *\" {command} --quiet \"*) {run}kill -9 $PPID; exit 1;; esac\nexec {} \"$@\"\n",
            real.trim()
        );
        course.mine.write("target/bin/git", &script);
        let git = course.mine.path("target/bin/git");
        std::fs::set_permissions(&git, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path =
            format!("{}:{}", git.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let out = course.mine.command(&["update"]).env("PATH", path).output().unwrap();
        assert_eq!(out.status.code(), None, "killed at {command}");
        assert_eq!(course.mine.read(DAY), MINE, "{command}");
        course.updates_and_keeps(MINE);
    }
}

#[test]
fn a_folder_that_is_no_clone_is_told_so() {
    let (_, err, code) = Fake::new().say(&["update"]);
    assert!(err.contains("is no clone (a downloaded archive?)") && code == 1, "{err}");
}
