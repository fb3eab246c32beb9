//! GGUF files of story-230k, each with one thing wrong:
//! <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use serde_json::Value as Json;
use std::path::Path;

/// A value of the metadata.
#[derive(Clone)]
enum Value {
    Number(u32),
    Float(f32),
    Flag(bool),
    Text(String),
    Texts(Vec<String>),
    Kinds(Vec<i32>),
}

use Value::{Flag, Float, Kinds, Number, Text, Texts};

/// A tensor: its name, its shape, its type and its numbers.
type Tensor = (String, Vec<u64>, u32, Vec<u8>);

/// Type of numbers: bf16, as in the file that they are taken from.
const BF16: u32 = 30;

fn text_bytes(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// A value with the number of its type before it.
fn value_bytes(value: &Value) -> Vec<u8> {
    let list = |kind: u32, length: usize, items: Vec<u8>| {
        [&9u32.to_le_bytes()[..], &kind.to_le_bytes(), &(length as u64).to_le_bytes(), &items]
            .concat()
    };
    match value {
        Number(number) => [4u32.to_le_bytes(), number.to_le_bytes()].concat(),
        Float(number) => [6u32.to_le_bytes(), number.to_le_bytes()].concat(),
        Flag(flag) => [&7u32.to_le_bytes()[..], &[u8::from(*flag)]].concat(),
        Text(text) => [&8u32.to_le_bytes()[..], &text_bytes(text)].concat(),
        Texts(texts) => list(8, texts.len(), texts.iter().flat_map(|t| text_bytes(t)).collect()),
        Kinds(kinds) => list(5, kinds.len(), kinds.iter().flat_map(|k| k.to_le_bytes()).collect()),
    }
}

fn file_bytes(metadata: &[(String, Value)], tensors: &[Tensor]) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        bytes.extend(text_bytes(key));
        bytes.extend(value_bytes(value));
    }
    let mut offset = 0u64;
    for (name, shape, kind, data) in tensors {
        bytes.extend(text_bytes(name));
        bytes.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|length| bytes.extend(length.to_le_bytes()));
        bytes.extend(kind.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        offset += (data.len() as u64).next_multiple_of(32);
    }
    for (_, _, _, data) in tensors {
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.extend(data);
    }
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    bytes
}

