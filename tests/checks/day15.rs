//! What day 15's checkers assert.

use super::checks::{ensure, equal, golden_json, model, refused, tokenizer};
use super::checks::{Fake, Likely, Outcome, Random};
use candecode::day07_greedy::greedy;
use candecode::day08_sampling::chacha_sampler;
use candecode::day10_kv_cache::{generate_cached, KvCache};
use candecode::kit::{Cache, CacheKind, Choose, FinishReason, GenerationOptions, Model, NoCache};
use candecode::kit::{ModelConfig, Step, Token, Tokenizer};
use candle_core::{bail, Device, Error, Result, Tensor};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Makes an empty cache.
pub type NewCache<'a> = &'a dyn Fn() -> Box<dyn Cache>;
/// A request: its number, its prompt.
pub type Request = (usize, Vec<u32>);

/// What a scheduler is made of.
pub struct Setup<'a> {
    pub model: &'a dyn Model,
    pub tokenizer: &'a Tokenizer,
    pub options: &'a dyn Fn() -> GenerationOptions<'a>,
    pub cache: NewCache<'a>,
    pub bound: usize,
}

/// What a check does to a scheduler.
pub enum Do {
    Submit(Request),
    HasRoom,
    Prefill(Request),
    PrefillAndJoin(Request),
    Admit,
    Step,
}

/// What is seen after it.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// What `has_room` said, if it was asked.
    pub room: Option<bool>,
    /// The tokens that came out.
    pub tokens: Vec<Token>,
    /// Columns of the cache that `prefill` gave.
    pub columns: Option<usize>,
    /// Number, padding and tokens of every running row.
    pub running: Vec<(usize, usize, Vec<u32>)>,
    /// Numbers of those that wait.
    pub waiting: Vec<usize>,
    /// Whether the scheduler says that nothing is left to do.
    pub idle: bool,
}

/// Day 15 as a bundle of functions.
#[derive(Clone, Copy)]
pub struct Day {
    pub paddings: fn(usize, usize) -> (usize, usize),
    pub run: for<'a> fn(&'a Setup<'a>, Vec<Do>) -> Result<Vec<Seen>>,
}

/// Fills the bundle from a module: the reader's, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        day::Day {
            paddings: code::paddings,
            run: |setup, script| {
                let new_cache = Box::new(|| (setup.cache)());
                let mut scheduler = code::Scheduler::new(
                    setup.model, setup.tokenizer, (setup.options)(), new_cache, setup.bound)?;
                let mut all = Vec::new();
                for what in script {
                    let (mut room, mut tokens, mut columns) = (None, Vec::new(), None);
                    match what {
                        day::Do::Submit((id, prompt)) => scheduler.submit(code::Request { id, prompt })?,
                        day::Do::HasRoom => room = Some(scheduler.has_room()),
                        day::Do::Prefill((id, prompt)) => {
                            let (row, token, cache) = scheduler.prefill(&code::Request { id, prompt })?;
                            tokens.push(token);
                            columns = Some(cache.len());
                            scheduler.running.push(row);
                        }
                        day::Do::PrefillAndJoin((id, prompt)) => {
                            let (row, token, cache) = scheduler.prefill(&code::Request { id, prompt })?;
                            tokens.push(token);
                            scheduler.join(row, cache)?;
                        }
                        day::Do::Admit => tokens = scheduler.admit()?,
                        day::Do::Step => tokens = scheduler.step()?,
                    }
                    let row = |row: &candecode::day12_batching::Row| {
                        (row.sequence.row, row.padding, row.sequence.tokens.clone())
                    };
                    let running = scheduler.running.iter().map(row).collect();
                    let waiting = scheduler.waiting.iter().map(|request| request.id).collect();
                    let idle = scheduler.is_idle();
                    all.push(day::Seen { room, tokens, columns, running, waiting, idle });
                }
                Ok(all)
            },
        }
    }};
}

/// A model that keeps a record of its passes: the ids and positions of every row.
struct Watched {
    model: Box<dyn Model>,
    passes: RefCell<Vec<(Vec<Vec<u32>>, Vec<Vec<u32>>)>>,
}

impl Watched {
    fn new(name: &str) -> Result<Self> {
        Ok(Self { model: model(name)?, passes: RefCell::default() })
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
        self.passes.borrow_mut().push(pass);
        if self.passes.borrow().len() > 400 {
            bail!("the model was asked for pass 401: does it end?")
        }
        self.model.forward(step, cache)
    }
}

