//! Converts a GGUF file's metadata back to the `tokenizer.json` it was made from.
//!
//! The metadata only names the pre-tokenizer, which splits a text before any merging
//! (`tokenizer.ggml.pre`). The meaning of each name is written down only in llama.cpp's source
//! (`llama-vocab.cpp`) and, as JSON, in the models' own tokenizers.

use crate::gguf::gguf_file::Gguf;
use crate::gguf::{end_tokens, gguf_keys};
use anyhow::{anyhow, bail, ensure, Context as _, Result};
use candecode_kit::error::{quoted, shown};
use serde_json::{json, Value};
use std::collections::HashMap;
use tokenizers::models::bpe::{Merges, Vocab, BPE};
use tokenizers::{AddedToken, Tokenizer};

/// Like [`QWEN2`], but with digits in groups of up to three.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Words with the character before them, single digits, and runs of other characters by kind.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

// Token types (`llama_token_type`).
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
const UNUSED: u64 = 5;

/// SentencePiece itself limits pieces to 16 characters, and a vocabulary of 256,000 pieces needs 10
/// MB of merges. These limits are far higher, and keep a malicious vocabulary from exhausting
/// memory.
const LONGEST_PIECE: usize = 1 << 10;
const MOST_MERGE_BYTES: usize = 1 << 26;
const MOST_WORK: usize = 1 << 31;

/// Returns the tokenizer of the file's model.
///
/// # Errors
/// If the tokenizer is of an unknown kind, or is invalid. The message names the file and the key.
pub fn tokenizer(gguf: &Gguf) -> Result<Tokenizer> {
    built(gguf).with_context(|| format!("{}: the tokenizer", gguf.path.display()))
}

fn built(gguf: &Gguf) -> Result<Tokenizer> {
    let pieces = texts(gguf, "tokenizer.ggml.tokens")?;
    // llama.cpp names a token with an empty text like this.
    let named = |(id, piece): (usize, &&str)| match *piece {
        "" => format!("[EMPTY_{id}]"),
        piece => piece.to_string(),
    };
    let pieces: Vec<String> = pieces.iter().enumerate().map(named).collect();
    let mut ids = HashMap::new();
    for (id, piece) in pieces.iter().enumerate() {
        if let Some(first) = ids.insert(piece.as_str(), id) {
            let piece = quoted(piece);
            bail!("tokenizer.ggml.tokens has {piece} twice, as tokens {first} and {id}");
        }
    }
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    let kinds = numbers(gguf, "tokenizer.ggml.token_type", pieces.len())?;
    let mut kinds: Vec<u64> = match kinds {
        Some(kinds) => kinds.iter().map(|kind| *kind as u64).collect(),
        None => vec![1; pieces.len()],
    };
    for (kind, piece) in kinds.iter_mut().zip(&pieces) {
        if end_tokens::is_control(piece) {
            *kind = CONTROL;
        }
    }
    // Padding up to the embedding's row count, which the model's own tokenizer doesn't contain.
    let used = |id: &usize| {
        let kind = kinds.get(*id).copied().unwrap_or(1);
        !matches!(kind, UNUSED | USER_DEFINED) || pieces[*id] != format!("[PAD{id}]")
    };
    let ids = (0..pieces.len()).filter(used);
    let vocabulary: Vocab = ids.map(|id| (pieces[id].to_string(), id as u32)).collect();
    let mut tokenizer = match gguf.text("tokenizer.ggml.model") {
        Some("gpt2") => byte_level(gguf, vocabulary)?,
        Some("llama") => sentence_piece(gguf, vocabulary, &pieces)?,
        other => bail!(
            "tokenizer.ggml.model is {}; candecode has \"gpt2\" and \"llama\"",
            other.map_or("not there".into(), quoted)
        ),
    };
    let ids = (0..pieces.len().min(kinds.len())).filter(used);
    let added = ids.map(|id| (kinds[id], pieces[id])).filter_map(|(kind, piece)| match kind {
        UNKNOWN | CONTROL => Some(AddedToken::from(piece.to_string(), true)),
        USER_DEFINED => Some(AddedToken::from(piece.to_string(), false).normalized(false)),
        _ => None,
    });
    tokenizer.add_tokens(added.collect::<Vec<_>>()).map_err(|e| anyhow!("{e}"))?;
    Ok(tokenizer)
}

