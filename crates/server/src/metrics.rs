//! The metrics served at `/metrics`, in Prometheus's text format: load, totals and latencies. Where
//! vLLM has the same metric, the name is vLLM's, with our own prefix.

use crate::util::lock;
use candecode::kit::{CacheLoad, SchedulerLoad};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Number of durations and their sum.
#[derive(Default)]
struct Durations {
    count: AtomicU64,
    microseconds: AtomicU64,
}

impl Durations {
    fn add(&self, duration: Duration) {
        self.count.fetch_add(1, Relaxed);
        self.microseconds.fetch_add(duration.as_micros() as u64, Relaxed);
    }
}

/// All of the server's counters.
#[derive(Default)]
pub struct Metrics {
    /// Number of jobs in the queue, and the load of the scheduler and its cache.
    load: Mutex<(usize, SchedulerLoad, CacheLoad)>,
    prompt_tokens: AtomicU64,
    cancelled: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    first: Durations,
    next: Durations,
}

impl Metrics {
    /// Records the load after a step of the serving loop.
    pub fn load(&self, queued: usize, load: SchedulerLoad, cache: CacheLoad) {
        *lock(&self.load) = (queued, load, cache);
    }

    /// Counts a client that disconnected before its answer was complete.
    pub fn cancelled(&self) {
        self.cancelled.fetch_add(1, Relaxed);
    }

    /// Counts a request that was rejected, or failed with 500 or 501.
    pub fn refused(&self, status: u16) {
        let counter = if matches!(status, 500 | 501) { &self.failed } else { &self.refused };
        counter.fetch_add(1, Relaxed);
    }

    /// Returns the number of running and waiting rows, for the shutdown message.
    pub fn busy(&self) -> usize {
        lock(&self.load).1.rows()
    }

    /// Renders all counters as text, and the number of open connections.
    pub fn text(&self, connections: usize) -> String {
        let mut text = String::new();
        let (queued, load, cache) = *lock(&self.load);
        let tokens = self.first.count.load(Relaxed) + self.next.count.load(Relaxed);
        for (kind, name, help, value) in [
            ("gauge", "num_requests_queued", "Requests not yet in the batch", queued as u64),
            ("gauge", "num_rows_waiting", "Rows waiting for their prefill", load.waiting as u64),
            ("gauge", "num_rows_running", "Rows in the batch", load.running as u64),
            ("gauge", "num_blocks", "Blocks in the cache", cache.blocks as u64),
            ("gauge", "num_blocks_used", "Blocks held by running rows", cache.blocks_used as u64),
            ("gauge", "num_connections", "Open connections", connections as u64),
            ("counter", "prompt_tokens_total", "Prompt tokens", self.prompt_tokens.load(Relaxed)),
            ("counter", "generation_tokens_total", "Tokens generated", tokens),
            ("counter", "num_preemptions_total", "Rows preempted", cache.preemptions as u64),
            (
                "counter",
                "prefix_cache_queries_total",
                "Prompt tokens looked up in the prefix cache",
                cache.prefix_queries as u64,
            ),
            (
                "counter",
                "prefix_cache_hits_total",
                "Prompt tokens found in the prefix cache",
                cache.prefix_hits as u64,
            ),
            (
                "counter",
                "requests_cancelled_total",
                "Requests whose client disconnected",
                self.cancelled.load(Relaxed),
            ),
            ("counter", "requests_refused_total", "Requests rejected", self.refused.load(Relaxed)),
            ("counter", "requests_failed_total", "Requests failed", self.failed.load(Relaxed)),
        ] {
            let name = format!("candecode_{name}");
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        }
        for (name, help, durations) in [
            ("time_to_first_token", "From a request to the first token of a choice", &self.first),
            ("time_per_output_token", "Between two tokens of a choice", &self.next),
        ] {
            let name = format!("candecode_{name}_seconds");
            let seconds = durations.microseconds.load(Relaxed) as f64 / 1e6;
            let count = durations.count.load(Relaxed);
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} summary");
            let _ = writeln!(text, "{name}_sum {seconds}\n{name}_count {count}");
        }
        text
    }
}

/// Measures the tokens of one request, as the loop sends them.
pub struct TokenMeter {
    /// The server's counters.
    pub metrics: Arc<Metrics>,
    /// Number of tokens in all prompts, counted with the first token of the answer.
    prompt_tokens: usize,
    /// Arrival time of the request.
    came: Instant,
    /// Time of each choice's latest token.
    newest: RefCell<Vec<Option<Instant>>>,
}

impl TokenMeter {
    /// Measures a request that arrives now, with this many choices, and `prompt_tokens` tokens in
    /// all of its prompts.
    pub fn new(choices: usize, prompt_tokens: usize, metrics: Arc<Metrics>) -> Self {
        let newest = RefCell::new(vec![None; choices]);
        Self { metrics, prompt_tokens, came: Instant::now(), newest }
    }

    /// Counts a token of choice `index`.
    pub fn count(&self, index: usize) {
        let now = Instant::now();
        let mut newest = self.newest.borrow_mut();
        if newest.iter().all(Option::is_none) {
            self.metrics.prompt_tokens.fetch_add(self.prompt_tokens as u64, Relaxed);
        }
        match newest.get_mut(index).and_then(|newest| newest.replace(now)) {
            None => self.metrics.first.add(now - self.came),
            Some(before) => self.metrics.next.add(now - before),
        }
    }
}
