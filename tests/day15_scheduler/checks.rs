//! Day 15's checks: the scheduler.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day15_scheduler;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day15_scheduler.rs"]
mod day15_scheduler;

use candecode::day07_greedy::argmax;
use candecode::day08_sampling::chacha_sampler;
use candecode::day10_kv_cache::{generate_cached, Cached, DynamicCache};
use candecode::day12_batching::BatchCache;
use candecode::kit::{named, Batch, Cache, FinishReason, Model, ModelConfig, NoCache};
use candecode::kit::{ProcessorInput, Request, Sampler, Step, Token, Tokenizer};
use candle_core::{bail, Device, Error, Result, Tensor};
use frame::{ensure, equal, golden_json, model, refused, tokenizer};
use frame::{Fake, Likely, Outcome, Random, Witness};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The kind of cache a scheduler creates.
#[derive(Clone, Copy)]
pub enum Caches {
    None,
    /// The number of layers, and the capacity.
    Kv(usize, Option<usize>),
}

impl Caches {
    /// Returns a function that creates an empty cache.
    pub fn maker(self) -> Box<dyn Fn() -> Box<dyn Batch>> {
        Box::new(move || match self {
            Self::None => Box::new(NoCache),
            Self::Kv(layers, capacity) => Box::new(BatchCache::new(layers, capacity)),
        })
    }
}

/// The parameters of a request, as plain data, because a check builds the same request more than
/// once.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    pub id: usize,
    pub prompt: Vec<u32>,
    pub most: usize,
    pub eos: Vec<u32>,
    pub stops: Vec<String>,
    /// Samples with `--rng chacha` and this seed. None is greedy.
    pub seed: Option<u64>,
    /// A token it must not generate.
    pub without: Option<u32>,
}

impl Ask {
    fn new(id: usize, prompt: &[u32], most: usize, eos: &[u32]) -> Self {
        let (prompt, eos) = (prompt.to_vec(), eos.to_vec());
        Self { id, prompt, most, eos, stops: Vec::new(), seed: None, without: None }
    }

    /// Builds the request.
    pub fn request(&self, config: &ModelConfig) -> Request<'static> {
        let sampler: Sampler = match self.seed {
            Some(seed) => chacha_sampler(seed, self.id),
            None => Box::new(argmax),
        };
        let mut request = Request::new(config, &self.prompt, self.most, sampler);
        request.id = self.id;
        request.eos_token_ids.clone_from(&self.eos);
        request.stop_strings.clone_from(&self.stops);
        if let Some(id) = self.without {
            request.processors.push(named(
                format!("without({id})"),
                move |_: &ProcessorInput, logits: &mut [f32]| {
                    logits[id as usize] = f32::NEG_INFINITY;
                    Ok(())
                },
            ));
        }
        request
    }
}

/// The parts of a scheduler.
pub struct Setup<'a> {
    pub model: &'a dyn Model,
    pub tokenizer: &'a Tokenizer,
    pub caches: Caches,
    pub bound: usize,
}

/// One operation on a scheduler.
pub enum Do {
    Submit(Ask),
    HasRoom,
    Prefill(Ask),
    PrefillAndJoin(Ask),
    Admit,
    Iteration,
}

/// The scheduler's state after an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// The result of `has_room`, if it was called.
    pub room: Option<bool>,
    /// The tokens it returned.
    pub tokens: Vec<Token>,
    /// The number of positions in the cache that `prefill` returned.
    pub positions: Option<usize>,
    /// The id, padding and tokens of every running row.
    pub running: Vec<(usize, usize, Vec<u32>)>,
    /// The ids of the waiting requests.
    pub waiting: Vec<usize>,
    /// Whether the scheduler reports that it has nothing left to do.
    pub idle: bool,
}

/// The day 15 functions under test.
#[derive(Clone, Copy)]
pub struct Day {
    pub paddings: fn(usize, usize) -> (usize, usize),
    pub run: for<'a> fn(&'a Setup<'a>, Vec<Do>) -> Result<Vec<Seen>>,
    pub backfill: fn(&[Text], &[Text], usize) -> Option<usize>,
}

/// A text for `backfill`: the length it may grow to, and the iterations it stays in the batch.
pub type Text = (usize, usize);

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        crate::Day {
            paddings: code::paddings,
            run: |setup, script| {
                use candecode::day07_greedy::Sequence;
                let new_cache = setup.caches.maker();
                let config = setup.model.config();
                let sequence =
                    |ask: &crate::Ask| Sequence::new(ask.request(config), setup.tokenizer);
                let mut scheduler =
                    code::Scheduler::new(setup.model, setup.tokenizer, new_cache, setup.bound);
                let mut all = Vec::new();
                for what in script {
                    let (mut room, mut tokens, mut positions) = (None, Vec::new(), None);
                    match what {
                        crate::Do::Submit(ask) => scheduler.submit(ask.request(config))?,
                        crate::Do::HasRoom => room = Some(scheduler.has_room()),
                        crate::Do::Prefill(ask) => {
                            let (row, token, cache) = scheduler.prefill(sequence(&ask))?;
                            tokens.push(token);
                            positions = Some(cache.len());
                            scheduler.running.push(row);
                        }
                        crate::Do::PrefillAndJoin(ask) => {
                            let (row, token, cache) = scheduler.prefill(sequence(&ask))?;
                            tokens.push(token);
                            scheduler.join(row, cache)?;
                        }
                        crate::Do::Admit => tokens = scheduler.admit()?,
                        crate::Do::Iteration => tokens = scheduler.run_iteration()?,
                    }
                    let row = |row: &candecode::day12_batching::Row| {
                        (row.sequence.request.id, row.padding, row.sequence.tokens.clone())
                    };
                    let running = scheduler.running.iter().map(row).collect();
                    let waiting = scheduler.waiting.iter();
                    let waiting = waiting.map(|sequence| sequence.request.id).collect();
                    let idle = scheduler.is_idle();
                    all.push(crate::Seen { room, tokens, positions, running, waiting, idle });
                }
                Ok(all)
            },
            backfill: |running, waiting, bound| {
                let stays = |texts: &[crate::Text]| -> Vec<code::Stay> {
                    let stay = |(max_len, iterations): &crate::Text| {
                        code::Stay { max_len: *max_len, iterations: *iterations }
                    };
                    texts.iter().map(stay).collect()
                };
                code::backfill(&stays(running), &stays(waiting), bound)
            },
        }
    }};
}

