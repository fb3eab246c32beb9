//! Builds answers in the form that OpenAI's clients expect: one JSON document, or a stream of
//! events.

use super::answer_parser::{AnswerForm, AnswerParser, Part};
use super::api_error::ApiError;
use super::api_request::ApiRequest;
use super::fields::Endpoint;
use crate::prompt_report::{PromptReport, Score};
use candecode::day20_serve::{finish_reason, ChoiceToken};
use candecode::kit::{FinishReason, Tokenizer};
use candecode_engine::Engine;
use serde::Serialize;
use serde_json::{json, Value};
use std::sync::Arc;

/// A token as it appears in an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
    pub fn new(tokenizer: &Tokenizer, id: u32, logprob: Option<f32>) -> Self {
        let mut bytes = tokenizer.token_bytes(id);
        if bytes.is_empty() {
            bytes = tokenizer.piece(id).unwrap_or_default().into_bytes();
        }
        let token = String::from_utf8_lossy(&bytes).into_owned();
        // As in vLLM: JSON has no infinity.
        let logprob = logprob.map(|logprob| logprob.max(-9999.0));
        Self { token, bytes, logprob }
    }
}

/// The logprobs of one token, in the form that a chat has them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TokenLogprobs {
    /// The token of the text.
    #[serde(flatten)]
    pub chosen: Spelled,
    /// The most likely tokens, best first, up to the number that the request asked for.
    #[serde(rename = "top_logprobs")]
    pub top: Vec<Spelled>,
}

impl TokenLogprobs {
    /// Spells out a token and its alternatives.
    pub fn new(tokenizer: &Tokenizer, id: u32, logprob: Option<f32>, top: &[(u32, f32)]) -> Self {
        let top = top.iter().map(|(id, p)| Spelled::new(tokenizer, *id, Some(*p))).collect();
        Self { chosen: Spelled::new(tokenizer, id, logprob), top }
    }
}

/// One token's contribution to a choice.
#[derive(Debug, Clone)]
pub struct ChoiceDelta {
    /// The index of the choice: choice `i` continues prompt `i / n`.
    pub index: usize,
    /// The new text, often empty.
    pub text: String,
    /// Number of tokens in the choice so far, including this one.
    pub tokens: usize,
    /// The token's logprobs, if the request asked for them. With `echo`, those of the prompt come
    /// before the first.
    pub logprobs: Vec<TokenLogprobs>,
    /// Present on a choice's last token.
    pub finish: Option<FinishReason>,
}

/// One choice of an answer, built up token by token.
#[derive(Debug, Clone, Default)]
struct ReplyChoice {
    /// The prompt, with `echo`, until there is a token.
    echo: String,
    /// Takes the text apart.
    parser: AnswerParser,
    /// Its parts that haven't been sent yet.
    parts: Vec<Part>,
    /// Number of tokens, as counted by day 20's serving loop.
    tokens: usize,
    /// Logprobs not yet sent in an event.
    logprobs: Vec<TokenLogprobs>,
    /// Number of characters in the tokens for which logprobs have been sent.
    offset: usize,
    /// The reason it finished. None while it is still running.
    finish: Option<FinishReason>,
}

/// What an answer says about the server and the request's arrival.
pub struct Origin {
    /// The engine, whose tokenizer spells out tokens.
    pub engine: Arc<Engine>,
    /// The model's name.
    pub model: String,
    /// OpenAI's `system_fingerprint`.
    pub fingerprint: String,
    /// `cmpl-…` or `chatcmpl-…`, the same in every event.
    pub id: String,
    /// Arrival time of the request in seconds since 1970, the same in every event.
    pub created: u64,
}

/// An answer under construction: takes tokens, and produces OpenAI's JSON in one piece or as a
/// stream.
pub struct Reply {
    origin: Origin,
    request: ApiRequest,
    /// What is found out about the prompt of each choice.
    reports: Vec<Arc<PromptReport>>,
    choices: Vec<ReplyChoice>,
}

impl Reply {
    /// Starts the answer to a request, with a report for each choice. `echoes` holds the texts of
    /// the prompts if the answer repeats them, and is empty otherwise. `form` says what to look for
    /// in each answer.
    pub fn new(
        origin: Origin,
        request: ApiRequest,
        reports: Vec<Arc<PromptReport>>,
        echoes: &[String],
        form: &AnswerForm,
    ) -> Self {
        let choice = |i: usize| ReplyChoice {
            echo: echoes.get(i / request.n).cloned().unwrap_or_default(),
            parser: AnswerParser::new(form.clone(), !request.fields.stream),
            ..ReplyChoice::default()
        };
        let choices = (0..reports.len()).map(choice).collect();
        Self { origin, request, reports, choices }
    }

