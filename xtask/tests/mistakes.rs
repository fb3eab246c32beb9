//! Known mistakes on a small course: which diagnoses follow from their record.

mod common;

use common::Fake;

/// Checks that say a word about the number that they got.
const CHECKS: &str = r##"
#[cfg(not(feature = "mine"))]
use candecode::day01_two;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day01_two.rs"]
mod day01_two;
checks! {
    day01_two:
    1.1: is_two, is_even;
    1.2: is_four;
}

fn got(n: u32, is_right: bool, task: &str, what: &str) -> Outcome {
    if is_right {
        return right(true);
    }
    let next = format!("  next: cargo xtask check day1 --task {task}");
    let n = if n == 10 { "NaN".to_string() } else { n.to_string() };
    ("failed", format!("task {task} · {what}\\n  got    {n}\\n  likely: a guess\\n{next}"))
}
fn is_two() -> Outcome { got(day01_two::two(), day01_two::two() == 2, "1.1", "is two") }
fn is_even() -> Outcome { got(day01_two::two(), day01_two::two() % 2 == 0, "1.1", "is even") }
fn is_four() -> Outcome { got(day01_two::four(), day01_two::four() == 4, "1.2", "is four") }
"##;

/// What the checks say about `one() + N` for `two()`, or `N` for `four()`, and its diagnosis.
const KNOWN: [(&str, &[(&str, &str)]); 4] = [
    (
        "it is three",
        &[("task_1_1_is_two", "3"), ("task_1_1_is_even", "3"), ("task_1_2_is_four", "6")],
    ),
    ("it is eight", &[("task_1_1_is_two", "8")]),
    ("it is nine", &[("task_1_2_is_four", "9")]),
    ("it is NaN", &[("task_1_2_is_four", "NaN")]),
];

const RECORD: &str = "tests/day01_two/record.jsonl";

/// A course whose day 1 has known mistakes, and these bodies of its functions.
fn course(two: &str, four: &str) -> Fake {
    let fake = Fake::new();
    fake.write("tests/day01_two/checks.rs", &format!("{}{CHECKS}", common::FRAME));
    let (mut mistakes, mut record) = (String::new(), String::new());
    for (diagnosis, failures) in KNOWN {
        let name = diagnosis.replace(' ', "_");
        mistakes += &format!(
            "[[mistake]]\nname = \"{name}\"\nfind = \"\"\nreplace = \"\"\n\
             diagnosis = \"{diagnosis}\"\n"
        );
        for (check, got) in failures {
            let words = format!("got {got}\\n{got}");
            record += &format!(
                "{{\"by\":[\"{name}\"],\"check\":\"{check}\",\"status\":\"failed\",\
                 \"words\":\"{words}\"}}\n"
            );
        }
    }
    fake.write("tests/day01_two/mistakes.toml", &mistakes);
    fake.write(RECORD, &record);
    write(&fake, two, four);
    fake
}

fn write(fake: &Fake, two: &str, four: &str) {
    fake.solve("day01_two.rs", |source| {
        source.replace("one() + one()", two).replace("two() * helper()", four)
    });
}

#[test]
fn a_mistake_that_explains_all_checks_is_a_fact() {
    let fake = course("3", "two() * helper()");
    let (out, err, code) = fake.say(&["check", "day1"]);
    let said = "✗ failed: task 1.1 · is two\n  got    3\n  this is what you get: it is three\n  \
                the same goes for 2 more checks:\n";
    assert!(out.starts_with(said) && code == 1, "{out}{err}");
    assert!(!out.contains("a guess") && !out.contains("perhaps"), "{out}");

    let (out, ..) = fake.say(&["check", "day1", "--rest", "mine"]);
    assert!(!out.contains("this is what you get"), "not about these days: {out}");
}

