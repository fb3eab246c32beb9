//! Day 18's checks: flash attention.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day18_flash_attention;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day18_flash_attention.rs"]
mod day18_flash_attention;

use candecode::kit::panics::describe_panic;
use candle_core::{Result, Tensor};
use frame::{bits_equal, close, device, ensure, equal, golden, refused, Likely, Outcome, Random};
use std::ops::Range;
use std::panic::{catch_unwind, AssertUnwindSafe};

// Weighted sums of up to a few hundred numbers up to 10, in f32 and in a different order than torch
// or an f64 loop uses: errors of a few times 1e-6.
const TOLERANCE: f32 = 1e-5;

/// A head's keys or values: the numbers, the distance from one position to the next, and D.
pub type Strided<'a> = (&'a [f32], usize, usize);

/// The largest score, the sum and the accumulator.
pub type Gathered = (f32, f32, Vec<f32>);

/// A mask, T and S.
pub type Sight<'a> = (Option<&'a [u8]>, usize, usize);

/// A query's numbers, and its token index.
pub type Asked = (Vec<f32>, usize);

/// The number of rows, query heads, key/value heads and new tokens, and D.
pub type Counts = (usize, usize, usize, usize, usize);

type Attend = fn(&[Asked], Strided, Strided, Sight, Range<usize>) -> Vec<Gathered>;

/// The day 18 functions under test.
#[derive(Clone, Copy)]
pub struct Day {
    pub update: fn(Gathered, &[f32], Strided, usize) -> Gathered,
    pub merge: fn(Gathered, Gathered) -> Gathered,
    pub finish: fn(Gathered) -> Vec<f32>,
    pub tile_scores: fn(&[Asked], Strided, Sight, Range<usize>) -> Vec<f32>,
    pub attend_tiles: Attend,
    pub attend_split: Attend,
    pub flash: fn(Counts, &[f32], &[Strided], &[Strided], &[Sight]) -> Vec<f32>,
    pub tiled: fn(&Tensor, &Tensor, &Tensor, Option<&Tensor>) -> Result<Tensor>,
    pub entropy: fn(&[Vec<f32>]) -> f32,
    pub log_sum_exp: fn(Gathered) -> f32,
    pub merge_finished: fn((&[f32], f32), (&[f32], f32)) -> (Vec<f32>, f32),
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        fn head((data, stride, width): crate::Strided<'_>) -> code::Head<'_> {
            code::Head { data, stride, width }
        }
        fn partial((max, sum, acc): crate::Gathered) -> code::Partial {
            code::Partial { max, sum, acc }
        }
        fn gathered(partial: code::Partial) -> crate::Gathered {
            (partial.max, partial.sum, partial.acc)
        }
        fn row((mask, new, all): crate::Sight<'_>) -> code::RowMask<'_> {
            code::RowMask { mask, new, all }
        }
        fn queries(asked: &[crate::Asked]) -> Vec<code::Query<'_>> {
            asked.iter().map(|(numbers, token)| code::Query { numbers, token: *token }).collect()
        }
        crate::Day {
            update: |before, scores, values, first| {
                let mut partial = partial(before);
                partial.update(scores, &head(values), first);
                gathered(partial)
            },
            merge: |one, other| {
                let mut one = partial(one);
                one.merge(&partial(other));
                gathered(one)
            },
            finish: |all| {
                let mut out = vec![0.0; all.2.len()];
                partial(all).finish(&mut out);
                out
            },
            tile_scores: |asked, keys, sight, columns| {
                let mut scores = vec![0.0; asked.len() * columns.len()];
                let (keys, row) = (head(keys), row(sight));
                code::tile_scores(&queries(asked), &keys, &row, columns, &mut scores);
                scores
            },
            attend_tiles: |asked, keys, values, sight, columns| {
                let (keys, values, row) = (head(keys), head(values), row(sight));
                let all = code::attend_tiles(&queries(asked), &keys, &values, &row, columns);
                all.into_iter().map(gathered).collect()
            },
            attend_split: |asked, keys, values, sight, columns| {
                let (keys, values, row) = (head(keys), head(values), row(sight));
                let all = code::attend_split(&queries(asked), &keys, &values, &row, columns);
                all.into_iter().map(gathered).collect()
            },
            flash: |(rows, heads, kv_heads, new, width), q, keys, values, sights| {
                let sizes = code::Sizes { rows, heads, kv_heads, new, width };
                let keys: Vec<code::Head> = keys.iter().map(|keys| head(*keys)).collect();
                let values: Vec<code::Head> = values.iter().map(|values| head(*values)).collect();
                let masks: Vec<code::RowMask> = sights.iter().map(|sight| row(*sight)).collect();
                code::flash_attention(&sizes, q, &keys, &values, &masks)
            },
            tiled: code::tiled_attention,
            entropy: |tiles| code::attention_entropy(tiles.iter().cloned()),
            log_sum_exp: |gathered| partial(gathered).log_sum_exp(),
            merge_finished: code::merge_finished,
        }
    }};
}

frame::checks! {
    day18_flash_attention:
    18.1: a_new_maximum_rescales_both_sums, values_start_at_first, masked_keys_weigh_nothing,
        a_masked_tile_changes_nothing, large_scores_do_not_overflow,
        nan_and_infinity_make_the_sum_nan;
    18.2: attention_is_accumulator_over_sum, any_tiling_gives_the_softmax;
    18.3: the_smaller_maximum_is_rescaled, merging_nothing_changes_nothing, merging_is_associative;
    18.4: scores_are_scaled_and_masked, scores_of_any_width_are_right;
    18.5: many_tiles_equal_one_softmax, columns_outside_the_range_are_ignored,
        a_partly_masked_tile_is_not_skipped, an_unseen_tile_is_not_read;
    18.6: split_columns_equal_one_softmax, chunks_start_at_the_first_visible_column,
        results_are_bit_identical_for_any_thread_count, each_query_group_shares_one_kv_head,
        batches_equal_one_softmax_per_query, decoding_splits_the_columns,
        mismatched_shapes_are_rejected, the_operation_equals_torch, padding_changes_no_bit;
    18.7: entropy_matches_the_hand_worked_cases, masked_keys_add_no_entropy,
        entropy_is_correct_for_any_tiling;
    18.8: merging_weights_each_side_by_its_sum, a_side_without_keys_is_ignored;
}

