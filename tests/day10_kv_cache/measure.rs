//! Prints the table on half precision in day 10's chapter. It measures and checks nothing.

use super::frame::{tokenizer, Keep};
use super::{forced, goldens, load, request, Day, Golden, Narrow};
use candecode::kit::Model;
use candecode_engine::CacheConfig;
use candle_core::{DType, Result};

/// Generates `len` tokens greedily, continuing past the end of each story.
fn text(day: &Day, model: &dyn Model, prompt: &[u32], len: usize) -> Result<Vec<u32>> {
    let cache = (day.new)(CacheConfig::Dynamic, model.config().num_hidden_layers);
    let most = len - prompt.len();
    let tokens = (day.generate)(model, &tokenizer()?, request(model, prompt, most), cache)?;
    Ok(prompt.iter().copied().chain(tokens.iter().map(|token| token.id)).collect())
}

/// Prints how half precision changes the logits over 200 tokens.
pub fn halves(day: &Day) -> Result<()> {
    for case in goldens()? {
        let plain = load(&case.model, DType::F32)?;
        let layers = plain.config().num_hidden_layers;
        let ids = text(day, &*plain, &case.prompt, 200)?;
        let case = Golden { new_ids: ids[case.prompt.len()..].to_vec(), ..case };
        let want = forced(&*plain, &case, &mut Keep::default())?;
        for dtype in [DType::BF16, DType::F16] {
            let kind = CacheConfig::Dynamic;
            let cached = forced(&*plain, &case, &mut Narrow((day.new)(kind, layers), dtype))?;
            let weights = load(&case.model, dtype)?;
            let weights = forced(&*weights, &case, &mut *(day.new)(kind, layers))?;
            for (what, got) in [("cache", cached), ("weights", weights)] {
                let mut most = 0f32;
                let mut first = None;
                for (at, (g, w)) in got.iter().zip(&want).enumerate() {
                    most = g.iter().zip(w).map(|(g, w)| (g - w).abs()).fold(most, f32::max);
                    let best = |x: &[f32]| (0..x.len()).max_by(|a, b| x[*a].total_cmp(&x[*b]));
                    if best(g) != best(w) && first.is_none() {
                        first = Some(at);
                    }
                }
                println!(
                    "{}, {what} in {dtype:?}: at most {most:.6} apart; first differing token \
                    of {}: {first:?}",
                    case.model,
                    want.len()
                );
            }
        }
    }
    Ok(())
}