    /// Whether the answer includes logprobs of any kind.
    pub fn has_logprobs(&self) -> bool {
        self.request.logprobs.is_some() || self.request.fields.prompt_logprobs.is_some()
    }

    /// Spells out what the loop has sent.
    ///
    /// # Errors
    /// 500 if the logprobs of the prompt before this token couldn't be computed.
    pub fn spell(&self, piece: ChoiceToken) -> Result<ChoiceDelta, ApiError> {
        let ChoiceToken { index, tokens, token } = piece;
        let (tokenizer, report) = (self.origin.engine.tokenizer(), self.reports[index].found());
        if let Some(error) = &report.error {
            return Err(ApiError::failed(format!("the prompt's logprobs: {error}")));
        }
        let (most, is_first) = (self.request.logprobs, self.choices[index].tokens == 0);
        let mut logprobs = Vec::new();
        if let Some(most) = most.filter(|_| is_first && self.request.fields.echo) {
            let prompt = self.reports[index].prompt.iter().zip(&report.scores);
            logprobs.extend(prompt.map(|(id, Score { logprob, top, .. })| {
                TokenLogprobs::new(tokenizer, *id, *logprob, &top[..most.min(top.len())])
            }));
        }
        if self.request.only_echoes() {
            let finish = Some(FinishReason::Length);
            return Ok(ChoiceDelta { index, text: String::new(), tokens: 0, logprobs, finish });
        }
        if most.is_some() {
            let own = TokenLogprobs::new(tokenizer, token.id, Some(token.logprob), &token.top);
            logprobs.push(own);
        }
        Ok(ChoiceDelta { index, text: token.text, tokens, logprobs, finish: token.finish })
    }

    /// Whether every choice has finished.
    pub fn is_done(&self) -> bool {
        self.choices.iter().all(|choice| choice.finish.is_some())
    }

    /// The usage of the whole answer. Each prompt counts once, regardless of `n`.
    fn usage(&self) -> Value {
        let completion = self.choices.iter().map(|choice| choice.tokens).sum();
        usage(self.reports.iter().step_by(self.request.n), completion)
    }