/// Checks that numbers agree to within `tolerance`.
fn numbers(input: &str, got: &[f32], want: &[f32], tolerance: f32) -> Outcome {
    let tensor = |numbers: &[f32]| Tensor::new(numbers, &device()?);
    if want.is_empty() {
        return equal(input, Ok(got.len()), &0);
    }
    close(input, tensor(got), &tensor(want)?, tolerance)
}

/// Checks that two partial results agree in largest score, sum and accumulator.
fn same(input: &str, got: &Gathered, want: &Gathered, tolerance: f32) -> Outcome {
    let flat = |(max, sum, acc): &Gathered| [&[*max, *sum], &acc[..]].concat();
    let input = format!("{input}: maximum, sum, accumulator");
    numbers(&input, &flat(got), &flat(want), tolerance)
}

/// Returns the state of a query that hasn't seen any key.
fn nothing(width: usize) -> Gathered {
    (f32::NEG_INFINITY, 0.0, vec![0.0; width])
}

/// Returns random numbers in [-1, 1), multiplied by `scale`.
fn random_numbers(random: &mut Random, count: usize, scale: f32) -> Vec<f32> {
    (0..count).map(|_| scale * random.float()).collect()
}

/// A head with gaps between its positions. The gaps must not be read.
struct Buffer {
    data: Vec<f32>,
    stride: usize,
    width: usize,
}

impl Buffer {
    fn new(random: &mut Random, len: usize, width: usize) -> Self {
        let stride = width + random.below(4);
        let data = random_numbers(random, len * stride, 1.0);
        Self { data, stride, width }
    }

    fn strided(&self) -> Strided<'_> {
        (&self.data, self.stride, self.width)
    }

    fn at(&self, position: usize) -> &[f32] {
        &self.data[position * self.stride..][..self.width]
    }
}

/// Computes a query's scores for some keys in f64.
fn scores_of(query: &[f32], keys: &Buffer, columns: &[usize]) -> Vec<f64> {
    let scale = 1.0 / (query.len() as f64).sqrt();
    let score = |column: &usize| -> f64 {
        let pairs = query.iter().zip(keys.at(*column));
        scale * pairs.map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>()
    };
    columns.iter().map(score).collect()
}

/// Computes a query's softmax attention over some columns in one pass, in f64.
fn attention(query: &[f32], keys: &Buffer, values: &Buffer, columns: &[usize]) -> Vec<f32> {
    let scores = scores_of(query, keys, columns);
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let number = |n: usize| {
        let parts = columns.iter().zip(&weights);
        (parts.map(|(column, w)| w * f64::from(values.at(*column)[n])).sum::<f64>() / sum) as f32
    };
    (0..values.width).map(number).collect()
}

/// Divides a partial result by its sum, so that checking one task doesn't need another.
fn divided((_, sum, acc): &Gathered) -> Vec<f32> {
    acc.iter().map(|number| number / sum).collect()
}

/// Builds day 12's mask, `(T, S)`, for a row that starts with padding.
fn padded(padding: usize, new: usize, all: usize) -> Vec<u8> {
    let see = |i: usize, j: usize| j == i || (padding <= j && j <= i);
    (all - new..all).flat_map(|i| (0..all).map(move |j| u8::from(see(i, j)))).collect()
}

/// The values for the hand-worked cases: (8, 0), (0, 4), (3, 3), (9, 0).
const VALUES: [f32; 8] = [8.0, 0.0, 0.0, 4.0, 3.0, 3.0, 9.0, 0.0];

fn a_new_maximum_rescales_both_sums(day: &Day) -> Outcome {
    let (three, nine) = (3f32.ln(), 9f32.ln());
    let values: Strided = (&VALUES, 2, 2);
    // Weights 1/3 and 1.
    let first = (three, 4.0 / 3.0, vec![8.0 / 3.0, 4.0]);
    let input = "scores ln 1, ln 3; values (8, 0), (0, 4)";
    let got = (day.update)(nothing(2), &[0.0, three], values, 0);
    same(input, &got, &first, TOLERANCE)?;
    // Everything so far is scaled by a third, and the new weight is 1.
    let second = (nine, 4.0 / 9.0 + 1.0, vec![8.0 / 9.0 + 3.0, 4.0 / 3.0 + 3.0]);
    let input = "after ln 1, ln 3 the score ln 9; value (3, 3)";
    same(input, &(day.update)(first, &[nine], values, 2), &second, TOLERANCE)?;
    // A lower score: nothing is rescaled, and its weight is 1/9.
    let third = (nine, 14.0 / 9.0, vec![8.0 / 9.0 + 4.0, 13.0 / 3.0]);
    let input = "after ln 1, ln 3, ln 9 the score ln 1; value (9, 0)";
    same(input, &(day.update)(second, &[0.0], values, 3), &third, TOLERANCE)
}

fn values_start_at_first(day: &Day) -> Outcome {
    // Stride 3, with the 7s in the gaps between positions.
    let data = [8.0, 0.0, 7.0, 0.0, 4.0, 7.0, 3.0, 5.0, 7.0, 9.0, 1.0, 7.0];
    let got = (day.update)(nothing(2), &[0.0, 0.0], (&data, 3, 2), 2);
    let want = (0.0, 2.0, vec![12.0, 6.0]);
    same("scores 0, 0; values from position 2 on, stride 3", &got, &want, TOLERANCE)
}

fn masked_keys_weigh_nothing(day: &Day) -> Outcome {
    let values: Strided = (&VALUES, 2, 2);
    let scores = [f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY, 1.0];
    let got = (day.update)(nothing(2), &scores, values, 0);
    let input = "scores -inf, 1, -inf, 1";
    same(input, &got, &(1.0, 2.0, vec![9.0, 4.0]), TOLERANCE)
}

