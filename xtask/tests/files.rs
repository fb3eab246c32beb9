//! Commands that write to `src/` never lose what the reader wrote.

mod common;

use common::{files, Fake};

const DAY: &str = "src/day00_one.rs";

fn backups(fake: &Fake) -> Vec<String> {
    let paths = files(&fake.path(".candecode/backup"));
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn stubs_keeps_or_backs_up_the_readers_code() {
    let fake = Fake::new();
    let stub = fake.read(DAY);
    fake.write(DAY, "// mine\n");
    let (out, _, code) = fake.say(&["stubs"]);
    assert!(
        out.contains("kept      src/day00_one.rs: you changed it")
            && out.contains("unchanged src/day01_two.rs"),
        "{out}"
    );
    assert_eq!((fake.read(DAY).as_str(), code), ("// mine\n", 0));
    let (_, err, code) = fake.say(&["stubs", "--check"]);
    assert!(err.starts_with("error: 1 of 2 stubs don't match solutions/"), "{err}");
    assert_eq!(code, 1);

    assert!(fake
        .say(&["stubs", "--force"])
        .0
        .contains("your version is saved as .candecode/backup/"));
    assert_eq!(fake.read(DAY), stub);
    assert_eq!(backups(&fake), ["// mine\n"]);
    assert_eq!(fake.say(&["stubs", "--check"]).2, 0);
    assert_eq!(fake.say(&["stubs", "--check", "--force"]).2, 2);
}

#[test]
fn a_stub_from_an_older_reference_is_replaced() {
    let fake = Fake::new();
    let rename = |from: &str, to: &str| {
        fake.write("solutions/day00_one.rs", &fake.read("solutions/day00_one.rs").replace(from, to))
    };
    rename("say one", "say 1");
    assert!(
        fake.say(&["stubs"]).0.contains("wrote     src/day00_one.rs"),
        "written last by the command"
    );
    assert!(fake.read(DAY).contains("day 0, task 1: say 1"));

    fake.git(&["init", "-q"]);
    fake.git(&["add", "solutions", "src"]);
    fake.git(&["commit", "-qm", "a"]);
    std::fs::remove_dir_all(fake.path(".candecode")).unwrap();
    rename("say 1", "say I");
    assert!(fake.say(&["stubs"]).0.contains("wrote     src/day00_one.rs"), "the stub of HEAD");
    assert!(fake.read(DAY).contains("day 0, task 1: say I"));
    assert!(backups(&fake).is_empty());
}

#[test]
fn a_broken_reference_is_reported_with_its_line() {
    let fake = Fake::new();
    fake.write("solutions/day00_one.rs", "fn a() {\n    // task 0.1: x\n}\n");
    let (_, err, code) = fake.say(&["stubs"]);
    assert!(
        err.starts_with("error: solutions/day00_one.rs: line 2: task 0.1 has no solution"),
        "{err}"
    );
    fake.write(
        "solutions/day00_one.rs",
        "fn a() {\n    // task 3.1: x\n    // <solution>\n    1\n    // </solution>\n}\n",
    );
    let (_, err, _) = fake.say(&["stubs", "--check"]);
    assert!(
        err.starts_with("error: solutions/day00_one.rs: line 2: task 3.1 is not in day 0"),
        "{err}"
    );
    assert_eq!(code, 1);
}

#[test]
fn reset_saves_a_backup_and_undo_restores_it() {
    let fake = Fake::new();
    fake.write(DAY, "// mine\n");
    let (out, _, _) = fake.say(&["reset", "day0", "--ref"]);
    assert!(out.contains("is the reference's code now") && out.contains("restores it"), "{out}");
    assert!(fake.read(DAY).contains("    1\n") && !fake.read(DAY).contains("solution>"));
    assert_eq!(backups(&fake), ["// mine\n"]);
    assert!(fake.say(&["reset", "day0", "--ref"]).0.ends_with("code now.\n"), "nothing to keep");
    std::fs::write(fake.path(DAY), b"// \xff, no text\n").unwrap();
    assert!(fake.say(&["reset", "0"]).0.contains("is the stub again"));
    assert!(fake.read(DAY).contains("todo!"));

    // Files that aren't copies of a day aren't listed.
    fake.write(".candecode/backup/.DS_Store", "no folder");
    fake.write(".candecode/backup/2999-01-01T00-00-00Z/src/.day00_one.rs.swp", "stray");
    let (out, _, _) = fake.say(&["reset", "--undo"]);
    let dates: Vec<&str> = out.lines().filter_map(|line| line.strip_suffix(DAY)).collect();
    assert_eq!((dates.len(), out.lines().count()), (2, 3), "{out}");

    let (out, err, code) = fake.say(&["reset", "--undo", "day0"]);
    assert!(out.starts_with("src/day00_one.rs is now as it was at 20") && code == 0, "{out}{err}");
    assert_eq!(std::fs::read(fake.path(DAY)).unwrap(), b"// \xff, no text\n");
    assert_eq!(fake.say(&["reset", "--undo", dates[0].trim()]).2, 0);
    assert_eq!(fake.read(DAY), "// mine\n");
    fake.say(&["reset", "day0", "--undo"]);
    assert_eq!(std::fs::read(fake.path(DAY)).unwrap(), b"// \xff, no text\n", "there in between");
    assert!(fake.read("src/day01_two.rs").contains("todo!"), "the other day is as it was");
}

#[test]
fn repeated_undo_goes_further_back_and_loses_nothing() {
    let fake = Fake::new();
    for text in ["// 1\n", "// 2\n"] {
        fake.write(DAY, text);
        fake.say(&["reset", "day0"]);
    }
    for text in ["// 2\n", "// 1\n"] {
        assert_eq!(fake.say(&["reset", "day0", "--undo"]).2, 0);
        assert_eq!(fake.read(DAY), text);
    }
    let (_, err, code) = fake.say(&["reset", "day0", "--undo"]);
    assert!(err.starts_with("error: nothing more to undo: src/day00_one.rs matches"), "{err}");
    assert_eq!((code, fake.read(DAY).as_str()), (2, "// 1\n"));
    fake.write(DAY, "// 3\n");
    fake.say(&["reset", "day0", "--undo"]);
    assert_eq!(fake.read(DAY), "// 1\n", "what was restored last, after a change");
    let kept = backups(&fake);
    assert!(["// 1\n", "// 2\n", "// 3\n"].iter().all(|text| kept.contains(&text.to_string())));
    fake.say(&["reset", "day0"]);
    fake.say(&["reset", "day0", "--undo"]);
    assert_eq!(fake.read(DAY), "// 1\n", "a reset begins anew");
}

#[test]
fn a_wrong_command_line_of_reset_changes_nothing() {
    let fake = Fake::new();
    assert_eq!(fake.say(&["reset", "--undo"]).2, 0, "there are no copies to list");
    fake.write(DAY, "// mine\n");
    let cases: [(&[&str], &str); 7] = [
        (&["reset", "day0", "--undo"], "src/day00_one.rs"),
        (&["reset", "never", "--undo"], "`never`"),
        (&["reset", "day9", "--ref"], "`day9`"),
        (&["reset", "1.1"], "`1.1` is a task, not a day"),
        (&["reset"], "<DAY>"),
        (&["reset", "day0", "--ref", "--undo"], "'--undo'"),
        (&["reset", "day0", "day1"], "'day1'"),
    ];
    for (args, named) in cases {
        let (out, err, code) = fake.say(args);
        assert!(err.contains(named) && out.is_empty() && code == 2, "{args:?}: {err}{out}");
    }
    assert_eq!(fake.read(DAY), "// mine\n");
}

#[test]
#[cfg(unix)]
fn a_symlink_is_preserved_and_a_folder_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let fake = Fake::new();
    std::fs::rename(fake.path(DAY), fake.path("elsewhere.rs")).unwrap();
    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(fake.path("elsewhere.rs"), mode).unwrap();
    std::os::unix::fs::symlink(fake.path("elsewhere.rs"), fake.path(DAY)).unwrap();
    assert_eq!(fake.say(&["reset", "day0", "--ref"]).2, 0);
    assert!(fake.path(DAY).is_symlink() && fake.read("elsewhere.rs").contains("    1\n"));
    let mode = std::fs::metadata(fake.path(DAY)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "permissions are kept");
    std::fs::remove_file(fake.path(DAY)).unwrap();
    std::fs::create_dir(fake.path(DAY)).unwrap();
    assert!(fake.say(&["list"]).1.contains("move it away"));
    for args in [&["reset", "day0"][..], &["stubs"], &["check", "day0"], &["diff", "0"]] {
        let (_, err, code) = fake.say(args);
        assert!(
            err.contains("src/day00_one.rs: ") && err.contains("move it away"),
            "{args:?}: {err}"
        );
        assert_eq!(code, 1, "{args:?}");
    }
}

