//! Day 23's checks: a token budget.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day23_token_budget;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day23_token_budget.rs"]
mod day23_token_budget;

use candecode::day07_greedy::{argmax, Sequence};
use candecode::day08_sampling::chacha_sampler;
use candecode::day10_kv_cache::{generate_cached, Cached, DynamicCache};
use candecode::kit::{Model, Request, Sampler, Token, Tokenizer};
use candecode_engine::load::load_transformer;
use candle_core::{DType, Error, Result};
use frame::{device, ensure, equal, golden_json, models_dir, ops, refused, tokenizer};
use frame::{Failure, Fake, Likely, Outcome, Random};
use std::collections::BTreeMap;

/// The parameters of a request, as plain data.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    pub id: usize,
    pub prompt: Vec<u32>,
    pub most: usize,
    pub eos: Vec<u32>,
    /// Samples with `--rng chacha` and this seed. None is greedy.
    pub seed: Option<u64>,
    pub salt: &'static str,
}

impl Ask {
    fn new(id: usize, len: usize, most: usize) -> Self {
        let prompt = (0..len as u32).map(|i| 10 + 100 * id as u32 + i).collect();
        Self { id, prompt, most, eos: Vec::new(), seed: None, salt: "" }
    }

    /// Builds the request.
    pub fn request(&self, model: &dyn Model) -> Request<'static> {
        let sampler: Sampler = match self.seed {
            Some(seed) => chacha_sampler(seed, self.id),
            None => Box::new(argmax),
        };
        let mut request = Request::new(model.config(), &self.prompt, self.most, sampler);
        request.id = self.id;
        request.eos_token_ids.clone_from(&self.eos);
        request.cache_salt = self.salt.to_string();
        request
    }
}

/// The parts of a scheduler.
pub struct Setup<'a> {
    pub model: &'a dyn Model,
    pub tokenizer: &'a Tokenizer,
    pub blocks: usize,
    pub block_size: usize,
    /// The maximum number of tokens per step, and of running sequences.
    pub limits: (usize, usize),
    /// Whether prefixes are shared.
    pub prefixes: bool,
}

/// One operation on a scheduler.
#[derive(Debug, Clone, PartialEq)]
pub enum Do {
    Submit(Ask),
    /// Puts a request among the running ones: this many of its tokens are in the cache, and then it
    /// has got this token.
    Run(Ask, usize, Option<u32>),
    /// Ends a running sequence.
    End(usize),
    /// Gives this token to each sequence whose tokens are all in the cache, and ends those that
    /// have all theirs.
    Grow(u32),
    PlanRunning(usize),
    PlanWaiting(usize),
    Schedule,
    Preempt,
    Cancel(usize),
    /// Turns made-up logits for the last plan into tokens, so that each sequence's next token is
    /// this one.
    Tokens(u32),
    Step,
}

/// A part of a plan: (sequence, start, new).
pub type Part = (usize, usize, usize);

/// A scheduler after an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// The plan, if the operation made one.
    pub plan: Vec<Part>,
    /// The tokens that it returned.
    pub tokens: Vec<Token>,
    /// The id and tokens of each running sequence.
    pub running: Vec<(usize, Vec<u32>)>,
    /// The ids of the waiting requests.
    pub waiting: Vec<usize>,
    /// The number of free blocks.
    pub free: usize,
    pub preemptions: usize,
    /// The numbers of tokens looked up in the prefix cache, and of those found there.
    pub lookups: (usize, usize),
}

