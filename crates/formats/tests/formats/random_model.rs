//! Tests of models with random weights: their sizes, and that they are identical on every machine.

use candecode_formats::{hub, ModelFiles};
use candecode_testing::refused;
use candle_core::{DType, Device};
use std::path::Path;

fn numbers(name: &str, tensor: &str, rows: usize, columns: usize) -> Vec<f32> {
    let weights =
        candecode_formats::open_weights(Path::new(name), DType::F32, &Device::Cpu).unwrap();
    let matrix = weights.matrix(tensor, rows, columns).unwrap();
    matrix.tensor().unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn random_135m_has_the_shape_of_smollm2() {
    let files = ModelFiles::open("random-135m").unwrap();
    let config = files.config();
    assert_eq!(config.size(), 134_479_872);
    let sizes = (config.hidden_size, config.intermediate_size, config.num_hidden_layers);
    assert_eq!(sizes, (576, 1536, 30));
    let heads = (config.num_attention_heads, config.num_key_value_heads, config.head_dim);
    assert_eq!(heads, (9, 3, 64));
    assert_eq!((config.vocab_size, config.max_position_embeddings), (49_152, 8_192));
    assert!(files.has_tokenizer() && files.chat_template().unwrap().source.unwrap().is_none());
}

#[test]
fn a_random_models_size_matches_its_name() {
    for millions in [10, 20, 35, 50, 100, 135, 360, 1_000, 1_700, 8_000, 70_000, 100_000] {
        let files = ModelFiles::open(&format!("random-{millions}m")).unwrap();
        let size = files.config().size() as f64 / 1e6;
        // Half a layer more or less, out of a few.
        let apart = (size / f64::from(millions) - 1.0).abs();
        assert!(apart < 0.05, "random-{millions}m has {size:.1} million weights");
    }
}

#[test]
fn invalid_random_model_sizes_are_refused() {
    for name in
        ["random-0m", "random-9m", "random-9999999m", "random-m", "random-135", "random-1.5m"]
    {
        let says = [name, "from random-10m to random-100000m", "random-135m is one"];
        refused(ModelFiles::open(name).map(drop), &says);
        refused(hub::locate(name, None).map(drop), &says);
    }
}

#[test]
fn a_path_or_repository_is_not_a_random_model() {
    refused(hub::locate("random-owner/name", None).map(drop), &["random-owner/name is not"]);
    for name in ["random-weights/model.gguf", "random-10m.gguf"] {
        refused(hub::locate(name, None).map(drop), &[name, "there is no such file"]);
    }
}

#[test]
fn random_weights_are_the_same_on_every_machine() {
    let q = numbers("random-10m", "model.layers.0.self_attn.q_proj.weight", 192, 192);
    assert_eq!(q, numbers("random-10m", "model.layers.0.self_attn.q_proj.weight", 192, 192));
    assert_ne!(q, numbers("random-10m", "model.layers.0.self_attn.o_proj.weight", 192, 192));
    // Values computed by a few lines of Python: FNV-1a of the name, SplitMix64, and one f32
    // product.
    assert_eq!(q[..3], [-0.020_174_667, -0.108_264_76, 0.089_146_87]);
    // Longer than the part that one thread fills.
    let table = numbers("random-10m", "model.embed_tokens.weight", 49_152, 192);
    for (numbers, wanted) in [(&q, 192f64.sqrt().recip()), (&table, 0.02)] {
        let n = numbers.len() as f64;
        let mean = numbers.iter().map(|x| f64::from(*x)).sum::<f64>() / n;
        let deviation = (numbers.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / n).sqrt();
        // Five standard errors for 36,864 numbers. The deviation gets a wider margin.
        assert!(mean.abs() < 5.0 * wanted / n.sqrt(), "mean {mean}");
        assert!((deviation / wanted - 1.0).abs() < 0.02, "standard deviation {deviation}");
    }
    assert_ne!(table[..1000], table[1 << 16..][..1000]);
}

#[test]
fn a_smaller_random_model_may_draft_for_a_larger_one() {
    let [small, large] = ["random-10m", "random-20m"].map(|name| ModelFiles::open(name).unwrap());
    assert_eq!(small.tokenizer().unwrap().difference(&large.tokenizer().unwrap()), None);
}
