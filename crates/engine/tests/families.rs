//! Compares every family with transformers, in every format and with the weights in memory in every
//! type. `oracle/families.py` created the models and the goldens, and `families_page.py`
//! writes the book's page from the measurements here. These tests also check that the page is up to
//! date.
//!
//! They run with the reference: `cargo test -p candecode-engine --features ref --test families`.

#![cfg(feature = "ref")]

use candecode::kit::{Model, NoCache, Step};
use candecode_engine::load::load_transformer;
use candecode_engine::operations::{choose, Kernels};
use candecode_testing::{oracle, tiny};
use candle_core::{DType, Device, Tensor};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const CPU: Device = Device::Cpu;
const MODELS: [&str; 6] =
    ["tiny-gpt2", "tiny-llama-plain", "tiny-llama-tied", "tiny-llama", "tiny-qwen2", "tiny-qwen3"];
const DTYPES: [(&str, DType); 3] =
    [("f32", DType::F32), ("bf16", DType::BF16), ("f16", DType::F16)];

/// A temporary folder, removed at the end.
struct Folder(PathBuf);

impl Folder {
    /// Creates a folder with a model's configuration, and its tensors as `type_on_disk`, split over
    /// `files` files.
    fn of(model: &str, name: &str, type_on_disk: DType, files: usize) -> Self {
        let dir = format!("candecode-families-{model}-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::copy(tiny(model).join("config.json"), dir.join("config.json")).unwrap();
        let stored = candle_core::safetensors::load(tiny(model).join("model.safetensors"), &CPU);
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
    /// Logits of the last positions, `(n, V)`.
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

/// The result for one model in one format, with its weights in memory as one type. The error is the
/// larger of the plain and the fast kernels'.
#[derive(serde::Deserialize, serde::Serialize)]
struct Found {
    model: String,
    disk: String,
    dtype: String,
    /// The index of the first new token that differs from transformers.
    first: Option<usize>,
    /// The largest logit error when fed transformers' own text.
    error: f32,
    /// The largest logit magnitude.
    largest: f32,
}

impl Found {
    /// Returns true if the result matches transformers. A different summation order alone changes
    /// about 1e-5.
    fn equal(&self) -> bool {
        self.first.is_none() && self.error < 1e-4
    }

    /// Returns true if a cell of the book's table shows this result. The last digits of an error
    /// depend on the processor, which may sum in a different order. With bf16 weights that changes
    /// how inputs are rounded, so only the size of an error is compared.
    fn is_shown_as(&self, cell: &str) -> bool {
        let (error, token) = match cell.split_once(", token ") {
            Some((error, token)) => (error, token.parse().ok()),
            None => (cell, None),
        };
        if self.dtype == "bf16" && !self.equal() {
            let size = |error: f32| (0.3..3.0).contains(&(error / self.error));
            return error.parse().is_ok_and(size);
        }
        let near = |error: f32| (error - self.error).abs() <= 0.06 * self.error + 2e-5;
        if self.equal() {
            cell == "equal"
        } else {
            token == self.first.map(|at| at + 1) && error.parse().is_ok_and(near)
        }
    }
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

/// Returns the index of the first new token that differs from transformers, and the largest logit
/// error.
fn compare(model: &dyn Model, golden: &Golden) -> (Option<usize>, f32) {
    let mut ids = golden.ids[..golden.prompt].to_vec();
    while ids.len() < golden.ids.len() {
        let scores = logits(model, &ids);
        let last = scores.get(scores.dim(0).unwrap() - 1).unwrap();
        ids.push(last.argmax(0).unwrap().to_scalar::<u32>().unwrap());
    }
    let first = ids.iter().zip(&golden.ids).position(|(a, b)| a != b);
    let (n, all) = (golden.logits.dim(0).unwrap(), logits(model, &golden.ids));
    let all = all.narrow(0, all.dim(0).unwrap() - n, n).unwrap();
    (first.map(|at| at - golden.prompt), largest(&(all - &golden.logits).unwrap()))
}

/// Measures one model, and compares all kernels with each other and with transformers.
fn measure(model: &str, disk: &str, dtype: &str, path: &Path, golden: &Golden) -> Found {
    let (_, of) = DTYPES.iter().find(|(name, _)| *name == dtype).unwrap();
    let [plain, candle, fast] = [Kernels::Plain, Kernels::Candle, Kernels::Fast].map(|kind| {
        let loaded = load_transformer(path, *of, &CPU, &choose(Some(kind), &CPU)).unwrap();
        compare(&loaded, golden)
    });
    let what = format!(
        "{model}, {disk}, --dtype {dtype}: {plain:?} plain, {candle:?} candle, {fast:?} fast"
    );
    for other in [candle, fast] {
        // With bf16 weights, the fast kernels round the other factor, too.
        let same = (plain.1 - other.1).abs() < 1e-4 && plain.0 == other.0;
        assert!(same || (other == fast && dtype == "bf16"), "{what}");
    }
    let (error, largest) = (plain.1.max(fast.1), largest(&golden.logits));
    let (model, disk) = (model.to_string(), disk.to_string());
    let first = plain.0.or(fast.0);
    let found = Found { model, disk, dtype: dtype.into(), first, error, largest };
    // bf16 keeps 8 bits of a number and f16 keeps 11, so a product is off by a few thousandths of
    // its size. With bf16 weights, the other factor is rounded, too. With a wrong tensor or a wrong
    // type it would be off by its whole size.
    match (found.disk.as_str(), dtype) {
        (_, "f32") | ("f16" | "gguf", "f16") => assert!(found.equal(), "{what}"),
        ("bf16", "bf16") => assert!(plain.1 < 1e-4 && error < 0.1 * largest, "{what}"),
        (_, "bf16") => assert!(error < 0.1 * largest, "{what}"),
        _ => assert!(error < 0.02 * largest, "{what}"),
    }
    found
}

#[test]
fn every_family_and_format_matches_transformers_and_the_book() {
    let mut found = Vec::new();
    for model in MODELS {
        let kept = |name: &str, dtype, files| Folder::of(model, name, dtype, files);
        let folders = [
            kept("shards", DType::F32, 3),
            kept("bf16", DType::BF16, 1),
            kept("f16", DType::F16, 1),
        ];
        for (disk, path, golden) in [
            ("single", tiny(model), "f32"),
            ("shards", folders[0].0.clone(), "f32"),
            ("bf16", folders[1].0.clone(), "bf16"),
            ("f16", folders[2].0.clone(), "f16"),
            ("gguf", tiny(&format!("{model}.gguf")), "gguf"),
        ] {
            let golden = Golden::read(model, golden);
            let of = |(dtype, _): &(&str, DType)| measure(model, disk, dtype, &path, &golden);
            found.extend(DTYPES.iter().map(of));
        }
    }
    // The script that writes the page asks for the numbers. Otherwise the page must already show
    // them.
    match std::env::var("CANDECODE_FAMILIES") {
        Ok(path) => std::fs::write(path, serde_json::to_string(&found).unwrap()).unwrap(),
        Err(_) => the_book_has(&rows(6), &found),
    }
}

/// The results for a real model are in a separate file, since no test downloads one.
#[test]
fn the_book_matches_the_results_for_the_real_model() {
    let json = std::fs::read_to_string(oracle("families_real.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let found: Vec<Found> = serde_json::from_value(json["found"].clone()).unwrap();
    assert!(found.iter().filter(|found| found.dtype == "f32").all(Found::equal));
    the_book_has(&rows(4), &found);
}

/// Returns the rows of the page's table with this many columns.
fn rows(columns: usize) -> Vec<Vec<String>> {
    let page = candecode_testing::root().join("book/src/families.md");
    let page = std::fs::read_to_string(page).unwrap();
    let cells = |line: &str| -> Option<Vec<String>> {
        let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
        Some(line.split(" | ").map(String::from).collect())
    };
    page.lines().filter_map(cells).filter(|row| row.len() == columns).collect()
}

/// Checks the page: one row per model and format, in the order of `found`, with one cell per type.
fn the_book_has(rows: &[Vec<String>], found: &[Found]) {
    let cells = rows.iter().map(|row| row.iter().filter(|cell| is_measured(cell)));
    let cells: Vec<&String> = cells.flatten().collect();
    assert_eq!(cells.len(), found.len(), "the page has a different number of cells: {cells:?}");
    for (cell, found) in cells.into_iter().zip(found) {
        let Found { model, disk, dtype, first, error, .. } = found;
        assert!(
            found.is_shown_as(cell),
            "book/src/families.md, {model}, {disk}, --dtype {dtype}: the page says {cell:?}, but \
             {error}, {first:?} was measured; run oracle/families_page.py"
        );
    }
}

fn is_measured(cell: &str) -> bool {
    cell == "equal" || cell.starts_with(|c: char| c.is_ascii_digit())
}

/// A GGUF file with f16 matrices and a folder with the same numbers in f32 are the same model, bit
/// for bit.
#[test]
fn gguf_tensors_equal_the_safetensors() {
    for model in MODELS {
        let folder = candecode_formats::open_weights(&tiny(model), DType::F32, &CPU).unwrap();
        let gguf =
            candecode_formats::open_weights(&tiny(&format!("{model}.gguf")), DType::F32, &CPU)
                .unwrap();
        let stored = candle_core::safetensors::load(tiny(model).join("model.safetensors"), &CPU);
        for (name, tensor) in stored.unwrap() {
            let [here, there] =
                [&gguf, &folder].map(|weights| weights.tensor(&name, tensor.dims()).unwrap());
            let narrow = tensor.rank() == 2 && !name.contains("wpe");
            let there = if narrow {
                there.to_dtype(DType::F16).and_then(|t| t.to_dtype(DType::F32)).unwrap()
            } else {
                there
            };
            assert_eq!(largest(&(here - there).unwrap()), 0.0, "{model}: {name}");
        }
    }
}

/// The metadata of a GGUF file written by llama.cpp's package matches `config.json`. This includes
/// Llama 3's RoPE scaling, which the file stores only as the resulting factors.
#[test]
fn gguf_metadata_matches_config_json() {
    for model in MODELS {
        let mut want = candecode_formats::read_config(&tiny(model)).unwrap();
        want.eos_token_ids.clear(); // these files have no tokenizer to take them from
        let got = candecode_formats::read_config(&tiny(&format!("{model}.gguf"))).unwrap();
        assert_eq!(got, want, "{model}");
    }
}
