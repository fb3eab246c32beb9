//! Day 11's checks: beam search.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day11_beam_search;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day11_beam_search.rs"]
mod day11_beam_search;

use candecode::day07_greedy::{argmax, generate};
use candecode::day09_penalties::penalties;
use candecode::day12_batching::BatchCache;
use candecode::kit::{
    named, Batch, BeamParams, Cache, EarlyStopping, FinishReason, Hypothesis, Model, NoCache,
    ProcessorInput, Request, SamplingParams, Tokenizer, View,
};
use candle_core::{bail, Device, Error, Result, Tensor};
use frame::{close, ensure, equal, golden_json, model, refused, small_model, tokenizer};
use frame::{Fake, Likely, Outcome, Random, Recall};
use std::cell::RefCell;

/// A beam in any implementation: its tokens and its score.
pub type Beam = (Vec<u32>, f32);
/// A candidate: parent, token, score.
pub type Candidate = (usize, u32, f32);
/// The result of a split: ended beams, running beams, parents.
pub type Split = (Vec<(Vec<u32>, f32, FinishReason)>, Vec<Beam>, Vec<u32>);
/// Decides from the prompt and the new tokens whether the text ends.
pub type Ending<'a> = &'a dyn Fn(&[u32]) -> Result<Option<FinishReason>>;

/// The day 11 functions under test.
#[derive(Clone, Copy)]
pub struct Day {
    pub candidates: fn(&[Beam], &[Vec<f32>], usize) -> Vec<Candidate>,
    pub length_normalized: fn(f32, usize, f64) -> f32,
    pub keep_best: fn(&mut Vec<Hypothesis>, Hypothesis, usize),
    pub can_improve: fn(f32, usize, usize, &[Hypothesis], &BeamParams) -> bool,
    pub split: fn(&[Beam], &[Candidate], usize, Ending) -> Result<Split>,
    pub next_log_probs:
        fn(&dyn Model, &[Vec<u32>], &Request, &mut dyn Cache) -> Result<Vec<Vec<f32>>>,
    pub beam_search: fn(
        &dyn Model,
        &Tokenizer,
        &mut Request,
        &BeamParams,
        &mut dyn Batch,
    ) -> Result<Vec<Hypothesis>>,
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        crate::Day {
            candidates: |beams, log_probs, keep| {
                let beam = |(tokens, score): &crate::Beam| {
                    code::Beam { tokens: tokens.clone(), score: *score }
                };
                let beams: Vec<_> = beams.iter().map(beam).collect();
                let found = code::candidates(&beams, log_probs, keep);
                found.iter().map(|c| (c.parent, c.token, c.score)).collect()
            },
            length_normalized: code::length_normalized,
            keep_best: code::keep_best,
            can_improve: code::can_improve,
            split: |beams, candidates, num_beams, ending| {
                let beam = |(tokens, score): &crate::Beam| {
                    code::Beam { tokens: tokens.clone(), score: *score }
                };
                let beams: Vec<_> = beams.iter().map(beam).collect();
                let candidate = |&(parent, token, score): &crate::Candidate| {
                    code::Candidate { parent, token, score }
                };
                let candidates: Vec<_> = candidates.iter().map(candidate).collect();
                let split = code::split(&beams, &candidates, num_beams, ending)?;
                let ended = split.ended.into_iter();
                let ended = ended.map(|(beam, finish)| (beam.tokens, beam.score, finish));
                let running = split.running.into_iter().map(|beam| (beam.tokens, beam.score));
                Ok((ended.collect(), running.collect(), split.parents))
            },
            next_log_probs: |model, texts, request, cache| {
                let beam = |tokens: &Vec<u32>| code::Beam { tokens: tokens.clone(), score: -1.0 };
                let beams: Vec<_> = texts.iter().map(beam).collect();
                code::next_log_probs(model, &beams, request, cache)
            },
            beam_search: code::beam_search,
        }
    }};
}

frame::checks! {
    day11_beam_search:
    11.1: candidates_by_hand, ties_go_to_the_earlier_beam_and_id,
        impossible_tokens_are_never_candidates, candidates_equal_a_stable_sort;
    11.2: the_best_hypotheses_are_kept_in_order;
    11.3: split_by_hand, an_ending_counts_only_among_the_best_candidates,
        split_follows_its_rule_on_random_candidates;
    11.4: log_probabilities_are_computed_for_every_beam, processors_come_after,
        a_processors_error_is_returned, beams_feed_only_uncached_tokens;
    11.5: two_beams_by_hand, an_ending_makes_room_for_the_next_candidate,
        two_eos_ids_need_three_candidates_per_beam, a_stop_string_is_found_after_the_prompt,
        stop_strings_need_two_candidates_per_beam_without_eos, one_beam_is_greedy,
        enough_beams_find_the_best_sequence_overall, early_stopped_sums_equal_transformers,
        cached_beam_search_equals_uncached, sequences_are_correct_up_to_the_context_limit,
        a_dead_end_ends_only_its_beam, invalid_parameters_are_rejected;
    11.6: length_normalized_by_hand;
    11.7: beam_search_continues_until_num_beams_have_finished, can_improve_by_hand,
        length_penalty_and_early_stopping_by_hand, enough_beams_continue_with_two_eos_ids,
        all_beams_may_end_in_the_same_step,
        enough_beams_find_the_best_sequence_at_any_length_penalty,
        sequences_and_scores_equal_transformers, endings_and_penalties_equal_transformers,
        with_processors_it_equals_transformers;
}

const NEVER: f32 = f32::NEG_INFINITY;

/// Allows for a few f32 sums and quotients of numbers below 30.
const TOLERANCE: f32 = 1e-5;

fn numbers(got: Vec<f32>) -> Result<Tensor> {
    let len = got.len();
    Tensor::from_vec(got, len, &Device::Cpu)
}

/// Checks that two lists of numbers agree.
fn near(input: &str, got: Vec<f32>, want: &[f32], tolerance: f32) -> Outcome {
    close(input, numbers(got), &numbers(want.to_vec())?, tolerance)
}

// 11.1

/// Checks the (parent, token) pairs and their scores.
fn found(input: &str, got: Vec<Candidate>, want: &[Candidate]) -> Outcome {
    let pairs = |list: &[Candidate]| -> Vec<(usize, u32)> {
        list.iter().map(|(parent, token, _)| (*parent, *token)).collect()
    };
    let scores = |list: &[Candidate]| -> Vec<f32> { list.iter().map(|c| c.2).collect() };
    equal(&format!("{input}: (parent, token)"), Ok(pairs(&got)), &pairs(want))?;
    near(&format!("{input}: the scores"), scores(&got), &scores(want), TOLERANCE)
}

