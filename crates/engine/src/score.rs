//! `candecode --score DAY`, for `cargo xtask list --score`: replays one trace of 24 requests with a
//! day's loop and prints what it cost, as JSON.

use crate::operations::{self, Kernels};
use crate::{credits, load};
use anyhow::Result;
use candecode::day07_greedy::{generate, Sequence};
use candecode::day10_kv_cache::{generate_cached, Cached, DynamicCache};
use candecode::day12_batching::{generate_batch, BatchCache};
use candecode::day15_scheduler::Scheduler;
use candecode::day21_pages::{PagedBatch, PagedCache};
use candecode::day23_token_budget::{Limits, TokenScheduler};
use candecode::kit::ops::SharedOps;
use candecode::kit::{Batch, Cache, Model, ModelConfig, Request, SchedulerInterface, Step, Token};
use candecode::kit::{TokenIter, Tokenizer};
use candecode::DAYS;
use candecode_formats::{hub, read_tokenizer};
use candle_core::{DType, Device, Tensor};
use serde_json::Value;
use std::cell::Cell;
use std::fmt;
use std::time::Instant;

/// The model that the trace is replayed with.
const MODEL: &str = "story-3m";
/// The number of requests served at a time, if the loop can serve several.
const ROWS: usize = 8;
/// The number of replays. The fastest one counts.
const REPLAYS: usize = 3;

/// Returns the trace: 24 prompts, each with its number of new tokens. Every fourth request
/// generates a long text (48 to 64 tokens), the rest generate short ones (4 to 16).
pub fn trace() -> Vec<(Vec<u32>, usize)> {
    let wants = |i: usize| if i.is_multiple_of(4) { 48 + 7 * i % 17 } else { 4 + 5 * i % 13 };
    (0..24).map(|i| ((300..304 + i as u32 % 6).collect(), wants(i))).collect()
}

/// A model that counts its passes and the positions computed in them, padding included.
pub struct Counted<'a> {
    model: &'a dyn Model,
    passes: Cell<usize>,
    positions: Cell<usize>,
}

impl<'a> Counted<'a> {
    /// Wraps a model. Nothing is counted yet.
    pub fn new(model: &'a dyn Model) -> Self {
        Self { model, passes: Cell::new(0), positions: Cell::new(0) }
    }

    /// Returns the number of passes so far.
    pub fn passes(&self) -> usize {
        self.passes.get()
    }

    /// Returns the number of positions computed so far.
    pub fn positions(&self) -> usize {
        self.positions.get()
    }
}

impl Model for Counted<'_> {
    fn config(&self) -> &ModelConfig {
        self.model.config()
    }

    fn device(&self) -> &Device {
        self.model.device()
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> candle_core::Result<Tensor> {
        self.passes.set(self.passes.get() + 1);
        self.positions.set(self.positions.get() + step.ids.elem_count());
        self.model.forward(step, cache)
    }
}

/// The texts and times of a replay.
struct Replay {
    begun: Instant,
    texts: Vec<Vec<u32>>,
    /// Seconds until each request's first token. All requests arrive at the start.
    first: Vec<f64>,
}

impl Replay {
    /// Records a token of request `from + row`.
    fn push(&mut self, from: usize, token: &Token) {
        let text = &mut self.texts[from + token.row];
        if text.is_empty() {
            self.first.push(self.begun.elapsed().as_secs_f64());
        }
        text.push(token.id);
    }

    /// Records all tokens of a loop. Its row 0 is request `from`.
    fn drain(&mut self, from: usize, tokens: TokenIter) -> Result<()> {
        for token in tokens {
            self.push(from, &token?);
        }
        Ok(())
    }
}

/// Replays the trace with a day's loop and returns the cost of the fastest replay.
///
/// # Errors
/// If the model can't be loaded, or the loop fails.
pub fn score(by: &TraceLoop) -> Result<Value> {
    let ops = operations::choose(Some(Kernels::Fast), &Device::Cpu);
    let folder = hub::locate(MODEL, None)?;
    let tokenizer = read_tokenizer(&folder)?;
    let model = load::load_transformer(&folder, DType::F32, &Device::Cpu, &ops)?;
    let texts = trace();
    let mut fastest: Option<(f64, Value)> = None;
    for _ in 0..REPLAYS {
        let counted = Counted::new(&model);
        let served = Trace { model: &counted, tokenizer: &tokenizer, ops: &ops, texts: &texts };
        let empty = vec![Vec::new(); texts.len()];
        let mut replay = Replay { begun: Instant::now(), texts: empty, first: Vec::new() };
        (by.serve)(&served, &mut replay)?;
        let seconds = replay.begun.elapsed().as_secs_f64();
        if fastest.as_ref().is_some_and(|(least, _)| *least <= seconds) {
            continue;
        }
        // The last token of a text is never fed to the model.
        let needed: usize = texts.iter().map(|(prompt, new)| prompt.len() + new - 1).sum();
        let cost = serde_json::json!({
            "loop": by.day,
            "whose": credits::whose(DAYS),
            "passes": counted.passes(),
            "positions": counted.positions(),
            "wasted": counted.positions().saturating_sub(needed),
            "tokens": replay.texts.iter().map(Vec::len).sum::<usize>(),
            "seconds": seconds,
            "first token": replay.first.iter().sum::<f64>() / replay.first.len().max(1) as f64,
            "texts": replay.texts,
        });
        fastest = Some((seconds, cost));
    }
    Ok(fastest.map(|(_, cost)| cost).unwrap_or_default())
}