frame::checks! {
    day15_scheduler:
    15.1: paddings_by_hand;
    15.2: room_by_hand, only_the_first_in_the_queue_counts;
    15.3: a_prompt_gets_its_own_cache;
    15.4: an_empty_batch_is_replaced, joining_updates_the_padding_of_old_and_new_rows;
    15.5: a_one_token_text_never_joins_the_batch, no_request_overtakes,
        the_cache_stays_within_the_bound;
    15.6: no_token_is_lost, impossible_requests_are_refused,
        a_failed_row_leaves_the_other_rows_running, every_sequence_equals_transformers,
        any_arrival_order_gives_the_same_tokens, each_request_has_its_own_parameters,
        sequences_are_correct_up_to_the_context_limit;
    15.7: overtaking_by_hand, overtaking_never_delays_the_first_request;
}

/// A model that records its passes: every row's ids and positions, and the number of positions its
/// cache holds afterwards, over all rows.
struct Watched {
    model: Box<dyn Model>,
    passes: RefCell<Vec<(Vec<Vec<u32>>, Vec<Vec<u32>>)>>,
    held: RefCell<Vec<usize>>,
}

impl Watched {
    fn new(model: Box<dyn Model>) -> Self {
        Self { model, passes: RefCell::default(), held: RefCell::default() }
    }
}

impl Model for Watched {
    fn config(&self) -> &ModelConfig {
        self.model.config()
    }

    fn device(&self) -> &Device {
        self.model.device()
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        let pass = (step.ids.to_vec2()?, step.positions.to_vec2()?);
        let (rows, width) = step.ids.dims2()?;
        self.held.borrow_mut().push(rows * (cache.len() + width));
        self.passes.borrow_mut().push(pass);
        if self.passes.borrow().len() > 400 {
            bail!("the model was called 401 times: does the loop ever end?")
        }
        self.model.forward(step, cache)
    }
}

/// The requests of `oracle.json`, with transformers' completion of each one alone.
#[derive(serde::Deserialize)]
struct Group {
    model: String,
    max_new_tokens: usize,
    eos: Vec<u32>,
    texts: Vec<Golden>,
}

impl Group {
    /// Returns request `i`, with the settings transformers was given.
    fn ask(&self, i: usize) -> Ask {
        Ask::new(i, &self.texts[i].prompt_ids, self.max_new_tokens, &self.eos)
    }
}

#[derive(serde::Deserialize)]
struct Golden {
    prompt_ids: Vec<u32>,
    new_ids: Vec<u32>,
}

fn group(name: &str) -> Result<Group> {
    let group = golden_json("day15")?[name].take();
    serde_json::from_value(group).map_err(|e| Error::Msg(format!("day15.json: {e}")))
}

/// A model and the limits for a scheduler to run it with.
struct Case<'a> {
    model: &'a dyn Model,
    capacity: Option<usize>,
    bound: usize,
}

impl<'a> Case<'a> {
    fn new(model: &'a dyn Model) -> Self {
        Self { model, capacity: None, bound: 1000 }
    }

    fn run(&self, day: &Day, script: Vec<Do>) -> Result<Vec<Seen>> {
        let tokenizer = tokenizer()?;
        let caches = Caches::Kv(self.model.config().num_hidden_layers, self.capacity);
        let setup = Setup { model: self.model, tokenizer: &tokenizer, caches, bound: self.bound };
        (day.run)(&setup, script)
    }

    /// Decodes one request alone, with day 10's loop.
    fn alone(&self, ask: &Ask) -> Result<Vec<Token>> {
        let tokenizer = tokenizer()?;
        let cache = DynamicCache::new(self.model.config().num_hidden_layers);
        let cached = Cached::new(self.model, Box::new(cache));
        let request = ask.request(self.model.config());
        let tokens: Result<Vec<Token>> = generate_cached(cached, &tokenizer, request)?.collect();
        tokens
    }

