//! Tests of GGUF files. Most are written here from the embedded models and must yield the same
//! model, tokenizer and text. Others are damaged. `tests/families.rs` reads files of every family
//! that were written by llama.cpp's own Python package.

use crate::checks::Random;
use crate::{logits, message, refused, story, Folder};
use candecode::day05_model::{Mlp, SelfAttention, Transformer};
use candecode::kit::{Weight, WeightFormat};
use candecode_engine::chat_template::{Message, Template};
use candecode_engine::load::{load_transformer, own_format};
use candecode_engine::operations::plain;
use candecode_formats::ModelFiles;
use candle_core::quantized::gguf_file::{write, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use std::path::{Path, PathBuf};
use std::process::Command;

const CPU: Device = Device::Cpu;

/// A model to be written as a GGUF file, which a test can modify first.
#[derive(Clone)]
pub struct Parts {
    metadata: Vec<(String, Value)>,
    tensors: Vec<(String, Tensor)>,
}

impl Parts {
    /// Returns the parts of an embedded model.
    pub fn of(model: &str) -> Self {
        let read = |file: &str| -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(story(model).join(file)).unwrap()).unwrap()
        };
        let (config, tokenizer) = (read("config.json"), read("tokenizer.json"));
        let family = config["model_type"].as_str().unwrap();
        let number = |key: &str| Value::U32(config[key].as_u64().unwrap() as u32);
        let float = |key: &str| Value::F32(config[key].as_f64().unwrap() as f32);
        let mut keys = vec![
            ("general.architecture".to_string(), Value::String(family.into())),
            ("general.alignment".to_string(), Value::U32(32)),
        ];
        let mut set = |key: &str, value: Value| keys.push((format!("{family}.{key}"), value));
        if family == "gpt2" {
            set("block_count", number("n_layer"));
            set("context_length", number("n_positions"));
            set("embedding_length", number("n_embd"));
            set("attention.head_count", number("n_head"));
            set("attention.layer_norm_epsilon", float("layer_norm_epsilon"));
        } else {
            set("block_count", number("num_hidden_layers"));
            set("context_length", number("max_position_embeddings"));
            set("embedding_length", number("hidden_size"));
            set("feed_forward_length", number("intermediate_size"));
            set("attention.head_count", number("num_attention_heads"));
            set("attention.head_count_kv", number("num_key_value_heads"));
            set("attention.layer_norm_rms_epsilon", float("rms_norm_eps"));
            set("rope.freq_base", Value::F32(10_000.0));
        }
        let vocab = tokenizer["model"]["vocab"].as_object().unwrap();
        let mut pieces = vec![String::new(); vocab.len()];
        vocab.iter().for_each(|(piece, id)| pieces[id.as_u64().unwrap() as usize] = piece.clone());
        let kinds = (0..pieces.len()).map(|id| Value::I32(if id == 0 { 3 } else { 1 }));
        let merges = tokenizer["model"]["merges"].as_array().unwrap().iter();
        let merge = |pair: &serde_json::Value| {
            format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap())
        };
        for (key, value) in [
            ("model", Value::String("gpt2".into())),
            ("pre", Value::String("gpt-2".into())),
            ("tokens", Value::Array(pieces.into_iter().map(Value::String).collect())),
            ("token_type", Value::Array(kinds.collect())),
            ("merges", Value::Array(merges.map(|pair| Value::String(merge(pair))).collect())),
            ("eos_token_id", Value::U32(0)),
        ] {
            keys.push((format!("tokenizer.ggml.{key}"), value));
        }
        let file = story(model).join("model.safetensors");
        let stored = candle_core::safetensors::load(file, &CPU).unwrap();
        let mut tensors: Vec<_> = stored.into_iter().map(|(name, t)| renamed(&name, t)).collect();
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
        Self { metadata: keys, tensors }
    }

    pub fn set(mut self, key: &str, value: Option<Value>) -> Self {
        self.metadata.retain(|(name, _)| name != key);
        self.metadata.extend(value.map(|value| (key.to_string(), value)));
        self
    }

    /// Keeps only these tensors.
    pub fn with_tensors(mut self, names: &[&str]) -> Self {
        self.tensors.retain(|(name, _)| names.contains(&name.as_str()));
        self
    }

    /// Renames a token.
    fn token(mut self, id: usize, name: &str) -> Self {
        for (key, value) in &mut self.metadata {
            if let ("tokenizer.ggml.tokens", Value::Array(tokens)) = (key.as_str(), value) {
                tokens[id] = Value::String(name.into());
            }
        }
        // Merges that need the old token must go too.
        let gone = |merge: &str| {
            let tokens = self.metadata.iter().find(|(key, _)| key == "tokenizer.ggml.tokens");
            let Some((_, Value::Array(tokens))) = tokens else { return true };
            let has = |piece: &str| {
                tokens.iter().any(|token| matches!(token, Value::String(text) if text == piece))
            };
            merge.split(' ').any(|piece| !has(piece)) || !has(&merge.replace(' ', ""))
        };
        let merges = self.metadata.iter().find(|(key, _)| key == "tokenizer.ggml.merges");
        let Some((_, Value::Array(merges))) = merges else { return self };
        let kept = merges.iter().filter(|m| matches!(m, Value::String(text) if !gone(text)));
        let kept = Value::Array(kept.cloned().collect());
        self.set("tokenizer.ggml.merges", Some(kept))
    }

    /// Writes the file, with matrices as `dtype` and everything else as f32.
    pub fn write(&self, folder: &Folder, dtype: GgmlDType) -> PathBuf {
        let path = folder.0.join("model.gguf");
        let of = |t: &Tensor| if t.rank() == 2 { dtype } else { GgmlDType::F32 };
        let quantize = |t: &Tensor| {
            QTensor::quantize(&t.to_dtype(DType::F32).unwrap().contiguous().unwrap(), of(t))
        };
        let tensors: Vec<_> =
            self.tensors.iter().map(|(name, t)| (name.as_str(), quantize(t).unwrap())).collect();
        let tensors: Vec<_> = tensors.iter().map(|(name, t)| (*name, t)).collect();
        let metadata: Vec<_> = self.metadata.iter().map(|(key, v)| (key.as_str(), v)).collect();
        write(&mut std::fs::File::create(&path).unwrap(), &metadata, &tensors).unwrap();
        path
    }
}

