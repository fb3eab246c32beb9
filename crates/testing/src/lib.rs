//! Code that tests of several crates share: random numbers, temporary folders, the models in this
//! repository and the results of reference implementations.
//!
//! Unlike the rest of the course, these functions panic: a test that can't read its files fails.

mod gguf_parts;
mod model_folders;
mod random;

pub use gguf_parts::GgufParts;
pub use model_folders::{configure, copy_of, save, sharded};
pub use random::Random;

use serde_json::{json, Value};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).to_path_buf()
}

/// Returns an embedded model's folder.
pub fn story(name: &str) -> PathBuf {
    root().join("models").join(name)
}

/// Returns a small model with random weights, a folder or a GGUF file, or the tokenizer
/// `sentencepiece`: `crates/testing/models/NAME`.
pub fn tiny(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(name)
}

/// Returns a file of the crate under test, `tests/oracle/NAME`. Cargo runs a crate's tests in the
/// crate's folder.
pub fn oracle(name: &str) -> PathBuf {
    Path::new("tests/oracle").join(name)
}

/// Reads a reference implementation's results, `tests/oracle/NAME.json`.
pub fn golden_json(name: &str) -> Value {
    let path = oracle(name).with_extension("json");
    let text = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A test's temporary folder, removed at the end.
pub struct Folder(
    /// The folder's path.
    pub PathBuf,
);

impl Folder {
    /// Creates an empty folder for this test, even if another one calls its own the same.
    pub fn new(test: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("candecode-{test}-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// Writes a file and returns its path.
    pub fn write(&self, file: &str, text: impl AsRef<[u8]>) -> PathBuf {
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

/// Checks that a call failed, and that its error, with everything that caused it, contains these
/// words.
#[track_caller]
pub fn refused<T>(result: anyhow::Result<T>, says: &[&str]) {
    let Err(error) = result else { panic!("this should have been rejected") };
    let text = format!("{error:#}");
    for words in says {
        assert!(text.contains(words), "expected \"{words}\" in: {text}");
    }
}

/// Returns the smallest valid `config.json` of a family.
pub fn least_config(family: &str) -> Value {
    match family {
        "gpt2" => json!({
            "model_type": "gpt2", "vocab_size": 50, "n_embd": 12, "n_layer": 2, "n_head": 4,
            "n_positions": 32,
        }),
        _ => json!({
            "model_type": family, "vocab_size": 50, "hidden_size": 24, "intermediate_size": 40,
            "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 32,
        }),
    }
}