fn candidates_by_hand(day: &Day) -> Outcome {
    let beams = [(vec![7], -1.0), (vec![8], -2.0)];
    let rows = [vec![-1.0, -3.0, -0.5], vec![-0.25, -4.0, -2.0]];
    let input = "scores -1 and -2, log-probabilities [-1, -3, -0.5] and [-0.25, -4, -2]";
    let want =
        [(0, 2, -1.5), (0, 0, -2.0), (1, 0, -2.25), (0, 1, -4.0), (1, 2, -4.0), (1, 1, -6.0)];
    for keep in [1, 2, 4, 6, 9] {
        let got = (day.candidates)(&beams, &rows, keep);
        found(&format!("{input}, keep {keep}"), got, &want[..keep.min(6)]).likely(
            "the beam's own score counts: a text's probability is a product, its logarithm a sum",
        )?;
    }
    Ok(())
}

fn ties_go_to_the_earlier_beam_and_id(day: &Day) -> Outcome {
    let beams = [(vec![7], -1.0), (vec![8], -1.0)];
    let rows = [vec![-2.0, -1.0, -1.0], vec![-1.0, -1.0, -2.0]];
    let got = (day.candidates)(&beams, &rows, 3);
    found(
        "two beams at -1, log-probabilities [-2, -1, -1] and [-1, -1, -2], keep 3",
        got,
        &[(0, 1, -2.0), (0, 2, -2.0), (1, 0, -2.0)],
    )
}

fn impossible_tokens_are_never_candidates(day: &Day) -> Outcome {
    let beams = [(vec![7], -1.0), (vec![8], -2.0)];
    let rows = [vec![NEVER, NEVER], vec![NEVER, -1.0]];
    let got = (day.candidates)(&beams, &rows, 4);
    found("log-probabilities [-inf, -inf] and [-inf, -1], keep 4", got, &[(1, 1, -3.0)])
}

fn candidates_equal_a_stable_sort(day: &Day) -> Outcome {
    let mut random = Random::new(111);
    for _ in 0..100 {
        let (beams, vocab, keep) = (1 + random.below(4), 1 + random.below(9), 1 + random.below(9));
        // Multiples of 1/4, so that ties are common and sums are exact.
        let mut number = || -(random.below(20) as f32) / 4.0;
        let rows: Vec<Vec<f32>> =
            (0..beams).map(|_| (0..vocab).map(|_| number()).collect()).collect();
        let beams: Vec<Beam> = (0..beams).map(|i| (vec![i as u32], number())).collect();
        let mut want = Vec::new();
        for (parent, row) in rows.iter().enumerate() {
            want.extend(
                (0..vocab).map(|token| (parent, token as u32, beams[parent].1 + row[token])),
            );
        }
        want.sort_by(|a, b| b.2.total_cmp(&a.2));
        want.truncate(keep);
        let scores: Vec<f32> = beams.iter().map(|beam| beam.1).collect();
        let input = format!("scores {scores:?}, log-probabilities {rows:?}, keep {keep}");
        found(&input, (day.candidates)(&beams, &rows, keep), &want)?;
    }
    Ok(())
}

// 11.2

fn hypothesis(score: f32) -> Hypothesis {
    Hypothesis { new_ids: vec![(-8.0 * score) as u32], score, finish: FinishReason::Eos }
}

fn the_best_hypotheses_are_kept_in_order(day: &Day) -> Outcome {
    let scores = [-2.0, -1.0, -3.0, -1.5, -4.0, -0.5];
    let mut kept = Vec::new();
    for (count, score) in scores.iter().enumerate() {
        (day.keep_best)(&mut kept, hypothesis(*score), 3);
        let mut want = scores[..=count].to_vec();
        want.sort_by(|a, b| b.total_cmp(a));
        want.truncate(3);
        let want: Vec<Hypothesis> = want.into_iter().map(hypothesis).collect();
        let input = format!("finished texts of scores {:?}, 3 beams", &scores[..=count]);
        equal(&input, Ok(kept.clone()), &want)?;
    }
    Ok(())
}

// 11.3

const EOS: Result<Option<FinishReason>> = Ok(Some(FinishReason::Eos));

/// An ending rule: token 0 ends a text.
fn at_zero(tokens: &[u32]) -> Result<Option<FinishReason>> {
    match tokens.last() {
        Some(0) => EOS,
        _ => Ok(None),
    }
}

fn split_by_hand(day: &Day) -> Outcome {
    let beams = [(vec![7, 5], -1.0), (vec![7, 6], -2.0)];
    let candidates = [(1, 0, -2.5), (0, 3, -3.0), (1, 4, -3.5), (0, 0, -4.0)];
    let input =
        "texts [7, 5] and [7, 6]; candidates (1, 0), (0, 3), (1, 4), (0, 0); 2 beams; 0 is EOS";
    let (ended, running, parents) = (day.split)(&beams, &candidates, 2, &at_zero)?;
    let want = vec![(vec![7, 6, 0], -2.5, FinishReason::Eos)];
    equal(&format!("{input}: ended"), Ok(ended), &want)?;
    let want = vec![(vec![7, 5, 3], -3.0), (vec![7, 6, 4], -3.5)];
    equal(&format!("{input}: running"), Ok(running), &want)?;
    equal(&format!("{input}: parents"), Ok(parents), &vec![0, 1])?;
    let got = (day.split)(&beams, &candidates, 2, &|_| bail!("the tokenizer is broken"));
    refused("an `ending` that fails", got, &["the tokenizer is broken"])
}

fn an_ending_counts_only_among_the_best_candidates(day: &Day) -> Outcome {
    let beams = [(vec![7, 5], -1.0), (vec![7, 6], -2.0)];
    let candidates = [(0, 3, -2.5), (1, 0, -3.0), (0, 0, -3.5), (1, 4, -4.0)];
    let input =
        "texts [7, 5] and [7, 6]; candidates (0, 3), (1, 0), (0, 0), (1, 4); 2 beams; 0 is EOS";
    let (ended, running, _) = (day.split)(&beams, &candidates, 2, &at_zero)?;
    let want = vec![(vec![7, 6, 0], -3.0, FinishReason::Eos)];
    equal(&format!("{input}: ended"), Ok(ended), &want)
        .likely("(0, 0) is only the third best of all candidates, and there are 2 beams")?;
    let want = vec![(vec![7, 5, 3], -2.5), (vec![7, 6, 4], -4.0)];
    equal(&format!("{input}: running"), Ok(running), &want)?;
    let all_end = |_: &[u32]| Ok(Some(FinishReason::Length));
    let (ended, running, parents) = (day.split)(&beams, &candidates, 2, &all_end)?;
    equal(&format!("{input}; all end: number that ended"), Ok(ended.len()), &2)?;
    ensure(&format!("{input}; all end"), running.is_empty() && parents.is_empty(), "some continue")
}

