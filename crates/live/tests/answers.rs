//! Tests the figures' answers in a native build. `crates/lab/scripts/live.py` asks WebAssembly
//! in a browser the same questions.

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
fn texts_equal_those_of_the_command() {
    open();
    let goldens = fs::read("tests/oracle/live.json").unwrap();
    let goldens: Value = serde_json::from_slice(&goldens).unwrap();
    for case in goldens["cases"].as_array().unwrap() {
        let question =
            json!({ "ask": "generate", "text": case["prompt"], "params": case["params"] });
        let answer = ask(question).unwrap();
        let ids: Vec<&Value> =
            answer["new"].as_array().unwrap().iter().map(|token| &token["id"]).collect();
        assert_eq!(json!(ids), case["ids"], "{} {}", case["prompt"], case["params"]);
    }
}

/// Day 1's weights come from a softmax: every row sums to 1, and the mask hides the future.
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
                // Each row sums a few f32 values, each rounded once.
                assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-5, "{row:?}");
                assert!(!causal || row[i + 1..].iter().all(|w| *w == 0.0), "{row:?}");
            }
        }
    }
}

/// With drafts, greedy decoding writes the same text as without, and each block's counts add up.
#[test]
fn drafts_change_no_token() {
    open();
    let text = "Tom had a big red ball. Tom had a big red";
    let question = json!({
        "ask": "drafts", "text": text, "blocks": 6, "num_draft_tokens": 4, "ngram": 2,
        "seed": null,
    });
    let answer = ask(question).unwrap();
    let mut written = Vec::new();
    for block in answer["blocks"].as_array().unwrap() {
        let new = block["written"].as_array().unwrap();
        let accepted = block["accepted"].as_u64().unwrap() as usize;
        let drafted = block["drafted"].as_array().unwrap();
        assert_eq!(new.len(), accepted + 1, "{block}");
        assert_eq!(new[..accepted], drafted[..accepted], "{block}");
        written.extend(new.clone());
    }
    assert!(answer["counts"]["accepted"].as_u64().unwrap() > 0, "{answer}");
    let params = json!({ "max_new_tokens": written.len() });
    let plain = json!({ "ask": "generate", "text": text, "params": params });
    let plain = ask(plain).unwrap();
    let plain: Vec<Value> =
        plain["new"].as_array().unwrap().iter().map(|token| token["token"].clone()).collect();
    assert_eq!(written, plain);
}

/// Each block writes the accepted path and one more token, the model's choice after that path. The
/// text is the same as without drafts.
#[test]
fn draft_trees_change_no_token() {
    open();
    let text = "The cat ran. The dog ran. The cat sat. The";
    let mut written = Vec::new();
    let mut accepted = 0;
    for blocks in 1..=12 {
        let question =
            json!({ "ask": "trees", "text": text, "blocks": blocks, "shape": [3, 2, 1] });
        let answer = ask(question).unwrap();
        let block = &answer["block"];
        let list = |name: &str| block[name].as_array().unwrap().clone();
        let path: Vec<usize> = list("path").iter().map(|n| n.as_u64().unwrap() as usize).collect();
        let choices = list("choices");
        assert_eq!(choices.len(), list("nodes").len(), "a row of logits for each node: {block}");
        let chosen: Vec<Value> = path.iter().map(|node| choices[*node].clone()).collect();
        assert_eq!(list("written"), chosen, "{block}");
        accepted += path.len() - 1;
        assert_eq!(answer["counts"]["accepted"].as_u64().unwrap() as usize, accepted);
        written.extend(chosen);
    }
    assert!(accepted > 0);
    let params = json!({ "max_new_tokens": written.len() });
    let plain = ask(json!({ "ask": "generate", "text": text, "params": params })).unwrap();
    let plain: Vec<Value> =
        plain["new"].as_array().unwrap().iter().map(|token| token["token"].clone()).collect();
    assert_eq!(written, plain);
}

