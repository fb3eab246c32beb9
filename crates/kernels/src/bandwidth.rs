//! Bytes: how many the kernels have read, and how many this machine can read in a second.

use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Bytes that the kernels have read, in the whole process. A counter for `--stats`: nothing depends
/// on it.
static READ: AtomicU64 = AtomicU64::new(0);

/// Adds to [`bytes_read`].
pub(crate) fn count(bytes: usize) {
    READ.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// Bytes of weights, keys and values that the kernels have read from memory in this process: a
/// weight once a product, a key and a value once a pass. Plain tensor code is not counted.
pub fn bytes_read() -> u64 {
    READ.load(Ordering::Relaxed)
}

/// Bytes that the measurement reads: 256 MiB, more than any cache holds.
const MEMORY: usize = 1 << 28;

/// Bytes that all threads together read from memory in a second, the best of `tries`: what STREAM
/// (McCalpin) measures, with reading alone. It is the roof over decoding, which reads every weight
/// for every pass.
pub fn bandwidth(tries: usize) -> f64 {
    bandwidth_of(MEMORY, tries)
}

/// As [`bandwidth`], of so many bytes that are read again and again (256 MiB at most): a few
/// megabytes stay in the processor's caches, which are faster than memory.
pub fn bandwidth_of(bytes: usize, tries: usize) -> f64 {
    let count = (bytes.min(MEMORY) / size_of::<u64>()).max(1);
    let words: Vec<u64> = (0..count as u64).into_par_iter().collect();
    // Each thread gets some parts, however few the words are.
    let part = (count / (4 * crate::threads())).clamp(1 << 10, 1 << 16);
    let passes = MEMORY / (count * size_of::<u64>());
    best_rate(tries.max(1) * passes.clamp(1, 64), || {
        // A sum that wraps around does not depend on the order, so the compiler adds in vectors.
        let sum = |part: &[u64]| part.iter().fold(0u64, |sum, n| sum.wrapping_add(*n));
        let total = words.par_chunks(part).map(sum).reduce(|| 0, u64::wrapping_add);
        std::hint::black_box(total);
        size_of_val(&words[..])
    })
}

/// Returns how much of its work `work` does in a second, in the best of `tries`. It returns how
/// much it has done.
pub(crate) fn best_rate(tries: usize, work: impl Fn() -> usize) -> f64 {
    let rate = |_| {
        let start = Instant::now();
        work() as f64 / start.elapsed().as_secs_f64()
    };
    (0..tries.max(1)).map(rate).fold(0.0, f64::max)
}
