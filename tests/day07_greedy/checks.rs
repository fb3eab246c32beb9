//! Day 7's checks: greedy, done right.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day07_greedy;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day07_greedy.rs"]
mod day07_greedy;

use candecode::kit::{
    named, FinishReason, LogitsProcessor, Model, ModelConfig, PastContext, ProcessorInput, Request,
    Token, Tokenizer,
};
use candle_core::{bail, Error, IndexOp, Result, Tensor};
use frame::{
    close, ensure, equal, equal_tokens, golden, golden_json, refused, tokenizer, Fake, Likely,
    Outcome, Random, Recall,
};
use std::cell::RefCell;
use std::rc::Rc;

/// The input to a processor: tokens, `prompt_len`, `remaining`, EOS ids.
pub type Input = (Vec<u32>, usize, usize, Vec<u32>);

/// Returns the most likely tokens of each step twice: after `choose`, and as pushed.
pub type TopOfSteps = fn(&Tokenizer, Request, &[&[f32]]) -> Result<Vec<[Vec<(u32, f32)>; 2]>>;

/// The day 7 functions under test.
#[derive(Clone, Copy)]
pub struct Day {
    pub argmax: fn(&[f32]) -> Result<u32>,
    pub log_softmax: fn(&[f32]) -> Result<Vec<f32>>,
    pub window: fn(usize, usize, usize) -> Result<usize>,
    /// Takes stop strings and pieces of text. Returns the text shown after each piece up to the
    /// stop, whether it stopped, and the result of `finish`.
    pub stops: fn(&[String], &[String]) -> (Vec<String>, bool, String),
    /// Takes a request and the tokens generated so far.
    pub processor_input: fn(&Tokenizer, Request, &[u32]) -> Input,
    /// Takes a request, the tokens generated so far, and the logits to choose from.
    pub choose: fn(&Tokenizer, Request, &[u32], &[f32]) -> Result<(u32, f32)>,
    /// Takes a request and the logits of each step. Returns, for each step, `top` after `choose`,
    /// and `top` of the token pushed.
    pub top: TopOfSteps,
    /// Pushes new ids, with log-probabilities -1, -2, …, until the request ends. Returns the
    /// `Token`s and all ids.
    pub push: fn(&Tokenizer, Request, &[u32]) -> Result<(Vec<Token>, Vec<u32>)>,
    /// Returns all tokens, or the first error.
    pub generate: fn(&dyn Model, &Tokenizer, Request) -> Result<Vec<Token>>,
    /// Takes a model, a prompt, and the text to score after it.
    pub token_logprobs: fn(&dyn Model, &[u32], &[u32]) -> Result<Vec<f32>>,
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        crate::Day {
            argmax: code::argmax,
            log_softmax: code::log_softmax,
            window: code::window,
            stops: |stops, pieces| {
                let mut watch = code::StopStrings::new(stops);
                let (mut shown, mut stopped) = (Vec::new(), false);
                for piece in pieces {
                    let (text, stop) = watch.push(piece);
                    shown.push(text);
                    stopped = stop;
                    if stopped {
                        break;
                    }
                }
                (shown, stopped, watch.finish())
            },
            processor_input: |tokenizer, request, generated| {
                let mut sequence = code::Sequence::new(request, tokenizer);
                sequence.tokens.extend(generated);
                let input = sequence.processor_input();
                (input.tokens.to_vec(), input.prompt_len, input.remaining, input.eos.to_vec())
            },
            choose: |tokenizer, request, generated, raw| {
                let mut sequence = code::Sequence::new(request, tokenizer);
                sequence.tokens.extend(generated);
                sequence.choose(raw)
            },
            top: |tokenizer, request, steps| {
                let mut sequence = code::Sequence::new(request, tokenizer);
                let mut all = Vec::new();
                for raw in steps {
                    let (id, logprob) = sequence.choose(raw)?;
                    let chosen = sequence.top.clone();
                    all.push([chosen, sequence.push(id, logprob)?.top]);
                }
                Ok(all)
            },
            push: |tokenizer, request, ids| {
                let mut sequence = code::Sequence::new(request, tokenizer);
                sequence.top = vec![(9, -0.5)]; // as `choose` would leave it
                let mut tokens = Vec::new();
                for id in ids {
                    tokens.push(sequence.push(*id, -1.0 - tokens.len() as f32)?);
                    if sequence.finish.is_some() {
                        break;
                    }
                }
                Ok((tokens, sequence.tokens))
            },
            generate: |model, tokenizer, request| {
                code::generate(model, tokenizer, request)?.take(1000).collect()
            },
            token_logprobs: code::token_logprobs,
        }
    }};
}

