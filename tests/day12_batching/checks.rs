//! Day 12's checks: batching.

mod cache;
#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day12_batching;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day12_batching.rs"]
mod day12_batching;

use cache::*;
use candecode::kit::rng::RequestRng;
use candecode::kit::Tokenizer;
use candecode::kit::{
    Batch, Cache, FinishReason, Logits, Model, NoCache, PastContext, Request, Step, Token,
};
use candle_core::{DType, Device, Error, IndexOp, Result, Tensor};
use frame::{
    close, device, ensure, equal, equal_tokens, golden, golden_json, model_of, refused, tokenizer,
    Keep, Likely, Outcome, Random, Witness,
};
use std::cell::{Cell, RefCell};

/// Ids, positions and padding of rows padded to the same length.
pub type Padded = (Vec<Vec<u32>>, Vec<Vec<u32>>, Vec<usize>);

/// A row of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Text {
    pub tokens: Vec<u32>,
    pub padding: usize,
    pub finish: Option<FinishReason>,
}

/// Signature of the generation loop.
pub type Generate = for<'a> fn(
    &'a dyn Model,
    &'a Tokenizer,
    Vec<Request<'a>>,
    Box<dyn Batch + 'a>,
) -> Result<Vec<Token>>;

/// Runs one step of a batch whose rows share this token limit and these EOS ids. Returns the tokens
/// and the rows that continue.
pub type Turn = fn(
    &dyn Model,
    &Tokenizer,
    &[Text],
    usize,
    &[u32],
    &mut dyn Batch,
) -> Result<(Vec<Token>, Vec<Text>)>;

/// The day 12 functions under test. Rows are passed and returned as [`Text`]s.
#[derive(Clone, Copy)]
pub struct Day {
    pub ragged_mask: fn(&[usize], usize, usize, &Device) -> Result<Tensor>,
    pub left_pad: fn(&[&[u32]]) -> Padded,
    pub prefill: fn(&dyn Model, &Tokenizer, &[Text]) -> Result<(Step, Vec<Text>)>,
    pub decode: fn(&dyn Model, &Tokenizer, &[Text], usize) -> Result<Step>,
    pub retire: fn(&Tokenizer, &[Text], &mut dyn Batch) -> Result<Vec<Text>>,
    pub turn: Turn,
    pub generate: Generate,
    pub packed_step: fn(&dyn Model, &[&[u32]]) -> Result<Step>,
    /// Builds an empty cache with this many layers and this capacity.
    pub cache: fn(usize, Option<usize>) -> Box<dyn Batch>,
    pub stack_rows: fn(&Tensor, &Tensor) -> Result<Tensor>,
}

/// Builds a greedy request.
fn request<'a>(id: usize, prompt: &[u32], most: usize, eos: &[u32]) -> Request<'a> {
    Request {
        id,
        prompt: prompt.to_vec(),
        max_new_tokens: most,
        eos_token_ids: eos.to_vec(),
        stop_strings: Vec::new(),
        past_context: PastContext::Stop,
        processors: Vec::new(),
        sampler: Box::new(largest),
        log_softmax: None,
        top_logprobs: None,
        cache_salt: String::new(),
        report: Default::default(),
    }
}

/// Builds greedy requests for these prompts.
fn requests<'a>(prompts: &[Vec<u32>], most: usize, eos: &[u32]) -> Vec<Request<'a>> {
    prompts.iter().enumerate().map(|(id, prompt)| request(id, prompt, most, eos)).collect()
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        use candecode::day07_greedy::Sequence;
        fn rows<'a>(
            tokenizer: &'a candecode::kit::Tokenizer,
            texts: &[crate::Text],
            most: usize,
            eos: &[u32],
        ) -> Vec<code::Row<'a>> {
            let row = |(i, text): (usize, &crate::Text)| {
                let request = crate::request(i, &text.tokens, most, eos);
                let mut sequence = Sequence::new(request, tokenizer);
                sequence.finish = text.finish;
                let mut row = code::Row::new(sequence);
                // Every row starts out as `Row::new` creates it.
                if text.padding != 0 {
                    row.padding = text.padding;
                }
                row
            };
            texts.iter().enumerate().map(row).collect()
        }
        fn texts(rows: &[code::Row]) -> Vec<crate::Text> {
            let text = |row: &code::Row| crate::Text {
                tokens: row.sequence.tokens.clone(),
                padding: row.padding,
                finish: row.sequence.finish,
            };
            rows.iter().map(text).collect()
        }
        crate::Day {
            ragged_mask: code::ragged_mask,
            left_pad: |rows| {
                let padded = code::left_pad(rows);
                (padded.ids, padded.positions, padded.padding)
            },
            prefill: |model, tokenizer, given| {
                let mut rows = rows(tokenizer, given, 1, &[]);
                let step = code::prefill_step(model, &mut rows)?;
                Ok((step, texts(&rows)))
            },
            decode: |model, tokenizer, given, past| {
                code::decode_step(model, &rows(tokenizer, given, 1, &[]), past)
            },
            retire: |tokenizer, given, cache| {
                let mut rows = rows(tokenizer, given, 1, &[]);
                code::retire(&mut rows, cache)?;
                Ok(texts(&rows))
            },
            turn: |model, tokenizer, given, most, eos, cache| {
                let mut rows = rows(tokenizer, given, most, eos);
                let tokens = code::batch_step(model, &mut rows, cache)?;
                Ok((tokens, texts(&rows)))
            },
            generate: |model, tokenizer, requests, cache| {
                code::generate_batch(model, tokenizer, requests, cache)?.take(5000).collect()
            },
            packed_step: code::packed_step,
            cache: |layers, capacity| Box::new(code::BatchCache::new(layers, capacity)),
            stack_rows: code::stack_rows,
        }
    }};
}

