//! Bytes: how many the kernels have read, and how many this machine reads in a second.

use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

static READ: AtomicU64 = AtomicU64::new(0);

/// Adds to [`bytes_read`].
pub(super) fn count(bytes: usize) {
    READ.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// Bytes of weights, keys and values that the kernels have read from memory in this process: a weight once a product, a key
/// and a value once a pass. Plain tensor code is not counted.
pub fn bytes_read() -> u64 {
    READ.load(Ordering::Relaxed)
}

/// Numbers of 8 bytes that the probe reads: 256 MiB, more than any cache holds.
const PROBE: usize = 1 << 25;

/// Bytes that all threads together read from memory in a second, the best of `tries`: what STREAM (McCalpin) measures, with
/// reading alone. It is the roof over decoding, which reads every weight for every pass.
pub fn bandwidth(tries: usize) -> f64 {
    let numbers: Vec<u64> = (0..PROBE as u64).into_par_iter().collect();
    let pass = |_| {
        let begun = Instant::now();
        // With wrap-around the order does not matter, and the compiler adds in vectors.
        let sum = |part: &[u64]| part.iter().fold(0u64, |sum, n| sum.wrapping_add(*n));
        let sums = numbers.par_chunks(1 << 16).map(sum).reduce(|| 0, u64::wrapping_add);
        std::hint::black_box(sums);
        (PROBE * size_of::<u64>()) as f64 / begun.elapsed().as_secs_f64()
    };
    (0..tries.max(1)).map(pass).fold(0.0, f64::max)
}
