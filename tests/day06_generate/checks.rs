//! Day 6's checks: prefill and decode.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day06_generate;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day06_generate.rs"]
mod day06_generate;

use candecode::kit::{Model, Tokenizer};
use candle_core::{bail, Device, Error, Result, Tensor};
use frame::{
    close, equal, equal_tokens, golden, golden_json, refused, small_model, tokenizer, Fake, Likely,
    Outcome, Random, Recall,
};

/// Chooses a token from logits.
pub type Pick<'a> = &'a dyn Fn(&[f32]) -> Result<u32>;

/// Called with each token as it is generated.
pub type OnToken<'a> = &'a mut dyn FnMut(u32) -> Result<()>;

/// The generation loop. Takes a model, prompt, token limit, EOS ids, choice function and callback;
/// returns the new ids and the number of positions computed.
pub type Generate =
    fn(&dyn Model, &[u32], usize, &[u32], Pick, OnToken) -> Result<(Vec<u32>, usize)>;

/// The day 6 functions under test.
#[derive(Clone, Copy)]
pub struct Day {
    pub last_logits: fn(&Tensor) -> Result<Tensor>,
    pub next_logits: fn(&dyn Model, &[u32]) -> Result<Vec<f32>>,
    pub generate: Generate,
    /// Returns the pieces of a stream, one per id.
    pub pieces: fn(&Tokenizer, &[u32]) -> Result<Vec<String>>,
    /// Does the same, then calls `finish` twice and returns both results.
    pub finished: fn(&Tokenizer, &[u32]) -> Result<(Vec<String>, [String; 2])>,
    /// Returns the pieces of a stream that continues a prompt, and the result of `finish`.
    pub after: fn(&Tokenizer, &[u32], &[u32]) -> Result<(Vec<String>, String)>,
    pub one_pass: fn(&dyn Model, &[u32], usize, Pick) -> Result<Vec<u32>>,
    pub accepted: fn(&dyn Model, &[u32], &[u32], Pick) -> Result<usize>,
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        crate::Day {
            last_logits: code::last_logits,
            next_logits: code::next_logits,
            generate: |model, prompt, most, eos, pick, on_token| {
                let trace = code::simple_generate(model, prompt, most, eos, pick, on_token)?;
                Ok((trace.new_ids, trace.positions_computed))
            },
            pieces: |tokenizer, ids| {
                let mut stream = code::TextStream::new(tokenizer);
                ids.iter().map(|id| stream.push(*id)).collect()
            },
            finished: |tokenizer, ids| {
                let mut stream = code::TextStream::new(tokenizer);
                let pieces: Result<_> = ids.iter().map(|id| stream.push(*id)).collect();
                Ok((pieces?, [stream.finish()?, stream.finish()?]))
            },
            after: |tokenizer, prompt, ids| {
                let mut stream = code::TextStream::after(tokenizer, prompt);
                let pieces: Result<_> = ids.iter().map(|id| stream.push(*id)).collect();
                Ok((pieces?, stream.finish()?))
            },
            one_pass: |model, ids, prompt_len, pick| {
                code::predictions(model, ids, prompt_len, pick)
            },
            accepted: |model, text, draft, pick| code::accepted(model, text, draft, pick),
        }
    }};
}

frame::checks! {
    day06_generate:
    6.1: the_last_position_is_kept, every_row_keeps_its_own_last_position;
    6.2: next_logits_runs_one_pass_from_position_0, an_empty_or_oversized_sequence_is_refused,
        logits_equal_transformers;
    6.3: the_loop_equals_the_hand_computed_one, every_pass_sees_the_whole_text,
        eos_ends_the_text_and_is_kept, max_new_tokens_is_never_exceeded,
        every_pass_counts_its_positions, on_token_is_called_as_each_token_is_made,
        the_caller_chooses_the_token, an_error_ends_the_loop,
        a_10_token_prompt_and_20_new_compute_390_positions, tokens_equal_transformers;
    6.4: a_whole_token_is_shown_at_once, a_partial_character_is_held_back,
        a_stray_byte_does_not_hide_the_text_after_it, a_stray_byte_does_not_hide_whole_characters;
    6.5: finish_returns_the_text_held_back, no_text_is_lost_for_any_ids;
    6.6: the_space_after_the_prompt_is_kept, without_a_prompt_the_text_starts_fresh,
        a_prompt_can_end_inside_a_character, a_long_prompt_can_end_inside_a_character,
        pieces_do_not_repeat_the_prompt, letters_before_the_half_belong_to_the_prompt,
        any_bytes_can_follow_any_prompt;
    6.7: one_pass_equals_the_hand_computed_choices, an_impossible_prompt_length_is_refused,
        one_pass_picks_the_same_tokens_as_transformers;
    6.8: drafted_tokens_are_accepted_up_to_the_first_wrong_one;
}

