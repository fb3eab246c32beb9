//! The location of a head's keys or values: in blocks, with one row of numbers per position. A
//! cache that isn't paged counts as a single block.

use crate::prefetch::Ahead;
use std::ops::Range;

/// Number of positions by which prefetching precedes reading.
///
/// A processor that prefetches on its own stops at the end of a page, which a block of 16 positions
/// fills if each has 64 numbers. Half a block more than a whole number of blocks starts it on a
/// page and leaves the page's other half to it, which is up to a quarter faster than 32 positions.
pub const AHEAD: usize = 24;

/// The keys or values of one head of one sequence.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// The numbers, starting with this head's first one in block 0.
    pub data: &'a [f32],
    /// The blocks, in order.
    pub table: &'a [u32],
    /// Number of rows in a block, at least 1.
    pub block_size: usize,
    /// Distance from one block to the next.
    pub block_stride: usize,
    /// Distance from one row of a block to the next.
    pub stride: usize,
    /// Length of a row.
    pub width: usize,
}

impl<'a> Rows<'a> {
    /// Returns the rows starting at a position.
    #[inline(always)]
    pub fn from(self, position: usize) -> Runs<'a> {
        let (block, slot) = (position / self.block_size, position % self.block_size);
        Runs { rows: self, block, slot }
    }

    /// Prefetches the rows at these positions, as far as they exist.
    #[inline(always)]
    pub fn prefetch(self, positions: Range<usize>) {
        let (mut runs, mut left) = (self.from(positions.start), positions.len());
        while let Some((run, count)) = runs.next(left) {
            let bytes = self.width * size_of::<f32>();
            for row in 0..count {
                Ahead::new(&run[row * self.stride..], 0, bytes, 1).prefetch::<4>(0);
            }
            left -= count;
        }
    }
}

/// Some rows, in runs of rows at a constant distance.
pub struct Runs<'a> {
    rows: Rows<'a>,
    block: usize,
    slot: usize,
}

impl<'a> Runs<'a> {
    /// Returns the numbers of the next rows, at most `most` and only to the end of their block, and
    /// the number of these rows. None if `most` is 0, or a row doesn't exist.
    ///
    /// This function never panics, because a loop that contains a panic keeps its sums in memory.
    #[inline(always)]
    pub fn next(&mut self, most: usize) -> Option<(&'a [f32], usize)> {
        let Rows { data, table, block_size, block_stride, stride, width } = self.rows;
        let count = most.min(block_size - self.slot);
        let start = *table.get(self.block)? as usize * block_stride + self.slot * stride;
        let run = data.get(start..)?.get(..count.checked_sub(1)? * stride + width)?;
        self.slot += count;
        if self.slot == block_size {
            self.slot = 0;
            self.block += 1;
        }
        Some((run, count))
    }
}
