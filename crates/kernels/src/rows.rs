//! Where the keys and values of a head are: one row of numbers for each position.

use std::ops::Range;

/// The keys or values of one head of one sequence.
pub trait Rows<'a>: Copy + Send + Sync {
    /// Returns the row at a position, or None if there is none.
    ///
    /// It never panics: a loop that contains a panic keeps its sums in memory.
    fn get(&self, position: usize) -> Option<&'a [f32]>;

    /// Returns the rows of a range of positions. The first of them is then at position 0.
    ///
    /// # Panics
    /// If there are fewer rows.
    fn part(&self, range: Range<usize>) -> Self;
}

/// Rows at a constant distance from each other.
#[derive(Clone, Copy)]
pub struct StridedRows<'a> {
    /// The numbers, from the first row on.
    pub data: &'a [f32],
    /// Distance from one row to the next.
    pub stride: usize,
    /// Length of a row.
    pub width: usize,
}

impl<'a> Rows<'a> for StridedRows<'a> {
    #[inline(always)]
    fn get(&self, position: usize) -> Option<&'a [f32]> {
        self.data.get(position * self.stride..)?.get(..self.width)
    }

    #[inline(always)]
    fn part(&self, range: Range<usize>) -> Self {
        let last = range.len().saturating_sub(1);
        let data = &self.data[range.start * self.stride..][..last * self.stride + self.width];
        Self { data, ..*self }
    }
}

/// Rows that can be anywhere, as in a cache made of blocks.
#[derive(Clone, Copy)]
pub struct ScatteredRows<'a> {
    /// The numbers of all blocks, from the first one of this head on.
    pub data: &'a [f32],
    /// Where the row of each position starts.
    pub starts: &'a [usize],
    /// Length of a row.
    pub width: usize,
}

impl<'a> Rows<'a> for ScatteredRows<'a> {
    #[inline(always)]
    fn get(&self, position: usize) -> Option<&'a [f32]> {
        self.data.get(*self.starts.get(position)?..)?.get(..self.width)
    }

    #[inline(always)]
    fn part(&self, range: Range<usize>) -> Self {
        Self { starts: &self.starts[range], ..*self }
    }
}
