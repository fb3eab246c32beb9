//! What day 17's benchmark multiplies.

/// A matrix of SmolLM2-135M.
#[derive(Clone, Copy)]
pub struct Size {
    /// What it is in the model.
    pub name: &'static str,
    /// Numbers in a row of weights.
    pub inner: usize,
    /// Rows of weights.
    pub out: usize,
}

/// The query projection, one of the two that widen in the MLP, the one that narrows, and the head, which
/// fits no cache.
pub const SIZES: [Size; 4] = [
    Size { name: "query", inner: 576, out: 576 },
    Size { name: "up", inner: 576, out: 1536 },
    Size { name: "down", inner: 1536, out: 576 },
    Size { name: "head", inner: 576, out: 49152 },
];

/// Numbers of vectors that are multiplied at once.
pub const VECTORS: [usize; 4] = [1, 2, 4, 8];
