//! The tokenizer in a GGUF file's metadata, as the `tokenizer.json` that it was made from.
//!
//! The metadata names how a text is cut before any merging (`tokenizer.ggml.pre`); what each name means is written down only in
//! llama.cpp's source (`llama-vocab.cpp`), and, as JSON, in the models' own tokenizers.

use crate::formats::gguf::Gguf;
use anyhow::{anyhow, bail, Context as _, Result};
use serde_json::{json, Value};
use tokenizers::models::bpe::{Merges, Vocab, BPE};
use tokenizers::{AddedToken, Tokenizer};

/// As [`QWEN2`], but digits are taken three by three.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Words with what stands before them, digits one by one, the rest by kind.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

// Kinds of tokens (`llama_token_type`).
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
const UNUSED: u64 = 5;

/// The tokenizer of the file's model.
///
/// # Errors
/// If it is of an unknown kind, or makes no sense: the file and the key are named.
pub fn tokenizer(gguf: &Gguf) -> Result<Tokenizer> {
    built(gguf).with_context(|| format!("{}: the tokenizer", gguf.path.display()))
}

fn built(gguf: &Gguf) -> Result<Tokenizer> {
    let pieces = texts(gguf, "tokenizer.ggml.tokens")?;
    let kinds: Vec<u64> = match gguf.list("tokenizer.ggml.token_type") {
        Some(kinds) => kinds.iter().map(|kind| kind.to_i32().unwrap_or(1) as u64).collect(),
        None => vec![1; pieces.len()],
    };
    // Padding up to the rows of the embedding: the model's own tokenizer does not know it.
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
            other.map_or("not there".into(), |other| format!("\"{other}\""))
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

/// Byte-level BPE: GPT-2, Qwen, Llama 3, SmolLM.
fn byte_level(gguf: &Gguf, vocabulary: Vocab) -> Result<Tokenizer> {
    let pre =
        gguf.text("tokenizer.ggml.pre").or((gguf.architecture() == "gpt2").then_some("gpt-2"));
    let bytes = |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex});
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
            "tokenizer.ggml.pre is {}; candecode has \"gpt-2\", \"smollm\", \"qwen2\" and \"llama-bpe\"",
            other.map_or("not there".into(), |other| format!("\"{other}\""))
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
    tokenizer.with_model(bpe.map_err(|e| anyhow!("{e}"))?);
    let begin = gguf.flag("tokenizer.ggml.add_bos_token").unwrap_or(llama3);
    bos(gguf, &mut tokenizer, begin)?;
    Ok(tokenizer)
}

/// SentencePiece's BPE: Llama 1 and 2, TinyLlama. A space is `▁`, and what no piece spells is spelled in bytes.
fn sentence_piece(gguf: &Gguf, vocabulary: Vocab, pieces: &[&str]) -> Result<Tokenizer> {
    let scores = gguf.list("tokenizer.ggml.scores").context("no tokenizer.ggml.scores")?;
    let scores: Vec<f32> = scores.iter().map(|score| score.to_f32().unwrap_or(0.0)).collect();
    let merges = merges(&vocabulary, pieces, &scores);
    let unknown = gguf.number("tokenizer.ggml.unknown_token_id").unwrap_or(0) as usize;
    let unknown = pieces.get(unknown).context("tokenizer.ggml.unknown_token_id is no token")?;
    let bpe = BPE::builder()
        .vocab_and_merges(vocabulary, merges)
        .unk_token(unknown.to_string())
        .fuse_unk(true)
        .byte_fallback(true);
    let bpe = bpe.build().map_err(|e| anyhow!("{e}"))?;
    let space = |pattern: &str, content: &str| json!({"type": "Replace", "pattern": {"String": pattern}, "content": content});
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
    let begin = gguf.flag("tokenizer.ggml.add_bos_token").unwrap_or(true);
    bos(gguf, &mut tokenizer, begin)?;
    Ok(tokenizer)
}

/// SentencePiece knows scores, BPE an order of merges: every way to cut a piece in two known ones, best score first
/// (transformers' `generate_merges`).
fn merges(vocabulary: &Vocab, pieces: &[&str], scores: &[f32]) -> Merges {
    let mut found: Vec<(f32, usize, usize, Merges)> = Vec::new();
    for (piece, score) in pieces.iter().zip(scores) {
        let cuts = piece.char_indices().skip(1).map(|(at, _)| piece.split_at(at));
        let known = |(a, b): &(&str, &str)| Some((*vocabulary.get(*a)?, *vocabulary.get(*b)?));
        let mut cuts: Vec<_> = cuts.filter_map(|cut| Some((known(&cut)?, cut))).collect();
        cuts.sort();
        found.extend(cuts.into_iter().map(|(_, (a, b))| {
            let merge = vec![(a.to_string(), b.to_string())];
            (*score, a.chars().count(), b.chars().count(), merge)
        }));
    }
    found.sort_by(|x, y| y.0.total_cmp(&x.0).then(y.1.cmp(&x.1)).then(y.2.cmp(&x.2)));
    found.into_iter().flat_map(|(.., merge)| merge).collect()
}

/// Puts the token that begins a text before every text, if the model was trained so.
fn bos(gguf: &Gguf, tokenizer: &mut Tokenizer, begin: bool) -> Result<()> {
    if !begin {
        return Ok(());
    }
    let id =
        gguf.number("tokenizer.ggml.bos_token_id").context("no tokenizer.ggml.bos_token_id")?;
    let piece = u32::try_from(id).ok().and_then(|id| tokenizer.id_to_token(id));
    let piece = piece.with_context(|| format!("tokenizer.ggml.bos_token_id {id} is no token"))?;
    let first = json!({"SpecialToken": {"id": piece, "type_id": 0}});
    let text = |name: &str| json!({"Sequence": {"id": name, "type_id": 0}});
    let processor = json!({
        "type": "TemplateProcessing",
        "single": [first, text("A")],
        "pair": [first, text("A"), first, text("B")],
        "special_tokens": {piece.clone(): {"id": piece, "ids": [id], "tokens": [piece]}},
    });
    let parts = with_parts(&json!({"post_processor": processor}))?;
    tokenizer.with_post_processor(parts.get_post_processor().cloned());
    Ok(())
}

/// A tokenizer without a vocabulary, with these parts, as a `tokenizer.json` says them.
///
/// `Tokenizer::from_str` reads them all at once. To read each part by itself would have serde's code
/// for all of them compiled once more here, a tenth of this crate.
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

fn texts<'a>(gguf: &'a Gguf, key: &str) -> Result<Vec<&'a str>> {
    let list = gguf.list(key).with_context(|| format!("no {key}"))?;
    let texts = list.iter().map(|text| text.to_string().ok().map(String::as_str));
    texts.collect::<Option<_>>().with_context(|| format!("{key} is not a list of texts"))
}
