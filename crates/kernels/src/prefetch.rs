//! Prefetch hints for data that will be read soon. A prefetch loads nothing into the program and
//! can't change any of its results.

/// Prefetch distance in bytes. Fetching this much takes about as long as multiplying it. A distance
/// four times as long costs a product of one row a tenth of its speed.
pub const AHEAD: usize = 1 << 10;
/// Minimum prefetch distance in bytes for a group of rows that are read in parallel. If the
/// distance is only the length of a group of short rows, pairs of bf16 rows reach two thirds of
/// this speed.
pub const GROUP_AHEAD: usize = 6 << 10;

/// Prefetches some bytes, starting `ahead` bytes after the beginning of a row.
///
/// They go to the L2 cache. L1 can keep only about two dozen requests in flight, so prefetching
/// into it gains nothing. Does nothing on targets where stable Rust has no such instruction.
#[inline(always)]
pub fn prefetch<T>(row: &[T], ahead: usize, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..bytes).step_by(64) {
        use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T1};
        let line = row.as_ptr().cast::<i8>().wrapping_add(ahead + line);
        // SAFETY: a prefetch never faults, whatever the address, and reads nothing that the program
        // sees. The last of these addresses may be past the end of the slice.
        unsafe {
            _mm_prefetch::<_MM_HINT_T1>(line);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (row, ahead, bytes);
}
