//! `update` and `migrate`: the course changes, and nothing that the reader wrote is lost.

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

    /// Changes the course: its reference of day 1, and its stubs.
    fn moves(&self, edit: impl Fn(String) -> String) {
        let source = self.upstream.read("solutions/day01_two.rs");
        self.upstream.write("solutions/day01_two.rs", &edit(source));
        self.upstream.write("README.md", "two\n");
        assert_eq!(self.upstream.say(&["stubs", "--force"]).2, 0);
        self.upstream.git(&["add", "."]);
        self.upstream.git(&["commit", "-qm", "day 1 takes a number"]);
    }

    /// Updates, and asserts that the course is new and the reader's day unchanged.
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

    /// Makes the usual change: a new signature, title and task.
    fn moves_on(&self) {
        self.moves(|source| {
            source
                .replace("pub fn two()", "pub fn two(_times: u32)")
                .replace("twice one", "one and one")
                .replace("/// Four.", &format!("{THREE}\n/// Four."))
        });
    }
}

/// A task that the course adds.
const THREE: &str = "/// Three.
pub fn three() -> u32 {
    // task 1.3: one more
    // <solution>
    3
    // </solution>
}
";

const MINE: &str = "#![allow(unused_variables, unused_mut, unused_imports, dead_code)]
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
    // task 1.2 (optional): twice two
    todo!(\"day 1, task 2: twice two\")
}
";

const DAY: &str = "src/day01_two.rs";

#[test]
fn update_replaces_unwritten_days_and_leaves_a_clean_clone() {
    let course = Clone::new();
    let (out, err, code) = course.mine.say(&["update"]);
    assert!(out.contains("Already up to date with origin.") && code == 0, "{out}{err}");
    course.moves_on();
    let (out, err, code) = course.mine.say(&["update"]);
    assert!(out.contains("  day 1 takes a number\n"), "{out}{err}");
    assert!(!out.contains("The course changed"), "the reader hasn't begun a day: {out}");
    assert_eq!(code, 0);
    assert_eq!(course.mine.read(DAY), course.upstream.read(DAY));
    assert_eq!(course.mine.read("README.md"), "two\n");
    assert_eq!(course.mine.git_says(&["status", "--porcelain"]), "");
    let head = |fake: &Fake| fake.git_says(&["rev-parse", "HEAD"]);
    assert_eq!(head(&course.mine), head(&course.upstream));
}

#[test]
fn update_keeps_uncommitted_work_and_lists_changed_signatures() {
    let course = Clone::new();
    course.moves_on();
    course.mine.write(DAY, MINE);
    let out = course.updates_and_keeps(MINE);
    for line in [
        "The course changed; make these changes in src/day01_two.rs (- remove, + add):\n",
        "  - pub fn two() -> u32 {\n",
        "  + pub fn two(_times: u32) -> u32 {\n",
        "  + pub fn three() -> u32 {\n",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(course.mine.say(&["update"]).0.contains("Already up to date"));
    // Now the day is committed.
    course.moves(|source| source.replace("pub fn three()", "pub fn three(_times: u32)"));
    let out = course.updates_and_keeps(MINE);
    assert!(out.contains("  + pub fn three(_times: u32) -> u32 {\n"), "{out}");
    assert!(!out.contains("pub fn two"), "only the last change: {out}");
}

/// With some of these settings, `git pull` drops a reader's day, or `git merge` merges nothing.
#[test]
fn the_readers_git_settings_do_not_affect_update() {
    for settings in [
        &["pull.rebase=true", "rebase.autoStash=true", "merge.ff=only"][..],
        &["merge.autoStash=true", "merge.ff=false", "pull.twohead=ours", "core.hooksPath=hooks"],
        &["branch.main.mergeOptions=--squash", "merge.ours.driver=false", "diff.renames=copies"],
        &["user.useConfigOnly=true", "core.autocrlf=input", "color.ui=always"],
        &["branch.main.mergeOptions=-s ours", "merge.verifySignatures=true"],
    ] {
        let course = Clone::new();
        course.mine.write(DAY, MINE);
        course.mine.write("hooks/pre-commit", "#!/bin/sh\nexit 1\n");
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(course.mine.path("hooks/pre-commit"), mode).unwrap();
        }
        course.mine.write(".git/info/exclude", "hooks\n");
        for setting in settings {
            let (name, value) = setting.split_once('=').unwrap();
            course.mine.git(&["config", name, value]);
        }
        course.moves_on();
        let out = course.updates_and_keeps(MINE);
        assert!(out.contains("  day 1 takes a number\n"), "{settings:?}: {out}");
        let theirs = course.upstream.git_says(&["rev-parse", "HEAD"]);
        course.mine.git(&["merge-base", "--is-ancestor", &theirs, "HEAD"]);
    }
}

