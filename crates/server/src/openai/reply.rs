//! Builds answers in the form that OpenAI's clients expect: one JSON document, or a stream of
//! events.

use super::answer_parser::{AnswerForm, AnswerParser, Part};
use super::api_error::ApiError;
use super::api_request::ApiRequest;
use super::fields::{Endpoint, StreamOptions};
use candecode::day20_serve::{finish_reason, ChoiceToken};
use candecode::kit::{FinishReason, Tokenizer};
use serde_json::{json, Value};

/// A token as it appears in an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Spelled {
    /// The token's text, with incomplete characters replaced by `U+FFFD`.
    pub token: String,
    /// The token's bytes, from which clients can reassemble split characters.
    pub bytes: Vec<u8>,
    /// The token's log probability before any processors.
    pub logprob: f32,
}

impl Spelled {
    /// Spells out a token. Special tokens have no text, so their name is used.
    pub fn new(tokenizer: &Tokenizer, id: u32, logprob: f32) -> Self {
        let mut bytes = tokenizer.token_bytes(id);
        if bytes.is_empty() {
            bytes = tokenizer.piece(id).unwrap_or_default().into_bytes();
        }
        let token = String::from_utf8_lossy(&bytes).into_owned();
        Self { token, bytes, logprob: logprob.max(-9999.0) } // no infinity in JSON; as in vLLM
    }

    fn json(&self) -> Value {
        json!({"token": self.token, "logprob": self.logprob, "bytes": self.bytes})
    }
}

/// The logprobs of one generated token.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprobs {
    /// The sampled token.
    pub chosen: Spelled,
    /// The most likely tokens, best first, up to the number that the request asked for.
    pub top: Vec<Spelled>,
}

/// One token's contribution to a choice.
#[derive(Debug, Clone, PartialEq)]
pub struct ChoiceDelta {
    /// The index of the choice: choice `i` continues prompt `i / n`.
    pub index: usize,
    /// The new text, often empty.
    pub text: String,
    /// Number of tokens in the choice so far, including this one.
    pub tokens: usize,
    /// Present if the request asked for logprobs.
    pub logprobs: Option<TokenLogprobs>,
    /// Present on a choice's last token.
    pub finish: Option<FinishReason>,
}

impl ChoiceDelta {
    /// Converts a piece from day 20's serving loop, spelling out its tokens if `logprobs` is set.
    pub fn new(piece: ChoiceToken, tokenizer: &Tokenizer, logprobs: bool) -> Self {
        let ChoiceToken { index, tokens, token } = piece;
        let logprobs = logprobs.then(|| TokenLogprobs {
            chosen: Spelled::new(tokenizer, token.id, token.logprob),
            top: token.top.iter().map(|(id, p)| Spelled::new(tokenizer, *id, *p)).collect(),
        });
        Self { index, text: token.text, tokens, logprobs, finish: token.finish }
    }
}

/// One choice of an answer, built up token by token.
#[derive(Debug, Clone, Default)]
struct ReplyChoice {
    /// Text not yet sent in an event. With `echo` it starts with the prompt.
    text: String,
    /// Takes the text apart. None: all of it is content.
    parser: Option<AnswerParser>,
    /// Its parts that haven't been sent yet.
    parts: Vec<Part>,
    /// Number of tokens, as counted by day 20's serving loop.
    tokens: usize,
    /// Logprobs not yet sent in an event.
    logprobs: Vec<TokenLogprobs>,
    /// Number of characters in the tokens for which logprobs have been sent.
    offset: usize,
    /// Whether the event with the role has been sent (streamed chats only).
    begun: bool,
    /// The reason it finished. None while it is still running.
    finish: Option<FinishReason>,
}

impl ReplyChoice {
    /// Returns OpenAI's word for the reason it finished.
    fn finish_reason(&self, finish: FinishReason) -> &'static str {
        match finish_reason(finish) {
            "stop" if self.parser.as_ref().is_some_and(AnswerParser::has_called) => "tool_calls",
            reason => reason,
        }
    }
}

