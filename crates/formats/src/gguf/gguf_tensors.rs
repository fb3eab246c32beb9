//! A GGUF file's tensors under their Hugging Face names, in a Hugging Face folder's layout.

use crate::gguf::gguf_file::{quant_type, Gguf};
use crate::gguf::{gguf_config, tensor_names};
use candecode_kit::error::describe;
use candecode_kit::weights::TensorSource;
use candecode_kit::QuantizedMatrix;
use candle_core::{Device, Result, Tensor};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};

/// Tensors are returned in f32, in the layout of a Hugging Face folder.
impl TensorSource for Gguf {
    fn find(&self, name: &str) -> Option<String> {
        tensor_names::stored(name).filter(|stored| self.shape(stored).is_some())
    }

    fn load(&self, stored: &str, device: &Device) -> Result<Tensor> {
        let tensor = self.read(stored)?;
        let tensor = match (self.architecture(), tensor_names::part(stored)) {
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
        stored != "rope_freqs.weight" || self.architecture() == "gpt2"
    }

    fn config_name(&self) -> &'static str {
        "the metadata"
    }
}

impl Gguf {
    /// Converts a tensor's rows from llama.cpp's order to Hugging Face's.
    fn reordered(&self, stored: &str, tensor: Tensor) -> Result<Tensor> {
        // Read as in the configuration, where a list has one number per layer.
        let heads = |name: &str| -> Result<Option<u64>> {
            let heads = gguf_config::number(self, name);
            let heads = heads.map_err(|error| candle_core::Error::Msg(describe(&error)))?;
            Ok(heads.as_f64().map(|heads| heads as u64))
        };
        match (self.architecture(), tensor_names::part(stored)) {
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
}