/// Returns the most likely token; ties go to the first. The reader writes one on day 7.
fn largest(logits: &[f32]) -> Result<u32> {
    let best = (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
    best.map(|best| best as u32).ok_or(Error::Msg("there are no logits".into()))
}

/// Returns a model with 8 tokens in its vocabulary. It always predicts the last token plus one, and
/// allows `bound` passes.
fn counting(bound: usize) -> Fake {
    Fake::wants(8, 16, bound, |ids| ids[ids.len() - 1] + 1)
}

fn run(day: &Day, model: &dyn Model, prompt: &[u32], most: usize, eos: &[u32]) -> Result<Trace> {
    let mut heard = Vec::new();
    let mut listen = |id| {
        heard.push(id);
        Ok(())
    };
    let (new_ids, positions) = (day.generate)(model, prompt, most, eos, &largest, &mut listen)?;
    Ok(Trace { new_ids, positions, heard })
}

struct Trace {
    new_ids: Vec<u32>,
    positions: usize,
    heard: Vec<u32>,
}

fn the_last_position_is_kept(day: &Day) -> Outcome {
    let logits = Tensor::new(&[[[1f32, 2.], [3., 4.], [5., 6.]]], &Device::Cpu)?;
    let want = Tensor::new(&[[5f32, 6.]], &Device::Cpu)?;
    close("logits of 1 row, 3 positions, 2 tokens", (day.last_logits)(&logits), &want, 0.0).likely(
        "position i predicts the token after token i; only the last position's prediction is new",
    )
}

fn every_row_keeps_its_own_last_position(day: &Day) -> Outcome {
    let logits = Tensor::new(&[[[1f32, 2.], [3., 4.]], [[5., 6.], [7., 8.]]], &Device::Cpu)?;
    let want = Tensor::new(&[[3f32, 4.], [7., 8.]], &Device::Cpu)?;
    close("logits of 2 rows, 2 positions, 2 tokens", (day.last_logits)(&logits), &want, 0.0)?;
    let none = Tensor::zeros((1, 0, 4), candle_core::DType::F32, &Device::Cpu)?;
    refused("logits of shape (1, 0, 4)", (day.last_logits)(&none).map(|t| t.dims().to_vec()), &[])
        .likely("without positions there is no last one: return an error with bail!")
}

fn next_logits_runs_one_pass_from_position_0(day: &Day) -> Outcome {
    let model = Fake::new(4, 8, 1, |ids| {
        let sum: u32 = ids.iter().sum();
        vec![ids.len() as f32, sum as f32, ids[ids.len() - 1] as f32, 0.5]
    });
    let input = "ids 3, 1, 2; the model's logits: number of ids, their sum, the last id, 0.5";
    equal(input, (day.next_logits)(&model, &[3, 1, 2]), &vec![3.0, 6.0, 2.0, 0.5])?;
    let want = vec![(vec![vec![3, 1, 2]], vec![vec![0, 1, 2]])];
    equal("(ids, positions) of the pass over 3, 1, 2", Ok(model.passes.take()), &want)
}

fn an_empty_or_oversized_sequence_is_refused(day: &Day) -> Outcome {
    let model = Fake::wants(4, 3, 9, |_| 1);
    refused("no ids", (day.next_logits)(&model, &[]), &[])?;
    refused("4 ids, a context of 3", (day.next_logits)(&model, &[1, 1, 1, 1]), &["context"])
}

fn logits_equal_transformers(day: &Day) -> Outcome {
    let ids: Vec<u32> = case(0)?.prompt_ids;
    for name in ["story-3m", "story-230k", "story-gpt2-1m"] {
        let got = (day.next_logits)(&Recall::new(name, 1)?, &ids);
        let want = golden("day06", &format!("logits.{name}"))?;
        let got = got.and_then(|got| Tensor::new(got, want.device()));
        // As on day 5: six layers of f32 sums in a different order, with logits near 10.
        close(
            &format!("{name} after \"Once upon a time, there was a little girl\""),
            got,
            &want,
            1e-4,
        )?;
    }
    Ok(())
}

fn the_loop_equals_the_hand_computed_one(day: &Day) -> Outcome {
    let trace = run(day, &counting(9), &[2, 3], 3, &[]);
    let input = "prompt 2, 3; at most 3 new; a model that predicts the last token plus one";
    equal_tokens(input, trace.map(|trace| trace.new_ids), &[4, 5, 6], &[])
}

fn every_pass_sees_the_whole_text(day: &Day) -> Outcome {
    let model = counting(9);
    run(day, &model, &[2, 3], 3, &[])?;
    let ids: Vec<Vec<u32>> = model.passes.take().into_iter().flat_map(|(ids, _)| ids).collect();
    let want = vec![vec![2, 3], vec![2, 3, 4], vec![2, 3, 4, 5]];
    equal("the ids of every pass, prompt 2, 3 and 3 new", Ok(ids), &want)
        .likely("without a cache the model remembers nothing, so every pass needs all ids so far")
}

fn eos_ends_the_text_and_is_kept(day: &Day) -> Outcome {
    let input = "prompt 2, 3; at most 6 new; EOS is 5 or 7; the model predicts the last plus one";
    let trace = run(day, &counting(9), &[2, 3], 6, &[5, 7])?;
    equal_tokens(input, Ok(trace.new_ids), &[4, 5], &[])?;
    equal(&format!("{input}; the ids passed to on_token"), Ok(trace.heard), &vec![4, 5])?;
    let trace = run(day, &counting(9), &[2, 3], 6, &[7, 5]);
    let input = "prompt 2, 3; at most 6 new; the EOS ids are 7 and 5, in this order";
    equal_tokens(input, trace.map(|trace| trace.new_ids), &[4, 5], &[])
        .likely("a model can have several EOS ids, and each of them ends the text")?;
    let trace = run(day, &counting(9), &[3, 3], 4, &[3]);
    let input = "prompt 3, 3; at most 4 new; EOS is 3, which is also in the prompt";
    equal_tokens(input, trace.map(|trace| trace.new_ids), &[4, 5, 6, 7], &[])
}

fn max_new_tokens_is_never_exceeded(day: &Day) -> Outcome {
    for most in [1, 0, 2] {
        let model = counting(9);
        let trace = run(day, &model, &[1, 1, 1], most, &[])?;
        let want: Vec<u32> = (2..).take(most).collect();
        let input = format!("a prompt of 3 tokens, at most {most} new");
        equal_tokens(&input, Ok(trace.new_ids), &want, &[])?;
        let passes = model.passes.borrow().len();
        equal(&format!("{input}: the number of passes"), Ok(passes), &most)?;
    }
    Ok(())
}

fn every_pass_counts_its_positions(day: &Day) -> Outcome {
    let trace = run(day, &counting(9), &[2, 3], 3, &[]);
    let input = "positions computed, prompt of 2, 3 new";
    equal(input, trace.map(|trace| trace.positions), &9)
        .likely("2 + 3 + 4: the prompt, then one more position in every pass")?;
    let trace = run(day, &counting(9), &[2, 3], 6, &[5]);
    let input = "positions computed, prompt of 2, EOS as the second new token";
    equal(input, trace.map(|trace| trace.positions), &5)
}

fn on_token_is_called_as_each_token_is_made(day: &Day) -> Outcome {
    let model = counting(9);
    let mut heard = Vec::new();
    let mut listen = |id| {
        heard.push((id, model.passes.borrow().len()));
        Ok(())
    };
    (day.generate)(&model, &[2, 3], 3, &[], &largest, &mut listen)?;
    let input = "the ids passed to on_token, each with the number of passes before it";
    equal(input, Ok(heard), &vec![(4, 1), (5, 2), (6, 3)])
        .likely("call on_token in the loop, as soon as the token is chosen: that is streaming")
}

fn the_caller_chooses_the_token(day: &Day) -> Outcome {
    let model = Fake::new(4, 8, 9, |_| vec![0.0, 3.0, 1.0, 2.0]);
    let second = |logits: &[f32]| {
        let best = largest(logits)? as usize;
        let rest: Vec<f32> =
            logits.iter().enumerate().map(|(i, x)| if i == best { -9.0 } else { *x }).collect();
        largest(&rest)
    };
    let got = (day.generate)(&model, &[0], 2, &[], &second, &mut |_| Ok(()));
    let input = "logits 0, 3, 1, 2 and a pick that takes the second best";
    equal_tokens(input, got.map(|(ids, _)| ids), &[3, 3], &[])
}

fn an_error_ends_the_loop(day: &Day) -> Outcome {
    let broken = |_: &[f32]| bail!("the pick is broken");
    let got = (day.generate)(&counting(9), &[1], 5, &[], &broken, &mut |_| Ok(()));
    refused("a pick that fails", got, &["the pick is broken"])?;
    let model = counting(9);
    let got = (day.generate)(&model, &[1], 5, &[], &largest, &mut |_| bail!("nobody is listening"));
    refused("an on_token that fails", got, &["nobody is listening"])?;
    let passes = model.passes.borrow().len();
    equal("passes made when the first on_token fails", Ok(passes), &1)?;
    let small = Fake::wants(8, 4, 9, |_| 1);
    let got = (day.generate)(&small, &[1, 2], 9, &[], &largest, &mut |_| Ok(()));
    refused("prompt of 2, 9 new, a context of 4", got, &["context"])
}

/// A case from `oracle.json`.
#[derive(serde::Deserialize)]
struct Case {
    model: String,
    prompt: String,
    prompt_ids: Vec<u32>,
    max_new_tokens: usize,
    new_ids: Vec<u32>,
    margins: Vec<f32>,
}

fn case(number: usize) -> Result<Case> {
    let case = golden_json("day06")?["cases"][number].take();
    serde_json::from_value(case).map_err(|e| Error::Msg(format!("day06.json: {e}")))
}

/// The end-of-story token of all embedded models.
const EOS: u32 = 0;

fn a_10_token_prompt_and_20_new_compute_390_positions(day: &Day) -> Outcome {
    let case = case(0)?;
    let trace = run(day, &Recall::new(&case.model, 25)?, &case.prompt_ids, 20, &[EOS]);
    let input = format!("{}, a prompt of 10 tokens, 20 new: positions computed", case.model);
    equal(&input, trace.map(|trace| trace.positions), &390)
        .likely("10 + 11 + … + 29; with a cache it would be 10 + 19 = 29, but that's day 10")
}

fn tokens_equal_transformers(day: &Day) -> Outcome {
    for number in 0..6 {
        let Case { model, prompt, prompt_ids, max_new_tokens: most, new_ids, margins } =
            case(number)?;
        let trace = run(day, &Recall::new(&model, most + 2)?, &prompt_ids, most, &[EOS]);
        let input = format!("{model}, \"{prompt}\", at most {most} new");
        equal_tokens(&input, trace.map(|trace| trace.new_ids), &new_ids, &margins)?;
    }
    Ok(())
}

fn words(pieces: &[&str]) -> Vec<String> {
    pieces.iter().map(|piece| piece.to_string()).collect()
}

/// Returns a small tokenizer with Llama 2's decoder: `▁` is a space, a byte can be a token, and a
/// leading space is stripped.
fn sentencepiece() -> Result<Tokenizer> {
    let dir = small_model("sentencepiece");
    candecode_formats::read_tokenizer(&dir).map_err(|e| Error::Msg(format!("{e:#}")))
}

/// Returns the ids of these tokens in that tokenizer.
fn sentencepiece_ids(tokens: &[&str]) -> Result<Vec<u32>> {
    let tokenizer = sentencepiece()?;
    let id = |token: &&str| {
        let mut ids = 0..tokenizer.vocab_size() as u32;
        ids.find(|id| tokenizer.piece(*id).as_deref() == Some(*token))
            .ok_or_else(|| Error::Msg(format!("sentencepiece has no token {token}")))
    };
    tokens.iter().map(id).collect()
}

const ALONE: &str = "a tokenizer may decode a token differently at the beginning of a text: \
    decode it together with the last ids of the prompt";

fn the_space_after_the_prompt_is_kept(day: &Day) -> Outcome {
    let tokenizer = sentencepiece()?;
    let text = ["▁Once", "▁upon", "▁a", "▁time", ",", "▁she", "▁was", "▁happy", "."];
    let ids = sentencepiece_ids(&text)?;
    for prompt_len in [5, 4, 1, 8] {
        let (prompt, new) = ids.split_at(prompt_len);
        let want: Vec<String> =
            text[prompt_len..].iter().map(|token| token.replace('▁', " ")).collect();
        let input = format!("the tokens {text:?}, the first {prompt_len} from the prompt: pieces");
        let got = (day.after)(&tokenizer, prompt, new);
        equal(&input, got, &(want, String::new())).likely(ALONE)?;
    }
    Ok(())
}

fn without_a_prompt_the_text_starts_fresh(day: &Day) -> Outcome {
    let tokenizer = sentencepiece()?;
    let ids = sentencepiece_ids(&["▁she", "▁was"])?;
    let got = (day.after)(&tokenizer, &[], &ids);
    equal("the tokens ▁she ▁was without a prompt", got, &(words(&["she", " was"]), String::new()))
}

/// Returns a small byte-fallback tokenizer like Llama 2's: three special tokens, all bytes, and
/// some pieces.
fn byte_fallback() -> Result<Tokenizer> {
    let dir = small_model("sentencepiece");
    let read = std::fs::read(dir.join("tokenizer.json"))?;
    let mut json: serde_json::Value = serde_json::from_slice(&read).map_err(Error::wrap)?;
    let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
    let special = ["<unk>", "<s>", "</s>"].map(String::from);
    let all = special.into_iter().chain(bytes).chain(PIECES.map(String::from));
    json["model"]["vocab"] =
        all.enumerate().map(|(id, piece)| (piece, serde_json::Value::from(id))).collect();
    json["model"]["merges"] = serde_json::json!([]);
    Tokenizer::from_bytes(json.to_string().as_bytes())
}

const PIECES: [&str; 9] = ["▁", "▁the", "▁cat", "▁dog", "b", "c", ".", "é", "▁caf"];

/// Returns the ids of a text made of pieces, bytes as two hexadecimal digits, and `</s>`.
fn fallback_ids(text: &str) -> Vec<u32> {
    let id = |token: &str| match u32::from_str_radix(token, 16) {
        Ok(byte) if token.len() == 2 => 3 + byte,
        _ if token == "</s>" => 2,
        _ => 259 + PIECES.iter().position(|piece| *piece == token).unwrap_or(0) as u32,
    };
    text.split_whitespace().map(id).collect()
}

fn a_stray_byte_does_not_hide_the_text_after_it(day: &Day) -> Outcome {
    let tokenizer = byte_fallback()?;
    for (ids, want) in [
        ("▁cat C3 A9 E2 ▁the ▁dog .", vec!["cat", "", "é", "", "\u{fffd} the", " dog", "."]),
        ("▁cat 0A E2 ▁the ▁dog", vec!["cat", "\n", "", "\u{fffd} the", " dog"]),
        ("F0 9F 98 80 E2 ▁the", vec!["", "", "", "😀", "", "\u{fffd} the"]),
        ("E4 BD A0 F0 ▁the", vec!["", "", "你", "", "\u{fffd} the"]),
        ("▁cat </s> ▁the", vec!["cat", "", " the"]),
        ("▁cat E2 </s> ▁the ▁dog", vec!["cat", "", "", "\u{fffd} the", " dog"]),
    ] {
        let got = (day.pieces)(&tokenizer, &fallback_ids(ids));
        equal(&format!("the pieces of {ids}, with Llama 2's decoder"), got, &words(&want)).likely(
            "a stray byte turned an already returned character into U+FFFD, so the longer text \
             doesn't start with the shorter one: only then decode the waiting ids on their own",
        )?;
    }
    Ok(())
}

fn a_stray_byte_does_not_hide_whole_characters(day: &Day) -> Outcome {
    let tokenizer = byte_fallback()?;
    for (ids, want) in [
        ("▁cat E2 C3 A9 b", vec!["cat", "", "", "\u{fffd}é", "b"]),
        ("FF F0 9F 98 80 C3 A9", vec!["", "", "", "", "\u{fffd}😀", "", "é"]),
        ("▁cat E2 20 b", vec!["cat", "", "\u{fffd} ", "b"]),
        ("C3 A9 FF 0A E2 82 AC", vec!["", "é", "", "\u{fffd}\n", "", "", "€"]),
    ] {
        let got = (day.pieces)(&tokenizer, &fallback_ids(ids));
        equal(&format!("the pieces of {ids}, with Llama 2's decoder"), got, &words(&want)).likely(
            "if one byte of a run is stray, this decoder turns all of them into U+FFFD; the last \
             ids without the stray ones may be a whole character. Decode these, too, as a \
             continuation of the known ids: decoded alone, they would lose a space at the start",
        )?;
    }
    Ok(())
}

fn pieces_do_not_repeat_the_prompt(day: &Day) -> Outcome {
    let tokenizer = byte_fallback()?;
    for (prompt, new, want) in [
        ("▁cat E2 82", "AC b", "€b"),
        ("▁cat C3 A9 E2 82", "AC b", "€b"),
        ("▁cat 0A E2 82", "AC b", "€b"),
        ("▁cat F0 9F 98 80 E2 82", "AC b", "€b"),
        ("▁cat E2 82", "b ▁the", "b the"),
        ("▁cat E2 82", "C3 A9", "é"),
        ("▁cat 0A", "F0 b ▁the", "\u{fffd}b the"),
        ("▁cat C3 A9", "E2 ▁the", "\u{fffd} the"),
        ("▁cat E2", "</s> ▁the", " the"),
        ("▁cat E2 82", "", ""),
    ] {
        let got = (day.after)(&tokenizer, &fallback_ids(prompt), &fallback_ids(new));
        let input =
            format!("all pieces of {new}, after the prompt {prompt}, with Llama 2's decoder");
        equal(&input, got.map(|(pieces, end)| pieces.concat() + &end), &want.to_string()).likely(
            "the prompt may end with half a character: the first piece completes it, or leaves it \
             out",
        )?;
    }
    Ok(())
}

/// Collapses each run of U+FFFD to a single one, because the decoder chooses how many to use for
/// broken bytes.
fn one_mark_each(text: &str) -> String {
    let mut marked = String::new();
    for c in text.chars() {
        if c != '\u{fffd}' || !marked.ends_with(c) {
            marked.push(c);
        }
    }
    marked
}

fn letters_before_the_half_belong_to_the_prompt(day: &Day) -> Outcome {
    // Byte-level, like GPT-2: "Ġâ" is a space and E2; "Ĥ¬" is 82 and AC, the rest of €.
    let tokenizer = Tokenizer::from_bytes(
        r#"{
            "model": {"type": "BPE", "vocab": {"a": 0, "Ġâ": 1, "Ĥ¬": 2}, "merges": []},
            "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}
        }"#
        .as_bytes(),
    )?;
    for (new, pieces) in [([0, 0], ["a", "a"]), ([2, 0], ["€", "a"])] {
        let got = (day.after)(&tokenizer, &[0, 1], &new);
        let input = format!(
            r#"the pieces of {new:?} after the prompt 0, 1; the tokens are 0 "a", 1 " \xE2", 2 "\x82\xAC""#
        );
        equal(&input, got, &(words(&pieces), String::new())).likely(
            "the space in the prompt's last token is on screen already; only the half character \
             isn't",
        )?;
    }
    Ok(())
}