frame::checks! {
    day07_greedy:
    7.1: the_largest_by_hand, ties_go_to_the_first,
        argmax_refuses_nan_and_rows_without_a_valid_token;
    7.2: log_softmax_by_hand, large_and_distant_logits_neither_overflow_nor_underflow,
        log_softmax_equals_torch;
    7.3: the_chosen_token_has_its_logprob, the_logprob_comes_from_the_raw_logits,
        processors_run_in_order, processors_see_the_whole_sequence,
        masking_every_token_or_sampling_out_of_range_is_an_error;
    7.4: a_stop_string_ends_the_text, the_stop_string_that_is_complete_first_ends_the_text,
        a_stop_string_may_span_pieces, held_back_text_is_shown_if_no_stop_string_follows,
        random_stop_strings_are_found_in_random_pieces;
    7.5: top_logprobs_ignore_processors_and_accompany_each_token, a_token_becomes_text,
        eos_never_appears_in_the_text, max_new_tokens_ends_the_text, a_stop_string_may_span_tokens,
        nothing_is_held_back_at_the_end;
    7.6: every_pass_sees_the_whole_sequence, the_context_limit_ends_the_text,
        the_loop_ends_at_eos_or_the_limit, tokens_and_logprobs_equal_transformers,
        generate_with_a_processor_equals_transformers, stop_strings_equal_transformers;
    7.7: log_probs_of_a_given_text_by_hand, score_refuses_invalid_input,
        scoring_a_story_reproduces_its_generation_logprobs;
    7.8: window_by_hand, window_of_random_lengths;
    7.9: the_window_moves_and_renumbers_its_positions, gpt2_writes_600_tokens,
        a_stride_of_1_equals_transformers, rope_is_renumbered_too;
}

/// Returns the best token; ties go to the first. Used where the reader's own isn't being tested.
fn largest(logits: &[f32]) -> Result<u32> {
    let best = (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
    best.map(|best| best as u32).ok_or(Error::Msg("there are no logits".into()))
}

/// Returns a greedy request to a small model: at most `max` new tokens, no EOS.
fn request<'a>(prompt: &[u32], max: usize) -> Request<'a> {
    let mut request = Request::new(counting(0).config(), prompt, max, largest);
    request.eos_token_ids.clear();
    request
}

/// Returns a model with 100 tokens and a context of 6 that always predicts the last token plus one.
fn counting(bound: usize) -> Fake {
    Fake::wants(100, 6, bound, |ids| ids[ids.len() - 1] + 1)
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| text.to_string()).collect()
}

fn numbers(got: Result<Vec<f32>>) -> Result<Tensor> {
    let got = got?;
    Tensor::from_vec(got.clone(), got.len(), &candle_core::Device::Cpu)
}

fn the_largest_by_hand(day: &Day) -> Outcome {
    const INF: f32 = f32::INFINITY;
    for (logits, want) in [
        (vec![1.0, 3.0, 2.0], 1),
        (vec![5.0, 3.0, 2.0], 0),
        (vec![1.0, 3.0, 4.0], 2),
        (vec![-3.0, -1.0, -2.0], 1),
        (vec![-INF, -INF, -7.0], 2),
        (vec![-0.5], 0),
    ] {
        equal(&format!("argmax of {logits:?}"), (day.argmax)(&logits), &want)?;
    }
    Ok(())
}

fn ties_go_to_the_first(day: &Day) -> Outcome {
    equal("argmax of [1, 3, 3]", (day.argmax)(&[1.0, 3.0, 3.0]), &1)?;
    equal("argmax of [2, 2, 2, 1]", (day.argmax)(&[2.0, 2.0, 2.0, 1.0]), &0)
}

fn argmax_refuses_nan_and_rows_without_a_valid_token(day: &Day) -> Outcome {
    const NAN: f32 = f32::NAN;
    for logits in [vec![1.0, NAN, 2.0], vec![NAN, 1.0], vec![2.0, NAN]] {
        refused(&format!("argmax of {logits:?}"), (day.argmax)(&logits), &[])
            .likely("every comparison with NaN is false, so it goes unnoticed: test with is_nan")?;
    }
    for logits in [vec![f32::NEG_INFINITY; 3], vec![]] {
        refused(&format!("argmax of {logits:?}"), (day.argmax)(&logits), &[])?;
    }
    Ok(())
}

// Two units in the last place of numbers near 145, the smallest in the golden: 2 × 1.5e-5.
const TOLERANCE: f32 = 3e-5;

fn log_softmax_by_hand(day: &Day) -> Outcome {
    // e^0 : e^ln 3 = 1 : 3
    let want = Tensor::new(&[0.25f32.ln(), 0.75f32.ln()], &candle_core::Device::Cpu)?;
    let got = numbers((day.log_softmax)(&[0.0, 3f32.ln()]));
    close("log_softmax of [0, ln 3]", got, &want, TOLERANCE)
}

fn large_and_distant_logits_neither_overflow_nor_underflow(day: &Day) -> Outcome {
    let half = 0.5f32.ln();
    for (logits, want, likely) in [
        (
            [1000.0, 1000.0],
            [half, half],
            "exp(1000) is infinite: subtract the maximum before exp, which makes it exp(0) = 1",
        ),
        (
            [0.0, -200.0],
            [0.0, -200.0],
            "exp(-200) is 0 in f32, and ln 0 is -inf: take no logarithm of a probability",
        ),
        ([-1000.0, -1000.0], [half, half], "exp(-1000) is 0: subtract the maximum before exp"),
        ([1e5, 1e5], [half, half], "exp(100000) is infinite: subtract the maximum before exp"),
        ([7.0, f32::NEG_INFINITY], [0.0, f32::NEG_INFINITY], "exp(-inf) is 0, which is right here"),
    ] {
        let input = format!("log_softmax of {logits:?}");
        let want = Tensor::new(&want, &candle_core::Device::Cpu)?;
        close(&input, numbers((day.log_softmax)(&logits)), &want, TOLERANCE)
            .likely_if_not_finite(likely)?;
    }
    refused("log_softmax of [1, NaN]", (day.log_softmax)(&[1.0, f32::NAN]), &[])?;
    let nothing = [f32::NEG_INFINITY; 2];
    refused("log_softmax of [-inf, -inf]", (day.log_softmax)(&nothing), &[])
}

