//! Day 16's checks: the cost of a token.
//!
//! They're all arithmetic, so you can work out every number here with pencil and paper.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day16_cost_of_a_token;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day16_cost_of_a_token.rs"]
mod day16_cost_of_a_token;

use candecode::kit::ModelConfig;
use candle_core::{Device, Error, Result};
use frame::{
    equal, models_dir, near, refused, refused_calmly, small_model, Likely, Outcome, Random,
};

// Sums and products of a few exact f64 numbers in a different order: an error of a few times 1e-16.
const TOLERANCE: f64 = 1e-9;

/// The number of rows, new tokens per row, cached positions per row, and positions per row with
/// logits.
pub type Sizes = (usize, usize, usize, usize);

/// Bytes per weight, and bytes per number in the cache.
pub type Widths = (f64, f64);

/// Bandwidth in bytes per second, and peak in operations per second.
pub type Rates = (f64, f64);

/// The time at which a request was sent, and the times at which its tokens arrived.
pub type Times = (f64, Vec<f64>);

/// Time to first token, and time per output token.
pub type Waits = (f64, Option<f64>);

/// The percentiles 50, 90 and 99 of the times to first token and of the times per output token, and
/// the tokens per second.
pub type Sums = ([f64; 3], Option<[f64; 3]>, f64);

/// The day 16 functions under test.
#[derive(Clone, Copy)]
pub struct Day {
    pub layer_weights: fn(&ModelConfig) -> f64,
    pub weights_read: fn(&ModelConfig) -> f64,
    pub bytes_moved: fn(&ModelConfig, Sizes, Widths) -> [f64; 3],
    pub operations: fn(&ModelConfig, Sizes) -> [f64; 2],
    pub intensity: fn(f64, f64) -> f64,
    pub attainable: fn(Rates, f64) -> f64,
    pub predict: fn(Rates, f64, f64) -> (f64, &'static str),
    pub predict_pass: fn(Rates, &ModelConfig, Sizes, Widths) -> (f64, &'static str),
    pub critical_batch: fn(&ModelConfig, Widths, Rates) -> Option<usize>,
    pub rows_that_fit: fn(&ModelConfig, usize, Widths, f64) -> usize,
    pub largest_batch: fn(&ModelConfig, usize, Widths, Rates, f64, f64) -> usize,
    pub decode_rate: fn(&ModelConfig, usize, usize, Widths, Rates) -> f64,
    pub predict_latency: fn(&ModelConfig, usize, usize, Widths, Rates) -> Result<Waits>,
    pub verification_cost: fn(&ModelConfig, usize, usize, Widths, Rates) -> f64,
    pub best_draft_length: fn(&ModelConfig, usize, f64, usize, Widths, Rates) -> Result<usize>,
    pub latency: fn(Times) -> Result<Waits>,
    pub percentile: fn(&[f64], f64) -> Result<f64>,
    pub summarize: fn(Vec<Times>) -> Result<Sums>,
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        fn pass((rows, new, past, logits): crate::Sizes) -> code::Pass {
            code::Pass { rows, new, past, logits }
        }
        fn precision((weight_bytes, cache_bytes): crate::Widths) -> code::Precision {
            code::Precision { weight_bytes, cache_bytes }
        }
        fn machine((bandwidth, peak): crate::Rates) -> code::Machine {
            code::Machine { bandwidth, peak }
        }
        fn said(prediction: code::Prediction) -> (f64, &'static str) {
            let bound = match prediction.bound {
                code::Bound::Memory => "memory",
                code::Bound::Compute => "compute",
            };
            (prediction.seconds, bound)
        }
        fn trace((sent, tokens): crate::Times) -> code::RequestTrace {
            code::RequestTrace { sent, tokens }
        }
        crate::Day {
            layer_weights: code::layer_weights,
            weights_read: code::weights_read,
            bytes_moved: |config, sizes, widths| {
                let bytes = code::bytes_moved(config, &pass(sizes), &precision(widths));
                [bytes.weights, bytes.cache, bytes.logits]
            },
            operations: |config, sizes| {
                let operations = code::operations(config, &pass(sizes));
                [operations.weights, operations.attention]
            },
            intensity: code::intensity,
            attainable: |rates, intensity| machine(rates).attainable(intensity),
            predict: |rates, bytes, operations| said(machine(rates).predict(bytes, operations)),
            predict_pass: |rates, config, sizes, widths| {
                said(machine(rates).predict_pass(config, &pass(sizes), &precision(widths)))
            },
            critical_batch: |config, widths, rates| {
                code::critical_batch(config, &precision(widths), &machine(rates))
            },
            rows_that_fit: |config, length, widths, memory| {
                code::rows_that_fit(config, length, &precision(widths), memory)
            },
            largest_batch: |config, length, widths, rates, memory, seconds| {
                let (widths, rates) = (precision(widths), machine(rates));
                code::largest_batch(config, length, &widths, &rates, memory, seconds)
            },
            decode_rate: |config, rows, past, widths, rates| {
                code::decode_rate(config, rows, past, &precision(widths), &machine(rates))
            },
            predict_latency: |config, prompt, new, widths, rates| {
                let (widths, rates) = (precision(widths), machine(rates));
                let latency = code::predict_latency(config, prompt, new, &widths, &rates)?;
                Ok((latency.ttft, latency.tpot))
            },
            verification_cost: |config, past, drafts, widths, rates| {
                let (widths, rates) = (precision(widths), machine(rates));
                code::verification_cost(config, past, drafts, &widths, &rates)
            },
            best_draft_length: |config, past, acceptance, most, widths, rates| {
                let (widths, rates) = (precision(widths), machine(rates));
                code::best_draft_length(config, past, acceptance, most, &widths, &rates)
            },
            latency: |times| {
                let latency = trace(times).latency()?;
                Ok((latency.ttft, latency.tpot))
            },
            percentile: code::percentile,
            summarize: |times| {
                let traces: Vec<code::RequestTrace> = times.into_iter().map(trace).collect();
                let summary = code::summarize(&traces)?;
                let three = |of: code::Percentiles| [of.p50, of.p90, of.p99];
                Ok((three(summary.ttft), summary.tpot.map(three), summary.tokens_per_second))
            },
        }
    }};
}