/// Puts a script in front of `git`, and returns the `PATH` that finds it. The script gets the old
/// one.
#[cfg(unix)]
fn with_git(mine: &Fake, script: impl Fn(&str) -> String) -> String {
    let path = std::env::var("PATH").unwrap();
    mine.write("bin/script", &script(&path));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(mine.path("bin/script"), mode).unwrap();
    // Written by another program. A file that this one has written can't be run while a child that
    // another test has just started still holds it open.
    let copy = std::process::Command::new("cp")
        .args(["-p", "bin/script", "bin/git"])
        .current_dir(&mine.root)
        .status();
    assert!(copy.unwrap().success());
    format!("{}:{path}", mine.path("bin").display())
}

/// Runs `update` with a `git` that saves two days right before the command number `at`, one in
/// place and one by renaming: a day that is begun, and the stub of day 0, which the course changes.
/// Returns how many commands there were.
#[cfg(unix)]
fn update_while_saving(course: &Clone, at: usize) -> usize {
    let mine = &course.mine;
    let root = mine.root.display();
    let script = |path: &str| {
        format!(
            "#!/bin/sh
PATH={path}
echo x >> {root}/count
if [ $(wc -l < {root}/count) = {at} ]; then
    cat {root}/saved1 > {root}/{DAY}
    cp {root}/saved0 {root}/new && mv {root}/new {root}/src/day00_one.rs
fi
exec git \"$@\"
"
        )
    };
    mine.write(".git/info/exclude", "bin\ncount\nsaved?\nnew\n");
    mine.write("saved0", "// saved: 0\n");
    mine.write("saved1", &format!("{MINE}// saved: 1\n"));
    let path = with_git(mine, script);
    let mut command = mine.command(&["update"]);
    let (out, err, code) = common::texts(command.env("PATH", path).output().unwrap());
    assert_eq!(code, 0, "before command {at}: {out}{err}");
    mine.read("count").lines().count()
}

#[test]
#[cfg(unix)]
fn a_save_at_any_moment_of_an_update_stays() {
    let Clone { upstream, mine: before } = Clone::new();
    before.write(DAY, MINE);
    let day0 = upstream.read("solutions/day00_one.rs").replace("say one", "say 1");
    upstream.write("solutions/day00_one.rs", &day0);
    let mut course = Clone { upstream, mine: before.copy() };
    course.moves_on();
    let commands = update_while_saving(&course, 0);
    assert_eq!(course.mine.read(DAY), MINE);
    assert!(course.mine.read("src/day00_one.rs").contains("say 1"));
    assert!(commands > 10, "{commands}");
    for at in 1..=commands {
        course.mine = before.copy();
        update_while_saving(&course, at);
        let day = |file: &str| course.mine.read(file);
        assert_eq!(day(DAY), day("saved1"), "before command {at}");
        assert_eq!(day("src/day00_one.rs"), day("saved0"), "before command {at}");
        assert_eq!(day("README.md"), "two\n", "before command {at}");
    }
}

#[test]
#[cfg(unix)]
fn a_day_that_cannot_be_replaced_is_reported_and_the_others_are_new() {
    let Clone { upstream, mine } = Clone::new();
    let day0 = upstream.read("solutions/day00_one.rs").replace("say one", "say 1");
    upstream.write("solutions/day00_one.rs", &day0);
    let course = Clone { upstream, mine };
    course.moves_on();
    let mine = &course.mine;
    mine.write(".git/info/exclude", "bin\n");
    let path = with_git(mine, |path| {
        format!(
            "#!/bin/sh
PATH={path}
case \"$*\" in *cat-file*day00_one*) exit 1 ;; esac
exec git \"$@\"
"
        )
    });
    let mut command = mine.command(&["update"]);
    let (out, err, code) = common::texts(command.env("PATH", path).output().unwrap());
    assert!(err.contains("error: src/day00_one.rs: ") && code == 1, "{out}{err}");
    assert!(err.contains("`cargo xtask reset day0`"), "{err}");
    assert_eq!(mine.read(DAY), course.upstream.read(DAY));
    assert!(mine.read("src/day00_one.rs").contains("say one"));
    assert_eq!(mine.say(&["reset", "day0"]).2, 0);
    assert_eq!(mine.read("src/day00_one.rs"), course.upstream.read("src/day00_one.rs"));
    assert_eq!(mine.git_says(&["status", "--porcelain"]), "");
    assert!(mine.say(&["update"]).0.contains("Already up to date"));
}

