//! One handle for all that a model is on disk, whatever format it has: each file is read once.

use crate::gguf::{self, Gguf};
use crate::{folder, hub, ChatTemplate, RandomModel};
use anyhow::{Context as _, Result};
use candecode_kit::weights::TensorSource;
use candecode_kit::{ModelConfig, Tokenizer, WeightFormat, Weights};
use candle_core::Device;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files of a model: a folder in Hugging Face format, or a GGUF file. A model of random weights
/// has none, and is made where its files would be read.
pub struct ModelFiles {
    path: PathBuf,
    config: ModelConfig,
    generation_config: Option<Value>,
    format: Format,
}

/// What is at a path.
#[derive(Clone)]
enum Format {
    Folder,
    /// A GGUF file, whose header has been read.
    Gguf(Arc<Gguf>),
    /// Nothing: the path is the name of a model that is made in memory.
    Random(Arc<RandomModel>),
}

impl Format {
    fn of(path: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(path);
        if metadata.is_err() {
            let name = path.to_str().unwrap_or_default();
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
        }
    }

    fn tokenizer(&self, path: &Path) -> Result<Tokenizer> {
        match self {
            Self::Folder => folder::tokenizer(path),
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
        })
    }

    fn chat_template(&self, path: &Path) -> Result<ChatTemplate> {
        match self {
            Self::Folder => folder::chat_template(path),
            Self::Gguf(gguf) => Ok(gguf::chat_template(gguf)),
            Self::Random(_) => Ok(ChatTemplate::default()),
        }
    }
}

impl ModelFiles {
    /// The files of a model: an embedded name, a folder, a GGUF file, or a repository of the hub,
    /// which is fetched if it is not there.
    ///
    /// # Errors
    /// If there is no such model, it cannot be fetched, or its configuration makes no sense.
    pub fn open(name: &str) -> Result<Self> {
        Self::at(&hub::locate(name, false)?)
    }

    /// The files of a folder, or a GGUF file, or the name of a model of random weights. The
    /// configuration is read at once, the rest when it is asked for.
    ///
    /// # Errors
    /// If there is nothing that can be read, or the configuration makes no sense.
    pub fn at(path: &Path) -> Result<Self> {
        let format = Format::of(path)?;
        let (config, generation_config) = format.config(path)?;
        Ok(Self { path: path.to_path_buf(), config, generation_config, format })
    }

    /// The folder, or the file; of random weights the name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The configuration of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The content of `generation_config.json`, or the sampling keys of a GGUF file; None if there
    /// are none.
    pub fn generation_config(&self) -> Option<&Value> {
        self.generation_config.as_ref()
    }

    /// Where [`ModelFiles::generation_config`] comes from, for messages.
    pub fn generation_config_name(&self) -> &'static str {
        match self.format {
            Format::Gguf(_) => "the metadata",
            Format::Folder | Format::Random(_) => "generation_config.json",
        }
    }

    /// False if the model is a folder without a `tokenizer.json`.
    pub fn has_tokenizer(&self) -> bool {
        match self.format {
            Format::Folder => self.path.join("tokenizer.json").exists(),
            Format::Gguf(_) | Format::Random(_) => true,
        }
    }

    /// The tokenizer of the model.
    ///
    /// # Errors
    /// If there is none, it makes no sense, or it has more tokens than the model.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        let tokenizer = self.format.tokenizer(&self.path)?;
        let fits = tokenizer.check_fits(self.config.vocab_size);
        fits.with_context(|| self.path.display().to_string())?;
        Ok(tokenizer)
    }

    /// The tensors of the model; `format` says what matrices will be, and may be a type. All else
    /// is of the type of activations.
    ///
    /// # Errors
    /// If a file of weights is missing, cut short or damaged.
    pub fn weights(&self, format: impl Into<WeightFormat>, device: &Device) -> Result<Weights> {
        Ok(Weights::new(self.format.source(&self.path)?, format, device))
    }

    /// The types of quantised tensors that are stored, each once, and whether its tensors can stay
    /// as they are in memory. Only GGUF files have any.
    pub fn quantized_types(&self) -> Vec<(String, bool)> {
        match &self.format {
            Format::Gguf(gguf) => gguf.quantized_types(),
            Format::Folder | Format::Random(_) => vec![],
        }
    }

    /// Bytes of all weights in memory.
    pub fn weight_bytes(&self, format: WeightFormat) -> f64 {
        match (&self.format, format) {
            (Format::Gguf(gguf), WeightFormat::AsStored) => gguf.bytes_as_stored(),
            (_, WeightFormat::Quantized(kind, _)) => kind.model_bytes(&self.config),
            _ => self.config.size() as f64 * format.dtype().size_in_bytes() as f64,
        }
    }

    /// The model's own chat template.
    ///
    /// # Errors
    /// If a file cannot be read or makes no sense.
    pub fn chat_template(&self) -> Result<ChatTemplate> {
        self.format.chat_template(&self.path)
    }
}

// Parts of a model by themselves, for tests, benchmarks and tools.

/// Reads the configuration of a model's folder or GGUF file.
///
/// # Errors
/// As [`ModelFiles::at`].
pub fn read_config(path: &Path) -> Result<ModelConfig> {
    Ok(ModelFiles::at(path)?.config)
}

/// Reads the tokenizer of a model's folder, which needs no other file, or of a GGUF file.
///
/// # Errors
/// If there is none, or it makes no sense.
pub fn read_tokenizer(path: &Path) -> Result<Tokenizer> {
    Format::of(path)?.tokenizer(path)
}

/// Opens the tensors of a model's folder, which needs no other file, or of a GGUF file.
///
/// # Errors
/// As [`ModelFiles::weights`].
pub fn open_weights(
    path: &Path,
    format: impl Into<WeightFormat>,
    device: &Device,
) -> Result<Weights> {
    Ok(Weights::new(Format::of(path)?.source(path)?, format, device))
}

/// The chat template of a model's folder, which need hold nothing else, or GGUF file.
///
/// # Errors
/// As [`ModelFiles::chat_template`].
pub fn chat_template(path: &Path) -> Result<ChatTemplate> {
    Format::of(path)?.chat_template(path)
}
