//! The instruction set for the kernels: the best one this machine has, or the one requested through
//! the environment.
//!
//! Integer products, which pulp lacks, use [`instruction_set`]. All other kernels use [`arch`].

use pulp::Arch;
use std::sync::OnceLock;

/// The environment variable that forces an instruction set.
pub const VARIABLE: &str = "CANDECODE_SIMD";

/// Instruction sets for integer products. All of them compute the same results, bit for bit. (Sums
/// of f32 do differ: longer vectors add in a different order.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionSet {
    /// No vectors. The reference for the others.
    Scalar,
    /// x86 since 2013: `vpmaddubsw`, 32 products at a time, and `vpmaddwd`, 16 at a time.
    Avx2,
    /// x86 with VNNI: `vpdpbusd`, 64 products at a time, and `vpdpwssd`, 32 at a time.
    Avx512Vnni,
    /// Arm since version 8.2: `sdot`, 16 products at a time.
    Neon,
}

impl InstructionSet {
    /// All instruction sets, slowest first.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Avx2, Self::Avx512Vnni, Self::Neon];

    /// Returns the name used in the environment variable.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512Vnni => "avx512vnni",
            Self::Neon => "neon",
        }
    }

    /// Returns true if this machine has the instruction set.
    pub fn is_here(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("dotprod"),
            #[allow(unreachable_patterns)] // the remaining variants depend on the processor
            _ => false,
        }
    }

    /// Returns the fastest instruction set that this machine has.
    fn best() -> Self {
        let here = Self::ALL.into_iter().rev().find(|set| set.is_here());
        here.unwrap_or(Self::Scalar)
    }

    /// Parses the value of `CANDECODE_SIMD`.
    ///
    /// # Errors
    /// If there is no instruction set with that name, or this machine lacks it. The message lists
    /// the available ones.
    pub fn named(name: &str) -> Result<Self, String> {
        let here = Self::ALL.into_iter().filter(|set| set.is_here());
        let here = here.map(Self::name).collect::<Vec<_>>().join(", ");
        match Self::ALL.into_iter().find(|set| set.name() == name) {
            Some(set) if set.is_here() => Ok(set),
            Some(_) => Err(format!("{VARIABLE}={name}: this processor lacks it; it has {here}")),
            None => Err(format!("{VARIABLE}=\"{name}\": unknown set; choose one of {here}")),
        }
    }

    /// Returns the instruction set requested through the environment, if any.
    ///
    /// # Errors
    /// Same as [`InstructionSet::named`].
    pub fn asked_for() -> Result<Option<Self>, String> {
        match std::env::var_os(VARIABLE) {
            Some(name) if !name.is_empty() => Self::named(&name.to_string_lossy()).map(Some),
            _ => Ok(None),
        }
    }
}

/// Returns the instruction set requested for this process. An invalid request counts as none,
/// because the command reports it. The variable is read only once, like the number of threads.
fn asked_for() -> Option<InstructionSet> {
    static ASKED: OnceLock<Option<InstructionSet>> = OnceLock::new();
    *ASKED.get_or_init(|| InstructionSet::asked_for().unwrap_or_default())
}

/// Returns the instruction set for integer products in this process. Determined only once. No
/// result depends on it, because every instruction set computes the same bits.
pub fn instruction_set() -> InstructionSet {
    static CHOSEN: OnceLock<InstructionSet> = OnceLock::new();
    *CHOSEN.get_or_init(|| asked_for().unwrap_or_else(InstructionSet::best))
}

/// Returns pulp's vector type for all other kernels in this process.
pub(crate) fn arch() -> Arch {
    match asked_for() {
        Some(InstructionSet::Scalar) => Arch::Scalar,
        #[cfg(target_arch = "x86_64")]
        Some(InstructionSet::Avx2) => pulp::x86::V3::try_new().map_or_else(Arch::new, Arch::V3),
        _ => Arch::new(),
    }
}