    /// Runs requests, each arriving before its given step, and checks the scheduling rules after
    /// every step. Returns each request's tokens.
    fn serve(
        &self,
        day: &Day,
        input: &str,
        arrivals: &[(usize, Ask)],
    ) -> std::result::Result<BTreeMap<usize, Vec<Token>>, frame::Failure> {
        let mut script = Vec::new();
        let last = arrivals.iter().map(|(at, _)| *at).max().unwrap_or(0);
        // Enough steps to run them all one after another.
        let steps: usize = arrivals.iter().map(|(_, ask)| ask.most + 1).sum();
        for step in 0..=last + steps {
            let now = arrivals.iter().filter(|(at, _)| *at == step);
            script.extend(now.map(|(_, ask)| Do::Submit(ask.clone())));
            script.push(Do::Iteration);
        }
        let context = self.model.config().max_position_embeddings;
        let seen = self.run(day, script)?;
        let mut all: BTreeMap<usize, Vec<Token>> = BTreeMap::new();
        let mut first = Vec::new();
        for seen in &seen {
            let idle = seen.running.is_empty() && seen.waiting.is_empty();
            let who = format!("{input}: is_idle while {:?} run", seen.running);
            equal(&format!("{who}, and {:?} wait", seen.waiting), Ok(seen.idle), &idle)?;
            for token in &seen.tokens {
                let tokens = all.entry(token.row).or_default();
                if tokens.is_empty() {
                    first.push(token.row);
                }
                tokens.push(token.clone());
            }
            let longest = |id: &usize| {
                let ask = arrivals.iter().find(|(_, ask)| ask.id == *id);
                ask.map_or(0, |(_, ask)| (ask.prompt.len() + ask.most).min(context))
            };
            let ids: Vec<usize> = seen.running.iter().map(|(id, ..)| *id).collect();
            let most = ids.len() * ids.iter().map(longest).max().unwrap_or(0);
            ensure(
                &format!(
                    "{input}: requests {ids:?} run together, and the cache may grow to {most} \
                        positions"
                ),
                most <= self.bound,
                &format!("the bound is {}", self.bound),
            )?;
        }
        let want: Vec<usize> = arrivals.iter().map(|(_, ask)| ask.id).collect();
        equal(&format!("{input}: who gets their first token, in order"), Ok(first), &want)
            .likely("first come, first served: if the first doesn't fit yet, all others wait")?;
        let Some(end) = seen.last() else { return Ok(all) };
        let idle = end.running.is_empty() && end.waiting.is_empty();
        ensure(&format!("{input}: after {} steps", seen.len()), idle, "some still run or wait")?;
        Ok(all)
    }

    /// Does the same, and also checks that each request's tokens, text and finish reason match
    /// decoding it alone.
    fn serve_as_alone(&self, day: &Day, input: &str, arrivals: &[(usize, Ask)]) -> Outcome {
        let got = self.serve(day, input, arrivals)?;
        let plain = |tokens: &[Token]| {
            let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
            let text: String = tokens.iter().map(|token| token.text.as_str()).collect();
            (ids, text, tokens.last().and_then(|token| token.finish))
        };
        for (_, ask) in arrivals {
            let tokens = got.get(&ask.id).map(Vec::as_slice).unwrap_or_default();
            let input = format!("{input}: request {}, (ids, text, finish reason)", ask.id);
            equal(&input, Ok(plain(tokens)), &plain(&self.alone(ask)?))?;
        }
        Ok(())
    }
}

/// Checks that every request has the listed ids.
fn each(input: &str, got: &BTreeMap<usize, Vec<Token>>, want: &[(usize, Vec<u32>)]) -> Outcome {
    for (id, ids) in want {
        let tokens = got.get(id).map(Vec::as_slice).unwrap_or_default();
        let got = tokens.iter().map(|token| token.id).collect();
        equal(&format!("{input}: request {id}"), Ok(got), ids)?;
    }
    Ok(())
}

// 15.1

fn paddings_by_hand(day: &Day) -> Outcome {
    for (held, other, want) in [(9, 4, (0, 5)), (4, 9, (5, 0)), (6, 6, (0, 0)), (1, 20, (19, 0))] {
        let input =
            format!("{held} columns run, a new row has {other}: padding of (running, new) rows");
        equal(&input, Ok((day.paddings)(held, other)), &want)
            .likely("the shorter side gets the difference")?;
    }
    Ok(())
}

// 15.2

/// Returns the result of `has_room` with these prompts running and waiting, under a bound.
fn room(
    day: &Day,
    most: usize,
    bound: usize,
    running: &[usize],
    waiting: &[usize],
) -> Result<Option<bool>> {
    let model = Fake::wants(100, 20, 50, |ids| ids[ids.len() - 1] + 1);
    let tokenizer = tokenizer()?;
    let setup = Setup { model: &model, tokenizer: &tokenizer, caches: Caches::None, bound };
    let ask = |(id, len): (usize, &usize)| Ask::new(id, &vec![5; *len], most, &[]);
    let mut script: Vec<Do> = running.iter().enumerate().map(|r| Do::Prefill(ask(r))).collect();
    script.extend(waiting.iter().enumerate().map(|r| Do::Submit(ask(r))));
    script.push(Do::HasRoom);
    Ok((day.run)(&setup, script)?.last().and_then(|seen| seen.room))
}

