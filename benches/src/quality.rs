//! What quantising costs a text: day 19's measures of a model beside the same model in f32.
//!
//! `cargo xtask bench day19 [--model NAME]`. The stories are read by teacher forcing: every model sees
//! the same tokens, whatever it would have written. All columns but the last are the same on every
//! machine, up to the order of sums.

#![warn(missing_docs)]

use anyhow::{bail, Result};
use benches::{root, text_of, tokenizer};
use candecode::day03_norms_and_mlps::Projection;
use candecode::day05_model::{Mlp, SelfAttention, Transformer};
use candecode::day07_greedy::log_softmax;
use candecode::day10_kv_cache::DynamicCache;
use candecode::day16_cost_of_a_token::{weights_read, Precision};
use candecode::day19_quantized_weights::{
    first_difference, mean_kl, perplexity, quantize_block_q8_0, quantize_matrix,
    quantized_precision, same_best, QuantizedCache,
};
use candecode::engine::load::load_transformer;
use candecode::engine::operations;
use candecode::formats::hub;
use candecode::kernels;
use candecode::kit::{Cache, Logits, Model, ModelConfig, QuantType, Step, Tokenizer, Weight};
use candle_core::{DType, Device};
use clap::Parser;
use std::collections::BTreeSet;
use std::time::Instant;

/// As in the `candecode` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The flags.
#[derive(Parser)]
struct Args {
    /// The model
    #[arg(long, default_value = "story-3m")]
    model: String,
}

/// Greedy tokens after [`PROMPT`] that are compared, and timed.
const GREEDY: usize = 200;
const PROMPT: &str = "Once upon a time";

/// Some models of the same shape, and the caches that go with them.
#[derive(Clone, Copy, PartialEq)]
enum Run {
    Full,
    Weights(QuantType),
    Cache,
}

impl Run {
    fn name(self) -> String {
        match self {
            Self::Full => "f32".into(),
            Self::Weights(kind) => kind.to_string(),
            Self::Cache => "f32, cache Q8_0".into(),
        }
    }

    fn precision(self, config: &ModelConfig) -> Precision {
        match self {
            Self::Weights(kind) => quantized_precision(config, kind),
            Self::Full | Self::Cache => Precision { weight_bytes: 4.0, cache_bytes: 4.0 },
        }
    }

    fn cache(self, config: &ModelConfig) -> Box<dyn Cache> {
        let layers = config.num_hidden_layers;
        match self {
            Self::Cache => Box::new(QuantizedCache::new(layers, &Device::Cpu)),
            _ => Box::new(DynamicCache::new(layers)),
        }
    }
}

/// What a run says of the stories, and of its own text.
struct Read {
    /// For each story, for each position, ln of the probabilities of all tokens.
    log_probs: Vec<Vec<Vec<f32>>>,
    greedy: Vec<u32>,
    /// Milliseconds of a decoding step, the median.
    step: f64,
}

fn main() -> Result<()> {
    kernels::set_threads();
    kernels::in_pool(measure)
}

