//! Known mistakes on a small course: when they are recorded, and which diagnoses follow.

mod common;

use common::Fake;

/// Day 0's checks. A check that fails reads its diagnosis from the record, if there is one. The
/// program with the known mistakes reads from the file `how` what to do.
const CHECKS: &str = r##"
#[cfg(not(feature = "mine"))]
use candecode::day00_one;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day00_one.rs"]
mod day00_one;
checks! {
    day00_one:
    0.1: is_one;
}

fn is_one() -> Outcome {
    if day00_one::one() == 1 {
        return right(true);
    }
    let record = std::env::var("CANDECODE_RECORD").ok();
    let record = record.map(|path| std::fs::read_to_string(path).unwrap());
    let known = record.is_some_and(|text| text.contains("it is 2"));
    let diagnosis = if known { "  this is what you get: it is 2\\n" } else { "" };
    ("failed", format!("task 0.1 · is one\\n  got    2\\n{diagnosis}"))
}

#[cfg(mistakes)]
fn main() {
    let how = std::fs::read_to_string("how").unwrap_or_default();
    std::fs::write("how", format!("{how}ran ")).unwrap();
    match how.trim() {
        "die" => std::process::abort(),
        "wait" => std::thread::sleep(std::time::Duration::from_secs(5)),
        _ => {}
    }
    send(r#"{"row":"mistake","name":"two","caught":[],"alone":[],"words":"it is 2"}"#);
}
"##;

const RECORD: &str = "target/candecode/records/day00_one.jsonl";

/// A course whose reader has made the known mistake.
fn mistaken() -> Fake {
    let fake = Fake::new();
    fake.write("tests/day00_one/checks.rs", &format!("{}{CHECKS}", common::FRAME));
    let mistake = "[[mistake]]\nname = \"two\"\nfind = \"    1\"\nreplace = \"    2\"\n";
    fake.write("tests/day00_one/mistakes.toml", &format!("{mistake}diagnosis = \"it is 2\"\n"));
    fake.solve("day00_one.rs", |source| source.replace("    1\n", "    2\n"));
    fake
}

#[test]
fn results_print_first_and_the_diagnosis_is_saved() {
    let fake = mistaken();
    let (out, err, code) = fake.say(&["check", "day0"]);
    let (answer, diagnosis) = out.split_once("0 passed, 1 failed\n").unwrap_or((&out, ""));
    assert!(answer.contains("✗ failed: task 0.1 · is one\n  got    2\n"), "{out}");
    assert!(!answer.contains("this is what you get"), "{out}");
    assert_eq!(diagnosis, "\n✗ task 0.1 · is one\n  this is what you get: it is 2\n");
    assert!(err.contains("Comparing with the known mistakes of day 0") && code == 1, "{err}");

    let (out, err, code) = fake.say(&["check", "day0"]);
    assert!(out.contains("  got    2\n  this is what you get: it is 2\n"), "{out}{err}");
    assert!(out.ends_with("0 passed, 1 failed\n") && !err.contains("Comparing"), "{out}{err}");
    assert_eq!((code, fake.read("how").as_str()), (1, "ran "));

    let (out, _, _) = fake.say(&["check", "day0", "--rest", "mine"]);
    assert!(!out.contains("this is what you get"), "not about these days: {out}");
}

#[test]
fn a_damaged_or_stale_record_is_rebuilt() {
    let fake = mistaken();
    fake.say(&["check", "day0"]);
    let whole = fake.read(RECORD);
    let (key, rows) = whole.split_once('\n').unwrap();
    let damaged = [
        String::new(),
        format!("{key}\n"),
        format!("{key}\n{}", &rows[..rows.len() / 2]),
        format!("{key}\n{{}}\n"),
        format!("0\n{rows}"),
    ];
    for text in damaged {
        fake.write("how", "");
        fake.write(RECORD, &text);
        let (out, err, _) = fake.say(&["check", "day0"]);
        assert!(out.ends_with("\n  this is what you get: it is 2\n"), "{text:?}: {out}{err}");
        assert_eq!((fake.read("how").as_str(), fake.read(RECORD)), ("ran ", whole.clone()));
    }
    fake.write("how", "");
    fake.write("solutions/day01_two.rs", &(fake.read("solutions/day01_two.rs") + "// new\n"));
    fake.say(&["check", "day0"]);
    assert_eq!(fake.read("how"), "ran ", "the reference has changed");
}

#[test]
fn a_crashed_mistake_run_records_and_names_nothing() {
    let fake = mistaken();
    fake.write("how", "die ");
    let (out, err, code) = fake.say(&["check", "day0"]);
    assert!(out.ends_with("0 passed, 1 failed\n"), "{out}");
    assert!(err.contains("error: ") && err.contains("day 0's known mistakes"), "{err}");
    assert!(code == 1 && !fake.path(RECORD).exists());
}

#[test]
#[cfg(unix)]
fn ctrl_c_stops_the_mistake_search_but_keeps_the_result() {
    let fake = mistaken();
    fake.write("how", "wait ");
    let mut session = common::Session::open(&fake, "check day0");
    session.sees("0 passed, 1 failed");
    session.sees("Comparing with the known mistakes");
    while !fake.read("how").contains("ran") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    session.interrupt();
    assert_eq!(session.ends(), 1);
    assert!(!fake.path(RECORD).exists());
}

#[test]
#[cfg(unix)]
fn watch_continues_if_known_mistakes_cannot_be_applied() {
    let fake = mistaken();
    let mistakes = fake.read("tests/day00_one/mistakes.toml");
    fake.write(
        "tests/day00_one/mistakes.toml",
        &mistakes.replace("find = \"    1\"", "find = \"7\""),
    );
    let mut session = common::Session::open(&fake, "check --watch");
    session.sees("waiting for a save of src/day00_one.rs");
    session.sees("Comparing with the known mistakes");
    session.sees("error: ");
    fake.solve("day00_one.rs", |source| source);
    session.sees("✓ day 0 is done");
    session.send("q");
    assert_eq!(session.ends(), 0);
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