/// The requests of `tests/oracle/day15.json`, and what transformers makes of each alone.
#[derive(serde::Deserialize)]
struct Group {
    model: String,
    max_new_tokens: usize,
    eos: Vec<u32>,
    texts: Vec<Golden>,
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

/// A scheduler of these requests on a model: what a check needs to say.
struct Case<'a> {
    model: &'a dyn Model,
    most: usize,
    eos: Vec<u32>,
    kind: CacheKind,
    bound: usize,
    choose: fn() -> Choose<'static>,
}

fn by_greedy() -> Choose<'static> {
    Box::new(greedy)
}

impl<'a> Case<'a> {
    fn new(model: &'a dyn Model, group: &Group) -> Self {
        let (most, eos) = (group.max_new_tokens, group.eos.clone());
        Self { model, most, eos, kind: CacheKind::Dynamic, bound: 1000, choose: by_greedy }
    }

    fn options(&self) -> GenerationOptions<'a> {
        let mut options = GenerationOptions::new(self.model.config(), self.most, (self.choose)());
        options.eos_token_ids.clone_from(&self.eos);
        options
    }

    fn run(&self, day: &Day, script: Vec<Do>) -> Result<Vec<Seen>> {
        let tokenizer = tokenizer()?;
        let layers = self.model.config().num_hidden_layers;
        let (options, cache) =
            (|| self.options(), || Box::new(KvCache::new(self.kind, layers)) as _);
        let setup = Setup {
            model: self.model,
            tokenizer: &tokenizer,
            options: &options,
            cache: &cache,
            bound: self.bound,
        };
        (day.run)(&setup, script)
    }

    /// What one request would be alone: day 10's loop, its choice told the request's own number.
    fn alone(&self, request: &Request) -> Result<Vec<u32>> {
        let (tokenizer, mut options) = (tokenizer()?, self.options());
        let (mut choose, id) = ((self.choose)(), request.0);
        options.choose = Box::new(move |_, logits| choose(id, logits));
        let cache = KvCache::new(self.kind, self.model.config().num_hidden_layers);
        let tokens = generate_cached(self.model, &tokenizer, &request.1, options, cache)?;
        tokens.map(|token| token.map(|token| token.id)).collect()
    }

    /// Runs requests that arrive before the step of that number, and holds all that is seen to the rules. The new ids of each.
    fn serve(
        &self,
        day: &Day,
        input: &str,
        arrivals: &[(usize, Request)],
    ) -> std::result::Result<BTreeMap<usize, Vec<u32>>, super::checks::Failure> {
        let mut script = Vec::new();
        let last = arrivals.iter().map(|(at, _)| *at).max().unwrap_or(0);
        // Enough steps for all of them one after another.
        for step in 0..=last + arrivals.len() * (self.most + 1) {
            let now = arrivals.iter().filter(|(at, _)| *at == step);
            script.extend(now.map(|(_, request)| Do::Submit(request.clone())));
            script.push(Do::Step);
        }
        let context = self.model.config().max_position_embeddings;
        let seen = self.run(day, script)?;
        let mut texts: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        let mut first = Vec::new();
        for seen in &seen {
            let idle = seen.running.is_empty() && seen.waiting.is_empty();
            let who = format!("{input}: idle while {:?} run", seen.running);
            equal(&format!("{who}, and {:?} wait", seen.waiting), Ok(seen.idle), &idle)?;
            for token in &seen.tokens {
                let text = texts.entry(token.row).or_default();
                if text.is_empty() {
                    first.push(token.row);
                }
                text.push(token.id);
            }
            let prompt = |id: &usize| {
                arrivals.iter().find(|(_, r)| r.0 == *id).map_or(0, |(_, r)| r.1.len())
            };
            let most: usize =
                seen.running.iter().map(|(id, ..)| (prompt(id) + self.most).min(context)).sum();
            let ids: Vec<usize> = seen.running.iter().map(|(id, ..)| *id).collect();
            ensure(
                &format!(
                    "{input}: requests {ids:?} run together, and may come to hold {most} tokens"
                ),
                most <= self.bound,
                &format!("the bound is {}", self.bound),
            )?;
        }
        let want: Vec<usize> = arrivals.iter().map(|(_, request)| request.0).collect();
        equal(&format!("{input}: who gets a first token, in order"), Ok(first), &want)
            .likely("first come, first served: who does not fit yet is waited for")?;
        let Some(end) = seen.last() else { return Ok(texts) };
        let idle = end.running.is_empty() && end.waiting.is_empty();
        ensure(&format!("{input}: after {} steps", seen.len()), idle, "some still run or wait")?;
        Ok(texts)
    }
}

