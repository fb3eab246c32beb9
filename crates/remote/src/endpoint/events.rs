//! A response as events: each with a piece of text, some tokens, or how a text ended.

use crate::endpoint::json;
use crate::endpoint::request::Request;
use crate::endpoint::stream::Message;
use anyhow::{anyhow, bail, ensure, Context as _, Result};
use candecode_kit::error::{quoted, shown};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of a token's text, in bytes. Real vocabularies stay within a few hundred.
const LONGEST_TOKEN: usize = 512;
/// Finish reasons of a text that the server couldn't finish.
const FAILED: &[&str] = &[
    "abort",
    "aborted",
    "canceled",
    "cancelled",
    "error",
    "failed",
    "insufficient_system_resource",
    "timeout",
];
/// How often to ask whether to stop while no event arrives.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// A part of a response. `at` is the index of its text, among those that were requested.
#[derive(Debug)]
pub enum Event {
    /// The next piece of a text, which isn't empty.
    Text {
        /// Index of the text.
        at: usize,
        /// The piece.
        text: String,
    },
    /// Token ids of the prompt, if the server reports them.
    Prompt {
        /// Index of the text.
        at: usize,
        /// The ids.
        ids: Vec<u64>,
    },
    /// The next generated tokens, as far as the server reports them. Each list may be empty.
    Tokens {
        /// Index of the text.
        at: usize,
        /// Token ids.
        ids: Vec<u64>,
        /// The text of each token.
        texts: Vec<String>,
        /// Natural log of each token's probability.
        logprobs: Vec<f64>,
    },
    /// Why a text ended, as the protocol names it: `stop`, `length`, …
    Finish {
        /// Index of the text.
        at: usize,
        /// The reason.
        reason: String,
    },
    /// The number of tokens of the prompt and of the texts.
    Usage {
        /// Tokens of the prompt.
        prompt: u64,
        /// Generated tokens.
        new: u64,
    },
}

/// The events of a response, in the order in which they arrive. Its size is limited in proportion
/// to what was requested, however long the stream continues. An error is the last event: the server
/// rejects the request, reports an error, or ends the stream early.
pub struct Events {
    received: Receiver<Result<Message>>,
    /// Dropped with the events, so that the sender can see that no one waits for it.
    _wanted: Arc<()>,
    stop: fn() -> bool,
    /// Maximum number of tokens to accept for each text, and the number that was requested.
    most_tokens: usize,
    wanted_tokens: usize,
    /// Events of the newest message that haven't been returned yet.
    ready: VecDeque<Result<Event>>,
    texts: Vec<Progress>,
    /// Number of pieces of text so far.
    pieces: usize,
    /// Whether a message has arrived.
    begun: bool,
    /// Whether nothing more is to come.
    ended: bool,
    stopped: bool,
}

/// What has arrived of a text.
#[derive(Clone, Default)]
struct Progress {
    /// Its length in bytes.
    length: usize,
    /// Whether an event mentioned it.
    begun: bool,
    /// Whether it has a finish reason.
    finished: bool,
}

impl Events {
    /// Returns the events of a response to `request`, whose messages arrive through a channel.
    /// `wanted` is held until the events are dropped.
    pub(super) fn new(
        received: Receiver<Result<Message>>,
        wanted: Arc<()>,
        request: &Request<'_>,
        stop: fn() -> bool,
    ) -> Self {
        let n = request.n();
        Self {
            received,
            _wanted: wanted,
            stop,
            most_tokens: request.most_tokens(),
            wanted_tokens: request.params.max_new_tokens,
            ready: VecDeque::new(),
            texts: vec![Progress::default(); n],
            pieces: 0,
            begun: false,
            ended: false,
            stopped: false,
        }
    }

    /// Returns true if the response ended early because it was stopped.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Receives a message and makes its events ready, or ends the response.
    fn receive(&mut self) -> Result<()> {
        let message = loop {
            if self.begun && (self.stop)() {
                return self.end(false); // closing the connection makes the server stop computing
            }
            match self.received.recv_timeout(TICK) {
                Ok(message) => break message,
                Err(RecvTimeoutError::Timeout) if !(self.stop)() => continue,
                Err(_) => return self.end(false), // the end of the stream, or the caller's wish
            }
        };
        let noun = if self.pieces == 1 { "event" } else { "events" };
        let broken = || format!("the stream was cut off after {} {noun} with text", self.pieces);
        let message = message.map_err(|error| match error.is::<std::io::Error>() {
            true => error.context(broken()),
            false => error,
        })?;
        self.begun = true;
        if message.data.trim() == "[DONE]" {
            return self.end(true);
        }
        let json = json::parse(&message.data);
        let error = match &json {
            Ok(json) => json::error_message(json),
            Err(_) => None,
        };
        if let Some(error) = error.or_else(|| message.is_error.then(|| message.data.clone())) {
            bail!("the server reports an error: {}", shown(error));
        }
        let json = json.with_context(|| {
            format!("the server sent an event that is not JSON: {}", quoted(&message.data))
        })?;
        if json["usage"].is_object() {
            let count = |name: &str| json["usage"][name].as_u64().unwrap_or(0);
            let (prompt, new) = (count("prompt_tokens"), count("completion_tokens"));
            self.ready.push_back(Ok(Event::Usage { prompt, new }));
        }
        json["choices"]
            .as_array()
            .into_iter()
            .flatten()
            .try_for_each(|choice| self.take(choice))?;
        if message.is_whole {
            return self.end(true);
        }
        Ok(())
    }

