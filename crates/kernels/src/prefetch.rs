//! Prefetch hints for data that will be read soon. A prefetch loads nothing into the program and
//! can't change any of its results.

#[cfg(target_arch = "x86_64")]
use crate::unrolled::unrolled;

/// Size of a line of the caches, in bytes.
const LINE: usize = 64;

/// Prefetch distance in bytes where memory is the bottleneck. Fetching this much takes about as
/// long as multiplying it. A distance ten times as long costs a product of one row a tenth of its
/// speed.
pub const AHEAD: usize = 1 << 10;

/// Memory that will be read soon. A loop prefetches some lines of it in each step, since the
/// processor can keep only a few dozen requests in flight.
#[derive(Clone, Copy)]
pub struct Ahead {
    start: *const u8,
    /// Lines in a step.
    lines: usize,
}

impl Ahead {
    /// Divides `bytes` bytes among `steps` steps. They start `distance` bytes after the beginning
    /// of `of`, and may be past its end. If there are fewer lines than steps, prefetches them now.
    #[inline(always)]
    pub fn new<T>(of: &[T], distance: usize, bytes: usize, steps: usize) -> Self {
        let start = of.as_ptr().cast::<u8>().wrapping_add(distance);
        let (lines, steps) = (bytes.div_ceil(LINE), steps.max(1));
        if lines >= steps {
            return Self { start, lines: lines.div_ceil(steps) };
        }
        for line in 0..lines {
            Self { start, lines: 1 }.prefetch::<1>(line);
        }
        Self { start, lines: 0 }
    }

    /// Prefetches the lines of step `step`, but at most `MOST`. (A loop without a known end would
    /// cost a micro-kernel a third of its speed.)
    ///
    /// They go to the L2 cache. L1 can keep only about two dozen requests in flight, so prefetching
    /// into it gains nothing. Does nothing on targets where stable Rust has no such instruction.
    #[inline(always)]
    pub fn prefetch<const MOST: usize>(self, step: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T1};
            let start = self.start.wrapping_add(step * self.lines * LINE);
            unrolled!(line in MOST, at most 16 => {
                if line < self.lines {
                    // SAFETY: a prefetch never faults, whatever the address, and reads nothing that
                    // the program sees. The address may be past the end of the memory.
                    unsafe { _mm_prefetch::<_MM_HINT_T1>(start.wrapping_add(line * LINE).cast()) };
                }
            });
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (self.start, self.lines, step);
    }
}