fn log_softmax_equals_torch(day: &Day) -> Outcome {
    let (x, want) = (golden("day07", "log_softmax.in")?, golden("day07", "log_softmax.out")?);
    for row in 0..x.dim(0)? {
        let got = numbers((day.log_softmax)(&x.i(row)?.to_vec1::<f32>()?));
        let want = want.i(row)?.to_device(&candle_core::Device::Cpu)?;
        let input = format!("log_softmax of 40 random logits, row {row} of the golden");
        close(&input, got, &want, TOLERANCE)?;
    }
    Ok(())
}

/// Feeds pieces to `StopStrings` and checks its rules: it shows the text before the stop string
/// that is complete first, or everything if there is none, and pending text is always shorter than
/// the longest stop string.
fn watch(day: &Day, stops: &[&str], pieces: &[String]) -> Outcome {
    let input = format!("stop strings {stops:?}, text in pieces {pieces:?}");
    let (shown, stopped, end) = (day.stops)(&strings(stops), pieces);
    let longest = stops.iter().map(|stop| stop.chars().count()).max().unwrap_or(0);
    let (mut text, mut so_far) = (String::new(), String::new());
    for (piece, showed) in pieces.iter().zip(&shown) {
        text += piece;
        so_far += showed;
        // The first that is complete; of two that end together, the longer one.
        let found = stops.iter().filter(|stop| !stop.is_empty());
        let found = found.filter_map(|stop| text.find(stop).map(|at| (at + stop.len(), at)));
        if let Some((_, at)) = found.min() {
            equal(&input, Ok((so_far.as_str(), stopped)), &(&text[..at], true))?;
            return equal(&format!("{input}: finish, after the stop"), Ok(end), &String::new());
        }
        let held = text.chars().count().saturating_sub(so_far.chars().count());
        let right = text.starts_with(so_far.as_str()) && held <= longest.saturating_sub(1);
        let said = format!(
            "got    {so_far:?} shown after {text:?}\n  want   a prefix of the text, and at most {} \
                characters pending",
            longest.saturating_sub(1)
        );
        ensure(&input, right, &said)?;
    }
    equal(&input, Ok((so_far + &end, stopped)), &(text, false))
}

fn a_stop_string_ends_the_text(day: &Day) -> Outcome {
    watch(day, &["END"], &strings(&["the END of it"]))?;
    watch(day, &["END"], &strings(&["END"]))?;
    watch(day, &["two", "three", "o", "!"], &strings(&["no two three!"])).likely(
        "the stop string that is complete first ends the text, regardless of the list's order",
    )?;
    watch(day, &["b", "ab"], &strings(&["xab"]))
}

fn the_stop_string_that_is_complete_first_ends_the_text(day: &Day) -> Outcome {
    for pieces in [&["xabcd"][..], &["xa", "bcd"], &["x", "a", "b", "c", "d"]] {
        watch(day, &["abc", "b"], &strings(pieces)).likely(
            "how the text is divided must not matter: letter by letter, b is complete before abc",
        )?;
    }
    Ok(())
}

fn a_stop_string_may_span_pieces(day: &Day) -> Outcome {
    watch(day, &["the END"], &strings(&["at t", "he E", "N", "D."]))
        .likely("hold back the end of the text that could be the start of a stop string")?;
    watch(day, &["aab"], &strings(&["a", "a", "a", "b"]))
        .likely("after aaa, aab could start at the second a: hold back aa, not only a")?;
    watch(day, &["é!"], &strings(&["café", "!?"]))
}

fn held_back_text_is_shown_if_no_stop_string_follows(day: &Day) -> Outcome {
    watch(day, &["END"], &strings(&["the E", "Nd is n", "ear"]))?;
    watch(day, &["END"], &strings(&["the EN"]))?;
    watch(day, &["é!"], &strings(&["café", " é"]))?;
    watch(day, &[], &strings(&["no ", "stops"]))?;
    watch(day, &[""], &strings(&["an empty ", "stop"]))
}

fn random_stop_strings_are_found_in_random_pieces(day: &Day) -> Outcome {
    let mut random = Random::new(73);
    let text = |random: &mut Random, least: usize, most: usize| -> String {
        let letters = ["a", "b", "é"];
        (0..least + random.below(most)).map(|_| letters[random.below(3)]).collect()
    };
    for _ in 0..400 {
        let stops: Vec<String> = (0..random.below(3)).map(|_| text(&mut random, 1, 4)).collect();
        let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
        let pieces: Vec<String> =
            (0..1 + random.below(6)).map(|_| text(&mut random, 0, 4)).collect();
        watch(day, &stops, &pieces)?;
    }
    Ok(())
}

fn ask(day: &Day, raw: &[f32], request: Request) -> Result<(u32, f32)> {
    (day.choose)(&tokenizer()?, request, &[], raw)
}

/// Returns a processor that forbids a token.
fn without<'a>(id: usize) -> Rc<dyn LogitsProcessor + 'a> {
    named(format!("without({id})"), move |_, logits| {
        logits[id] = f32::NEG_INFINITY;
        Ok(())
    })
}

