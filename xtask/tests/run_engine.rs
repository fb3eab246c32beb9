//! `run` on a small course: whose days it runs, which arguments it passes on, and its exit code.

mod common;

use common::Fake;

#[test]
fn run_uses_days_whose_core_is_written_and_never_reaches_a_todo_in_it() {
    let fake = Fake::new();
    let (out, err, code) = fake.say(&["run", "-p", "a b", "--", "--solution"]);
    assert!(
        out.starts_with("program [\"-p\", \"a b\", \"--solution\"] threads Ok(\""),
        "{out}{err}"
    );
    assert!(out.contains("two 2"), "{out}");
    assert_eq!((err.trim(), code), ("", 0));

    fake.solve("day00_one.rs", |source| source.replace("    1\n", "    5\n"));
    let todo = |number: u32| format!("todo!(\"day 1, task {number}: x\")");
    fake.solve("day01_two.rs", |source| source.replace("one() + one()", &todo(1)));
    let (out, err, _) = fake.say(&["run"]);
    assert!(out.contains("two 10"), "{out}");
    assert!(err.contains("task 1.1") && !err.contains("1.2"), "{err}");
    fake.solve("day01_two.rs", |source| {
        source.replace("two() * helper()", &todo(2)).replace("one() + one()", "one() * 3")
    });
    let (out, err, _) = fake.say(&["run"]);
    assert!(
        out.contains("two 15") && !err.contains("[the reference"),
        "an optional task is open: {out}{err}"
    );
    let (out, err, _) = fake.say(&["run", "--solution=ref"]);
    assert!(out.contains("two 2"), "{out}{err}");
    let (out, err, _) = fake.say(&["run", "--mine", "0, day1"]);
    assert!(out.contains("two 15"), "{out}{err}");
}

#[test]
fn run_passes_through_the_exit_code_and_thread_count() {
    let fake = Fake::new();
    let mut command = fake.command(&["run", "exit=7"]);
    let (out, _, code) = common::texts(command.env("RAYON_NUM_THREADS", "9").output().unwrap());
    assert!(out.contains("threads Ok(\"9\")"), "{out}");
    assert_eq!(code, 7);
}

#[test]
fn chat_runs_the_program_with_the_chat_flag() {
    let fake = Fake::new();
    let (out, err, code) =
        fake.say(&["chat", "--solution", "ref", "--system", "a b", "--", "--mine"]);
    assert!(
        out.starts_with("program [\"--chat\", \"--system\", \"a b\", \"--mine\"]") && code == 0,
        "{out}{err}"
    );
    let (out, _, code) = fake.say(&["chat", "--help"]);
    assert!(out.contains("--mine DAYS") && out.contains("program [\"--help\"]"), "{out}");
    assert_eq!(code, 0);
}

#[test]
fn run_names_the_day_that_does_not_compile() {
    let fake = Fake::new();
    fake.write("src/day00_one.rs", "pub fn one() -> u32 { one }");
    let (_, err, code) = fake.say(&["run"]);
    assert!(err.contains("error[E0308]") && err.contains("src/day00_one.rs, line 1."), "{err}");
    assert!(err.contains("--solution ref"), "{err}");
    assert_eq!(code, 1);
    assert_eq!(fake.say(&["run", "--solution", "ref"]).2, 0);
    let (_, err, _) = fake.say(&["run", "--mine", "0"]);
    assert!(err.contains("--solution ref") && err.contains("--mine"), "{err}");
}

#[test]
fn usage_errors_name_the_argument() {
    let fake = Fake::new();
    let cases: [(&[&str], &str); 5] = [
        (&["run", "--solution", "ref", "--mine", "1"], "--solution and --mine"),
        (&["run", "--solution", "theirs"], "`theirs`"),
        (&["run", "--mine", "1,9"], "`9`"),
        (&["run", "--mine"], "--mine"),
        (&["walk"], "'walk'"),
    ];
    for (args, named) in cases {
        let (out, err, code) = fake.say(args);
        assert!(err.starts_with("error: ") && err.contains(named), "{args:?}: {err}");
        assert!(out.is_empty() && code == 2, "{args:?}: {out}");
    }
}

#[test]
fn an_unknown_device_is_refused_before_anything_is_built() {
    let fake = Fake::new();
    fake.write("crates/cli/src/main.rs", "this does not compile");
    for command in [&["run"][..], &["check"], &["check", "--watch"]] {
        for (device, words) in [("cuda:0", "\"cuda:0\""), ("mps", "did you mean metal?")] {
            let (_, err, code) = fake.say(&[command, &["--device", device]].concat());
            assert!(err.contains(words) && code == 2, "{command:?}: {err}");
        }
    }
    if cfg!(target_os = "linux") {
        let (_, err, code) = fake.say(&["run", "--accelerate", "-p", "a"]);
        assert!(err.starts_with("error: --accelerate needs macOS") && code == 2, "{err}");
        let (_, err, code) = fake.say(&["run", "--device", "metal"]);
        assert!(err.contains("--device metal") && code == 2, "{err}");
    }
}
