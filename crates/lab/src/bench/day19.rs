//! Day 19: the effect of quantization on a model's predictions and text, measured with the day's
//! own functions against the same model in f32.
//!
//! The stories are evaluated with teacher forcing: every model sees the same tokens, regardless of
//! its own predictions. All columns but the last are the same on every machine, except for rounding
//! in sums.

use crate::args::Args;
use crate::shared::{held_out_stories, if_written, locate, log_probs, request, text_of};
use crate::times::median;
use anyhow::{bail, Result};
use candecode::day03_norms_and_mlps::Projection;
use candecode::day05_model::{Mlp, SelfAttention, Transformer};
use candecode::day10_kv_cache::DynamicCache;
use candecode::day16_cost_of_a_token::{weights_read, Precision};
use candecode::day19_quantized_weights::{
    closer_block_q4_0, first_difference, mean_kl, perplexity, quantize_block_q8_0, quantize_matrix,
    quantized_precision, same_best, QuantizedCache,
};
use candecode::kit::{Cache, Logits, Model, QuantType, QuantizedMatrix, Step, Tokenizer, Weight};
use candecode_engine::load::load_transformer;
use candecode_engine::operations::{self, Kernels};
use candecode_formats::read_tokenizer;
use candle_core::{DType, Device, Tensor};
use std::collections::BTreeSet;
use std::time::Instant;

/// Number of greedy tokens after [`PROMPT`] to compare and time.
const GREEDY: usize = 200;
const PROMPT: &str = "Once upon a time";
/// The model for whole steps.
const LARGE: &str = "random-135m";

/// The stories that every run evaluates, and the prompt that it continues.
struct Texts {
    tokenizer: Tokenizer,
    stories: Vec<Vec<u32>>,
    prompt: Vec<u32>,
}

/// A model and the kind of cache to run it with.
struct Run<'a> {
    name: String,
    model: &'a Transformer,
    precision: Precision,
    new_cache: &'a dyn Fn() -> Box<dyn Cache>,
}

/// The results of a run: its predictions for the stories, and its own text.
struct Read {
    /// Log probabilities of all tokens, for each position of each story.
    log_probs: Vec<Vec<Vec<f32>>>,
    /// The greedy text. Not used to compare caches.
    greedy: Vec<u32>,
    /// Median time of a decoding step, in milliseconds.
    step: f64,
}

/// Prints the block and the scales that the chapter shows, then the table.
pub fn measure(args: &Args) -> Result<()> {
    let ops = operations::choose(None, &Device::Cpu);
    let path = locate(args.model())?;
    let tokenizer = read_tokenizer(&path)?;
    let (stories, prompt) = (held_out_stories(&tokenizer)?, tokenizer.encode(PROMPT)?);
    let predicted: usize = stories.iter().map(|ids| ids.len() - 1).sum();
    let count = stories.len();
    let texts = Texts { tokenizer, stories, prompt };
    let open = || load_transformer(&path, DType::F32, &Device::Cpu, &ops);

    let mut model = open()?;
    let config = model.config.clone();
    show_block(&model)?;
    show_scales(&mut model)?;
    println!("\n{}, {count} stories, {predicted} tokens predicted", args.model());
    println!(
        "{:<16} {:>10} {:>11} {:>9} {:>10} {:>11} {:>9}",
        "weights", "MB a step", "perplexity", "mean KL", "same best", "first diff.", "a step"
    );
    let layers = config.num_hidden_layers;
    let quantized_cache = || Box::new(QuantizedCache::new(layers, &Device::Cpu)) as Box<dyn Cache>;
    let growing_cache = || Box::new(DynamicCache::new(layers)) as Box<dyn Cache>;
    let precision = Precision { weight_bytes: 4.0, cache_bytes: 4.0 };
    let full = Run { name: "f32".into(), model: &model, precision, new_cache: &growing_cache };
    let exact = full.read(&texts)?;
    full.show(&texts, &exact, &exact)?;
    let name = "f32, 8-bit cache".to_string();
    let cached = Run { name, new_cache: &quantized_cache, ..full };
    if_written(|| cached.show(&texts, &exact, &Read { greedy: vec![], ..cached.read(&texts)? }))?;
    drop(model);
    type Quantize = fn(&Tensor) -> Result<QuantizedMatrix>;
    let formats: [(&str, QuantType, Quantize); 3] = [
        ("Q8_0", QuantType::Q8_0, |matrix| Ok(quantize_matrix(QuantType::Q8_0, matrix)?)),
        ("Q4_0", QuantType::Q4_0, |matrix| Ok(quantize_matrix(QuantType::Q4_0, matrix)?)),
        ("closer Q4_0", QuantType::Q4_0, closer_matrix),
    ];
    for (name, kind, matrix) in formats {
        let mut model = open()?;
        if if_written(|| quantize(&mut model, true, matrix))?.is_none() {
            continue;
        }
        let (name, precision) = (name.to_string(), quantized_precision(&config, kind));
        let run = Run { name, model: &model, precision, new_cache: &growing_cache };
        run.show(&texts, &exact, &run.read(&texts)?)?;
    }
    whole_steps()
}

