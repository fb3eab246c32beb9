//! A stopwatch for work that is repeated: the fastest sample counts.

use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// How long one measurement of a round takes, if five samples don't take longer.
const BUDGET: Duration = Duration::from_millis(500);

/// The fastest time of each measurement, over all rounds.
///
/// The fastest, not the median: the work is the same in every sample, and whatever else a machine
/// does adds time to some and removes it from none. A ratio of two medians moves with the
/// neighbours, a ratio of two fastest samples hardly.
pub struct Times {
    fastest: BTreeMap<String, f64>,
    only: Option<String>,
}

impl Times {
    /// Returns a stopwatch with nothing measured yet, which skips all measurements but `only`.
    pub fn new(only: Option<String>) -> Self {
        Self { fastest: BTreeMap::new(), only }
    }

    /// Measures a piece of work.
    ///
    /// # Errors
    /// If the work fails.
    pub fn measure<T, E: Into<anyhow::Error>>(
        &mut self,
        name: &str,
        mut work: impl FnMut() -> Result<T, E>,
    ) -> Result<()> {
        let mut repeats = 1;
        self.samples(name, || {
            let begun = Instant::now();
            for _ in 0..repeats {
                black_box(work().map_err(Into::into)?);
            }
            let seconds = begun.elapsed().as_secs_f64();
            let one = seconds / f64::from(repeats);
            // Reading the clock takes time, too: a sample should last for 100 µs or more.
            if seconds < 1e-4 {
                repeats *= 2;
            }
            Ok(one)
        })
    }

    /// Measures work that keeps its own time: each sample returns its seconds.
    ///
    /// # Errors
    /// If a sample fails.
    pub fn samples(&mut self, name: &str, mut sample: impl FnMut() -> Result<f64>) -> Result<()> {
        if self.only.as_deref().is_some_and(|only| only != name) {
            return Ok(());
        }
        let (mut fastest, mut count, begun) = (f64::INFINITY, 0, Instant::now());
        while count < 5 || begun.elapsed() < BUDGET {
            fastest = fastest.min(sample().with_context(|| name.to_string())?);
            count += 1;
        }
        eprintln!("{name:<40} {}", shown(fastest));
        let known = self.fastest.entry(name.to_string()).or_insert(fastest);
        *known = known.min(fastest);
        Ok(())
    }

    /// Returns the fastest time of a measurement, in seconds.
    ///
    /// # Errors
    /// If nothing of that name was measured.
    pub fn of(&self, name: &str) -> Result<f64> {
        self.fastest.get(name).copied().with_context(|| format!("{name} was not measured"))
    }

    /// Returns the points of a line: the times of `KIND_SIZE` over the sizes.
    ///
    /// # Errors
    /// If one was not measured.
    pub fn line(&self, kind: &str, sizes: &[usize]) -> Result<Vec<(f64, f64)>> {
        sizes.iter().map(|n| Ok((*n as f64, self.of(&format!("{kind}_{n}"))?))).collect()
    }

    /// Prints every measurement.
    pub fn print(&self) {
        for (name, seconds) in &self.fastest {
            println!("{name:<40} {}", shown(*seconds));
        }
    }
}

/// Returns a time in a unit that suits it.
fn shown(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.2} µs", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// Returns the median of some values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}
