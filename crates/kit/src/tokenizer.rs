//! Text to ids and back: the `tokenizers` crate, with the errors of this course.

use crate::error::quoted;
use crate::token_bytes::TokenBytes;
use crate::tokenizer_json::{self, Growth};
use candle_core::{bail, Error, Result};
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::ops::DerefMut;
use std::panic::{catch_unwind, AssertUnwindSafe};
use tokenizers::{AddedToken, Decoder, Normalizer, PostProcessor, PreTokenizer, TokenizerImpl};

/// A tokenizer, as a `tokenizer.json` describes it.
pub struct Tokenizer {
    inner: Box<dyn CrateTokenizer>,
    /// The tokens that were added by name, by id. The crate gives a copy of the whole table each time that it is asked.
    added: HashMap<u32, AddedToken>,
    /// What the decoder makes of a token by itself; or, in words, why that isn't known.
    token_bytes: std::result::Result<TokenBytes, String>,
    /// How long its normalizer can make a text.
    growth: Growth,
    /// What messages call it: its file.
    name: String,
}

impl Tokenizer {
    /// Wraps a tokenizer of the crate.
    pub fn new(inner: impl CrateTokenizer + 'static) -> Self {
        Self::boxed(Box::new(inner))
    }

    fn boxed(mut inner: Box<dyn CrateTokenizer>) -> Self {
        inner.take_text_whole();
        let added = inner.added();
        let token_bytes = TokenBytes::of(inner.decoder().as_ref());
        let name = "the tokenizer".to_string();
        Self { inner, added, token_bytes, growth: Growth::default(), name }
    }

    /// Reads the bytes of a `tokenizer.json`. What it says of truncation and padding was true where it was
    /// trained: both are switched off, as transformers does for a call that doesn't ask for them.
    ///
    /// # Errors
    /// If they are not those of a tokenizer, or are damaged.
    pub fn from_bytes(json: &[u8]) -> Result<Self> {
        // Not the crate's `from_bytes`, which is generic: all the code that reads a tokenizer would be
        // compiled here once more, a quarter of this crate.
        let refused = |reason: String| Error::Msg(format!("not a tokenizer, or damaged: {reason}"));
        let text = std::str::from_utf8(json).map_err(|e| refused(e.to_string()))?;
        let growth = tokenizer_json::check(text).map_err(refused)?;
        let Ok(read) = catch_unwind(|| text.parse::<tokenizers::Tokenizer>()) else {
            return Err(refused("its parts don't fit together; fetch it again".into()));
        };
        let inner = read.map_err(|e| refused(e.to_string()))?;
        Ok(Self { growth, ..Self::new(inner) })
    }

    /// The same tokenizer, with the name that messages call it: its file.
    pub fn called(self, name: impl std::fmt::Display) -> Self {
        Self { name: name.to_string(), ..self }
    }