/// The rail blocks the word where the model would otherwise have written it.
#[test]
fn the_rail_keeps_a_word_out_of_the_text() {
    open();
    let question = json!({
        "ask": "spelling", "word": "happy", "text": "Tom was happy.", "whole": false,
        "prompt": "Lily was very", "new": 12,
    });
    let answer = ask(question).unwrap();
    let text = |steps: &Value| {
        let steps = steps.as_array().unwrap().iter();
        steps.map(|step| step["token"].as_str().unwrap().to_string()).collect::<String>()
    };
    assert!(text(&answer["free"]).contains("happy"), "{}", answer["free"]);
    assert!(!text(&answer["railed"]).contains("happy"), "{}", answer["railed"]);
    let turned = |step: &&Value| step["rail"]["instead_of"].is_string();
    assert!(answer["railed"].as_array().unwrap().iter().any(|step| turned(&step)));
}

/// At the end of a text, the automaton for whole words is still waiting; and it reads only the
/// beginning of a long text.
#[test]
fn the_walk_says_what_it_does_not_know() {
    open();
    let walk = |text: &str, whole: bool| {
        let question = json!({
            "ask": "spelling", "word": "happy", "text": text, "whole": whole, "prompt": "Tom",
            "new": 1,
        });
        let answer = ask(question).unwrap();
        let broken = answer["walk"].as_array().unwrap().iter().any(|step| step["broken"] == true);
        (broken, answer["undecided"] == true, answer["cut"] == true)
    };
    assert!(walk("Tom was happy", false).0);
    assert_eq!(walk("Tom was happy", true), (false, true, false));
    assert_eq!(walk("Tom was happy.", true), (true, false, false));
    assert_eq!(walk("Tom was sad", true), (false, false, false));
    let long = format!("{}happy", "sad ".repeat(60));
    assert_eq!(walk(&long, true), (false, false, true));
}

/// The cache of Llama 3 8B with 64 rows of 8,192 positions has more bytes than a page can count in
/// 32 bits.
#[test]
fn bytes_of_a_batch_and_of_a_shape_the_reader_enters() {
    open();
    let question = |yours: [usize; 3]| {
        json!({
            "ask": "cache", "text": "Lily", "new": 1, "kind": "none", "capacity": 4,
            "positions": 8192, "rows": 64, "yours": yours,
        })
    };
    let answer = ask(question([32, 8, 128])).unwrap();
    let bytes = answer["bytes"].as_array().unwrap();
    assert_eq!(bytes[1]["all"], bytes[3]["all"], "Llama 3 8B has this shape");
    assert_eq!(bytes[3]["all"], 64.0 * 8192.0 * 131072.0);
    assert!(ask(question([0, 8, 128])).unwrap_err().starts_with("your model: 1 to"));
}

/// A low temperature drops no token, not even those whose probabilities round to 0 in f32.
#[test]
fn temperature_leaves_every_token() {
    open();
    let question = json!({
        "ask": "sampler", "text": "Once upon a", "order": ["temperature", "top_p"],
        "temperature": 0.1, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition": 1.0,
        "presence": 0.0, "frequency": 0.0, "bars": 2048, "seed": 1, "draws": 0,
    });
    let answer = ask(question).unwrap();
    let bars = answer["bars"].as_array().unwrap();
    assert!(bars.iter().any(|bar| bar["after"] == 0.0));
    assert!(bars.iter().all(|bar| bar["dropped"].is_null()));
    assert_eq!(answer["kept"], answer["vocab"]);
    assert!((answer["mass"].as_f64().unwrap() - 1.0).abs() < 1e-4, "{}", answer["mass"]);
}