frame::checks! {
    day12_batching:
    12.1: left_padding_by_hand, left_padding_of_anything;
    12.2: the_ragged_mask_by_hand, the_ragged_mask_includes_past_columns,
        the_ragged_mask_equals_transformers, every_query_sees_at_least_one_key,
        padding_changes_nothing, the_prefill_by_hand;
    12.3: the_decode_step_by_hand, a_row_inconsistent_with_the_cache_is_refused;
    12.4: retiring_by_hand;
    12.5: two_steps_by_hand, any_batch_equals_its_rows_run_alone,
        any_batch_without_a_cache_equals_its_rows_run_alone, rows_end_at_the_context_limit,
        finished_rows_do_not_grow_the_cache, the_loop_ends,
        story_model_batches_equal_each_row_alone, gpt2_generates_to_the_end_of_its_context,
        rows_draw_from_their_own_streams, rows_have_their_own_parameters, tokens_equal_transformers,
        a_failing_row_does_not_end_the_others;
    12.6: selecting_by_hand, beams_that_fork, any_order_of_operations;
    12.7: trimming_by_hand, a_trimmed_cache_keeps_its_capacity;
    12.8: a_line_by_hand, packed_rows_equal_each_row_alone, an_empty_row_in_a_line_is_refused;
    12.9: stacked_rows_are_padded_on_the_left;
    12.10: joining_by_hand, rows_can_join_an_empty_cache, joined_caches_share_no_memory,
        a_joined_cache_keeps_its_capacity, joins_and_trims_work_in_any_order;
}

fn text(tokens: &[u32], padding: usize) -> Text {
    Text { tokens: tokens.to_vec(), padding, finish: None }
}

