//! A request as a value, and its JSON. Flags that a server doesn't support are rejected.

use crate::endpoint::server::Server;
use anyhow::{ensure, Result};
use candecode_kit::error::usage;
use candecode_kit::note::note;
use candecode_kit::SamplingParams;
use serde_json::{json, Map, Value};

/// A prompt to continue.
pub enum Prompt {
    /// Text, to be tokenized by the server.
    Text(String),
    /// Token ids.
    Ids(Vec<u32>),
}

/// A request to a server.
pub struct Request<'a> {
    /// The server and the model.
    pub server: &'a Server,
    /// How to sample, and how many tokens.
    pub params: &'a SamplingParams,
    /// What to continue.
    pub what: What<'a>,
}

/// The prompt or conversation to continue.
pub enum What<'a> {
    /// A prompt, `n` times. `with_ids` also requests tokens and their log-probabilities.
    Completion {
        /// The prompt.
        prompt: &'a Prompt,
        /// Number of completions.
        n: usize,
        /// Whether to request tokens and their log-probabilities.
        with_ids: bool,
    },
    /// A conversation.
    Chat {
        /// Its messages, as the protocol writes them.
        messages: &'a [Value],
        /// Variables of the server's chat template.
        settings: &'a Map<String, Value>,
    },
}

/// Maximum bytes of stream per token, including JSON and log-probabilities.
const STREAM_PER_TOKEN: u64 = 64 << 10;
/// Minimum number of tokens to allow for, even if fewer are requested.
const AT_LEAST: usize = 256;

impl Request<'_> {
    /// Returns the number of texts that are requested.
    pub fn n(&self) -> usize {
        match self.what {
            What::Completion { n, .. } => n,
            What::Chat { .. } => 1,
        }
    }

    /// Returns the path, below `/v1`.
    pub fn path(&self) -> &'static str {
        match self.what {
            What::Completion { .. } => "completions",
            What::Chat { .. } => "chat/completions",
        }
    }

    /// Returns the maximum number of tokens to accept for each text.
    pub fn most_tokens(&self) -> usize {
        self.params.max_new_tokens.saturating_add(AT_LEAST)
    }

    /// Returns the maximum size of the response, in bytes.
    pub fn most_bytes(&self) -> u64 {
        let tokens = self.most_tokens() as u64;
        tokens.saturating_mul(self.n() as u64).saturating_mul(STREAM_PER_TOKEN)
    }

    /// Returns the body.
    pub fn body(&self) -> Value {
        let mut body = shared(self.params, self.server);
        match &self.what {
            What::Completion { prompt, n, with_ids } => {
                let prompt = match prompt {
                    Prompt::Text(text) => json!(text),
                    Prompt::Ids(ids) => json!(ids),
                };
                body.insert("prompt".into(), prompt);
                if *n > 1 {
                    body.insert("n".into(), json!(n));
                }
                if *with_ids {
                    body.insert("logprobs".into(), json!(1));
                    if self.server.owned_by == "vllm" {
                        body.insert("return_token_ids".into(), json!(true));
                    }
                }
            }
            What::Chat { messages, settings } => {
                body.insert("messages".into(), json!(messages));
                if !settings.is_empty() {
                    body.insert("chat_template_kwargs".into(), json!(settings));
                }
            }
        }
        Value::Object(body)
    }
}