fn a_masked_tile_changes_nothing(day: &Day) -> Outcome {
    let values: Strided = (&VALUES, 2, 2);
    let masked = [f32::NEG_INFINITY; 3];
    for before in [nothing(2), (1.5, 2.0, vec![9.0, -4.0])] {
        let got = (day.update)(before.clone(), &masked, values, 0);
        same(&format!("{before:?}, then scores -inf, -inf, -inf"), &got, &before, 0.0)?;
    }
    let got = (day.update)(nothing(2), &masked, values, 0);
    let got = (day.update)(got, &[2.0], values, 1);
    same("scores -inf, -inf, -inf, then 2", &got, &(2.0, 1.0, vec![0.0, 4.0]), TOLERANCE)
}

fn large_scores_do_not_overflow(day: &Day) -> Outcome {
    let values: Strided = (&VALUES, 2, 2);
    let got = (day.update)(nothing(2), &[999.0, 1000.0], values, 0);
    let weight = (-1f32).exp();
    let want = (1000.0, 1.0 + weight, vec![8.0 * weight, 4.0]);
    same("scores 999, 1000", &got, &want, TOLERANCE)?;
    let got = (day.update)(got, &[-1000.0], values, 2);
    same("scores 999, 1000, then -1000", &got, &want, TOLERANCE)?;
    let got = (day.update)(nothing(2), &[-1000.0], values, 2);
    same("the score -1000", &got, &(-1000.0, 1.0, vec![3.0, 3.0]), TOLERANCE)
}

fn nan_and_infinity_make_the_sum_nan(day: &Day) -> Outcome {
    let values: Strided = (&VALUES, 2, 2);
    for scores in [[0.0, f32::NAN], [f32::NAN, f32::NAN], [0.0, f32::INFINITY]] {
        let got = (day.update)(nothing(2), &scores, values, 0);
        let got = (day.update)(got, &[1.0, 2.0], values, 2);
        let otherwise = format!("got a sum of {} instead of NaN", got.1);
        ensure(&format!("scores {scores:?}, then 1, 2"), got.1.is_nan(), &otherwise)?;
    }
    Ok(())
}

fn the_smaller_maximum_is_rescaled(day: &Day) -> Outcome {
    let one = (3f32.ln(), 4.0 / 3.0, vec![8.0 / 3.0, 4.0]);
    let other = (9f32.ln(), 2.0, vec![3.0, 5.0]);
    let want = (9f32.ln(), 4.0 / 9.0 + 2.0, vec![8.0 / 9.0 + 3.0, 4.0 / 3.0 + 5.0]);
    let input = "maximum ln 3, sum 4/3, (8/3, 4); maximum ln 9, sum 2, (3, 5)";
    let got = (day.merge)(one.clone(), other.clone());
    same(&format!("merge the second into the first: {input}"), &got, &want, TOLERANCE)?;
    let got = (day.merge)(other, one);
    same(&format!("merge the first into the second: {input}"), &got, &want, TOLERANCE)
}

fn merging_nothing_changes_nothing(day: &Day) -> Outcome {
    let some = (-2.5, 1.25, vec![3.0, -7.0]);
    same("merge nothing into something", &(day.merge)(some.clone(), nothing(2)), &some, 0.0)?;
    same("merge something into nothing", &(day.merge)(nothing(2), some.clone()), &some, 0.0)?;
    let both = (day.merge)(nothing(2), nothing(2));
    same("merge nothing into nothing", &both, &nothing(2), 0.0)
}

/// Returns a partial result with scores far apart, so that each tile either moves the maximum or is
/// far below it.
fn random_part(random: &mut Random) -> Gathered {
    let max = 8.0 * random.float();
    (max, 1.0 + random.below(100) as f32 / 16.0, random_numbers(random, 4, 5.0))
}

fn merging_is_associative(day: &Day) -> Outcome {
    let mut random = Random::new(1);
    for _ in 0..50 {
        let [a, b, c] = [(); 3].map(|_| random_part(&mut random));
        let left = (day.merge)((day.merge)(a.clone(), b.clone()), c.clone());
        let right = (day.merge)(a.clone(), (day.merge)(b.clone(), c.clone()));
        let input = format!("(a, b), c against a, (b, c): {a:?}, {b:?}, {c:?}");
        same(&input, &left, &right, 10.0 * TOLERANCE)?; // sums of up to 20
        let max = a.0.max(b.0).max(c.0);
        let sum = |x: &Gathered| x.1 * (x.0 - max).exp();
        let want = sum(&a) + sum(&b) + sum(&c);
        numbers(&format!("the sum of {input}"), &[left.1], &[want], 10.0 * TOLERANCE)?;
    }
    Ok(())
}

fn attention_is_accumulator_over_sum(day: &Day) -> Outcome {
    let got = (day.finish)((3f32.ln(), 4.0 / 3.0, vec![8.0 / 3.0, 4.0]));
    numbers("maximum ln 3, sum 4/3, accumulator (8/3, 4)", &got, &[2.0, 3.0], TOLERANCE)?;
    let got = (day.finish)(nothing(2));
    let all_nan = got.len() == 2 && got.iter().all(|number| number.is_nan());
    ensure("no keys seen", all_nan, &format!("got {got:?} instead of NaN, NaN"))
}

fn any_tiling_gives_the_softmax(day: &Day) -> Outcome {
    let mut random = Random::new(2);
    for _ in 0..30 {
        let (len, width) = (1 + random.below(90), 1 + random.below(9));
        let values = Buffer::new(&mut random, len, width);
        let mut scores = random_numbers(&mut random, len, 6.0);
        for score in &mut scores[1..] {
            if random.below(4) == 0 {
                *score = f32::NEG_INFINITY;
            }
        }
        let mut all = nothing(width);
        let mut first = 0;
        let mut cuts = Vec::new();
        while first < len {
            let end = len.min(first + 1 + random.below(20));
            all = (day.update)(all, &scores[first..end], values.strided(), first);
            cuts.push(end);
            first = end;
        }
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weight = |score: &f32| f64::from(score - max).exp();
        let sum: f64 = scores.iter().map(weight).sum();
        let mean = |n: usize| {
            let parts =
                scores.iter().enumerate().map(|(i, s)| weight(s) * f64::from(values.at(i)[n]));
            (parts.sum::<f64>() / sum) as f32
        };
        let want: Vec<f32> = (0..width).map(mean).collect();
        let input = format!("{len} scores in tiles that end before {cuts:?}");
        numbers(&input, &(day.finish)(all), &want, TOLERANCE)
            .likely("if a check of task 18.1 fails, fix that first")?;
    }
    Ok(())
}

