//! Day 19's checks: quantized weights.
//!
//! Blocks are worked out by hand, equal llama.cpp's own bit for bit, and keep bounds that hold for
//! any numbers.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day19_quantized_weights;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day19_quantized_weights.rs"]
mod day19_quantized_weights;

use candecode::kit::{Cache, ModelConfig, QuantType, QuantizedMatrix, View};
use candle_core::{Device, Error, Result, Tensor};
use frame::{
    close, device, ensure, equal, golden, golden_json, models_dir, near, refused_calmly, Likely,
    Outcome, Random,
};
use half::f16;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The number of weights in a block.
const BLOCK: usize = 32;

/// Sums of a few exact f64 numbers in a different order: an error of a few times 1e-16.
const TOLERANCE: f64 = 1e-9;

/// Products and sums of a few hundred f32 numbers in a different order. Each rounds by up to 6e-8.
const SUMS: f64 = 1e-5;

/// An allocator that counts this thread's allocations of one size: quantized rows of x are the only
/// things of theirs.
struct Counting;

thread_local! {
    /// The size, and how many there were.
    static COUNTED: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

fn count(size: usize) {
    // A thread that ends may have no counter anymore.
    let _ = COUNTED.try_with(|counted| {
        let (wanted, count) = counted.get();
        counted.set((wanted, count + usize::from(size == wanted)));
    });
}

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bandwidth in bytes per second, and peak in operations per second.
pub type Rates = (f64, f64);

/// Q8_0 blocks as bytes.
pub type Blocks = Vec<Vec<u8>>;

/// The day 19 functions under test. Blocks are passed and returned as the bytes stored in a file.
#[derive(Clone, Copy)]
pub struct Day {
    pub quantize_q8_0: fn(&[f32; 32]) -> Result<Vec<u8>>,
    pub dequantize_q8_0: fn(&[u8]) -> [f32; 32],
    pub quantize_q4_0: fn(&[f32; 32]) -> Result<Vec<u8>>,
    pub dequantize_q4_0: fn(&[u8]) -> [f32; 32],
    pub largest_error: fn(QuantType, f32) -> f32,
    pub quantize_row: fn(QuantType, &[f32]) -> Result<Vec<u8>>,
    pub quantize_activations: fn(&[f32]) -> Result<Blocks>,
    pub dot_q8_0: fn(&[u8], &[u8]) -> f32,
    pub dot_q4_0: fn(&[u8], &[u8]) -> f32,
    pub dot_row: fn(QuantType, &[u8], &[Vec<u8>]) -> Result<f32>,
    pub quantized_linear: fn(&Tensor, &QuantizedMatrix) -> Result<Tensor>,
    pub quantized_precision: fn(&ModelConfig, QuantType) -> (f64, f64),
    pub predicted_speedup: fn(&ModelConfig, usize, QuantType, Rates) -> f64,
    pub dequantize_q4_1: fn(&[u8]) -> [f32; 32],
    pub dot_q4_1: fn(&[u8], &[u8]) -> f32,
    pub perplexity: fn(&[Vec<f32>], &[u32]) -> Result<f64>,
    pub mean_kl: fn(&[Vec<f32>], &[Vec<f32>]) -> Result<f64>,
    pub same_best: fn(&[Vec<f32>], &[Vec<f32>]) -> Result<f64>,
    pub first_difference: fn(&[u32], &[u32]) -> Option<usize>,
    pub squared_error: fn(&[f32; 32], &[u8]) -> f32,
    pub closer_q4_0: fn(&[f32; 32]) -> Result<Vec<u8>>,
    pub append_quantized: fn(&[Blocks], &Tensor) -> Result<Vec<Blocks>>,
    pub cache: fn(usize) -> Box<dyn Cache>,
    pub largest_score_error: fn(&[f32], &[f32]) -> Result<f32>,
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use candle_core::Device;
        use $($path)::+ as code;
        fn blocks(bytes: &[Vec<u8>]) -> Vec<code::BlockQ8_0> {
            bytes.iter().map(|bytes| code::BlockQ8_0::from_bytes(bytes)).collect()
        }
        fn bytes(blocks: &[code::BlockQ8_0]) -> crate::Blocks {
            blocks.iter().map(|block| block.to_bytes()).collect()
        }
        crate::Day {
            quantize_q8_0: |x| Ok(code::quantize_block_q8_0(x)?.to_bytes()),
            dequantize_q8_0: |bytes| {
                code::dequantize_block_q8_0(&code::BlockQ8_0::from_bytes(bytes))
            },
            quantize_q4_0: |x| Ok(code::quantize_block_q4_0(x)?.to_bytes()),
            dequantize_q4_0: |bytes| {
                code::dequantize_block_q4_0(&code::BlockQ4_0::from_bytes(bytes))
            },
            largest_error: code::largest_error,
            quantize_row: code::quantize_row,
            quantize_activations: |x| Ok(bytes(&code::quantize_activations(x)?)),
            dot_q8_0: |w, x| {
                code::dot_q8_0(&code::BlockQ8_0::from_bytes(w), &code::BlockQ8_0::from_bytes(x))
            },
            dot_q4_0: |w, x| {
                code::dot_q4_0(&code::BlockQ4_0::from_bytes(w), &code::BlockQ8_0::from_bytes(x))
            },
            dot_row: |kind, row, x| code::dot_row(kind, row, &blocks(x)),
            quantized_linear: code::quantized_linear,
            quantized_precision: |config, kind| {
                let precision = code::quantized_precision(config, kind);
                (precision.weight_bytes, precision.cache_bytes)
            },
            predicted_speedup: |config, past, kind, (bandwidth, peak)| {
                let machine = candecode::day16_cost_of_a_token::Machine { bandwidth, peak };
                code::predicted_speedup(config, past, kind, &machine)
            },
            dequantize_q4_1: |bytes| {
                code::dequantize_block_q4_1(&code::BlockQ4_1::from_bytes(bytes))
            },
            dot_q4_1: |w, x| {
                code::dot_q4_1(&code::BlockQ4_1::from_bytes(w), &code::BlockQ8_0::from_bytes(x))
            },
            perplexity: code::perplexity,
            mean_kl: code::mean_kl,
            same_best: code::same_best,
            first_difference: code::first_difference,
            squared_error: |x, bytes| code::squared_error(x, &code::BlockQ4_0::from_bytes(bytes)),
            closer_q4_0: |x| Ok(code::closer_block_q4_0(x)?.to_bytes()),
            append_quantized: |kept, new| {
                let mut lists = kept.iter().map(|list| blocks(list)).collect();
                code::append_quantized(&mut lists, new)?;
                Ok(lists.iter().map(|list| bytes(list)).collect())
            },
            cache: |layers| Box::new(code::QuantizedCache::new(layers, &Device::Cpu)),
            largest_score_error: code::largest_score_error,
        }
    }};
}

frame::checks! {
    day19_quantized_weights:
    19.1: numbers_become_steps_of_the_largest, the_largest_magnitude_may_be_negative,
        zeros_stay_zeros, blocks_equal_those_of_llamacpp = q8_0_equals_llamacpp,
        nan_and_infinity_are_refused = q8_0_refuses_nan_infinity_and_scale_overflow,
        activations_are_quantized_block_by_block, activations_that_fill_no_block_are_refused;
    19.2: numbers_become_steps_of_the_extreme, the_extreme_may_be_positive,
        a_byte_holds_two_integers, zeros_become_eights,
        blocks_equal_those_of_llamacpp = q4_0_equals_llamacpp,
        nan_and_infinity_are_refused = q4_0_refuses_nan_infinity_and_scale_overflow,
        every_block_of_a_row_has_its_own_scale, rows_that_fill_no_block_are_refused;
    19.3: low_halves_come_first, numbers_equal_those_of_llamacpp = dequantized_q4_0_equals_llamacpp;
    19.4: the_bound_of_8_bits_is_as_by_hand, the_bound_of_4_bits_is_as_by_hand,
        q8_0_errors_stay_within_the_bound, q4_0_errors_stay_within_the_bound;
    19.5: both_scales_multiply_the_sum,
        integers_agree_with_restored_numbers = q8_0_dot_equals_the_dequantized_dot_product;
    19.6: integers_stand_for_8_less, large_sums_do_not_overflow,
        integers_agree_with_restored_numbers = q4_0_dot_equals_the_dequantized_dot_product;
    19.7: each_block_uses_its_own_scales, rows_of_different_lengths_are_refused;
    19.8: a_small_layer_is_as_by_hand, random_layers_equal_the_exact_sums,
        rows_do_not_affect_each_other, each_row_of_x_is_quantized_once, a_layer_stays_close_to_f32,
        wrong_widths_and_nan_are_refused;
    19.9: bytes_per_weight_include_scales, only_steps_bound_by_memory_gain;
    19.10: each_entry_predicts_the_next_token, a_fair_die_has_a_perplexity_of_6,
        perplexity_equals_that_of_torch, texts_that_do_not_fit_are_refused;
    19.11: differences_are_weighted_by_the_reference, the_divergence_equals_that_of_torch,
        impossible_tokens_contribute_nothing, models_that_do_not_match_are_refused,
        the_given_measures_agree_by_hand;
    19.12: the_error_is_never_larger, the_error_is_a_tenth_smaller,
        nan_and_infinity_are_refused = closer_q4_0_refuses_the_same_inputs;
    19.13: integers_count_up_from_the_minimum,
        numbers_equal_those_of_llamacpp = dequantized_q4_1_equals_llamacpp;
    19.14: the_minimum_meets_every_activation;
    19.15: each_head_has_its_own_list, the_cache_returns_what_it_was_given,
        keys_that_do_not_fit_are_refused;
    19.16: the_error_of_a_score_is_as_by_hand, score_errors_stay_within_the_bound;
}

