//! `check` on a small course: its output and its exit codes.

mod common;
use common::Fake;

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or_default()
}

#[test]
fn check_distinguishes_an_unwritten_day_from_a_wrong_one() {
    let fake = Fake::new();
    let (out, err, code) = fake.say(&["check", "day1"]);
    assert!(out.contains("○ not written       1.1   twice one\n"), "{out}{err}");
    assert!(out.contains("○ not written       1.2   twice two (optional)\n"), "{out}");
    assert_eq!(code, 1);
    for named in ["2 tasks", "book/src/day01_two.md", "src/day01_two.rs", "--watch"] {
        assert!(out.contains(named), "{named}: {out}");
    }
    assert_eq!(err, "", "a day without a line of the reader's is not built");
    let (out, _, code) = fake.say(&["check", "day1", "--task", "1.2"]);
    assert!(!out.contains("1.1"), "{out}");
    assert!(out.contains("\n1 task, not written yet\nNext: "), "{out}");
    assert_eq!(code, 1);

    fake.solve("day01_two.rs", |source| source.replace("one() + one()", "one() + 2"));
    let (out, _, code) = fake.say(&["check", "1"]);
    assert!(
        out.starts_with("✗ failed: task 1.1 · is two\ngot another number\n  want: the right one\n"),
        "{out}"
    );
    assert!(out.contains("✗ failed            1.1"), "{out}");
    assert_eq!((last_line(&out), code), ("0 passed, 3 failed", 1));

    let (out, _, _) = fake.say(&["list", "day1"]);
    assert!(out.contains("✗ failed            1.1"), "{out}");
}

#[test]
fn list_knows_the_tasks_that_were_checked_alone() {
    let fake = Fake::new();
    fake.solve("day01_two.rs", |source| source.replace("one() + one()", "2 * one()"));
    let listed = || fake.say(&["list", "day1"]).0;
    fake.say(&["check", "day1", "--task", "1.1"]);
    let out = listed();
    assert!(out.contains("✓ passed            1.1"), "{out}");
    assert!(out.contains("? not checked       1.2"), "{out}");
    fake.say(&["check", "day1", "--task", "1.2"]);
    let out = listed();
    assert!(
        out.contains("✓ passed            1.1") && out.contains("✓ passed            1.2"),
        "{out}"
    );

    // Another text: what was checked before says nothing about it.
    fake.write("src/day01_two.rs", &fake.read("src/day01_two.rs").replace("two() * ", "3 * "));
    fake.say(&["check", "day1", "--task", "1.2"]);
    let out = listed();
    assert!(out.contains("? not checked       1.1"), "{out}");
    assert!(out.contains("✗ failed            1.2"), "{out}");
}

#[test]
fn a_day_passes_with_reference_days_and_names_the_next_day() {
    let fake = Fake::new();
    fake.solve("day00_one.rs", |source| source);
    let (out, err, code) = fake.say(&["check", "day0"]);
    assert!(out.contains("✓ passed            0.1   say one"), "{out}{err}");
    assert!(out.contains("Next: day 1, book/src/day01_two.md"), "{out}");
    assert_eq!((last_line(&out), code), ("1 passed, 0 failed", 0));

    // Day 1 is checked with the reference's day 0, unless `--rest mine` asks for the reader's.
    fake.solve("day01_two.rs", |source| {
        source.replace("two() * helper()", "todo!(\"day 1, task 2: twice two\")")
    });
    fake.write("src/day00_one.rs", "pub fn one() -> u32 { 3 }");
    let (out, _, code) = fake.say(&["check", "day1"]);
    assert!(out.contains("Day 1 has its core done"), "{out}");
    assert!(out.contains("cargo xtask bench day1\n"), "{out}");
    assert_eq!((last_line(&out), code), ("2 passed, 0 failed, 1 not written", 1));
    let (out, _, _) = fake.say(&["check", "day1", "--rest", "mine"]);
    assert!(out.contains("✗ failed            1.1   twice one  [1 of 2 checks passed]"), "{out}");
}

#[test]
fn check_builds_only_days_that_have_been_started() {
    let fake = Fake::new();
    fake.solve("day00_one.rs", |source| source);
    let (out, _, code) = fake.say(&["check"]);
    assert!(out.contains("day 0: one  (yours, among reference days)"), "{out}");
    assert!(out.contains("day 1: two  (the stub, nothing written yet)"), "{out}");
    assert_eq!((last_line(&out), code), ("1 passed, 0 failed, 3 not written", 1));
}

#[test]
fn checking_the_reference_can_select_tasks() {
    let fake = Fake::new();
    let (out, err, code) = fake.say(&["check", "--solution", "ref"]);
    assert_eq!((last_line(&out), code), ("4 passed, 0 failed", 0), "{err}");
    let (out, _, code) = fake.say(&["check", "--solution", "ref", "--task", "1.1"]);
    assert!(!out.contains("1.2"), "{out}");
    assert_eq!((last_line(&out), code), ("2 passed, 0 failed", 0));
}

