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
    let tokenizer = Tokenizer::from_bytes(tokenizer).map_err(|e| say(&e))?;
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