/// The day 23 functions under test.
#[derive(Clone, Copy)]
pub struct Day {
    pub run: for<'a> fn(&'a Setup<'a>, Vec<Do>) -> Result<Vec<Seen>>,
    pub shares: fn(&[usize], usize) -> Vec<usize>,
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        crate::Day {
            run: |setup, script| {
                use candecode::day07_greedy::Sequence;
                use candecode::day21_pages::PagedCache;
                use candecode::day22_shared_prefixes::PrefixCache;
                let layers = setup.model.config().num_hidden_layers;
                let cache = PagedCache::new(layers, setup.blocks, setup.block_size)?;
                let prefixes = setup.prefixes.then(PrefixCache::new);
                let (max_num_batched_tokens, max_num_seqs) = setup.limits;
                let limits = code::Limits { max_num_batched_tokens, max_num_seqs };
                let (model, tokenizer) = (setup.model, setup.tokenizer);
                let mut scheduler =
                    code::TokenScheduler::new(model, tokenizer, cache, prefixes, limits)?;
                let mut last: Vec<_> = Vec::new();
                let mut all = Vec::new();
                for what in script {
                    let (mut plan, mut tokens) = (Vec::new(), Vec::new());
                    match what {
                        crate::Do::Submit(ask) => scheduler.submit(ask.request(model))?,
                        crate::Do::Run(ask, held, token) => {
                            let mut sequence = Sequence::new(ask.request(model), tokenizer);
                            sequence.tokens.extend(token);
                            scheduler.cache.reserve(ask.id, held)?;
                            if let Some(prefixes) = &mut scheduler.prefixes {
                                let salt = &sequence.request.cache_salt;
                                prefixes.cache_full_blocks(
                                    &scheduler.cache,
                                    ask.id,
                                    &sequence.tokens,
                                    salt,
                                );
                            }
                            scheduler.running.push(sequence);
                        }
                        crate::Do::End(id) => {
                            scheduler.cache.release(id);
                            scheduler.running.retain(|sequence| sequence.request.id != id);
                        }
                        crate::Do::Grow(token) => {
                            for sequence in &mut scheduler.running {
                                let id = sequence.request.id;
                                if scheduler.cache.len_of(id) == sequence.tokens.len() {
                                    sequence.tokens.push(token);
                                }
                                if crate::is_complete(sequence) {
                                    scheduler.cache.release(id);
                                }
                            }
                            scheduler.running.retain(|sequence| !crate::is_complete(sequence));
                        }
                        crate::Do::PlanRunning(budget) => plan = scheduler.plan_running(budget)?,
                        crate::Do::PlanWaiting(budget) => plan = scheduler.plan_waiting(budget)?,
                        crate::Do::Schedule => plan = scheduler.schedule()?,
                        crate::Do::Preempt => scheduler.preempt(),
                        crate::Do::Cancel(id) => scheduler.cancel(id),
                        crate::Do::Tokens(id) => {
                            let mut logits = vec![0.0; model.config().vocab_size];
                            logits[id as usize] = 9.0;
                            tokens = scheduler.postprocess(&last, &vec![logits; last.len()]);
                        }
                        crate::Do::Step => tokens = scheduler.step()?,
                    }
                    if !plan.is_empty() {
                        last.clone_from(&plan);
                    }
                    let prefixes = scheduler.prefixes.as_ref();
                    let running = scheduler.running.iter();
                    let waiting = scheduler.waiting.iter();
                    all.push(crate::Seen {
                        plan: plan
                            .iter()
                            .map(|part| (part.sequence, part.start, part.new))
                            .collect(),
                        tokens,
                        running: running.map(|s| (s.request.id, s.tokens.clone())).collect(),
                        waiting: waiting.map(|s| s.request.id).collect(),
                        free: scheduler.cache.pool.num_free(),
                        preemptions: scheduler.num_preemptions,
                        lookups: prefixes.map_or((0, 0), |cache| (cache.queries, cache.hits)),
                    });
                }
                Ok(all)
            },
            shares: code::fair_shares,
        }
    }};
}

frame::checks! {
    day23_token_budget:
    23.1: a_request_that_can_never_finish_is_refused, requests_wait_in_submission_order;
    23.2: preemption_moves_the_youngest_request_to_the_queue_front;
    23.3: the_oldest_come_first, a_long_prompt_resumes_where_it_stopped,
        the_youngest_sequence_is_preempted_first;
    23.4: prompts_start_within_the_budget, prompts_start_while_free_blocks_remain,
        a_known_prefix_is_not_scheduled, a_preempted_request_is_recomputed;
    23.5: running_sequences_spend_first, a_preempted_sequence_waits_a_step,
        no_step_exceeds_the_budget;
    23.6: full_blocks_are_remembered, an_incomplete_prefill_yields_no_token,
        every_sequence_equals_transformers, with_few_blocks_too, sampled_it_equals_alone;
    23.7: canceling_a_request_frees_its_blocks_at_once, any_order_of_arrival;
    23.8: shares_by_hand, nobody_could_get_more;
}

/// Returns true if a sequence has all its new tokens.
fn is_complete(sequence: &Sequence) -> bool {
    sequence.tokens.len() >= sequence.request.prompt.len() + sequence.request.max_new_tokens
}

/// Returns a model whose logits no check uses.
fn idle_model() -> Fake {
    Fake::wants(2000, 300, 0, |ids| ids[ids.len() - 1] + 1)
}

/// Runs a script without a model, on blocks of 4.
fn planned(day: &Day, blocks: usize, limits: (usize, usize), script: Vec<Do>) -> Result<Vec<Seen>> {
    let (model, tokenizer) = (idle_model(), tokenizer()?);
    let setup = Setup {
        model: &model,
        tokenizer: &tokenizer,
        blocks,
        block_size: 4,
        limits,
        prefixes: false,
    };
    (day.run)(&setup, script)
}

fn submit(id: usize, len: usize, most: usize) -> Do {
    Do::Submit(Ask::new(id, len, most))
}

/// Returns the last plan of a script.
fn plan(seen: &[Seen]) -> Vec<Part> {
    seen.last().map(|seen| seen.plan.clone()).unwrap_or_default()
}

fn ids(seen: &Seen) -> (Vec<usize>, Vec<usize>) {
    (seen.running.iter().map(|(id, _)| *id).collect(), seen.waiting.clone())
}

// 23.1

fn a_request_that_can_never_finish_is_refused(day: &Day) -> Outcome {
    let one =
        |len, most| planned(day, 5, (8, 8), vec![submit(0, len, most)]).map(|seen| ids(&seen[0]));
    let input = "5 blocks of 4";
    equal(
        &format!("{input}, a prompt of 12, 9 new: (running, waiting)"),
        one(12, 9),
        &(vec![], vec![0]),
    )
    .likely("12 + 9 = 21, and the last token is never fed: 20 positions are enough")?;
    refused(&format!("{input}, a prompt of 12, 10 new"), one(12, 10), &["21", "20"])
        .likely("it would run until it has used all blocks, and be preempted forever")?;
    refused(&format!("{input}, a prompt of 3, 0 new"), one(3, 0), &["max_new_tokens"])
}

