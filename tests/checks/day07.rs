//! What day 7's checkers assert.

use super::checks::{
    close, ensure, equal, equal_tokens, golden, golden_json, refused, tokenizer, Fake, Likely,
    Outcome, Random, Recall,
};
use candecode::kit::{
    named, FinishReason, GenerationOptions, Model, ModelConfig, ProcessorInput, Token, Tokenizer,
};
use candle_core::{bail, Error, IndexOp, Result, Tensor};
use std::cell::RefCell;

/// What a `Sequence` is asked to choose from: its row, its tokens (the first `prompt_len` are the prompt), the logits.
pub struct Question<'a> {
    pub row: usize,
    pub tokens: &'a [u32],
    pub prompt_len: usize,
    pub raw: &'a [f32],
}

/// Day 7 as a bundle of functions.
#[derive(Clone, Copy)]
pub struct Day {
    pub argmax: fn(&[f32]) -> Result<u32>,
    pub greedy: fn(usize, &[f32]) -> Result<u32>,
    pub log_softmax: fn(&[f32]) -> Result<Vec<f32>>,
    pub window: fn(usize, usize, usize) -> Result<usize>,
    /// Stop strings and pieces of text: what is shown after each piece up to the stop, whether it stopped, the end.
    pub stops: fn(&[String], &[String]) -> (Vec<String>, bool, String),
    pub choose: fn(&Tokenizer, &Question, &mut GenerationOptions) -> Result<(u32, f32)>,
    /// Prompt and new ids, of log-probabilities -1, -2, …, pushed up to the end: the `Token`s, and all ids after it.
    pub push: fn(&Tokenizer, &[u32], &[u32], &GenerationOptions) -> Result<(Vec<Token>, Vec<u32>)>,
    /// All tokens; an error of any of them.
    pub generate: fn(&dyn Model, &Tokenizer, &[u32], GenerationOptions) -> Result<Vec<Token>>,
}

/// Fills the bundle from a module: the reader's, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        day::Day {
            argmax: code::argmax,
            greedy: code::greedy,
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
            choose: |tokenizer, question, options| {
                let (prompt, new) = question.tokens.split_at(question.prompt_len);
                let mut sequence = code::Sequence::new(question.row, prompt, tokenizer, &[]);
                sequence.tokens.extend(new);
                sequence.choose(question.raw, options)
            },
            push: |tokenizer, prompt, ids, options| {
                let mut sequence = code::Sequence::new(3, prompt, tokenizer, &options.stop_strings);
                let mut tokens = Vec::new();
                for id in ids {
                    tokens.push(sequence.push(*id, -1.0 - tokens.len() as f32, options)?);
                    if tokens.last().is_some_and(|token| token.finish.is_some()) {
                        break;
                    }
                }
                Ok((tokens, sequence.tokens))
            },
            generate: |model, tokenizer, prompt, options| {
                code::generate(model, tokenizer, prompt, options)?.take(1000).collect()
            },
        }
    }};
}

