//! Checks that a `tokenizer.json` is rejected in one line if it is damaged, and that settings left
//! over from training have no effect.

use candecode_testing::{refused, story, Folder};
use serde_json::{json, Value};

const PROMPT: &str = "Once upon a time";

/// Returns one of the embedded tokenizers as JSON.
fn parts() -> Value {
    let json = std::fs::read(story("story-230k").join("tokenizer.json")).unwrap();
    serde_json::from_slice(&json).unwrap()
}

/// Returns that tokenizer with some parts changed.
fn changed(changes: &[(&str, Value)]) -> String {
    let mut parts = parts();
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        parts.pointer_mut(parent).unwrap()[key] = value.clone();
    }
    parts.to_string()
}

/// Opens a folder with this tokenizer and uses it. Returns the ids of a prompt and their text, or
/// the first error.
fn used(folder: &Folder, json: &str) -> anyhow::Result<(Vec<u32>, String)> {
    folder.write("tokenizer.json", json);
    let tokenizer = candecode_formats::read_tokenizer(&folder.0)?;
    let ids = tokenizer.encode(PROMPT)?;
    let text = tokenizer.decode(&ids)?;
    Ok((ids, text))
}

/// Settings left over from training. A call in transformers also turns the first two off.
#[test]
fn truncation_padding_and_dropout_are_switched_off() {
    let folder = Folder::new("truncation");
    let want = used(&folder, &changed(&[])).unwrap();
    assert_eq!(want.1, PROMPT);
    let truncation = |max: u64| json!({"direction": "Right", "max_length": max, "strategy": "LongestFirst", "stride": 0});
    let padding = |strategy: Value, multiple: Value| json!({"strategy": strategy, "direction": "Left", "pad_to_multiple_of": multiple, "pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>"});
    let null = Value::Null;
    for (cut, pad) in [
        (truncation(2), null.clone()),
        (truncation(0), null.clone()),
        (null.clone(), padding(json!({"Fixed": 8}), null.clone())),
        (null.clone(), padding(json!({"Fixed": 1_000_000_000}), null.clone())),
        (null.clone(), padding(json!({"Fixed": u64::MAX}), null.clone())),
        (null.clone(), padding(json!("BatchLongest"), json!(1_u64 << 63))),
        (truncation(3), padding(json!({"Fixed": 8}), json!(0))),
    ] {
        let json = changed(&[("/truncation", cut.clone()), ("/padding", pad.clone())]);
        assert_eq!(used(&folder, &json).unwrap(), want, "{cut} {pad}");
    }
    for _ in 0..20 {
        // It would drop half of all merges, at random.
        assert_eq!(used(&folder, &changed(&[("/model/dropout", json!(0.5))])).unwrap(), want);
    }
}

#[test]
fn damaged_files_are_refused_with_a_one_line_error_naming_them() {
    let folder = Folder::new("damaged-tokenizer");
    for (part, value) in [
        ("/normalizer", json!({"type": "NoSuchThing"})),
        ("/decoder", json!(7)),
        ("/model/merges", json!([["no", "such"]])),
        ("/model/vocab", json!({"a": -1})),
        ("/model", Value::Null),
        // What the file says is quoted, and cut off.
        ("/version", json!("x".repeat(3_000))),
        ("/truncation", json!("x".repeat(3_000))),
    ] {
        let outcome = used(&folder, &changed(&[(part, value)]));
        let Err(error) = outcome else { panic!("{part} was accepted") };
        let text = format!("{error:#}");
        assert!(text.contains("tokenizer.json: ") && text.contains("damaged"), "{part}: {text}");
        assert!(!text.contains("panicked") && !text.contains('\n') && text.len() < 400, "{text}");
    }
}

#[test]
fn tokenizer_files_truncated_anywhere_are_refused() {
    let folder = Folder::new("cut-tokenizer");
    let whole = std::fs::read_to_string(story("story-230k").join("tokenizer.json")).unwrap();
    for part in ["\"decoder\"", "\"model\"", "\"merges\"", "\"added_tokens\""] {
        let at = whole.find(part).unwrap();
        for more in [0, 5, 30, 200] {
            folder.write("tokenizer.json", &whole[..(at + more).min(whole.len() - 3)]);
            refused(
                candecode_formats::read_tokenizer(&folder.0),
                &["tokenizer.json: not a tokenizer, or damaged"],
            );
        }
    }
    folder.write("tokenizer.json", b"\xff\xfe");
    refused(
        candecode_formats::read_tokenizer(&folder.0),
        &["not a tokenizer, or damaged: invalid utf-8"],
    );
}
