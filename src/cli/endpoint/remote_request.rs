//! From flags to the JSON of a request; and which flags cannot be sent, to any server or to this one.

use crate::cli::flags::Args;
use crate::cli::flags::{Early, Format, PastContextName};
use crate::kit::error::usage;
use anyhow::Result;

/// Why a flag stays here.
const SERVERS_OWN: &str = "the server chose that when it was started";
const NO_FIELD: &str = "the protocol has no field for it";

/// Refuses flags that no server could be sent, by name.
///
/// # Errors
/// As wrong usage: the flag, and why.
pub fn refuse_local_flags(args: &Args) -> Result<()> {
    let here = "it is about models on this machine";
    let given = [
        ("--device", args.device != "cpu", SERVERS_OWN),
        ("--dtype", args.dtype.is_some(), SERVERS_OWN),
        ("--quantize", args.quantize.is_some(), SERVERS_OWN),
        ("--kernels", args.kernels.is_some(), SERVERS_OWN),
        ("--cache", args.cache.is_some(), SERVERS_OWN),
        ("--no-cache", args.no_cache, SERVERS_OWN),
        ("--max-batch-tokens", args.max_batch_tokens != 4096, SERVERS_OWN),
        ("--loop", args.loop_day.is_some(), SERVERS_OWN),
        ("--draft-model", args.draft_model.is_some(), SERVERS_OWN),
        ("--draft-ngram", args.draft_ngram.is_some(), SERVERS_OWN),
        ("--draft-table", args.draft_table.is_some(), SERVERS_OWN),
        ("--num-draft-tokens", args.num_draft_tokens != 4, SERVERS_OWN),
        ("--template", args.template.is_some(), "the server renders chats with its own template"),
        ("--template-date", args.template_date.is_some(), "the server's template has its own date"),
        ("--rng", args.rng.is_some(), "a server draws its own random numbers"),
        ("--top-logprobs", args.top_logprobs.is_some(), "it shows the steps of a text made here"),
        ("--num-beams", args.num_beams != 1, NO_FIELD),
        ("--length-penalty", args.length_penalty != 1.0, NO_FIELD),
        ("--early-stopping", args.early_stopping != Early::False, NO_FIELD),
        ("--no-repeat-ngram", args.no_repeat_ngram.is_some(), NO_FIELD),
        ("--block-ids", !args.block_ids.is_empty(), NO_FIELD),
        ("--penalty-window", args.penalty_window.is_some(), NO_FIELD),
        ("--block", !args.block.is_empty(), NO_FIELD),
        ("--block-file", args.block_file.is_some(), NO_FIELD),
        ("--block-whole-words", args.block_whole_words, NO_FIELD),
        ("--past-context", args.past_context != PastContextName::Stop, NO_FIELD),
        ("--offline", args.offline, "a server is asked over the network"),
        ("--where", args.find, here),
        ("--format", args.chat && args.format == Format::Json, "a chat is text"),
    ];
    let banned = args.logit_bias.iter().any(|(_, bias)| bias.is_infinite());
    let no_infinity = "JSON has no infinity; use -100";
    for (flag, is_given, why) in given.into_iter().chain([("--logit-bias", banned, no_infinity)]) {
        if is_given {
            return Err(usage(format!("{flag} does not go with --endpoint: {why}")));
        }
    }
    Ok(())
}

#[cfg(feature = "hub")]
pub use with_client::*;

/// What only a build with a client needs.
#[cfg(feature = "hub")]
mod with_client {
    use super::*;
    use crate::kit::SamplingParams;
    use serde_json::{json, Map, Value};

