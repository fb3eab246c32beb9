//! Day 2: the loss without positions and with them; the time for rotating the queries and keys of
//! one token in story-3m, and the cosines and sines for it.

use crate::probe::{Piece, Probe};
use crate::shared::{loss, plain_story, random};
use crate::tally::Tally;
use crate::times::{shown, Times};
use anyhow::{Context as _, Result};
use candecode::day02_positions::rotate;
use candecode::kit::Step;
use std::path::Path;

const LAYERS: f64 = 6.0;

pub fn count(tally: &mut Tally) -> Result<()> {
    let of = |without| -> Result<String> { Ok(format!("{:.2}", loss(&Probe::story(without)?.0)?)) };
    let (before, yours) = (of(Some(Piece::Positions))?, of(None)?);
    tally.add("loss over six stories; before: no positions", before, yours);
    Ok(())
}

pub fn measure(times: &mut Times) -> Result<()> {
    let model = plain_story()?;
    let positions = Step::new(&model, &[428], 0)?.positions;
    let rotary = model.rotary_emb.as_ref().context("story-3m has RoPE")?;
    let (cos, sin) = &rotary.cos_sin(&positions)?;
    let (queries, keys) = (random(&[1, 6, 1, 32])?, random(&[1, 2, 1, 32])?);
    times.measure("rotate", || {
        rotate(&queries, cos, sin)?;
        rotate(&keys, cos, sin)
    })?;
    times.measure("cos_sin", || rotary.cos_sin(&positions))
}

pub fn report(times: &Times, _: &Path) -> Result<()> {
    let (rotate, cos_sin) = (times.of("rotate")?, times.of("cos_sin")?);
    let all = shown(LAYERS * rotate);
    println!("rotating queries and keys: {} per layer, {all} in all", shown(rotate));
    println!("cosines and sines, once per pass: {}", shown(cos_sin));
    Ok(())
}