fn requests_wait_in_submission_order(day: &Day) -> Outcome {
    let script = vec![submit(4, 3, 2), submit(2, 9, 2), submit(7, 1, 2)];
    let seen = planned(day, 5, (8, 8), script)?;
    equal(
        "requests 4, 2 and 7 are submitted: (running, waiting)",
        Ok(ids(&seen[2])),
        &(vec![], vec![4, 2, 7]),
    )
}

// 23.2

fn preemption_moves_the_youngest_request_to_the_queue_front(day: &Day) -> Outcome {
    let script = vec![
        Do::Run(Ask::new(0, 6, 5), 6, Some(77)),
        Do::Run(Ask::new(1, 3, 5), 3, Some(77)),
        submit(2, 9, 5),
        Do::Preempt,
        Do::Preempt,
        Do::Preempt,
    ];
    let seen = planned(day, 9, (9, 8), script)?;
    let input = "blocks of 4; 0 (6 tokens) and 1 (3) run and have a new token, 2 waits; the \
                 youngest is preempted";
    equal(&format!("{input}: (running, waiting)"), Ok(ids(&seen[3])), &(vec![0], vec![1, 2]))
        .likely("it has already waited, so it goes to the front of the queue")?;
    equal(
        &format!("{input}: free blocks, preemptions"),
        Ok((seen[3].free, seen[3].preemptions)),
        &(7, 1),
    )?;
    let input = format!("{input}, and once more, and once more");
    let now = (ids(&seen[5]), seen[5].free, seen[5].preemptions);
    equal(
        &format!("{input}: (running, waiting), free blocks, preemptions"),
        Ok(now),
        &((vec![], vec![0, 1, 2]), 9, 2),
    )
}

// 23.3

/// Puts prompts of these lengths among the running sequences. Each has got its first token.
fn running(lens: &[usize]) -> Vec<Do> {
    let run = |(id, len): (usize, &usize)| Do::Run(Ask::new(id, *len, 20), *len, Some(77));
    lens.iter().enumerate().map(run).collect()
}

fn the_oldest_come_first(day: &Day) -> Outcome {
    for (budget, want) in [
        (9, vec![(0, 3, 1), (1, 5, 1), (2, 2, 1)]),
        (2, vec![(0, 3, 1), (1, 5, 1)]),
        (1, vec![(0, 3, 1)]),
        (0, vec![]),
    ] {
        let script = [running(&[3, 5, 2]), vec![Do::PlanRunning(budget)]].concat();
        let input = format!(
            "0, 1 and 2 run, with prompts of 3, 5 and 2 and a new token each; a budget of \
             {budget}: (sequence, start, new)"
        );
        equal(&input, planned(day, 30, (99, 9), script).map(|seen| plan(&seen)), &want)?;
    }
    Ok(())
}

fn a_long_prompt_resumes_where_it_stopped(day: &Day) -> Outcome {
    let ask = Ask::new(0, 20, 5);
    let script = vec![Do::Run(ask, 6, None), Do::PlanRunning(9), Do::PlanRunning(9)];
    let script = [script, vec![Do::Grow(77), Do::PlanRunning(9)]].concat();
    let seen = planned(day, 30, (99, 9), script)?;
    let plans: Vec<_> = [1, 2, 4].iter().flat_map(|i| seen[*i].plan.clone()).collect();
    let input = "a prompt of 20, of which 6 are in the cache, and three budgets of 9: (sequence, \
                 start, new)";
    equal(input, Ok(plans), &vec![(0, 6, 9), (0, 15, 5), (0, 20, 1)])
        .likely("a sequence still needs its tokens minus those in the cache")
}

/// Returns the last plan of a script, and the ids of those that run and wait in the end.
fn plan_and_end(seen: Vec<Seen>) -> (Vec<Part>, (Vec<usize>, Vec<usize>)) {
    (plan(&seen), seen.last().map(ids).unwrap_or_default())
}

