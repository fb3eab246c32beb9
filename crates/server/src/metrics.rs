//! What `/metrics` tells, in Prometheus' text format: how much there is to do, and how long it
//! takes. The names are vLLM's, with our own prefix.

use candecode::kit::SchedulerLoad;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// How many durations there were, and how long they were together.
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

/// All that is counted.
#[derive(Default)]
pub struct Metrics {
    queued: AtomicUsize,
    waiting: AtomicUsize,
    running: AtomicUsize,
    /// Connections that are open.
    pub connections: AtomicUsize,
    prompt_tokens: AtomicU64,
    cancelled: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    first: Durations,
    next: Durations,
}

impl Metrics {
    /// How much there is to do, after a turn of the loop.
    pub fn load(&self, queued: usize, load: SchedulerLoad) {
        self.queued.store(queued, Relaxed);
        self.waiting.store(load.waiting, Relaxed);
        self.running.store(load.running, Relaxed);
    }

    /// A request was taken, with prompts of this many tokens.
    pub fn taken(&self, prompt_tokens: usize) {
        self.prompt_tokens.fetch_add(prompt_tokens as u64, Relaxed);
    }

    /// A choice got its first token, this long after its request came.
    pub fn first_token(&self, after: Duration) {
        self.first.add(after);
    }

    /// A choice got another token, this long after the one before.
    pub fn next_token(&self, after: Duration) {
        self.next.add(after);
    }

    /// A client went away before its answer was whole.
    pub fn cancelled(&self) {
        self.cancelled.fetch_add(1, Relaxed);
    }

    /// A request was refused, or failed here, with this status.
    pub fn refused(&self, status: u16) {
        let counter = if status == 500 { &self.failed } else { &self.refused };
        counter.fetch_add(1, Relaxed);
    }

    /// The rows that run and wait, for the line at the end.
    pub fn busy(&self) -> usize {
        self.running.load(Relaxed) + self.waiting.load(Relaxed)
    }

    /// All of it as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let of = |number: &AtomicUsize| number.load(Relaxed) as u64;
        let tokens = self.first.count.load(Relaxed) + self.next.count.load(Relaxed);
        for (kind, name, help, value) in [
            ("gauge", "num_requests_queued", "Requests not yet in the batch", of(&self.queued)),
            ("gauge", "num_rows_waiting", "Rows that wait for their prefill", of(&self.waiting)),
            ("gauge", "num_rows_running", "Rows of the batch", of(&self.running)),
            ("gauge", "num_connections", "Open connections", of(&self.connections)),
            ("counter", "prompt_tokens_total", "Prompt tokens", self.prompt_tokens.load(Relaxed)),
            ("counter", "generation_tokens_total", "Tokens generated", tokens),
            (
                "counter",
                "requests_cancelled_total",
                "Requests whose client went away",
                self.cancelled.load(Relaxed),
            ),
            ("counter", "requests_refused_total", "Requests refused", self.refused.load(Relaxed)),
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
