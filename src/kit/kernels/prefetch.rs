//! Asking memory for what will be read soon. A hint: nothing is read into the program, and nothing it computes can change.

/// Bytes ahead of what is read now. Memory takes about as long to answer as it takes to multiply them.
pub const AHEAD: usize = 4 << 10;

/// Asks for as much as `place` is, `ahead` bytes behind it, into the second cache: the first has room for two dozen
/// answers at a time, and memory would wait for it. Does nothing where stable Rust has no such instruction.
#[inline(always)]
pub fn ask<T>(place: &T, ahead: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..size_of::<T>().div_ceil(64) {
        use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T1};
        let line = std::ptr::from_ref(place).cast::<i8>().wrapping_add(ahead + line * 64);
        // SAFETY: a prefetch never faults, whatever the address, and reads nothing that the program sees: it does not matter that
        // the last of these addresses lie behind the slice that is read.
        unsafe {
            _mm_prefetch::<_MM_HINT_T1>(line);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (place, ahead);
}
