#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 20: serve it. OpenAI's protocol in front of day 15's scheduler: a request's JSON becomes
//! rows of the running batch, and every token goes back to the client that waits for it. HTTP is
//! given; nothing here knows of it.

use candecode::day07_greedy::{argmax, log_softmax};
use candecode::day15_scheduler::Scheduler;
use candecode::kit::api::{ApiError, Fields};
use candecode::kit::error::plain;
use candecode::kit::processor::process_all;
use candecode::kit::request_body::{self, Extras};
use candecode::kit::{named, FinishReason, ModelConfig, Request, SamplingParams, Token, Tokenizer};
use candle_core::Result;
use serde_json::{json, Value};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, TryRecvError};

// part 1: what is asked for

/// Which of OpenAI's two forms a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/completions`: a text to continue.
    Completions,
    /// `/v1/chat/completions`: messages to answer.
    Chat,
}

/// One message of a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMessage {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// What was said.
    pub content: String,
}

/// A prompt as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// A text to continue.
    Text(String),
    /// Its tokens, as the client has encoded it.
    Ids(Vec<u32>),
    /// A chat, which a template makes a text of.
    Messages(Vec<ChatMessage>),
}

/// A request that has been read. Nothing of it is computed yet.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiRequest {
    /// The form of request and answer.
    pub endpoint: Endpoint,
    /// The prompts; a chat has one.
    pub prompts: Vec<Prompt>,
    /// How each of them is continued.
    pub params: SamplingParams,
    /// How many choices each prompt gets.
    pub n: usize,
    /// How many of the likeliest tokens are told beside each token; None tells no logprobs at all.
    pub logprobs: Option<usize>,
    /// An EOS id does not end the text (vLLM's `ignore_eos`).
    pub ignore_eos: bool,
    /// The answer comes as server-sent events.
    pub stream: bool,
    /// One more event at the end tells the usage (`stream_options.include_usage`).
    pub include_usage: bool,
    /// What else is asked for, which only the server's given code looks at.
    pub extras: Extras,
    /// Fields that nobody here knows. vLLM takes them in silence; a server should write them down.
    pub ignored: Vec<String>,
}

/// Prompts times `n` of one request, at most.
pub const MAX_CHOICES: usize = 128;

/// The likeliest tokens that can be told beside each token, at most (vLLM `max_logprobs`).
pub const MAX_LOGPROBS: i64 = 20;

/// Strings that one request may ask to stop at, at most.
pub const MAX_STOPS: usize = 64;

/// The bytes that these may have together.
pub const MAX_STOP_BYTES: usize = 4096;

/// The field `stop`: strings that end the text. Missing, one string, or a list of strings.
///
/// # Errors
/// 400, if it is something else, a string is empty, there are more than [`MAX_STOPS`], or they are
/// longer than [`MAX_STOP_BYTES`] in all.
pub fn stop_strings(fields: &Fields) -> std::result::Result<Vec<String>, ApiError> {
    // task 20.1: `strings` reads all three forms; an empty string would end every text at once
    todo!("day 20, task 1: `strings` reads all three forms; an empty string would end every text at once")
}

/// The fields `structured_outputs` (vLLM's) and `response_format` (OpenAI's), as one regular
/// expression that the whole text must match, or None.
///
/// `structured_outputs` is an object with one of two fields. `regex` is the expression. `choice` is
/// a list of strings, of which the text must be one, as `(?:yes|no)`, each of them escaped by
/// `regex_syntax::escape`. `response_format` may be `{"type": "text"}`, which changes nothing.
///
/// # Errors
/// 400, and the message names what is refused: another `type` of `response_format`
/// (`json_object` and `json_schema` need a grammar, which day 14 has not), another field of
/// `structured_outputs`, both fields or none, an empty list, or a value of another type.
pub fn allowed_regex(fields: &Fields) -> std::result::Result<Option<String>, ApiError> {
    // task 20.2: refuse other formats; `regex` as it is, `choice` as one of several escaped strings
    todo!("day 20, task 2: refuse other formats; `regex` as it is, `choice` as one of several escaped strings")
}

