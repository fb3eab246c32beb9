//! What quantised weights cost, in the engine that readers run: the best token and the distribution of every
//! position of some texts, beside f32; and llama.cpp on the same files.
//!
//! `cargo xtask bench quality --model DIR [--python PYTHON]`. The texts are read by teacher forcing.
//! With a Python that has what `benches/peers/requirements.txt` names, the files are llama.cpp's own;
//! without, the weights are quantised here and llama.cpp is left out.

#![warn(missing_docs)]

use anyhow::{ensure, Context as _, Result};
use benches::root;
use candecode::day07_greedy::log_softmax;
use candecode::day10_kv_cache::DynamicCache;
use candecode::day19_quantized_weights::{mean_kl, same_best};
use candecode::engine::load::{load_transformer, quantized_format};
use candecode::engine::operations::{self, Kernels};
use candecode::formats::hub;
use candecode::kernels;
use candecode::kit::{Logits, Model, QuantType, Step, Tokenizer, WeightFormat};
use candle_core::{DType, Device};
use clap::Parser;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// As in the `candecode` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The flags.
#[derive(Parser)]
struct Args {
    /// A folder in f32
    #[arg(long, default_value = "story-3m")]
    model: String,
    /// Tokens to read
    #[arg(long, default_value_t = 2000)]
    tokens: usize,
    /// Read this file in one pass, instead of the stories and a page of the book
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// A Python with what benches/peers/requirements.txt names
    #[arg(long)]
    python: Option<String>,
}

/// Tokens of a piece of a page: every model has room for them.
const PIECE: usize = 400;

/// How far a model's predictions are from those of f32, summed over positions.
#[derive(Default)]
struct Distance {
    positions: f64,
    same: f64,
    kl: f64,
}

impl Distance {
    /// Adds the positions of a text; both have ln of the probabilities.
    fn add(&mut self, exact: &[Vec<f32>], other: &[Vec<f32>]) -> Result<()> {
        let positions = exact.len() as f64;
        self.positions += positions;
        self.same += positions * same_best(exact, other)?;
        self.kl += positions * mean_kl(exact, other)?;
        Ok(())
    }

    fn show(&self, name: &str) {
        let (same, kl) = (100.0 * self.same / self.positions, self.kl / self.positions);
        println!("{name:<21} {same:>9.2} % {kl:>10.6}");
    }
}

fn main() -> Result<()> {
    kernels::set_threads();
    kernels::in_pool(measure)
}

fn measure() -> Result<()> {
    let args = Args::parse();
    let ops = operations::choose(Some(Kernels::Fast), &Device::Cpu);
    ensure!(args.tokens > 1, "--tokens must be at least 2: a text of one token says nothing");
    let dir = hub::locate(&args.model, false)?;
    let most = candecode::formats::read_config(&dir)?.max_position_embeddings;
    ensure!(
        args.text.is_none() || args.tokens <= most,
        "--text is read in one pass, and {} has room for {most}: give --tokens {most} or fewer",
        args.model
    );
    let tokenizer = candecode::formats::read_tokenizer(&dir)?;
    let texts = match &args.text {
        Some(file) => vec![beginning(&tokenizer, file, args.tokens)?],
        None => texts(&tokenizer, args.tokens)?,
    };
    let exact = load_transformer(&dir, DType::F32, &Device::Cpu, &ops)?;
    let mut exact_says = vec![];
    for ids in &texts {
        exact_says.push(log_probs(&exact, ids)?);
    }
    drop(exact);
    let positions: usize = texts.iter().map(Vec::len).sum();
    println!("{}, {} texts, {positions} positions, beside f32", args.model, texts.len());
    println!("{:<21} {:>11} {:>10}", "weights", "same best", "mean KL");
    for (name, kind) in [("q8_0", QuantType::Q8_0), ("q4_0", QuantType::Q4_0)] {
        let file = match &args.python {
            Some(python) => Some(file_of_llama_cpp(python, &dir, name)?),
            None => None,
        };
        let model = match &file {
            Some(file) => load_transformer(file, WeightFormat::AsStored, &Device::Cpu, &ops)?,
            None => load_transformer(&dir, quantized_format(kind), &Device::Cpu, &ops)?,
        };
        of(&model, &texts, &exact_says)?.show(&format!("{kind}, candecode"));
        drop(model);
        if let Some(file) = &file {
            // What is left if the activations are not quantised.
            let widened = load_transformer(file, DType::F32, &Device::Cpu, &ops)?;
            of(&widened, &texts, &exact_says)?.show(&format!("{kind}, f32 activations"));
        }
        if let (Some(file), Some(python)) = (&file, &args.python) {
            of_llama_cpp(python, file, &texts, &exact_says)?.show(&format!("{kind}, llama.cpp"));
        }
    }
    Ok(())
}

