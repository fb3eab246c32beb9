//! Builds answers in the form that OpenAI's clients expect: one JSON document, or a stream of
//! events.

use super::answer_parser::{AnswerForm, AnswerParser, Part};
use super::api_error::ApiError;
use super::api_request::ApiRequest;
use super::fields::{Endpoint, StreamOptions};
use crate::prompt_report::{PromptReport, Score};
use candecode::day20_serve::{finish_reason, ChoiceToken};
use candecode::kit::{FinishReason, Tokenizer};
use candecode_engine::Engine;
use serde_json::{json, Value};
use std::sync::Arc;

/// A token as it appears in an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Spelled {
    /// The token's text, with incomplete characters replaced by `U+FFFD`.
    pub token: String,
    /// The token's bytes, from which clients can reassemble split characters.
    pub bytes: Vec<u8>,
    /// The token's log probability before any processors. None for the first token of a prompt,
    /// which nothing predicts.
    pub logprob: Option<f32>,
}

impl Spelled {
    /// Spells out a token. Special tokens have no text, so their name is used.
    pub fn new(tokenizer: &Tokenizer, id: u32, logprob: impl Into<Option<f32>>) -> Self {
        let mut bytes = tokenizer.token_bytes(id);
        if bytes.is_empty() {
            bytes = tokenizer.piece(id).unwrap_or_default().into_bytes();
        }
        let token = String::from_utf8_lossy(&bytes).into_owned();
        // As in vLLM: JSON has no infinity.
        let logprob = logprob.into().map(|logprob| logprob.max(-9999.0));
        Self { token, bytes, logprob }
    }

    fn json(&self) -> Value {
        json!({"token": self.token, "logprob": self.logprob, "bytes": self.bytes})
    }
}

/// The logprobs of one token.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprobs {
    /// The token of the text.
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
    /// Whether the prompt's logprobs have been sent, where they are repeated.
    echoed: bool,
    /// Number of characters in the tokens for which logprobs have been sent.
    offset: usize,
    /// Whether the event with the role has been sent (streamed chats only).
    begun: bool,
    /// The reason it finished. None while it is still running.
    finish: Option<FinishReason>,
}

/// What an answer needs of the server that gives it.
#[derive(Clone)]
pub struct Backing {
    /// The engine, whose tokenizer spells out the tokens of prompts.
    pub engine: Arc<Engine>,
    /// What is found out about the prompt of each choice.
    pub reports: Vec<Arc<PromptReport>>,
    /// OpenAI's `system_fingerprint`.
    pub fingerprint: String,
}