fn scores_are_scaled_and_masked(day: &Day) -> Outcome {
    // D is 4, so each dot product is halved. Keys (2, 0, 0, 0), (0, 4, 0, 0), (6, 6, 6, 6), stride
    // 5.
    let mut data = vec![9.0; 15];
    data[..4].copy_from_slice(&[2.0, 0.0, 0.0, 0.0]);
    data[5..9].copy_from_slice(&[0.0, 4.0, 0.0, 0.0]);
    data[10..14].copy_from_slice(&[6.0; 4]);
    let keys: Strided = (&data, 5, 4);
    let no = f32::NEG_INFINITY;
    // Two heads of one token, in the last of three columns.
    let heads = [(vec![1.0, 0.0, 0.0, 0.0], 0), (vec![3.0, 1.0, 0.0, 0.0], 0)];
    let got = (day.tile_scores)(&heads, keys, (None, 1, 3), 0..3);
    let input = "queries (1, 0, 0, 0), (3, 1, 0, 0) of the last token; three keys, D = 4";
    numbers(input, &got, &[1.0, 0.0, 3.0, 3.0, 2.0, 12.0], TOLERANCE)?;
    // Tokens 0 and 1 of three.
    let tokens = [(vec![1.0, 0.0, 0.0, 0.0], 0), (vec![3.0, 1.0, 0.0, 0.0], 1)];
    let got = (day.tile_scores)(&tokens, keys, (None, 3, 3), 0..3);
    let input = "the same queries, of tokens 0 and 1 of three";
    numbers(input, &got, &[1.0, no, no, 3.0, 2.0, no], TOLERANCE)?;
    let got = (day.tile_scores)(&tokens, keys, (None, 3, 3), 1..3);
    numbers(&format!("{input}, columns 1 and 2"), &got, &[no, no, 2.0, no], TOLERANCE)
}

fn scores_of_any_width_are_right(day: &Day) -> Outcome {
    let mut random = Random::new(3);
    for _ in 0..20 {
        let (width, all) = (1 + random.below(70), 2 + random.below(60));
        let keys = Buffer::new(&mut random, all, width);
        let first = random.below(all);
        let asked: Vec<Asked> = (0..1 + random.below(5))
            .map(|_| (random_numbers(&mut random, width, 1.0), 0))
            .collect();
        let columns: Vec<usize> = (first..all).collect();
        let want: Vec<f32> = asked
            .iter()
            .flat_map(|(query, _)| scores_of(query, &keys, &columns))
            .map(|score| score as f32)
            .collect();
        let got = (day.tile_scores)(&asked, keys.strided(), (None, 1, all), first..all);
        let input = format!("{} queries, columns {first} to {all}, D = {width}", asked.len());
        numbers(&input, &got, &want, TOLERANCE)?;
    }
    Ok(())
}

/// Several heads of several tokens, with keys and values that have gaps.
struct Case {
    asked: Vec<Asked>,
    keys: Buffer,
    values: Buffer,
}

impl Case {
    fn new(random: &mut Random, tokens: Range<usize>, heads: usize, all: usize) -> Self {
        let width = 1 + random.below(40);
        let asked = (0..heads)
            .flat_map(|_| tokens.clone())
            .map(|token| (random_numbers(random, width, 3.0), token))
            .collect();
        let keys = Buffer::new(random, all, width);
        let values = Buffer::new(random, all, width);
        Self { asked, keys, values }
    }

    fn run(&self, attend: Attend, sight: Sight, columns: Range<usize>) -> Vec<Gathered> {
        attend(&self.asked, self.keys.strided(), self.values.strided(), sight, columns)
    }

    /// Checks every query's attention against a single softmax over the columns it sees.
    fn check(&self, input: &str, attend: Attend, sight: Sight, columns: Range<usize>) -> Outcome {
        let got = self.run(attend, sight, columns.clone());
        equal(&format!("number of results, {input}"), Ok(got.len()), &self.asked.len())?;
        let (mask, new, all) = sight;
        for (r, (query, token)) in self.asked.iter().enumerate() {
            let sees = |column: &usize| match mask {
                Some(mask) => mask[token * all + column] != 0,
                None => *column <= all - new + token,
            };
            let seen: Vec<usize> = columns.clone().filter(sees).collect();
            let input = format!("query {r} (token {token}) of {input}");
            if seen.is_empty() {
                same(&input, &got[r], &nothing(query.len()), 0.0)?;
                continue;
            }
            let largest = scores_of(query, &self.keys, &seen).into_iter().fold(f64::MIN, f64::max);
            numbers(
                &format!("the largest score of {input}"),
                &[got[r].0],
                &[largest as f32],
                TOLERANCE,
            )
            .likely("if a check of tasks 18.1 to 18.4 fails, fix that first")?;
            let want = attention(query, &self.keys, &self.values, &seen);
            numbers(&input, &divided(&got[r]), &want, TOLERANCE)
                .likely("if a check of tasks 18.1 to 18.4 fails, fix that first")?;
        }
        Ok(())
    }
}

fn many_tiles_equal_one_softmax(day: &Day) -> Outcome {
    let mut random = Random::new(4);
    for all in [1, 40, 64, 65, 128, 150, 201] {
        let case = Case::new(&mut random, 0..1, 3, all);
        let input = format!("three heads of a new token, {all} columns");
        case.check(&input, day.attend_tiles, (None, 1, all), 0..all)?;
    }
    for (new, all, tokens) in [(90, 90, 60..76), (70, 200, 0..9), (130, 130, 120..130)] {
        let case = Case::new(&mut random, tokens.clone(), 2, all);
        let input = format!("two heads of tokens {tokens:?} of {new}, {all} columns");
        case.check(&input, day.attend_tiles, (None, new, all), 0..all)?;
    }
    Ok(())
}

