//! Folders with models for tests: copies of the embedded ones, changed.

use crate::{story, Folder};
use candle_core::{Device, Tensor};
use serde_json::Value;
use std::collections::HashMap;

/// Writes a safetensors file with these tensors.
pub fn save(folder: &Folder, file: &str, tensors: &[(&str, &Tensor)]) {
    let tensors: HashMap<&str, Tensor> =
        tensors.iter().map(|(name, tensor)| (*name, (*tensor).clone())).collect();
    candle_core::safetensors::save(&tensors, folder.0.join(file)).unwrap();
}

/// Writes a copy of story-230k with its tensors split over shards.
pub fn sharded(folder: &Folder, shards: usize) {
    let from = story("story-230k");
    for file in ["config.json", "tokenizer.json", "generation_config.json"] {
        std::fs::copy(from.join(file), folder.0.join(file)).unwrap();
    }
    let all = candle_core::safetensors::load(from.join("model.safetensors"), &Device::Cpu).unwrap();
    let mut names: Vec<&String> = all.keys().collect();
    names.sort();
    let mut map = serde_json::Map::new();
    for shard in 0..shards {
        let file = format!("model-{:05}-of-{shards:05}.safetensors", shard + 1);
        let mine: Vec<_> = names.iter().skip(shard).step_by(shards).collect();
        map.extend(mine.iter().map(|name| (name.to_string(), file.as_str().into())));
        let mine: Vec<_> = mine.iter().map(|name| (name.as_str(), &all[**name])).collect();
        save(folder, &file, &mine);
    }
    let index = serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map});
    folder.write("model.safetensors.index.json", index.to_string());
}

/// Returns a copy of an embedded model, in a folder named after the test.
pub fn copy_of(model: &str, test: &str) -> Folder {
    let folder = Folder::new(test);
    for file in std::fs::read_dir(story(model)).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.0.join(file.file_name())).unwrap();
    }
    folder
}

/// Changes one key in `config.json`.
pub fn configure(folder: &Folder, key: &str, value: Value) {
    let text = std::fs::read(folder.0.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&text).unwrap();
    config[key] = value;
    folder.write("config.json", config.to_string());
}