fn room_by_hand(day: &Day) -> Outcome {
    type Question<'a> = (usize, usize, Vec<usize>, Vec<usize>, bool, &'a str);
    let cases: Vec<Question> = vec![
        (4, 21, vec![3, 3], vec![2], true, "3 rows × 7 = 21"),
        (
            4,
            20,
            vec![3, 3],
            vec![2],
            false,
            "3 rows × 7 = 21: the shorter is padded to the longest",
        ),
        (4, 20, vec![3, 3], vec![3], false, "3 rows × 7 = 21"),
        (4, 20, vec![], vec![16], true, "nothing runs: 16 + 4 = 20"),
        (4, 20, vec![3], vec![], false, "the queue is empty"),
        (
            4,
            9,
            vec![4],
            vec![1],
            false,
            "2 rows × 8 = 16: count the length it may reach, not its current length",
        ),
        (30, 40, vec![3], vec![2], true, "no sequence outgrows the context: 2 rows × 20 = 40"),
        (30, 39, vec![3], vec![2], false, "each may grow to the context: 2 rows × 20 = 40"),
        (4, 10, vec![3], vec![5], false, "2 rows × 9 = 18"),
        (4, 40, vec![9, 9], vec![2], true, "3 rows × 13 = 39"),
        (4, 20, vec![9, 9], vec![2], false, "3 rows × 13 = 39"),
        (4, 32, vec![9, 9], vec![2], false, "3 rows × 13 = 39, though 13 + 13 + 6 = 32"),
        (
            usize::MAX,
            40,
            vec![3],
            vec![2],
            true,
            "no sequence outgrows the context: 2 rows × 20 = 40",
        ),
        (4, 18, vec![3], vec![5], true, "2 rows × 9 = 18: the new one is the longest"),
        (4, 17, vec![3], vec![5], false, "2 rows × 9 = 18: the new one is the longest"),
        (4, 16, vec![4], vec![1], true, "2 rows × 8 = 16"),
        (4, 15, vec![4], vec![1], false, "2 rows × 8 = 16"),
        (4, 17, vec![1], vec![9], false, "2 rows × 13 = 26: the new one is the longest"),
        (4, 38, vec![9, 2], vec![2], false, "3 rows × 13 = 39: one row is the longest"),
        (4, 38, vec![2, 9], vec![2], false, "3 rows × 13 = 39: one row is the longest"),
        (4, 39, vec![2, 9, 2], vec![2], false, "4 rows × 13 = 52: one row is the longest"),
    ];
    let ask = |(most, bound, running, waiting, want, _): &Question| {
        Ok(room(day, *most, *bound, running, waiting)?.unwrap_or(!want))
    };
    let answers = cases.iter().map(ask).collect::<Result<Vec<bool>>>()?;
    let yes: Vec<usize> = (0..answers.len()).filter(|i| answers[*i]).collect();
    for (got, (most, bound, running, waiting, want, why)) in answers.iter().zip(&cases) {
        let input = format!(
            "prompts of {running:?} tokens run, {waiting:?} wait, {most} new each, a context of \
                20, at most {bound} tokens: room (of all {} questions, your code says yes to \
                {yes:?})",
            cases.len()
        );
        equal(&input, Ok(*got), want).likely(why)?;
    }
    Ok(())
}

fn only_the_first_in_the_queue_counts(day: &Day) -> Outcome {
    let cases: [(usize, usize, &[usize], bool); 4] = [
        (17, 3, &[9, 1], false),
        (17, 3, &[1, 9], true),
        (13, 1, &[9, 3], false),
        (14, 3, &[1, 1, 1], true),
    ];
    let ask = |(bound, running, waiting, want): &(usize, usize, &[usize], bool)| {
        Ok(room(day, 4, *bound, &[*running], waiting)?.unwrap_or(!want))
    };
    let answers = cases.iter().map(ask).collect::<Result<Vec<bool>>>()?;
    for (got, (bound, running, waiting, want)) in answers.iter().zip(&cases) {
        let input = format!(
            "prompts of {waiting:?} tokens wait, in this order, while one of {running} runs; at \
            most {bound} tokens, 4 new each: room (your code's answers to all {} questions: \
            {answers:?})",
            cases.len()
        );
        equal(&input, Ok(*got), want)
            .likely("only the first in the queue counts: all later ones wait behind it")?;
    }
    Ok(())
}

// 15.3

fn a_prompt_gets_its_own_cache(day: &Day) -> Outcome {
    let group = group("stories")?;
    let model = Watched::new(model(&group.model)?);
    let case = Case::new(&model);
    let (a, b) = (&group.texts[3], &group.texts[0]);
    let ask = |id: usize, i: usize| Ask { id, ..group.ask(i) };
    let script = vec![Do::PrefillAndJoin(ask(4, 3)), Do::Prefill(ask(7, 0))];
    let seen = case.run(day, script)?;
    let input =
        "request 4, a prompt of 16 tokens, runs; then prefill of request 7, a prompt of 4 tokens";
    let passes = model.passes.take();
    let pass = |ids: &[u32]| (vec![ids.to_vec()], vec![(0..ids.len() as u32).collect::<Vec<_>>()]);
    let want = vec![pass(&a.prompt_ids), pass(&b.prompt_ids)];
    equal(&format!("{input}: (ids, positions) of every pass"), Ok(passes), &want)
        .likely("a newcomer's positions start at 0, regardless of what else is running")?;
    equal(&format!("{input}: positions of its cache"), Ok(seen[1].positions), &Some(4))
        .likely("a newcomer's prompt goes into an empty cache of its own")?;
    let token = seen[1].tokens.first().map(|token| (token.row, token.id));
    equal(&format!("{input}: (row, id) of its token"), Ok(token), &Some((7, b.new_ids[0])))?;
    let text = [b.prompt_ids.clone(), b.new_ids[..1].to_vec()].concat();
    let row = seen[1].running.last().cloned();
    equal(&format!("{input}: (number, padding, tokens) of its row"), Ok(row), &Some((7, 0, text)))
}

// 15.4

