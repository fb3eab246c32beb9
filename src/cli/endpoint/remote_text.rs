//! `run --endpoint`: prompts sent one after another, and what comes back, as it comes.

use crate::cli::endpoint::client::{error_message, Client, Server};
use crate::cli::endpoint::request::{completion, RemotePrompt};
use crate::cli::flags::{Args, Format};
use crate::cli::interrupt;
use crate::cli::output::{show, show_text};
use crate::cli::plan::prompt_texts;
use crate::kit::error::{quoted, shown, usage};
use crate::kit::note::note;
use crate::kit::SamplingParams;
use anyhow::{bail, ensure, Context as _, Result};
use serde::Serialize;
use serde_json::Value;
use std::time::Instant;

/// The longest text of a token, in bytes: those of real vocabularies have some hundred.
const LONGEST_TOKEN: usize = 512;
/// The most bytes that a stream may spend on a token: its JSON, with log-probabilities and all.
const STREAM_PER_TOKEN: u64 = 64 << 10;
/// A request for a few tokens may cost as much as one for this many.
const AT_LEAST: usize = 256;

/// What one choice of a response has become, as `--format json` prints it.
#[derive(Clone, Default, Serialize)]
pub struct RemoteText {
    /// Ids of the prompt, where the server tells them.
    pub prompt_ids: Vec<u64>,
    /// Ids generated, where the server tells them.
    pub new_ids: Vec<u64>,
    /// The text of each token, where the server tells it.
    pub tokens: Vec<String>,
    /// The text generated.
    pub text: String,
    /// Why it ended, in the protocol's words: `stop`, `length`, …
    pub finish_reason: Option<String>,
    /// ln of each token's probability, where the server tells it.
    pub logprobs: Vec<f64>,
    /// Seconds to the first text of the response.
    pub prefill_s: f64,
    /// Seconds from there to its end.
    pub decode_s: f64,
}

/// What a response came to.
pub struct Received {
    /// Its choices, in order.
    pub texts: Vec<RemoteText>,
    /// The line of `--stats`.
    pub stats: String,
    /// Ctrl-C ended it.
    pub stopped: bool,
}

/// The prompts that the flags give.
///
/// # Errors
/// If a file cannot be read, or a prompt is empty.
pub fn prompts(args: &Args) -> Result<Vec<RemotePrompt>> {
    if let Some(ids) = &args.prompt_ids {
        return Ok(vec![RemotePrompt::Ids(ids.clone())]);
    }
    let texts = prompt_texts(args)?;
    ensure!(
        texts.iter().all(|text| !text.is_empty()),
        usage("the prompt is empty; give it at least one character")
    );
    Ok(texts.into_iter().map(RemotePrompt::Text).collect())
}

/// Sends every prompt, shows what comes back, and returns the exit code.
///
/// # Errors
/// If the server refuses, or a stream breaks off.
pub fn run(
    client: &Client,
    server: &Server,
    args: &Args,
    params: &SamplingParams,
    prompts: &[RemotePrompt],
) -> Result<u8> {
    let n = args.num_return_sequences;
    let json = args.format == Format::Json;
    let streams = !json && n == 1;
    for (number, prompt) in prompts.iter().enumerate() {
        let body = completion(params, server, prompt, n, json);
        let echo = match prompt {
            RemotePrompt::Text(text) => text.as_str(),
            RemotePrompt::Ids(_) => "",
        };
        let gap = |i: usize| if number + i > 0 { "\n" } else { "" };
        let mut begun = false;
        let received = receive(client, "completions", &body, params, n, &mut |text| {
            if streams && !begun {
                show_text(&format!("{}{echo}", gap(0)))?;
            }
            begun = streams;
            if streams {
                show_text(text)
            } else {
                Ok(())
            }
        });
        if begun {
            show("\n")?;
        }
        let received = received?;
        for (i, text) in received.texts.iter().enumerate() {
            if json {
                show(&(serde_json::to_string(text)? + "\n"))?;
            } else if !begun {
                show_text(&format!("{}{echo}{}\n", gap(i), text.text))?;
            }
        }
        if args.stats {
            note!("{}", received.stats);
        }
        if received.stopped {
            return Ok(130);
        }
    }
    Ok(0)
}