fn columns_outside_the_range_are_ignored(day: &Day) -> Outcome {
    let mut random = Random::new(5);
    for columns in [30..31, 7..150, 64..128, 70..170, 130..200] {
        let case = Case::new(&mut random, 0..1, 2, 200);
        let input = format!("two heads of a new token, columns {columns:?} of 200");
        case.check(&input, day.attend_tiles, (None, 1, 200), columns)?;
    }
    // Tiles start at the first column of the range, so the same numbers at another offset must
    // match bit for bit.
    let long = Case::new(&mut random, 0..1, 2, 200);
    let got = long.run(day.attend_tiles, (None, 1, 200), 37..200);
    let back = |buffer: &Buffer| Buffer {
        data: buffer.data[37 * buffer.stride..].to_vec(),
        stride: buffer.stride,
        width: buffer.width,
    };
    let short =
        Case { asked: long.asked.clone(), keys: back(&long.keys), values: back(&long.values) };
    let want = short.run(day.attend_tiles, (None, 1, 163), 0..163);
    for (got, want) in got.iter().zip(&want) {
        let input = "columns 37..200, against the same numbers as columns 0..163";
        same(input, got, want, 0.0)?;
    }
    Ok(())
}

fn a_partly_masked_tile_is_not_skipped(day: &Day) -> Outcome {
    let mut random = Random::new(6);
    // The first column of the second tile is the last one the token sees.
    let case = Case::new(&mut random, 0..1, 2, 200);
    case.check(
        "a token that sees columns 0 to 64 of 200",
        day.attend_tiles,
        (None, 136, 200),
        0..200,
    )?;
    let case = Case::new(&mut random, 0..3, 2, 70);
    let input = "tokens that see columns 0 to 64, to 65 and to 66 of 70";
    case.check(input, day.attend_tiles, (None, 6, 70), 0..70)?;
    // In this block only the last token sees the second tile, and the last token doesn't see the
    // first tile.
    let mut mask = vec![0; 3 * 128];
    mask[..63].fill(1);
    mask[128 + 60..128 + 64].fill(1);
    mask[2 * 128 + 127] = 1;
    let case = Case::new(&mut random, 0..3, 1, 128);
    let input = "tokens that see columns 0 to 62, 60 to 63, and 127 alone";
    case.check(input, day.attend_tiles, (Some(&mask), 3, 128), 0..128)?;
    // A gap larger than a tile.
    let mut mask = vec![0; 300];
    mask[10] = 1;
    mask[200..].fill(1);
    let case = Case::new(&mut random, 0..1, 2, 300);
    let input = "a token that sees columns 10, and 200 to 299";
    case.check(input, day.attend_tiles, (Some(&mask), 1, 300), 0..300)?;
    let late: Vec<u8> = (0..300).map(|column| u8::from(column >= 200)).collect();
    let input = "a token that sees columns 200 to 299, and none in the tiles before";
    case.check(input, day.attend_tiles, (Some(&late), 1, 300), 0..300)?;
    let input = "a token that sees no column of 300";
    case.check(input, day.attend_tiles, (Some(&[0; 300]), 1, 300), 0..300)
}

fn an_unseen_tile_is_not_read(day: &Day) -> Outcome {
    let mut random = Random::new(7);
    let attend = |day: &Day, case: &Case, sight: Sight, columns: Range<usize>| {
        let run = || case.run(day.attend_tiles, sight, columns);
        catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
            if candecode::kit::panics::unwritten(&*panic).is_some() {
                std::panic::resume_unwind(panic)
            }
            describe_panic(&*panic).rsplit("panicked: ").next().map(String::from)
        })
    };
    // Token 3 of 200 sees four columns. The other tiles have no keys or values at all.
    let case = Case::new(&mut random, 3..4, 2, 64);
    let read = attend(day, &case, (None, 200, 200), 0..200);
    let input = "a token that sees columns 0 to 3 of 200, where only 64 have keys and values";
    ensure(input, read.is_ok(), "your code read a tile that no query may attend to")?;
    let case = Case::new(&mut random, 0..1, 1, 64);
    let mut mask = vec![0; 192];
    mask[63] = 1;
    let read = attend(day, &case, (Some(&mask), 1, 192), 0..192);
    let input = "a token that sees column 63 of 192, where only 64 have keys and values";
    ensure(input, read.is_ok(), "your code read a tile that no query may attend to")
}

fn split_columns_equal_one_softmax(day: &Day) -> Outcome {
    let mut random = Random::new(8);
    for (all, columns) in
        [(1, 0..1), (300, 0..300), (512, 0..512), (513, 0..513), (1300, 0..1300), (1500, 77..1500)]
    {
        let case = Case::new(&mut random, 0..1, 3, all);
        let input = format!("three heads of a new token, columns {columns:?} of {all}");
        case.check(&input, day.attend_split, (None, 1, all), columns)?;
    }
    // The token sees nothing in one whole chunk.
    let mut mask = vec![0; 1200];
    mask[..5].fill(1);
    mask[1100..].fill(1);
    let case = Case::new(&mut random, 0..1, 2, 1200);
    let input = "a token that sees columns 0 to 4, and 1100 to 1199";
    case.check(input, day.attend_split, (Some(&mask), 1, 1200), 0..1200)
}

fn chunks_start_at_the_first_visible_column(day: &Day) -> Outcome {
    let mut random = Random::new(9);
    let long = Case::new(&mut random, 0..1, 2, 1400);
    for front in [1, 100, 512, 700] {
        let back = |buffer: &Buffer| Buffer {
            data: buffer.data[front * buffer.stride..].to_vec(),
            stride: buffer.stride,
            width: buffer.width,
        };
        let short =
            Case { asked: long.asked.clone(), keys: back(&long.keys), values: back(&long.values) };
        let got = long.run(day.attend_split, (None, 1, 1400), front..1400);
        let want = short.run(day.attend_split, (None, 1, 1400 - front), 0..1400 - front);
        for (got, want) in got.iter().zip(&want) {
            let input =
                format!("columns {front}..1400, against the same numbers starting at column 0");
            same(&input, got, want, 0.0)?;
        }
    }
    Ok(())
}

