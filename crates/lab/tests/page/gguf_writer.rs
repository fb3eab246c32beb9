//! Writes GGUF files of story-230k, each with one thing wrong.

use candecode_testing::GgufParts;
use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::quantized::GgmlDType;
use std::fs::{self, File};
use std::path::Path;
use Value::{Array, Bool, String, F32, I32, U32};

/// Writes the files to a folder.
pub fn write_all(folder: &Path) {
    let parts = GgufParts::of("story-230k");
    let path = |file: &str| folder.join(format!("{file}.gguf"));
    let write = |file: &str, parts: &GgufParts| parts.write_to(&path(file), GgmlDType::BF16);
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
        write(file, &parts.clone().set(key, value));
    }
    // 20 is IQ4_NL, a type that candle can't read. The type comes after the name and the shape.
    let (name, data) = &parts.tensors[0];
    write("iq4", &parts);
    let mut bytes = fs::read(path("iq4")).unwrap();
    let at = bytes.windows(name.len()).position(|window| window == name.as_bytes()).unwrap();
    bytes[at + name.len() + 4 + 8 * data.rank()] = 20;
    fs::write(path("iq4"), bytes).unwrap();

    parts.write_to(&path("q8_0"), GgmlDType::Q8_0);
    let content = Content::read(&mut File::open(path("q8_0")).unwrap()).unwrap();
    let begins = content.tensor_data_offset + content.tensor_infos["blk.0.attn_k.weight"].offset;
    let mut bytes = fs::read(path("q8_0")).unwrap();
    bytes[begins as usize..][..2].copy_from_slice(&0x7e00u16.to_le_bytes()); // a scale of NaN
    fs::write(path("q8_0-damaged"), bytes).unwrap();

    for (file, name) in
        [("no-embedding", "token_embd.weight"), ("no-up-projection", "blk.1.ffn_up.weight")]
    {
        let mut parts = parts.clone();
        parts.tensors.retain(|(other, _)| other != name);
        write(file, &parts);
    }
}
