//! What day 20's checkers assert: the protocol as pure functions, and the loop on models that say
//! what they are told to, with a bound on their passes.

use super::checks::{ensure, equal, golden_json, tokenizer, Likely, Outcome, Random, Witness};
use candecode::day07_greedy::argmax;
use candecode::day08_sampling::{chacha_sampler, warpers};
use candecode::day09_penalties::penalties;
use candecode::day10_kv_cache::{generate_cached, Cached, DynamicCache};
use candecode::day12_batching::BatchCache;
use candecode::kit::api::ApiError;
use candecode::kit::{named, Batch, Cache, FinishReason, Model, ModelConfig, ProcessorInput};
use candecode::kit::{Request, Sampler, SamplingParams, Token, Tokenizer};
use candle_core::{bail, Error, Result};
use serde_json::{json, Value};
use std::cell::RefCell;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

/// What a function of the protocol answers.
pub type Answer<T> = std::result::Result<T, ApiError>;

/// A prompt as it was sent.
#[derive(Debug, Clone, PartialEq)]
pub enum Sent {
    Text(String),
    Ids(Vec<u32>),
    Messages(Vec<(String, String)>),
}

/// A request that has been read.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    pub prompts: Vec<Sent>,
    pub params: SamplingParams,
    pub n: usize,
    pub logprobs: Option<usize>,
    pub ignore_eos: bool,
    pub stream: bool,
    pub include_usage: bool,
    pub ignored: Vec<String>,
}

/// A token's text, bytes and logprob.
pub type Spelling = (String, Vec<u8>, f32);

/// The token that was chosen, and the likeliest.
pub type Probs = (Spelling, Vec<Spelling>);

/// One token of one choice.
#[derive(Debug, Clone, PartialEq)]
pub struct Bit {
    pub index: usize,
    pub text: String,
    pub probs: Option<Probs>,
    pub finish: Option<FinishReason>,
}

/// What an answer is made for.
#[derive(Debug, Clone)]
pub struct Asked {
    pub chat: bool,
    /// Tokens of each prompt.
    pub prompts: Vec<usize>,
    pub n: usize,
    pub logprobs: bool,
    pub usage: bool,
}

/// What a check does to an answer.
#[derive(Debug, Clone)]
pub enum Make {
    Usage,
    Take(Bit),
    Chunks(Bit),
    End,
    Failed(ApiError),
    Whole,
}

/// A request for the loop.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    pub prompts: Vec<Vec<u32>>,
    pub n: usize,
    pub params: SamplingParams,
    pub logprobs: Option<usize>,
    pub ignore_eos: bool,
}

/// What a client hears.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    Token(Bit),
    /// The status, and the words.
    Failed(u16, String),
}

/// A client: hears, and may go.
#[derive(Default)]
pub struct Client {
    pub heard: Mutex<Vec<Heard>>,
    pub gone: AtomicBool,
}

impl Client {
    pub fn hear(&self, heard: Heard) {
        if let Ok(mut all) = self.heard.lock() {
            all.push(heard);
        }
    }

    /// All that was heard, without logprobs.
    fn all(&self) -> Vec<Heard> {
        self.heard.lock().map(|all| all.clone()).unwrap_or_default()
    }

    /// For each choice that was heard of: number, text, tokens, and how often and why it ended.
    fn choices(&self) -> Vec<Told> {
        let mut told: Vec<Told> = Vec::new();
        for heard in self.all() {
            let Heard::Token(bit) = heard else { continue };
            let at = match told.iter().position(|one| one.0 == bit.index) {
                Some(at) => at,
                None => {
                    told.push((bit.index, String::new(), 0, Vec::new()));
                    told.len() - 1
                }
            };
            told[at].1.push_str(&bit.text);
            told[at].2 += 1;
            told[at].3.extend(bit.finish);
        }
        told.sort_by_key(|one| one.0);
        told
    }

    /// The statuses of the failures that it was told of.
    fn failures(&self) -> Vec<u16> {
        let status = |heard: &Heard| match heard {
            Heard::Failed(status, _) => Some(*status),
            Heard::Token(_) => None,
        };
        self.all().iter().filter_map(status).collect()
    }
}

/// A choice: number, text, tokens, ends.
type Told = (usize, String, usize, Vec<FinishReason>);

/// What a loop is made of.
pub struct Setup<'a> {
    pub model: &'a dyn Model,
    pub tokenizer: &'a Tokenizer,
    pub layers: usize,
    pub bound: usize,
    pub max_batch: usize,
    pub max_queue: usize,
}

impl Setup<'_> {
    /// What makes an empty cache.
    pub fn caches(&self) -> Box<dyn Fn() -> Box<dyn Batch>> {
        let layers = self.layers;
        Box::new(move || Box::new(BatchCache::new(layers, None)))
    }
}

/// What a check does to a loop; numbers are those of the jobs.
#[derive(Debug, Clone)]
pub enum Do {
    Accept(usize),
    Feed,
    Start(usize, usize),
    Leave(usize),
    DropClosed,
    Cancel(usize),
    Deliver(Vec<Token>),
    /// `prefill_waiting`.
    Prefill,
    /// The scheduler's own step, which admits too, and all of its tokens in one delivery.
    Step,
    Turn,
}

/// What is seen after it.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Jobs in the queue; rows that wait and that run.
    pub load: (usize, usize, usize),
    /// The number of every row, and which choice it is.
    pub rows: Vec<(usize, usize)>,
    /// What `start` was refused with.
    pub refused: Option<String>,
}

/// When jobs come to `run`, and when the last sender goes.
pub struct Visits {
    /// They are there before it begins, or come after the turn of that number.
    pub jobs: Vec<(usize, Ask, Arc<Client>)>,
    /// The last sender goes after that turn, or later, when the queue is empty; with 0 before the
    /// first.
    pub close_after: usize,
    /// Instead: a thread that holds the sender, gives this job when the clients of all others have
    /// heard an end, and then lets go.
    pub late: Option<(Ask, Arc<Client>)>,
}

/// Day 20 as a bundle of functions.
#[derive(Clone, Copy)]
pub struct Day {
    pub stop_strings: fn(&Value) -> Answer<Vec<String>>,
    pub allowed_regex: fn(&Value) -> Answer<Option<String>>,
    pub sampling_params: fn(&Value, bool, u64) -> Answer<SamplingParams>,
    pub prompts: fn(&Value) -> Answer<Vec<Sent>>,
    pub chat_messages: fn(&Value) -> Answer<Vec<(String, String)>>,
    pub logprobs_asked: fn(&Value, bool) -> Answer<Option<usize>>,
    pub parse: fn(bool, &[u8], &str, u64) -> Answer<Parsed>,
    pub prompt_ids: fn(Vec<Sent>, &Tokenizer, &ModelConfig, Template) -> Answer<Vec<Vec<u32>>>,
    pub sse: fn(&Value) -> String,
    pub finish_reason: fn(FinishReason) -> &'static str,
    pub logprobs_json: fn(bool, &[Probs], usize) -> Value,
    pub reply: fn(&Asked, Vec<Make>) -> Vec<Value>,
    pub top_logprobs: fn(&[f32], usize) -> Result<Vec<(u32, f32)>>,
    pub observe: for<'a> fn(Request<'a>, Option<usize>) -> (Request<'a>, Look),
    pub drive: for<'a> fn(&'a Setup<'a>, Vec<(Ask, Arc<Client>)>, Vec<Do>) -> Result<Vec<Seen>>,
    pub run: for<'a> fn(&'a Setup<'a>, Visits) -> Result<Vec<(usize, usize, usize)>>,
}

/// A chat's template: roles and contents in, a text or a refusal out.
pub type Template = fn(&[(String, String)]) -> std::result::Result<String, String>;

/// Looks at what was observed: the likeliest tokens, and an error.
pub type Look = Box<dyn Fn() -> (Vec<Vec<(u32, f32)>>, Option<String>)>;

/// Turns after which `run` is given up.
pub const MOST_TURNS: usize = 500;

/// Fills the bundle from a module: the reader's, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        use candecode::kit::api::Fields;
        fn fields<T>(value: &serde_json::Value, read: impl Fn(&Fields) -> T) -> T {
            let empty = serde_json::Map::new();
            read(&Fields::new(value.as_object().unwrap_or(&empty)))
        }
        fn endpoint(chat: bool) -> code::Endpoint {
            if chat { code::Endpoint::Chat } else { code::Endpoint::Completions }
        }
        fn pairs(messages: &[code::ChatMessage]) -> Vec<(String, String)> {
            messages.iter().map(|m| (m.role.clone(), m.content.clone())).collect()
        }
        fn told(prompts: Vec<code::Prompt>) -> Vec<day::Sent> {
            let one = |prompt| match prompt {
                code::Prompt::Text(text) => day::Sent::Text(text),
                code::Prompt::Ids(ids) => day::Sent::Ids(ids),
                code::Prompt::Messages(messages) => day::Sent::Messages(pairs(&messages)),
            };
            prompts.into_iter().map(one).collect()
        }
        fn theirs(prompts: Vec<day::Sent>) -> Vec<code::Prompt> {
            let one = |prompt| match prompt {
                day::Sent::Text(text) => code::Prompt::Text(text),
                day::Sent::Ids(ids) => code::Prompt::Ids(ids),
                day::Sent::Messages(messages) => {
                    let message = |(role, content)| code::ChatMessage { role, content };
                    code::Prompt::Messages(messages.into_iter().map(message).collect())
                }
            };
            prompts.into_iter().map(one).collect()
        }
        fn request(chat: bool, prompts: Vec<code::Prompt>, n: usize) -> code::ApiRequest {
            code::ApiRequest {
                endpoint: endpoint(chat),
                prompts,
                params: Default::default(),
                n,
                logprobs: None,
                ignore_eos: false,
                stream: true,
                include_usage: false,
                extras: Default::default(),
                ignored: Vec::new(),
            }
        }
        fn spelled((token, bytes, logprob): day::Spelling) -> code::Spelled {
            code::Spelled { token, bytes, logprob }
        }
        fn logprobs((chosen, top): day::Probs) -> code::TokenLogprobs {
            let top = top.into_iter().map(spelled).collect();
            code::TokenLogprobs { chosen: spelled(chosen), top }
        }
        fn piece(bit: day::Bit) -> code::Piece {
            let day::Bit { index, text, probs, finish } = bit;
            code::Piece { index, text, logprobs: probs.map(logprobs), finish }
        }
        struct Wire(std::sync::Arc<day::Client>);
        impl code::Connection for Wire {
            fn send(&self, event: code::Event) {
                let spelling = |s: code::Spelled| (s.token, s.bytes, s.logprob);
                self.0.hear(match event {
                    code::Event::Failed(error) => day::Heard::Failed(error.status, error.message),
                    code::Event::Token(piece) => {
                        let probs = piece.logprobs.map(|all| {
                            (spelling(all.chosen), all.top.into_iter().map(spelling).collect())
                        });
                        let (index, text, finish) = (piece.index, piece.text, piece.finish);
                        day::Heard::Token(day::Bit { index, text, probs, finish })
                    }
                });
            }
            fn is_closed(&self) -> bool {
                self.0.gone.load(std::sync::atomic::Ordering::SeqCst)
            }
        }
        fn job(ask: day::Ask, client: std::sync::Arc<day::Client>) -> code::Job {
            code::Job {
                endpoint: code::Endpoint::Completions,
                prompts: ask.prompts,
                n: ask.n,
                params: ask.params,
                logprobs: ask.logprobs,
                ignore_eos: ask.ignore_eos,
                connection: Box::new(Wire(client)),
            }
        }
        fn serving<'a>(setup: &'a day::Setup<'a>) -> candle_core::Result<code::ServingLoop<'a>> {
            let (model, tokenizer) = (setup.model, setup.tokenizer);
            let scheduler = candecode::day15_scheduler::Scheduler::new(
                model, tokenizer, setup.caches(), setup.bound,
            );
            let make: code::MakeRequest = Box::new(move |job, index| {
                day::request_of(model.config(), &job.params, job.prompt(index), index)
            });
            Ok(code::ServingLoop::new(
                scheduler, tokenizer, make, setup.max_batch, setup.max_queue,
            ))
        }
        day::Day {
            stop_strings: |value| fields(value, code::stop_strings),
            allowed_regex: |value| fields(value, code::allowed_regex),
            sampling_params: |value, chat, seed| {
                fields(value, |fields| code::sampling_params(fields, endpoint(chat), seed))
            },
            prompts: |value| fields(value, code::prompts).map(told),
            chat_messages: |value| fields(value, code::chat_messages).map(|all| pairs(&all)),
            logprobs_asked: |value, chat| {
                fields(value, |fields| code::logprobs_asked(fields, endpoint(chat)))
            },
            parse: |chat, body, model, seed| {
                let request = code::ApiRequest::parse(endpoint(chat), body, model, seed)?;
                Ok(day::Parsed {
                    prompts: told(request.prompts),
                    params: request.params,
                    n: request.n,
                    logprobs: request.logprobs,
                    ignore_eos: request.ignore_eos,
                    stream: request.stream,
                    include_usage: request.include_usage,
                    ignored: request.ignored,
                })
            },
            prompt_ids: |prompts, tokenizer, config, template| {
                let chat = matches!(prompts.first(), Some(day::Sent::Messages(_)));
                let request = request(chat, theirs(prompts), 1);
                let render = |messages: &[code::ChatMessage]| template(&pairs(messages));
                code::prompt_ids(&request, tokenizer, config, &render)
            },
            sse: code::sse,
            finish_reason: code::finish_reason,
            logprobs_json: |chat, all, offset| {
                let all: Vec<_> = all.iter().cloned().map(logprobs).collect();
                code::logprobs_json(endpoint(chat), &all, offset)
            },
            reply: |asked, script| {
                let mut request = request(asked.chat, Vec::new(), asked.n);
                request.logprobs = asked.logprobs.then_some(2);
                request.include_usage = asked.usage;
                let prompts: Vec<Vec<u32>> = asked.prompts.iter().map(|n| vec![5; *n]).collect();
                let (id, model) = ("cmpl-1".to_string(), "story-3m".to_string());
                let mut reply = code::Reply::new(&request, &prompts, id, 1_750_000_000, model);
                let mut all = Vec::new();
                for make in script {
                    all.push(match make {
                        day::Make::Usage => reply.usage(),
                        day::Make::Take(bit) => {
                            reply.take(&piece(bit));
                            serde_json::Value::Bool(reply.is_done())
                        }
                        day::Make::Chunks(bit) => reply.chunks(&piece(bit)).into(),
                        day::Make::End => reply.end().into(),
                        day::Make::Failed(error) => code::Reply::failed(&error).into(),
                        day::Make::Whole => reply.whole(),
                    });
                }
                all
            },
            top_logprobs: code::top_logprobs,
            observe: |request, top| {
                let (request, observed) = code::observe(request, top);
                let look: day::Look = Box::new(move || {
                    let seen = observed.borrow();
                    (seen.top.iter().cloned().collect(), seen.error.clone())
                });
                (request, look)
            },
            drive: |setup, jobs, script| {
                let mut serving = serving(setup)?;
                let mut all = Vec::new();
                for what in script {
                    let mut refused = None;
                    match what {
                        day::Do::Accept(i) => {
                            serving.accept(job(jobs[i].0.clone(), jobs[i].1.clone()))
                        }
                        day::Do::Feed => serving.feed(),
                        day::Do::Start(i, index) => {
                            let job = job(jobs[i].0.clone(), jobs[i].1.clone());
                            let started = serving.start(&std::rc::Rc::new(job), index);
                            refused = started.err().map(|e| candecode::kit::error::plain(&e));
                        }
                        day::Do::Leave(i) => {
                            jobs[i].1.gone.store(true, std::sync::atomic::Ordering::SeqCst)
                        }
                        day::Do::DropClosed => serving.drop_closed(),
                        day::Do::Cancel(id) => serving.cancel(id),
                        day::Do::Deliver(tokens) => serving.deliver(tokens),
                        day::Do::Prefill => serving.prefill_waiting()?,
                        day::Do::Step => {
                            let tokens = serving.scheduler.step()?;
                            serving.deliver(tokens);
                        }
                        day::Do::Turn => serving.turn(),
                    }
                    let load = serving.load();
                    all.push(day::Seen {
                        load: (load.queued, load.waiting, load.running),
                        rows: serving.rows.iter().map(|(id, row)| (*id, row.index)).collect(),
                        refused,
                    });
                }
                Ok(all)
            },
            run: |setup, visits| {
                let mut serving = serving(setup)?;
                let (sender, receiver) = std::sync::mpsc::channel::<code::Job>();
                let sender = day::Held::new(sender);
                let day::Visits { jobs, close_after, late } = visits;
                let let_in = |turn: usize| {
                    for (_, ask, client) in jobs.iter().filter(|(at, ..)| *at == turn) {
                        sender.send(job(ask.clone(), client.clone()));
                    }
                };
                let_in(0);
                let is_late = late.is_some();
                let (held, clients) = (sender.clone(), jobs.iter().map(|(_, _, client)| client));
                let clients: Vec<_> = clients.cloned().collect();
                std::thread::spawn(move || {
                    day::wait_for_ends(&clients);
                    if let Some((ask, client)) = late {
                        day::rest(100);
                        held.send(job(ask, client.clone()));
                        day::wait_for_ends(&[client]);
                    }
                    held.let_go(); // so that a loop that waits in vain for one more job ends, too
                });
                if !is_late && close_after == 0 {
                    sender.let_go();
                }
                let (mut turns, mut loads) = (0, Vec::new());
                serving.run(&receiver, |load| {
                    turns += 1;
                    assert!(turns < day::MOST_TURNS, "run made {turns} turns, and has not ended");
                    loads.push((load.queued, load.waiting, load.running));
                    let_in(turns);
                    if !is_late && turns >= close_after && load.queued == 0 {
                        sender.let_go();
                    }
                    if *loads.last().unwrap_or(&(0, 0, 1)) == (0, 0, 0) {
                        day::rest(1); // a loop that turns with nothing to do is not a hot one
                    }
                });
                Ok(loads)
            },
        }
    }};
}

