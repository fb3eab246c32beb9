//! Tests of the `kit` module: supporting code that no day teaches. Goldens: `tests/oracle/kit.py`.
//!
//! They run with the reference: `cargo test --features ref --test kit`.

#![cfg(feature = "ref")]

#[path = "../../../tests/frame/mod.rs"]
mod checks;

#[path = "kit/automata.rs"]
mod automata;
#[path = "kit/chat.rs"]
mod chat;
#[path = "kit/config.rs"]
mod config;
#[path = "kit/dfa.rs"]
mod dfa;
#[path = "kit/error.rs"]
mod error;
#[path = "kit/flags.rs"]
mod flags;
#[path = "kit/gguf.rs"]
mod gguf;
#[path = "kit/kernel_equality.rs"]
mod kernel_equality;
#[path = "kit/layer_kernels.rs"]
mod layer_kernels;
#[path = "kit/memory.rs"]
mod memory;
#[path = "kit/metadata.rs"]
mod metadata;
#[path = "kit/model_files.rs"]
mod model_files;
#[path = "kit/ngram_table.rs"]
mod ngram_table;
#[path = "kit/paged_attention.rs"]
mod paged_attention;
#[path = "kit/passes.rs"]
mod passes;
#[path = "kit/quantized.rs"]
mod quantized;
#[path = "kit/random_model.rs"]
mod random_model;
#[path = "kit/rng.rs"]
mod rng;
#[path = "kit/scheduler_interface.rs"]
mod scheduler_interface;
#[path = "kit/sequence.rs"]
mod sequence;
#[path = "kit/step.rs"]
mod step;
#[path = "kit/token_bytes.rs"]
mod token_bytes;
#[path = "kit/token_rules.rs"]
mod token_rules;
#[path = "kit/tokenizer.rs"]
mod tokenizer;
#[path = "kit/tokenizer_json.rs"]
mod tokenizer_json;
#[path = "kit/weights.rs"]
mod weights;

use candecode::kit::{NoCache, Step};
use candecode_engine::load_model;
use candle_core::{DType, Device};
use std::path::{Path, PathBuf};

/// A test's temporary folder, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("candecode-kit-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn write(&self, file: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(file);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns an embedded model's folder.
fn story(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("models").join(name)
}

/// Returns the logits after three tokens, from the model in a folder or file.
fn logits(path: &Path) -> Vec<f32> {
    let model = load_model(path, DType::F32, &Device::Cpu).unwrap();
    let step = Step::new(&*model, &[5, 6, 7], 0).unwrap();
    model.forward(&step, &mut NoCache).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// Returns an error's message, including its whole chain.
#[track_caller]
fn message<T>(result: anyhow::Result<T>) -> String {
    match result {
        Ok(_) => panic!("this should have been rejected"),
        Err(error) => candecode::kit::error::describe(&error),
    }
}

/// Checks that the error contains these words.
#[track_caller]
fn refused<T>(result: anyhow::Result<T>, says: &[&str]) {
    let text = message(result);
    for words in says {
        assert!(text.contains(words), "expected \"{words}\" in: {text}");
    }
}

#[test]
fn likely_if_not_finite_requires_a_non_finite_value() {
    use checks::{equal, Likely as _};
    let guess = |got: f32| {
        let wrong = equal("x", Ok(got), &0.5).likely_if_not_finite("exp(1000) is infinite");
        wrong.unwrap_err().likely
    };
    assert_eq!(guess(1.0), None);
    assert!(guess(f32::NAN).is_some() && guess(f32::NEG_INFINITY).is_some());
}