/// Returns a block that starts with these numbers, followed by zeros.
fn block(first: &[f32]) -> [f32; BLOCK] {
    std::array::from_fn(|i| first.get(i).copied().unwrap_or(0.0))
}

/// Returns the bytes of a Q8_0 block that starts with these integers, followed by zeros.
fn bytes_q8_0(scale: f32, first: &[i8]) -> Vec<u8> {
    let mut bytes = f16::from_f32(scale).to_le_bytes().to_vec();
    bytes.extend((0..BLOCK).map(|i| first.get(i).copied().unwrap_or(0) as u8));
    bytes
}

/// Returns the bytes of a Q4_0 block with these 16 bytes of integers.
fn bytes_q4_0(scale: f32, quants: [u8; 16]) -> Vec<u8> {
    let mut bytes = f16::from_f32(scale).to_le_bytes().to_vec();
    bytes.extend(quants);
    bytes
}

/// Returns a Q8_0 block for a message: the scale and the integers.
fn shown_q8_0(bytes: &[u8]) -> (f32, Vec<i8>) {
    (scale(bytes), bytes[2..].iter().map(|byte| *byte as i8).collect())
}

/// Returns a Q4_0 block for a message: the scale and the 32 integers, in the order of the numbers.
fn shown_q4_0(bytes: &[u8]) -> (f32, Vec<u8>) {
    let low = bytes[2..].iter().map(|byte| byte & 15);
    let high = bytes[2..].iter().map(|byte| byte >> 4);
    (scale(bytes), low.chain(high).collect())
}

/// Returns the scale in a block's first two bytes. Q4_0 stores -0 for a block of zeros, shown here
/// as 0.
fn scale(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32() + 0.0
}

/// Returns a random block. The blocks span several orders of magnitude.
fn random_block(random: &mut Random) -> [f32; BLOCK] {
    let size = 10f32.powi(random.below(7) as i32 - 4);
    std::array::from_fn(|_| size * random.float())
}

fn largest(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |largest, value| largest.max(value.abs()))
}

/// Checks that two blocks of numbers agree bit for bit.
fn same_numbers(input: &str, got: [f32; BLOCK], want: &[f32]) -> Outcome {
    let got = Tensor::new(&got, &Device::Cpu);
    close(input, got, &Tensor::new(want, &Device::Cpu)?, 0.0)
}

// ---- 19.1: Q8_0

fn numbers_become_steps_of_the_largest(day: &Day) -> Outcome {
    // The largest is 127, so the scale is 1 and each number is rounded, with halves away from zero.
    let x = block(&[0.4, -3.6, 127.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.4]);
    let got = (day.quantize_q8_0)(&x).map(|bytes| shown_q8_0(&bytes));
    let mut integers = vec![0, -4, 127, 1, -1, 2, 3, -3, 3];
    integers.resize(BLOCK, 0);
    equal("0.4, -3.6, 127, 0.5, -0.5, 1.5, 2.5, -2.5, 3.4, and zeros", got, &(1.0, integers))?;
    // The function that restores a block is given.
    let bytes = bytes_q8_0(0.25, &[4, -3, 127, -127, 0, 1]);
    let want = block(&[1.0, -0.75, 31.75, -31.75, 0.0, 0.25]);
    same_numbers("scale 0.25; 4, -3, 127, -127, 0, 1", (day.dequantize_q8_0)(&bytes), &want)
}

fn the_largest_magnitude_may_be_negative(day: &Day) -> Outcome {
    // The largest magnitude is 254, so the scale is 2. 100 is 50 steps, and -7 is -3.5 steps, which
    // rounds to -4.
    let x = block(&[100.0, -254.0, -7.0, 8.0]);
    let got = (day.quantize_q8_0)(&x).map(|bytes| shown_q8_0(&bytes));
    let mut integers = vec![50, -127, -4, 4];
    integers.resize(BLOCK, 0);
    equal("100, -254, -7, 8, and zeros", got, &(2.0, integers))
}

fn zeros_stay_zeros(day: &Day) -> Outcome {
    let got = (day.quantize_q8_0)(&block(&[])).map(|bytes| shown_q8_0(&bytes));
    equal("32 zeros", got, &(0.0, vec![0; BLOCK]))
}

/// Returns the golden's rows: the numbers, and the bytes llama.cpp quantizes them to.
fn llamacpp_blocks(kind: &str) -> Result<Vec<([f32; BLOCK], Vec<u8>)>> {
    let x = golden("day19", "x")?.to_vec2::<f32>()?;
    let bytes = golden("day19", kind)?.to_vec2::<u8>()?;
    let pair = |(x, bytes): (Vec<f32>, Vec<u8>)| (std::array::from_fn(|i| x[i]), bytes);
    Ok(x.into_iter().zip(bytes).map(pair).collect())
}

fn q8_0_equals_llamacpp(day: &Day) -> Outcome {
    for (at, (x, want)) in llamacpp_blocks("q8_0")?.iter().enumerate() {
        let input = format!("stored block {at} (scale, integers), {x:?}");
        let got = (day.quantize_q8_0)(x).map(|bytes| shown_q8_0(&bytes));
        equal(&input, got, &shown_q8_0(want))?;
    }
    let want = golden("day19", "q8_0.back")?.to_vec2::<f32>()?;
    for (at, ((_, bytes), want)) in llamacpp_blocks("q8_0")?.iter().zip(want).enumerate() {
        let input = format!("stored block {at}, dequantized, {:?}", shown_q8_0(bytes));
        same_numbers(&input, (day.dequantize_q8_0)(bytes), &want)?;
    }
    Ok(())
}

fn q8_0_refuses_nan_infinity_and_scale_overflow(day: &Day) -> Outcome {
    refusals(day.quantize_q8_0, 1e9)
}

fn refusals(quantize: fn(&[f32; 32]) -> Result<Vec<u8>>, too_large: f32) -> Outcome {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let input = format!("1, 2, {bad}, and zeros");
        refused_calmly(&input, || quantize(&block(&[1.0, 2.0, bad])))?;
    }
    let input = format!("{too_large:e}, and zeros: its scale overflows f16");
    refused_calmly(&input, || quantize(&block(&[1.0, too_large])))
}

// ---- 19.2 and 19.3: Q4_0

fn numbers_become_steps_of_the_extreme(day: &Day) -> Outcome {
    // The number with the largest magnitude is -8, so d = -8 / -8 = 1. Each number is offset by 8.5
    // and truncated. 8 is as large but comes later: 16.5 truncates to 16, which doesn't fit in 4
    // bits.
    let x = block(&[0.0, -8.0, 8.0, 7.0, 0.5, 0.49, -0.5, -0.51, 1.2, -7.5, -7.6]);
    let mut integers = vec![8, 0, 15, 15, 9, 8, 8, 7, 9, 1, 0];
    integers.resize(BLOCK, 8);
    let got = (day.quantize_q4_0)(&x).map(|bytes| shown_q4_0(&bytes));
    equal("0, -8, 8, 7, 0.5, 0.49, -0.5, -0.51, 1.2, -7.5, -7.6, zeros", got, &(1.0, integers))
}