/// A sender that more than one may let go of, for all.
pub struct Held<T>(Arc<Mutex<Option<Sender<T>>>>);

impl<T> Clone for Held<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Held<T> {
    pub fn new(sender: Sender<T>) -> Self {
        Self(Arc::new(Mutex::new(Some(sender))))
    }

    /// Sends, unless it has been let go of.
    pub fn send(&self, what: T) {
        if let Some(sender) = self.0.lock().ok().as_deref().and_then(Option::as_ref) {
            let _ = sender.send(what);
        }
    }

    pub fn let_go(&self) {
        if let Ok(mut sender) = self.0.lock() {
            *sender = None;
        }
    }
}

/// Waits for so many milliseconds.
pub fn rest(milliseconds: u64) {
    std::thread::sleep(std::time::Duration::from_millis(milliseconds));
}

/// Waits until each client has heard the end of a choice, or a failure; for ten seconds at most.
pub fn wait_for_ends(clients: &[Arc<Client>]) {
    let ended = |client: &Arc<Client>| {
        client.all().iter().any(|heard| match heard {
            Heard::Token(bit) => bit.finish.is_some(),
            Heard::Failed(..) => true,
        })
    };
    for _ in 0..1000 {
        if clients.iter().all(ended) {
            return;
        }
        rest(10);
    }
}

/// The request of choice `index`, as the engine makes it. What `block` says is a fault to make:
/// `unmade` (no request can be made), `no token at N` (a processor forbids every token once N were
/// generated), `sampler at N` (the sampler fails there).
pub fn request_of(
    config: &ModelConfig,
    params: &SamplingParams,
    prompt: &[u32],
    index: usize,
) -> Result<Request<'static>> {
    let fault = params.block.first().map(String::as_str).unwrap_or_default();
    if fault == "unmade" {
        bail!("the pattern cannot be compiled")
    }
    let at = |what: &str| fault.strip_prefix(what).and_then(|n| n.trim().parse::<usize>().ok());
    let (empty_at, broken_at) = (at("no token at"), at("sampler at"));
    let mut sampler: Sampler = Box::new(argmax);
    let mut processors = penalties(params)?;
    if params.temperature != 0.0 {
        processors.extend(warpers(params)?);
        sampler = chacha_sampler(params.seed, index);
    }
    if let Some(at) = empty_at {
        processors.push(named("the rule", move |input: &ProcessorInput, logits: &mut [f32]| {
            if input.tokens.len() - input.prompt_len >= at {
                logits.fill(f32::NEG_INFINITY);
            }
            Ok(())
        }));
    }
    if let Some(at) = broken_at {
        let (mut whole, mut calls) = (sampler, 0);
        sampler = Box::new(move |logits| {
            calls += 1;
            if calls > at {
                bail!("the sampler is broken")
            }
            whole(logits)
        });
    }
    let mut request = Request::new(config, prompt, params.max_new_tokens, sampler);
    request.stop_strings.clone_from(&params.stop);
    request.processors = processors;
    Ok(request)
}

/// An answer, short enough to be compared: a refusal is its status and the field to blame.
fn short<T>(answer: Answer<T>) -> Result<std::result::Result<T, (u16, Option<String>)>> {
    Ok(answer.map_err(|error| (error.status, error.param)))
}

fn blames<T>(status: u16, param: &str) -> std::result::Result<T, (u16, Option<String>)> {
    Err((status, Some(param.to_string())))
}

// part 1

pub fn stop_in_three_forms(day: &Day) -> Outcome {
    for (body, want) in [
        (json!({}), vec![]),
        (json!({"stop": null}), vec![]),
        (json!({"stop": "\n"}), vec!["\n"]),
        (json!({"stop": ["END", "\n\n"]}), vec!["END", "\n\n"]),
    ] {
        let want = Ok(want.into_iter().map(str::to_string).collect::<Vec<_>>());
        equal(&format!("stop_strings of {body}"), short((day.stop_strings)(&body)), &want)?;
    }
    Ok(())
}

pub fn stop_is_refused(day: &Day) -> Outcome {
    for body in [
        json!({"stop": ""}),
        json!({"stop": ["END", ""]}),
        json!({"stop": 7}),
        json!({"stop": [7]}),
        json!({"stop": {"a": "b"}}),
    ] {
        let got = short((day.stop_strings)(&body));
        equal(&format!("stop_strings of {body}"), got, &blames(400, "stop"))
            .likely("an empty stop string would end every text before its first token")?;
    }
    for (what, stops, taken) in [
        ("64 strings", vec!["ab".to_string(); 64], true),
        ("65 strings", vec!["ab".to_string(); 65], false),
        ("a string of 4096 bytes", vec!["é".repeat(2048)], true),
        ("4097 bytes in two strings", vec!["é".repeat(2048), "a".to_string()], false),
    ] {
        let got = short((day.stop_strings)(&json!({ "stop": stops })));
        let want = if taken { Ok(stops) } else { blames(400, "stop") };
        equal(&format!("stop_strings of {what}"), got, &want).likely(
            "the search for stop strings runs at every token: bound their number and bytes",
        )?;
    }
    Ok(())
}

pub fn regex_and_choice(day: &Day) -> Outcome {
    for (body, want) in [
        (json!({}), None),
        (json!({"response_format": {"type": "text"}}), None),
        (json!({"structured_outputs": {"regex": "[0-9]+"}}), Some("[0-9]+")),
        (json!({"structured_outputs": {"choice": ["yes", "no"]}}), Some("(?:yes|no)")),
        (json!({"structured_outputs": {"choice": ["a.b"], "regex": null}}), Some(r"(?:a\.b)")),
        (
            json!({"structured_outputs": {"choice": ["1+1", "(2)"]},
                   "response_format": {"type": "text"}}),
            Some(r"(?:1\+1|\(2\))"),
        ),
    ] {
        let got = short((day.allowed_regex)(&body));
        equal(&format!("allowed_regex of {body}"), got, &Ok(want.map(str::to_string)))
            .likely("a choice is a text as it stands: regex_syntax::escape, then (?:a|b)")?;
    }
    Ok(())
}

pub fn other_formats_are_refused(day: &Day) -> Outcome {
    for (body, param) in [
        (json!({"response_format": {"type": "json_object"}}), "response_format"),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}),
            "response_format",
        ),
        (json!({"response_format": "json"}), "response_format"),
        (json!({"response_format": {}}), "response_format"),
        (json!({"structured_outputs": {}}), "structured_outputs"),
        (json!({"structured_outputs": "[0-9]+"}), "structured_outputs"),
        (json!({"structured_outputs": {"grammar": "root ::= x"}}), "structured_outputs"),
        (json!({"structured_outputs": {"regex": "a", "json": {}}}), "structured_outputs"),
        (json!({"structured_outputs": {"regex": "a", "choice": ["b"]}}), "structured_outputs"),
        (json!({"structured_outputs": {"choice": []}}), "structured_outputs"),
        (json!({"structured_outputs": {"choice": ["a", 1]}}), "structured_outputs"),
        (json!({"structured_outputs": {"choice": "a"}}), "structured_outputs"),
        (json!({"structured_outputs": {"regex": 5}}), "structured_outputs"),
    ] {
        let got = short((day.allowed_regex)(&body));
        equal(&format!("allowed_regex of {body}"), got, &blames(400, param))
            .likely("what is not kept must be refused: a client would take the text for JSON")?;
    }
    let body = json!({"response_format": {"type": "json_object"}});
    let words = (day.allowed_regex)(&body).err().map(|e| e.message).unwrap_or_default();
    let says = words.contains("json_object");
    ensure("the refusal of response_format json_object", says, "should name json_object")
}

/// The defaults of OpenAI.
fn openai(max_new_tokens: usize) -> SamplingParams {
    SamplingParams { temperature: 1.0, max_new_tokens, seed: 99, ..SamplingParams::default() }
}

pub fn defaults_are_openais(day: &Day) -> Outcome {
    for (chat, most) in [(false, 16), (true, usize::MAX)] {
        let input = format!("sampling_params of {{}}, chat: {chat}, seed 99");
        let got = short((day.sampling_params)(&json!({}), chat, 99));
        equal(&input, got, &Ok(openai(most))).likely(
            "the defaults are OpenAI's: temperature 1; 16 tokens, in a chat all that fit",
        )?;
    }
    Ok(())
}

