//! Rejects requests that this server can't answer as asked. The ranges of single fields stand in
//! [`known_fields`](super::known_fields); everything else that is checked is checked here.

use super::api_error::ApiError;
use super::api_request::{ApiRequest, Endpoint};
use super::known_fields::{asks_for_nothing, Fields};
use candecode::kit::error::{describe, shown};
use candecode::kit::{ModelConfig, SamplingParams, Tokenizer};
use candecode_engine::{requests, token_rules};

/// Maximum number of choices in one request: prompts times `n`.
const MAX_CHOICES: usize = 128;
/// Maximum number of alternatives per token (vLLM's `max_logprobs`).
const MAX_LOGPROBS: usize = 20;
/// Maximum number of logprobs in one answer, alternatives included. Each takes up to a kilobyte
/// while the answer is serialized.
const MOST_LOGPROBS: usize = 1 << 18;

/// Rejects fields that belong to the other endpoint and would have an effect there.
///
/// # Errors
/// 400, naming the field.
pub fn check_endpoint(fields: &Fields, endpoint: Endpoint) -> Result<(), ApiError> {
    let (there, names) = match endpoint {
        Endpoint::Chat => ("/v1/completions", &["prompt", "echo"][..]),
        Endpoint::Completions => (
            "/v1/chat/completions",
            &["messages", "top_logprobs", "chat_template_kwargs", "continue_final_message"][..],
        ),
    };
    for name in names {
        if fields.value(name).is_some_and(|value| !asks_for_nothing(value) && value != 0) {
            let message = format!("{name} is only for {there}; leave it out here");
            return Err(ApiError::invalid(name, message));
        }
    }
    Ok(())
}

/// Rejects what no model could do: values that are out of range, too long, or contradict each
/// other. `fields` are those that `request` was read from.
///
/// # Errors
/// 400, naming the field.
pub fn check(request: &ApiRequest, fields: &Fields) -> Result<(), ApiError> {
    check_format(fields)?;
    let params = &request.params;
    if params.logit_bias.iter().any(|(_, bias)| bias.abs() > 100.0) {
        return Err(fields.wrong("logit_bias"));
    }
    let salt: Option<String> = fields.get("cache_salt")?;
    if salt.is_some_and(|salt| salt.is_empty() || salt.len() > 256) {
        return Err(fields.wrong("cache_salt"));
    }
    if params.stop.iter().any(String::is_empty) {
        return Err(ApiError::invalid("stop", "stop must not contain an empty string"));
    }
    check_amounts(params)?;
    check_choices(request, fields)?;
    if request.include_usage && !request.stream {
        let message = "stream_options requires \"stream\": true";
        return Err(ApiError::invalid("stream_options", message));
    }
    token_rules::check(params).map_err(|(param, message)| ApiError::invalid(param, message))
}

/// Rejects formats other than text, and keys inside a field that aren't read. The only supported
/// `response_format` is `{"type": "text"}`, the default: the other types need a grammar, which day
/// 14 doesn't cover.
fn check_format(fields: &Fields) -> Result<(), ApiError> {
    if let Some(format) = fields.value("response_format") {
        let kind = format["type"].as_str().ok_or_else(|| fields.wrong("response_format"))?;
        if kind != "text" {
            let message = format!(
                "response_format {} is not supported; use structured_outputs with regex or choice",
                shown(kind)
            );
            return Err(ApiError::invalid("response_format", message));
        }
        fields.refuse_within("response_format", &["type"])?;
    }
    fields.refuse_within("structured_outputs", &["regex", "choice"])?;
    fields.refuse_within("stream_options", &["include_usage"])
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

/// Rejects impossible numbers of choices, and logprobs that can't be reported with them.
fn check_choices(request: &ApiRequest, fields: &Fields) -> Result<(), ApiError> {
    let n = request.n;
    if n > 1 && request.params.temperature == 0.0 {
        let message = "n must be 1 at temperature 0, where every completion would be the same";
        return Err(ApiError::invalid("n", message));
    }
    if fields.get::<usize>("best_of")?.is_some_and(|best_of| best_of != n) {
        let message = "best_of must equal n: this server returns every completion it generates";
        return Err(ApiError::invalid("best_of", message));
    }
    if n * request.prompts.len() > MAX_CHOICES {
        let message = format!("prompts times n must be at most {MAX_CHOICES}");
        return Err(ApiError::invalid("n", message));
    }
    if request.logprobs.is_some_and(|top| top > MAX_LOGPROBS) {
        return Err(fields.wrong("logprobs"));
    }
    let top: Option<usize> = fields.get("top_logprobs")?;
    if request.logprobs.is_none() && top.is_some_and(|top| top > 0) {
        let message = "top_logprobs needs \"logprobs\": true";
        return Err(ApiError::invalid("top_logprobs", message));
    }
    if request.echo && request.logprobs.is_some() {
        let message = "echo can't be combined with logprobs: the prompt's logprobs aren't computed";
        return Err(ApiError::invalid("echo", message));
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

/// Rejects a request for more logprobs than memory allows, with these prompts and this context.
///
/// # Errors
/// 400, naming the field.
pub fn check_logprobs(
    request: &ApiRequest,
    prompts: &[Vec<u32>],
    context: usize,
) -> Result<(), ApiError> {
    let Some(top) = request.logprobs else { return Ok(()) };
    let of_prompt = |prompt: &Vec<u32>| {
        let room = (context + 1).saturating_sub(prompt.len());
        request.params.max_new_tokens.min(room) * request.n
    };
    let tokens: usize = prompts.iter().map(of_prompt).sum();
    if tokens * (top + 1) <= MOST_LOGPROBS {
        return Ok(());
    }
    let most = MOST_LOGPROBS / (top + 1);
    let message = format!(
        "the request asks for {tokens} tokens in all choices, with {top} logprobs each, but with \
         that many logprobs, the limit is {most} tokens; lower max_tokens, n or the number of \
         logprobs"
    );
    let param = match request.endpoint {
        Endpoint::Completions => "logprobs",
        Endpoint::Chat => "top_logprobs",
    };
    Err(ApiError::invalid(param, message))
}