/// Every request's text is that of the list.
fn each(input: &str, got: &BTreeMap<usize, Vec<u32>>, want: &[(usize, Vec<u32>)]) -> Outcome {
    for (id, ids) in want {
        let got = got.get(id).cloned().unwrap_or_default();
        equal(&format!("{input}: request {id}"), Ok(got), ids)?;
    }
    Ok(())
}

// 15.1

pub fn paddings_by_hand(day: &Day) -> Outcome {
    for (held, other, want) in [(9, 4, (0, 5)), (4, 9, (5, 0)), (6, 6, (0, 0)), (1, 20, (19, 0))] {
        let input =
            format!("{held} columns run, a newcomer has {other}: padding in front of (them, it)");
        equal(&input, Ok((day.paddings)(held, other)), &want)
            .likely("the shorter side is padded, by what it lacks")?;
    }
    Ok(())
}

// 15.2

/// What `has_room` says with these prompts running and waiting, under a bound.
fn room(
    day: &Day,
    most: usize,
    bound: usize,
    running: &[usize],
    waiting: &[usize],
) -> Result<Option<bool>> {
    let model = Fake::wants(100, 20, 50, |ids| ids[ids.len() - 1] + 1);
    let tokenizer = tokenizer()?;
    let options = || {
        let mut options = GenerationOptions::new(model.config(), most, greedy);
        options.eos_token_ids.clear();
        options
    };
    let cache = || Box::new(NoCache) as Box<dyn Cache>;
    let setup =
        Setup { model: &model, tokenizer: &tokenizer, options: &options, cache: &cache, bound };
    let prompt = |(id, len): (usize, &usize)| (id, vec![5; *len]);
    let mut script: Vec<Do> = running.iter().enumerate().map(|r| Do::Prefill(prompt(r))).collect();
    script.extend(waiting.iter().enumerate().map(|r| Do::Submit(prompt(r))));
    script.push(Do::HasRoom);
    Ok((day.run)(&setup, script)?.last().and_then(|seen| seen.room))
}

pub fn room_by_hand(day: &Day) -> Outcome {
    type Question<'a> = (usize, usize, Vec<usize>, Vec<usize>, bool, &'a str);
    let cases: Vec<Question> = vec![
        (4, 20, vec![3, 3], vec![2], true, "7 + 7 + 6 = 20"),
        (4, 20, vec![3, 3], vec![3], false, "7 + 7 + 7 = 21"),
        (4, 20, vec![], vec![16], true, "nothing runs: 16 + 4 = 20"),
        (4, 20, vec![3], vec![], false, "nobody waits"),
        (
            4,
            9,
            vec![4],
            vec![1],
            false,
            "8 + 5 = 13: what a text may grow to counts, not what it holds",
        ),
        (30, 40, vec![3], vec![2], true, "no text holds more than the context: 20 + 20 = 40"),
        (30, 39, vec![3], vec![2], false, "each may grow to the context: 20 + 20 = 40"),
        (4, 10, vec![3], vec![5], false, "7 + 9 = 16"),
        (4, 20, vec![9, 9], vec![2], false, "13 + 13 + 6 = 32"),
        (
            usize::MAX,
            40,
            vec![3],
            vec![2],
            true,
            "no text holds more than the context: 20 + 20 = 40",
        ),
    ];
    let ask = |(most, bound, running, waiting, want, _): &Question| {
        Ok(room(day, *most, *bound, running, waiting)?.unwrap_or(!want))
    };
    let answers = cases.iter().map(ask).collect::<Result<Vec<bool>>>()?;
    let yes: Vec<usize> = (0..answers.len()).filter(|i| answers[*i]).collect();
    for (got, (most, bound, running, waiting, want, why)) in answers.iter().zip(&cases) {
        let input = format!(
            "prompts of {running:?} tokens run, {waiting:?} wait, {most} new each, a context of 20, at most {bound} tokens: room (of all {} questions, your code says yes to {yes:?})",
            cases.len()
        );
        equal(&input, Ok(*got), want).likely(why)?;
    }
    Ok(())
}