frame::checks! {
    day16_cost_of_a_token:
    16.1: a_layer_by_hand, gpt2_has_two_matrices_in_its_mlp;
    16.2: the_head_counts_and_the_table_does_not, the_count_matches_the_models_files;
    16.3: bytes_by_hand, rows_share_only_the_weights, a_weight_can_take_a_fraction_of_a_byte;
    16.4: operations_by_hand, the_count_matches_a_loop;
    16.5: a_pass_by_hand, products_and_attention_run_in_turn, the_rate_counts_all_rows,
        llama_on_three_machines, a_pass_agrees_with_the_roofline;
    16.6: verifying_by_hand, zero_drafted_tokens_cost_one_step;
    16.7: the_critical_batch_by_hand, llama_in_batches, one_row_fewer_is_memory_bound;
    16.8: rows_fill_the_memory_left_by_the_weights, llama_in_memory;
    16.9: the_largest_batch_by_hand, llama_for_readers_in_a_hurry, one_row_more_breaks_a_limit;
    16.10: a_request_by_hand, prefill_needs_one_position_of_logits, a_single_new_token_has_no_tpot,
        an_empty_request_is_refused;
    16.11: the_best_draft_length, the_best_draft_length_between_two_bounds,
        an_invalid_acceptance_is_refused;
    16.12: three_requests_by_hand, no_requests_are_refused, one_request_by_hand,
        percentiles_equal_numpy, percentiles_are_in_order;
}

fn parsed(json: &str) -> Result<ModelConfig> {
    ModelConfig::from_json(json).map_err(|e| Error::Msg(format!("{e:#}")))
}

/// Returns a configuration with ten tokens, width 4, two layers, four query heads sharing two
/// key/value heads of width 2, an MLP of width 6, and an untied head.
fn tiny() -> Result<ModelConfig> {
    parsed(
        r#"{"model_type": "llama", "vocab_size": 10, "hidden_size": 4, "intermediate_size": 6,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 2, "max_position_embeddings": 64, "tie_word_embeddings": false}"#,
    )
}

/// Describes `tiny` in messages.
const TINY: &str = "V 10, C 4, 2 layers, 4 query and 2 key/value heads of 2, MLP 6";

/// Returns the configuration of Meta's Llama 3.1 8B, from its `config.json`.
fn llama_8b() -> Result<ModelConfig> {
    parsed(
        r#"{"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
            "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 131072,
            "tie_word_embeddings": false}"#,
    )
}

/// NVIDIA H100 SXM: 3.35 TB/s, and 989 TFLOPS of dense bf16 (the data sheet's 1,979 are with
/// sparsity).
const H100: Rates = (3.35e12, 989e12);
/// Apple M2 with ten GPU cores: 100 GB/s and 3.6 TFLOPS of f32, as presented by Apple in June 2022.
const M2: Rates = (100e9, 3.6e12);
/// Apple A17 Pro: LPDDR5-6400 on 64 bits is 51.2 GB/s. Its Neural Engine does 35 trillion
/// operations a second, Apple's own figure, for 8-bit integers.
const A17: Rates = (51.2e9, 35e12);
const BF16: Widths = (2.0, 2.0);
/// llama.cpp's Q4_0: 32 weights in 18 bytes, with an f16 cache.
const Q4_0: Widths = (18.0 / 32.0, 2.0);

/// Checks several numbers, each under its own name.
fn all_near<const N: usize>(
    input: &str,
    names: [&str; N],
    got: [f64; N],
    want: [f64; N],
) -> Outcome {
    for i in 0..N {
        near(&format!("{}, {input}", names[i]), Ok(got[i]), want[i], TOLERANCE)?;
    }
    Ok(())
}

const BYTES: [&str; 3] = ["bytes of weights", "bytes of the cache", "bytes of logits"];
const PERCENTS: [&str; 3] = ["percentile 50", "percentile 90", "percentile 99"];
const COUNTS: [&str; 2] = ["operations with weights", "operations of attention"];

fn shown((rows, new, past, logits): Sizes) -> String {
    format!("{rows} rows of {new} new tokens after {past}, logits for {logits} of them")
}

/// Returns a small configuration with random sizes.
fn random_config(random: &mut Random) -> Result<ModelConfig> {
    let family = ["llama", "qwen2", "qwen3", "gpt2"][random.below(4)];
    let (kv_heads, group) = (1 + random.below(3), 1 + random.below(3));
    let heads = if family == "gpt2" { kv_heads } else { kv_heads * group };
    let head_dim = 2 * (1 + random.below(3));
    // In Qwen3 the heads' total width can differ from the hidden size. In GPT-2 it can't.
    let hidden = if family == "qwen3" { 2 + random.below(9) } else { heads * head_dim };
    let head_dim_key =
        if family == "gpt2" { String::new() } else { format!(r#""head_dim": {head_dim},"#) };
    parsed(&format!(
        r#"{{"model_type": "{family}", "vocab_size": {}, "hidden_size": {hidden},
            "intermediate_size": {}, "num_hidden_layers": {}, "num_attention_heads": {heads},
            "num_key_value_heads": {kv_heads}, {head_dim_key}
            "max_position_embeddings": 64, "tie_word_embeddings": {}}}"#,
        2 + random.below(20),
        1 + random.below(9),
        1 + random.below(3),
        random.below(2) == 0,
    ))
}

fn a_layer_by_hand(day: &Day) -> Outcome {
    // q is 4·8, k and v are 4·4 each, the output is 8·4, and there are three matrices of 4·6. C is
    // 4, and all heads together are 8 wide.
    near(&format!("layer_weights, {TINY}"), Ok((day.layer_weights)(&tiny()?)), 168.0, TOLERANCE)?;
    // q and output are 4096² each, k and v 4096·1024 each, plus 3 · 4096·14336.
    let got = (day.layer_weights)(&llama_8b()?);
    near("layer_weights of Llama 3.1 8B", Ok(got), 218_103_808.0, TOLERANCE)
}

fn gpt2_has_two_matrices_in_its_mlp(day: &Day) -> Outcome {
    let config = parsed(
        r#"{"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12,
            "n_positions": 1024}"#,
    )?;
    // q, k, v and output are 768² each, plus two matrices of 768 · 3072.
    let got = (day.layer_weights)(&config);
    near("layer_weights of GPT-2", Ok(got), 7_077_888.0, TOLERANCE)
}

