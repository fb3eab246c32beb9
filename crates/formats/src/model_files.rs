//! A single handle for everything in a model's files, in any format. Each file is read once.

use crate::gguf::{self, Gguf};
use crate::widened_model::{WidenedModel, WIDENED};
use crate::{folder, hub, ChatTemplate, RandomModel};
use anyhow::{Context as _, Result};
use candecode_kit::weights::TensorSource;
use candecode_kit::{ModelConfig, Tokenizer, WeightFormat, Weights};
use candle_core::Device;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A model's files: a folder in Hugging Face format, or a GGUF file. A random model has no files
/// and is generated instead; [`WIDENED`] is made from the files of another.
pub struct ModelFiles {
    path: PathBuf,
    config: ModelConfig,
    generation_config: Option<Value>,
    format: Format,
}

/// The format found at a path.
#[derive(Clone)]
enum Format {
    Folder,
    /// A GGUF file. Its header has been read.
    Gguf(Arc<Gguf>),
    /// No files: the path is the name of a model generated in memory.
    Random(Arc<RandomModel>),
    /// The path is [`WIDENED`], and this is the folder of the model inside.
    Widened(PathBuf),
}

impl Format {
    fn of(path: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(path);
        if metadata.is_err() {
            let name = path.to_str().unwrap_or_default();
            if name == WIDENED {
                return Ok(Self::Widened(hub::models_dir()?.join(hub::DEFAULT_MODEL)));
            }
            if let Some(model) = RandomModel::named(name)? {
                return Ok(Self::Random(Arc::new(model)));
            }
        }
        if !metadata.with_context(|| path.display().to_string())?.is_dir() {
            folder::refuse_checkpoint(path)?;
            return Gguf::open(path).map(|gguf| Self::Gguf(Arc::new(gguf)));
        }
        match folder::only_gguf(path)? {
            Some(file) => Gguf::open(&file).map(|gguf| Self::Gguf(Arc::new(gguf))),
            None => Ok(Self::Folder),
        }
    }

    fn config(&self, path: &Path) -> Result<(ModelConfig, Option<Value>)> {
        match self {
            Self::Folder => folder::config(path),
            Self::Gguf(gguf) => Ok((gguf::config(gguf)?, gguf::sampling(gguf))),
            Self::Random(model) => Ok((model.config().clone(), None)),
            Self::Widened(inner) => {
                let (config, generation) = folder::config(inner)?;
                Ok((WidenedModel::widened(&config), generation))
            }
        }
    }

    fn tokenizer(&self, path: &Path) -> Result<Tokenizer> {
        match self {
            Self::Folder => folder::tokenizer(path),
            Self::Widened(inner) => folder::tokenizer(inner),
            Self::Gguf(gguf) => Ok(Tokenizer::new(gguf::tokenizer(gguf)?).called(path.display())),
            Self::Random(model) => {
                let story = folder::tokenizer(&hub::models_dir()?.join(hub::DEFAULT_MODEL))?;
                Ok(story.with_ids_below(model.config().vocab_size)?)
            }
        }
    }

    fn source(&self, path: &Path) -> Result<Arc<dyn TensorSource>> {
        Ok(match self {
            Self::Folder => Arc::new(folder::weights(path)?),
            Self::Gguf(gguf) => gguf.clone(),
            Self::Random(model) => model.clone(),
            Self::Widened(inner) => {
                let (config, _) = folder::config(inner)?;
                Arc::new(WidenedModel::new(&config, Arc::new(folder::weights(inner)?)))
            }
        })
    }

    fn chat_template(&self, path: &Path) -> Result<ChatTemplate> {
        match self {
            Self::Folder => folder::chat_template(path),
            Self::Widened(inner) => folder::chat_template(inner),
            Self::Gguf(gguf) => Ok(gguf::chat_template(gguf)),
            Self::Random(_) => Ok(ChatTemplate { source: Ok(None), special_tokens: Map::new() }),
        }
    }
}

impl ModelFiles {
    /// Opens a model on this machine: an embedded name, a folder, a GGUF file, or a repository in
    /// the hub's cache.
    ///
    /// # Errors
    /// If the model isn't on this machine, or has an invalid configuration.
    pub fn open(name: &str) -> Result<Self> {
        Self::at(&hub::locate(name, None)?)
    }

    /// Opens a folder, a GGUF file, or a random model by name. Reads the configuration immediately
    /// and everything else on demand.
    ///
    /// # Errors
    /// If there is nothing to read at the path, or the configuration is invalid.
    pub fn at(path: &Path) -> Result<Self> {
        let format = Format::of(path)?;
        let (config, generation_config) = format.config(path)?;
        Ok(Self { path: path.to_path_buf(), config, generation_config, format })
    }