fn the_youngest_sequence_is_preempted_first(day: &Day) -> Outcome {
    // Prompts that exactly fill their blocks, so that the next token of each needs a new block.
    for (blocks, lens, want, left, waits) in [
        (6, vec![4, 4, 4], vec![(0, 4, 1), (1, 4, 1), (2, 4, 1)], vec![0, 1, 2], vec![]),
        (5, vec![4, 4, 4], vec![(0, 4, 1), (1, 4, 1)], vec![0, 1], vec![2]),
        (4, vec![4, 4, 4], vec![(0, 4, 1), (1, 4, 1)], vec![0, 1], vec![2]),
        (3, vec![4, 4, 4], vec![(0, 4, 1)], vec![0], vec![1, 2]),
        (3, vec![4, 3, 4], vec![(0, 4, 1), (1, 3, 1)], vec![0, 1], vec![2]),
    ] {
        let script = [running(&lens), vec![Do::PlanRunning(99)]].concat();
        let seen = planned(day, blocks, (1000, 9), script);
        let input = format!(
            "{blocks} blocks of 4; prompts of {lens:?} run, and each needs 1 more position: plan, \
             (running, waiting)"
        );
        equal(&input, seen.map(plan_and_end), &(want, (left, waits)))
            .likely("the oldest continues; the youngest is preempted to make room")?;
    }
    // The oldest is in the middle of its prompt, and needs the blocks of both others.
    let begun = Do::Run(Ask::new(0, 12, 20), 4, None);
    let script =
        [vec![begun], running(&[4, 4, 4]).split_off(1), vec![Do::PlanRunning(99)]].concat();
    let seen = planned(day, 3, (1000, 9), script);
    let input =
        "3 blocks of 4; a prompt of 12 has 4 tokens in the cache, and two prompts of 4 run: \
                 plan, (running, waiting)";
    equal(input, seen.map(plan_and_end), &(vec![(0, 4, 8)], (vec![0], vec![1, 2])))
        .likely("preempt until there are enough blocks")?;
    // The youngest gives way to itself, even if its own blocks aren't enough for what it lacks.
    let begun = Do::Run(Ask::new(1, 20, 20), 4, None);
    let script = vec![Do::Run(Ask::new(0, 4, 20), 4, Some(77)), begun, Do::PlanRunning(99)];
    let seen = planned(day, 3, (1000, 9), script);
    let input = "3 blocks of 4; a prompt of 4 runs and has a new token, and of a prompt of 20, 4 \
                 tokens are computed: plan, (running, waiting)";
    equal(input, seen.map(plan_and_end), &(vec![(0, 4, 1)], (vec![0], vec![1])))
        .likely("the oldest continues; the youngest is preempted, and no other")
}

// 23.4

fn prompts_start_within_the_budget(day: &Day) -> Outcome {
    let lens = [5, 7, 3];
    for (budget, seqs, want) in [
        (100, 9, vec![(0, 0, 5), (1, 0, 7), (2, 0, 3)]),
        (9, 9, vec![(0, 0, 5), (1, 0, 4)]),
        (12, 9, vec![(0, 0, 5), (1, 0, 7)]),
        (3, 9, vec![(0, 0, 3)]),
        (100, 2, vec![(0, 0, 5), (1, 0, 7)]),
        (0, 9, vec![]),
    ] {
        let mut script: Vec<Do> = (0..3).map(|id| submit(id, lens[id], 4)).collect();
        script.push(Do::PlanWaiting(budget));
        let input = format!(
            "prompts of {lens:?} wait, at most {seqs} may run, a budget of {budget}: (sequence, \
             start, new)"
        );
        equal(&input, planned(day, 30, (1000, seqs), script).map(|seen| plan(&seen)), &want)?;
    }
    Ok(())
}

fn prompts_start_while_free_blocks_remain(day: &Day) -> Outcome {
    for (blocks, want, rest) in [
        (8, vec![(0, 0, 6), (1, 0, 9), (2, 0, 2)], (2, vec![])),
        (5, vec![(0, 0, 6), (1, 0, 9)], (0, vec![2])),
        (4, vec![(0, 0, 6)], (2, vec![1, 2])),
    ] {
        let script = vec![submit(0, 6, 1), submit(1, 9, 1), submit(2, 2, 1), Do::PlanWaiting(99)];
        let seen = planned(day, blocks, (1000, 9), script)?;
        let got = (plan(&seen), seen.last().map(|seen| (seen.free, seen.waiting.clone())));
        let input = format!(
            "{blocks} blocks of 4; prompts of 6, 9 and 2 wait: plan, (free blocks, waiting)"
        );
        equal(&input, Ok(got), &(want, Some(rest))).likely(
            "first come, first served: a prompt that doesn't fit holds nothing, and the rest wait",
        )?;
    }
    let script = vec![submit(0, 8, 1), submit(1, 8, 9), Do::PlanWaiting(99)];
    let input = "5 blocks of 4; prompts of 8 and 8 wait, 1 and 9 new tokens: the plan";
    let got = planned(day, 5, (1000, 9), script).map(|seen| plan(&seen));
    equal(input, got, &vec![(0, 0, 8), (1, 0, 8)])
        .likely("a text starts if all its tokens fit; its future tokens aren't counted")?;
    // All tokens that a text already has need blocks. Future tokens don't.
    for (blocks, want, free) in [(7, vec![(0, 0, 16), (1, 0, 4)], 2), (6, vec![(0, 0, 16)], 2)] {
        let script = vec![submit(0, 16, 1), submit(1, 12, 9), Do::PlanWaiting(20)];
        let seen = planned(day, blocks, (1000, 9), script)?;
        let input = format!(
            "{blocks} blocks of 4; prompts of 16 and 12 wait, 1 and 9 new tokens, a budget of 20: \
             plan, free blocks"
        );
        let got = (plan(&seen), seen.last().map_or(0, |seen| seen.free));
        equal(&input, Ok(got), &(want, free)).likely(
            "a text starts if all its tokens fit, and takes the blocks of its first chunk; its \
             future tokens aren't counted",
        )?;
    }
    Ok(())
}

