//! The operations that layers are built from, passed around as a value: the engine picks an
//! implementation once, the loader stores it in the layers, and no code below the engine consults
//! anything else.

use crate::{View, Weight};
use candle_core::{Result, Tensor};
use std::fmt::Debug;
use std::sync::Arc;

/// One implementation of [`Ops`], shared by all layers of a model.
pub type SharedOps = Arc<dyn Ops>;

/// The layer operations that have more than one implementation. The engine lists them all:
/// the days' own code on candle's tensors, candle-nn's fused operations, this repository's kernels,
/// and the ones you write on days 17 and 18.
pub trait Ops: Debug + Send + Sync {
    /// Returns the fallback for operations that this implementation doesn't override. The days' own
    /// code overrides all of them.
    fn rest(&self) -> &dyn Ops;

    /// Multiplies `x` by several weights that take the same input: `x · wᵀ` for each, without a
    /// bias (torch `linear`). `x` is `(…, in)` and each weight `(out, in)`; the results are
    /// `(…, out)`, in the order of the weights. A weight stored in a narrower type than `x` is
    /// widened for the product.
    ///
    /// # Errors
    /// If the last dimension of `x` is not `in`.
    fn linear(&self, x: &Tensor, weights: &[&Weight]) -> Result<Vec<Tensor>> {
        self.rest().linear(x, weights)
    }

    /// Looks up the rows of a table by id (torch `embedding`): `ids` is `(B, T)`, `table` is
    /// `(V, C)`, and the result is `(B, T, C)`, in the table's in-memory type, or f32 if the table
    /// is quantized.
    ///
    /// # Errors
    /// If an id is `V` or higher.
    fn embed(&self, ids: &Tensor, table: &Weight) -> Result<Tensor> {
        self.rest().embed(ids, table)
    }

    /// Computes attention of new queries over everything that the cache holds for a layer: `q` is
    /// `(B, H, T, D)`, keys and values are `(B, Hkv, S + T, D)`, `mask` is `(B or 1, 1, T, S + T)`,
    /// u8, 1 = may attend, and the result is `(B, H, T, D)`. Without a mask, attention is causal:
    /// the queries are the last `T` of all positions, and each sees itself and all before it.
    ///
    /// # Errors
    /// If the shapes don't match.
    fn attend(&self, q: &Tensor, kv: &View, mask: Option<&Tensor>) -> Result<Tensor> {
        self.rest().attend(q, kv, mask)
    }

    /// Computes day 3's `rms_norm`: `x` is `(…, C)`, `weight` is `(C)`; the result has the shape
    /// and type of `x`.
    ///
    /// # Errors
    /// If the widths differ.
    fn rms_norm(&self, x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
        self.rest().rms_norm(x, weight, eps)
    }

    /// Computes day 3's `layer_norm`: `x` is `(…, C)`, `weight` and `bias` are `(C)`; the result
    /// has the shape and type of `x`.
    ///
    /// # Errors
    /// If the widths differ.
    fn layer_norm(&self, x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
        self.rest().layer_norm(x, weight, bias, eps)
    }

    /// Computes day 2's `rotate`: `x` and the result are `(B, H, T, D)`, the cosines and sines
    /// `(B, T, D / 2)`.
    ///
    /// # Errors
    /// If the shapes don't match.
    fn rotate(&self, x: &Tensor, cos_sin: &(Tensor, Tensor)) -> Result<Tensor> {
        self.rest().rotate(x, cos_sin)
    }

    /// Computes `silu(gate) · up` (vLLM `silu_and_mul`). Inputs and result are `(B, T, C)`.
    ///
    /// # Errors
    /// If the shapes differ.
    fn silu_and_mul(&self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        self.rest().silu_and_mul(gate, up)
    }

    /// Returns true if quantized matrices should be loaded in tiles, the layout that the kernels
    /// read.
    fn reads_tiles(&self) -> bool {
        false
    }

    /// Returns true if kernels may replace day 7's `log_softmax` and `argmax`.
    fn chooses_fast(&self) -> bool {
        false
    }

    /// Returns true if attention holds the scores of all new positions at once, as plain code does.
    /// The memory check accounts for them.
    fn holds_scores(&self) -> bool {
        true
    }

    /// Returns true if every byte read is counted (`bytes_read` of the kernels).
    fn counts_bytes(&self) -> bool {
        false
    }

    /// Returns a description for `--stats`. `cpu` is true if the tensors are on the CPU.
    fn describe(&self, cpu: bool) -> String;
}