fn any_bytes_can_follow_any_prompt(day: &Day) -> Outcome {
    let tokenizer = byte_fallback()?;
    let mut random = Random::new(68);
    const PARTS: &[&str] = &[
        "▁the",
        "▁dog",
        "b",
        ".",
        "é",
        "▁",
        "0A",
        "62",
        "C3 A9",
        "E2 82 AC",
        "F0 9F 98 80",
        "E4 BD A0",
        "C3",
        "E2",
        "E2 82",
        "F0 9F",
        "F0 9F 98",
        "A9",
        "80",
        "FF",
        "</s>",
    ];
    let bytes = |ids: &[u32]| -> Vec<u8> {
        let piece = |id: &u32| match *id {
            0..=2 => Vec::new(),
            byte @ 3..=258 => vec![(byte - 3) as u8],
            id => PIECES[id as usize - 259].replace('▁', " ").into_bytes(),
        };
        ids.iter().flat_map(piece).collect()
    };
    let some = |random: &mut Random, most: usize| {
        let parts: Vec<&str> =
            (0..random.below(most)).map(|_| PARTS[random.below(PARTS.len())]).collect();
        parts.join(" ")
    };
    for _ in 0..400 {
        let (prompt, new) = (format!("▁cat {}", some(&mut random, 6)), some(&mut random, 10));
        let (before, after) = (fallback_ids(&prompt), fallback_ids(&new));
        // The bytes of both, starting at the incomplete character that ends the prompt, if there is
        // one.
        let before_bytes = bytes(&before);
        let half = match before_bytes.utf8_chunks().last() {
            Some(last)
                if std::str::from_utf8(last.invalid()).is_err_and(|e| e.error_len().is_none()) =>
            {
                last.invalid().len()
            }
            _ => 0,
        };
        let whole = [&before_bytes[before_bytes.len() - half..], &bytes(&after)].concat();
        // The prompt's incomplete character isn't shown again, and only the next bytes show whether
        // it is broken.
        let shown = |text: &str| one_mark_each(text).trim_start_matches('\u{fffd}').to_string();
        let want = shown(&String::from_utf8_lossy(&whole));
        let got = (day.after)(&tokenizer, &before, &after);
        let input =
            format!("all pieces of {new}, after the prompt {prompt}, with Llama 2's decoder");
        equal(&input, got.map(|(pieces, end)| shown(&(pieces.concat() + &end))), &want).likely(
            "every whole character must appear exactly once, regardless of the bytes around it",
        )?;
    }
    Ok(())
}