fn a_known_prefix_is_not_scheduled(day: &Day) -> Outcome {
    let (model, tokenizer) = (idle_model(), tokenizer()?);
    let run = |prefixes| -> Result<Vec<Seen>> {
        let setup = Setup {
            model: &model,
            tokenizer: &tokenizer,
            blocks: 20,
            block_size: 4,
            limits: (99, 9),
            prefixes,
        };
        let same = Ask { id: 1, ..Ask::new(0, 14, 4) };
        let script = [running(&[14]), vec![Do::Submit(same), Do::PlanWaiting(99)]].concat();
        (day.run)(&setup, script)
    };
    let lookups = |seen: &[Seen]| seen.last().map(|seen| seen.lookups);
    let input = "a prompt of 14 runs and arrives again, blocks of 4";
    let shared = run(true)?;
    equal(&format!("{input}: the plan, prefixes shared"), Ok(plan(&shared)), &vec![(1, 12, 2)])
        .likely("the prompt's cached blocks (day 22) need no computing")?;
    equal(&format!("{input}: tokens (looked up, found)"), Ok(lookups(&shared)), &Some((14, 12)))
        .likely("the found tokens are those in the cache before the sequence takes blocks")?;
    let plain = run(false).map(|seen| plan(&seen));
    equal(&format!("{input}: the plan, not shared"), plain, &vec![(1, 0, 14)])?;
    // Request 2 begins like 0, whose blocks are free by then: it finds two and lacks three.
    let setup = Setup {
        model: &model,
        tokenizer: &tokenizer,
        blocks: 6,
        block_size: 4,
        limits: (99, 9),
        prefixes: true,
    };
    let prompt = [Ask::new(0, 8, 1).prompt, Ask::new(3, 12, 1).prompt].concat();
    let longer = Ask { prompt, ..Ask::new(2, 20, 1) };
    let script = vec![Do::Run(Ask::new(0, 12, 1), 12, None), Do::End(0), submit(1, 8, 1)];
    let script = [script, vec![Do::Submit(longer), Do::PlanWaiting(99)]].concat();
    let seen = (day.run)(&setup, script)?;
    let got = (plan(&seen), seen.last().map_or(0, |seen| seen.free));
    let input =
        "6 blocks of 4; a prompt of 12 has run and ended; a prompt of 8 and one of 20, which \
                 begins with 8 tokens of the first, wait";
    equal(&format!("{input}: plan, free blocks"), Ok(got), &(vec![(1, 0, 8)], 4))
        .likely("a request that can't start holds nothing, not even its cached prefix")?;
    equal(&format!("{input}: tokens (looked up, found)"), Ok(lookups(&seen)), &Some((8, 0)))
        .likely("a lookup counts when its sequence starts, not each time that it can't")
}

fn a_preempted_request_is_recomputed(day: &Day) -> Outcome {
    let script = [running(&[3]), vec![Do::Preempt, Do::PlanWaiting(9)]].concat();
    let seen = planned(day, 9, (9, 8), script)?;
    let input = "a prompt of 3 runs, gets a token, is preempted and planned again: the plan";
    equal(input, Ok(plan(&seen)), &vec![(0, 0, 4)])
        .likely("it keeps its tokens, including the new one, and all of them are recomputed")
}

// 23.5

fn running_sequences_spend_first(day: &Day) -> Outcome {
    let script = [running(&[3, 5]), vec![submit(2, 30, 4), submit(3, 2, 4), Do::Schedule]].concat();
    let seen = planned(day, 30, (10, 9), script)?;
    let input = "0 and 1 run, prompts of 30 and 2 wait, 10 tokens per step: the plan";
    equal(input, Ok(plan(&seen)), &vec![(0, 3, 1), (1, 5, 1), (2, 0, 8)])
        .likely("the next tokens of running sequences come first, and prompts get what is left")
}

fn a_preempted_sequence_waits_a_step(day: &Day) -> Outcome {
    let (model, tokenizer) = (idle_model(), tokenizer()?);
    let setup = Setup {
        model: &model,
        tokenizer: &tokenizer,
        blocks: 5,
        block_size: 4,
        limits: (99, 9),
        prefixes: true,
    };
    let same = Ask { id: 1, ..Ask::new(0, 8, 4) };
    let script = [running(&[8]), vec![Do::Run(same, 8, Some(77)), Do::Schedule]].concat();
    let script = [script, vec![Do::End(0), Do::Schedule]].concat();
    let seen = (day.run)(&setup, script)?;
    let got = ((seen[2].plan.clone(), ids(&seen[2])), seen[2].preemptions);
    let input = "5 blocks of 4; 0 and 1 have the same prompt of 8, each in two blocks of its own, \
         and continue: (plan, (running, waiting)), preemptions";
    equal(input, Ok(got), &((vec![(0, 8, 1)], (vec![0], vec![1])), 1)).likely(
        "if it started again at once, it would take the blocks that others are about to need",
    )?;
    let got = (plan(&seen), seen.last().map(ids).unwrap_or_default());
    equal(
        "5 blocks of 4; 0 and 1 have the same prompt of 8; 1 was preempted, and now 0 ends: (plan, \
            (running, waiting)) of the next step",
        Ok(got),
        &(vec![(1, 8, 1)], (vec![1], vec![])),
    )
    .likely("only the step that preempts starts no sequence")
}