    /// Ends the response, with `[DONE]` or without.
    fn end(&mut self, done: bool) -> Result<()> {
        self.ended = true;
        self.stopped = !done && (self.stop)();
        if self.stopped {
            return Ok(());
        }
        // Some servers omit `[DONE]`. A finish reason for every text is enough.
        ensure!(
            done || self.texts.iter().all(|text| text.finished),
            "the stream ended early, after {} event(s) with text; is the server still running?",
            self.pieces
        );
        let (begun, n) = (self.texts.iter().filter(|text| text.begun).count(), self.texts.len());
        ensure!(begun > 0, "the server answered without text");
        ensure!(begun == n, "the server sent only {begun} of the {n} texts requested");
        Ok(())
    }

    /// Makes the events of a choice ready.
    fn take(&mut self, choice: &Value) -> Result<()> {
        let (at, n) = (choice["index"].as_u64().unwrap_or(0) as usize, self.texts.len());
        ensure!(at < n, "the server sent choice index {at}; number requested: {n}");
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let ids =
            |value: &Value| -> Vec<u64> { list(value).iter().filter_map(Value::as_u64).collect() };
        let word = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let mut events = Vec::new();
        let prompt_ids = ids(&choice["prompt_token_ids"]);
        if !prompt_ids.is_empty() {
            events.push(Event::Prompt { at, ids: prompt_ids });
        }
        // Completions use parallel lists; chats (and llama.cpp for both), one entry per token.
        let logprobs = &choice["logprobs"];
        let mut new_ids = ids(&choice["token_ids"]);
        let mut texts: Vec<String> = list(&logprobs["tokens"]).iter().map(word).collect();
        let mut numbers: Vec<f64> = list(&logprobs["token_logprobs"]).iter().map(number).collect();
        for entry in list(&logprobs["content"]) {
            texts.push(word(&entry["token"]));
            numbers.push(number(&entry["logprob"]));
            new_ids.extend(entry["id"].as_u64());
        }
        if !(new_ids.is_empty() && texts.is_empty() && numbers.is_empty()) {
            events.push(Event::Tokens { at, ids: new_ids, texts, logprobs: numbers });
        }
        // Some servers send the whole message so far with each new part of it.
        let content = match (&choice["delta"], &choice["message"]) {
            (delta @ Value::Object(_), _) | (_, delta @ Value::Object(_)) => delta,
            _ => choice,
        };
        let names = ["text", "content", "refusal"];
        let mut pieces = names.iter().map(|name| json::text(&content[*name]));
        let piece = pieces.find(|piece| !piece.is_empty()).unwrap_or_default();
        let text = &mut self.texts[at];
        text.begun = true;
        text.length += piece.len();
        ensure!(
            text.length <= self.most_tokens.saturating_mul(LONGEST_TOKEN),
            "the server keeps sending: {} bytes of text, but only {} tokens were requested",
            text.length,
            self.wanted_tokens
        );
        if !piece.is_empty() {
            self.pieces += 1;
            events.push(Event::Text { at, text: piece });
        }
        let reason = choice["finish_reason"].as_str().or(choice["finish_reason"]["type"].as_str());
        let reason = reason.filter(|reason| !matches!(*reason, "" | "null"));
        if let Some(reason) = reason {
            text.finished = true;
            events.push(Event::Finish { at, reason: reason.to_string() });
        }
        self.ready.extend(events.into_iter().map(Ok));
        match reason.filter(|reason| FAILED.contains(reason)) {
            Some(reason) => Err(anyhow!(
                "the server broke the text off: its finish_reason is {}",
                quoted(reason)
            )),
            None => Ok(()),
        }
    }
}

impl Iterator for Events {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Result<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            if let Err(error) = self.receive() {
                self.ended = true;
                self.ready.push_back(Err(error));
            }
        }
    }
}
