//! Our engine's runs, each in its own process.

use super::best;
use crate::shared::{cache, request, text_of};
use anyhow::{Context as _, Result};
use candecode::day10_kv_cache::{Cached, StaticCache};
use candecode::day13_speculative::{decode_block, NgramDrafter, SpeculativeDecoder};
use candecode::kit::WeightFormat;
use candecode::kit::{device, Cache, Logits, Model, QuantType, Step, Tokenizer};
use candecode_engine::kernels;
use candecode_engine::load::{load_transformer, quantized_format};
use candecode_engine::operations::{self, Kernels};
use candecode_engine::CacheConfig;
use candecode_formats::read_tokenizer;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Instant;

/// The kind of measurement.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub enum What {
    Engine,
    Verify,
    Speculate,
}

/// One run: the measurement, the model, and the settings.
#[derive(Clone, Serialize, Deserialize)]
pub struct Job {
    pub what: What,
    pub model: PathBuf,
    pub device: String,
    /// The prompt. Any tokens will do, as long as all engines use the same ones.
    pub prompt: Vec<u32>,
    pub new: usize,
    pub batch: usize,
    /// A dtype, a format from day 19, or `stored`.
    pub weights: String,
    pub plain_kernels: bool,
    pub growing_cache: bool,
}

impl Job {
    /// Returns a job that runs the engine in f32, on one row, with the fast kernels and a static
    /// cache.
    pub fn new(model: PathBuf, device: String, prompt: Vec<u32>, new: usize) -> Self {
        let weights = "f32".to_string();
        let (plain_kernels, growing_cache) = (false, false);
        let what = What::Engine;
        Self { what, model, device, prompt, new, batch: 1, weights, plain_kernels, growing_cache }
    }

    /// Returns the command that runs this job.
    pub fn command(&self) -> Result<Vec<String>> {
        let program = std::env::current_exe()?.display().to_string();
        Ok(vec![program, "--job".to_string(), serde_json::to_string(self)?])
    }
}

/// The times of one run, and its output.
#[derive(Serialize, Deserialize)]
pub struct Run {
    /// Seconds until the first token of every row.
    pub prefill_s: f64,
    /// Seconds for all tokens after the first.
    pub decode_s: f64,
    /// Greedy tokens of the first row.
    pub tokens: Vec<u32>,
    /// Bytes read per decoding pass (our engine only).
    pub bytes: Option<f64>,
}

/// The times of a text without drafts, and with n-gram drafts of up to `k` tokens.
#[derive(Serialize, Deserialize)]
pub struct Drafted {
    pub plain_s: f64,
    pub rows: Vec<Drafts>,
}

#[derive(Serialize, Deserialize)]
pub struct Drafts {
    pub k: usize,
    pub seconds: f64,
    /// Tokens written per pass.
    pub a_pass: f64,
    /// Whether the text is the same as without drafts.
    pub same: bool,
}

/// Runs a job and prints its result as a line of JSON.
///
/// # Errors
/// If the model can't be loaded, or fails.
pub fn play(job: &str) -> Result<()> {
    let job: Job = serde_json::from_str(job).context("not a job")?;
    let format = match job.weights.as_str() {
        "stored" => WeightFormat::AsStored,
        "q8_0" => quantized_format(QuantType::Q8_0),
        "q4_0" => quantized_format(QuantType::Q4_0),
        name => device::dtype(name)?.into(),
    };
    let device = device::device(&job.device)?;
    let kernels = if job.plain_kernels { Kernels::Plain } else { Kernels::Fast };
    let ops = operations::choose(Some(kernels), &device);
    let model = load_transformer(&job.model, format, &device, &ops)?;
    let line = match job.what {
        What::Engine => {
            engine(&model, &Job { batch: 1, ..job.clone() }, 2)?; // warms up
            serde_json::to_string(&engine(&model, &job, job.new)?)
        }
        What::Verify => serde_json::to_string(&verify(&model, &job.prompt)?),
        What::Speculate => {
            let tokenizer = read_tokenizer(&job.model)?;
            serde_json::to_string(&speculate(&model, &tokenizer)?)
        }
    };
    println!("{}", line?);
    Ok(())
}