fn split_follows_its_rule_on_random_candidates(day: &Day) -> Outcome {
    let mut random = Random::new(115);
    for _ in 0..100 {
        let num_beams = 1 + random.below(4);
        let beams: Vec<Beam> = (0..num_beams).map(|i| (vec![9, i as u32], -(i as f32))).collect();
        let candidates: Vec<Candidate> = (0..2 * num_beams)
            .map(|i| (random.below(num_beams), random.below(3) as u32, -4.0 - i as f32))
            .collect();
        let (ended, running, parents) = (day.split)(&beams, &candidates, num_beams, &at_zero)?;
        let input =
            format!("texts {beams:?}; candidates {candidates:?}; {num_beams} beams; 0 is EOS");
        let text = |c: &Candidate| ([beams[c.0].0.clone(), vec![c.1]].concat(), c.2);
        let ends = candidates[..num_beams].iter().filter(|c| c.1 == 0).map(text);
        let want: Vec<_> = ends.map(|(tokens, score)| (tokens, score, FinishReason::Eos)).collect();
        equal(&format!("{input}: ended"), Ok(ended), &want)?;
        let on = || candidates.iter().filter(|c| c.1 > 0).take(num_beams);
        equal(&format!("{input}: running"), Ok(running), &on().map(text).collect())?;
        let want = on().map(|c| c.0 as u32).collect();
        equal(&format!("{input}: parents"), Ok(parents), &want)?;
    }
    Ok(())
}

// 11.4

/// A cache that stores nothing but a length, which the check sets.
struct Counted {
    len: usize,
}

impl Cache for Counted {
    fn append(&mut self, _: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        Ok(View::new(k.clone(), v.clone()))
    }

    fn len(&self) -> usize {
        self.len
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        self.len = len;
        Ok(())
    }
}

impl Batch for Counted {
    fn layer(&self, _: usize) -> Result<View> {
        bail!("a check's cache has no layers")
    }

    fn select(&mut self, _: &[u32]) -> Result<()> {
        Ok(())
    }

    fn join(&mut self, _: &dyn Batch) -> Result<()> {
        bail!("a check's cache does not join")
    }

    fn trim(&mut self, _: usize) -> Result<()> {
        bail!("a check's cache does not trim")
    }
}

/// Builds a model with 4 tokens and a context of 6. The next-token probabilities are 1/2, 1/4, 1/8,
/// 1/8 after token 1, and 1/8, 1/8, 1/4, 1/2 after any other. Its logits are the logarithms plus 3,
/// so they aren't normalized until `log_softmax`.
fn halves(bound: usize) -> Fake {
    Fake::new(4, 6, bound, |ids| {
        let mut p = [0.5f32, 0.25, 0.125, 0.125];
        if ids[ids.len() - 1] != 1 {
            p.reverse();
        }
        p.iter().map(|p| p.ln() + 3.0).collect()
    })
}

/// Builds a request for up to `most` new tokens after `prompt`, with 0 as EOS. Beam search never
/// samples.
fn request<'a>(model: &dyn Model, prompt: &[u32], most: usize) -> Request<'a> {
    let mut request = Request::new(model.config(), prompt, most, |_| bail!("nothing is sampled"));
    request.eos_token_ids = vec![0];
    request
}

type Pass = (Vec<Vec<u32>>, Vec<Vec<u32>>);

fn log_probabilities_are_computed_for_every_beam(day: &Day) -> Outcome {
    let model = halves(3);
    let texts = [vec![3, 2, 1], vec![3, 1, 2]];
    let got = (day.next_log_probs)(&model, &texts, &request(&model, &[3], 5), &mut NoCache)?;
    let input =
        "beams [3, 2, 1] and [3, 1, 2]; 1/2, 1/4, 1/8, 1/8 after token 1, else 1/8, 1/8, 1/4, 1/2";
    let ln = |p: [f32; 4]| p.map(f32::ln);
    let want = [ln([0.5, 0.25, 0.125, 0.125]), ln([0.125, 0.125, 0.25, 0.5])];
    equal(&format!("{input}: rows"), Ok(got.len()), &2)?;
    near(&format!("{input}: log-probabilities"), got.concat(), &want.concat(), TOLERANCE)
        .likely("log_softmax of the logits at each row's last position")?;
    let passes: Vec<Pass> = model.passes.take();
    let want = vec![(texts.to_vec(), vec![vec![0, 1, 2]; 2])];
    equal(&format!("{input}: (ids, positions) of every pass"), Ok(passes), &want)
}

fn processors_come_after(day: &Day) -> Outcome {
    let model = halves(3);
    let seen = RefCell::new(Vec::new());
    let mut request = request(&model, &[3], 5);
    request.eos_token_ids = vec![0, 2];
    request.processors.push(named("double", |input: &ProcessorInput, row: &mut [f32]| {
        let eos = input.eos.to_vec();
        seen.borrow_mut().push((input.tokens.to_vec(), input.prompt_len, input.remaining, eos));
        row.iter_mut().for_each(|x| *x *= 2.0);
        Ok(())
    }));
    request.processors.push(named("forbid", |input: &ProcessorInput, row: &mut [f32]| {
        row[0] = NEVER;
        if input.tokens[2] == 2 {
            row.fill(NEVER);
        }
        Ok(())
    }));
    let texts = [vec![3, 2, 1], vec![3, 1, 2]];
    let got = (day.next_log_probs)(&model, &texts, &request, &mut NoCache)?;
    drop(request);
    let ln = |p: f32| 2.0 * p.ln();
    let want = [NEVER, ln(0.25), ln(0.125), ln(0.125), NEVER, NEVER, NEVER, NEVER];
    let input =
        "beams [3, 2, 1] and [3, 1, 2], processors: double; forbid token 0, and after token 2 all";
    near(&format!("{input}: log-probabilities"), got.concat(), &want, TOLERANCE).likely(
        "the processors change log-probabilities; nothing is normalized afterwards, and \
            a row with nothing left isn't an error",
    )?;
    let want = texts.clone().map(|text| (text, 1, 3, vec![0, 2])).to_vec();
    let input = "prompt [3], 2 generated, at most 5 new: tokens, prompt_len, remaining, eos";
    equal(input, Ok(seen.into_inner()), &want)?;
    let seen = RefCell::new(0);
    let mut endless = self::request(&model, &[3], usize::MAX);
    endless.processors.push(named("look", |input: &ProcessorInput, _: &mut [f32]| {
        *seen.borrow_mut() = input.remaining;
        Ok(())
    }));
    (day.next_log_probs)(&model, &texts, &endless, &mut NoCache)?;
    drop(endless);
    let input = "the same, at most usize::MAX new: remaining";
    equal(input, Ok(seen.into_inner()), &(usize::MAX - 2))
}

