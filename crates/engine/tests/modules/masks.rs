//! Tests that a step accepts every mask that the days build.

use crate::common::model;
use candecode::day04_attention_block::sliding_mask;
use candecode::day12_batching::ragged_mask;
use candecode::kit::Step;
use candle_core::{Device, Tensor};

/// Builds a step of rows at positions 0, 1, …
fn batch(ids: &[Vec<u32>], mask: Option<Tensor>) -> candle_core::Result<Step> {
    let positions: Vec<Vec<u32>> = ids.iter().map(|row| (0..row.len() as u32).collect()).collect();
    Step::batch(&*model("story-230k")?, ids, &positions, mask)
}

#[test]
fn masks_built_by_the_course_are_accepted() {
    let ids = [vec![1, 2, 3], vec![4, 5, 6]];
    let cpu = &Device::Cpu;
    assert!(batch(&ids, Some(ragged_mask(&[0, 2], 3, 0, cpu).unwrap())).is_ok());
    assert!(batch(&ids, Some(ragged_mask(&[0, 4], 3, 2, cpu).unwrap())).is_ok());
    assert!(batch(&ids, Some(sliding_mask(2, 3, 1, cpu).unwrap())).is_ok());
}