/// Returns the most likely token. Ties go to the first. The reader's own version is in day 7.
fn largest(logits: &[f32]) -> Result<u32> {
    let best = (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
    best.map(|best| best as u32).ok_or(Error::Msg("there are no logits".into()))
}

/// Returns the gap between the two largest logits.
fn margin(logits: &[f32]) -> f32 {
    let mut sorted = logits.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    sorted[0] - sorted[1]
}

fn the_ragged_mask_by_hand(day: &Day) -> Outcome {
    let want = Tensor::new(
        &[
            [[[1u8, 0, 0], [1, 1, 0], [1, 1, 1]]],
            // Column 0 is padding. Row 0 can see only itself, and rows 1 and 2 don't see it.
            [[[1, 0, 0], [0, 1, 0], [0, 1, 1]]],
        ],
        &device()?,
    )?;
    let got = (day.ragged_mask)(&[0, 1], 3, 0, &device()?);
    let dtype = got.as_ref().map(Tensor::dtype).unwrap_or(DType::U8);
    close("ragged_mask(padding [0, 1], 3 new, 0 past)", got, &want, 0.0)
        .likely("1 where column <= past + row and column >= padding, and always on the diagonal")?;
    equal("the type of the mask", Ok(dtype), &DType::U8)
}

fn the_ragged_mask_includes_past_columns(day: &Day) -> Outcome {
    let want = Tensor::new(
        &[[[[1u8, 1, 1, 1, 0], [1, 1, 1, 1, 1]]], [[[0, 0, 1, 1, 0], [0, 0, 1, 1, 1]]]],
        &device()?,
    )?;
    let got = (day.ragged_mask)(&[0, 2], 2, 3, &device()?);
    close("ragged_mask(padding [0, 2], 2 new, 3 past)", got, &want, 0.0)
        .likely("new token i is in column past + i; the padding stays in the first columns")
}

fn the_ragged_mask_equals_transformers(day: &Day) -> Outcome {
    for (past, new) in [(0, 5), (3, 2)] {
        let want = golden("day04", &format!("ragged.{past}.{new}"))?;
        let got = (day.ragged_mask)(&[0, 2], new, past, &device()?)?;
        // Rows of padding tokens aren't compared: transformers masks everything there, and ours
        // allows the token itself.
        for (row, padding) in [(0, 0), (1, 2usize)] {
            let first = padding.saturating_sub(past);
            let real = |mask: &Tensor| mask.narrow(0, row, 1)?.narrow(2, first, new - first);
            let input = format!(
                "padding [0, 2], {new} new, {past} past: batch row {row} starting at token {first}"
            );
            close(&input, real(&got), &real(&want)?, 0.0)?;
        }
    }
    Ok(())
}

fn every_query_sees_at_least_one_key(day: &Day) -> Outcome {
    let mut random = Random::new(42);
    for _ in 0..24 {
        let (new, past) = (1 + random.below(5), random.below(5));
        let padding: Vec<usize> = (0..3).map(|_| random.below(new + past)).collect();
        let got = (day.ragged_mask)(&padding, new, past, &device()?)?;
        let mut want = Vec::new();
        for padding in &padding {
            for i in past..past + new {
                want.extend((0..past + new).map(|j| u8::from(j == i || (j >= *padding && j < i))));
            }
        }
        let want = Tensor::from_vec(want, (3, 1, new, past + new), &device()?)?;
        let input = format!("ragged_mask(padding {padding:?}, {new} new, {past} past)");
        close(&input, Ok(got), &want, 0.0)?;
    }
    let all = (day.ragged_mask)(&[0, 3], 3, 0, &device()?);
    refused("padding [0, 3], 3 new, 0 past: row 1 is all padding", all, &[])
}

/// Checks that a left-padded row gets the same logits as it does alone. The model needs at least
/// two layers: a padding token's output from the first layer becomes keys and values in the second.
fn padding_changes_nothing(day: &Day) -> Outcome {
    for name in ["story-230k", "story-gpt2-1m"] {
        let model = load(name)?;
        let rows = [vec![300u32, 301, 302, 303, 304], vec![0, 0, 310, 311, 312]];
        let positions = [vec![0u32, 1, 2, 3, 4], vec![0, 0, 0, 1, 2]];
        let mask = (day.ragged_mask)(&[0, 2], 5, 0, &device()?)?;
        // `Step::batch` can't be used here: it rejects a mask without its diagonal before the model
        // can show why.
        let step = Step::batch(&*model, &rows, &positions, None)?;
        let got = model.forward(&Step { mask: Some(mask), ..step }, &mut NoCache)?;
        let finite = got.flatten_all()?.to_vec1::<f32>()?.iter().all(|x| x.is_finite());
        let input = format!("{name}, two rows, the second padded by 2");
        ensure(
            &input,
            finite,
            "the output contains NaN: some row of the mask allows nothing at all",
        )?;
        for (row, padding) in [(0, 0), (1, 2)] {
            let want = alone(&*model, &rows[row][padding..])?;
            let input = format!("{input}: the last logits of row {row}, against that row alone");
            close(&input, got.i((row, 4)), &want, LOGITS)?;
        }
    }
    Ok(())
}

fn left_padding_by_hand(day: &Day) -> Outcome {
    let (ids, positions, padding) = (day.left_pad)(&[&[7, 8, 9], &[5], &[6, 4]]);
    let input = "left_pad of 7 8 9, of 5, and of 6 4";
    equal(&format!("{input}: padding"), Ok(padding), &vec![0, 2, 1])?;
    let want = vec![vec![7, 8, 9], vec![0, 0, 5], vec![0, 6, 4]];
    equal(&format!("{input}: ids"), Ok(ids), &want)
        .likely("the next token's logits come from the last column, so every row must end there")?;
    let real: Vec<&[u32]> = vec![&positions[0], &positions[1][2..], &positions[2][1..]];
    let want: Vec<&[u32]> = vec![&[0, 1, 2], &[0], &[0, 1]];
    equal(&format!("{input}: positions of the real tokens"), Ok(real), &want)
        .likely("the first real token of a row is at position 0, whatever comes before it")
}

fn left_padding_of_anything(day: &Day) -> Outcome {
    let mut random = Random::new(121);
    for _ in 0..30 {
        let b = 1 + random.below(5);
        let rows: Vec<Vec<u32>> = (0..b)
            .map(|_| (0..1 + random.below(9)).map(|_| 1 + random.below(99) as u32).collect())
            .collect();
        let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
        let width = lengths.iter().copied().max().unwrap_or(0);
        let input = format!("left_pad of rows of {lengths:?} tokens");
        let slices: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
        let (ids, positions, padding) = (day.left_pad)(&slices);
        let want: Vec<usize> = lengths.iter().map(|len| width - len).collect();
        equal(&format!("{input}: padding"), Ok(padding), &want)?;
        for (i, row) in rows.iter().enumerate() {
            let (pad, len) = (width - row.len(), row.len() as u32);
            equal(&format!("{input}: width of row {i}"), Ok(ids[i].len()), &width)?;
            equal(&format!("{input}: the end of row {i}"), Ok(ids[i][pad..].to_vec()), row)?;
            let got = positions[i].get(pad..).unwrap_or_default().to_vec();
            equal(&format!("{input}: positions of row {i}"), Ok(got), &(0..len).collect())?;
            let most = positions[i].iter().max().copied().unwrap_or(0);
            ensure(&input, (most as usize) < width, &format!("row {i} has a position of {most}"))
                .likely(
                    "padding also needs positions, and they must be within the model's context",
                )?;
        }
    }
    Ok(())
}

/// Returns the `(token, position)` pairs of a sequence.
fn whole(tokens: &[u32]) -> Vec<(u32, u32)> {
    tokens.iter().copied().zip(0..).collect()
}

fn the_prefill_by_hand(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let model = Witness::mixing(40, 9, 1);
    let given = [text(&[7, 8, 9], 5), text(&[5], 0), text(&[6, 4], 0)];
    let (step, after) = (day.prefill)(&model, &tokenizer, &given)?;
    let input = "prefill of 7 8 9, of 5, and of 6 4";
    let padding: Vec<usize> = after.iter().map(|text| text.padding).collect();
    equal(&format!("{input}: the rows' padding afterwards"), Ok(padding), &vec![0, 2, 1])?;
    equal(&format!("{input}: requested logits"), Ok(step.logits.clone()), &Logits::Last(1))?;
    model.forward(&step, &mut Keep::default())?;
    let seen = model.passes.borrow()[0].seen.clone();
    for (row, text) in given.iter().enumerate() {
        let input =
            format!("{input}: the (token, position) pairs that row {row}'s last token sees");
        equal(&input, Ok(seen[row].clone()), &whole(&text.tokens))
            .likely("a row sees its own tokens, at positions 0, 1, …, and no padding")?;
    }
    Ok(())
}

fn the_decode_step_by_hand(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let model = Witness::mixing(40, 9, 3);
    let mut cache = Keep::default();
    let mut given = [text(&[7, 8, 9], 0), text(&[5], 2), text(&[6, 4], 1)];
    // The cache as a prefill leaves it, built from a hand-written step.
    let ids = [vec![7, 8, 9], vec![0, 0, 5], vec![0, 6, 4]];
    let positions = [vec![0, 1, 2], vec![0, 0, 0], vec![0, 0, 1]];
    let mask: Vec<u8> = [0usize, 2, 1]
        .iter()
        .flat_map(|padding| (0..9).map(move |at| (at / 3, at % 3, *padding)))
        .map(|(i, j, padding)| u8::from(j == i || (padding <= j && j <= i)))
        .collect();
    let mask = Tensor::from_vec(mask, (3, 1, 3, 3), model.device())?;
    model.forward(&Step::batch(&model, &ids, &positions, Some(mask))?, &mut cache)?;
    for (turn, new) in [[11, 12, 13], [21, 22, 23]].into_iter().enumerate() {
        given.iter_mut().zip(new).for_each(|(text, id)| text.tokens.push(id));
        let step = (day.decode)(&model, &tokenizer, &given, 3 + turn)?;
        let input = format!("rows 7 8 9, 5 and 6 4, {} new tokens each: decode", turn + 1);
        let got = step.ids.to_vec2::<u32>()?;
        let want: Vec<Vec<u32>> = new.iter().map(|id| vec![*id]).collect();
        equal(&format!("{input}: ids"), Ok(got), &want)?;
        let got = step.positions.flatten_all()?.to_vec1::<u32>()?;
        let want: Vec<u32> = [3, 1, 2].iter().map(|len| len + turn as u32).collect();
        equal(&format!("{input}: positions"), Ok(got), &want).likely(
            "a token's position is the number of its own row's tokens before it: padding doesn't \
             count",
        )?;
        model.forward(&step, &mut cache)?;
        let seen = model.passes.borrow()[1 + turn].seen.clone();
        let want: Vec<_> = given.iter().map(|text| whole(&text.tokens)).collect();
        equal(&format!("{input}: the (token, position) pairs seen"), Ok(seen), &want)
            .likely("the mask grows by a column in every step, and still hides the padding")?;
    }
    Ok(())
}

fn a_row_inconsistent_with_the_cache_is_refused(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let model = Witness::mixing(40, 9, 3);
    // Row 1 has 3 tokens. Not counting its padding, the cache holds 0, 1, 3 or 4 of them. It should
    // hold 2.
    for (padding, past) in [(3, 3), (2, 3), (1, 4), (0, 4)] {
        let given = [text(&vec![7; past + 1], 0), text(&[5, 6, 4], padding)];
        let got = (day.decode)(&model, &tokenizer, &given, past);
        let got = got.and_then(|step| step.ids.to_vec2::<u32>());
        let input =
            format!("{past} columns; row 1 has a padding of {padding} and 3 tokens: decode");
        refused(&input, got, &[]).likely(
            "a row has past - padding tokens in the cache, and that must be all but its newest one",
        )?;
    }
    Ok(())
}

/// Builds a cache of one row that holds this many positions.
fn held(model: &Witness, positions: usize) -> Result<Keep> {
    let mut cache = Keep::default();
    let ids: Vec<u32> = (1..=positions as u32).collect();
    model.forward(&Step::new(model, &ids, 0)?, &mut cache)?;
    Ok(cache)
}

fn retiring_by_hand(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let given = [text(&[1, 2, 3, 4], 0), text(&[5, 6], 2), text(&[7], 3), text(&[8, 9], 2)];
    let model = Witness::mixing(40, 9, 9);
    let ids = vec![vec![1; 3]; 4];
    let positions = vec![vec![0, 1, 2]; 4];
    const EOS: Option<FinishReason> = Some(FinishReason::Eos);
    const LENGTH: Option<FinishReason> = Some(FinishReason::Length);
    for (ends, rows, padding, done) in [
        ([None, None, None, None], vec![0, 1, 2, 3], vec![0, 2, 3, 2], vec![]),
        ([None, EOS, None, LENGTH], vec![0, 2], vec![0, 3], vec!["select([0, 2])"]),
        (
            [EOS, None, None, None],
            vec![1, 2, 3],
            vec![0, 1, 0],
            vec!["select([1, 2, 3])", "trim(2)"],
        ),
        ([LENGTH, EOS, None, EOS], vec![2], vec![0], vec!["select([2])", "trim(3)"]),
    ] {
        let mut cache = Keep::default();
        model.forward(&Step::batch(&model, &ids, &positions, None)?, &mut cache)?;
        let given: Vec<Text> =
            given.iter().zip(ends).map(|(text, finish)| Text { finish, ..text.clone() }).collect();
        let got = (day.retire)(&tokenizer, &given, &mut cache)?;
        let input = format!("rows with padding 0, 2, 3, 2 and finish reasons {ends:?}");
        let left: Vec<Vec<u32>> = got.iter().map(|text| text.tokens.clone()).collect();
        let want: Vec<Vec<u32>> =
            rows.iter().map(|row: &usize| given[*row].tokens.clone()).collect();
        equal(&format!("{input}: the remaining rows"), Ok(left), &want)?;
        let changes = |what: &&String| what.as_str() != "trim(0)";
        let changes: Vec<String> = cache.done.iter().filter(changes).cloned().collect();
        let want: Vec<String> = done.iter().map(|what| what.to_string()).collect();
        equal(&format!("{input}: the calls to the cache"), Ok(changes), &want).likely(
            "trim the columns that are padding in every remaining row; if no row has finished, \
                do nothing",
        )?;
        let left: Vec<usize> = got.iter().map(|text| text.padding).collect();
        equal(&format!("{input}: the padding of the remaining rows"), Ok(left), &padding)
            .likely("a row's padding shrinks by the number of trimmed columns")?;
    }
    let mut cache = held(&model, 3)?;
    let ended = Text { finish: EOS, ..given[0].clone() };
    let got = (day.retire)(&tokenizer, std::slice::from_ref(&ended), &mut cache)?;
    equal("the only row ends: the remaining rows", Ok(got), &vec![])?;
    let mut given = given;
    given[0] = ended;
    let got = (day.retire)(&tokenizer, &given, &mut NoCache)?;
    let got: Vec<Vec<u32>> = got.into_iter().map(|text| text.tokens).collect();
    equal(
        "without a cache, the first of four ends: the remaining rows",
        Ok(got),
        &vec![vec![5, 6], vec![7], vec![8, 9]],
    )
}

fn two_steps_by_hand(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    // The model prefers the last token plus one, and 5 is EOS.
    let model = Witness::new(10, 9, 2, |seen| {
        (0..10).map(|id| if id == (seen[seen.len() - 1].0 + 1) % 10 { 5.0 } else { 0.0 }).collect()
    });
    let mut cache = Keep::default();
    let given = [text(&[1, 2, 3], 0), text(&[4], 0), text(&[7, 6], 0)];
    let (tokens, after) = (day.turn)(&model, &tokenizer, &given, 4, &[5], &mut cache)?;
    let input = "rows 1 2 3, 4 and 7 6, a model that predicts the last plus one, EOS is 5";
    let got: Vec<(usize, u32, bool)> =
        tokens.iter().map(|token| (token.row, token.id, token.finish.is_some())).collect();
    let want = vec![(0, 4, false), (1, 5, true), (2, 7, false)];
    equal(&format!("{input}: (row, token, ended) of the first step"), Ok(got), &want)?;
    let got: Vec<Vec<u32>> = after.iter().map(|text| text.tokens.clone()).collect();
    equal(
        &format!("{input}: the rows afterwards"),
        Ok(got),
        &vec![vec![1, 2, 3, 4], vec![7, 6, 7]],
    )
    .likely("a finished row leaves, and the others continue")?;
    let (tokens, after) = (day.turn)(&model, &tokenizer, &after, 4, &[5], &mut cache)?;
    let got: Vec<u32> = tokens.iter().map(|token| token.id).collect();
    equal(&format!("{input}: tokens of the second step"), Ok(got), &vec![5, 8])?;
    let sizes: Vec<usize> = model.passes.borrow().iter().map(|pass| pass.ids[0].len()).collect();
    equal(&format!("{input}: new tokens per row in the two passes"), Ok(sizes), &vec![3, 1])
        .likely("the first pass feeds the prompts, the second one new token per row")?;
    let got: Vec<(Vec<u32>, usize)> =
        after.into_iter().map(|text| (text.tokens, text.padding)).collect();
    let want = vec![(vec![7, 6, 7, 8], 0)];
    equal(
        &format!("{input}: tokens and padding of the rows after the second step"),
        Ok(got),
        &want,
    )?;
    equal(&format!("{input}: positions in the cache after the second step"), Ok(cache.len()), &3)
}

/// Groups tokens by row.
fn by_row(tokens: Result<Vec<Token>>, rows: usize) -> Result<Vec<Vec<u32>>> {
    let mut all = vec![Vec::new(); rows];
    for token in tokens? {
        if let Some(row) = all.get_mut(token.row) {
            row.push(token.id);
        }
    }
    Ok(all)
}

/// Chooses a row's token from its logits, and returns how close the choice was.
type Pick<'a> = &'a mut dyn FnMut(usize, &[f32]) -> Result<(u32, f32)>;

fn greedy(_row: usize, logits: &[f32]) -> Result<(u32, f32)> {
    Ok((largest(logits)?, margin(logits)))
}

/// The result of decoding a prompt alone: its tokens, and whether the text is complete. An
/// incomplete text stops where the next choice was closer than `near`, so a different order of
/// summation could flip it.
struct Alone {
    tokens: Vec<u32>,
    complete: bool,
}

/// Decodes one request alone, up to EOS, its token limit or the end of the context.
fn decoded(model: &dyn Model, request: &Request, pick: Pick, near: f32) -> Result<Alone> {
    let prompt = &request.prompt;
    let (mut tokens, mut cache) = (prompt.clone(), Keep::default());
    let room = model.config().max_position_embeddings + 1 - prompt.len();
    let mut complete = true;
    while tokens.len() < prompt.len() + request.max_new_tokens.min(room) {
        let past = cache.len();
        let step = Step::new(model, &tokens[past..], past)?.with_logits(Logits::Last(1));
        let logits: Vec<f32> = model.forward(&step, &mut cache)?.flatten_all()?.to_vec1()?;
        let (id, margin) = pick(request.id, &logits)?;
        if margin < near {
            complete = false;
            break;
        }
        tokens.push(id);
        if request.eos_token_ids.contains(&id) {
            break;
        }
    }
    Ok(Alone { tokens: tokens.split_off(prompt.len()), complete })
}

/// Decodes each of them alone.
fn all_decoded(
    model: &dyn Model,
    requests: &[Request],
    pick: Pick,
    near: f32,
) -> Result<Vec<Alone>> {
    requests.iter().map(|request| decoded(model, request, pick, near)).collect()
}

/// Checks that every row of the batch starts with its own solo result, and ends there if that is
/// complete.
fn rows_equal(input: &str, got: &[Vec<u32>], want: &[Alone]) -> Outcome {
    for (row, (got, want)) in got.iter().zip(want).enumerate() {
        let len = if want.complete { got.len() } else { want.tokens.len().min(got.len()) };
        let input = format!("{input}: row {row}, against that prompt alone");
        equal_tokens(&input, Ok(got[..len].to_vec()), &want.tokens, &[])?;
    }
    Ok(())
}

/// Builds a random batch of prompts up to `longest` tokens long.
fn prompts(random: &mut Random, rows: usize, longest: usize, vocab: usize) -> Vec<Vec<u32>> {
    let token = |random: &mut Random| 1 + random.below(vocab - 1) as u32;
    (0..rows).map(|_| (0..1 + random.below(longest)).map(|_| token(random)).collect()).collect()
}

/// Runs random mixes through a model that exposes every mistake. `slack` is the number of new
/// tokens past the context.
fn mixes(day: &Day, seed: u64, slack: usize, cached: bool) -> Outcome {
    let (tokenizer, mut random) = (tokenizer()?, Random::new(seed));
    for _ in 0..14 {
        let (vocab, context) = (12, 8 + random.below(12));
        let most = 3 + random.below(9) + slack;
        let b = 1 + random.below(5);
        let longest = if slack > 0 { context } else { (context - 1).saturating_sub(most).max(1) };
        let context = if slack > 0 { context } else { longest + most };
        let prompts = prompts(&mut random, b, longest, vocab);
        let model = Witness::mixing(vocab, context, most + 1);
        let cache: Box<dyn Batch> =
            if cached { Box::new(Keep::default()) } else { Box::new(NoCache) };
        // The batch has to assign the ids, so every request arrives as number 0.
        let all = prompts.iter().map(|prompt| request(0, prompt, most, &[0])).collect();
        let got = (day.generate)(&model, &tokenizer, all, cache);
        let fresh = Witness::mixing(vocab, context, usize::MAX);
        let want = all_decoded(&fresh, &requests(&prompts, most, &[0]), &mut greedy, 0.0)?;
        let input = format!(
            "a model whose token depends on everything it sees, prompts {prompts:?}, \
            at most {most} new, EOS 0, context {context}, with{} a cache",
            if cached { "" } else { "out" }
        );
        rows_equal(&input, &by_row(got, b)?, &want)?;
    }
    Ok(())
}

fn any_batch_equals_its_rows_run_alone(day: &Day) -> Outcome {
    mixes(day, 126, 0, true)
}

fn any_batch_without_a_cache_equals_its_rows_run_alone(day: &Day) -> Outcome {
    mixes(day, 127, 0, false)?;
    mixes(day, 128, 9, false)
}

fn rows_end_at_the_context_limit(day: &Day) -> Outcome {
    mixes(day, 129, 14, true)
}

fn finished_rows_do_not_grow_the_cache(day: &Day) -> Outcome {
    // A long row ends immediately. The others then need no more positions than the longest of them.
    let tokenizer = tokenizer()?;
    let model = Witness::new(60, 64, 30, |seen| {
        let next = if seen.len() == 20 { 0 } else { (seen[seen.len() - 1].0 + 1) % 50 + 1 };
        (0..60).map(|id| if id == next { 5.0 } else { 0.0 }).collect()
    });
    let prompts = vec![(1..20).collect::<Vec<u32>>(), vec![30], vec![40, 41]];
    let requests = requests(&prompts, 12, &[0]);
    (day.generate)(&model, &tokenizer, requests, Box::new(Keep::default()))?;
    let masks: Vec<bool> = model.passes.borrow().iter().map(|pass| pass.masked).collect();
    ensure(
        "prompts of 19, 1 and 2 tokens, the first ends with its second token",
        masks[0],
        "the first pass had no mask: rows of 19, 1 and 2 tokens need one",
    )?;
    let rows: Vec<usize> = model.passes.borrow().iter().map(|pass| pass.ids.len()).collect();
    let want: Vec<usize> = [vec![3; 2], vec![2; 10]].concat();
    equal(
        "prompts of 19, 1 and 2 tokens, the first ends with its second token, the others after 12: \
        rows of each pass",
        Ok(rows),
        &want,
    )
}

fn the_loop_ends(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let run = |most: usize, prompts: &[Vec<u32>], cache: Box<dyn Batch>| {
        let model = Witness::mixing(30, 6, 9);
        let requests = requests(prompts, most, &[]);
        by_row((day.generate)(&model, &tokenizer, requests, cache), prompts.len())
            .map(|rows| rows.iter().map(Vec::len).collect::<Vec<_>>())
    };
    let keep = || Box::new(Keep::default());
    let two = [vec![1, 2, 3], vec![4]];
    equal("two prompts, 3 new: tokens of each row", run(3, &two, keep()), &vec![3, 3])?;
    equal("two prompts, 1 new: tokens of each row", run(1, &two, keep()), &vec![1, 1])?;
    equal("two prompts, 0 new: tokens of each row", run(0, &two, keep()), &vec![0, 0])?;
    refused("no prompts", run(3, &[], keep()), &["at least one prompt"])?;
    refused("an empty prompt", run(3, &[vec![1], vec![]], keep()), &["empty"])?;
    refused("a prompt of 7, a context of 6", run(3, &[vec![1; 7], vec![1]], keep()), &["context"])
}

// Tolerance: as on day 5, six layers of f32 sums in a different order, with logits near 10.
const LOGITS: f32 = 1e-4;
// A different order of summation could flip a choice closer than this. Every golden keeps this
// margin.
const NEAR: f32 = 1e-3;

fn load(name: &str) -> Result<Box<dyn Model>> {
    model_of(name, DType::F32)
}

/// Returns the logits `(V)` after a text.
fn alone(model: &dyn Model, ids: &[u32]) -> Result<Tensor> {
    let step = Step::new(model, ids, 0)?.with_logits(Logits::Last(1));
    model.forward(&step, &mut NoCache)?.flatten_all()
}

fn story_model_batches_equal_each_row_alone(day: &Day) -> Outcome {
    let (tokenizer, mut random) = (tokenizer()?, Random::new(131));
    for name in ["story-230k", "story-gpt2-1m"] {
        let model = load(name)?;
        for _ in 0..2 {
            let prompts = prompts(&mut random, 4, 12, 2048);
            let requests = || requests(&prompts, 16, &[0]);
            let got = (day.generate)(&*model, &tokenizer, requests(), Box::new(Keep::default()));
            let want = all_decoded(&*model, &requests(), &mut greedy, NEAR)?;
            let lengths: Vec<usize> = prompts.iter().map(Vec::len).collect();
            let input = format!("{name}, random prompts of {lengths:?} tokens, 16 new");
            rows_equal(&input, &by_row(got, 4)?, &want)?;
        }
    }
    Ok(())
}

fn gpt2_generates_to_the_end_of_its_context(day: &Day) -> Outcome {
    // The context is 256, so each row ends at its 257th token, in different steps.
    let (model, tokenizer, mut random) = (load("story-gpt2-1m")?, tokenizer()?, Random::new(132));
    let lengths = [253, 4, 250];
    let row = |len: &usize| (0..*len).map(|_| 300 + random.below(1700) as u32).collect();
    let prompts: Vec<Vec<u32>> = lengths.iter().map(row).collect();
    let want = all_decoded(&*model, &requests(&prompts, 10, &[]), &mut greedy, NEAR)?;
    let requests = requests(&prompts, 10, &[]);
    let tokens = (day.generate)(&*model, &tokenizer, requests, Box::new(Keep::default()))?;
    let input =
        format!("story-gpt2-1m, random prompts of {lengths:?} tokens, 10 new, a context of 256");
    let ends: Vec<FinishReason> = tokens.iter().filter_map(|token| token.finish).collect();
    let got = by_row(Ok(tokens), 3)?;
    let lengths: Vec<usize> = got.iter().map(Vec::len).collect();
    equal(&format!("{input}: new tokens of each row"), Ok(lengths), &vec![4, 10, 7])?;
    equal(&format!("{input}: finish reasons"), Ok(ends), &vec![FinishReason::Length; 3])?;
    rows_equal(&input, &got, &want)
}

fn rows_have_their_own_parameters(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let prompts = [vec![7, 8, 9], vec![5], vec![6, 4]];
    // Row 1 has a different token limit, different EOS ids and a different sampler.
    let all = || {
        let mut all = requests(&prompts, 9, &[]);
        (all[1].max_new_tokens, all[1].eos_token_ids) = (5, vec![3, 11]);
        all[2].sampler = Box::new(|logits| Ok(logits.len() as u32 - 1));
        all[2].max_new_tokens = 2;
        all
    };
    let model = Witness::mixing(40, 20, 10);
    let got = by_row((day.generate)(&model, &tokenizer, all(), Box::new(Keep::default())), 3)?;
    let fresh = Witness::mixing(40, 20, usize::MAX);
    let mut pick = |row: usize, logits: &[f32]| match row {
        2 => Ok((39, 1.0)),
        _ => greedy(row, logits),
    };
    let want = all_decoded(&fresh, &all(), &mut pick, 0.0)?;
    let input = "prompts 7 8 9, 5 and 6 4: 9 new; 5 new or EOS; 2 new, always the last token";
    rows_equal(input, &got, &want)
        .likely("each row's token is chosen by its own sequence, `row.sequence`")
}

fn rows_draw_from_their_own_streams(day: &Day) -> Outcome {
    // Each row has its own random stream, as with `--rng chacha`, so a row in a batch draws the
    // same tokens as it does alone.
    let (model, tokenizer) = (load("story-230k")?, tokenizer()?);
    let streams: RefCell<Vec<RequestRng>> = RefCell::default();
    let draw = |row: usize, logits: &[f32]| -> Result<(u32, f32)> {
        let mut streams = streams.borrow_mut();
        while streams.len() <= row {
            let request = streams.len() as u64;
            streams.push(RequestRng::new(12, request));
        }
        let u = f64::from(streams[row].uniform());
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f64> = logits.iter().map(|logit| f64::from(logit - max).exp()).collect();
        let total: f64 = weights.iter().sum();
        let mut sum = 0.0;
        for (id, weight) in weights.iter().enumerate() {
            let low = sum;
            sum += weight / total;
            if u < sum {
                return Ok((id as u32, (u - low).min(sum - u) as f32));
            }
        }
        Ok((logits.len() as u32 - 1, 0.0))
    };
    let draw = &draw;
    let mut random = Random::new(133);
    let prompts = prompts(&mut random, 4, 9, 2048);
    let mut pick = |row: usize, logits: &[f32]| draw(row, logits);
    // f32 logits can shift a boundary by 1e-5 in probability.
    let want = all_decoded(&*model, &requests(&prompts, 20, &[0]), &mut pick, 1e-5)?;
    streams.borrow_mut().clear();
    let mut requests = requests(&prompts, 20, &[0]);
    for request in &mut requests {
        let row = request.id;
        request.sampler = Box::new(move |logits| Ok(draw(row, logits)?.0));
    }
    let got = (day.generate)(&*model, &tokenizer, requests, Box::new(Keep::default()));
    rows_equal(
        "story-230k, four random prompts, sampled, a random stream for each row",
        &by_row(got, 4)?,
        &want,
    )
}

fn tokens_equal_transformers(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    for batch in golden_json("day12")?["batches"].as_array().into_iter().flatten() {
        let numbers = |key: &str, row: usize| {
            let list = batch[key][row].as_array().into_iter().flatten();
            list.filter_map(serde_json::Value::as_f64).collect::<Vec<_>>()
        };
        let name = batch["model"].as_str().unwrap_or_default();
        // All rows of the small models, but only two of the large one, to save time.
        let rows = if name == "story-3m" { [1, 4].to_vec() } else { (0..5).collect() };
        let ids = |key: &str| -> Vec<Vec<u32>> {
            rows.iter()
                .map(|row| numbers(key, *row).into_iter().map(|id| id as u32).collect())
                .collect()
        };
        let (prompts, want, model) = (ids("prompt_ids"), ids("new_ids"), load(name)?);
        let eos = &model.config().eos_token_ids;
        let requests = requests(&prompts, 60, eos);
        let got = (day.generate)(&*model, &tokenizer, requests, Box::new(Keep::default()));
        let got = by_row(got, prompts.len())?;
        for (i, row) in rows.iter().enumerate() {
            let margins: Vec<f32> =
                numbers("margins", *row).into_iter().map(|m| m as f32).collect();
            let prompt = batch["prompts"][*row].as_str().unwrap_or_default();
            let input = format!(
                "{name}, a batch of {}, row {i}, \"{prompt}\", against transformers' batch",
                rows.len()
            );
            equal_tokens(&input, Ok(got[i].clone()), &want[i], &margins)?;
        }
    }
    Ok(())
}

fn a_failing_row_does_not_end_the_others(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let prompts = [vec![7, 8, 9], vec![5], vec![6, 4]];
    for (when, cached) in [(2, false), (2, true), (1, true)] {
        let run = |fails: bool| -> Result<Vec<Vec<Token>>> {
            let model = Witness::mixing(40, 20, 20);
            let mut all = requests(&prompts, 4, &[]);
            let asked = Cell::new(0);
            all[1].sampler = Box::new(|logits| {
                asked.set(asked.get() + 1);
                if fails && asked.get() == when {
                    candle_core::bail!("row 1's sampler fails")
                }
                largest(logits)
            });
            let cache: Box<dyn Batch> =
                if cached { Box::new(Keep::default()) } else { Box::new(NoCache) };
            let tokens = (day.generate)(&model, &tokenizer, all, cache)?;
            let mut rows = vec![Vec::new(); 3];
            for token in tokens {
                rows[token.row].push(token);
            }
            Ok(rows)
        };
        let with = if cached { "" } else { ", without a cache" };
        let input = format!(
            "three rows, 4 new tokens each{with}; the sampler of row 1 fails at \
                token {when}"
        );
        let healthy = run(false)?;
        let mut rows = match run(true) {
            Ok(rows) => rows,
            Err(error) => {
                return equal(&format!("{input}: the batch"), Err(error), &())
                    .likely_for_any_failure(
                        "the row's last token carries its error, and the other rows continue",
                    );
            }
        };
        let failed = std::mem::take(&mut rows[1]);
        let want = vec![healthy[0].clone(), vec![], healthy[2].clone()];
        equal(&format!("{input}: the tokens of rows 0 and 2"), Ok(rows), &want)
            .likely("a failure in row 1 must not change the other rows")?;
        let ends = |tokens: &[Token]| -> Vec<(Option<FinishReason>, Option<String>)> {
            tokens.iter().map(|token| (token.finish, token.error.clone())).collect()
        };
        let mut want = vec![(None, None); when - 1];
        want.push((Some(FinishReason::Failed), Some("row 1's sampler fails".to_string())));
        equal(&format!("{input}: (finish, error) of row 1's tokens"), Ok(ends(&failed)), &want)
            .likely("the last token of a row that fails carries the error")?;
    }
    // A pass that fails is an error for the whole batch.
    let model = Witness::mixing(40, 20, 2);
    let all = requests(&prompts, 4, &[]);
    let got = (day.generate)(&model, &tokenizer, all, Box::new(Keep::default()));
    let got = got.map(|tokens| tokens.len());
    refused("three rows, 4 new tokens each; the model fails at its third pass", got, &[])
}

fn a_line_by_hand(day: &Day) -> Outcome {
    let model = Witness::mixing(40, 9, 1);
    let step = (day.packed_step)(&model, &[&[7, 8, 9], &[5], &[6, 4]])?;
    let input = "packed_step of 7 8 9, of 5, and of 6 4";
    let want = vec![vec![7, 8, 9, 5, 6, 4]];
    equal(&format!("{input}: ids"), step.ids.to_vec2::<u32>(), &want)
        .likely("the batch has a single row, without padding")?;
    let want = vec![vec![0, 1, 2, 0, 0, 1]];
    equal(&format!("{input}: positions"), step.positions.to_vec2::<u32>(), &want)
        .likely("a token has the position it would have if its row were alone")?;
    equal(&format!("{input}: requested logits"), Ok(step.logits), &Logits::Columns(vec![2, 3, 5]))
        .likely("the last token of every row")?;
    let want = [
        [1u8, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1, 1],
    ];
    let want = Tensor::new(&[[want]], &device()?)?;
    match step.mask {
        Some(mask) => close(&format!("{input}: mask"), Ok(mask), &want, 0.0)
            .likely("a token sees the tokens of its own row, up to itself"),
        None => ensure(input, false, "there is no mask, so each row sees the rows before it"),
    }
}

fn packed_rows_equal_each_row_alone(day: &Day) -> Outcome {
    let mut random = Random::new(137);
    for _ in 0..8 {
        let rows = 1 + random.below(5);
        let rows = prompts(&mut random, rows, 9, 40);
        let slices: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
        // The context has room for each row, but not for the whole line.
        let longest = rows.iter().map(Vec::len).max().unwrap_or_default();
        let model = Witness::mixing(40, longest, 1);
        model.forward(&(day.packed_step)(&model, &slices)?, &mut NoCache)?;
        let seen = model.passes.borrow()[0].seen.clone();
        let want: Vec<_> = rows.iter().map(|row| whole(row)).collect();
        let input = format!("packed_step of {rows:?}, a context of {longest}");
        let what = "the (token, position) pairs that the last token of each row sees";
        equal(&format!("{input}: {what}"), Ok(seen), &want)?;
    }
    for name in ["story-gpt2-1m", "story-230k"] {
        let model = load(name)?;
        let rows = prompts(&mut random, 4, 12, 2048);
        let slices: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
        let got = model.forward(&(day.packed_step)(&*model, &slices)?, &mut NoCache)?;
        for (i, row) in rows.iter().enumerate() {
            let input = format!("{name}, packed_step of random prompts: logits of row {i}");
            close(&input, got.i((0, i)), &alone(&*model, row)?, LOGITS)?;
        }
    }
    Ok(())
}

fn an_empty_row_in_a_line_is_refused(day: &Day) -> Outcome {
    let model = Witness::mixing(40, 9, 1);
    let cases: [&[&[u32]]; 4] = [&[], &[&[]], &[&[1], &[]], &[&[], &[1]]];
    for rows in cases {
        let got = (day.packed_step)(&model, rows).map(|_| ());
        refused(&format!("packed_step of the rows {rows:?}"), got, &[])?;
    }
    let long = (day.packed_step)(&model, &[&[1], &[2; 10]]).map(|_| ());
    refused("packed_step of rows of 1 and of 10 tokens, a context of 9", long, &[])
}