fn beams_feed_only_uncached_tokens(day: &Day) -> Outcome {
    let model = halves(3);
    let texts = [vec![3, 2, 1, 1], vec![3, 1, 2, 2]];
    (day.next_log_probs)(&model, &texts, &request(&model, &[3], 5), &mut Counted { len: 3 })?;
    let passes: Vec<Pass> = model.passes.take();
    let input =
        "beams [3, 2, 1, 1] and [3, 1, 2, 2], a cache of 3 positions: (ids, positions) of every \
            pass";
    equal(input, Ok(passes), &vec![(vec![vec![1], vec![2]], vec![vec![3]; 2])])
}

// 11.5, with early stopping and no length penalty. Other parameters are tested in 11.6 and later.

fn params(num_beams: usize, length_penalty: f64, early_stopping: EarlyStopping) -> BeamParams {
    BeamParams { num_beams, num_return_sequences: num_beams, length_penalty, early_stopping }
}

/// Returns the parameters for the core algorithm.
fn core(num_beams: usize) -> BeamParams {
    params(num_beams, 0.0, EarlyStopping::True)
}

/// Checks the new ids, finish reasons and scores.
fn texts(
    input: &str,
    got: Result<Vec<Hypothesis>>,
    want: &[Hypothesis],
    tolerance: f32,
) -> Outcome {
    let got = got?;
    let ids = |list: &[Hypothesis]| -> Vec<(Vec<u32>, FinishReason)> {
        list.iter().map(|text| (text.new_ids.clone(), text.finish)).collect()
    };
    equal(&format!("{input}: new ids and finish reasons"), Ok(ids(&got)), &ids(want))?;
    let scores = |list: &[Hypothesis]| -> Vec<f32> { list.iter().map(|text| text.score).collect() };
    near(&format!("{input}: scores"), scores(&got), &scores(want), tolerance)
}

/// Builds a model where EOS, A and B have probabilities 0.1, 0.5 and 0.4. After A they are 0.35,
/// 0.33 and 0.32. After B they are 0.9, 0.05 and 0.05.
fn fork(bound: usize) -> Fake {
    Fake::new(3, 20, bound, |ids| {
        let p: [f32; 3] = match ids[1..] {
            [] => [0.1, 0.5, 0.4],
            [.., 1] => [0.35, 0.33, 0.32],
            _ => [0.9, 0.05, 0.05],
        };
        p.iter().map(|p| p.ln()).collect()
    })
}

fn text(new_ids: &[u32], p: f32, over: f32, finish: FinishReason) -> Hypothesis {
    Hypothesis { new_ids: new_ids.to_vec(), score: p.ln() / over, finish }
}

fn two_beams_by_hand(day: &Day) -> Outcome {
    use FinishReason::{Eos, Length};
    let model = fork(30);
    let run = |beams: usize, most: usize| {
        model.passes.take();
        let mut request = request(&model, &[1], most);
        (day.beam_search)(&model, &tokenizer()?, &mut request, &core(beams), &mut NoCache)
    };
    let input = "EOS .1, A .5, B .4; after A .35 .33 .32, after B .9 .05 .05";
    let what = format!("{input}; 2 beams, no penalty, at most 3 new, early stopping");
    let want = [text(&[2, 0], 0.36, 1.0, Eos), text(&[1, 0], 0.175, 1.0, Eos)];
    texts(&what, run(2, 3), &want, TOLERANCE)
        .likely("A is the better token, but B EOS the better text: 0.4 × 0.9 > 0.5 × 0.35")?;
    let passes = model.passes.take().len();
    equal(&format!("{what}: passes of the model"), Ok(passes), &2)
        .likely("after two passes two texts are finished, so early_stopping true stops")?;
    let what = format!("{input}; 1 beam, no penalty, at most 3 new, early stopping");
    let want = [text(&[1, 0], 0.175, 1.0, Eos)];
    texts(&what, run(1, 3), &want, TOLERANCE)?;
    let what = format!("{input}; 2 beams, no penalty, at most 1 new, early stopping");
    let want = [text(&[1], 0.5, 1.0, Length), text(&[2], 0.4, 1.0, Length)];
    texts(&what, run(2, 1), &want, TOLERANCE)
        .likely("at the limit every sequence ends, and the best num_beams of them count")
}

/// Builds a model with these probabilities. After the prompt: A .5, B .48, end .02. After A: A .5,
/// end .45. After B: end .45, A .4. After A A: A .5, B .4, end .1. After B A: end .9. At the second
/// step, two of the three best candidates end.
fn crowded(end: usize, a: usize, b: usize, prompt_len: usize) -> Fake {
    Fake::new(1 + end.max(a).max(b), 20, 20, move |ids| {
        let new: Vec<usize> = ids[prompt_len..].iter().map(|id| *id as usize).collect();
        let p: [f32; 3] = match new[..] {
            [] => [0.02, 0.5, 0.48],
            [x] if x == a => [0.45, 0.5, 0.05],
            [_] => [0.45, 0.4, 0.15],
            [x, y] if (x, y) == (b, a) => [0.9, 0.05, 0.05],
            _ => [0.1, 0.5, 0.4],
        };
        let mut logits = vec![NEVER; 1 + end.max(a).max(b)];
        (logits[end], logits[a], logits[b]) = (p[0].ln(), p[1].ln(), p[2].ln());
        logits
    })
}

const CROWDED: &str =
    "A .5, B .48, end .02; after A A .5, end .45; after B end .45, A .4; after B \
    A end .9; 2 beams, at most 3 new, early stopping, no penalty";

fn an_ending_makes_room_for_the_next_candidate(day: &Day) -> Outcome {
    let model = crowded(0, 1, 2, 1);
    let mut request = request(&model, &[1], 3);
    let got = (day.beam_search)(&model, &tokenizer()?, &mut request, &core(2), &mut NoCache);
    let want = [
        text(&[1, 0], 0.225, 1.0, FinishReason::Eos),
        text(&[2, 1, 0], 0.48 * 0.4 * 0.9, 1.0, FinishReason::Eos),
    ];
    texts(&format!("{CROWDED}; the end is EOS"), got, &want, TOLERANCE).likely(
        "each beam may have an ending among the best: without 2 candidates per beam, B A is \
            never seen",
    )
}