/// The fields that say how a text is continued, as day 8's and day 9's parameters. `seed` is for a
/// request that names none.
///
/// | field | default | may be |
/// |---|---|---|
/// | `temperature` | 1 | 0 (greedy) and above |
/// | `top_p` | 1 | above 0, to 1 |
/// | `top_k` | all | 1 and above; 0 and -1 are all |
/// | `min_p` | 0 | 0 to 1 |
/// | `seed` | `seed` | any `i64`, as vLLM's (the same 64 bits, read without a sign); -1 is random, and left out before |
/// | `presence_penalty`, `frequency_penalty` | 0 | -2 to 2 |
/// | `repetition_penalty` | 1 | above 0 |
/// | `max_tokens` | 16; in a chat as many as fit, `usize::MAX` | 1 and above |
/// | `max_completion_tokens` (chats only) | `max_tokens` | 1 and above |
///
/// The defaults are OpenAI's; `top_k`, `min_p` and `repetition_penalty` are vLLM's. What
/// [`stop_strings`] and [`allowed_regex`] give belongs to the parameters, too.
///
/// # Errors
/// 400, if a field is of another type, or out of range.
pub fn sampling_params(
    fields: &Fields,
    endpoint: Endpoint,
    seed: u64,
) -> std::result::Result<SamplingParams, ApiError> {
    // task 20.3: each field, its range, and OpenAI's default, which is not this course's
    todo!("day 20, task 3: each field, its range, and OpenAI's default, which is not this course's")
}

/// The field `prompt`, in any of its four forms: a text, a list of texts, the tokens of one prompt
/// (a list of numbers), or a list of such lists.
///
/// # Errors
/// 400, if it is missing, something else, or an empty list. (An empty text or an empty list in the
/// list is left to [`prompt_ids`], which knows what the tokenizer makes of it.)
pub fn prompts(fields: &Fields) -> std::result::Result<Vec<Prompt>, ApiError> {
    // task 20.4: a string; or a list, whose first element tells of what
    todo!("day 20, task 4: a string; or a list, whose first element tells of what")
}

/// A list of token ids; None if something else is in it, or a number that no u32 can be.
fn token_ids(list: &[Value]) -> Option<Vec<u32>> {
    list.iter().map(|id| u32::try_from(id.as_u64()?).ok()).collect()
}

/// The field `messages`: a list of objects with a `role` and a `content`.
///
/// Roles are `system`, `user` and `assistant`; `developer` is OpenAI's newer name of `system`, and
/// becomes it. `content` is a string, or a list of parts `{"type": "text", "text": …}`, whose texts
/// are joined by a line end, as vLLM does. An assistant's may be `null`, which is the empty text.
/// Other fields of a message are ignored.
///
/// # Errors
/// 400, if `messages` is missing, no list or empty; if a role is another one (`tool`, for example)
/// or missing; if a content is missing, of another type, or has a part that is not text.
pub fn chat_messages(fields: &Fields) -> std::result::Result<Vec<ChatMessage>, ApiError> {
    // task 20.5: role and content of each message
    todo!("day 20, task 5: role and content of each message")
}

/// How many of the likeliest tokens are told beside each token; None tells no logprobs.
///
/// The two endpoints ask differently. For a completion `logprobs` is that number itself, 0 to
/// [`MAX_LOGPROBS`]; 0 tells each token's own logprob and no others. In a chat `logprobs` is true
/// or false, and `top_logprobs` is the number, 0 where it is missing.
///
/// # Errors
/// 400, if a field is of another type or out of range. `top_logprobs` without `"logprobs": true` is
/// one, too, and `top_logprobs` is to blame.
pub fn logprobs_asked(
    fields: &Fields,
    endpoint: Endpoint,
) -> std::result::Result<Option<usize>, ApiError> {
    // task 20.6: one number, or a flag and a number
    todo!("day 20, task 6: one number, or a flag and a number")
}