/// Prints a step of a model that is larger than any cache, with the kernels of days 17 to 19: in
/// f32, and with the day's 4-bit weights.
fn whole_steps() -> Result<()> {
    let ops = operations::choose(Some(Kernels::Mine), &Device::Cpu);
    let mut model = load_transformer(&locate(LARGE)?, DType::F32, &Device::Cpu, &ops)?;
    let config = model.config.clone();
    let layers = config.num_hidden_layers;
    println!("\n{LARGE} with --kernels mine      MB a step      a step");
    for name in ["f32, day 17", "Q4_0, day 19"] {
        let mut bytes = 4.0;
        if name.starts_with("Q4_0") {
            quantize(&mut model, false, |matrix| Ok(quantize_matrix(QuantType::Q4_0, matrix)?))?;
            bytes = quantized_precision(&config, QuantType::Q4_0).weight_bytes;
        }
        let step = step_time(&model, &mut DynamicCache::new(layers), &[300, 301, 302, 303])?;
        println!("{name:<36}{:>10.2} {step:>8.2} ms", weights_read(&config) * bytes / 1e6);
    }
    Ok(())
}

impl Run<'_> {
    /// Evaluates the stories, each in one pass, and generates a text.
    fn read(&self, texts: &Texts) -> Result<Read> {
        let Texts { tokenizer, stories, prompt } = texts;
        let read = |ids: &Vec<u32>| log_probs(self.model, ids, &mut *(self.new_cache)());
        let log_probs = stories.iter().map(read).collect::<Result<_>>()?;
        let greedy = text_of(self.model, tokenizer, request(self.model, prompt, GREEDY))?;
        Ok(Read { log_probs, greedy, step: self.step_time(prompt)? })
    }

    /// Returns the median time of a decoding step, in milliseconds.
    fn step_time(&self, prompt: &[u32]) -> Result<f64> {
        step_time(self.model, &mut *(self.new_cache)(), prompt)
    }

    /// Prints one row of the table.
    fn show(&self, texts: &Texts, exact: &Read, found: &Read) -> Result<()> {
        // Average over all stories, weighted by their tokens.
        let (mut surprise, mut predicted) = (0.0, 0.0);
        for (log_probs, ids) in found.log_probs.iter().zip(&texts.stories) {
            let tokens = (ids.len() - 1) as f64;
            surprise += tokens * perplexity(log_probs, ids)?.ln();
            predicted += tokens;
        }
        let difference = match first_difference(&exact.greedy, &found.greedy) {
            _ if found.greedy.is_empty() || std::ptr::eq(exact, found) => "-".to_string(),
            Some(at) => format!("token {at}"),
            None => format!("none of {GREEDY}"),
        };
        let megabytes = weights_read(&self.model.config) * self.precision.weight_bytes / 1e6;
        let (exact, all) = (exact.log_probs.concat(), found.log_probs.concat());
        println!(
            "{:<16} {megabytes:>10.2} {:>11.4} {:>9.5} {:>8.1} % {difference:>11} {:>6.2} ms",
            self.name,
            (surprise / predicted).exp(),
            mean_kl(&exact, &all)?,
            100.0 * same_best(&exact, &all)?,
            found.step
        );
        Ok(())
    }
}

