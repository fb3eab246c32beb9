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
            chosen: spelled(tokenizer, token.id, token.logprob),
            top: token.top.iter().map(|(id, p)| spelled(tokenizer, *id, *p)).collect(),
        });
        Self { index, text: token.text, tokens, logprobs, finish: token.finish }
    }
}

/// Spells a token. A special token has no bytes in a text, so it is spelled by its name.
pub fn spelled(tokenizer: &Tokenizer, id: u32, logprob: f32) -> Spelled {
    let mut bytes = tokenizer.token_bytes(id);
    if bytes.is_empty() {
        bytes = tokenizer.piece(id).unwrap_or_default().into_bytes();
    }
    let token = String::from_utf8_lossy(&bytes).into_owned();
    Spelled { token, bytes, logprob: logprob.max(-9999.0) } // JSON has no infinity; this is vLLM's
}

/// Formats a server-sent event: `data: `, the JSON on one line, and an empty line.
pub fn sse(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// The last event of a stream, which isn't JSON.
pub const DONE: &str = "data: [DONE]\n\n";

/// Formats the logprobs of consecutive tokens as their endpoint does.
///
/// In a chat: `{"content": [{"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob",
/// "bytes"}, …]}, …]}`.
///
/// In a completion: `{"tokens": […], "token_logprobs": […], "top_logprobs": [{token: logprob, …},
/// …], "text_offset": […]}`, four lists with one element per token. `top_logprobs` always includes
/// the chosen token, even if it isn't one of the likeliest. `text_offset` is where the token begins,
/// in characters: the first at `offset`, and each later one after the characters of the `token`
/// before it. Where tokens with equal texts share a key of `top_logprobs`, the chosen one's logprob
/// is kept.
pub fn logprobs_json(endpoint: Endpoint, tokens: &[TokenLogprobs], mut offset: usize) -> Value {
    if endpoint == Endpoint::Chat {
        let mut content = Vec::new();
        for token in tokens {
            let mut entry = spelled_json(&token.chosen);
            entry["top_logprobs"] = token.top.iter().map(spelled_json).collect();
            content.push(entry);
        }
        return json!({"content": content});
    }
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
        offsets.push(offset);
        offset += chosen.token.chars().count();
    }
    json!({
        "tokens": texts, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets,
    })
}

fn spelled_json(token: &Spelled) -> Value {
    json!({"token": token.token, "logprob": token.logprob, "bytes": token.bytes})
}

/// One choice of an answer, as far as it has come.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReplyChoice {
    /// Its text so far.
    pub text: String,
    /// The number of its tokens, as day 20's loop counts them.
    pub tokens: usize,
    /// Logprobs that no event has reported yet.
    pub logprobs: Vec<TokenLogprobs>,
    /// The number of characters in the tokens whose logprobs have been reported.
    pub offset: usize,
    /// Whether an event has reported its role (streamed chats only).
    pub begun: bool,
    /// Why it ended; None while it goes on.
    pub finish: Option<FinishReason>,
}

/// An answer in the making: tokens in, OpenAI's JSON out, all at once or as a stream.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The form of the answer.
    pub endpoint: Endpoint,
    /// `cmpl-…` or `chatcmpl-…`, the same in every event.
    pub id: String,
    /// When the request came, in seconds since 1970, the same in every event.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// The tokens of all prompts. Each prompt counts once, however many choices it has.
    pub prompt_tokens: usize,
    /// Whether the answer has logprobs.
    pub logprobs: bool,
    /// Whether a stream ends with the usage.
    pub include_usage: bool,
    /// The choices.
    pub choices: Vec<ReplyChoice>,
}

impl Reply {
    /// Starts the answer to a request with these prompts.
    pub fn new(
        request: &ApiRequest,
        prompts: &[Vec<u32>],
        id: String,
        created: u64,
        model: String,
    ) -> Self {
        Self {
            endpoint: request.endpoint,
            id,
            created,
            model,
            prompt_tokens: prompts.iter().map(Vec::len).sum(),
            logprobs: request.logprobs.is_some(),
            include_usage: request.include_usage,
            choices: vec![ReplyChoice::default(); prompts.len() * request.n],
        }
    }

    /// True when every choice has ended.
    pub fn is_done(&self) -> bool {
        self.choices.iter().all(|choice| choice.finish.is_some())
    }