    /// Runs code of the tokenizers' crate, which panics where parts of a tokenizer don't fit together.
    fn guarded<T>(&self, what: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
            let name = &self.name;
            Err(Error::Msg(format!(
                "{name}: damaged: it fails to {what} this text; fetch it again"
            )))
        })
    }

    /// A tokenizer of no tokens: every id has the empty text. It serves a model that is given ids and asked for ids.
    pub fn empty() -> Self {
        Self::new(tokenizers::Tokenizer::new(tokenizers::models::bpe::BPE::default()))
    }

    /// The same tokenizer, with a token `<id>` for every id below `end` that it has none for: a model that
    /// has more rows than its tokenizer has tokens can then show what it chose.
    ///
    /// # Errors
    /// If a token is in its vocabulary already, under that very name.
    pub fn with_ids_below(mut self, end: usize) -> Result<Self> {
        let first = self.inner.size(true);
        let tokens: Vec<AddedToken> =
            (first..end).map(|id| AddedToken::from(format!("<{id}>"), false)).collect();
        self.inner.add(tokens)?;
        if self.inner.size(true) != end.max(first) {
            bail!("the tokenizer has tokens that are named as ids: they cannot be added")
        }
        Ok(Self { growth: self.growth, name: self.name, ..Self::boxed(self.inner) })
    }

    /// The same tokenizer, with these tokens added by name. One that the vocabulary has keeps its id, and the others get the next
    /// free ids.
    ///
    /// # Errors
    /// If the crate refuses one of them.
    pub fn with_added(mut self, tokens: Vec<AddedToken>) -> Result<Self> {
        if tokens.is_empty() {
            return Ok(self);
        }
        self.inner.add(tokens)?;
        Ok(Self { growth: self.growth, name: self.name, ..Self::boxed(self.inner) })
    }

    /// The tokens that were added by name, by id.
    pub fn added(&self) -> &HashMap<u32, AddedToken> {
        &self.added
    }

    /// Sees that a model can have all tokens of the vocabulary. A model may have more rows than the tokenizer has tokens
    /// (many are padded to a multiple of 64), and tokens that were added by name may lie behind the last row: nobody was
    /// trained with them.
    ///
    /// # Errors
    /// If the vocabulary is larger than the model's.
    pub fn check_fits(&self, vocab_size: usize) -> Result<()> {
        let tokens = self.inner.size(false);
        if tokens > vocab_size {
            bail!(
                "the tokenizer has {tokens} tokens, and the model knows {vocab_size}; is the tokenizer of another model?"
            )
        }
        Ok(())
    }

    /// The ids of a text, with the special tokens that the tokenizer itself adds (BOS, for some models).
    ///
    /// # Errors
    /// If the tokenizer refuses the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.ids(text, true)
    }

    /// The ids of a text that a chat template made: it has written all special tokens itself, so none are added.
    ///
    /// # Errors
    /// If the tokenizer refuses the text.
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>> {
        self.ids(text, false)
    }

    fn ids(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        self.growth.check(text).map_err(|e| Error::Msg(format!("{}: {e}", self.name)))?;
        self.guarded("encode", || self.inner.ids(text, special))
    }

    /// The bytes of the longest token of the vocabulary, as it spells it: no token covers more of a text.
    pub fn longest_token(&self) -> usize {
        self.inner.vocab(true).keys().map(String::len).max().unwrap_or(0)
    }

    /// True for a token that was added to the vocabulary by name, as special ones are.
    pub fn is_added(&self, id: u32) -> bool {
        self.added.contains_key(&id)
    }

    /// The id of the special token with this very text. Special tokens are never part of a decoded text.
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
        self.guarded("decode", || self.inner.text(ids))
    }

    /// The piece of one id as the vocabulary spells it (`Ġ` for a leading space in byte-level BPE).
    pub fn piece(&self, id: u32) -> Option<String> {
        self.inner.piece(id)
    }

    /// The bytes that a token adds to a text, anywhere but at the text's beginning; none for special tokens
    /// and for ids that do not exist.
    ///
    /// They are read off the decoder: byte-level BPE writes each byte as one printable character;
    /// SentencePiece writes a space as `▁` and a lone byte as `<0x0A>`. Where a token's text depends on the
    /// tokens around it ([`Tokenizer::check_token_bytes`]), these are the bytes of a text of this token alone.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        if self.added.get(&id).is_some_and(|added| added.special) {
            return Vec::new();
        }
        match (self.inner.piece(id), &self.token_bytes) {
            (None, _) => Vec::new(),
            (Some(piece), Ok(rule)) => rule.bytes(&piece),
            (Some(_), Err(_)) => self.decode(&[id]).unwrap_or_default().into_bytes(),
        }
    }

    /// Sees that the bytes of a token are known without its neighbours: what a guard rail reads must be
    /// what the text has.
    ///
    /// # Errors
    /// If they are not: the message says why.
    pub fn check_token_bytes(&self) -> Result<()> {
        if let Err(reason) = &self.token_bytes {
            bail!(
                "--block and --allow-regex read a text token by token, and that is not possible with this model's tokenizer: {reason}"
            )
        }
        Ok(())
    }

    /// Why this tokenizer is not that one, in words; None if they give the same ids.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let (mine, theirs) = (self.inner.vocab(true), other.inner.vocab(true));
        if mine.len() != theirs.len() {
            return Some(format!("one has {} tokens, the other {}", mine.len(), theirs.len()));
        }
        let differs = mine
            .iter()
            .filter(|(piece, id)| theirs.get(*piece) != Some(*id))
            .min_by_key(|(_, id)| **id);
        differs.map(|(piece, id)| format!("token {id} is {} in one only", quoted(piece)))
    }

    /// A number that two tokenizers share only if they share all tokens and ids (FNV-1a, 64 bits: it
    /// finds mistakes, not forgeries).
    pub fn fingerprint(&self) -> u64 {
        let mut tokens: Vec<_> = self.inner.vocab(true).into_iter().collect();
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
        self.inner.size(true)
    }

    /// The library's own stream: a function that takes the next id and gives the text that is certain by now.
    /// Day 6 writes one; its checker compares the two.
    pub fn decode_stream(&self) -> impl FnMut(u32) -> Result<String> + '_ {
        let mut stream = self.inner.stream();
        move |id| self.guarded("decode", || stream(id))
    }
}