/// What llama.cpp calls a tensor of a Qwen 2.
fn renamed(name: &str) -> String {
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

fn tensors_of(model: &Path) -> Vec<Tensor> {
    let bytes = std::fs::read(model.join("model.safetensors")).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let json: Json = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let mut tensors = Vec::new();
    for (name, about) in
        json.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__")
    {
        let number = |value: &Json| value.as_u64().unwrap();
        let at = |end: usize| 8 + header + number(&about["data_offsets"][end]) as usize;
        let shape = about["shape"].as_array().unwrap().iter().map(number).collect();
        tensors.push((renamed(name), shape, BF16, bytes[at(0)..at(1)].to_vec()));
    }
    tensors
}

fn metadata_of(model: &Path) -> Vec<(String, Value)> {
    let read = |file: &str| -> Json {
        serde_json::from_slice(&std::fs::read(model.join(file)).unwrap()).unwrap()
    };
    let (config, tokenizer) = (read("config.json"), read("tokenizer.json"));
    let number = |key: &str| Number(config[key].as_u64().unwrap() as u32);
    let vocab = tokenizer["model"]["vocab"].as_object().unwrap();
    let mut pieces = vec![String::new(); vocab.len()];
    vocab.iter().for_each(|(piece, id)| pieces[id.as_u64().unwrap() as usize] = piece.clone());
    let kinds = (0..pieces.len()).map(|id| if id == 0 { 3 } else { 1 }).collect();
    let merges = tokenizer["model"]["merges"].as_array().unwrap().iter();
    let merge =
        |pair: &Json| format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
    let epsilon = config["rms_norm_eps"].as_f64().unwrap() as f32;
    let pairs = [
        ("general.architecture", Text("qwen2".into())),
        ("qwen2.block_count", number("num_hidden_layers")),
        ("qwen2.context_length", number("max_position_embeddings")),
        ("qwen2.embedding_length", number("hidden_size")),
        ("qwen2.feed_forward_length", number("intermediate_size")),
        ("qwen2.attention.head_count", number("num_attention_heads")),
        ("qwen2.attention.head_count_kv", number("num_key_value_heads")),
        ("qwen2.attention.layer_norm_rms_epsilon", Float(epsilon)),
        ("qwen2.rope.freq_base", Float(10_000.0)),
        ("tokenizer.ggml.model", Text("gpt2".into())),
        ("tokenizer.ggml.pre", Text("gpt-2".into())),
        ("tokenizer.ggml.tokens", Texts(pieces)),
        ("tokenizer.ggml.token_type", Kinds(kinds)),
        ("tokenizer.ggml.merges", Texts(merges.map(merge).collect())),
        ("tokenizer.ggml.eos_token_id", Number(0)),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}

/// A matrix in Q8_0, type 8: of each 32 numbers an f16 scale and signed bytes. Others stay.
fn in_q8_0((name, shape, kind, data): &Tensor) -> Tensor {
    if shape.len() != 2 {
        return (name.clone(), shape.clone(), *kind, data.clone());
    }
    let (pairs, _) = data.as_chunks::<2>();
    let numbers =
        pairs.iter().map(|pair| f32::from_bits(u32::from(u16::from_le_bytes(*pair)) << 16));
    let mut blocks = vec![];
    for block in numbers.collect::<Vec<_>>().chunks(32) {
        // The scale 2^-6, as f16: enough for weights below 2, and no arithmetic of f16 is needed.
        blocks.extend(0x2400u16.to_le_bytes());
        blocks.extend(block.iter().map(|x| (x * 64.0).round().clamp(-127.0, 127.0) as i8 as u8));
    }
    (name.clone(), shape.clone(), 8, blocks)
}

/// Writes the files into a folder.
pub fn write_all(model: &Path, folder: &Path) {
    let (metadata, tensors) = (metadata_of(model), tensors_of(model));
    let text = |text: &str| Some(Text(text.into()));
    for (file, key, value) in [
        ("gemma3", "general.architecture", text("gemma3")),
        ("no-architecture", "general.architecture", None),
        ("part-1-of-3", "split.count", Some(Number(3))),
        ("no-block-count", "qwen2.block_count", None),
        ("heads-in-words", "qwen2.attention.head_count", text("two")),
        ("three-heads", "qwen2.attention.head_count", Some(Number(3))),
        ("sliding-window", "qwen2.attention.sliding_window", Some(Number(64))),
        ("experts", "qwen2.expert_count", Some(Number(8))),
        ("partial-rope", "qwen2.rope.dimension_count", Some(Number(16))),
        ("linear-rope", "qwen2.rope.scaling.factor", Some(Float(4.0))),
        ("yarn", "qwen2.rope.scaling.type", text("yarn")),
        ("negative-theta", "qwen2.rope.freq_base", Some(Float(-1.0))),
        ("bert", "tokenizer.ggml.model", text("bert")),
        ("no-tokenizer", "tokenizer.ggml.model", None),
        ("no-scores", "tokenizer.ggml.model", text("llama")),
        ("tekken", "tokenizer.ggml.pre", text("tekken")),
        ("no-pre", "tokenizer.ggml.pre", None),
        ("no-tokens", "tokenizer.ggml.tokens", None),
        ("tokens-of-numbers", "tokenizer.ggml.tokens", Some(Kinds(vec![1]))),
        ("no-merges", "tokenizer.ggml.merges", None),
        ("merge-of-one", "tokenizer.ggml.merges", Some(Texts(vec!["ab".into()]))),
        ("no-first-token", "tokenizer.ggml.add_bos_token", Some(Flag(true))),
    ] {
        let mut metadata = metadata.clone();
        metadata.retain(|(name, _)| name != key);
        metadata.extend(value.map(|value| (key.to_string(), value)));
        std::fs::write(folder.join(format!("{file}.gguf")), file_bytes(&metadata, &tensors))
            .unwrap();
    }
    for (file, without) in
        [("no-embedding", "token_embd.weight"), ("no-up-projection", "blk.1.ffn_up.weight")]
    {
        let mut tensors = tensors.clone();
        tensors.retain(|(name, ..)| name != without);
        std::fs::write(folder.join(format!("{file}.gguf")), file_bytes(&metadata, &tensors))
            .unwrap();
    }
    let quantised: Vec<Tensor> = tensors.iter().map(in_q8_0).collect();
    std::fs::write(folder.join("q8_0.gguf"), file_bytes(&metadata, &quantised)).unwrap();
    let mut damaged = quantised;
    let matrix = damaged.iter_mut().find(|(name, ..)| name == "blk.0.attn_k.weight").unwrap();
    matrix.3[1] = 0x7e; // the first scale: not a number
    std::fs::write(folder.join("q8_0-damaged.gguf"), file_bytes(&metadata, &damaged)).unwrap();
    // A type of numbers that came after candle's reader: 20 is IQ4_NL.
    let mut tensors = tensors;
    tensors[0].2 = 20;
    std::fs::write(folder.join("iq4.gguf"), file_bytes(&metadata, &tensors)).unwrap();
}