/// Returns the median time of a decoding step, in milliseconds.
fn step_time(model: &Transformer, cache: &mut dyn Cache, prompt: &[u32]) -> Result<f64> {
    let mut times = vec![];
    let mut ids = prompt.to_vec();
    for _ in 0..31 {
        let start = Instant::now();
        let step = Step::new(model, &ids, cache.len())?.with_logits(Logits::Last(1));
        model.forward(&step, cache)?.to_vec3::<f32>()?;
        times.push(1e3 * start.elapsed().as_secs_f64());
        ids = vec![prompt[0]];
    }
    times.remove(0); // drop the prefill
    Ok(median(times))
}

/// Quantizes every matrix of a model with the given function, for the fast kernels in their tiles.
/// A tied head becomes Q8_0.
fn quantize(
    model: &mut Transformer,
    tiled: bool,
    quantize: impl Fn(&Tensor) -> Result<QuantizedMatrix>,
) -> Result<()> {
    let tied = model.lm_head.is_none();
    let mut matrices = matrices(model)?;
    let head = matrices.len() - 1;
    for (at, weight) in matrices.iter_mut().enumerate() {
        let matrix = weight.tensor()?;
        let quantized = if tied && at == head {
            quantize_matrix(QuantType::Q8_0, &matrix)?
        } else {
            quantize(&matrix)?
        };
        **weight = if tiled { quantized.tiled() } else { quantized }.into();
    }
    Ok(())
}

/// Quantizes a matrix to Q4_0 with the function from the day's challenge.
fn closer_matrix(matrix: &Tensor) -> Result<QuantizedMatrix> {
    let (out, inner) = matrix.dims2()?;
    let mut bytes = vec![];
    for row in matrix.to_vec2::<f32>()? {
        for block in row.as_chunks().0 {
            bytes.extend(closer_block_q4_0(block)?.to_bytes());
        }
    }
    Ok(QuantizedMatrix::new(QuantType::Q4_0, out, inner, bytes)?)
}

/// Prints the error of weights stored as integers from -7 to 7, with one scale per matrix, per row,
/// or per block.
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
    let different = different.len();
    println!(
        "{count} weights, {different} different numbers, none further from 0 than {largest:.2}"
    );
    println!("the weights are off by, with integers of 4 bits and one scale for");
    for (name, error) in ["a matrix", "a row", "a block of 32"].iter().zip(errors) {
        println!("{name:<16} {:>6.1} %", 100.0 * (error / squares).sqrt());
    }
    Ok(())
}

/// Prints one block in Q8_0: the first one in the gate projection of the third layer (or of the
/// last, if there are fewer).
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

/// Returns all matrices of a Llama or Qwen model, with the head last.
fn matrices(model: &mut Transformer) -> Result<Vec<&mut Weight>> {
    let mut found = vec![];
    for layer in &mut model.layers {
        let (SelfAttention::Grouped(attention), Mlp::Swiglu { gate_proj, up_proj, down_proj }) =
            (&mut layer.attention, &mut layer.mlp)
        else {
            bail!("this benchmark supports only the families llama, qwen2 and qwen3")
        };
        let (q, k) = (&mut attention.q_proj, &mut attention.k_proj);
        let (v, o) = (&mut attention.v_proj, &mut attention.o_proj);
        let all: [&mut Projection; 7] = [q, k, v, o, gate_proj, up_proj, down_proj];
        found.extend(all.map(|projection| &mut projection.weight));
    }
    found.push(model.lm_head.as_mut().unwrap_or(&mut model.embed_tokens));
    Ok(found)
}
