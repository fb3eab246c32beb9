//! Tests of quantized matrices: a model that is quantized while it loads, and the kernel.

use crate::common::message;
use candecode::day05_model::Transformer;
use candecode::kit::{QuantType, QuantizedMatrix, Weight};
use candecode_engine::kernels::{self, TiledWeights};
use candecode_engine::load::{load_transformer, quantized_format};
use candecode_engine::operations::plain;
use candecode_testing::story;
use candle_core::{Device, Tensor};

const KINDS: [QuantType; 3] = [QuantType::Q8_0, QuantType::Q4_0, QuantType::Q4_1];

/// Returns a matrix with varied bytes and finite scales.
fn matrix(kind: QuantType, out: usize, inner: usize) -> QuantizedMatrix {
    let mut blocks = vec![];
    for block in 0..out * inner / 32 {
        for at in 0..kind.bytes_per_block() {
            blocks.push(((block * 31 + at * 7) % 251) as u8 & 0x7b);
        }
    }
    QuantizedMatrix::new(kind, out, inner, blocks).unwrap()
}

#[test]
fn a_model_is_quantized_while_loading() {
    let load = |name: &str, kind| {
        load_transformer(&story(name), quantized_format(kind), &Device::Cpu, &plain()).unwrap()
    };
    let kind = |weight: &Weight| weight.quantized().map(QuantizedMatrix::kind);
    let head = |model: &Transformer| kind(model.lm_head.as_ref().unwrap_or(&model.embed_tokens));
    // Both models' heads are tied.
    for name in ["story-3m", "story-gpt2-1m"] {
        assert_eq!(head(&load(name, QuantType::Q8_0)), Some(QuantType::Q8_0));
        assert_eq!(head(&load(name, QuantType::Q4_0)), Some(QuantType::Q8_0), "{name}");
    }
    let refused = load_transformer(
        &story("paper"),
        quantized_format(QuantType::Q8_0),
        &Device::Cpu,
        &plain(),
    );
    let said = message(refused);
    assert!(said.contains("cannot be quantized") && said.contains("multiple"), "{said}");
}

/// The kernels and day 19 multiply the same numbers if the activations are integers up to 127 in
/// every block, which both 8 and 16 bits hold exactly. Only the order of the f32 sums differs.
#[test]
fn the_quantized_kernel_equals_day_19() {
    let blocks = [kernels::QuantType::Q8_0, kernels::QuantType::Q4_0, kernels::QuantType::Q4_1];
    for (kind, block) in KINDS.into_iter().zip(blocks) {
        let rows = matrix(kind, 40, 96);
        let number = |i: usize| match i % 32 {
            0 => 127.0,
            _ => (i * 37 % 255) as f32 - 127.0,
        };
        let x: Vec<f32> = (0..3 * 96).map(number).collect();
        let x = Tensor::from_vec(x, (3, 96), &Device::Cpu).unwrap();
        let want = candecode::day19_quantized_weights::quantized_linear(&x, &rows).unwrap();
        let tiled = rows.clone().tiled();
        let tiles = TiledWeights { kind: block, out: 40, tiles: tiled.tiles().unwrap() };
        let got = kernels::quantized_linear(&x, &[tiles]).unwrap().remove(0);
        let (want, got) = (want.to_vec2::<f32>().unwrap(), got.to_vec2::<f32>().unwrap());
        let largest = want.iter().flatten().fold(0f32, |largest, x| largest.max(x.abs()));
        for (want, got) in want.concat().iter().zip(got.concat()) {
            // Some sums over three blocks nearly cancel, so the largest one sets the tolerance.
            assert!((got - want).abs() <= 1e-5 * largest, "{kind}: {got} and {want}");
        }
    }
}
