//! Splits a product among the threads: each computes some columns of the result, and so reads only
//! some rows of the weights.

use crate::keep_awake::keep_awake;
use crate::threads;
use rayon::prelude::*;

/// Number of multiplications below which a second thread costs more than it saves.
const SERIAL: usize = 1 << 18;
/// Blocks of work per thread. More than one, so that a thread that loses its core can leave its
/// remaining blocks to the others.
const BLOCKS_PER_THREAD: usize = 4;

/// Computes the products of `rows` rows with matrices of `outs` rows, all of length `inner`.
/// Returns `(rows, out)` in row-major order, one matrix after another.
///
/// `compute` receives the index of a matrix, its first row (a multiple of `group`), and, for each
/// row of the result, the columns to write.
pub fn shared_columns(
    rows: usize,
    outs: &[usize],
    inner: usize,
    group: usize,
    compute: impl Fn(usize, usize, Vec<&mut [f32]>) + Sync,
) -> Vec<f32> {
    let columns: usize = outs.iter().sum();
    let mut y = vec![0f32; rows * columns];
    if y.is_empty() {
        return y;
    }
    let alone = threads() == 1 || rows * columns * inner < SERIAL;
    let blocks = if alone { 1 } else { threads() * BLOCKS_PER_THREAD };
    let size = columns.div_ceil(blocks).next_multiple_of(group);
    let mut blocks: Vec<(usize, usize, Vec<&mut [f32]>)> = vec![];
    let mut rest = &mut y[..];
    for (matrix, out) in outs.iter().enumerate().filter(|(_, out)| **out > 0) {
        let first = blocks.len();
        for column in (0..*out).step_by(size) {
            blocks.push((matrix, column, Vec::with_capacity(rows)));
        }
        let (part, after) = rest.split_at_mut(rows * out);
        rest = after;
        for row in part.chunks_mut(*out) {
            for (block, columns) in blocks[first..].iter_mut().zip(row.chunks_mut(size)) {
                block.2.push(columns);
            }
        }
    }
    let compute = |(matrix, first, columns)| compute(matrix, first, columns);
    if alone {
        blocks.into_iter().for_each(compute);
    } else {
        keep_awake();
        blocks.into_par_iter().with_max_len(1).for_each(compute);
    }
    y
}
