//! Random numbers: torch's own stream, so that samples can match transformers, and a portable one.

use rand_chacha::rand_core::{RngCore, SeedableRng};
use rand_chacha::ChaCha12Rng;

const N: usize = 624;
const M: usize = 397;

/// torch's CPU generator after `torch.manual_seed(seed)`: Mersenne Twister 19937 (Matsumoto and
/// Nishimura 1998; torch `at::mt19937`).
#[derive(Clone)]
pub struct TorchRng {
    state: [u32; N],
    next: usize,
}

impl TorchRng {
    /// Returns the generator in its state after `torch.manual_seed(seed)`. Like torch, it uses only
    /// the low 32 bits of the seed.
    pub fn new(seed: u64) -> Self {
        let mut state = [0u32; N];
        state[0] = seed as u32;
        for i in 1..N {
            let last = state[i - 1];
            state[i] = 1_812_433_253u32.wrapping_mul(last ^ (last >> 30)).wrapping_add(i as u32);
        }
        Self { state, next: N }
    }

    /// Returns 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.next == N {
            self.twist();
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    fn twist(&mut self) {
        for i in 0..N {
            let y = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % N] & 0x7fff_ffff);
            let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + M) % N] ^ (y >> 1) ^ odd;
        }
        self.next = 0;
    }

    /// Draws from Exp(1) like torch's CPU `exponential_`: combines two words, high word first,
    /// takes 53 of their bits as `u` in [0, 1), and computes `-ln(1 - u)` in f64, rounded to f32.
    pub fn exponential(&mut self) -> f32 {
        let high = u64::from(self.next_u32());
        let low = u64::from(self.next_u32());
        let bits = ((high << 32) | low) & ((1 << 53) - 1);
        let u = bits as f64 / (1u64 << 53) as f64;
        (-(-u).ln_1p()) as f32
    }

    /// Skips `n` draws from Exp(1).
    pub fn skip(&mut self, n: usize) {
        for _ in 0..n {
            self.exponential();
        }
    }

    /// Returns `n` draws from Exp(1), in order.
    pub fn exponentials(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.exponential()).collect()
    }
}

/// A portable stream of uniform numbers in [0, 1): ChaCha with 12 rounds, and one stream per (seed,
/// request).
///
/// `rand`'s `StdRng` is documented as *not* portable: its numbers can change between releases.
pub struct RequestRng(ChaCha12Rng);

impl RequestRng {
    /// Returns a request's own stream. Every row of a batch and every request in a scheduler has
    /// its own, so a row draws the same numbers in a batch as it would alone.
    pub fn new(seed: u64, request: u64) -> Self {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        rng.set_stream(request);
        Self(rng)
    }

    /// Returns the next uniform number: 24 random bits, the most an f32 below 1 can hold evenly.
    pub fn uniform(&mut self) -> f32 {
        (self.0.next_u32() >> 8) as f32 / (1u32 << 24) as f32
    }
}