impl ApiRequest {
    /// Reads the body of a request to a server of `model`. `seed` is for a request that names none.
    ///
    /// # Errors
    /// 400, if the body is no JSON object or a field is not what it must be; 404, if another model
    /// is asked for.
    pub fn parse(
        endpoint: Endpoint,
        body: &[u8],
        model: &str,
        seed: u64,
    ) -> std::result::Result<Self, ApiError> {
        let chat = endpoint == Endpoint::Chat;
        let body = request_body::read(chat, body)?;
        let fields = Fields::new(&body.object);
        match fields.value("model") {
            None => {} // there is only one
            Some(Value::String(asked)) if asked == model => {}
            Some(Value::String(asked)) => return Err(ApiError::no_such_model(asked, model)),
            Some(other) => return Err(fields.wrong("model", "a string", other)),
        }
        let prompts = match endpoint {
            Endpoint::Completions => prompts(&fields)?,
            Endpoint::Chat => vec![Prompt::Messages(chat_messages(&fields)?)],
        };
        let mut params = sampling_params(&fields, endpoint, seed)?;
        let extras = request_body::extras(&fields, chat, &mut params)?;
        let n = fields.integer("n", "in 1 to 128", |n| (1..=128).contains(&n))?.unwrap_or(1);
        let n = n as usize;
        if n > 1 && params.temperature == 0.0 {
            let message = "n must be 1 at temperature 0: it would be the same text again";
            return Err(ApiError::invalid("n", message));
        }
        if n * prompts.len() > MAX_CHOICES {
            let message = format!("prompts times n must be at most {MAX_CHOICES}");
            return Err(ApiError::invalid("n", message));
        }
        let logprobs = logprobs_asked(&fields, endpoint)?;
        let ignore_eos = fields.flag("ignore_eos")?;
        let stream = fields.flag("stream")?;
        let include_usage = include_usage(&fields, stream)?;
        let mut ignored = fields.unread();
        ignored.extend(body.ignored);
        Ok(Self {
            endpoint,
            prompts,
            params,
            n,
            logprobs,
            ignore_eos,
            stream,
            include_usage,
            extras,
            ignored,
        })
    }
}

/// The field `stream_options.include_usage`.
fn include_usage(fields: &Fields, stream: bool) -> std::result::Result<bool, ApiError> {
    let Some(options) = fields.value("stream_options") else { return Ok(false) };
    if !stream {
        let message = "stream_options are for \"stream\": true";
        return Err(ApiError::invalid("stream_options", message));
    }
    let Value::Object(options) = options else {
        return Err(fields.wrong("stream_options", "an object", options));
    };
    Fields::new(options).flag("include_usage")
}

/// Makes one text of a chat: the model's template. Its error is for the client.
pub type Render<'a> = &'a dyn Fn(&[ChatMessage]) -> std::result::Result<String, String>;

/// The tokens of each prompt. A text is encoded with `tokenizer.encode`, which adds the tokens that
/// begin a text; a chat is rendered and encoded with `tokenizer.encode_rendered`, for its template
/// has written them. Ids are taken as they are.
///
/// # Errors
/// 400, with the field that is to blame (`messages` or `prompt`): if the template or the tokenizer
/// refuses a text, an id is not below `config.vocab_size`, a prompt has no token, or it has more
/// than `config.max_position_embeddings` ([`ApiError::too_long`]).
pub fn prompt_ids(
    request: &ApiRequest,
    tokenizer: &Tokenizer,
    config: &ModelConfig,
    render: Render,
) -> std::result::Result<Vec<Vec<u32>>, ApiError> {
    // task 20.7: encode each prompt as its kind wants; then ids, emptiness and length
    todo!("day 20, task 7: encode each prompt as its kind wants; then ids, emptiness and length")
}

// part 2: what is answered

/// A token as a client is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Spelled {
    /// Its text; half a character becomes `U+FFFD`.
    pub token: String,
    /// Its bytes, of which halves can be put together.
    pub bytes: Vec<u8>,
    /// ln of the probability that the model gave it, before any processor.
    pub logprob: f32,
}

/// The logprobs of one generated token.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprobs {
    /// The token that was chosen.
    pub chosen: Spelled,
    /// As many of the likeliest tokens as were asked for, the likeliest first.
    pub top: Vec<Spelled>,
}

/// One token of one choice, on its way to the client.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// Which choice it belongs to: choice `i` is of prompt `i / n`.
    pub index: usize,
    /// The text that became certain with it: no half characters, and cut at a stop string. Often
    /// empty.
    pub text: String,
    /// If logprobs were asked for.
    pub logprobs: Option<TokenLogprobs>,
    /// Set on the last token of a choice.
    pub finish: Option<FinishReason>,
}

