//! Commands that write into `src/`: nothing of the reader's is ever lost.

mod common;

use common::{files, Fake};

const DAY: &str = "src/day00_one.rs";

fn backups(fake: &Fake) -> Vec<String> {
    let paths = files(&fake.path(".candecode/backup"));
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn stubs_keep_what_the_reader_wrote() {
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
    assert!(err.starts_with("error: 1 of 2 stubs are not what solutions/ says"), "{err}");
    assert_eq!(code, 1);

    assert!(fake
        .say(&["stubs", "--force"])
        .0
        .contains("what you wrote is kept as .candecode/backup/"));
    assert_eq!(fake.read(DAY), stub);
    assert_eq!(backups(&fake), ["// mine\n"]);
    assert_eq!(fake.say(&["stubs", "--check"]).2, 0);
    assert_eq!(fake.say(&["stubs", "--check", "--force"]).2, 2);
}

#[test]
fn a_stub_of_an_older_reference_is_replaced() {
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
fn a_broken_reference_is_named_with_its_line() {
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
        err.starts_with("error: solutions/day00_one.rs: line 2: task 3.1 is not of day 0"),
        "{err}"
    );
    assert_eq!(code, 1);
}

#[test]
fn give_reset_and_restore_lose_nothing() {
    let fake = Fake::new();
    fake.write(DAY, "// mine\n");
    let (out, _, _) = fake.say(&["give", "day0"]);
    assert!(out.contains("is the reference's code now") && out.contains("brings it back"), "{out}");
    assert!(fake.read(DAY).contains("    1\n") && !fake.read(DAY).contains("solution>"));
    assert_eq!(backups(&fake), ["// mine\n"]);
    fake.write(DAY, "// mine again\n");
    fake.say(&["reset", "0"]);
    assert!(fake.read(DAY).contains("todo!"));

    let (out, _, _) = fake.say(&["restore"]);
    let newest = out.lines().nth(1).unwrap().split(' ').next().unwrap().to_string();
    assert!(out.contains(DAY), "{out}");
    assert_eq!(fake.say(&["restore", &newest]).2, 0);
    assert_eq!(fake.read(DAY), "// mine again\n");
    assert_eq!(fake.say(&["restore", "never"]).2, 2);
    assert_eq!(backups(&fake).len(), 3, "the stub that was there is kept as well");
}

#[test]
#[cfg(unix)]
fn without_permission_nothing_changes() {
    use std::os::unix::fs::PermissionsExt;
    let fake = Fake::new();
    fake.write(DAY, "// mine\n");
    let lock = |mode| {
        std::fs::set_permissions(fake.path("src"), std::fs::Permissions::from_mode(mode)).unwrap()
    };
    lock(0o555);
    let probe = fake.path("src/probe");
    if std::fs::write(&probe, "").is_ok() {
        return lock(0o755); // root may write anywhere
    }
    let (_, err, code) = fake.say(&["give", "day0"]);
    lock(0o755);
    assert!(err.contains("cannot write") && err.contains("nothing was changed"), "{err}");
    assert_eq!((fake.read(DAY).as_str(), code), ("// mine\n", 1));
}

#[test]
fn the_doctor_says_how_to_mend() {
    let fake = Fake::new();
    let doctor = |vars: &[(&str, &str)]| {
        let mut command = fake.command(&["doctor"]);
        for name in ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"] {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
        // nobody answers there, and no test asks the network
        command.env("HF_ENDPOINT", "http://127.0.0.1:9").envs(vars.iter().copied());
        common::texts(command.output().unwrap())
    };
    let (out, _, code) = doctor(&[]);
    assert!(out.contains("✗ bad:  model story-3m: ") && out.contains("to mend: "), "{out}");
    assert!(out.contains("✓ good: rustc "), "{out}");
    assert!(out.contains("– note: the hub (127.0.0.1:9) cannot be reached: "), "{out}");
    assert!(out.contains("– note: the course cannot be kept up to date: "), "{out}");
    assert!(out.ends_with("3 to mend.\n"), "{out}");
    assert_eq!(code, 1);

    let (out, _, _) = doctor(&[("https_proxy", "http://me:secret@127.0.0.1:1")]);
    assert!(
        out.contains("✗ bad:  https_proxy names a proxy that does not answer, 127.0.0.1:1"),
        "{out}"
    );
    assert!(out.ends_with("4 to mend.\n") && !out.contains("secret"), "{out}");

    fake.solve("day01_two.rs", |source| source.replace("fn four", "fn five"));
    fake.write(".candecode/update/journal", "");
    let (out, _, _) = doctor(&[]);
    assert!(out.contains("src/day01_two.rs has no function for task 1.2"), "{out}");
    assert!(out.contains("an update of the course did not end"), "{out}");

    let (out, _, _) = doctor(&[("PATH", "/nowhere")]);
    assert!(out.contains("there is no rustc on PATH"), "{out}");
    #[cfg(unix)]
    assert!(out.contains("there is no `cc` on PATH"), "{out}");
    fake.write("Cargo.toml", &fake.read("Cargo.toml").replace("\"1.70\"", "\"9.0\""));
    fake.write(".vscode/settings.json", "{}");
    std::fs::remove_file(fake.path("src/day00_one.rs")).unwrap();
    let (out, _, _) = doctor(&[("CANDECODE_MODELS", "/nowhere")]);
    assert!(out.contains("is too old: the course needs 9.0"), "{out}");
    assert!(out.contains("gives rust-analyzer no target directory of its own"), "{out}");
    assert!(out.contains("src/day00_one.rs is absent"), "{out}");
    assert!(out.contains("unset CANDECODE_MODELS"), "{out}");
}

#[test]
fn start_gives_what_is_not_begun_and_nothing_else() {
    let fake = Fake::new();
    let (out, err, code) = fake.say(&["start", "day1"]);
    assert!(
        out.contains("day 0: given, the reference's code is in src/day00_one.rs"),
        "{out}{err}"
    );
    assert!(out.ends_with("Read book/src/day01_two.md, then: cargo xtask watch day1\n"), "{out}");
    assert!(fake.read(DAY).contains("    1\n") && fake.read("src/day01_two.rs").contains("todo!"));
    assert_eq!(code, 0);
    fake.write(DAY, "// mine\n");
    let (out, _, _) = fake.say(&["start", "day1"]);
    assert!(out.contains("day 0: yours, as it was\n"), "{out}");
    assert_eq!(fake.read(DAY), "// mine\n");
    assert_eq!(fake.say(&["start", "day9"]).2, 2);
}

#[test]
fn diff_shows_what_is_written_and_gives_nothing_away() {
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