/// Returns a tensor under llama.cpp's name, with GPT-2's matrices as (out, in).
fn renamed(name: &str, tensor: Tensor) -> (String, Tensor) {
    let (place, kind) = name.rsplit_once('.').unwrap();
    let mut words = place.split('.').rev();
    let last = words.next().unwrap();
    let layer = words.find_map(|word| word.parse::<usize>().ok());
    let attention = place.contains("attn");
    let (new, turned) = match (last, layer) {
        ("embed_tokens" | "wte", None) => ("token_embd", false),
        ("wpe", None) => ("position_embd", false),
        ("norm" | "ln_f", None) => ("output_norm", false),
        ("input_layernorm" | "ln_1", _) => ("attn_norm", false),
        ("post_attention_layernorm" | "ln_2", _) => ("ffn_norm", false),
        ("q_proj", _) => ("attn_q", false),
        ("k_proj", _) => ("attn_k", false),
        ("v_proj", _) => ("attn_v", false),
        ("o_proj", _) => ("attn_output", false),
        ("c_attn", _) => ("attn_qkv", true),
        ("c_proj", _) if attention => ("attn_output", true),
        ("gate_proj", _) => ("ffn_gate", false),
        ("up_proj", _) => ("ffn_up", false),
        ("down_proj", _) => ("ffn_down", false),
        ("c_fc", _) => ("ffn_up", true),
        ("c_proj", _) => ("ffn_down", true),
        other => panic!("{other:?}"),
    };
    let layer = layer.map_or(String::new(), |layer| format!("blk.{layer}."));
    let tensor = if turned && tensor.rank() == 2 { tensor.t().unwrap() } else { tensor };
    (format!("{layer}{new}.{kind}"), tensor)
}

#[test]
fn a_gguf_file_equals_the_folder_it_was_converted_from() {
    // The weights are stored as bf16, so writing bf16 or f32 is lossless.
    for model in ["story-230k", "story-gpt2-1m"] {
        let (parts, want) =
            (Parts::of(model), candecode_formats::read_config(&story(model)).unwrap());
        for dtype in [GgmlDType::F32, GgmlDType::BF16] {
            let folder = Folder::new("gguf-same");
            let file = parts.write(&folder, dtype);
            assert_eq!(candecode_formats::read_config(&file).unwrap(), want);
            assert_eq!(logits(&file), logits(&story(model)), "{model}, {dtype:?}");
        }
    }
}

#[test]
fn quantized_weights_are_widened_while_loading() {
    // Q8_0: 32 numbers share an f16 scale, and each is an integer from -127 to 127 times that
    // scale.
    let (folder, parts) = (Folder::new("gguf-q8"), Parts::of("story-230k"));
    let file = parts.write(&folder, GgmlDType::Q8_0);
    let weights = candecode_formats::open_weights(&file, DType::F32, &CPU).unwrap();
    let name = "model.layers.1.mlp.down_proj.weight";
    let got = weights.matrix(name, 64, 192).unwrap();
    let got = got.tensor().unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let folder = candecode_formats::open_weights(&story("story-230k"), DType::F32, &CPU).unwrap();
    let exact = folder.matrix(name, 64, 192).unwrap();
    let exact = exact.tensor().unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    for (got, exact) in got.chunks(32).zip(exact.chunks(32)) {
        let largest = exact.iter().fold(0f32, |max, x| max.max(x.abs()));
        let scale = largest / 127.0; // rounded to f16: 127 of them are off by at most 0.06
        for (got, exact) in got.iter().zip(exact) {
            assert!((got - exact).abs() <= 0.57 * scale, "{got} for {exact}, scale {scale}");
            let steps = got / scale;
            assert!((steps - steps.round()).abs() < 0.1, "{got} is no multiple of {scale}");
        }
    }
    let narrow = candecode_formats::open_weights(&file, DType::F16, &CPU)
        .unwrap()
        .matrix(name, 64, 192)
        .unwrap();
    assert_eq!(narrow.tensor().unwrap().dtype(), DType::F16);
}