fn results_are_bit_identical_for_any_thread_count(day: &Day) -> Outcome {
    let mut random = Random::new(13);
    // Three chunks, then ten: the more chunks, the more possible merge orders.
    for all in [1400, 4900] {
        let case = Case::new(&mut random, 0..1, 2, all);
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let pool = pool.map_err(candle_core::Error::wrap)?;
            Ok::<_, candle_core::Error>(
                pool.install(|| case.run(day.attend_split, (None, 1, all), 0..all)),
            )
        };
        let one = with(1)?;
        for threads in [2, 3, 5, 8] {
            for (got, want) in with(threads)?.iter().zip(&one) {
                let input = format!("{all} columns, {threads} threads against one, bit for bit");
                same(&input, got, want, 0.0).likely(
                    "the order of the merges must not depend on the threads: collect the parts, \
                        then merge them one by one",
                )?;
            }
        }
    }
    Ok(())
}

fn decoding_splits_the_columns(day: &Day) -> Outcome {
    // Merged parts round differently from a single pass over all columns, which shows which of the
    // two ran.
    let mut random = Random::new(14);
    let case = Case::new(&mut random, 0..1, 2, 1700);
    let parts = case.run(day.attend_split, (None, 1, 1700), 0..1700);
    let want: Vec<f32> = parts.iter().flat_map(|part| (day.finish)(part.clone())).collect();
    let q: Vec<f32> = case.asked.iter().flat_map(|(query, _)| query.clone()).collect();
    let (keys, values) = ([case.keys.strided()], [case.values.strided()]);
    let counts = (1, 2, 1, 1, case.keys.width);
    let got = (day.flash)(counts, &q, &keys, &values, &[(None, 1, 1700)]);
    let input = "2 heads on 1, one new token, 1700 columns, against finishing what attend_split \
        returns, bit for bit";
    numbers(input, &got, &want, 0.0)
        .likely("with one new token the columns are split among the threads: attend_split")
}

fn each_query_group_shares_one_kv_head(day: &Day) -> Outcome {
    // With one visible column, every head returns that column's value. Heads 0 and 1 use key/value
    // head 0, heads 2 and 3 use head 1, and row 1 has other values.
    let values = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]];
    let values: Vec<Strided> = values.iter().map(|value| (&value[..], 2, 2)).collect();
    let q: Vec<f32> = (0..16).map(|n| n as f32 / 8.0).collect();
    let got = (day.flash)((2, 4, 2, 1, 2), &q, &values, &values, &[(None, 1, 1); 2]);
    let want =
        [1., 2., 1., 2., 3., 4., 3., 4., 5., 6., 5., 6., 7., 8., 7., 8.].map(|n: f64| n as f32);
    let input = "2 rows, 4 query heads on 2, one token, one column; values (1, 2), (3, 4) and (5, \
                 6), (7, 8)";
    numbers(input, &got, &want, TOLERANCE)?;
    // Two tokens of one head. The first sees only itself, and the second sees both with equal
    // weight.
    let (keys, values) = ([0.0, 0.0], [4.0, 8.0]);
    let got = (day.flash)(
        (1, 2, 1, 2, 1),
        &[1.0, 2.0, 3.0, 4.0],
        &[(&keys, 1, 1)],
        &[(&values, 1, 1)],
        &[(None, 2, 2)],
    );
    let input = "2 heads on 1, two tokens, D = 1; keys 0, 0; values 4, 8";
    numbers(input, &got, &[4.0, 6.0, 4.0, 6.0], TOLERANCE)
}

fn batches_equal_one_softmax_per_query(day: &Day) -> Outcome {
    let mut random = Random::new(10);
    for round in 0..24 {
        let (rows, kv_heads, group) =
            (1 + random.below(3), 1 + random.below(3), 1 + random.below(3));
        let new = [1, 1 + random.below(50)][round % 2];
        let all = new + random.below(150);
        let width = 1 + random.below(20);
        let heads = kv_heads * group;
        let mut head = |_| {
            let stride = width + random.below(4);
            let data = random_numbers(&mut random, all * stride, 1.0);
            Buffer { data, stride, width }
        };
        let keys: Vec<Buffer> = (0..rows * kv_heads).map(&mut head).collect();
        let values: Vec<Buffer> = (0..rows * kv_heads).map(&mut head).collect();
        let padding: Vec<usize> = (0..rows).map(|_| random.below(all)).collect();
        let q = random_numbers(&mut random, rows * heads * new * width, 3.0);
        let masks: Vec<Vec<u8>> = padding.iter().map(|p| padded(*p, new, all)).collect();
        let sights: Vec<Sight> = match round % 3 {
            0 => vec![(None, new, all); rows],
            _ => masks.iter().map(|mask| (Some(&mask[..]), new, all)).collect(),
        };
        let key_list: Vec<Strided> = keys.iter().map(Buffer::strided).collect();
        let value_list: Vec<Strided> = values.iter().map(Buffer::strided).collect();
        let got =
            (day.flash)((rows, heads, kv_heads, new, width), &q, &key_list, &value_list, &sights);
        let mut want = Vec::new();
        for row in 0..rows {
            for head in 0..heads {
                for token in 0..new {
                    let shared = row * kv_heads + head / group;
                    let query = &q[((row * heads + head) * new + token) * width..][..width];
                    let sees = |column: &usize| match sights[row].0 {
                        Some(mask) => mask[token * all + column] != 0,
                        None => *column <= all - new + token,
                    };
                    let seen: Vec<usize> = (0..all).filter(sees).collect();
                    want.extend(attention(query, &keys[shared], &values[shared], &seen));
                }
            }
        }
        let input = format!(
            "{rows} rows, {heads} query heads on {kv_heads}, {new} new tokens of {all} columns, D \
             = {width}, padding {padding:?}"
        );
        numbers(&input, &got, &want, TOLERANCE)
            .likely("if an earlier task's check fails, fix that first")?;
    }
    Ok(())
}

