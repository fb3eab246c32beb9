//! Day 20's checks: the serving loop, on a scripted scheduler and finally on day 15's.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day20_serve;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day20_serve.rs"]
mod day20_serve;

use candecode::day07_greedy::argmax;
use candecode::day08_sampling::{chacha_sampler, warpers};
use candecode::day09_penalties::penalties;
use candecode::day10_kv_cache::{generate_cached, Cached, DynamicCache};
use candecode::day12_batching::BatchCache;
use candecode::day15_scheduler::Scheduler;
use candecode::kit::{named, Batch, FinishReason, Model, ModelConfig, ProcessorInput};
use candecode::kit::{
    Request, Sampler, SamplingParams, SchedulerInterface, SchedulerLoad, Token, Tokenizer,
};
use candle_core::{bail, Result};
use frame::{ensure, equal, tokenizer, Likely, Outcome, Random, Witness};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

/// One token of one choice, as the client receives it.
#[derive(Debug, Clone, PartialEq)]
pub struct Bit {
    pub index: usize,
    pub tokens: usize,
    pub token: Token,
}

/// A request to the loop.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    pub prompts: Vec<Vec<u32>>,
    pub n: usize,
    pub params: SamplingParams,
    pub logprobs: Option<usize>,
}

/// The reason a job failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Busy,
    Closing,
    Invalid,
    Failed,
}

/// An event that a client receives.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    Token(Bit),
    /// The fault and its message.
    Failed(Fault, String),
}

/// A client, which records its events and may disconnect.
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

    /// Returns all recorded events.
    fn all(&self) -> Vec<Heard> {
        self.heard.lock().map(|all| all.clone()).unwrap_or_default()
    }

    /// Returns the tokens it received.
    fn bits(&self) -> Vec<Bit> {
        let bit = |heard| match heard {
            Heard::Token(bit) => Some(bit),
            Heard::Failed(..) => None,
        };
        self.all().into_iter().filter_map(bit).collect()
    }

    /// Returns each choice it received: index, text, token count, and every finish reason.
    fn choices(&self) -> Vec<Told> {
        let mut told: Vec<Told> = Vec::new();
        for bit in self.bits() {
            let at = match told.iter().position(|one| one.0 == bit.index) {
                Some(at) => at,
                None => {
                    told.push((bit.index, String::new(), 0, Vec::new()));
                    told.len() - 1
                }
            };
            told[at].1.push_str(&bit.token.text);
            told[at].2 += 1;
            told[at].3.extend(bit.token.finish);
        }
        told.sort_by_key(|one| one.0);
        told
    }

    /// Returns the failures it received.
    fn faults(&self) -> Vec<Fault> {
        let fault = |heard: &Heard| match heard {
            Heard::Failed(fault, _) => Some(*fault),
            Heard::Token(_) => None,
        };
        self.all().iter().filter_map(fault).collect()
    }
}

/// A choice: index, text, token count, finish reasons.
type Told = (usize, String, usize, Vec<FinishReason>);

/// The parts of a loop.
pub struct Setup<'a> {
    pub scheduler: Box<dyn SchedulerInterface<'a> + 'a>,
    pub config: &'a ModelConfig,
    pub max_batch: usize,
    pub max_queue: usize,
}

/// One operation on a loop. The numbers are indexes of jobs, or ids of rows.
#[derive(Debug, Clone)]
pub enum Do {
    Accept(usize),
    Feed,
    /// Starts one choice of a job.
    Start(usize, usize),
    /// Disconnects a job's client.
    Leave(usize),
    DropClosed,
    /// Cancels a row.
    Cancel(usize),
    /// Cancels the job a row belongs to.
    CancelJob(usize),
    Deliver(Vec<Token>),
    /// Runs one step of the scheduler and delivers its tokens.
    Step,
    LoopStep,
}

/// The loop's state after an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// The number of jobs in the queue, of waiting rows, and of running rows.
    pub load: (usize, usize, usize),
    /// The id of every row, and the index of its choice.
    pub rows: Vec<(usize, usize)>,
    /// Whether `start` returned an error.
    pub refused: bool,
}

/// The times at which jobs reach `run` and the last sender is dropped.
pub struct Visits {
    /// Each job arrives after the step with its number. With 0 it is there before `run` starts.
    pub jobs: Vec<(usize, Ask, Arc<Client>)>,
    /// The last sender is dropped after this step, or later once the queue is empty. With 0 it is
    /// dropped before the first step.
    pub close_after: usize,
    /// A job sent by a separate thread once every other client has received an end and the
    /// scheduler is empty (or a second has passed). The thread keeps the sender alive until then,
    /// and `close_after` is ignored.
    pub late: Option<(Ask, Arc<Client>)>,
}

/// The day 20 functions under test.
#[derive(Clone, Copy)]
pub struct Day {
    pub finish_reason: fn(FinishReason) -> &'static str,
    pub drive: for<'a> fn(Setup<'a>, &[(Ask, Arc<Client>)], Vec<Do>) -> Result<Vec<Seen>>,
    pub run: for<'a> fn(Setup<'a>, Visits) -> Result<Vec<(usize, usize, usize)>>,
    pub steps_until_slot: fn(&[usize], &[usize], usize) -> usize,
}

