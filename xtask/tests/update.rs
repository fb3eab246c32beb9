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

/// With some of these settings `git pull` drops a reader's day, with others `git merge` merges
/// nothing or otherwise, stops, or asks for a key. `update` does what it says under each.
#[test]
fn the_readers_settings_change_nothing() {
    for settings in [
        &["pull.rebase=true", "rebase.autoStash=true", "merge.ff=only"][..],
        &["merge.autoStash=true", "merge.ff=false", "merge.default=union", "pull.ff=only"],
        &["pull.twohead=ours", "commit.gpgSign=true", "commit.cleanup=verbatim"],
        &["merge.verifySignatures=true", "merge.default=binary", "merge.renormalize=true"],
        &["merge.renames=true", "merge.directoryRenames=true", "merge.ours.driver=false"],
        &["branch.main.mergeOptions=--no-commit", "rerere.enabled=true"],
        &["branch.main.mergeOptions=--squash", "rerere.autoUpdate=true", "gc.auto=1"],
        &["branch.main.mergeOptions=-s ours", "core.quotePath=true", "core.pager=false"],
        &["branch.main.mergeOptions=-X theirs", "diff.relative=true", "diff.noprefix=true"],
        &["branch.main.mergeOptions=--ff-only", "user.useConfigOnly=true"],
        &["branch.main.mergeOptions=--no-ff -S", "log.follow=true", "log.date=human"],
        &["branch.main.mergeOptions=--autostash", "submodule.recurse=true"],
        &["core.autocrlf=true", "core.safecrlf=true"],
        &["core.autocrlf=input", "core.eol=crlf", "core.ignoreStat=true"],
        &["diff.external=false", "diff.renames=copies", "diff.ignoreSubmodules=all"],
        &["diff.orderFile=/nowhere", "fetch.prune=true", "fetch.pruneTags=true"],
        &["color.ui=always", "column.ui=always", "log.showSignature=true", "format.pretty=%H"],
        &["i18n.logOutputEncoding=UTF-16", "core.fsmonitor=false-program", "alias.merge=!false"],
    ] {
        let course = Clone::new();
        course.mine.write("mine.md", "a commit of my own\n");
        course.mine.git(&["add", "mine.md"]);
        course.mine.git(&["commit", "-qm", "mine"]);
        course.mine.write(DAY, MINE);
        for setting in settings {
            let (name, value) = setting.split_once('=').unwrap();
            course.mine.git(&["config", name, value]);
        }
        course.moves_on();
        let (out, err, code) = course.mine.say(&["update"]);
        let what = format!("{settings:?}: {out}{err}");
        assert_eq!(code, 0, "{what}");
        assert_eq!(course.mine.read(DAY), MINE, "{what}");
        assert_eq!(course.mine.read("README.md").trim_end(), "two", "{what}");
        assert!(course.mine.read("solutions/day01_two.rs").contains("_times"), "{what}");
        assert!(out.contains("  day 1 takes a number\n"), "{what}");
        assert!(out.contains("  + pub fn two(_times: u32) -> u32 {\n"), "{what}");
        let plain = ["color.ui=false", "core.fsmonitor=false", "diff.orderFile=/dev/null"];
        let plain = plain.map(|setting| ["-c", setting]).concat();
        let git = |args: &[&str]| course.mine.git_says(&[&plain, args].concat());
        assert_eq!(git(&["status", "--porcelain"]), "", "{what}");
        let theirs = course.upstream.git_says(&["rev-parse", "HEAD"]);
        git(&["merge-base", "--is-ancestor", &theirs, "HEAD"]);
        assert!(!course.mine.path(".git/MERGE_HEAD").exists(), "{what}");
        assert!(course.mine.say(&["update"]).0.contains("Nothing is new"), "{what}");
    }
}

