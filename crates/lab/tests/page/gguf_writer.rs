//! Writes GGUF files of story-230k, each with one thing wrong. The format:
//! <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use candle_core::quantized::gguf_file::{self, Content, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{safetensors, Device};
use serde_json::Value as Json;
use std::fs::{self, File};
use std::path::Path;
use Value::{Array, Bool, String, F32, I32, U32};

type Metadata = Vec<(&'static str, Value)>;
type Tensors = Vec<(std::string::String, QTensor)>;

/// Returns llama.cpp's name for a Qwen 2 tensor.
fn renamed(name: &str) -> std::string::String {
    let mut name = name.replace("model.layers.", "blk.").replace("model.", "");
    for (from, to) in [
        ("embed_tokens", "token_embd"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ] {
        name = name.replace(from, to);
    }
    if name.starts_with("norm.") {
        name = format!("output_{name}");
    }
    name
}

/// Returns a model's tensors, with the matrices in the given type and all others in bf16.
fn tensors_of(model: &Path, matrices: GgmlDType) -> Tensors {
    let tensors = safetensors::load(model.join("model.safetensors"), &Device::Cpu).unwrap();
    let mut tensors: Vec<_> = tensors.into_iter().collect();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    let quantized = |(name, tensor): (std::string::String, candle_core::Tensor)| {
        let kind = if tensor.rank() == 2 { matrices } else { GgmlDType::BF16 };
        (renamed(&name), QTensor::quantize(&tensor, kind).unwrap())
    };
    tensors.into_iter().map(quantized).collect()
}

fn metadata_of(model: &Path) -> Metadata {
    let read = |file: &str| -> Json {
        serde_json::from_slice(&std::fs::read(model.join(file)).unwrap()).unwrap()
    };
    let (config, tokenizer) = (read("config.json"), read("tokenizer.json"));
    let number = |key: &str| U32(config[key].as_u64().unwrap() as u32);
    let vocab = tokenizer["model"]["vocab"].as_object().unwrap();
    let mut pieces = vec![std::string::String::new(); vocab.len()];
    vocab.iter().for_each(|(piece, id)| pieces[id.as_u64().unwrap() as usize] = piece.clone());
    let kinds = (0..pieces.len()).map(|id| I32(if id == 0 { 3 } else { 1 })).collect();
    let merges = tokenizer["model"]["merges"].as_array().unwrap().iter();
    let word = |json: &Json| json.as_str().unwrap().to_string();
    let merge = |pair: &Json| String(format!("{} {}", word(&pair[0]), word(&pair[1])));
    let epsilon = config["rms_norm_eps"].as_f64().unwrap() as f32;
    let pairs = [
        ("general.architecture", String("qwen2".into())),
        ("qwen2.block_count", number("num_hidden_layers")),
        ("qwen2.context_length", number("max_position_embeddings")),
        ("qwen2.embedding_length", number("hidden_size")),
        ("qwen2.feed_forward_length", number("intermediate_size")),
        ("qwen2.attention.head_count", number("num_attention_heads")),
        ("qwen2.attention.head_count_kv", number("num_key_value_heads")),
        ("qwen2.attention.layer_norm_rms_epsilon", F32(epsilon)),
        ("qwen2.rope.freq_base", F32(10_000.0)),
        ("tokenizer.ggml.model", String("gpt2".into())),
        ("tokenizer.ggml.pre", String("gpt-2".into())),
        ("tokenizer.ggml.tokens", Array(pieces.into_iter().map(String).collect())),
        ("tokenizer.ggml.token_type", Array(kinds)),
        ("tokenizer.ggml.merges", Array(merges.map(merge).collect())),
        ("tokenizer.ggml.eos_token_id", U32(0)),
    ];
    pairs.to_vec()
}

/// Writes the files to a folder.
pub fn write_all(model: &Path, folder: &Path) {
    let (metadata, mut tensors) = (metadata_of(model), tensors_of(model, GgmlDType::BF16));
    let path = |file: &str| folder.join(format!("{file}.gguf"));
    let write = |file: &str, metadata: &Metadata, tensors: &Tensors| {
        let metadata: Vec<_> = metadata.iter().map(|(key, value)| (*key, value)).collect();
        let tensors: Vec<_> = tensors.iter().map(|(name, data)| (name.as_str(), data)).collect();
        gguf_file::write(&mut File::create(path(file)).unwrap(), &metadata, &tensors).unwrap();
    };
    let text = |text: &str| Some(String(text.into()));
    for (file, key, value) in [
        ("gemma3", "general.architecture", text("gemma3")),
        ("no-architecture", "general.architecture", None),
        ("part-1-of-3", "split.count", Some(U32(3))),
        ("no-block-count", "qwen2.block_count", None),
        ("heads-in-words", "qwen2.attention.head_count", text("two")),
        ("three-heads", "qwen2.attention.head_count", Some(U32(3))),
        ("sliding-window", "qwen2.attention.sliding_window", Some(U32(64))),
        ("experts", "qwen2.expert_count", Some(U32(8))),
        ("partial-rope", "qwen2.rope.dimension_count", Some(U32(16))),
        ("linear-rope", "qwen2.rope.scaling.factor", Some(F32(4.0))),
        ("yarn", "qwen2.rope.scaling.type", text("yarn")),
        ("negative-theta", "qwen2.rope.freq_base", Some(F32(-1.0))),
        ("bert", "tokenizer.ggml.model", text("bert")),
        ("no-tokenizer", "tokenizer.ggml.model", None),
        ("no-scores", "tokenizer.ggml.model", text("llama")),
        ("tekken", "tokenizer.ggml.pre", text("tekken")),
        ("no-pre", "tokenizer.ggml.pre", None),
        ("no-tokens", "tokenizer.ggml.tokens", None),
        ("tokens-of-numbers", "tokenizer.ggml.tokens", Some(Array(vec![I32(1)]))),
        ("no-merges", "tokenizer.ggml.merges", None),
        ("merge-of-one", "tokenizer.ggml.merges", Some(Array(vec![String("ab".into())]))),
        ("no-first-token", "tokenizer.ggml.add_bos_token", Some(Bool(true))),
    ] {
        let mut metadata = metadata.clone();
        metadata.retain(|(name, _)| *name != key);
        metadata.extend(value.map(|value| (key, value)));
        write(file, &metadata, &tensors);
    }
    // 20 is IQ4_NL, a type that candle can't read. The type comes after the name and the shape.
    let (name, data) = &tensors[0];
    write("iq4", &metadata, &tensors);
    let mut bytes = fs::read(path("iq4")).unwrap();
    let at = bytes.windows(name.len()).position(|window| window == name.as_bytes()).unwrap();
    bytes[at + name.len() + 4 + 8 * data.rank()] = 20;
    fs::write(path("iq4"), bytes).unwrap();

    let quantized = tensors_of(model, GgmlDType::Q8_0);
    write("q8_0", &metadata, &quantized);
    let content = Content::read(&mut File::open(path("q8_0")).unwrap()).unwrap();
    let begins = content.tensor_data_offset + content.tensor_infos["blk.0.attn_k.weight"].offset;
    let mut bytes = fs::read(path("q8_0")).unwrap();
    bytes[begins as usize..][..2].copy_from_slice(&0x7e00u16.to_le_bytes()); // a scale of NaN
    fs::write(path("q8_0-damaged"), bytes).unwrap();

    for (file, name) in
        [("no-embedding", "token_embd.weight"), ("no-up-projection", "blk.1.ffn_up.weight")]
    {
        let at = tensors.iter().position(|(other, _)| other == name).unwrap();
        let without = tensors.remove(at);
        write(file, &metadata, &tensors);
        tensors.insert(at, without);
    }
}