/// An answer under construction: takes tokens, and produces OpenAI's JSON in one piece or as a
/// stream.
#[derive(Debug, Clone)]
pub struct Reply {
    endpoint: Endpoint,
    /// `cmpl-…` or `chatcmpl-…`, the same in every event.
    id: String,
    /// Arrival time of the request in seconds since 1970, the same in every event.
    created: u64,
    model: String,
    /// Number of tokens in each prompt.
    prompt_tokens: Vec<usize>,
    /// Choices per prompt.
    n: usize,
    /// Whether the answer includes logprobs.
    pub logprobs: bool,
    stream_options: StreamOptions,
    choices: Vec<ReplyChoice>,
}

impl Reply {
    /// Starts the answer to a request with these prompts. `echoes` holds their texts if the answer
    /// repeats them, and is empty otherwise.
    pub fn new(
        request: &ApiRequest,
        prompts: &[Vec<u32>],
        echoes: &[String],
        id: String,
        created: u64,
        model: String,
    ) -> Self {
        let choice = |i: usize| {
            let text = echoes.get(i / request.n).cloned().unwrap_or_default();
            ReplyChoice { text, ..ReplyChoice::default() }
        };
        Self {
            endpoint: request.endpoint,
            id,
            created,
            model,
            prompt_tokens: prompts.iter().map(Vec::len).collect(),
            n: request.n,
            logprobs: request.logprobs.is_some(),
            stream_options: request.fields.stream_options.clone(),
            choices: (0..prompts.len() * request.n).map(choice).collect(),
        }
    }

    /// Looks for thoughts and calls in each answer. `whole`: the answer isn't streamed.
    pub fn with_form(mut self, form: &AnswerForm, whole: bool) -> Self {
        if *form != AnswerForm::default() {
            for choice in &mut self.choices {
                choice.parser = Some(AnswerParser::new(form.clone(), whole));
            }
        }
        self
    }

    /// Whether every choice has finished.
    pub fn is_done(&self) -> bool {
        self.choices.iter().all(|choice| choice.finish.is_some())
    }

    /// The usage of the whole answer. Each prompt counts once, regardless of `n`.
    fn usage(&self) -> Value {
        let completion = self.choices.iter().map(|choice| choice.tokens).sum();
        usage(self.prompt_tokens.iter().sum(), completion)
    }

    /// Appends a token to its choice.
    pub fn take(&mut self, delta: ChoiceDelta) {
        let choice = &mut self.choices[delta.index];
        if let Some(parser) = &mut choice.parser {
            choice.parts.extend(parser.push(&delta.text));
            if delta.finish.is_some() {
                choice.parts.extend(parser.finish());
            }
        } else {
            choice.text.push_str(&delta.text);
        }
        choice.tokens = delta.tokens;
        choice.logprobs.extend(delta.logprobs);
        choice.finish = delta.finish;
    }

    /// Appends a token and returns its server-sent events, possibly none.
    ///
    /// A chat choice starts with an event that carries the role. Each token with text then produces
    /// one event. The finish reason has an event of its own, as OpenAI's does, because some clients
    /// ignore text in an event with a `finish_reason`. Logprobs of tokens without text wait for the
    /// next event. The last choice's finish also ends the stream.
    pub fn events(&mut self, delta: ChoiceDelta) -> String {
        let (index, finish) = (delta.index, delta.finish);
        self.take(delta);
        let mut events = String::new();
        if self.endpoint == Endpoint::Chat && !self.choices[index].begun {
            self.choices[index].begun = true;
            let role = json!({"role": "assistant", "content": ""});
            events += &self.event(index, role, Value::Null, None);
        }
        let text = std::mem::take(&mut self.choices[index].text);
        let mut new = Vec::new();
        if !text.is_empty() {
            new.push(match self.endpoint {
                Endpoint::Completions => json!(text),
                Endpoint::Chat => json!({"content": text}),
            });
        }
        for part in std::mem::take(&mut self.choices[index].parts) {
            new.push(self.part(index, part));
        }
        let is_silent = new.is_empty();
        for (i, new) in new.into_iter().enumerate() {
            let logprobs = if i == 0 { self.take_logprobs(index) } else { Value::Null };
            events += &self.event(index, new, logprobs, None);
        }
        if finish.is_some() {
            let logprobs = if is_silent { self.take_logprobs(index) } else { Value::Null };
            let nothing = match self.endpoint {
                Endpoint::Completions => json!(""),
                Endpoint::Chat => json!({}),
            };
            events += &self.event(index, nothing, logprobs, finish);
        }
        if self.is_done() {
            if self.stream_options.include_usage == Some(true) {
                events += &sse(&self.chunk(json!([]), self.usage()));
            }
            events += DONE;
        }
        events
    }

