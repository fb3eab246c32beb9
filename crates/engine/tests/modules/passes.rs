//! A token's bits depend on its sequence alone, and not on how many of its tokens a pass computes:
//! one by one, in chunks, or all at once.

use crate::common::{device, RandomTensor as _};
use candecode::day10_kv_cache::DynamicCache;
use candecode::kit::{Model, QuantType, Step, WeightFormat};
use candecode_engine::kernels;
use candecode_engine::load::{load_transformer, quantized_format};
use candecode_engine::operations::{choose, Kernels};
use candecode_formats::hub;
use candecode_kernels::InstructionSet;
use candecode_testing::Random;
use candle_core::{DType, Tensor};

/// Tokens per pass. From 64 queries per key head on, the kernel packs all keys first.
const CHUNKS: [usize; 4] = [1, 2, 7, 64];

fn bits(of: &Tensor) -> Vec<u32> {
    let numbers = of.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    numbers.into_iter().map(f32::to_bits).collect()
}

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

/// Returns the bits of the logits of every position, `(T, V)`, computed `chunk` tokens at a time.
fn logits(model: &dyn Model, ids: &[u32], chunk: usize) -> Vec<Vec<u32>> {
    let mut cache = DynamicCache::new(model.config().num_hidden_layers);
    let mut all = vec![];
    for (i, ids) in ids.chunks(chunk).enumerate() {
        let step = Step::new(model, ids, i * chunk).unwrap();
        let logits = model.forward(&step, &mut cache).unwrap().squeeze(0).unwrap();
        all.extend((0..ids.len()).map(|row| bits(&logits.narrow(0, row, 1).unwrap())));
    }
    all
}

#[test]
fn logits_are_bit_identical_for_any_pass_size() {
    let ops = choose(Some(Kernels::Fast), &device().unwrap());
    let formats: [(&str, WeightFormat); 5] = [
        ("f32", DType::F32.into()),
        ("bf16", DType::BF16.into()),
        ("f16", DType::F16.into()),
        ("Q8_0", quantized_format(QuantType::Q8_0)),
        ("Q4_0", quantized_format(QuantType::Q4_0)),
    ];
    for (name, len) in [("story-3m", 150), ("random-10m", 75)] {
        let folder = hub::locate(name, None).unwrap();
        for (weights, format) in &formats {
            let model = load_transformer(&folder, *format, &device().unwrap(), &ops).unwrap();
            let ids: Vec<u32> = (0..len).map(|i| 5 + i * 37 % 2000).collect();
            let whole = logits(&model, &ids, ids.len());
            for chunk in CHUNKS {
                for (at, logits) in logits(&model, &ids, chunk).into_iter().enumerate() {
                    assert!(logits == whole[at], "{name} in {weights}, token {at}, by {chunk}");
                }
            }
        }
    }
}

/// Runs the tests above, and those of single products, with every instruction set that is here. A
/// process reads `CANDECODE_SIMD` once, so each gets one of its own.
#[test]
fn passes_get_the_same_bits_with_every_instruction_set() {
    for set in InstructionSet::ALL.into_iter().filter(|set| set.is_here()) {
        let set = set.name();
        let test = std::env::current_exe().unwrap();
        let mut test = std::process::Command::new(test);
        test.args(["passes::attention", "passes::logits", "paged_attention::blocks"]);
        test.args(["kernel_equality::linear", "--quiet"]);
        let out = test.env("CANDECODE_SIMD", set).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && text.contains("7 passed"), "{set}: {text}");
    }
}
