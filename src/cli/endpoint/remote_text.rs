//! `run --endpoint`: prompts sent one after another, and what comes back, as it comes.

use crate::cli::endpoint::remote_client::{error_message, Client, Stream};
use crate::cli::endpoint::remote_request::{completion, RemotePrompt, Server};
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

/// What a response may be at most, from what was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes of the whole stream.
    pub stream: u64,
    /// Bytes of one text.
    text: usize,
}

impl Bounds {
    /// For `n` texts of so many tokens.
    pub fn new(max_new_tokens: usize, n: usize) -> Self {
        let tokens = max_new_tokens.saturating_add(AT_LEAST);
        Self {
            stream: (tokens as u64).saturating_mul(n as u64).saturating_mul(STREAM_PER_TOKEN),
            text: tokens.saturating_mul(LONGEST_TOKEN),
        }
    }
}

/// What one choice of a response has become.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
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
}

/// What a response came to, and when.
#[derive(Debug, Default)]
pub struct Received {
    /// Its choices, in order.
    pub texts: Vec<RemoteText>,
    /// Seconds to the first text.
    pub first_s: f64,
    /// Seconds from there to the end.
    pub rest_s: f64,
    /// Tokens of the prompt and of all texts, as the server counts.
    pub usage: Option<(u64, u64)>,
    /// Ctrl-C ended it.
    pub stopped: bool,
}

/// One line of `--format json`: a text, and the times of its request.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    text: &'a RemoteText,
    prefill_s: f64,
    decode_s: f64,
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

/// Sends every prompt, and shows what comes back; gives the exit code.
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
    interrupt::watch();
    let n = args.num_return_sequences;
    let streams = args.format == Format::Text && n == 1;
    for (number, prompt) in prompts.iter().enumerate() {
        let body = completion(params, server, prompt, n, args.format == Format::Json);
        let began = Instant::now();
        let bounds = Bounds::new(params.max_new_tokens, n);
        let stream = client.stream("completions", &body, bounds.stream)?;
        let echo = match prompt {
            RemotePrompt::Text(text) => text.as_str(),
            RemotePrompt::Ids(_) => "",
        };
        let gap = if number > 0 { "\n" } else { "" };
        if streams {
            show(&format!("{gap}{echo}"))?;
        }
        let received = receive(stream, n, bounds, began, |text| match streams {
            true => show_text(text),
            false => Ok(()),
        });
        if streams {
            show("\n")?;
        }
        let received = received?;
        for (i, text) in received.texts.iter().enumerate() {
            let gap = if number + i > 0 { "\n" } else { "" };
            match args.format {
                Format::Text if streams => {}
                Format::Text => show_text(&format!("{gap}{echo}{}\n", text.text))?,
                Format::Json => {
                    let (prefill_s, decode_s) = (received.first_s, received.rest_s);
                    let line = Line { text, prefill_s, decode_s };
                    show(&(serde_json::to_string(&line)? + "\n"))?;
                }
            }
        }
        if args.stats {
            note!("{}", stats(&received));
        }
        if received.stopped {
            return Ok(130);
        }
    }
    Ok(0)
}

/// Collects the choices of a response; `on_text` sees each piece of text as it comes.
///
/// # Errors
/// If the server reports an error, or the stream ends before its end was said.
pub fn receive(
    stream: Stream,
    n: usize,
    bounds: Bounds,
    began: Instant,
    mut on_text: impl FnMut(&str) -> Result<()>,
) -> Result<Received> {
    let mut received = Received { texts: vec![RemoteText::default(); n], ..Received::default() };
    let mut first = None;
    let mut done = false;
    let mut pieces = 0;
    for event in stream {
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
        if let Some(usage) = json["usage"].as_object() {
            let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
            received.usage = Some((count("prompt_tokens"), count("completion_tokens")));
        }
        for choice in json["choices"].as_array().into_iter().flatten() {
            let index = choice["index"].as_u64().unwrap_or(0) as usize;
            let Some(text) = received.texts.get_mut(index) else {
                bail!("the server sent choice {index}, and {n} were asked for")
            };
            let piece = take(text, choice);
            ensure!(
                text.text.len() <= bounds.text,
                "the server goes on: {} bytes of text, and {} tokens were asked for",
                text.text.len(),
                bounds.text / LONGEST_TOKEN - AT_LEAST
            );
            if !piece.is_empty() {
                first.get_or_insert_with(|| began.elapsed().as_secs_f64());
                pieces += 1;
                on_text(&piece)?;
            }
        }
        if interrupt::asked() {
            received.stopped = true; // the connection closes, and the server stops computing
            break;
        }
    }
    // Some servers end a stream without `[DONE]`: that every text has its reason is enough.
    let ended = received.texts.iter().all(|text| text.finish_reason.is_some());
    ensure!(
        done || ended || received.stopped,
        "the stream broke off after {pieces} events with text, before its end was said; is the \
         server still running?"
    );
    received.first_s = first.unwrap_or_default();
    received.rest_s = began.elapsed().as_secs_f64() - received.first_s;
    Ok(received)
}

/// Adds what an event says of a choice to its text; gives the new piece.
fn take(text: &mut RemoteText, choice: &Value) -> String {
    let piece = choice["text"].as_str().or(choice["delta"]["content"].as_str()).unwrap_or_default();
    text.text.push_str(piece);
    if let Some(reason) = choice["finish_reason"].as_str() {
        text.finish_reason = Some(reason.to_string());
    }
    let numbers = |value: &Value| -> Vec<u64> {
        value.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
    };
    text.new_ids.extend(numbers(&choice["token_ids"]));
    if text.prompt_ids.is_empty() {
        text.prompt_ids = numbers(&choice["prompt_token_ids"]);
    }
    let logprobs = &choice["logprobs"];
    // A completion has lists side by side; a chat, and llama.cpp always, one entry a token.
    for token in logprobs["tokens"].as_array().into_iter().flatten() {
        text.tokens.push(token.as_str().unwrap_or_default().to_string());
    }
    for logprob in logprobs["token_logprobs"].as_array().into_iter().flatten() {
        text.logprobs.push(logprob.as_f64().unwrap_or(f64::NAN));
    }
    for entry in logprobs["content"].as_array().into_iter().flatten() {
        text.tokens.push(entry["token"].as_str().unwrap_or_default().to_string());
        text.logprobs.push(entry["logprob"].as_f64().unwrap_or(f64::NAN));
        text.new_ids.extend(entry["id"].as_u64());
    }
    piece.to_string()
}

/// The line of `--stats`.
pub fn stats(received: &Received) -> String {
    let (first, rest) = (1e3 * received.first_s, received.rest_s);
    match received.usage {
        Some((prompt, new)) => {
            let later = new.saturating_sub(received.texts.len() as u64) as f64;
            let rate = if rest > 0.0 { later / rest } else { 0.0 };
            format!(
                "prompt {prompt} tokens, new {new}; first text after {first:.0} ms, then {rate:.0} \
                 tokens/s"
            )
        }
        None => format!("first text after {first:.0} ms, all after {:.2} s", rest + first / 1e3),
    }
}
