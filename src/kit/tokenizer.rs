//! Text to ids and back: the `tokenizers` crate, with the errors of this course.

use crate::formats::gguf::{self, Gguf};
use candle_core::{Error, Result};
use std::path::Path;

/// A `tokenizer.json`.
pub struct Tokenizer(tokenizers::Tokenizer);

impl Tokenizer {
    /// Reads `tokenizer.json` of a model's folder, or what a GGUF file has in its place.
    ///
    /// # Errors
    /// If the file is missing or damaged.
    pub fn from_dir(dir: &Path) -> anyhow::Result<Self> {
        if dir.is_file() {
            return gguf::tokenizer(&Gguf::open(dir)?).map(Self);
        }
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

    /// The ids of a text that a chat template made: it has written all special tokens itself, so none are added.
    ///
    /// # Errors
    /// If the tokenizer refuses the text.
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.0.encode(text, false).map_err(|e| Error::Msg(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// True for a token that was added to the vocabulary by name, as special ones are.
    pub fn is_added(&self, id: u32) -> bool {
        self.0.get_added_tokens_decoder().contains_key(&id)
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

    /// The bytes that a token adds to a text; none for special tokens and for ids that do not exist.
    ///
    /// Byte-level BPE writes each byte as one printable character (GPT-2's `bytes_to_unicode`); SentencePiece writes a space as
    /// `▁` and a lone byte as `<0x0A>`.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        let Some(piece) = self.0.id_to_token(id) else { return Vec::new() };
        if let Some(added) = self.0.get_added_tokens_decoder().get(&id) {
            return if added.special { Vec::new() } else { added.content.clone().into_bytes() };
        }
        if self.0.token_to_id("Ġ").is_some() {
            return piece.chars().filter_map(byte_level).collect();
        }
        let byte = piece.strip_prefix("<0x").and_then(|hex| hex.strip_suffix('>'));
        match byte.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => vec![byte],
            None => piece.replace('▁', " ").into_bytes(),
        }
    }

    /// Why this tokenizer is not that one, in words; None if they give the same ids.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let (mine, theirs) = (self.0.get_vocab(true), other.0.get_vocab(true));
        if mine.len() != theirs.len() {
            return Some(format!("one has {} tokens, the other {}", mine.len(), theirs.len()));
        }
        let differs = mine
            .iter()
            .filter(|(piece, id)| theirs.get(*piece) != Some(*id))
            .min_by_key(|(_, id)| **id);
        differs.map(|(piece, id)| format!("token {id} is \"{piece}\" in one only"))
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

/// The byte that a character of byte-level BPE stands for: printable ones for themselves, the 68 others, in order, for
/// U+0100 and on.
fn byte_level(c: char) -> Option<u8> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match u8::try_from(c as u32) {
        Ok(byte) => printable(byte).then_some(byte),
        Err(_) => (0..=255).filter(|byte| !printable(*byte)).nth(c as usize - 0x100),
    }
}