/// Returns a request with two EOS ids, and 3 tokens out of `max` already generated.
fn midway<'a>(max: usize) -> (Request<'a>, [u32; 3]) {
    let mut request = request(&[7, 8], max);
    request.eos_token_ids = vec![9, 5];
    (request, [1, 2, 3])
}

const MIDWAY: &str =
    "prompt 7, 8, generated 1, 2, 3, at most 5 new: tokens, prompt_len, remaining, eos";

fn the_chosen_token_has_its_logprob(day: &Day) -> Outcome {
    let (id, logprob) = ask(day, &[0.0, 3f32.ln()], request(&[7, 8], 5))?;
    equal("logits 0, ln 3, greedy: the id", Ok(id), &1)?;
    let want = Tensor::new(&[0.75f32.ln()], &candle_core::Device::Cpu)?;
    let input = "logits 0, ln 3, greedy: the log-probability";
    close(input, numbers(Ok(vec![logprob])), &want, TOLERANCE)
}

fn the_logprob_comes_from_the_raw_logits(day: &Day) -> Outcome {
    let mut request = request(&[7, 8], 5);
    request.processors.push(without(2));
    let got = ask(day, &[0.0, 2f32.ln(), 5f32.ln()], request)?;
    let input = "logits 0, ln 2, ln 5, a processor that forbids token 2";
    equal(&format!("{input}: the id"), Ok(got.0), &1)
        .likely("the choice is made from the processed logits")?;
    let want = Tensor::new(&[0.25f32.ln()], &candle_core::Device::Cpu)?;
    let input = format!("{input}: the log-probability");
    close(&input, numbers(Ok(vec![got.1])), &want, TOLERANCE)
        .likely("2 of 1 + 2 + 5: the model's own distribution, from the raw logits")
}

fn processors_run_in_order(day: &Day) -> Outcome {
    let seen = RefCell::new(Vec::new());
    let mut request = request(&[7, 8], 5);
    request.processors.push(named("add 1", |_, logits| {
        logits.iter_mut().for_each(|x| *x += 1.0);
        Ok(())
    }));
    request.processors.push(named("double", |_, logits| {
        logits.iter_mut().for_each(|x| *x *= 2.0);
        Ok(())
    }));
    request.sampler = Box::new(|logits| {
        seen.borrow_mut().push(logits.to_vec());
        Ok(2)
    });
    let got = ask(day, &[1.0, 2.0, 0.0], request)?;
    let input = "logits 1, 2, 0, processors: add 1, double; a sampler that takes token 2";
    equal(&format!("{input}: the id"), Ok(got.0), &2)?;
    let want = vec![vec![4.0, 6.0, 2.0]];
    equal(&format!("{input}: the logits passed to the sampler"), Ok(seen.into_inner()), &want)
}

fn processors_see_the_whole_sequence(day: &Day) -> Outcome {
    let seen = RefCell::new(None);
    let (mut request, generated) = midway(5);
    request.processors.push(named("look", |input: &ProcessorInput, _| {
        let eos = input.eos.to_vec();
        *seen.borrow_mut() = Some((input.tokens.to_vec(), input.prompt_len, input.remaining, eos));
        Ok(())
    }));
    (day.choose)(&tokenizer()?, request, &generated, &[0.0, 1.0])?;
    let seen = seen.into_inner().ok_or(Error::Msg("the processor was not called".into()));
    equal(MIDWAY, seen, &(vec![7, 8, 1, 2, 3], 2, 2, vec![9, 5]))?;
    let remaining = |max: usize| -> Result<usize> {
        let (request, generated) = midway(max);
        Ok((day.processor_input)(&tokenizer()?, request, &generated).2)
    };
    let input = "the same, at most usize::MAX new: remaining";
    equal(input, remaining(usize::MAX), &(usize::MAX - 3))?;
    equal("the same, at most 3 new: remaining", remaining(3), &0)?;
    let input = "prompt 7, 8, nothing generated, at most 5 new: tokens, prompt_len, remaining, eos";
    let got = (day.processor_input)(&tokenizer()?, self::request(&[7, 8], 5), &[]);
    equal(input, Ok(got), &(vec![7, 8], 2, 5, vec![]))
}

fn masking_every_token_or_sampling_out_of_range_is_an_error(day: &Day) -> Outcome {
    let mut empty = request(&[7, 8], 5);
    empty.processors = vec![without(0), without(1)];
    refused("two tokens, both forbidden", ask(day, &[1.0, 2.0], empty), &["without(1)"])
        .likely("process_all names the processor that left no token")?;
    let mut beyond = request(&[7, 8], 5);
    beyond.sampler = Box::new(|_| Ok(2));
    refused("two logits, and a sampler that chooses token 2", ask(day, &[1.0, 2.0], beyond), &[])
}