#[test]
fn quantized_blocks_are_kept_as_stored() {
    for model in ["story-230k", "story-gpt2-1m"] {
        for dtype in [GgmlDType::Q8_0, GgmlDType::Q4_0, GgmlDType::Q4_1] {
            let folder = Folder::new("gguf-stays");
            let file = Parts::of(model).write(&folder, dtype);
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
    let file = Parts::of("story-230k").write(&folder, GgmlDType::Q5_0);
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
fn the_gguf_tokenizer_gives_the_same_ids() {
    let folder = Folder::new("gguf-ids");
    let file = Parts::of("story-230k").write(&folder, GgmlDType::BF16);
    let (here, there) = (
        candecode_formats::read_tokenizer(&file).unwrap(),
        candecode_formats::read_tokenizer(&story("story-230k")).unwrap(),
    );
    assert_eq!(here.difference(&there), None);
    let letters: Vec<char> = "abc XYZ 09 ,.!?'\n\té日🦙½".chars().collect();
    let mut random = Random::new(61);
    for _ in 0..500 {
        let n = random.below(30);
        let mut text: String = (0..n).map(|_| letters[random.below(letters.len())]).collect();
        text.push_str(if random.below(3) == 0 { "<|endoftext|> he'll" } else { "" });
        let ids = there.encode(&text).unwrap();
        assert_eq!(here.encode(&text).unwrap(), ids, "{text:?}");
        assert_eq!(here.decode(&ids).unwrap(), there.decode(&ids).unwrap());
    }
}

#[test]
fn the_command_writes_the_same_text_from_gguf() {
    let folder = Folder::new("gguf-text");
    let file = Parts::of("story-230k").write(&folder, GgmlDType::F32);
    let text = |model: &Path, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_candecode"));
        command.arg("--model").arg(model).args(["-p", "Once upon a time"]).args(more);
        let output = command.args(["--max-new-tokens", "60"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    for more in [&[][..], &["--dtype", "bf16"], &["--draft-ngram"], &["--num-beams", "3"]] {
        assert_eq!(text(&file, more), text(&story("story-230k"), more), "{more:?}");
    }
    let draft = ["--draft-model", file.to_str().unwrap()];
    assert_eq!(text(&story("story-3m"), &draft), text(&story("story-3m"), &[]));
}

#[test]
fn a_file_that_is_not_gguf_is_refused() {
    let open = |path: &Path| candecode_formats::open_weights(path, DType::F32, &CPU);
    let safetensors = story("story-230k").join("model.safetensors");
    let says = ["model.safetensors: not a GGUF file", "or the folder of a model"];
    refused(open(&safetensors), &says);
    refused(candecode_formats::read_tokenizer(&safetensors), &says);
    refused(candecode_formats::read_config(&safetensors), &says);
    let folder = Folder::new("gguf-none");
    refused(open(&folder.write("empty.gguf", "")), &["empty.gguf: not a GGUF file"]);
    let says = ["nowhere.gguf: there is no such file; give the path of a GGUF file"];
    refused(candecode_formats::hub::locate("some/where/nowhere.gguf", false), &says);
}

#[test]
fn a_file_truncated_anywhere_is_refused() {
    let folder = Folder::new("gguf-cut");
    let file = Parts::of("story-230k").write(&folder, GgmlDType::BF16);
    let bytes = std::fs::read(&file).unwrap();
    let mut random = Random::new(62);
    let edges = [4, 5, 8, 24, 100, bytes.len() - 40];
    for length in edges.into_iter().chain((0..40).map(|_| 4 + random.below(bytes.len() - 50))) {
        folder.write("model.gguf", &bytes[..length]);
        refused(
            candecode_formats::open_weights(&file, DType::F32, &CPU),
            &["cut short", "fetch the file again"],
        );
    }
    folder.write("model.gguf", &bytes[..bytes.len() - 40]);
    refused(candecode_formats::read_config(&file), &["cut short: tensor", "ends at byte"]);
}

#[test]
fn loading_a_corrupted_file_never_panics() {
    let folder = Folder::new("gguf-bytes");
    let file = Parts::of("story-230k").write(&folder, GgmlDType::BF16);
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
    let parts = Parts::of("story-230k").set("general.alignment", Some(Value::U32(0)));
    refused(
        candecode_formats::read_config(&parts.write(&folder, GgmlDType::F32)),
        &["damaged (its header"],
    );
}

#[test]
fn unsupported_or_incomplete_gguf_models_are_refused() {
    let text = |text: &str| Some(Value::String(text.into()));
    for (key, value, says) in [
        (
            "general.architecture",
            text("gemma3"),
            "general.architecture is \"gemma3\"; candecode runs gpt2, llama, qwen2, qwen3",
        ),
        ("general.architecture", None, "general.architecture is not there"),
        ("split.count", Some(Value::U16(3)), "one of 3 parts of a model; make one file of them"),
        ("qwen2.block_count", None, "the metadata: no num_hidden_layers"),
        ("qwen2.attention.head_count", text("two"), "qwen2.attention.head_count is not a number"),
        (
            "qwen2.attention.head_count",
            Some(Value::U32(3)),
            "not a multiple of num_attention_heads, 3",
        ),
        (
            "qwen2.attention.sliding_window",
            Some(Value::U32(64)),
            "qwen2.attention.sliding_window is 64",
        ),
        ("qwen2.expert_count", Some(Value::U32(8)), "qwen2.expert_count is 8"),
        (
            "qwen2.rope.dimension_count",
            Some(Value::U32(16)),
            "qwen2.rope.dimension_count is 16, and a head is 32 wide",
        ),
        ("qwen2.rope.scaling.type", text("yarn"), "qwen2.rope.scaling.type is \"yarn\""),
        ("qwen2.rope.freq_base", Some(Value::F32(-1.0)), "rope_theta is -1"),
    ] {
        let folder = Folder::new("gguf-config");
        let file = Parts::of("story-230k").set(key, value).write(&folder, GgmlDType::F32);
        refused(candecode_formats::read_config(&file), &["model.gguf", says]);
    }
    let folder = Folder::new("gguf-tensors");
    let mut parts = Parts::of("story-230k");
    parts.tensors.retain(|(name, _)| name != "token_embd.weight");
    let file = parts.write(&folder, GgmlDType::F32);
    refused(candecode_formats::read_config(&file), &["tensor token_embd.weight is missing"]);
    parts.tensors.clear();
    let file = parts.write(&folder, GgmlDType::F32);
    refused(candecode_formats::read_config(&file), &["no tensors: the file has a vocabulary only"]);
    let mut parts = Parts::of("story-230k");
    parts.tensors.retain(|(name, _)| name != "blk.1.ffn_up.weight");
    let file = parts.write(&folder, GgmlDType::F32);
    let says = ["model.gguf", "tensor model.layers.1.mlp.up_proj.weight is missing"];
    refused(candecode_engine::load_model(&file, DType::F32, &CPU), &says);
}

/// Returns the offset in the header just after the name of blk.0.attn_q.weight. The number of
/// dimensions (4 bytes), the dimensions (8 each) and the type (4) follow.
fn after_the_name(bytes: &[u8]) -> usize {
    bytes.windows(19).rposition(|w| w == b"blk.0.attn_q.weight").unwrap() + 19
}

#[test]
fn an_unsupported_type_error_lists_the_supported_types() {
    let folder = Folder::new("gguf-type");
    let file = Parts::of("story-230k").write(&folder, GgmlDType::F32);
    let mut bytes = std::fs::read(&file).unwrap();
    let at = after_the_name(&bytes) + 4 + 16;
    // 20 is IQ4_NL, which candle doesn't know. It knows 9 and 15, but can't widen them.
    for (number, found) in [(20, "type 20"), (99, "type 99"), (9, "Q8_1"), (15, "Q8K")] {
        bytes[at] = number;
        folder.write("model.gguf", &bytes);
        let says = format!(
            "stored in a type that candecode does not read ({found}); it reads F32, \
            F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K"
        );
        let text = message(candecode_formats::read_config(&file));
        assert!(text.ends_with(&says), "{text}");
    }
}

#[test]
fn an_empty_tensor_is_refused() {
    let folder = Folder::new("gguf-nothing");
    let file = Parts::of("story-230k").write(&folder, GgmlDType::F32);
    let whole = std::fs::read(&file).unwrap();
    for dimension in 0..2 {
        let mut bytes = whole.clone();
        let at = after_the_name(&bytes) + 4 + 8 * dimension;
        bytes[at..at + 8].fill(0);
        folder.write("model.gguf", &bytes);
        let says = ["damaged: tensor blk.0.attn_q.weight has the shape [", "which holds nothing"];
        refused(candecode_engine::load_model(&file, DType::F32, &CPU), &says);
    }
}

#[test]
fn an_unknown_tokenizer_is_refused() {
    let text = |text: &str| Some(Value::String(text.into()));
    for (key, value, says) in [
        (
            "model",
            text("bert"),
            "tokenizer.ggml.model is \"bert\"; candecode has \"gpt2\" and \"llama\"",
        ),
        ("model", None, "tokenizer.ggml.model is not there"),
        ("model", text("llama"), "no tokenizer.ggml.scores"),
        (
            "pre",
            text("tekken"),
            "tokenizer.ggml.pre is \"tekken\"; candecode has \"gpt-2\", \"smollm\"",
        ),
        ("pre", None, "tokenizer.ggml.pre is not there"),
        ("tokens", None, "no tokenizer.ggml.tokens"),
        ("tokens", Some(Value::Array(vec![Value::U32(1)])), "is not a list of texts"),
        ("merges", None, "no tokenizer.ggml.merges"),
        ("merges", Some(Value::Array(vec![Value::String("ab".into())])), "has one without a space"),
        ("add_bos_token", Some(Value::Bool(true)), "no tokenizer.ggml.bos_token_id"),
    ] {
        let folder = Folder::new("gguf-tokenizer");
        let key = format!("tokenizer.ggml.{key}");
        let file = Parts::of("story-230k").set(&key, value).write(&folder, GgmlDType::F32);
        refused(candecode_formats::read_tokenizer(&file), &["model.gguf: the tokenizer", says]);
    }
}

#[test]
fn the_pre_tokenizer_name_sets_digit_space_and_bos_handling() {
    let folder = Folder::new("gguf-pre");
    let parts = |pre: &str| {
        Parts::of("story-230k").set("tokenizer.ggml.pre", Some(Value::String(pre.into())))
    };
    let pieces = |parts: &Parts, text: &str| -> Vec<String> {
        let tokenizer =
            candecode_formats::read_tokenizer(&parts.write(&folder, GgmlDType::F32)).unwrap();
        let ids = tokenizer.encode(text).unwrap();
        ids.into_iter().map(|id| tokenizer.piece(id).unwrap()).collect()
    };
    assert_eq!(pieces(&parts("gpt-2"), " 10\n\n."), ["Ġ", "1", "0", "Ċ", "Ċ", "."]);
    assert_eq!(pieces(&parts("smollm"), " 10"), ["Ġ", "1", "0"]);
    for pre in ["qwen2", "smollm", "gpt-2"] {
        assert_eq!(pieces(&parts(pre), "Once"), ["Once"], "{pre}");
    }
    // e and an accent become one character under NFC, which qwen2 uses.
    let accent = |pre: &str| pieces(&parts(pre), "e\u{301}");
    assert_eq!(accent("qwen2"), pieces(&parts("gpt-2"), "é"));
    assert_ne!(accent("gpt-2"), accent("qwen2"));
    // Llama 3 starts every text with its BOS token.
    let llama = parts("llama-bpe").set("tokenizer.ggml.bos_token_id", Some(Value::U32(0)));
    assert_eq!(pieces(&llama, "Once"), ["<|endoftext|>", "Once"]);
    let without = llama.set("tokenizer.ggml.add_bos_token", Some(Value::Bool(false)));
    assert_eq!(pieces(&without, "Once"), ["Once"]);
}

/// A SentencePiece vocabulary has pieces with scores, but no merges.
#[test]
fn scores_become_merges() {
    let folder = Folder::new("gguf-scores");
    let pieces = ["<unk>", "<s>", "<0xC3>", "<0xA9>", "▁", "a", "b", "ab", "▁a", "▁ab", "[PAD10]"];
    // ab scores higher than ▁a, so the text "ab" merges ab first, then ▁ab.
    let scores = [0.0, 0.0, 0.0, 0.0, -9.0, -9.0, -9.0, -1.0, -2.0, -3.0, 0.0];
    let kinds = [2, 3, 6, 6, 1, 1, 1, 1, 1, 1, 5];
    let list = |values: Vec<Value>| Some(Value::Array(values));
    let parts = Parts::of("story-230k")
        .set("tokenizer.ggml.model", Some(Value::String("llama".into())))
        .set("tokenizer.ggml.tokens", list(pieces.map(|p| Value::String(p.into())).to_vec()))
        .set("tokenizer.ggml.scores", list(scores.map(Value::F32).to_vec()))
        .set("tokenizer.ggml.token_type", list(kinds.map(Value::I32).to_vec()))
        .set("tokenizer.ggml.bos_token_id", Some(Value::U32(1)))
        .set("tokenizer.ggml.unknown_token_id", Some(Value::U32(0)));
    let read = |parts: &Parts| {
        candecode_formats::read_tokenizer(&parts.write(&folder, GgmlDType::F32)).unwrap()
    };
    let tokenizer = read(&parts);
    assert_eq!(tokenizer.encode("ab a b").unwrap(), [1, 9, 8, 4, 6]);
    assert_eq!(tokenizer.encode("aé").unwrap(), [1, 8, 2, 3], "in bytes");
    assert_eq!(tokenizer.decode(&[1, 9, 8, 2, 3]).unwrap(), "ab aé");
    assert_eq!(tokenizer.vocab_size(), 10, "padding is no token");
    let bare = parts.set("tokenizer.ggml.add_space_prefix", Some(Value::Bool(false)));
    let bare = read(&bare.set("tokenizer.ggml.add_bos_token", Some(Value::Bool(false))));
    assert_eq!(bare.encode("ab a").unwrap(), [7, 8]);
    assert_eq!(bare.decode(&[7, 8]).unwrap(), "ab a");
}

#[test]
fn the_chat_template_is_read_from_the_metadata() {
    let folder = Folder::new("gguf-chat");
    let template = "{{ messages[0].content }}{{ bos_token }}{{ eos_token }}";
    let of = |parts: Parts| {
        let path = parts.write(&folder, GgmlDType::F32);
        Template::of("a-file", &path, None)
    };
    refused(of(Parts::of("story-230k")), &["a-file has no chat template"]);
    let text = Some(Value::String(template.into()));
    let found = of(Parts::of("story-230k").set("tokenizer.chat_template", text)).unwrap();
    let text = found.render(&[Message::new("user", "Who?")]).unwrap();
    assert_eq!(text, "Who?<|endoftext|>", "the file names an EOS, and no BOS");
}

/// Follows llama.cpp (`llama-model.cpp`): a factor without a type means linear, the older key is
/// used if the newer one is missing, and the type "none" turns scaling off.
#[test]
fn linear_rope_scaling_is_refused_in_every_form() {
    let folder = Folder::new("gguf-linear");
    let with = |changes: &[(&str, Value)]| {
        let parts = changes.iter().fold(Parts::of("story-230k"), |parts, (key, value)| {
            parts.set(&format!("qwen2.rope.{key}"), Some(value.clone()))
        });
        candecode_formats::read_config(&parts.write(&folder, GgmlDType::BF16))
    };
    let (kind, four) = (|kind: &str| ("scaling.type", Value::String(kind.into())), Value::F32(4.0));
    for changes in [
        vec![("scaling.factor", four.clone())],
        vec![("scale_linear", four.clone())],
        vec![("scaling.factor", four.clone()), ("scale_linear", Value::F32(1.0))],
        vec![("scaling.factor", four.clone()), kind("linear")],
        vec![("scale_linear", four.clone()), kind("linear")],
        vec![("scaling.factor", Value::U32(4))],
        vec![("scaling.factor", Value::F64(0.25))],
    ] {
        refused(
            with(&changes),
            &["qwen2.rope.scal", "positions are divided by it (linear scaling)"],
        );
    }
    for (changes, says) in [
        (vec![kind("yarn"), ("scaling.factor", four.clone())], "scaling.type is \"yarn\""),
        (vec![kind("longrope")], "scaling.type is \"longrope\""),
        (vec![kind("llama3"), ("scaling.factor", four.clone())], "scaling.type is \"llama3\""),
        (vec![kind("\u{1b}[2J")], "scaling.type is \"\\u{1b}[2J\""),
        (vec![("scaling.type", Value::U32(2))], "scaling.type is not a text"),
        (vec![("scaling.factor", Value::String("4".into()))], "scaling.factor is not a number"),
        (vec![("scaling.attn_factor", four.clone())], "scaling.attn_factor is 4"),
        (vec![("scaling.yarn_ext_factor", Value::F32(1.0))], "scaling.yarn_ext_factor is 1"),
        (
            vec![("dimension_sections", Value::Array(vec![Value::I32(0), Value::I32(8)]))],
            "dimension_sections is [0, 8]",
        ),
    ] {
        refused(with(&changes), &["model.gguf: the metadata", says]);
    }
    let plain = candecode_formats::read_config(&story("story-230k")).unwrap();
    for changes in [
        vec![("scaling.factor", Value::F32(1.0))],
        vec![("scaling.factor", Value::F32(0.0))],
        vec![("scaling.factor", Value::F32(1.0)), ("scale_linear", four.clone())],
        vec![("scaling.factor", four.clone()), ("scale_linear", four.clone()), kind("none")],
        vec![("scaling.attn_factor", Value::F32(1.0)), kind("linear")],
        vec![("dimension_sections", Value::Array(vec![Value::I32(0); 4]))],
    ] {
        assert_eq!(with(&changes).unwrap(), plain, "{changes:?}");
    }
}

#[test]
fn a_per_layer_list_is_accepted_if_all_layers_agree() {
    let folder = Folder::new("gguf-lists");
    let heads = |of_each: &[u32]| {
        let list = Value::Array(of_each.iter().map(|n| Value::U32(*n)).collect());
        let parts = Parts::of("story-230k").set("qwen2.attention.head_count_kv", Some(list));
        candecode_formats::read_config(&parts.write(&folder, GgmlDType::BF16))
    };
    assert_eq!(
        heads(&[1, 1]).unwrap(),
        candecode_formats::read_config(&story("story-230k")).unwrap()
    );
    refused(heads(&[1, 2]), &["head_count_kv is [1, 2]", "the same in every layer"]);
    refused(heads(&[]), &["head_count_kv is []"]);
    refused(heads(&[1; 3000]), &["head_count_kv is [1, 1, 1, 1, 1, 1, 1, 1, …]"]);
}

/// llama.cpp stores the rows of a Llama's q and k in another order, which depends on the number of
/// heads.
#[test]
fn head_count_lists_order_rows_like_single_numbers() {
    let folder = Folder::new("gguf-list-rows");
    let llama = Some(Value::String("llama".into()));
    let mut parts = Parts::of("story-230k").set("general.architecture", llama);
    for (key, _) in &mut parts.metadata {
        *key = key.replace("qwen2.", "llama.");
    }
    let rows = |parts: &Parts, format: WeightFormat| {
        let file = parts.write(&folder, GgmlDType::Q8_0);
        let weights = candecode_formats::open_weights(&file, format, &CPU).unwrap();
        [("q", 64), ("k", 32)].map(|(name, rows)| {
            let name = format!("model.layers.1.self_attn.{name}_proj.weight");
            let matrix = weights.matrix(&name, rows, 64).unwrap();
            matrix.tensor().unwrap().to_vec2::<f32>().unwrap()
        })
    };
    let list = |heads: u32| Some(Value::Array(vec![Value::U32(heads); 2]));
    let one_list = parts.clone().set("llama.attention.head_count_kv", list(1));
    let two_lists = one_list.clone().set("llama.attention.head_count", list(2));
    for format in [WeightFormat::Tensors(DType::F32), WeightFormat::AsStored] {
        let want = rows(&parts, format);
        assert_eq!(rows(&one_list, format), want, "{format:?}");
        assert_eq!(rows(&two_lists, format), want, "{format:?}");
    }
}

/// The names are taken from llama.cpp's own source (`tests/oracle/metadata.py`).
#[test]
fn every_end_token_known_to_llama_cpp_ends_a_sequence() {
    let folder = Folder::new("gguf-ends");
    let golden = crate::checks::golden_json("metadata").unwrap();
    let ends = |changes: &[(usize, &str)], keys: &[(&str, u32)]| {
        let mut parts = Parts::of("story-230k");
        for (id, name) in changes {
            parts = parts.token(*id, name);
        }
        for (key, id) in keys {
            parts = parts.set(&format!("tokenizer.ggml.{key}"), Some(Value::U32(*id)));
        }
        let file = parts.write(&folder, GgmlDType::BF16);
        (
            candecode_formats::read_config(&file).unwrap().eos_token_ids,
            candecode_formats::read_tokenizer(&file).unwrap(),
        )
    };
    for (kind, names) in golden["end names"].as_object().unwrap() {
        let names: Vec<&str> =
            names.as_array().unwrap().iter().filter_map(|n| n.as_str()).collect();
        assert!(!names.is_empty(), "{kind}");
        for name in names.iter().filter(|name| **name != "<|endoftext|>") {
            let (ids, tokenizer) = ends(&[(1500, name)], &[]);
            assert_eq!(ids, [0, 1500], "{name}");
            assert_eq!(tokenizer.encode(name).unwrap(), [1500], "{name} is one token");
            assert_eq!(tokenizer.decode(&[1500]).unwrap(), "", "{name} isn't shown");
        }
    }
    // The three keys, then ids outside the vocabulary. Id 0, <|endoftext|>, is recognized by its
    // name without any key.
    let keys = [("eos_token_id", 5), ("eot_token_id", 6), ("eom_token_id", 7)];
    assert_eq!(ends(&[], &keys).0, [5, 6, 7, 0]);
    assert_eq!(ends(&[], &[("eot_token_id", 99_999), ("eos_token_id", u32::MAX)]).0, [0]);
    assert_eq!(ends(&[], &[("fim_pad_token_id", 8), ("fim_sep_token_id", 9)]).0, [0, 8, 9]);
    // A key takes precedence over a name.
    assert_eq!(ends(&[(1500, "<|fim_pad|>")], &[("fim_pad_token_id", 8)]).0, [0, 8]);
    let list = Value::Array([12, 0, 99_999].map(Value::U32).to_vec());
    let parts = Parts::of("story-230k").set("tokenizer.ggml.eos_token_ids", Some(list));
    let file = parts.write(&folder, GgmlDType::BF16);
    assert_eq!(candecode_formats::read_config(&file).unwrap().eos_token_ids, [0, 12]);
    // gpt-oss and Solar Open end their messages differently, and in Gemma 4 </s> is an ordinary
    // word.
    let oss = [(1500, "<|return|>"), (1501, "<|call|>"), (1502, "<|end|>")];
    assert_eq!(ends(&oss, &[]).0, [0, 1500, 1501]);
    let solar = [(1500, "<|flush|>"), (1501, "<|calls|>"), (1502, "<|end|>")];
    assert_eq!(ends(&solar, &[]).0, [0, 1500, 1501]);
    assert_eq!(ends(&oss[1..], &[]).0, [0, 1501, 1502]);
    assert_eq!(ends(&[(1500, "<|tool_response>"), (1501, "</s>")], &[]).0, [0, 1500]);
}

#[test]
fn inconsistent_token_lists_are_refused() {
    let folder = Folder::new("gguf-fit");
    let tokenizer = |parts: Parts| {
        candecode_formats::read_tokenizer(&parts.write(&folder, GgmlDType::BF16)).map(drop)
    };
    let list = |value: Value, n: usize| Some(Value::Array(vec![value; n]));
    let parts = || Parts::of("story-230k");
    refused(
        tokenizer(parts().token(9, "twice").token(1500, "twice")),
        &["tokenizer.ggml.tokens has \"twice\" twice, as tokens 9 and 1500"],
    );
    assert!(tokenizer(parts().token(1500, "").token(1501, "")).is_ok(), "tokens without a name");
    let kinds = "tokenizer.ggml.token_type";
    refused(
        tokenizer(parts().set(kinds, list(Value::I32(1), 2047))),
        &["token_type has 2047 entries for 2048 tokens"],
    );
    assert!(tokenizer(parts().set(kinds, list(Value::I32(1), 2049))).is_ok());
    let texts = list(Value::String("1".into()), 2048);
    refused(tokenizer(parts().set(kinds, texts)), &["token_type is not a list of numbers"]);
    refused(tokenizer(parts().set(kinds, Some(Value::U32(1)))), &["is not a list of numbers"]);
    let spm = || parts().set("tokenizer.ggml.model", Some(Value::String("llama".into())));
    let scores = "tokenizer.ggml.scores";
    refused(
        tokenizer(spm().set(scores, list(Value::F32(0.0), 2000))),
        &["scores has 2000 entries for 2048 tokens"],
    );
}

/// Pieces that are prefixes of each other have one merge per character, each as long as the piece.
#[test]
fn costly_sentencepiece_vocabularies_are_refused_quickly() {
    let folder = Folder::new("gguf-pieces");
    let tokenizer = |letter: &str, lengths: &mut dyn Iterator<Item = usize>| {
        let pieces: Vec<Value> = std::iter::once("<unk>".to_string())
            .chain(lengths.map(|n| letter.repeat(n)))
            .map(Value::String)
            .collect();
        let scores = Value::Array(vec![Value::F32(0.0); pieces.len()]);
        let file = Parts::of("story-230k")
            .set("tokenizer.ggml.model", Some(Value::String("llama".into())))
            .set("tokenizer.ggml.token_type", None)
            .set("tokenizer.ggml.add_bos_token", Some(Value::Bool(false)))
            .set("tokenizer.ggml.tokens", Some(Value::Array(pieces)))
            .set("tokenizer.ggml.scores", Some(scores))
            .write(&folder, GgmlDType::BF16);
        let began = std::time::Instant::now();
        (candecode_formats::read_tokenizer(&file), began.elapsed().as_secs_f64())
    };
    let (found, seconds) = tokenizer("a", &mut (20..21_000).step_by(20));
    refused(found, &["has 1040 bytes, and no SentencePiece vocabulary more than 1024"]);
    assert!(seconds < 5.0, "{seconds} s");
    let (found, seconds) = tokenizer("é", &mut (1..=512));
    refused(found, &["more ways to put its pieces together than any vocabulary"]);
    assert!(seconds < 5.0, "{seconds} s");
    let (found, _) = tokenizer("a", &mut (1..=64));
    assert_eq!(found.unwrap().encode(&"a".repeat(64)).unwrap().len(), 2); // ▁ is unknown
}

#[test]
fn eos_is_appended_if_the_metadata_asks_for_it() {
    let folder = Folder::new("gguf-eos");
    let flag = |key: &str| (format!("tokenizer.ggml.{key}"), Some(Value::Bool(true)));
    let (bos, eos) = (flag("add_bos_token"), flag("add_eos_token"));
    let parts = Parts::of("story-230k").set(&eos.0, eos.1);
    let ids = |parts: &Parts| {
        let tokenizer =
            candecode_formats::read_tokenizer(&parts.write(&folder, GgmlDType::BF16)).unwrap();
        tokenizer.encode("Once upon").unwrap()
    };
    assert_eq!(ids(&parts), [428, 437, 0]);
    let parts = parts.set(&bos.0, bos.1).set("tokenizer.ggml.bos_token_id", Some(Value::U32(7)));
    assert_eq!(ids(&parts), [7, 428, 437, 0]);
    let parts = parts.set("tokenizer.ggml.eos_token_id", None);
    let file = parts.write(&folder, GgmlDType::BF16);
    refused(candecode_formats::read_tokenizer(&file), &["no tokenizer.ggml.eos_token_id"]);
}

/// llama.cpp also rejects unknown tensors: a bias or a scale would otherwise be ignored.
#[test]
fn an_unused_tensor_is_refused() {
    for name in ["output.bias", "rope_factors_long.weight", "token_embd_norm.weight", "cls.weight"]
    {
        let folder = Folder::new("gguf-unused");
        let mut parts = Parts::of("story-230k");
        let ones = Tensor::ones(64, DType::F32, &CPU).unwrap();
        parts.tensors.push((name.into(), ones));
        let file = parts.write(&folder, GgmlDType::BF16);
        let model = candecode_engine::load_model(&file, DType::F32, &CPU);
        refused(model, &["1 tensors would not be used", name]);
    }
}

#[test]
fn an_older_quantization_version_is_refused() {
    let folder = Folder::new("gguf-version");
    let file = |dtype| {
        let version = Some(Value::U32(1));
        let parts = Parts::of("story-230k").set("general.quantization_version", version);
        candecode_formats::read_config(&parts.write(&folder, dtype))
    };
    assert!(file(GgmlDType::BF16).is_ok());
    refused(file(GgmlDType::Q8_0), &["general.quantization_version is 1"]);
}

#[test]
fn untrusted_text_in_errors_is_escaped_and_truncated() {
    let folder = Folder::new("gguf-strangers");
    let bad = format!("\u{1b}]0;x\u{7}{}", "y".repeat(100_000));
    for key in ["general.architecture", "general.type", "qwen2.rope.scaling.type", "qwen2.odd"] {
        let parts = Parts::of("story-230k").set(key, Some(Value::String(bad.clone())));
        let text = message(candecode_formats::read_config(&parts.write(&folder, GgmlDType::BF16)));
        assert!(text.contains("\\u{1b}]0;x\\u{7}yyy") && text.len() < 800, "{key}: {text}");
    }
    for key in ["tokenizer.ggml.model", "tokenizer.ggml.pre"] {
        let parts = Parts::of("story-230k").set(key, Some(Value::String(bad.clone())));
        let text =
            message(candecode_formats::read_tokenizer(&parts.write(&folder, GgmlDType::BF16)));
        assert!(text.contains("\\u{1b}]0;x\\u{7}yyy") && text.len() < 800, "{key}: {text}");
    }
    let mut parts = Parts::of("story-230k");
    parts.tensors.push((bad, Tensor::ones(4, DType::F32, &CPU).unwrap()));
    let file = parts.write(&folder, GgmlDType::BF16);
    let text = message(candecode_engine::load_model(&file, DType::F32, &CPU));
    assert!(text.contains("\\u{1b}]0;x\\u{7}yyy") && text.len() < 800, "{text}");
}
