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
    task_17_1_dot_adds_all_products => day::dot_adds_all_products,
    task_17_1_dot_is_right_at_every_length => day::dot_is_right_at_every_length,
    task_17_1_dot_has_32_running_sums => day::dot_has_32_running_sums,
    task_17_2_widening_moves_the_bits_up => day::widening_moves_the_bits_up,
    task_17_2_every_bf16_is_widened_exactly => day::every_bf16_is_widened_exactly,
    task_17_2_dot_takes_bf16_weights => day::dot_takes_bf16_weights,
    task_17_3_dot_pair_returns_both_products => day::dot_pair_returns_both_products,
    task_17_3_dot_pair_equals_two_dot_products => day::dot_pair_equals_two_dot_products,
    task_17_3_each_weight_is_widened_once => day::each_weight_is_widened_once,
    task_17_4_products_are_stored_row_by_row => day::products_are_stored_row_by_row,
    task_17_4_products_are_right_for_any_number_of_vectors => day::products_are_right_for_any_number_of_vectors,
    task_17_4_each_row_is_finished_before_the_next => day::each_row_is_finished_before_the_next,
    task_17_5_blocks_have_the_right_size => day::blocks_have_the_right_size,
    task_17_5_blocks_hold_all_rows => day::blocks_hold_all_rows,
    task_17_6_products_are_returned_vector_by_vector => day::products_are_returned_vector_by_vector,
    task_17_6_products_are_right_for_any_number_of_rows_and_vectors => day::products_are_right_for_any_number_of_rows_and_vectors,
    task_17_6_several_threads_share_the_blocks => day::several_threads_share_the_blocks,
    task_17_6_results_are_bit_identical_for_any_thread_count => day::results_are_bit_identical_for_any_thread_count,
    task_17_6_linear_multiplies_tensors => day::linear_multiplies_tensors,
    task_17_6_linear_takes_any_shape_stride_and_type => day::linear_takes_any_shape_stride_and_type,
    task_17_6_mismatched_operands_are_rejected => day::mismatched_operands_are_rejected,
    task_17_6_linear_equals_matmul => day::linear_equals_matmul,
    task_17_7_the_largest_product_is_found => day::the_largest_product_is_found,
    task_17_7_ties_go_to_the_first_row => day::ties_go_to_the_first_row,
    task_17_7_several_threads_search => day::several_threads_search,
    task_17_8_the_shader_equals_a_loop => day::the_shader_equals_a_loop,
}
