//! Tests of the memory that a run needs, by hand, and of the memory that there is.

use candecode::kit::ModelConfig;
use candecode_engine::memory_check::{amount, left, Need};
use candecode_engine::CacheConfig;
use candecode_testing::refused;

fn config(text: &str) -> ModelConfig {
    ModelConfig::from_json(text).unwrap()
}

/// Returns a model with 48 + 96 weights per layer, two layers, and a table of 40: 328 numbers.
fn tiny() -> ModelConfig {
    config(
        r#"{"model_type": "llama", "vocab_size": 10, "hidden_size": 4, "intermediate_size": 8, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16, "tie_word_embeddings": true}"#,
    )
}

#[test]
fn the_arithmetic_by_hand() {
    let model = tiny();
    let base = Need {
        models: vec![&model],
        weight_bytes: vec![2.0],
        value_bytes: 4,
        rows: 3,
        prompt: 5,
        new: 7,
        cache: Some(CacheConfig::Dynamic),
        pool: None,
        holds_scores: true,
        padded: false,
        beams: false,
    };
    assert_eq!(base.weights(), 328.0 * 2.0);
    // 3 rows of 12 tokens. Keys and values of 2 layers, 1 head, 2 wide, 4 bytes.
    assert_eq!(base.keys_and_values(), 3.0 * 12.0 * 2.0 * 2.0 * 2.0 * 4.0);
    // Scores and probabilities of 3 rows, 2 heads, 5 by 5.
    assert_eq!(base.scores(), 2.0 * 3.0 * 2.0 * 25.0 * 4.0);
    assert_eq!(base.total(), 656.0 + 1152.0 + 1200.0);
    let lean = Need { holds_scores: false, ..base.clone() };
    assert_eq!(lean.total(), 656.0 + 1152.0);
    let fixed = Need { cache: Some(CacheConfig::Static(0)), ..base.clone() };
    assert_eq!(fixed.keys_and_values(), 1152.0 / 12.0 * 16.0); // the whole context at once
    let none = Need { cache: None, ..base.clone() };
    assert_eq!((none.keys_and_values(), none.scores()), (0.0, 2.0 * 3.0 * 2.0 * 144.0 * 4.0));
    let long = Need { new: usize::MAX, ..base.clone() };
    // Never more than the context.
    assert_eq!(long.keys_and_values(), 1152.0 / 12.0 * 16.0);
    // A mask of 3 rows, 5 by 5; candidates of 3 beams and 10 tokens.
    let padded = Need { padded: true, ..lean.clone() };
    assert_eq!(padded.total(), lean.total() + 3.0 * 25.0);
    let beams = Need { beams: true, ..lean.clone() };
    assert_eq!(beams.total(), lean.total() + 3.0 * 10.0 * 24.0);
    let drafted =
        Need { models: vec![&model, &model], weight_bytes: vec![2.0, 2.0], ..base.clone() };
    assert_eq!(drafted.total(), 2.0 * (656.0 + 1152.0) + 1200.0); // one pass at a time
}

#[test]
fn chat_length_is_limited_by_memory_and_context() {
    let model = tiny();
    let need = Need {
        models: vec![&model],
        weight_bytes: vec![2.0],
        value_bytes: 4,
        rows: 1,
        prompt: 0,
        new: 7,
        cache: Some(CacheConfig::Dynamic),
        pool: None,
        holds_scores: false,
        padded: false,
        beams: false,
    };
    // 656 bytes of weights, and 32 bytes per token.
    for (room, longest) in [(656.0, 0), (687.0, 0), (688.0, 1), (656.0 + 320.0, 10), (1e9, 16)] {
        assert_eq!(need.longest(room), longest, "{room}");
    }
    // With tensors, 4 tokens have scores and probabilities of 2 heads, 4 by 4.
    let plain = Need { holds_scores: true, ..need };
    assert_eq!(plain.longest(656.0 + 128.0 + 256.0), 4);
}

#[test]
fn amounts_are_read() {
    for (text, want) in [
        ("8G", 8e9),
        ("500M", 5e8),
        ("1.5gb", 1.5e9),
        ("64k", 64e3),
        ("2T", 2e12),
        ("1000", 1000.0),
    ] {
        assert_eq!(amount(text).unwrap(), want, "{text}");
    }
    for text in ["", "G", "much", "-1G", "0", "8 X", "8Q", "inf", "NaN"] {
        refused(amount(text), &["CANDECODE_MEMORY is", "as 8G or 500M"]);
    }
}

#[test]
fn a_containers_free_memory_is_its_limit_minus_usage() {
    let stat = "anon 100\nfile 700\ninactive_file 400\nactive_file 200\nshmem 100\n";
    // 900 are in use, 600 can be reclaimed.
    assert_eq!(left("4000\n", "1500\n", stat), Some(3100.0));
    assert_eq!(left("4000", "", ""), Some(4000.0));
    assert_eq!(left("800", "1500", stat), Some(0.0));
    assert_eq!(left("max\n", "1500\n", stat), None);
}