/// Update merges in a worktree of its own. It removes that one, even if an interrupted update left
/// it, and none of the reader's.
#[test]
fn update_leaves_the_readers_worktrees_alone() {
    let course = Clone::new();
    course.moves_on();
    course.mine.write(DAY, MINE);
    let mine = &course.mine;
    let add = |path: &str| mine.git(&["worktree", "add", "--quiet", "--detach", path]);
    add("target/on-a-drive-that-is-not-mounted");
    std::fs::remove_dir_all(mine.path("target/on-a-drive-that-is-not-mounted")).unwrap();
    add(".candecode/merge");
    mine.git(&["worktree", "lock", ".candecode/merge"]);
    std::fs::remove_file(mine.path(".candecode/merge/.git")).unwrap();
    course.updates_and_keeps(MINE);
    let worktrees = mine.git_says(&["worktree", "list"]);
    assert!(worktrees.contains("not-mounted") && !worktrees.contains("merge"), "{worktrees}");
}

#[test]
fn update_reports_an_unfinished_git_operation() {
    for (kind, file, words) in [
        ("rebase", "mine.md", "error: no branch is checked out, as in the middle of a rebase"),
        ("cherry-pick", "mine.md", "error: files of the course have local changes: mine.md\n"),
        ("merge", DAY, "error: nothing was changed; `git status` shows what git hasn't finished"),
    ] {
        let course = Clone::new();
        course.moves_on();
        let commit = |text: &str| {
            course.mine.write(file, text);
            course.mine.git(&["add", file]);
            course.mine.git(&["commit", "-qm", text.trim()]);
        };
        commit("one\n");
        course.mine.git(&["checkout", "-qb", "side"]);
        commit("two\n");
        course.mine.git(&["checkout", "-q", "main"]);
        commit("three\n");
        let mut git = std::process::Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@b", kind, "side"]);
        assert!(!git.current_dir(&course.mine.root).output().unwrap().status.success());
        course.mine.write(DAY, MINE);
        let (out, err, code) = course.mine.say(&["update"]);
        assert!(err.starts_with(words) && err.contains("nothing was changed"), "{out}{err}");
        assert_eq!((course.mine.read(DAY).as_str(), code), (MINE, 1));
    }
}

/// The course renames or deletes a day that the reader has begun.
#[test]
fn update_keeps_a_started_day_that_was_renamed_or_deleted() {
    for (renamed, committed) in [(true, false), (true, true), (false, false), (false, true)] {
        let course = Clone::new();
        course.mine.write(DAY, MINE);
        if committed {
            course.mine.git(&["commit", "-qam", "day 1"]);
        }
        let up = &course.upstream;
        if renamed {
            up.git(&["mv", DAY, "src/day01_pair.rs"]);
            up.git(&["mv", "solutions/day01_two.rs", "solutions/day01_pair.rs"]);
            let source = up.read("solutions/day01_pair.rs");
            let moved = source.replace("pub fn two()", "pub fn two(_times: u32)");
            up.write("solutions/day01_pair.rs", &moved);
            assert_eq!(up.say(&["stubs", "--force"]).2, 0);
        } else {
            up.git(&["rm", "-q", DAY, "solutions/day01_two.rs"]);
        }
        up.git(&["add", "-A"]);
        up.git(&["commit", "-qm", "day 1 is another"]);
        let (out, err, code) = course.mine.say(&["update"]);
        assert_eq!(code, 0, "{out}{err}");
        let (place, words) = match renamed {
            true => ("src/day01_pair.rs", "  + pub fn two(_times: u32) -> u32 {\n"),
            false => (DAY, "The course no longer has a day 1; yours stays in src/day01_two.rs."),
        };
        assert!(out.contains(words), "{out}{err}");
        assert_eq!(course.mine.read(place), MINE, "{out}{err}");
        assert!(place == DAY || !course.mine.path(DAY).exists(), "{out}{err}");
        assert_eq!(course.mine.git_says(&["status", "--porcelain"]), "");
        // The next update finds the day under its new name.
        up.write("README.md", "three\n");
        up.git(&["commit", "-qam", "more"]);
        assert_eq!(course.mine.say(&["update"]).2, 0);
        assert_eq!(
            (course.mine.read("README.md"), course.mine.read(place).as_str()),
            ("three\n".into(), MINE)
        );
    }
}

