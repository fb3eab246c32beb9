//! Asking memory early for what will be read soon. It is a hint: nothing is read into the program,
//! and nothing that the program computes can change.

/// How many bytes ahead of what is read now. Memory takes about as long to bring them as it takes
/// to multiply them; four times as many cost a product of one row a tenth of its speed.
pub const AHEAD: usize = 1 << 10;
/// How many bytes ahead of a group of rows that are read side by side, at least. Asked for only as
/// far ahead as a group of short rows is long, pairs of bf16 rows come at two thirds of this speed.
pub const GROUP_AHEAD: usize = 6 << 10;

/// Asks for some bytes, `ahead` bytes behind the beginning of a row.
///
/// They come into the second cache. The first one keeps only some two dozen requests waiting at a
/// time, so that asking into it gains nothing. Does nothing where stable Rust has no such
/// instruction.
#[inline(always)]
pub fn prefetch<T>(row: &[T], ahead: usize, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..bytes).step_by(64) {
        use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T1};
        let line = row.as_ptr().cast::<i8>().wrapping_add(ahead + line);
        // SAFETY: a prefetch never faults, whatever the address, and reads nothing that the program
        // sees. So it does not matter that the last of these addresses lie behind the slice.
        unsafe {
            _mm_prefetch::<_MM_HINT_T1>(line);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (row, ahead, bytes);
}