fn the_head_counts_and_the_table_does_not(day: &Day) -> Outcome {
    let untied = tiny()?;
    let tied = ModelConfig { tie_word_embeddings: true, ..untied.clone() };
    for (config, which) in [(untied, "a head of its own"), (tied, "a tied head")] {
        // 2 · 168 in the layers, and 10 · 4 in the head.
        let input = format!("weights_read, {which}, {TINY}");
        near(&input, Ok((day.weights_read)(&config)), 376.0, TOLERANCE)
            .likely("if a check of task 16.1 fails, fix that first")?;
    }
    let got = (day.weights_read)(&llama_8b()?);
    near("weights_read of Llama 3.1 8B", Ok(got), 7_504_658_432.0, TOLERANCE)
}

fn the_count_matches_the_models_files(day: &Day) -> Outcome {
    let folders = [
        (models_dir()?.join("story-3m"), ""),
        (models_dir()?.join("story-gpt2-1m"), "wpe"),
        (small_model("tiny-llama"), "embed_tokens"),
        (small_model("tiny-qwen2"), "embed_tokens"),
        (small_model("tiny-qwen3"), "embed_tokens"),
    ];
    for (folder, looked_up) in folders {
        let config =
            candecode_formats::read_config(&folder).map_err(|e| Error::Msg(format!("{e:#}")))?;
        let file = folder.join("model.safetensors");
        let tensors = candle_core::safetensors::load(file, &Device::Cpu)?;
        // A tied table is also the head, so it takes part in a product. In an untied one rows are
        // only looked up.
        let counts = |name: &str| {
            let table = name.contains(looked_up) && !looked_up.is_empty();
            let tied = looked_up == "embed_tokens" && config.tie_word_embeddings;
            !table || tied
        };
        let matrices = tensors.iter().filter(|(name, tensor)| tensor.rank() == 2 && counts(name));
        let want: usize = matrices.map(|(_, tensor)| tensor.elem_count()).sum();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let input = format!("weights_read of {name}, against the size of its matrices");
        near(&input, Ok((day.weights_read)(&config)), want as f64, TOLERANCE)?;
    }
    Ok(())
}

fn bytes_by_hand(day: &Day) -> Outcome {
    let config = tiny()?;
    // 376 weights of 2 bytes. A position is 2 · 2 layers · 2 heads · 2 = 16 numbers of 4 bytes, and
    // there are 3 · (4 + 1) positions. Logits: 3 · 10 of 4 bytes.
    let decode: Sizes = (3, 1, 4, 1);
    let input = format!("{}, weights of 2 bytes, cache of 4", shown(decode));
    let got = (day.bytes_moved)(&config, decode, (2.0, 4.0));
    all_near(&input, BYTES, got, [752.0, 960.0, 120.0])
        .likely("if a check of task 16.2 fails, fix that first")?;
    // A prompt of 5 with nothing cached: its own keys and values, and one position of logits.
    let prefill: Sizes = (2, 5, 0, 1);
    let input = format!("{}, weights of 4 bytes, cache of 2", shown(prefill));
    let got = (day.bytes_moved)(&config, prefill, (4.0, 2.0));
    all_near(&input, BYTES, got, [1504.0, 320.0, 80.0])?;
    let verify: Sizes = (1, 5, 7, 5);
    let input = format!("{}, all of 2 bytes", shown(verify));
    let got = (day.bytes_moved)(&config, verify, BF16);
    all_near(&input, BYTES, got, [752.0, 384.0, 200.0])
}

fn rows_share_only_the_weights(day: &Day) -> Outcome {
    let mut random = Random::new(16);
    for _ in 0..50 {
        let config = random_config(&mut random)?;
        let new = 1 + random.below(5);
        let sizes: Sizes = (1 + random.below(9), new, random.below(50), 1 + random.below(new));
        let widths = ((1 + random.below(4)) as f64, (1 + random.below(4)) as f64);
        let alone = (day.bytes_moved)(&config, (1, sizes.1, sizes.2, sizes.3), widths);
        let rows = sizes.0 as f64;
        let want = [alone[0], rows * alone[1], rows * alone[2]];
        let input = format!("{}, against one such row", shown(sizes));
        all_near(&input, BYTES, (day.bytes_moved)(&config, sizes, widths), want)?;
    }
    Ok(())
}

fn a_weight_can_take_a_fraction_of_a_byte(day: &Day) -> Outcome {
    let decode: Sizes = (1, 1, 0, 1);
    let got = (day.bytes_moved)(&llama_8b()?, decode, Q4_0);
    // 7,504,658,432 · 18 / 32 bytes of weights, 131,072 bytes per position, and 128,256 logits of 4
    // bytes.
    let want = [4_221_370_368.0, 131_072.0, 513_024.0];
    all_near("one token of Llama 3.1 8B in Q4_0 (0.5625 bytes), cache f16", BYTES, got, want)
}

fn operations_by_hand(day: &Day) -> Outcome {
    let config = tiny()?;
    // Layers: 2 · 336 weights · 3 tokens. Head: 2 · 40 · 3. Attention: 4 · 2 layers · 3 rows · 5
    // keys · 8 (the width of all query heads together).
    let decode: Sizes = (3, 1, 4, 1);
    all_near(&shown(decode), COUNTS, (day.operations)(&config, decode), [2256.0, 960.0])
        .likely("if a check of task 16.1 fails, fix that first")?;
    // 2 rows of 4 tokens after 3 positions: they see 4, 5, 6 and 7 keys, 22 in total.
    let prefill: Sizes = (2, 4, 3, 1);
    all_near(&shown(prefill), COUNTS, (day.operations)(&config, prefill), [5536.0, 2816.0])?;
    let verify: Sizes = (1, 3, 5, 3);
    all_near(&shown(verify), COUNTS, (day.operations)(&config, verify), [2256.0, 1344.0])?;
    // 2 · (32 · 218,103,808 + 128,256 · 4096), plus 4 · 32 · 4096 for the one key.
    let got = (day.operations)(&llama_8b()?, (1, 1, 0, 1));
    all_near("the first token of Llama 3.1 8B", COUNTS, got, [15_009_316_864.0, 524_288.0])
}