/// The number of steps after which `run` counts as stuck.
pub const MOST_STEPS: usize = 500;

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        struct Wire(std::sync::Arc<crate::Client>);
        impl code::Connection for Wire {
            fn send(&self, event: code::Event) {
                use code::JobError;
                let (fault, words) = match event {
                    code::Event::Token(code::ChoiceToken { index, tokens, token }) => {
                        let bit = crate::Bit { index, tokens, token };
                        return self.0.hear(crate::Heard::Token(bit));
                    }
                    code::Event::Failed(JobError::Busy) => (crate::Fault::Busy, String::new()),
                    code::Event::Failed(JobError::Closing) => {
                        (crate::Fault::Closing, String::new())
                    }
                    code::Event::Failed(JobError::Invalid(words)) => (crate::Fault::Invalid, words),
                    code::Event::Failed(JobError::Failed(words)) => (crate::Fault::Failed, words),
                };
                self.0.hear(crate::Heard::Failed(fault, words));
            }
            fn is_closed(&self) -> bool {
                self.0.gone.load(std::sync::atomic::Ordering::SeqCst)
            }
        }
        fn job((ask, client): &(crate::Ask, std::sync::Arc<crate::Client>)) -> code::Job {
            code::Job {
                prompts: ask.prompts.clone(),
                n: ask.n,
                params: ask.params.clone(),
                logprobs: ask.logprobs,
                is_chat: false,
                connection: Box::new(Wire(client.clone())),
            }
        }
        fn serving<'a>(setup: crate::Setup<'a>) -> code::ServingLoop<'a> {
            let config = setup.config;
            let make: code::MakeRequest = Box::new(move |job, index| {
                crate::request_of(config, &job.params, job.prompt(index), index)
            });
            code::ServingLoop::new(setup.scheduler, make, setup.max_batch, setup.max_queue)
        }
        fn load(serving: &code::ServingLoop) -> (usize, usize, usize) {
            let load = serving.scheduler.load();
            (serving.queue.len(), load.waiting, load.running)
        }
        crate::Day {
            finish_reason: code::finish_reason,
            drive: |setup, jobs, script| {
                let mut serving = serving(setup);
                let mut started = std::collections::BTreeMap::new();
                let mut all = Vec::new();
                for what in script {
                    let mut refused = false;
                    match what {
                        crate::Do::Accept(i) => serving.accept(job(&jobs[i])),
                        crate::Do::Feed => serving.feed(),
                        crate::Do::Start(i, index) => {
                            let made = || std::rc::Rc::new(job(&jobs[i]));
                            let made = started.entry(i).or_insert_with(made);
                            let job = std::rc::Rc::clone(made);
                            refused = serving.start(&job, index).is_err();
                        }
                        crate::Do::Leave(i) => {
                            jobs[i].1.gone.store(true, std::sync::atomic::Ordering::SeqCst)
                        }
                        crate::Do::DropClosed => serving.drop_closed(),
                        crate::Do::Cancel(id) => serving.cancel(id),
                        crate::Do::CancelJob(id) => {
                            let row = serving.rows.get(&id);
                            let job = row.map(|row| std::rc::Rc::clone(&row.job));
                            serving.cancel_job(&job.expect("start has noted the row"));
                        }
                        crate::Do::Deliver(tokens) => serving.deliver(tokens),
                        crate::Do::Step => {
                            let tokens = serving.scheduler.step()?;
                            serving.deliver(tokens);
                        }
                        crate::Do::LoopStep => serving.step(),
                    }
                    all.push(crate::Seen {
                        load: load(&serving),
                        rows: serving.rows.iter().map(|(id, row)| (*id, row.index)).collect(),
                        refused,
                    });
                }
                Ok(all)
            },
            run: |setup, visits| {
                let mut serving = serving(setup);
                let (sender, receiver) = std::sync::mpsc::channel::<code::Job>();
                let sender = crate::Held::new(sender);
                let crate::Visits { jobs, close_after, late } = visits;
                let let_in = |step: usize| {
                    for (_, ask, client) in jobs.iter().filter(|(at, ..)| *at == step) {
                        sender.send(job(&(ask.clone(), client.clone())));
                    }
                };
                let_in(0);
                let is_late = late.is_some();
                let (held, clients) = (sender.clone(), jobs.iter().map(|(_, _, client)| client));
                let clients: Vec<_> = clients.cloned().collect();
                let empty = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
                let is_empty = std::sync::Arc::clone(&empty);
                std::thread::spawn(move || {
                    crate::wait_for_ends(&clients);
                    if let Some(late) = late {
                        crate::wait_until(&is_empty);
                        crate::rest(100);
                        held.send(job(&late));
                        crate::wait_for_ends(&[late.1]);
                    }
                    // This also ends a loop that waits in vain for one more job. The pause keeps
                    // the outcome of a known mistake from depending on which thread is first.
                    crate::rest(200);
                    held.let_go();
                });
                if !is_late && close_after == 0 {
                    sender.let_go();
                }
                let (mut steps, mut loads) = (0, Vec::new());
                serving.run(&receiver, |serving| {
                    let load = load(serving);
                    steps += 1;
                    assert!(steps < crate::MOST_STEPS, "run made {steps} steps and hasn't ended");
                    loads.push(load);
                    empty.store(load == (0, 0, 0), std::sync::atomic::Ordering::SeqCst);
                    let_in(steps);
                    if !is_late && steps >= close_after && load.0 == 0 {
                        sender.let_go();
                    }
                    if load == (0, 0, 0) {
                        crate::rest(1); // don't let an idle loop spin
                    }
                });
                Ok(loads)
            },
            steps_until_slot: code::steps_until_slot,
        }
    }};
}

frame::checks! {
    day20_serve:
    20.1: four_reasons_three_names;
    20.2: every_row_has_its_own_id, a_failed_start_changes_nothing;
    20.3: each_token_reaches_its_client, every_token_counts, each_token_carries_its_top_logprobs;
    20.4: the_queue_is_bounded;
    20.5: waiting_jobs_take_turns;
    20.6: a_canceled_row_stops_computing;
    20.7: a_failed_row_fails_its_job, canceling_a_job_cancels_queued_and_running_rows,
        only_the_job_that_cannot_start_fails;
    20.8: jobs_without_a_client_are_dropped;
    20.9: a_turn_is_one_step, a_turn_notices_closed_connections, a_failed_step_fails_every_row;
    20.10: started_jobs_are_finished, jobs_take_free_places_before_they_queue,
        later_jobs_join_the_batch, an_idle_loop_waits, canceled_rows_retire_before_the_loop_waits,
        each_request_gets_the_same_text_at_any_load;
    20.11: turns_until_a_place_is_free_by_hand, turns_until_place_equals_a_turn_by_turn_simulation,
        millions_of_tokens;
}

/// A shared sender. Any of its holders can drop it for all of them.
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

    /// Sends, unless the sender has been dropped.
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

/// Sleeps for this many milliseconds.
fn rest(milliseconds: u64) {
    std::thread::sleep(std::time::Duration::from_millis(milliseconds));
}

/// Waits until the flag is set, for at most a second.
fn wait_until(flag: &AtomicBool) {
    for _ in 0..100 {
        if flag.load(std::sync::atomic::Ordering::SeqCst) {
            return;
        }
        rest(10);
    }
}