/// Rejects infinite logit biases, which JSON can't express, template variables without a chat, and
/// flags that llama.cpp's server doesn't support. If the server is unknown, a note lists the fields
/// it may ignore. `template_set` says whether template variables were set, and `chat` whether this
/// is a chat.
///
/// # Errors
/// A usage error.
pub fn check(
    params: &SamplingParams,
    server: &Server,
    chat: bool,
    template_set: bool,
) -> Result<()> {
    ensure!(
        params.logit_bias.iter().all(|(_, bias)| bias.is_finite()),
        usage("--logit-bias: JSON has no infinity; use -100")
    );
    ensure!(
        chat || !template_set,
        usage("--template-set: --endpoint sends prompts as they are; use cargo xtask chat")
    );
    let extra = [
        ("--top-k", "top_k", params.top_k.is_some(), true),
        ("--min-p", "min_p", params.min_p > 0.0, true),
        ("--template-set", "chat_template_kwargs", template_set, true),
        ("--repetition-penalty", "repetition_penalty", params.repetition_penalty != 1.0, false),
        ("--allow-regex", "structured_outputs", params.allow_regex.is_some(), false),
        ("--min-new-tokens", "min_tokens", params.min_new_tokens > 0, false),
        ("--stop-token-ids", "stop_token_ids", !params.stop_token_ids.is_empty(), false),
    ];
    let given: Vec<_> = extra.into_iter().filter(|(.., given, _)| *given).collect();
    match server.owned_by.as_str() {
        "candecode" | "vllm" | "sglang" => {}
        "llamacpp" => {
            if let Some((flag, ..)) = given.iter().find(|(.., in_llama_cpp)| !in_llama_cpp) {
                return Err(usage(format!("{flag}: llama.cpp's server doesn't support it")));
            }
        }
        _ if given.is_empty() => {}
        _ => {
            let fields: Vec<&str> = given.iter().map(|(_, field, ..)| *field).collect();
            note!(
                "note: {} sent under vLLM's name; this server doesn't identify itself, so it may \
                 ignore that",
                fields.join(", ")
            );
        }
    }
    Ok(())
}

/// Returns the fields that completions and chats share.
fn shared(params: &SamplingParams, server: &Server) -> Map<String, Value> {
    let samples = params.temperature != 0.0;
    // A missing field isn't "off" everywhere: llama.cpp defaults to a top_k of 40 and a min_p of
    // 0.05, and vLLM and SGLang follow the model's generation_config.json.
    let by_vllm = matches!(server.owned_by.as_str(), "vllm" | "sglang");
    let fills_in = by_vllm || server.owned_by == "llamacpp";
    let top_k = params.top_k.map_or(json!(-1), |k| json!(k));
    let biases = params.logit_bias.iter().map(|(id, bias)| (id.to_string(), number(*bias)));
    let (pattern, regex) = (params.allow_regex.is_some(), &params.allow_regex);
    let fields = [
        ("model", json!(server.model), true),
        ("max_tokens", json!(params.max_new_tokens), true),
        ("temperature", json!(params.temperature), true),
        ("stream", json!(true), true),
        ("stream_options", json!({"include_usage": true}), true),
        ("top_p", json!(params.top_p), samples),
        ("seed", json!(params.seed), samples),
        ("top_k", top_k, samples && (params.top_k.is_some() || fills_in)),
        ("min_p", json!(params.min_p), samples && (params.min_p > 0.0 || fills_in)),
        (
            "repetition_penalty",
            number(params.repetition_penalty),
            params.repetition_penalty != 1.0 || by_vllm,
        ),
        ("presence_penalty", number(params.presence_penalty), params.presence_penalty != 0.0),
        ("frequency_penalty", number(params.frequency_penalty), params.frequency_penalty != 0.0),
        ("logit_bias", Value::Object(biases.collect()), !params.logit_bias.is_empty()),
        ("stop", json!(params.stop), !params.stop.is_empty()),
        ("stop_token_ids", json!(params.stop_token_ids), !params.stop_token_ids.is_empty()),
        ("min_tokens", json!(params.min_new_tokens), params.min_new_tokens > 0),
        ("regex", json!(regex), pattern && server.owned_by == "sglang"),
        ("structured_outputs", json!({"regex": regex}), pattern && server.owned_by != "sglang"),
    ];
    let sent = fields.into_iter().filter(|(.., sent)| *sent);
    sent.map(|(name, value, _)| (name.to_string(), value)).collect()
}

/// Returns an f32 with the digits as typed: 0.1, not 0.10000000149.
fn number(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, |value| json!(value))
}
