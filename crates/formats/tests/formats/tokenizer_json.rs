//! Checks that a `tokenizer.json` is rejected in one line if it is damaged or would exhaust the
//! machine.

use crate::message;
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

fn replaces(n: usize, pattern: &Value, content: &str, list: &str) -> Value {
    let one = json!({"type": "Replace", "pattern": pattern, "content": content});
    json!({"type": "Sequence", list: vec![one; n]})
}

#[test]
fn damaged_files_are_refused_with_a_one_line_error_naming_them() {
    let folder = Folder::new("damaged-tokenizer");
    let template = |single: Value, special: Value| json!({"type": "TemplateProcessing", "single": single, "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}], "special_tokens": special});
    let a = json!({"Sequence": {"id": "A", "type_id": 0}});
    let copies = template(json!([a, a]), json!({}));
    let charsmap = |base64: &str| json!({"type": "Precompiled", "precompiled_charsmap": base64});
    // A trie of 4 bytes, with one replacement of 1,500 letters for any match.
    let long_form = format!("BAAAAAAAAAA{}", "YWFh".repeat(500));
    let split = json!({"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated", "invert": false});
    let strip = json!({"type": "Strip", "content": " ", "start": 0, "stop": 1});
    let string = |pattern: &str| json!({"String": pattern});
    let byte_level = json!({"type": "ByteLevel"});
    let pre_byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let cases = [
        ("/normalizer", json!({"type": "Replace", "pattern": string(""), "content": "x"})),
        ("/normalizer", replaces(6, &string("a"), &"a".repeat(100), "normalizers")),
        ("/normalizer", replaces(40, &string("a"), "aa", "normalizers")),
        ("/normalizer", replaces(12, &json!({"Regex": "x*"}), "ab", "normalizers")),
        ("/normalizer", replaces(5000, &string("a"), "b", "normalizers")),
        ("/normalizer", json!({"type": "Sequence", "normalizers": vec![byte_level; 40]})),
        ("/normalizer", charsmap("/////wAAAAAAAAAA")),
        ("/normalizer", charsmap("AAAA")),
        ("/normalizer", charsmap("!!!!")),
        ("/normalizer", charsmap("garbage+garbage+garbage+garbage+")),
        ("/normalizer", charsmap(&long_form)),
        ("/normalizer", json!({"type": "NoSuchThing"})),
        ("/pre_tokenizer", json!({"type": "FixedLength", "length": 0})),
        ("/pre_tokenizer", json!({"type": "Sequence", "pretokenizers": vec![pre_byte_level; 40]})),
        ("/post_processor", template(json!([{"Sequence": {"id": "B", "type_id": 0}}]), json!({}))),
        (
            "/post_processor",
            template(json!([{"SpecialToken": {"id": "<x>", "type_id": 0}}, a]), json!({})),
        ),
        ("/post_processor", json!({"type": "Sequence", "processors": vec![copies; 40]})),
        ("/decoder", json!(7)),
        ("/decoder", json!({"type": "NoSuchThing"})),
        ("/decoder", replaces(5, &string("e"), &"e".repeat(200), "decoders")),
        (
            "/decoder",
            json!({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": string("O"), "content": ""}, {"type": "Replace", "pattern": string("nce"), "content": ""}, strip]}),
        ),
        ("/model/continuing_subword_prefix", json!("a long prefix of a subword")),
        ("/model/merges", json!([["no", "such"]])),
        ("/model/vocab", json!({"a": -1})),
        ("/model", json!({"type": "Unigram", "unk_id": 9, "vocab": [["a", 0.0]]})),
        ("/model", Value::Null),
        // What the file says is quoted, and cut off.
        ("/version", json!("x".repeat(3_000))),
        ("/truncation", json!("x".repeat(3_000))),
        ("/added_tokens", json!("x".repeat(3_000))),
    ];
    for (part, value) in cases {
        let outcome = used(&folder, &changed(&[(part, value.clone())]));
        let shown = value.to_string().chars().take(60).collect::<String>();
        let Err(error) = outcome else { panic!("{part} {shown} was accepted") };
        let text = format!("{error:#}");
        assert!(
            text.contains("tokenizer.json: ") && text.contains("damaged"),
            "{part} {shown}: {text}"
        );
        assert!(!text.contains("panicked") && !text.contains('\n') && text.len() < 400, "{text}");
    }
    // Odd but harmless values are left to the crate.
    let odd = used(&folder, &changed(&[("/pre_tokenizer", split)])).map_err(|e| format!("{e:#}"));
    assert!(
        odd.as_ref().err().is_none_or(|text| text.contains("tokenizer.json: damaged")),
        "{odd:?}"
    );
}

#[test]
fn tokenizer_files_truncated_anywhere_are_refused() {
    let folder = Folder::new("cut-tokenizer");
    let whole = std::fs::read_to_string(story("story-230k").join("tokenizer.json")).unwrap();
    let names = [
        "\"decoder\"",
        "\"normalizer\"",
        "\"post_processor\"",
        "\"model\"",
        "\"merges\"",
        "\"added_tokens\"",
    ];
    for name in names {
        let at = whole.find(name).unwrap();
        for more in [0, 5, name.len() + 1, name.len() + 4, 30, 60, 200] {
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

/// A normalizer that lengthens texts works for texts of reasonable length.
#[test]
fn a_text_that_normalization_makes_too_long_is_refused() {
    let folder = Folder::new("long-text");
    let longer = replaces(1, &json!({"String": " "}), &" ".repeat(500), "normalizers");
    folder.write("tokenizer.json", changed(&[("/normalizer", longer)]));
    let tokenizer = candecode_formats::read_tokenizer(&folder.0).unwrap();
    assert!(tokenizer.encode("a b").unwrap().len() > 5);
    let long = "a ".repeat(30_000);
    let text = message(tokenizer.encode(&long).map_err(Into::into));
    assert!(text.contains("tokenizer.json: its normalizer may make 60000000 bytes"), "{text}");
}
