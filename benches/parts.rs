//! The parts: a product at a real model's shapes, in bytes of weights a second, attention against
//! the context, and the functions of days 0 to 6 with plain tensor operations.

use candecode::day00_warm_up::embed;
use candecode::day01_attention::{
    causal_mask, merge_heads, multi_head_attention, scaled_dot_product_attention, split_heads,
    MultiHeadWeights,
};
use candecode::day02_positions::rotate;
use candecode::day03_norms_and_mlps::{
    gelu_exact, gelu_tanh, layer_norm, rms_norm, silu, swiglu, Projection,
};
use candecode::day04_attention_block::grouped_attention;
use candecode::day05_model::Transformer;
use candecode::engine::load::load_transformer;
use candecode::engine::operations;
use candecode::kernels::{self, bandwidth};
use candecode::kit::{Logits, Model, NoCache, Step, Weight};
use candle_core::{DType, Device, Tensor};
use criterion::{criterion_group, Criterion, SamplingMode, Throughput};
use std::time::{Duration, Instant};

fn group<'a>(
    c: &'a mut Criterion,
    name: &str,
) -> criterion::BenchmarkGroup<'a, criterion::measurement::WallTime> {
    let mut group = c.benchmark_group(name);
    group.sampling_mode(SamplingMode::Flat);
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400));
    group
}

fn random(shape: &[usize]) -> Tensor {
    Tensor::randn(0f32, 1.0, shape, &Device::Cpu).expect("numbers")
}

/// SmolLM2-135M's: Q, K and V; gate and up; down; the head, which fits no cache. Beside them, the
/// roof.
fn linears(c: &mut Criterion) {
    println!("memory reads {:.1} GB/s", bandwidth(5) / 1e9);
    let mut group = group(c, "parts_linear");
    for (name, inner, out) in
        [("qkv", 576, 960), ("gate_up", 576, 3072), ("down", 1536, 576), ("head", 576, 49152)]
    {
        for dtype in [DType::F32, DType::BF16] {
            let w = random(&[out, inner]).to_dtype(dtype).expect("weights");
            group.throughput(Throughput::Bytes((inner * out * dtype.size_in_bytes()) as u64));
            for rows in [1, 4, 8] {
                let x = random(&[rows, inner]);
                group.bench_function(format!("{name}_{}_{rows}", dtype.as_str()), |b| {
                    b.iter(|| kernels::linear(&x, &[&w]).expect("a product"));
                });
            }
        }
    }
    group.finish();
    println!("memory reads {:.1} GB/s", bandwidth(5) / 1e9);
}

/// One new token, 9 heads on 3, against the tokens in the cache.
fn attentions(c: &mut Criterion) {
    let mut group = group(c, "parts_attention");
    let q = random(&[1, 9, 1, 64]);
    for context in [64, 256, 1024, 4096] {
        let (k, v) = (random(&[1, 3, context, 64]), random(&[1, 3, context, 64]));
        group.throughput(Throughput::Bytes(2 * 3 * context as u64 * 64 * 4));
        group.bench_function(context.to_string(), |b| {
            b.iter(|| kernels::attention(&q, &k, &v, None).expect("attention"));
        });
    }
    group.finish();
}

/// Day 3's functions for 256 tokens of story-3m's width, 192, and with 512 numbers inside the MLP.
fn norms_and_mlps(c: &mut Criterion) {
    let mut group = group(c, "parts_day3");
    let (x, inside) = (random(&[1, 256, 192]), random(&[1, 256, 512]));
    let (weight, bias) = (random(&[192]), random(&[192]));
    let projection = |out: usize, inner: usize| Projection {
        weight: Weight::new(random(&[out, inner])).expect("a matrix"),
        bias: None,
        ops: operations::plain(),
    };
    let [gate, up, down] = [projection(512, 192), projection(512, 192), projection(192, 512)];
    group.bench_function("rms_norm", |b| {
        b.iter(|| rms_norm(&x, &weight, 1e-6).expect("a norm"));
    });
    group.bench_function("layer_norm", |b| {
        b.iter(|| layer_norm(&x, &weight, &bias, 1e-5).expect("a norm"));
    });
    group.bench_function("silu", |b| b.iter(|| silu(&inside).expect("an activation")));
    group.bench_function("gelu_exact", |b| b.iter(|| gelu_exact(&inside).expect("an activation")));
    group.bench_function("gelu_tanh", |b| b.iter(|| gelu_tanh(&inside).expect("an activation")));
    group.bench_function("swiglu", |b| {
        b.iter(|| swiglu(&x, &gate, &up, &down).expect("an MLP"));
    });
    group.finish();
}