fn the_extreme_may_be_positive(day: &Day) -> Outcome {
    let mut integers = vec![6, 15, 0, 10];
    integers.resize(BLOCK, 8);
    // d = -4 / -8 = 0.5. -4 is -8 steps, stored as 0. 3.5 is 7 steps, stored as 15. -1 is -2 steps,
    // stored as 6.
    let got = (day.quantize_q4_0)(&block(&[-1.0, 3.5, -4.0, 1.0]));
    let got = got.map(|bytes| shown_q4_0(&bytes));
    equal("-1, 3.5, -4, 1, and zeros", got, &(0.5, integers.clone()))?;
    // With the opposite signs, the scale changes sign and the integers stay the same.
    let got = (day.quantize_q4_0)(&block(&[1.0, -3.5, 4.0, -1.0]));
    let got = got.map(|bytes| shown_q4_0(&bytes));
    equal("1, -3.5, 4, -1, and zeros", got, &(-0.5, integers))
}

fn a_byte_holds_two_integers(day: &Day) -> Outcome {
    // Number i is i - 8 in the first half and 7 - i % 16 in the second, with -8 as the first
    // extreme.
    let x: [f32; BLOCK] =
        std::array::from_fn(|i| if i < 16 { i as f32 - 8.0 } else { 7.0 - (i - 16) as f32 });
    let want: Vec<u8> = (0..16).map(|i| i | ((15 - i) << 4)).collect();
    let got = (day.quantize_q4_0)(&x).map(|bytes| bytes[2..].to_vec());
    equal("the 16 bytes of -8, -7, … 7, and then 7, 6, … -8", got, &want)
}

fn zeros_become_eights(day: &Day) -> Outcome {
    let got = (day.quantize_q4_0)(&block(&[])).map(|bytes| shown_q4_0(&bytes));
    equal("32 zeros", got, &(0.0, vec![8; BLOCK]))
}

fn q4_0_equals_llamacpp(day: &Day) -> Outcome {
    for (at, (x, want)) in llamacpp_blocks("q4_0")?.iter().enumerate() {
        let input = format!("stored block {at} (scale, integers), {x:?}");
        let got = (day.quantize_q4_0)(x).map(|bytes| shown_q4_0(&bytes));
        equal(&input, got, &shown_q4_0(want))?;
    }
    Ok(())
}

fn q4_0_refuses_nan_infinity_and_scale_overflow(day: &Day) -> Outcome {
    refusals(day.quantize_q4_0, -1e9)
}

fn low_halves_come_first(day: &Day) -> Outcome {
    // Byte 0 has 0 in its low half and 1 in its high half. Byte 1 has 15 and 8.
    let mut quants = [0x88; 16];
    quants[0] = 0x10;
    quants[1] = 0x8f;
    let mut want = block(&[-4.0, 3.5]);
    want[16] = -3.5;
    let got = (day.dequantize_q4_0)(&bytes_q4_0(0.5, quants));
    same_numbers("scale 0.5; bytes 0x10, 0x8f, and 14 times 0x88", got, &want)
}

fn dequantized_q4_0_equals_llamacpp(day: &Day) -> Outcome {
    let want = golden("day19", "q4_0.back")?.to_vec2::<f32>()?;
    for (at, ((_, bytes), want)) in llamacpp_blocks("q4_0")?.iter().zip(want).enumerate() {
        let input = format!("stored block {at}, {:?}", shown_q4_0(bytes));
        same_numbers(&input, (day.dequantize_q4_0)(bytes), &want)?;
    }
    Ok(())
}

// ---- 19.4: the bound

/// A bound may leave out cases that can't occur, such as a scale that is both off at step 127 and
/// rounded up. They account for 1/127 of the scale's part, and less than 0.2% of the sum.
const BOUNDS: f64 = 2e-3;

fn the_bound_of_8_bits_is_as_by_hand(day: &Day) -> Outcome {
    let bound = |largest| Ok(f64::from((day.largest_error)(QuantType::Q8_0, largest)));
    // A scale of 1 is exact in f16.
    near("Q8_0, largest 127", bound(127.0), 0.5, BOUNDS)?;
    // 1/127 lies between two f16 numbers 2⁻¹⁷ apart, and 0.0078735352 is the nearer one.
    let d = 1.0f64 / 127.0;
    let stored = 0.007_873_535_156_25;
    near("Q8_0, largest 1", bound(1.0), 0.5 * d + 127.0 * (d - stored), BOUNDS)?;
    // A scale of 1 + 2⁻¹¹ is halfway between two f16 numbers. It is stored as 1, which is 2⁻¹¹ off.
    let off = 0.5f64.powi(11);
    let want = 0.5 * (1.0 + off) + 127.0 * off;
    near("Q8_0, largest 127.062", bound(127.0 * (1.0 + 0.5f32.powi(11))), want, BOUNDS)?;
    equal("Q8_0, largest 0", bound(0.0), &0.0)
}

fn the_bound_of_4_bits_is_as_by_hand(day: &Day) -> Outcome {
    let bound = |largest| Ok(f64::from((day.largest_error)(QuantType::Q4_0, largest)));
    // -8 and 8: the step is 1, and 8 is restored as 7.
    near("Q4_0, largest 8", bound(8.0), 1.0, BOUNDS)?;
    // A scale of 1 + 2⁻¹¹ is stored as 1, and 8 steps are off 8 times as much.
    let off = 0.5f64.powi(11);
    let largest = 8.0 * (1.0 + 0.5f32.powi(11));
    near("Q4_0, largest 8.0039", bound(largest), 1.0 + off + 8.0 * off, BOUNDS)?;
    equal("Q4_0, largest 0", bound(0.0), &0.0)?;
    let got = (day.largest_error)(QuantType::Q4_1, 1.0);
    equal("Q4_1, largest 1", Ok(got), &f32::INFINITY)
}

fn q8_0_errors_stay_within_the_bound(day: &Day) -> Outcome {
    let bound = |largest| (day.largest_error)(QuantType::Q8_0, largest);
    bound_holds("Q8_0", day.quantize_q8_0, day.dequantize_q8_0, &bound)
}

fn q4_0_errors_stay_within_the_bound(day: &Day) -> Outcome {
    let bound = |largest| (day.largest_error)(QuantType::Q4_0, largest);
    bound_holds("Q4_0", day.quantize_q4_0, day.dequantize_q4_0, &bound)
}

/// Checks that no number's error exceeds the bound, and that some come close to it.
fn bound_holds(
    kind: &str,
    quantize: fn(&[f32; 32]) -> Result<Vec<u8>>,
    dequantize: fn(&[u8]) -> [f32; 32],
    largest_error: &dyn Fn(f32) -> f32,
) -> Outcome {
    let mut random = Random::new(19);
    let mut nearest = 0f32;
    for at in 0..400 {
        let mut x = random_block(&mut random);
        if at % 2 == 0 {
            // The extreme at both ends, and numbers just short of half a step.
            let extreme = largest(&x);
            x = std::array::from_fn(|i| match i {
                0 => -extreme,
                1 => extreme,
                _ => extreme * (1.0 - (i as f32 - 1.51) / if kind == "Q8_0" { 127.0 } else { 8.0 }),
            });
            x = x.map(|value| value.max(-extreme));
        }
        let back = dequantize(&quantize(&x)?);
        let most = largest_error(largest(&x));
        for (x, back) in x.iter().zip(back) {
            let error = (x - back).abs();
            nearest = nearest.max(error / most);
            // The bound and the error are themselves rounded f32 sums: allow 1e-6 of the number for
            // each.
            let holds = error <= most + 1e-6 * x.abs();
            let input = format!("a block of {kind} with a bound of {most:.6e}");
            ensure(&input, holds, &format!("{x} came back as {back}, an error above the bound"))
                .likely("if a check of an earlier task fails, fix that first")?;
        }
    }
    ensure(
        &format!("400 blocks of {kind}: the largest error divided by the bound"),
        nearest > 0.97,
        &format!("{nearest}, but more than 0.97 is expected: is the bound too loose?"),
    )
}

// ---- given: rows

