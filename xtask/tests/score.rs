//! `list --score` on a small course, whose engine prints a score without a model.

mod common;

use common::Fake;

const SCORE: &str = "target/candecode/score.json";

/// A course with the texts that transformers would write.
fn course() -> Fake {
    let fake = Fake::new();
    fake.write("tests/day15_scheduler/oracle.json", r#"{"trace": {"texts": [[2], [1]]}}"#);
    fake
}

#[test]
fn a_score_is_saved_and_shown_beside_the_next_one() {
    let fake = course();
    let (out, err, code) = fake.say(&["list", "--score"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.starts_with("24 requests arrive at once and are served by day 7's loop"), "{out}");
    for row in [
        "                                 now\n",
        "  passes of the model              9\n",
        "  tokens per second               12\n",
        "  time to first token        0.250 s\n",
        "  texts               equal to transformers\n",
        "day 7's loop (all yours)\n",
        "are served: day 10\n",
        "Next: task 0.1 in src/day00_one.rs",
    ] {
        assert!(out.contains(row), "{row}: {out}");
    }
    fake.solve("day00_one.rs", |source| source.replace("    1\n", "    5\n"));
    let date = fake.read(SCORE).split_once("\"date\":\"").unwrap().1[..10].to_string();
    let (out, err, _) = fake.say(&["list", "--score"]);
    assert!(out.contains(&format!("now    {date}\n")), "{out}{err}");
    assert!(out.contains("  passes of the model              9             9\n"), "{out}");
    assert!(out.contains("1 of 24 texts differ from transformers"), "{out}");
}

#[test]
fn a_run_that_fails_leaves_the_last_score() {
    let fake = course();
    fake.say(&["list", "--score"]);
    let kept = fake.read(SCORE);
    fake.solve("day01_two.rs", |source| source.replace("one() + one()", "panic!(\"too much\")"));
    let (_, err, code) = fake.say(&["list", "--score"]);
    assert!(err.contains("too much") && err.contains("day 7's loop didn't finish"), "{err}");
    assert!(code == 1 && fake.read(SCORE) == kept);
    fake.write("src/day01_two.rs", "pub fn two() -> u32 { one }");
    let (_, err, code) = fake.say(&["list", "--score"]);
    assert!(code == 1 && err.contains("error: the engine doesn't compile"), "{err}");
    assert_eq!(fake.read(SCORE), kept);

    fake.solve("day01_two.rs", |source| source);
    fake.write(SCORE, &kept[..kept.len() / 2]);
    let (out, _, code) = fake.say(&["list", "--score"]);
    assert!(code == 0 && out.contains("now\n"), "a damaged score is none: {out}");
}