    /// Appends a token to its choice.
    pub fn take(&mut self, delta: ChoiceDelta) {
        let choice = &mut self.choices[delta.index];
        let text = std::mem::take(&mut choice.echo) + &delta.text;
        choice.parts.extend(choice.parser.push(&text));
        if delta.finish.is_some() {
            choice.parts.extend(choice.parser.finish());
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
        let is_first = self.choices[index].tokens == 0;
        self.take(delta);
        let mut events = String::new();
        if self.request.endpoint == Endpoint::Chat && is_first {
            let role = json!({"role": "assistant", "content": ""});
            events += &self.event(index, role, Value::Null, None);
        }
        for part in std::mem::take(&mut self.choices[index].parts) {
            let logprobs = self.take_logprobs(index);
            events += &self.event(index, self.part(index, part), logprobs, None);
        }
        if finish.is_some() {
            let logprobs = self.take_logprobs(index);
            let nothing = match self.request.endpoint {
                Endpoint::Completions => json!(""),
                Endpoint::Chat => json!({}),
            };
            events += &self.event(index, nothing, logprobs, finish);
        }
        if self.is_done() {
            if self.request.fields.stream_options.include_usage == Some(true) {
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
        let name = if self.request.endpoint == Endpoint::Chat { "delta" } else { "text" };
        choice[name] = new;
        let usage = match self.request.fields.stream_options.continuous_usage_stats {
            Some(true) => usage([&self.reports[index]], self.choices[index].tokens),
            _ => Value::Null,
        };
        sse(self.chunk(json!([choice]), usage))
    }

    /// Builds an event. If the stream ends with a usage event, every earlier event has a `usage`,
    /// too: `null`, or that of its choice so far.
    fn chunk(&self, choices: Value, usage: Value) -> Value {
        let mut chunk = self.answer("chat.completion.chunk", choices);
        if self.request.fields.stream_options.include_usage == Some(true) {
            chunk["usage"] = usage;
        }
        chunk
    }

    /// Builds the part that a whole answer and all events share. `chat` is the name of a chat's.
    fn answer(&self, chat: &str, choices: Value) -> Value {
        let is_chat = self.request.endpoint == Endpoint::Chat;
        let Origin { id, created, model, fingerprint, .. } = &self.origin;
        json!({
            "id": id, "object": if is_chat { chat } else { "text_completion" },
            "created": created, "model": model, "system_fingerprint": fingerprint,
            "choices": choices,
        })
    }

    /// Builds the part that a choice has in a whole answer and in every event.
    fn choice(&self, index: usize, logprobs: Value, finish: Option<FinishReason>) -> Value {
        let reason = finish.map(|finish| match finish_reason(finish) {
            "stop" if self.choices[index].parser.has_called() => "tool_calls",
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
            let parts = std::mem::take(&mut self.choices[index].parts);
            let mut choice = self.choice(index, logprobs, self.choices[index].finish);
            let mut message = self.message(index, parts);
            match self.request.endpoint {
                Endpoint::Completions => {
                    choice["text"] = message["content"].take();
                    choice["prompt_logprobs"] = self.prompt_logprobs(index);
                }
                Endpoint::Chat => choice["message"] = message,
            }
            choices.push(choice);
        }
        let mut whole = self.answer("chat.completion", json!(choices));
        whole["usage"] = self.usage();
        if self.request.endpoint == Endpoint::Chat {
            whole["prompt_logprobs"] = self.prompt_logprobs(0);
        }
        escaped(whole)
    }

    /// Returns the logprobs of a choice's prompt in vLLM's form: `[null, {id: {"logprob", "rank",
    /// "decoded_token"}, …}, …]`, where each object has the token itself and the most likely ones;
    /// or `null` if the request didn't ask for them.
    fn prompt_logprobs(&self, index: usize) -> Value {
        let Some(most) = self.request.fields.prompt_logprobs else { return Value::Null };
        let report = &self.reports[index];
        let mut all = Vec::new();
        for (id, score) in report.prompt.iter().zip(&report.found().scores) {
            let mut at = Value::Null;
            let ranked = (1..).zip(score.top.iter().take(most));
            let ranked = ranked.map(|(rank, (id, p))| (id, *p, rank));
            for (id, p, rank) in ranked.chain(score.logprob.map(|p| (id, p, score.rank))) {
                let Spelled { token, logprob, .. } =
                    Spelled::new(self.origin.engine.tokenizer(), *id, Some(p));
                at[id.to_string()] =
                    json!({"logprob": logprob, "rank": rank, "decoded_token": token});
            }
            all.push(at);
        }
        json!(all)
    }

    /// Returns the whole message that these are the parts of.
    fn message(&self, index: usize, parts: Vec<Part>) -> Value {
        let (mut content, mut thoughts, mut called) = (String::new(), String::new(), Vec::new());
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

    /// Returns a part of choice `index` as its event has it: text, or a delta in a chat.
    fn part(&self, index: usize, part: Part) -> Value {
        match part {
            Part::Content(text) if self.request.endpoint == Endpoint::Completions => json!(text),
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
        let id = self.origin.id.rsplit('-').next().unwrap_or_default();
        format!("call_{id}_{index}_{call}")
    }

    /// Takes the logprobs that choice `index` hasn't sent yet. Returns `null` if there are none.
    fn take_logprobs(&mut self, index: usize) -> Value {
        let choice = &mut self.choices[index];
        let tokens = std::mem::take(&mut choice.logprobs);
        match self.request.endpoint {
            _ if tokens.is_empty() => Value::Null,
            Endpoint::Chat => json!({"content": tokens, "refusal": null}),
            Endpoint::Completions => completion_logprobs(&tokens, &mut choice.offset),
        }
    }
}

/// Formats OpenAI's `usage` of these prompts and the tokens after them.
fn usage<'a>(reports: impl IntoIterator<Item = &'a Arc<PromptReport>>, completion: usize) -> Value {
    let (mut prompt, mut cached) = (0, 0);
    for report in reports {
        prompt += report.prompt.len();
        cached += report.found().cached_tokens;
    }
    json!({
        "prompt_tokens": prompt, "completion_tokens": completion,
        "total_tokens": prompt + completion, "prompt_tokens_details": {"cached_tokens": cached},
    })
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