/// A model, and the requests of the trace.
struct Trace<'a> {
    model: &'a dyn Model,
    tokenizer: &'a Tokenizer,
    ops: &'a SharedOps,
    texts: &'a [(Vec<u32>, usize)],
}

impl<'a> Trace<'a> {
    /// Returns the requests: greedy, and nothing ends a text early, so every loop does the same
    /// work.
    fn requests(&self) -> impl Iterator<Item = Request<'a>> + 'a {
        let (model, ops) = (self.model, self.ops);
        self.texts.iter().map(move |(prompt, new)| {
            let mut request = Request::new(model.config(), prompt, *new, operations::greedy(ops));
            request.eos_token_ids.clear();
            request
        })
    }

    fn layers(&self) -> usize {
        self.model.config().num_hidden_layers
    }
}

/// A day's loop that can serve the trace.
pub struct TraceLoop {
    /// The day that builds it.
    day: usize,
    /// Serves the trace.
    serve: fn(&Trace, &mut Replay) -> Result<()>,
}

/// The loops that can serve the trace.
static LOOPS: &[TraceLoop] = &[
    TraceLoop { day: 7, serve: one_by_one },
    TraceLoop { day: 10, serve: cached },
    TraceLoop { day: 12, serve: batches },
    TraceLoop { day: 15, serve: scheduled },
    TraceLoop { day: 21, serve: paged },
    TraceLoop { day: 23, serve: with_budget },
];

impl TraceLoop {
    /// Parses a day whose loop can serve the trace.
    ///
    /// # Errors
    /// If there is no such loop.
    pub fn parse(text: &str) -> Result<&'static Self, String> {
        let day = text.parse().ok();
        let found = LOOPS.iter().find(|known| Some(known.day) == day);
        found.ok_or_else(|| format!("day {text} has no loop for this trace"))
    }
}

impl fmt::Debug for TraceLoop {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "day{}", self.day)
    }
}

fn one_by_one(trace: &Trace, replay: &mut Replay) -> Result<()> {
    for (id, request) in trace.requests().enumerate() {
        replay.drain(id, generate(trace.model, trace.tokenizer, request)?)?;
    }
    Ok(())
}

fn cached(trace: &Trace, replay: &mut Replay) -> Result<()> {
    for (id, request) in trace.requests().enumerate() {
        let cached = Cached::new(trace.model, Box::new(DynamicCache::new(trace.layers())));
        replay.drain(id, generate_cached(cached, trace.tokenizer, request)?)?;
    }
    Ok(())
}

fn batches(trace: &Trace, replay: &mut Replay) -> Result<()> {
    let mut requests = trace.requests();
    for from in (0..trace.texts.len()).step_by(ROWS) {
        let batch = requests.by_ref().take(ROWS).collect();
        let cache = Box::new(BatchCache::new(trace.layers(), None));
        replay.drain(from, generate_batch(trace.model, trace.tokenizer, batch, cache)?)?;
    }
    Ok(())
}

fn scheduled(trace: &Trace, replay: &mut Replay) -> Result<()> {
    let layers = trace.layers();
    let new_cache = move || Box::new(BatchCache::new(layers, None)) as Box<dyn Batch>;
    let scheduler = Scheduler::new(trace.model, trace.tokenizer, Box::new(new_cache), usize::MAX);
    schedule(scheduler, trace.requests(), replay)
}

fn paged(trace: &Trace, replay: &mut Replay) -> Result<()> {
    let cache = PagedCache::new(trace.layers(), 64, 16)?;
    let mut batch = PagedBatch::new(trace.model, Vec::new(), cache);
    let mut requests = trace.requests().enumerate();
    loop {
        for (id, mut request) in requests.by_ref().take(ROWS - batch.running.len()) {
            request.id = id;
            batch.running.push(Sequence::new(request, trace.tokenizer));
        }
        if batch.running.is_empty() {
            return Ok(());
        }
        batch.step()?.iter().for_each(|token| replay.push(0, token));
    }
}

fn with_budget(trace: &Trace, replay: &mut Replay) -> Result<()> {
    let cache = PagedCache::new(trace.layers(), 64, 16)?;
    let limits = Limits { max_num_batched_tokens: 64, max_num_seqs: ROWS };
    let scheduler = TokenScheduler::new(trace.model, trace.tokenizer, cache, None, limits)?;
    schedule(scheduler, trace.requests(), replay)
}

/// Drives a scheduler until every request has been served, with at most [`ROWS`] in it at a time.
fn schedule<'a>(
    mut scheduler: impl SchedulerInterface<'a>,
    requests: impl Iterator<Item = Request<'a>>,
    replay: &mut Replay,
) -> Result<()> {
    let mut requests = requests.enumerate();
    loop {
        let load = scheduler.load();
        for (id, mut request) in requests.by_ref().take(ROWS - load.waiting - load.running) {
            request.id = id;
            scheduler.submit(request)?;
        }
        let load = scheduler.load();
        if load.waiting + load.running == 0 {
            return Ok(());
        }
        scheduler.step()?.iter().for_each(|token| replay.push(0, token));
    }
}
