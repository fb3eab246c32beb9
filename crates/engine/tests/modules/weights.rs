//! Tests of a folder's tensors in a whole model, and in a product.

use crate::common::{logits, message};
use candecode::kit::Weight;
use candecode_engine::load_model;
use candecode_engine::operations::plain;
use candecode_testing::{refused, save, sharded, story, Folder, Random};
use candle_core::{DType, Device, Tensor};

const CPU: Device = Device::Cpu;

fn tensor(numbers: &[f32], shape: &[usize]) -> Tensor {
    Tensor::from_vec(numbers.to_vec(), shape, &CPU).unwrap()
}

#[test]
fn a_sharded_model_equals_the_single_file() {
    let folder = Folder::new("shards");
    sharded(&folder, 3);
    let whole = logits(&story("story-230k"));
    assert_eq!(whole.len(), 3 * 2048);
    assert_eq!(logits(&folder.0), whole);
}

#[test]
fn loading_a_corrupted_file_never_panics() {
    // One byte of the header is changed. The result is an error message, or a model with different
    // numbers.
    let folder = Folder::new("bytes");
    let bytes = std::fs::read(story("story-230k").join("model.safetensors")).unwrap();
    std::fs::copy(story("story-230k").join("config.json"), folder.0.join("config.json")).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize + 8;
    let (mut random, mut refusals) = (Random::new(32), 0);
    for _ in 0..60 {
        let mut damaged = bytes.clone();
        damaged[random.below(header)] ^= 1 << random.below(8);
        folder.write("model.safetensors", &damaged);
        if let Err(error) = load_model(&folder.0, DType::F32, &CPU) {
            assert!(!message::<()>(Err(error)).contains("panicked"));
            refusals += 1;
        }
    }
    assert!(refusals > 30, "only {refusals} of 60 damaged headers were noticed");
}

#[test]
fn on_the_cpu_only_matrices_stay_in_16_bits() {
    let folder = Folder::new("narrow");
    let numbers = tensor(&[1.0, 0.1, -3.0, 2.0], &[2, 2]);
    save(
        &folder,
        "model.safetensors",
        &[("a.matrix", &numbers), ("a.norm", &numbers.get(0).unwrap())],
    );
    for (dtype, tenth) in [(DType::BF16, 205.0 / 2048.0), (DType::F16, 1638.0 / 16_384.0)] {
        let weights = candecode_formats::open_weights(&folder.0, dtype, &CPU).unwrap();
        let matrix = weights.matrix("a.matrix", 2, 2).unwrap();
        assert_eq!((matrix.tensor().unwrap().dtype(), matrix.shape()), (dtype, (2, 2)));
        let norm = weights.tensor("a.norm", &[2]).unwrap();
        assert_eq!(norm.to_vec1::<f32>().unwrap(), [1.0, 0.1]);
        // `linear` widens the weights: x stays f32, and the result uses the rounded weights.
        let y = plain().linear(&tensor(&[0.0, 1.0], &[1, 2]), &[&matrix]).unwrap().remove(0);
        assert_eq!(y.to_vec2::<f32>().unwrap(), [[tenth, 2.0]]);
    }
}

#[test]
fn a_weight_must_be_a_matrix() {
    refused(Weight::new(tensor(&[1.0], &[1])).map_err(Into::into), &["rank"]);
    let x = tensor(&[1.0, 2.0, 3.0], &[1, 3]);
    let w = Weight::new(tensor(&[1.0, 0.0], &[1, 2])).unwrap();
    refused(plain().linear(&x, &[&w]).map_err(Into::into), &["its last dimension must be 2"]);
}