pub fn every_parameter_arrives(day: &Day) -> Outcome {
    let body = json!({
        "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125, "seed": 3,
        "presence_penalty": -1.5, "frequency_penalty": 1.25, "repetition_penalty": 1.5,
        "max_tokens": 5, "stop": "END", "structured_outputs": {"regex": "a*"},
    });
    let want = SamplingParams {
        max_new_tokens: 5,
        temperature: 0.5,
        top_k: Some(7),
        top_p: 0.25,
        min_p: 0.125,
        seed: 3,
        repetition_penalty: 1.5,
        presence_penalty: -1.5,
        frequency_penalty: 1.25,
        stop: vec!["END".to_string()],
        allow_regex: Some("a*".to_string()),
        ..SamplingParams::default()
    };
    for chat in [false, true] {
        let input = format!("sampling_params of {body}, chat: {chat}");
        equal(&input, short((day.sampling_params)(&body, chat, 99)), &Ok(want.clone()))?;
    }
    for (body, chat, want) in [
        (json!({"temperature": 0}), false, SamplingParams { temperature: 0.0, ..openai(16) }),
        (json!({"temperature": 3.5}), false, SamplingParams { temperature: 3.5, ..openai(16) }),
        (json!({"top_k": 0}), false, openai(16)),
        (
            json!({"top_k": -1, "top_p": 1, "min_p": 1}),
            false,
            SamplingParams { min_p: 1.0, ..openai(16) },
        ),
        (json!({"seed": 0}), false, SamplingParams { seed: 0, ..openai(16) }),
        (json!({"seed": -1}), false, SamplingParams { seed: u64::MAX, ..openai(16) }),
        (json!({"seed": null, "max_tokens": null}), false, openai(16)),
        (json!({"max_tokens": 3}), true, openai(3)),
        (json!({"max_completion_tokens": 4}), true, openai(4)),
        (json!({"max_tokens": 3, "max_completion_tokens": 4}), true, openai(4)),
        (json!({"max_completion_tokens": 4}), false, openai(16)),
        (json!({"max_tokens": 1}), false, openai(1)),
        (json!({"max_completion_tokens": 1}), true, openai(1)),
        (json!({"top_k": 1}), false, SamplingParams { top_k: Some(1), ..openai(16) }),
        (
            json!({"repetition_penalty": 0.5}),
            false,
            SamplingParams { repetition_penalty: 0.5, ..openai(16) },
        ),
        (
            json!({"presence_penalty": 2, "frequency_penalty": -2}),
            false,
            SamplingParams { presence_penalty: 2.0, frequency_penalty: -2.0, ..openai(16) },
        ),
    ] {
        let input = format!("sampling_params of {body}, chat: {chat}, seed 99");
        equal(&input, short((day.sampling_params)(&body, chat, 99)), &Ok(want))?;
    }
    Ok(())
}

pub fn out_of_range_is_refused(day: &Day) -> Outcome {
    for (body, param) in [
        (json!({"temperature": -0.1}), "temperature"),
        (json!({"temperature": "hot"}), "temperature"),
        (json!({"top_p": 0}), "top_p"),
        (json!({"top_p": 1.01}), "top_p"),
        (json!({"top_k": -2}), "top_k"),
        (json!({"top_k": 2.5}), "top_k"),
        (json!({"min_p": -0.1}), "min_p"),
        (json!({"min_p": 1.1}), "min_p"),
        (json!({"seed": "x"}), "seed"),
        (json!({"seed": 0.5}), "seed"),
        (json!({"presence_penalty": 2.1}), "presence_penalty"),
        (json!({"frequency_penalty": -2.1}), "frequency_penalty"),
        (json!({"repetition_penalty": 0}), "repetition_penalty"),
        (json!({"repetition_penalty": -0.5}), "repetition_penalty"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"max_tokens": -5}), "max_tokens"),
        (json!({"max_completion_tokens": 0}), "max_completion_tokens"),
        (json!({"stop": ""}), "stop"),
        (json!({"response_format": {"type": "json_object"}}), "response_format"),
    ] {
        let input = format!("sampling_params of {body}, in a chat");
        equal(&input, short((day.sampling_params)(&body, true, 99)), &blames(400, param))?;
    }
    Ok(())
}

pub fn a_prompt_in_four_forms(day: &Day) -> Outcome {
    let text = |text: &str| Sent::Text(text.to_string());
    for (body, want) in [
        (json!({"prompt": "Once"}), vec![text("Once")]),
        (json!({"prompt": ""}), vec![text("")]),
        (json!({"prompt": ["Once", "The", ""]}), vec![text("Once"), text("The"), text("")]),
        (json!({"prompt": [7]}), vec![Sent::Ids(vec![7])]),
        (json!({"prompt": [7, 8, 9]}), vec![Sent::Ids(vec![7, 8, 9])]),
        (json!({"prompt": [[7, 8], [9]]}), vec![Sent::Ids(vec![7, 8]), Sent::Ids(vec![9])]),
        (json!({"prompt": [[]]}), vec![Sent::Ids(vec![])]),
    ] {
        equal(&format!("prompts of {body}"), short((day.prompts)(&body)), &Ok(want))
            .likely("a list of numbers is one prompt, a list of strings is several")?;
    }
    Ok(())
}

pub fn other_prompts_are_refused(day: &Day) -> Outcome {
    for body in [
        json!({}),
        json!({"prompt": null}),
        json!({"prompt": []}),
        json!({"prompt": 7}),
        json!({"prompt": {"text": "Once"}}),
        json!({"prompt": ["Once", 7]}),
        json!({"prompt": [7, "Once"]}),
        json!({"prompt": [[7], "Once"]}),
        json!({"prompt": ["Once", [7]]}),
        json!({"prompt": [-7]}),
        json!({"prompt": [7.5]}),
        json!({"prompt": [4_294_967_296_u64]}),
        json!({"prompt": [null]}),
    ] {
        let got = short((day.prompts)(&body));
        equal(&format!("prompts of {body}"), got, &blames(400, "prompt"))?;
    }
    Ok(())
}

pub fn messages_by_role(day: &Day) -> Outcome {
    let body = json!({"messages": [
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": "Hi", "name": "Lily"},
        {"role": "assistant", "content": null},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": ""},
        {"role": "system", "content": []},
    ]});
    let want: Vec<(String, String)> = [
        ("system", "Be short."),
        ("user", "Hi"),
        ("assistant", ""),
        ("user", "a\nb"),
        ("assistant", ""),
        ("system", ""),
    ]
    .map(|(role, content)| (role.to_string(), content.to_string()))
    .into();
    equal(&format!("chat_messages of {body}"), short((day.chat_messages)(&body)), &Ok(want))
        .likely("developer becomes system; text parts are joined by a line end")
}

pub fn other_messages_are_refused(day: &Day) -> Outcome {
    for messages in [
        json!(null),
        json!([]),
        json!("Hi"),
        json!(["Hi"]),
        json!([{"role": "tool", "content": "4"}]),
        json!([{"content": "Hi"}]),
        json!([{"role": "user"}]),
        json!([{"role": "user", "content": null}]),
        json!([{"role": "user", "content": 4}]),
        json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
        json!([{"role": "user", "content": [{"type": "image_url", "text": "a cat"}]}]),
        json!([{"role": "user", "content": [{"type": "text"}]}]),
        json!([{"role": "user", "content": ["Hi"]}]),
    ] {
        let body = json!({"messages": messages});
        let got = short((day.chat_messages)(&body));
        equal(&format!("chat_messages of {body}"), got, &blames(400, "messages"))?;
    }
    Ok(())
}

pub fn logprobs_are_asked_in_two_ways(day: &Day) -> Outcome {
    for (body, chat, want) in [
        (json!({}), false, Ok(None)),
        (json!({"logprobs": 0}), false, Ok(Some(0))),
        (json!({"logprobs": 20}), false, Ok(Some(20))),
        (json!({"logprobs": 21}), false, blames(400, "logprobs")),
        (json!({"logprobs": -1}), false, blames(400, "logprobs")),
        (json!({"logprobs": true}), false, blames(400, "logprobs")),
        (json!({}), true, Ok(None)),
        (json!({"logprobs": false}), true, Ok(None)),
        (json!({"logprobs": true}), true, Ok(Some(0))),
        (json!({"logprobs": true, "top_logprobs": 20}), true, Ok(Some(20))),
        (json!({"logprobs": true, "top_logprobs": 21}), true, blames(400, "top_logprobs")),
        (json!({"top_logprobs": 2}), true, blames(400, "top_logprobs")),
        (json!({"logprobs": false, "top_logprobs": 2}), true, blames(400, "top_logprobs")),
        (json!({"logprobs": 3}), true, blames(400, "logprobs")),
    ] {
        let input = format!("logprobs_asked of {body}, chat: {chat}");
        equal(&input, short((day.logprobs_asked)(&body, chat)), &want)
            .likely("a number for a completion; in a chat a flag and a number")?;
    }
    Ok(())
}

pub fn a_whole_request(day: &Day) -> Outcome {
    let body = json!({
        "model": "story-3m", "prompt": ["Once", "The"], "n": 2, "stream": true, "logprobs": 2,
        "stream_options": {"include_usage": true}, "mystery": "a", "user": "x", "best_of": 2,
        "ignore_eos": true, "echo": false, "logit_bias": {},
    });
    let want = Parsed {
        prompts: vec![Sent::Text("Once".into()), Sent::Text("The".into())],
        params: SamplingParams { ignore_eos: true, ..openai(16) },
        n: 2,
        logprobs: Some(2),
        ignore_eos: true,
        stream: true,
        include_usage: true,
        ignored: vec!["mystery".into(), "user".into()],
    };
    equal(&format!("parse of {body}"), short(parse(day, &body, false)), &Ok(want))?;
    let body = json!({"messages": [{"role": "user", "content": "Hi"}]});
    let want = Parsed {
        prompts: vec![Sent::Messages(vec![("user".into(), "Hi".into())])],
        params: openai(usize::MAX),
        n: 1,
        logprobs: None,
        ignore_eos: false,
        stream: false,
        include_usage: false,
        ignored: vec![],
    };
    equal(&format!("parse of {body}, a chat"), short(parse(day, &body, true)), &Ok(want))?;
    for (name, value) in [
        ("suffix", json!("")),
        ("bad_words", json!([])),
        ("logit_bias", json!({})),
        ("tools", json!(null)),
        ("use_beam_search", json!(false)),
        ("add_generation_prompt", json!(true)),
        ("min_tokens", json!(0)),
        ("length_penalty", json!(1.0)),
        ("prompt_logprobs", json!(null)),
    ] {
        let mut body = json!({"prompt": "Once"});
        body[name] = value;
        let got = parse(day, &body, false).map(|parsed| (parsed.params, parsed.ignored));
        equal(
            &format!("parse of {body}: its parameters, and what is ignored"),
            short(got),
            &Ok((openai(16), vec![])),
        )
        .likely("a field that nothing here can do is no fault where its value asks for nothing")?;
    }
    Ok(())
}

/// Reads a request to a server of story-3m.
fn parse(day: &Day, body: &Value, chat: bool) -> Answer<Parsed> {
    (day.parse)(chat, body.to_string().as_bytes(), "story-3m", 99)
}

pub fn prompts_times_n_have_a_bound(day: &Day) -> Outcome {
    for (prompts, n, temperature, fits) in [
        (1, 0, 1.0, false),
        (1, 1, 1.0, true),
        (1, 128, 1.0, true),
        (1, 129, 1.0, false),
        (2, 64, 1.0, true),
        (2, 65, 1.0, false),
        (128, 1, 1.0, true),
        (129, 1, 1.0, false),
        // Greedy choices of one prompt would all be the same text.
        (1, 2, 0.0, false),
        (1, 3, 0.0, false),
        (3, 1, 0.0, true),
        (1, 2, 0.5, true),
    ] {
        let body = json!({"prompt": vec!["Once"; prompts], "n": n, "temperature": temperature});
        let got = parse(day, &body, false).map(|parsed| (parsed.prompts.len(), parsed.n));
        let want = if fits { Ok((prompts, n)) } else { blames(400, "n") };
        let input = format!("parse of {prompts} prompts, n = {n}, temperature {temperature}");
        equal(&format!("{input}: prompts and n"), short(got), &want)
            .likely("n and prompts times n are 1 to 128; at temperature 0 n is 1")?;
    }
    Ok(())
}

pub fn other_requests_are_refused(day: &Day) -> Outcome {
    for (name, value, status) in [
        ("model", json!("story-7b"), 404),
        ("model", json!(7), 400),
        ("n", json!("2"), 400),
        ("suffix", json!("The end."), 400),
        ("bad_words", json!([5]), 400),
        ("logit_bias", json!({"405": -101}), 400),
        ("grammar", json!("root ::= \"a\""), 400),
        ("use_beam_search", json!(true), 400),
        ("add_generation_prompt", json!(false), 400),
        ("min_tokens", json!(-1), 400),
        ("length_penalty", json!(0), 400),
        ("best_of", json!(2), 400),
        // 0 asks for the prompt's own logprobs.
        ("prompt_logprobs", json!(0), 400),
        ("prompt_logprobs", json!(5), 400),
        ("stream_options", json!({"include_usage": true}), 400),
    ] {
        let mut body = json!({"prompt": "Once"});
        body[name] = value;
        let got = short(parse(day, &body, false));
        equal(&format!("parse of {body}, model story-3m"), got, &blames(status, name))
            .likely("what cannot be kept is refused, and the error names the field")?;
    }
    let body = json!({"prompt": "Once", "stream": true, "stream_options": true});
    let got = short(parse(day, &body, false));
    equal(&format!("parse of {body}"), got, &blames(400, "stream_options"))?;
    for body in ["{\"prompt\": ", "[\"Once\"]"] {
        let got = short((day.parse)(false, body.as_bytes(), "story-3m", 99));
        equal(&format!("parse of the body {body}"), got, &Err((400, None)))
            .likely("a body that is no JSON object is refused, and no field is to blame")?;
    }
    Ok(())
}