/// The best token, the first of equals: where the reader's own is not what is checked.
fn largest(_row: usize, logits: &[f32]) -> Result<u32> {
    let best = (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
    best.map(|best| best as u32).ok_or(Error::Msg("there are no logits".into()))
}

/// Options of a small model: at most `most` new tokens, no EOS.
fn options<'a>(most: usize) -> GenerationOptions<'a> {
    let mut options = GenerationOptions::new(counting(0).config(), most, largest);
    options.eos_token_ids.clear();
    options
}

/// 100 tokens, a context of 6; after any text it wants the last token plus one.
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

pub fn the_largest_by_hand(day: &Day) -> Outcome {
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

pub fn the_first_of_equals(day: &Day) -> Outcome {
    equal("argmax of [1, 3, 3]", (day.argmax)(&[1.0, 3.0, 3.0]), &1)?;
    equal("argmax of [2, 2, 2, 1]", (day.argmax)(&[2.0, 2.0, 2.0, 1.0]), &0)
}

pub fn nonsense_is_refused(day: &Day) -> Outcome {
    const NAN: f32 = f32::NAN;
    for logits in [vec![1.0, NAN, 2.0], vec![NAN, 1.0], vec![2.0, NAN]] {
        refused(&format!("argmax of {logits:?}"), (day.argmax)(&logits), &[])
            .likely("every comparison with NaN is false, so it hides: look for it with is_nan")?;
    }
    for logits in [vec![f32::NEG_INFINITY; 3], vec![]] {
        refused(&format!("argmax of {logits:?}"), (day.argmax)(&logits), &[])?;
    }
    Ok(())
}

pub fn argmax_of_anything(day: &Day) -> Outcome {
    let mut random = Random::new(71);
    for _ in 0..200 {
        // Few different values, so that equals are frequent.
        let logits: Vec<f32> =
            (0..1 + random.below(30)).map(|_| random.below(9) as f32 - 12.0).collect();
        let want = largest(0, &logits)?;
        equal(&format!("argmax of {logits:?}"), (day.argmax)(&logits), &want)?;
        equal(&format!("greedy of {logits:?}"), (day.greedy)(0, &logits), &want)?;
    }
    Ok(())
}

// Two units in the last place of numbers near 145, the smallest of the golden: 2 × 1.5e-5.
const TOLERANCE: f32 = 3e-5;

pub fn log_softmax_by_hand(day: &Day) -> Outcome {
    // e^0 : e^ln 3 = 1 : 3
    let want = Tensor::new(&[0.25f32.ln(), 0.75f32.ln()], &candle_core::Device::Cpu)?;
    let got = numbers((day.log_softmax)(&[0.0, 3f32.ln()]));
    close("log_softmax of [0, ln 3]", got, &want, TOLERANCE)
}

pub fn log_softmax_of_large_and_far(day: &Day) -> Outcome {
    let half = 0.5f32.ln();
    for (logits, want, likely) in [
        (
            [1000.0, 1000.0],
            [half, half],
            "exp(1000) is infinite: subtract the maximum before exp, and it is exp(0) = 1",
        ),
        (
            [0.0, -200.0],
            [0.0, -200.0],
            "exp(-200) is 0 in f32, and ln 0 is -inf: take no logarithm of a probability",
        ),
        ([-1000.0, -1000.0], [half, half], "exp(-1000) is 0: subtract the maximum before exp"),
        ([7.0, f32::NEG_INFINITY], [0.0, f32::NEG_INFINITY], "exp(-inf) is 0, and that is right"),
    ] {
        let input = format!("log_softmax of {logits:?}");
        let want = Tensor::new(&want, &candle_core::Device::Cpu)?;
        close(&input, numbers((day.log_softmax)(&logits)), &want, TOLERANCE).likely(likely)?;
    }
    refused("log_softmax of [1, NaN]", (day.log_softmax)(&[1.0, f32::NAN]), &[])?;
    let nothing = [f32::NEG_INFINITY; 2];
    refused("log_softmax of [-inf, -inf]", (day.log_softmax)(&nothing), &[])
}

pub fn log_softmax_equals_torch(day: &Day) -> Outcome {
    let (x, want) = (golden("day07", "log_softmax.in")?, golden("day07", "log_softmax.out")?);
    for row in 0..x.dim(0)? {
        let got = numbers((day.log_softmax)(&x.i(row)?.to_vec1::<f32>()?));
        let want = want.i(row)?.to_device(&candle_core::Device::Cpu)?;
        let input = format!("log_softmax of 40 random logits, row {row} of the golden");
        close(&input, got, &want, TOLERANCE)?;
    }
    Ok(())
}

/// Runs a watch over pieces and holds it to the rules: nothing shown that belongs to a stop string, everything shown in
/// the end, and no more held back than the longest stop string less one character.
fn watch(day: &Day, stops: &[&str], pieces: &[String]) -> Outcome {
    let input = format!("stop strings {stops:?}, text in pieces {pieces:?}");
    let (shown, stopped, end) = (day.stops)(&strings(stops), pieces);
    let longest = stops.iter().map(|stop| stop.chars().count()).max().unwrap_or(0);
    let (mut text, mut so_far) = (String::new(), String::new());
    for (piece, showed) in pieces.iter().zip(&shown) {
        text += piece;
        so_far += showed;
        let found = stops.iter().filter(|stop| !stop.is_empty());
        if let Some(at) = found.filter_map(|stop| text.find(stop)).min() {
            equal(&input, Ok((so_far.as_str(), stopped)), &(&text[..at], true))?;
            return equal(&format!("{input}: finish, after the stop"), Ok(end), &String::new());
        }
        let held = text.chars().count().saturating_sub(so_far.chars().count());
        let right = text.starts_with(so_far.as_str()) && held <= longest.saturating_sub(1);
        let said = format!("{input}\n  after {text:?} it has shown {so_far:?}");
        ensure(&said, right, "shown too much, too little, or something else")?;
    }
    equal(&input, Ok((so_far + &end, stopped)), &(text, false))
}

pub fn a_stop_string_ends_the_text(day: &Day) -> Outcome {
    watch(day, &["END"], &strings(&["the END of it"]))?;
    watch(day, &["END"], &strings(&["END"]))?;
    watch(day, &["two", "three", "o", "!"], &strings(&["no two three!"]))
        .likely("the earliest in the text ends it, whatever the order of the list")?;
    watch(day, &["b", "ab"], &strings(&["xab"]))
}

pub fn a_stop_string_across_pieces(day: &Day) -> Outcome {
    watch(day, &["the END"], &strings(&["at t", "he E", "N", "D."]))
        .likely("keep the end of the text that may be the beginning of a stop string")?;
    watch(day, &["aab"], &strings(&["a", "a", "a", "b"]))
        .likely("the text aaa may begin aab at its second a: keep aa, not only a")?;
    watch(day, &["é!"], &strings(&["café", "!?"]))
}

pub fn what_was_held_back_is_shown(day: &Day) -> Outcome {
    watch(day, &["END"], &strings(&["the E", "Nd is n", "ear"]))?;
    watch(day, &["END"], &strings(&["the EN"]))?;
    watch(day, &["é!"], &strings(&["café", " é"]))?;
    watch(day, &[], &strings(&["no ", "stops"]))?;
    watch(day, &[""], &strings(&["an empty ", "stop"]))
}

pub fn any_stops_in_any_pieces(day: &Day) -> Outcome {
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

fn ask(day: &Day, raw: &[f32], options: &mut GenerationOptions) -> Result<(u32, f32)> {
    let question = Question { row: 0, tokens: &[7, 8], prompt_len: 2, raw };
    (day.choose)(&tokenizer()?, &question, options)
}

/// Forbids a token.
fn without<'a>(id: usize) -> Box<dyn candecode::kit::LogitsProcessor + 'a> {
    Box::new(named(format!("without({id})"), move |_: &ProcessorInput, logits: &mut [f32]| {
        logits[id] = f32::NEG_INFINITY;
        Ok(())
    }))
}

pub fn the_choice_and_its_worth(day: &Day) -> Outcome {
    let (id, logprob) = ask(day, &[0.0, 3f32.ln()], &mut options(5))?;
    equal("logits 0, ln 3, greedy: the id", Ok(id), &1)?;
    let want = Tensor::new(&[0.75f32.ln()], &candle_core::Device::Cpu)?;
    let input = "logits 0, ln 3, greedy: the log-probability";
    close(input, numbers(Ok(vec![logprob])), &want, TOLERANCE)
}

pub fn the_logprob_is_the_models_own(day: &Day) -> Outcome {
    let mut options = options(5);
    options.processors.push(without(2));
    let got = ask(day, &[0.0, 2f32.ln(), 5f32.ln()], &mut options)?;
    let input = "logits 0, ln 2, ln 5, a processor that forbids token 2";
    equal(&format!("{input}: the id"), Ok(got.0), &1)
        .likely("the choice is made from the processed logits")?;
    let want = Tensor::new(&[0.25f32.ln()], &candle_core::Device::Cpu)?;
    let input = format!("{input}: the log-probability");
    close(&input, numbers(Ok(vec![got.1])), &want, TOLERANCE)
        .likely("2 of 1 + 2 + 5: the model's own distribution, from the raw logits")
}

pub fn processors_run_in_order(day: &Day) -> Outcome {
    let seen = RefCell::new(Vec::new());
    let mut options = options(5);
    options.processors.push(Box::new(named("add 1", |_: &ProcessorInput, logits: &mut [f32]| {
        logits.iter_mut().for_each(|x| *x += 1.0);
        Ok(())
    })));
    options.processors.push(Box::new(named("double", |_: &ProcessorInput, logits: &mut [f32]| {
        logits.iter_mut().for_each(|x| *x *= 2.0);
        Ok(())
    })));
    options.choose = Box::new(|row, logits| {
        seen.borrow_mut().push((row, logits.to_vec()));
        Ok(2)
    });
    let question = Question { row: 4, tokens: &[7, 8], prompt_len: 2, raw: &[1.0, 2.0, 0.0] };
    let got = (day.choose)(&tokenizer()?, &question, &mut options)?;
    drop(options);
    let input = "logits 1, 2, 0 of row 4, processors: add 1, double; a choice that takes token 2";
    equal(&format!("{input}: the id"), Ok(got.0), &2)?;
    let want = vec![(4, vec![4.0, 6.0, 2.0])];
    equal(&format!("{input}: what the choice saw"), Ok(seen.into_inner()), &want)
}

pub fn processors_see_the_context(day: &Day) -> Outcome {
    let look = |most: usize| -> Result<(Vec<u32>, usize, usize, Vec<u32>)> {
        let seen = RefCell::new(None);
        let mut options = options(most);
        options.eos_token_ids = vec![9, 5];
        options.processors.push(Box::new(named("look", |cx: &ProcessorInput, _: &mut [f32]| {
            let eos = cx.eos.to_vec();
            *seen.borrow_mut() = Some((cx.tokens.to_vec(), cx.prompt_len, cx.remaining, eos));
            Ok(())
        })));
        let question =
            Question { row: 0, tokens: &[7, 8, 1, 2, 3], prompt_len: 2, raw: &[0.0, 1.0] };
        (day.choose)(&tokenizer()?, &question, &mut options)?;
        drop(options);
        seen.into_inner().ok_or(Error::Msg("the processor was not called".into()))
    };
    let want = (vec![7, 8, 1, 2, 3], 2, 2, vec![9, 5]);
    let input = "prompt 7, 8, generated 1, 2, 3, at most 5 new: tokens, prompt_len, remaining, eos";
    equal(input, look(5), &want)?;
    let input = "the same, at most usize::MAX new: remaining";
    equal(input, look(usize::MAX).map(|seen| seen.2), &(usize::MAX - 3))
}

pub fn no_choice_is_an_error(day: &Day) -> Outcome {
    let mut empty = options(5);
    empty.processors = vec![without(0), without(1)];
    refused("two tokens, both forbidden", ask(day, &[1.0, 2.0], &mut empty), &["without(1)"])
        .likely("process_all of the kit names the processor that left nothing")?;
    let mut beyond = options(5);
    beyond.choose = Box::new(|_, _| Ok(2));
    refused("two logits, and a choice of token 2", ask(day, &[1.0, 2.0], &mut beyond), &[])
}

/// Pushes the ids of `text`, and what came of it: text, end, ids.
fn pushed(
    day: &Day,
    text: &str,
    change: impl Fn(&Tokenizer, &mut GenerationOptions) -> Result<()>,
) -> Result<(String, Option<FinishReason>, Vec<u32>, Vec<u32>)> {
    let tokenizer = tokenizer()?;
    let mut options = options(20);
    change(&tokenizer, &mut options)?;
    let ids = tokenizer.encode(text)?;
    let (tokens, all) = (day.push)(&tokenizer, &[5, 6], &ids, &options)?;
    let text = tokens.iter().map(|token| token.text.as_str()).collect();
    Ok((text, tokens.last().and_then(|token| token.finish), all, ids))
}

/// Text and end of a push are these, after `count` of the ids.
fn ends(
    input: &str,
    got: Result<(String, Option<FinishReason>, Vec<u32>, Vec<u32>)>,
    want: &str,
    finish: FinishReason,
    count: usize,
) -> Outcome {
    let (text, why, all, ids) = got?;
    equal(&format!("{input}: text and end"), Ok((text, why)), &(want.to_string(), Some(finish)))?;
    let want = [&[5, 6], &ids[..count]].concat();
    equal(&format!("{input}: prompt and new tokens"), Ok(all), &want)
}

pub fn a_token_becomes_text(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let ids = tokenizer.encode("Once upon a café")?;
    let (tokens, all) = (day.push)(&tokenizer, &[5, 6], &ids, &options(20))?;
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
    equal(&format!("{input}: row, id, logprob, finish of each"), Ok(got), &want)
}

pub fn eos_never_enters_the_text(day: &Day) -> Outcome {
    // An EOS that is an ordinary token: its text would show.
    let time = |tokenizer: &Tokenizer, options: &mut GenerationOptions| {
        options.eos_token_ids = tokenizer.encode(" time")?;
        Ok(())
    };
    let input = "Once upon a time, where the token \" time\" is EOS";
    let got = pushed(day, "Once upon a time, there", time);
    ends(input, got, "Once upon a", FinishReason::Eos, 4)?;
    let got = pushed(day, "Once upon a time", |tokenizer, options| {
        options.max_new_tokens = 4;
        time(tokenizer, options)
    });
    ends(&format!("{input}, at most 4 new"), got, "Once upon a", FinishReason::Eos, 4)
}

pub fn the_bound_ends_the_text(day: &Day) -> Outcome {
    let got = pushed(day, "Once upon a time", |_, options| {
        options.max_new_tokens = 3;
        Ok(())
    });
    ends("Once upon a time, at most 3 new", got, "Once upon a", FinishReason::Length, 3)
        .likely("max_new_tokens counts what was generated; the prompt of 2 tokens is no part of it")
}

pub fn a_stop_string_crosses_tokens(day: &Day) -> Outcome {
    let stop = |stop: &'static str, most: usize| {
        move |_: &Tokenizer, options: &mut GenerationOptions| {
            options.stop_strings = strings(&[stop]);
            options.max_new_tokens = most;
            Ok(())
        }
    };
    let input = "Once upon a time, there; stop string \"pon a t\"";
    let got = pushed(day, "Once upon a time, there", stop("pon a t", 20));
    ends(input, got, "Once u", FinishReason::Stop, 4)?;
    let got = pushed(day, "Once upon a time, there", stop("pon a t", 4));
    ends(&format!("{input}, at most 4 new"), got, "Once u", FinishReason::Stop, 4)
        .likely("a stop string that is complete wins over the bound")?;
    let got = pushed(day, "a café! ", stop("é!", 20));
    ends("a café!; stop string \"é!\"", got, "a caf", FinishReason::Stop, 6)
}

pub fn nothing_stays_held_back(day: &Day) -> Outcome {
    let held = |most: usize, eos: &'static str| {
        move |tokenizer: &Tokenizer, options: &mut GenerationOptions| {
            options.stop_strings = strings(&["a timeless"]);
            options.max_new_tokens = most;
            options.eos_token_ids = tokenizer.encode(eos)?;
            Ok(())
        }
    };
    let input = "Once upon a time; stop string \"a timeless\"";
    let got = pushed(day, "Once upon a time", held(4, ""));
    ends(&format!("{input}, at most 4 new"), got, "Once upon a time", FinishReason::Length, 4)?;
    let got = pushed(day, "Once upon a time", held(20, " time"));
    ends(&format!("{input}, EOS \" time\""), got, "Once upon a", FinishReason::Eos, 4)?;
    let got = pushed(day, "café", |_, options| {
        options.max_new_tokens = 3;
        Ok(())
    });
    let input = "café, at most 3 new, which is half of the é";
    ends(input, got, "caf\u{fffd}", FinishReason::Length, 3)?;
    let got = pushed(day, "café", |tokenizer, options| {
        options.eos_token_ids = tokenizer.encode("é")?[1..].to_vec();
        Ok(())
    });
    ends("café, EOS after half of the é", got, "caf\u{fffd}", FinishReason::Eos, 4)
}

pub fn window_by_hand(day: &Day) -> Outcome {
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
            .likely("the smallest multiple of stride that leaves no more than context")?;
    }
    for stride in [0, 11] {
        refused(&format!("window(20, 10, {stride})"), (day.window)(20, 10, stride), &[])
            .likely("a stride of 0 never moves, one above the context drops everything")?;
    }
    Ok(())
}

