//! The reference beside its peers: prefill and decode, the same weights, prompt and greedy tokens, in turn, as medians of rounds
//! and ratios within each round.
//!
//! `cargo run -p peers -- --model DIR [--batch 8] [--python PYTHON]`; each contender is a process of its own.

use anyhow::{bail, ensure, Context as _, Result};
use candecode::kit::{hub, load_model, Logits, Model, ModelConfig, Step};
use candecode::{day07_greedy::argmax, day10_kv_cache::KvCache, kit::CacheKind};
use candle_core::{DType, Device, Tensor};
use clap::Parser;
use serde_json::{json, Value};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// As in the `candecode` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
struct Args {
    /// A folder, or an embedded model; candle-transformers reads Llama only
    #[arg(long)]
    model: String,
    /// Rows, all of the same prompt
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Tokens in the prompt
    #[arg(long, default_value_t = 256)]
    prompt: usize,
    /// Tokens to decode
    #[arg(long, default_value_t = 128)]
    new: usize,
    /// Rounds, every contender once in each
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// A Python with torch and transformers; without one they are left out, loudly
    #[arg(long, default_value = "python3")]
    python: String,
    /// What stands behind our two doors
    #[arg(long, value_enum, default_value_t)]
    kernels: candecode::kit::kernels::Kernels,
    /// Our weights in memory: f32, bf16 or f16
    #[arg(long, default_value = "f32")]
    dtype: String,
    /// One contender in this process: candecode or candle-transformers
    #[arg(long, hide = true)]
    one: Option<String>,
}

/// What one contender did in one round.
struct Round {
    prefill_s: f64,
    decode_s: f64,
    tokens: Vec<u32>,
}

fn main() -> Result<()> {
    candecode::kit::doors::set_threads();
    let args = Args::parse();
    candecode::kit::kernels::choose(args.kernels);
    let dir = hub::resolve(&args.model)?;
    let ids = prompt(&ModelConfig::from_dir(&dir)?, args.prompt);
    match args.one.as_deref() {
        Some(name) => one(name, &dir, &ids, &args),
        None => duel(&dir, &ids, &args),
    }
}

/// The ids of the prompt: any will do, as long as all have the same.
fn prompt(config: &ModelConfig, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| 300 + i * 7 % (config.vocab_size as u32 - 300)).collect()
}

fn duel(dir: &Path, ids: &[u32], args: &Args) -> Result<()> {
    let mut names = vec!["candecode", "candle-transformers", "transformers"];
    let probe = Command::new(&args.python).args(["-c", "import torch, transformers"]).output();
    if !probe.is_ok_and(|out| out.status.success()) {
        eprintln!(
            "SKIPPED: transformers. {} has no torch and transformers: pip install -r tests/oracle/requirements.txt",
            args.python
        );
        names.pop();
    }
    let mut rounds: Vec<Vec<Round>> = names.iter().map(|_| vec![]).collect();
    for number in 1..=args.rounds {
        for (name, rounds) in names.iter().zip(&mut rounds) {
            let round = play(name, dir, ids, args)?;
            eprintln!(
                "round {number}, {name}: prefill {:.2} s, decode {:.2} s",
                round.prefill_s, round.decode_s
            );
            rounds.push(round);
        }
    }
    report(&names, &rounds, args)
}

