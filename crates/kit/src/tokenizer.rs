//! Text to ids and back: a wrapper around the `tokenizers` crate, with this course's errors.

use crate::error::{quoted, shown};
use crate::token_bytes::TokenBytes;
use crate::tokenizer_json::{self, Growth};
use candle_core::{bail, Error, Result};
use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};
use tokenizers::{AddedToken, DecoderWrapper, ModelWrapper};

/// A tokenizer read from a `tokenizer.json`.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// Tokens added by name, keyed by id. Cached, because the crate copies the whole table on every
    /// call.
    added: HashMap<u32, AddedToken>,
    /// The decoder's effect on a single token or, if that can't be determined, the reason.
    token_bytes: std::result::Result<TokenBytes, String>,
    /// The bytes of every token, once [`Tokenizer::pieces`] has been called.
    pieces: Mutex<Option<Arc<[Vec<u8>]>>>,
    /// The bound on how much the normalizer can lengthen a text.
    growth: Growth,
    /// Name for messages: the tokenizer's file.
    name: String,
}

/// Converts an error from the tokenizers crate, which may quote the file, into a candle error.
fn refused(error: impl std::fmt::Display) -> Error {
    Error::Msg(shown(error))
}

impl Tokenizer {
    /// Wraps a tokenizer from the crate, with truncation, padding and dropout turned off.
    pub fn new(mut inner: tokenizers::Tokenizer) -> Self {
        inner.with_padding(None);
        let _ = inner.with_truncation(None); // turning truncation off cannot fail
        if let ModelWrapper::BPE(bpe) = inner.get_model() {
            if bpe.dropout.is_some() {
                let mut bpe = bpe.clone();
                bpe.dropout = None;
                inner.with_model(bpe);
            }
        }
        let added = inner.get_added_tokens_decoder().into_iter().collect();
        let decoder = inner.get_decoder().map(serde_json::to_value);
        let decoder = decoder.and_then(std::result::Result::ok);
        let token_bytes = TokenBytes::of(decoder.as_ref());
        let name = "the tokenizer".to_string();
        let (pieces, growth) = (Mutex::default(), Growth::default());
        Self { inner, added, token_bytes, pieces, growth, name }
    }

    /// Parses a `tokenizer.json`. Its truncation, padding and dropout are training settings, so
    /// they are turned off, as transformers does with the first two in a call that doesn't ask for
    /// them.
    ///
    /// # Errors
    /// If the bytes are not a tokenizer, or are damaged.
    pub fn from_bytes(json: &[u8]) -> Result<Self> {
        // The crate's own `from_bytes` is generic, so calling it here would compile all of its
        // parsing code a second time. That would be a quarter of this crate.
        let damaged =
            |reason: String| Error::Msg(format!("not a tokenizer, or damaged: {}", shown(reason)));
        let text = std::str::from_utf8(json).map_err(|e| damaged(e.to_string()))?;
        let growth = tokenizer_json::check(text).map_err(damaged)?;
        let Ok(read) = catch_unwind(|| text.parse::<tokenizers::Tokenizer>()) else {
            return Err(damaged("its parts don't fit together; fetch it again".into()));
        };
        Ok(Self { growth, ..Self::new(read.map_err(|e| damaged(e.to_string()))?) })
    }

    /// Returns the same tokenizer with a name for messages: its file.
    pub fn called(self, name: impl std::fmt::Display) -> Self {
        Self { name: name.to_string(), ..self }
    }