// 20.7

fn in_turns(messages: &[(String, String)]) -> std::result::Result<String, String> {
    if messages.iter().any(|(role, _)| role == "system") {
        return Err("a story has no system prompt".to_string());
    }
    Ok(messages.iter().map(|(role, content)| format!("{role}: {content}\n")).collect())
}

/// A tokenizer that puts token 0 before every text, but for those that a template wrote.
fn tokenizer_with_bos() -> Result<Tokenizer> {
    let path = super::checks::models_dir()?.join("story-3m/tokenizer.json");
    let text = std::fs::read_to_string(path).map_err(|e| Error::Msg(e.to_string()))?;
    let mut value: Value = serde_json::from_str(&text).map_err(|e| Error::Msg(e.to_string()))?;
    value["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|endoftext|>": {
            "id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}},
    });
    Tokenizer::from_bytes(value.to_string().as_bytes())
}

pub fn prompts_become_tokens(day: &Day) -> Outcome {
    let tokenizer = tokenizer_with_bos()?;
    let model = Witness::mixing(2048, 16, 1);
    let config = model.config();
    let user = |text: &str| Sent::Messages(vec![("user".to_string(), text.to_string())]);
    let with_bos = tokenizer.encode("Once upon")?;
    let without = tokenizer.encode_rendered("user: Hi\n")?;
    for (sent, want, likely) in [
        (Sent::Text("Once upon".into()), with_bos, "tokenizer.encode adds what begins a text"),
        (Sent::Ids(vec![7, 2047]), vec![7, 2047], "ids are taken as they are"),
        (Sent::Ids(vec![5; 16]), vec![5; 16], "exactly the context still fits"),
        (user("Hi"), without, "the template has written the special tokens: encode_rendered"),
    ] {
        let input =
            format!("prompt_ids of {sent:?}, with a tokenizer that begins each text with 0");
        let got = short((day.prompt_ids)(vec![sent], &tokenizer, config, in_turns));
        equal(&input, got, &Ok(vec![want])).likely(likely)?;
    }
    let several = vec![Sent::Text("Once".into()), Sent::Text("The".into())];
    let want = vec![tokenizer.encode("Once")?, tokenizer.encode("The")?];
    let got = short((day.prompt_ids)(several, &tokenizer, config, in_turns));
    equal("prompt_ids of two prompts", got, &Ok(want))
}

pub fn prompts_that_do_not_fit(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let model = Witness::mixing(2048, 16, 1);
    let config = model.config();
    let one = |role: &str, text: &str| Sent::Messages(vec![(role.to_string(), text.to_string())]);
    for (sent, param) in [
        (Sent::Ids(vec![5; 17]), "prompt"),
        (Sent::Ids(vec![2048]), "prompt"),
        (Sent::Ids(vec![]), "prompt"),
        (Sent::Text(String::new()), "prompt"),
        (Sent::Text("Once upon a time ".repeat(9)), "prompt"),
        (one("system", "Be short."), "messages"),
        (one("user", &"Hi ".repeat(30)), "messages"),
    ] {
        let input = format!("prompt_ids of {sent:?}, 2048 tokens, a context of 16");
        let got = short((day.prompt_ids)(vec![sent], &tokenizer, config, in_turns));
        equal(&input, got, &blames(400, param))?;
    }
    let asked = |sent| (day.prompt_ids)(vec![sent], &tokenizer, config, in_turns);
    let code = |sent| Ok(asked(sent).err().and_then(|error| error.code));
    let input = "a prompt of 17 tokens, a context of 16: the code of the error";
    equal(input, code(Sent::Ids(vec![5; 17])), &Some("context_length_exceeded"))?;
    equal("an id that is not in the vocabulary: the code", code(Sent::Ids(vec![2048])), &None)?;
    let words = asked(one("system", "Be short.")).err().map(|error| error.message);
    let says = words.unwrap_or_default().contains("a story has no system prompt");
    ensure("a template refuses a chat", says, "the error should say what the template says")
}

// part 2

pub fn an_event_is_a_line_and_an_empty_line(day: &Day) -> Outcome {
    for (value, want) in [
        (json!({"a": 1}), "data: {\"a\":1}\n\n"),
        (json!({"text": "a\nb"}), "data: {\"text\":\"a\\nb\"}\n\n"),
        (json!([]), "data: []\n\n"),
    ] {
        equal(&format!("sse of {value}"), Ok((day.sse)(&value)), &want.to_string())
            .likely("\"data: \", the JSON, and two line ends")?;
    }
    Ok(())
}

pub fn three_reasons_two_words(day: &Day) -> Outcome {
    for (finish, want) in [
        (FinishReason::Eos, "stop"),
        (FinishReason::Stop, "stop"),
        (FinishReason::Length, "length"),
    ] {
        equal(&format!("finish_reason of {finish:?}"), Ok((day.finish_reason)(finish)), &want)
            .likely("for OpenAI a text that ends by EOS has stopped, too")?;
    }
    Ok(())
}

/// A token and its logprob.
fn spelling(token: &str, logprob: f32) -> Spelling {
    (token.to_string(), token.as_bytes().to_vec(), logprob)
}

/// " Tom", " c", then the two halves of é, each the likelier of two.
fn some_probs() -> Vec<Probs> {
    let half = |byte: u8, logprob| ("\u{fffd}".to_string(), vec![byte], logprob);
    vec![
        (spelling(" Tom", -0.5), vec![spelling(" Tom", -0.5), spelling(" Lily", -1.25)]),
        (spelling(" c", -2.5), vec![spelling(" d", -0.25), spelling("x", -1.75)]),
        (half(0xc3, -0.125), vec![half(0xc3, -0.125), half(0xc2, -3.5)]),
        (half(0xa9, -0.0625), vec![]),
    ]
}