fn mismatched_shapes_are_rejected(day: &Day) -> Outcome {
    let mut random = Random::new(14);
    // Valid shapes must work. This also catches a task that isn't written yet.
    let (q, k) = (random.tensor(&[2, 4, 3, 8])?, random.tensor(&[2, 2, 5, 8])?);
    (day.tiled)(&q, &k, &k, None)?;
    for (why, q, k, v) in [
        ("keys with one row instead of two", [2, 4, 3, 8], [1, 2, 5, 8], [2, 2, 5, 8]),
        ("values with one row instead of two", [2, 4, 3, 8], [2, 2, 5, 8], [1, 2, 5, 8]),
        ("fewer values than keys", [2, 4, 3, 8], [2, 2, 5, 8], [2, 2, 4, 8]),
        ("keys of a different width", [2, 4, 3, 8], [2, 2, 5, 4], [2, 2, 5, 8]),
        ("fewer columns than new tokens", [2, 4, 6, 8], [2, 2, 5, 8], [2, 2, 5, 8]),
        ("no new token", [2, 4, 0, 8], [2, 2, 5, 8], [2, 2, 5, 8]),
        ("3 query heads for 2 key/value heads", [2, 3, 3, 8], [2, 2, 5, 8], [2, 2, 5, 8]),
    ] {
        // Zeros, because candle can't fill an empty tensor with ones on CUDA.
        let tensor = |shape: [usize; 4]| Tensor::zeros(&shape, candle_core::DType::F32, &device()?);
        let got = (day.tiled)(&tensor(q)?, &tensor(k)?, &tensor(v)?, None);
        refused(
            &format!("{why}: q {q:?}, k {k:?}, v {v:?}"),
            got.map(|out| out.dims().to_vec()),
            &[],
        )?;
    }
    for shape in [(2, 1, 3, 4), (3, 1, 3, 5), (2, 4, 3, 5)] {
        let mask = Tensor::ones(shape, candle_core::DType::U8, &device()?)?;
        let got = (day.tiled)(&q, &k, &k, Some(&mask)).map(|out| out.dims().to_vec());
        refused(&format!("a mask {shape:?} for q (2, 4, 3, 8), k (2, 2, 5, 8)"), got, &[])?;
    }
    let flat = Tensor::ones((3, 5), candle_core::DType::U8, &device()?)?;
    let got = (day.tiled)(&q, &k, &k, Some(&flat)).map(|out| out.dims().to_vec());
    refused("a mask (3, 5) for q (2, 4, 3, 8), k (2, 2, 5, 8)", got, &[])?;
    // One mask may be shared by all rows.
    let mask = Tensor::from_vec(padded(1, 3, 5), (1, 1, 3, 5), &device()?)?;
    let want = (day.tiled)(&q, &k, &k, Some(&mask.broadcast_as((2, 1, 3, 5))?.contiguous()?))?;
    let got = (day.tiled)(&q, &k, &k, Some(&mask));
    bits_equal("a mask (1, 1, 3, 5) for two rows, against the same mask twice", got, &want)
}

/// Returns the positions of a tensor in a buffer with spare room, as a static cache stores them.
fn cached(x: &Tensor, room: usize) -> Result<Tensor> {
    let len = x.dim(2)?;
    x.pad_with_zeros(2, 2, room)?.narrow(2, 2, len)
}

fn the_operation_equals_torch(day: &Day) -> Outcome {
    for name in ["prompt", "ragged", "later", "decode", "batch"] {
        let part = |part: &str| golden("day18", &format!("{name}.{part}"));
        let (q, k, v) = (part("q")?, part("k")?, part("v")?);
        let (mask, want) = (part("mask")?, part("out")?);
        let what = format!("\"{name}\": q {:?}, k and v {:?}", q.dims(), k.dims());
        let got = (day.tiled)(&q, &k, &v, Some(&mask));
        close(&format!("{what}, with its mask"), got, &want, TOLERANCE)
            .likely("if an earlier task's check fails, fix that first")?;
        let got = (day.tiled)(&q, &cached(&k, 7)?, &cached(&v, 3)?, Some(&mask));
        close(&format!("{what}, in a larger buffer"), got, &want, TOLERANCE)?;
        if ["prompt", "decode"].contains(&name) {
            let got = (day.tiled)(&q, &k, &v, None);
            close(&format!("{what}, without a mask"), got, &want, TOLERANCE)?;
        }
    }
    Ok(())
}

fn padding_changes_no_bit(day: &Day) -> Outcome {
    let mut random = Random::new(12);
    for (rows, new, all) in [(32, 1, 90), (5, 1, 700), (3, 40, 40), (4, 70, 70), (2, 9, 30)] {
        let q = random.tensor(&[rows, 4, new, 16])?;
        let (k, v) = (random.tensor(&[rows, 2, all, 16])?, random.tensor(&[rows, 2, all, 16])?);
        // Padding as in a prompt, or as after joining several prompts' caches. In the second case
        // all new tokens are real.
        let most = if new == all { all } else { all - new + 1 };
        let padding: Vec<usize> = (0..rows).map(|_| random.below(most)).collect();
        let masks: Vec<u8> = padding.iter().flat_map(|p| padded(*p, new, all)).collect();
        let mask = Tensor::from_vec(masks, (rows, 1, new, all), &device()?)?;
        let together = (day.tiled)(&q, &k, &v, Some(&mask))?;
        for (row, padding) in padding.iter().enumerate() {
            let own = new.min(all - padding);
            let part = |x: &Tensor, len: usize| -> Result<Tensor> {
                x.narrow(0, row, 1)?.narrow(2, x.dim(2)? - len, len)
            };
            let (k, v) = (part(&k, all - padding)?, part(&v, all - padding)?);
            let alone = (day.tiled)(&part(&q, own)?, &k, &v, None)?;
            let input = format!(
                "row {row} of {rows}, {new} new tokens of {all} columns, {padding} of them \
                 padding: in the batch, against the row alone"
            );
            bits_equal(&input, part(&together, own), &alone)?;
        }
    }
    Ok(())
}

/// Computes the entropy of a softmax in f64 over all tiles at once.
fn entropy_of(tiles: &[Vec<f32>]) -> f32 {
    let scores: Vec<f64> = tiles.iter().flatten().map(|score| f64::from(*score)).collect();
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
    let part = |score: &f64| {
        let p = (score - max).exp() / sum;
        if p == 0.0 {
            0.0
        } else {
            -p * p.ln()
        }
    };
    scores.iter().map(part).sum::<f64>() as f32
}

