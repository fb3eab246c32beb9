//! A model's folder in Hugging Face format: `config.json`, `tokenizer.json`, `model.safetensors`,
//! and optional files.

use crate::regular_file;
use crate::safetensors_source::SafetensorsSource;
use crate::tokenizer_files::TokenizerFiles;
use crate::ChatTemplate;
use anyhow::{anyhow, bail, ensure, Context as _, Result};
use candecode_kit::error::{quoted, shown};
use candecode_kit::{python_json, ModelConfig, Tokenizer};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The weights file of a model that isn't split.
pub const SINGLE: &str = "model.safetensors";

/// The index of a split model: it maps each tensor to its file.
pub const INDEX: &str = "model.safetensors.index.json";

/// The files a folder must have, for the error when some are missing.
const EXPECTED: &str =
    "expected config.json, tokenizer.json and model.safetensors, as in a Hugging Face repository";

/// Rejects PyTorch pickle files by name: nanoGPT's `ckpt.pt`, `pytorch_model.bin`. Reading a pickle
/// runs the code in it, so such files are never read.
///
/// # Errors
/// If the file is a pickle. The message says how to proceed.
pub fn refuse_checkpoint(path: &Path) -> Result<()> {
    let ending = path.extension().unwrap_or_default().to_ascii_lowercase();
    let pickled = ["pt", "pth", "ckpt", "bin"].iter().any(|pickle| ending == *pickle);
    ensure!(
        !pickled,
        "{}: a PyTorch checkpoint, which isn't read; convert it to a folder with {SINGLE} (python3 \
         models/nanogpt.py does it for nanoGPT's ckpt.pt, save_pretrained for a \
         transformers model)",
        path.display()
    );
    Ok(())
}

/// Rejects a folder that has its weights in a PyTorch checkpoint.
fn refuse_checkpoint_in(dir: &Path) -> Result<()> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files.iter().try_for_each(|file| refuse_checkpoint(file))
}

/// Returns the model's configuration and its `generation_config.json`, if there is one. EOS ids in
/// the latter take precedence.
///
/// # Errors
/// If a file can't be read or is invalid. The message names the file and the key.
pub fn config(dir: &Path) -> Result<(ModelConfig, Option<Value>)> {
    // transformers would load a different model, the adapter's base, and then apply the adapter.
    ensure!(
        !dir.join("adapter_config.json").exists(),
        "{}: adapter_config.json: an adapter (LoRA) changes the weights; merge it into its \
            base model, and use the result",
        dir.display()
    );
    let path = dir.join("config.json");
    let Some(text) = regular_file::read_text(&path)? else {
        refuse_checkpoint_in(dir)?;
        bail!("{}: no config.json; {EXPECTED}", dir.display())
    };
    let mut config = ModelConfig::from_json(&text).with_context(|| path.display().to_string())?;
    let generation = dir.join("generation_config.json");
    let Some(value) = regular_file::read_json(&generation)? else { return Ok((config, None)) };
    config.take_eos_ids(&value).with_context(|| generation.display().to_string())?;
    Ok((config, Some(value)))
}

/// Returns the only GGUF file in a folder without other weights, or None if the folder is in
/// Hugging Face format.
///
/// # Errors
/// If the folder has several GGUF files. The message names them.
pub fn only_gguf(dir: &Path) -> Result<Option<PathBuf>> {
    if dir.join(SINGLE).exists() || dir.join(INDEX).exists() {
        return Ok(None);
    }
    let mut found = Vec::new();
    // If the folder can't be listed, opening its files will report the reason.
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        // An mmproj file is a model's image encoder.
        if name.ends_with(".gguf") && !name.starts_with("mmproj") && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    if let [_, _, ..] = found.as_slice() {
        let names = found.iter().filter_map(|path| path.file_name());
        let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
        bail!(
            "{}: a folder with {} GGUF files; name one of them: {}",
            dir.display(),
            found.len(),
            shown(names.join(", "))
        );
    }
    Ok(found.pop())
}

/// Returns the model's tokenizer, including tokens declared only in `TokenizerFiles`.
///
/// # Errors
/// If `tokenizer.json` is missing or isn't a tokenizer, or another file with token settings is
/// invalid.
pub fn tokenizer(dir: &Path) -> Result<Tokenizer> {
    let path = dir.join("tokenizer.json");
    let bytes = regular_file::read(&path)?;
    let bytes =
        bytes.with_context(|| format!("{}: no tokenizer.json; {EXPECTED}", dir.display()))?;
    let tokenizer = Tokenizer::from_bytes(&bytes);
    let tokenizer = tokenizer.map_err(|error| anyhow!("{}: {error}", path.display()))?;
    let files = TokenizerFiles::read(dir)?;
    files.check(&tokenizer)?;
    let more = files.tokens(&tokenizer).with_context(|| dir.display().to_string())?;
    Ok(tokenizer.with_added(more)?.called(path.display()))
}