fn no_step_exceeds_the_budget(day: &Day) -> Outcome {
    let mut random = Random::new(235);
    for round in 0..20 {
        let (budget, seqs, blocks) =
            (1 + random.below(12), 1 + random.below(5), 8 + random.below(8));
        let mut script = Vec::new();
        for id in 0..12 {
            script.push(submit(id, 1 + random.below(20), 1 + random.below(10)));
            for _ in 0..random.below(4) {
                script.extend([Do::Schedule, Do::Grow(77)]);
            }
        }
        let seen = planned(day, blocks, (budget, seqs), script)?;
        for (i, seen) in seen.iter().enumerate() {
            let new: usize = seen.plan.iter().map(|(_, _, new)| new).sum();
            let input = format!(
                "at most {budget} tokens and {seqs} sequences, {blocks} blocks, round {round}, \
                 operation {i}: the plan {:?}",
                seen.plan
            );
            ensure(&input, new <= budget, &format!("it has {new} tokens"))?;
            let running = seen.running.len();
            ensure(&input, running <= seqs, &format!("{running} sequences run"))?;
        }
    }
    Ok(())
}

// 23.6

fn full_blocks_are_remembered(day: &Day) -> Outcome {
    let (model, tokenizer) = (idle_model(), tokenizer()?);
    let setup = Setup {
        model: &model,
        tokenizer: &tokenizer,
        blocks: 20,
        block_size: 4,
        limits: (9, 9),
        prefixes: true,
    };
    let same = Ask { id: 1, ..Ask::new(0, 14, 4) };
    let run = |first: Ask, again: Ask| {
        let script = vec![Do::Submit(first), Do::Schedule, Do::Tokens(77), Do::Submit(again)];
        (day.run)(&setup, [script, vec![Do::Schedule]].concat()).map(|seen| plan(&seen))
    };
    let input = "blocks of 4, 9 tokens per step; a prompt of 14 has run its first chunk, and \
                 arrives again";
    let first = Ask::new(0, 14, 4);
    let got = run(first.clone(), same.clone());
    equal(&format!("{input}: the plan"), got, &vec![(0, 9, 5), (1, 8, 4)]).likely(
        "the full blocks of a chunk are cached at once, not only those of a whole prompt",
    )?;
    let got = run(Ask { salt: "secret", ..first }, same);
    let input = format!("{input}, the first time with a salt: the plan");
    equal(&input, got, &vec![(0, 9, 5), (1, 0, 4)])
        .likely("the salt keeps a request's blocks from all others: cache them under its salt")?;
    let setup = Setup { limits: (30, 9), ..setup };
    let script = vec![
        Do::Submit(Ask::new(0, 6, 4)),
        Do::Submit(Ask::new(2, 14, 4)),
        Do::Schedule,
        Do::Tokens(77),
        Do::Submit(Ask { id: 1, ..Ask::new(2, 14, 4) }),
        Do::Schedule,
    ];
    let got = (day.run)(&setup, script).map(|seen| plan(&seen));
    let input = "prompts of 6 and 14 have run in one step, and the second arrives again: the plan";
    equal(input, got, &vec![(0, 6, 1), (2, 14, 1), (1, 12, 2)])
        .likely("the blocks of every chunk are cached, not only those of the first one")
}

fn an_incomplete_prefill_yields_no_token(day: &Day) -> Outcome {
    let script = vec![
        submit(0, 9, 2),
        submit(1, 2, 1),
        Do::Schedule,
        Do::Tokens(77),
        Do::Schedule,
        Do::Tokens(78),
        Do::Schedule,
        Do::Tokens(79),
    ];
    let seen = planned(day, 9, (6, 9), script)?;
    let tokens = |i: usize| -> Vec<(usize, u32)> {
        seen[i].tokens.iter().map(|token| (token.row, token.id)).collect()
    };
    let input =
        "prompts of 9 (2 new) and 2 (1 new), 6 tokens per step: (row, token) of three steps";
    equal(input, Ok([3, 5, 7].map(tokens)), &[vec![], vec![(0, 78), (1, 78)], vec![(0, 79)]])
        .likely("only a sequence whose tokens are all computed gets its next one")?;
    let free = [3, 5, 7].map(|i| seen[i].free);
    equal("… and the free blocks, out of 9 blocks of 4", Ok(free), &[7, 6, 9])
        .likely("a sequence that ends releases its blocks")
}

/// The requests of day 15's `oracle.json`, with transformers' completion of each one alone.
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

fn model(name: &str) -> Result<impl Model> {
    load_transformer(&models_dir()?.join(name), DType::F32, &device()?, &ops()?)
        .map_err(|e| Error::Msg(format!("{e:#}")))
}

