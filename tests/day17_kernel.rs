//! Day 17's checks: a kernel.

mod checks;
#[macro_use]
#[path = "checks/day17.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day17_kernel.rs"]
mod day17_kernel;

checks::tests! {
    17, day17_kernel:
    task_17_1_bf16_by_hand => day::bf16_by_hand,
    task_17_1_every_bf16_there_is => day::every_bf16,
    task_17_2_a_dot_product_by_hand => day::a_dot_product_by_hand,
    task_17_2_every_length => day::every_length,
    task_17_2_there_are_several_running_sums => day::several_running_sums,
    task_17_3_a_pair_by_hand => day::a_pair_by_hand,
    task_17_3_a_pair_is_two_dot_products => day::a_pair_is_two_dot_products,
    task_17_3_each_weight_is_widened_once => day::each_weight_is_widened_once,
    task_17_4_a_block_by_hand => day::a_block_by_hand,
    task_17_4_odd_numbers_of_vectors => day::odd_numbers_of_vectors,
    task_17_4_a_row_is_done_before_the_next => day::a_row_is_done_before_the_next,
    task_17_5_how_many_rows_a_block_has => day::how_many_rows_a_block_has,
    task_17_5_blocks_hold_all_rows => day::blocks_hold_all_rows,
    task_17_6_a_product_by_hand => day::a_product_by_hand,
    task_17_6_as_many_rows_and_vectors_as_you_like => day::any_rows_and_vectors,
    task_17_6_blocks_go_to_several_threads => day::blocks_go_to_several_threads,
    task_17_6_any_number_of_threads_says_the_same => day::any_number_of_threads,
    task_17_7_numbers_that_lie_in_order_are_borrowed => day::borrowed_numbers,
    task_17_7_strides_are_followed => day::strides_are_followed,
    task_17_7_another_type_is_refused => day::another_type_is_refused,
    task_17_8_an_operation_by_hand => day::an_operation_by_hand,
    task_17_8_any_shape_stride_and_type => day::any_shape_stride_and_type,
    task_17_8_what_does_not_fit_is_refused => day::what_does_not_fit_is_refused,
    task_17_8_as_candle_multiplies => day::as_candle_multiplies,
    task_17_9_the_shader_says_the_same => day::the_shader_says_the_same,
}