/// Builds a byte-level BPE tokenizer: GPT-2, Qwen, Llama 3, SmolLM.
fn byte_level(gguf: &Gguf, vocabulary: Vocab) -> Result<Tokenizer> {
    let pre =
        gguf.text("tokenizer.ggml.pre").or((gguf.architecture() == "gpt2").then_some("gpt-2"));
    let bytes = |regex: bool| {
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
            "use_regex": regex})
    };
    let split = |regex: &str| {
        json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false},
            bytes(false),
        ]})
    };
    let cut = match pre {
        Some("gpt-2") => bytes(true),
        Some("smollm") => json!({"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": true},
            bytes(true),
        ]}),
        Some("qwen2" | "deepseek-r1-qwen") => split(QWEN2),
        Some("llama-bpe" | "llama3" | "llama-v3") => split(LLAMA3),
        other => bail!(
            "tokenizer.ggml.pre is {}; candecode has \"gpt-2\", \"smollm\", \"qwen2\" \
                and \"llama-bpe\"",
            other.map_or("not there".into(), quoted)
        ),
    };
    let merges: Option<Merges> = texts(gguf, "tokenizer.ggml.merges")?
        .iter()
        .map(|merge| merge.split_once(' ').map(|(a, b)| (a.to_string(), b.to_string())))
        .collect();
    let merges = merges.context("tokenizer.ggml.merges has one without a space")?;
    let llama3 = matches!(pre, Some("llama-bpe" | "llama3" | "llama-v3"));
    let bpe = BPE::builder().vocab_and_merges(vocabulary, merges).ignore_merges(llama3).build();
    let mut parts = json!({"pre_tokenizer": cut, "decoder": bytes(true)});
    if matches!(pre, Some("qwen2" | "deepseek-r1-qwen")) {
        parts["normalizer"] = json!({"type": "NFC"});
    }
    let mut tokenizer = with_parts(&parts)?;
    tokenizer.with_model(bpe.map_err(|e| anyhow!("{}", shown(e)))?);
    frame(gguf, &mut tokenizer, llama3)?;
    Ok(tokenizer)
}