#[test]
fn doctor_says_how_to_fix_a_problem() {
    let upstream = Fake::new();
    let commit = |message: &str| {
        upstream.write("README.md", message);
        upstream.git(&["add", "."]);
        upstream.git(&["commit", "-qm", message]);
    };
    upstream.git(&["init", "-q", "-b", "main"]);
    commit("one");
    let fake = Fake::clone(&upstream);
    let (out, err, code) = fake.say(&["doctor"]);
    assert!(out.starts_with("machine  ") && out.contains("\ncompiler rustc 1."), "{out}{err}");
    assert!(out.contains("✓ good: ") && out.contains(" GiB free") && code == 0, "{out}");
    let host = xtask::host::output("hostname", &[]).unwrap_or_default();
    for name in [host.trim(), &fake.root.display().to_string()] {
        assert!(name.is_empty() || !out.contains(name), "{name}: {out}");
    }
    commit("two");
    fake.git(&["fetch", "-q"]);
    let (out, _, code) = fake.say(&["doctor"]);
    let words = "✗ bad:  the clone is 1 commit behind\n         to fix: cargo xtask update\n";
    assert!(out.ends_with(words) && code == 1, "{out}");
}

#[test]
fn start_fills_in_only_unstarted_earlier_days() {
    let fake = Fake::new();
    let (out, err, code) = fake.say(&["start", "day1"]);
    assert!(
        out.contains("day 0: given, the reference's code is in src/day00_one.rs"),
        "{out}{err}"
    );
    assert!(
        out.ends_with("Read book/src/day01_two.md, then: cargo xtask check day1 --watch\n"),
        "{out}"
    );
    assert!(fake.read(DAY).contains("    1\n") && fake.read("src/day01_two.rs").contains("todo!"));
    assert_eq!(code, 0);
    fake.write(DAY, "// mine\n");
    let (out, _, _) = fake.say(&["start", "day1"]);
    assert!(out.contains("day 0: yours, unchanged\n"), "{out}");
    assert_eq!(fake.read(DAY), "// mine\n");
    assert_eq!(fake.say(&["start", "day9"]).2, 2);
}

