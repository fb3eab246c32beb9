//! `CANDECODE_SIMD` applies to all kernels. This test has its own file, and therefore its own
//! process, because kernels read the variable only once.

use candecode_kernels::{instruction_set, lanes, linear, InstructionSet, WeightSlices};

#[test]
fn plain_code_can_be_chosen_on_every_machine() {
    std::env::set_var("CANDECODE_SIMD", "scalar");
    assert_eq!(instruction_set(), InstructionSet::Scalar);
    assert_eq!(lanes(), 1, "numbers at a time without vectors");

    // Small integers, so that the order of additions doesn't matter.
    let w: Vec<f32> = (0..7 * 35).map(|i| (i % 5) as f32).collect();
    let x: Vec<f32> = (0..35).map(|i| (i % 3) as f32).collect();
    let by_hand = |row: &[f32]| row.iter().zip(&x).map(|(w, x)| w * x).sum::<f32>();
    let wanted: Vec<f32> = w.chunks(35).map(by_hand).collect();
    assert_eq!(linear(&x, 35, &WeightSlices::F32(vec![&w])), wanted);
}
