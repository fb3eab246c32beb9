//! Operations that leave one piece out of a model, or count its multiplications.

use crate::shared::locate;
use anyhow::Result;
use candecode::day05_model::Transformer;
use candecode::kit::ops::{Ops, SharedOps};
use candecode::kit::{View, Weight};
use candecode_engine::load::load_transformer;
use candecode_engine::operations;
use candle_core::{DType, Device, Tensor};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// A piece of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// What makes a query prefer some keys: without it, each token reads the average of all keys.
    Scores,
    /// The rotation of queries and keys by their position.
    Positions,
    /// The division by a vector's size in the norms.
    Norms,
    /// The nonlinearity of the MLPs.
    Bend,
}

/// The days' own operations, without one piece of the model if `without` names one.
#[derive(Debug)]
pub struct Probe {
    days: SharedOps,
    without: Option<Piece>,
    products: AtomicUsize,
}

impl Probe {
    /// Loads story-3m with the days' own operations, without one piece. The probe counts the
    /// model's multiplications.
    ///
    /// # Errors
    /// If the model can't be read.
    pub fn story(without: Option<Piece>) -> Result<(Transformer, Arc<Probe>)> {
        let probe =
            Arc::new(Probe { days: operations::plain(), without, products: AtomicUsize::new(0) });
        let ops: SharedOps = probe.clone();
        let model = load_transformer(&locate("story-3m")?, DType::F32, &Device::Cpu, &ops)?;
        Ok((model, probe))
    }

    /// Returns the multiplications with weights since the last call.
    pub fn take_products(&self) -> usize {
        self.products.swap(0, Ordering::Relaxed)
    }
}

impl Ops for Probe {
    fn rest(&self) -> &dyn Ops {
        &*self.days
    }

    fn linear(&self, x: &Tensor, weights: &[&Weight]) -> candle_core::Result<Vec<Tensor>> {
        let columns: usize = weights.iter().map(|weight| weight.shape().0).sum();
        self.products.fetch_add(x.elem_count() * columns, Ordering::Relaxed);
        self.days.linear(x, weights)
    }

    fn attend(&self, q: &Tensor, kv: &View, mask: Option<&Tensor>) -> candle_core::Result<Tensor> {
        if self.without == Some(Piece::Scores) {
            return self.days.attend(&q.zeros_like()?, kv, mask);
        }
        self.days.attend(q, kv, mask)
    }

    fn rms_norm(&self, x: &Tensor, weight: &Tensor, eps: f64) -> candle_core::Result<Tensor> {
        if self.without == Some(Piece::Norms) {
            return x.broadcast_mul(weight);
        }
        self.days.rms_norm(x, weight, eps)
    }

    fn rotate(&self, x: &Tensor, cos_sin: &(Tensor, Tensor)) -> candle_core::Result<Tensor> {
        if self.without == Some(Piece::Positions) {
            return Ok(x.clone());
        }
        self.days.rotate(x, cos_sin)
    }

    fn silu_and_mul(&self, gate: &Tensor, up: &Tensor) -> candle_core::Result<Tensor> {
        if self.without == Some(Piece::Bend) {
            return gate * up;
        }
        self.days.silu_and_mul(gate, up)
    }

    fn describe(&self, _cpu: bool) -> String {
        "plain".to_string()
    }
}