#[test]
fn a_compile_error_names_its_file_and_spares_reference_days() {
    let fake = Fake::new();
    fake.write("src/day00_one.rs", "pub fn one() -> u32 { \"1\" }");
    let (out, err, code) = fake.say(&["check", "day0"]);
    assert!(err.contains("error[E0308]: mismatched types"), "{err}");
    assert!(err.contains("src/day00_one.rs, line 1."), "{err}");
    assert!(!err.contains("--solution"), "{err}");
    assert!(out.contains("  ✗ does not compile: src/day00_one.rs, line 1\n"), "{out}");
    assert_eq!((last_line(&out), code), ("0 passed, 0 failed, 1 not run", 1));
    assert_eq!(fake.say(&["check", "day1", "--solution", "ref"]).2, 0);
}

#[test]
fn a_crashed_or_hung_check_is_reported() {
    let fake = Fake::new();
    let deep = "pub fn one() -> u32 { 1 }\n#[allow(unconditional_recursion)]\npub fn down(n: u64) -> u64 { std::hint::black_box(down(n + 1)) + 1 }\n";
    fake.write("src/day00_one.rs", deep);
    let checks =
        fake.read("tests/day00_one/checks.rs").replace("0.1: is_one;", "0.1: is_one, deep;");
    let deep = "fn deep() -> Outcome { day00_one::down(0); right(true) }\n";
    fake.write("tests/day00_one/checks.rs", &(checks + deep));
    let (out, err, code) = fake.say(&["check", "day0"]);
    assert!(
        out.contains("✗ did not finish: task 0.1 · deep\n  the test program ended"),
        "{out}{err}"
    );
    assert!(out.contains("has overflowed its stack"), "{out}");
    assert_eq!((last_line(&out), code), ("1 passed, 1 failed", 1), "only the culprit is blamed");

    fake.write(
        "src/day00_one.rs",
        "pub fn one() -> u32 { loop { std::thread::yield_now() } }\npub fn down(_: u64) {}\n",
    );
    let mut command = fake.command(&["check", "day0"]);
    command.env("CANDECODE_CHECK_PATIENCE", "5");
    let (out, _, code) = common::texts(command.output().unwrap());
    assert!(out.contains("✗ ran too long: task 0.1 · is one\n"), "{out}");
    assert_eq!((last_line(&out), code), ("1 passed, 1 failed", 1));

    fake.write(
        "src/day00_one.rs",
        "pub fn one() -> u32 { loop { println!(\"x\") } }\npub fn down(_: u64) {}\n",
    );
    let (out, _, code) = fake.say(&["check", "day0"]);
    assert!(out.contains("✗ did not finish: task 0.1 · is one\n"), "{out}");
    assert!(out.contains("MiB"), "before the time limit");
    assert_eq!((last_line(&out), code), ("1 passed, 1 failed", 1));
}

#[test]
fn usage_errors_name_the_argument() {
    let fake = Fake::new();
    let cases: [(&[&str], &str); 8] = [
        (&["check", "day7"], "`day7`"),
        (&["check", "--task", "1.9"], "`1.9`"),
        (&["check", "day0", "--task", "1.1"], "1.1"),
        (&["check", "--task", "one"], "`one`"),
        (&["check", "--solution", "ref", "--rest", "mine"], "--rest mine"),
        (&["check", "--device", "tpu"], "\"tpu\""),
        (&["check", "--solution", "theirs"], "'theirs'"),
        (&["check", "day0", "--frob"], "'--frob'"),
    ];
    for (args, named) in cases {
        let (out, err, code) = fake.say(args);
        assert!(err.starts_with("error: ") && err.contains(named), "{args:?}: {err}");
        assert!(!err.contains("-- --frob"), "it isn't a value: {err}");
        assert!(out.is_empty() && code == 2, "{args:?}: {out}");
    }
    assert!(fake.say(&["check", "Day1"]).0.contains("day 1: two"));
}

/// A failing check only mentions what the reader's code printed; the flag shows it.
#[test]
fn printed_output_is_announced_and_shown_with_show_output() {
    let fake = Fake::new();
    fake.solve("day00_one.rs", |source| {
        source.replace("    1\n", "    println!(\"I was\\nhere\");\n    dbg!(2)\n")
    });
    let (out, err, _) = fake.say(&["check", "day0"]);
    assert!(out.contains("  your code printed 3 lines: --show-output\n"), "{out}{err}");
    assert!(!out.contains("I was"), "{out}");
    let (out, _, _) = fake.say(&["check", "day0", "--show-output"]);
    assert!(out.contains("task 0.1 · is one printed:\nI was\nhere\n["), "{out}");
    assert!(!out.contains("--show-output") && !out.contains("panicked at"), "{out}");

    fake.solve("day00_one.rs", |source| {
        source.replace("    1\n", "    println!(\"right\");\n    1\n")
    });
    assert!(!fake.say(&["check", "day0"]).0.contains("printed"), "a check that passes is silent");
    let (out, _, code) = fake.say(&["check", "day0", "--show-output"]);
    assert!(out.contains("task 0.1 · is one printed:\nright\n") && code == 0, "{out}");
}

