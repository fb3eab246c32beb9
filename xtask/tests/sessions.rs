//! Scripted sessions, most of them through a pseudo-terminal: whatever happens in them, every line that the reader wrote
//! is still there at the end, in `src/` or in a copy that `restore` lists.
#![cfg(unix)]

mod common;

use common::{files, Fake, Terminal};
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

/// A clone of a course that has moved on, in which day 1 is begun: `(upstream, mine)`.
fn behind() -> (Fake, Fake) {
    let upstream = Fake::new();
    upstream.write(".gitignore", "/target/\n/.candecode/\n");
    upstream.git(&["init", "-q", "-b", "main"]);
    upstream.git(&["add", "."]);
    upstream.git(&["commit", "-qm", "the course"]);
    let mine = Fake::clone(&upstream);
    mine.solve("day01_two.rs", written);
    let source =
        upstream.read("solutions/day01_two.rs").replace("pub fn two()", "pub fn two(_n: u32)");
    upstream.write("solutions/day01_two.rs", &source);
    upstream.say(&["stubs", "--force"]);
    upstream.git(&["commit", "-qam", "day 1 takes a number"]);
    (upstream, mine)
}

/// Every line of the reader's is in `src/`, or in one copy; and no conflict marker is anywhere in `src/`.
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
        let mut term = Terminal::open(&fake, line);
        std::thread::sleep(Duration::from_millis(delay));
        term.control('c');
        term.ends_sane();
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
fn session_01_watch_is_interrupted_while_it_waits() {
    let fake = course();
    let mut term = Terminal::open(&fake, "watch day1");
    term.sees("waiting for a save");
    term.control('c');
    assert_eq!(term.ends_sane(), 130);
    nothing_is_lost(&fake.root, "watch");
}

#[test]
fn session_02_watch_is_interrupted_while_it_builds() {
    let fake = course();
    fake.write("build.rs", "fn main() { std::thread::sleep(std::time::Duration::from_secs(600)) }");
    let mut term = Terminal::open(&fake, "watch day1");
    term.sees("building …");
    term.control('c');
    term.ends_sane();
    nothing_is_lost(&fake.root, "watch");
}

#[test]
fn session_03_watch_is_interrupted_while_a_check_runs() {
    let fake = course();
    let endless =
        fake.read(DAY).replace("sum(one(), one())", "loop { print!(\"\") }\n    sum(one(), one())");
    fake.write(DAY, &endless);
    let mut term = Terminal::open(&fake, "watch day1");
    until_checks_run(&fake);
    term.control('c');
    term.ends_sane();
    nothing_is_lost(&fake.root, "watch");
}

#[test]
fn session_04_watch_ends_with_its_terminal() {
    let fake = course();
    let mut term = Terminal::shell(&fake, "sh -c 'echo pid=$$; exec $XTASK watch day1'");
    term.sees("pid=");
    let pid = term.sees("\r\n").trim().to_string();
    term.sees("waiting for a save");
    drop(term); // the window is closed
    let lives = || Command::new("kill").args(["-0", &pid]).status().unwrap().success();
    while lives() {
        std::thread::sleep(Duration::from_millis(20)); // if it does not end, neither does this
    }
    nothing_is_lost(&fake.root, "watch");
}

#[test]
fn session_05_a_save_while_a_check_runs_is_checked_too() {
    let fake = course();
    let right = fake.read(DAY);
    fake.write(
        DAY,
        &right.replace(
            "sum(one(), one())",
            "{ std::thread::sleep(std::time::Duration::from_secs(2)); sum(one(), one()) + 1 }",
        ),
    );
    let mut term = Terminal::open(&fake, "watch day1");
    until_checks_run(&fake);
    fake.write(DAY, &right);
    term.sees("✗ failed"); // what was saved first
    term.sees("✓ day 1 is done");
    term.sees("── day 0: one ──");
    term.control('c');
    term.ends_sane();
    nothing_is_lost(&fake.root, "watch");
}