fn two_eos_ids_need_three_candidates_per_beam(day: &Day) -> Outcome {
    // EOS, A, B, and a second EOS.
    let model = Fake::new(4, 20, 20, |ids| {
        let p: [f32; 4] = match ids[1..] {
            [] => [0.01, 0.5, 0.48, 0.01],
            [1] => [0.3, 0.4, 0.01, 0.29],
            [2] => [0.29, 0.27, 0.16, 0.28],
            [2, 1] => [0.9, 0.04, 0.03, 0.03],
            _ => [0.05, 0.5, 0.4, 0.05],
        };
        p.map(f32::ln).to_vec()
    });
    let mut request = request(&model, &[1], 3);
    request.eos_token_ids = vec![0, 3];
    let got = (day.beam_search)(&model, &tokenizer()?, &mut request, &core(2), &mut NoCache);
    let input = "A .5, B .48; after A A .4, EOS .3, another EOS .29; after B EOS .29, the other \
        .28, A .27; after B A EOS .9; 2 beams, at most 3 new, early stopping, no penalty";
    let want = [
        text(&[1, 0], 0.15, 1.0, FinishReason::Eos),
        text(&[2, 1, 0], 0.48 * 0.27 * 0.9, 1.0, FinishReason::Eos),
    ];
    texts(input, got, &want, TOLERANCE)
        .likely("each beam may have two endings among the best, so keep 3 candidates per beam")
}

fn a_stop_string_is_found_after_the_prompt(day: &Day) -> Outcome {
    let dir = small_model("sentencepiece");
    let tokenizer =
        candecode_formats::read_tokenizer(&dir).map_err(|e| Error::Msg(format!("{e:#}")))?;
    let size = tokenizer.vocab_size();
    let token = |piece: &str| {
        let mut ids = 0..size as u32;
        ids.find(|id| tokenizer.piece(*id).as_deref() == Some(piece)).unwrap_or_default()
    };
    for (text, prompt_len, stop, want) in [
        (["▁Once", "▁upon", "▁a", "▁time"], 1, " a", 2),
        (["▁Once", "▁upon", "▁a", "▁time"], 1, " upon", 1),
        (["▁a", "<0xC3>", "<0xA9>", "▁she"], 2, "é", 1),
        (["▁a", "<0xC3>", "<0xA9>", "▁she"], 1, "é s", 3),
    ] {
        let ids = text.map(token);
        let next = move |seen: &[u32]| {
            let at = ids.iter().position(|id| *id == seen[seen.len() - 1]).unwrap_or(0);
            ids[(at + 1).min(3)]
        };
        let model = Fake::wants(size, 20, 20, next);
        let mut request = request(&model, &ids[..prompt_len], 3);
        request.eos_token_ids.clear();
        request.stop_strings = vec![stop.to_string()];
        let got = (day.beam_search)(&model, &tokenizer, &mut request, &core(2), &mut NoCache)?;
        let best = got.first().map(|text| (text.new_ids.len(), text.finish));
        let input = format!(
            "a model that writes {text:?}, {prompt_len} of them from the prompt; 2 beams, at most \
             3 new, stop string {stop:?}: (number of new tokens, finish reason) of the best text"
        );
        equal(&input, Ok(best), &Some((want, FinishReason::Stop))).likely(
            "the generated tokens alone decode to a different text: pass the whole sequence to \
                `ending`",
        )?;
    }
    Ok(())
}

fn stop_strings_need_two_candidates_per_beam_without_eos(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let (stop, a, b) = (id(&tokenizer, "!")?, id(&tokenizer, "a")?, id(&tokenizer, "b")?);
    let model = crowded(stop, a, b, 1);
    let mut request = request(&model, &[1], 3);
    request.eos_token_ids.clear();
    request.stop_strings = vec![tokenizer.decode(&[stop as u32])?];
    let got = (day.beam_search)(&model, &tokenizer, &mut request, &core(2), &mut NoCache);
    let new = |ids: &[usize]| ids.iter().map(|id| *id as u32).collect::<Vec<_>>();
    let want = [
        text(&new(&[a, stop]), 0.225, 1.0, FinishReason::Stop),
        text(&new(&[b, a, stop]), 0.48 * 0.4 * 0.9, 1.0, FinishReason::Stop),
    ];
    texts(&format!("{CROWDED}; no EOS, the end is the stop string !"), got, &want, TOLERANCE)
        .likely("a sequence may end without an EOS id: keep at least 2 candidates per beam")
}

/// Returns the last token of a text.
fn id(tokenizer: &Tokenizer, text: &str) -> Result<usize> {
    match tokenizer.encode(text)?[..] {
        [.., id] => Ok(id as usize),
        [] => Err(Error::Msg(format!("{text:?} has no token"))),
    }
}

/// Compares one beam with day 7's loop.
fn greedy(day: &Day, prompt: &str, most: usize) -> Outcome {
    let model = Recall::new("story-230k", most + 2)?;
    let (tokenizer, ids) = (tokenizer()?, tokenizer()?.encode(prompt)?);
    let request = || Request::new(model.config(), &ids, most, argmax);
    let tokens = generate(&model, &tokenizer, request())?.collect::<Result<Vec<_>>>()?;
    let Some(last) = tokens.last() else { return Err(Error::Msg("no token".into()).into()) };
    let want = Hypothesis {
        new_ids: tokens.iter().map(|token| token.id).collect(),
        score: tokens.iter().map(|token| token.logprob).sum(),
        finish: last.finish.unwrap_or(FinishReason::Length),
    };
    let model = Recall::new("story-230k", most + 2)?;
    let got = (day.beam_search)(&model, &tokenizer, &mut request(), &core(1), &mut NoCache);
    let input =
        format!("story-230k, \"{prompt}\", at most {most} new, 1 beam, early stopping, no penalty");
    // Logits agree to 1e-4 in any order of summation (day 5).
    texts(&input, got, &[want], 1e-4)
}

fn one_beam_is_greedy(day: &Day) -> Outcome {
    greedy(day, "Lily and her dog", 24)?;
    greedy(day, "They all lived happily ever", 12)
}

/// Lists every text of at most 4 tokens from 0 (EOS), 1 and 2, with its log-probability.
fn every_text(model: &Fake, prompt: u32, next: fn(&[u32]) -> Vec<f32>) -> Result<Vec<Hypothesis>> {
    let (mut open, mut all) = (vec![(vec![prompt], 0.0f32)], Vec::new());
    while let Some((ids, score)) = open.pop() {
        let row = candecode::day07_greedy::log_softmax(&next(&ids))?;
        for (token, log_prob) in row.iter().enumerate().take(model.config().vocab_size) {
            let (tokens, score) = ([ids.clone(), vec![token as u32]].concat(), score + log_prob);
            let finish = match (token, tokens.len()) {
                (0, _) => FinishReason::Eos,
                (_, 5) => FinishReason::Length,
                _ => {
                    open.push((tokens, score));
                    continue;
                }
            };
            all.push(Hypothesis { new_ids: tokens[1..].to_vec(), score, finish });
        }
    }
    Ok(all)
}

/// Returns random-looking logits that depend on the whole text.
fn scrambled(ids: &[u32]) -> Vec<f32> {
    let seed = ids.iter().fold(17u64, |seed, id| seed * 31 + u64::from(*id) + 1);
    let mut random = Random::new(seed);
    (0..3).map(|_| 2.0 * random.float()).collect()
}