/// What the course asks of a tokenizer of the crate, whichever parts it's made of.
///
/// The crate's own type can be of every kind there is, and with it come all kinds, and tables of
/// Unicode. A page of the book names the parts of its one tokenizer, and loads no others: that saves
/// it some 50 kB, gzipped.
pub trait CrateTokenizer: Send + Sync {
    /// The tokens that were added by name.
    fn added(&self) -> HashMap<u32, AddedToken>;
    /// Switches off what a file says of truncation and padding.
    fn take_text_whole(&mut self);
    /// The decoder, as a `tokenizer.json` says it.
    fn decoder(&self) -> Option<Value>;
    /// Adds tokens by name.
    ///
    /// # Errors
    /// If the crate refuses them.
    fn add(&mut self, tokens: Vec<AddedToken>) -> Result<()>;
    /// Every token by name, those that were added too if `added`.
    fn vocab(&self, added: bool) -> HashMap<String, u32>;
    /// How many tokens that are.
    fn size(&self, added: bool) -> usize;
    /// The ids of a text.
    ///
    /// # Errors
    /// If the tokenizer refuses it.
    fn ids(&self, text: &str, special: bool) -> Result<Vec<u32>>;
    /// The text of ids, without special tokens.
    ///
    /// # Errors
    /// If the decoder fails.
    fn text(&self, ids: &[u32]) -> Result<String>;
    /// How the vocabulary spells a token.
    fn piece(&self, id: u32) -> Option<String>;
    /// The crate's own stream of text.
    fn stream(&self) -> Box<dyn FnMut(u32) -> Result<String> + '_>;
}

impl<T, M, N, PT, PP, D> CrateTokenizer for T
where
    T: DerefMut<Target = TokenizerImpl<M, N, PT, PP, D>> + Send + Sync,
    M: tokenizers::Model + 'static,
    N: Normalizer + 'static,
    PT: PreTokenizer + 'static,
    PP: PostProcessor + 'static,
    D: Decoder + Serialize + 'static,
{
    fn added(&self) -> HashMap<u32, AddedToken> {
        self.get_added_tokens_decoder().into_iter().collect()
    }

    fn take_text_whole(&mut self) {
        self.with_padding(None);
        // Only a truncation that is asked for can be refused.
        let _ = self.with_truncation(None);
    }

    fn decoder(&self) -> Option<Value> {
        self.get_decoder().map(|decoder| serde_json::to_value(decoder).unwrap_or_default())
    }

    fn add(&mut self, tokens: Vec<AddedToken>) -> Result<()> {
        self.add_tokens(tokens).map(|_| ()).map_err(|e| Error::Msg(e.to_string()))
    }

    fn vocab(&self, added: bool) -> HashMap<String, u32> {
        self.get_vocab(added)
    }

    fn size(&self, added: bool) -> usize {
        self.get_vocab_size(added)
    }

    fn ids(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let encoding = self.encode(text, special).map_err(|e| Error::Msg(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    fn text(&self, ids: &[u32]) -> Result<String> {
        self.decode(ids, true).map_err(|e| Error::Msg(e.to_string()))
    }

    fn piece(&self, id: u32) -> Option<String> {
        self.id_to_token(id)
    }

    fn stream(&self) -> Box<dyn FnMut(u32) -> Result<String> + '_> {
        let mut stream = self.decode_stream(true);
        Box::new(move |id| {
            let text = stream.step(id).map_err(|e| Error::Msg(e.to_string()))?;
            Ok(text.unwrap_or_default())
        })
    }
}