    /// Which program answers, as `owned_by` in its list of models says.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Program {
        /// This course's.
        Candecode,
        /// vLLM.
        Vllm,
        /// SGLang.
        Sglang,
        /// llama.cpp's `llama-server`.
        LlamaCpp,
        /// One that does not say what it is.
        Other,
    }

    impl Program {
        /// The program of an `owned_by`.
        pub fn of(owned_by: &str) -> Self {
            match owned_by {
                "candecode" => Self::Candecode,
                "vllm" => Self::Vllm,
                "sglang" => Self::Sglang,
                "llamacpp" => Self::LlamaCpp,
                _ => Self::Other,
            }
        }
    }

    /// The model that is asked, and what is known of its server.
    #[derive(Debug, Clone)]
    pub struct Server {
        /// The model's name there.
        pub model: String,
        /// Which program it is.
        pub program: Program,
    }

    /// What is to be continued.
    #[derive(Debug, Clone, PartialEq)]
    pub enum RemotePrompt {
        /// A text, which the server's tokenizer reads.
        Text(String),
        /// Token ids.
        Ids(Vec<u32>),
    }

    /// Refuses flags that this server lacks, by name. Of a server that does not say what it is, a
    /// note says which fields it may ignore.
    ///
    /// # Errors
    /// As wrong usage.
    pub fn refuse_unknown_fields(
        args: &Args,
        params: &SamplingParams,
        server: &Server,
    ) -> Result<Option<String>> {
        let extra = [
            ("--top-k", "top_k", params.top_k.is_some()),
            ("--min-p", "min_p", params.min_p > 0.0),
            ("--repetition-penalty", "repetition_penalty", params.repetition_penalty != 1.0),
            ("--allow-regex", "structured_outputs", params.allow_regex.is_some()),
            ("--template-set", "chat_template_kwargs", !args.template_set.is_empty()),
            ("--min-new-tokens", "min_tokens", params.min_new_tokens > 0),
            ("--stop-token-ids", "stop_token_ids", !params.stop_token_ids.is_empty()),
        ];
        let given: Vec<_> = extra.into_iter().filter(|(_, _, given)| *given).collect();
        match server.program {
            Program::Candecode | Program::Vllm | Program::Sglang => Ok(None),
            Program::LlamaCpp => {
                for (flag, _, _) in given {
                    let why = match flag {
                        "--repetition-penalty" => {
                            "it has repeat_penalty, which looks at the last 64 tokens only"
                        }
                        "--allow-regex" => "it has grammars and JSON schemas",
                        "--min-new-tokens" | "--stop-token-ids" => "it has no field for it",
                        _ => continue,
                    };
                    return Err(usage(format!("{flag}: llama.cpp's server lacks it ({why})")));
                }
                Ok(None)
            }
            Program::Other => {
                let fields: Vec<&str> = given.iter().map(|(_, field, _)| *field).collect();
                let fields = fields.join(", ");
                let note = format!(
                    "note: {fields} sent under vLLM's name; this server does not say what it is, \
                     and may ignore it"
                );
                Ok((!fields.is_empty()).then_some(note))
            }
        }
    }

    /// The fields that a completion and a chat share.
    fn shared(params: &SamplingParams, server: &Server, greedy: bool) -> Map<String, Value> {
        let mut body = Map::new();
        let mut set = |name: &str, value: Value| body.insert(name.into(), value);
        set("model", json!(server.model));
        set("max_tokens", json!(params.max_new_tokens));
        set("temperature", json!(params.temperature));
        set("stream", json!(true));
        set("stream_options", json!({"include_usage": true}));
        if !greedy {
            set("top_p", json!(params.top_p));
            set("seed", json!(params.seed));
        }
        if !params.stop.is_empty() {
            set("stop", json!(params.stop));
        }
        for (name, value) in [
            ("presence_penalty", params.presence_penalty),
            ("frequency_penalty", params.frequency_penalty),
        ] {
            if value != 0.0 {
                set(name, number(value));
            }
        }
        // What is left out is not "off" everywhere: llama.cpp has a top_k of 40 and a min_p of 0.05,
        // and vLLM and SGLang take what the model's generation_config.json asks for.
        let fills_in =
            matches!(server.program, Program::Vllm | Program::Sglang | Program::LlamaCpp);
        if !greedy {
            match params.top_k {
                Some(k) => drop(set("top_k", json!(k))),
                None if fills_in => drop(set("top_k", json!(-1))),
                None => {}
            }
            if params.min_p > 0.0 || fills_in {
                set("min_p", json!(params.min_p));
            }
        }
        let fills_in_penalty = matches!(server.program, Program::Vllm | Program::Sglang);
        if params.repetition_penalty != 1.0 || fills_in_penalty {
            set("repetition_penalty", number(params.repetition_penalty));
        }
        if !params.logit_bias.is_empty() {
            let bias = params.logit_bias.iter().map(|(id, bias)| (id.to_string(), number(*bias)));
            set("logit_bias", Value::Object(bias.collect()));
        }
        if params.min_new_tokens > 0 {
            set("min_tokens", json!(params.min_new_tokens));
        }
        if !params.stop_token_ids.is_empty() {
            set("stop_token_ids", json!(params.stop_token_ids));
        }
        if let Some(regex) = &params.allow_regex {
            match server.program {
                Program::Sglang => set("regex", json!(regex)),
                _ => set("structured_outputs", json!({ "regex": regex })),
            };
        }
        body
    }

    /// An f32 with the digits that were typed: 0.1, not 0.10000000149.
    fn number(value: f32) -> Value {
        value.to_string().parse::<f64>().map_or(Value::Null, |value| json!(value))
    }

    /// The body for `/v1/completions`; `with_ids` asks for tokens and their log-probabilities, too.
    pub fn completion(
        params: &SamplingParams,
        server: &Server,
        prompt: &RemotePrompt,
        n: usize,
        with_ids: bool,
    ) -> Value {
        let mut body = shared(params, server, params.temperature == 0.0);
        let prompt = match prompt {
            RemotePrompt::Text(text) => json!(text),
            RemotePrompt::Ids(ids) => json!(ids),
        };
        body.insert("prompt".into(), prompt);
        if n > 1 {
            body.insert("n".into(), json!(n));
        }
        if with_ids {
            body.insert("logprobs".into(), json!(1));
            if server.program == Program::Vllm {
                body.insert("return_token_ids".into(), json!(true));
            }
        }
        Value::Object(body)
    }

    /// The body for `/v1/chat/completions`; `settings` are the flags `--template-set`.
    pub fn chat(
        params: &SamplingParams,
        server: &Server,
        messages: &[Value],
        settings: &Map<String, Value>,
    ) -> Value {
        let mut body = shared(params, server, params.temperature == 0.0);
        body.insert("messages".into(), json!(messages));
        if !settings.is_empty() {
            body.insert("chat_template_kwargs".into(), json!(settings));
        }
        Value::Object(body)
    }
}
