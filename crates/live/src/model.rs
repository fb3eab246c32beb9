//! The model that the figures ask: one, opened once.

use candecode::day05_model::Transformer;
use candecode::engine::Engine;
use candecode::formats::SafetensorsSource;
use candecode::kit::weights::TensorSource;
use candecode::kit::{Model, ModelConfig, Tokenizer, Weights};
use candle_core::{DType, Device};
use serde_json::{json, Value};
use std::cell::Cell;
use std::sync::Arc;
use tokenizers::models::bpe::{Merges, Vocab, BPE};
use tokenizers::normalizers::Prepend;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, TokenizerImpl};

/// The kind of tokenizer that a page knows, by its parts; it has no normalizer.
type ByteLevelBpe = TokenizerImpl<BPE, Prepend, ByteLevel, ByteLevel, ByteLevel>;

thread_local! {
    static ENGINE: Cell<Option<&'static Engine>> = const { Cell::new(None) };
}

/// Opens a model from the bytes of its three files; the weights are widened to f32, as the command
/// does.
///
/// # Errors
/// If a file makes no sense.
pub fn open(config: &[u8], tokenizer: &[u8], weights: Vec<u8>) -> Result<Value, String> {
    let say = |error: &dyn std::fmt::Display| error.to_string();
    let config = std::str::from_utf8(config).map_err(|e| say(&e))?;
    let config = ModelConfig::from_json(config).map_err(|e| format!("{e:#}"))?;
    let tokenizer = self::tokenizer(tokenizer)?;
    let source = SafetensorsSource::from_bytes("the weights", weights);
    let source: Arc<dyn TensorSource> = Arc::new(source.map_err(|e| format!("{e:#}"))?);
    let weights = Weights::new(source, DType::F32, &Device::Cpu);
    let engine = Engine::from_parts(config, tokenizer, &weights).map_err(|e| say(&e))?;
    // A page has one model, as long as it lives: texts that are being generated borrow it.
    ENGINE.set(Some(Box::leak(Box::new(engine))));
    let config = self::engine()?.model().config();
    Ok(json!({
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "context": config.max_position_embeddings,
        "vocab": config.vocab_size,
    }))
}

/// A tokenizer of GPT-2's kind, byte-level BPE without anything else, from its `tokenizer.json`.
///
/// The crate could read it itself, and all other kinds. This reads one kind, and spares a page the
/// code of the others.
///
/// # Errors
/// If it is of another kind.
fn tokenizer(json: &[u8]) -> Result<Tokenizer, String> {
    let json: Value = serde_json::from_slice(json).map_err(|e| format!("not a tokenizer: {e}"))?;
    let (model, before, after) = (&json["model"], &json["pre_tokenizer"], &json["decoder"]);
    let plain = model["type"] == "BPE"
        && before
            == &json!({
                "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                "use_regex": true,
            })
        && after["type"] == "ByteLevel"
        && ["normalizer", "post_processor"].iter().all(|part| json[part].is_null())
        && ["unk_token", "continuing_subword_prefix"].iter().all(|part| model[part].is_null());
    if !plain {
        return Err("this page reads tokenizers of byte-level BPE only".to_string());
    }
    let entries = model["vocab"].as_object().into_iter().flatten();
    let vocab: Vocab =
        entries.filter_map(|(piece, id)| Some((piece.clone(), id.as_u64()? as u32))).collect();
    let pair = |pair: &Value| Some((pair[0].as_str()?.to_string(), pair[1].as_str()?.to_string()));
    let merges: Merges =
        model["merges"].as_array().into_iter().flatten().filter_map(pair).collect();
    let bpe = BPE::builder().vocab_and_merges(vocab, merges).build().map_err(|e| e.to_string())?;
    let mut tokenizer = ByteLevelBpe::new(bpe);
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
    tokenizer.with_decoder(Some(ByteLevel::new(true, true, true)));
    for added in json["added_tokens"].as_array().into_iter().flatten() {
        let name = added["content"].as_str().unwrap_or_default();
        let special = added["special"] == true;
        let token = AddedToken::from(name, special).normalized(added["normalized"] == true);
        let one = if special {
            tokenizer.add_special_tokens([token])
        } else {
            tokenizer.add_tokens([token])
        };
        one.map_err(|e| e.to_string())?;
    }
    Ok(Tokenizer::new(Box::new(tokenizer)))
}

/// The model and its tokenizer.
///
/// # Errors
/// If none is open.
pub fn engine() -> Result<&'static Engine, String> {
    ENGINE.get().ok_or_else(|| "no model is open".to_string())
}

/// The model alone.
///
/// # Errors
/// If none is open.
pub fn transformer() -> Result<&'static Transformer, String> {
    Ok(engine()?.model())
}

/// The tokens of a text, refused here if there are none or too many: every figure says it alike.
///
/// # Errors
/// If the text is empty, or longer than the context.
pub fn tokens(text: &str) -> Result<Vec<u32>, String> {
    let engine = engine()?;
    let ids = engine.tokenizer().encode(text).map_err(|e| e.to_string())?;
    candecode::kit::check_prompt(engine.model(), &ids).map_err(|e| e.to_string())?;
    Ok(ids)
}

/// A token as a figure shows it: its text, a space as `·`, a line's end as `↵`, a part of a
/// character as its bytes.
pub fn shown(id: u32) -> String {
    let Ok(engine) = engine() else { return String::new() };
    let bytes = engine.tokenizer().token_bytes(id);
    if bytes.is_empty() {
        return engine.tokenizer().piece(id).unwrap_or_else(|| format!("<{id}>"));
    }
    match String::from_utf8(bytes) {
        Ok(text) => text.replace(' ', "·").replace('\n', "↵").replace('\t', "⇥"),
        Err(error) => {
            error.into_bytes().iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>()
        }
    }
}

/// Several tokens as a figure shows them.
pub fn all_shown(ids: &[u32]) -> Vec<String> {
    ids.iter().map(|id| shown(*id)).collect()
}
