//! The metrics served at `/metrics`, in Prometheus's text format: load, totals and latencies. Where
//! vLLM has the same metric, the name is vLLM's, with our own prefix.

use candecode::day20_serve::{ChoiceToken, Connection, Event};
use candecode::kit::{CacheLoad, SchedulerLoad};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
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
    queued: AtomicUsize,
    waiting: AtomicUsize,
    running: AtomicUsize,
    blocks: AtomicUsize,
    blocks_used: AtomicUsize,
    preemptions: AtomicUsize,
    prefix_queries: AtomicUsize,
    prefix_hits: AtomicUsize,
    /// Number of open connections.
    pub connections: AtomicUsize,
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
        self.queued.store(queued, Relaxed);
        self.waiting.store(load.waiting, Relaxed);
        self.running.store(load.running, Relaxed);
        self.blocks.store(cache.blocks, Relaxed);
        self.blocks_used.store(cache.blocks_used, Relaxed);
        self.preemptions.store(cache.preemptions, Relaxed);
        self.prefix_queries.store(cache.prefix_queries, Relaxed);
        self.prefix_hits.store(cache.prefix_hits, Relaxed);
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
        self.running.load(Relaxed) + self.waiting.load(Relaxed)
    }

    /// Renders all counters as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let of = |number: &AtomicUsize| number.load(Relaxed) as u64;
        let tokens = self.first.count.load(Relaxed) + self.next.count.load(Relaxed);
        for (kind, name, help, value) in [
            ("gauge", "num_requests_queued", "Requests not yet in the batch", of(&self.queued)),
            ("gauge", "num_rows_waiting", "Rows waiting for their prefill", of(&self.waiting)),
            ("gauge", "num_rows_running", "Rows in the batch", of(&self.running)),
            ("gauge", "num_blocks", "Blocks in the cache", of(&self.blocks)),
            ("gauge", "num_blocks_used", "Blocks held by running rows", of(&self.blocks_used)),
            ("gauge", "num_connections", "Open connections", of(&self.connections)),
            ("counter", "prompt_tokens_total", "Prompt tokens", self.prompt_tokens.load(Relaxed)),
            ("counter", "generation_tokens_total", "Tokens generated", tokens),
            ("counter", "num_preemptions_total", "Rows preempted", of(&self.preemptions)),
            (
                "counter",
                "prefix_cache_queries_total",
                "Prompt tokens looked up in the prefix cache",
                of(&self.prefix_queries),
            ),
            (
                "counter",
                "prefix_cache_hits_total",
                "Prompt tokens found in the prefix cache",
                of(&self.prefix_hits),
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

/// A client's connection, and the counts and latencies of the tokens that the loop sends there.
pub struct Measured<C> {
    connection: C,
    metrics: Arc<Metrics>,
    /// Number of tokens in all prompts, counted with the first token of the answer.
    prompt_tokens: usize,
    /// Arrival time of the request.
    came: Instant,
    /// Time of each choice's latest token.
    newest: RefCell<Vec<Option<Instant>>>,
}

impl<C: Connection> Measured<C> {
    /// Measures the connection of a request that arrives now, with this many choices, and
    /// `prompt_tokens` tokens in all of its prompts.
    pub fn new(connection: C, choices: usize, prompt_tokens: usize, metrics: Arc<Metrics>) -> Self {
        let newest = RefCell::new(vec![None; choices]);
        Self { connection, metrics, prompt_tokens, came: Instant::now(), newest }
    }

    fn measure(&self, piece: &ChoiceToken) {
        let now = Instant::now();
        let mut newest = self.newest.borrow_mut();
        if newest.iter().all(Option::is_none) {
            self.metrics.prompt_tokens.fetch_add(self.prompt_tokens as u64, Relaxed);
        }
        match newest.get_mut(piece.index).and_then(|newest| newest.replace(now)) {
            None => self.metrics.first.add(now - self.came),
            Some(before) => self.metrics.next.add(now - before),
        }
    }
}

impl<C: Connection> Connection for Measured<C> {
    fn send(&self, event: Event) {
        if let Event::Token(piece) = &event {
            self.measure(piece);
        }
        self.connection.send(event);
    }

    fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }
}