/// Waits until each client has received the end of a choice or a failure, for at most ten seconds.
fn wait_for_ends(clients: &[Arc<Client>]) {
    let ended = |client: &Arc<Client>| {
        client.all().iter().any(|heard| match heard {
            Heard::Token(bit) => bit.token.finish.is_some(),
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

/// Builds the request of choice `index` as the engine would. The first string in `block` selects a
/// fault: `unmade` (building the request fails), `no token at N` (a processor forbids every token
/// once N have been generated), or `sampler at N` (the sampler fails at that point).
fn request_of(
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

/// Decodes one request alone, with day 10's loop.
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

/// " cat ran home.", then EOS.
const CAT: u32 = 405;
/// " Tom café!", then EOS, in eight tokens. The fifth is the first half of é.
const CAFE: u32 = 428;
/// "a", forty times.
const LONG: u32 = 431;
/// "a", three times, after which no token can be chosen.
const FAILS: u32 = 432;

/// Returns a text's ids after a prompt of this one token, each with the text it completes.
fn text_of(which: u32) -> Vec<(u32, &'static str)> {
    match which {
        CAT => vec![(462, " cat"), (592, " ran"), (586, " home"), (14, ".")],
        CAFE => {
            vec![(424, " Tom"), (278, " c"), (65, "a"), (70, "f"), (128, ""), (103, "é"), (1, "!")]
        }
        _ => vec![(65, "a"); 40],
    }
}

/// The record of a scripted scheduler.
#[derive(Debug, Default)]
struct Log {
    /// The ids of the rows in each step.
    steps: Vec<Vec<usize>>,
    /// For each step, the number of events each client had received before it.
    heard: Vec<Vec<usize>>,
}

/// A row of a scripted scheduler.
struct ScriptedRow<'a> {
    request: Request<'a>,
    generated: usize,
    cancelled: bool,
}

/// A scheduler without a model. Each row produces one of a few fixed texts, then EOS. One step
/// produces the first token of one waiting row, or the next token of every running row.
struct Scripted<'a> {
    waiting: VecDeque<ScriptedRow<'a>>,
    running: Vec<ScriptedRow<'a>>,
    /// The step that fails, counted from 1.
    fails_at: Option<usize>,
    clients: Vec<Arc<Client>>,
    log: Rc<RefCell<Log>>,
}

impl ScriptedRow<'_> {
    /// Returns the next token. A canceled row finishes with it, as if its cache were full.
    fn next(&mut self) -> Token {
        let which = self.request.prompt.first().copied().unwrap_or_default();
        let (id, text) = text_of(which).get(self.generated).copied().unwrap_or((0, ""));
        self.generated += 1;
        if which == FAILS && self.generated > 3 {
            let error = Some("the rule left no token".to_string());
            let finish = Some(FinishReason::Failed);
            return Token { row: self.request.id, finish, error, ..Token::default() };
        }
        let is_full = self.cancelled || self.generated >= self.request.max_new_tokens;
        let finish = match id {
            0 => Some(FinishReason::Eos),
            _ => is_full.then_some(FinishReason::Length),
        };
        let k = self.request.top_logprobs.unwrap_or_default();
        let top = (id..).take(k).zip(std::iter::repeat(-0.5)).collect();
        let text = text.to_string();
        Token { row: self.request.id, id, logprob: -0.5, text, finish, top, error: None }
    }
}

impl<'a> SchedulerInterface<'a> for Scripted<'a> {
    fn submit(&mut self, request: Request<'a>) -> Result<()> {
        if request.prompt.len() > 64 {
            bail!("the prompt is too long")
        }
        self.waiting.push_back(ScriptedRow { request, generated: 0, cancelled: false });
        Ok(())
    }

    fn step(&mut self) -> Result<Vec<Token>> {
        let is_prefill = !self.waiting.is_empty();
        let rows = if is_prefill { self.waiting.make_contiguous() } else { &mut self.running };
        let rows = if is_prefill { &mut rows[..1] } else { rows };
        let mut log = self.log.borrow_mut();
        if !rows.is_empty() {
            log.steps.push(rows.iter().map(|row| row.request.id).collect());
            log.heard.push(self.clients.iter().map(|client| client.all().len()).collect());
        }
        if self.fails_at == Some(log.steps.len()) {
            self.waiting.clear();
            self.running.clear();
            bail!("the device is lost")
        }
        let tokens: Vec<Token> = rows.iter_mut().map(ScriptedRow::next).collect();
        if is_prefill {
            self.running.extend(self.waiting.pop_front());
        }
        let ended = |id: usize| tokens.iter().any(|t| t.row == id && t.finish.is_some());
        self.running.retain(|row| !ended(row.request.id));
        Ok(tokens)
    }

    fn cancel(&mut self, id: usize) {
        self.waiting.retain(|row| row.request.id != id);
        for row in self.running.iter_mut().filter(|row| row.request.id == id) {
            row.cancelled = true;
        }
    }

    fn load(&self) -> SchedulerLoad {
        SchedulerLoad { waiting: self.waiting.len(), running: self.running.len() }
    }
}

/// Returns a scripted scheduler for these clients, and its log.
fn scripted<'a>(
    jobs: &[(Ask, Arc<Client>)],
    fails_at: Option<usize>,
) -> (Box<Scripted<'a>>, Rc<RefCell<Log>>) {
    let log = Rc::new(RefCell::new(Log::default()));
    let scheduler = Scripted {
        waiting: VecDeque::new(),
        running: Vec::new(),
        fails_at,
        clients: jobs.iter().map(|(_, client)| Arc::clone(client)).collect(),
        log: Rc::clone(&log),
    };
    (Box::new(scheduler), log)
}

/// Returns day 15's scheduler, with room for `bound` positions.
fn real<'a>(model: &'a dyn Model, tokenizer: &'a Tokenizer, bound: usize) -> Box<Scheduler<'a>> {
    let caches: Box<dyn Fn() -> Box<dyn Batch>> = Box::new(|| Box::new(BatchCache::new(2, None)));
    Box::new(Scheduler::new(model, tokenizer, caches, bound))
}

/// Builds a greedy request for one of the texts, with at most `most` tokens.
fn ask(which: u32, most: usize) -> Ask {
    let params = SamplingParams { max_new_tokens: most, ..SamplingParams::default() };
    Ask { prompts: vec![vec![which]], n: 1, params, ..Ask::default() }
}

/// Builds a request that can't be turned into a scheduler request.
fn unmade() -> Ask {
    let params = SamplingParams { block: vec!["unmade".into()], ..SamplingParams::default() };
    Ask { params, ..ask(CAT, 9) }
}

/// Pairs each request with a new client.
fn clients(asks: &[Ask]) -> Vec<(Ask, Arc<Client>)> {
    asks.iter().map(|ask| (ask.clone(), Arc::new(Client::default()))).collect()
}

/// Runs `script` on a loop with a scripted scheduler. Returns the state after each operation, and
/// the log.
fn drive(
    day: &Day,
    (max_batch, max_queue): (usize, usize),
    jobs: &[(Ask, Arc<Client>)],
    script: Vec<Do>,
) -> Result<(Vec<Seen>, Log)> {
    drive_until(day, (max_batch, max_queue), jobs, script, None)
}

/// Does the same, with a step that fails.
fn drive_until(
    day: &Day,
    (max_batch, max_queue): (usize, usize),
    jobs: &[(Ask, Arc<Client>)],
    script: Vec<Do>,
    fails_at: Option<usize>,
) -> Result<(Vec<Seen>, Log)> {
    let (scheduler, log) = scripted(jobs, fails_at);
    let model = Witness::mixing(2048, 64, 0); // only for its configuration
    let setup = Setup { scheduler, config: model.config(), max_batch, max_queue };
    let seen = (day.drive)(setup, jobs, script)?;
    let log = log.take();
    Ok((seen, log))
}

/// Returns `n` steps.
fn steps(n: usize) -> impl Iterator<Item = Do> {
    (0..n).map(|_| Do::LoopStep)
}

/// The choice that a client receives for the second text.
fn cafe(index: usize) -> Told {
    (index, " Tom café!".to_string(), 8, vec![FinishReason::Eos])
}

/// The choice that a client receives for the first text.
fn cat(index: usize) -> Told {
    (index, " cat ran home.".to_string(), 5, vec![FinishReason::Eos])
}

/// Returns the failures that each job's client received.
fn faults(jobs: &[(Ask, Arc<Client>)]) -> Vec<Vec<Fault>> {
    jobs.iter().map(|(_, client)| client.faults()).collect()
}

/// Returns the choices that each job's client received.
fn choices(jobs: &[(Ask, Arc<Client>)]) -> Vec<Vec<Told>> {
    jobs.iter().map(|(_, client)| client.choices()).collect()
}

