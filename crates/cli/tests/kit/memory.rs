//! Tests of the memory estimate for a run, and of the advice when the run doesn't fit.

use crate::flags::args;
use crate::refused;
use candecode::kit::ModelConfig;
use candecode_cli::flags::Args;
use candecode_cli::memory_need::need;
use candecode_cli::plan::plan;
use candecode_engine::memory_check::{amount, left, Need};
use candecode_engine::CacheKind;
use candle_core::{DType, Device};

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

/// Returns SmolLM2-135M's sizes.
fn smol() -> ModelConfig {
    config(
        r#"{"model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
        "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192,
        "tie_word_embeddings": true}"#,
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
        cache: Some(CacheKind::Dynamic),
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
    let fixed = Need { cache: Some(CacheKind::Static(0)), ..base.clone() };
    assert_eq!(fixed.keys_and_values(), 1152.0 / 12.0 * 16.0); // the whole context at once
    let none = Need { cache: None, ..base.clone() };
    assert_eq!((none.keys_and_values(), none.scores()), (0.0, 2.0 * 3.0 * 2.0 * 144.0 * 4.0));
    let long = Need { new: usize::MAX, ..base.clone() };
    assert_eq!(long.keys_and_values(), 1152.0 / 12.0 * 16.0); // never more than the context
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
        cache: Some(CacheKind::Dynamic),
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

fn ask(flags: &[&str], model: &ModelConfig, prompts: &[usize], room: f64) -> anyhow::Result<()> {
    let args = args(flags);
    let (day_loop, _) = plan(&args, prompts.len())?;
    let prompts: Vec<Vec<u32>> = prompts.iter().map(|len| vec![1; *len]).collect();
    let dtype = args.dtype.unwrap_or(DType::F32);
    let bytes = match args.quantize {
        Some(kind) => kind.model_bytes(model) / model.size() as f64,
        None => dtype.size_in_bytes() as f64,
    };
    let models = [(model, bytes)];
    need(&args, day_loop, &models, &prompts, dtype, &Device::Cpu).check(room)
}

#[test]
fn loops_need_memory_for_the_rows_that_run_at_once() {
    let model = tiny();
    let rows = |flags: &[&str], prompts: usize| {
        let args: Args = args(flags);
        let (day_loop, _) = plan(&args, prompts).unwrap();
        let prompts = vec![vec![1; 4]; prompts];
        need(&args, day_loop, &[(&model, 4.0)], &prompts, DType::F32, &Device::Cpu).rows
    };
    assert_eq!(rows(&[], 1), 1);
    assert_eq!(rows(&[], 5), 5);
    assert_eq!(rows(&["--top-k", "3", "--num-return-sequences", "4"], 2), 8);
    assert_eq!(rows(&["--num-beams", "6"], 3), 6); // one prompt after another
    assert_eq!(rows(&["--draft-ngram"], 3), 1);
    // A request may hold 4 + 6 tokens, so 35 have room for three.
    let scheduled = ["--loop", "day15", "--max-new-tokens", "6", "--max-batch-tokens", "35"];
    assert_eq!(rows(&scheduled, 9), 3);
    assert_eq!(rows(&scheduled, 2), 2);
}

#[test]
fn a_run_too_big_for_memory_is_refused_with_its_arithmetic() {
    let model = smol();
    let flags = ["--top-k", "9", "--num-return-sequences", "64", "--max-new-tokens", "8000"];
    assert!(ask(&flags, &model, &[100], 1e12).is_ok());
    let says = [
        "this needs 24.4 GB of memory, and 8.0 GB are available",
        "weights 537.9 MB",
        "cache 23.9 GB (64 rows × 8100 tokens × 2 × 30 layers × 3 heads × 64 × 4 bytes)",
        "fewer texts at once or a smaller --max-new-tokens need less",
    ];
    refused(ask(&flags, &model, &[100], 8e9), &says);
    refused(ask(&[], &model, &[4], 4e8), &["--dtype bf16, --quantize q8_0 or a smaller --model"]);
    assert!(ask(&["--dtype", "bf16"], &model, &[4], 4e8).is_ok());
    assert!(ask(&["--quantize", "q8_0"], &model, &[4], 2e8).is_ok());
    // 9 heads of 8000 by 8000, twice. Tensors store them, the kernels don't.
    refused(ask(&["--kernels", "plain"], &model, &[8000], 2e9), &["on the CPU --kernels fast"]);
    assert!(ask(&["--kernels", "fast"], &model, &[8000], 2e9).is_ok());
    // A static cache has the full context's length from the start.
    refused(ask(&["--cache", "static"], &model, &[4], 7e8), &["8192 tokens"]);
    let flags = ["--cache", "paged", "--num-blocks", "1000000", "--block-size", "64"];
    let says = ["(blocks of 64000000 positions in all × 2 × 30 layers", "fewer blocks need less"];
    refused(ask(&flags, &model, &[4], 8e9), &says);
    assert!(ask(&[], &model, &[4], 7e8).is_ok());
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
    assert_eq!(left("4000\n", "1500\n", stat), Some(3100.0)); // 900 are in use, 600 can be reclaimed
    assert_eq!(left("4000", "", ""), Some(4000.0));
    assert_eq!(left("800", "1500", stat), Some(0.0));
    assert_eq!(left("max\n", "1500\n", stat), None);
}