fn the_count_matches_a_loop(day: &Day) -> Outcome {
    let mut random = Random::new(4);
    for _ in 0..40 {
        let config = random_config(&mut random)?;
        let new = 1 + random.below(4);
        let sizes: Sizes = (1 + random.below(3), new, random.below(9), 1 + random.below(new));
        let (rows, new, past, logits) = sizes;
        let c = config.hidden_size;
        let wide = |heads: usize| heads * config.head_dim;
        let (q, kv) = (wide(config.num_attention_heads), wide(config.num_key_value_heads));
        let mlp: &[(usize, usize)] = match config.family {
            candecode::kit::Family::Gpt2 => &[(config.intermediate_size, c); 2],
            _ => &[(config.intermediate_size, c); 3],
        };
        let mut matrices = vec![(q, c), (kv, c), (kv, c), (c, q)];
        matrices.extend(mlp);
        let (mut products, mut attention) = (0, 0);
        for _row in 0..rows {
            for token in 0..new {
                for _layer in 0..config.num_hidden_layers {
                    for (out, inner) in &matrices {
                        products += 2 * out * inner;
                    }
                    for _head in 0..config.num_attention_heads {
                        for _key in 0..past + token + 1 {
                            attention += 2 * config.head_dim; // the score
                            attention += 2 * config.head_dim; // its share of the value
                        }
                    }
                }
            }
            products += 2 * config.vocab_size * c * logits;
        }
        let input = format!("{}, {config:?}", shown(sizes));
        let want = [f64::from(products as u32), f64::from(attention as u32)];
        all_near(&input, COUNTS, (day.operations)(&config, sizes), want)?;
    }
    Ok(())
}

fn a_pass_agrees_with_the_roofline(day: &Day) -> Outcome {
    let mut random = Random::new(7);
    for _ in 0..100 {
        let config = random_config(&mut random)?;
        let new = 1 + random.below(6);
        let sizes: Sizes = (1 + random.below(9), new, random.below(9), 1 + random.below(new));
        let machine: Rates = ((1 + random.below(1000)) as f64, (1 + random.below(3000)) as f64);
        let (seconds, _) = (day.predict_pass)(machine, &config, sizes, BF16);
        let [weights, cache, logits] = (day.bytes_moved)(&config, sizes, BF16);
        let [products, attention] = (day.operations)(&config, sizes);
        let time = |bytes: f64, operations: f64| {
            let intensity = (day.intensity)(bytes, operations);
            operations / (day.attainable)(machine, intensity)
        };
        let want = time(weights + logits, products) + time(cache, attention);
        let input = format!("{machine:?}, {}, {config:?}", shown(sizes));
        near(&format!("seconds, {input}"), Ok(seconds), want, TOLERANCE)?;
    }
    // The given roofline itself, in numbers.
    let machine: Rates = (10.0, 80.0);
    for (intensity, want) in [(0.5, 5.0), (2.0, 20.0), (8.0, 80.0), (100.0, 80.0)] {
        let input = format!("10 bytes and at most 80 operations a second, intensity {intensity}");
        near(&input, Ok((day.attainable)(machine, intensity)), want, TOLERANCE)?;
    }
    // Bytes take 6 s and operations 5 s, then 2 s and 5 s, then 3 s each.
    for (bytes, operations, seconds, bound) in
        [(60.0, 400.0, 6.0, "memory"), (20.0, 400.0, 5.0, "compute"), (30.0, 240.0, 3.0, "compute")]
    {
        let input = format!("{bytes} bytes at 10 a second, {operations} operations at 80 a second");
        let (got, said) = (day.predict)(machine, bytes, operations);
        near(&format!("seconds, {input}"), Ok(got), seconds, TOLERANCE)?;
        equal(&format!("the bound, {input}"), Ok(said), &bound)?;
    }
    Ok(())
}

fn a_pass_by_hand(day: &Day) -> Outcome {
    // Three rows decode after 4 positions, with 2 bytes per weight and 4 per cached number. The
    // products move 752 + 120 bytes and compute 2256 operations, and attention moves 960 bytes and
    // computes 960 operations. At 8 bytes per second that's 109 s and 120 s.
    let config = tiny()?;
    let sizes: Sizes = (3, 1, 4, 1);
    for (peak, seconds, bound) in [
        (12.0, 188.0 + 120.0, "compute"),
        (20.0, 112.8 + 120.0, "memory"),
        (40.0, 109.0 + 120.0, "memory"),
        (4.0, 564.0 + 240.0, "compute"),
    ] {
        let (got, said) = (day.predict_pass)((8.0, peak), &config, sizes, (2.0, 4.0));
        let input = format!("8 bytes and {peak} operations a second, {}, {TINY}", shown(sizes));
        near(&format!("seconds, {input}"), Ok(got), seconds, TOLERANCE)
            .likely("if a check of task 16.3 or 16.4 fails, fix that first")?;
        equal(&format!("the bound, {input}"), Ok(said), &bound)?;
    }
    // With 1 byte per weight and 2 per cached number, one row after 12 positions moves 416 bytes in
    // the products and 416 in attention. At 8 bytes per second both take 52 s. Attention's 832
    // operations also take 52 s, and the products' 752 take 47 s.
    let sizes: Sizes = (1, 1, 12, 1);
    let (got, said) = (day.predict_pass)((8.0, 16.0), &config, sizes, (1.0, 2.0));
    let input = format!("8 bytes and 16 operations a second, {}, {TINY}", shown(sizes));
    near(&format!("seconds, {input}"), Ok(got), 104.0, TOLERANCE)?;
    equal(&format!("the bound if both take the same time, {input}"), Ok(said), &"memory")
}