pub fn only_the_first_in_the_queue_counts(day: &Day) -> Outcome {
    for (waiting, want) in [(vec![9, 1], false), (vec![1, 9], true)] {
        let got = room(day, 4, 19, &[3], &waiting).map(|room| room.unwrap_or(!want));
        let input = format!(
            "a prompt of 3 tokens runs, {waiting:?} wait, 4 new each, at most 19 tokens: room"
        );
        equal(&input, got, &want).likely(
            "only the first in the queue is asked for: whoever comes later waits behind it",
        )?;
    }
    Ok(())
}

// 15.3

pub fn a_prompt_in_a_cache_of_its_own(day: &Day) -> Outcome {
    let group = group("stories")?;
    let model = Watched::new(&group.model)?;
    let case = Case::new(&model, &group);
    let (a, b) = (&group.texts[3], &group.texts[0]);
    let seen = case.run(
        day,
        vec![Do::PrefillAndJoin((4, a.prompt_ids.clone())), Do::Prefill((7, b.prompt_ids.clone()))],
    )?;
    let input =
        "request 4, a prompt of 16 tokens, runs; then prefill of request 7, a prompt of 4 tokens";
    let passes = model.passes.take();
    let pass = |ids: &[u32]| (vec![ids.to_vec()], vec![(0..ids.len() as u32).collect::<Vec<_>>()]);
    let want = vec![pass(&a.prompt_ids), pass(&b.prompt_ids)];
    equal(&format!("{input}: (ids, positions) of every pass"), Ok(passes), &want)
        .likely("a newcomer's prompt stands at positions from 0, whatever runs beside it")?;
    equal(&format!("{input}: columns of its cache"), Ok(seen[1].columns), &Some(4))
        .likely("a newcomer's prompt goes into an empty cache of its own")?;
    let token = seen[1].tokens.first().map(|token| (token.row, token.id));
    equal(&format!("{input}: (row, id) of its token"), Ok(token), &Some((7, b.new_ids[0])))?;
    let text = [b.prompt_ids.clone(), b.new_ids[..1].to_vec()].concat();
    let row = seen[1].running.last().cloned();
    equal(&format!("{input}: (number, padding, tokens) of its row"), Ok(row), &Some((7, 0, text)))
}

// 15.4

pub fn both_sides_learn_of_their_padding(day: &Day) -> Outcome {
    let group = group("stories")?;
    let model = Watched::new(&group.model)?;
    let case = Case::new(&model, &group);
    let prompt = |i: usize| group.texts[i].prompt_ids.clone();
    // 4, 16, 3 and 4 tokens.
    let order = [0, 3, 4, 1];
    let seen = case.run(day, order.map(|i| Do::PrefillAndJoin((i, prompt(i)))).into())?;
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
            .likely("a longer newcomer pads all who run; a shorter one is padded itself")?;
    }
    let order = [4, 1, 3];
    let seen = case.run(day, order.map(|i| Do::PrefillAndJoin((i, prompt(i)))).into())?;
    let input = "prompts of 3, 4 and 16 tokens join, one after another: (number, padding)";
    equal(input, Ok(padding(&seen[2])), &vec![(4, 13), (1, 12), (3, 0)])
        .likely("padding adds up: 1 column for the second, 12 more for the third")
}

// 15.5

pub fn who_ended_at_once_never_joins(day: &Day) -> Outcome {
    let group = group("commas")?;
    let model = model(&group.model)?;
    let case = Case::new(&*model, &group);
    let mut script: Vec<Do> =
        [1, 0, 4].map(|i| Do::Submit((i, group.texts[i].prompt_ids.clone()))).into();
    script.push(Do::Admit);
    let seen = case.run(day, script)?.pop();
    let Some(seen) = seen else { return Err(Error::Msg("nothing was seen".into()).into()) };
    let input = "requests 1, 0 and 4, all fit, and 0 ends with its first token";
    let tokens: Vec<_> = seen.tokens.iter().map(|t| (t.row, t.id, t.finish)).collect();
    let first = |i: usize| group.texts[i].new_ids[0];
    let want =
        vec![(1, first(1), None), (0, first(0), Some(FinishReason::Eos)), (4, first(4), None)];
    equal(&format!("{input}: (row, id, finish) of what admit gives"), Ok(tokens), &want)?;
    let running: Vec<usize> = seen.running.iter().map(|(id, ..)| *id).collect();
    equal(&format!("{input}: who runs"), Ok(running), &vec![1, 4])
        .likely("a text that ended needs no place in the batch")
}

