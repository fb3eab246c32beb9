//! What a layer computes with: one value, which the engine chooses, the loader puts into the layers,
//! and nobody below looks up anywhere else.

use crate::kit::{View, Weight};
use candle_core::{Result, Tensor};
use std::fmt::Debug;
use std::sync::Arc;

/// [`Ops`] that the layers of a model share.
pub type SharedOps = Arc<dyn Ops>;

/// The operations of a layer for which there is more than one implementation. `engine/operations.rs`
/// has all of them: the days' own code on candle's tensors, candle-nn's fused operations, the kernels of
/// this repository, and the ones you write on days 17 and 18.
pub trait Ops: Debug + Send + Sync {
    /// `x · wᵀ` for weights that share an input (torch `linear`, without a bias): `x` is `(…, in)`, each
    /// weight `(out, in)`, and the results, in the same order, are `(…, out)`. Weights of another type
    /// than `x` are widened for the product.
    ///
    /// # Errors
    /// If the last dimension of `x` is not `in`.
    fn linear(&self, x: &Tensor, weights: &[&Weight]) -> Result<Vec<Tensor>>;

    /// The rows of a table for ids (torch `embedding`): `ids` is `(B, T)`, `table` is `(V, C)`; the result
    /// is `(B, T, C)`, in the type that the table has in memory, or f32 if it is quantised.
    ///
    /// # Errors
    /// If an id is not below `V`.
    fn embed(&self, ids: &Tensor, table: &Weight) -> Result<Tensor>;

    /// Attention of new queries over everything that a cache holds: `q` is `(B, H, T, D)`, keys and
    /// values are `(B, Hkv, S, D)`, `mask` is `(B or 1, 1, T, S)`, u8, 1 = may attend; the result is
    /// `(B, H, T, D)`. Without a mask the `T` queries are the newest of the `S` positions, and each sees
    /// all up to itself.
    ///
    /// # Errors
    /// If the shapes do not fit.
    fn attend(&self, q: &Tensor, kv: &View, mask: Option<&Tensor>) -> Result<Tensor>;

    /// Day 3's `rms_norm`: `x` is `(…, C)`, `weight` is `(C)`; the result has the shape and type of `x`.
    ///
    /// # Errors
    /// If the widths differ.
    fn rms_norm(&self, x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor>;

    /// Day 3's `layer_norm`: `x` is `(…, C)`, `weight` and `bias` are `(C)`; the result has the shape and
    /// type of `x`.
    ///
    /// # Errors
    /// If the widths differ.
    fn layer_norm(&self, x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor>;

    /// Day 2's `rotate`: `x` and the result are `(B, H, T, D)`, cosines and sines `(B, T, D / 2)`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    fn rotate(&self, x: &Tensor, cos_sin: &(Tensor, Tensor)) -> Result<Tensor>;

    /// `silu(gate) · up` (vLLM `silu_and_mul`): both, and the result, are `(B, T, C)`.
    ///
    /// # Errors
    /// If the shapes differ.
    fn silu_and_mul(&self, gate: &Tensor, up: &Tensor) -> Result<Tensor>;

    /// Whether quantised matrices should be loaded in tiles, as the kernels read them.
    fn reads_tiles(&self) -> bool {
        false
    }

    /// Whether kernels may stand in for day 7's `log_softmax` and `argmax`.
    fn chooses_fast(&self) -> bool {
        false
    }

    /// Whether attention holds the scores of all new positions at once, as plain code does.
    fn holds_scores(&self) -> bool {
        true
    }

    /// Whether everything that is read is counted ([`bytes_read`](crate::kernels::bytes_read)).
    fn counts_bytes(&self) -> bool {
        false
    }

    /// In words, for `--stats`; `cpu` says where the tensors are.
    fn describe(&self, cpu: bool) -> String;
}
