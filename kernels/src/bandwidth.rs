//! Bytes: how many the kernels have read, and how many this machine can read in a second.

use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

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

/// Words of 8 bytes that the measurement reads: 256 MiB, more than any cache holds.
const WORDS: usize = 1 << 25;

/// Bytes that all threads together read from memory in a second, the best of `tries`: what STREAM
/// (McCalpin) measures, with reading alone. It is the roof over decoding, which reads every weight
/// for every pass.
pub fn bandwidth(tries: usize) -> f64 {
    let words: Vec<u64> = (0..WORDS as u64).into_par_iter().collect();
    let mut best = 0f64;
    for _ in 0..tries.max(1) {
        let start = Instant::now();
        // A sum that wraps around does not depend on the order, so the compiler adds in vectors.
        let sum = |part: &[u64]| part.iter().fold(0u64, |sum, n| sum.wrapping_add(*n));
        let total = words.par_chunks(1 << 16).map(sum).reduce(|| 0, u64::wrapping_add);
        std::hint::black_box(total);
        best = best.max((WORDS * size_of::<u64>()) as f64 / start.elapsed().as_secs_f64());
    }
    best
}