fn top_logprobs_ignore_processors_and_accompany_each_token(day: &Day) -> Outcome {
    let run = |top: Option<usize>| {
        let mut request = request(&[7, 8], 5);
        request.processors.push(without(2));
        request.top_logprobs = top;
        let logits = [[0.0, 2f32.ln(), 5f32.ln()], [5f32.ln(), 2f32.ln(), 0.0]];
        (day.top)(&tokenizer()?, request, &[&logits[0], &logits[1]])
    };
    let input = "logits 0, ln 2, ln 5, then ln 5, ln 2, 0; token 2 is forbidden, top_logprobs is 2";
    let steps = run(Some(2))?;
    let wants = [[(2, 0.625f32), (1, 0.25)], [(0, 0.625), (1, 0.25)]];
    for (step, ([chosen, pushed], want)) in steps.iter().zip(wants).enumerate() {
        for (got, what) in [(chosen, "top after choose"), (pushed, "top of the pushed token")] {
            let input = format!("{input}: {what}, step {step}");
            let ids = got.iter().map(|(id, _)| *id).collect::<Vec<_>>();
            equal(&format!("{input}: the ids"), Ok(ids), &want.map(|(id, _)| id).to_vec()).likely(
                "the model's own most likely tokens, best first: processors make no difference \
                 here",
            )?;
            let logprobs = numbers(Ok(got.iter().map(|(_, logprob)| *logprob).collect()))?;
            let want = Tensor::new(&want.map(|(_, p)| p.ln()), &candle_core::Device::Cpu)?;
            close(&format!("{input}: their log-probabilities"), Ok(logprobs), &want, TOLERANCE)?;
        }
    }
    let none = vec![[vec![], vec![]]; 2];
    equal("the same, top_logprobs is None: top of both", run(None), &none)
}

/// Pushes the ids of `text`. Returns the resulting text, the finish reason, all ids, and the ids of
/// `text`.
fn pushed(
    day: &Day,
    text: &str,
    change: impl Fn(&Tokenizer, &mut Request) -> Result<()>,
) -> Result<(String, Option<FinishReason>, Vec<u32>, Vec<u32>)> {
    let tokenizer = tokenizer()?;
    let mut request = request(&[5, 6], 20);
    change(&tokenizer, &mut request)?;
    let ids = tokenizer.encode(text)?;
    let (tokens, all) = (day.push)(&tokenizer, request, &ids)?;
    let text = tokens.iter().map(|token| token.text.as_str()).collect();
    Ok((text, tokens.last().and_then(|token| token.finish), all, ids))
}

/// Checks the text and finish reason after pushing tokens, and that `count` of the ids were kept.
fn ends(
    input: &str,
    got: Result<(String, Option<FinishReason>, Vec<u32>, Vec<u32>)>,
    want: &str,
    finish: FinishReason,
    count: usize,
) -> Outcome {
    let (text, why, all, ids) = got?;
    equal(
        &format!("{input}: text and finish"),
        Ok((text, why)),
        &(want.to_string(), Some(finish)),
    )?;
    let want = [&[5, 6], &ids[..count]].concat();
    equal(&format!("{input}: prompt and new tokens"), Ok(all), &want)
}

fn a_token_becomes_text(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let ids = tokenizer.encode("Once upon a café")?;
    let mut request = request(&[5, 6], 20);
    request.id = 3;
    let (tokens, all) = (day.push)(&tokenizer, request, &ids)?;
    let input = "Once upon a café, nothing to stop it";
    let text: String = tokens.iter().map(|token| token.text.as_str()).collect();
    equal(&format!("{input}: the text"), Ok(text.as_str()), &"Once upon a café")?;
    equal(
        &format!("{input}: prompt and new tokens"),
        Ok(all),
        &[vec![5, 6], ids.clone()].concat(),
    )?;
    let got: Vec<_> = tokens.iter().map(|t| (t.row, t.id, t.logprob, t.finish)).collect();
    let want: Vec<_> =
        ids.iter().enumerate().map(|(i, id)| (3, *id, -1.0 - i as f32, None)).collect();
    equal(&format!("{input}: row, id, logprob, finish of each"), Ok(got), &want)?;
    let got: Vec<usize> = tokens.iter().map(|token| token.top.len()).collect();
    let want: Vec<usize> = (0..ids.len()).map(|i| usize::from(i == 0)).collect();
    equal(
        &format!("{input}, one entry in `top` at first: number of top tokens of each"),
        Ok(got),
        &want,
    )
    .likely("`top` moves into the token, and is empty afterwards")
}

fn eos_never_appears_in_the_text(day: &Day) -> Outcome {
    // Use an ordinary token as EOS, because its text would show.
    let time = |tokenizer: &Tokenizer, request: &mut Request| {
        request.eos_token_ids = tokenizer.encode(" time")?;
        Ok(())
    };
    let input = "Once upon a time, where the token \" time\" is EOS";
    let got = pushed(day, "Once upon a time, there", time);
    ends(input, got, "Once upon a", FinishReason::Eos, 4)?;
    let got = pushed(day, "Once upon a time", |tokenizer, request| {
        request.max_new_tokens = 4;
        time(tokenizer, request)
    });
    ends(&format!("{input}, at most 4 new"), got, "Once upon a", FinishReason::Eos, 4)?;
    let got = pushed(day, "Once upon a time, there", |tokenizer, request| {
        request.eos_token_ids = [vec![0], tokenizer.encode(" time")?].concat();
        Ok(())
    });
    let input = "Once upon a time, where token 0 and the token \" time\" are EOS";
    ends(input, got, "Once upon a", FinishReason::Eos, 4)
        .likely("a model can have several EOS ids; each of them ends the text")
}

fn max_new_tokens_ends_the_text(day: &Day) -> Outcome {
    let got = pushed(day, "Once upon a time", |_, request| {
        request.max_new_tokens = 3;
        Ok(())
    });
    ends("Once upon a time, at most 3 new", got, "Once upon a", FinishReason::Length, 3)
        .likely("max_new_tokens counts only generated tokens, not the 2 tokens of the prompt")
}