fn every_block_of_a_row_has_its_own_scale(day: &Day) -> Outcome {
    // The second block's numbers are a hundredth of the first's, so a shared scale would turn them
    // into zeros.
    let mut row = vec![0.0; 2 * BLOCK];
    row[..3].copy_from_slice(&[254.0, -100.0, 6.0]);
    row[BLOCK..BLOCK + 3].copy_from_slice(&[-1.27, 0.5, 0.01]);
    let input = "254, -100, 6, 29 zeros; -1.27, 0.5, 0.01, 29 zeros";
    let got = (day.quantize_row)(QuantType::Q8_0, &row)?;
    equal(&format!("bytes, {input}, Q8_0"), Ok(got.len()), &68)?;
    let mut first = vec![127, -50, 3];
    first.resize(BLOCK, 0);
    equal(&format!("block 0, {input}, Q8_0"), Ok(shown_q8_0(&got[..34])), &(2.0, first))
        .likely("if a check of task 19.1 fails, fix that first")?;
    let mut second = vec![-127, 50, 1];
    second.resize(BLOCK, 0);
    let scale = f16::from_f32(0.01).to_f32();
    equal(&format!("block 1, {input}, Q8_0"), Ok(shown_q8_0(&got[34..])), &(scale, second))?;
    let got = (day.quantize_row)(QuantType::Q4_0, &row)?;
    equal(&format!("bytes, {input}, Q4_0"), Ok(got.len()), &36)?;
    // d = 254 / -8 = -31.75, and -100 is 3.15 steps. d = -1.27 / -8, and 0.5 is also 3.15 steps.
    let mut first = vec![0, 11, 8];
    first.resize(BLOCK, 8);
    equal(&format!("block 0, {input}, Q4_0"), Ok(shown_q4_0(&got[..18])), &(-31.75, first))?;
    let mut second = vec![0, 11, 8];
    second.resize(BLOCK, 8);
    let scale = f16::from_f32(-1.27 / -8.0).to_f32();
    equal(&format!("block 1, {input}, Q4_0"), Ok(shown_q4_0(&got[18..])), &(scale, second))
}

fn rows_that_fill_no_block_are_refused(day: &Day) -> Outcome {
    for kind in [QuantType::Q8_0, QuantType::Q4_0] {
        for len in [31, 33, 48, 100] {
            let row = vec![1.0; len];
            refused_calmly(&format!("a row of {len} ones, {kind:?}"), || {
                (day.quantize_row)(kind, &row)
            })?;
        }
        let mut row = vec![1.0; 64];
        row[40] = f32::NAN;
        refused_calmly(&format!("64 ones, but number 40 is NaN, {kind:?}"), || {
            (day.quantize_row)(kind, &row)
        })?;
    }
    refused_calmly("32 ones, Q4_1", || (day.quantize_row)(QuantType::Q4_1, &[1.0; 32]))
}

// ---- given: activations; 19.5 to 19.8: products

fn activations_are_quantized_block_by_block(day: &Day) -> Outcome {
    let mut x = vec![0.0; 2 * BLOCK];
    x[..3].copy_from_slice(&[0.5, -127.0, 2.5]);
    x[BLOCK..BLOCK + 3].copy_from_slice(&[12.7, 0.1, -0.26]);
    let got = (day.quantize_activations)(&x)?;
    let got: Vec<(f32, Vec<i8>)> = got.iter().map(|bytes| shown_q8_0(bytes)).collect();
    let mut first = vec![1, -127, 3];
    first.resize(BLOCK, 0);
    let mut second = vec![127, 1, -3];
    second.resize(BLOCK, 0);
    let want = vec![(1.0, first), (f16::from_f32(12.7 / 127.0).to_f32(), second)];
    let input = "0.5, -127, 2.5, 29 zeros; 12.7, 0.1, -0.26, 29 zeros";
    equal(input, Ok(got), &want).likely("if a check of task 19.1 fails, fix that first")
}

fn activations_that_fill_no_block_are_refused(day: &Day) -> Outcome {
    refused_calmly("40 activations", || (day.quantize_activations)(&[1.0; 40]))?;
    let mut x = [1.0; 64];
    x[50] = f32::INFINITY;
    refused_calmly("64 activations, one of them infinite", || (day.quantize_activations)(&x))
}

fn both_scales_multiply_the_sum(day: &Day) -> Outcome {
    // 1·4 - 2·5 + 3·(-6) = -24, times 0.5 · 0.25.
    let w = bytes_q8_0(0.5, &[1, -2, 3]);
    let x = bytes_q8_0(0.25, &[4, 5, -6, 7]);
    let input = "scale 0.5: 1, -2, 3; scale 0.25: 4, 5, -6, 7";
    near(input, Ok(f64::from((day.dot_q8_0)(&w, &x))), -3.0, SUMS)
}

fn large_sums_do_not_overflow(day: &Day) -> Outcome {
    // 32 · 127² = 516,128, which overflows 16 bits. A single product, 16,129, overflows 8.
    let full = bytes_q8_0(1.0, &[127; BLOCK]);
    let got = (day.dot_q8_0)(&full, &full);
    near("two blocks of 32 times 127, scales 1", Ok(f64::from(got)), 516_128.0, SUMS)?;
    // -8 · 127 · 32.
    let low = bytes_q4_0(1.0, [0; 16]);
    let got = (day.dot_q4_0)(&low, &full);
    near("32 times 0 (so -8), and 32 times 127, scales 1", Ok(f64::from(got)), -32_512.0, SUMS)
}

fn integers_stand_for_8_less(day: &Day) -> Outcome {
    // The low half of byte 0 is 3 (-5), number 0. The high half is 12 (4), number 16. -5 · 10 + 4 ·
    // 2 = -42.
    let mut quants = [0x88; 16];
    quants[0] = 0xc3;
    let w = bytes_q4_0(-0.5, quants);
    let mut integers = [9; BLOCK];
    integers[0] = 10;
    integers[16] = 2;
    let x = bytes_q8_0(0.25, &integers);
    let input = "scale -0.5: bytes 0xc3, 15 times 0x88; scale 0.25: 10, 15 times 9, 2, 15 times 9";
    near(input, Ok(f64::from((day.dot_q4_0)(&w, &x))), 5.25, SUMS)
}

/// Returns a random block's bytes.
fn random_bytes(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes = f16::from_f32(random.float()).to_le_bytes().to_vec();
    if len == 20 {
        bytes.extend(f16::from_f32(random.float()).to_le_bytes());
    }
    while bytes.len() < len {
        // No quantizer writes -128.
        let byte = random.below(256) as u8;
        bytes.push(if len == 34 && byte == 128 { 0 } else { byte });
    }
    bytes
}

/// Decodes a block's numbers in f64 from the format's definition, without any of the day's code.
fn numbers(kind: QuantType, bytes: &[u8]) -> Vec<f64> {
    let half = |at: usize| f64::from(f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32());
    match kind {
        QuantType::Q8_0 => bytes[2..].iter().map(|b| half(0) * f64::from(*b as i8)).collect(),
        QuantType::Q4_0 => {
            let integers = shown_q4_0(bytes).1;
            integers.iter().map(|n| half(0) * (f64::from(*n) - 8.0)).collect()
        }
        QuantType::Q4_1 => {
            let integers = shown_q4_0(&bytes[2..]).1;
            integers.iter().map(|n| half(0) * f64::from(*n) + half(2)).collect()
        }
    }
}

/// Returns a dot product in f64, and the sum of the magnitudes of its terms.
fn exact(w: &[f64], x: &[f64]) -> (f64, f64) {
    let sum = w.iter().zip(x).map(|(w, x)| w * x).sum();
    (sum, w.iter().zip(x).map(|(w, x)| (w * x).abs()).sum())
}

/// Checks that an f32 sum is within rounding error of the exact one. Each term may round by 6e-8.
fn within(input: &str, got: f32, (want, magnitude): (f64, f64)) -> Outcome {
    let off = (f64::from(got) - want).abs();
    if off <= 1e-6 * magnitude {
        return Ok(());
    }
    near(input, Ok(f64::from(got)), want, 1e-9)
}

fn q8_0_dot_equals_the_dequantized_dot_product(day: &Day) -> Outcome {
    let mut random = Random::new(20);
    for _ in 0..200 {
        let x = random_bytes(&mut random, 34);
        let x_numbers = numbers(QuantType::Q8_0, &x);
        let w = random_bytes(&mut random, 34);
        let want = exact(&numbers(QuantType::Q8_0, &w), &x_numbers);
        within("two random blocks of Q8_0", (day.dot_q8_0)(&w, &x), want)?;
    }
    Ok(())
}