fn entropy_matches_the_hand_worked_cases(day: &Day) -> Outcome {
    let ln = |n: f32| n.ln();
    for (input, tiles, want) in [
        ("one key", vec![vec![7.0]], 0.0),
        ("four equal scores of 2", vec![vec![2.0; 4]], ln(4.0)),
        (
            "equal scores in tiles of 3, 1 and 4",
            vec![vec![1.5; 3], vec![1.5], vec![1.5; 4]],
            ln(8.0),
        ),
        // p = 1/4, 3/4: the entropy is ln 4 - 3/4 ln 3.
        ("scores ln 1, ln 3", vec![vec![0.0, ln(3.0)]], ln(4.0) - 0.75 * ln(3.0)),
        ("scores ln 2, then ln 6", vec![vec![ln(2.0)], vec![ln(6.0)]], ln(4.0) - 0.75 * ln(3.0)),
        ("scores ln 3, then ln 1", vec![vec![ln(3.0)], vec![0.0]], ln(4.0) - 0.75 * ln(3.0)),
    ] {
        numbers(input, &[(day.entropy)(&tiles)], &[want], TOLERANCE)?;
    }
    Ok(())
}

fn masked_keys_add_no_entropy(day: &Day) -> Outcome {
    let no = f32::NEG_INFINITY;
    let want = 4f32.ln() - 0.75 * 3f32.ln();
    for tiles in [
        vec![vec![0.0, 3f32.ln()]], // nothing is masked yet
        vec![vec![0.0], vec![no, 3f32.ln()]],
        vec![vec![no, 0.0, no, 3f32.ln()]],
        vec![vec![no, no], vec![0.0], vec![3f32.ln(), no], vec![no]],
    ] {
        numbers(&format!("tiles {tiles:?}"), &[(day.entropy)(&tiles)], &[want], TOLERANCE)?;
    }
    let got = (day.entropy)(&[vec![no; 3], vec![no]]);
    ensure("every key masked", got.is_nan(), &format!("got {got} instead of NaN"))
}

fn entropy_is_correct_for_any_tiling(day: &Day) -> Outcome {
    let mut random = Random::new(15);
    for _ in 0..30 {
        let scale = [0.5, 3.0, 20.0][random.below(3)];
        let tiles: Vec<Vec<f32>> = (0..1 + random.below(6))
            .map(|_| {
                let len = 1 + random.below(20);
                random_numbers(&mut random, len, scale)
            })
            .collect();
        let lengths: Vec<usize> = tiles.iter().map(Vec::len).collect();
        let input = format!("random scores up to {scale} in tiles of {lengths:?}");
        // Near 20, f32 numbers are 2e-6 apart, and errors add up over the keys.
        numbers(&input, &[(day.entropy)(&tiles)], &[entropy_of(&tiles)], 5e-5)?;
    }
    // Scores near 1000 are 6e-5 apart in f32.
    let tiles = [vec![1000.0, 999.0], vec![998.5], vec![-1000.0]];
    let input = "scores 1000, 999, then 998.5, then -1000";
    numbers(input, &[(day.entropy)(&tiles)], &[entropy_of(&tiles)], 1e-3)
}

fn merging_weights_each_side_by_its_sum(day: &Day) -> Outcome {
    // Exponentials that sum to 1 + 2 = 3 with mean (3, 0), and to 6 with mean (0, 6).
    let (out, lse) = (day.merge_finished)((&[3.0, 0.0], 3f32.ln()), (&[0.0, 6.0], 6f32.ln()));
    let input = "(3, 0) from exponentials that sum to 3, and (0, 6) from a sum of 6";
    numbers(input, &out, &[1.0, 4.0], TOLERANCE)?;
    numbers(&format!("the logarithm, {input}"), &[lse], &[9f32.ln()], TOLERANCE)?;
    let (out, lse) = (day.merge_finished)((&[2.0], 1000.0), (&[4.0], 1000.0));
    let input = "2 and 4, both logarithms 1000";
    numbers(input, &out, &[3.0], 1e-3)?; // near 1000, f32 logarithms are 6e-5 apart
    numbers(&format!("the logarithm, {input}"), &[lse], &[1000.0 + 2f32.ln()], 1e-3)?;
    for (input, a, b) in
        [("2 and 4, logarithms 1000 and 0", 1000.0, 0.0), ("4 and 2, 0 and 1000", 0.0, 1000.0)]
    {
        let (one, other) = if a > b { (2.0, 4.0) } else { (4.0, 2.0) };
        let (out, lse) = (day.merge_finished)((&[one], a), (&[other], b));
        numbers(input, &[out[0], lse], &[2.0, 1000.0], 1e-3)?;
    }
    Ok(())
}

fn a_side_without_keys_is_ignored(day: &Day) -> Outcome {
    let none: (&[f32], f32) = (&[f32::NAN, f32::NAN], f32::NEG_INFINITY);
    let some: (&[f32], f32) = (&[1.5, -2.0], 0.75);
    for (input, got) in [
        ("nothing, then something", (day.merge_finished)(none, some)),
        ("something, then nothing", (day.merge_finished)(some, none)),
    ] {
        numbers(input, &[&got.0[..], &[got.1]].concat(), &[1.5, -2.0, 0.75], TOLERANCE)?;
    }
    let (_, lse) = (day.merge_finished)(none, none);
    numbers("the logarithm of nothing and nothing", &[lse], &[f32::NEG_INFINITY], 0.0)?;
    // log_sum_exp itself: the logarithm of exp(2) · 3.
    let lse = (day.log_sum_exp)((2.0, 3.0, vec![1.0]));
    numbers("log_sum_exp: maximum 2, sum 3", &[lse], &[2.0 + 3f32.ln()], TOLERANCE)?;
    let lse = (day.log_sum_exp)(nothing(1));
    numbers("log_sum_exp: no keys seen", &[lse], &[f32::NEG_INFINITY], 0.0)
}
