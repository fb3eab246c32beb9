//! GGUF, llama.cpp's format: one file with a model's weights, configuration and tokenizer.
//!
//! This module presents a GGUF file as if it were a folder in Hugging Face format, with the same
//! configuration, the same tokenizer, and the same tensor names. Quantized tensors are widened on
//! loading, or kept as they are if the kernels can read their blocks.

mod end_tokens;
mod gguf_config;
mod gguf_keys;
mod gguf_tokenizer;
mod tensor_names;

pub use gguf_config::config;
pub use gguf_tokenizer::tokenizer;

use crate::{regular_file, ChatTemplate};
use anyhow::{anyhow, ensure, Context as _};
use candecode_kit::error::{describe, plain, quoted, shown};
use candecode_kit::weights::TensorSource;
use candecode_kit::{QuantType, QuantizedMatrix};
use candle_core::quantized::gguf_file::{Content, TensorInfo, Value};
use candle_core::quantized::GgmlDType;
use candle_core::{Device, Result, Tensor};
use serde_json::Map;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// The architectures that day 5's model supports, under their GGUF names.
const ARCHITECTURES: [&str; 4] = ["gpt2", "llama", "qwen2", "qwen3"];

/// A GGUF file of a known architecture. Its header has been read.
pub struct Gguf {
    path: PathBuf,
    content: Content,
    architecture: String,
}

impl Gguf {
    /// Reads the header and checks that the file is as long as the header says.
    ///
    /// # Errors
    /// If the file is not a GGUF file, is truncated, or holds a model of another architecture.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let file = regular_file::open(path)?;
        let file = file.with_context(|| format!("{shown}: there is no such file"))?;
        let length = file.metadata().with_context(|| shown.to_string())?.len();
        let (mut file, mut magic) = (BufReader::new(file), Vec::new());
        file.by_ref().take(4).read_to_end(&mut magic).with_context(|| shown.to_string())?;
        ensure!(
            magic == b"GGUF",
            "{shown}: not a GGUF file; --model takes a GGUF file, or the folder of a model in \
                Hugging Face format"
        );
        file.rewind().with_context(|| shown.to_string())?;
        // A damaged header can make candle's reader panic.
        let read = std::panic::AssertUnwindSafe(|| Content::read(&mut file));
        let content = match std::panic::catch_unwind(read) {
            Ok(content) => content.map_err(|error| unreadable(path, &error))?,
            Err(_) => return Err(damaged(path, "its header is invalid")),
        };
        for (name, tensor) in &content.tensor_infos {
            check(name, tensor, content.tensor_data_offset, length)
                .with_context(|| shown.to_string())?;
        }
        let mut gguf = Self { path: path.into(), content, architecture: String::new() };
        let parts = gguf.number("split.count").unwrap_or(1);
        ensure!(
            parts <= 1,
            "{shown}: one of {parts} parts of a model; make one file of them (llama-gguf-split \
                --merge)"
        );
        let found = gguf.text("general.architecture");
        let known = found.filter(|found| ARCHITECTURES.contains(found)).map(String::from);
        gguf.architecture = known.with_context(|| {
            format!(
                "{shown}: general.architecture is {}; candecode runs {}",
                found.map_or("not there".into(), quoted),
                ARCHITECTURES.join(", ")
            )
        })?;
        Ok(gguf)
    }

    /// Returns `gpt2`, `llama`, `qwen2` or `qwen3`.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// Returns a string from the metadata, such as `tokenizer.chat_template`.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.content.metadata.get(key)? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the text of a token that the metadata refers to by id, such as
    /// `tokenizer.ggml.eos_token_id`.
    pub fn piece(&self, key: &str) -> Option<&str> {
        let id = usize::try_from(self.number(key)?).ok()?;
        self.list("tokenizer.ggml.tokens")?.get(id)?.to_string().ok().map(String::as_str)
    }

    /// Returns a whole number from the metadata.
    fn number(&self, key: &str) -> Option<u64> {
        match self.content.metadata.get(key)? {
            Value::I8(n) => u64::try_from(*n).ok(),
            Value::I16(n) => u64::try_from(*n).ok(),
            Value::I32(n) => u64::try_from(*n).ok(),
            Value::I64(n) => u64::try_from(*n).ok(),
            Value::U16(n) => Some(u64::from(*n)),
            other => other.to_u64().ok(),
        }
    }

    fn flag(&self, key: &str) -> Option<bool> {
        self.content.metadata.get(key)?.to_bool().ok()
    }

    fn list(&self, key: &str) -> Option<&[Value]> {
        Some(self.content.metadata.get(key)?.to_vec().ok()?)
    }

    /// Returns the shape of a tensor, by its name in the file.
    fn shape(&self, stored: &str) -> Option<&[usize]> {
        Some(self.content.tensor_infos.get(stored)?.shape.dims())
    }

    /// Returns true if there is a tensor with this Hugging Face name.
    fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Returns the distinct types of quantized tensors in the file, each with true if tensors of
    /// that type can stay quantized in memory.
    pub fn quantized_types(&self) -> Vec<(String, bool)> {
        let mut found = vec![];
        for tensor in self.content.tensor_infos.values() {
            let dtype = tensor.ggml_dtype;
            let kind = quant_type(dtype).map(|kind| (kind.to_string(), true));
            if !matches!(dtype, GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16) {
                found.push(kind.unwrap_or((spelled(dtype), false)));
            }
        }
        found.sort();
        found.dedup();
        found
    }

    /// Returns the in-memory size of all tensors, in bytes: quantized where possible, f32
    /// otherwise.
    pub fn bytes_as_stored(&self) -> f64 {
        let of = |tensor: &TensorInfo| {
            let numbers = tensor.shape.elem_count() as f64;
            let dtype = tensor.ggml_dtype;
            match quant_type(dtype) {
                Some(_) => numbers / dtype.block_size() as f64 * dtype.type_size() as f64,
                None => 4.0 * numbers,
            }
        };
        self.content.tensor_infos.values().map(of).sum()
    }

    /// Converts a tensor's rows from llama.cpp's order to Hugging Face's.
    fn reordered(&self, stored: &str, tensor: Tensor) -> Result<Tensor> {
        // Read as in the configuration, where a list has one number per layer.
        let heads = |name: &str| -> Result<Option<u64>> {
            let heads = gguf_config::number(self, name);
            let heads = heads.map_err(|error| candle_core::Error::Msg(describe(&error)))?;
            Ok(heads.as_f64().map(|heads| heads as u64))
        };
        match (self.architecture.as_str(), tensor_names::part(stored)) {
            ("llama", "attn_q") => {
                tensor_names::unpermuted(&tensor, heads("attention.head_count")?)
            }
            ("llama", "attn_k") => {
                let kv_heads = heads("attention.head_count_kv")?;
                tensor_names::unpermuted(&tensor, kv_heads.or(heads("attention.head_count")?))
            }
            _ => Ok(tensor),
        }
    }

    /// Reads a tensor by its name in the file and widens it to f32.
    fn read(&self, stored: &str) -> Result<Tensor> {
        let mut file = File::open(&self.path)?;
        let tensor = self.content.tensor(&mut file, stored, &Device::Cpu)?;
        tensor.dequantize(&Device::Cpu)
    }
}