fn llama_on_three_machines(day: &Day) -> Outcome {
    let config = llama_8b()?;
    let decode: Sizes = (1, 1, 1024, 1);
    let prefill: Sizes = (1, 1024, 0, 1);
    // Bytes of a decode step, bf16: 15,009,316,864 + 1025 · 131,072 + 513,024 = 15,144,178,688.
    // Q4_0: 4,221,370,368 + the same 134,861,824. Operations of the prefill: 2 · 1024 · 32 ·
    // 218,103,808 + 2 · 525,336,576 for the one position of logits + 4 · 32 · 4096 · 1024 · 1025 /
    // 2.
    for (name, machine, widths, sizes, ms, bound) in [
        ("an H100, bf16", H100, BF16, decode, 4.520_650_354_626_866, "memory"),
        ("an M2, bf16", M2, BF16, decode, 151.441_786_88, "memory"),
        ("an A17 Pro, Q4_0", A17, Q4_0, decode, 85.082_66, "memory"),
        ("an H100, bf16", H100, BF16, prefill, 14_569_848_176_640.0 / 989e9, "compute"),
        ("an M2, bf16", M2, BF16, prefill, 4_047.180_049_066_666, "compute"),
        ("an A17 Pro, Q4_0", A17, Q4_0, prefill, 416.281_376_475_428_5, "compute"),
    ] {
        let input = format!("Llama 3.1 8B on {name}: {}", shown(sizes));
        let (seconds, said) = (day.predict_pass)(machine, &config, sizes, widths);
        near(&format!("milliseconds, {input}"), Ok(1e3 * seconds), ms, TOLERANCE).likely(
            "this builds on tasks 16.1 to 16.4: if one of their checks fails, fix that first",
        )?;
        equal(&format!("the bound, {input}"), Ok(said), &bound)?;
    }
    Ok(())
}

fn the_critical_batch_by_hand(day: &Day) -> Outcome {
    // At 2 bytes per number: 752 bytes of weights for all rows together, and 40 bytes of logits and
    // 752 operations per row.
    let config = tiny()?;
    for (machine, want) in [
        // 752 + 40 b bytes take b · 752 / 17.5 seconds: b = 752 / 2.971 = 253.1.
        ((1.0, 17.5), Some(254)),
        // 752 + 40 b = 752 b / 2: b = 752 / 336 = 2.2.
        ((1.0, 2.0), Some(3)),
        // 752 + 40 b = 752 b / 4: b = 752 / 148 = 5.08.
        ((1.0, 4.0), Some(6)),
        // 752 / 2 + 40 b / 2 = 752 b: one row is enough.
        ((2.0, 1.0), Some(1)),
        // A row's operations take 37.6 s and its logits 40 s, so adding rows never helps.
        ((1.0, 20.0), None),
    ] {
        let input = format!(
            "{TINY}, 2 bytes per number, {} byte and {} operations a second",
            machine.0, machine.1
        );
        equal(&input, Ok((day.critical_batch)(&config, BF16, machine)), &want)
            .likely("if a check of task 16.3 or 16.4 fails, fix that first")?;
    }
    // 376 weights of 7 bits are 329 bytes. 329 + 40 b = 752 b / 16: both take equally long at 47.
    let input = format!("{TINY}, 7 bits per weight, 1 byte and 16 operations a second");
    equal(&input, Ok((day.critical_batch)(&config, (0.875, 2.0), (1.0, 16.0))), &Some(47))
        .likely("a stage is compute-bound if computing takes as long as moving, or longer")
}

fn llama_in_batches(day: &Day) -> Outcome {
    let config = llama_8b()?;
    for (name, machine, want) in [("an H100", H100, 299), ("an M2", M2, 37)] {
        let input = format!("Llama 3.1 8B in bf16 on {name}");
        equal(&input, Ok((day.critical_batch)(&config, BF16, machine)), &Some(want))?;
    }
    Ok(())
}

fn rows_fill_the_memory_left_by_the_weights(day: &Day) -> Outcome {
    // 376 weights that a pass reads, and 40 in an embedding table that isn't tied. A position takes
    // 16 numbers.
    let untied = tiny()?;
    let tied = ModelConfig { tie_word_embeddings: true, ..untied.clone() };
    for (config, head, length, widths, memory, want) in [
        // 416 weights of 4 bytes leave 1280, and a row takes 2 · 32 = 64.
        (&untied, "untied", 2, (4.0, 2.0), 2944.0, 20),
        // 2048 - 832 = 1216 bytes for rows of 8 · 32 = 256: 4.75. Tied it's 1296 bytes: 5.06.
        (&untied, "untied", 8, BF16, 2048.0, 4),
        (&tied, "tied", 8, BF16, 2048.0, 5),
        // Exactly four rows, and a byte less.
        (&untied, "untied", 8, BF16, 1856.0, 4),
        (&untied, "untied", 8, BF16, 1855.0, 3),
        // 416 bytes of weights at 1 byte, and rows of 8 · 64 = 512 at 4 bytes: 3.1875.
        (&untied, "untied", 8, (1.0, 4.0), 2048.0, 3),
        // The weights alone don't fit.
        (&untied, "untied", 8, BF16, 800.0, 0),
        (&untied, "untied", 8, BF16, 300.0, 0),
    ] {
        let input = format!(
            "{length} positions a row, {memory} bytes, weights of {} and a cache of {} bytes a \
             number, {TINY}, {head}",
            widths.0, widths.1
        );
        equal(&input, Ok((day.rows_that_fit)(config, length, widths, memory)), &want)
            .likely("if a check of task 16.2 or 16.3 fails, fix that first")?;
    }
    Ok(())
}

fn llama_in_memory(day: &Day) -> Outcome {
    // 8,029,995,008 weights including the embedding table, and 131,072 bytes per position. In bf16,
    // 63.94 of 80 GB are left; at 4.5 bits a weight, 11.48 of 16 GB.
    let config = llama_8b()?;
    for (name, length, widths, memory, want) in [
        ("in bf16", 1024, BF16, 80e9, 476),
        ("in bf16", 8192, BF16, 80e9, 59),
        ("in bf16", 1024, BF16, 16e9, 0),
        ("in Q4_0", 1024, Q4_0, 16e9, 85),
    ] {
        let input = format!("Llama 3.1 8B {name}, {length} positions, {memory:e} bytes");
        equal(&input, Ok((day.rows_that_fit)(&config, length, widths, memory)), &want)
            .likely("if a check of task 16.2 or 16.3 fails, fix that first")?;
    }
    Ok(())
}