    /// Returns the usage: `{"prompt_tokens", "completion_tokens", "total_tokens"}`.
    pub fn usage(&self) -> Value {
        let completion: usize = self.choices.iter().map(|choice| choice.tokens).sum();
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion,
        })
    }

    /// Adds a token to its choice: text, count, logprobs and end.
    pub fn take(&mut self, delta: &ChoiceDelta) {
        let choice = &mut self.choices[delta.index];
        choice.text.push_str(&delta.text);
        choice.tokens = delta.tokens;
        choice.logprobs.extend(delta.logprobs.clone());
        choice.finish = delta.finish;
    }

    /// Takes the logprobs that choice `index` hasn't reported yet, as JSON; `null` if the request
    /// didn't ask for them.
    pub fn take_logprobs(&mut self, index: usize) -> Value {
        if !self.logprobs {
            return Value::Null;
        }
        let choice = &mut self.choices[index];
        let tokens = std::mem::take(&mut choice.logprobs);
        let taken = logprobs_json(self.endpoint, &tokens, choice.offset);
        for token in &tokens {
            choice.offset += token.chosen.token.chars().count();
        }
        taken
    }

    /// Returns an event with these `choices`, and with what all events share: `id`, `object`,
    /// `created` and `model`. If the stream ends with the usage, every earlier event has a `usage`
    /// of `null`.
    pub fn chunk(&self, choices: Value) -> Value {
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

    /// Adds a token, and returns the events that it makes: none, one or two.
    ///
    /// Each event is a [`Reply::chunk`] with one choice. A completion's choice is
    /// `{"index", "text", "logprobs", "finish_reason"}`, a chat's `{"index", "delta", "logprobs",
    /// "finish_reason"}`. `text`, or `content` in the `delta`, is the new text, not the text so far.
    /// `finish_reason` is `null` until the choice ends.
    ///
    /// A choice of a chat begins with an event of its own, whose delta is `{"role": "assistant",
    /// "content": ""}` and whose `logprobs` and `finish_reason` are `null`. No later event has a
    /// role.
    ///
    /// A token without text makes no event, unless it ends the choice; its logprobs wait for the
    /// next event. A delta without text is `{}`.
    pub fn chunks(&mut self, delta: &ChoiceDelta) -> Vec<Value> {
        self.take(delta);
        let index = delta.index;
        let mut chunks = Vec::new();
        if self.endpoint == Endpoint::Chat && !self.choices[index].begun {
            self.choices[index].begun = true;
            let role = json!({"role": "assistant", "content": ""});
            chunks.push(self.chunk(json!([{
                "index": index, "delta": role, "logprobs": null, "finish_reason": null,
            }])));
        }
        if delta.text.is_empty() && delta.finish.is_none() {
            return chunks;
        }
        let mut choice = json!({
            "index": index,
            "logprobs": self.take_logprobs(index),
            "finish_reason": delta.finish.map(finish_reason),
        });
        match self.endpoint {
            Endpoint::Completions => choice["text"] = json!(delta.text),
            Endpoint::Chat if delta.text.is_empty() => choice["delta"] = json!({}),
            Endpoint::Chat => choice["delta"] = json!({"content": delta.text}),
        }
        chunks.push(self.chunk(json!([choice])));
        chunks
    }

    /// Ends a stream: if the request asked for the usage, an event with it and no choices; then
    /// [`DONE`].
    pub fn end(&self) -> String {
        let mut events = String::new();
        if self.include_usage {
            let mut last = self.chunk(json!([]));
            last["usage"] = self.usage();
            events.push_str(&sse(&last));
        }
        events + DONE
    }

    /// Ends a stream that failed after it had begun: the error as an event, then [`DONE`].
    pub fn failed(error: &ApiError) -> String {
        sse(&error.body()) + DONE
    }

    /// Returns the whole answer, once it has every token: `{"id", "object", "created", "model",
    /// "choices", "usage"}`, with `text_completion` or `chat.completion` as the `object`. The
    /// choices are in order. A completion's is `{"index", "text", "logprobs", "finish_reason"}`; in
    /// a chat, `{"role": "assistant", "content": text}` is its `message`, in place of the text.
    pub fn whole(&mut self) -> Value {
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
                    choice["message"] = json!({"role": "assistant", "content": text});
                }
            }
            choices.push(choice);
        }
        let object = match self.endpoint {
            Endpoint::Completions => "text_completion",
            Endpoint::Chat => "chat.completion",
        };
        json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
            "choices": choices, "usage": self.usage(),
        })
    }
}