/// Rows keep their numbers when one before them is empty, and a row too long for the figure is
/// refused: its mask would have hundreds of thousands of cells.
#[test]
fn rows_of_a_batch_are_numbered_and_limited() {
    open();
    let batch = |prompts: [&str; 3]| {
        ask(json!({ "ask": "batch", "prompts": prompts, "side": "left", "masked": true }))
    };
    let answer = batch(["", "Lily", "Tom had a"]).unwrap();
    let numbers: Vec<&Value> =
        answer["rows"].as_array().unwrap().iter().map(|row| &row["row"]).collect();
    assert_eq!(json!(numbers), json!([1, 2]));
    let long = "Tom had a red ball. ".repeat(20);
    let error = batch(["Lily", &long, ""]).unwrap_err();
    assert!(error.starts_with("row 1 has ") && error.ends_with("room for 24"), "{error}");
}

/// The best text ends at once. A single beam stops there, as greedy decoding does, and with two
/// beams it stays the best.
#[test]
fn a_beam_that_has_ended_can_be_the_best() {
    open();
    let search = |beams: usize| {
        let text = "They lived happily ever after.";
        ask(json!({ "ask": "beams", "text": text, "beams": beams, "steps": 7 })).unwrap()
    };
    let greedy = search(1);
    assert_eq!(greedy["steps"].as_array().unwrap().len(), 1, "{greedy}");
    assert_eq!(greedy["over"], true);
    for answer in [greedy, search(2)] {
        assert_eq!(answer["best"], json!(["<|endoftext|>"]));
        assert_eq!(answer["ended"], true);
    }
}

/// Llama 3 8B on day 16's laptop, with 16 rows of 1,024 positions: 172 ms, as in the chapter. The
/// time is the sum over the stages of the longer of their two times.
#[test]
fn the_times_of_the_stages_add_up() {
    let passes: [(f64, f64, usize, usize); 3] =
        [(1e11, 3.6e12, 16, 1023), (3.35e12, 9.89e14, 512, 256), (5.46e11, 1.7e13, 32, 128)];
    for (bandwidth, peak, rows, past) in passes {
        let question = json!({
            "ask": "roofline", "model": "Llama 3 8B", "bandwidth": bandwidth, "peak": peak,
            "weight_bytes": 2.0, "cache_bytes": 2.0, "rows": rows, "new": 1, "past": past,
        });
        let answer = ask(question).unwrap();
        let number = |value: &Value| value.as_f64().unwrap();
        let stages = answer["stages"].as_array().unwrap().iter();
        let sum: f64 = stages
            .map(|s| (number(&s["bytes"]) / bandwidth).max(number(&s["operations"]) / peak))
            .sum();
        let seconds = number(&answer["seconds"]);
        assert!((sum - seconds).abs() < 1e-9, "{sum} {seconds}");
        if rows == 16 {
            assert_eq!((seconds * 1e3).round(), 172.0);
        }
    }
}

#[test]
fn bad_texts_get_clear_errors() {
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
    let word = json!({
        "ask": "spelling", "word": "xylophonqq", "text": "🐈", "whole": true, "prompt": "Tom",
        "new": 2,
    });
    assert!(ask(word).unwrap()["paths"].as_u64().unwrap() > 0, "every byte is a token");
}

/// Day 21's pool: samples share the blocks of their prompt, and every block comes back.
#[test]
fn every_block_of_the_pool_comes_back() {
    let question = json!({"ask": "pages", "blocks": 12, "block_size": 4, "requests": [
        {"prompt": 6, "new": 5, "at": 0, "samples": 3},
        {"prompt": 36, "new": 2, "at": 1, "samples": 1},
    ]});
    let answer = ask(question).unwrap();
    let steps = answer["steps"].as_array().unwrap();
    assert_eq!(steps[0]["holders"].as_array().unwrap()[..3], [json!(3), json!(3), json!(0)]);
    assert_eq!(steps[1]["holders"].as_array().unwrap()[0], json!(3));
    assert_eq!(steps[1]["waiting"], json!([1]));
    let last = steps.last().unwrap();
    assert_eq!(last["free"].as_array().unwrap().len(), 12);
    assert_eq!(last["tables"], json!([]));
}