fn a_stop_string_may_span_tokens(day: &Day) -> Outcome {
    let stop = |stop: &'static str, max: usize| {
        move |_: &Tokenizer, request: &mut Request| {
            request.stop_strings = strings(&[stop]);
            request.max_new_tokens = max;
            Ok(())
        }
    };
    let input = "Once upon a time, there; stop string \"pon a t\"";
    let got = pushed(day, "Once upon a time, there", stop("pon a t", 20));
    ends(input, got, "Once u", FinishReason::Stop, 4)?;
    let got = pushed(day, "Once upon a time, there", stop("pon a t", 4));
    ends(&format!("{input}, at most 4 new"), got, "Once u", FinishReason::Stop, 4)
        .likely("a complete stop string takes precedence over the limit")?;
    let got = pushed(day, "a café! ", stop("é!", 20));
    ends("a café!; stop string \"é!\"", got, "a caf", FinishReason::Stop, 6)
}

fn nothing_is_held_back_at_the_end(day: &Day) -> Outcome {
    let held = |max: usize, eos: &'static str| {
        move |tokenizer: &Tokenizer, request: &mut Request| {
            request.stop_strings = strings(&["a timeless"]);
            request.max_new_tokens = max;
            request.eos_token_ids = tokenizer.encode(eos)?;
            Ok(())
        }
    };
    let input = "Once upon a time; stop string \"a timeless\"";
    let got = pushed(day, "Once upon a time", held(4, ""));
    ends(&format!("{input}, at most 4 new"), got, "Once upon a time", FinishReason::Length, 4)?;
    let got = pushed(day, "Once upon a time", held(20, " time"));
    ends(&format!("{input}, EOS \" time\""), got, "Once upon a", FinishReason::Eos, 4)?;
    let got = pushed(day, "café", |_, request| {
        request.max_new_tokens = 3;
        Ok(())
    });
    let input = "café, at most 3 new, which ends with half of the é";
    ends(input, got, "caf\u{fffd}", FinishReason::Length, 3)?;
    let got = pushed(day, "café", |tokenizer, request| {
        request.eos_token_ids = tokenizer.encode("é")?[1..].to_vec();
        Ok(())
    });
    ends("café, EOS after half of the é", got, "caf\u{fffd}", FinishReason::Eos, 4)
}

fn window_by_hand(day: &Day) -> Outcome {
    for (len, context, stride, want) in [
        (3, 10, 4, 0),
        (10, 10, 4, 0),
        (11, 10, 4, 4),
        (14, 10, 4, 4),
        (15, 10, 4, 8),
        (11, 10, 1, 1),
        (17, 10, 1, 7),
        (11, 10, 10, 10),
        (257, 256, 64, 64),
        (604, 256, 64, 384),
    ] {
        let input = format!("window({len}, {context}, {stride})");
        equal(&input, (day.window)(len, context, stride), &want)
            .likely("the smallest multiple of stride that leaves at most context tokens")?;
    }
    for stride in [0, 11] {
        refused(&format!("window(20, 10, {stride})"), (day.window)(20, 10, stride), &[])
            .likely("a stride of 0 never moves, and one above the context drops everything")?;
    }
    Ok(())
}

fn window_of_random_lengths(day: &Day) -> Outcome {
    let mut random = Random::new(76);
    for _ in 0..500 {
        let context = 1 + random.below(40);
        let (len, stride) = (random.below(200), 1 + random.below(context));
        let want = (0..).map(|i| i * stride).find(|first| len <= context + first).unwrap_or(0);
        equal(
            &format!("window({len}, {context}, {stride})"),
            (day.window)(len, context, stride),
            &want,
        )?;
    }
    Ok(())
}

/// Returns the ids and positions of a model's passes.
fn passes(model: &Fake) -> Vec<(Vec<u32>, Vec<u32>)> {
    let passes = model.passes.take();
    passes.into_iter().map(|(ids, positions)| (ids.concat(), positions.concat())).collect()
}

/// Returns one pass, starting at position 0, for each of these ranges of tokens.
fn from_zero(ranges: &[std::ops::Range<u32>]) -> Vec<(Vec<u32>, Vec<u32>)> {
    let pass =
        |ids: &std::ops::Range<u32>| (ids.clone().collect(), (0..ids.len() as u32).collect());
    ranges.iter().map(pass).collect()
}

fn the_window_moves_and_renumbers_its_positions(day: &Day) -> Outcome {
    window_by_hand(day)?; // so that a wrong window isn't blamed on the loop
    let model = counting(20);
    let mut request = request(&[1, 2, 3], 7);
    request.past_context = PastContext::Window { stride: 2 };
    let tokens = (day.generate)(&model, &tokenizer()?, request)?;
    let input = "prompt 1, 2, 3, 7 new, a context of 6, stride 2";
    let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
    equal_tokens(&format!("{input}: the new tokens"), Ok(ids), &[4, 5, 6, 7, 8, 9, 10], &[])?;
    let want = from_zero(&[1..4, 1..5, 1..6, 1..7, 3..8, 3..9, 5..10]);
    equal(&format!("{input}: (ids, positions) of every pass"), Ok(passes(&model)), &want)
        .likely("positions are renumbered from 0 in every pass")
}