/// Tensors are returned in f32, in the layout of a Hugging Face folder.
impl TensorSource for Gguf {
    fn find(&self, name: &str) -> Option<String> {
        tensor_names::stored(name).filter(|stored| self.shape(stored).is_some())
    }

    fn load(&self, stored: &str, device: &Device) -> Result<Tensor> {
        let tensor = self.read(stored)?;
        let tensor = match (self.architecture.as_str(), tensor_names::part(stored)) {
            ("gpt2", "attn_qkv" | "attn_output" | "ffn_up" | "ffn_down") if tensor.rank() == 2 => {
                tensor.t()? // GPT-2's folder stores matrices as (in, out)
            }
            _ => self.reordered(stored, tensor)?,
        };
        tensor.to_device(device)
    }

    fn load_quantized(&self, stored: &str) -> Result<Option<QuantizedMatrix>> {
        let Some(info) = self.content.tensor_infos.get(stored) else { return Ok(None) };
        let (Some(kind), [out, inner]) = (quant_type(info.ggml_dtype), info.shape.dims()) else {
            return Ok(None);
        };
        let mut blocks = vec![0; out * (inner / kind.block_size()) * kind.bytes_per_block()];
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.content.tensor_data_offset + info.offset))?;
        file.read_exact(&mut blocks)?;
        if matches!(tensor_names::part(stored), "attn_q" | "attn_k") {
            let row = blocks.len() / out;
            let rows = Tensor::from_vec(blocks, (*out, row), &Device::Cpu)?;
            blocks = self.reordered(stored, rows)?.flatten_all()?.to_vec1()?;
        }
        QuantizedMatrix::new(kind, *out, *inner, blocks).map(Some)
    }

    fn names(&self) -> Vec<String> {
        self.content.tensor_infos.keys().cloned().collect()
    }

    /// All tensors matter: llama.cpp rejects files with tensors that it doesn't know. RoPE's
    /// frequencies are the exception, because they are read as part of the configuration.
    fn matters(&self, stored: &str) -> bool {
        stored != "rope_freqs.weight" || self.architecture == "gpt2"
    }

    fn config_name(&self) -> &'static str {
        "the metadata"
    }
}