/// Builds a token as a scheduler returns it.
fn token(row: usize, id: u32, text: &str, finish: Option<FinishReason>) -> Token {
    Token { row, id, logprob: -0.5, text: text.to_string(), finish, ..Token::default() }
}

fn four_reasons_three_names(day: &Day) -> Outcome {
    for (finish, want) in [
        (FinishReason::Eos, "stop"),
        (FinishReason::Stop, "stop"),
        (FinishReason::Length, "length"),
        (FinishReason::Failed, "error"),
    ] {
        equal(&format!("finish_reason of {finish:?}"), Ok((day.finish_reason)(finish)), &want)
            .likely("for OpenAI, a text that ends with an EOS has stopped")?;
    }
    Ok(())
}

fn every_row_has_its_own_id(day: &Day) -> Outcome {
    let jobs = clients(&[ask(CAT, 9), Ask { n: 2, ..ask(CAFE, 20) }, unmade(), ask(CAT, 1)]);
    // Row 0 ends. Then two more start, while row 1 is running.
    let mut script = vec![Do::Start(0, 0), Do::Start(1, 1)];
    script.push(Do::Deliver(vec![token(0, 0, "", Some(FinishReason::Eos))]));
    script.extend([Do::Start(1, 0), Do::Start(2, 0), Do::Start(3, 0)]);
    let (seen, _) = drive(day, (8, 8), &jobs, script)?;
    let input =
        "rows 0 and 1 start, row 0 ends, and three start; the second of these can't be built";
    let refused: Vec<bool> = seen[3..].iter().map(|seen| seen.refused).collect();
    equal(&format!("{input}: which of these are refused"), Ok(refused), &vec![false, true, false])?;
    let numbers: Vec<usize> = seen[5].rows.iter().map(|(id, _)| *id).collect();
    ensure(
        &format!("{input}: the ids of the rows are {numbers:?}"),
        numbers.len() == 3 && !numbers.contains(&0),
        "there should be three, and none of them 0, the id of a row that has ended",
    )?;
    let choices: Vec<usize> = seen[5].rows.iter().map(|(_, index)| *index).collect();
    equal(&format!("{input}: the choices they belong to"), Ok(choices), &vec![1, 0, 0])
}

fn a_failed_start_changes_nothing(day: &Day) -> Outcome {
    let jobs = clients(&[unmade(), Ask { prompts: vec![vec![5; 65]], ..ask(CAT, 9) }]);
    let (seen, _) = drive(day, (8, 8), &jobs, vec![Do::Start(0, 0), Do::Start(1, 0)])?;
    for (seen, why) in seen.iter().zip(["its request can't be built", "the scheduler refuses it"]) {
        let input = format!("start is called, but {why}: (is it an error, rows, load)");
        equal(&input, Ok((seen.refused, seen.rows.clone(), seen.load)), &(true, vec![], (0, 0, 0)))
            .likely("add the row only after the scheduler has accepted its request")?;
    }
    Ok(())
}

fn each_token_reaches_its_client(day: &Day) -> Outcome {
    let jobs = clients(&[ask(CAT, 9), ask(CAT, 9), Ask { n: 2, ..ask(CAT, 9) }]);
    let tokens = vec![
        token(3, 65, "x", None),
        token(1, 66, "y", None),
        token(77, 67, "stray", None),
        token(0, 0, "", Some(FinishReason::Eos)),
        token(1, 128, "", None),
        token(2, 68, "z", Some(FinishReason::Length)),
    ];
    let mut script = vec![Do::Start(0, 0), Do::Start(1, 0), Do::Start(2, 0), Do::Start(2, 1)];
    script.push(Do::Deliver(tokens));
    script.push(Do::Deliver(vec![token(0, 65, "late", None), token(3, 65, "!", None)]));
    let (seen, _) = drive(day, (8, 8), &jobs, script)?;
    let input = "rows 0, 1, and 2 and 3 of one job; tokens of rows 3, 1, 77, 0, 1, 2, then 0 and 3";
    let want = vec![
        vec![(0, String::new(), 1, vec![FinishReason::Eos])],
        vec![(0, "y".to_string(), 2, vec![])],
        vec![(0, "z".to_string(), 1, vec![FinishReason::Length]), (1, "x!".to_string(), 2, vec![])],
    ];
    equal(&format!("{input}: what the clients receive"), Ok(choices(&jobs)), &want).likely(
        "`row` is an id, not a place in the batch, and a finished row gets no more tokens",
    )?;
    let rows: Vec<usize> = seen[4].rows.iter().map(|(id, _)| *id).collect();
    equal(&format!("{input}: rows after the first six"), Ok(rows), &vec![1, 3])
}

fn every_token_counts(day: &Day) -> Outcome {
    let jobs = clients(&[ask(CAFE, 20), Ask { n: 2, ..ask(CAT, 2) }]);
    let mut script = vec![Do::Start(0, 0), Do::Start(1, 0), Do::Start(1, 1)];
    script.extend((0..11).map(|_| Do::Step));
    drive(day, (8, 8), &jobs, script)?;
    let pieces = |i: usize| -> Vec<(usize, String, usize)> {
        let bits: Vec<Bit> = jobs[i].1.bits();
        bits.into_iter().map(|bit| (bit.index, bit.token.text, bit.tokens)).collect()
    };
    let texts = [" Tom", " c", "a", "f", "", "é", "!", ""];
    let want = texts.iter().zip(1..).map(|(text, n)| (0, text.to_string(), n)).collect();
    equal("\" Tom café!\", é in two tokens, and EOS: choice, text and count", Ok(pieces(0)), &want)
        .likely("send and count every token, including the EOS and tokens without text")?;
    let want = vec![
        (0, " cat".to_string(), 1),
        (1, " cat".to_string(), 1),
        (0, " ran".to_string(), 2),
        (1, " ran".to_string(), 2),
    ];
    equal("a job of two choices, two tokens each: choice, text and count", Ok(pieces(1)), &want)
        .likely("each choice counts its own tokens")
}

fn each_token_carries_its_top_logprobs(day: &Day) -> Outcome {
    let jobs = clients(&[
        Ask { logprobs: Some(2), ..ask(CAT, 2) },
        Ask { logprobs: Some(0), ..ask(CAT, 2) },
        ask(CAT, 2),
    ]);
    let mut script: Vec<Do> = (0..3).map(|job| Do::Start(job, 0)).collect();
    script.extend((0..4).map(|_| Do::Step));
    drive(day, (8, 8), &jobs, script)?;
    let pieces = |i: usize| -> Vec<(u32, Vec<u32>)> {
        let bits: Vec<Bit> = jobs[i].1.bits();
        let top = |token: &Token| token.top.iter().map(|(id, _)| *id).collect();
        bits.iter().map(|bit| (bit.token.id, top(&bit.token))).collect()
    };
    let want = vec![(462, vec![462, 463]), (592, vec![592, 593])];
    equal("logprobs 2: each token and its top two", Ok(pieces(0)), &want)
        .likely("each token carries as many as the request's top_logprobs asks for")?;
    let none = vec![(462, vec![]), (592, vec![])];
    equal("logprobs 0: each token and its top", Ok(pieces(1)), &none)?;
    equal("no logprobs: each token and its top", Ok(pieces(2)), &none)
}