fn every_pass_sees_the_whole_sequence(day: &Day) -> Outcome {
    let model = counting(20);
    let tokens = (day.generate)(&model, &tokenizer()?, request(&[1, 2, 3], 3))?;
    let input = "prompt 1, 2, 3, 3 new";
    let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
    equal_tokens(&format!("{input}: the new tokens"), Ok(ids), &[4, 5, 6], &[])?;
    let want = from_zero(&[1..4, 1..5, 1..6]);
    equal(&format!("{input}: (ids, positions) of every pass"), Ok(passes(&model)), &want)
}

fn the_context_limit_ends_the_text(day: &Day) -> Outcome {
    let model = counting(20);
    let tokens = (day.generate)(&model, &tokenizer()?, request(&[1, 2, 3], 20))?;
    let got: Vec<_> = tokens.iter().map(|token| (token.id, token.finish)).collect();
    let input = "prompt 1, 2, 3, at most 20 new, a context of 6: ids and finish";
    let want = vec![(4, None), (5, None), (6, None), (7, Some(FinishReason::Length))];
    equal(input, Ok(got), &want)
        .likely("`remaining` counts from the request's max_new_tokens, which `fit` has lowered")
}

fn the_loop_ends_at_eos_or_the_limit(day: &Day) -> Outcome {
    let run = |max: usize, eos: &[u32], prompt: &[u32]| {
        let mut request = request(prompt, max);
        request.eos_token_ids = eos.to_vec();
        let tokens = (day.generate)(&counting(9), &tokenizer()?, request)?;
        if let Some(token) = tokens.iter().find(|token| token.row != 0) {
            bail!("a token has row {}, but the request's id is 0", token.row)
        }
        Ok(tokens.iter().map(|token| (token.id, token.finish)).collect::<Vec<_>>())
    };
    let input = "prompt 1, 2, at most 1 new: ids and finish";
    equal(input, run(1, &[], &[1, 2]), &vec![(3, Some(FinishReason::Length))])?;
    let input = "prompt 1, 2, at most 3 new: ids and finish";
    let want = vec![(3, None), (4, None), (5, Some(FinishReason::Length))];
    equal(input, run(3, &[], &[1, 2]), &want)?;
    let input = "prompt 1, 2, at most 2 new: ids and finish";
    equal(input, run(2, &[], &[1, 2]), &vec![(3, None), (4, Some(FinishReason::Length))])?;
    let input = "prompt 1, 2, at most 5 new, EOS 4 or 2: ids and finish";
    equal(input, run(5, &[4, 2], &[1, 2]), &vec![(3, None), (4, Some(FinishReason::Eos))])?;
    let input = "prompt 1, 2, at most 2 new, EOS 4: ids and finish";
    equal(input, run(2, &[4], &[1, 2]), &vec![(3, None), (4, Some(FinishReason::Eos))])?;
    equal("at most 0 new", run(0, &[], &[1, 2]), &vec![])?;
    let input = "a prompt of 6 tokens, a context of 6, at most 1 new: ids and finish";
    equal(input, run(1, &[], &[1, 1, 1, 1, 1, 2]), &vec![(3, Some(FinishReason::Length))])?;
    refused("an empty prompt", run(2, &[], &[]), &[])?;
    refused("an empty prompt, at most 0 new", run(0, &[], &[]), &[])?;
    refused("a prompt of 7 tokens, a context of 6", run(2, &[], &[1; 7]), &["context"])
}

/// A case from `oracle.json`.
#[derive(serde::Deserialize)]
struct Case {
    model: String,
    prompt: String,
    prompt_ids: Vec<u32>,
    new_ids: Vec<u32>,
    logprobs: Vec<f32>,
    margins: Vec<f32>,
    max_new_tokens: usize,
    #[serde(default)]
    text: String,
    #[serde(default)]
    stop_strings: Vec<String>,
    #[serde(default)]
    suppress_tokens: Vec<usize>,
    #[serde(default)]
    stride: usize,
}

fn cases(list: &str) -> Result<Vec<Case>> {
    let cases = golden_json("day07")?[list].take();
    serde_json::from_value(cases).map_err(|e| Error::Msg(format!("day07.json: {e}")))
}

impl Case {
    fn request<'a>(&self, day: &Day, config: &ModelConfig) -> Request<'a> {
        let mut request = Request::new(config, &self.prompt_ids, self.max_new_tokens, day.argmax);
        request.stop_strings.clone_from(&self.stop_strings);
        request.processors = self.suppress_tokens.iter().map(|id| without(*id)).collect();
        request
    }

    /// Checks that tokens and log-probabilities match the golden.
    fn compare(&self, input: &str, tokens: &[Token]) -> Outcome {
        let ids = tokens.iter().map(|token| token.id).collect();
        equal_tokens(&format!("{input}: tokens"), Ok(ids), &self.new_ids, &self.margins)?;
        let logprobs = tokens.iter().map(|token| token.logprob).collect();
        let want = numbers(Ok(self.logprobs.clone()))?;
        // Logits agree to 1e-4 (day 5), and so does their log-sum-exp.
        close(&format!("{input}: log-probabilities"), numbers(Ok(logprobs)), &want, 2e-4)
    }