fn q4_0_dot_equals_the_dequantized_dot_product(day: &Day) -> Outcome {
    let mut random = Random::new(21);
    for _ in 0..200 {
        let x = random_bytes(&mut random, 34);
        let x_numbers = numbers(QuantType::Q8_0, &x);
        let w = random_bytes(&mut random, 18);
        let want = exact(&numbers(QuantType::Q4_0, &w), &x_numbers);
        within("random blocks of Q4_0 and Q8_0", (day.dot_q4_0)(&w, &x), want)?;
    }
    Ok(())
}

fn each_block_uses_its_own_scales(day: &Day) -> Outcome {
    // Block 0: 2·3 · (1 · 0.5) = 3; block 1: 10·1 · (0.25 · 2) = 5.
    let row = [bytes_q8_0(1.0, &[2]), bytes_q8_0(0.25, &[10])].concat();
    let x = [bytes_q8_0(0.5, &[3]), bytes_q8_0(2.0, &[1])];
    let got = (day.dot_row)(QuantType::Q8_0, &row, &x).map(f64::from);
    let input = "Q8_0: scales 1 and 0.25, 2 and 10; x: scales 0.5 and 2, 3 and 1";
    near(input, got, 8.0, SUMS).likely("if a check of task 19.5 fails, fix that first")?;
    // Block 0: (9 - 8)·3 · (2 · 0.5) = 3; block 1: (4 - 8)·1 · (-1 · 2) = 8.
    let mut ones = [0x88; 16];
    ones[0] = 0x89;
    let mut fours = [0x88; 16];
    fours[0] = 0x84;
    let row = [bytes_q4_0(2.0, ones), bytes_q4_0(-1.0, fours)].concat();
    let got = (day.dot_row)(QuantType::Q4_0, &row, &x).map(f64::from);
    let input = "Q4_0: scales 2 and -1, 9 and 4, else 8; x: scales 0.5 and 2, 3 and 1";
    near(input, got, 11.0, SUMS).likely("if a check of task 19.6 fails, fix that first")
}

fn rows_of_different_lengths_are_refused(day: &Day) -> Outcome {
    let x = [bytes_q8_0(0.5, &[3]), bytes_q8_0(2.0, &[1])];
    for blocks in [1, 3] {
        let row = bytes_q8_0(1.0, &[2]).repeat(blocks);
        refused_calmly(&format!("{blocks} blocks of weights, 2 of activations"), || {
            (day.dot_row)(QuantType::Q8_0, &row, &x)
        })?;
    }
    Ok(())
}

/// Returns a random matrix of blocks.
fn random_matrix(
    random: &mut Random,
    kind: QuantType,
    out: usize,
    inner: usize,
) -> Result<QuantizedMatrix> {
    let mut blocks = Vec::new();
    for _ in 0..out * inner / BLOCK {
        blocks.extend(random_bytes(random, kind.bytes_per_block()));
    }
    QuantizedMatrix::new(kind, out, inner, blocks)
}

/// Quantizes a row to Q8_0 by the definition, and returns its numbers in f64, without any of the
/// day's code.
fn activations(x: &[f32]) -> Vec<f64> {
    let mut numbers = Vec::new();
    for block in x.chunks_exact(BLOCK) {
        let d = largest(block) / 127.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        let scale = f64::from(f16::from_f32(d).to_f32());
        numbers.extend(block.iter().map(|x| scale * f64::from((x * inverse).round())));
    }
    numbers
}

fn a_small_layer_is_as_by_hand(day: &Day) -> Outcome {
    // Two rows of weights, and x with two tokens: one with 127 (scale 1), one with -254 (scale 2).
    let blocks = [bytes_q8_0(0.5, &[2, 1]), bytes_q8_0(0.25, &[0, -8])].concat();
    let w = QuantizedMatrix::new(QuantType::Q8_0, 2, BLOCK, blocks)?;
    let x = [block(&[127.0, 2.0]), block(&[-254.0, 4.0])].concat();
    let x = Tensor::from_vec(x, (1, 2, BLOCK), &device()?)?;
    // 0.5 · (2·127 + 2) = 128 and 0.25 · (-8·2) = -4, then 0.5 · 2 · (-254 + 2) = -252 and 0.25 · 2
    // · -16 = -8.
    let want = Tensor::new(&[[[128f32, -4.0], [-252.0, -8.0]]], &device()?)?;
    let input =
        "x: 127, 2, zeros and -254, 4, zeros; w: 0.5 · (2, 1, zeros) and 0.25 · (0, -8, zeros)";
    // Sums of a few exact numbers.
    close(input, (day.quantized_linear)(&x, &w), &want, 1e-4)
        .likely("if a check of tasks 19.5 to 19.7 fails, fix that first")
}

fn random_layers_equal_the_exact_sums(day: &Day) -> Outcome {
    let mut random = Random::new(22);
    for (kind, shape, out) in [
        (QuantType::Q8_0, vec![2, 3, 96], 5),
        (QuantType::Q4_0, vec![1, 4, 64], 7),
        (QuantType::Q8_0, vec![64], 3),
        (QuantType::Q4_0, vec![5, 32], 1),
    ] {
        let inner = shape[shape.len() - 1];
        let w = random_matrix(&mut random, kind, out, inner)?;
        let x = random.tensor(&shape)?;
        let y = (day.quantized_linear)(&x, &w)?;
        let mut wanted = shape.clone();
        wanted[shape.len() - 1] = out;
        let input = format!("x {shape:?}, w ({out}, {inner}) of {kind:?}");
        equal(&format!("the shape of y, {input}"), Ok(y.dims().to_vec()), &wanted)?;
        let y = y.flatten_all()?.to_vec1::<f32>()?;
        let x = x.flatten_all()?.to_vec1::<f32>()?;
        for (at, y) in y.iter().enumerate() {
            let (row, column) = (at / out, at % out);
            let x = activations(&x[row * inner..(row + 1) * inner]);
            let weights = w.row(column);
            let blocks = weights.chunks_exact(kind.bytes_per_block());
            let weights: Vec<f64> = blocks.flat_map(|bytes| numbers(kind, bytes)).collect();
            let place = format!("row {row}, column {column} of y, {input}");
            within(&place, *y, exact(&weights, &x))?;
        }
    }
    Ok(())
}

fn rows_do_not_affect_each_other(day: &Day) -> Outcome {
    let mut random = Random::new(23);
    let w = random_matrix(&mut random, QuantType::Q4_0, 6, 64)?;
    let x = random.tensor(&[4, 64])?;
    let together = (day.quantized_linear)(&x, &w)?;
    for row in 0..4 {
        let alone = (day.quantized_linear)(&x.narrow(0, row, 1)?, &w)?;
        let input = format!("row {row} of 4, against the same row alone");
        close(&input, together.narrow(0, row, 1), &alone, 0.0)?;
    }
    Ok(())
}

fn each_row_of_x_is_quantized_once(day: &Day) -> Outcome {
    let mut random = Random::new(26);
    let (rows, out, inner) = (3, 40, 128 * BLOCK);
    let w = random_matrix(&mut random, QuantType::Q4_0, out, inner)?;
    let x = random.tensor(&[rows, inner])?.to_device(&Device::Cpu)?;
    COUNTED.set((inner / BLOCK * QuantType::Q8_0.bytes_per_block(), 0));
    let done = (day.quantized_linear)(&x, &w);
    let (_, count) = COUNTED.replace((0, 0));
    done?;
    let input = format!("{rows} rows of x, {out} of weights: {count} quantized rows were made");
    ensure(&input, count <= 3 * rows, "a row of x is quantized again for each row of weights")
        .likely("quantize every row of x before the loop over the rows of weights")
}

