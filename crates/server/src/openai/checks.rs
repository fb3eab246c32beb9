//! Rejects requests that this server can't answer as asked. The types of the fields are in
//! [`fields`](super::fields); everything else that is checked is checked here.

use super::api_error::ApiError;
use super::api_request::ApiRequest;
use super::fields::{Endpoint, Fields, Logprobs, StreamOptions};
use super::tools;
use candecode::kit::error::describe;
use candecode::kit::{ModelConfig, SamplingParams, Tokenizer};
use candecode_engine::{requests, token_rules};

/// Maximum number of choices in one request: prompts times `n`.
const MAX_CHOICES: usize = 128;
/// Maximum number of alternatives per token (vLLM's `max_logprobs`).
const MAX_LOGPROBS: f64 = 20.0;
/// Maximum number of logprobs in one answer, alternatives included. Each takes up to a kilobyte
/// while the answer is serialized.
const MOST_LOGPROBS: usize = 1 << 18;
/// Maximum size of the logits of one pass, in bytes. Logprobs of prompts need them at every
/// position that the pass computes.
const MOST_LOGITS: usize = 1 << 30;

/// Rejects fields that are out of range, or that contradict each other, for every model.
///
/// # Errors
/// 400, naming the field.
pub fn check(fields: &Fields) -> Result<(), ApiError> {
    check_ranges(fields)?;
    tools::check(fields)?;
    if let Some((id, bias)) = fields.logit_bias.iter().find(|(_, bias)| bias.abs() > 100.0) {
        let message = format!("logit_bias of token {id} must be from -100 to 100, got {bias}");
        return Err(ApiError::invalid("logit_bias", message));
    }
    if fields.cache_salt.as_ref().is_some_and(|salt| salt.is_empty() || salt.len() > 256) {
        return Err(ApiError::invalid("cache_salt", "cache_salt must have 1 to 256 bytes"));
    }
    if fields.best_of.is_some_and(|best_of| best_of != fields.n.unwrap_or(1)) {
        let message = "best_of must equal n: this server returns every completion it generates";
        return Err(ApiError::invalid("best_of", message));
    }
    if fields.prompt_logprobs.is_some() && fields.stream {
        let message = "prompt_logprobs are not available with \"stream\": true";
        return Err(ApiError::invalid("prompt_logprobs", message));
    }
    let logprobs = matches!(fields.logprobs, Some(Logprobs::Flag(true)));
    if !logprobs && fields.top_logprobs.is_some_and(|top| top > 0) {
        let message = "top_logprobs needs \"logprobs\": true";
        return Err(ApiError::invalid("top_logprobs", message));
    }
    let StreamOptions { include_usage, continuous_usage_stats } = fields.stream_options;
    if [include_usage, continuous_usage_stats].contains(&Some(true)) && !fields.stream {
        let message = "stream_options requires \"stream\": true";
        return Err(ApiError::invalid("stream_options", message));
    }
    Ok(())
}

/// Rejects numbers out of range.
fn check_ranges(fields: &Fields) -> Result<(), ApiError> {
    let count = |number: Option<usize>| number.map(|number| number as f64);
    let top = match fields.logprobs {
        Some(Logprobs::Top(top)) => Some(top),
        _ => None,
    };
    // The engine computes in 32-bit floats.
    let (most, least_above_0) = (f64::from(f32::MAX), f64::from(f32::MIN_POSITIVE));
    // Scores of a prompt need no completion.
    let (least_tokens, tokens_range) = match fields.echo {
        true => (0.0, "0 or above"),
        false => (1.0, "1 or above, or 0 with echo"),
    };
    for (name, number, low, high, range) in [
        ("frequency_penalty", fields.frequency_penalty.map(f64::from), -2.0, 2.0, "from -2 to 2"),
        ("logprobs", count(top), 0.0, MAX_LOGPROBS, "from 0 to 20"),
        (
            "max_completion_tokens",
            count(fields.max_completion_tokens),
            least_tokens,
            most,
            tokens_range,
        ),
        ("max_tokens", count(fields.max_tokens), least_tokens, most, tokens_range),
        ("min_p", fields.min_p, 0.0, 1.0, "from 0 to 1"),
        ("n", count(fields.n), 1.0, MAX_CHOICES as f64, "from 1 to 128"),
        ("presence_penalty", fields.presence_penalty.map(f64::from), -2.0, 2.0, "from -2 to 2"),
        ("prompt_logprobs", count(fields.prompt_logprobs), 0.0, MAX_LOGPROBS, "from 0 to 20"),
        // Dividing by anything much smaller overflows a logit.
        (
            "repetition_penalty",
            fields.repetition_penalty.map(f64::from),
            f64::from(1e-4_f32),
            most,
            "0.0001 or above, within 32 bits",
        ),
        ("temperature", fields.temperature, 0.0, most, "0 or above, within 32 bits"),
        ("top_k", fields.top_k.map(|k| k as f64), -1.0, most, "-1 or above"),
        ("top_logprobs", count(fields.top_logprobs), 0.0, MAX_LOGPROBS, "from 0 to 20"),
        ("top_p", fields.top_p, least_above_0, 1.0, "above 0 and at most 1"),
    ] {
        if let Some(number) = number.filter(|number| !(low..=high).contains(number)) {
            return Err(ApiError::invalid(name, format!("{name} must be {range}, got {number}")));
        }
    }
    Ok(())
}

