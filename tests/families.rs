//! Every family in every format, with its weights in memory in every type, beside transformers: `tests/oracle/families.py`
//! made the models and the goldens, and makes the book's table of what is measured here.
//!
//! They run with the reference: `cargo test --features ref --test families`.

#![cfg(feature = "ref")]

use candecode::kit::{load_model, Model, ModelConfig, NoCache, Step};
use candle_core::{DType, Device, Tensor};
use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

const CPU: Device = Device::Cpu;
const MODELS: [&str; 6] =
    ["tiny-gpt2", "tiny-llama-plain", "tiny-llama-tied", "tiny-llama", "tiny-qwen2", "tiny-qwen3"];
const DTYPES: [(&str, DType); 3] =
    [("f32", DType::F32), ("bf16", DType::BF16), ("f16", DType::F16)];

fn oracle(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle").join(file)
}

/// A folder of its own, gone at the end.
struct Folder(PathBuf);

impl Folder {
    /// With a model's configuration, and its tensors as `type_on_disk`, in so many files.
    fn of(model: &str, name: &str, type_on_disk: DType, files: usize) -> Self {
        let dir = format!("candecode-families-{model}-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::copy(oracle(model).join("config.json"), dir.join("config.json")).unwrap();
        let stored = candle_core::safetensors::load(oracle(model).join("model.safetensors"), &CPU);
        let mut tensors: Vec<(String, Tensor)> = stored.unwrap().into_iter().collect();
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
        let narrow = |t: &Tensor| t.to_dtype(type_on_disk).unwrap();
        let mut index = serde_json::Map::new();
        for i in 0..files {
            let file = match files {
                1 => "model.safetensors".to_string(),
                _ => format!("model-{:05}-of-{files:05}.safetensors", i + 1),
            };
            let mine = tensors.iter().skip(i).step_by(files);
            let mine: HashMap<_, _> = mine.map(|(name, t)| (name.clone(), narrow(t))).collect();
            index.extend(mine.keys().map(|name| (name.clone(), file.clone().into())));
            candle_core::safetensors::save(&mine, dir.join(file)).unwrap();
        }
        if files > 1 {
            let index = serde_json::json!({ "weight_map": index }).to_string();
            std::fs::write(dir.join("model.safetensors.index.json"), index).unwrap();
        }
        Self(dir)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// transformers' text and logits for one model in one format on disk.
struct Golden {
    ids: Vec<u32>,
    prompt: usize,
    /// Of the last positions, `(n, V)`.
    logits: Tensor,
}

impl Golden {
    fn read(model: &str, disk: &str) -> Self {
        let json = std::fs::read_to_string(oracle("families.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let name = format!("{model}.{disk}");
        let ids = json[&name].as_array().unwrap().iter();
        let ids = ids.map(|id| id.as_u64().unwrap() as u32).collect();
        let tensors = candle_core::safetensors::load(oracle("families.safetensors"), &CPU).unwrap();
        Self { ids, prompt: 8, logits: tensors[&name].clone() }
    }
}

/// What is found of one model in one format, with its weights in memory as one type.
struct Found {
    /// The first new token that is not transformers'.
    first: Option<usize>,
    /// The largest error of a logit, fed transformers' own text.
    error: f32,
    /// The largest logit.
    largest: f32,
}

fn logits(model: &dyn Model, ids: &[u32]) -> Tensor {
    let step = Step::new(model, ids, 0).unwrap();
    model.forward(&step, &mut NoCache).unwrap().squeeze(0).unwrap()
}

fn largest(t: &Tensor) -> f32 {
    let numbers = t.abs().unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    assert!(numbers.iter().all(|n| n.is_finite()), "{numbers:?}");
    numbers.into_iter().fold(0.0, f32::max)
}

fn compare(path: &Path, dtype: DType, golden: &Golden) -> Found {
    let model = load_model(path, dtype, &CPU).unwrap();
    let mut ids = golden.ids[..golden.prompt].to_vec();
    while ids.len() < golden.ids.len() {
        let scores = logits(&*model, &ids);
        let last = scores.get(scores.dim(0).unwrap() - 1).unwrap();
        ids.push(last.argmax(0).unwrap().to_scalar::<u32>().unwrap());
    }
    let first = ids.iter().zip(&golden.ids).position(|(a, b)| a != b);
    let (n, all) = (golden.logits.dim(0).unwrap(), logits(&*model, &golden.ids));
    let all = all.narrow(0, all.dim(0).unwrap() - n, n).unwrap();
    let error = largest(&(all - &golden.logits).unwrap());
    Found { first: first.map(|at| at - golden.prompt), error, largest: largest(&golden.logits) }
}

#[test]
fn every_family_in_every_format_is_transformers() {
    let mut lines = String::new();
    for model in MODELS {
        let kept = |name: &str, dtype, files| Folder::of(model, name, dtype, files);
        let folders = [
            kept("shards", DType::F32, 3),
            kept("bf16", DType::BF16, 1),
            kept("f16", DType::F16, 1),
        ];
        for (disk, path, golden) in [
            ("single", oracle(model), "f32"),
            ("shards", folders[0].0.clone(), "f32"),
            ("bf16", folders[1].0.clone(), "bf16"),
            ("f16", folders[2].0.clone(), "f16"),
            ("gguf", oracle(&format!("{model}.gguf")), "gguf"),
        ] {
            let golden = Golden::read(model, golden);
            for (name, dtype) in DTYPES {
                let found = compare(&path, dtype, &golden);
                let what = format!("{model}, {disk}, --dtype {name}: the error is {}", found.error);
                // Sums in another order differ by some 1e-5. bf16 keeps 8 bits of a number and f16 keeps 11, so a product
                // is off by some thousandths of its size; a wrong tensor, or a lost type, is off by all of it.
                match (disk, name) {
                    (_, "f32") | ("bf16", "bf16") | ("f16" | "gguf", "f16") => {
                        assert!(found.error < 1e-4, "{what}");
                        assert_eq!(found.first, None, "{what}");
                    }
                    (_, "bf16") => assert!(found.error < 0.1 * found.largest, "{what}"),
                    _ => assert!(found.error < 0.02 * found.largest, "{what}"),
                }
                lines += &serde_json::json!({
                    "model": model, "disk": disk, "dtype": name,
                    "first": found.first, "error": found.error, "largest": found.largest,
                })
                .to_string();
                lines.push('\n');
            }
        }
    }
    if let Ok(path) = std::env::var("CANDECODE_FAMILIES") {
        std::fs::File::create(path).unwrap().write_all(lines.as_bytes()).unwrap();
    }
}

/// The metadata of a GGUF file that llama.cpp's package wrote says what `config.json` says: also Llama 3's scaling, of which it
/// has only what comes of it.
#[test]
fn a_gguf_file_has_the_configuration_of_its_folder() {
    for model in MODELS {
        let mut want = ModelConfig::from_dir(&oracle(model)).unwrap();
        want.eos_token_ids.clear(); // these files have no tokenizer, which would say it
        let got = ModelConfig::from_dir(&oracle(&format!("{model}.gguf"))).unwrap();
        assert_eq!(got, want, "{model}");
    }
}
