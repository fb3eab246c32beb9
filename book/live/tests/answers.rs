//! The figures' answers, on this machine; `tools/live.py` asks the same of WebAssembly in a
//! browser.

use candecode_live::{figures, model};
use serde_json::{json, Value};
use std::fs;
use std::path::Path;

fn open() {
    let file = |name: &str| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        fs::read(root.join("models/story-230k").join(name)).unwrap()
    };
    let weights = file("model.safetensors");
    model::open(&file("config.json"), &file("tokenizer.json"), weights).unwrap();
}

fn ask(question: Value) -> Result<Value, String> {
    figures::answer(question.to_string().as_bytes())
}

#[test]
fn texts_are_those_of_the_command() {
    open();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let goldens = fs::read(root.join("tests/oracle/live.json")).unwrap();
    let goldens: Value = serde_json::from_slice(&goldens).unwrap();
    for case in goldens["cases"].as_array().unwrap() {
        let steps = &case["params"]["max_new_tokens"];
        let question = json!({
            "ask": "generate", "whose": "test", "text": case["prompt"], "params": case["params"],
            "steps": steps,
        });
        let answer = ask(question).unwrap();
        let ids: Vec<&Value> =
            answer["new"].as_array().unwrap().iter().map(|token| &token["id"]).collect();
        assert_eq!(json!(ids), case["ids"], "{} {}", case["prompt"], case["params"]);
    }
}

#[test]
fn the_tokenizer_of_the_page_is_the_one_of_the_command() {
    open();
    let engine = candecode::engine::Engine::open("story-230k").unwrap();
    for text in
        ["Zoë 🐈 says hi", "  two  spaces\n\n", "don't we're", "שלום <|endoftext|> x", "123 4.5"]
    {
        assert_eq!(
            model::tokens(text).unwrap(),
            engine.tokenizer().encode(text).unwrap(),
            "{text}"
        );
    }
}

/// Day 1's weights are those of a softmax: every row sums to 1, and the mask hides the future.
#[test]
fn every_row_of_attention_is_a_distribution() {
    open();
    for causal in [true, false] {
        let question =
            json!({"ask": "attention", "text": "Lily and Tom found a cat.", "causal": causal});
        let answer = ask(question).unwrap();
        for head in answer["layers"].as_array().unwrap().iter().flat_map(|l| l.as_array().unwrap())
        {
            for (i, row) in head.as_array().unwrap().iter().enumerate() {
                let row: Vec<f64> =
                    row.as_array().unwrap().iter().map(|w| w.as_f64().unwrap()).collect();
                // Sums of a few f32 that are rounded once each.
                assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-5, "{row:?}");
                assert!(!causal || row[i + 1..].iter().all(|w| *w == 0.0), "{row:?}");
            }
        }
    }
}

#[test]
fn bad_texts_get_words() {
    open();
    let long = "word ".repeat(2000);
    let ends = [("", "the prompt is empty"), (&long, "the prompt is 4001 tokens long")];
    for (text, words) in ends {
        for question in [
            json!({"ask": "attention", "text": text, "causal": true}),
            json!({"ask": "passes", "text": text, "new": 2}),
            json!({"ask": "pieces", "text": text}),
            json!({"ask": "beams", "text": text, "beams": 2, "steps": 2}),
        ] {
            let error = ask(question).unwrap_err();
            assert!(error.starts_with(words), "{error}");
        }
    }
    assert_eq!(ask(json!({"ask": "gone"})).unwrap_err(), "no figure asks \"gone\"");
    assert!(figures::answer(b"{").is_err());
    let nothing = json!({"ask": "speculative", "p": [0, 0], "q": [1, 1], "seed": 1, "runs": 1});
    assert!(ask(nothing).unwrap_err().contains("above 0"));
    let word = json!({"ask": "spelling", "word": "xylophonqq", "text": "🐈", "whole": true});
    assert!(ask(word).unwrap()["paths"].as_u64().unwrap() > 0, "every byte is a token");
}