/// Checks that, with enough beams to keep everything, the search returns the 6 best of all texts.
fn exhaustive(day: &Day, prompt: u32, penalty: f32, when: EarlyStopping) -> Outcome {
    let model = Fake::new(3, 20, 20, scrambled);
    let mut all = every_text(&model, prompt, scrambled)?;
    all.iter_mut().for_each(|text| text.score /= (text.new_ids.len() as f32).powf(penalty));
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    all.truncate(6);
    // There are 31 texts, so 32 beams never drop one and never stop early.
    let mut params = params(32, f64::from(penalty), when);
    params.num_return_sequences = 6;
    let mut request = request(&model, &[prompt], 4);
    let got = (day.beam_search)(&model, &tokenizer()?, &mut request, &params, &mut NoCache);
    let input = format!(
        "3 tokens, at most 4 new, so 31 texts; 32 beams, prompt {prompt}, length_penalty \
            {penalty}, early_stopping {when:?}: the best 6"
    );
    texts(&input, got, &all, TOLERANCE)
}

fn enough_beams_find_the_best_sequence_overall(day: &Day) -> Outcome {
    exhaustive(day, 1, 0.0, EarlyStopping::True)?;
    exhaustive(day, 2, 0.0, EarlyStopping::True)
}

/// A case from `oracle.json`.
#[derive(serde::Deserialize)]
struct Case {
    model: String,
    prompt: String,
    prompt_ids: Vec<u32>,
    max_new_tokens: usize,
    num_beams: usize,
    num_return_sequences: usize,
    length_penalty: f64,
    early_stopping: String,
    eos: Vec<u32>,
    repetition_penalty: Option<f32>,
    no_repeat_ngram_size: Option<usize>,
    #[serde(default)]
    stop_strings: Vec<String>,
    texts: Vec<Golden>,
}

#[derive(serde::Deserialize)]
struct Golden {
    new_ids: Vec<u32>,
    score: f32,
    finish: String,
}

fn cases(group: &str) -> Result<Vec<Case>> {
    let cases = golden_json("day11")?[group].take();
    serde_json::from_value(cases).map_err(|e| Error::Msg(format!("day11.json: {e}")))
}

impl Case {
    fn params(&self) -> BeamParams {
        BeamParams {
            num_beams: self.num_beams,
            num_return_sequences: self.num_return_sequences,
            length_penalty: self.length_penalty,
            early_stopping: match self.early_stopping.as_str() {
                "true" => EarlyStopping::True,
                "never" => EarlyStopping::Never,
                _ => EarlyStopping::False,
            },
        }
    }

    fn request(&self, model: &dyn Model) -> Result<Request<'static>> {
        let mut request = request(model, &self.prompt_ids, self.max_new_tokens);
        request.eos_token_ids.clone_from(&self.eos);
        request.stop_strings.clone_from(&self.stop_strings);
        request.processors = penalties(&SamplingParams {
            repetition_penalty: self.repetition_penalty.unwrap_or(1.0),
            no_repeat_ngram: self.no_repeat_ngram_size,
            ..Default::default()
        })?;
        Ok(request)
    }

    fn says(&self) -> String {
        let mut says = format!(
            "{}, \"{}\", at most {} new, {} beams, length_penalty {}, early_stopping {}",
            self.model,
            self.prompt,
            self.max_new_tokens,
            self.num_beams,
            self.length_penalty,
            self.early_stopping
        );
        if self.eos.len() > 1 {
            says += &format!(", EOS {:?}", self.eos);
        }
        says
    }

    fn search(
        &self,
        day: &Day,
        model: &dyn Model,
        cache: &mut dyn Batch,
    ) -> Result<Vec<Hypothesis>> {
        let (mut request, params) = (self.request(model)?, self.params());
        (day.beam_search)(model, &tokenizer()?, &mut request, &params, cache)
    }

    fn want(&self) -> Vec<Hypothesis> {
        let finish = |name: &str| match name {
            "eos" => FinishReason::Eos,
            "stop" => FinishReason::Stop,
            _ => FinishReason::Length,
        };
        let text = |text: &Golden| Hypothesis {
            new_ids: text.new_ids.clone(),
            score: text.score,
            finish: finish(&text.finish),
        };
        self.texts.iter().map(text).collect()
    }

    /// Returns the tolerance for a score: 1e-4 for a sum of log-probabilities, scaled by the length
    /// if the penalty is negative.
    fn tolerance(&self) -> f32 {
        let most = self.texts.iter().map(|text| text.new_ids.len()).max().unwrap_or(1) as f32;
        1e-4 * most.powf((-self.length_penalty).max(0.0) as f32)
    }
}

/// Builds day 12's cache, either growing or with a fixed capacity.
fn kv(capacity: Option<usize>, model: &dyn Model) -> BatchCache {
    BatchCache::new(model.config().num_hidden_layers, capacity)
}

/// Checks a group of goldens with a cache, which is faster. A separate check covers that the result
/// is the same without one.
fn equal_hf(day: &Day, cases: impl IntoIterator<Item = Case>) -> Outcome {
    let mut loaded: Option<(String, Box<dyn Model>)> = None;
    for case in cases {
        let model = match loaded.take() {
            Some((name, model)) if name == case.model => model,
            _ => model(&case.model)?,
        };
        let got = case.search(day, &*model, &mut kv(None, &*model));
        texts(&case.says(), got, &case.want(), case.tolerance())?;
        loaded = Some((case.model, model));
    }
    Ok(())
}

fn early_stopped_sums_equal_transformers(day: &Day) -> Outcome {
    // With early stopping the search takes the same path under every penalty: the penalty only
    // rescales and sorts the finished sequences. With no penalty, transformers' scores are plain
    // sums.
    let early = cases("endings")?.into_iter().filter(|case| case.early_stopping == "true");
    equal_hf(
        day,
        early.map(|mut case| {
            for text in &mut case.texts {
                text.score *= (text.new_ids.len() as f32).powf(case.length_penalty as f32);
            }
            case.texts.sort_by(|a, b| b.score.total_cmp(&a.score));
            case.length_penalty = 0.0;
            case
        }),
    )
}

/// Compares the search without a cache with those in a growing one and in one of a fixed capacity.
fn cached(day: &Day, case: &Case) -> Outcome {
    let model = model(&case.model)?;
    let context = model.config().max_position_embeddings;
    let want = case.search(day, &*model, &mut NoCache)?;
    let mut grown = kv(None, &*model);
    let mut fixed = kv(Some(context), &*model);
    let caches: [(&str, &mut dyn Batch); 2] =
        [("a cache that grows", &mut grown), ("a cache of fixed capacity", &mut fixed)];
    for (name, cache) in caches {
        let got = case.search(day, &*model, cache);
        texts(&format!("{}, {name}", case.says()), got, &want, case.tolerance()).likely(
            "row i of the cache must belong to beam i: select the parents after every step",
        )?;
    }
    Ok(())
}

