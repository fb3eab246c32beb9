//! What stands behind the two doors when days 1 and 4 come from the reference: a product with weights that reads each weight
//! once, and attention over the cache as it lies. CPU only; every other device takes the plain path.
//!
//! The vectors are pulp's: one source for AVX2, AVX-512 and NEON, chosen at run time. The one line of `unsafe` is a hint to
//! memory, in `prefetch`. Threads are rayon's, which leave a core that something else has taken (threads that wait in a loop
//! do not: they fall from 79 tokens a second to 5). Up to 32 rows are multiplied one by one, each number summed in one order: a
//! row in such a batch gets, bit for bit, what it gets alone. More rows, a prompt's, are laid side by side: see `panels`.

#![allow(clippy::needless_range_loop)] // by index, so that every sum stays in a register, and no iterator is a call

mod attention;
mod awake;
mod dots;
mod linear;
mod memory;
mod panels;
mod prefetch;
mod stored;

pub use attention::attention;
pub use linear::{linear, reads};
pub use memory::{bandwidth, bytes_read};

use candle_core::{CpuStorage, DType, Tensor};
use std::sync::atomic::{AtomicBool, Ordering};

/// Which code stands behind the doors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kernels {
    /// Tensor operations of candle, and day 4's attention: what the lessons say, operation for operation.
    Plain,
    /// This module, on the CPU.
    Fast,
}

impl std::fmt::Display for Kernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Fast => "fast",
        })
    }
}

impl Default for Kernels {
    /// Fast where the code that it replaces, of days 1 and 4, is the reference's: your own code is what you see running.
    fn default() -> Self {
        match cfg!(feature = "ref-day01") && cfg!(feature = "ref-day04") {
            true => Self::Fast,
            false => Self::Plain,
        }
    }
}

static FAST: AtomicBool = AtomicBool::new(false);

/// Sets what stands behind the doors from now on, in the whole process. Until then it is plain.
pub fn choose(kernels: Kernels) {
    FAST.store(kernels == Kernels::Fast, Ordering::Relaxed);
}

/// What stands behind the doors.
pub fn chosen() -> Kernels {
    match FAST.load(Ordering::Relaxed) {
        true => Kernels::Fast,
        false => Kernels::Plain,
    }
}

/// What `--stats` says of the doors.
pub fn in_use(cpu: bool) -> String {
    match chosen() {
        Kernels::Fast if cpu => {
            format!("fast ({} numbers at a time, {} threads)", dots::lanes(), threads())
        }
        Kernels::Fast => "plain (the fast ones are for the CPU)".to_string(),
        Kernels::Plain => "plain".to_string(),
    }
}

/// True if the kernels are chosen and these activations are theirs: f32, on the CPU.
pub(crate) fn takes(x: &Tensor) -> bool {
    chosen() == Kernels::Fast && x.device().is_cpu() && x.dtype() == DType::F32
}

/// The numbers of a tensor of f32 on the CPU, from its first one on.
fn floats(storage: &CpuStorage, start: usize) -> candle_core::Result<&[f32]> {
    Ok(&storage.as_slice::<f32>()?[start..])
}

/// Threads to share work among.
fn threads() -> usize {
    rayon::current_num_threads().max(1)
}