#[test]
fn a_message_loses_control_characters_and_is_truncated() {
    let fake = Fake::new();
    let checks = fake.read("tests/day00_one/checks.rs");
    let message = format!("r\"a\\u001b[2Jb {}\"", "x".repeat(100_000));
    let check = format!("(\"panicked\", {message}.into())");
    fake.write(
        "tests/day00_one/checks.rs",
        &checks.replace("right(day00_one::one() == 1)", &check),
    );
    let (out, err, _) = fake.say(&["check", "day0", "--solution", "ref"]);
    assert!(out.contains("a[2Jb xxx") && out.contains(" more characters)"), "{out}{err}");
    assert!(!out.contains('\x1b') && out.len() < 3000, "{}", out.len());
}

/// A course in which three checks of two tasks fail for the same reason, and one for another.
fn with_messages() -> Fake {
    let fake = Fake::new();
    fake.solve("day01_two.rs", |source| source);
    let check = |test: &str, task: &str, message: &str| {
        let next = format!("  next: cargo xtask check day1 --task {task}");
        let message = format!("task {task} · {test}\\n  input x\\n{message}{next}");
        format!("fn {test}() -> Outcome {{ (\"failed\", r\"{message}\".into()) }}\n")
    };
    let known = |got: u32| format!("  got {got}\\n  this is what you get: no scale\\n");
    let checks = [
        common::FRAME.to_string(),
        "checks! {\n    day01_two:\n    1.1: first, second, other;\n    1.2: third;\n}\n".into(),
        check("first", "1.1", &known(1)),
        check("second", "1.1", &known(2)),
        check("other", "1.1", "  got 3\\n  likely: the mask\\n"),
        check("third", "1.2", &known(4)),
    ];
    fake.write("tests/day01_two/checks.rs", &checks.concat());
    fake
}

#[test]
fn a_shared_cause_is_printed_once_with_the_other_checks() {
    let (out, err, code) = with_messages().say(&["check", "day1"]);
    assert_eq!(out.matches("this is what you get: no scale").count(), 1, "{out}{err}");
    let once =
        "✗ failed: task 1.1 · first\n  input x\n  got 1\n  this is what you get: no scale\n  \
                the same goes for 2 more checks:\n    task 1.1 · second\n    task 1.2 · third\n  \
                next: cargo xtask check day1 --task 1.1\n\n";
    assert!(out.starts_with(once), "{out}");
    assert!(out.contains("\n✗ failed: task 1.1 · other\n  input x\n  got 3\n"), "{out}");
    assert!(!out.contains("likely: the mask"), "a simpler check of the task fails, too: {out}");
    assert!(!out.contains("✗ failed: task 1.1 · second"), "{out}");
    assert_eq!((last_line(&out), code), ("0 passed, 4 failed", 1), "all of them count");
}

#[test]
fn the_next_step_never_repeats_the_command_just_run() {
    let fake = with_messages();
    for args in [&["check", "day1", "--task", "1.1"][..], &["check", "--task", "1.1"]] {
        let (out, _, _) = fake.say(args);
        assert!(out.contains("  next: cargo xtask hint --task 1.1\n"), "{args:?}: {out}");
        assert!(!out.contains("next: cargo xtask check"), "{args:?}: {out}");
        assert!(out.contains("the same goes for task 1.1 · second\n"), "{args:?}: {out}");
    }
}

#[test]
fn a_day_with_parts_is_checked_one_part_at_a_time() {
    let fake = Fake::new();
    let source = fake.read("solutions/day01_two.rs");
    let parts = source
        .replace("/// Two.", "// part 1: twice\n\n/// Two.")
        .replace("/// Four.", "// part 2: and again\n\n/// Four.");
    fake.write("solutions/day01_two.rs", &parts);
    assert_eq!(fake.say(&["stubs", "--force"]).2, 0);
    assert!(fake.read("src/day01_two.rs").contains("\n// part 2: and again\n"));
    fake.solve("day01_two.rs", |source| {
        source.replace("two() * helper()", "todo!(\"day 1, task 2: twice two\")")
    });
    let (out, err, code) = fake.say(&["check", "day1", "--part", "1"]);
    assert!(
        out.contains("Part 1 of day 1 is done.\nNext: cargo xtask check day1 --part 2"),
        "{out}{err}"
    );
    assert!(!out.contains("1.2"), "{out}");
    assert_eq!((last_line(&out), code), ("2 passed, 0 failed", 0));
    let (out, _, code) = fake.say(&["check", "day1", "--part", "2"]);
    assert!(out.contains("○ not written       1.2"), "{out}");
    assert_eq!((last_line(&out), code), ("1 task, not written yet", 1));
    let (out, _, code) = fake.say(&["check", "day1", "--part", "2", "--solution", "ref"]);
    assert_eq!((last_line(&out), code), ("1 passed, 0 failed", 0));
    for args in [&["day0", "--part", "1"][..], &["day1", "--part", "3"], &["--part", "1"]] {
        let (_, err, code) = fake.say(&[&["check"][..], args].concat());
        assert!(err.contains("part") && code == 2, "{args:?}: {err}");
    }
    assert_eq!(fake.say(&["check", "--part", "1", "--task", "1.1"]).2, 2);
}