/// As [`the_readers_settings_change_nothing`], for what is set in files and in the environment.
#[test]
#[cfg(unix)]
fn the_readers_hooks_attributes_and_variables_change_nothing() {
    use std::os::unix::fs::PermissionsExt;
    for kind in
        ["hooks", "global attributes", "own attributes", "signature", "GIT_DIR", "background"]
    {
        let course = Clone::new();
        course.mine.write(DAY, MINE);
        course.mine.write("mine.md", "a commit of my own\n");
        course.mine.git(&["add", "mine.md"]);
        course.mine.git(&["commit", "-qm", "mine", "mine.md"]);
        course.moves_on();
        let mut update = course.mine.command(&["update"]);
        match kind {
            "hooks" => {
                for hook in [
                    "pre-commit",
                    "pre-merge-commit",
                    "commit-msg",
                    "post-merge",
                    "reference-transaction",
                ] {
                    let hook = format!(".git/hooks/{hook}");
                    course.mine.write(&hook, "#!/bin/sh\nexit 1\n");
                    let mode = std::fs::Permissions::from_mode(0o755);
                    std::fs::set_permissions(course.mine.path(&hook), mode).unwrap();
                }
            }
            "global attributes" => {
                course.mine.write("target/attributes", "* merge=union diff=x filter=y\n");
                let file = course.mine.path("target/attributes").display().to_string();
                course.mine.git(&["config", "core.attributesFile", &file]);
            }
            "own attributes" => course.mine.write(".git/info/attributes", "src/* merge=union\n"),
            "signature" => course.mine.git(&["config", "log.showSignature", "true"]),
            "GIT_DIR" => {
                update
                    .env("GIT_DIR", course.upstream.path(".git"))
                    .env("GIT_INDEX_FILE", "/nowhere");
            }
            _ => course.mine.write(".git/FETCH_HEAD", "0000000000000000000000000000000000000000\n"),
        }
        let (out, err, code) = common::texts(update.output().unwrap());
        assert_eq!(code, 0, "{kind}: {out}{err}");
        assert_eq!(course.mine.read(DAY), MINE, "{kind}: {out}{err}");
        assert_eq!(course.mine.read("README.md"), "two\n", "{kind}");
        assert_eq!(course.mine.git_says(&["status", "--porcelain"]), "", "{kind}");
    }
}

/// Git in the middle of something else: nothing is changed, and the way out is said.
#[test]
fn what_git_has_not_finished_is_named() {
    let conflict = |course: &Clone, args: &[&str]| {
        let out = std::process::Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(args)
            .current_dir(&course.mine.root)
            .output()
            .unwrap();
        assert!(!out.status.success(), "a conflict: {args:?}");
    };
    for (kind, way) in [
        ("cherry-pick", "`git cherry-pick --continue` or `git cherry-pick --abort`"),
        ("revert", "`git revert --continue` or `git revert --abort`"),
        ("merge", "`git merge --continue` or `git merge --abort`"),
        ("rebase", "`git rebase --continue` or `git rebase --abort`"),
        ("am", "`git am --continue` or `git am --abort`"),
        ("bisect", "`git bisect reset`"),
    ] {
        let course = Clone::new();
        course.moves_on();
        let commit = |text: &str| {
            course.mine.write("mine.md", text);
            course.mine.git(&["add", "mine.md"]);
            course.mine.git(&["commit", "-qm", text.trim()]);
        };
        commit("one\n");
        course.mine.git(&["checkout", "-qb", "side"]);
        commit("two\n");
        course.mine.git(&["checkout", "-q", "main"]);
        commit("three\n");
        commit("four\n");
        course.mine.write(DAY, MINE);
        match kind {
            "cherry-pick" => conflict(&course, &["cherry-pick", "side"]),
            "revert" => conflict(&course, &["revert", "--no-edit", "HEAD~1"]),
            "merge" => conflict(&course, &["merge", "side"]),
            "rebase" => {
                course.mine.git(&["stash", "-q"]);
                conflict(&course, &["rebase", "side"]);
                course.mine.write(DAY, MINE);
            }
            "am" => {
                let patch = course.mine.git_says(&["format-patch", "-1", "side", "--stdout"]);
                course.mine.write("target/patch", &format!("{patch}\n"));
                conflict(&course, &["am", "target/patch"]);
            }
            _ => course.mine.git(&["bisect", "start"]),
        }
        let (out, err, code) = course.mine.say(&["update"]);
        let words =
            format!("error: a {kind} is not finished: {way}, then again; nothing was changed\n");
        assert_eq!((err.as_str(), code), (words.as_str(), 1), "{out}");
        assert_eq!(course.mine.read(DAY), MINE);
    }
}

