//! A GGUF file: its header, its metadata by key, and its tensors as they are stored.

use crate::gguf::tensor_names;
use crate::regular_file;
use anyhow::{anyhow, ensure, Context as _};
use candecode_kit::error::{plain, quoted, shown};
use candecode_kit::QuantType;
use candle_core::quantized::gguf_file::{Content, TensorInfo, Value};
use candle_core::quantized::GgmlDType;
use candle_core::{Device, Result, Tensor};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read as _, Seek as _};
use std::path::{Path, PathBuf};

/// The architectures that day 5's model supports, under their GGUF names.
const ARCHITECTURES: [&str; 4] = ["gpt2", "llama", "qwen2", "qwen3"];

/// A GGUF file of a known architecture. Its header has been read.
pub struct Gguf {
    pub(super) path: PathBuf,
    pub(super) content: Content,
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
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        match self.content.metadata.get(key)? {
            Value::I8(n) => u64::try_from(*n).ok(),
            Value::I16(n) => u64::try_from(*n).ok(),
            Value::I32(n) => u64::try_from(*n).ok(),
            Value::I64(n) => u64::try_from(*n).ok(),
            Value::U16(n) => Some(u64::from(*n)),
            other => other.to_u64().ok(),
        }
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        self.content.metadata.get(key)?.to_bool().ok()
    }

    pub(super) fn list(&self, key: &str) -> Option<&[Value]> {
        Some(self.content.metadata.get(key)?.to_vec().ok()?)
    }

    /// Returns the shape of a tensor, by its name in the file.
    pub(super) fn shape(&self, stored: &str) -> Option<&[usize]> {
        Some(self.content.tensor_infos.get(stored)?.shape.dims())
    }

    /// Returns true if there is a tensor with this Hugging Face name.
    pub(super) fn has(&self, name: &str) -> bool {
        tensor_names::stored(name).is_some_and(|stored| self.shape(&stored).is_some())
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

    /// Reads a tensor by its name in the file and widens it to f32.
    pub(super) fn read(&self, stored: &str) -> Result<Tensor> {
        let mut file = File::open(&self.path)?;
        let tensor = self.content.tensor(&mut file, stored, &Device::Cpu)?;
        tensor.dequantize(&Device::Cpu)
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
pub(super) fn quant_type(dtype: GgmlDType) -> Option<QuantType> {
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
