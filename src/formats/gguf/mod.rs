//! GGUF, llama.cpp's format: one file with the weights, the configuration and the tokenizer of a model.
//!
//! What is here makes of it what a folder in Hugging Face format is: the same configuration, tokenizer, and tensors under the
//! same names. Quantised tensors are widened as they are read; nothing stays quantised in memory.

mod gguf_config;
mod gguf_tokenizer;
mod tensor_names;

pub use gguf_config::config;
pub use gguf_tokenizer::tokenizer;

use crate::kit::error::plain;
use anyhow::{bail, ensure, Context as _};
use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::{Device, Result, Tensor};
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

/// The architectures that day 5's stack runs, as GGUF calls them.
const ARCHITECTURES: [&str; 4] = ["gpt2", "llama", "qwen2", "qwen3"];

/// A GGUF file of a known architecture, its header read.
pub struct Gguf {
    path: PathBuf,
    content: Content,
    architecture: String,
}

impl Gguf {
    /// Reads the header, and sees that the file is as long as the header says.
    ///
    /// # Errors
    /// If the file is none, is cut short, or holds a model of another architecture.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let file = File::open(path).with_context(|| shown.to_string())?;
        let length = file.metadata().with_context(|| shown.to_string())?.len();
        let (mut file, mut magic) = (BufReader::new(file), Vec::new());
        file.by_ref().take(4).read_to_end(&mut magic).with_context(|| shown.to_string())?;
        ensure!(
            magic == b"GGUF",
            "{shown}: not a GGUF file; --model takes one, or the folder of a model in Hugging Face format"
        );
        std::io::Seek::rewind(&mut file).with_context(|| shown.to_string())?;
        // A header of damaged numbers makes candle's reader panic in places.
        let read = std::panic::AssertUnwindSafe(|| Content::read(&mut file));
        let content = match std::panic::catch_unwind(read) {
            Ok(Ok(content)) => content,
            Ok(Err(e)) if plain(&e).contains("unknown dtype for tensor") => {
                bail!("{shown}: a tensor is stored in a type that candecode does not read ({}); it reads F32, F16, BF16, Q4_0 to Q8_1 and Q2_K to Q8_K", plain(&e))
            }
            Ok(Err(e)) => {
                bail!("{shown}: cut short or damaged ({}); fetch the file again", plain(&e))
            }
            Err(_) => bail!("{shown}: damaged (its header makes no sense); fetch the file again"),
        };
        let end = |name: &str| -> Option<u64> {
            let tensor = content.tensor_infos.get(name)?;
            let blocks = tensor.shape.elem_count() / tensor.ggml_dtype.block_size();
            let bytes = blocks.checked_mul(tensor.ggml_dtype.type_size())? as u64;
            content.tensor_data_offset.checked_add(tensor.offset)?.checked_add(bytes)
        };
        for name in content.tensor_infos.keys() {
            let end = end(name).unwrap_or(u64::MAX);
            ensure!(
                end <= length,
                "{shown}: cut short: tensor {name} ends at byte {end}, the file at {length}; fetch the file again"
            );
        }
        let mut gguf = Self { path: path.into(), content, architecture: String::new() };
        let parts = gguf.number("split.count").unwrap_or(1);
        ensure!(
            parts <= 1,
            "{shown}: one of {parts} parts of a model; make one file of them (llama-gguf-split --merge)"
        );
        let found = gguf.text("general.architecture");
        let known = found.filter(|found| ARCHITECTURES.contains(found)).map(String::from);
        gguf.architecture = known.with_context(|| {
            format!(
                "{shown}: general.architecture is {}; candecode runs {}",
                found.map_or("not there".into(), |found| format!("\"{found}\"")),
                ARCHITECTURES.join(", ")
            )
        })?;
        Ok(gguf)
    }

    /// `gpt2`, `llama`, `qwen2` or `qwen3`.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// A text of the metadata, as `tokenizer.chat_template`.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.content.metadata.get(key)? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The text of the token whose id the metadata has, as `tokenizer.ggml.eos_token_id`.
    pub fn piece(&self, key: &str) -> Option<&str> {
        let id = usize::try_from(self.number(key)?).ok()?;
        self.list("tokenizer.ggml.tokens")?.get(id)?.to_string().ok().map(String::as_str)
    }

    /// A whole number of the metadata.
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

    /// A number of the metadata. They are f32, and mean the decimal that rounds to them: 1e-5, not 0.00000999999975.
    fn float(&self, key: &str) -> Option<f64> {
        match self.content.metadata.get(key)? {
            Value::F32(n) => n.to_string().parse().ok(),
            Value::F64(n) => Some(*n),
            _ => self.number(key).map(|n| n as f64),
        }
    }

    fn flag(&self, key: &str) -> Option<bool> {
        self.content.metadata.get(key)?.to_bool().ok()
    }

    fn list(&self, key: &str) -> Option<&[Value]> {
        Some(self.content.metadata.get(key)?.to_vec().ok()?)
    }

    /// The shape of a tensor, by its name in the file.
    fn shape(&self, stored: &str) -> Option<&[usize]> {
        Some(self.content.tensor_infos.get(stored)?.shape.dims())
    }

    /// True if there is a tensor of that Hugging Face name.
    pub fn has(&self, name: &str) -> bool {
        tensor_names::stored(name).is_some_and(|stored| self.shape(&stored).is_some())
    }

    /// The tensor of that Hugging Face name, in f32 and as a folder would have it. None: there is none.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn tensor(&self, name: &str, device: &Device) -> Result<Option<Tensor>> {
        let stored = tensor_names::stored(name).filter(|stored| self.shape(stored).is_some());
        let Some(stored) = stored else { return Ok(None) };
        let tensor = self.read(&stored)?;
        let heads = |key: &str| self.number(&format!("{}.attention.{key}", self.architecture));
        let tensor = match (self.architecture.as_str(), tensor_names::part(&stored)) {
            ("gpt2", "attn_qkv" | "attn_output" | "ffn_up" | "ffn_down") if tensor.rank() == 2 => {
                tensor.t()? // a folder has GPT-2's matrices as (in, out)
            }
            ("llama", "attn_q") => tensor_names::unpermuted(&tensor, heads("head_count"))?,
            ("llama", "attn_k") => {
                tensor_names::unpermuted(&tensor, heads("head_count_kv").or(heads("head_count")))?
            }
            _ => tensor,
        };
        tensor.to_device(device).map(Some)
    }

    /// A tensor by its name in the file, widened to f32.
    fn read(&self, stored: &str) -> Result<Tensor> {
        let mut file = File::open(&self.path)?;
        let tensor = self.content.tensor(&mut file, stored, &Device::Cpu)?;
        tensor.dequantize(&Device::Cpu)
    }
}
