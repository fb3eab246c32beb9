//! Tests of models from GGUF files, written here from the embedded models: they compute what those
//! compute, and damaged files are refused. `tests/families.rs` reads files of every family that
//! were written by llama.cpp's own Python package.

use crate::common::{logits, message};
use candecode::day05_model::{Mlp, SelfAttention, Transformer};
use candecode::kit::{Weight, WeightFormat};
use candecode_engine::load::{load_transformer, own_format};
use candecode_engine::operations::plain;
use candecode_formats::ModelFiles;
use candecode_testing::{refused, story, Folder, GgufParts, Random};
use candle_core::quantized::gguf_file::Value;
use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Tensor};

const CPU: Device = Device::Cpu;

#[test]
fn a_gguf_file_equals_the_folder_it_was_converted_from() {
    // The weights are stored as bf16, so writing bf16 or f32 is lossless.
    for model in ["story-230k", "story-gpt2-1m"] {
        let (parts, want) =
            (GgufParts::of(model), candecode_formats::read_config(&story(model)).unwrap());
        for dtype in [GgmlDType::F32, GgmlDType::BF16] {
            let folder = Folder::new("gguf-same");
            let file = parts.write(&folder, dtype);
            assert_eq!(candecode_formats::read_config(&file).unwrap(), want);
            assert_eq!(logits(&file), logits(&story(model)), "{model}, {dtype:?}");
        }
    }
}

#[test]
fn quantized_blocks_are_kept_as_stored() {
    for model in ["story-230k", "story-gpt2-1m"] {
        for dtype in [GgmlDType::Q8_0, GgmlDType::Q4_0, GgmlDType::Q4_1] {
            let folder = Folder::new("gguf-stays");
            let file = GgufParts::of(model).write(&folder, dtype);
            let widened = load_transformer(&file, DType::F32, &CPU, &plain()).unwrap();
            let stored = load_transformer(&file, WeightFormat::AsStored, &CPU, &plain()).unwrap();
            let (widened, stored) = (matrices(&widened), matrices(&stored));
            assert_eq!(widened.len(), stored.len());
            for (widened, stored) in widened.iter().zip(&stored) {
                let matrix = stored.quantized().unwrap();
                assert_eq!(matrix.kind().ggml(), dtype);
                let numbers = |w: &Weight| w.tensor().unwrap().to_vec2::<f32>().unwrap();
                assert_eq!(numbers(stored), numbers(widened), "{model}, {dtype:?}");
            }
        }
    }
}

#[test]
fn a_type_without_kernels_is_widened() {
    let folder = Folder::new("gguf-q5");
    let file = GgufParts::of("story-230k").write(&folder, GgmlDType::Q5_0);
    let files = ModelFiles::at(&file).unwrap();
    assert_eq!(files.quantized_types(), [("Q5_0".to_string(), false)]);
    assert!(matches!(own_format(&files, &CPU), WeightFormat::Tensors(DType::F32)));
    let stored = load_transformer(&file, WeightFormat::AsStored, &CPU, &plain()).unwrap();
    assert!(matrices(&stored).iter().all(|w| w.quantized().is_none()));
}

/// Returns three matrices of a model: the first and the last one of the first layer, and the head.
fn matrices(model: &Transformer) -> Vec<Weight> {
    let layer = &model.layers[0];
    let (first, last) = match (&layer.attention, &layer.mlp) {
        (SelfAttention::Grouped(a), Mlp::Swiglu { down_proj, .. }) => (&a.q_proj, down_proj),
        (SelfAttention::Fused(a), Mlp::Gelu { c_proj, .. }) => (&a.c_attn, c_proj),
        _ => panic!("no such model"),
    };
    let head = model.lm_head.as_ref().unwrap_or(&model.embed_tokens);
    vec![first.weight.clone(), last.weight.clone(), head.clone()]
}

#[test]
fn loading_a_corrupted_file_never_panics() {
    let folder = Folder::new("gguf-bytes");
    let file = GgufParts::of("story-230k").write(&folder, GgmlDType::BF16);
    let bytes = std::fs::read(&file).unwrap();
    let tokens = bytes.windows(14).position(|w| w == b"tokenizer.ggml").unwrap();
    let names = bytes.windows(10).rposition(|w| w == b"token_embd").unwrap();
    let mut random = Random::new(63);
    for i in 0..150 {
        let mut damaged = bytes.clone();
        // In the numbers before the vocabulary, anywhere in the header, or in the list of tensors.
        let at = match i % 3 {
            0 => random.below(tokens),
            1 => random.below(names),
            _ => names - 4000 + random.below(4500),
        };
        damaged[at] ^= 1 << random.below(8);
        folder.write("model.gguf", &damaged);
        let tried = [
            candecode_engine::load_model(&file, DType::F32, &CPU).map(drop),
            candecode_formats::read_tokenizer(&file).map(drop),
        ];
        for error in tried.into_iter().filter(Result::is_err) {
            assert!(!message(error).contains("panicked"));
        }
    }
    // An alignment of 0 would cause a division by zero.
    let parts = GgufParts::of("story-230k").set("general.alignment", Some(Value::U32(0)));
    refused(
        candecode_formats::read_config(&parts.write(&folder, GgmlDType::F32)),
        &["damaged (its header"],
    );
}

#[test]
fn the_chat_template_is_read_from_the_metadata() {
    let folder = Folder::new("gguf-chat");
    let template = "{{ messages[0].content }}{{ bos_token }}{{ eos_token }}";
    let of = |parts: GgufParts| {
        let path = parts.write(&folder, GgmlDType::F32);
        candecode_formats::chat_template(&path).unwrap()
    };
    assert!(of(GgufParts::of("story-230k")).source.unwrap().is_none());
    let text = Some(Value::String(template.into()));
    let found = of(GgufParts::of("story-230k").set("tokenizer.chat_template", text));
    assert_eq!(found.source.unwrap().unwrap().1, template);
    assert_eq!(found.special_tokens["eos_token"], "<|endoftext|>");
    assert!(!found.special_tokens.contains_key("bos_token"), "the file names none");
}

/// llama.cpp also rejects unknown tensors: a bias or a scale would otherwise be ignored.
#[test]
fn an_unused_tensor_is_refused() {
    for name in ["output.bias", "rope_factors_long.weight", "token_embd_norm.weight", "cls.weight"]
    {
        let folder = Folder::new("gguf-unused");
        let mut parts = GgufParts::of("story-230k");
        let ones = Tensor::ones(64, DType::F32, &CPU).unwrap();
        parts.tensors.push((name.into(), ones));
        let file = parts.write(&folder, GgmlDType::BF16);
        let model = candecode_engine::load_model(&file, DType::F32, &CPU);
        refused(model, &["1 tensors would not be used", name]);
    }
}