/// Builds a SentencePiece BPE tokenizer: Llama 1 and 2, TinyLlama. A space is `▁`, and text that no
/// piece covers is spelled in bytes.
fn sentence_piece(gguf: &Gguf, vocabulary: Vocab, pieces: &[&str]) -> Result<Tokenizer> {
    let scores = numbers(gguf, "tokenizer.ggml.scores", pieces.len())?;
    let scores = scores.context("no tokenizer.ggml.scores")?;
    let merges = merges(&vocabulary, pieces, &scores)?;
    let unknown = gguf.number("tokenizer.ggml.unknown_token_id").unwrap_or(0) as usize;
    let unknown = pieces.get(unknown).context("tokenizer.ggml.unknown_token_id is not a token")?;
    let bpe = BPE::builder()
        .vocab_and_merges(vocabulary, merges)
        .unk_token(unknown.to_string())
        .fuse_unk(true)
        .byte_fallback(true);
    let bpe = bpe.build().map_err(|e| anyhow!("{}", shown(e)))?;
    let space = |pattern: &str, content: &str| {
        let pattern = json!({"String": pattern});
        json!({"type": "Replace", "pattern": pattern, "content": content})
    };
    let prefix = gguf.flag("tokenizer.ggml.add_space_prefix").unwrap_or(true);
    let mut normalizers = vec![space(" ", "▁")];
    let mut decoders =
        vec![space("▁", " "), json!({"type": "ByteFallback"}), json!({"type": "Fuse"})];
    if prefix {
        normalizers.insert(0, json!({"type": "Prepend", "prepend": "▁"}));
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let mut tokenizer = with_parts(&json!({
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "decoder": {"type": "Sequence", "decoders": decoders},
    }))?;
    tokenizer.with_model(bpe);
    frame(gguf, &mut tokenizer, true)?;
    Ok(tokenizer)
}

/// Derives BPE's merge order from SentencePiece's scores: every split of a piece into two known
/// pieces, best score first (transformers' `generate_merges`).
///
/// # Errors
/// If a piece, or the list of merges, is longer than in any real vocabulary.
fn merges(vocabulary: &Vocab, pieces: &[&str], scores: &[f64]) -> Result<Merges> {
    let mut found: Vec<(f64, usize, usize, (&str, &str))> = Vec::new();
    let (mut bytes, mut work) = (0, 0);
    for (id, (piece, score)) in pieces.iter().zip(scores).enumerate() {
        ensure!(
            piece.len() <= LONGEST_PIECE,
            "token {id} of tokenizer.ggml.tokens has {} bytes, and no SentencePiece vocabulary \
                more than {LONGEST_PIECE}; is the file damaged?",
            piece.len()
        );
        let cuts = piece.char_indices().skip(1).map(|(at, _)| piece.split_at(at));
        let known = |(a, b): &(&str, &str)| Some((*vocabulary.get(*a)?, *vocabulary.get(*b)?));
        let mut cuts: Vec<_> = cuts.filter_map(|cut| Some((known(&cut)?, cut))).collect();
        bytes += cuts.len() * piece.len();
        work += piece.len() * piece.len(); // every split is looked up
        ensure!(
            bytes <= MOST_MERGE_BYTES && work <= MOST_WORK,
            "tokenizer.ggml.tokens has more ways to put its pieces together than any vocabulary; \
                is the file damaged?"
        );
        cuts.sort();
        found.extend(
            cuts.into_iter()
                .map(|(_, (a, b))| (*score, a.chars().count(), b.chars().count(), (a, b))),
        );
    }
    found.sort_by(|x, y| y.0.total_cmp(&x.0).then(y.1.cmp(&x.1)).then(y.2.cmp(&x.2)));
    Ok(found.into_iter().map(|(.., (a, b))| (a.to_string(), b.to_string())).collect())
}

/// Adds the BOS token before every text and the EOS token after it, if the metadata asks for them.
fn frame(gguf: &Gguf, tokenizer: &mut Tokenizer, begins: bool) -> Result<()> {
    let token = |name: &str, added: bool| -> Result<Option<(u64, String)>> {
        if !added {
            return Ok(None);
        }
        let key = format!("tokenizer.ggml.{name}_token_id");
        let id = gguf.number(&key).with_context(|| format!("no {key}"))?;
        let piece = u32::try_from(id).ok().and_then(|id| tokenizer.id_to_token(id));
        piece.map(|piece| Some((id, piece))).with_context(|| format!("{key} {id} is not a token"))
    };
    let begin = token("bos", gguf.flag("tokenizer.ggml.add_bos_token").unwrap_or(begins))?;
    let end = token("eos", gguf.flag("tokenizer.ggml.add_eos_token").unwrap_or(false))?;
    if begin.is_none() && end.is_none() {
        return Ok(());
    }
    let special = |(_, piece): &(u64, String)| json!({"SpecialToken": {"id": piece, "type_id": 0}});
    let text = |name: &str| json!({"Sequence": {"id": name, "type_id": 0}});
    let framed = |name: &str| -> Vec<Value> {
        let parts = [begin.as_ref().map(special), Some(text(name)), end.as_ref().map(special)];
        parts.into_iter().flatten().collect()
    };
    let known = |(id, piece): &(u64, String)| {
        (piece.clone(), json!({"id": piece, "ids": [id], "tokens": [piece]}))
    };
    let known: serde_json::Map<_, _> = begin.iter().chain(&end).map(known).collect();
    let pair = [framed("A"), framed("B")].concat();
    let processor = json!({
        "type": "TemplateProcessing",
        "single": framed("A"),
        "pair": pair,
        "special_tokens": known,
    });
    let parts = with_parts(&json!({"post_processor": processor}))?;
    tokenizer.with_post_processor(parts.get_post_processor().cloned());
    Ok(())
}

/// Builds a tokenizer without a vocabulary from these parts, in `tokenizer.json` form.
///
/// `Tokenizer::from_str` parses them all at once. Parsing each part separately would compile
/// serde's code for all of them a second time here, which is a tenth of this crate.
fn with_parts(parts: &Value) -> Result<Tokenizer> {
    let part = |name: &str| parts.get(name).unwrap_or(&Value::Null);
    let whole = json!({
        "version": "1.0",
        "added_tokens": [],
        "normalizer": part("normalizer"),
        "pre_tokenizer": part("pre_tokenizer"),
        "post_processor": part("post_processor"),
        "decoder": part("decoder"),
        "model": {"type": "BPE", "vocab": {}, "merges": []},
    });
    whole.to_string().parse::<Tokenizer>().map_err(|e| anyhow!("a part of the tokenizer: {e}"))
}

/// Returns a list with one number per token, or None if the key is missing.
fn numbers(gguf: &Gguf, key: &str, tokens: usize) -> Result<Option<Vec<f64>>> {
    let Some(list) = gguf.list(key) else {
        ensure!(!gguf.content.metadata.contains_key(key), "{key} is not a list of numbers");
        return Ok(None);
    };
    ensure!(
        list.len() >= tokens,
        "{key} has {} entries for {tokens} tokens; is the file damaged?",
        list.len()
    );
    let numbers = list.iter().take(tokens).map(gguf_keys::number);
    let numbers = numbers.collect::<Option<_>>();
    numbers.map(Some).with_context(|| format!("{key} is not a list of numbers"))
}

fn texts<'a>(gguf: &'a Gguf, key: &str) -> Result<Vec<&'a str>> {
    let list = gguf.list(key).with_context(|| format!("no {key}"))?;
    let texts = list.iter().map(|text| text.to_string().ok().map(String::as_str));
    texts.collect::<Option<_>>().with_context(|| format!("{key} is not a list of texts"))
}
