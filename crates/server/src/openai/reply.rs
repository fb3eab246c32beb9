//! Answers as OpenAI's clients read them: JSON in one piece, or a stream of events.

use super::api_error::ApiError;
use super::api_request::{ApiRequest, Endpoint};
use candecode::day20_serve::{finish_reason, Piece};
use candecode::kit::{FinishReason, Tokenizer};
use serde_json::{json, Value};

/// A token as an answer spells it.
#[derive(Debug, Clone, PartialEq)]
pub struct Spelled {
    /// Its text; half a character becomes `U+FFFD`.
    pub token: String,
    /// Its bytes: halves of a character can be joined.
    pub bytes: Vec<u8>,
    /// The log of its probability before any processor.
    pub logprob: f32,
}

impl Spelled {
    /// Spells a token. A special token has no bytes in a text, so it is spelled by its name.
    pub fn new(tokenizer: &Tokenizer, id: u32, logprob: f32) -> Self {
        let mut bytes = tokenizer.token_bytes(id);
        if bytes.is_empty() {
            bytes = tokenizer.piece(id).unwrap_or_default().into_bytes();
        }
        let token = String::from_utf8_lossy(&bytes).into_owned();
        Self { token, bytes, logprob: logprob.max(-9999.0) } // JSON has no infinity; this is vLLM's
    }

    fn json(&self) -> Value {
        json!({"token": self.token, "logprob": self.logprob, "bytes": self.bytes})
    }
}

/// The logprobs of one generated token.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprobs {
    /// The token that was chosen.
    pub chosen: Spelled,
    /// The likeliest tokens, as many as the request asked for, likeliest first.
    pub top: Vec<Spelled>,
}

/// What one token adds to a choice.
#[derive(Debug, Clone, PartialEq)]
pub struct ChoiceDelta {
    /// The choice: choice `i` continues prompt `i / n`.
    pub index: usize,
    /// The new text; often empty.
    pub text: String,
    /// The number of tokens of the choice so far, this one included.
    pub tokens: usize,
    /// Set if the request asked for logprobs.
    pub logprobs: Option<TokenLogprobs>,
    /// Set on the last token of a choice.
    pub finish: Option<FinishReason>,
}

impl ChoiceDelta {
    /// Takes over a piece from day 20's loop, and spells its tokens if `logprobs` are asked for.
    pub fn new(piece: Piece, tokenizer: &Tokenizer, logprobs: bool) -> Self {
        let Piece { index, tokens, token } = piece;
        let logprobs = logprobs.then(|| TokenLogprobs {
            chosen: Spelled::new(tokenizer, token.id, token.logprob),
            top: token.top.iter().map(|(id, p)| Spelled::new(tokenizer, *id, *p)).collect(),
        });
        Self { index, text: token.text, tokens, logprobs, finish: token.finish }
    }
}

/// One choice of an answer, as far as it has come.
#[derive(Debug, Clone, Default)]
struct ReplyChoice {
    /// Its text that no event has reported yet. With `echo` it begins with the prompt.
    text: String,
    /// The number of its tokens, as day 20's loop counts them.
    tokens: usize,
    /// Logprobs that no event has reported yet.
    logprobs: Vec<TokenLogprobs>,
    /// The number of characters in the tokens whose logprobs have been reported.
    offset: usize,
    /// Whether an event has reported its role (streamed chats only).
    begun: bool,
    /// Why it ended; None while it goes on.
    finish: Option<FinishReason>,
}

/// An answer in the making: tokens in, OpenAI's JSON out, all at once or as a stream.
#[derive(Debug, Clone)]
pub struct Reply {
    endpoint: Endpoint,
    /// `cmpl-…` or `chatcmpl-…`, the same in every event.
    id: String,
    /// When the request came, in seconds since 1970, the same in every event.
    created: u64,
    model: String,
    /// The tokens of all prompts. Each prompt counts once, however many choices it has.
    prompt_tokens: usize,
    /// Whether the answer has logprobs.
    pub logprobs: bool,
    include_usage: bool,
    choices: Vec<ReplyChoice>,
}

