//! Where the keys and values of a head are: one row of numbers for each position.

use std::ops::Range;

/// The keys or values of one head of one sequence.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// The numbers, from the first one of this head on.
    pub data: &'a [f32],
    /// Where the row of each position starts.
    pub starts: Starts<'a>,
    /// Length of a row.
    pub width: usize,
}

/// Where rows start.
#[derive(Clone, Copy)]
pub enum Starts<'a> {
    /// At this distance from each other.
    Every(usize),
    /// Anywhere, as in a cache made of blocks.
    At(&'a [usize]),
}

impl<'a> Rows<'a> {
    /// Returns the row at a position, or None if there is none.
    ///
    /// It never panics: a loop that contains a panic keeps its sums in memory.
    #[inline(always)]
    pub fn get(&self, position: usize) -> Option<&'a [f32]> {
        let start = match self.starts {
            Starts::Every(stride) => position * stride,
            Starts::At(starts) => *starts.get(position)?,
        };
        self.data.get(start..)?.get(..self.width)
    }

    /// Returns the rows of a range of positions. The first of them is then at position 0.
    ///
    /// # Panics
    /// If there are fewer rows.
    #[inline(always)]
    pub fn part(&self, range: Range<usize>) -> Self {
        let (mut data, mut starts) = (self.data, self.starts);
        match &mut starts {
            Starts::Every(stride) => data = &data[range.start * *stride..],
            Starts::At(starts) => *starts = &starts[range],
        }
        Self { data, starts, ..*self }
    }
}