fn measure() -> Result<()> {
    let args = Args::parse();
    let ops = operations::choose(None, &Device::Cpu);
    let path = hub::locate(&args.model, false)?;
    let tokenizer = match args.model.as_str() {
        "story-3m" | "story-230k" | "story-gpt2-1m" => tokenizer()?,
        _ => candecode::formats::read_tokenizer(&path)?,
    };
    let file = root().join("benches/held_out_stories.txt");
    let text = std::fs::read_to_string(file)?;
    let stories: Vec<Vec<u32>> = text
        .trim()
        .split("\n\n")
        .map(|story| tokenizer.encode(story))
        .collect::<candle_core::Result<_>>()?;
    let predicted: usize = stories.iter().map(|ids| ids.len() - 1).sum();

    let mut model = load_transformer(&path, DType::F32, &Device::Cpu, &ops)?;
    show_block(&model)?;
    show_scales(&mut model)?;
    println!("\n{}, {} stories, {predicted} tokens predicted", args.model, stories.len());
    println!(
        "{:<16} {:>10} {:>11} {:>9} {:>10} {:>11} {:>9}",
        "weights", "MB a step", "perplexity", "mean KL", "same best", "first diff.", "a step"
    );
    let full = read(&model, Run::Full, &stories, &tokenizer)?;
    show(&model.config, Run::Full, &stories, &full, &full)?;
    let cache = read(&model, Run::Cache, &stories, &tokenizer)?;
    show(&model.config, Run::Cache, &stories, &full, &cache)?;
    drop(model);
    for kind in [QuantType::Q8_0, QuantType::Q4_0] {
        let mut model = load_transformer(&path, DType::F32, &Device::Cpu, &ops)?;
        quantize(&mut model, kind)?;
        let run = Run::Weights(kind);
        let found = read(&model, run, &stories, &tokenizer)?;
        show(&model.config, run, &stories, &full, &found)?;
    }
    Ok(())
}

/// Quantises every matrix of a model by day 19's own functions, for the kernels; a tied head to Q8_0
/// at least.
fn quantize(model: &mut Transformer, kind: QuantType) -> Result<()> {
    let tied = model.lm_head.is_none();
    let mut matrices = matrices(model)?;
    let head = matrices.len() - 1;
    for (at, weight) in matrices.iter_mut().enumerate() {
        let kind = if tied && at == head { QuantType::Q8_0 } else { kind };
        **weight = quantize_matrix(kind, &weight.tensor()?)?.tiled().into();
    }
    Ok(())
}

/// How far weights are off with integers of -7 to 7 and one scale for a matrix, a row, or a block.
fn show_scales(model: &mut Transformer) -> Result<()> {
    let mut errors = [0f64; 3];
    let mut squares = 0f64;
    let mut different = BTreeSet::new();
    let mut count = 0;
    for weight in matrices(model)? {
        let rows = weight.tensor()?.to_vec2::<f32>()?;
        let numbers = rows.concat();
        let width = rows[0].len();
        count += numbers.len();
        different.extend(numbers.iter().map(|x| x.to_bits()));
        squares += numbers.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
        for (error, size) in errors.iter_mut().zip([numbers.len(), width, 32]) {
            for group in numbers.chunks(size) {
                let largest = group.iter().fold(0f32, |largest, x| largest.max(x.abs()));
                let step = (largest / 7.0).max(f32::MIN_POSITIVE);
                let off = |x: &f32| f64::from((x / step).round() * step - x).powi(2);
                *error += group.iter().map(off).sum::<f64>();
            }
        }
    }
    let largest = different.iter().map(|bits| f32::from_bits(*bits).abs()).fold(0.0, f32::max);
    println!(
        "{count} weights, {} different numbers, none further from 0 than {largest:.2}",
        different.len()
    );
    println!("the weights are off by, with integers of 4 bits and one scale for");
    for (name, error) in ["a matrix", "a row", "a block of 32"].iter().zip(errors) {
        println!("{name:<16} {:>6.1} %", 100.0 * (error / squares).sqrt());
    }
    Ok(())
}

/// A block as Q8_0 has it: the first of the gate projection of the third layer, or of the last.
fn show_block(model: &Transformer) -> Result<()> {
    let layer = 2.min(model.layers.len() - 1);
    let Mlp::Swiglu { gate_proj, .. } = &model.layers[layer].mlp else { return Ok(()) };
    let rows = gate_proj.weight.tensor()?.narrow(0, 0, 1)?.to_vec2::<f32>()?;
    let Some(numbers) = rows[0].first_chunk::<32>() else { return Ok(()) };
    let block = quantize_block_q8_0(numbers)?;
    println!("the first numbers of layer {layer}'s gate projection: {:.4?}", &numbers[..8]);
    println!("their integers in Q8_0: {:?}, the scale {:.8}", &block.quants[..8], block.scale);
    Ok(())
}

