//! Text to ids and back: the `tokenizers` crate, with the errors of this course.

use crate::error::quoted;
use crate::token_bytes::TokenBytes;
use crate::tokenizer_json::{self, Growth};
use candle_core::{bail, Error, Result};
use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use tokenizers::AddedToken;

/// A tokenizer, as a `tokenizer.json` describes it.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The tokens that were added by name, by id. The crate copies the whole table at each call.
    added: HashMap<u32, AddedToken>,
    /// What the decoder turns a token into by itself; or, in words, why that isn't known.
    token_bytes: std::result::Result<TokenBytes, String>,
    /// How long its normalizer can make a text.
    growth: Growth,
    /// Its name in messages: its file.
    name: String,
}

/// An error of the tokenizers' crate as one of candle's.
fn refused(error: impl std::fmt::Display) -> Error {
    Error::Msg(error.to_string())
}

impl Tokenizer {
    /// Wraps a tokenizer of the crate. Truncation and padding are switched off.
    pub fn new(mut inner: tokenizers::Tokenizer) -> Self {
        inner.with_padding(None);
        let _ = inner.with_truncation(None); // only a truncation that is asked for can be refused
        let added = inner.get_added_tokens_decoder().into_iter().collect();
        let decoder = inner.get_decoder().map(serde_json::to_value);
        let decoder = decoder.and_then(std::result::Result::ok);
        let token_bytes = TokenBytes::of(decoder.as_ref());
        let name = "the tokenizer".to_string();
        Self { inner, added, token_bytes, growth: Growth::default(), name }
    }

    /// Reads the bytes of a `tokenizer.json`. What it says of truncation and padding was true where
    /// it was trained: both are switched off, as transformers does for a call that doesn't ask for
    /// them.
    ///
    /// # Errors
    /// If the bytes are not those of a tokenizer, or are damaged.
    pub fn from_bytes(json: &[u8]) -> Result<Self> {
        // Not the crate's `from_bytes`, which is generic: all the code that reads a tokenizer would
        // be compiled here once more, a quarter of this crate.
        let damaged = |reason: String| refused(format!("not a tokenizer, or damaged: {reason}"));
        let text = std::str::from_utf8(json).map_err(|e| damaged(e.to_string()))?;
        let growth = tokenizer_json::check(text).map_err(damaged)?;
        let Ok(read) = catch_unwind(|| text.parse::<tokenizers::Tokenizer>()) else {
            return Err(damaged("its parts don't fit together; fetch it again".into()));
        };
        Ok(Self { growth, ..Self::new(read.map_err(|e| damaged(e.to_string()))?) })
    }

    /// The same tokenizer, with the name that messages call it: its file.
    pub fn called(self, name: impl std::fmt::Display) -> Self {
        Self { name: name.to_string(), ..self }
    }

