//! Day 16's predictions for a run, shown by `--stats`.

pub use candecode::day05_model::Transformer;
pub use candecode::day16_cost_of_a_token::{Bound, Machine, Prediction};

use crate::kernels;
use candecode::day03_norms_and_mlps::Projection;
use candecode::day05_model::{DecoderLayer, Mlp, SelfAttention};
use candecode::day16_cost_of_a_token::{weights_read, Pass, Precision};
use candecode::kit::panics::describe_panic;
use candle_core::DType;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// The sizes of a run.
#[derive(Debug, Clone, Copy)]
pub struct RunSizes {
    /// Number of sequences in the batch.
    pub rows: usize,
    /// Number of tokens in the longest prompt.
    pub prompt: usize,
    /// Number of new tokens per row.
    pub new: usize,
}

/// Measures this machine, which takes a moment.
pub fn this_machine() -> Machine {
    Machine { bandwidth: kernels::bandwidth(3), peak: kernels::peak_operations(5) }
}

/// Describes the minimum time that a run on the CPU should take, and what limits it, for one
/// prefill pass and for one decode step halfway through the completion. The cache is always f32. If
/// day 16 panics, as it does while its tasks are unfinished, the description says so.
pub fn words(model: &Transformer, sizes: RunSizes, machine: &Machine) -> String {
    let RunSizes { rows, prompt, new } = sizes;
    let cache_bytes = DType::F32.size_in_bytes() as f64;
    let mut machine = *machine;
    if model.layers.iter().any(is_quantized) {
        machine.peak = kernels::peak_integer_operations(5);
    }
    let forecast = || {
        let weight_bytes = bytes_read(model) / weights_read(&model.config);
        let precision = Precision { weight_bytes, cache_bytes };
        let least = |pass: &Pass| {
            let Prediction { seconds, bound, .. } =
                machine.predict_pass(&model.config, pass, &precision);
            let bound = match bound {
                Bound::Memory => "memory",
                Bound::Compute => "operations",
            };
            format!("{:.1} ms, bound by {bound}", 1e3 * seconds)
        };
        let prefill = least(&Pass::prefill(rows, prompt));
        match new {
            0 | 1 => format!("roofline at least: prefill {prefill}"),
            _ => {
                let step = least(&Pass::decode(rows, prompt + (new - 1) / 2));
                format!("roofline at least: prefill {prefill}; a step {step}")
            }
        }
    };
    catch_unwind(AssertUnwindSafe(forecast))
        .unwrap_or_else(|panic| format!("roofline not predicted: {}", describe_panic(&*panic)))
}

/// Returns true if the layer's matrix products use quantized weights.
fn is_quantized(layer: &DecoderLayer) -> bool {
    let projection = match &layer.attention {
        SelfAttention::Grouped(attention) => &attention.o_proj,
        SelfAttention::Fused(attention) => &attention.c_proj,
    };
    projection.weight.quantized().is_some()
}

/// Returns the weight bytes that a pass reads: all matrices of the layers, and the head.
pub fn bytes_read(model: &Transformer) -> f64 {
    let mut matrices = vec![model.lm_head.as_ref().unwrap_or(&model.embed_tokens)];
    for layer in &model.layers {
        let projections: Vec<&Projection> = match &layer.attention {
            SelfAttention::Grouped(a) => vec![&a.q_proj, &a.k_proj, &a.v_proj, &a.o_proj],
            SelfAttention::Fused(a) => vec![&a.c_attn, &a.c_proj],
        };
        matrices.extend(projections.into_iter().map(|projection| &projection.weight));
        let projections = match &layer.mlp {
            Mlp::Swiglu { gate_proj, up_proj, down_proj } => vec![gate_proj, up_proj, down_proj],
            Mlp::Gelu { c_fc, c_proj } => vec![c_fc, c_proj],
        };
        matrices.extend(projections.into_iter().map(|projection| &projection.weight));
    }
    matrices.into_iter().map(|matrix| matrix.bytes() as f64).sum()
}