fn a_failed_row_fails_its_job(day: &Day) -> Outcome {
    let jobs = clients(&[Ask { n: 3, ..ask(FAILS, 20) }, ask(CAFE, 20), ask(CAT, 9)]);
    // The first two choices start among the rows of jobs 1 and 2. The third waits.
    let mut script = vec![Do::Start(1, 0), Do::Accept(0), Do::Feed, Do::Start(2, 0)];
    script.extend(steps(20));
    let (seen, log) = drive(day, (3, 8), &jobs, script)?;
    let input =
        "two of job 0's three choices run, but can't choose a fourth token; jobs 1 and 2 are fine";
    equal(
        &format!("{input}: (failures sent, tokens that each choice of job 0 receives)"),
        Ok((faults(&jobs), jobs[0].1.choices().iter().map(|told| told.2).collect::<Vec<_>>())),
        &(vec![vec![Fault::Failed], vec![], vec![]], vec![3, 3]),
    )
    .likely("fail the job once (`fail` needs 20.7), and don't send the token")?;
    let words = jobs[0].1.all().into_iter().find_map(|heard| match heard {
        Heard::Failed(_, words) => Some(words),
        Heard::Token(_) => None,
    });
    equal(&format!("{input}: its message"), Ok(words.as_deref()), &Some("the rule left no token"))?;
    let told = jobs[0].1.choices().into_iter().map(|told| told.1).collect::<Vec<_>>();
    equal(&format!("{input}: texts of job 0"), Ok(told), &vec!["aaa".to_string(); 2])?;
    let told = vec![jobs[1].1.choices(), jobs[2].1.choices()];
    let want = vec![vec![cafe(0)], vec![cat(0)]];
    equal(&format!("{input}: what the other clients receive"), Ok(told), &want)
        .likely("tokens that come after a failed row's must be delivered, too")?;
    let left = seen.last().map(|seen| (seen.load, seen.rows.len()));
    equal(&format!("{input}: load and rows in the end"), Ok(left), &Some(((0, 0, 0), 0)))?;
    let started = log.steps.concat().into_iter().max();
    equal(&format!("{input}: the highest row that was computed"), Ok(started), &Some(3))
}

fn the_queue_is_bounded(day: &Day) -> Outcome {
    let jobs = clients(&vec![ask(CAT, 9); 5]);
    let script = [Do::Start(0, 0)].into_iter().chain((1..5).map(Do::Accept));
    let (seen, _) = drive(day, (1, 2), &jobs, script.collect())?;
    let input = "one slot, which job 0 has; four jobs arrive, the queue holds two";
    let queued: Vec<usize> = seen[1..].iter().map(|seen| seen.load.0).collect();
    equal(&format!("{input}: jobs in the queue after each"), Ok(queued), &vec![1, 2, 2, 2])
        .likely("an unbounded queue means unbounded memory")?;
    let want = vec![vec![], vec![], vec![], vec![Fault::Busy], vec![Fault::Busy]];
    equal(&format!("{input}: the failures that each client receives"), Ok(faults(&jobs)), &want)?;

    let jobs = clients(&vec![ask(CAT, 9); 4]);
    let (seen, _) = drive(day, (1, 2), &jobs, (0..4).map(Do::Accept).collect())?;
    let input = "four jobs arrive, the queue holds two";
    let queued: Vec<usize> = seen.iter().map(|seen| seen.load.0).collect();
    equal(&format!("{input}: jobs in the queue after each"), Ok(queued), &vec![1, 2, 2, 2])
        .likely("an unbounded queue means unbounded memory")?;
    let want = vec![vec![], vec![], vec![Fault::Busy], vec![Fault::Busy]];
    equal(&format!("{input}: the failures that each client receives"), Ok(faults(&jobs)), &want)?;

    let jobs = clients(&vec![ask(CAT, 9); 3]);
    let script = vec![Do::Accept(0), Do::Feed, Do::Accept(1), Do::Feed, Do::Accept(2)];
    drive(day, (2, 0), &jobs, script)?;
    let input =
        "two places and a queue of 0: three jobs arrive, with a feed after each of the first two";
    let want = vec![vec![], vec![], vec![Fault::Busy]];
    equal(&format!("{input}: the failures that each client receives"), Ok(faults(&jobs)), &want)
        .likely(
        "a job that can start at once doesn't wait, so the bound of the queue doesn't apply to it",
    )
}

fn waiting_jobs_take_turns(day: &Day) -> Outcome {
    let jobs = clients(&[
        Ask { n: 3, ..ask(CAFE, 20) },
        ask(CAT, 9),
        Ask { prompts: vec![vec![CAT], vec![CAFE]], ..ask(CAT, 20) },
    ]);
    let mut script = vec![Do::Accept(0), Do::Accept(1), Do::Accept(2), Do::Feed, Do::Feed];
    script.extend(steps(28));
    let (seen, _) = drive(day, (4, 8), &jobs, script)?;
    let input = "jobs of 3, 1 and 2 choices, and four slots";
    let started: Vec<usize> = seen[3].rows.iter().map(|(_, index)| *index).collect();
    equal(&format!("{input}: the choices that start"), Ok(started), &vec![0, 0, 0, 1])
        .likely("once a job has started a choice, it goes to the end of the queue")?;
    let load = seen[3].load;
    equal(&format!("{input}: (queued, waiting, running) after feed"), Ok(load), &(2, 4, 0))
        .likely("a job that has choices left stays in the queue")?;
    equal(&format!("{input}: after feed once more"), Ok(seen[4].load), &(2, 4, 0))
        .likely("rows that are waiting for their prefill take a slot, too")?;
    let most = seen.iter().map(|seen| seen.load.1 + seen.load.2).max().unwrap_or(0);
    equal(&format!("{input}: the largest number of rows"), Ok(most), &4)?;
    let want = vec![vec![cafe(0), cafe(1), cafe(2)], vec![cat(0)], vec![cat(0), cafe(1)]];
    equal(&format!("{input}: what the clients receive"), Ok(choices(&jobs)), &want)?;

    let jobs = clients(&[Ask { n: 9, ..ask(LONG, 5) }, ask(CAT, 9)]);
    let mut script = vec![Do::Accept(0), Do::Feed, Do::Accept(1), Do::Feed];
    script.extend(steps(30));
    let (seen, _) = drive(day, (8, 8), &jobs, script)?;
    let input = "a job of 9 choices, then one of a single choice, and eight slots";
    let loads: Vec<_> = [1, 3].iter().map(|i: &usize| seen[*i].load).collect();
    equal(
        &format!("{input}: (queued, waiting, running) after each feed"),
        Ok(loads),
        &vec![(1, 7, 0), (1, 8, 0)],
    )
    .likely("`take_turn` picks the next job, and keeps a slot free for other jobs")?;
    let told: Vec<usize> = choices(&jobs).iter().map(Vec::len).collect();
    equal(&format!("{input}: choices that the clients receive"), Ok(told), &vec![9, 1])
}

