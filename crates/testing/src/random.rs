//! Seeded random input.

/// Pseudo-random numbers, the same on every machine (a 64-bit linear congruential generator,
/// Knuth's MMIX).
pub struct Random(u64);

impl Random {
    /// Creates the stream for this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1))
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n.max(1)
    }

    /// Returns a number in [-1, 1).
    pub fn float(&mut self) -> f32 {
        self.below(1 << 24) as f32 / (1u32 << 23) as f32 - 1.0
    }
}
