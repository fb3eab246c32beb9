//! Day 5: the multiplications of a pass; where the time of story-3m's pass over one token goes, and
//! what it saves to compute only the last position's logits.

use crate::probe::Probe;
use crate::shared::plain_story;
use crate::tally::Tally;
use crate::times::{shown, Times};
use anyhow::Result;
use candecode::day05_model::Transformer;
use candecode::kit::{Logits, Model, NoCache, Step};
use candle_core::Tensor;
use std::path::Path;
use std::time::Instant;

/// The stages of a pass. The head's includes the final norm.
const STAGES: [&str; 4] = ["norms", "attentions", "mlps", "head"];

/// Returns the millions of multiplications in a pass over 256 tokens, with weights.
fn multiplications(model: &dyn Model, probe: &Probe, logits: Logits) -> Result<usize> {
    let ids: Vec<u32> = (4..260).collect();
    let step = Step::new(model, &ids, 0)?.with_logits(logits);
    probe.take_products();
    model.forward(&step, &mut NoCache)?;
    Ok(probe.take_products() / 1_000_000)
}

pub fn count(tally: &mut Tally) -> Result<()> {
    let (model, probe) = Probe::story(None)?;
    let all = multiplications(&model, &probe, Logits::All)?;
    let last = multiplications(&model, &probe, Logits::Last(1))?;
    tally.add("million products for the token after 256; before: all logits", all, last);
    Ok(())
}

pub fn measure(times: &mut Times) -> Result<()> {
    let model = plain_story()?;
    let step = Step::new(&model, &[428], 0)?;
    times.several(STAGES, || stages(&model, &step))?;
    for (name, logits) in [("pass_256_last", Logits::Last(1)), ("pass_256_all", Logits::All)] {
        let ids: Vec<u32> = (4..260).collect();
        let step = Step::new(&model, &ids, 0)?.with_logits(logits);
        times.measure(name, || model.forward(&step, &mut NoCache))?;
    }
    Ok(())
}

pub fn report(times: &Times, _: &Path) -> Result<()> {
    let all: f64 = STAGES.iter().map(|stage| times.of(stage)).sum::<Result<f64>>()?;
    println!("one token through story-3m: {}", shown(all));
    for stage in STAGES {
        let seconds = times.of(stage)?;
        println!("{stage:<11} {:>10} {:4.0} %", shown(seconds), 100.0 * seconds / all);
    }
    let (last, all) = (times.of("pass_256_last")?, times.of("pass_256_all")?);
    println!("256 tokens, logits of all: {}, of the last: {}", shown(all), shown(last));
    Ok(())
}

/// Runs one pass. Returns the seconds spent in each stage.
fn stages(model: &Transformer, step: &Step) -> Result<[f64; 4]> {
    let mut spent = [0.0; 4];
    let mut timed = |stage: usize, run: &dyn Fn() -> candle_core::Result<Tensor>| {
        let began = Instant::now();
        let x = run();
        spent[stage] += began.elapsed().as_secs_f64();
        x
    };
    let angles = match &model.rotary_emb {
        Some(rotary) => Some(rotary.cos_sin(&step.positions)?),
        None => None,
    };
    let mut x = model.embed(step)?; // (1, 1, 192)
    for layer in &model.layers {
        let normed = timed(0, &|| layer.attention_norm.forward(&x))?;
        let attention = &layer.attention;
        let update = timed(1, &|| attention.forward(&normed, step, angles.as_ref(), &mut NoCache))?;
        x = (x + update)?;
        let normed = timed(0, &|| layer.mlp_norm.forward(&x))?;
        let update = timed(2, &|| layer.mlp.forward(&normed))?;
        x = (x + update)?;
    }
    timed(3, &|| model.head(&x))?;
    Ok(spent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_for_every_position_costs_more() {
        let (model, probe) = Probe::story(None).unwrap();
        let cost = |logits| multiplications(&model, &probe, logits).unwrap();
        // The head multiplies 192 numbers by 2,048 rows at 255 more positions.
        let more = cost(Logits::All) - cost(Logits::Last(1));
        assert_eq!(more, 192 * 2048 * 255 / 1_000_000);
    }
}
