//! Memory traffic: the bytes that the kernels have read, and the rate at which this machine can
//! read.

use rayon::prelude::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Bytes read by the kernels in this process. Used only by `--stats`: no result depends on it.
static READ: AtomicU64 = AtomicU64::new(0);

/// Adds to [`bytes_read`].
pub(crate) fn count(bytes: usize) {
    READ.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// Returns the bytes of weights, keys and values that the kernels have read from memory in this
/// process: a weight once per product, a key and a value once per pass. Plain tensor code isn't
/// counted.
pub fn bytes_read() -> u64 {
    READ.load(Ordering::Relaxed)
}

thread_local! {
    /// Bytes of cached keys and values that this thread has copied in order to attend to them.
    static GATHERED: Cell<u64> = const { Cell::new(0) };
}

/// Adds to [`bytes_gathered`]. Called by code that copies keys and values out of a cache's blocks.
pub fn count_gathered(bytes: usize) {
    GATHERED.with(|gathered| gathered.set(gathered.get() + bytes as u64));
}

/// Returns the bytes of cached keys and values that this thread has copied out of a cache's blocks
/// in order to attend to them. [`paged_attention`](crate::paged_attention) copies none.
pub fn bytes_gathered() -> u64 {
    GATHERED.with(Cell::get)
}

/// Bytes that the measurement reads: 256 MiB, larger than any cache.
const MEMORY: usize = 1 << 28;

/// Returns the bytes per second that all threads together read from memory, the best of `tries`.
/// STREAM (McCalpin) measures the same, but this function only reads. This rate limits decoding,
/// which reads every weight in every pass.
pub fn bandwidth(tries: usize) -> f64 {
    bandwidth_of(MEMORY, tries)
}

/// Like [`bandwidth`], but for repeatedly reading this many bytes (256 MiB at most): a few
/// megabytes stay in the processor's caches, which are faster than memory.
pub fn bandwidth_of(bytes: usize, tries: usize) -> f64 {
    let count = (bytes.min(MEMORY) / size_of::<u64>()).max(1);
    let words: Vec<u64> = (0..count as u64).into_par_iter().collect();
    // Several parts per thread, unless there are very few words.
    let part = (count / (4 * crate::threads())).clamp(1 << 10, 1 << 16);
    let passes = MEMORY / (count * size_of::<u64>());
    best_rate(tries.max(1) * passes.clamp(1, 64), || {
        // A wrapping sum doesn't depend on the order, so the compiler can add in vectors.
        let sum = |part: &[u64]| part.iter().fold(0u64, |sum, n| sum.wrapping_add(*n));
        let total = words.par_chunks(part).map(sum).reduce(|| 0, u64::wrapping_add);
        std::hint::black_box(total);
        size_of_val(&words[..])
    })
}

/// Returns the work per second that `work` achieves in the best of `tries`. `work` returns the
/// amount it has done.
pub(crate) fn best_rate(tries: usize, work: impl Fn() -> usize) -> f64 {
    let rate = |_| {
        let start = Instant::now();
        work() as f64 / start.elapsed().as_secs_f64()
    };
    (0..tries.max(1)).map(rate).fold(0.0, f64::max)
}