/// Runs requests, each arriving before its given step, until all have ended. Checks that all blocks
/// come back, and returns each request's tokens and the number of preemptions.
fn serve(
    day: &Day,
    input: &str,
    setup: &Setup,
    arrivals: &[(usize, Ask)],
    cancelled: Option<(usize, usize)>,
) -> std::result::Result<(BTreeMap<usize, Vec<u32>>, usize), Failure> {
    let mut script = Vec::new();
    let last = arrivals.iter().map(|(at, _)| *at).max().unwrap_or(0);
    // Enough steps to compute each of them twice, one token at a time.
    let work = |ask: &Ask| 3 * (ask.prompt.len() + ask.most);
    let steps: usize = arrivals.iter().map(|(_, ask)| work(ask)).sum();
    for step in 0..last + steps {
        let now = arrivals.iter().filter(|(at, _)| *at == step);
        script.extend(now.map(|(_, ask)| Do::Submit(ask.clone())));
        if let Some((_, id)) = cancelled.filter(|(at, _)| *at == step) {
            script.push(Do::Cancel(id));
        }
        script.push(Do::Step);
    }
    let seen = (day.run)(setup, script)?;
    let mut all: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for token in seen.iter().flat_map(|seen| &seen.tokens) {
        all.entry(token.row).or_default().push(token.id);
    }
    let Some(end) = seen.last() else { return Ok((all, 0)) };
    equal(&format!("{input}: (running, waiting) at the end"), Ok(ids(end)), &(vec![], vec![]))
        .likely("every step must bring some request closer to its end")?;
    equal(&format!("{input}: free blocks at the end"), Ok(end.free), &setup.blocks)
        .likely("a request that leaves must release its blocks")?;
    Ok((all, end.preemptions))
}

/// Serves the stored requests, and compares them with transformers.
fn as_stored(
    day: &Day,
    name: &str,
    limits: (usize, usize),
    blocks: usize,
    block_size: usize,
) -> std::result::Result<usize, Failure> {
    let group = group(name)?;
    let (model, tokenizer) = (model(&group.model)?, tokenizer()?);
    let setup =
        Setup { model: &model, tokenizer: &tokenizer, blocks, block_size, limits, prefixes: true };
    let ask = |(id, text): (usize, &Golden)| {
        let (prompt, eos) = (text.prompt_ids.clone(), group.eos.clone());
        (id / 2, Ask { id, prompt, most: group.max_new_tokens, eos, seed: None, salt: "" })
    };
    let arrivals: Vec<_> = group.texts.iter().enumerate().map(ask).collect();
    let input =
        format!("{}, {} tokens per step, {blocks} blocks of {block_size}", group.model, limits.0);
    let (got, preemptions) = serve(day, &input, &setup, &arrivals, None)?;
    let want: BTreeMap<usize, Vec<u32>> =
        group.texts.iter().map(|text| text.new_ids.clone()).enumerate().collect();
    equal(&format!("{input}: tokens by row"), Ok(got), &want)?;
    Ok(preemptions)
}

fn every_sequence_equals_transformers(day: &Day) -> Outcome {
    for (name, budget) in [("commas", 1), ("commas", 5), ("stories", 8), ("stories", 512)] {
        as_stored(day, name, (budget, 32), 100, 4)?;
    }
    Ok(())
}

fn with_few_blocks_too(day: &Day) -> Outcome {
    let preemptions = as_stored(day, "commas", (16, 32), 12, 4)?;
    ensure("12 blocks for all of these texts: preemptions", preemptions > 0, "there were none")?;
    as_stored(day, "stories", (8, 4), 8, 4).map(drop)
}

/// Decodes one request alone, with day 10's loop.
fn alone(model: &dyn Model, tokenizer: &Tokenizer, ask: &Ask) -> Result<Vec<u32>> {
    let cache = DynamicCache::new(model.config().num_hidden_layers);
    let cached = Cached::new(model, Box::new(cache));
    let tokens: Result<Vec<Token>> =
        generate_cached(cached, tokenizer, ask.request(model))?.collect();
    Ok(tokens?.iter().map(|token| token.id).collect())
}

fn sampled_it_equals_alone(day: &Day) -> Outcome {
    let group = group("commas")?;
    let (model, tokenizer) = (model("story-230k")?, tokenizer()?);
    let ask = |(id, text): (usize, &Golden)| Ask {
        id,
        prompt: text.prompt_ids.clone(),
        most: 9,
        eos: vec![0],
        seed: Some(11),
        salt: "",
    };
    let asks: Vec<Ask> = group.texts.iter().enumerate().map(ask).collect();
    let want: Result<BTreeMap<usize, Vec<u32>>> =
        asks.iter().map(|ask| Ok((ask.id, alone(&model, &tokenizer, ask)?))).collect();
    let want = want?;
    let arrivals: Vec<_> = asks.into_iter().map(|ask| (ask.id % 3, ask)).collect();
    for blocks in [100, 12] {
        let setup = Setup {
            model: &model,
            tokenizer: &tokenizer,
            blocks,
            block_size: 4,
            limits: (7, 9),
            prefixes: true,
        };
        let input = format!("story-230k, sampled, {blocks} blocks of 4, 7 tokens per step");
        let (got, _) = serve(day, &input, &setup, &arrivals, None)?;
        equal(&format!("{input}: tokens by row"), Ok(got), &want).likely(
            "a preempted sequence continues where it stopped: no random number is drawn twice",
        )?;
    }
    Ok(())
}

// 23.7