fn a_long_prompt_can_end_inside_a_character(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let text = "Once upon a time there was a little café!";
    let ids = tokenizer.encode(text)?;
    let (prompt, new) = ids.split_at(ids.len() - 2);
    let input = format!("the pieces of \"{text}\", ids {new:?} after the prompt {prompt:?}");
    let want = (words(&["é", "!"]), String::new());
    equal(&input, (day.after)(&tokenizer, prompt, new), &want)
        .likely("the stream must see the end of the prompt, not its beginning")
}

fn a_prompt_can_end_inside_a_character(day: &Day) -> Outcome {
    // The first token isn't the other half.
    let got = (day.after)(&byte_fallback()?, &fallback_ids("▁cat C3"), &fallback_ids("▁the"));
    let input = "the pieces of ▁the, after the prompt ▁cat C3, with Llama 2's decoder";
    equal(input, got, &(words(&[" the"]), String::new())).likely(ALONE)?;
    let tokenizer = tokenizer()?;
    for (text, prompt_len, want) in [("café!", 3, vec!["é", "!"]), ("a😀b", 3, vec!["", "😀", "b"])]
    {
        let ids = tokenizer.encode(text)?;
        let (prompt, new) = ids.split_at(prompt_len);
        let input = format!("the pieces of \"{text}\", ids {new:?} after the prompt {prompt:?}");
        let got = (day.after)(&tokenizer, prompt, new);
        equal(&input, got, &(words(&want), String::new()))
            .likely("only whole characters of the prompt are on screen already")?;
    }
    Ok(())
}

