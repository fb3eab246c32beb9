//! What `/metrics` tells, in Prometheus' text format: how much there is to do, and how long it takes. The names are vLLM's,
//! with our own prefix.

use candecode::kit::{FinishReason, SchedulerLoad};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Upper ends of the buckets for the time to the first token, in seconds.
const FIRST: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// Upper ends of the buckets for the time between two tokens.
const NEXT: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];
/// The statuses of refused requests that are counted, each by itself.
const REFUSED: [u16; 10] = [400, 401, 403, 404, 408, 413, 415, 429, 503, 504];

/// Durations, counted by how long they are.
struct Histogram {
    ends: &'static [f64; 12],
    counts: [AtomicU64; 13], // the last one is of what is longer than all
    microseconds: AtomicU64,
}

impl Histogram {
    const fn new(ends: &'static [f64; 12]) -> Self {
        Self { ends, counts: [const { AtomicU64::new(0) }; 13], microseconds: AtomicU64::new(0) }
    }

    fn add(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = self.ends.iter().position(|end| seconds <= *end).unwrap_or(self.ends.len());
        self.counts[bucket].fetch_add(1, Relaxed);
        self.microseconds.fetch_add(duration.as_micros() as u64, Relaxed);
    }

    fn write(&self, text: &mut String, name: &str, help: &str) {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut sum = 0;
        for (i, count) in self.counts.iter().enumerate() {
            sum += count.load(Relaxed);
            let end = self.ends.get(i).map_or("+Inf".to_string(), f64::to_string);
            let _ = writeln!(text, "{name}_bucket{{le=\"{end}\"}} {sum}");
        }
        let seconds = self.microseconds.load(Relaxed) as f64 / 1e6;
        let _ = writeln!(text, "{name}_sum {seconds}\n{name}_count {sum}");
    }
}

/// All that is counted.
pub struct Metrics {
    queued: AtomicUsize,
    waiting: AtomicUsize,
    running: AtomicUsize,
    /// Connections that are open.
    pub connections: AtomicUsize,
    prompt_tokens: AtomicU64,
    new_tokens: AtomicU64,
    stopped: AtomicU64,
    cut: AtomicU64,
    cancelled: AtomicU64,
    failed: AtomicU64,
    refused: [AtomicU64; 10],
    first: Histogram,
    next: Histogram,
}

impl Metrics {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self {
            queued: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            prompt_tokens: AtomicU64::new(0),
            new_tokens: AtomicU64::new(0),
            stopped: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            refused: [const { AtomicU64::new(0) }; 10],
            first: Histogram::new(&FIRST),
            next: Histogram::new(&NEXT),
        }
    }

    /// How much there is to do, after a turn of the loop.
    pub fn load(&self, queued: usize, load: SchedulerLoad) {
        self.queued.store(queued, Relaxed);
        self.waiting.store(load.waiting, Relaxed);
        self.running.store(load.running, Relaxed);
    }

    /// A request was taken, with so many tokens of prompts.
    pub fn taken(&self, prompt_tokens: usize) {
        self.prompt_tokens.fetch_add(prompt_tokens as u64, Relaxed);
    }

    /// A choice got its first token, so long after its request came.
    pub fn first_token(&self, after: Duration) {
        self.first.add(after);
        self.new_tokens.fetch_add(1, Relaxed);
    }

    /// A choice got another token, so long after the one before.
    pub fn next_token(&self, after: Duration) {
        self.next.add(after);
        self.new_tokens.fetch_add(1, Relaxed);
    }

    /// A choice ended.
    pub fn finished(&self, why: FinishReason) {
        let counter = match why {
            FinishReason::Eos | FinishReason::Stop => &self.stopped,
            FinishReason::Length => &self.cut,
            FinishReason::Failed => &self.failed,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// A client went away before its answer was whole.
    pub fn cancelled(&self) {
        self.cancelled.fetch_add(1, Relaxed);
    }

    /// A request was refused, or failed, with this status.
    pub fn refused(&self, status: u16) {
        match REFUSED.iter().position(|known| *known == status) {
            Some(i) => self.refused[i].fetch_add(1, Relaxed),
            None => self.failed.fetch_add(1, Relaxed),
        };
    }

    /// The rows that run and the requests that wait, for the line at the end.
    pub fn busy(&self) -> usize {
        self.running.load(Relaxed) + self.waiting.load(Relaxed)
    }

    /// All of it as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, help, value) in [
            ("num_requests_queued", "Requests without a place in the batch", &self.queued),
            ("num_rows_waiting", "Rows that wait for their prefill", &self.waiting),
            ("num_rows_running", "Rows of the batch", &self.running),
            ("num_connections", "Open connections", &self.connections),
        ] {
            let value = value.load(Relaxed);
            let name = format!("candecode_{name}");
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
        }
        for (name, help, value) in [
            ("prompt_tokens_total", "Tokens of prompts", &self.prompt_tokens),
            ("generation_tokens_total", "Tokens generated", &self.new_tokens),
            ("requests_cancelled_total", "Requests whose client went away", &self.cancelled),
            ("requests_failed_total", "Requests that failed here (500)", &self.failed),
        ] {
            let value = value.load(Relaxed);
            let name = format!("candecode_{name}");
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}");
        }
        let name = "candecode_request_success_total";
        let _ = writeln!(text, "# HELP {name} Choices that ended\n# TYPE {name} counter");
        for (reason, value) in [("stop", &self.stopped), ("length", &self.cut)] {
            let value = value.load(Relaxed);
            let _ = writeln!(text, "{name}{{finished_reason=\"{reason}\"}} {value}");
        }
        let name = "candecode_requests_refused_total";
        let _ = writeln!(text, "# HELP {name} Requests refused, by status\n# TYPE {name} counter");
        for (status, value) in REFUSED.iter().zip(&self.refused) {
            let value = value.load(Relaxed);
            let _ = writeln!(text, "{name}{{status=\"{status}\"}} {value}");
        }
        let name = "candecode_time_to_first_token_seconds";
        self.first.write(&mut text, name, "From a request to the first token of a choice");
        let name = "candecode_time_per_output_token_seconds";
        self.next.write(&mut text, name, "Between two tokens of a choice");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_all_that_is_no_longer() {
        let metrics = Metrics::new();
        for milliseconds in [4, 20, 20, 60_000] {
            metrics.first_token(Duration::from_millis(milliseconds));
        }
        let text = metrics.text();
        let name = "candecode_time_to_first_token_seconds";
        for line in [
            format!("{name}_bucket{{le=\"0.005\"}} 1"),
            format!("{name}_bucket{{le=\"0.025\"}} 3"),
            format!("{name}_bucket{{le=\"30\"}} 3"),
            format!("{name}_bucket{{le=\"+Inf\"}} 4"),
            format!("{name}_count 4"),
            "candecode_generation_tokens_total 4".to_string(),
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
    }
}