#[test]
fn a_mistake_that_explains_a_part_is_only_likely_or_not_named() {
    // Two of three failures are the mistake's.
    let fake = course("3", "7");
    let (out, ..) = fake.say(&["check", "day1"]);
    assert!(
        out.contains("  got    3\n  perhaps: it is three\n  the same goes for task 1.1"),
        "{out}"
    );
    assert!(out.contains("  got    7\n  likely: a guess\n"), "{out}");
    // One check ran, which the mistake's other failures could contradict.
    write(&fake, "3", "todo!(\"day 1, task 2: four\")");
    let (out, ..) = fake.say(&["check", "day1"]);
    assert!(out.contains("  got    3\n  this is what you get: it is three\n"), "two checks: {out}");
    write(&fake, "one() + one()", "6");
    let (out, ..) = fake.say(&["check", "day1"]);
    assert!(out.contains("  got    6\n  likely: a guess\n"), "two checks pass: {out}");
}

#[test]
fn mistakes_of_two_tasks_are_both_named() {
    let fake = course("8", "9");
    let (out, ..) = fake.say(&["check", "day1"]);
    assert!(out.contains("  got    8\n  this is what you get: it is eight\n"), "{out}");
    assert!(out.contains("  got    9\n  this is what you get: it is nine\n"), "{out}");
}

/// Six of the other task's check is what the mistake leads to, and seven isn't.
#[test]
fn a_task_checked_alone_is_compared_with_what_decides() {
    let fake = course("3", "two() * helper()");
    let (out, ..) = fake.say(&["check", "day1", "--task", "1.1"]);
    assert!(out.contains("  got    3\n  this is what you get: it is three\n"), "{out}");
    assert!(!out.contains("1.2"), "it isn't shown: {out}");
    write(&fake, "3", "7");
    let (out, ..) = fake.say(&["check", "day1", "--task", "1.1"]);
    assert!(out.contains("  got    3\n  perhaps: it is three\n"), "{out}");
}

#[test]
fn an_unknown_mistake_of_another_task_leaves_a_fact() {
    let fake = course("8", "7");
    let (out, ..) = fake.say(&["check", "day1"]);
    assert!(out.contains("  got    8\n  this is what you get: it is eight\n"), "{out}");
    assert!(out.contains("  got    7\n  likely: a guess\n"), "{out}");
}

#[test]
fn nan_alone_names_nothing() {
    let fake = course("one() + one()", "10");
    let (out, ..) = fake.say(&["check", "day1"]);
    assert!(out.contains("  got    NaN\n  likely: a guess\n"), "{out}");
}

#[test]
fn a_damaged_record_is_reported_and_the_checks_still_count() {
    let fake = course("3", "two() * helper()");
    fake.write(RECORD, "<<<<<<< HEAD\n");
    let (out, err, code) = fake.say(&["check", "day1"]);
    assert!(out.ends_with("0 passed, 3 failed\n") && code == 1, "{out}");
    assert!(err.contains("record.jsonl isn't a record: line 1"), "{err}");
}

/// The check takes any number; the reference's day 1 takes a `u32`.
#[test]
fn a_passing_day_that_breaks_the_engine_build_is_reported() {
    let fake = Fake::new();
    fake.write("src/day00_one.rs", "/// One.\npub fn one() -> u64 {\n    1\n}\n");
    let (out, err, code) = fake.say(&["check", "day0"]);
    assert!(out.contains("Day 0 is done.\nBut `cargo xtask run` does not compile"), "{out}{err}");
    assert!(err.contains("error[E0308]") && out.ends_with("1 passed, 0 failed\n"), "{out}{err}");
    assert_eq!(code, 1);
}

/// A compiler that is killed says nothing about the day.
#[test]
fn an_engine_build_that_breaks_off_is_not_blamed_on_the_day() {
    let fake = Fake::new();
    fake.solve("day00_one.rs", |source| source);
    fake.write("crates/cli/build.rs", "fn main() { std::process::abort() }");
    let (out, err, code) = fake.say(&["check", "day0"]);
    assert!(out.contains("could not be built") && !out.contains("signatures"), "{out}{err}");
    assert_eq!(code, 1);
}