fn a_whole_token_is_shown_at_once(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let ids = tokenizer.encode("Once upon a time, Lily")?;
    let want = words(&["Once", " upon", " a", " time", ",", " Lily"]);
    equal("the pieces of \"Once upon a time, Lily\"", (day.pieces)(&tokenizer, &ids), &want)
}

fn a_partial_character_is_held_back(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    // In this vocabulary é is two tokens and 😀 is four, one per byte.
    for (text, want) in [
        ("é", vec!["", "é"]),
        ("😀", vec!["", "", "", "😀"]),
        ("café!", vec!["c", "af", "", "é", "!"]),
        ("a😀é", vec!["a", "", "", "", "😀", "", "é"]),
    ] {
        let ids = tokenizer.encode(text)?;
        let input = format!("the pieces of \"{text}\", whose ids are {ids:?}");
        equal(&input, (day.pieces)(&tokenizer, &ids), &words(&want)).likely(
            "a decoded text that ends in U+FFFD may be half a character: wait for the next token",
        )?;
    }
    Ok(())
}

fn finish_returns_the_text_held_back(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let e = tokenizer.encode("é")?;
    let lily = tokenizer.encode("Lily")?;
    let input = "Lily, then the first byte of é, then finish, twice";
    let got = (day.finished)(&tokenizer, &[lily[0], e[0]]);
    let want = (words(&["Lily", ""]), ["\u{fffd}".to_string(), String::new()]);
    equal(input, got, &want).likely(
        "at the end nothing can complete the character: return it as it is, and only once",
    )?;
    let got = (day.finished)(&tokenizer, &lily);
    equal("Lily, then finish, twice", got, &(words(&["Lily"]), [String::new(), String::new()]))
}