/// A token's text and bytes. A special token has no bytes in a text; here it is told by its name.
pub fn spelled(tokenizer: &Tokenizer, id: u32, logprob: f32) -> Spelled {
    let mut bytes = tokenizer.token_bytes(id);
    if bytes.is_empty() {
        bytes = tokenizer.piece(id).unwrap_or_default().into_bytes();
    }
    let token = String::from_utf8_lossy(&bytes).into_owned();
    Spelled { token, bytes, logprob: logprob.max(-9999.0) } // JSON has no infinity; this is vLLM's
}

/// One server-sent event: `data: `, the JSON on one line, and an empty line.
pub fn sse(data: &Value) -> String {
    // task 20.8: the field's name, the value, and two line ends
    todo!("day 20, task 8: the field's name, the value, and two line ends")
}

/// The last event of a stream, which is no JSON.
pub const DONE: &str = "data: [DONE]\n\n";

/// OpenAI's word for why a text ended: `stop` (an EOS id, too) or `length`. For a row that failed,
/// vLLM's word `error`; no client sees it, because the row's job fails.
pub fn finish_reason(finish: FinishReason) -> &'static str {
    // task 20.9: three reasons, two words
    todo!("day 20, task 9: three reasons, two words")
}

/// The logprobs of some tokens that follow each other, in the form of their endpoint.
///
/// In a chat: `{"content": [{"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob",
/// "bytes"}, …]}, …]}`.
///
/// For a completion: `{"tokens": […], "token_logprobs": […], "top_logprobs": [{token: logprob, …},
/// …], "text_offset": […]}`, four lists with an element for each token. Here `top_logprobs` holds
/// the chosen token, too, whether or not it is one of the likeliest. `text_offset` is where the
/// token begins, in characters: the first at `offset`, and each next one as many later as the
/// `token` before it has characters. Where tokens with equal texts share a key of `top_logprobs`,
/// the chosen one's logprob stays.
pub fn logprobs_json(endpoint: Endpoint, tokens: &[TokenLogprobs], mut offset: usize) -> Value {
    // task 20.10: a list of objects, or an object of lists
    todo!("day 20, task 10: a list of objects, or an object of lists")
}

/// One choice of an answer, as far as it has come.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choice {
    /// Its text so far.
    pub text: String,
    /// How many tokens it has: every token that was generated counts, the EOS that ended it too,
    /// and those that have no text.
    pub tokens: usize,
    /// Logprobs that no event has told yet.
    pub logprobs: Vec<TokenLogprobs>,
    /// Characters of the tokens whose logprobs have been told.
    pub offset: usize,
    /// Its role has been told (streamed chats only).
    pub begun: bool,
    /// Why it ended; None while it goes on.
    pub finish: Option<FinishReason>,
}

/// An answer in the making: pieces in, OpenAI's JSON out, all at once or as a stream.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The form of the answer.
    pub endpoint: Endpoint,
    /// `cmpl-…` or `chatcmpl-…`; the same in every event.
    pub id: String,
    /// When the request came, in seconds since 1970; the same in every event.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// Tokens of all prompts, each counted once, however many choices it has.
    pub prompt_tokens: usize,
    /// Whether logprobs are told.
    pub logprobs: bool,
    /// Whether a stream ends with the usage.
    pub include_usage: bool,
    /// The choices.
    pub choices: Vec<Choice>,
}