/// Day 4's grouped attention, and the same with each key/value head copied for its group first.
fn groups(c: &mut Criterion) {
    let mut group = group(c, "parts_day4");
    for (heads, kv_heads, width, new, seen) in
        [(6, 2, 32, 1, 256), (32, 8, 128, 1, 1024), (32, 8, 128, 1, 4096), (32, 8, 128, 64, 1024)]
    {
        let q = random(&[1, heads, new, width]);
        let (k, v) = (random(&[1, kv_heads, seen, width]), random(&[1, kv_heads, seen, width]));
        let copied = |x: &Tensor| -> candle_core::Result<Tensor> {
            let shape = (1, kv_heads, heads / kv_heads, seen, width);
            x.unsqueeze(2)?.broadcast_as(shape)?.contiguous()?.reshape((1, heads, seen, width))
        };
        let name = format!("{heads}_{kv_heads}_{width}_{new}_{seen}");
        group.bench_function(format!("{name}_view"), |b| {
            b.iter(|| grouped_attention(&q, &k, &v, None).expect("attention"));
        });
        group.bench_function(format!("{name}_copied"), |b| {
            b.iter(|| {
                let (k, v) = (copied(&k).expect("keys"), copied(&v).expect("values"));
                scaled_dot_product_attention(&q, &k, &v, None).expect("attention")
            });
        });
    }
    group.finish();
}

/// Day 1's attention of story-3m's width, 192, and six heads: the four projections, and all between.
fn day1(c: &mut Criterion) {
    let mut group = group(c, "parts_day1");
    let matrix = || random(&[192, 192]);
    let w = MultiHeadWeights { q: matrix(), k: matrix(), v: matrix(), o: matrix() };
    for tokens in [64, 256, 1024] {
        let x = random(&[1, tokens, 192]);
        let mask = causal_mask(tokens, 0, &Device::Cpu).expect("a mask");
        let heads = split_heads(&x, 6).expect("heads"); // (1, 6, T, 32)
        group.bench_function(format!("all_{tokens}"), |b| {
            b.iter(|| multi_head_attention(&x, &w, 6, Some(&mask)).expect("attention"));
        });
        group.bench_function(format!("projections_{tokens}"), |b| {
            b.iter(|| {
                let project = |w: &Tensor| x.broadcast_matmul(&w.t()?);
                [&w.q, &w.k, &w.v, &w.o].map(|w| project(w).expect("a projection"))
            });
        });
        group.bench_function(format!("attention_{tokens}"), |b| {
            b.iter(|| {
                let out = scaled_dot_product_attention(&heads, &heads, &heads, Some(&mask));
                merge_heads(&out.expect("attention")).expect("one tensor")
            });
        });
        let keys = heads.t().and_then(|keys| keys.contiguous()).expect("keys");
        let scores = heads.matmul(&keys).expect("scores"); // (1, 6, T, T)
        group.bench_function(format!("both_products_{tokens}"), |b| {
            b.iter(|| heads.matmul(&keys).and_then(|s| s.matmul(&heads)).expect("products"));
        });
        group.bench_function(format!("exp_{tokens}"), |b| b.iter(|| scores.exp().expect("exp")));
    }
    group.finish();
}