#[test]
fn diff_shows_written_tasks_without_spoiling_the_rest() {
    let fake = Fake::new();
    fake.solve("day01_two.rs", |source| {
        source
            .replace("one() + one()", "2 * one()")
            .replace("two() * helper()", "todo!(\"day 1, task 2: x\")")
    });
    let (out, _, code) = fake.say(&["diff", "day1"]);
    assert!(out.contains("-     2 * one()\n+     one() + one()\n"), "{out}");
    assert!(
        out.contains("task 1.2: twice two\n  ○ not written yet") && !out.contains("helper"),
        "{out}"
    );
    assert_eq!(code, 0);
}

#[test]
fn a_missing_day_is_named_with_the_command_that_restores_it() {
    let fake = Fake::new();
    std::fs::remove_file(fake.path(DAY)).unwrap();
    for args in [&["check", "day0"][..], &["diff", "day0"]] {
        let (_, err, code) = fake.say(args);
        assert!(err.contains(DAY) && err.contains("cargo xtask reset day0"), "{args:?}: {err}");
        assert_eq!(code, 1, "{args:?}");
    }
}

#[test]
fn one_unreadable_day_does_not_hide_the_others() {
    let fake = Fake::new();
    std::fs::write(fake.path(DAY), b"// \xff, no text\n").unwrap();
    for args in [&["list"][..], &["list", "day1"]] {
        let (out, err, code) = fake.say(args);
        assert!(out.contains("twice one") || out.contains("✗ does not compile  day 0"), "{out}");
        assert!(err.contains("src/day00_one.rs: not UTF-8") && code == 0, "{err}");
    }
    assert!(fake.say(&["hint", "1.1"]).1.contains("hints.toml"), "the course has no hints");
    assert!(fake.say(&["check", "day0"]).1.contains("src/day00_one.rs: not UTF-8"));
}
