//! The parts: functions of days 0 to 6, one by one, with plain tensor operations.

use crate::shared::{random, root};
use crate::times::Times;
use anyhow::{Context as _, Result};
use candecode::day00_warm_up::embed;
use candecode::day01_attention::{
    causal_mask, merge_heads, scaled_dot_product_attention, split_heads,
};
use candecode::day02_positions::rotate;
use candecode::day03_norms_and_mlps::{
    gelu_exact, gelu_tanh, layer_norm, rms_norm, silu, swiglu, Projection,
};
use candecode::day04_attention_block::grouped_attention;
use candecode::day05_model::Transformer;
use candecode::kit::{Logits, Model, NoCache, Step, Weight};
use candecode_engine::load::load_transformer;
use candecode_engine::operations;
use candle_core::{DType, Device, Tensor};
use std::time::Instant;

pub fn measure(times: &mut Times) -> Result<()> {
    day1(times)?;
    day3(times)?;
    day4(times)?;
    story(times)
}

/// Measures day 1's attention at story-3m's width, 192, with six heads: the four projections, and
/// everything between them.
fn day1(times: &mut Times) -> Result<()> {
    let [q, k, v, o] = [(); 4].map(|()| random(&[192, 192]));
    let weights = [q?, k?, v?, o?];
    for tokens in [64, 256, 1024] {
        let x = random(&[1, tokens, 192])?;
        let mask = causal_mask(tokens, 0, &Device::Cpu)?;
        let heads = split_heads(&x, 6)?; // (1, 6, T, 32)
        let mut measure = |name: &str, work: &dyn Fn() -> candle_core::Result<Tensor>| {
            times.measure(&format!("parts_day1/{name}_{tokens}"), work)
        };
        measure("projections", &|| {
            let project = |w: &Tensor| x.broadcast_matmul(&w.t()?);
            let [q, k, v, o] = &weights;
            project(q)?;
            project(k)?;
            project(v)?;
            project(o)
        })?;
        measure("attention", &|| {
            merge_heads(&scaled_dot_product_attention(&heads, &heads, &heads, Some(&mask))?)
        })?;
        let keys = heads.t()?.contiguous()?;
        let scores = heads.matmul(&keys)?; // (1, 6, T, T)
        measure("both_products", &|| heads.matmul(&keys)?.matmul(&heads))?;
        measure("exp", &|| scores.exp())?;
    }
    Ok(())
}

/// Measures day 3's functions for 256 tokens at story-3m's width, 192, with a hidden size of 512
/// inside the MLP.
fn day3(times: &mut Times) -> Result<()> {
    let (x, inside) = (random(&[1, 256, 192])?, random(&[1, 256, 512])?);
    let (weight, bias) = (random(&[192])?, random(&[192])?);
    let projection = |out: usize, inner: usize| -> Result<Projection> {
        let weight = Weight::new(random(&[out, inner])?)?;
        Ok(Projection { weight, bias: None, ops: operations::plain() })
    };
    let (gate, up, down) = (projection(512, 192)?, projection(512, 192)?, projection(192, 512)?);
    times.measure("parts_day3/rms_norm", || rms_norm(&x, &weight, 1e-6))?;
    times.measure("parts_day3/layer_norm", || layer_norm(&x, &weight, &bias, 1e-5))?;
    times.measure("parts_day3/silu", || silu(&inside))?;
    times.measure("parts_day3/gelu_exact", || gelu_exact(&inside))?;
    times.measure("parts_day3/gelu_tanh", || gelu_tanh(&inside))?;
    times.measure("parts_day3/swiglu", || swiglu(&x, &gate, &up, &down))
}

/// Measures day 4's grouped attention, with a view of each KV head and with copies for its group.
fn day4(times: &mut Times) -> Result<()> {
    for (heads, kv_heads, width, new, seen) in
        [(6, 2, 32, 1, 256), (32, 8, 128, 1, 1024), (32, 8, 128, 1, 4096), (32, 8, 128, 64, 1024)]
    {
        let q = random(&[1, heads, new, width])?;
        let (k, v) = (random(&[1, kv_heads, seen, width])?, random(&[1, kv_heads, seen, width])?);
        let copied = |x: &Tensor| -> candle_core::Result<Tensor> {
            let shape = (1, kv_heads, heads / kv_heads, seen, width);
            x.unsqueeze(2)?.broadcast_as(shape)?.contiguous()?.reshape((1, heads, seen, width))
        };
        let name = format!("parts_day4/{heads}_{kv_heads}_{width}_{new}_{seen}");
        times.measure(&format!("{name}_view"), || grouped_attention(&q, &k, &v, None))?;
        times.measure(&format!("{name}_copied"), || {
            scaled_dot_product_attention(&q, &copied(&k)?, &copied(&v)?, None)
        })?;
    }
    Ok(())
}

/// Measures the parts of story-3m in f32: days 0, 2 and 5 on one token, and day 6's passes without
/// a cache.
fn story(times: &mut Times) -> Result<()> {
    let folder = root().join("models/story-3m");
    let model = load_transformer(&folder, DType::F32, &Device::Cpu, &operations::plain())?;
    let table = &model.embed_tokens.tensor()?;
    let ids = Tensor::arange(0u32, 256, &Device::Cpu)?.unsqueeze(0)?;
    times.measure("parts_story/look_up_256", || embed(table, &ids))?;
    let one_hot = Tensor::eye(2048, DType::F32, &Device::Cpu)?.narrow(0, 0, 256)?;
    times.measure("parts_story/look_up_256_as_a_product", || one_hot.matmul(table))?;
    one_token(times, &model)?;
    for tokens in [50, 64, 100, 200, 256, 300, 400, 500] {
        for (name, logits) in [("last", Logits::Last(1)), ("all", Logits::All)] {
            if name == "last" || [64, 256].contains(&tokens) {
                let ids: Vec<u32> = (4..4 + tokens).collect();
                let step = Step::new(&model, &ids, 0)?.with_logits(logits);
                let name = format!("parts_story/pass_{tokens}_{name}");
                times.measure(&name, || model.forward(&step, &mut NoCache))?;
            }
        }
    }
    Ok(())
}

/// Measures each part of the model on one token, and then the whole model.
fn one_token(times: &mut Times, model: &Transformer) -> Result<()> {
    let step = Step::new(model, &[428], 0)?;
    let rotary = model.rotary_emb.as_ref().context("story-3m has RoPE")?;
    let (cos, sin) = &rotary.cos_sin(&step.positions)?;
    let (queries, keys) = (random(&[1, 6, 1, 32])?, random(&[1, 2, 1, 32])?);
    times.measure("parts_story/pass_1", || model.forward(&step, &mut NoCache))?;
    for (i, name) in ["norms", "attentions", "mlps", "head"].into_iter().enumerate() {
        times.samples(&format!("parts_story/{name}_1"), || Ok(stages(model, &step)?[i]))?;
    }
    times.measure("parts_story/cos_sin_1", || rotary.cos_sin(&step.positions))?;
    times.measure("parts_story/rotate_1", || {
        rotate(&queries, cos, sin)?;
        rotate(&keys, cos, sin)
    })
}

/// Runs one pass. Returns the seconds spent in the norms, the attentions, the MLPs, and the head
/// (including the final norm).
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
