//! Day 3: the loss without norms and without a nonlinearity; the times of norms, activations and
//! the MLP, for 256 tokens at story-3m's width, 192, with 512 inside the MLP.

use crate::probe::{Piece, Probe};
use crate::shared::{loss, random};
use crate::tally::Tally;
use crate::times::Times;
use anyhow::Result;
use candecode::day03_norms_and_mlps::{
    gelu_exact, gelu_tanh, layer_norm, rms_norm, silu, swiglu, Projection,
};
use candecode::kit::Weight;
use candecode_engine::operations;
use std::path::Path;

pub fn count(tally: &mut Tally) -> Result<()> {
    let of = |without| -> Result<String> { Ok(format!("{:.2}", loss(&Probe::story(without)?.0)?)) };
    let yours = of(None)?;
    tally.add("loss over six stories; before: no norms", of(Some(Piece::Norms))?, &yours);
    tally.add("the same; before: MLPs without silu", of(Some(Piece::Bend))?, &yours);
    Ok(())
}

pub fn measure(times: &mut Times) -> Result<()> {
    let (x, inside) = (random(&[1, 256, 192])?, random(&[1, 256, 512])?);
    let (weight, bias) = (random(&[192])?, random(&[192])?);
    let projection = |out: usize, inner: usize| -> Result<Projection> {
        let weight = Weight::new(random(&[out, inner])?)?;
        Ok(Projection { weight, bias: None, ops: operations::plain() })
    };
    let (gate, up, down) = (projection(512, 192)?, projection(512, 192)?, projection(192, 512)?);
    times.measure("rms_norm", || rms_norm(&x, &weight, 1e-6))?;
    times.measure("layer_norm", || layer_norm(&x, &weight, &bias, 1e-5))?;
    times.measure("silu", || silu(&inside))?;
    times.measure("gelu_exact", || gelu_exact(&inside))?;
    times.measure("gelu_tanh", || gelu_tanh(&inside))?;
    times.measure("swiglu", || swiglu(&x, &gate, &up, &down))
}

pub fn report(times: &Times, _: &Path) -> Result<()> {
    let mlp = times.of("swiglu")?;
    println!("function         ms  of the MLP");
    for name in ["rms_norm", "layer_norm", "silu", "gelu_exact", "gelu_tanh", "swiglu"] {
        let seconds = times.of(name)?;
        println!("{name:<11} {:7.3} {:9.0} %", 1e3 * seconds, 100.0 * seconds / mlp);
    }
    Ok(())
}
