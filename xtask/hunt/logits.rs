//! The scores of what comes next, as `cargo xtask hunt` shows them: built with the engine under hunt, in a crate of its own.

use candecode::engine::load;
use candecode::formats::hub;
use candecode::kit::{NoCache, Step, Tokenizer};
use candle_core::{DType, Device, IndexOp as _};

/// How many of the likeliest tokens are shown.
const SHOWN: usize = 8;

fn main() -> anyhow::Result<()> {
    let text = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let dir = hub::resolve("story-3m")?;
    let (tokenizer, model) =
        (Tokenizer::from_dir(&dir)?, load::load_model(&dir, DType::F32, &Device::Cpu)?);
    let ids = tokenizer.encode(&text)?;
    let step = Step::new(&*model, &ids, 0)?;
    let logits = model.forward(&step, &mut NoCache)?; // (1, T, V)
    let last: Vec<f32> = logits.i((0, ids.len() - 1))?.to_vec1()?;
    let mut order: Vec<usize> = (0..last.len()).collect();
    order.sort_by(|&a, &b| last[b].total_cmp(&last[a]));
    println!("{} tokens {ids:?}; the likeliest next:", ids.len());
    for id in order.into_iter().take(SHOWN) {
        let piece = u32::try_from(id).ok().and_then(|id| tokenizer.piece(id)).unwrap_or_default();
        println!("{:>10.4}  {id:>6}  {piece:?}", last[id]);
    }
    Ok(())
}