fn cached_beam_search_equals_uncached(day: &Day) -> Outcome {
    let mut case = cases("defaults")?.swap_remove(0);
    (case.length_penalty, case.early_stopping) = (0.0, "true".into());
    cached(day, &case)
}

fn sequences_are_correct_up_to_the_context_limit(day: &Day) -> Outcome {
    let mut case = cases("defaults")?.swap_remove(2);
    let model = model(&case.model)?;
    let context = model.config().max_position_embeddings;
    // Repeat the same opening until 4 tokens short of the context. The last token is never fed.
    case.prompt_ids = case.prompt_ids.iter().cycle().take(context - 4).copied().collect();
    (case.max_new_tokens, case.eos) = (7, vec![]);
    (case.length_penalty, case.early_stopping) = (0.0, "true".into());
    let want = case.search(day, &*model, &mut NoCache)?;
    let input = format!(
        "{}, a prompt of {} tokens, a context of {context}, 7 new",
        case.model,
        case.prompt_ids.len()
    );
    let ends: Vec<(usize, FinishReason)> =
        want.iter().map(|text| (text.new_ids.len(), text.finish)).collect();
    equal(&format!("{input}: (new tokens, end)"), Ok(ends), &vec![(5, FinishReason::Length); 2])
        .likely("a sequence ends when the context is full")?;
    let got = case.search(day, &*model, &mut kv(None, &*model));
    texts(&format!("{input}, with a cache and without"), got, &want, case.tolerance())
}

/// Builds a processor that allows no token after token 1, or, if `all` is set, no token at all.
fn dead_end<'a>(all: bool) -> std::rc::Rc<dyn candecode::kit::LogitsProcessor + 'a> {
    named("dead end", move |input: &ProcessorInput, row: &mut [f32]| {
        if all || (input.tokens.len() > 1 && input.tokens.last() == Some(&1)) {
            row.fill(NEVER);
        }
        Ok(())
    })
}

fn a_processors_error_is_returned(day: &Day) -> Outcome {
    let model = halves(3);
    let mut request = request(&model, &[3], 5);
    request.processors.push(named("fail", |input: &ProcessorInput, _: &mut [f32]| {
        match input.tokens[1] {
            2 => bail!("nothing may follow this text"),
            _ => Ok(()),
        }
    }));
    let texts = [vec![3, 2, 1], vec![3, 1, 2]];
    let got = (day.next_log_probs)(&model, &texts, &request, &mut NoCache);
    let input = "beams [3, 2, 1] and [3, 1, 2], a processor that fails for the first beam";
    refused(input, got, &["nothing may follow this text"]).likely(
        "a row that is all -inf isn't an error, but a processor's own error must be returned",
    )
}

fn a_dead_end_ends_only_its_beam(day: &Day) -> Outcome {
    let model = fork(20);
    let search = |all: bool| {
        let mut request = request(&model, &[2], 3);
        request.processors.push(dead_end(all));
        (day.beam_search)(&model, &tokenizer()?, &mut request, &core(2), &mut NoCache)
    };
    // After B: EOS .9, A .05, B .05.
    let want = [
        text(&[2, 0], 0.36, 1.0, FinishReason::Eos),
        text(&[2, 2, 0], 0.018, 1.0, FinishReason::Eos),
    ];
    let input = "EOS .1, A .5, B .4; after A nothing is allowed, after B .9 .05 .05; 2 beams, at \
        most 3 new";
    texts(input, search(false), &want, TOLERANCE).likely(
        "a row that is all -inf has no candidates: its beam ends and the other continues",
    )?;
    refused("nothing is ever allowed; 2 beams", search(true), &[])
}

fn invalid_parameters_are_rejected(day: &Day) -> Outcome {
    let model = fork(20);
    let run = |beams: usize, back: usize, penalty: f64, most: usize, prompt: &[u32]| {
        let mut params = params(beams, penalty, EarlyStopping::True);
        params.num_return_sequences = back;
        let mut request = request(&model, prompt, most);
        (day.beam_search)(&model, &tokenizer()?, &mut request, &params, &mut NoCache)
    };
    equal("2 beams, 2 to return", run(2, 2, 0.0, 2, &[1]).map(|texts| texts.len()), &2)?;
    equal("2 beams, 1 to return", run(2, 1, 0.0, 2, &[1]).map(|texts| texts.len()), &1)?;
    refused("no beams", run(0, 1, 0.0, 2, &[1]), &["num_beams"])?;
    refused("2 beams, 3 to return", run(2, 3, 0.0, 2, &[1]), &["num_return_sequences"])?;
    refused("2 beams, 0 to return", run(2, 0, 0.0, 2, &[1]), &["num_return_sequences"])?;
    refused("length_penalty NaN", run(2, 2, f64::NAN, 2, &[1]), &["length_penalty"])?;
    refused("length_penalty 1e6", run(2, 2, 1e6, 2, &[1]), &["length_penalty"])?;
    refused("at most 0 new", run(2, 2, 0.0, 0, &[1]), &["max_new_tokens"])?;
    refused("an empty prompt", run(2, 2, 0.0, 2, &[]), &["empty"])?;
    refused("a prompt of 21 tokens, a context of 20", run(2, 2, 0.0, 2, &[1; 21]), &["context"])
}

// 11.6

fn length_normalized_by_hand(day: &Day) -> Outcome {
    for (score, len, penalty, want) in [
        (-6.0, 3, 1.0, -2.0),
        (-6.0, 4, 2.0, -0.375),
        (-6.0, 3, 0.0, -6.0),
        (-6.0, 4, 0.5, -3.0),
        (-6.0, 3, -1.0, -18.0),
        (-6.0, 1, 3.0, -6.0),
    ] {
        let input = format!("length_normalized({score}, {len}, {penalty})");
        near(&input, vec![(day.length_normalized)(score, len, penalty)], &[want], TOLERANCE)?;
    }
    Ok(())
}

// 11.7

const WHEN: [EarlyStopping; 3] = [EarlyStopping::True, EarlyStopping::False, EarlyStopping::Never];

fn beam_search_continues_until_num_beams_have_finished(day: &Day) -> Outcome {
    for when in WHEN {
        for count in 0..2 {
            let finished: Vec<Hypothesis> = (0..count).map(|_| hypothesis(-0.125)).collect();
            let got = (day.can_improve)(-50.0, 5, 9, &finished, &params(2, 1.0, when));
            let input =
                format!("2 beams, {count} finished, early_stopping {when:?}: does it continue");
            equal(&input, Ok(got), &true)?;
        }
    }
    Ok(())
}