    /// Formats one choice's event. `new` is its text, or its delta in a chat.
    fn event(
        &self,
        index: usize,
        new: Value,
        logprobs: Value,
        finish: Option<FinishReason>,
    ) -> String {
        let reason = finish.map(|finish| self.choices[index].finish_reason(finish));
        let mut choice = json!({"index": index, "logprobs": logprobs, "finish_reason": reason});
        let name = if self.endpoint == Endpoint::Chat { "delta" } else { "text" };
        choice[name] = new;
        let usage = match self.stream_options.continuous_usage_stats {
            Some(true) => usage(self.prompt_tokens[index / self.n], self.choices[index].tokens),
            _ => Value::Null,
        };
        sse(&self.chunk(json!([choice]), usage))
    }

    /// Builds the part that all events share. If the stream ends with a usage event, every earlier
    /// event has a `usage`, too: `null`, or that of its choice so far.
    fn chunk(&self, choices: Value, usage: Value) -> Value {
        let object = match self.endpoint {
            Endpoint::Completions => "text_completion",
            Endpoint::Chat => "chat.completion.chunk",
        };
        let mut chunk = json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
            "choices": choices,
        });
        if self.stream_options.include_usage == Some(true) {
            chunk["usage"] = usage;
        }
        chunk
    }

    /// Returns the end of a stream that failed midway: the error as an event, then the end marker.
    pub fn failed(error: &ApiError) -> String {
        sse(&error.body()) + DONE
    }

    /// Returns the complete answer, once all tokens have arrived.
    pub fn whole(&mut self) -> String {
        let mut choices = Vec::new();
        for index in 0..self.choices.len() {
            let logprobs = self.take_logprobs(index);
            let parts = std::mem::take(&mut self.choices[index].parts);
            let ReplyChoice { text, finish, .. } = &self.choices[index];
            let reason = finish.map(|finish| self.choices[index].finish_reason(finish));
            let mut choice = json!({"index": index, "logprobs": logprobs, "finish_reason": reason});
            match self.endpoint {
                Endpoint::Completions => choice["text"] = json!(text),
                Endpoint::Chat => choice["message"] = self.message(index, text, parts),
            }
            choices.push(choice);
        }
        let object = match self.endpoint {
            Endpoint::Completions => "text_completion",
            Endpoint::Chat => "chat.completion",
        };
        let whole = json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
            "choices": choices, "usage": self.usage(),
        });
        escaped(&whole)
    }

    /// Returns a chat's whole message: this text, or these parts of it.
    fn message(&self, index: usize, text: &str, parts: Vec<Part>) -> Value {
        let (mut content, mut thoughts, mut calls) = (text.to_string(), String::new(), Vec::new());
        for part in parts {
            match part {
                Part::Content(text) => content += &text,
                Part::Reasoning(text) => thoughts += &text,
                Part::Call { index: call, name } => {
                    let function = json!({"name": name, "arguments": ""});
                    let id = self.call_id(index, call);
                    calls.push(json!({"id": id, "type": "function", "function": function}));
                }
                Part::Arguments { text, .. } => {
                    if let Some(call) = calls.last_mut() {
                        let so_far = call["function"]["arguments"].as_str().unwrap_or_default();
                        call["function"]["arguments"] = json!(format!("{so_far}{text}"));
                    }
                }
            }
        }
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if !thoughts.is_empty() {
            message["reasoning"] = json!(thoughts);
            message["reasoning_content"] = json!(thoughts); // its older name
        }
        if !calls.is_empty() {
            if content.is_empty() {
                message["content"] = Value::Null;
            }
            message["tool_calls"] = json!(calls);
        }
        message
    }

    /// Returns the delta of a part of choice `index`.
    fn part(&self, index: usize, part: Part) -> Value {
        match part {
            Part::Content(text) => json!({"content": text}),
            Part::Reasoning(text) => json!({"reasoning": text, "reasoning_content": text}),
            Part::Call { index: call, name } => json!({"tool_calls": [{
                "index": call, "id": self.call_id(index, call), "type": "function",
                "function": {"name": name, "arguments": ""},
            }]}),
            Part::Arguments { index, text } => {
                json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
            }
        }
    }

    /// Returns the id of a call in choice `index`. No two answers share one.
    fn call_id(&self, index: usize, call: usize) -> String {
        let id = self.id.rsplit('-').next().unwrap_or_default();
        format!("call_{id}_{index}_{call}")
    }

    /// Takes the logprobs that choice `index` hasn't sent yet. Returns `null` if the request didn't
    /// ask for them.
    fn take_logprobs(&mut self, index: usize) -> Value {
        if !self.logprobs {
            return Value::Null;
        }
        let choice = &mut self.choices[index];
        let tokens = std::mem::take(&mut choice.logprobs);
        match self.endpoint {
            Endpoint::Chat => chat_logprobs(&tokens),
            Endpoint::Completions => completion_logprobs(&tokens, &mut choice.offset),
        }
    }
}