fn the_largest_batch_by_hand(day: &Day) -> Outcome {
    // A step of b rows, 5 positions each, at 8 bytes per second: (752 + 40 b + 160 b) / 8 s, which
    // is 119, 144, 169 and 194 s for 1 to 4 rows. At 32 operations per second, computing takes
    // less. A row takes 160 bytes next to the 832 of the weights.
    let config = tiny()?;
    for (memory, seconds, want) in [
        // Four rows fit, but none is fast enough.
        (1500.0, 20.0, 0),
        (1500.0, 80.0, 0),
        // Three are fast enough, then exactly in time.
        (1500.0, 175.0, 3),
        (1500.0, 169.0, 3),
        (1500.0, 168.0, 2),
        // Two rows fit, and three would be fast enough.
        (1200.0, 169.0, 2),
        // All four that fit are fast enough.
        (1500.0, 1000.0, 4),
        // One row takes 119 s.
        (1500.0, 118.0, 0),
        // No row fits.
        (900.0, 1000.0, 0),
    ] {
        let input = format!(
            "5 positions a row, 8 bytes and 32 operations a second, {memory} bytes, at most \
             {seconds} s a step, {TINY}"
        );
        let got = (day.largest_batch)(&config, 5, BF16, (8.0, 32.0), memory, seconds);
        equal(&input, Ok(got), &want)
            .likely("if a check of task 16.5 or 16.8 fails, fix that first")?;
    }
    Ok(())
}

fn llama_for_readers_in_a_hurry(day: &Day) -> Outcome {
    let config = llama_8b()?;
    for (length, seconds, want) in [
        (1024, 0.05, 476),
        (1024, 0.02, 362),
        (1024, 0.01, 137),
        (8192, 0.05, 59),
        (8192, 0.02, 48),
    ] {
        let input = format!(
            "Llama 3.1 8B in bf16 on an H100 with 80 GB, {length} positions, {} ms a token",
            1e3 * seconds
        );
        let got = (day.largest_batch)(&config, length, BF16, H100, 80e9, seconds);
        equal(&input, Ok(got), &want)?;
    }
    Ok(())
}

fn one_row_more_breaks_a_limit(day: &Day) -> Outcome {
    let mut random = Random::new(16);
    for _ in 0..100 {
        let config = random_config(&mut random)?;
        let length = 1 + random.below(20);
        let weights = 2.0 * 2.0 * (day.weights_read)(&config);
        let memory = weights + (1 + random.below(5000)) as f64;
        // Irregular numbers, so that no step takes exactly the limit.
        let machine: Rates =
            (1.0 + random.below(1000) as f64 / 997.0, 1.0 + random.below(8000) as f64 / 991.0);
        let time =
            |rows: usize| (day.predict_pass)(machine, &config, (rows, 1, length - 1, 1), BF16).0;
        let limit = time(1 + random.below(20)) * 1.003;
        let fit = (day.rows_that_fit)(&config, length, BF16, memory);
        let got = (day.largest_batch)(&config, length, BF16, machine, memory, limit);
        let input = format!("{got} rows, {length} positions, {memory} bytes, at most {limit} s");
        equal(&format!("fits, {input}, {config:?}"), Ok(got <= fit), &true)?;
        let is_fast = got == 0 || time(got) <= limit;
        equal(&format!("is fast enough, {input}, {config:?}"), Ok(is_fast), &true)?;
        let has_room = got < fit && time(got + 1) <= limit;
        let input = format!("leaves room and time for another row, {input}, {config:?}");
        equal(&input, Ok(has_room), &false)?;
    }
    Ok(())
}

fn products_and_attention_run_in_turn(day: &Day) -> Outcome {
    // 400 rows of Llama after 1,024 positions on an H100: the products are bound by operations and
    // attention by memory, so the times add up.
    let config = llama_8b()?;
    let sizes: Sizes = (400, 1, 1024, 1);
    let want = 400.0 * 15_009_316_864.0 / 989e12 + 400.0 * 1025.0 * 131_072.0 / 3.35e12;
    let (seconds, said) = (day.predict_pass)(H100, &config, sizes, BF16);
    let input = format!("Llama 3.1 8B on an H100, bf16: {}", shown(sizes));
    near(&format!("seconds, {input}"), Ok(seconds), want, TOLERANCE)
        .likely("if a check of task 16.3 or 16.4 fails, fix that first")?;
    equal(&format!("the bound of attention, which takes longer, {input}"), Ok(said), &"memory")
}

fn one_row_fewer_is_memory_bound(day: &Day) -> Outcome {
    let mut random = Random::new(9);
    for _ in 0..100 {
        let config = random_config(&mut random)?;
        // Irregular numbers, so that the two times are never equal.
        let machine: Rates =
            (1.0 + random.below(1000) as f64 / 997.0, 1.0 + random.below(8000) as f64 / 991.0);
        let bound = |rows| {
            let sizes: Sizes = (rows, 1, 0, 1);
            let [weights, _, logits] = (day.bytes_moved)(&config, sizes, BF16);
            (day.predict)(machine, weights + logits, (day.operations)(&config, sizes)[0]).1
        };
        let input = format!("{machine:?}, {config:?}");
        match (day.critical_batch)(&config, BF16, machine) {
            Some(rows) => {
                equal(&format!("the bound of {rows} rows, {input}"), Ok(bound(rows)), &"compute")?;
                if rows > 1 {
                    let fewer = rows - 1;
                    equal(
                        &format!("the bound of {fewer} rows, {input}"),
                        Ok(bound(fewer)),
                        &"memory",
                    )?;
                }
            }
            None => equal(
                &format!("the bound of 10⁹ rows, {input}"),
                Ok(bound(1_000_000_000)),
                &"memory",
            )?,
        }
    }
    Ok(())
}

fn the_rate_counts_all_rows(day: &Day) -> Outcome {
    let config = tiny()?;
    // 752 + 3 · 200 bytes at 100 bytes per second take 13.52 s for three tokens.
    let got = (day.decode_rate)(&config, 3, 4, BF16, (100.0, 1e9));
    near(&format!("3 rows, 4 cached positions, {TINY}"), Ok(got), 3.0 / 13.52, TOLERANCE)?;
    let llama = llama_8b()?;
    let got = (day.decode_rate)(&llama, 1, 1024, BF16, M2);
    near("Llama 3.1 8B in bf16 on an M2", Ok(got), 1.0 / 0.151_441_786_88, TOLERANCE)
}

fn waits(input: &str, got: Result<Waits>, want: Waits) -> Outcome {
    let (ttft, tpot) = got?;
    near(&format!("time to first token, {input}"), Ok(ttft), want.0, TOLERANCE)?;
    match (tpot, want.1) {
        (Some(tpot), Some(want)) => {
            near(&format!("time per output token, {input}"), Ok(tpot), want, TOLERANCE)
        }
        (got, want) => equal(&format!("time per output token, {input}"), Ok(got), &want),
    }
}