#[test]
fn session_06_an_editor_that_saves_in_two_steps_is_waited_for() {
    let fake = course();
    let mut term = Terminal::open(&fake, "watch day0");
    term.sees("waiting for a save");
    let (place, aside) = (fake.path("src/day00_one.rs"), fake.path("src/day00_one.rs~"));
    std::fs::rename(&place, &aside).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    fake.solve("day00_one.rs", |source| source);
    std::fs::remove_file(&aside).unwrap();
    term.sees("✓ day 0 is done");
    term.control('c');
    term.ends_sane();
    nothing_is_lost(&fake.root, "watch");
}

#[test]
fn session_07_give_is_interrupted() {
    interrupted("give day1", |_| ());
}

#[test]
fn session_08_reset_is_interrupted() {
    interrupted("reset day1", |_| ());
}

#[test]
fn session_09_restore_is_interrupted() {
    interrupted("restore $(ls .candecode/backup)", |fake| {
        assert_eq!(fake.say(&["reset", "day1"]).2, 0);
    });
}

#[test]
fn session_10_stubs_and_start_are_interrupted() {
    interrupted("stubs --force", |_| ());
    interrupted("start day1", |_| ());
}

/// Git that does something else first; `$GIT` there is the real one. What is said is a setting for the shell.
fn git_that(fake: &Fake, first: &str) -> String {
    let real = Command::new("sh").args(["-c", "command -v git"]).output().unwrap().stdout;
    let real = String::from_utf8(real).unwrap();
    let script = format!("#!/bin/sh\nGIT={}\n{first}\nexec $GIT \"$@\"\n", real.trim());
    fake.write("target/bin/git", &script);
    let git = fake.path("target/bin/git");
    std::fs::set_permissions(&git, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("PATH={}:$PATH", git.parent().unwrap().display())
}

#[test]
fn session_11_update_is_interrupted_at_many_points_and_goes_on() {
    for delay in (0..24).map(|n| n * 50) {
        let (_upstream, mine) = behind();
        let path = git_that(&mine, "sleep 0.02"); // so that an interrupt can come in each command
        let mut term = Terminal::shell(&mine, &format!("{path} $XTASK update"));
        std::thread::sleep(Duration::from_millis(delay));
        term.control('c');
        term.ends_sane();
        nothing_is_lost(&mine.root, &format!("update, Ctrl-C after {delay} ms"));
        let _ = std::fs::remove_file(mine.path(".git/index.lock")); // of the git that was interrupted
        let (out, err, code) = mine.say(&["update"]);
        assert_eq!(code, 0, "after {delay} ms: {out}{err}");
        nothing_is_lost(&mine.root, "update, once more");
        assert!(mine.read(DAY).contains("pub fn two(_n: u32)"), "after {delay} ms: {out}{err}");
    }
}

/// Git writes its index, and its files, before it moves HEAD. The update ends between the two.
#[test]
fn session_11_update_ends_while_git_moves_to_a_commit() {
    for torn in [
        "[ $1 = merge ] && $GIT read-tree HEAD $4 && kill -9 $PPID && exit 1",
        "[ $1 = merge ] && $GIT read-tree -m -u HEAD $4 && kill -9 $PPID && exit 1",
        "[ $1 = merge ] && $GIT read-tree -m -u HEAD $4 && exit 1",
        "[ $1$2 = reset--quiet ] && [ $3 != -- ] && $GIT read-tree $3 && kill -9 $PPID && exit 1",
        "[ $1$2 = reset--quiet ] && [ $3 != -- ] && $GIT read-tree $3 && exit 1",
    ] {
        let (upstream, mine) = behind();
        upstream.write("new.md", "new\n");
        upstream.git(&["add", "."]);
        upstream.git(&["commit", "-qm", "a new file"]);
        let path = git_that(&mine, torn);
        let mut torn_update = Command::new("sh");
        torn_update.args(["-c", &format!("{path} {} update", env!("CARGO_BIN_EXE_xtask"))]);
        assert!(!torn_update.current_dir(&mine.root).status().unwrap().success(), "{torn}");
        nothing_is_lost(&mine.root, torn);
        mine.write("mine.txt", "staged by the reader\n");
        mine.git(&["add", "mine.txt"]);
        let (_, err, code) = mine.say(&["update"]);
        assert_eq!(code, 1, "{torn}: {err}");
        assert!(err.contains("not committed: mine.txt\n"), "{torn}: {err}");
        mine.git(&["reset", "--quiet", "--", "mine.txt"]);
        let (out, err, code) = mine.say(&["update"]);
        assert_eq!(code, 0, "{torn}: {out}{err}");
        nothing_is_lost(&mine.root, "update, once more");
        assert!(mine.read(DAY).contains("pub fn two(_n: u32)"), "{torn}: {out}{err}");
        assert_eq!(mine.read("new.md"), "new\n", "{torn}");
    }
}

/// Runs the runner as somebody who may not write where `lock` says. As root, that somebody is nobody.
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
fn session_12_a_read_only_src() {
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
fn session_13_a_read_only_place_for_copies() {
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
fn session_14_hints_and_lists_need_no_permission() {
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

/// Runs a line of shell in which no file can grow beyond nothing: each write fails, as on a full disk.
fn without_room(fake: &Fake, line: &str) -> Output {
    let script = format!("trap '' XFSZ; ulimit -f 0; {line}");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(&fake.root).env("XTASK", env!("CARGO_BIN_EXE_xtask"));
    command.output().unwrap()
}

#[test]
fn session_15_give_and_reset_without_room() {
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
fn session_16_restore_without_room() {
    let fake = course();
    fake.say(&["reset", "day1"]);
    let stub = fake.read(DAY);
    let out = without_room(&fake, "$XTASK restore $(ls .candecode/backup)");
    assert_eq!((fake.read(DAY), out.status.code()), (stub, Some(1)));
    nothing_is_lost(&fake.root, "restore");
}

#[test]
fn session_17_update_without_room_goes_on_when_there_is() {
    let (_upstream, mine) = behind();
    let before = mine.read(DAY);
    let out = without_room(&mine, "$XTASK update");
    assert_eq!((mine.read(DAY), out.status.code()), (before, Some(1)));
    let (out, err, code) = mine.say(&["update"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(mine.read(DAY).contains("pub fn two(_n: u32)"), "{out}{err}");
    nothing_is_lost(&mine.root, "update");
}

#[test]
fn session_18_a_check_without_room_and_the_watch_goes_on() {
    let fake = course();
    let mut term = Terminal::shell(&fake, "(trap '' XFSZ; ulimit -f 0; $XTASK watch day1)");
    term.sees("waiting for a save"); // the build failed, and was told
    term.send("q");
    assert_eq!(term.ends_sane(), 0);
    nothing_is_lost(&fake.root, "watch");
}

/// A disk of its own, small and full. Only where this system lets us mount one.
#[test]
#[cfg(target_os = "linux")]
fn session_19_a_full_disk() {
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
fn session_20_a_whole_day() {
    let fake = course();
    let mut term = Terminal::shell(
        &fake,
        "$XTASK give day1 && $XTASK reset day1 && $XTASK restore && $XTASK list",
    );
    term.sees("is the reference's code now");
    term.sees("is the stub again");
    term.sees("brings the newest back");
    term.sees("Next: task 0.1");
    assert_eq!(term.ends_sane(), 0);
    nothing_is_lost(&fake.root, "give and reset");
    let first = fake.say(&["restore"]).0.split(' ').next().unwrap().to_string();
    let mut term = Terminal::open(&fake, &format!("restore {first}"));
    term.sees("is as it was at");
    assert_eq!(term.ends_sane(), 0);
    assert!(LINES.iter().all(|line| fake.read(DAY).contains(line)), "{}", fake.read(DAY));
}