/// How far a model is from what f32 says of the texts.
fn of(model: &dyn Model, texts: &[Vec<u32>], exact: &[Vec<Vec<f32>>]) -> Result<Distance> {
    let mut distance = Distance::default();
    for (ids, exact) in texts.iter().zip(exact) {
        distance.add(exact, &log_probs(model, ids)?)?;
    }
    Ok(distance)
}

/// The stories of `benches/held_out_stories.txt`, then pages of the book, with so many tokens in all, the
/// last text cut.
fn texts(tokenizer: &Tokenizer, tokens: usize) -> Result<Vec<Vec<u32>>> {
    let stories = std::fs::read_to_string(root().join("benches/held_out_stories.txt"))?;
    let page = std::fs::read_to_string(root().join("book/src/day01_attention.md"))?;
    let mut texts = vec![];
    let mut left = tokens;
    for story in stories.trim().split("\n\n") {
        texts.push(tokenizer.encode(story)?);
    }
    texts.extend(tokenizer.encode(&page)?.chunks(PIECE).map(<[u32]>::to_vec));
    for ids in &mut texts {
        ids.truncate(left);
        left -= ids.len();
    }
    texts.retain(|ids| ids.len() > 1);
    ensure!(left == 0, "--tokens {tokens}: there are {} fewer to read", left);
    Ok(texts)
}

/// The first tokens of a file, so many.
fn beginning(tokenizer: &Tokenizer, file: &Path, tokens: usize) -> Result<Vec<u32>> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("--text {}", file.display()))?;
    let mut ids = tokenizer.encode(&text)?;
    ensure!(ids.len() >= tokens, "--tokens {tokens}: {} has only {}", file.display(), ids.len());
    ids.truncate(tokens);
    Ok(ids)
}

/// ln of the probabilities of all tokens, at every position of a text.
fn log_probs(model: &dyn Model, ids: &[u32]) -> Result<Vec<Vec<f32>>> {
    let mut cache = DynamicCache::new(model.config().num_hidden_layers);
    let step = Step::new(model, ids, 0)?.with_logits(Logits::All);
    let logits = model.forward(&step, &mut cache)?.squeeze(0)?.to_vec2::<f32>()?;
    Ok(logits.iter().map(|row| log_softmax(row)).collect::<candle_core::Result<_>>()?)
}

/// Where the file is that llama.cpp quantised.
fn file_of_llama_cpp(python: &str, dir: &Path, kind: &str) -> Result<PathBuf> {
    let printed = script(python, "gguf_file.py", &[&dir.display().to_string(), kind])?;
    Ok(PathBuf::from(printed.lines().last().context("no file")?))
}

/// What llama.cpp makes of the texts with a file.
fn of_llama_cpp(
    python: &str,
    file: &Path,
    texts: &[Vec<u32>],
    exact: &[Vec<Vec<f32>>],
) -> Result<Distance> {
    let folder = std::env::temp_dir();
    let mark = std::process::id();
    let ids = folder.join(format!("candecode-quality-{mark}.txt"));
    let out = folder.join(format!("candecode-quality-{mark}.logits"));
    let line = |ids: &Vec<u32>| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    std::fs::write(&ids, texts.iter().map(line).collect::<Vec<_>>().join("\n"))?;
    let words = [file, &ids, &out].map(|path| path.display().to_string());
    script(python, "llamacpp_logits.py", &[&words[0], &words[1], &words[2]])?;
    let mut logits = BufReader::new(File::open(&out)?);
    let mut distance = Distance::default();
    for exact in exact {
        let mut said = vec![];
        for row in exact {
            let mut bytes = vec![0; 4 * row.len()];
            logits.read_exact(&mut bytes)?;
            let numbers: Vec<f32> =
                bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect();
            said.push(log_softmax(&numbers)?);
        }
        distance.add(exact, &said)?;
    }
    std::fs::remove_file(&ids)?;
    std::fs::remove_file(&out)?;
    Ok(distance)
}

/// What a script of `benches/peers` prints.
fn script(python: &str, name: &str, words: &[&str]) -> Result<String> {
    let path = root().join("benches/peers").join(name);
    let out = Command::new(python).arg(&path).args(words).output();
    let out = out.with_context(|| format!("{python} could not be started"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{name} failed: {said}");
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