    /// Runs code of the tokenizers' crate, which panics where parts of a tokenizer don't fit
    /// together.
    fn guarded<T>(&self, what: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
            let name = &self.name;
            Err(Error::Msg(format!(
                "{name}: damaged: it fails to {what} this text; fetch it again"
            )))
        })
    }

    /// A tokenizer of no tokens: every id has the empty text. It serves a model that is given ids
    /// and asked for ids.
    pub fn empty() -> Self {
        Self::new(tokenizers::Tokenizer::new(tokenizers::models::bpe::BPE::default()))
    }

    /// Adds a token `<id>` for every id below `end` that has none: a model that has more rows than
    /// its tokenizer has tokens can then show what it chose.
    ///
    /// # Errors
    /// If a token is in its vocabulary already, under that very name.
    pub fn with_ids_below(self, end: usize) -> Result<Self> {
        let ids = self.vocab_size()..end;
        let end = end.max(ids.start);
        let named = ids.map(|id| AddedToken::from(format!("<{id}>"), false)).collect();
        let more = self.with_added(named)?;
        if more.vocab_size() != end {
            bail!("the tokenizer has tokens that are named as ids: they cannot be added")
        }
        Ok(more)
    }

    /// Adds tokens by name. One that the vocabulary has keeps its id, and the others get the next
    /// free ids.
    ///
    /// # Errors
    /// If the crate refuses one of them.
    pub fn with_added(mut self, tokens: Vec<AddedToken>) -> Result<Self> {
        self.inner.add_tokens(tokens).map_err(refused)?;
        Ok(Self { growth: self.growth, name: self.name, ..Self::new(self.inner) })
    }

    /// The tokens that were added by name, by id.
    pub fn added(&self) -> &HashMap<u32, AddedToken> {
        &self.added
    }

    /// Sees that a model can have all tokens of the vocabulary. A model may have more rows than the
    /// tokenizer has tokens (many are padded to a multiple of 64), and tokens that were added by
    /// name may lie behind the last row: nobody was trained with them.
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

    /// The ids of a text, with the special tokens that the tokenizer itself adds (BOS, for some
    /// models).
    ///
    /// # Errors
    /// If the tokenizer refuses the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.ids(text, true)
    }

    /// The ids of a text that a chat template made: it has written all special tokens itself, so
    /// none are added.
    ///
    /// # Errors
    /// If the tokenizer refuses the text.
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>> {
        self.ids(text, false)
    }

    fn ids(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        self.growth.check(text).map_err(|e| refused(format!("{}: {e}", self.name)))?;
        self.guarded("encode", || {
            let encoding = self.inner.encode(text, special).map_err(refused)?;
            Ok(encoding.get_ids().to_vec())
        })
    }

    /// The bytes of the longest token of the vocabulary, as it spells it: no token covers more of a
    /// text.
    pub fn longest_token(&self) -> usize {
        self.inner.get_vocab(true).keys().map(String::len).max().unwrap_or(0)
    }

    /// True for a token that was added to the vocabulary by name, as special ones are.
    pub fn is_added(&self, id: u32) -> bool {
        self.added.contains_key(&id)
    }

    /// The id of the special token with this very text. Special tokens are never part of a decoded
    /// text.
    pub fn special_token(&self, text: &str) -> Option<u32> {
        let mut special = self.added.iter().filter(|(_, token)| token.special);
        special.find(|(_, token)| token.content == text).map(|(id, _)| *id)
    }

    /// The longest special token whose text is part of `text`.
    pub fn special_token_in<'a>(&'a self, text: &str) -> Option<&'a str> {
        let special =
            self.added.values().filter(|token| token.special && !token.content.is_empty());
        let inside = special.filter(|token| text.contains(&token.content));
        inside.map(|token| token.content.as_str()).max_by_key(|content| (content.len(), *content))
    }

    /// The text of ids. Special tokens are left out; bytes that are not UTF-8 become `U+FFFD`.
    ///
    /// # Errors
    /// If the decoder of the tokenizer fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.guarded("decode", || self.inner.decode(ids, true).map_err(refused))
    }

    /// The piece of one id as the vocabulary spells it (`Ġ` for a leading space in byte-level BPE).
    pub fn piece(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The bytes that a token adds to a text, anywhere but at the text's beginning; none for
    /// special tokens and for ids that do not exist.
    ///
    /// They are read off the decoder: byte-level BPE writes each byte as one printable character;
    /// SentencePiece writes a space as `▁` and a lone byte as `<0x0A>`. Where a token's text
    /// depends on the tokens around it ([`Tokenizer::check_token_bytes`]), these are the bytes of a
    /// text of this token alone.
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

    /// Sees that the bytes of a token are known without its neighbours: what a guard rail reads
    /// must be what the text has.
    ///
    /// # Errors
    /// If they are not: the message says why.
    pub fn check_token_bytes(&self) -> Result<()> {
        if let Err(reason) = &self.token_bytes {
            bail!(
                "--block and --allow-regex read a text token by token, and that is not possible \
                    with this model's tokenizer: {reason}"
            )
        }
        Ok(())
    }

    /// Why this tokenizer is not that one, in words; None if they give the same ids.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let (mine, theirs) = (self.inner.get_vocab(true), other.inner.get_vocab(true));
        if mine.len() != theirs.len() {
            return Some(format!("one has {} tokens, the other {}", mine.len(), theirs.len()));
        }
        let differs = mine
            .iter()
            .filter(|(piece, id)| theirs.get(*piece) != Some(*id))
            .min_by_key(|(_, id)| **id);
        differs.map(|(piece, id)| format!("token {id} is {} in one only", quoted(piece)))
    }

    /// A number that two tokenizers share only if they share all tokens and ids (FNV-1a, 64 bits:
    /// it finds mistakes, not forgeries).
    pub fn fingerprint(&self) -> u64 {
        let mut tokens: Vec<_> = self.inner.get_vocab(true).into_iter().collect();
        tokens.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
        let bytes = tokens.iter().flat_map(|(piece, id)| {
            id.to_le_bytes().into_iter().chain(piece.bytes()).chain([0xff]) // not a byte of UTF-8
        });
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// Number of ids, special ones included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The library's own stream: a function that takes the next id and gives the text that is
    /// certain by now. Day 6 writes one; its checker compares the two.
    pub fn decode_stream(&self) -> impl FnMut(u32) -> Result<String> + '_ {
        let mut stream = self.inner.decode_stream(true);
        move |id| {
            let text = self.guarded("decode", || stream.step(id).map_err(refused))?;
            Ok(text.unwrap_or_default())
        }
    }
}