fn a_layer_stays_close_to_f32(day: &Day) -> Outcome {
    let file = models_dir()?.join("story-3m/model.safetensors");
    let tensors = candle_core::safetensors::load(file, &Device::Cpu)?;
    let name = "model.layers.2.mlp.gate_proj.weight";
    let Some(weights) = tensors.get(name) else {
        return Err(Error::Msg(format!("story-3m has no {name}")).into());
    };
    let weights = weights.to_dtype(candle_core::DType::F32)?;
    let (out, inner) = weights.dims2()?;
    let x = Random::new(24).tensor(&[8, inner])?.to_device(&Device::Cpu)?;
    let want = x.matmul(&weights.t()?)?;
    let norm = |x: &Tensor| -> Result<f64> {
        Ok(f64::from(x.sqr()?.sum_all()?.to_scalar::<f32>()?).sqrt())
    };
    // Errors of the individual numbers are random, so they add up to a small share of the result.
    // An 8-bit step is at most 1/127 of the largest number in its block, a 4-bit step at most 1/8.
    for (kind, share) in [(QuantType::Q8_0, 0.01), (QuantType::Q4_0, 0.12)] {
        let mut blocks = Vec::new();
        for row in weights.to_vec2::<f32>()? {
            blocks.extend((day.quantize_row)(kind, &row)?);
        }
        let w = QuantizedMatrix::new(kind, out, inner, blocks)?;
        let y = (day.quantized_linear)(&x.to_device(&device()?)?, &w)?.to_device(&Device::Cpu)?;
        let off = norm(&(y - &want)?)? / norm(&want)?;
        ensure(
            &format!("{name} of story-3m in {kind:?}, 8 random rows"),
            off < share,
            &format!("the result differs by {:.1} % from that of f32", 100.0 * off),
        )?;
    }
    Ok(())
}

fn wrong_widths_and_nan_are_refused(day: &Day) -> Outcome {
    let mut random = Random::new(25);
    let w = random_matrix(&mut random, QuantType::Q8_0, 3, 64)?;
    let x = random.tensor(&[2, 32])?;
    refused_calmly("x (2, 32), w (3, 64)", || (day.quantized_linear)(&x, &w))?;
    let x = random.tensor(&[2, 128])?;
    refused_calmly("x (2, 128), w (3, 64)", || (day.quantized_linear)(&x, &w))?;
    let mut numbers = vec![1f32; 64];
    numbers[3] = f32::NAN;
    let x = Tensor::from_vec(numbers, (1, 64), &device()?)?;
    refused_calmly("x (1, 64) with a NaN, w (3, 64)", || (day.quantized_linear)(&x, &w))
}

// ---- 19.9: day 16's predictions

fn parsed(json: &str) -> Result<ModelConfig> {
    ModelConfig::from_json(json).map_err(|e| Error::Msg(format!("{e:#}")))
}

/// Returns day 16's tiny model: ten tokens, width 4, two layers of 168 weights, and an untied head
/// of 40.
fn tiny() -> Result<ModelConfig> {
    parsed(
        r#"{"model_type": "llama", "vocab_size": 10, "hidden_size": 4, "intermediate_size": 6,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 2, "max_position_embeddings": 64, "tie_word_embeddings": false}"#,
    )
}

/// Describes `tiny` in messages.
const TINY: &str = "336 weights in the layers, 40 in the head";

fn bytes_per_weight_include_scales(day: &Day) -> Outcome {
    let untied = tiny()?;
    let tied = ModelConfig { tie_word_embeddings: true, ..untied.clone() };
    for (config, kind, name, want) in [
        (&untied, QuantType::Q8_0, "a head of its own", 34.0 / 32.0),
        (&tied, QuantType::Q8_0, "a tied head", 34.0 / 32.0),
        (&untied, QuantType::Q4_0, "a head of its own", 18.0 / 32.0),
        (&untied, QuantType::Q4_1, "a head of its own", 20.0 / 32.0),
        // 336 · 0.5625 + 40 · 1.0625 = 231.5
        (&tied, QuantType::Q4_0, "a tied head", 231.5 / 376.0),
        // 336 · 0.625 + 40 · 1.0625 = 252.5
        (&tied, QuantType::Q4_1, "a tied head", 252.5 / 376.0),
    ] {
        let (weight, cache) = (day.quantized_precision)(config, kind);
        let input = format!("{kind:?}, {name}, {TINY}");
        near(&format!("bytes of a weight, {input}"), Ok(weight), want, TOLERANCE)?;
        near(&format!("bytes of a number in the cache, {input}"), Ok(cache), 4.0, TOLERANCE)?;
    }
    Ok(())
}

fn only_steps_bound_by_memory_gain(day: &Day) -> Outcome {
    let config = tiny()?;
    // f32, after 4 positions: 376 · 4 + 5 · 16 · 4 + 40 = 1864 bytes. Q8_0 has 376 · 1.0625 = 399.5
    // bytes of weights, plus 360. Q4_0 has 211.5, plus 360.
    let memory: Rates = (10.0, 1e9);
    let got = (day.predicted_speedup)(&config, 4, QuantType::Q8_0, memory);
    let input = format!("Q8_0 after 4 positions, bound by memory, {TINY}");
    near(&input, Ok(got), 1864.0 / 759.5, TOLERANCE)
        .likely("if the other check of this task fails, fix that first")?;
    let got = (day.predicted_speedup)(&config, 4, QuantType::Q4_0, memory);
    let input = format!("Q4_0 after 4 positions, bound by memory, {TINY}");
    near(&input, Ok(got), 1864.0 / 571.5, TOLERANCE)?;
    // There is no speedup when bound by operations.
    let got = (day.predicted_speedup)(&config, 4, QuantType::Q4_0, (1e9, 10.0));
    let input = format!("Q4_0 after 4 positions, bound by operations, {TINY}");
    near(&input, Ok(got), 1.0, TOLERANCE)
}

// ---- 19.10 and 19.11: a text

/// Returns the logarithms of these probabilities.
fn logs(rows: &[&[f32]]) -> Vec<Vec<f32>> {
    rows.iter().map(|row| row.iter().map(|p| p.ln()).collect()).collect()
}

fn each_entry_predicts_the_next_token(day: &Day) -> Outcome {
    // Token 1 had 0.5 and token 2 had 0.125, so the geometric mean is 0.25. The last row has no
    // token to predict.
    let log_probs = logs(&[&[0.2, 0.5, 0.3], &[0.5, 0.375, 0.125], &[0.9, 0.05, 0.05]]);
    let input = "probabilities 0.2 0.5 0.3; 0.5 0.375 0.125; 0.9 0.05 0.05, tokens 0, 1, 2";
    near(input, (day.perplexity)(&log_probs, &[0, 1, 2]), 4.0, SUMS)?;
    let input = "the first two of them";
    near(input, (day.perplexity)(&log_probs[..2], &[0, 1]), 2.0, SUMS)
}

fn a_fair_die_has_a_perplexity_of_6(day: &Day) -> Outcome {
    // Six equal chances, for any token.
    let row = [1.0 / 6.0; 6];
    let log_probs = logs(&[&row[..]; 20]);
    let tokens: Vec<u32> = (0..20).map(|i| i * 7 % 6).collect();
    near("20 tokens, 6 equal chances", (day.perplexity)(&log_probs, &tokens), 6.0, SUMS)
}

/// Reads a golden `(positions, V)` of logarithms.
fn golden_logs(name: &str) -> Result<Vec<Vec<f32>>> {
    golden("day19", name)?.to_vec2::<f32>()
}

/// Reads a number from the golden.
fn golden_number(name: &str) -> Result<f64> {
    let json = golden_json("day19")?;
    json[name].as_f64().ok_or_else(|| Error::Msg(format!("oracle.json: no {name}")))
}

fn perplexity_equals_that_of_torch(day: &Day) -> Outcome {
    let tokens = golden("day19", "tokens")?.to_vec1::<u32>()?;
    let got = (day.perplexity)(&golden_logs("p")?, &tokens);
    near("24 positions of 40 tokens", got, golden_number("perplexity")?, SUMS)
}

fn texts_that_do_not_fit_are_refused(day: &Day) -> Outcome {
    let row = [0.5, 0.5];
    let call = |positions: usize, tokens: &[u32]| {
        (day.perplexity)(&logs(&vec![&row[..]; positions]), tokens)
    };
    refused_calmly("one token", || call(1, &[0]))?;
    refused_calmly("no token", || call(0, &[]))?;
    refused_calmly("3 positions, 4 tokens", || call(3, &[0, 1, 0, 1]))?;
    refused_calmly("4 positions, 3 tokens", || call(4, &[0, 1, 0]))?;
    refused_calmly("token 2 of a vocabulary of 2", || call(3, &[0, 2, 0]))
}

fn differences_are_weighted_by_the_reference(day: &Day) -> Outcome {
    // 0.5 ln 2 + 0.5 ln (2/3) = 0.1438. In the other direction it would be 0.1308.
    let p = logs(&[&[0.5, 0.5], &[0.25, 0.75]]);
    let q = logs(&[&[0.25, 0.75], &[0.25, 0.75]]);
    let want = (0.5 * 2f64.ln() + 0.5 * (2f64 / 3.0).ln()) / 2.0;
    near("0.5 0.5 against 0.25 0.75; and 0.25 0.75 twice", (day.mean_kl)(&p, &q), want, SUMS)
}