impl Reply {
    /// The answer to a request with these prompts, before its first token.
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
            choices: vec![Choice::default(); prompts.len() * request.n],
        }
    }

    /// True when every choice has ended.
    pub fn is_done(&self) -> bool {
        self.choices.iter().all(|choice| choice.finish.is_some())
    }

    /// What the whole answer cost: `{"prompt_tokens", "completion_tokens", "total_tokens"}`.
    pub fn usage(&self) -> Value {
        // task 20.11: the prompts' tokens, the choices' tokens, and their sum
        todo!("day 20, task 11: the prompts' tokens, the choices' tokens, and their sum")
    }

    /// Takes a piece in: its choice's text, count, logprobs and end. Both forms of answer begin
    /// with it.
    pub fn take(&mut self, piece: &Piece) {
        // task 20.12: the piece's own choice; every piece is one token
        todo!("day 20, task 12: the piece's own choice; every piece is one token")
    }

    /// The logprobs that choice `index` has not told yet, in JSON; `null` if none were asked for.
    /// After this they have been told.
    pub fn tell_logprobs(&mut self, index: usize) -> Value {
        if !self.logprobs {
            return Value::Null;
        }
        let choice = &mut self.choices[index];
        let tokens = std::mem::take(&mut choice.logprobs);
        let told = logprobs_json(self.endpoint, &tokens, choice.offset);
        for token in &tokens {
            choice.offset += token.chosen.token.chars().count();
        }
        told
    }

    /// An object with what is the same in every event: `id`, `object`, `created`, `model`, and
    /// these `choices`. If the stream ends with the usage, every event before has a `usage`, which
    /// is `null`.
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

    /// Takes a piece in, and gives the events that it makes: none, one or two.
    ///
    /// Each event is a [`Reply::chunk`] of a list of one choice. A completion's choice is
    /// `{"index", "text", "logprobs", "finish_reason"}`, a chat's `{"index", "delta", "logprobs",
    /// "finish_reason"}`. `text`, or `content` in the `delta`, is the text of this piece, not the
    /// text so far. The `finish_reason` is `null` until the choice ends.
    ///
    /// A choice of a chat begins with an event of its own, whose delta is `{"role": "assistant",
    /// "content": ""}` and whose `logprobs` and `finish_reason` are `null`. No later event has a
    /// role.
    ///
    /// A piece without text makes no event, unless it ends the choice; its logprobs wait for the
    /// next event. A delta without text is `{}`.
    pub fn chunks(&mut self, piece: &Piece) -> Vec<Value> {
        // task 20.13: the role once; then the piece's text, what is told with it, and its end
        todo!("day 20, task 13: the role once; then the piece's text, what is told with it, and its end")
    }

    /// What ends a stream: if it was asked for, an event with the usage and an empty list of
    /// choices; and [`DONE`].
    pub fn end(&self) -> String {
        // task 20.14: the usage, perhaps; the end, always
        todo!("day 20, task 14: the usage, perhaps; the end, always")
    }

    /// What ends a stream that failed, after it had begun: the error as an event, and [`DONE`].
    pub fn failed(error: &ApiError) -> String {
        sse(&error.body()) + DONE
    }

    /// The whole answer, once every piece has been taken in: `{"id", "object", "created", "model",
    /// "choices", "usage"}`, with `text_completion` or `chat.completion` as the `object`. The
    /// choices are in order. A completion's is `{"index", "text", "logprobs", "finish_reason"}`; in
    /// a chat, `{"role": "assistant", "content": text}` is its `message`, in place of the text.
    pub fn whole(&mut self) -> Value {
        // task 20.15: one object; each choice with all its text and its logprobs
        todo!("day 20, task 15: one object; each choice with all its text and its logprobs")
    }
}

// part 3: the loop

/// What a client is sent.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// One token of one choice.
    Token(Piece),
    /// The request has failed, and nothing more comes. As the first event it is the status of the
    /// response.
    Failed(ApiError),
}

/// The way back to a client. Neither method ever waits.
pub trait Connection: Send {
    /// Leaves an event for the client, who takes it when it can. Of a request these are no more
    /// than its tokens, so what piles up for a client that reads slowly is bounded. If the client
    /// has gone, nothing happens.
    fn send(&self, event: Event);

    /// True if the client has gone.
    fn is_closed(&self) -> bool;
}

/// A request on its way to the loop: plain data, which may go from thread to thread.
pub struct Job {
    /// The form of the request.
    pub endpoint: Endpoint,
    /// The tokens of each prompt.
    pub prompts: Vec<Vec<u32>>,
    /// How many choices each prompt gets.
    pub n: usize,
    /// How each of them is continued.
    pub params: SamplingParams,
    /// As [`ApiRequest::logprobs`].
    pub logprobs: Option<usize>,
    /// As [`ApiRequest::ignore_eos`].
    pub ignore_eos: bool,
    /// Who waits for the answer.
    pub connection: Box<dyn Connection>,
}