pub fn logprobs_in_two_shapes(day: &Day) -> Outcome {
    let entry = |(token, bytes, logprob): &Spelling| json!({"token": token, "bytes": bytes, "logprob": logprob});
    let all = some_probs();
    let mut content = Vec::new();
    for (chosen, top) in &all {
        let mut one = entry(chosen);
        one["top_logprobs"] = top.iter().map(entry).collect();
        content.push(one);
    }
    let input = "logprobs_json of \" Tom\", \" c\" and the two halves of é";
    let got = (day.logprobs_json)(true, &all, 3);
    equal(&format!("{input}, in a chat"), Ok(got), &json!({"content": content}))?;
    let want = json!({
        "tokens": [" Tom", " c", "\u{fffd}", "\u{fffd}"],
        "token_logprobs": [-0.5, -2.5, -0.125, -0.0625],
        "top_logprobs": [
            {" Tom": -0.5, " Lily": -1.25},
            {" c": -2.5, " d": -0.25, "x": -1.75},
            {"\u{fffd}": -0.125},
            {"\u{fffd}": -0.0625},
        ],
        "text_offset": [3, 7, 9, 10],
    });
    let got = (day.logprobs_json)(false, &all, 3);
    equal(&format!("{input}, for a completion, at offset 3"), Ok(got), &want)
        .likely("four lists; the chosen token is in the map, too; an offset counts characters")?;
    let empty = json!({"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []});
    equal("logprobs_json of no token", Ok((day.logprobs_json)(false, &[], 3)), &empty)
}

fn bit(index: usize, text: &str) -> Bit {
    Bit { index, text: text.to_string(), probs: None, finish: None }
}

fn last(index: usize, text: &str, finish: FinishReason) -> Bit {
    Bit { finish: Some(finish), ..bit(index, text) }
}

fn asked(chat: bool, n: usize) -> Asked {
    Asked { chat, prompts: vec![4], n, logprobs: false, usage: false }
}

pub fn usage_counts_tokens(day: &Day) -> Outcome {
    let usage = |prompt: usize, completion: usize| {
        json!({"prompt_tokens": prompt, "completion_tokens": completion,
               "total_tokens": prompt + completion})
    };
    let eos = last(0, "", FinishReason::Eos);
    let script = vec![
        Make::Usage,
        Make::Take(bit(0, " caf")),
        Make::Take(bit(0, "")),
        Make::Take(bit(0, "é")),
        Make::Take(eos),
        Make::Usage,
    ];
    let got = (day.reply)(&asked(false, 1), script);
    let input = "a prompt of 4 tokens";
    equal(&format!("{input}, nothing yet: usage"), Ok(got[0].clone()), &usage(4, 0))?;
    let input = format!("{input}; \" caf\", half a character, \"é\" and EOS: usage");
    equal(&input, Ok(got[5].clone()), &usage(4, 4))
        .likely("every generated token counts: one without text, and the EOS, too")?;
    let two = Asked { prompts: vec![4, 7], ..asked(false, 3) };
    let mut script: Vec<Make> = (0..6).map(|i| Make::Take(bit(i, "x"))).collect();
    script.push(Make::Take(bit(5, "y")));
    script.push(Make::Usage);
    let got = (day.reply)(&two, script).pop().unwrap_or_default();
    equal("prompts of 4 and 7 tokens, n = 3, seven tokens: usage", Ok(got), &usage(11, 7))
        .likely("a prompt counts once, however many choices it has; the choices add up")
}

pub fn pieces_are_taken_by_their_choice(day: &Day) -> Outcome {
    let probs = some_probs();
    let with = |bit: Bit, i: usize| Bit { probs: Some(probs[i].clone()), ..bit };
    let script = vec![
        Make::Take(with(bit(1, "b"), 1)),
        Make::Take(with(bit(0, "a"), 0)),
        Make::Take(with(last(1, "c", FinishReason::Length), 2)),
        Make::Take(with(last(0, "", FinishReason::Stop), 3)),
        Make::Whole,
    ];
    let two = Asked { logprobs: true, ..asked(false, 2) };
    let got = (day.reply)(&two, script);
    let done: Vec<&Value> = got[..4].iter().collect();
    let want = [json!(false), json!(false), json!(false), json!(true)];
    let input = "choices 1, 0, 1 (its last) and 0 (its last) get a token";
    equal(&format!("{input}: is it done?"), Ok(done), &want.iter().collect())?;
    let told: Vec<(Value, Value, Value, Value)> = (0..2)
        .map(|i| {
            let one = &got[4]["choices"][i];
            let tokens = one["logprobs"]["tokens"].clone();
            (one["index"].clone(), one["text"].clone(), tokens, one["finish_reason"].clone())
        })
        .collect();
    let want = vec![
        (json!(0), json!("a"), json!([" Tom", "\u{fffd}"]), json!("stop")),
        (json!(1), json!("bc"), json!([" c", "\u{fffd}"]), json!("length")),
    ];
    equal(&format!("{input}: index, text, tokens and end of each"), Ok(told), &want)
}

/// An event of a stream.
fn chunk(chat: bool, choices: Value) -> Value {
    let object = if chat { "chat.completion.chunk" } else { "text_completion" };
    json!({"id": "cmpl-1", "object": object, "created": 1_750_000_000, "model": "story-3m",
           "choices": choices})
}

pub fn a_completion_in_chunks(day: &Day) -> Outcome {
    let one = |text: &str, finish: Value| {
        chunk(false, json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": finish}]))
    };
    let steps = [
        (bit(0, " a caf"), vec![one(" a caf", Value::Null)]),
        (bit(0, ""), vec![]),
        (bit(0, "é"), vec![one("é", Value::Null)]),
        (last(0, "", FinishReason::Eos), vec![one("", json!("stop"))]),
    ];
    let script = steps.iter().map(|(bit, _)| Make::Chunks(bit.clone())).collect();
    let got = (day.reply)(&asked(false, 1), script);
    for ((bit, want), got) in steps.iter().zip(got) {
        let input = format!("a completion, streamed; the events of {:?}", bit.text);
        equal(&input, Ok(got), &json!(want))
            .likely("the text of the piece, not all so far; no event for a piece without text")?;
    }
    Ok(())
}

pub fn a_chat_in_chunks(day: &Day) -> Outcome {
    let one = |index: usize, delta: Value, finish: Value| {
        let choice =
            json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": finish});
        chunk(true, json!([choice]))
    };
    let role = |index| one(index, json!({"role": "assistant", "content": ""}), Value::Null);
    let said = |index, text: &str| one(index, json!({"content": text}), Value::Null);
    let steps = [
        (bit(1, "Hi"), vec![role(1), said(1, "Hi")]),
        (bit(0, ""), vec![role(0)]),
        (bit(1, " you"), vec![said(1, " you")]),
        (bit(0, "é"), vec![said(0, "é")]),
        (last(1, "", FinishReason::Eos), vec![one(1, json!({}), json!("stop"))]),
        (
            last(0, "!", FinishReason::Length),
            vec![one(0, json!({"content": "!"}), json!("length"))],
        ),
    ];
    let script = steps.iter().map(|(bit, _)| Make::Chunks(bit.clone())).collect();
    let got = (day.reply)(&asked(true, 2), script);
    for ((bit, want), got) in steps.iter().zip(got) {
        let input = format!("a chat, n = 2, streamed; choice {} gets {:?}", bit.index, bit.text);
        equal(&input, Ok(got), &json!(want))
            .likely("the role once for each choice, at its beginning; then deltas")?;
    }
    Ok(())
}

pub fn logprobs_wait_for_an_event(day: &Day) -> Outcome {
    let probs = some_probs();
    let with = |text: &str, i: usize| Bit { probs: Some(probs[i].clone()), ..bit(0, text) };
    let script = vec![
        Make::Chunks(with(" Tom", 0)),
        Make::Chunks(with("", 2)),
        Make::Chunks(with("é", 3)),
        Make::Chunks(Bit { finish: Some(FinishReason::Length), ..with(" c", 1) }),
    ];
    let asked = Asked { logprobs: true, ..asked(false, 1) };
    let got = (day.reply)(&asked, script);
    let told: Vec<(Value, Value)> = got
        .iter()
        .flat_map(|events| events.as_array().cloned().unwrap_or_default())
        .map(|event| {
            let logprobs = &event["choices"][0]["logprobs"];
            (logprobs["tokens"].clone(), logprobs["text_offset"].clone())
        })
        .collect();
    let want = vec![
        (json!([" Tom"]), json!([0])),
        (json!(["\u{fffd}", "\u{fffd}"]), json!([4, 5])),
        (json!([" c"]), json!([6])),
    ];
    let input =
        "\" Tom\", two halves of é and \" c\", streamed: tokens and text_offset of each event";
    equal(input, Ok(told), &want)
        .likely("the logprobs of a piece without an event wait for the next one")
}

pub fn a_stream_ends(day: &Day) -> Outcome {
    let pieces =
        || vec![Make::Chunks(bit(0, "a")), Make::Chunks(last(0, "", FinishReason::Eos)), Make::End];
    let got = (day.reply)(&asked(true, 1), pieces()).pop().unwrap_or_default();
    equal("end of a stream", Ok(got), &json!("data: [DONE]\n\n"))
        .likely("a client waits for [DONE]")?;
    let with_usage = Asked { usage: true, ..asked(true, 1) };
    let got = (day.reply)(&with_usage, pieces());
    let events: Vec<Value> =
        got[..2].iter().flat_map(|all| all.as_array().cloned().unwrap_or_default()).collect();
    let usages: Vec<Option<&Value>> = events.iter().map(|event| event.get("usage")).collect();
    let null = Value::Null;
    equal("usage asked for: that of the events before the end", Ok(usages), &vec![Some(&null); 3])?;
    let mut usage = chunk(true, json!([]));
    usage["usage"] = json!({"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6});
    let want = format!("data: {usage}\n\ndata: [DONE]\n\n");
    equal("usage asked for: end of the stream", Ok(got[2].clone()), &json!(want))
        .likely("one event with the usage and no choices, and then [DONE]")?;
    let failed = vec![Make::Failed(ApiError::failed("the device is lost"))];
    let got = (day.reply)(&asked(true, 1), failed).pop().unwrap_or_default();
    let error = json!({"error": {"message": "the device is lost", "type": "server_error",
                                 "param": null, "code": null}});
    let want = format!("data: {error}\n\ndata: [DONE]\n\n");
    equal("end of a stream that has failed", Ok(got), &json!(want))
        .likely("the error is an event, and [DONE] comes after it as after every stream")
}

pub fn a_whole_answer(day: &Day) -> Outcome {
    for chat in [false, true] {
        let script = vec![
            Make::Take(bit(0, " a")),
            Make::Take(bit(1, " b")),
            Make::Take(last(0, "", FinishReason::Eos)),
            Make::Take(last(1, " c", FinishReason::Length)),
            Make::Whole,
        ];
        let got = (day.reply)(&asked(chat, 2), script).pop().unwrap_or_default();
        let one = |index: usize, text: &str, finish: &str| {
            let mut one = json!({"index": index, "logprobs": null, "finish_reason": finish});
            if chat {
                one["message"] = json!({"role": "assistant", "content": text});
            } else {
                one["text"] = json!(text);
            }
            one
        };
        let object = if chat { "chat.completion" } else { "text_completion" };
        let want = json!({
            "id": "cmpl-1", "object": object, "created": 1_750_000_000, "model": "story-3m",
            "choices": [one(0, " a", "stop"), one(1, " b c", "length")],
            "usage": {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8},
        });
        equal(&format!("the whole answer, n = 2, chat: {chat}"), Ok(got), &want)?;
    }
    Ok(())
}

/// What the oracle has: pieces, and what the official client's own types make of them.
#[derive(serde::Deserialize)]
struct Golden {
    chat: bool,
    n: usize,
    prompt_tokens: Vec<usize>,
    logprobs: bool,
    pieces: Vec<Piece>,
    events: Vec<Value>,
    whole: Value,
}

#[derive(serde::Deserialize)]
struct Piece {
    index: usize,
    text: String,
    logprobs: Option<Probs>,
    finish: Option<String>,
}

pub fn as_the_official_client_has_it(day: &Day) -> Outcome {
    let cases = golden_json("day20")?["answers"].take();
    let cases: Vec<Golden> =
        serde_json::from_value(cases).map_err(|e| Error::Msg(format!("day20.json: {e}")))?;
    for case in cases {
        let bits: Vec<Bit> = case
            .pieces
            .into_iter()
            .map(|piece| Bit {
                index: piece.index,
                text: piece.text,
                probs: piece.logprobs,
                finish: piece.finish.map(|word| match word.as_str() {
                    "eos" => FinishReason::Eos,
                    "stop" => FinishReason::Stop,
                    _ => FinishReason::Length,
                }),
            })
            .collect();
        let asked = Asked {
            chat: case.chat,
            prompts: case.prompt_tokens,
            n: case.n,
            logprobs: case.logprobs,
            usage: true,
        };
        let texts: Vec<&str> = bits.iter().map(|bit| bit.text.as_str()).collect();
        let input = format!("pieces {texts:?}, n = {}, chat: {}", case.n, case.chat);
        let mut script: Vec<Make> = bits.iter().cloned().map(Make::Chunks).collect();
        script.push(Make::End);
        let mut got = (day.reply)(&asked, script);
        let end = got.pop().unwrap_or_default();
        let mut events: Vec<Value> =
            got.iter().flat_map(|all| all.as_array().cloned().unwrap_or_default()).collect();
        for line in end.as_str().unwrap_or_default().split("\n\n") {
            let data = line.strip_prefix("data: ").and_then(|data| serde_json::from_str(data).ok());
            events.extend(data);
        }
        equal(&format!("{input}: how many events"), Ok(events.len()), &case.events.len())?;
        for (i, (got, want)) in events.iter().zip(&case.events).enumerate() {
            equal(&format!("{input}: event {i}, as openai's types have it"), Ok(got), &want)?;
        }
        let mut script: Vec<Make> = bits.into_iter().map(Make::Take).collect();
        script.push(Make::Whole);
        let got = (day.reply)(&asked, script).pop().unwrap_or_default();
        equal(
            &format!("{input}: the whole answer, as openai's types have it"),
            Ok(got),
            &case.whole,
        )?;
    }
    Ok(())
}

// part 3

pub fn the_likeliest_by_hand(day: &Day) -> Outcome {
    // softmax of ln 1, ln 4, ln 2, ln 1: 1/8, 1/2, 1/4, 1/8
    let logits: Vec<f32> = [1.0f32, 4.0, 2.0, 1.0].iter().map(|x| x.ln()).collect();
    let all = [(1, 0.5f32), (2, 0.25), (0, 0.125), (3, 0.125)];
    for k in [0, 1, 3, 4, 9] {
        let got = (day.top_logprobs)(&logits, k)?;
        let input =
            format!("top_logprobs of logits with probabilities 1/8, 1/2, 1/4, 1/8; k = {k}");
        let ids: Vec<u32> = got.iter().map(|(id, _)| *id).collect();
        let want: Vec<u32> = all.iter().take(k).map(|(id, _)| *id).collect();
        equal(&format!("{input}: ids"), Ok(ids), &want)
            .likely("the likeliest first; of equals the lower id; k of them")?;
        for ((_, got), (_, want)) in got.iter().zip(&all) {
            // A few roundings of f32 near 1.
            super::checks::near(&input, Ok(f64::from(*got)), f64::from(want.ln()), 1e-5)?;
        }
    }
    Ok(())
}

/// Generates with an observed request, without a cache: ids, what was seen after each.
fn watch(
    day: &Day,
    model: &Witness,
    params: &SamplingParams,
    top: Option<usize>,
) -> Result<(Vec<u32>, usize, Option<String>)> {
    let tokenizer = tokenizer()?;
    let request = request_of(model.config(), params, &[405], 0)?;
    let (request, look) = (day.observe)(request, top);
    let cached = Cached::new(model, Box::new(DynamicCache::new(model.layers())));
    let tokens: Result<Vec<Token>> = generate_cached(cached, &tokenizer, request)?.collect();
    let ids = tokens?.iter().map(|token| token.id).collect();
    let (top, error) = look();
    Ok((ids, top.len(), error))
}

pub fn an_observer_changes_nothing(day: &Day) -> Outcome {
    let params = SamplingParams {
        max_new_tokens: 8,
        temperature: 0.5,
        top_k: Some(40),
        seed: 5,
        presence_penalty: 1.5,
        ..SamplingParams::default()
    };
    for top in [None, Some(0), Some(3)] {
        let model = Witness::mixing(2048, 64, 40);
        let (ids, seen, error) = watch(day, &model, &params, top)?;
        let input = format!("a sampled request of 8 tokens, observed with top {top:?}");
        let want: Vec<u32> = alone(&model, &params, &[405], 0)?.iter().map(|t| t.id).collect();
        equal(&format!("{input}: its tokens"), Ok(ids), &want)
            .likely("the request's own processors and sampler decide")?;
        let wanted = if top.is_some() { want.len() } else { 0 };
        equal(&format!("{input}: entries of top"), Ok(seen), &wanted)
            .likely("one entry for each token if top is Some, none if it is None")?;
        equal(&format!("{input}: error"), Ok(error), &None)?;
    }
    Ok(())
}

pub fn the_model_s_own_logits_are_seen(day: &Day) -> Outcome {
    let model = Witness::new(2048, 64, 9, |_| {
        (0..2048).map(|id| [3.0, 2.0, 1.0, 0.0][(id as usize).min(3)]).collect()
    });
    let params = SamplingParams { max_new_tokens: 1, ..SamplingParams::default() };
    let mut request = request_of(model.config(), &params, &[405], 0)?;
    request.processors.push(named("not the best", |_: &ProcessorInput, logits: &mut [f32]| {
        logits[0] = f32::NEG_INFINITY;
        logits[1] = 0.5;
        Ok(())
    }));
    let (request, look) = (day.observe)(request, Some(2));
    let tokenizer = tokenizer()?;
    let cached = Cached::new(&model, Box::new(DynamicCache::new(model.layers())));
    let tokens: Result<Vec<Token>> = generate_cached(cached, &tokenizer, request)?.collect();
    let input = "logits 3, 2, 1, 0, …; a processor forbids token 0 and lowers token 1 to 0.5";
    let ids: Vec<u32> = tokens?.iter().map(|token| token.id).collect();
    equal(&format!("{input}: the token"), Ok(ids), &vec![2])?;
    let top: Vec<u32> = look().0.concat().iter().map(|(id, _)| *id).collect();
    equal(&format!("{input}: the two likeliest"), Ok(top), &vec![0, 1])
        .likely("they are told as the model has them, before any processor")
}

pub fn a_row_that_fails_goes_on(day: &Day) -> Outcome {
    for (fault, words) in
        [("no token at 2", "the rule left no token"), ("sampler at 2", "the sampler is broken")]
    {
        let model = Witness::mixing(2048, 64, 40);
        let params = SamplingParams {
            max_new_tokens: 5,
            block: vec![fault.to_string()],
            ..SamplingParams::default()
        };
        let input = format!("a request of 5 tokens, of which {fault} fails, observed");
        let got = watch(day, &model, &params, None).map(|(ids, _, error)| {
            (ids.len() >= 3, error.is_some_and(|error| error.contains(words)))
        });
        equal(&format!("{input}: (it goes on, the error says {words:?})"), got, &(true, true))
            .likely("some token is chosen in place of the one that could not be")?;
    }
    Ok(())
}

/// What a request is alone: day 10's loop.
fn alone(
    model: &Witness,
    params: &SamplingParams,
    prompt: &[u32],
    index: usize,
) -> Result<Vec<Token>> {
    let tokenizer = tokenizer()?;
    let cached = Cached::new(model, Box::new(DynamicCache::new(model.layers())));
    let request = request_of(model.config(), params, prompt, index)?;
    let tokens: Result<Vec<Token>> = generate_cached(cached, &tokenizer, request)?.collect();
    tokens
}

/// " cat ran home." and EOS.
const CAT: u32 = 405;
/// " Tom café!" and EOS, in eight tokens, of which the sixth is the second half of é.
const CAFE: u32 = 428;
/// "a", forty times.
const LONG: u32 = 431;

/// A model that tells one of three texts, after a prompt of one token that says which. Behind its
/// text it says EOS, whatever comes.
fn teller(bound: usize) -> Witness {
    let cat = vec![462, 592, 586, 14];
    let cafe = vec![424, 278, 65, 70, 128, 103, 1];
    let long = vec![65; 40];
    Witness::new(2048, 64, bound, move |seen| {
        let mut logits = vec![0.0; 2048];
        let text = match seen.first() {
            Some((CAT, _)) => &cat,
            Some((CAFE, _)) => &cafe,
            _ => &long,
        };
        let next = text.get(seen.len() - 1).copied().unwrap_or(0);
        logits[next as usize] = 10.0;
        logits
    })
}

/// A greedy request for the text of one of these, of so many tokens at most.
fn ask(which: u32, most: usize) -> Ask {
    let params = SamplingParams { max_new_tokens: most, ..SamplingParams::default() };
    Ask { prompts: vec![vec![which]], n: 1, params, ..Ask::default() }
}

/// The requests, and a client for each.
fn clients(asks: &[Ask]) -> Vec<(Ask, Arc<Client>)> {
    asks.iter().map(|ask| (ask.clone(), Arc::new(Client::default()))).collect()
}

/// Does `script` to a loop on this model.
fn drive(
    day: &Day,
    model: &dyn Model,
    (max_batch, max_queue): (usize, usize),
    jobs: &[(Ask, Arc<Client>)],
    script: Vec<Do>,
) -> Result<Vec<Seen>> {
    let tokenizer = tokenizer()?;
    let setup =
        Setup { model, tokenizer: &tokenizer, layers: 2, bound: 5000, max_batch, max_queue };
    (day.drive)(&setup, jobs.to_vec(), script)
}

/// As many turns.
fn turns(n: usize) -> impl Iterator<Item = Do> {
    (0..n).map(|_| Do::Turn)
}

pub fn a_queue_has_an_end(day: &Day) -> Outcome {
    let model = teller(0);
    let jobs = clients(&[ask(CAT, 9), ask(CAT, 9), ask(CAT, 9), ask(CAT, 9)]);
    let script = vec![Do::Accept(0), Do::Accept(1), Do::Accept(2), Do::Accept(3)];
    let seen = drive(day, &model, (1, 2), &jobs, script)?;
    let input = "four jobs come, the queue holds two";
    let queued: Vec<usize> = seen.iter().map(|seen| seen.load.0).collect();
    equal(&format!("{input}: how many wait after each"), Ok(queued), &vec![1, 2, 2, 2])
        .likely("a queue without a bound is a memory without one")?;
    let failures: Vec<Vec<u16>> = jobs.iter().map(|(_, client)| client.failures()).collect();
    equal(
        &format!("{input}: the status that each is told"),
        Ok(failures),
        &vec![vec![], vec![], vec![429], vec![429]],
    )
}

/// Which texts each pass computed, by their first token.
fn computed(model: &Witness) -> Vec<Vec<u32>> {
    let first = |row: &Vec<(u32, u32)>| row.first().map_or(0, |(id, _)| *id);
    model.passes.borrow().iter().map(|pass| pass.seen.iter().map(first).collect()).collect()
}

pub fn a_cancelled_row_computes_no_more(day: &Day) -> Outcome {
    let model = teller(60);
    let jobs = clients(&[ask(CAFE, 20), ask(LONG, 20)]);
    let mut script = vec![Do::Start(0, 0), Do::Start(1, 0), Do::Cancel(1)];
    script.extend(turns(9));
    let seen = drive(day, &model, (8, 8), &jobs, script)?;
    let input = "two rows wait for their prefill, and row 1 is cancelled";
    let after = (seen[2].load, seen[2].rows.clone());
    equal(&format!("{input}: load and rows"), Ok(after), &((0, 1, 0), vec![(0, 0)]))?;
    let passes = computed(&model).iter().filter(|rows| rows.contains(&LONG)).count();
    equal(&format!("{input}: passes that compute it"), Ok(passes), &0)
        .likely("it has to leave the scheduler's queue, too")?;

    let model = teller(60);
    let jobs = clients(&[ask(CAFE, 20), ask(LONG, 20)]);
    let mut script = vec![Do::Start(0, 0), Do::Start(1, 0), Do::Turn, Do::Turn];
    let before = 4; // two prefills, two steps
    script.push(Do::Cancel(1));
    script.extend(turns(6));
    let seen = drive(day, &model, (8, 8), &jobs, script)?;
    let input = "two rows run, and row 1 is cancelled after the second turn";
    let of_it = computed(&model).iter().skip(before).filter(|rows| rows.contains(&LONG)).count();
    let passes = computed(&model).len() - before;
    equal(&format!("{input}: (1 more pass at most, {passes} in all)"), Ok(of_it <= 1), &true)
        .likely("nobody reads it, and it goes on computing: max_new_tokens = 0 ends it")?;
    let rows: Vec<usize> = seen[4..].iter().map(|seen| seen.rows.len()).collect();
    equal(
        &format!("{input}: rows after it and after each turn"),
        Ok(rows),
        &vec![1, 1, 1, 1, 1, 0, 0],
    )?;
    let heard = jobs[1].1.choices();
    equal(
        &format!("{input}: what its client hears"),
        Ok(heard),
        &vec![(0, "aaa".to_string(), 3, vec![])],
    )?;
    let other = jobs[0].1.choices();
    equal(&format!("{input}: what the other one hears"), Ok(other), &vec![cafe(0)])
}

/// What a client hears of the second text.
fn cafe(index: usize) -> Told {
    (index, " Tom café!".to_string(), 8, vec![FinishReason::Eos])
}

/// What a client hears of the first text.
fn cat(index: usize) -> Told {
    (index, " cat ran home.".to_string(), 5, vec![FinishReason::Eos])
}

pub fn whose_client_has_gone(day: &Day) -> Outcome {
    let model = teller(90);
    let two = Ask { prompts: vec![vec![LONG], vec![LONG]], ..ask(LONG, 30) };
    let jobs = clients(&[ask(CAFE, 20), two, ask(CAT, 9), ask(LONG, 30)]);
    // Places for three: the rows of jobs 0 and 1 run, jobs 2 and 3 wait.
    let mut script = vec![Do::Accept(0), Do::Accept(1), Do::Feed];
    script.extend([
        Do::Accept(2),
        Do::Accept(3),
        Do::Turn,
        Do::Leave(1),
        Do::Leave(3),
        Do::DropClosed,
    ]);
    script.extend(turns(12));
    let seen = drive(day, &model, (3, 8), &jobs, script)?;
    let input = "job 1 (two rows) runs beside job 0, jobs 2 and 3 wait; clients 1 and 3 go";
    let after = (seen[8].load.0, seen[8].rows.clone());
    equal(&format!("{input}: (in the queue, rows)"), Ok(after), &(1, vec![(0, 0)]))
        .likely("a job is in the queue, in the scheduler, or in both: ask for all of them")?;
    let all = computed(&model).concat();
    let most = all.iter().filter(|id| **id == LONG).count();
    // Two prefills, a step with both, and one step more until they retire.
    equal(&format!("{input}: rows computed of theirs, six at most"), Ok(most <= 6), &true)?;
    let told: Vec<Vec<Told>> = [0, 2].map(|i: usize| jobs[i].1.choices()).into();
    equal(
        &format!("{input}: what clients 0 and 2 hear"),
        Ok(told),
        &vec![vec![cafe(0)], vec![cat(0)]],
    )
}

pub fn every_start_has_a_number_of_its_own(day: &Day) -> Outcome {
    let model = teller(60);
    let jobs = clients(&[
        ask(CAT, 9),
        Ask { n: 2, ..ask(CAFE, 20) },
        Ask {
            params: SamplingParams { block: vec!["unmade".into()], ..SamplingParams::default() },
            ..ask(CAT, 9)
        },
        ask(CAT, 1),
    ]);
    // Row 0 ends after four turns; then two more start beside row 1.
    let mut script = vec![Do::Start(0, 0), Do::Start(1, 1)];
    script.extend(turns(4));
    script.extend([Do::Start(1, 0), Do::Start(2, 0), Do::Start(3, 0)]);
    let seen = drive(day, &model, (8, 8), &jobs, script)?;
    let input =
        "rows 0 and 1 start, row 0 ends; three more start, of which the second cannot be made";
    let refused: Vec<bool> = seen[6..].iter().map(|seen| seen.refused.is_some()).collect();
    equal(
        &format!("{input}: which of the three is refused"),
        Ok(refused),
        &vec![false, true, false],
    )?;
    let numbers: Vec<usize> = seen[8].rows.iter().map(|(id, _)| *id).collect();
    ensure(
        &format!("{input}: the numbers of the rows are {numbers:?}"),
        numbers.len() == 3 && !numbers.contains(&0),
        "there should be three, and 0 is that of a row that has ended: a number is given once",
    )?;
    let choices: Vec<usize> = seen[8].rows.iter().map(|(_, index)| *index).collect();
    equal(&format!("{input}: which choices they are"), Ok(choices), &vec![1, 0, 0])
}

pub fn eos_may_be_ignored(day: &Day) -> Outcome {
    let model = teller(60);
    let jobs = clients(&[Ask { ignore_eos: true, ..ask(CAT, 9) }, ask(CAT, 9)]);
    let mut script = vec![Do::Start(0, 0), Do::Start(1, 0)];
    script.extend(turns(9));
    drive(day, &model, (8, 8), &jobs, script)?;
    let ends: Vec<(usize, Vec<FinishReason>)> =
        jobs.iter().flat_map(|(_, c)| c.choices()).map(|told| (told.2, told.3)).collect();
    let want = vec![(9, vec![FinishReason::Length]), (5, vec![FinishReason::Eos])];
    let input =
        "a text of 4 tokens and EOS, at most 9, with ignore_eos and without: tokens and end";
    equal(input, Ok(ends), &want)
}

pub fn waiting_jobs_take_turns(day: &Day) -> Outcome {
    let model = teller(90);
    let jobs = clients(&[
        Ask { n: 3, ..ask(CAFE, 20) },
        ask(CAT, 9),
        Ask { prompts: vec![vec![CAT], vec![CAFE]], ..ask(CAT, 20) },
    ]);
    let mut script = vec![Do::Accept(0), Do::Accept(1), Do::Accept(2), Do::Feed, Do::Feed];
    script.extend(turns(16));
    let seen = drive(day, &model, (4, 8), &jobs, script)?;
    let input = "jobs of 3, 1 and 2 choices, and four places";
    let choices: Vec<usize> = seen[3].rows.iter().map(|(_, index)| *index).collect();
    equal(&format!("{input}: the choices that start"), Ok(choices), &vec![0, 0, 0, 1])
        .likely("a job that has started one choice goes to the end of the queue")?;
    let load = seen[3].load;
    equal(&format!("{input}: (queued, waiting, running) after feed"), Ok(load), &(2, 4, 0))
        .likely("a job with choices left stays in the queue")?;
    equal(&format!("{input}: after feed once more"), Ok(seen[4].load), &(2, 4, 0))
        .likely("rows that wait for their prefill have a place, too")?;
    let most = seen.iter().map(|seen| seen.load.1 + seen.load.2).max().unwrap_or(0);
    equal(&format!("{input}: rows at most"), Ok(most), &4)?;
    let told: Vec<Vec<Told>> = jobs.iter().map(|(_, client)| client.choices()).collect();
    let want = vec![vec![cafe(0), cafe(1), cafe(2)], vec![cat(0)], vec![cat(0), cafe(1)]];
    equal(&format!("{input}: what the clients hear"), Ok(told), &want)?;

    let model = teller(90);
    let jobs = clients(&[Ask { n: 9, ..ask(LONG, 5) }, ask(CAT, 9)]);
    let mut script = vec![Do::Accept(0), Do::Feed, Do::Accept(1), Do::Feed];
    script.extend(turns(20));
    let seen = drive(day, &model, (8, 8), &jobs, script)?;
    let input = "a job of 9 choices, then one of a single choice, and eight places";
    let loads: Vec<_> = [1, 3].iter().map(|i: &usize| seen[*i].load).collect();
    equal(
        &format!("{input}: (queued, waiting, running) after each feed"),
        Ok(loads),
        &vec![(1, 7, 0), (1, 8, 0)],
    )
    .likely("`take_turn` says whose turn it is, and leaves a place for other jobs")?;
    let told: Vec<usize> = jobs.iter().map(|(_, client)| client.choices().len()).collect();
    equal(&format!("{input}: choices that the clients hear of"), Ok(told), &vec![9, 1])
}

pub fn what_cannot_start_fails_alone(day: &Day) -> Outcome {
    let model = teller(90);
    let unmade = SamplingParams { block: vec!["unmade".into()], ..SamplingParams::default() };
    let jobs = clients(&[
        Ask { params: unmade, n: 2, ..ask(CAT, 9) },
        Ask { prompts: vec![vec![5; 65]], ..ask(CAT, 9) },
        ask(CAT, 9),
    ]);
    let mut script = vec![Do::Accept(0), Do::Accept(1), Do::Accept(2), Do::Feed];
    script.extend(turns(6));
    let seen = drive(day, &model, (1, 8), &jobs, script)?;
    let input = "the first job cannot be made, the second is too long, and there is one place";
    equal(&format!("{input}: load after feed"), Ok(seen[3].load), &(0, 1, 0))
        .likely("one that fails takes no place: go on with the next")?;
    let told: Vec<(Vec<u16>, Vec<Told>)> =
        jobs.iter().map(|(_, client)| (client.failures(), client.choices())).collect();
    let want = vec![(vec![400], vec![]), (vec![400], vec![]), (vec![], vec![cat(0)])];
    equal(&format!("{input}: what the clients hear"), Ok(told), &want)
        .likely("a job fails once, with all of its choices")
}

/// A token as the scheduler gives it.
fn token(row: usize, id: u32, text: &str, finish: Option<FinishReason>) -> Token {
    Token { row, id, logprob: -0.5, text: text.to_string(), finish, ..Token::default() }
}

pub fn a_token_finds_its_client(day: &Day) -> Outcome {
    let model = teller(0);
    let jobs = clients(&[ask(CAT, 9), ask(CAT, 9), Ask { n: 2, ..ask(CAT, 9) }]);
    let tokens = vec![
        token(3, 65, "x", None),
        token(1, 66, "y", None),
        token(77, 67, "nobody's", None),
        token(0, 0, "", Some(FinishReason::Eos)),
        token(1, 128, "", None),
        token(2, 68, "z", Some(FinishReason::Length)),
    ];
    let mut script = vec![Do::Start(0, 0), Do::Start(1, 0), Do::Start(2, 0), Do::Start(2, 1)];
    script.push(Do::Deliver(tokens));
    script.push(Do::Deliver(vec![token(0, 65, "late", None), token(3, 65, "!", None)]));
    let seen = drive(day, &model, (8, 8), &jobs, script)?;
    let input = "rows 0, 1, and 2 and 3 of one job; tokens of rows 3, 1, 77, 0, 1, 2, then 0 and 3";
    let told: Vec<Vec<Told>> = jobs.iter().map(|(_, client)| client.choices()).collect();
    let want = vec![
        vec![(0, String::new(), 1, vec![FinishReason::Eos])],
        vec![(0, "y".to_string(), 2, vec![])],
        vec![(0, "z".to_string(), 1, vec![FinishReason::Length]), (1, "x!".to_string(), 2, vec![])],
    ];
    equal(&format!("{input}: what the clients hear"), Ok(told), &want).likely(
        "a token names its row, not its place in the batch; a row that ended hears no more",
    )?;
    let rows: Vec<usize> = seen[4].rows.iter().map(|(id, _)| *id).collect();
    equal(&format!("{input}: rows after the first six"), Ok(rows), &vec![1, 3])
}

pub fn an_event_for_every_token(day: &Day) -> Outcome {
    let model = teller(60);
    let stop = SamplingParams { stop: vec!["fé".into()], ..ask(CAFE, 20).params };
    let jobs = clients(&[ask(CAFE, 20), Ask { params: stop, ..ask(CAFE, 20) }]);
    let mut script = vec![Do::Accept(0), Do::Accept(1)];
    script.extend(turns(9));
    drive(day, &model, (8, 8), &jobs, script)?;
    let texts = |i: usize| -> Vec<String> {
        let text = |heard| match heard {
            Heard::Token(bit) => bit.text,
            Heard::Failed(_, words) => words,
        };
        jobs[i].1.all().into_iter().map(text).collect()
    };
    let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    let want = words(&[" Tom", " c", "a", "f", "", "é", "!", ""]);
    equal("\" Tom café!\", é in two tokens: the texts of its events", Ok(texts(0)), &want)
        .likely("a token's own text is what became certain; ids decoded alone are halves")?;
    let want = words(&[" Tom", " c", "a", "", "", ""]);
    equal("the same, with the stop string \"fé\": the texts", Ok(texts(1)), &want)
        .likely("what may become a stop string is not sent before it is certain")
}

pub fn logprobs_belong_to_their_token(day: &Day) -> Outcome {
    let model = teller(60);
    let jobs = clients(&[
        Ask { logprobs: Some(2), ..ask(CAFE, 20) },
        Ask { logprobs: Some(0), ..ask(CAT, 20) },
        ask(CAT, 20),
    ]);
    // The scheduler's own step brings the first two tokens of a row in one delivery.
    let mut script: Vec<Do> = (0..3).map(|job| Do::Start(job, 0)).collect();
    script.extend((0..9).map(|_| Do::Step));
    drive(day, &model, (8, 8), &jobs, script)?;
    let spelled = |i: usize| -> Vec<Option<(Vec<u8>, Vec<Vec<u8>>)>> {
        let one = |heard| match heard {
            Heard::Token(bit) => bit
                .probs
                .map(|(chosen, top)| (chosen.1, top.into_iter().map(|one| one.1).collect())),
            Heard::Failed(..) => None,
        };
        jobs[i].1.all().into_iter().map(one).collect()
    };
    let eos = b"<|endoftext|>".to_vec();
    // The likeliest is the token of the text; of all others, equally likely, EOS has the lowest id.
    let entry = |bytes: &[u8]| Some((bytes.to_vec(), vec![bytes.to_vec(), eos.clone()]));
    let want = vec![
        entry(b" Tom"),
        entry(b" c"),
        entry(b"a"),
        entry(b"f"),
        entry(&[0xc3]),
        entry(&[0xa9]),
        entry(b"!"),
        Some((eos.clone(), vec![eos.clone(), b"!".to_vec()])),
    ];
    let input = "\" Tom café!\" and EOS, logprobs 2: bytes of each token and of the two likeliest";
    equal(input, Ok(spelled(0)), &want)
        .likely("two tokens of a row may come in one delivery: take one entry for each")?;
    let alone = |bytes: &[u8]| Some((bytes.to_vec(), vec![]));
    let want = vec![alone(b" cat"), alone(b" ran"), alone(b" home"), alone(b"."), alone(&eos)];
    equal("\" cat ran home.\" and EOS, logprobs 0: bytes", Ok(spelled(1)), &want)?;
    equal("the same without logprobs", Ok(spelled(2)), &vec![None; 5])?;
    let first = jobs[0].1.all().into_iter().find_map(|heard| match heard {
        Heard::Token(bit) => bit.probs.map(|(chosen, _)| f64::from(chosen.2)),
        Heard::Failed(..) => None,
    });
    // 10 against 2047 zeros.
    let want = -(1.0 + 2047.0 * (-10.0f64).exp()).ln();
    let input = "a logit of 10 among 2047 of 0: its logprob";
    super::checks::near(input, Ok(first.unwrap_or(f64::NAN)), want, 1e-4)?;

    let model = teller(0);
    let jobs = clients(&[Ask { logprobs: Some(0), ..ask(CAT, 20) }]);
    let logprobs = [-0.5, -9998.0, f32::NEG_INFINITY];
    let tokens = logprobs.map(|logprob| Token { logprob, ..token(0, 65, "a", None) });
    drive(day, &model, (8, 8), &jobs, vec![Do::Start(0, 0), Do::Deliver(tokens.to_vec())])?;
    let told: Vec<Option<f32>> = jobs[0]
        .1
        .all()
        .into_iter()
        .map(|heard| match heard {
            Heard::Token(bit) => bit.probs.map(|(chosen, _)| chosen.2),
            Heard::Failed(..) => None,
        })
        .collect();
    let want = vec![Some(-0.5), Some(-9998.0), Some(-9999.0)];
    equal("tokens with the logprobs -0.5, -9998 and -inf: what is told", Ok(told), &want)
        .likely("JSON has no infinity: `spelled` puts -9999 in its place")
}

pub fn a_row_without_a_token_fails_alone(day: &Day) -> Outcome {
    for fault in ["no token at 3", "sampler at 3"] {
        let model = teller(60);
        let params = SamplingParams { block: vec![fault.to_string()], ..ask(LONG, 20).params };
        let jobs = clients(&[Ask { params, n: 2, ..ask(LONG, 20) }, ask(CAFE, 20)]);
        let mut script = vec![Do::Accept(0), Do::Accept(1)];
        script.extend(turns(9));
        let seen = drive(day, &model, (8, 8), &jobs, script)?;
        let input =
            format!("job 0, two choices, fails after three tokens ({fault}); job 1 is well");
        let failures: Vec<Vec<u16>> = jobs.iter().map(|(_, client)| client.failures()).collect();
        equal(&format!("{input}: statuses told"), Ok(failures), &vec![vec![500], vec![]])
            .likely("the row's error ends its job, once; the token that stood in is not sent")?;
        let told = jobs[0].1.choices().into_iter().map(|told| told.1).collect::<Vec<_>>();
        equal(&format!("{input}: texts of job 0"), Ok(told), &vec!["aaa".to_string(); 2])?;
        equal(&format!("{input}: what client 1 hears"), Ok(jobs[1].1.choices()), &vec![cafe(0)])?;
        let left = seen.last().map(|seen| (seen.load, seen.rows.len()));
        equal(&format!("{input}: load and rows in the end"), Ok(left), &Some(((0, 0, 0), 0)))?;
    }
    Ok(())
}

/// A model that fails once, at the pass of that number.
struct Flaky {
    inner: Witness,
    at: usize,
    passes: RefCell<usize>,
}

impl Model for Flaky {
    fn config(&self) -> &ModelConfig {
        self.inner.config()
    }

    fn device(&self) -> &candle_core::Device {
        self.inner.device()
    }

    fn forward(
        &self,
        step: &candecode::kit::Step,
        cache: &mut dyn Cache,
    ) -> Result<candle_core::Tensor> {
        *self.passes.borrow_mut() += 1;
        if *self.passes.borrow() == self.at {
            bail!("the device is lost")
        }
        self.inner.forward(step, cache)
    }
}

/// A model that notes, at each of its passes, how many events every client has heard before.
struct Listening<'a> {
    inner: Witness,
    clients: &'a [(Ask, Arc<Client>)],
    heard: RefCell<Vec<Vec<usize>>>,
}

impl Model for Listening<'_> {
    fn config(&self) -> &ModelConfig {
        self.inner.config()
    }

    fn device(&self) -> &candle_core::Device {
        self.inner.device()
    }

    fn forward(
        &self,
        step: &candecode::kit::Step,
        cache: &mut dyn Cache,
    ) -> Result<candle_core::Tensor> {
        let heard = self.clients.iter().map(|(_, client)| client.all().len()).collect();
        self.heard.borrow_mut().push(heard);
        self.inner.forward(step, cache)
    }
}

pub fn first_tokens_do_not_wait(day: &Day) -> Outcome {
    let jobs = clients(&[ask(CAFE, 20), ask(CAT, 1), ask(LONG, 12)]);
    let model = Listening { inner: teller(60), clients: &jobs, heard: RefCell::default() };
    let script = vec![Do::Start(0, 0), Do::Start(1, 0), Do::Start(2, 0), Do::Prefill];
    let seen = drive(day, &model, (8, 8), &jobs, script)?;
    let input = "three prompts wait, of which the second wants one token";
    let want = vec![vec![0, 0, 0], vec![1, 0, 0], vec![1, 1, 0]];
    equal(
        &format!("{input}: what the clients have heard when each prompt is computed"),
        Ok(model.heard.borrow().clone()),
        &want,
    )
    .likely("after each prefill its token is delivered, before the next prompt is looked at")?;
    equal(&format!("{input}: load after it"), Ok(seen[3].load), &(0, 0, 2))
        .likely("a row that goes on joins the batch, and one that has ended does not")?;
    let rows: Vec<usize> = seen[3].rows.iter().map(|(id, _)| *id).collect();
    equal(&format!("{input}: the rows that are left"), Ok(rows), &vec![0, 2])
}

pub fn a_prompt_waits_for_room(day: &Day) -> Outcome {
    let model = teller(60);
    let jobs = clients(&[ask(LONG, 3), ask(LONG, 3)]);
    let tokenizer = tokenizer()?;
    let setup = Setup {
        model: &model,
        tokenizer: &tokenizer,
        layers: 2,
        bound: 7, // a row may grow to four tokens, two of them to eight positions
        max_batch: 8,
        max_queue: 8,
    };
    let mut script = vec![Do::Start(0, 0), Do::Start(1, 0), Do::Prefill];
    script.extend(turns(6));
    let seen = (day.drive)(&setup, jobs.clone(), script)?;
    let input = "two rows of four tokens, and a scheduler with room for seven positions";
    equal(&format!("{input}: load after prefill_waiting"), Ok(seen[2].load), &(0, 1, 1))
        .likely("ask the scheduler's has_room before each prompt")?;
    let told: Vec<Told> = jobs.iter().flat_map(|(_, client)| client.choices()).collect();
    let want = (0, "aaa".to_string(), 3, vec![FinishReason::Length]);
    equal(&format!("{input}: what the clients hear"), Ok(told), &vec![want.clone(), want])
}

pub fn a_row_that_fails_at_once_leaves(day: &Day) -> Outcome {
    let model = teller(60);
    let params = SamplingParams { block: vec!["no token at 0".into()], ..ask(LONG, 20).params };
    // The token that stands in is EOS, which must not end the row here.
    let fails = Ask { params, ignore_eos: true, ..ask(LONG, 20) };
    let jobs = clients(&[fails, ask(CAFE, 20)]);
    let mut script = vec![Do::Start(0, 0), Do::Start(1, 0), Do::Prefill, Do::Cancel(1)];
    script.extend(turns(8));
    let seen = drive(day, &model, (8, 8), &jobs, script)?;
    let input = "row 0 has no first token to choose, row 1 is cancelled after its own";
    let failures: Vec<Vec<u16>> = jobs.iter().map(|(_, client)| client.failures()).collect();
    equal(&format!("{input}: statuses told"), Ok(failures), &vec![vec![500], vec![]])?;
    let passes = computed(&model);
    let few = |which: u32| passes.iter().filter(|rows| rows.contains(&which)).count() <= 2;
    let left = seen.last().map(|seen| seen.load);
    equal(
        &format!("{input}: (two passes for each at most; load in the end)"),
        Ok((few(LONG), few(CAFE), left)),
        &(true, true, Some((0, 0, 0))),
    )
    .likely(
        "it joins first, and then its token is delivered: cancel has to find it in the batch",
    )?;
    let told = vec![jobs[0].1.choices(), jobs[1].1.choices()];
    let first = (0, " Tom".to_string(), 1, vec![]);
    equal(&format!("{input}: what the clients hear"), Ok(told), &vec![vec![], vec![first]])
}

pub fn a_turn_prefills_first(day: &Day) -> Outcome {
    let jobs = clients(&[ask(CAFE, 20), ask(LONG, 12)]);
    let model = Listening { inner: teller(60), clients: &jobs, heard: RefCell::default() };
    let script = vec![Do::Accept(0), Do::Accept(1), Do::Turn];
    drive(day, &model, (8, 8), &jobs, script)?;
    let input = "two jobs, and one turn: what the clients have heard before each pass";
    let want = vec![vec![0, 0], vec![1, 0], vec![1, 1]];
    equal(input, Ok(model.heard.borrow().clone()), &want)
        .likely("prefill_waiting, and then the step; both belong to a turn")?;
    let heard: Vec<usize> = jobs.iter().map(|(_, client)| client.all().len()).collect();
    equal("two jobs, and one turn: what they have heard after it", Ok(heard), &vec![2, 2])
}

pub fn a_failed_prefill_ends_whom_it_was_for(day: &Day) -> Outcome {
    let asks = [ask(CAFE, 20), ask(LONG, 20), ask(CAT, 20)];
    let mut script: Vec<Do> = (0..3).map(Do::Accept).collect();
    script.extend(turns(8));

    let model = Flaky { inner: teller(60), at: 2, passes: RefCell::new(0) };
    let jobs = clients(&asks);
    let seen = drive(day, &model, (2, 8), &jobs, script.clone())?;
    let input = "jobs 0 and 1 start, job 2 waits, and the second prefill fails";
    let told: Vec<(Vec<u16>, Vec<Told>)> =
        jobs.iter().map(|(_, client)| (client.failures(), client.choices())).collect();
    let want = vec![
        (vec![500], vec![(0, " Tom".to_string(), 1, vec![])]),
        (vec![500], vec![]),
        (vec![], vec![cat(0)]),
    ];
    equal(&format!("{input}: statuses and texts"), Ok(told), &want)
        .likely("an error of prefill_waiting is one of the pass, as that of the step")?;
    let left = seen.last().map(|seen| (seen.load, seen.rows.len()));
    equal(&format!("{input}: load and rows in the end"), Ok(left), &Some(((0, 0, 0), 0)))?;

    let model = Flaky { inner: teller(60), at: 2, passes: RefCell::new(0) };
    let jobs = clients(&asks);
    drive(day, &model, (3, 8), &jobs, script)?;
    let input = "three jobs start, and the second prefill fails while job 2 waits for its own";
    let failures: Vec<Vec<u16>> = jobs.iter().map(|(_, client)| client.failures()).collect();
    equal(&format!("{input}: statuses told"), Ok(failures), &vec![vec![500]; 3])?;
    equal(
        &format!("{input}: passes that do not fail"),
        Ok(computed(&model.inner)),
        &vec![vec![CAFE]],
    )
    .likely("a row that waited has failed, too: nobody reads what would be computed for it")
}

pub fn a_failed_pass_ends_whom_it_was_for(day: &Day) -> Outcome {
    // Two prefills and a step in the first turn; the second turn's step is pass 4.
    let model = Flaky { inner: teller(60), at: 4, passes: RefCell::new(0) };
    let jobs = clients(&[ask(CAFE, 20), ask(LONG, 20), ask(CAT, 20)]);
    let mut script: Vec<Do> = (0..3).map(Do::Accept).collect();
    script.extend(turns(9));
    let seen = drive(day, &model, (2, 8), &jobs, script)?;
    let input = "jobs 0 and 1 run, job 2 waits, and the second turn's pass fails";
    let told: Vec<(Vec<u16>, Vec<Told>)> =
        jobs.iter().map(|(_, client)| (client.failures(), client.choices())).collect();
    let want = vec![
        (vec![500], vec![(0, " Tom c".to_string(), 2, vec![])]),
        (vec![500], vec![(0, "aa".to_string(), 2, vec![])]),
        (vec![], vec![cat(0)]),
    ];
    equal(&format!("{input}: statuses and texts"), Ok(told), &want)
        .likely("who was in the pass is told; the loop goes on with who was not")?;
    let left = seen.last().map(|seen| (seen.load, seen.rows.len()));
    equal(&format!("{input}: load and rows in the end"), Ok(left), &Some(((0, 0, 0), 0)))
}

pub fn a_turn_notices_who_has_gone(day: &Day) -> Outcome {
    let model = teller(60);
    let jobs = clients(&[ask(LONG, 30), ask(CAFE, 20)]);
    let mut script = vec![Do::Accept(0), Do::Accept(1), Do::Turn, Do::Leave(0)];
    script.extend(turns(12));
    drive(day, &model, (1, 8), &jobs, script)?;
    let of_it = computed(&model).iter().filter(|rows| rows.contains(&LONG)).count();
    // A prefill and a step, and the step with which it retires.
    let input = "one place; job 0 runs, its client goes after the first turn";
    let sent = jobs[0].1.all().len();
    equal(
        &format!("{input}: (three passes for it at most, tokens that it is sent)"),
        Ok((of_it <= 3, sent)),
        &(true, 2),
    )
    .likely("every turn asks who has gone, before it computes")?;
    equal(&format!("{input}: what client 1 hears"), Ok(jobs[1].1.choices()), &vec![cafe(0)])
}

/// Lets `visits` come to a loop on this model. The load after each turn.
fn run(
    day: &Day,
    model: &dyn Model,
    (max_batch, max_queue): (usize, usize),
    visits: Visits,
) -> Result<Vec<(usize, usize, usize)>> {
    let tokenizer = tokenizer()?;
    let setup =
        Setup { model, tokenizer: &tokenizer, layers: 2, bound: 5000, max_batch, max_queue };
    (day.run)(&setup, visits)
}

/// All of these before the first turn, and the sender goes after that turn.
fn at_once(jobs: &[(Ask, Arc<Client>)], close_after: usize) -> Visits {
    let jobs = jobs.iter().map(|(ask, client)| (0, ask.clone(), Arc::clone(client))).collect();
    Visits { jobs, close_after, late: None }
}

pub fn what_has_begun_is_finished(day: &Day) -> Outcome {
    let model = teller(60);
    let jobs = clients(&[ask(CAFE, 20), Ask { n: 2, ..ask(CAT, 9) }, ask(CAT, 9), ask(CAT, 9)]);
    let loads = run(day, &model, (2, 8), at_once(&jobs, 0))?;
    let input = "four jobs, two places, and the last sender is gone: job 1 has begun in part";
    let running = loads.first().map_or(0, |load| load.2);
    equal(&format!("{input}: rows that run after the first turn"), Ok(running), &2)?;
    let told: Vec<(Vec<u16>, Vec<Told>)> =
        jobs.iter().map(|(_, client)| (client.failures(), client.choices())).collect();
    let want = vec![
        (vec![], vec![cafe(0)]),
        (vec![], vec![cat(0), cat(1)]),
        (vec![503], vec![]),
        (vec![503], vec![]),
    ];
    equal(&format!("{input}: statuses and texts"), Ok(told), &want)
        .likely("who has begun is finished, who waits is refused with 503, and then it ends")
}

pub fn a_place_before_the_queue(day: &Day) -> Outcome {
    let model = teller(60);
    let jobs = clients(&vec![ask(CAT, 9); 6]);
    run(day, &model, (4, 1), at_once(&jobs, 5))?;
    let input = "six jobs at once, four places, a queue of one";
    let failures: Vec<Vec<u16>> = jobs.iter().map(|(_, client)| client.failures()).collect();
    let want = vec![vec![], vec![], vec![], vec![], vec![], vec![429]];
    equal(&format!("{input}: statuses told"), Ok(failures), &want)
        .likely("after each job that came, feed: it waits only if there is no place")?;
    let told: Vec<Told> = jobs.iter().flat_map(|(_, client)| client.choices()).collect();
    equal(&format!("{input}: what the clients hear"), Ok(told), &vec![cat(0); 5])
}

pub fn who_comes_later_joins(day: &Day) -> Outcome {
    let model = teller(90);
    let jobs = clients(&[ask(LONG, 12), ask(CAFE, 20), ask(CAT, 9)]);
    let mut visits = at_once(&jobs, 4);
    visits.jobs[1].0 = 2;
    visits.jobs[2].0 = 3;
    let loads = run(day, &model, (8, 8), visits)?;
    let input = "job 0 runs, jobs 1 and 2 come after the second and third turn";
    let running: Vec<usize> = loads.iter().take(5).map(|load| load.2).collect();
    equal(&format!("{input}: rows that run after each turn"), Ok(running), &vec![1, 1, 2, 3, 3])
        .likely("between two turns, take in what has come")?;
    let told: Vec<Told> = jobs.iter().flat_map(|(_, client)| client.choices()).collect();
    let long = (0, "a".repeat(12), 12, vec![FinishReason::Length]);
    equal(&format!("{input}: what the clients hear"), Ok(told), &vec![long, cafe(0), cat(0)])
}

pub fn with_nothing_to_do_it_waits(day: &Day) -> Outcome {
    let model = teller(60);
    let jobs = clients(&[ask(CAT, 9)]);
    let late = (ask(CAFE, 20), Arc::new(Client::default()));
    let mut visits = at_once(&jobs, 0);
    visits.late = Some(late.clone());
    let loads = run(day, &model, (2, 2), visits)?;
    let input = "a job comes, and when it is done another one";
    let told = vec![jobs[0].1.choices(), late.1.choices()];
    equal(
        &format!("{input}: what the clients hear"),
        Ok(told),
        &vec![vec![cat(0)], vec![cafe(0)]],
    )?;
    // Four turns and seven: the first of each gives two tokens.
    equal(&format!("{input}: turns made"), Ok(loads.len() <= 12), &true)
        .likely("with nothing to do it waits in recv, and makes no turns")
}

pub fn the_same_at_any_load(day: &Day) -> Outcome {
    let mut random = Random::new(20);
    for (places, queue) in [(3, 20), (32, 20)] {
        let mut jobs = Vec::new();
        for i in 0..12 {
            let prompt = |random: &mut Random| -> Vec<u32> {
                (0..1 + random.below(9)).map(|_| 1 + random.below(2000) as u32).collect()
            };
            let sampled = i % 2 == 0;
            let params = SamplingParams {
                max_new_tokens: 1 + random.below(12),
                temperature: if sampled { 1.0 } else { 0.0 },
                top_k: sampled.then_some(50),
                seed: i as u64,
                presence_penalty: if i % 3 == 0 { 0.5 } else { 0.0 },
                ..SamplingParams::default()
            };
            let prompts = (0..1 + i % 2).map(|_| prompt(&mut random)).collect();
            let n = if sampled { 1 + i % 3 } else { 1 };
            let ask = Ask { prompts, n, params, ..Ask::default() };
            jobs.push((random.below(6), ask, Arc::new(Client::default())));
        }
        // The first is a long one, so that the loop is not idle while others are still to come.
        jobs[0].0 = 0;
        jobs[0].1.params.max_new_tokens = 30;
        let model = Witness::mixing(2048, 64, 2000);
        let visits = Visits { jobs: jobs.clone(), close_after: 6, late: None };
        run(day, &model, (places, queue), visits)?;
        for (i, (at, ask, client)) in jobs.iter().enumerate() {
            let input =
                format!("twelve jobs on {places} places: job {i}, which comes after turn {at}");
            let mut want: Vec<Told> = Vec::new();
            for index in 0..ask.prompts.len() * ask.n {
                let tokens = alone(&model, &ask.params, &ask.prompts[index / ask.n], index)?;
                let text = tokens.iter().map(|token| token.text.as_str()).collect();
                let ends = tokens.iter().filter_map(|token| token.finish).collect();
                want.push((index, text, tokens.len(), ends));
            }
            equal(&format!("{input}: its choices"), Ok(client.choices()), &want)
                .likely("each choice is what it would be alone, with stream `index` of its seed")?;
        }
    }
    Ok(())
}