/// The parts of story-3m in f32: days 0, 2 and 5 over one token, and day 6's passes without a cache.
fn story(c: &mut Criterion) {
    let folder = benches::root().join("models/story-3m");
    let model = load_transformer(&folder, DType::F32, &Device::Cpu, &operations::plain())
        .expect("story-3m");
    let mut group = group(c, "parts_story");
    let table = &model.embed_tokens.tensor().expect("the table");
    let ids = Tensor::arange(0u32, 256, &Device::Cpu).and_then(|ids| ids.unsqueeze(0));
    let ids = ids.expect("ids");
    group.bench_function("look_up_256", |b| b.iter(|| embed(table, &ids).expect("vectors")));
    let one_hot = Tensor::eye(2048, DType::F32, &Device::Cpu).and_then(|eye| eye.narrow(0, 0, 256));
    let one_hot = one_hot.expect("rows");
    group.bench_function("look_up_256_as_a_product", |b| {
        b.iter(|| one_hot.matmul(table).expect("vectors"));
    });
    one_token(&mut group, &model);
    for tokens in [50, 64, 100, 200, 256, 300, 400, 500] {
        for (name, logits) in [("last", Logits::Last(1)), ("all", Logits::All)] {
            if name == "last" || [64, 256].contains(&tokens) {
                group.bench_function(format!("pass_{tokens}_{name}"), |b| {
                    let ids: Vec<u32> = (4..4 + tokens).collect();
                    let step = Step::new(&model, &ids, 0).expect("a step");
                    let step = step.with_logits(logits.clone());
                    b.iter(|| model.forward(&step, &mut NoCache).expect("logits"));
                });
            }
        }
    }
    group.finish();
}

/// One token through each part of the model, and through the whole.
fn one_token(
    group: &mut criterion::BenchmarkGroup<'_, criterion::measurement::WallTime>,
    model: &Transformer,
) {
    let step = Step::new(model, &[428], 0).expect("a step");
    let rotary = model.rotary_emb.as_ref().expect("RoPE");
    let angles = || rotary.cos_sin(&step.positions).expect("angles");
    let cos_sin = angles();
    let (queries, keys) = (random(&[1, 6, 1, 32]), random(&[1, 2, 1, 32]));
    group.bench_function("pass_1", |b| {
        b.iter(|| model.forward(&step, &mut NoCache).expect("logits"));
    });
    for (i, name) in ["norms", "attentions", "mlps", "head"].into_iter().enumerate() {
        group.bench_function(format!("{name}_1"), |b| {
            b.iter_custom(|passes| (0..passes).map(|_| stages(model, &step)[i]).sum());
        });
    }
    group.bench_function("cos_sin_1", |b| b.iter(angles));
    group.bench_function("rotate_1", |b| {
        let (cos, sin) = &cos_sin;
        b.iter(|| [&queries, &keys].map(|x| rotate(x, cos, sin).expect("turned")));
    });
}

/// One pass: how long its norms, its attentions, its MLPs and its head take, the norm before the head
/// included.
fn stages(model: &Transformer, step: &Step) -> [Duration; 4] {
    let mut spent = [Duration::ZERO; 4];
    let mut timed = |stage: usize, run: &dyn Fn() -> candle_core::Result<Tensor>| {
        let began = Instant::now();
        let x = run().expect("a stage");
        spent[stage] += began.elapsed();
        x
    };
    let rotary = model.rotary_emb.as_ref().expect("RoPE");
    let cos_sin = rotary.cos_sin(&step.positions).expect("angles");
    let mut x = model.embed(step).expect("a vector"); // (1, 1, 192)
    for layer in &model.layers {
        let normed = timed(0, &|| layer.attention_norm.forward(&x));
        let attention = &layer.attention;
        let update = timed(1, &|| attention.forward(&normed, step, Some(&cos_sin), &mut NoCache));
        x = (x + update).expect("a sum");
        let normed = timed(0, &|| layer.mlp_norm.forward(&x));
        let update = timed(2, &|| layer.mlp.forward(&normed));
        x = (x + update).expect("a sum");
    }
    timed(3, &|| model.head(&x));
    spent
}

criterion_group!(benches, day1, story, norms_and_mlps, groups, linears, attentions);
benches::benchmarks!(benches);
