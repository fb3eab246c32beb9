//! The memory that a run with these flags needs.

use crate::flags::{Args, CacheName};
use crate::plan::Plan;
use candecode::kit::device::activation_dtype;
use candecode::kit::ModelConfig;
use candecode_engine::memory_check::Need;
use candecode_engine::{operations, CacheKind};
use candle_core::{DType, Device};

/// Returns the memory that these flags need. Each model comes with its average number of bytes per
/// weight.
pub fn need<'a>(
    args: &Args,
    plan: &Plan,
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
        new: args.max_new_tokens,
        cache: match args.no_cache || plan.day < 10 {
            true => None,
            false => Some(match args.cache {
                Some(CacheName::Static) => CacheKind::Static(models[0].0.max_position_embeddings),
                _ => CacheKind::Dynamic, // the others grow, and a paged one has its pool below
            }),
        },
        pool: args.num_blocks.map(|blocks| blocks.saturating_mul(args.block_size)),
        holds_scores: !device.is_cpu() || operations::choose(args.kernels, device).holds_scores(),
        padded: plan.day == 12 && prompts.iter().any(|prompt| prompt.len() != prompts[0].len()),
        beams: plan.day == 11,
    };
    need.rows = match plan.day {
        11 => args.num_beams,
        12 | 21 => plan.rows,
        15 => plan.rows.min(args.max_batch_tokens / need.positions(need.models[0]).max(1)).max(1),
        _ => 1,
    };
    need
}
