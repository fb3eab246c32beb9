//! A model's folder in Hugging Face format: `config.json`, `tokenizer.json`, `model.safetensors` and what may be beside them.

use crate::formats::regular_file;
use crate::formats::safetensors_source::SafetensorsSource;
use crate::formats::ChatTemplate;
use crate::kit::{ModelConfig, Tokenizer};
use anyhow::{anyhow, bail, ensure, Context as _, Result};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::Path;

/// All weights in one file.
pub const SINGLE: &str = "model.safetensors";

/// Which of several files each tensor is in.
pub const INDEX: &str = "model.safetensors.index.json";

/// What a folder must have, for the error of one that has not.
const EXPECTED: &str =
    "expected config.json, tokenizer.json and model.safetensors, as in a Hugging Face repository";

/// The configuration of the model, and its `generation_config.json` if there is one, from which the EOS ids are taken.
///
/// # Errors
/// If a file cannot be read or makes no sense: the file and the key are named.
pub fn config(dir: &Path) -> Result<(ModelConfig, Option<Value>)> {
    let path = dir.join("config.json");
    let text = regular_file::read_text(&path)?;
    let text = text.with_context(|| format!("{}: no config.json; {EXPECTED}", dir.display()))?;
    let mut config = ModelConfig::from_json(&text).with_context(|| path.display().to_string())?;
    let generation = dir.join("generation_config.json");
    let Some(value) = json(&generation)? else { return Ok((config, None)) };
    config.take_eos_ids(&value).with_context(|| generation.display().to_string())?;
    Ok((config, Some(value)))
}

/// The tokenizer of the model.
///
/// # Errors
/// If `tokenizer.json` is missing, or is none.
pub fn tokenizer(dir: &Path) -> Result<Tokenizer> {
    let path = dir.join("tokenizer.json");
    let bytes = regular_file::read(&path)?;
    let bytes =
        bytes.with_context(|| format!("{}: no tokenizer.json; {EXPECTED}", dir.display()))?;
    let tokenizer = Tokenizer::from_bytes(&bytes);
    let tokenizer = tokenizer.map_err(|error| anyhow!("{}: {error}", path.display()))?;
    Ok(tokenizer.called(path.display()))
}

/// The tensors of `model.safetensors`, or of the files that `model.safetensors.index.json` lists.
///
/// # Errors
/// If a file is missing, cut short or damaged.
pub fn weights(dir: &Path) -> Result<SafetensorsSource> {
    let mut source = SafetensorsSource::default();
    let single = dir.join(SINGLE);
    if let Some(file) = regular_file::open(&single)? {
        source.add_file(&single, &file)?;
        return Ok(source);
    }
    let index = dir.join(INDEX);
    let text = regular_file::read_text(&index)?;
    let text = text.with_context(|| format!("{}: no {SINGLE}; {EXPECTED}", dir.display()))?;
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

/// The files that a `model.safetensors.index.json` lists.
///
/// # Errors
/// If it is not an index, or a name would leave the folder.
pub fn shard_names(index: &str) -> Result<BTreeSet<String>> {
    let index: Value = serde_json::from_str(index).context("not an index of shards")?;
    let map = index.get("weight_map").and_then(Value::as_object);
    let map = map.context("not an index of shards: no weight_map")?;
    let mut names = BTreeSet::new();
    for name in map.values() {
        let name = name.as_str().context("weight_map must name files")?;
        ensure!(
            !name.contains(['/', '\\']),
            "weight_map names {name}, which is not a plain file name"
        );
        names.insert(name.to_string());
    }
    ensure!(!names.is_empty(), "weight_map is empty");
    Ok(names)
}

/// The chat template of `chat_template.jinja`, else of `tokenizer_config.json`, and the special tokens that the latter names.
///
/// # Errors
/// If a file cannot be read or makes no sense.
pub fn chat_template(dir: &Path) -> Result<ChatTemplate> {
    const CONFIG: &str = "tokenizer_config.json";
    const FILE: &str = "chat_template.jinja";
    let config = json(&dir.join(CONFIG))?.unwrap_or_default();
    let mut special_tokens = Map::new();
    for (key, value) in config.as_object().into_iter().flatten() {
        let token = value.as_str().or_else(|| value.get("content")?.as_str());
        if let Some(token) = token.filter(|_| key.ends_with("_token")) {
            special_tokens.insert(key.clone(), token.into());
        }
    }
    let file = regular_file::read_text(&dir.join(FILE))?.map(|text| (FILE.to_string(), text));
    let source = match file.filter(|(_, text)| !text.trim().is_empty()) {
        Some(file) => Some(file),
        None => template_of(&config["chat_template"])?.map(|text| (CONFIG.to_string(), text)),
    };
    Ok(ChatTemplate { source, special_tokens })
}

/// The template in `tokenizer_config.json`. Of named ones (a list of `name` and `template`, or an object), that is "default".
/// An empty one is none.
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
            "tokenizer_config.json has chat templates named {}, and none named default; choose with --template FILE",
            names.join(", ")
        )
    };
    let Some(text) = default.as_str() else {
        bail!("tokenizer_config.json: chat_template: expected a text, or named templates; choose with --template FILE")
    };
    Ok(Some(text.to_string()).filter(|text| !text.trim().is_empty()))
}

/// A file of JSON; None if there is none.
fn json(path: &Path) -> Result<Option<Value>> {
    let Some(text) = regular_file::read_text(path)? else { return Ok(None) };
    let value = serde_json::from_str(&text);
    value.map(Some).with_context(|| format!("{}: not JSON", path.display()))
}