    fn equals_transformers(&self, day: &Day) -> Outcome {
        let model = Recall::new(&self.model, self.max_new_tokens + 2)?;
        let request = self.request(day, model.config());
        let tokens = (day.generate)(&model, &tokenizer()?, request)?;
        let input = format!("{}, \"{}\", at most {}", self.model, self.prompt, self.max_new_tokens);
        self.compare(&input, &tokens)?;
        let text: String = tokens.iter().map(|token| token.text.as_str()).collect();
        equal(&format!("{input}: the text"), Ok(text), &self.text)?;
        let last = self.new_ids.last().copied();
        let want = match last {
            Some(id) if model.config().eos_token_ids.contains(&id) => FinishReason::Eos,
            _ if self.new_ids.len() < self.max_new_tokens => FinishReason::Stop,
            _ => FinishReason::Length,
        };
        let finish = tokens.last().and_then(|token| token.finish);
        equal(&format!("{input}: the finish reason"), Ok(finish), &Some(want))
    }

    /// Returns the ids of the passes, one for each window: no longer than the context, and ending
    /// one token before the last.
    fn windows(&self, context: usize) -> Vec<Vec<u32>> {
        let ids = [self.prompt_ids.clone(), self.new_ids.clone()].concat();
        let most = ids.len() - 1;
        let firsts = (0..)
            .map(|i| i * self.stride)
            .take_while(|first| *first + context < most + self.stride);
        firsts.map(|first| ids[first..most.min(first + context)].to_vec()).collect()
    }
}

fn tokens_and_logprobs_equal_transformers(day: &Day) -> Outcome {
    cases("greedy")?.iter().try_for_each(|case| case.equals_transformers(day))
}

fn generate_with_a_processor_equals_transformers(day: &Day) -> Outcome {
    cases("suppressed")?.iter().try_for_each(|case| case.equals_transformers(day))
}

fn stop_strings_equal_transformers(day: &Day) -> Outcome {
    cases("stopped")?.iter().try_for_each(|case| case.equals_transformers(day))
}

/// Runs a case beyond the context length, where the oracle is transformers' forward on the cropped
/// ids. The texts continue past the end of a story.
fn windowed(day: &Day, number: usize) -> Outcome {
    let case = cases("windowed")?.swap_remove(number);
    let Case { model: name, prompt, stride, max_new_tokens: most, .. } = &case;
    let context = Recall::new(name, 0)?.config().max_position_embeddings;
    let model = Recall::only(name, most + 2, case.windows(context))?;
    let mut request = case.request(day, model.config());
    request.past_context = PastContext::Window { stride: *stride };
    request.eos_token_ids.clear();
    let tokens = (day.generate)(&model, &tokenizer()?, request)?;
    let input = format!("{name}, {prompt}, {most} new, a context of {context}, stride {stride}");
    case.compare(&input, &tokens)
}

fn gpt2_writes_600_tokens(day: &Day) -> Outcome {
    windowed(day, 0)
}

fn a_stride_of_1_equals_transformers(day: &Day) -> Outcome {
    windowed(day, 1)
}

fn rope_is_renumbered_too(day: &Day) -> Outcome {
    windowed(day, 2)
}

/// Returns a model of three tokens with a context of 4. After token 0, its probabilities are 1/8,
/// 3/8 and 4/8; after token 1, they are 5/8, 2/8 and 1/8; after token 2, they are the same three as
/// after 0, in reverse.
fn three_tokens() -> Fake {
    Fake::new(3, 4, 1, |ids| match ids[ids.len() - 1] {
        0 => vec![0.0, 3f32.ln(), 4f32.ln()],
        1 => vec![5f32.ln(), 2f32.ln(), 0.0],
        _ => vec![4f32.ln(), 3f32.ln(), 0.0],
    })
}

fn log_probs_of_a_given_text_by_hand(day: &Day) -> Outcome {
    let model = three_tokens();
    let got = numbers((day.token_logprobs)(&model, &[2, 0], &[1, 1, 0]));
    let want = [3.0f32 / 8.0, 2.0 / 8.0, 5.0 / 8.0].map(f32::ln);
    let want = Tensor::new(&want, &candle_core::Device::Cpu)?;
    let input = "prompt 2, 0, text 1, 1, 0";
    close(&format!("{input}: log-probabilities"), got, &want, TOLERANCE)?;
    let want = vec![(vec![2, 0, 1, 1], vec![0, 1, 2, 3])];
    equal(&format!("{input}: (ids, positions) of every pass"), Ok(passes(&model)), &want)
        .likely("one pass is enough, and the last token's row isn't needed")
}

fn score_refuses_invalid_input(day: &Day) -> Outcome {
    let score = |prompt: &[u32], text: &[u32]| (day.token_logprobs)(&three_tokens(), prompt, text);
    refused("no prompt, text 1, 2", score(&[], &[1, 2]), &[])
        .likely("no row predicts the first token of a text")?;
    refused("prompt 0, text 1, 3, a vocabulary of 3", score(&[0], &[1, 3]), &[])?;
    refused("prompt 0, 1, text 0, 1, 0, 1, a context of 4", score(&[0, 1], &[0, 1, 0, 1]), &[])?;
    equal("prompt 0, 1, no text", score(&[0, 1], &[]), &vec![])
}

fn scoring_a_story_reproduces_its_generation_logprobs(day: &Day) -> Outcome {
    for case in cases("greedy")? {
        let model = Recall::new(&case.model, 1)?;
        let got = numbers((day.token_logprobs)(&model, &case.prompt_ids, &case.new_ids));
        let want = numbers(Ok(case.logprobs.clone()))?;
        let input = format!("{}, \"{}\", its own greedy text", case.model, case.prompt);
        close(&format!("{input}: log-probabilities"), got, &want, 2e-4)?;
    }
    Ok(())
}
