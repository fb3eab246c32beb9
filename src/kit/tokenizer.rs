//! Text to ids and back: the `tokenizers` crate, with the errors of this course.

use crate::kit::error::quoted;
use candle_core::{bail, Error, Result};
use std::collections::HashMap;
use std::ops::DerefMut;
use tokenizers::{AddedToken, Decoder, Normalizer, PostProcessor, PreTokenizer, TokenizerImpl};

/// A tokenizer, as a `tokenizer.json` describes it.
pub struct Tokenizer {
    inner: Box<dyn CrateTokenizer>,
    /// The tokens that were added by name, by id. The crate gives a copy of the whole table each time that it is asked.
    added: HashMap<u32, AddedToken>,
    /// True if the vocabulary spells bytes as printable characters, as GPT-2's does.
    byte_level: bool,
}

impl Tokenizer {
    /// Wraps a tokenizer of the crate.
    pub fn new(inner: impl CrateTokenizer + 'static) -> Self {
        Self::boxed(Box::new(inner))
    }

    fn boxed(inner: Box<dyn CrateTokenizer>) -> Self {
        let added = inner.added();
        let byte_level = inner.id("Ġ").is_some();
        Self { inner, added, byte_level }
    }

    /// Reads the bytes of a `tokenizer.json`.
    ///
    /// # Errors
    /// If they are not those of a tokenizer.
    pub fn from_bytes(json: &[u8]) -> Result<Self> {
        // Not the crate's `from_bytes`, which is generic: all the code that reads a tokenizer would be
        // compiled here once more, a quarter of this crate.
        let text = std::str::from_utf8(json).map_err(|e| format!("not a tokenizer: {e}"));
        let inner = text.map_err(Error::Msg)?.parse::<tokenizers::Tokenizer>();
        inner.map(Self::new).map_err(|e| Error::Msg(format!("not a tokenizer: {e}")))
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
        Ok(Self::boxed(self.inner))
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
        Ok(Self::boxed(self.inner))
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
        self.inner.ids(text, true)
    }

    /// The ids of a text that a chat template made: it has written all special tokens itself, so none are added.
    ///
    /// # Errors
    /// If the tokenizer refuses the text.
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>> {
        self.inner.ids(text, false)
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
        self.inner.text(ids)
    }

    /// The piece of one id as the vocabulary spells it (`Ġ` for a leading space in byte-level BPE).
    pub fn piece(&self, id: u32) -> Option<String> {
        self.inner.piece(id)
    }

    /// The bytes that a token adds to a text; none for special tokens and for ids that do not exist.
    ///
    /// Byte-level BPE writes each byte as one printable character (GPT-2's `bytes_to_unicode`); SentencePiece writes a space as
    /// `▁` and a lone byte as `<0x0A>`.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        let Some(piece) = self.inner.piece(id) else { return Vec::new() };
        if let Some(added) = self.added.get(&id) {
            return if added.special { Vec::new() } else { added.content.clone().into_bytes() };
        }
        if self.byte_level {
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

    /// Number of ids, special ones included.
    pub fn vocab_size(&self) -> usize {
        self.inner.size(true)
    }

    /// The library's own stream: a function that takes the next id and gives the text that is certain by now.
    /// Day 6 writes one; its checker compares the two.
    pub fn decode_stream(&self) -> impl FnMut(u32) -> Result<String> + '_ {
        self.inner.stream()
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
    /// Adds tokens by name.
    ///
    /// # Errors
    /// If the crate refuses them.
    fn add(&mut self, tokens: Vec<AddedToken>) -> Result<()>;
    /// Every token by name, those that were added too if `added`.
    fn vocab(&self, added: bool) -> HashMap<String, u32>;
    /// How many tokens that are.
    fn size(&self, added: bool) -> usize;
    /// The id of a token, as the vocabulary spells it.
    fn id(&self, piece: &str) -> Option<u32>;
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
    D: Decoder + 'static,
{
    fn added(&self) -> HashMap<u32, AddedToken> {
        self.get_added_tokens_decoder().into_iter().collect()
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

    fn id(&self, piece: &str) -> Option<u32> {
        self.token_to_id(piece)
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

/// The byte that a character of byte-level BPE stands for: printable ones for themselves, the 68 others, in order, for
/// U+0100 and on.
fn byte_level(c: char) -> Option<u8> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match u8::try_from(c as u32) {
        Ok(byte) => printable(byte).then_some(byte),
        Err(_) => (0..=255).filter(|byte| !printable(*byte)).nth(c as usize - 0x100),
    }
}
