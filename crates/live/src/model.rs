//! The single model that all figures use, opened once.

use candecode::day05_model::Transformer;
use candecode::kit::weights::TensorSource;
use candecode::kit::{ModelConfig, Tokenizer, Weights};
use candecode_engine::Engine;
use candecode_formats::SafetensorsSource;
use candle_core::{DType, Device};
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    static ENGINE: Cell<Option<&'static Engine>> = const { Cell::new(None) };
}

/// Opens a model from the bytes of its three files. The weights are widened to f32, as in the
/// command.
///
/// # Errors
/// If a file can't be parsed.
pub fn open(config: &[u8], tokenizer: &[u8], weights: Vec<u8>) -> Result<(), String> {
    let say = |error: &dyn std::fmt::Display| error.to_string();
    let config = std::str::from_utf8(config).map_err(|e| say(&e))?;
    let config = ModelConfig::from_json(config).map_err(|e| format!("{e:#}"))?;
    let tokenizer = Tokenizer::from_bytes(tokenizer).map_err(|e| say(&e))?;
    let source = SafetensorsSource::from_bytes("the weights", weights);
    let source: Arc<dyn TensorSource> = Arc::new(source.map_err(|e| format!("{e:#}"))?);
    let weights = Weights::new(source, DType::F32, &Device::Cpu);
    let engine = Engine::from_parts(config, tokenizer, &weights).map_err(|e| say(&e))?;
    // A page keeps its model until it is closed, because ongoing generations borrow it.
    ENGINE.set(Some(Box::leak(Box::new(engine))));
    Ok(())
}

/// Returns the engine: the model and its tokenizer.
///
/// # Errors
/// If no model is open.
pub fn engine() -> Result<&'static Engine, String> {
    ENGINE.get().ok_or_else(|| "no model is open".to_string())
}

/// Returns the model without its tokenizer.
///
/// # Errors
/// If no model is open.
pub fn transformer() -> Result<&'static Transformer, String> {
    Ok(engine()?.model())
}

/// Returns the tokens of a text. Checking it here makes every figure report the same errors.
///
/// # Errors
/// If no model is open, or the text is empty or longer than the context.
pub fn tokens(text: &str) -> Result<Vec<u32>, String> {
    let engine = engine()?;
    let ids = engine.tokenizer().encode(text).map_err(|e| e.to_string())?;
    candecode::kit::check_prompt(engine.model(), &ids).map_err(|e| e.to_string())?;
    Ok(ids)
}

/// Formats a token for a figure: its text with spaces as `·`, newlines as `↵` and tabs as `⇥`, or
/// its bytes if they aren't whole characters.
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

/// Formats several tokens for a figure.
pub fn all_shown(ids: &[u32]) -> Vec<String> {
    ids.iter().map(|id| shown(*id)).collect()
}