/// Formats OpenAI's `usage`.
fn usage(prompt: usize, completion: usize) -> Value {
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    })
}

/// Formats logprobs for a chat: `{"content": [{"token", "logprob", "bytes", "top_logprobs":
/// [{"token", "logprob", "bytes"}, …]}, …], "refusal": null}`.
fn chat_logprobs(tokens: &[TokenLogprobs]) -> Value {
    let mut content = Vec::new();
    for token in tokens {
        let mut entry = token.chosen.json();
        entry["top_logprobs"] = token.top.iter().map(Spelled::json).collect();
        content.push(entry);
    }
    json!({"content": content, "refusal": null})
}

/// Formats logprobs for a completion: `{"tokens": […], "token_logprobs": […], "top_logprobs":
/// [{token: logprob, …}, …], "text_offset": […]}`, four lists with one element per token.
/// `top_logprobs` always includes the sampled token, whose logprob wins if other tokens have the
/// same text. `text_offset` is where each token starts, in characters: the first at `offset`, which
/// is advanced past the last.
fn completion_logprobs(tokens: &[TokenLogprobs], offset: &mut usize) -> Value {
    let (mut texts, mut logprobs) = (Vec::new(), Vec::new());
    let (mut tops, mut offsets) = (Vec::new(), Vec::new());
    for TokenLogprobs { chosen, top } in tokens {
        let mut map = json!({});
        for token in top.iter().chain([chosen]) {
            map[&token.token] = json!(token.logprob);
        }
        texts.push(&chosen.token);
        logprobs.push(chosen.logprob);
        tops.push(map);
        offsets.push(*offset);
        *offset += chosen.token.chars().count();
    }
    json!({
        "tokens": texts, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets,
    })
}

/// Formats a server-sent event.
fn sse(data: &Value) -> String {
    format!("data: {}\n\n", escaped(data))
}

/// The event that ends a stream. It isn't JSON.
const DONE: &str = "data: [DONE]\n\n";

/// Serializes JSON without Unicode line separators, because some clients split lines at them.
fn escaped(json: &Value) -> String {
    let json = json.to_string().replace('\u{2028}', "\\u2028");
    json.replace('\u{2029}', "\\u2029").replace('\u{85}', "\\u0085")
}
