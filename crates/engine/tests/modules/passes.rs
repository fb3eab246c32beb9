//! A token's attention depends on its sequence alone, to the bit, and not on how many of its tokens a
//! pass computes: one by one, in chunks, or all at once. `tests/same_bits.rs` does the same with whole
//! models.

use crate::common::{bits, RandomTensor as _};
use candecode_engine::kernels;
use candecode_kernels::InstructionSet;
use candecode_testing::Random;
use candle_core::Tensor;

/// Tokens per pass. From 64 queries per key head on, the kernel packs all keys first.
const CHUNKS: [usize; 4] = [1, 2, 7, 64];

#[test]
fn attention_gets_the_same_bits_in_passes_of_any_size() {
    let mut random = Random::new(41);
    for (width, group) in [(64, 3), (32, 3), (64, 1), (33, 2), (20, 5), (128, 4)] {
        let (len, kv_heads) = (150, 2);
        let q = random.tensor(&[1, kv_heads * group, len, width]).unwrap();
        let k = random.tensor(&[1, kv_heads, len, width]).unwrap();
        let v = random.tensor(&[1, kv_heads, len, width]).unwrap();
        let whole = kernels::attention(&q, &k, &v, None).unwrap();
        for chunk in CHUNKS {
            let mut parts = vec![];
            for first in (0..len).step_by(chunk) {
                let new = chunk.min(len - first);
                let all = first + new;
                let (k, v) = (k.narrow(2, 0, all).unwrap(), v.narrow(2, 0, all).unwrap());
                let q = q.narrow(2, first, new).unwrap();
                parts.push(kernels::attention(&q, &k, &v, None).unwrap());
            }
            let parts = Tensor::cat(&parts, 2).unwrap();
            assert_eq!(bits(&parts), bits(&whole), "width {width}, {group} heads, by {chunk}");
        }
    }
}

/// Runs the test above, and those of single products, with every instruction set that is here. A
/// process reads `CANDECODE_SIMD` once, so each gets one of its own.
#[test]
fn passes_get_the_same_bits_with_every_instruction_set() {
    for set in InstructionSet::ALL.into_iter().filter(|set| set.is_here()) {
        let set = set.name();
        let test = std::env::current_exe().unwrap();
        let mut test = std::process::Command::new(test);
        test.args(["passes::attention", "paged_attention::blocks", "kernel_equality::linear"]);
        test.arg("--quiet");
        let out = test.env("CANDECODE_SIMD", set).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && text.contains("6 passed"), "{set}: {text}");
    }
}