fn joining_updates_the_padding_of_old_and_new_rows(day: &Day) -> Outcome {
    let group = group("stories")?;
    let model = Watched::new(model(&group.model)?);
    let case = Case::new(&model);
    // Prompts of 4, 16, 3 and 4 tokens.
    let order = [0, 3, 4, 1];
    let seen = case.run(day, order.map(|i| Do::PrefillAndJoin(group.ask(i))).into())?;
    let padding = |seen: &Seen| -> Vec<(usize, usize)> {
        seen.running.iter().map(|(id, padding, _)| (*id, *padding)).collect()
    };
    for (seen, want) in seen.iter().zip([
        vec![(0, 0)],
        vec![(0, 12), (3, 0)],
        vec![(0, 12), (3, 0), (4, 13)],
        vec![(0, 12), (3, 0), (4, 13), (1, 12)],
    ]) {
        let input = format!(
            "prompts of 4, 16, 3 and 4 tokens join, one after another; {} have: (number, padding)",
            want.len()
        );
        equal(&input, Ok(padding(seen)), &want)
            .likely("a longer newcomer pads all running rows; a shorter one is padded itself")?;
    }
    let order = [4, 1, 3];
    let seen = case.run(day, order.map(|i| Do::PrefillAndJoin(group.ask(i))).into())?;
    let input = "prompts of 3, 4 and 16 tokens join, one after another: (number, padding)";
    equal(input, Ok(padding(&seen[2])), &vec![(4, 13), (1, 12), (3, 0)])
        .likely("padding adds up: 1 position for the second, 12 more for the third")
}

fn an_empty_batch_is_replaced(day: &Day) -> Outcome {
    let group = group("stories")?;
    let model = Watched::new(model(&group.model)?);
    let case = Case::new(&model);
    // The first request ends with its second token. No row is running then, but the cache still has
    // its columns.
    let ends = Ask { most: 2, ..group.ask(3) };
    let tasks = vec![
        Do::PrefillAndJoin(ends),
        Do::Iteration,
        Do::PrefillAndJoin(group.ask(0)),
        Do::Iteration,
    ];
    let seen = case.run(day, tasks)?;
    let rows: Vec<_> = seen.iter().map(|seen| seen.running.len()).collect();
    equal(
        "a row joins and ends, another joins, a step: number of rows",
        Ok(rows),
        &vec![1, 0, 1, 1],
    )?;
    let input = "16 tokens ran and ended, a prompt of 4 tokens joins";
    let padding = seen[2].running[0].1;
    equal(&format!("{input}: its padding"), Ok(padding), &0).likely(
        "if no row is running, the new cache replaces the old one, and nothing is padded",
    )?;
    let got = seen[3].tokens.iter().map(|token| token.id).collect::<Vec<_>>();
    let want = vec![group.texts[0].new_ids[1]];
    equal(&format!("{input}: its second token"), Ok(got), &want)
        .likely("the old cache must go: its columns belong to a row that has ended")
}

// 15.5

fn a_one_token_text_never_joins_the_batch(day: &Day) -> Outcome {
    let group = group("commas")?;
    let model = model(&group.model)?;
    let case = Case::new(&*model);
    let mut script: Vec<Do> = [1, 0, 4].map(|i| Do::Submit(group.ask(i))).into();
    script.push(Do::Admit);
    let seen = case.run(day, script)?.pop();
    let Some(seen) = seen else { return Err(Error::Msg("the script has no steps".into()).into()) };
    let input = "requests 1, 0 and 4, all fit, and 0 ends with its first token";
    let tokens: Vec<_> = seen.tokens.iter().map(|t| (t.row, t.id, t.finish)).collect();
    let first = |i: usize| group.texts[i].new_ids[0];
    let want =
        vec![(1, first(1), None), (0, first(0), Some(FinishReason::Eos)), (4, first(4), None)];
    equal(&format!("{input}: (row, id, finish) of what admit returns"), Ok(tokens), &want)?;
    let running: Vec<usize> = seen.running.iter().map(|(id, ..)| *id).collect();
    equal(&format!("{input}: who runs"), Ok(running), &vec![1, 4])
        .likely("a text that ended needs no place in the batch")
}

fn no_request_overtakes(day: &Day) -> Outcome {
    let group = group("stories")?;
    let model = model(&group.model)?;
    let who = |asks: &[usize], bound: usize| {
        let case = Case { bound, ..Case::new(&*model) };
        let mut script: Vec<Do> = asks.iter().map(|i| Do::Submit(group.ask(*i))).collect();
        script.push(Do::Admit);
        let Some(seen) = case.run(day, script)?.pop() else { bail!("the script has no steps") };
        let running: Vec<usize> = seen.running.iter().map(|(id, ..)| *id).collect();
        Ok((running, seen.waiting))
    };
    // With 8 new tokens each, request 0 can grow to 12 tokens, 3 to 24, and 4 and 5 to 11.
    let input = "requests 0, 3, 4, 5 may grow to 12, 24, 11 and 11 tokens, the batch to 48 \
        positions, to 35, to 31; then requests 4, 3, and 35 positions: (running, waiting)";
    let all = &[0, 3, 4, 5][..];
    let got: Result<Vec<_>> = [(all, 48), (all, 35), (all, 31), (&[4, 3], 35)]
        .map(|(asks, bound)| who(asks, bound))
        .into_iter()
        .collect();
    let one = (vec![0], vec![3, 4, 5]);
    let want = vec![(vec![0, 3], vec![4, 5]), one.clone(), one, (vec![4], vec![3])];
    equal(input, got, &want).likely(
        "4 would fit, but 3 came first: without this rule, a long request could wait forever",
    )
}