fn only_the_job_that_cannot_start_fails(day: &Day) -> Outcome {
    let prompts = vec![vec![CAT], vec![5; 65], vec![CAFE]];
    let jobs = clients(&[Ask { prompts, ..ask(CAT, 9) }]);
    let mut script = vec![Do::Accept(0), Do::Feed];
    script.extend(steps(6));
    let (seen, _) = drive(day, (8, 8), &jobs, script)?;
    let input = "a job of three prompts, the second of which is too long, and eight slots";
    equal(
        &format!("{input}: (load after feed, rows, failures sent)"),
        Ok((seen[1].load, seen[1].rows.clone(), faults(&jobs))),
        &((0, 0, 0), vec![], vec![vec![Fault::Invalid]]),
    )
    .likely("cancel the whole job, including the choice that has started")?;
    equal(&format!("{input}: what the client receives"), Ok(choices(&jobs)), &vec![vec![]])?;

    let jobs = clients(&[
        Ask { n: 2, ..unmade() },
        Ask { prompts: vec![vec![5; 65]], ..ask(CAT, 9) },
        ask(CAT, 9),
    ]);
    let mut script = vec![Do::Accept(0), Do::Accept(1), Do::Accept(2), Do::Feed];
    script.extend(steps(6));
    let (seen, _) = drive(day, (1, 8), &jobs, script)?;
    let input = "the first job can't be built, the second is too long, and there is one slot";
    equal(&format!("{input}: load after feed"), Ok(seen[3].load), &(0, 1, 0))
        .likely("a choice that fails takes no slot, so continue with the next job")?;
    let want = vec![vec![Fault::Invalid], vec![Fault::Invalid], vec![]];
    equal(&format!("{input}: the failures sent"), Ok(faults(&jobs)), &want)
        .likely("a job fails once, with all its choices")?;
    let want = vec![vec![], vec![], vec![cat(0)]];
    equal(&format!("{input}: what the clients receive"), Ok(choices(&jobs)), &want)
}

fn a_canceled_row_stops_computing(day: &Day) -> Outcome {
    let jobs = clients(&[ask(CAFE, 20), ask(LONG, 20)]);
    let mut script = vec![Do::Start(0, 0), Do::Start(1, 0), Do::Cancel(1)];
    script.extend((0..10).map(|_| Do::Step));
    let (seen, log) = drive(day, (8, 8), &jobs, script)?;
    let input = "two rows are waiting for their prefill, and row 1 is canceled";
    let after = (seen[2].load, seen[2].rows.clone());
    equal(&format!("{input}: load and rows"), Ok(after), &((0, 1, 0), vec![(0, 0)]))?;
    let steps = log.steps.iter().filter(|rows| rows.contains(&1)).count();
    equal(&format!("{input}: steps that compute it"), Ok(steps), &0)
        .likely("cancel it in the scheduler, too")?;

    let jobs = clients(&[ask(CAFE, 20), ask(LONG, 20)]);
    let mut script = vec![Do::Start(0, 0), Do::Start(1, 0)];
    script.extend((0..4).map(|_| Do::Step)); // two prefills, then two steps of both rows
    script.push(Do::Cancel(1));
    script.extend((0..6).map(|_| Do::Step));
    let (seen, log) = drive(day, (8, 8), &jobs, script)?;
    let input = "two rows run, and row 1 is canceled after three tokens";
    let of_it = log.steps.iter().skip(4).filter(|rows| rows.contains(&1)).count();
    let steps = log.steps.len() - 4;
    equal(&format!("{input}: (at most 1 more step, {steps} in total)"), Ok(of_it <= 1), &true)
        .likely("it keeps computing without a client: cancel it in the scheduler, too")?;
    let rows: Vec<usize> = seen[6..].iter().map(|seen| seen.rows.len()).collect();
    equal(
        &format!("{input}: rows after it and after each step"),
        Ok(rows),
        &vec![1, 1, 1, 1, 1, 0, 0],
    )?;
    let want = vec![vec![cafe(0)], vec![(0, "aaa".to_string(), 3, vec![])]];
    equal(&format!("{input}: what the clients receive"), Ok(choices(&jobs)), &want)
        .likely("drop the token that the last step computes for it")
}

fn canceling_a_job_cancels_queued_and_running_rows(day: &Day) -> Outcome {
    let jobs = clients(&[Ask { n: 4, ..ask(LONG, 30) }, ask(CAFE, 20)]);
    let mut script = vec![Do::Accept(0), Do::Accept(1), Do::Feed];
    script.extend([Do::Step, Do::Step, Do::Step, Do::CancelJob(0)]);
    script.extend(steps(12));
    let (seen, log) = drive(day, (3, 8), &jobs, script)?;
    let input = "three slots: two choices of job 0 run, two wait in the queue, and it is canceled";
    let seen = &seen[6];
    equal(
        &format!("{input}: (in the queue, rows)"),
        Ok((seen.load.0, &seen.rows)),
        &(0, &vec![(1, 0)]),
    )
    .likely("some of its choices may be in the queue while others run")?;
    let after: Vec<&Vec<usize>> = log.steps.iter().skip(3).collect();
    let of_it = after.iter().filter(|rows| rows.iter().any(|id| *id != 1)).count();
    equal(&format!("{input}: (at most 1 more step for its rows)"), Ok(of_it <= 1), &true)
        .likely("cancel every row of the job")?;
    equal(&format!("{input}: what client 1 receives"), Ok(jobs[1].1.choices()), &vec![cafe(0)])
        .likely("leave the rows of other jobs alone")
}

fn jobs_without_a_client_are_dropped(day: &Day) -> Outcome {
    let jobs = clients(&[
        ask(CAFE, 20),
        ask(LONG, 30),
        Ask { n: 2, ..ask(LONG, 30) },
        ask(CAT, 9),
        ask(LONG, 30),
    ]);
    // Three slots: jobs 0 and 1 and one choice of job 2. Its other choice and jobs 3 and 4 wait.
    let mut script = vec![Do::Accept(0), Do::Accept(1), Do::Accept(2), Do::Feed];
    script.extend([Do::Accept(3), Do::Accept(4), Do::Step, Do::Step, Do::Step]);
    script.extend([Do::Leave(1), Do::Leave(2), Do::Leave(4), Do::DropClosed]);
    let dropped = script.len() - 1;
    script.extend(steps(16));
    let (seen, log) = drive(day, (3, 8), &jobs, script)?;
    let input =
        "jobs 0 and 1 run, job 2 runs in part, jobs 3 and 4 wait; then clients 1, 2 and 4 leave";
    let after = (seen[dropped].load.0, seen[dropped].rows.clone());
    equal(&format!("{input}: (in the queue, rows)"), Ok(after), &(1, vec![(0, 0)]))
        .likely("a job can be in the queue, in the scheduler, or in both: check them all")?;
    let of_them = log.steps.iter().flatten().filter(|id| [1, 2].contains(id)).count();
    // Two prefills, and one more step before they retire.
    equal(&format!("{input}: rows computed for them, at most four"), Ok(of_them <= 4), &true)?;
    let told: Vec<Vec<Told>> = [0, 3].map(|i: usize| jobs[i].1.choices()).into();
    equal(
        &format!("{input}: what clients 0 and 3 receive"),
        Ok(told),
        &vec![vec![cafe(0)], vec![cat(0)]],
    )
}