    /// Runs code from the tokenizers crate, which panics if the parts of a tokenizer don't fit
    /// together.
    fn guarded<T>(&self, what: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
            let name = &self.name;
            Err(Error::Msg(format!(
                "{name}: damaged: it fails to {what} this text; fetch it again"
            )))
        })
    }

    /// Returns a tokenizer without tokens, where every id decodes to the empty text. For models
    /// that are used with ids only.
    pub fn empty() -> Self {
        Self::new(tokenizers::Tokenizer::new(tokenizers::models::bpe::BPE::default()))
    }

    /// Adds a token `<id>` for every unused id below `end`. This makes every choice visible if a
    /// model has more rows than its tokenizer has tokens.
    ///
    /// # Errors
    /// If the vocabulary already contains a token with one of these names.
    pub fn with_ids_below(self, end: usize) -> Result<Self> {
        let ids = self.vocab_size()..end;
        let end = end.max(ids.start);
        let named = ids.map(|id| AddedToken::from(format!("<{id}>"), false)).collect();
        let more = self.with_added(named)?;
        if more.vocab_size() != end {
            bail!("the tokenizer already has tokens named <7> or the like; ids cannot be added")
        }
        Ok(more)
    }

    /// Adds tokens by name. Tokens already in the vocabulary keep their ids; the others get the
    /// next free ones.
    ///
    /// # Errors
    /// If the crate rejects one of them.
    pub fn with_added(mut self, tokens: Vec<AddedToken>) -> Result<Self> {
        self.inner.add_tokens(tokens).map_err(refused)?;
        Ok(Self { growth: self.growth, name: self.name, ..Self::new(self.inner) })
    }

    /// Returns the tokens that were added by name, keyed by id.
    pub fn added(&self) -> &HashMap<u32, AddedToken> {
        &self.added
    }

    /// Checks that the model has a row for every token in the vocabulary. A model may have more
    /// rows than the tokenizer has tokens (many are padded to a multiple of 64). Tokens added by
    /// name may lie past the last row, because the model was never trained with them.
    ///
    /// # Errors
    /// If the vocabulary is larger than the model's.
    pub fn check_fits(&self, vocab_size: usize) -> Result<()> {
        let tokens = self.inner.get_vocab_size(false);
        if tokens > vocab_size {
            bail!(
                "the tokenizer has {tokens} tokens, and the model knows {vocab_size}; is the \
                    tokenizer of another model?"
            )
        }
        Ok(())
    }

    /// Encodes a text, including the special tokens that the tokenizer itself adds (BOS, for some
    /// models).
    ///
    /// # Errors
    /// If the tokenizer rejects the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.ids(text, true)
    }

    /// Encodes the output of a chat template. The template has already written all special tokens,
    /// so none are added.
    ///
    /// # Errors
    /// If the tokenizer rejects the text.
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>> {
        self.ids(text, false)
    }

    fn ids(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        self.growth.check(text).map_err(|e| Error::Msg(format!("{}: {e}", self.name)))?;
        self.guarded("encode", || {
            let encoding = self.inner.encode(text, special).map_err(refused)?;
            Ok(encoding.get_ids().to_vec())
        })
    }

    /// Returns true if text is split into words and merged from letters or bytes (BPE), and not
    /// into the likeliest pieces (Unigram) or the longest (WordPiece).
    pub fn is_bpe(&self) -> bool {
        matches!(self.inner.get_model(), ModelWrapper::BPE(_))
    }

    /// Returns true if tokens are bytes, each written as a printable character (GPT-2).
    pub fn is_byte_level(&self) -> bool {
        matches!(self.inner.get_decoder(), Some(DecoderWrapper::ByteLevel(_)))
    }

    /// Returns true if a space goes in front of a text that doesn't start with one.
    pub fn adds_prefix_space(&self) -> bool {
        let first = self.encode_rendered("a").ok().and_then(|ids| self.piece(*ids.first()?));
        first.is_some_and(|piece| piece.starts_with(['Ġ', '▁']))
    }

    /// Returns the maximum number of bytes of text that a token can cover, or `usize::MAX` if there
    /// is no such bound. Only byte-level BPE has one, because other tokenizers can drop white space
    /// or turn a whole word into a single unknown token.
    pub fn longest_token(&self) -> usize {
        if !self.is_byte_level() || self.added.values().any(|token| token.lstrip || token.rstrip) {
            return usize::MAX;
        }
        // A normalizer such as NFC composes characters, up to three into one.
        let composed = if self.inner.get_normalizer().is_some() { 3 } else { 1 };
        composed * self.inner.get_vocab(true).keys().map(String::len).max().unwrap_or(0)
    }

    /// Returns true for tokens added to the vocabulary by name, such as special tokens.
    pub fn is_added(&self, id: u32) -> bool {
        self.added.contains_key(&id)
    }

    /// Returns the id of the special token with exactly this text. Decoded text never contains
    /// special tokens.
    pub fn special_token(&self, text: &str) -> Option<u32> {
        let mut special = self.added.iter().filter(|(_, token)| token.special);
        special.find(|(_, token)| token.content == text).map(|(id, _)| *id)
    }

    /// Returns the longest special token that appears in `text`.
    pub fn special_token_in<'a>(&'a self, text: &str) -> Option<&'a str> {
        let special =
            self.added.values().filter(|token| token.special && !token.content.is_empty());
        let inside = special.filter(|token| text.contains(&token.content));
        inside.map(|token| token.content.as_str()).max_by_key(|content| (content.len(), *content))
    }

    /// Decodes ids to text. Special tokens are left out, and invalid UTF-8 becomes `U+FFFD`.
    ///
    /// # Errors
    /// If the tokenizer's decoder fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.guarded("decode", || self.inner.decode(ids, true).map_err(refused))
    }

    /// Returns a token as the vocabulary spells it (`Ġ` for a leading space in byte-level BPE).
    pub fn piece(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Returns the bytes that a token adds to a text, except at the start of the text. Empty for
    /// special tokens and for ids that don't exist.
    ///
    /// They are derived from the decoder: byte-level BPE writes each byte as one printable
    /// character; SentencePiece writes a space as `▁` and a lone byte as `<0x0A>`. If a token's
    /// text depends on its neighbors ([`Tokenizer::check_token_bytes`]), this returns the bytes of
    /// the token decoded alone.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        if self.added.get(&id).is_some_and(|added| added.special) {
            return Vec::new();
        }
        match (self.inner.id_to_token(id), &self.token_bytes) {
            (None, _) => Vec::new(),
            (Some(piece), Ok(rule)) => rule.bytes(&piece),
            (Some(_), Err(_)) => self.decode(&[id]).unwrap_or_default().into_bytes(),
        }
    }

    /// Returns the bytes of all ids below `vocab_size`. They are computed once and then shared,
    /// because a large vocabulary takes a tenth of a second.
    pub fn pieces(&self, vocab_size: usize) -> Arc<[Vec<u8>]> {
        let mut known = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some(pieces) if pieces.len() == vocab_size => pieces.clone(),
            _ => {
                let pieces = (0..vocab_size as u32).map(|id| self.token_bytes(id)).collect();
                known.insert(pieces).clone()
            }
        }
    }

    /// Checks that each token's bytes are independent of its neighbors. Otherwise a guard rail
    /// would read different text from what is printed.
    ///
    /// # Errors
    /// If they aren't independent. The message says why.
    pub fn check_token_bytes(&self) -> Result<()> {
        if let Err(reason) = &self.token_bytes {
            bail!(
                "--block and --allow-regex read the text token by token, which is not possible \
                    with this model's tokenizer: {reason}"
            )
        }
        Ok(())
    }

    /// Describes the first difference from another tokenizer. None if they produce the same ids.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let (mine, theirs) = (self.inner.get_vocab(true), other.inner.get_vocab(true));
        if mine.len() != theirs.len() {
            return Some(format!("one has {} tokens, the other {}", mine.len(), theirs.len()));
        }
        let differs = mine
            .iter()
            .filter(|(piece, id)| theirs.get(*piece) != Some(*id))
            .min_by_key(|(_, id)| **id);
        differs.map(|(piece, id)| format!("token {id} is {} in only one of them", quoted(piece)))
    }

    /// Returns a hash that two tokenizers share only if they have the same tokens and ids (FNV-1a,
    /// 64 bits, which catches mistakes but not forgeries).
    pub fn fingerprint(&self) -> u64 {
        let mut tokens: Vec<_> = self.inner.get_vocab(true).into_iter().collect();
        tokens.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
        let bytes = tokens.iter().flat_map(|(piece, id)| {
            id.to_le_bytes().into_iter().chain(piece.bytes()).chain([0xff]) // never in UTF-8
        });
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// Returns the number of ids, special ones included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Returns the library's own streaming decoder: a function that takes the next id and returns
    /// the text that is now certain. You write one on day 6, and its checker compares the two.
    pub fn decode_stream(&self) -> impl FnMut(u32) -> Result<String> + '_ {
        let mut stream = self.inner.decode_stream(true);
        move |id| {
            let text = self.guarded("decode", || stream.step(id).map_err(refused))?;
            Ok(text.unwrap_or_default())
        }
    }
}