fn no_text_is_lost_for_any_ids(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let mut random = Random::new(65);
    for _ in 0..100 {
        // Bytes in any order, end-of-story tokens, and words: mostly invalid text.
        let pick = |random: &mut Random| match random.below(4) {
            0 => 300 + random.below(1700),
            1 => random.below(2),
            _ => 60 + random.below(196),
        };
        let ids: Vec<u32> = (0..1 + random.below(12)).map(|_| pick(&mut random) as u32).collect();
        let got = (day.finished)(&tokenizer, &ids);
        let got = got.map(|(pieces, ends)| pieces.concat() + &ends.concat());
        let input = format!("all pieces and the end, joined, for the ids {ids:?}");
        equal(&input, got, &tokenizer.decode(&ids)?)?;
    }
    Ok(())
}

fn one_pass_equals_the_hand_computed_choices(day: &Day) -> Outcome {
    let model = counting(9);
    let got = (day.one_pass)(&model, &[2, 3, 4, 5], 2, &largest);
    equal_tokens("ids 2, 3, 4, 5, a prompt of 2, one pass", got, &[4, 5], &[]).likely(
        "position i predicts token i + 1: the first choice comes from the prompt's last position",
    )?;
    passes("ids 2, 3, 4, 5, a prompt of 2", &model)?;
    // Expects the model's choices, not the text: 7 doesn't occur in the ids.
    let got = (day.one_pass)(&counting(1), &[2, 3, 6, 6], 2, &largest);
    equal_tokens("ids 2, 3, 6, 6, a prompt of 2, one pass", got, &[4, 7], &[])?;
    let got = (day.one_pass)(&counting(1), &[2, 3], 2, &largest);
    equal_tokens("ids 2, 3, all prompt", got, &[], &[])?;
    let next = |logits: &[f32]| Ok(largest(logits)? + 1);
    let got = (day.one_pass)(&counting(1), &[2, 3, 4, 5], 2, &next);
    equal_tokens(
        "ids 2, 3, 4, 5, a prompt of 2, a pick that returns the best id + 1",
        got,
        &[5, 6],
        &[],
    )
    .likely("the caller's pick chooses, at every position")
}

