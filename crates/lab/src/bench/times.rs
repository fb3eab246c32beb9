//! A stopwatch for repeated work. The fastest sample counts.

use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

/// Target time for one measurement in a round. Five samples are taken even if that takes longer,
/// but none after [`MOST`].
const BUDGET: Duration = Duration::from_millis(500);
const MOST: Duration = Duration::from_secs(5);

/// The fastest time of each measurement, over all rounds.
///
/// Uses the fastest sample rather than the median, because the work is the same in every sample and
/// other load on the machine can only add time. That load shifts the ratio of two medians, but
/// hardly affects the ratio of two fastest samples.
pub struct Times {
    fastest: BTreeMap<String, f64>,
    only: Option<String>,
    /// The reference's times, measured just before.
    beside: BTreeMap<String, f64>,
}

impl Times {
    /// Returns an empty stopwatch. If `only` is set, it skips all other measurements.
    pub fn new(only: Option<String>) -> Self {
        Self { fastest: BTreeMap::new(), only, beside: BTreeMap::new() }
    }

    /// Reads the reference's times from a file.
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn put_beside(&mut self, file: &Path) -> Result<()> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        self.beside = serde_json::from_str(&text)?;
        Ok(())
    }

    /// Writes all times to a file.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn save(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string(&self.fastest)?;
        std::fs::write(file, text).with_context(|| file.display().to_string())
    }

    /// Measures some work.
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
            // Reading the clock also takes time, so a sample should last at least 100 µs.
            if seconds < 1e-4 {
                repeats *= 2;
            }
            Ok(one)
        })
    }

    /// Measures work that times itself: each sample returns its seconds.
    ///
    /// # Errors
    /// If a sample fails.
    pub fn samples(&mut self, name: &str, mut sample: impl FnMut() -> Result<f64>) -> Result<()> {
        self.several([name], || Ok([sample()?]))
    }

    /// Measures work that times several parts of itself: each sample returns the seconds of each.
    ///
    /// # Errors
    /// If a sample fails.
    pub fn several<const N: usize>(
        &mut self,
        names: [&str; N],
        mut sample: impl FnMut() -> Result<[f64; N]>,
    ) -> Result<()> {
        if self.only.as_deref().is_some_and(|only| !names.contains(&only)) {
            return Ok(());
        }
        let (mut fastest, mut count, begun) = ([f64::INFINITY; N], 0, Instant::now());
        while begun.elapsed() < if count < 5 { MOST } else { BUDGET } {
            let seconds = sample().with_context(|| names.join(", "))?;
            for (fastest, seconds) in fastest.iter_mut().zip(seconds) {
                *fastest = fastest.min(seconds);
            }
            count += 1;
        }
        for (name, seconds) in names.into_iter().zip(fastest) {
            eprintln!("{name:<40} {}", shown(seconds));
            let known = self.fastest.entry(name.to_string()).or_insert(seconds);
            *known = known.min(seconds);
        }
        Ok(())
    }

    /// Returns the fastest time of a measurement, in seconds.
    ///
    /// # Errors
    /// If nothing with that name was measured.
    pub fn of(&self, name: &str) -> Result<f64> {
        self.fastest.get(name).copied().with_context(|| format!("{name} was not measured"))
    }

    /// Returns the reference's time, if it was measured.
    pub fn beside(&self, name: &str) -> Option<f64> {
        self.beside.get(name).copied()
    }

    /// Returns the points of the reference's line, with times in `unit`s. Empty if it wasn't
    /// measured.
    pub fn beside_line(&self, kind: &str, sizes: &[usize], unit: f64) -> Vec<(f64, f64)> {
        let point = |n: &usize| Some((*n as f64, self.beside(&format!("{kind}_{n}"))? / unit));
        sizes.iter().filter_map(point).collect()
    }

    /// Returns the points of a line: the times of `KIND_SIZE` for each size.
    ///
    /// # Errors
    /// If one of them wasn't measured.
    pub fn line(&self, kind: &str, sizes: &[usize]) -> Result<Vec<(f64, f64)>> {
        sizes.iter().map(|n| Ok((*n as f64, self.of(&format!("{kind}_{n}"))?))).collect()
    }
}

/// Formats a time in a suitable unit.
pub fn shown(seconds: f64) -> String {
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