pub fn nobody_overtakes(day: &Day) -> Outcome {
    let group = group("stories")?;
    let model = model(&group.model)?;
    // 8 new each: request 0 may come to hold 12 tokens, 3 24, 4 11, 5 11.
    let case = Case { bound: 40, ..Case::new(&*model, &group) };
    let mut script: Vec<Do> =
        [0, 3, 4, 5].map(|i| Do::Submit((i, group.texts[i].prompt_ids.clone()))).into();
    script.push(Do::Admit);
    let seen = case.run(day, script)?.pop();
    let Some(seen) = seen else { return Err(Error::Msg("nothing was seen".into()).into()) };
    let who = |seen: &Seen| -> (Vec<usize>, Vec<usize>) {
        (seen.running.iter().map(|(id, ..)| *id).collect(), seen.waiting.clone())
    };
    let input = "requests 0, 3, 4, 5 may come to hold 12, 24, 11 and 11 tokens, the batch 40: who runs, who waits";
    equal(input, Ok(who(&seen)), &(vec![0, 3], vec![4, 5]))?;
    let case = Case { bound: 35, ..case };
    let mut script: Vec<Do> =
        [0, 3, 4, 5].map(|i| Do::Submit((i, group.texts[i].prompt_ids.clone()))).into();
    script.push(Do::Admit);
    let seen = case.run(day, script)?.pop();
    let Some(seen) = seen else { return Err(Error::Msg("nothing was seen".into()).into()) };
    let input = "requests 0, 3, 4, 5 may come to hold 12, 24, 11 and 11 tokens, the batch 35: who runs, who waits";
    equal(input, Ok(who(&seen)), &(vec![0], vec![3, 4, 5])).likely(
        "4 would fit, but 3 came first: nobody overtakes, or a long request could wait for ever",
    )
}

// 15.6

pub fn no_token_is_lost(day: &Day) -> Outcome {
    let group = group("stories")?;
    let model = model(&group.model)?;
    let case = Case::new(&*model, &group);
    let prompt = |i: usize| (i, group.texts[i].prompt_ids.clone());
    let script = vec![Do::Submit(prompt(0)), Do::Step, Do::Submit(prompt(4)), Do::Step, Do::Step];
    let seen = case.run(day, script)?;
    let mut got: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for token in seen.iter().flat_map(|seen| &seen.tokens) {
        got.entry(token.row).or_default().push(token.id);
    }
    let input = "request 0, a step, request 4, two more steps";
    let running = seen.last().map_or(0, |seen| seen.running.len());
    equal(&format!("{input}: rows that run"), Ok(running), &2)?;
    equal(
        &format!("{input}: the first token of each"),
        Ok([0, 4].map(|i| got.get(&i).and_then(|ids| ids.first()).copied())),
        &[0, 4].map(|i| Some(group.texts[i].new_ids[0])),
    )
    .likely("the step that admits a request gives its first token, too")?;
    for (id, row) in
        seen.last().into_iter().flat_map(|seen| &seen.running).map(|(id, _, row)| (*id, row))
    {
        let want = row[group.texts[id].prompt_ids.len()..].to_vec();
        let ids = got.get(&id).cloned().unwrap_or_default();
        equal(&format!("{input}: the tokens given, and those in row {id}"), Ok(ids), &want)?;
    }
    Ok(())
}

pub fn what_cannot_run_is_refused(day: &Day) -> Outcome {
    let model = Fake::wants(100, 20, 50, |ids| ids[ids.len() - 1] + 1);
    let tokenizer = tokenizer()?;
    let run = |most: usize, bound: usize, cache: NewCache, prompt: usize, step: bool| {
        let options = || GenerationOptions::new(model.config(), most, greedy);
        let setup = Setup { model: &model, tokenizer: &tokenizer, options: &options, cache, bound };
        let mut script = vec![Do::Submit((0, vec![5; prompt]))];
        script.extend(step.then_some(Do::Step));
        let seen = (day.run)(&setup, script)?;
        Ok(seen.iter().map(|seen| seen.tokens.len()).sum::<usize>())
    };
    let none = || Box::new(NoCache) as Box<dyn Cache>;
    let input = "a prompt of 4 tokens, a batch of 5, a context of 20";
    equal(&format!("{input}, 1 new: tokens of a step"), run(1, 5, &none, 4, true), &1)?;
    refused(&format!("{input}, 0 new"), run(0, 5, &none, 4, false), &["max_new_tokens"])?;
    refused(&format!("{input}, 2 new"), run(2, 5, &none, 4, false), &["6"])
        .likely("it could never be admitted, and all behind it would wait for ever")?;
    refused("an empty prompt", run(1, 5, &none, 0, false), &["empty"])?;
    refused("a prompt of 21, a context of 20", run(1, 50, &none, 21, false), &["context"])?;
    let sliding = || Box::new(KvCache::new(CacheKind::Sliding(9), 1)) as Box<dyn Cache>;
    refused("a cache that slides", run(1, 5, &sliding, 4, false), &["sliding"])
}

