//! The models and files that the page's commands name, each with one thing wrong.

use candecode_testing::{root, story, Folder, GgufParts};
use candle_core::quantized::gguf_file::{Content, Value as Entry};
use candle_core::quantized::GgmlDType;
use candle_core::{Device, Tensor};
use serde_json::{json, Value};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// NaN, infinity and the largest finite number in bf16.
const NAN: u16 = 0x7fc0;
const INFINITY: u16 = 0x7f80;
const HUGE: u16 = 0x7f7f;

/// A tensor's name, the indices to change, and the bits to store there.
type Numbers = (&'static str, std::ops::Range<usize>, u16);
/// Weights with some wrong numbers: the folder's name, the model to copy, and the changes.
const NUMBERS: &[(&str, &str, &[Numbers])] = &[
    ("nan-in-mlp", "story-3m", &[("model.layers.2.mlp.down_proj.weight", 5..6, NAN)]),
    ("nan-in-attention", "story-230k", &[("model.layers.1.self_attn.k_proj.weight", 5..6, NAN)]),
    ("nan-in-gpt2", "story-gpt2-1m", &[("transformer.h.3.mlp.c_fc.weight", 5..6, NAN)]),
    ("nan-in-norm", "story-230k", &[("model.norm.weight", 5..6, NAN)]),
    ("nan-in-draft", "story-230k", &[("model.layers.0.mlp.up_proj.weight", 5..6, NAN)]),
    // The embedding of position 6, 128 wide. Only the step that reaches this position reads it.
    ("nan-at-position-6", "story-gpt2-1m", &[("transformer.wpe.weight", 771..772, NAN)]),
    ("infinity-at-position-6", "story-gpt2-1m", &[("transformer.wpe.weight", 771..772, INFINITY)]),
    (
        "huge-weights",
        "story-230k",
        &[
            ("model.layers.1.mlp.down_proj.weight", 0..64, HUGE),
            ("model.layers.1.mlp.up_proj.weight", 0..64, HUGE),
        ],
    ),
];

/// Copies an embedded model and returns the copy's folder.
fn copy(page: &Folder, name: &str, model: &str) -> PathBuf {
    let folder = page.0.join(name);
    fs::create_dir_all(&folder).unwrap();
    for file in fs::read_dir(story(model)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
    folder
}

fn without(page: &Folder, name: &str, file: &str) {
    fs::remove_file(copy(page, name, "story-230k").join(file)).unwrap();
}

fn with_file(page: &Folder, name: &str, file: &str, text: &str) {
    fs::write(copy(page, name, "story-230k").join(file), text).unwrap();
}

fn with_weights(page: &Folder, name: &str, model: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let path = copy(page, name, model).join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// Copies a model and sets keys in its config.json. A null value stands in for a missing key.
fn with_config(page: &Folder, name: &str, model: &str, changes: &Value) {
    let path = copy(page, name, model).join("config.json");
    let mut config = read_json(&path);
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    fs::write(path, config.to_string()).unwrap();
}

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Stores the bits at the given indices of a bf16 tensor.
fn set_numbers(bytes: &mut [u8], (tensor, places, bits): &Numbers) {
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let json: Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    assert_eq!(json[tensor]["dtype"], "BF16", "{tensor}");
    let begin = json[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
    for place in places.clone() {
        let at = 8 + header + begin + 2 * place;
        bytes[at..at + 2].copy_from_slice(&bits.to_le_bytes());
    }
}

/// Makes all of them.
pub fn make(page: &Folder) {
    let configs = read_json(&root().join("crates/lab/tests/messages/configs.json"));
    for (model, folders) in configs.as_object().unwrap() {
        for (name, changes) in folders.as_object().unwrap() {
            with_config(page, name, model, changes);
        }
    }
    for (name, model, numbers) in NUMBERS {
        let set = |bytes: &mut Vec<u8>| numbers.iter().for_each(|n| set_numbers(bytes, n));
        with_weights(page, name, model, set);
    }
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        without(page, &format!("without-{file}"), file);
    }
    const POINTER: &str =
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 587120\n";
    with_file(page, "lfs-pointer", "model.safetensors", POINTER);
    with_file(page, "login-page", "tokenizer.json", "<!DOCTYPE html><title>Sign in</title>");
    with_file(page, "config-of-another-kind", "config.json", "hidden_size = 64");
    with_file(
        page,
        "end-in-generation-config",
        "generation_config.json",
        r#"{"eos_token_id": "end"}"#,
    );
    with_file(page, "cut-generation-config", "generation_config.json", "{");
    with_file(page, "tokenizer-of-another-kind", "tokenizer.json", "{}");
    with_weights(page, "half-the-weights", "story-230k", |bytes| bytes.truncate(bytes.len() / 2));
    with_weights(page, "empty-weights", "story-230k", Vec::clear);
    with_weights(page, "damaged-length", "story-230k", |bytes| bytes[..8].fill(0xff));
    with_weights(page, "damaged-header", "story-230k", |bytes| bytes[8..40].fill(b'x'));
    with_weights(page, "another-name", "story-230k", |bytes| {
        let at = bytes.windows(17).position(|w| w == b"model.norm.weight").unwrap();
        bytes[at..at + 17].copy_from_slice(b"model.warm.weight");
    });
    make_index(page, "missing-shard", &json!({"weight_map": {"a": "model-2.safetensors"}}));
    make_index(page, "empty-index", &json!({"weight_map": {}}));
    make_index(page, "index-of-numbers", &json!({"weight_map": {"a": 7}}));
    make_index(page, "index-to-elsewhere", &json!({"weight_map": {"a": "../b.safetensors"}}));
    make_drafts(page);
    for (name, text) in [
        ("long.txt", "once upon a time ".repeat(400)),
        ("empty.gguf", String::new()),
        ("words.txt", "cat\n\ndog\n".into()),
        ("no-folder", String::new()),
    ] {
        page.write(name, text);
    }
    copy(page, "my-model", "story-230k");
    make_gguf(page);
    let two = page.0.join("two-files");
    fs::create_dir_all(&two).unwrap();
    for name in ["model-f16.gguf", "model-q8_0.gguf"] {
        fs::copy(page.0.join("experts.gguf"), two.join(name)).unwrap();
    }
    with_weights(page, "integers", "story-230k", |bytes| {
        let at = bytes.windows(6).position(|w| w == b"\"BF16\"").unwrap();
        bytes[at..at + 6].copy_from_slice(b"\"I16\" ");
    });
}

/// Makes a model whose weights are sharded according to this index.
fn make_index(page: &Folder, name: &str, index: &Value) {
    without(page, name, "model.safetensors");
    let path = page.0.join(name).join("model.safetensors.index.json");
    fs::write(path, index.to_string()).unwrap();
}

/// Makes draft models, tables and heads that don't match the target. The models' weights are
/// damaged, which shows that the mismatch is reported before any weights are read.
fn make_drafts(page: &Folder) {
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(100);
    with_weights(page, "target", "story-230k", cut);
    with_weights(page, "another-tokenizer", "story-230k", cut);
    let path = page.0.join("another-tokenizer/tokenizer.json");
    let mut tokenizer = read_json(&path);
    // Swap two tokens, which the message must name.
    let vocab = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    let piece = |id: u64| vocab.iter().find(|(_, v)| **v == id).unwrap().0.clone();
    let (a, b) = (piece(1000), piece(1001));
    vocab[&a] = 1001.into();
    vocab[&b] = 1000.into();
    fs::write(&path, tokenizer.to_string()).unwrap();
    let table = |tokenizer: &str| {
        let format = "candecode n-grams, version 1";
        json!({"format": format, "tokenizer": tokenizer, "rows": [[5, 9]]}).to_string()
    };
    page.write("other.ngrams.json", table("0123456789abcdef"));
    page.write("damaged.ngrams.json", &table("")[..40]);
    page.write("empty.txt", "\n");
    make_heads(page, "other-heads", 50_257, 0.0);
    make_heads(page, "nan-heads", 2048, f32::NAN);
}

/// Makes one Medusa head with story-230k's width, for a vocabulary of this size.
fn make_heads(page: &Folder, name: &str, vocab_size: i64, bias: f32) {
    let full = |x: f32, shape: &[usize]| Tensor::full(x, shape, &Device::Cpu).unwrap();
    let tensors = HashMap::from([
        ("heads.0.weight", full(0.0, &[64, 64])),
        ("heads.0.bias", full(bias, &[64])),
        ("norm.weight", full(1.0, &[64])),
        ("vocab_size", Tensor::new(&[vocab_size], &Device::Cpu).unwrap()),
    ]);
    let file = page.0.join(format!("{name}.safetensors"));
    candle_core::safetensors::save(&tensors, file).unwrap();
}

/// Makes GGUF files of story-230k. The format:
/// <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.
fn make_gguf(page: &Folder) {
    let parts = GgufParts::of("story-230k");
    let path = |name: &str| page.0.join(name).with_extension("gguf");
    let write = |name: &str, parts: &GgufParts, matrices: GgmlDType| {
        parts.write_to(&path(name), matrices);
    };
    let text = |text: &str| Some(Entry::String(text.into()));
    for (name, key, value) in [
        ("gemma3", "general.architecture", text("gemma3")),
        ("no-architecture", "general.architecture", None),
        ("part-1-of-3", "split.count", Some(Entry::U32(3))),
        ("no-block-count", "qwen2.block_count", None),
        ("heads-in-words", "qwen2.attention.head_count", text("two")),
        ("three-heads", "qwen2.attention.head_count", Some(Entry::U32(3))),
        ("sliding-window", "qwen2.attention.sliding_window", Some(Entry::U32(64))),
        ("experts", "qwen2.expert_count", Some(Entry::U32(8))),
        ("partial-rope", "qwen2.rope.dimension_count", Some(Entry::U32(16))),
        ("linear-rope", "qwen2.rope.scaling.factor", Some(Entry::F32(4.0))),
        ("yarn", "qwen2.rope.scaling.type", text("yarn")),
        ("negative-theta", "qwen2.rope.freq_base", Some(Entry::F32(-1.0))),
        ("bert", "tokenizer.ggml.model", text("bert")),
        ("no-tokenizer", "tokenizer.ggml.model", None),
        ("no-scores", "tokenizer.ggml.model", text("llama")),
        ("tekken", "tokenizer.ggml.pre", text("tekken")),
        ("no-pre", "tokenizer.ggml.pre", None),
        ("no-tokens", "tokenizer.ggml.tokens", None),
        ("tokens-of-numbers", "tokenizer.ggml.tokens", Some(Entry::Array(vec![Entry::I32(1)]))),
        ("no-merges", "tokenizer.ggml.merges", None),
        (
            "merge-of-one",
            "tokenizer.ggml.merges",
            Some(Entry::Array(vec![Entry::String("ab".into())])),
        ),
        ("no-first-token", "tokenizer.ggml.add_bos_token", Some(Entry::Bool(true))),
    ] {
        write(name, &parts.clone().set(key, value), GgmlDType::BF16);
    }
    for (name, tensor) in
        [("no-embedding", "token_embd.weight"), ("no-up-projection", "blk.1.ffn_up.weight")]
    {
        let mut parts = parts.clone();
        parts.tensors.retain(|(other, _)| other != tensor);
        write(name, &parts, GgmlDType::BF16);
    }
    // 20 is IQ4_NL, a type that candle can't read. The type comes after the name and the shape.
    let (name, tensor) = &parts.tensors[0];
    write("iq4", &parts, GgmlDType::BF16);
    let mut bytes = fs::read(path("iq4")).unwrap();
    let at = bytes.windows(name.len()).position(|window| window == name.as_bytes()).unwrap();
    bytes[at + name.len() + 4 + 8 * tensor.rank()] = 20;
    fs::write(path("iq4"), bytes).unwrap();

    write("q8_0", &parts, GgmlDType::Q8_0);
    let content = Content::read(&mut fs::File::open(path("q8_0")).unwrap()).unwrap();
    let begins = content.tensor_data_offset + content.tensor_infos["blk.0.attn_k.weight"].offset;
    let mut bytes = fs::read(path("q8_0")).unwrap();
    bytes[begins as usize..][..2].copy_from_slice(&0x7e00u16.to_le_bytes()); // a scale of NaN
    fs::write(path("q8_0-damaged"), bytes).unwrap();
}