/// An answer under construction: takes tokens, and produces OpenAI's JSON in one piece or as a
/// stream.
#[derive(Clone)]
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
    /// Number of alternatives to report with each token of an echoed prompt. None: no logprobs.
    echo_logprobs: Option<usize>,
    /// The same in vLLM's `prompt_logprobs`.
    prompt_logprobs: Option<usize>,
    /// Whether the answer is the prompt and nothing else.
    only_echoes: bool,
    stream_options: StreamOptions,
    choices: Vec<ReplyChoice>,
    backing: Option<Backing>,
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
            echo_logprobs: request.logprobs.filter(|_| request.fields.echo),
            prompt_logprobs: request.fields.prompt_logprobs,
            only_echoes: request.only_echoes(),
            stream_options: request.fields.stream_options.clone(),
            backing: None,
            choices: (0..prompts.len() * request.n).map(choice).collect(),
        }
    }

    /// Returns the answer of this server, which reports on the prompts.
    pub fn backed_by(self, backing: Backing) -> Self {
        Self { backing: Some(backing), ..self }
    }

    /// Whether the answer includes logprobs of any kind.
    pub fn has_logprobs(&self) -> bool {
        self.logprobs || self.prompt_logprobs.is_some()
    }

    /// Spells out what the loop has sent.
    ///
    /// # Errors
    /// 500 if the logprobs of the prompt before this token couldn't be computed.
    pub fn spell(
        &self,
        piece: ChoiceToken,
        tokenizer: &Tokenizer,
    ) -> Result<ChoiceDelta, ApiError> {
        let report = self.backing.as_ref().map(|backing| backing.reports[piece.index].found());
        match report.and_then(|report| report.error.clone()) {
            Some(error) => Err(ApiError::failed(format!("the prompt's logprobs: {error}"))),
            None => Ok(ChoiceDelta::new(piece, tokenizer, self.logprobs)),
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
        let first_of = |prompt: usize| self.cached_tokens(prompt * self.n);
        let cached = (0..self.prompt_tokens.len()).filter_map(first_of).reduce(|a, b| a + b);
        usage(self.prompt_tokens.iter().sum(), completion, cached)
    }

    /// Returns the number of tokens in a choice's prompt that were cached.
    fn cached_tokens(&self, index: usize) -> Option<usize> {
        self.backing.as_ref().map(|backing| backing.reports[index].found().cached_tokens)
    }

    /// Appends a token to its choice.
    pub fn take(&mut self, delta: ChoiceDelta) {
        let choice = &mut self.choices[delta.index];
        if self.only_echoes {
            choice.finish = Some(FinishReason::Length);
            return;
        }
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
        let index = delta.index;
        self.take(delta);
        let finish = self.choices[index].finish;
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
                events += &sse(self.chunk(json!([]), self.usage()));
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
        let mut choice = self.choice(index, logprobs, finish);
        let name = if self.endpoint == Endpoint::Chat { "delta" } else { "text" };
        choice[name] = new;
        let usage = match self.stream_options.continuous_usage_stats {
            Some(true) => {
                let (prompt, tokens) =
                    (self.prompt_tokens[index / self.n], self.choices[index].tokens);
                usage(prompt, tokens, self.cached_tokens(index))
            }
            _ => Value::Null,
        };
        sse(self.chunk(json!([choice]), usage))
    }

    /// Builds an event. If the stream ends with a usage event, every earlier event has a `usage`,
    /// too: `null`, or that of its choice so far.
    fn chunk(&self, choices: Value, usage: Value) -> Value {
        let mut chunk = self.answer("chat.completion.chunk", choices);
        if self.stream_options.include_usage == Some(true) {
            chunk["usage"] = usage;
        }
        chunk
    }

    /// Builds the part that a whole answer and all events share. `chat` is the name of a chat's.
    fn answer(&self, chat: &str, choices: Value) -> Value {
        let object = if self.endpoint == Endpoint::Chat { chat } else { "text_completion" };
        let mut answer = json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
            "choices": choices,
        });
        if let Some(backing) = &self.backing {
            answer["system_fingerprint"] = json!(backing.fingerprint);
        }
        answer
    }

    /// Builds the part that a choice has in a whole answer and in every event.
    fn choice(&self, index: usize, logprobs: Value, finish: Option<FinishReason>) -> Value {
        let parser = &self.choices[index].parser;
        let reason = finish.map(|finish| match finish_reason(finish) {
            "stop" if parser.as_ref().is_some_and(AnswerParser::has_called) => "tool_calls",
            reason => reason,
        });
        json!({"index": index, "logprobs": logprobs, "finish_reason": reason})
    }

    /// Returns the end of a stream that failed midway: the error as an event, then the end marker.
    pub fn failed(error: &ApiError) -> String {
        sse(error.body()) + DONE
    }

    /// Returns the complete answer, once all tokens have arrived.
    pub fn whole(&mut self) -> String {
        let mut choices = Vec::new();
        for index in 0..self.choices.len() {
            let logprobs = self.take_logprobs(index);
            let text = std::mem::take(&mut self.choices[index].text);
            let parts = std::mem::take(&mut self.choices[index].parts);
            let mut choice = self.choice(index, logprobs, self.choices[index].finish);
            match self.endpoint {
                Endpoint::Completions => {
                    choice["text"] = json!(text);
                    self.add_prompt_logprobs(&mut choice, index);
                }
                Endpoint::Chat => choice["message"] = self.message(index, text, parts),
            }
            choices.push(choice);
        }
        let mut whole = self.answer("chat.completion", json!(choices));
        whole["usage"] = self.usage();
        if self.endpoint == Endpoint::Chat {
            self.add_prompt_logprobs(&mut whole, 0);
        }
        escaped(whole)
    }

    /// Adds the logprobs of a choice's prompt as vLLM does: `[null, {id: {"logprob", "rank",
    /// "decoded_token"}, …}, …]`, where each object has the token itself and the most likely ones;
    /// or `null` if the request didn't ask for them.
    fn add_prompt_logprobs(&self, to: &mut Value, index: usize) {
        let Some(Backing { engine, reports, .. }) = &self.backing else { return };
        to["prompt_logprobs"] = Value::Null;
        let Some(most) = self.prompt_logprobs else { return };
        let mut all = vec![Value::Null];
        for Score { id, logprob, rank, top } in &reports[index].found().scores {
            let ranked = (1..).zip(top.iter().take(most)).map(|(rank, (id, p))| (id, p, rank));
            let mut at = json!({});
            for (id, logprob, rank) in ranked.chain([(id, logprob, *rank)]) {
                let Spelled { token, logprob, .. } =
                    Spelled::new(engine.tokenizer(), *id, *logprob);
                at[id.to_string()] =
                    json!({"logprob": logprob, "rank": rank, "decoded_token": token});
            }
            all.push(at);
        }
        to["prompt_logprobs"] = json!(all);
    }

    /// Spells out the tokens of a choice's prompt, with `most` alternatives each.
    fn spelled_prompt(&self, index: usize, most: usize) -> Vec<TokenLogprobs> {
        let Some(Backing { engine, reports, .. }) = &self.backing else { return Vec::new() };
        let (tokenizer, report) = (engine.tokenizer(), &reports[index]);
        let first = Spelled::new(tokenizer, report.first, None);
        let mut all = vec![TokenLogprobs { chosen: first, top: Vec::new() }];
        for Score { id, logprob, top, .. } in &report.found().scores {
            let top = top.iter().take(most).map(|(id, p)| Spelled::new(tokenizer, *id, *p));
            let chosen = Spelled::new(tokenizer, *id, *logprob);
            all.push(TokenLogprobs { chosen, top: top.collect() });
        }
        all
    }

    /// Returns a chat's whole message: this text, or these parts of it.
    fn message(&self, index: usize, mut content: String, parts: Vec<Part>) -> Value {
        let (mut thoughts, mut called) = (String::new(), Vec::new());
        for part in parts {
            match part {
                Part::Content(text) => content += &text,
                Part::Reasoning(text) => thoughts += &text,
                Part::Call { name, .. } => called.push((name, String::new())),
                Part::Arguments { index, text } => called[index].1 += &text,
            }
        }
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if !thoughts.is_empty() {
            message["reasoning"] = json!(thoughts);
            message["reasoning_content"] = json!(thoughts); // its older name
        }
        if !called.is_empty() {
            if content.is_empty() {
                message["content"] = Value::Null;
            }
            let call = |(call, (name, arguments)): (usize, (String, String))| {
                let function = json!({"name": name, "arguments": arguments});
                json!({"id": self.call_id(index, call), "type": "function", "function": function})
            };
            message["tool_calls"] = called.into_iter().enumerate().map(call).collect();
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
        let mut tokens = Vec::new();
        if let Some(top) = self.echo_logprobs.filter(|_| !self.choices[index].echoed) {
            self.choices[index].echoed = true;
            tokens = self.spelled_prompt(index, top);
        }
        let choice = &mut self.choices[index];
        tokens.append(&mut choice.logprobs);
        match self.endpoint {
            Endpoint::Chat => chat_logprobs(&tokens),
            Endpoint::Completions => completion_logprobs(&tokens, &mut choice.offset),
        }
    }
}

