//! Day 3's checks: norms and MLPs.

mod checks;
#[macro_use]
#[path = "checks/day03.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day03_norms_and_mlps.rs"]
mod day03_norms_and_mlps;

checks::tests! {
    3, day03_norms_and_mlps:
    task_3_1_layer_norm_by_hand => day::layer_norm_by_hand,
    task_3_1_layer_norm_equals_torch => day::layer_norm_equals_torch,
    task_3_1_layer_norm_in_bf16_has_the_bits_of_torch => day::layer_norm_bf16_equals_torch,
    task_3_1_layer_norm_works_on_any_shape => day::layer_norm_is_correct_on_any_shape,
    task_3_1_layer_norm_equals_candle_nn => day::layer_norm_equals_candle_nn,
    task_3_2_rms_norm_by_hand => day::rms_norm_by_hand,
    task_3_2_rms_norm_equals_llama => day::rms_norm_equals_llama,
    task_3_2_rms_norm_is_computed_in_f32 => day::rms_norm_in_f32,
    task_3_2_rms_norm_in_bf16_has_the_bits_of_llama => day::rms_norm_bf16_equals_llama,
    task_3_2_rms_norm_works_on_any_shape => day::rms_norm_works_on_any_shape,
    task_3_2_rms_norm_equals_candle_nn => day::rms_norm_equals_candle_nn,
    task_3_3_gelu_tanh_equals_gpt2 => day::gelu_tanh_equals_gpt2,
    task_3_3_gelu_tanh_in_bf16_is_near_gpt2 => day::gelu_tanh_bf16_is_near_gpt2,
    task_3_3_gelu_tanh_equals_candle => day::gelu_tanh_equals_candle,
    task_3_4_gelu_exact_equals_torch => day::gelu_exact_equals_torch,
    task_3_4_gelu_exact_in_bf16_has_the_bits_of_torch => day::gelu_exact_bf16_equals_torch,
    task_3_4_gelu_exact_equals_candle => day::gelu_exact_equals_candle,
    task_3_5_silu_by_hand => day::silu_by_hand,
    task_3_5_silu_equals_torch => day::silu_equals_torch,
    task_3_5_silu_in_bf16_has_the_bits_of_torch => day::silu_bf16_equals_torch,
    task_3_5_silu_equals_candle_nn => day::silu_equals_candle_nn,
    task_3_6_swiglu_by_hand => day::swiglu_by_hand,
    task_3_6_swiglu_equals_llama => day::swiglu_equals_llama,
    task_3_6_swiglu_in_bf16_has_the_bits_of_llama => day::swiglu_bf16_equals_llama,
    task_3_6_swiglu_equals_candle_nn => day::swiglu_equals_candle_nn,
    task_3_7_gelu_mlp_equals_gpt2 => day::gelu_mlp_equals_gpt2,
    task_3_7_gelu_mlp_equals_candle_nn => day::gelu_mlp_equals_candle_nn,
}