/// Returns the chat template in the metadata and the special tokens that it can refer to.
pub fn chat_template(gguf: &Gguf) -> ChatTemplate {
    const KEY: &str = "tokenizer.chat_template";
    let text = gguf.text(KEY).filter(|text| !text.trim().is_empty());
    let mut special_tokens = Map::new();
    for name in ["bos_token", "eos_token"] {
        if let Some(piece) = gguf.piece(&format!("tokenizer.ggml.{name}_id")) {
            special_tokens.insert(name.into(), piece.into());
        }
    }
    ChatTemplate { source: Ok(text.map(|text| (KEY.into(), text.into()))), special_tokens }
}

/// Returns the sampling settings in the metadata, with their values as JSON. None if the metadata
/// has no such settings.
pub fn sampling(gguf: &Gguf) -> Option<serde_json::Value> {
    let asks =
        |key: &str| key.starts_with("general.sampling.") || key == "tokenizer.ggml.suppress_tokens";
    let metadata = gguf.content.metadata.iter().filter(|(key, _)| asks(key));
    let asked: Map<_, _> = metadata.map(|(key, value)| (key.clone(), as_json(value))).collect();
    (!asked.is_empty()).then_some(asked.into())
}

fn as_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Bool(flag) => (*flag).into(),
        Value::String(text) => text.as_str().into(),
        Value::Array(values) => values.iter().map(as_json).collect(),
        other => gguf_keys::number(other).into(),
    }
}

/// The tensor types that candle can widen to f32 on the CPU. For other types, candle's own messages
/// contradict each other.
const READABLE: [GgmlDType; 13] = [
    GgmlDType::F32,
    GgmlDType::F16,
    GgmlDType::BF16,
    GgmlDType::Q4_0,
    GgmlDType::Q4_1,
    GgmlDType::Q5_0,
    GgmlDType::Q5_1,
    GgmlDType::Q8_0,
    GgmlDType::Q2K,
    GgmlDType::Q3K,
    GgmlDType::Q4K,
    GgmlDType::Q5K,
    GgmlDType::Q6K,
];

/// Returns the block type of tensors that can stay quantized in memory, or None for other types.
fn quant_type(dtype: GgmlDType) -> Option<QuantType> {
    [QuantType::Q8_0, QuantType::Q4_0, QuantType::Q4_1].into_iter().find(|t| t.ggml() == dtype)
}

/// Returns a type's name as llama.cpp spells it: Q4_K for candle's Q4K.
fn spelled(dtype: GgmlDType) -> String {
    let name = format!("{dtype:?}");
    match name.strip_suffix('K') {
        Some(bits) => format!("{bits}_K"),
        None => name,
    }
}

fn other_type(tensor: &str, found: &str) -> anyhow::Error {
    let readable: Vec<String> = READABLE.iter().map(|dtype| format!("{dtype:?}")).collect();
    anyhow!(
        "{tensor} is stored in a type that candecode does not read ({found}); it reads {}",
        readable.join(", ")
    )
}

fn damaged(path: &Path, what: &str) -> anyhow::Error {
    anyhow!("{}: cut short or damaged ({what}); fetch the file again", path.display())
}

/// Rewords candle's error about a header for the user.
fn unreadable(path: &Path, error: &candle_core::Error) -> anyhow::Error {
    let text = plain(error);
    if let Some((_, number)) = text.split_once("unknown dtype for tensor ") {
        return other_type("a tensor", &format!("type {number}"))
            .context(path.display().to_string());
    }
    let ends = match error {
        candle_core::Error::Io(error) => error.kind() == ErrorKind::UnexpectedEof,
        _ => text.contains("remaining"),
    };
    if ends {
        return damaged(path, "it ends inside its header");
    }
    damaged(path, "its header is invalid")
}

/// Checks that a tensor's type is supported and that the tensor lies within a file of `length`
/// bytes.
fn check(name: &str, tensor: &TensorInfo, data: u64, length: u64) -> anyhow::Result<()> {
    let (shape, dtype) = (tensor.shape.dims(), tensor.ggml_dtype);
    let name = shown(name);
    ensure!(
        !shape.contains(&0),
        "damaged: tensor {name} has the shape {shape:?}, which holds nothing; fetch the file again"
    );
    if !READABLE.contains(&dtype) {
        return Err(other_type(&format!("tensor {name}"), &format!("{dtype:?}")));
    }
    let elements = shape.iter().try_fold(1usize, |product, n| product.checked_mul(*n));
    let bytes = elements.and_then(|n| (n / dtype.block_size()).checked_mul(dtype.type_size()));
    let end = bytes.and_then(|n| data.checked_add(tensor.offset)?.checked_add(n as u64));
    let end = end.unwrap_or(u64::MAX);
    ensure!(
        end <= length,
        "cut short: tensor {name} ends at byte {end}, the file at {length}; fetch the file again"
    );
    Ok(())
}