impl Job {
    /// How many rows it needs.
    pub fn choices(&self) -> usize {
        self.prompts.len() * self.n
    }

    /// The prompt of choice `index`.
    pub fn prompt(&self, index: usize) -> &[u32] {
        &self.prompts[index / self.n]
    }
}

/// What [`observe`] has seen of a row.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// For each token that was chosen and not yet delivered, in order: the likeliest tokens at its
    /// place and their logprobs, the likeliest first.
    pub top: VecDeque<Vec<(u32, f32)>>,
    /// What a processor or the sampler has failed with, first of all.
    pub error: Option<String>,
}

/// The `k` likeliest tokens and their logprobs ([`log_softmax`]), the likeliest first, of equals
/// the one with the lower id. All of them if there are fewer than `k`; for `k` = 0 none, at no
/// cost.
///
/// # Errors
/// As [`log_softmax`].
pub fn top_logprobs(logits: &[f32], k: usize) -> Result<Vec<(u32, f32)>> {
    // task 20.16: log_softmax; select the k best, without sorting the whole vocabulary; sort them
    todo!("day 20, task 16: log_softmax; select the k best, without sorting the whole vocabulary; sort them")
}

/// Puts an observer between a row and the scheduler. The request generates what it would generate
/// without, and two things are seen besides:
///
/// - With `top`, [`top_logprobs`] of the logits before any processor, once for each token, at the
///   back of [`Observed::top`]. Without, nothing is put there. (Should `top_logprobs` itself fail,
///   the logits are the model's fault, and its error is the processor's: the pass fails.)
/// - If a processor or the sampler fails, the error goes into [`Observed::error`] (the first one
///   stays), and the scheduler learns nothing of it: some token is chosen in place of the one that
///   could not be, and the batch goes on. The row has failed, and is ended by who reads the error.
///
/// So a row whose rules leave no token ends alone. Without the observer it would end the scheduler,
/// and everybody's text.
pub fn observe<'a>(
    mut request: Request<'a>,
    top: Option<usize>,
) -> (Request<'a>, Rc<RefCell<Observed>>) {
    // task 20.17: one processor that looks, then runs the others; a sampler that never fails
    todo!("day 20, task 17: one processor that looks, then runs the others; a sampler that never fails")
}

/// A job of which some choices wait for a place in the batch.
pub struct WaitingJob {
    /// The job.
    pub job: Rc<Job>,
    /// Its next choice to start; those before it have started.
    pub next: usize,
}

/// A choice that the scheduler has: it waits for its prefill, or runs.
pub struct ActiveRow {
    /// Whose choice it is.
    pub job: Rc<Job>,
    /// Which choice.
    pub index: usize,
    /// What is seen of it.
    pub observed: Rc<RefCell<Observed>>,
}

/// How much there is to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests of which no choice, or not every choice, has a place yet.
    pub queued: usize,
    /// Rows that wait for their prefill.
    pub waiting: usize,
    /// Rows that run.
    pub running: usize,
}

/// Makes the [`Request`] of choice `index` of a job: its prompt, its processors, and a sampler that
/// draws from stream `index` of its seed, so that the choices of one request differ.
pub type MakeRequest<'a> = Box<dyn Fn(&Job, usize) -> Result<Request<'a>> + 'a>;

/// The loop between the clients and the scheduler (vLLM's `EngineCore`). It lives on one thread,
/// with the model.
pub struct ServingLoop<'a> {
    /// Day 15's.
    pub scheduler: Scheduler<'a>,
    /// Jobs in the order of their turns; some may have started in part.
    pub queue: VecDeque<WaitingJob>,
    /// Every choice that the scheduler has, by the number of its request there.
    pub rows: BTreeMap<usize, ActiveRow>,
    tokenizer: &'a Tokenizer,
    make_request: MakeRequest<'a>,
    /// Rows that the scheduler may have at once.
    max_batch: usize,
    /// Jobs that may wait in the queue.
    max_queue: usize,
    /// The number of the next row. No number is given twice.
    next_id: usize,
}

