//! How the threads share a product: each takes some columns of the result, and so some rows of the
//! weights.

use crate::keep_awake::keep_awake;
use crate::threads;
use rayon::prelude::*;

/// Multiplications below which a second thread costs more than it saves.
const SERIAL: usize = 1 << 18;
/// Blocks of work for each thread. They are more than one, so that a thread whose core is taken
/// leaves its blocks to the others.
const BLOCKS_PER_THREAD: usize = 4;

/// The products of `rows` rows with matrices of `outs` rows, all of `inner` numbers: `(rows, out)`,
/// row after row, one matrix after the other.
///
/// `compute` gets the index of a matrix, its first row, which is a multiple of `group`, and for
/// each row of the result the columns to write.
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