fn can_improve_by_hand(day: &Day) -> Outcome {
    use EarlyStopping::{False, Never, True};
    let finished = [hypothesis(-1.0), hypothesis(-2.0)];
    let input = "2 beams, finished at -1 and -2, at most 10 new tokens";
    let cases = [
        (-0.5, 4, 1.0, True, false, "true: stop once there are as many as beams"),
        (-7.0, 4, 1.0, False, true, "-7 / 4 = -1.75, better than -2"),
        (-9.0, 4, 1.0, False, false, "-9 / 4 = -2.25, worse than -2"),
        (-1.5, 4, 1.0, False, true, "-1.5 / 4 = -0.375, better than -2"),
        (-8.0, 4, 1.0, False, false, "-8 / 4 = -2, no better than -2"),
        (-9.0, 4, 1.0, Never, true, "at 10 tokens it would be -9 / 10 = -0.9"),
        (-21.0, 4, 1.0, Never, false, "at 10 tokens it would be -21 / 10 = -2.1"),
        (-30.0, 4, 2.0, False, true, "-30 / 16 = -1.875"),
        (-1.9, 4, 0.0, False, true, "no penalty: -1.9"),
        (-2.1, 4, 0.0, Never, false, "no penalty: -2.1, at any length"),
        (
            -0.4,
            4,
            -1.0,
            Never,
            true,
            "a penalty below 0 favors short texts, and 4 is the shortest possible: -1.6",
        ),
        (
            -0.6,
            4,
            -1.0,
            Never,
            false,
            "a penalty below 0 favors short texts, and 4 is the shortest possible: -2.4",
        ),
    ];
    let answer =
        |&(best, len, penalty, when, ..): &(f32, usize, f64, EarlyStopping, bool, &str)| {
            (day.can_improve)(best, len, 10, &finished, &params(2, penalty, when))
        };
    let answers: Vec<bool> = cases.iter().map(answer).collect();
    for (got, (best, len, penalty, when, want, why)) in answers.iter().zip(cases) {
        let input = format!(
            "{input}; the best running text is at {best} after {len} tokens, length_penalty \
                {penalty}, early_stopping {when:?}: does it continue (of all {} questions, \
                your code says yes to {:?})",
            answers.len(),
            (0..answers.len()).filter(|i| answers[*i]).collect::<Vec<_>>(),
        );
        equal(&input, Ok(*got), &want).likely(why)?;
    }
    Ok(())
}

fn length_penalty_and_early_stopping_by_hand(day: &Day) -> Outcome {
    use FinishReason::{Eos, Length};
    let model = fork(30);
    let run = |penalty: f64, most: usize, when: EarlyStopping| {
        let (mut request, params) = (request(&model, &[1], most), params(2, penalty, when));
        (day.beam_search)(&model, &tokenizer()?, &mut request, &params, &mut NoCache)
    };
    let input = "EOS .1, A .5, B .4; after A .35 .33 .32, after B .9 .05 .05";
    let what = format!("{input}; 2 beams, penalty 1, at most 1 new");
    let want = [text(&[1], 0.5, 1.0, Length), text(&[2], 0.4, 1.0, Length)];
    texts(&what, run(1.0, 1, EarlyStopping::False), &want, TOLERANCE)
        .likely("at the limit every text ends, and the best num_beams of them count")?;
    let what = format!("{input}; 2 beams, penalty 3, at most 3 new");
    let want = [text(&[1, 2, 0], 0.144, 27.0, Eos), text(&[1, 1, 0], 0.05775, 27.0, Eos)];
    texts(&what, run(3.0, 3, EarlyStopping::Never), &want, TOLERANCE)
        .likely("a penalty above 0 divides by more, and so favors long texts")
}

fn enough_beams_continue_with_two_eos_ids(day: &Day) -> Outcome {
    // Always EOS .5, A .06, B .03, second EOS .41.
    let model = Fake::new(4, 20, 20, |_| [0.5f32, 0.06, 0.03, 0.41].map(f32::ln).to_vec());
    let (mut request, params) = (request(&model, &[1], 3), params(2, 2.0, EarlyStopping::Never));
    request.eos_token_ids = vec![0, 3];
    let got = (day.beam_search)(&model, &tokenizer()?, &mut request, &params, &mut NoCache);
    let input = "always EOS .5, another EOS .41, A .06, B .03; 2 beams, length_penalty 2, never, \
        at most 3 new";
    let want = [
        text(&[0], 0.5, 1.0, FinishReason::Eos),
        text(&[1, 1, 0], 0.06 * 0.06 * 0.5, 9.0, FinishReason::Eos),
    ];
    texts(input, got, &want, TOLERANCE).likely(
        "every beam may have two endings among the best: without 3 candidates per beam, no \
            text continues",
    )
}

fn all_beams_may_end_in_the_same_step(day: &Day) -> Outcome {
    // EOS .13, A .3, B .29, C .28, then always EOS .9, A .05, B .03, C .02.
    let model = Fake::new(4, 20, 20, |ids| {
        let p: [f32; 4] = match ids {
            [_] => [0.13, 0.3, 0.29, 0.28],
            _ => [0.9, 0.05, 0.03, 0.02],
        };
        p.map(f32::ln).to_vec()
    });
    let (mut request, params) = (request(&model, &[1], 3), params(3, 4.0, EarlyStopping::Never));
    let got = (day.beam_search)(&model, &tokenizer()?, &mut request, &params, &mut NoCache);
    let input = "EOS .13, A .3, B .29, C .28, then always EOS .9, A .05, B .03, C .02; 3 beams, \
        length_penalty 4, never, at most 3 new";
    let after = |first: u32, p: f32| text(&[first, 1, 0], p * 0.05 * 0.9, 81.0, FinishReason::Eos);
    texts(input, got, &[after(1, 0.3), after(2, 0.29), after(3, 0.28)], TOLERANCE).likely(
        "three beams end among the best, and three must continue, so keep 2 candidates per \
            beam",
    )
}

fn enough_beams_find_the_best_sequence_at_any_length_penalty(day: &Day) -> Outcome {
    for (prompt, penalty) in [(1, 0.0), (2, 1.0), (1, 2.0), (2, -0.5)] {
        exhaustive(day, prompt, penalty, EarlyStopping::False)?;
    }
    Ok(())
}

fn sequences_and_scores_equal_transformers(day: &Day) -> Outcome {
    equal_hf(day, cases("defaults")?)
}

fn endings_and_penalties_equal_transformers(day: &Day) -> Outcome {
    equal_hf(day, cases("endings")?)
}

fn with_processors_it_equals_transformers(day: &Day) -> Outcome {
    equal_hf(day, cases("processed")?)
}