/// All matrices of a Llama or Qwen, the head last.
fn matrices(model: &mut Transformer) -> Result<Vec<&mut Weight>> {
    let mut found = vec![];
    for layer in &mut model.layers {
        let (SelfAttention::Grouped(attention), Mlp::Swiglu { gate_proj, up_proj, down_proj }) =
            (&mut layer.attention, &mut layer.mlp)
        else {
            bail!("only models of the families llama, qwen2 and qwen3 are measured here")
        };
        let all: [&mut Projection; 7] = [
            &mut attention.q_proj,
            &mut attention.k_proj,
            &mut attention.v_proj,
            &mut attention.o_proj,
            gate_proj,
            up_proj,
            down_proj,
        ];
        found.extend(all.map(|projection| &mut projection.weight));
    }
    found.push(match &mut model.lm_head {
        Some(head) => head,
        None => &mut model.embed_tokens,
    });
    Ok(found)
}

/// Reads the stories, each in one pass, and writes a text.
fn read(
    model: &Transformer,
    run: Run,
    stories: &[Vec<u32>],
    tokenizer: &Tokenizer,
) -> Result<Read> {
    let mut log_probs = vec![];
    for ids in stories {
        let step = Step::new(model, ids, 0)?.with_logits(Logits::All);
        let logits = model.forward(&step, &mut *run.cache(&model.config))?.squeeze(0)?;
        let rows = logits.to_vec2::<f32>()?;
        log_probs.push(
            rows.iter().map(|row| log_softmax(row)).collect::<candle_core::Result<Vec<_>>>()?,
        );
    }
    let prompt = tokenizer.encode(PROMPT)?;
    let greedy = match run {
        Run::Cache => vec![],
        _ => text_of(model, tokenizer, &prompt, GREEDY)?,
    };
    Ok(Read { log_probs, greedy, step: step_time(model, run, &prompt)? })
}

/// The median time of a decoding step, in milliseconds.
fn step_time(model: &Transformer, run: Run, prompt: &[u32]) -> Result<f64> {
    let mut cache = run.cache(&model.config);
    let mut times = vec![];
    let mut ids = prompt.to_vec();
    for _ in 0..31 {
        let start = Instant::now();
        let step = Step::new(model, &ids, cache.len())?.with_logits(Logits::Last(1));
        model.forward(&step, &mut *cache)?.to_vec3::<f32>()?;
        times.push(1e3 * start.elapsed().as_secs_f64());
        ids = vec![prompt[0]];
    }
    times.remove(0); // the prompt
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

fn show(
    config: &ModelConfig,
    run: Run,
    stories: &[Vec<u32>],
    full: &Read,
    found: &Read,
) -> Result<()> {
    // All stories together: each counts by its tokens.
    let mut surprise = 0.0;
    let mut predicted = 0.0;
    for (log_probs, ids) in found.log_probs.iter().zip(stories) {
        let tokens = (ids.len() - 1) as f64;
        surprise += tokens * perplexity(log_probs, ids)?.ln();
        predicted += tokens;
    }
    let all = |read: &Read| read.log_probs.concat();
    let megabytes = weights_read(config) * run.precision(config).weight_bytes / 1e6;
    let difference = match run {
        Run::Full | Run::Cache => "-".to_string(),
        Run::Weights(_) => match first_difference(&full.greedy, &found.greedy) {
            Some(at) => format!("token {at}"),
            None => format!("none of {GREEDY}"),
        },
    };
    println!(
        "{:<16} {megabytes:>10.2} {:>11.4} {:>9.5} {:>8.1} % {difference:>11} {:>6.2} ms",
        run.name(),
        (surprise / predicted).exp(),
        mean_kl(&all(full), &all(found))?,
        100.0 * same_best(&all(full), &all(found))?,
        found.step
    );
    Ok(())
}