/// Opens the tensors in `model.safetensors`, or in the files that `model.safetensors.index.json`
/// lists.
///
/// # Errors
/// If a file is missing, truncated or damaged.
pub fn weights(dir: &Path) -> Result<SafetensorsSource> {
    if let Some(source) = SafetensorsSource::open(&dir.join(SINGLE))? {
        return Ok(source);
    }
    let mut source = SafetensorsSource::default();
    let index = dir.join(INDEX);
    let Some(text) = regular_file::read_text(&index)? else {
        refuse_checkpoint_in(dir)?;
        bail!("{}: no {SINGLE}; {EXPECTED}", dir.display())
    };
    for name in shard_names(&text).with_context(|| index.display().to_string())? {
        let path = dir.join(name);
        let file = regular_file::open(&path)?;
        let file = file.with_context(|| {
            format!("{}: no such file, though the index lists it", path.display())
        })?;
        source.add_file(&path, &file)?;
    }
    Ok(source)
}

/// Returns the files that a `model.safetensors.index.json` lists.
///
/// # Errors
/// If the text is not an index, or a name points outside the folder.
pub fn shard_names(index: &str) -> Result<BTreeSet<String>> {
    let index = python_json::parse(index).context("not an index of shards")?;
    let map = index.get("weight_map").and_then(Value::as_object);
    let map = map.context("not an index of shards: no weight_map")?;
    let mut names = BTreeSet::new();
    for name in map.values() {
        let name = name.as_str().context("weight_map must name files")?;
        let plain = Path::new(name).file_name().is_some_and(|file| file == name);
        ensure!(
            plain && !name.contains(['/', '\\', ':']) && !name.contains(char::is_control),
            "weight_map names {}, which is not a plain file name",
            quoted(name)
        );
        names.insert(name.to_string());
    }
    ensure!(!names.is_empty(), "weight_map is empty");
    Ok(names)
}

/// Returns the chat template and the special tokens named in `TokenizerFiles`.
///
/// # Errors
/// If a file with special tokens can't be read or is invalid.
pub fn chat_template(dir: &Path) -> Result<ChatTemplate> {
    let files = TokenizerFiles::read(dir)?;
    let special_tokens = files.named().map(|(key, token)| (key.clone(), token.into())).collect();
    Ok(ChatTemplate { source: template_in(dir, &files), special_tokens })
}

/// Returns the source and the text of the template in `chat_template.jinja`, or else in
/// `tokenizer_config.json`.
fn template_in(dir: &Path, files: &TokenizerFiles) -> Result<Option<(String, String)>> {
    const CONFIG: &str = "tokenizer_config.json";
    const FILE: &str = "chat_template.jinja";
    let file = regular_file::read_text(&dir.join(FILE))?;
    if let Some(text) = file.filter(|text| !text.trim().is_empty()) {
        return Ok(Some((FILE.to_string(), text)));
    }
    let text = template_of(files.config.get("chat_template").unwrap_or(&Value::Null))?;
    Ok(text.map(|text| (CONFIG.to_string(), text)))
}

/// Returns the template in `tokenizer_config.json`. If there are several named ones (a list of
/// `name` and `template`, or an object), the one named "default" is returned. An empty template
/// counts as none.
fn template_of(entry: &Value) -> Result<Option<String>> {
    let named: Vec<(&str, &Value)> = match entry {
        Value::Array(list) => {
            list.iter().map(|one| (one["name"].as_str().unwrap_or("?"), &one["template"])).collect()
        }
        Value::Object(map) => map.iter().map(|(name, text)| (name.as_str(), text)).collect(),
        Value::Null => return Ok(None),
        text => vec![("default", text)],
    };
    if named.is_empty() {
        return Ok(None);
    }
    let Some((_, default)) = named.iter().find(|(name, _)| *name == "default") else {
        let names: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
        bail!(
            "tokenizer_config.json has chat templates named {}, but none named default; choose \
                one with --template FILE in a chat, or use --raw to run without one",
            shown(names.join(", "))
        )
    };
    let Some(text) = default.as_str() else {
        bail!(
            "tokenizer_config.json: chat_template: expected a text, or named templates; choose \
                one with --template FILE in a chat, or use --raw to run without one"
        )
    };
    Ok(Some(text.to_string()).filter(|text| !text.trim().is_empty()))
}
