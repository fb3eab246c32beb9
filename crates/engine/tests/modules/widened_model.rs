//! Tests that `story-135m` computes what `story-3m` computes, to the bit.

use candecode::day07_greedy::argmax;
use candecode::day10_kv_cache::DynamicCache;
use candecode::kit::{Logits, Model, QuantType, Step, WeightFormat};
use candecode_engine::load::{load_transformer, quantized_format};
use candecode_engine::operations::{choose, Kernels};
use candecode_formats::{hub, ModelFiles, WIDENED};
use candle_core::{DType, Device};

/// Returns the bits of the logits after a prompt and after each of 24 tokens that follow.
fn bits(name: &str, format: WeightFormat) -> Vec<Vec<u32>> {
    let ops = choose(Some(Kernels::Fast), &Device::Cpu);
    let path = hub::locate(name, None).unwrap();
    let model = load_transformer(&path, format, &Device::Cpu, &ops).unwrap();
    let mut cache = DynamicCache::new(model.config().num_hidden_layers);
    let (mut ids, mut start, mut all) = (vec![428, 437, 259, 395], 0, Vec::new());
    for _ in 0..24 {
        let step = Step::new(&model, &ids, start).unwrap().with_logits(Logits::Last(1));
        let logits = model.forward(&step, &mut cache).unwrap().flatten_all().unwrap();
        let logits = logits.to_vec1::<f32>().unwrap();
        start += ids.len();
        ids = vec![argmax(&logits).unwrap()];
        all.push(logits.into_iter().map(f32::to_bits).collect());
    }
    all
}

#[test]
fn its_logits_are_those_of_story_3m_to_the_bit() {
    for format in [
        WeightFormat::Tensors(DType::F32),
        WeightFormat::Tensors(DType::BF16),
        WeightFormat::Tensors(DType::F16),
        quantized_format(QuantType::Q8_0),
        quantized_format(QuantType::Q4_0),
    ] {
        assert_eq!(bits("story-3m", format), bits(WIDENED, format), "{format:?}");
    }
}

#[test]
fn it_costs_what_135_million_weights_cost() {
    let files = ModelFiles::open(WIDENED).unwrap();
    let config = files.config();
    assert_eq!(config.size(), 133_693_440);
    let sizes = (config.hidden_size, config.intermediate_size, config.num_hidden_layers);
    assert_eq!(sizes, (768, 2048, 21));
    let heads = (config.num_attention_heads, config.num_key_value_heads, config.head_dim);
    assert_eq!(heads, (24, 8, 32));
    // It has the text's end, the tokenizer and the settings of the model inside.
    let inner = ModelFiles::open("story-3m").unwrap();
    assert_eq!(config.eos_token_ids, inner.config().eos_token_ids);
    assert_eq!(files.generation_config(), inner.generation_config());
    assert_eq!(files.tokenizer().unwrap().difference(&inner.tokenizer().unwrap()), None);
}

#[test]
fn its_added_weights_are_finite_in_f16_too() {
    let path = std::path::Path::new(WIDENED);
    let weights = candecode_formats::open_weights(path, DType::F16, &Device::Cpu).unwrap();
    for (name, rows, width) in [
        ("model.layers.0.self_attn.q_proj.weight", 768, 768),
        ("model.layers.20.mlp.up_proj.weight", 2048, 768),
    ] {
        let matrix = weights.matrix(name, rows, width).unwrap().tensor().unwrap();
        let numbers = matrix.to_dtype(DType::F32).unwrap().flatten_all().unwrap();
        let numbers = numbers.to_vec1::<f32>().unwrap();
        assert!(numbers.iter().all(|number| number.is_finite()), "{name}");
        // Random, not zero: no row's added part is empty.
        let zeros = numbers.chunks(width).filter(|row| row[192..].iter().all(|x| *x == 0.0));
        assert_eq!(zeros.count(), 0, "{name}");
    }
}