/// Formats OpenAI's `usage`, with the number of the prompt's tokens that were cached, if known.
fn usage(prompt: usize, completion: usize, cached: Option<usize>) -> Value {
    let mut usage = json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    });
    if let Some(cached) = cached {
        usage["prompt_tokens_details"] = json!({"cached_tokens": cached});
    }
    usage
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
/// same text. The first token of a prompt has neither. `text_offset` is where each token starts, in
/// characters: the first at `offset`, which is advanced past the last.
fn completion_logprobs(tokens: &[TokenLogprobs], offset: &mut usize) -> Value {
    let (mut texts, mut logprobs) = (Vec::new(), Vec::new());
    let (mut tops, mut offsets) = (Vec::new(), Vec::new());
    for TokenLogprobs { chosen, top } in tokens {
        let mut map = Value::Null;
        for token in top.iter().chain([chosen]).filter(|token| token.logprob.is_some()) {
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
fn sse(data: Value) -> String {
    format!("data: {}\n\n", escaped(data))
}

/// The event that ends a stream. It isn't JSON.
const DONE: &str = "data: [DONE]\n\n";

/// Serializes JSON, with the keys in order, and without Unicode line separators, because some
/// clients split lines at them.
fn escaped(mut json: Value) -> String {
    json.sort_all_objects();
    let json = json.to_string().replace('\u{2028}', "\\u2028");
    json.replace('\u{2029}', "\\u2029").replace('\u{85}', "\\u0085")
}
