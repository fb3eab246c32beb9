//! `run --endpoint`: sends prompts one after another and shows the responses as they arrive.

use crate::flags::{Args, Format};
use crate::interrupt;
use crate::output::{show, show_text};
use crate::plan::prompt_texts;
use anyhow::{ensure, Result};
use candecode::kit::error::{quoted, usage};
use candecode::kit::note::note;
use candecode::kit::SamplingParams;
use candecode_remote::endpoint::{Client, Event, Prompt, Request, Server, What};
use serde::Serialize;
use std::time::Instant;

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
    /// Why the response isn't complete, if the server rejects the request, reports an error, or
    /// ends the stream early.
    pub failed: Option<anyhow::Error>,
}

/// Describes how a text ended, unless it's complete or has as many tokens as were requested. The
/// reasons are those of OpenAI's protocol, and the words for them that other servers use.
pub fn ending(reason: Option<&str>) -> Option<String> {
    let usual = ["stop", "eos", "eos_token", "end_turn", "stop_sequence"];
    let reason = reason.filter(|reason| !usual.contains(reason) && !LENGTH.contains(reason))?;
    Some(format!("the server ended the text early: its finish_reason is {}", quoted(reason)))
}

/// Finish reasons of a text that has as many tokens as were requested.
pub const LENGTH: &[&str] = &["length", "max_tokens", "model_length"];

/// Returns the prompts set by flags.
///
/// # Errors
/// If a file can't be read, or a prompt is empty.
pub fn prompts(args: &Args) -> Result<Vec<Prompt>> {
    if let Some(ids) = &args.prompt_ids {
        return Ok(vec![Prompt::Ids(ids.clone())]);
    }
    let texts = prompt_texts(args)?;
    ensure!(
        texts.iter().all(|text| !text.is_empty()),
        usage("the prompt is empty; give it at least one character")
    );
    Ok(texts.into_iter().map(Prompt::Text).collect())
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
    prompts: &[Prompt],
) -> Result<u8> {
    let n = args.num_return_sequences();
    let json = args.format == Format::Json;
    let streams = !json && n == 1;
    for (number, prompt) in prompts.iter().enumerate() {
        let what = What::Completion { prompt, n, with_ids: json };
        let echo = match prompt {
            Prompt::Text(text) => text.as_str(),
            Prompt::Ids(_) => "",
        };
        let gap = |i: usize| if number + i > 0 { "\n" } else { "" };
        let mut begun = false;
        let request = Request { server, params, what };
        let received = receive(client, &request, &mut |text| {
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
            if received.failed.is_some() && text.text.is_empty() {
                continue;
            }
            if json {
                show(&(serde_json::to_string(text)? + "\n"))?;
            } else if !begun {
                show_text(&format!("{}{echo}{}\n", gap(i), text.text))?;
            }
            // A failure says by itself how the text ended.
            let reason = text.finish_reason.as_deref().filter(|_| received.failed.is_none());
            if let Some(ending) = ending(reason) {
                note!("note: {ending}");
            }
        }
        if let Some(error) = received.failed {
            return Err(error);
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

/// Sends a request and collects the response. `on_text` receives each piece of text as it arrives.
/// Ctrl-C ends the response.
///
/// # Errors
/// If `on_text` fails.
pub fn receive(
    client: &Client,
    request: &Request<'_>,
    on_text: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<Received> {
    let (began, n) = (Instant::now(), request.n());
    let mut texts = vec![RemoteText::default(); n];
    let (mut first, mut usage, mut failed) = (None, None, None);
    let mut events = client.ask(request, interrupt::asked);
    for event in events.by_ref() {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                failed = Some(error);
                break;
            }
        };
        match event {
            Event::Text { at, text } => {
                first.get_or_insert_with(|| began.elapsed().as_secs_f64());
                texts[at].text.push_str(&text);
                on_text(&text)?;
            }
            Event::Prompt { at, ids } => {
                if texts[at].prompt_ids.is_empty() {
                    texts[at].prompt_ids = ids;
                }
            }
            Event::Tokens { at, ids, texts: tokens, logprobs } => {
                texts[at].new_ids.extend(ids);
                texts[at].tokens.extend(tokens);
                texts[at].logprobs.extend(logprobs);
            }
            Event::Finish { at, reason } => texts[at].finish_reason = Some(reason),
            Event::Usage { prompt, new } => usage = Some((prompt, new)),
        }
    }
    let stopped = events.stopped();
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
    Ok(Received { texts, stats, stopped, failed })
}