/// Day 22's dictionary: a conversation's second turn finds the blocks of its first, a different
/// salt finds nothing, and in a small pool a text's last blocks are evicted before its first ones.
#[test]
fn a_text_finds_blocks_that_an_earlier_one_has_filled() {
    let text = |tokens: std::ops::Range<u32>, prompt: usize, salt: &str| {
        let tokens: Vec<u32> = tokens.collect();
        json!({ "tokens": tokens, "prompt": prompt, "salt": salt })
    };
    let found = |blocks: usize, texts: Value| -> Vec<Value> {
        let answer =
            ask(json!({ "ask": "prefixes", "blocks": blocks, "block_size": 4, "texts": texts }));
        let answer = answer.unwrap();
        answer["steps"].as_array().unwrap().iter().map(|step| step["found"].clone()).collect()
    };
    let turns = json!([text(0..14, 10, ""), text(0..20, 16, ""), text(0..20, 16, "x")]);
    assert_eq!(found(20, turns), [json!(0), json!(12), json!(0)]);
    // Text 0 has ended when text 2 arrives and needs two of text 0's three blocks.
    let small = json!([
        text(0..12, 12, ""),
        text(50..54, 4, ""),
        text(60..68, 8, ""),
        text(50..54, 4, ""),
        text(0..13, 13, ""),
    ]);
    assert_eq!(found(5, small)[4], json!(4));
    let answer = ask(json!({ "ask": "prefixes", "blocks": 2, "block_size": 4,
        "texts": [text(0..12, 12, "")] }));
    assert_eq!(answer.unwrap()["steps"][0]["lacks"], 1);
}

/// Day 23's steps: no plan exceeds the budget, a preempted text is recomputed, and the texts are
/// the same in a large pool and a small one.
#[test]
fn no_step_of_the_figure_exceeds_its_budget() {
    open();
    let question = |blocks: usize| {
        json!({
            "ask": "budget", "max_num_batched_tokens": 8, "max_num_seqs": 8, "blocks": blocks,
            "block_size": 4, "prefixes": false, "requests": [
                {"text": "Once upon a time", "new": 12, "at": 0},
                {"text": "Lily", "new": 10, "at": 0},
                {"text": "Tom had a big red ball and a cat and a dog", "new": 8, "at": 2},
            ],
        })
    };
    let roomy = ask(question(40)).unwrap();
    assert_eq!(roomy["preemptions"], 0);
    let small = ask(question(7)).unwrap();
    assert!(small["preemptions"].as_u64().unwrap() > 0, "{small}");
    assert_eq!(roomy["texts"], small["texts"]);
    for step in small["steps"].as_array().unwrap() {
        let plan = step["plan"].as_array().unwrap();
        assert!(plan.iter().map(|part| part["new"].as_u64().unwrap()).sum::<u64>() <= 8);
    }
    let refused = ask(question(3)).unwrap();
    assert!(refused["refused"][0].as_str().unwrap().contains("the cache holds at most 12"));
}

#[test]
fn a_client_that_leaves_frees_its_slot() {
    open();
    let client = |leaves: Option<usize>| {
        let others = json!({ "choices": 1, "tokens": 3, "arrives": 0, "leaves": null });
        let leaving = json!({ "choices": 1, "tokens": 9, "arrives": 0, "leaves": leaves });
        ask(json!({ "ask": "serving", "clients": [leaving, others], "slots": 1, "steps": 20 }))
            .unwrap()
    };
    let stays = client(None);
    assert_eq!(stays["received"], json!([9, 3]));
    assert_eq!(stays["steps"].as_array().unwrap().len(), 12);
    let leaves = client(Some(2));
    assert_eq!(leaves["received"], json!([2, 3]));
    assert_eq!(leaves["steps"], json!([[[0, 0]], [[0, 0]], [[1, 1]], [[1, 1]], [[1, 1]]]));
}
