//! Tensors in the safetensors format, from mapped files or from bytes in memory.

use crate::regular_file;
use anyhow::{anyhow, Context as _, Result};
use candecode_kit::error::shown;
use candecode_kit::weights::{full_or_bare, TensorSource};
use candle_core::safetensors::Load as _;
use candle_core::{bail, DType, Device, Error, Tensor};
use safetensors::tensor::{Metadata, TensorInfo, TensorView};
use safetensors::{SafeTensorError, SafeTensors};
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

/// The bytes of a file: a mapping or a vector.
pub(crate) type Bytes = Box<dyn AsRef<[u8]> + Send + Sync>;

/// The tensors in one or more safetensors files.
#[derive(Default)]
pub struct SafetensorsSource {
    files: Vec<OneFile>,
    /// Index of the file that holds each tensor.
    places: HashMap<String, usize>,
    /// Alternative names for tensors. `safetensors.torch.save_model` writes a shared matrix once
    /// and lists its other names in the header's `__metadata__`.
    aliases: HashMap<String, String>,
}

struct OneFile {
    bytes: Bytes,
    header: Metadata,
    /// Offset of the first tensor.
    data: usize,
}

impl SafetensorsSource {
    /// Reads the tensors of one file in memory. `name` identifies the file in errors.
    ///
    /// # Errors
    /// If the file is truncated or damaged.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self> {
        let mut source = Self::default();
        source.add(name, Box::new(bytes))?;
        Ok(source)
    }

    /// Opens a single file, such as `medusa.safetensors`. Returns None if it doesn't exist.
    ///
    /// # Errors
    /// If it isn't a regular file, can't be read, or is truncated or damaged.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let Some(file) = regular_file::open(path)? else { return Ok(None) };
        let mut source = Self::default();
        source.add_file(path, &file)?;
        Ok(Some(source))
    }

    /// Adds the tensors of a file on disk. The file is mapped if the platform supports it.
    ///
    /// # Errors
    /// If the file can't be read, or is truncated or damaged.
    pub fn add_file(&mut self, path: &Path, file: &File) -> Result<()> {
        let bytes = map(file).with_context(|| format!("{}: could not be read", path.display()))?;
        self.add(&path.display().to_string(), bytes)
    }

    fn add(&mut self, name: &str, bytes: Bytes) -> Result<()> {
        let (header_len, header) = SafeTensors::read_metadata((*bytes).as_ref()).map_err(|e| {
            anyhow!(
                "{name}: the weights are cut short or damaged: {}; fetch the file again",
                damage(&e)
            )
        })?;
        for tensor in header.tensors().into_keys() {
            self.places.insert(tensor, self.files.len());
        }
        for (alias, tensor) in header.metadata().iter().flatten() {
            self.aliases.insert(alias.clone(), tensor.clone());
        }
        // The first eight bytes are the header's length.
        self.files.push(OneFile { bytes, header, data: 8 + header_len });
        Ok(())
    }
}

impl TensorSource for SafetensorsSource {
    fn find(&self, name: &str) -> Option<String> {
        let has = |name: &str| self.places.contains_key(name);
        let stored = full_or_bare(name, has);
        let shared = || self.aliases.get(&full_or_bare(name, |n| self.aliases.contains_key(n))?);
        stored.or_else(|| shared().filter(|name| has(name)).cloned())
    }

    fn load(&self, stored: &str, device: &Device) -> candle_core::Result<Tensor> {
        // Quantized values mean nothing without their scales, which are separate tensors.
        let (_, info) = self.info(stored)?;
        let dtype = DType::try_from(info.dtype);
        if !matches!(dtype, Ok(DType::F32 | DType::BF16 | DType::F16 | DType::F64)) {
            bail!(
                "tensor {} is stored as {:?}; candecode reads only f64, f32, bf16 and f16 \
                    from safetensors, no quantized types",
                shown(stored),
                info.dtype
            )
        }
        self.load_as_stored(stored, device)
    }

    fn names(&self) -> Vec<String> {
        self.places.keys().cloned().collect()
    }
}

impl SafetensorsSource {
    fn info(&self, stored: &str) -> candle_core::Result<(&OneFile, &TensorInfo)> {
        let file = self.places.get(stored).and_then(|at| self.files.get(*at));
        let found = file.and_then(|file| Some((file, file.header.info(stored)?)));
        found.ok_or_else(|| Error::Msg(format!("there is no tensor {}", shown(stored))))
    }

    /// Reads a tensor of any type, integers too.
    ///
    /// # Errors
    /// If there is none, or if candle doesn't have its type.
    pub fn load_as_stored(&self, stored: &str, device: &Device) -> candle_core::Result<Tensor> {
        let (file, info) = self.info(stored)?;
        let (begin, end) = info.data_offsets;
        let bytes = (*file.bytes).as_ref().get(file.data + begin..file.data + end);
        // The header was checked against the file's length when the file was added.
        let bytes = bytes.unwrap_or_default();
        TensorView::new(info.dtype, info.shape.clone(), bytes)?.load(device)
    }
}

/// Returns the bytes of a file on disk.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn map(file: &File) -> std::io::Result<Bytes> {
    // SAFETY: mapping a file is unsafe because another process could change the file, and the
    // weights would change with it. The course never writes to a weights file, and the hub's cache
    // replaces files by renaming, which leaves existing mappings intact.
    let map = unsafe { memmap2::Mmap::map(file)? };
    Ok(Box::new(map))
}

#[cfg(target_arch = "wasm32")]
pub(crate) fn map(mut file: &File) -> std::io::Result<Bytes> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut file, &mut bytes)?;
    Ok(Box::new(bytes))
}

/// Describes what is wrong with a file. The crate's own messages are about its internals, such as
/// "overflow computing buffer size".
fn damage(error: &SafeTensorError) -> String {
    use SafeTensorError as E;
    match error {
        E::HeaderTooSmall | E::InvalidHeaderLength => "it ends inside its header".into(),
        E::HeaderTooLarge => "it claims a header longer than 100 MB".into(),
        E::MetadataIncompleteBuffer => "it is not as long as its header says".into(),
        E::InvalidHeader(_) | E::InvalidHeaderDeserialization(_) => {
            "its header is not a list of tensors in JSON".into()
        }
        E::InvalidOffset(tensor) => format!("tensor {} has an invalid offset", shown(tensor)),
        E::TensorInvalidInfo => "a tensor's size in bytes doesn't match its shape".into(),
        E::ValidationOverflow => "a tensor's shape is too large for any file".into(),
        _ => "its header is invalid".into(),
    }
}
