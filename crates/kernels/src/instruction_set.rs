//! Which instructions the kernels use: the best that this machine has, or what the reader asked
//! for.
//!
//! Products of bytes, which pulp lacks, choose by [`instruction_set`], all other kernels by
//! [`arch`].

use pulp::Arch;
use std::sync::OnceLock;

/// The variable of the environment that forces an instruction set.
pub const VARIABLE: &str = "CANDECODE_SIMD";

/// What multiplies bytes. Whichever it is, the numbers that come out are the same, bit for bit.
/// (Sums of f32 are not: with longer vectors they are added in another order.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionSet {
    /// No vectors: what the others are compared with.
    Scalar,
    /// x86 from 2013 on: `vpmaddubsw`, 32 products at a time, and `vpmaddwd`, 16 at a time.
    Avx2,
    /// x86 with VNNI: `vpdpbusd`, 64 products at a time, and `vpdpwssd`, 32 at a time.
    Avx512Vnni,
    /// Arm from version 8.2 on: `sdot`, 16 products at a time.
    Neon,
}

impl InstructionSet {
    /// All of them, the slowest first.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Avx2, Self::Avx512Vnni, Self::Neon];

    /// Its name in the environment.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512Vnni => "avx512vnni",
            Self::Neon => "neon",
        }
    }

    /// True if this machine has it.
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
            #[allow(unreachable_patterns)] // which are left over depends on the processor
            _ => false,
        }
    }

    /// The fastest one that this machine has.
    fn best() -> Self {
        let here = Self::ALL.into_iter().rev().find(|set| set.is_here());
        here.unwrap_or(Self::Scalar)
    }

    /// The one that a text asks for: of `CANDECODE_SIMD`.
    ///
    /// # Errors
    /// If there is none of that name, or this machine lacks it: what there is, in words.
    pub fn named(name: &str) -> Result<Self, String> {
        let here = Self::ALL.into_iter().filter(|set| set.is_here());
        let here = here.map(Self::name).collect::<Vec<_>>().join(", ");
        match Self::ALL.into_iter().find(|set| set.name() == name) {
            Some(set) if set.is_here() => Ok(set),
            Some(_) => Err(format!("{VARIABLE}={name}: this processor lacks it; it has {here}")),
            None => Err(format!("{VARIABLE}=\"{name}\": there is no such set; there is {here}")),
        }
    }

    /// The one that the environment asks for, if it does.
    ///
    /// # Errors
    /// As [`InstructionSet::named`].
    pub fn asked_for() -> Result<Option<Self>, String> {
        match std::env::var_os(VARIABLE) {
            Some(name) if !name.is_empty() => Self::named(&name.to_string_lossy()).map(Some),
            _ => Ok(None),
        }
    }
}

/// What the environment asks for in this process. If it asks in vain, which is left to the command
/// to complain about, it counts as not asked. Read once: it is a fact about the process, as its
/// threads are.
fn asked_for() -> Option<InstructionSet> {
    static ASKED: OnceLock<Option<InstructionSet>> = OnceLock::new();
    *ASKED.get_or_init(|| InstructionSet::asked_for().unwrap_or_default())
}

/// What multiplies bytes in this process. Looked up once, as a fact about the processor: no result
/// depends on it, because every instruction set computes the same bits.
pub fn instruction_set() -> InstructionSet {
    static CHOSEN: OnceLock<InstructionSet> = OnceLock::new();
    *CHOSEN.get_or_init(|| asked_for().unwrap_or_else(InstructionSet::best))
}

/// The vectors that all other kernels use in this process.
pub(crate) fn arch() -> Arch {
    match asked_for() {
        Some(InstructionSet::Scalar) => Arch::Scalar,
        #[cfg(target_arch = "x86_64")]
        Some(InstructionSet::Avx2) => pulp::x86::V3::try_new().map_or_else(Arch::new, Arch::V3),
        _ => Arch::new(),
    }
}