pub fn window_of_anything(day: &Day) -> Outcome {
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

pub fn the_window_moves_and_renumbers(day: &Day) -> Outcome {
    window_by_hand(day)?; // a wrong window is no fault of the loop
    let model = counting(20);
    let mut options = options(7);
    options.stride = 2;
    let tokens = (day.generate)(&model, &tokenizer()?, &[1, 2, 3], options)?;
    let input = "prompt 1, 2, 3, 7 new, a context of 6, stride 2";
    let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
    equal_tokens(&format!("{input}: the new tokens"), Ok(ids), &[4, 5, 6, 7, 8, 9, 10], &[])?;
    let seen: Vec<_> = model.passes.take();
    let seen: Vec<(Vec<u32>, Vec<u32>)> =
        seen.into_iter().map(|(ids, at)| (ids.concat(), at.concat())).collect();
    let want = [1..4, 1..5, 1..6, 1..7, 3..8, 3..9, 5..10];
    let want: Vec<_> =
        want.map(|ids| ((ids.clone()).collect(), (0..ids.len() as u32).collect())).into();
    equal(&format!("{input}: (ids, positions) of every pass"), Ok(seen), &want)
        .likely("positions are renumbered from 0 in every pass")
}

pub fn the_loop_ends(day: &Day) -> Outcome {
    let run = |most: usize, eos: &[u32], prompt: &[u32]| {
        let mut options = options(most);
        options.eos_token_ids = eos.to_vec();
        let tokens = (day.generate)(&counting(9), &tokenizer()?, prompt, options)?;
        if let Some(token) = tokens.iter().find(|token| token.row != 0) {
            bail!("a token says that it is of row {}; the only text is row 0", token.row)
        }
        Ok(tokens.iter().map(|token| (token.id, token.finish)).collect::<Vec<_>>())
    };
    let input = "prompt 1, 2, at most 2 new: ids and ends";
    equal(input, run(2, &[], &[1, 2]), &vec![(3, None), (4, Some(FinishReason::Length))])?;
    let input = "prompt 1, 2, at most 5 new, EOS 4 or 2: ids and ends";
    equal(input, run(5, &[4, 2], &[1, 2]), &vec![(3, None), (4, Some(FinishReason::Eos))])?;
    let input = "prompt 1, 2, at most 2 new, EOS 4: ids and ends";
    equal(input, run(2, &[4], &[1, 2]), &vec![(3, None), (4, Some(FinishReason::Eos))])?;
    equal("at most 0 new", run(0, &[], &[1, 2]), &vec![])?;
    let input = "a prompt of 6 tokens, a context of 6, at most 1 new: ids and ends";
    equal(input, run(1, &[], &[1, 1, 1, 1, 1, 2]), &vec![(3, Some(FinishReason::Length))])?;
    refused("an empty prompt", run(2, &[], &[]), &[])?;
    refused("an empty prompt, at most 0 new", run(0, &[], &[]), &[])?;
    refused("a prompt of 7 tokens, a context of 6", run(2, &[], &[1; 7]), &["context"])
}

/// A case of `tests/oracle/day07.json`.
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
    fn options<'a>(&self, day: &Day, config: &ModelConfig) -> GenerationOptions<'a> {
        let mut options = GenerationOptions::new(config, self.max_new_tokens, day.greedy);
        options.stop_strings.clone_from(&self.stop_strings);
        options.processors = self.suppress_tokens.iter().map(|id| without(*id)).collect();
        options
    }

    /// TokenIter and log-probabilities are those of the golden.
    fn compare(&self, input: &str, tokens: &[Token]) -> Outcome {
        let ids = tokens.iter().map(|token| token.id).collect();
        equal_tokens(&format!("{input}: tokens"), Ok(ids), &self.new_ids, &self.margins)?;
        let logprobs = tokens.iter().map(|token| token.logprob).collect();
        let want = numbers(Ok(self.logprobs.clone()))?;
        // Logits agree to 1e-4 (day 5); the log-sum-exp beside them, too.
        close(&format!("{input}: log-probabilities"), numbers(Ok(logprobs)), &want, 2e-4)
    }

    fn equals_transformers(&self, day: &Day) -> Outcome {
        let model = Recall::new(&self.model, self.max_new_tokens + 2)?;
        let options = self.options(day, model.config());
        let tokens = (day.generate)(&model, &tokenizer()?, &self.prompt_ids, options)?;
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
        equal(&format!("{input}: how it ends"), Ok(finish), &Some(want))
    }

    /// The texts that the passes go over, one for each window: no longer than the context, one token short of the end.
    fn windows(&self, context: usize) -> Vec<Vec<u32>> {
        let ids = [self.prompt_ids.clone(), self.new_ids.clone()].concat();
        let most = ids.len() - 1;
        let firsts = (0..)
            .map(|i| i * self.stride)
            .take_while(|first| *first + context < most + self.stride);
        firsts.map(|first| ids[first..most.min(first + context)].to_vec()).collect()
    }
}