fn the_cache_stays_within_the_bound(day: &Day) -> Outcome {
    // Their tokens add up to 63 + 7 × 5 = 98. Padded to the longest, eight rows would take up 496.
    let model = Watched::new(Box::new(Witness::mixing(40, 70, 200)));
    let case = Case { bound: 100, ..Case::new(&model) };
    let lens = [60, 2, 2, 2, 2, 2, 2, 2];
    let asks = lens.iter().enumerate().map(|(id, len)| Ask::new(id, &vec![5; *len], 3, &[]));
    let mut script: Vec<Do> = asks.map(Do::Submit).collect();
    script.extend((0..12).map(|_| Do::Iteration));
    let seen = case.run(day, script)?;
    let input = "a prompt of 60 tokens and seven of 2, 3 new each, at most 100";
    let held = model.held.take().into_iter().max();
    ensure(
        &format!("{input}: the cache held up to {held:?} positions, including padding"),
        held.is_some_and(|held| held <= 100),
        "the bound is 100",
    )
    .likely("every row is padded to the longest: the cache holds rows × longest positions")?;
    let tokens: usize = seen.iter().map(|seen| seen.tokens.len()).sum();
    equal(&format!("{input}: tokens of 12 steps"), Ok(tokens), &24)
}

fn no_token_is_lost(day: &Day) -> Outcome {
    let group = group("stories")?;
    let model = model(&group.model)?;
    let case = Case::new(&*model);
    let script = vec![
        Do::Submit(group.ask(0)),
        Do::Iteration,
        Do::Submit(group.ask(4)),
        Do::Iteration,
        Do::Iteration,
    ];
    let seen = case.run(day, script)?;
    let mut got: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for token in seen.iter().flat_map(|seen| &seen.tokens) {
        got.entry(token.row).or_default().push(token.id);
    }
    let input = "request 0, a step, request 4, two more steps";
    let running = seen.last().map_or(0, |seen| seen.running.len());
    equal(&format!("{input}: rows that run"), Ok(running), &2)?;
    let of_0 = seen[3].tokens.iter().filter(|token| token.row == 0).count();
    equal("request 0 runs, and request 4 arrives: new tokens of request 0", Ok(of_0), &1)
        .likely("an iteration that admits a request also makes a step of the batch")?;
    equal(
        &format!("{input}: the first token of each"),
        Ok([0, 4].map(|i| got.get(&i).and_then(|ids| ids.first()).copied())),
        &[0, 4].map(|i| Some(group.texts[i].new_ids[0])),
    )
    .likely("the iteration that admits a request also returns its first token")?;
    for (id, row) in
        seen.last().into_iter().flat_map(|seen| &seen.running).map(|(id, _, row)| (*id, row))
    {
        let want = row[group.texts[id].prompt_ids.len()..].to_vec();
        let ids = got.get(&id).cloned().unwrap_or_default();
        equal(&format!("{input}: tokens returned for row {id}"), Ok(ids), &want)?;
    }
    Ok(())
}

fn a_failed_row_leaves_the_other_rows_running(day: &Day) -> Outcome {
    // Once three tokens have been seen, the model allows only token 1, and the request forbids that
    // one.
    let model = Witness::new(2, 20, 200, |seen| match seen.len() {
        0..3 => vec![1.0, 0.0],
        _ => vec![f32::NEG_INFINITY, 1.0],
    });
    let case = Case::new(&model);
    let ask = |id, prompt: &[u32], without| Ask { without, ..Ask::new(id, prompt, 9, &[]) };
    let run = |asks: Vec<Ask>| -> Result<(BTreeMap<usize, Vec<Token>>, bool)> {
        let mut script: Vec<Do> = asks.into_iter().map(Do::Submit).collect();
        script.extend((0..9).map(|_| Do::Iteration));
        let seen = case.run(day, script)?;
        let idle = seen.last().is_some_and(|seen| seen.idle);
        let mut tokens: BTreeMap<usize, Vec<Token>> = BTreeMap::new();
        for token in seen.into_iter().flat_map(|seen| seen.tokens) {
            tokens.entry(token.row).or_default().push(token);
        }
        Ok((tokens, idle))
    };
    for (prompt, new) in [(&[0, 0, 0][..], 0), (&[0], 2)] {
        let input = format!(
            "requests 0, 1 and 2; the rules of request 1 leave no token after {new} new ones"
        );
        let (first, last) = (ask(0, &[0], None), ask(2, &[0, 0], None));
        let want = run(vec![first.clone(), last.clone()])?;
        let got = run(vec![first, ask(1, prompt, Some(1)), last]);
        let (mut got, idle) = match got {
            Ok(got) => got,
            Err(error) => {
                return equal(&format!("{input}: the scheduler"), Err(error), &())
                    .likely_for_any_failure(
                        "the row's last token carries its error, and the other rows continue",
                    );
            }
        };
        let failed = got.remove(&1).unwrap_or_default();
        equal(&format!("{input}: the tokens of the others, idle"), Ok((got, idle)), &want)
            .likely("both must be the same as without request 1")?;
        let ends: Vec<_> = failed.iter().map(|t| (t.finish, t.error.is_some())).collect();
        let mut want = vec![(None, false); new];
        want.push((Some(FinishReason::Failed), true));
        equal(&format!("{input}: its own (finish, has an error)"), Ok(ends), &want)
            .likely("the last token of a failed row carries the error")?;
    }
    Ok(())
}

