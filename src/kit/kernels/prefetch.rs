//! Asking memory for what will be read soon. A hint: nothing is read into the program, and nothing it computes can change.

/// Asks for the cache lines of something that a later loop reads; does nothing where stable Rust has no such instruction.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..size_of::<T>().div_ceil(64) {
        use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        let line = std::ptr::from_ref(place).cast::<i8>().wrapping_add(line * 64);
        // SAFETY: a prefetch never faults, whatever the address, and reads nothing that the program sees. These addresses lie
        // within `place` (the last one less than a cache line beyond it, if it begins inside one).
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(line);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