/// Runs one contender as a process.
fn play(name: &str, dir: &Path, ids: &[u32], args: &Args) -> Result<Round> {
    let (batch, new) = (args.batch.to_string(), args.new.to_string());
    let mut command = match name {
        "transformers" => {
            let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("transformers_peer.py");
            let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
            let mut command = Command::new(&args.python);
            command.arg(script).arg(dir).args([&batch, &new, &ids.join(",")]);
            command
        }
        _ => {
            let mut command = Command::new(std::env::current_exe()?);
            let prompt = args.prompt.to_string();
            command.arg("--model").arg(dir).args(["--one", name, "--batch", &batch]);
            command.args(["--new", &new, "--prompt", &prompt, "--dtype", &args.dtype]);
            command.args(["--kernels", &args.kernels.to_string()]);
            command
        }
    };
    let out = command.output().with_context(|| format!("{name} could not be started"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let json: Value = text
        .lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok())
        .with_context(|| format!("{name} failed: {}", String::from_utf8_lossy(&out.stderr)))?;
    let tokens = json["tokens"].as_array().context("no tokens")?;
    Ok(Round {
        prefill_s: json["prefill_s"].as_f64().context("no prefill_s")?,
        decode_s: json["decode_s"].as_f64().context("no decode_s")?,
        tokens: tokens.iter().filter_map(Value::as_u64).map(|id| id as u32).collect(),
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(names: &[&str], rounds: &[Vec<Round>], args: &Args) -> Result<()> {
    let rows = args.batch as f64;
    println!(
        "{} rounds, batch {}, a prompt of {}, {} new tokens; medians, and ours / theirs within each round",
        args.rounds, args.batch, args.prompt, args.new
    );
    for (name, theirs) in names.iter().zip(rounds) {
        let rate = |seconds: fn(&Round) -> f64, tokens: f64| {
            let rate = median(theirs.iter().map(|round| tokens / seconds(round)).collect());
            let ratios =
                rounds[0].iter().zip(theirs).map(|(ours, round)| seconds(round) / seconds(ours));
            (rate, median(ratios.collect()))
        };
        let (prefill, prefill_ratio) = rate(|round| round.prefill_s, rows * args.prompt as f64);
        let (decode, decode_ratio) = rate(|round| round.decode_s, rows * (args.new - 1) as f64);
        let same =
            if theirs[0].tokens == rounds[0][0].tokens { "equal tokens" } else { "OTHER TOKENS" };
        println!(
            "{name:<20} prefill {prefill:8.1} tokens/s ({prefill_ratio:4.2})   decode {decode:7.1} tokens/s ({decode_ratio:4.2})   {same}"
        );
    }
    Ok(())
}

/// One contender: a warm-up, then one round, as a line of JSON.
fn one(name: &str, dir: &Path, ids: &[u32], args: &Args) -> Result<()> {
    let round = match name {
        "candecode" => {
            let dtype = candecode::kit::device::dtype(&args.dtype)?;
            let model = load_model(dir, dtype, &Device::Cpu)?;
            ours(&*model, ids, args.batch, 2)?;
            ours(&*model, ids, args.batch, args.new)?
        }
        "candle-transformers" => theirs(dir, ids, args)?,
        _ => bail!("no contender {name}"),
    };
    let Round { prefill_s, decode_s, tokens } = round;
    println!("{}", json!({ "prefill_s": prefill_s, "decode_s": decode_s, "tokens": tokens }));
    Ok(())
}

/// The best token of every row.
fn best(logits: &Tensor) -> Result<Vec<u32>> {
    let rows: Vec<Vec<f32>> = logits.to_vec2()?;
    Ok(rows.iter().map(|row| argmax(row)).collect::<candle_core::Result<_>>()?)
}

fn ours(model: &dyn Model, ids: &[u32], batch: usize, new: usize) -> Result<Round> {
    let mut cache =
        KvCache::new(CacheKind::Static(ids.len() + new), model.config().num_hidden_layers);
    let mut pass = |rows: &[Vec<u32>], at: usize| -> Result<Vec<u32>> {
        let positions: Vec<u32> = (at..at + rows[0].len()).map(|p| p as u32).collect();
        let step = Step::batch(model, rows, &vec![positions; rows.len()], None)?;
        best(&model.forward(&step.with_logits(Logits::Last(1)), &mut cache)?.squeeze(1)?)
    };
    let begun = Instant::now();
    let mut last = pass(&vec![ids.to_vec(); batch], 0)?;
    let prefill_s = begun.elapsed().as_secs_f64();
    let (begun, mut tokens) = (Instant::now(), vec![last[0]]);
    for i in 0..new - 1 {
        let rows: Vec<Vec<u32>> = last.iter().map(|id| vec![*id]).collect();
        last = pass(&rows, ids.len() + i)?;
        tokens.push(last[0]);
    }
    Ok(Round { prefill_s, decode_s: begun.elapsed().as_secs_f64(), tokens })
}

/// candle-transformers' own Llama and its own cache.
fn theirs(dir: &Path, ids: &[u32], args: &Args) -> Result<Round> {
    use candle_transformers::models::llama::{Cache, Llama, LlamaConfig};
    let text = std::fs::read_to_string(dir.join("config.json"))?;
    let mut json: Value = serde_json::from_str(&text)?;
    ensure!(json["model_type"] == "llama", "candle-transformers' llama reads Llama models only");
    // transformers 5 writes it inside `rope_parameters`, where this reader does not look: it would silently take 10,000.
    if let Some(theta) = json["rope_parameters"].get("rope_theta").cloned() {
        json["rope_theta"] = theta;
    }
    let config: LlamaConfig = serde_json::from_value(json)?;
    let config = config.into_config(false);
    let tensors = candle_core::safetensors::load(dir.join("model.safetensors"), &Device::Cpu)?;
    let weights = candle_nn::VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu);
    let model = Llama::load(weights, &config)?;
    let round = |new: usize| -> Result<Round> {
        let mut cache = Cache::new(true, DType::F32, &config, &Device::Cpu)?;
        let input =
            Tensor::from_vec(ids.repeat(args.batch), (args.batch, ids.len()), &Device::Cpu)?;
        let begun = Instant::now();
        let mut last = best(&model.forward(&input, 0, &mut cache)?)?;
        let prefill_s = begun.elapsed().as_secs_f64();
        let (begun, mut tokens) = (Instant::now(), vec![last[0]]);
        for i in 0..new - 1 {
            let input = Tensor::from_vec(last, (args.batch, 1), &Device::Cpu)?;
            last = best(&model.forward(&input, ids.len() + i, &mut cache)?)?;
            tokens.push(last[0]);
        }
        Ok(Round { prefill_s, decode_s: begun.elapsed().as_secs_f64(), tokens })
    };
    round(2)?;
    round(args.new)
}