fn a_request_by_hand(day: &Day) -> Outcome {
    let config = tiny()?;
    // Prompt 3: 752 + 3 · 32 + 40 = 888 bytes. Then tokens are fed after 3, 4 and 5 positions:
    // 752 + 40, plus 4, 5 and 6 positions of 32 bytes, which averages 952.
    let input = format!("prompt 3, 4 new tokens, 8 bytes a second, {TINY}");
    let got = (day.predict_latency)(&config, 3, 4, BF16, (8.0, 1e9));
    waits(&input, got, (111.0, Some(119.0)))?;
    // The prefill is bound by operations: 2 · (336 · 8 + 40) + 4 · 2 · 36 · 8 = 7760. A step moves
    // 752 + 40 + 9 · 32 = 1080 bytes at 40 bytes per second.
    let input = format!("prompt 8, 2 new tokens, 40 bytes and 100 operations a second, {TINY}");
    let got = (day.predict_latency)(&config, 8, 2, BF16, (40.0, 100.0));
    waits(&input, got, (77.6, Some(27.0)))
}

fn prefill_needs_one_position_of_logits(day: &Day) -> Outcome {
    let config = tiny()?;
    // 888 bytes at 8 bytes per second, and 7760 operations at 97 per second, both from the check by
    // hand.
    let by_memory = (day.predict_latency)(&config, 3, 1, BF16, (8.0, 1e9))?;
    let by_operations = (day.predict_latency)(&config, 8, 1, BF16, (1e9, 97.0))?;
    let got = (by_memory.0.round() as i64, by_operations.0.round() as i64);
    let input = "seconds to the first token: prompt 3, bound by memory; prompt 8, by operations";
    equal(&format!("{input}, {TINY}"), Ok(got), &(111, 80))
}

fn a_single_new_token_has_no_tpot(day: &Day) -> Outcome {
    let got = (day.predict_latency)(&tiny()?, 3, 1, BF16, (8.0, 1e9));
    waits("prompt 3, 1 new token", got, (111.0, None))
}

fn an_empty_request_is_refused(day: &Day) -> Outcome {
    let config = tiny()?;
    let call = |prompt, new| (day.predict_latency)(&config, prompt, new, BF16, M2);
    refused_calmly("prompt 0, 4 new tokens", || call(0, 4))?;
    refused_calmly("prompt 4, no new token", || call(4, 0))
}

fn verifying_by_hand(day: &Day) -> Outcome {
    let config = tiny()?;
    // One token after 4 positions: 752 + 5 · 32 + 40 = 952 bytes. With three drafts there are 4
    // tokens: 752 + 8 · 32 + 160 = 1168 bytes.
    let input = format!("3 drafts after 4 positions, bound by memory, {TINY}");
    let got = (day.verification_cost)(&config, 4, 3, BF16, (10.0, 1e9));
    near(&input, Ok(got), 1168.0 / 952.0, TOLERANCE)?;
    // Operations: 752 + 320 = 1072 for one token, 4 · 752 + 4 · 2 · 26 · 8 = 4672 for four.
    let input = format!("3 drafts after 4 positions, bound by operations, {TINY}");
    let got = (day.verification_cost)(&config, 4, 3, BF16, (1e9, 10.0));
    near(&input, Ok(got), 4672.0 / 1072.0, TOLERANCE)
}

fn zero_drafted_tokens_cost_one_step(day: &Day) -> Outcome {
    for machine in [H100, M2, A17] {
        let got = (day.verification_cost)(&llama_8b()?, 500, 0, BF16, machine);
        near(&format!("no drafts, {machine:?}"), Ok(got), 1.0, TOLERANCE)?;
    }
    Ok(())
}

fn the_best_draft_length(day: &Day) -> Outcome {
    let config = tiny()?;
    let best = |acceptance, most, machine| {
        (day.best_draft_length)(&config, 4, acceptance, most, BF16, machine)
    };
    let memory: Rates = (10.0, 1e9);
    // Bound by memory, a pass with K drafts moves 952 + 72 K bytes. At 0.5 it returns 1.5, 1.75,
    // 1.875 and 1.9375 tokens in the time of 1.076, 1.151, 1.227 and 1.303 steps: 1.39, 1.52, 1.53
    // and 1.49.
    let input = format!("half of the drafts accepted, at most 8, {TINY}");
    equal(&input, best(0.5, 8, memory), &3)?;
    equal(&format!("half accepted, at most 2, {TINY}"), best(0.5, 2, memory), &2)?;
    equal(&format!("all accepted, at most 6, {TINY}"), best(1.0, 6, memory), &6)?;
    equal(&format!("none accepted, at most 6, {TINY}"), best(0.0, 6, memory), &0)?;
    let input = format!("all accepted, at most 6, bound by operations, {TINY}");
    equal(&input, best(1.0, 6, (1e9, 10.0)), &0)?;
    // With 1-byte weights there are 576 and 648 bytes: 1.125 steps for 1.125 tokens. On a tie the
    // smaller K wins.
    let got = (day.best_draft_length)(&config, 4, 0.125, 1, (1.0, 2.0), (8.0, 1e9));
    equal(&format!("an eighth accepted, at most 1, weights of 1 byte, {TINY}"), got, &0)
}

fn the_best_draft_length_between_two_bounds(day: &Day) -> Outcome {
    // At 10 bytes and 40 operations per second, the products are bound by memory up to 4 drafts,
    // and attention up to 1. The passes take 95.2, 102.4, 116, 132.8, 151.2 and 184.8 s. With 0.3
    // accepted, the speedup is 1.209 with one draft, 1.141 with two, and lower with more. With 0.7
    // it is 1.580, 1.797, 1.816 and 1.746.
    let config = tiny()?;
    let best = |acceptance| (day.best_draft_length)(&config, 4, acceptance, 5, BF16, (10.0, 40.0));
    let got: Result<Vec<usize>> = [0.05, 0.1, 0.3, 0.7].into_iter().map(best).collect();
    let input = "5, 10, 30 and 70 of 100 drafts accepted, at most 5 drafts";
    equal(&format!("{input}, {TINY}"), got, &vec![0, 1, 1, 3])
}