impl<'a> ServingLoop<'a> {
    /// An idle loop around an idle scheduler; `max_batch` rows at once, and `max_queue` jobs
    /// beside.
    pub fn new(
        scheduler: Scheduler<'a>,
        tokenizer: &'a Tokenizer,
        make_request: MakeRequest<'a>,
        max_batch: usize,
        max_queue: usize,
    ) -> Self {
        Self {
            scheduler,
            queue: VecDeque::new(),
            rows: BTreeMap::new(),
            tokenizer,
            make_request,
            max_batch,
            max_queue,
            next_id: 0,
        }
    }

    /// How much there is to do.
    pub fn load(&self) -> Load {
        Load {
            queued: self.queue.len(),
            waiting: self.scheduler.waiting.len(),
            running: self.scheduler.running.len(),
        }
    }

    /// True if there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.scheduler.is_idle()
    }

    /// Takes a job into the queue; if `max_queue` jobs wait there already, it is sent
    /// [`ApiError::busy`] instead. (With `max_queue` = 0 a job is taken if it need not wait: the
    /// queue is empty, and [`ServingLoop::has_place`].)
    pub fn accept(&mut self, job: Job) {
        // task 20.18: refuse what the queue has no room for
        todo!("day 20, task 18: refuse what the queue has no room for")
    }

    /// Takes row `id` out, wherever it is: out of `rows`, and out of the scheduler. If it waits for
    /// its prefill, it leaves at once. If it runs, its request's `max_new_tokens` becomes 0: then
    /// the scheduler itself retires it after the next pass, and what that pass gives it is
    /// nobody's.
    pub fn cancel(&mut self, id: usize) {
        // task 20.19: forget it; out of the scheduler's queue; no more tokens if it runs
        todo!("day 20, task 19: forget it; out of the scheduler's queue; no more tokens if it runs")
    }

    /// Takes all of a job out: from the queue, and every row of it.
    pub fn cancel_job(&mut self, job: &Rc<Job>) {
        self.queue.retain(|waiting| !Rc::ptr_eq(&waiting.job, job));
        let of_job = |row: &ActiveRow| Rc::ptr_eq(&row.job, job);
        let ids: Vec<usize> =
            self.rows.iter().filter(|(_, row)| of_job(row)).map(|(id, _)| *id).collect();
        for id in ids {
            self.cancel(id);
        }
    }

    /// Ends a job with an error: its client is told, and all of it is taken out.
    pub fn fail(&mut self, job: &Rc<Job>, error: ApiError) {
        job.connection.send(Event::Failed(error));
        self.cancel_job(job);
    }

    /// Takes out every job whose client has gone, in the queue and in the scheduler.
    pub fn drop_closed(&mut self) {
        // task 20.20: ask every connection; the jobs are in two places
        todo!("day 20, task 20: ask every connection; the jobs are in two places")
    }

    /// Gives a choice to the scheduler, under the next number. `make_request` makes its request;
    /// `id` is set, the EOS ids are cleared if the job says `ignore_eos`, and an observer is put
    /// in.
    ///
    /// # Errors
    /// If the request cannot be made, or the scheduler refuses it.
    pub fn start(&mut self, job: &Rc<Job>, index: usize) -> Result<()> {
        // task 20.21: make, number, observe, remember and submit
        todo!("day 20, task 21: make, number, observe, remember and submit")
    }

    /// True while the scheduler has fewer than `max_batch` rows, waiting and running ones together.
    pub fn has_place(&self) -> bool {
        self.scheduler.waiting.len() + self.scheduler.running.len() < self.max_batch
    }

    /// Takes the job whose turn it is out of the queue: the first one, unless it has its share of
    /// the places already. In a large batch one job never has all of them, so that the next client
    /// need not wait for its rows to end. Jobs whose clients have gone leave the queue here.
    fn take_turn(&mut self) -> Option<WaitingJob> {
        self.queue.retain(|waiting| !waiting.job.connection.is_closed());
        let share = self.max_batch - self.max_batch / 8;
        let has_share = |job: &Rc<Job>| {
            let rows = self.rows.values().filter(|row| Rc::ptr_eq(&row.job, job));
            rows.count() >= share
        };
        let turn = self.queue.iter().position(|waiting| !has_share(&waiting.job))?;
        self.queue.remove(turn)
    }

    /// Starts choices while there is a place ([`ServingLoop::has_place`]). The waiting jobs take
    /// turns: each starts one choice, and then goes to the end of the queue, or leaves it if that
    /// was its last. One whose choice cannot be started fails, as a request that asks for what
    /// cannot be (400).
    ///
    /// So a request with 128 choices does not keep one with a single choice waiting.
    pub fn feed(&mut self) {
        // task 20.22: while there is a place, one choice of the job whose turn it is (`take_turn`)
        todo!("day 20, task 22: while there is a place, one choice of the job whose turn it is (`take_turn`)")
    }

    /// Sends each token to the client of its row. A row that is not in `rows` has been cancelled,
    /// and its token is nobody's. A row with an error ([`Observed::error`]) fails with its job
    /// (500), and its token is not sent. A row whose token has a `finish` leaves `rows`.
    ///
    /// With logprobs, the piece has the chosen token and the front of [`Observed::top`], which is
    /// taken off; [`spelled`] spells them.
    pub fn deliver(&mut self, tokens: Vec<Token>) {
        // task 20.23: find the row by its number; a piece for its client; forget it at its end
        todo!("day 20, task 23: find the row by its number; a piece for its client; forget it at its end")
    }

    /// Ends every row that the scheduler has, after a pass that failed. The scheduler is empty
    /// then, and can go on with other rows; the queue is left as it is, but for the rest of jobs
    /// that had begun.
    fn fail_all(&mut self, error: &candle_core::Error) {
        let message = plain(error);
        while let Some((_, row)) = self.rows.pop_first() {
            self.fail(&row.job, ApiError::failed(message.as_str()));
        }
        self.scheduler.waiting.clear();
        self.scheduler.running.clear();
    }

    /// Prefills the rows that wait, in order of arrival, as long as the scheduler has room for the
    /// next one, and delivers the first token of each before the next prompt is computed. It is
    /// day 15's `admit`, but nobody waits for the prompts of others.
    ///
    /// A row that goes on joins the batch first, and then its token is delivered: what a delivery
    /// cancels must be where [`ServingLoop::cancel`] finds it.
    ///
    /// # Errors
    /// If a prefill fails, or the caches do not fit together.
    pub fn prefill_waiting(&mut self) -> Result<()> {
        // task 20.24: while there is room: prefill the first, let it join, deliver its token
        todo!("day 20, task 24: while there is room: prefill the first, let it join, deliver its token")
    }

    /// One turn: takes out whose client has gone, starts what there is a place for, prefills what
    /// waits, lets the scheduler make a step, and delivers its tokens. If a prefill or the step
    /// fails, so does every row that the scheduler has (`fail_all`), and the loop goes on.
    pub fn turn(&mut self) {
        // task 20.25: drop_closed, feed, prefill_waiting, step, deliver
        todo!("day 20, task 25: drop_closed, feed, prefill_waiting, step, deliver")
    }

    /// Runs until all senders of `jobs` are gone and the last row has ended. Between two turns it
    /// takes in all jobs that have arrived, each of them followed by a [`ServingLoop::feed`], so
    /// that a job counts against the queue only if there is no place for it. With nothing to do it
    /// waits for the next job.
    ///
    /// When the last sender is gone, the server is about to end. Jobs of which no choice has
    /// started are sent [`ApiError::closing`]; the others are finished. `after_turn` is told the
    /// load after each turn.
    pub fn run(&mut self, jobs: &Receiver<Job>, mut after_turn: impl FnMut(Load)) {
        // task 20.26: wait if idle, take in what has arrived, end gracefully, turn
        todo!("day 20, task 26: wait if idle, take in what has arrived, end gracefully, turn")
    }

    /// Sends [`ApiError::closing`] to every job of which no choice has started, and takes it out.
    pub fn refuse_waiting(&mut self) {
        for waiting in std::mem::take(&mut self.queue) {
            if waiting.next == 0 {
                waiting.job.connection.send(Event::Failed(ApiError::closing()));
            } else {
                self.queue.push_back(waiting);
            }
        }
    }
}