fn a_turn_is_one_step(day: &Day) -> Outcome {
    let jobs = clients(&[ask(CAFE, 20), ask(CAT, 1), ask(LONG, 12)]);
    let mut script: Vec<Do> = (0..3).map(Do::Accept).collect();
    script.extend(steps(4));
    let (_, log) = drive(day, (8, 8), &jobs, script)?;
    let input = "three jobs arrive, the second requests a single token, and there are four steps";
    let want = vec![vec![0, 0, 0], vec![1, 0, 0], vec![1, 1, 0], vec![1, 1, 1]];
    equal(&format!("{input}: events received before each"), Ok(log.heard), &want)
        .likely("deliver a step's tokens before the next step")?;
    let heard: Vec<usize> = jobs.iter().map(|(_, client)| client.all().len()).collect();
    equal(&format!("{input}: events received after the last"), Ok(heard), &vec![2, 1, 2])
}

fn a_turn_notices_closed_connections(day: &Day) -> Outcome {
    let jobs = clients(&[Ask { n: 2, ..ask(LONG, 30) }, ask(CAFE, 20)]);
    let mut script = vec![Do::Accept(0), Do::Accept(1), Do::LoopStep, Do::LoopStep, Do::Leave(0)];
    script.extend(steps(12));
    let (seen, log) = drive(day, (1, 8), &jobs, script)?;
    let of_it = log.steps.iter().filter(|rows| rows.contains(&0)).count();
    // A prefill, a step, and the step at which it retires.
    let input =
        "one slot: a choice of job 0 runs, another waits, and its client leaves after two steps";
    let sent = jobs[0].1.all().len();
    equal(
        &format!("{input}: (at most three steps for it, out of the queue, events it receives)"),
        Ok((of_it <= 3, seen[5].load.0 <= 1, sent)),
        &(true, true, 2),
    )
    .likely("every step starts with drop_closed (20.8), before it computes anything")?;
    equal(&format!("{input}: what client 1 receives"), Ok(jobs[1].1.choices()), &vec![cafe(0)])
}

fn a_failed_step_fails_every_row(day: &Day) -> Outcome {
    let jobs = clients(&[ask(CAFE, 20), ask(LONG, 20), ask(CAT, 20)]);
    let mut script: Vec<Do> = (0..3).map(Do::Accept).collect();
    script.extend(steps(10));
    // Two prefills and a step of both. The fourth step fails.
    let (seen, _) = drive_until(day, (2, 8), &jobs, script, Some(4))?;
    let input = "jobs 0 and 1 run, job 2 waits in the queue, and the scheduler's fourth step fails";
    equal(
        &format!("{input}: the failures sent"),
        Ok(faults(&jobs)),
        &vec![vec![Fault::Failed], vec![Fault::Failed], vec![]],
    )
    .likely("every job with a row fails, and the loop carries on with those that had none")?;
    let want = vec![
        vec![(0, " Tom c".to_string(), 2, vec![])],
        vec![(0, "aa".to_string(), 2, vec![])],
        vec![cat(0)],
    ];
    equal(&format!("{input}: what the clients receive"), Ok(choices(&jobs)), &want)?;
    let left = seen.last().map(|seen| (seen.load, seen.rows.len()));
    equal(&format!("{input}: load and rows in the end"), Ok(left), &Some(((0, 0, 0), 0)))
}

/// Runs a loop on a scripted scheduler with these visits. Returns the load after each step.
fn run(
    day: &Day,
    (max_batch, max_queue): (usize, usize),
    visits: Visits,
) -> Result<Vec<(usize, usize, usize)>> {
    let (scheduler, _) = scripted(&[], None);
    let model = Witness::mixing(2048, 64, 0); // only for its configuration
    (day.run)(Setup { scheduler, config: model.config(), max_batch, max_queue }, visits)
}

/// Sends all jobs before the first step. The last sender is dropped after step `close_after`.
fn at_once(jobs: &[(Ask, Arc<Client>)], close_after: usize) -> Visits {
    let jobs = jobs.iter().map(|(ask, client)| (0, ask.clone(), Arc::clone(client))).collect();
    Visits { jobs, close_after, late: None }
}

fn started_jobs_are_finished(day: &Day) -> Outcome {
    let jobs = clients(&[ask(CAFE, 20), Ask { n: 2, ..ask(CAT, 9) }, ask(CAT, 9), ask(CAT, 9)]);
    let loads = run(day, (2, 8), at_once(&jobs, 0))?;
    let input =
        "four jobs, two places, and no sender is left: job 1 has started one of its two choices";
    let rows = loads.first().map_or(0, |load| load.1 + load.2);
    equal(&format!("{input}: rows after the first step"), Ok(rows), &2)?;
    let faults_wanted = vec![vec![], vec![], vec![Fault::Closing], vec![Fault::Closing]];
    let want = vec![vec![cafe(0)], vec![cat(0), cat(1)], vec![], vec![]];
    equal(
        &format!("{input}: (failures sent, what the clients receive)"),
        Ok((faults(&jobs), choices(&jobs))),
        &(faults_wanted, want),
    )
    .likely("finish the jobs that have started, refuse the others, then return")
}

fn jobs_take_free_places_before_they_queue(day: &Day) -> Outcome {
    let jobs = clients(&vec![ask(CAT, 9); 6]);
    let loads = run(day, (4, 1), at_once(&jobs, 5))?;
    let input = "six jobs at once, four slots, a queue of one";
    let want = vec![vec![], vec![], vec![], vec![], vec![], vec![Fault::Busy]];
    equal(&format!("{input}: the failures sent"), Ok(faults(&jobs)), &want)
        .likely("feed after each job that arrives, so that it waits only if no slot is free")?;
    let told: Vec<Told> = choices(&jobs).concat();
    equal(&format!("{input}: what the clients receive"), Ok(told), &vec![cat(0); 5])?;
    let rows = loads.first().map_or(0, |load| load.1 + load.2);
    equal(&format!("{input}: rows after the first step"), Ok(rows), &4)
        .likely("accept every job that has arrived before a step, not just one")
}

fn later_jobs_join_the_batch(day: &Day) -> Outcome {
    let jobs = clients(&[ask(LONG, 12), ask(CAFE, 20), ask(CAT, 9)]);
    let mut visits = at_once(&jobs, 4);
    visits.jobs[1].0 = 2;
    visits.jobs[2].0 = 3;
    let loads = run(day, (8, 8), visits)?;
    let input = "job 0 runs, jobs 1 and 2 arrive after the second and the third step";
    let running: Vec<usize> = loads.iter().take(5).map(|load| load.2).collect();
    equal(&format!("{input}: rows that run after each step"), Ok(running), &vec![1, 1, 2, 3, 3])
        .likely("accept the jobs that have arrived, between any two steps")?;
    let long = (0, "a".repeat(12), 12, vec![FinishReason::Length]);
    let want = vec![vec![long], vec![cafe(0)], vec![cat(0)]];
    equal(&format!("{input}: what the clients receive"), Ok(choices(&jobs)), &want)
}

