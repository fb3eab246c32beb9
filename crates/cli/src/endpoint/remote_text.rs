//! `run --endpoint`: sends prompts one after another and shows the responses as they arrive.

use crate::endpoint::client::{error_message, Client, Server};
use crate::endpoint::request::{completion, RemotePrompt};
use crate::flags::{Args, Format};
use crate::interrupt;
use crate::output::{show, show_text};
use crate::plan::prompt_texts;
use anyhow::{bail, ensure, Context as _, Result};
use candecode::kit::error::{quoted, shown, usage};
use candecode::kit::note::note;
use candecode::kit::SamplingParams;
use serde::Serialize;
use serde_json::Value;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// Maximum length of a token's text, in bytes. Real vocabularies stay within a few hundred.
const LONGEST_TOKEN: usize = 512;
/// Maximum bytes of stream per token, including JSON and log-probabilities.
const STREAM_PER_TOKEN: u64 = 64 << 10;
/// Minimum number of tokens to allow for, even if fewer are requested.
const AT_LEAST: usize = 256;
/// How often to check for Ctrl-C while no event arrives.
const TICK: Duration = Duration::from_millis(100);

/// One choice of a response, in the form that `--format json` prints.
#[derive(Clone, Default, Serialize)]
pub struct RemoteText {
    /// Token ids of the prompt, if the server reports them.
    pub prompt_ids: Vec<u64>,
    /// Generated token ids, if the server reports them.
    pub new_ids: Vec<u64>,
    /// The text of each token, if the server reports it.
    pub tokens: Vec<String>,
    /// The generated text.
    pub text: String,
    /// Finish reason, as the protocol names it: `stop`, `length`, …
    pub finish_reason: Option<String>,
    /// Natural log of each token's probability, if the server reports it.
    pub logprobs: Vec<f64>,
    /// Seconds to the first text of the response.
    pub prefill_s: f64,
    /// Seconds from the first text to the end.
    pub decode_s: f64,
}

/// The result of a request.
pub struct Received {
    /// The response's choices, in order.
    pub texts: Vec<RemoteText>,
    /// The line that `--stats` prints.
    pub stats: String,
    /// Whether Ctrl-C ended the request.
    pub stopped: bool,
}

/// Returns the prompts set by flags.
///
/// # Errors
/// If a file can't be read, or a prompt is empty.
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

/// Sends every prompt, shows the responses, and returns the exit code.
///
/// # Errors
/// If the server rejects a request, or a stream ends early.
pub fn run(
    client: &Client,
    server: &Server,
    args: &Args,
    params: &SamplingParams,
    prompts: &[RemotePrompt],
) -> Result<u8> {
    let n = args.num_return_sequences();
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

/// Requests `n` completions and collects the response. `on_text` receives each piece of text as it
/// arrives. The size of the response is limited in proportion to what was requested, however long
/// the stream continues.
///
/// # Errors
/// If the server rejects the request, reports an error, or ends the stream early.
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
    let events = client.stream(path, body, most);
    loop {
        let event = match events.recv_timeout(TICK) {
            Ok(event) => event?,
            Err(RecvTimeoutError::Timeout) if !interrupt::asked() => continue,
            Err(_) => break, // the end of the stream, or Ctrl-C
        };
        let noun = if pieces == 1 { "event" } else { "events" };
        let broken = || format!("the stream was cut off after {pieces} {noun} with text");
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
                bail!("the server sent choice index {index}; number requested: {n}")
            };
            let piece = take(text, choice);
            ensure!(
                text.text.len() <= tokens.saturating_mul(LONGEST_TOKEN),
                "the server keeps sending: {} bytes of text, but only {} tokens were requested",
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
            break; // closing the connection makes the server stop computing
        }
    }
    let stopped = interrupt::asked() && !done;
    // Some servers omit `[DONE]`. A finish reason for every text is enough.
    let ended = texts.iter().all(|text| text.finish_reason.is_some());
    ensure!(
        done || ended || stopped,
        "the stream ended early, after {pieces} event(s) with text; is the server still running?"
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
        None => format!("{first}, done after {:.2} s", prefill_s + decode_s),
    };
    Ok(Received { texts, stats, stopped })
}

/// Appends an event's data to its choice, and returns the new text.
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
    // Completions use parallel lists; chats (and llama.cpp for both), one entry per token.
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