fn impossible_requests_are_refused(day: &Day) -> Outcome {
    let model = Fake::wants(100, 20, 50, |ids| ids[ids.len() - 1] + 1);
    let tokenizer = tokenizer()?;
    let run = |most: usize, bound: usize, caches: Caches, prompt: usize, step: bool| {
        let setup = Setup { model: &model, tokenizer: &tokenizer, caches, bound };
        let mut script = vec![Do::Submit(Ask::new(0, &vec![5; prompt], most, &[0]))];
        script.extend(step.then_some(Do::Iteration));
        let seen = (day.run)(&setup, script)?;
        Ok(seen.iter().map(|seen| seen.tokens.len()).sum::<usize>())
    };
    let none = Caches::None;
    let input = "a prompt of 4 tokens, a batch of 5, a context of 20";
    equal(&format!("{input}, 1 new: tokens of a step"), run(1, 5, none, 4, true), &1)?;
    refused(&format!("{input}, 0 new"), run(0, 5, none, 4, false), &["max_new_tokens"])?;
    refused(&format!("{input}, 2 new"), run(2, 5, none, 4, false), &["6"])
        .likely("it could never be admitted, and all requests behind it would wait forever")?;
    refused("an empty prompt", run(1, 5, none, 0, false), &["empty"])?;
    refused("a prompt of 21, a context of 20", run(1, 50, none, 21, false), &["context"])
}

/// Runs all requests of a group in this order, each arriving at the step that `at` returns.
fn served(
    day: &Day,
    case: &Case,
    group: &Group,
    order: &[usize],
    at: impl Fn(usize) -> usize,
    input: &str,
) -> Outcome {
    let arrivals: Vec<(usize, Ask)> =
        order.iter().enumerate().map(|(place, i)| (at(place), group.ask(*i))).collect();
    let want: Vec<_> = order.iter().map(|i| (*i, group.texts[*i].new_ids.clone())).collect();
    let steps: Vec<usize> = arrivals.iter().map(|(at, _)| *at).collect();
    let input = format!(
        "{input}, requests {order:?} arrive at steps {steps:?}, at most {} positions",
        case.bound
    );
    each(&input, &case.serve(day, &input, &arrivals)?, &want)
}

fn every_sequence_equals_transformers(day: &Day) -> Outcome {
    for name in ["commas", "stories"] {
        let group = group(name)?;
        let model = model(&group.model)?;
        let mut case = Case::new(&*model);
        let order: Vec<usize> = (0..group.texts.len()).collect();
        served(day, &case, &group, &order, |_| 0, &group.model)?;
        case.capacity = Some(model.config().max_position_embeddings);
        served(
            day,
            &case,
            &group,
            &order,
            |place| place,
            &format!("{}, static caches", group.model),
        )?;
    }
    Ok(())
}

fn any_arrival_order_gives_the_same_tokens(day: &Day) -> Outcome {
    let mut random = Random::new(156);
    let group = group("commas")?;
    let model = model(&group.model)?;
    for round in 0..6 {
        let mut order: Vec<usize> = (0..group.texts.len()).collect();
        (1..order.len()).rev().for_each(|i| order.swap(i, random.below(i + 1)));
        let mut step = 0;
        let steps: Vec<usize> = order
            .iter()
            .map(|_| {
                step += random.below(5);
                step
            })
            .collect();
        // The longest request can grow to 32 tokens.
        let case = Case { bound: 32 + 40 * (round % 3), ..Case::new(&*model) };
        served(day, &case, &group, &order, |place| steps[place], &group.model)?;
    }
    Ok(())
}

fn each_request_has_its_own_parameters(day: &Day) -> Outcome {
    let group = group("stories")?;
    let model = model(&group.model)?;
    let case = Case::new(&*model);
    // Pieces of request 0's completion become a stop string for one of its copies and a forbidden
    // token for another.
    let new = &group.texts[0].new_ids;
    let stop = tokenizer()?.decode(&new[2..4])?;
    let asks = [
        Ask { most: 3, ..group.ask(0) },
        Ask { id: 1, most: 12, stops: vec![stop.clone()], ..group.ask(0) },
        Ask { id: 2, most: 9, seed: Some(15), ..group.ask(0) },
        Ask { id: 3, most: 7, eos: vec![new[4]], ..group.ask(0) },
        Ask { id: 4, most: 6, without: Some(new[1]), ..group.ask(0) },
    ];
    let arrivals: Vec<(usize, Ask)> = asks.into_iter().map(|ask| (ask.id / 2, ask)).collect();
    let input = format!(
        "{}, one prompt five times: 3 new; a stop string {stop:?}; sampled; another EOS; a token \
            forbidden",
        group.model
    );
    case.serve_as_alone(day, &input, &arrivals).likely("each row follows its own request")?;
    let ends: Vec<_> = arrivals
        .iter()
        .map(|(_, ask)| Ok(case.alone(ask)?.last().and_then(|token| token.finish)))
        .collect::<Result<_>>()?;
    // Make sure that the five requests really differ.
    ensure(
        &input,
        ends[0] != ends[1] && ends[1] != ends[3],
        "they should have three different finish reasons",
    )
}

