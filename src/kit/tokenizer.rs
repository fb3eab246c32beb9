//! Text to ids and back: the `tokenizers` crate, with the errors of this course.

use candle_core::{Error, Result};
use std::path::Path;

/// A `tokenizer.json`.
pub struct Tokenizer(tokenizers::Tokenizer);

impl Tokenizer {
    /// Reads `tokenizer.json` of a model's folder.
    ///
    /// # Errors
    /// If the file is missing or damaged.
    pub fn from_dir(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join("tokenizer.json");
        anyhow::ensure!(
            path.is_file(),
            "{}: no tokenizer.json; expected config.json, tokenizer.json and model.safetensors, as in a Hugging Face repository",
            dir.display()
        );
        let inner = tokenizers::Tokenizer::from_file(&path);
        let inner =
            inner.map_err(|e| anyhow::anyhow!("{}: not a tokenizer: {e}", path.display()))?;
        Ok(Self(inner))
    }

    /// The ids of a text, with the special tokens that the tokenizer itself adds (BOS, for some models).
    ///
    /// # Errors
    /// If the tokenizer refuses the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.0.encode(text, true).map_err(|e| Error::Msg(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of ids. Special tokens are left out; bytes that are not UTF-8 become `U+FFFD`.
    ///
    /// # Errors
    /// If the decoder of the tokenizer fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.0.decode(ids, true).map_err(|e| Error::Msg(e.to_string()))
    }

    /// The piece of one id as the vocabulary spells it (`Ġ` for a leading space in byte-level BPE).
    pub fn piece(&self, id: u32) -> Option<String> {
        self.0.id_to_token(id)
    }

    /// Number of ids, special ones included.
    pub fn vocab_size(&self) -> usize {
        self.0.get_vocab_size(true)
    }

    /// The library's own stream: a function that takes the next id and gives the text that is certain by now.
    /// Day 6 writes one; its checker compares the two.
    pub fn decode_stream(&self) -> impl FnMut(u32) -> Result<String> + '_ {
        let mut stream = self.0.decode_stream(true);
        move |id| {
            let text = stream.step(id).map_err(|e| Error::Msg(e.to_string()))?;
            Ok(text.unwrap_or_default())
        }
    }
}