fn the_divergence_equals_that_of_torch(day: &Day) -> Outcome {
    let (p, q) = (golden_logs("p")?, golden_logs("q")?);
    // Terms of both signs that mostly cancel. torch's f64 inputs and ours differ in their last
    // digits.
    near("24 positions of 40 tokens", (day.mean_kl)(&p, &q), golden_number("kl")?, SUMS)?;
    let got = (day.mean_kl)(&p, &p)?;
    equal("the same distributions twice", Ok(got), &0.0)
}

fn impossible_tokens_contribute_nothing(day: &Day) -> Outcome {
    // Tokens that p excludes (a blocked word) count as 0, for any probability under q.
    let p = logs(&[&[0.5, 0.5, 0.0]]);
    let q = logs(&[&[0.5, 0.25, 0.25]]);
    let got = (day.mean_kl)(&p, &q);
    near("0.5 0.5 0 against 0.5 0.25 0.25", got, 0.5 * 2f64.ln(), SUMS)?;
    let q = logs(&[&[0.5, 0.5, 0.0]]);
    equal("0.5 0.5 0 twice", (day.mean_kl)(&p, &q), &0.0)?;
    let q = logs(&[&[1.0, 0.0, 0.0]]);
    equal("0.5 0.5 0 against 1 0 0", (day.mean_kl)(&p, &q), &f64::INFINITY)
        .likely("only p = 0 contributes 0; a token that q excludes and p doesn't costs infinity")
}

fn models_that_do_not_match_are_refused(day: &Day) -> Outcome {
    let one = logs(&[&[0.5, 0.5]]);
    let two = logs(&[&[0.5, 0.5], &[0.5, 0.5]]);
    let wide = logs(&[&[0.5, 0.25, 0.25]]);
    refused_calmly("no positions", || (day.mean_kl)(&[], &[]))?;
    refused_calmly("1 and 2 positions", || (day.mean_kl)(&one, &two))?;
    refused_calmly("vocabularies of 2 and 3 tokens", || (day.mean_kl)(&one, &wide))
}

/// Checks the given measures: the share of equal best tokens, and where two texts diverge.
fn the_given_measures_agree_by_hand(day: &Day) -> Outcome {
    let p = logs(&[&[0.6, 0.3, 0.1], &[0.1, 0.2, 0.7], &[0.3, 0.3, 0.4], &[0.4, 0.4, 0.2]]);
    // The third has a different best token. In the fourth, p has a tie whose first token is also
    // q's best.
    let q = logs(&[&[0.5, 0.3, 0.2], &[0.2, 0.2, 0.6], &[0.4, 0.3, 0.3], &[0.45, 0.35, 0.2]]);
    (day.mean_kl)(&p, &q)?; // so that the check waits for the task
    let input = "best tokens 0, 2, 2, 0 (of two) and 0, 2, 0, 0";
    near(input, (day.same_best)(&p, &q), 0.75, TOLERANCE)?;
    refused_calmly("no positions", || (day.same_best)(&[], &[]))?;
    refused_calmly("4 and 3 positions", || (day.same_best)(&p, &q[..3]))?;
    let cases: [(&[u32], &[u32], Option<usize>); 6] = [
        (&[5, 6, 7, 8], &[5, 6, 9, 8], Some(2)),
        (&[5, 6], &[5, 6], None),
        (&[5, 6], &[5, 6, 7], Some(2)),
        (&[5, 6, 7], &[5], Some(1)),
        (&[1], &[2], Some(0)),
        (&[], &[], None),
    ];
    for (a, b, want) in cases {
        equal(&format!("{a:?} and {b:?}"), Ok((day.first_difference)(a, b)), &want)?;
    }
    Ok(())
}

// ---- 19.12: the challenge

/// Returns a block of roughly normally distributed numbers, each the sum of 12 uniform ones.
fn normal_block(random: &mut Random) -> [f32; BLOCK] {
    std::array::from_fn(|_| (0..12).map(|_| random.float()).sum::<f32>() * 0.02)
}

/// Returns the squared errors of a block with `quantize_block_q4_0` and with the challenge's
/// function, from the format's definition.
fn two_errors(day: &Day, x: &[f32; BLOCK]) -> Result<(f64, f64)> {
    let error = |bytes: &[u8]| {
        let restored = numbers(QuantType::Q4_0, bytes);
        x.iter().zip(restored).map(|(x, back)| (f64::from(*x) - back).powi(2)).sum()
    };
    Ok((error(&(day.quantize_q4_0)(x)?), error(&(day.closer_q4_0)(x)?)))
}

fn the_error_is_never_larger(day: &Day) -> Outcome {
    let stored = llamacpp_blocks("q4_0")?.into_iter().map(|(x, _)| x);
    let mut random = Random::new(33);
    for x in stored.chain((0..100).map(|_| random_block(&mut random))) {
        let (before, after) = two_errors(day, &x)?;
        // The errors are compared in f32, so they may differ in their last digits.
        ensure(
            &format!("the squared error of {x:?}"),
            after <= before * 1.00001,
            &format!("{after:.6e}, and quantize_block_q4_0's is {before:.6e}"),
        )
        .likely("if a check of task 19.2 or 19.3 fails, fix that first")?;
    }
    Ok(())
}

fn the_error_is_a_tenth_smaller(day: &Day) -> Outcome {
    let mut random = Random::new(34);
    let (mut before, mut after) = (0.0, 0.0);
    for _ in 0..500 {
        let x = normal_block(&mut random);
        let (one, other) = two_errors(day, &x)?;
        before += one;
        after += other;
        let got = f64::from((day.squared_error)(&x, &(day.closer_q4_0)(&x)?));
        near("the given squared_error of a block", Ok(got), other, SUMS)?;
    }
    let share = 100.0 * (1.0 - after / before);
    ensure(
        "500 blocks of normally distributed numbers: the sum of their squared errors",
        share >= 10.0,
        &format!("{share:.1} % smaller than quantize_block_q4_0's; it must be at least 10 %"),
    )
}

fn closer_q4_0_refuses_the_same_inputs(day: &Day) -> Outcome {
    refusals(day.closer_q4_0, -1e9)?;
    let got = (day.closer_q4_0)(&block(&[])).map(|bytes| numbers(QuantType::Q4_0, &bytes));
    let zeros = got.map(|numbers| numbers.iter().all(|number| *number == 0.0));
    equal("32 zeros restored as zeros", zeros, &true)
}

// ---- 19.13, 19.14: Q4_1

fn integers_count_up_from_the_minimum(day: &Day) -> Outcome {
    let mut bytes = f16::from_f32(0.5).to_le_bytes().to_vec();
    bytes.extend(f16::from_f32(-3.0).to_le_bytes());
    bytes.extend([0x66; 16]);
    bytes[4] = 0x1f;
    // 6 · 0.5 - 3 = 0. Low half 15: 4.5. High half 1: -2.5.
    let mut want = block(&[4.5]);
    want[16] = -2.5;
    let input = "scale 0.5, minimum -3; bytes 0x1f, and 15 times 0x66";
    same_numbers(input, (day.dequantize_q4_1)(&bytes), &want)
}

fn dequantized_q4_1_equals_llamacpp(day: &Day) -> Outcome {
    let blocks = golden("day19", "q4_1")?.to_vec2::<u8>()?;
    let want = golden("day19", "q4_1.back")?.to_vec2::<f32>()?;
    for (at, (bytes, want)) in blocks.iter().zip(want).enumerate() {
        let got = Tensor::new(&(day.dequantize_q4_1)(bytes), &Device::Cpu);
        let input = format!("stored block {at}");
        // A multiplication and an addition. A fused instruction rounds only once.
        close(&input, got, &Tensor::new(want, &Device::Cpu)?, 1e-3)?;
    }
    Ok(())
}