fn sequences_are_correct_up_to_the_context_limit(day: &Day) -> Outcome {
    let group = group("stories")?;
    let model = model(&group.model)?;
    let context = model.config().max_position_embeddings;
    let case = Case { bound: 2000, ..Case::new(&*model) };
    let long: Vec<u32> =
        group.texts[3].prompt_ids.iter().cycle().take(context - 4).copied().collect();
    let arrivals = [
        (0, Ask::new(0, &group.texts[0].prompt_ids, 10, &[])),
        (2, Ask::new(1, &long, 10, &[])),
        (5, Ask::new(2, &group.texts[4].prompt_ids, 10, &[])),
    ];
    let input = format!(
        "{}, a prompt of {} tokens between short ones, a context of {context}",
        group.model,
        context - 4
    );
    case.serve_as_alone(day, &input, &arrivals)
}

// 15.7

fn overtaking_by_hand(day: &Day) -> Outcome {
    type Question<'a> = (&'a [Text], &'a [Text], usize, Option<usize>, &'a str);
    let cases: [Question; 11] = [
        (&[(16, 2), (16, 6)], &[], 48, None, "the queue is empty"),
        (&[(16, 2), (16, 6)], &[(16, 9), (4, 1)], 48, None, "the first has room: 3 × 16 = 48"),
        (
            &[(4, 5)],
            &[(4, 5), (4, 1)],
            48,
            None,
            "the first has room, and the other waits its turn",
        ),
        (&[(16, 2), (16, 6)], &[(24, 9)], 48, None, "there is no other request"),
        (
            &[(16, 2), (16, 6)],
            &[(24, 9), (10, 3), (20, 1), (12, 2)],
            48,
            Some(3),
            "the first has room in 2 iterations; 1 is still there then, 2 has no room now, and 3 \
                has left in time",
        ),
        (&[(16, 2), (16, 6)], &[(24, 9), (12, 3)], 48, None, "3 rows × 24 = 72 in 2 iterations"),
        (&[(16, 2), (16, 6)], &[(24, 9), (8, 4)], 48, None, "3 rows × 24 = 72, not 16 + 8 + 24"),
        (
            &[(10, 1), (10, 1), (10, 9)],
            &[(25, 9), (10, 9)],
            75,
            Some(1),
            "it stays longer, and there is room for both: 3 rows × 25 = 75",
        ),
        (
            &[(10, 1), (10, 1), (10, 9)],
            &[(25, 9), (10, 9)],
            74,
            None,
            "3 rows × 25 = 75, and the first would have to wait for longer than an iteration",
        ),
        (&[(9, 5)], &[(20, 9), (4, 5), (4, 1)], 20, Some(1), "in 5 iterations both have left"),
        (&[(9, 5)], &[(20, 9), (4, 6), (4, 1)], 20, Some(2), "only one of them has left in time"),
    ];
    let ask = |(running, waiting, bound, ..): &Question| (day.backfill)(running, waiting, *bound);
    let answers: Vec<Option<usize>> = cases.iter().map(ask).collect();
    for (got, (running, waiting, bound, want, why)) in answers.iter().zip(&cases) {
        let input = format!(
            "running {running:?}, waiting {waiting:?} (length, iterations), at most {bound} \
                positions (your code's answers to all {} questions: {answers:?})",
            cases.len()
        );
        equal(&input, Ok(*got), want).likely(why)?;
    }
    Ok(())
}

/// Plays iterations until the first in the queue has room, and returns how many that takes.
fn turns_of_waiting(running: &[Text], first: Text, bound: usize) -> usize {
    let mut rows = running.to_vec();
    let mut iterations = 0;
    while !have_room(&rows, first, bound) {
        iterations += 1;
        rows.iter_mut().for_each(|row| row.1 -= 1);
        rows.retain(|row| row.1 > 0);
    }
    iterations
}

fn have_room(rows: &[Text], new: Text, bound: usize) -> bool {
    let longest = rows.iter().map(|row| row.0).fold(new.0, usize::max);
    (rows.len() + 1) * longest <= bound
}

fn overtaking_never_delays_the_first_request(day: &Day) -> Outcome {
    let mut random = Random::new(157);
    let mut overtaken = 0;
    for _ in 0..400 {
        let bound = 30 + random.below(40);
        let mut text = |shortest: usize| (shortest + random.below(12), 1 + random.below(6));
        let mut running: Vec<Text> = Vec::new();
        for _ in 0..3 {
            let row = text(2);
            if have_room(&running, row, bound) {
                running.push(row);
            }
        }
        // The first is longer, so that others may have room when it hasn't.
        let waiting = [text(14), text(2), text(2), text(2), text(2)];
        let first = waiting[0];
        let alone = turns_of_waiting(&running, first, bound);
        let harmless = |other: &Text| {
            let with = [running.clone(), vec![*other]].concat();
            have_room(&running, *other, bound) && turns_of_waiting(&with, first, bound) == alone
        };
        let want = match alone {
            0 => None,
            _ => waiting[1..].iter().position(harmless).map(|place| place + 1),
        };
        overtaken += usize::from(want.is_some());
        let input = format!(
            "running {running:?}, waiting {waiting:?} (length, iterations), at most {bound} \
                positions"
        );
        equal(&input, Ok((day.backfill)(&running, &waiting, bound)), &want)
            .likely("on paper, play through the iterations with each request and without it")?;
    }
    ensure("400 random queues", overtaken > 40, "in some of them, a request may overtake")
}
