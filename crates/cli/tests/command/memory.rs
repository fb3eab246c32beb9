//! Tests of the memory estimate for a run, and of the advice when the run doesn't fit.

use crate::flags::args;
use candecode::kit::ModelConfig;
use candecode_cli::flags::Args;
use candecode_cli::memory_need::need;
use candecode_cli::plan::plan;
use candecode_testing::refused;
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
        "24.4 GB",
        "8.0 GB",
        "weights 537.9 MB",
        "cache 23.9 GB (64 rows × 8100 tokens",
        "--max-new-tokens",
    ];
    refused(ask(&flags, &model, &[100], 8e9), &says);
    refused(ask(&[], &model, &[4], 4e8), &["--dtype bf16", "--quantize q8_0", "--model"]);
    assert!(ask(&["--dtype", "bf16"], &model, &[4], 4e8).is_ok());
    assert!(ask(&["--quantize", "q8_0"], &model, &[4], 2e8).is_ok());
    // 9 heads of 8000 by 8000, twice. Tensors store them, the kernels don't.
    refused(ask(&["--kernels", "plain"], &model, &[8000], 2e9), &["--kernels fast"]);
    assert!(ask(&["--kernels", "fast"], &model, &[8000], 2e9).is_ok());
    // A static cache has the full context's length from the start.
    refused(ask(&["--cache", "static"], &model, &[4], 7e8), &["8192 tokens"]);
    let flags = ["--cache", "paged", "--num-blocks", "1000000", "--block-size", "64"];
    refused(ask(&flags, &model, &[4], 8e9), &["64000000 positions", "fewer blocks"]);
    assert!(ask(&[], &model, &[4], 7e8).is_ok());
}
