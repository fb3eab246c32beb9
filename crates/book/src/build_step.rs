//! How far a build of the book is: a line of a terminal's standard error, with the seconds that the
//! step has taken. Elsewhere it is a plain line, and at most one every few seconds.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// Where there is no terminal, lines have at least this distance.
const DISTANCE: Duration = Duration::from_secs(4);

/// A step of the build. Its line goes when this is dropped.
pub struct Step {
    line: ProgressBar,
    name: &'static str,
    said: Instant,
}

impl Step {
    /// Begins a step.
    pub fn new(name: &'static str) -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let line = ProgressBar::new_spinner().with_style(style).with_message(name);
        line.enable_steady_tick(Duration::from_millis(100));
        Self { line, name, said: Instant::now() }
    }

    /// Says that the step is at its part `at` of `all`.
    pub fn at(&mut self, at: usize, all: usize) {
        let text = format!("{}: {at} of {all}", self.name);
        if self.line.is_hidden() && self.said.elapsed() > DISTANCE {
            eprintln!("{text}");
            self.said = Instant::now();
        }
        self.line.set_message(text);
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}