fn canceling_a_request_frees_its_blocks_at_once(day: &Day) -> Outcome {
    let script = [
        running(&[5, 9, 3]),
        vec![submit(3, 4, 4), Do::Cancel(1), Do::Cancel(3), Do::Cancel(8), Do::Schedule],
    ]
    .concat();
    let seen = planned(day, 9, (1000, 9), script)?;
    let at = |i: usize| (ids(&seen[i]), seen[i].free);
    let input = "9 blocks of 4; 0, 1 and 2 run with 5, 9 and 3 positions, 3 waits; 1 is canceled";
    equal(
        &format!("{input}: (running, waiting), free blocks"),
        Ok(at(4)),
        &((vec![0, 2], vec![3]), 6),
    )?;
    let input = format!("{input}, then 3, then one that doesn't exist");
    equal(
        &format!("{input}: (running, waiting), free blocks"),
        Ok(at(6)),
        &((vec![0, 2], vec![]), 6),
    )?;
    equal(&format!("{input}: the next plan"), Ok(plan(&seen)), &vec![(0, 5, 1), (2, 3, 1)])
}

fn any_order_of_arrival(day: &Day) -> Outcome {
    let (model, tokenizer) = (model("story-230k")?, tokenizer()?);
    let mut random = Random::new(237);
    for round in 0..6 {
        let mut step = 0;
        let mut arrivals = Vec::new();
        for id in 0..7 {
            step += random.below(4);
            let len = 1 + random.below(18);
            let shared = 4 * random.below(4).min(len / 4);
            let token = |i: usize| if i < shared { 300 + i } else { 400 + 20 * id + i };
            let prompt = (0..len).map(|i| token(i) as u32).collect();
            arrivals.push((
                step,
                Ask { id, prompt, most: 1 + random.below(8), eos: vec![0], seed: None, salt: "" },
            ));
        }
        let setup = Setup {
            model: &model,
            tokenizer: &tokenizer,
            blocks: 7 + random.below(12),
            block_size: 4,
            limits: (1 + random.below(9), 1 + random.below(6)),
            prefixes: round % 2 == 0,
        };
        let gone = random.below(7);
        let input = format!(
            "7 random requests, {} blocks of 4, {:?} tokens and sequences, request {gone} is \
             canceled after a while (round {round})",
            setup.blocks, setup.limits
        );
        let cancelled = Some((arrivals[gone].0 + 2, gone));
        let (mut got, _) = serve(day, &input, &setup, &arrivals, cancelled)?;
        got.remove(&gone);
        let mut want = BTreeMap::new();
        for (_, ask) in arrivals.iter().filter(|(_, ask)| ask.id != gone) {
            want.insert(ask.id, alone(&model, &tokenizer, ask)?);
        }
        equal(&format!("{input}: the tokens of the others"), Ok(got), &want)?;
    }
    Ok(())
}

// 23.8

fn shares_by_hand(day: &Day) -> Outcome {
    for (uncomputed, budget, want) in [
        (vec![10, 10], 8, vec![4, 4]),
        (vec![10, 2, 10], 12, vec![5, 2, 5]),
        (vec![10, 2, 10], 13, vec![6, 2, 5]),
        (vec![1, 1, 1], 2, vec![1, 1, 0]),
        (vec![3, 0, 4], 100, vec![3, 0, 4]),
        (vec![], 9, vec![]),
        (vec![4000, 3, 5], 512, vec![504, 3, 5]),
    ] {
        let input =
            format!("prompts that still need {uncomputed:?}, a budget of {budget}: their shares");
        equal(&input, Ok((day.shares)(&uncomputed, budget)), &want)?;
    }
    Ok(())
}

fn nobody_could_get_more(day: &Day) -> Outcome {
    let mut random = Random::new(238);
    for _ in 0..200 {
        let uncomputed: Vec<usize> = (0..random.below(7)).map(|_| random.below(30)).collect();
        let budget = random.below(90);
        let shares = (day.shares)(&uncomputed, budget);
        let input = format!(
            "prompts that still need {uncomputed:?}, a budget of {budget}: shares {shares:?}"
        );
        ensure(&input, shares.len() == uncomputed.len(), "there isn't one share per prompt")?;
        let total: usize = shares.iter().sum();
        let want = budget.min(uncomputed.iter().sum());
        ensure(&input, total == want, &format!("they add up to {total}, not {want}"))?;
        for i in 0..uncomputed.len() {
            ensure(
                &input,
                shares[i] <= uncomputed[i],
                &format!("prompt {i} gets more than it needs"),
            )?;
            let envied = |j: usize| shares[i] < uncomputed[i] && shares[j] > shares[i] + 1;
            if let Some(j) = (0..uncomputed.len()).find(|j| envied(*j)) {
                ensure(&input, false, &format!("prompt {i} could get more, from prompt {j}"))?;
            }
            let later = |j: usize| j > i && shares[i] < uncomputed[i] && shares[j] > shares[i];
            if let Some(j) = (0..uncomputed.len()).find(|j| later(*j)) {
                ensure(
                    &input,
                    false,
                    &format!("prompt {j} gets more than prompt {i}, which is earlier"),
                )?;
            }
        }
    }
    Ok(())
}