/// Runs one pass over the next tokens of all rows. Returns the most likely token after each row.
fn pass(model: &dyn Model, rows: &[Vec<u32>], cache: &mut dyn Cache) -> Result<Vec<u32>> {
    let at = cache.len();
    let positions: Vec<u32> = (at..at + rows[0].len()).map(|p| p as u32).collect();
    let step = Step::batch(model, rows, &vec![positions; rows.len()], None)?;
    best(&model.forward(&step.with_logits(Logits::Last(1)), cache)?.squeeze(1)?)
}

/// Measures prefill and greedy decoding of identical rows.
fn engine(model: &dyn Model, job: &Job, new: usize) -> Result<Run> {
    let kind = if job.growing_cache {
        CacheConfig::Dynamic
    } else {
        CacheConfig::Static(job.prompt.len() + new)
    };
    let mut cache = kind.new_cache(model.config().num_hidden_layers)?;
    let begun = Instant::now();
    let mut last = pass(model, &vec![job.prompt.clone(); job.batch], &mut *cache)?;
    let prefill_s = begun.elapsed().as_secs_f64();
    let read = kernels::bytes_read();
    let (begun, mut tokens) = (Instant::now(), vec![last[0]]);
    for _ in 1..new {
        let rows: Vec<Vec<u32>> = last.iter().map(|id| vec![*id]).collect();
        last = pass(model, &rows, &mut *cache)?;
        tokens.push(last[0]);
    }
    let decode_s = begun.elapsed().as_secs_f64();
    let bytes = (kernels::bytes_read() - read) as f64 / (new - 1) as f64;
    Ok(Run { prefill_s, decode_s, tokens, bytes: Some(bytes).filter(|bytes| *bytes > 0.0) })
}

/// Numbers of tokens in a verification pass.
pub const VERIFIED: [usize; 8] = [1, 2, 3, 4, 5, 6, 8, 16];

/// Returns the seconds for a pass over m new tokens after a prompt, with the logits of all m. Each
/// is the fastest of 25 runs, with the sizes alternating.
fn verify(model: &dyn Model, ids: &[u32]) -> Result<Vec<f64>> {
    let mut cache = StaticCache::new(model.config().num_hidden_layers, ids.len() + 16);
    pass(model, &[ids.to_vec()], &mut cache)?;
    let mut seconds = vec![f64::INFINITY; VERIFIED.len()];
    for _ in 0..25 {
        for (seconds, m) in seconds.iter_mut().zip(VERIFIED) {
            let step = Step::new(model, &ids[..m], cache.len())?;
            let begun = Instant::now();
            model.forward(&step, &mut cache)?.to_vec3::<f32>()?;
            *seconds = seconds.min(begun.elapsed().as_secs_f64());
            cache.truncate(ids.len())?;
        }
    }
    Ok(seconds)
}

/// New tokens in the repetitive text.
const DRAFTED: usize = 128;

/// Measures a repetitive text without drafts, and with n-gram drafts of 2 to 8 tokens.
fn speculate(model: &dyn Model, tokenizer: &Tokenizer) -> Result<Drafted> {
    let prompt = tokenizer.encode(&"The sky is blue. ".repeat(24))?;
    let begun = Instant::now();
    let plain = text_of(model, tokenizer, request(model, &prompt, DRAFTED))?;
    let plain_s = begun.elapsed().as_secs_f64();
    let mut rows = vec![];
    for k in [2, 4, 8] {
        let drafter = Box::new(NgramDrafter { n: 2, vocab_size: model.config().vocab_size });
        let target = Cached::new(model, Box::new(cache(model)));
        let request = request(model, &prompt, DRAFTED);
        let mut decoder = SpeculativeDecoder::new(target, tokenizer, request, drafter, k)?;
        let begun = Instant::now();
        while decode_block(&mut decoder)?.last().is_some_and(|token| token.finish.is_none()) {}
        let seconds = begun.elapsed().as_secs_f64();
        let same = decoder.sequence.tokens[prompt.len()..] == plain[..];
        let a_pass = decoder.counts.written as f64 / decoder.counts.passes.max(1) as f64;
        rows.push(Drafts { k, seconds, a_pass, same });
    }
    Ok(Drafted { plain_s, rows })
}