fn an_idle_loop_waits(day: &Day) -> Outcome {
    let jobs = clients(&[ask(CAT, 9)]);
    let late = (ask(CAFE, 20), Arc::new(Client::default()));
    let mut visits = at_once(&jobs, 0);
    visits.late = Some(late.clone());
    let loads = run(day, (2, 2), visits)?;
    let input = "a job arrives, and another one when it is done";
    let told = vec![jobs[0].1.choices(), late.1.choices()];
    equal(
        &format!("{input}: what the clients receive"),
        Ok(told),
        &vec![vec![cat(0)], vec![cafe(0)]],
    )?;
    // Five steps and eight, one for each token.
    equal(&format!("{input}: steps made"), Ok(loads.len() <= 14), &true)
        .likely("with nothing to do, wait in recv and make no steps")
}

fn canceled_rows_retire_before_the_loop_waits(day: &Day) -> Outcome {
    let jobs = clients(&[Ask { prompts: vec![vec![FAILS], vec![LONG]], ..ask(LONG, 30) }]);
    let late = (ask(CAT, 9), Arc::new(Client::default()));
    let mut visits = at_once(&jobs, 0);
    visits.late = Some(late.clone());
    let loads = run(day, (2, 2), visits)?;
    let input =
        "one of a job's two choices fails, the other is canceled, and another job arrives later";
    // Two prefills, three steps of both rows, and one in which the canceled row retires.
    let rows: Vec<usize> = loads.iter().take(6).map(|load| load.1 + load.2).collect();
    equal(&format!("{input}: rows after each of six steps"), Ok(rows), &vec![2, 2, 2, 2, 1, 0])
        .likely(
            "a canceled row has left `rows`, but the scheduler keeps it and its cache until its \
                next step: ask `is_idle`",
        )?;
    equal(&format!("{input}: what the second client receives"), Ok(late.1.choices()), &vec![cat(0)])
}

fn each_request_gets_the_same_text_at_any_load(day: &Day) -> Outcome {
    let mut random = Random::new(20);
    let tokenizer = tokenizer()?;
    for (slots, queue) in [(3, 20), (32, 20)] {
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
        // The first is a long one, so that the loop stays busy while others still arrive.
        jobs[0].0 = 0;
        jobs[0].1.params.max_new_tokens = 30;
        let model = Witness::mixing(2048, 64, 2000);
        let visits = Visits { jobs: jobs.clone(), close_after: 6, late: None };
        let setup = Setup {
            scheduler: real(&model, &tokenizer, 5000),
            config: model.config(),
            max_batch: slots,
            max_queue: queue,
        };
        (day.run)(setup, visits)?;
        for (i, (at, ask, client)) in jobs.iter().enumerate() {
            let input =
                format!("twelve jobs on {slots} slots: job {i}, which arrives after step {at}");
            let mut want: Vec<Told> = Vec::new();
            for index in 0..ask.prompts.len() * ask.n {
                let tokens = alone(&model, &ask.params, &ask.prompts[index / ask.n], index)?;
                let text = tokens.iter().map(|token| token.text.as_str()).collect();
                let ends = tokens.iter().filter_map(|token| token.finish).collect();
                want.push((index, text, tokens.len(), ends));
            }
            equal(&format!("{input}: its choices"), Ok(client.choices()), &want).likely(
                "each choice must be the text it would be alone, with stream `index` of its seed",
            )?;
        }
    }
    Ok(())
}

// 20.11

fn turns_until_a_place_is_free_by_hand(day: &Day) -> Outcome {
    type Question<'a> = (&'a [usize], &'a [usize], usize, usize, &'a str);
    let cases: [Question; 8] = [
        (&[5], &[], 2, 0, "one of two places is free"),
        (&[], &[], 1, 0, "nothing runs"),
        (&[10, 20, 30, 40], &[], 4, 10, "the first row to end frees its slot"),
        (&[10, 20, 30, 40], &[25, 5], 4, 25, "25 starts at 10, 5 starts at 20 and ends at 25"),
        (&[3, 3], &[4], 2, 3, "two places become free at once, and one choice is waiting"),
        (&[], &[7, 2, 4], 2, 6, "7 and 2 start at once, and 4 starts at 2"),
        (&[2, 9], &[50, 1], 2, 10, "50 starts at 2, 1 starts at 9"),
        (&[8], &[1, 1, 1], 1, 11, "one slot: one after the other"),
    ];
    for (running, queued, slots, want, why) in cases {
        let input = format!("running {running:?}, queued {queued:?}, {slots} slots: steps");
        equal(&input, Ok((day.steps_until_slot)(running, queued, slots)), &want).likely(why)?;
    }
    Ok(())
}

/// Plays the steps one by one.
fn step_by_step(running: &[usize], queued: &[usize], slots: usize) -> usize {
    let (mut rows, mut queue) = (running.to_vec(), queued.to_vec());
    for step in 0.. {
        while rows.len() < slots && !queue.is_empty() {
            rows.push(queue.remove(0));
        }
        if rows.len() < slots {
            return step;
        }
        rows.iter_mut().for_each(|left| *left -= 1);
        rows.retain(|left| *left > 0);
    }
    unreachable!("a row ends in every step or gets shorter")
}

fn turns_until_place_equals_a_turn_by_turn_simulation(day: &Day) -> Outcome {
    let mut random = Random::new(2011);
    for _ in 0..200 {
        let slots = 1 + random.below(5);
        let running: Vec<usize> =
            (0..random.below(slots + 1)).map(|_| 1 + random.below(12)).collect();
        let queued: Vec<usize> = (0..random.below(9)).map(|_| 1 + random.below(12)).collect();
        let want = step_by_step(&running, &queued, slots);
        let input = format!("running {running:?}, queued {queued:?}, {slots} slots: steps");
        equal(&input, Ok((day.steps_until_slot)(&running, &queued, slots)), &want)
            .likely("play it step by step with pencil and paper")?;
    }
    Ok(())
}

fn millions_of_tokens(day: &Day) -> Outcome {
    let running: Vec<usize> = (1..=32).map(|i| i << 40).collect();
    let queued = vec![1 << 40; 64];
    // After r times 2^40 steps r slots become free: one row's, and those of the choices that have
    // started one round earlier. 1 + 2 + … + 10 = 55 choices start that way, and when 11 slots
    // become free, only 9 choices are left.
    equal(
        "32 rows with 1, 2, … 32 times 2^40 tokens left, 64 choices of 2^40, 32 slots: steps",
        Ok((day.steps_until_slot)(&running, &queued, 32)),
        &(11 << 40),
    )
    .likely("don't play the steps one by one")
}