    /// Returns the path of the folder or file. For a model made in memory, this is its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder of the model inside, if this one is made by widening it.
    pub fn inside(&self) -> Option<&Path> {
        match &self.format {
            Format::Widened(inside) => Some(inside),
            _ => None,
        }
    }

    /// Returns the model's configuration.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Returns the content of `generation_config.json` or a GGUF file's sampling keys. None if
    /// there are none.
    pub fn generation_config(&self) -> Option<&Value> {
        self.generation_config.as_ref()
    }

    /// Returns the source of [`ModelFiles::generation_config`], for messages.
    pub fn generation_config_name(&self) -> &'static str {
        match self.format {
            Format::Gguf(_) => "the metadata",
            Format::Folder | Format::Random(_) | Format::Widened(_) => "generation_config.json",
        }
    }

    /// Returns false if the model is a folder without a `tokenizer.json`.
    pub fn has_tokenizer(&self) -> bool {
        match self.format {
            Format::Folder => self.path.join("tokenizer.json").exists(),
            Format::Gguf(_) | Format::Random(_) | Format::Widened(_) => true,
        }
    }

    /// Returns the model's tokenizer.
    ///
    /// # Errors
    /// If the tokenizer is missing or invalid, or has more tokens than the model.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        let tokenizer = self.format.tokenizer(&self.path)?;
        let fits = tokenizer.check_fits(self.config.vocab_size);
        fits.with_context(|| self.path.display().to_string())?;
        Ok(tokenizer)
    }

    /// Returns the model's tensors. `format` is the in-memory format for matrices; a plain type
    /// works, too. All other tensors have the activation type.
    ///
    /// # Errors
    /// If a weights file is missing, truncated or damaged.
    pub fn weights(&self, format: impl Into<WeightFormat>, device: &Device) -> Result<Weights> {
        Ok(Weights::new(self.format.source(&self.path)?, format, device))
    }

    /// Returns the distinct types of the stored quantized tensors, each with true if tensors of
    /// that type can stay quantized in memory. Empty except for GGUF files.
    pub fn quantized_types(&self) -> Vec<(String, bool)> {
        match &self.format {
            Format::Gguf(gguf) => gguf.quantized_types(),
            Format::Folder | Format::Random(_) | Format::Widened(_) => vec![],
        }
    }

    /// Returns the size of all weights in memory, in bytes.
    pub fn weight_bytes(&self, format: WeightFormat) -> f64 {
        match (&self.format, format) {
            (Format::Gguf(gguf), WeightFormat::AsStored) => gguf.bytes_as_stored(),
            (_, WeightFormat::Quantized(kind, _)) => kind.model_bytes(&self.config),
            _ => self.config.size() as f64 * format.dtype().size_in_bytes() as f64,
        }
    }

    /// Returns the model's own chat template.
    ///
    /// # Errors
    /// If the special tokens can't be read or are invalid. An error in the template itself is in
    /// [`ChatTemplate::source`].
    pub fn chat_template(&self) -> Result<ChatTemplate> {
        self.format.chat_template(&self.path)
    }
}

// Individual parts of a model, for tests, benchmarks and tools.

/// Reads the configuration from a model's folder or GGUF file.
///
/// # Errors
/// Same as [`ModelFiles::at`].
pub fn read_config(path: &Path) -> Result<ModelConfig> {
    Ok(ModelFiles::at(path)?.config)
}

/// Reads the tokenizer from a model's folder, which needs no other files, or from a GGUF file.
///
/// # Errors
/// If the tokenizer is missing or invalid.
pub fn read_tokenizer(path: &Path) -> Result<Tokenizer> {
    Format::of(path)?.tokenizer(path)
}

/// Opens the tensors in a model's folder, which needs no other files, or in a GGUF file.
///
/// # Errors
/// Same as [`ModelFiles::weights`].
pub fn open_weights(
    path: &Path,
    format: impl Into<WeightFormat>,
    device: &Device,
) -> Result<Weights> {
    Ok(Weights::new(Format::of(path)?.source(path)?, format, device))
}

/// Returns the chat template from a model's folder, which needs no other files, or from a GGUF
/// file.
///
/// # Errors
/// Same as [`ModelFiles::chat_template`].
pub fn chat_template(path: &Path) -> Result<ChatTemplate> {
    Format::of(path)?.chat_template(path)
}