/// Sends a request for `n` texts, and collects what comes back; `on_text` sees each piece of text
/// as it comes. However long the stream goes on, it is bounded by what was asked for.
///
/// # Errors
/// If the server refuses, reports an error, or ends the stream before its end was said.
pub fn receive(
    client: &Client,
    path: &str,
    body: &Value,
    params: &SamplingParams,
    n: usize,
    on_text: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<Received> {
    let tokens = params.max_new_tokens.saturating_add(AT_LEAST);
    let most = (tokens as u64).saturating_mul(n as u64).saturating_mul(STREAM_PER_TOKEN);
    let began = Instant::now();
    let mut texts = vec![RemoteText::default(); n];
    let (mut first, mut usage, mut done, mut pieces) = (None, None, false, 0);
    for event in client.stream(path, body, most)? {
        let broken = || format!("the stream broke off after {pieces} events with text");
        let event = event.with_context(broken)?;
        if event == "[DONE]" {
            done = true;
            break;
        }
        let json: Value = serde_json::from_str(&event).with_context(|| {
            format!("the server sent an event that is not JSON: {}", quoted(&event))
        })?;
        if let Some(message) = error_message(&json) {
            bail!("the server reports an error in the stream: {}", shown(message));
        }
        if json["usage"].is_object() {
            let count = |name: &str| json["usage"][name].as_u64().unwrap_or(0);
            usage = Some((count("prompt_tokens"), count("completion_tokens")));
        }
        for choice in json["choices"].as_array().into_iter().flatten() {
            let index = choice["index"].as_u64().unwrap_or(0) as usize;
            let Some(text) = texts.get_mut(index) else {
                bail!("the server sent choice {index}, and {n} were asked for")
            };
            let piece = take(text, choice);
            ensure!(
                text.text.len() <= tokens.saturating_mul(LONGEST_TOKEN),
                "the server goes on: {} bytes of text, and {} tokens were asked for",
                text.text.len(),
                params.max_new_tokens
            );
            if !piece.is_empty() {
                first.get_or_insert_with(|| began.elapsed().as_secs_f64());
                pieces += 1;
                on_text(&piece)?;
            }
        }
        if interrupt::asked() {
            break; // the connection closes, and the server stops computing
        }
    }
    let stopped = interrupt::asked() && !done;
    // Some servers end a stream without `[DONE]`: that every text has its reason is enough.
    let ended = texts.iter().all(|text| text.finish_reason.is_some());
    ensure!(
        done || ended || stopped,
        "the stream broke off after {pieces} events with text, before its end was said; is the \
         server still running?"
    );
    let prefill_s = first.unwrap_or_default();
    let decode_s = began.elapsed().as_secs_f64() - prefill_s;
    for text in &mut texts {
        (text.prefill_s, text.decode_s) = (prefill_s, decode_s);
    }
    let first = format!("first text after {:.0} ms", 1e3 * prefill_s);
    let stats = match usage {
        Some((prompt, new)) => {
            let later = new.saturating_sub(n as u64) as f64;
            let rate = if decode_s > 0.0 { later / decode_s } else { 0.0 };
            format!("prompt {prompt} tokens, new {new}; {first}, then {rate:.0} tokens/s")
        }
        None => format!("{first}, all after {:.2} s", prefill_s + decode_s),
    };
    Ok(Received { texts, stats, stopped })
}

/// Adds what an event says of a choice to its text, and returns the new piece.
fn take(text: &mut RemoteText, choice: &Value) -> String {
    let piece = choice["text"].as_str().or(choice["delta"]["content"].as_str()).unwrap_or_default();
    text.text.push_str(piece);
    if let Some(reason) = choice["finish_reason"].as_str() {
        text.finish_reason = Some(reason.to_string());
    }
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let ids =
        |value: &Value| -> Vec<u64> { list(value).iter().filter_map(Value::as_u64).collect() };
    text.new_ids.extend(ids(&choice["token_ids"]));
    if text.prompt_ids.is_empty() {
        text.prompt_ids = ids(&choice["prompt_token_ids"]);
    }
    let word = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    // A completion has lists side by side; a chat, and llama.cpp always, one entry a token.
    let logprobs = &choice["logprobs"];
    text.tokens.extend(list(&logprobs["tokens"]).iter().map(word));
    text.logprobs.extend(list(&logprobs["token_logprobs"]).iter().map(number));
    for entry in list(&logprobs["content"]) {
        text.tokens.push(word(&entry["token"]));
        text.logprobs.push(number(&entry["logprob"]));
        text.new_ids.extend(entry["id"].as_u64());
    }
    piece.to_string()
}