/// Checks that the model ran once.
fn passes(input: &str, model: &Fake) -> Outcome {
    equal(&format!("{input}: number of passes"), Ok(model.passes.borrow().len()), &1)
        .likely("one pass over the whole text has the logits of every position")
}

fn an_impossible_prompt_length_is_refused(day: &Day) -> Outcome {
    for prompt_len in [0, 4] {
        let got = (day.one_pass)(&counting(1), &[2, 3, 4], prompt_len, &largest);
        refused(&format!("3 ids, a prompt of {prompt_len}"), got, &[])?;
    }
    Ok(())
}

fn one_pass_picks_the_same_tokens_as_transformers(day: &Day) -> Outcome {
    for number in 0..6 {
        let Case { model, prompt, prompt_ids, new_ids, margins, .. } = case(number)?;
        let ids = [prompt_ids.clone(), new_ids.clone()].concat();
        let got = (day.one_pass)(&Recall::new(&model, 1)?, &ids, prompt_ids.len(), &largest);
        let input = format!("{model}, one pass over \"{prompt}\" and its {} tokens", new_ids.len());
        equal_tokens(&input, got, &new_ids, &margins)?;
    }
    Ok(())
}

fn drafted_tokens_are_accepted_up_to_the_first_wrong_one(day: &Day) -> Outcome {
    for (draft, want) in [
        (vec![4, 5, 1, 7], 2),
        (vec![4, 1, 2, 3], 1),
        (vec![4, 5, 6], 3),
        (vec![1], 0),
        (vec![], 0),
    ] {
        let model = counting(9);
        let got = (day.accepted)(&model, &[2, 3], &draft, &largest);
        let input =
            format!("text 2, 3, draft {draft:?}; the model predicts the last token plus one");
        equal(&input, got, &want)?;
        // An empty draft needs no pass.
        if !draft.is_empty() {
            passes(&input, &model)?;
        }
    }
    let next = |logits: &[f32]| Ok(largest(logits)? + 1);
    let got = (day.accepted)(&counting(9), &[2, 3], &[5, 7], &next);
    equal("text 2, 3, draft [5, 7], a pick that returns the best id + 1", got, &2)
        .likely("the caller's pick chooses, at every position")?;
    let case = case(0)?;
    let mut draft = case.new_ids[..8].to_vec();
    draft[5] += 1;
    let got = (day.accepted)(&Recall::new(&case.model, 1)?, &case.prompt_ids, &draft, &largest);
    equal(&format!("{}, a draft of eight tokens, the sixth wrong", case.model), got, &5)
}
