//! Day 2: positions. Attention sees a set; a position is added to the vector (GPT-2) or turned into
//! an angle (RoPE).

use candecode::day00_warm_up::embed;
use candecode::kit::config::Llama3Scaling;
use candle_core::{bail, DType, Device, Result, Tensor};

/// Learned positions: row `positions[b, t]` of a table, to be added to the embeddings (GPT-2's
/// `wpe`).
///
/// `table` is `(context, C)`, `positions` is `(B, T)`, u32; the result is `(B, T, C)`.
///
/// # Errors
/// If a position is not below the context.
pub fn learned_positions(table: &Tensor, positions: &Tensor) -> Result<Tensor> {
    // task 2.1: look the positions up in the table: (B, T) -> (B, T, C)
    // <solution>
    embed(table, positions)
    // </solution>
}

/// How fast each pair of elements turns, in radians a token: `theta^(-2i / D)` for `i` in `0..D/2`
/// (Su et al. 2021; HF `inv_freq`).
///
/// # Errors
/// If `head_dim` is odd or zero.
pub fn inverse_frequencies(head_dim: usize, theta: f64) -> Result<Vec<f32>> {
    // task 2.2: one frequency for each pair, the first is 1
    // <solution>
    if head_dim == 0 || head_dim % 2 == 1 {
        bail!("RoPE turns pairs of numbers: head_dim must be even and above 0, got {head_dim}")
    }
    // In f32 and as a reciprocal, as HF computes it: the angles then agree to the last bit.
    let frequency = |i: usize| 1.0 / (theta as f32).powf(2.0 * i as f32 / head_dim as f32);
    Ok((0..head_dim / 2).map(frequency).collect())
    // </solution>
}

/// Cosine and sine of every angle of a pass, each `(B, T, D / 2)`, f32 (HF `position_embeddings`).
pub type CosSin = (Tensor, Tensor);

/// Rotary position embedding, RoPE, for heads of one width (HF `LlamaRotaryEmbedding`).
///
/// A model has one. It computes cosines and sines once a pass, and every layer turns its queries
/// and keys by them with [`rotate`].
#[derive(Debug, Clone)]
pub struct RotaryEmbedding {
    inv_freq: Tensor, // (1, 1, D / 2), f32
}

impl RotaryEmbedding {
    /// RoPE with base `theta`, its frequencies stretched where the model asks for it.
    ///
    /// # Errors
    /// If `head_dim` is odd or zero.
    pub fn new(
        head_dim: usize,
        theta: f64,
        scaling: Option<Llama3Scaling>,
        device: &Device,
    ) -> Result<Self> {
        let inv_freq: Vec<f32> = inverse_frequencies(head_dim, theta)?
            .into_iter()
            .map(|frequency| scaling.map_or(frequency, |scaling| scaling.apply(frequency)))
            .collect();
        Ok(Self { inv_freq: Tensor::from_vec(inv_freq, (1, 1, head_dim / 2), device)? })
    }

    /// Cosine and sine of every angle, each `(B, T, D / 2)`, f32, for `positions` `(B, T)`, u32.
    ///
    /// # Errors
    /// If `positions` is not a matrix.
    pub fn cos_sin(&self, positions: &Tensor) -> Result<CosSin> {
        // task 2.3: the angles of the positions given, then their cosines and sines
        // <solution>
        let positions = positions.to_dtype(DType::F32)?.unsqueeze(2)?; // (B, T, 1)
        let angles = positions.broadcast_mul(&self.inv_freq)?; // (B, T, D / 2)
        Ok((angles.cos()?, angles.sin()?))
        // </solution>
    }
}

/// Turns every head of `x`, `(B, H, T, D)`, by its token's angles; the type of `x` stays.
///
/// `cos` and `sin` are `(B, T, D / 2)`, from [`RotaryEmbedding::cos_sin`]. HF's layout: the first
/// half of a head is turned against its second half, element `i` with element `i + D / 2` (HF
/// `apply_rotary_pos_emb`, `rotate_half`). The paper, and llama.cpp's weights, pair neighbours.
///
/// # Errors
/// If the shapes do not fit.
pub fn rotate(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    // task 2.4: turn each pair, elements i and i + D / 2 of a head, by its angle
    // <solution>
    let half = x.dim(3)? / 2;
    let cos = cos.to_dtype(x.dtype())?.unsqueeze(1)?; // (B, 1, T, D / 2)
    let sin = sin.to_dtype(x.dtype())?.unsqueeze(1)?;
    let a = x.narrow(3, 0, half)?;
    let b = x.narrow(3, half, half)?;
    let first = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
    let second = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
    Tensor::cat(&[first, second], 3)
    // </solution>
}

/// Weights made for pairs of neighbours, reordered for pairs of halves: within each head, rows 0,
/// 2, 4, … come first, then 1, 3, 5, … (`permute` in HF's conversion of the original Llama weights;
/// llama.cpp's `permute` is the way back).
///
/// `w` is `(H * D, C)`, and so is the result.
///
/// # Errors
/// If `heads` does not divide the rows into even heads.
pub fn neighbours_to_halves(w: &Tensor, heads: usize) -> Result<Tensor> {
    // task 2.5 (further): reorder the rows of each head, even ones first
    // <solution>
    let (rows, c) = w.dims2()?;
    if heads == 0 || rows % (2 * heads) != 0 {
        bail!("{rows} rows are not {heads} heads of an even width")
    }
    let half = rows / heads / 2;
    w.reshape((heads, half, 2, c))?.transpose(1, 2)?.reshape((rows, c))
    // </solution>
}
