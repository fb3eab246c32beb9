//! The memory that a run with these flags needs.

use crate::flags::Args;
use candecode::kit::device::activation_dtype;
use candecode::kit::ModelConfig;
use candecode_engine::loops::Loop;
use candecode_engine::memory_check::Need;
use candecode_engine::{operations, CacheConfig, CacheKind};
use candle_core::{DType, Device};

/// Returns the memory that this loop needs with these flags. Each model comes with its average
/// number of bytes per weight.
pub fn need<'a>(
    args: &Args,
    day_loop: &Loop,
    models: &[(&'a ModelConfig, f64)],
    prompts: &[Vec<u32>],
    dtype: DType,
    device: &Device,
) -> Need<'a> {
    let mut need = Need {
        models: models.iter().map(|(model, _)| *model).collect(),
        weight_bytes: models.iter().map(|(_, bytes)| *bytes).collect(),
        value_bytes: activation_dtype(dtype, device).size_in_bytes(),
        rows: 1,
        prompt: prompts.iter().map(Vec::len).max().unwrap_or(0),
        new: args.max_new_tokens(),
        cache: args.cache(day_loop).map(|name| match name {
            CacheKind::Static => CacheConfig::Static(models[0].0.max_position_embeddings),
            _ => CacheConfig::Dynamic, // the others grow, and a paged one has its pool below
        }),
        pool: args.num_blocks.map(|blocks| blocks.saturating_mul(args.block_size())),
        holds_scores: !device.is_cpu() || operations::choose(args.kernels, device).holds_scores(),
        padded: day_loop.pads && prompts.iter().any(|prompt| prompt.len() != prompts[0].len()),
        beams: day_loop.searches(),
    };
    let within_limit = args.max_batch_tokens() / need.positions(need.models[0]).max(1);
    need.rows = day_loop.rows(prompts.len() * args.samples(), args.num_beams(), within_limit);
    need
}