fn an_invalid_acceptance_is_refused(day: &Day) -> Outcome {
    let config = tiny()?;
    for acceptance in [-0.1, 1.5, f64::NAN] {
        let got = (day.best_draft_length)(&config, 4, acceptance, 3, BF16, M2);
        refused(&format!("an acceptance of {acceptance}"), got, &[])?;
    }
    Ok(())
}

fn one_request_by_hand(day: &Day) -> Outcome {
    let trace = || (10.0, vec![10.5, 10.7, 10.8, 11.1]);
    let input = "sent at 10 s, tokens at 10.5, 10.7, 10.8 and 11.1 s";
    let (ttft, _, rate) = (day.summarize)(vec![trace()])?;
    all_near(&format!("time to first token, {input}"), PERCENTS, ttft, [0.5; 3])?;
    near(&format!("tokens a second, {input}"), Ok(rate), 4.0 / 1.1, TOLERANCE)?;
    // The given latency itself, in numbers.
    waits(input, (day.latency)(trace()), (0.5, Some(0.2)))?;
    waits("sent at 3 s, a token at 5 s", (day.latency)((3.0, vec![5.0])), (2.0, None))?;
    let trace = (3.0, vec![5.0, 7.5]);
    waits("sent at 3 s, tokens at 5 and 7.5 s", (day.latency)(trace), (2.0, Some(2.5)))?;
    refused_calmly("sent at 3 s, no token", || (day.latency)((3.0, vec![])))
}

fn percentiles_equal_numpy(day: &Day) -> Outcome {
    // numpy.percentile([35, 15, 50, 20, 40], …), with its default method "linear".
    let five = [35.0, 15.0, 50.0, 20.0, 40.0];
    let (ttft, _, _) =
        (day.summarize)(five.into_iter().map(|wait| (1.0, vec![1.0 + wait])).collect())?;
    all_near(&format!("times to first token, {five:?}"), PERCENTS, ttft, [35.0, 46.0, 49.6])?;
    // The given percentile itself, in numbers.
    for (percent, want) in [
        (0.0, 15.0),
        (5.0, 16.0),
        (30.0, 23.0),
        (40.0, 29.0),
        (50.0, 35.0),
        (90.0, 46.0),
        (100.0, 50.0),
    ] {
        let input = format!("percentile {percent} of {five:?}");
        near(&input, (day.percentile)(&five, percent), want, TOLERANCE)?;
    }
    let four = [3.0, -1.0, 4.5, 0.25];
    for (percent, want) in [(25.0, -0.0625), (50.0, 1.625), (75.0, 3.375), (99.0, 4.455)] {
        let input = format!("percentile {percent} of {four:?}");
        near(&input, (day.percentile)(&four, percent), want, TOLERANCE)?;
    }
    near("percentile 13 of [7]", (day.percentile)(&[7.0], 13.0), 7.0, TOLERANCE)
}

fn percentiles_are_in_order(day: &Day) -> Outcome {
    let mut random = Random::new(14);
    for _ in 0..50 {
        let values: Vec<f64> =
            (0..1 + random.below(30)).map(|_| random.below(1000) as f64 / 8.0).collect();
        let largest = values.iter().copied().fold(f64::MIN, f64::max);
        let smallest = values.iter().copied().fold(f64::MAX, f64::min);
        let traces = values.iter().map(|wait| (0.0, vec![*wait])).collect();
        let ([p50, p90, p99], _, _) = (day.summarize)(traces)?;
        let is_ordered = smallest <= p50 && p50 <= p90 && p90 <= p99 && p99 <= largest;
        equal(&format!("percentiles are in order, {values:?}"), Ok(is_ordered), &true)?;
        let mut before = smallest;
        for percent in 0..=100 {
            let got = (day.percentile)(&values, f64::from(percent))?;
            let input = format!("percentile {percent} of {values:?}");
            let inside = got.clamp(before, largest);
            near(
                &format!("between the previous percentile and the largest value: {input}"),
                Ok(got),
                inside,
                1e-12,
            )?;
            // At least `percent` percent of n - 1 values are no larger than the result.
            let not_larger = values.iter().filter(|value| **value <= got + 1e-9).count();
            let share = f64::from(percent) / 100.0 * (values.len() - 1) as f64;
            equal(
                &format!("enough values are no larger, {input}"),
                Ok(not_larger as f64 > share - 1e-9),
                &true,
            )?;
            before = got;
        }
    }
    Ok(())
}

fn three_requests_by_hand(day: &Day) -> Outcome {
    // Times to first token: 1, 2 and 4 s. Times per output token: 0.5 and 1 s. The third request
    // has only one token. Eight tokens between 0 s and 8 s.
    let traces =
        vec![(2.0, vec![4.0, 5.0, 6.0, 7.0]), (0.0, vec![1.0, 1.5, 2.0]), (4.0, vec![8.0])];
    let (ttft, tpot, rate) = (day.summarize)(traces)?;
    let input = "three requests: 4 tokens, 3 tokens and 1 token";
    let of = |what: &str| format!("{what}, {input}");
    all_near(&of("times to first token"), PERCENTS, ttft, [2.0, 3.6, 3.96])?;
    let Some(tpot) = tpot else {
        return equal(&of("times per output token"), Ok("None"), &"Some");
    };
    all_near(&of("times per output token"), PERCENTS, tpot, [0.75, 0.95, 0.995])?;
    near(&of("tokens a second"), Ok(rate), 1.0, TOLERANCE)?;
    let (_, tpot, rate) = (day.summarize)(vec![(1.0, vec![3.0])])?;
    equal("times per output token, one request of one token", Ok(tpot), &None)?;
    near("tokens a second, one request of one token after 2 s", Ok(rate), 0.5, TOLERANCE)
}

fn no_requests_are_refused(day: &Day) -> Outcome {
    refused_calmly("no request", || (day.summarize)(vec![]))?;
    refused_calmly("a request without tokens", || {
        (day.summarize)(vec![(0.0, vec![1.0]), (0.0, vec![])])
    })?;
    // The given percentile's own refusals.
    refused_calmly("no values", || (day.percentile)(&[], 50.0))?;
    refused_calmly("a NaN among the values", || (day.percentile)(&[1.0, f64::NAN], 50.0))?;
    refused_calmly("percentile 101", || (day.percentile)(&[1.0, 2.0], 101.0))?;
    refused_calmly("percentile -1", || (day.percentile)(&[1.0, 2.0], -1.0))
}