impl Reply {
    /// Starts the answer to a request with these prompts. `echoes` are their texts, if the answer
    /// begins with them.
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
            prompt_tokens: prompts.iter().map(Vec::len).sum(),
            logprobs: request.logprobs.is_some(),
            include_usage: request.include_usage,
            choices: (0..prompts.len() * request.n).map(choice).collect(),
        }
    }

    /// True when every choice has ended.
    pub fn is_done(&self) -> bool {
        self.choices.iter().all(|choice| choice.finish.is_some())
    }

    fn usage(&self) -> Value {
        let completion: usize = self.choices.iter().map(|choice| choice.tokens).sum();
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion,
        })
    }

    /// Adds a token to its choice.
    pub fn take(&mut self, delta: ChoiceDelta) {
        let choice = &mut self.choices[delta.index];
        choice.text.push_str(&delta.text);
        choice.tokens = delta.tokens;
        choice.logprobs.extend(delta.logprobs);
        choice.finish = delta.finish;
    }

    /// Adds a token, and returns the events that it makes: none, or up to three.
    ///
    /// A choice of a chat begins with an event that has its role. Then each token with text makes
    /// one. The end of a choice is an event of its own, as OpenAI's is: some clients ignore text
    /// beside a `finish_reason`. Logprobs of a token without text wait for the next event. After
    /// the last choice the stream ends, too.
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
        if !text.is_empty() {
            let logprobs = self.take_logprobs(index);
            let new = match self.endpoint {
                Endpoint::Completions => json!(text),
                Endpoint::Chat => json!({"content": text}),
            };
            events += &self.event(index, new, logprobs, None);
        }
        if finish.is_some() {
            let logprobs = match text.is_empty() {
                true => self.take_logprobs(index),
                false => Value::Null,
            };
            let nothing = match self.endpoint {
                Endpoint::Completions => json!(""),
                Endpoint::Chat => json!({}),
            };
            events += &self.event(index, nothing, logprobs, finish);
        }
        if self.is_done() {
            if self.include_usage {
                let mut last = self.chunk(json!([]));
                last["usage"] = self.usage();
                events += &sse(&last);
            }
            events += DONE;
        }
        events
    }

    /// An event of one choice. `new` is its text, or in a chat its delta.
    fn event(
        &self,
        index: usize,
        new: Value,
        logprobs: Value,
        finish: Option<FinishReason>,
    ) -> String {
        let mut choice = json!({
            "index": index, "logprobs": logprobs, "finish_reason": finish.map(finish_reason),
        });
        let name = if self.endpoint == Endpoint::Chat { "delta" } else { "text" };
        choice[name] = new;
        sse(&self.chunk(json!([choice])))
    }

    /// What all events share. If the stream ends with the usage, every earlier event has a `usage`
    /// of `null`.
    fn chunk(&self, choices: Value) -> Value {
        let object = match self.endpoint {
            Endpoint::Completions => "text_completion",
            Endpoint::Chat => "chat.completion.chunk",
        };
        let mut chunk = json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
            "choices": choices,
        });
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// Ends a stream that failed after it had begun: the error as an event, then the end.
    pub fn failed(error: &ApiError) -> String {
        sse(&error.body()) + DONE
    }

    /// Returns the whole answer, once it has every token.
    pub fn whole(&mut self) -> String {
        let mut choices = Vec::new();
        for index in 0..self.choices.len() {
            let logprobs = self.take_logprobs(index);
            let ReplyChoice { text, finish, .. } = &self.choices[index];
            let mut choice = json!({
                "index": index, "logprobs": logprobs, "finish_reason": finish.map(finish_reason),
            });
            match self.endpoint {
                Endpoint::Completions => choice["text"] = json!(text),
                Endpoint::Chat => {
                    choice["message"] =
                        json!({"role": "assistant", "content": text, "refusal": null});
                }
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

    /// Takes the logprobs that choice `index` hasn't reported yet; `null` if the request didn't ask
    /// for them.
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

/// `{"content": [{"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}, …]},
/// …], "refusal": null}`.
fn chat_logprobs(tokens: &[TokenLogprobs]) -> Value {
    let mut content = Vec::new();
    for token in tokens {
        let mut entry = token.chosen.json();
        entry["top_logprobs"] = token.top.iter().map(Spelled::json).collect();
        content.push(entry);
    }
    json!({"content": content, "refusal": null})
}

/// `{"tokens": […], "token_logprobs": […], "top_logprobs": [{token: logprob, …}, …], "text_offset":
/// […]}`, four lists with one element per token. `top_logprobs` always includes the chosen token,
/// and its logprob where others have the same text. `text_offset` is where the token begins, in
/// characters: the first at `offset`, which moves to the end.
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

/// A server-sent event.
fn sse(data: &Value) -> String {
    format!("data: {}\n\n", escaped(data))
}

/// The last event of a stream, which isn't JSON.
const DONE: &str = "data: [DONE]\n\n";

/// JSON without Unicode's line separators: some clients split a stream's lines at them.
fn escaped(json: &Value) -> String {
    let json = json.to_string().replace('\u{2028}', "\\u2028");
    json.replace('\u{2029}', "\\u2029").replace('\u{85}', "\\u0085")
}