/// All requests of a group, at the step that `at` says, in this order.
fn served(
    day: &Day,
    case: &Case,
    group: &Group,
    order: &[usize],
    at: impl Fn(usize) -> usize,
    input: &str,
) -> Outcome {
    let arrivals: Vec<(usize, Request)> = order
        .iter()
        .enumerate()
        .map(|(place, i)| (at(place), (*i, group.texts[*i].prompt_ids.clone())))
        .collect();
    let want: Vec<_> = order.iter().map(|i| (*i, group.texts[*i].new_ids.clone())).collect();
    let steps: Vec<usize> = arrivals.iter().map(|(at, _)| *at).collect();
    let input = format!(
        "{input}, requests {order:?} arrive at steps {steps:?}, at most {} tokens",
        case.bound
    );
    each(&input, &case.serve(day, &input, &arrivals)?, &want)
}

pub fn every_sequence_equals_hf(day: &Day) -> Outcome {
    for name in ["commas", "stories"] {
        let group = group(name)?;
        let model = model(&group.model)?;
        let mut case = Case::new(&*model, &group);
        let order: Vec<usize> = (0..group.texts.len()).collect();
        served(day, &case, &group, &order, |_| 0, &group.model)?;
        case.kind = CacheKind::Static(model.config().max_position_embeddings);
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

pub fn in_any_order_of_arrival(day: &Day) -> Outcome {
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
        // 32 tokens is what the longest may come to hold.
        let case = Case { bound: 32 + 20 * (round % 3), ..Case::new(&*model, &group) };
        served(day, &case, &group, &order, |place| steps[place], &group.model)?;
    }
    Ok(())
}

pub fn when_the_batch_ran_empty(day: &Day) -> Outcome {
    let group = group("commas")?;
    let model = model(&group.model)?;
    let case = Case { bound: 32, ..Case::new(&*model, &group) };
    served(day, &case, &group, &[3, 4, 5], |place| 30 * place, &group.model).likely(
        "if 15.3 and 15.4 pass: nobody runs, but the cache may still hold who ran last, and a newcomer must not join those rows",
    )
}

fn by_chacha() -> Choose<'static> {
    chacha_sampler(15)
}

pub fn sampled_it_equals_alone(day: &Day) -> Outcome {
    let group = group("commas")?;
    let model = model(&group.model)?;
    let case = Case { bound: 70, choose: by_chacha, ..Case::new(&*model, &group) };
    let order = [2, 5, 0, 3, 1, 4];
    let arrivals: Vec<(usize, Request)> = order
        .iter()
        .enumerate()
        .map(|(place, i)| (2 * place, (*i, group.texts[*i].prompt_ids.clone())))
        .collect();
    let want = arrivals
        .iter()
        .map(|(_, request)| Ok((request.0, case.alone(request)?)))
        .collect::<Result<Vec<_>>>()?;
    let input = format!("{}, sampled with --rng chacha --seed 15, requests {order:?}", group.model);
    each(&input, &case.serve(day, &input, &arrivals)?, &want)
        .likely("every request draws from a stream of its own number, whatever row it is in")
}

pub fn when_windows_move(day: &Day) -> Outcome {
    let group = group("stories")?;
    let model = model(&group.model)?;
    let context = model.config().max_position_embeddings;
    let case = Case { bound: 2000, most: 10, eos: vec![], ..Case::new(&*model, &group) };
    let long = group.texts[3].prompt_ids.iter().cycle().take(context - 4).copied().collect();
    let arrivals = [
        (0, (0, group.texts[0].prompt_ids.clone())),
        (2, (1, long)),
        (5, (2, group.texts[4].prompt_ids.clone())),
    ];
    let want = arrivals
        .iter()
        .map(|(_, request)| Ok((request.0, case.alone(request)?)))
        .collect::<Result<Vec<_>>>()?;
    let input = format!(
        "{}, a prompt of {} tokens between short ones, a context of {context}",
        group.model,
        context - 4
    );
    each(&input, &case.serve(day, &input, &arrivals)?, &want)
}