pub fn generate_equals_transformers(day: &Day) -> Outcome {
    cases("greedy")?.iter().try_for_each(|case| case.equals_transformers(day))
}

pub fn with_a_processor_it_equals_transformers(day: &Day) -> Outcome {
    cases("suppressed")?.iter().try_for_each(|case| case.equals_transformers(day))
}

pub fn stop_strings_equal_transformers(day: &Day) -> Outcome {
    cases("stopped")?.iter().try_for_each(|case| case.equals_transformers(day))
}

/// Past the context the oracle is transformers' forward on the cropped ids. The texts go on after the end of a story.
fn windowed(day: &Day, number: usize) -> Outcome {
    let case = cases("windowed")?.swap_remove(number);
    let Case { model: name, prompt, stride, max_new_tokens: most, .. } = &case;
    let context = Recall::new(name, 0)?.config().max_position_embeddings;
    let model = Recall::only(name, most + 2, case.windows(context))?;
    let mut options = case.options(day, model.config());
    options.stride = *stride;
    options.eos_token_ids.clear();
    let tokens = (day.generate)(&model, &tokenizer()?, &case.prompt_ids, options)?;
    let input = format!("{name}, {prompt}, {most} new, a context of {context}, stride {stride}");
    case.compare(&input, &tokens)
}

pub fn gpt2_writes_600_tokens(day: &Day) -> Outcome {
    windowed(day, 0)
}

pub fn a_stride_of_1_equals_transformers(day: &Day) -> Outcome {
    windowed(day, 1)
}

pub fn rope_is_renumbered_too(day: &Day) -> Outcome {
    windowed(day, 2)
}