#[test]
fn update_names_the_obstacle_and_changes_nothing() {
    let course = Clone::new();
    course.moves_on();
    course.mine.write(DAY, MINE);
    let refused = |words: &str| {
        let (out, err, code) = course.mine.say(&["update"]);
        assert!(err.contains(words), "{words}: {out}{err}");
        assert_eq!((course.mine.read(DAY).as_str(), code), (MINE, 1));
    };
    course.mine.write("README.md", "my own\n");
    refused("files of the course have local changes: README.md\n");
    course.mine.git(&["commit", "-qm", "mine", "README.md"]);
    refused("you and the course changed the same files: README.md\n");
    assert_eq!(course.mine.read("README.md"), "my own\n");
    assert!(!course.mine.path(".git/MERGE_HEAD").exists());
    course.mine.git(&["checkout", "-q", "HEAD~2", "--", "README.md"]);
    course.mine.git(&["commit", "-qm", "undone"]);

    let url = course.upstream.root.display().to_string();
    course.mine.git(&["remote", "set-url", "origin", "/nowhere"]);
    refused("nothing was changed; are you online");
    course.mine.git(&["remote", "set-url", "origin", &url]);
    assert!(course.mine.say(&["update", "--remote", "nobody"]).1.contains("git remote -v"));

    // Git itself refuses to overwrite a file of the reader's, but not one that it ignores.
    course.upstream.write("new.txt", "theirs\n");
    course.upstream.write("notes/one.txt", "theirs\n");
    course.upstream.git(&["add", "."]);
    course.upstream.git(&["commit", "-qm", "new files"]);
    course.mine.write(".git/info/exclude", "notes\n");
    for name in ["new.txt", "notes"] {
        course.mine.write(name, "mine\n");
        refused(&format!("{name} is in the way: the course now has a file {name}"));
        assert_eq!(course.mine.read(name), "mine\n");
        std::fs::remove_file(course.mine.path(name)).unwrap();
    }
    std::fs::remove_file(course.mine.path(DAY)).unwrap();
    let (_, err, _) = course.mine.say(&["update"]);
    assert!(err.contains(DAY) && err.contains("`cargo xtask reset day1`"), "{err}");
    course.mine.write(DAY, MINE);
    course.updates_and_keeps(MINE);
}

#[test]
fn update_reports_a_folder_that_is_not_a_clone() {
    let (_, err, code) = Fake::new().say(&["update"]);
    assert!(err.contains("isn't a clone (a downloaded archive?)") && code == 1, "{err}");
}

#[test]
fn migrate_appends_functions_that_the_course_has_added() {
    let course = Clone::new();
    course.moves(|source| {
        source.replace("/// Four.", &format!("{THREE}\n/// Four.")).replace("twice one", "x_times")
    });
    let (mine, stub) = (&course.mine, course.upstream.read(DAY));
    mine.write(DAY, MINE);
    let note =
        "src/day01_two.rs lacks functions that are new (three)\n`cargo xtask migrate` brings \
                your days up to date, and keeps copies\n";
    assert!(!mine.say(&["list"]).1.contains("migrate"), "the course hasn't moved yet");
    let (out, err, code) = mine.say(&["update"]);
    assert!(err.contains(note) && code == 0, "{out}{err}");
    assert!(mine.say(&["list"]).1.contains(note));

    let (out, err, code) = mine.say(&["migrate"]);
    let said = "day 1: at the end of the file, new: three\nYour old files are kept; \
                `cargo xtask reset --undo ";
    assert!(out.starts_with(said) && code == 0, "{out}{err}");
    let three = &stub[stub.find("/// Three.").unwrap()..stub.find("/// Four.").unwrap()];
    assert_eq!(mine.read(DAY), format!("{MINE}\n{}\n", three.trim_end()));
    let date = out.rsplit("--undo ").next().unwrap().split('`').next().unwrap();
    let again = "Up to date: no old names, and no missing functions.\n";
    assert_eq!(mine.say(&["migrate", "day1"]).0, again);
    assert!(!mine.say(&["list"]).1.contains("migrate"));
    assert_eq!(mine.say(&["reset", "--undo", date]).2, 0);
    assert_eq!(mine.read(DAY), MINE);

    let broken = MINE.replace("a + b", "(a + b");
    mine.write(DAY, &broken);
    let (out, err, code) = mine.say(&["migrate"]);
    let words = "error: src/day01_two.rs: its brackets don't match; nothing was changed\n";
    assert_eq!((out.as_str(), err.as_str(), code), ("", words, 1));
    assert_eq!(mine.read(DAY), broken);
}