fn the_minimum_meets_every_activation(day: &Day) -> Outcome {
    // (0.5 · 3 - 1) · 4 · 0.25 + 31 · (0.5 · 0 - 1) · 0 = 0.5
    let mut w = f16::from_f32(0.5).to_le_bytes().to_vec();
    w.extend(f16::from_f32(-1.0).to_le_bytes());
    w.extend([0; 16]);
    w[4] = 0x03;
    let x = bytes_q8_0(0.25, &[4]);
    let input = "scale 0.5, minimum -1: 3, zeros; scale 0.25: 4, zeros";
    near(input, Ok(f64::from((day.dot_q4_1)(&w, &x))), 0.5, SUMS)?;
    let mut random = Random::new(26);
    for _ in 0..200 {
        let x = random_bytes(&mut random, 34);
        let w = random_bytes(&mut random, 20);
        let want = exact(&numbers(QuantType::Q4_1, &w), &numbers(QuantType::Q8_0, &x));
        // Two sums that may nearly cancel, so the tolerance follows from the size of each.
        let integers = shown_q4_0(&w[2..]).1;
        let split: f64 = integers.iter().map(|n| f64::from(*n)).sum::<f64>() * 127.0 + 32.0 * 127.0;
        let off = (f64::from((day.dot_q4_1)(&w, &x)) - want.0).abs();
        if off > 1e-6 * split {
            near("random blocks of Q4_1 and Q8_0", Ok(want.0 + off), want.0, TOLERANCE)?;
        }
    }
    Ok(())
}

// ---- 19.15, 19.16: an 8-bit cache

fn each_head_has_its_own_list(day: &Day) -> Outcome {
    // Row 0, heads 0 and 1, with one position and then two. Number 0 identifies the position.
    let position = |first: f32| block(&[first, 127.0]).to_vec();
    let tensor = |firsts: &[f32], positions: usize| {
        let numbers: Vec<f32> = firsts.iter().flat_map(|first| position(*first)).collect();
        Tensor::from_vec(numbers, (1, 2, positions, BLOCK), &device()?)
    };
    let kept = (day.append_quantized)(&[], &tensor(&[1.0, 2.0], 1)?)?;
    let kept = (day.append_quantized)(&kept, &tensor(&[3.0, 4.0, 5.0, 6.0], 2)?)?;
    let got: Vec<Vec<i8>> =
        kept.iter().map(|list| list.iter().map(|bytes| shown_q8_0(bytes).1[0]).collect()).collect();
    let input = "2 heads; first numbers of the positions 1 and 2, then 3, 4 and 5, 6";
    equal(input, Ok(got), &vec![vec![1, 3, 4], vec![2, 5, 6]])?;
    let wide = Random::new(27).tensor(&[2, 1, 3, 64])?;
    let kept = (day.append_quantized)(&[], &wide)?;
    let lengths: Vec<usize> = kept.iter().map(Vec::len).collect();
    equal("blocks of each list, (2, 1, 3, 64)", Ok(lengths), &vec![6, 6])
}

fn the_cache_returns_what_it_was_given(day: &Day) -> Outcome {
    let mut random = Random::new(28);
    let mut cache = (day.cache)(1);
    let (k, v) = (random.tensor(&[2, 3, 4, 32])?, random.tensor(&[2, 3, 4, 32])?);
    cache.append(0, &k.narrow(2, 0, 3)?, &v.narrow(2, 0, 3)?)?;
    let View { k: all_k, v: all_v, .. } =
        cache.append(0, &k.narrow(2, 3, 1)?, &v.narrow(2, 3, 1)?)?;
    // Numbers below 1: an error of half a step of 1/127, plus the rounding of the scale.
    close("keys of 3 and 1 positions, (2, 3, 4, 32)", Ok(all_k), &k, 0.0045)?;
    close("values of 3 and 1 positions, (2, 3, 4, 32)", Ok(all_v), &v, 0.0045)?;
    equal("positions held", Ok(cache.len()), &4)?;
    the_cache_behaves_like_day_10s(day)
}

/// Checks the supplied part of the cache: truncation affects every layer, and invalid operations
/// are rejected.
fn the_cache_behaves_like_day_10s(day: &Day) -> Outcome {
    let mut random = Random::new(32);
    let mut cache = (day.cache)(2);
    let (k, v) = (random.tensor(&[3, 2, 4, 64])?, random.tensor(&[3, 2, 4, 64])?);
    let (one, other) = (k.narrow(2, 0, 1)?, random.tensor(&[3, 2, 1, 32])?);
    cache.append(0, &one, &v.narrow(2, 0, 1)?)?;
    equal("positions before the last layer is appended to", Ok(cache.len()), &0)?;
    cache.append(1, &v.narrow(2, 0, 1)?, &one)?;
    refused_calmly("keys 32 wide after keys 64 wide", || cache.append(0, &other, &other))?;
    refused_calmly("layer 2 of 2", || cache.append(2, &one, &one))?;
    let (rest_k, rest_v) = (k.narrow(2, 1, 2)?, v.narrow(2, 1, 2)?);
    cache.append(0, &rest_k, &rest_v)?;
    cache.append(1, &rest_v, &rest_k)?;
    refused_calmly("3 positions truncated to 4", || cache.truncate(4))?;
    cache.truncate(3)?;
    cache.truncate(2)?;
    equal("positions, truncated to 2", Ok(cache.len()), &2)?;
    let (last_k, last_v) = (k.narrow(2, 3, 1)?, v.narrow(2, 3, 1)?);
    let kept = |x: &Tensor| Tensor::cat(&[x.narrow(2, 0, 2)?, x.narrow(2, 3, 1)?], 2);
    for (layer, new, all) in [(0, (&last_k, &last_v), (&k, &v)), (1, (&last_v, &last_k), (&v, &k))]
    {
        let got = cache.append(layer, new.0, new.1)?;
        let input = format!("layer {layer} of 3 positions, truncated to 2, and one appended");
        close(&format!("keys, {input}"), Ok(got.k), &kept(all.0)?, 0.0045)?;
        close(&format!("values, {input}"), Ok(got.v), &kept(all.1)?, 0.0045)?;
    }
    Ok(())
}

fn keys_that_do_not_fit_are_refused(day: &Day) -> Outcome {
    let narrow = Random::new(29).tensor(&[1, 2, 1, 48])?;
    refused_calmly("heads 48 wide", || (day.append_quantized)(&[], &narrow))?;
    let new = Random::new(30).tensor(&[1, 2, 1, 32])?;
    let one = bytes_q8_0(1.0, &[1]);
    refused_calmly("3 lists, and 1 row of 2 heads", || {
        (day.append_quantized)(&[vec![one.clone()], vec![one.clone()], vec![one.clone()]], &new)
    })
}

fn the_error_of_a_score_is_as_by_hand(day: &Day) -> Outcome {
    // 64 numbers. The first block of k has steps of 1, the second has steps of 2. (3 · 0.5 + 5 · 1)
    // / 8.
    let mut q = vec![0.0; 64];
    q[0] = -2.0;
    q[1] = 1.0;
    q[40] = 5.0;
    let mut k = vec![0.0; 64];
    k[7] = -127.0;
    k[50] = 254.0;
    let input = "q: -2, 1, and 5 in its second block; k: -127, and 254 in its second block";
    let got = (day.largest_score_error)(&q, &k).map(f64::from);
    near(input, got, 0.8125, SUMS).likely("if a check of task 19.4 fails, fix that first")?;
    for k in &mut k {
        *k /= 1270.0;
    }
    // The steps are now 1/1270 and 2/1270. In f16, each has a relative error of up to 2⁻¹², which
    // counts 127 times.
    let got = (day.largest_score_error)(&q, &k).map(f64::from);
    near("the same q, k divided by 1270", got, 0.8125 / 1270.0, 0.065)?;
    refused_calmly("q of 64 numbers, k of 32", || (day.largest_score_error)(&q, &k[..32]))?;
    refused_calmly("q and k of 40 numbers", || (day.largest_score_error)(&q[..40], &k[..40]))
}

fn score_errors_stay_within_the_bound(day: &Day) -> Outcome {
    let mut random = Random::new(31);
    for _ in 0..200 {
        let q: Vec<f32> = (0..64).map(|_| random.float()).collect();
        let k: Vec<f32> = (0..64).map(|_| random.float()).collect();
        let back = activations(&k);
        let off =
            q.iter().zip(&k).zip(&back).map(|((q, k), b)| f64::from(*q) * (f64::from(*k) - b));
        let off = (off.sum::<f64>() / 8.0).abs();
        let most = f64::from((day.largest_score_error)(&q, &k)?);
        ensure(
            "a random query and key of 64 numbers",
            off <= most * 1.00001,
            &format!("the score is off by {off:.6e}, more than {most:.6e}"),
        )?;
    }
    Ok(())
}