/// Rejects a request that no model can answer.
///
/// # Errors
/// 400, naming the field.
pub fn check_request(request: &ApiRequest) -> Result<(), ApiError> {
    let (n, params) = (request.n, &request.params);
    if params.stop.iter().any(String::is_empty) {
        return Err(ApiError::invalid("stop", "stop must not contain an empty string"));
    }
    check_amounts(params)?;
    if n > 1 && params.temperature == 0.0 {
        let message = "n must be 1 at temperature 0, where every completion would be the same";
        return Err(ApiError::invalid("n", message));
    }
    if n * request.prompts.len() > MAX_CHOICES {
        let message = format!("prompts times n must be at most {MAX_CHOICES}");
        return Err(ApiError::invalid("n", message));
    }
    token_rules::check(params).map_err(|(param, message)| ApiError::invalid(param, message))
}

/// Rejects lists so long that they would slow down the model's thread, which goes through them for
/// every token.
fn check_amounts(params: &SamplingParams) -> Result<(), ApiError> {
    let bytes = |texts: &[String]| texts.iter().map(String::len).sum::<usize>();
    for (name, what, got, most) in [
        ("stop", "strings", params.stop.len(), 64),
        ("stop", "bytes in total", bytes(&params.stop), 4096),
        ("bad_words", "words", params.bad_words.len(), 256),
        ("bad_words", "bytes in total", bytes(&params.bad_words), 4096),
        ("stop_token_ids", "ids", params.stop_token_ids.len(), 256),
        ("logit_bias", "tokens", params.logit_bias.len(), 1024),
    ] {
        if got > most {
            let message = format!("{name} may have at most {most} {what}, got {got}");
            return Err(ApiError::invalid(name, message));
        }
    }
    Ok(())
}

/// Rejects what this model can't do: ids that aren't in its vocabulary, and stop strings that its
/// texts never contain.
///
/// # Errors
/// 400, naming the field.
pub fn check_for_model(
    params: &SamplingParams,
    tokenizer: &Tokenizer,
    config: &ModelConfig,
) -> Result<(), ApiError> {
    token_rules::check_ids(params, config.vocab_size)
        .map_err(|(param, message)| ApiError::invalid(param, message))?;
    requests::check_stops(&params.stop, tokenizer)
        .map_err(|error| ApiError::invalid("stop", describe(&error)))
}

/// Rejects a request for more logprobs than memory allows, with these prompts and this model. A
/// pass computes at most `pass_tokens` positions. None: a whole prompt.
///
/// # Errors
/// 400, naming the field.
pub fn check_logprobs(
    request: &ApiRequest,
    prompts: &[Vec<u32>],
    config: &ModelConfig,
    pass_tokens: Option<usize>,
) -> Result<(), ApiError> {
    let of_prompt = request.prompt_logprobs();
    let Some(top) = request.logprobs.max(of_prompt) else { return Ok(()) };
    let longest = prompts.iter().map(Vec::len).max().unwrap_or_default();
    let logits =
        pass_tokens.unwrap_or(longest).saturating_mul(config.vocab_size * size_of::<f32>());
    if of_prompt.is_some() && logits > MOST_LOGITS {
        let most = MOST_LOGITS / (config.vocab_size * size_of::<f32>());
        let message = format!(
            "logprobs of a prompt need the logits of all positions that a pass computes, and \
             memory allows {most}: start the server with --max-num-batched-tokens of at most {most}"
        );
        return Err(ApiError::invalid("prompt", message));
    }
    let tokens_of = |prompt: &Vec<u32>| {
        let room = (config.max_position_embeddings + 1).saturating_sub(prompt.len());
        let new = request.logprobs.map_or(0, |_| request.params.max_new_tokens.min(room));
        (new + of_prompt.map_or(0, |_| prompt.len())) * request.n
    };
    let tokens: usize = prompts.iter().map(tokens_of).sum();
    if tokens * (top + 1) <= MOST_LOGPROBS {
        return Ok(());
    }
    let most = MOST_LOGPROBS / (top + 1);
    let message = format!(
        "the request asks for {tokens} tokens in all choices, with {top} logprobs each, but with \
         that many logprobs, the limit is {most} tokens; lower max_tokens, n or the number of \
         logprobs, or send fewer prompts"
    );
    let param = match request.endpoint {
        _ if request.logprobs.is_none() => "prompt_logprobs",
        Endpoint::Completions => "logprobs",
        Endpoint::Chat => "top_logprobs",
    };
    Err(ApiError::invalid(param, message))
}
