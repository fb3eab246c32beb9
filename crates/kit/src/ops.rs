//! The operations a layer computes with, as a value: the engine chooses it once, the loader puts it
//! into the layers, and nothing below the engine looks for it anywhere else.

use crate::{View, Weight};
use candle_core::{Result, Tensor};
use std::fmt::Debug;
use std::sync::Arc;

/// One implementation of [`Ops`], shared by all layers of a model.
pub type SharedOps = Arc<dyn Ops>;

/// The operations of a layer that have more than one implementation. All of them are in
/// `engine/operations.rs`: the days' own code on candle's tensors, candle-nn's fused operations,
/// the kernels of this repository, and the ones you write on days 17 and 18.
pub trait Ops: Debug + Send + Sync {
    /// Returns the implementation of the operations that this one leaves out. The days' own code
    /// leaves none out.
    fn rest(&self) -> &dyn Ops;

    /// Multiplies `x` with weights that share it as input: `x · wᵀ` for each, without a bias (torch
    /// `linear`). `x` is `(…, in)`, each weight `(out, in)`, and the results, in the same order,
    /// are `(…, out)`. A weight in a narrower type than `x` is widened for the product.
    ///
    /// # Errors
    /// If the last dimension of `x` is not `in`.
    fn linear(&self, x: &Tensor, weights: &[&Weight]) -> Result<Vec<Tensor>> {
        self.rest().linear(x, weights)
    }

    /// Returns the rows of a table for ids (torch `embedding`): `ids` is `(B, T)`, `table` is `(V,
    /// C)`, and the result is `(B, T, C)`, in the type the table has in memory, or f32 if it is
    /// quantised.
    ///
    /// # Errors
    /// If an id is not below `V`.
    fn embed(&self, ids: &Tensor, table: &Weight) -> Result<Tensor> {
        self.rest().embed(ids, table)
    }

    /// Lets new queries attend to everything in a layer of the cache: `q` is `(B, H, T, D)`, keys
    /// and values are `(B, Hkv, S, D)`, `mask` is `(B or 1, 1, T, S)`, u8, 1 = may attend, and the
    /// result is `(B, H, T, D)`. Without a mask attention is causal: the queries are the newest `T`
    /// of the `S` positions, and each of them sees itself and everything before it.
    ///
    /// # Errors
    /// If the shapes do not fit.
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

    /// Computes day 2's `rotate`: `x` and the result are `(B, H, T, D)`, cosines and sines are
    /// `(B, T, D / 2)`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    fn rotate(&self, x: &Tensor, cos_sin: &(Tensor, Tensor)) -> Result<Tensor> {
        self.rest().rotate(x, cos_sin)
    }

    /// Computes `silu(gate) · up` (vLLM `silu_and_mul`): both, and the result, are `(B, T, C)`.
    ///
    /// # Errors
    /// If the shapes differ.
    fn silu_and_mul(&self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        self.rest().silu_and_mul(gate, up)
    }

    /// Returns true if quantised matrices should be loaded in tiles, the layout the kernels read.
    fn reads_tiles(&self) -> bool {
        false
    }

    /// Returns true if kernels may replace day 7's `log_softmax` and `argmax`.
    fn chooses_fast(&self) -> bool {
        false
    }

    /// Returns true if attention holds the scores of all new positions at once, as plain code does.
    /// The memory check counts them.
    fn holds_scores(&self) -> bool {
        true
    }

    /// Returns true if every byte read is counted ([`bytes_read`](crate::ops::Ops)).
    fn counts_bytes(&self) -> bool {
        false
    }

    /// Describes the implementation in words, for `--stats`; `cpu` is true if the tensors are on
    /// the CPU.
    fn describe(&self, cpu: bool) -> String;
}
