//! One handle for all that a model is on disk, whatever format it has: each file is read once.

use crate::formats::gguf::{self, Gguf};
use crate::formats::{folder, hub, ChatTemplate};
use crate::kit::weights::TensorSource;
use crate::kit::{ModelConfig, Tokenizer, Weights};
use anyhow::{Context as _, Result};
use candle_core::{DType, Device};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files of a model: a folder in Hugging Face format, or a GGUF file.
pub struct ModelFiles {
    path: PathBuf,
    config: ModelConfig,
    generation_config: Option<Value>,
    /// The header of a GGUF file; None for a folder.
    gguf: Option<Arc<Gguf>>,
}

impl ModelFiles {
    /// The files of a model: an embedded name, a folder, a GGUF file, or a repository of the hub, which is fetched if it is
    /// not there.
    ///
    /// # Errors
    /// If there is no such model, it cannot be fetched, or its configuration makes no sense.
    pub fn open(name: &str) -> Result<Self> {
        Self::at(&hub::resolve(name)?)
    }

    /// The files of a folder, or a GGUF file. The configuration is read at once, the rest when it is asked for.
    ///
    /// # Errors
    /// If there is nothing that can be read, or the configuration makes no sense.
    pub fn at(path: &Path) -> Result<Self> {
        let gguf = open_gguf(path)?;
        let (config, generation_config) = match &gguf {
            Some(gguf) => (gguf::config(gguf)?, None),
            None => folder::config(path)?,
        };
        Ok(Self { path: path.to_path_buf(), config, generation_config, gguf })
    }

    /// The folder, or the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The configuration of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// What `generation_config.json` holds, if there is one.
    pub fn generation_config(&self) -> Option<&Value> {
        self.generation_config.as_ref()
    }

    /// False if the model is a folder without a `tokenizer.json`.
    pub fn has_tokenizer(&self) -> bool {
        self.gguf.is_some() || self.path.join("tokenizer.json").exists()
    }

    /// The tokenizer of the model.
    ///
    /// # Errors
    /// If there is none, it makes no sense, or it has more tokens than the model.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        let tokenizer = match &self.gguf {
            Some(gguf) => Tokenizer::new(gguf::tokenizer(gguf)?),
            None => folder::tokenizer(&self.path)?,
        };
        let fits = tokenizer.check_fits(self.config.vocab_size);
        fits.with_context(|| self.path.display().to_string())?;
        Ok(tokenizer)
    }

    /// The tensors of the model. Matrices will be of type `dtype`, all else of the type of activations.
    ///
    /// # Errors
    /// If a file of weights is missing, cut short or damaged.
    pub fn weights(&self, dtype: DType, device: &Device) -> Result<Weights> {
        Ok(Weights::new(source(&self.path, self.gguf.clone())?, dtype, device))
    }

    /// The model's own chat template.
    ///
    /// # Errors
    /// If a file cannot be read or makes no sense.
    pub fn chat_template(&self) -> Result<ChatTemplate> {
        template_of(&self.path, self.gguf.as_deref())
    }
}

/// The header of a GGUF file; None if the path is that of a folder.
fn open_gguf(path: &Path) -> Result<Option<Arc<Gguf>>> {
    let metadata = std::fs::metadata(path);
    if metadata.with_context(|| path.display().to_string())?.is_dir() {
        return Ok(None);
    }
    Gguf::open(path).map(|gguf| Some(Arc::new(gguf)))
}

fn source(path: &Path, gguf: Option<Arc<Gguf>>) -> Result<Arc<dyn TensorSource>> {
    Ok(match gguf {
        Some(gguf) => gguf,
        None => Arc::new(folder::weights(path)?),
    })
}

fn template_of(path: &Path, gguf: Option<&Gguf>) -> Result<ChatTemplate> {
    match gguf {
        Some(gguf) => Ok(gguf::chat_template(gguf)),
        None => folder::chat_template(path),
    }
}

// Parts of a model by themselves, for tests, benchmarks and tools.

impl ModelConfig {
    /// The configuration of a model's folder or GGUF file.
    ///
    /// # Errors
    /// As [`ModelFiles::at`].
    pub fn from_dir(path: &Path) -> Result<Self> {
        Ok(ModelFiles::at(path)?.config)
    }
}

impl Tokenizer {
    /// The tokenizer of a model's folder, which need hold nothing else, or GGUF file.
    ///
    /// # Errors
    /// If there is none, or it makes no sense.
    pub fn from_dir(path: &Path) -> Result<Self> {
        match open_gguf(path)? {
            Some(gguf) => Ok(Self::new(gguf::tokenizer(&gguf)?)),
            None => folder::tokenizer(path),
        }
    }
}

impl Weights {
    /// The tensors of a model's folder, which need hold nothing else, or GGUF file.
    ///
    /// # Errors
    /// As [`ModelFiles::weights`].
    pub fn open(path: &Path, dtype: DType, device: &Device) -> Result<Self> {
        Ok(Self::new(source(path, open_gguf(path)?)?, dtype, device))
    }
}

/// The chat template of a model's folder, which need hold nothing else, or GGUF file.
///
/// # Errors
/// As [`ModelFiles::chat_template`].
pub fn chat_template(path: &Path) -> Result<ChatTemplate> {
    template_of(path, open_gguf(path)?.as_deref())
}