/// The course renames, deletes, or makes something else of a day that the reader has begun.
#[test]
fn a_begun_day_stays_when_the_course_renames_or_deletes_it() {
    for kind in ["renamed", "renamed and changed", "deleted", "a folder", "a link"] {
        for committed in [false, true] {
            let course = Clone::new();
            course.mine.write(DAY, MINE);
            if committed {
                course.mine.git(&["commit", "-qam", "day 1"]);
            }
            let up = &course.upstream;
            match kind {
                "renamed" | "renamed and changed" => {
                    up.git(&["mv", DAY, "src/day01_pair.rs"]);
                    up.git(&["mv", "solutions/day01_two.rs", "solutions/day01_pair.rs"]);
                    if kind != "renamed" {
                        let source = up.read("solutions/day01_pair.rs");
                        up.write(
                            "solutions/day01_pair.rs",
                            &source.replace("pub fn two()", "pub fn two(_times: u32)"),
                        );
                        assert_eq!(up.say(&["stubs", "--force"]).2, 0);
                    }
                }
                "deleted" => up.git(&["rm", "-q", DAY, "solutions/day01_two.rs"]),
                "a folder" => {
                    up.git(&["rm", "-q", DAY]);
                    up.write("src/day01_two.rs/mod.rs", "// a folder\n");
                }
                _ => {
                    std::fs::remove_file(up.path(DAY)).unwrap();
                    #[cfg(unix)]
                    std::os::unix::fs::symlink("day00_one.rs", up.path(DAY)).unwrap();
                    #[cfg(not(unix))]
                    up.write(DAY, "// no links here\n");
                }
            }
            up.write("README.md", "two\n");
            up.git(&["add", "-A"]);
            up.git(&["commit", "-qm", "day 1 is another"]);
            let (out, err, code) = course.mine.say(&["update"]);
            let what = format!("{kind}, {committed}: {out}{err}");
            assert_eq!(course.mine.read(DAY), MINE, "{what}");
            assert!(!course.mine.path(DAY).is_symlink(), "{what}");
            assert!(course.mine.read("src/day00_one.rs").contains("todo!"), "{what}");
            assert!(!err.contains("git checkout"), "no advice that throws a day away: {what}");
            if kind == "a folder" {
                assert!(code == 1 && err.contains("so are your days"), "{what}");
                continue;
            }
            assert_eq!((code, course.mine.read("README.md").as_str()), (0, "two\n"), "{what}");
            assert_eq!(course.mine.git_says(&["status", "--porcelain"]), "", "{what}");
            match kind {
                "deleted" => assert!(
                    out.contains(
                        "The course has no day 1 any more; yours stays in src/day01_two.rs."
                    ),
                    "{what}"
                ),
                "a link" => {}
                _ => {
                    let words = "Day 1 is src/day01_pair.rs in the course now. Yours is still in \
                                 src/day01_two.rs, which is no longer compiled: `cargo xtask \
                                 restore day1` puts it into src/day01_pair.rs; then delete \
                                 src/day01_two.rs.";
                    assert!(out.contains(words), "{what}");
                    let moved = out.contains("  + pub fn two(_times: u32) -> u32 {\n");
                    assert_eq!(moved, kind != "renamed", "{what}");
                    assert_eq!(course.mine.say(&["restore", "day1"]).2, 0);
                    assert_eq!(course.mine.read("src/day01_pair.rs"), MINE);
                    std::fs::remove_file(course.mine.path(DAY)).unwrap();
                }
            }
            // And the next update, after another change of the course.
            up.write("README.md", "three\n");
            up.git(&["commit", "-qam", "more"]);
            let (out, err, code) = course.mine.say(&["update"]);
            assert_eq!(
                (code, course.mine.read("README.md").as_str()),
                (0, "three\n"),
                "{out}{err}"
            );
            let there = if kind.starts_with("renamed") { "src/day01_pair.rs" } else { DAY };
            assert_eq!(course.mine.read(there), MINE, "{what}");
        }
    }
}

/// A git that was killed while it wrote the new course: some files are the new ones, one is half
/// written, one is new.
#[test]
fn what_a_killed_merge_left_is_not_taken_for_the_readers() {
    let course = Clone::new();
    course.upstream.write("new/file.txt", "a new file\n");
    let day_0 = course.upstream.read("solutions/day00_one.rs");
    course.upstream.write("solutions/day00_one.rs", &day_0.replace("say one", "say one, please"));
    course.moves_on();
    let stub = course.upstream.read("src/day00_one.rs");
    course.mine.write("src/day00_one.rs", &stub[..stub.len() - 9]);
    course.mine.write(DAY, MINE);
    course.mine.write("README.md", "two\n");
    course.mine.write("new/file.txt", "a new f");
    let (before, after) = (
        course.mine.read("solutions/day01_two.rs"),
        course.upstream.read("solutions/day01_two.rs"),
    );
    course.mine.write("solutions/day01_two.rs", &after[..after.len() / 2]);
    assert_ne!(before, after);
    course.updates_and_keeps(MINE);
    assert_eq!(course.mine.read("new/file.txt"), "a new file\n");
    assert_eq!(course.mine.read("src/day00_one.rs"), stub, "a day that is not begun follows");
}

/// Git overwrites ignored files in a merge, without a word.
#[test]
fn a_file_of_the_readers_that_git_ignores_is_not_overwritten() {
    for (mine, theirs) in
        [("notes.txt", "notes.txt"), ("notes", "notes/one.txt"), ("notes/x", "notes")]
    {
        let course = Clone::new();
        course.mine.write(".git/info/exclude", "notes*\n");
        course.mine.write(mine, "mine\n");
        course.mine.write(DAY, MINE);
        course.upstream.write(theirs, "theirs\n");
        course.moves_on();
        let (out, err, code) = course.mine.say(&["update"]);
        assert!(err.contains(" is in the way: ") && code == 1, "{mine}: {out}{err}");
        assert_eq!(course.mine.read(mine), "mine\n");
        assert_eq!(course.mine.read(DAY), MINE);
        assert_eq!(course.mine.read("README.md"), "one\n");
        std::fs::remove_file(course.mine.path(mine)).unwrap();
        let _ = std::fs::remove_dir(course.mine.path("notes"));
        course.updates_and_keeps(MINE);
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
