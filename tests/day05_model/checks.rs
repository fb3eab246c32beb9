//! Day 5's checks: the model.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day05_model;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day05_model.rs"]
mod day05_model;

pub use candecode::day02_positions::CosSin;
use candecode::day02_positions::RotaryEmbedding;
use candecode::day03_norms_and_mlps::Projection;
use candecode::day04_attention_block::Attention;
use candecode::day05_model::{DecoderLayer, FusedAttention, Mlp, Norm, SelfAttention, Transformer};
use candecode::kit::{Cache, Family, Logits, Model, ModelConfig, NoCache, Step, Weight};
use candecode_engine::load;
use candecode_engine::operations::plain;
use candle_core::{DType, Error, Result, Tensor};
use frame::{
    close, device, equal, equal_tokens, golden, golden_json, models_dir, ops, small_model, Keep,
    Likely, Outcome, Random,
};

// The tolerance the course promises. Logits are sums of 192 products of numbers up to 20; torch and
// candle add in different orders. The largest difference observed is 1.5e-5.
const LOGITS: f32 = 1e-4;
// The tolerance for one stage alone: sums of up to 512 products of numbers below 10. The largest
// difference observed is 2e-6.
const STAGE: f32 = 5e-5;

/// The models that don't need task 5.6: the trained ones, and small random ones that cover the
/// rest: an untied head, Llama 3's RoPE and biases everywhere; equal numbers of query and key/value
/// heads; QK-norm and heads wider than the residual stream.
const ROPE_MODELS: [&str; 5] =
    ["story-3m", "story-230k", "tiny-llama", "tiny-llama-tied", "tiny-qwen3"];
const GPT2: &str = "story-gpt2-1m";

/// A model's public stages, each of which can be run alone.
pub trait Seams {
    fn model(&self) -> &dyn Model;
    fn embed(&self, step: &Step) -> Result<Tensor>;
    /// Runs a whole layer with an all-zero MLP, so that only its first half has an effect.
    fn attend(&self, layer: usize, x: &Tensor, step: &Step) -> Result<Tensor>;
    /// Runs a whole layer with an all-zero attention, so that only its second half has an effect.
    fn feed_forward(&self, layer: usize, x: &Tensor, step: &Step) -> Result<Tensor>;
    fn head(&self, x: &Tensor) -> Result<Tensor>;
    fn lens(&self, step: &Step, cache: &mut dyn Cache) -> Result<Vec<Tensor>>;
}

/// The day 5 functions under test. Models are passed as the crate's structs, because their fields
/// aren't part of a task.
#[derive(Clone, Copy)]
pub struct Day {
    pub build: fn(Transformer) -> Result<Box<dyn Seams>>,
    pub norm: fn(Norm, &Tensor) -> Result<Tensor>,
    pub fused: fn(FusedAttention, &Tensor, &Step, &mut dyn Cache) -> Result<Tensor>,
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use candecode::day05_model as given;
        use candecode::kit::{Cache, Model, NoCache, Step};
        use candle_core::{Result, Tensor};
        use $($path)::+ as code;
        fn norm(norm: given::Norm) -> code::Norm {
            match norm {
                given::Norm::Rms { weight, eps, ops } => code::Norm::Rms { weight, eps, ops },
                given::Norm::Layer { weight, bias, eps, ops } => {
                    code::Norm::Layer { weight, bias, eps, ops }
                }
            }
        }
        fn fused(a: given::FusedAttention) -> code::FusedAttention {
            code::FusedAttention {
                layer_idx: a.layer_idx,
                num_heads: a.num_heads,
                c_attn: a.c_attn,
                c_proj: a.c_proj,
                ops: a.ops,
            }
        }
        fn layer(layer: given::DecoderLayer) -> code::DecoderLayer {
            code::DecoderLayer {
                attention_norm: norm(layer.attention_norm),
                attention: match layer.attention {
                    given::SelfAttention::Grouped(a) => code::SelfAttention::Grouped(a),
                    given::SelfAttention::Fused(a) => code::SelfAttention::Fused(fused(a)),
                },
                mlp_norm: norm(layer.mlp_norm),
                mlp: match layer.mlp {
                    given::Mlp::Swiglu { gate_proj, up_proj, down_proj } => {
                        code::Mlp::Swiglu { gate_proj, up_proj, down_proj }
                    }
                    given::Mlp::Gelu { c_fc, c_proj } => code::Mlp::Gelu { c_fc, c_proj },
                },
            }
        }
        struct Built {
            model: code::Transformer,
            without_mlp: Vec<code::DecoderLayer>,
            without_attention: Vec<code::DecoderLayer>,
        }
        impl Built {
            fn cos_sin(&self, step: &Step) -> Result<Option<crate::CosSin>> {
                let rotary = self.model.rotary_emb.as_ref();
                rotary.map(|rotary| rotary.cos_sin(&step.positions)).transpose()
            }
        }
        impl crate::Seams for Built {
            fn model(&self) -> &dyn Model {
                &self.model
            }
            fn embed(&self, step: &Step) -> Result<Tensor> {
                self.model.embed(step)
            }
            fn attend(&self, layer: usize, x: &Tensor, step: &Step) -> Result<Tensor> {
                let cos_sin = self.cos_sin(step)?;
                self.without_mlp[layer].forward(x, step, cos_sin.as_ref(), &mut NoCache)
            }
            fn feed_forward(&self, layer: usize, x: &Tensor, step: &Step) -> Result<Tensor> {
                let cos_sin = self.cos_sin(step)?;
                self.without_attention[layer].forward(x, step, cos_sin.as_ref(), &mut NoCache)
            }
            fn head(&self, x: &Tensor) -> Result<Tensor> {
                self.model.head(x)
            }
            fn lens(&self, step: &Step, cache: &mut dyn Cache) -> Result<Vec<Tensor>> {
                self.model.lens(step, cache)
            }
        }
        fn build(t: given::Transformer) -> Result<Box<dyn crate::Seams>> {
            let (mut without_mlp, mut without_attention) = (Vec::new(), Vec::new());
            for one in &t.layers {
                without_mlp.push(layer(crate::without_mlp(one)?));
                without_attention.push(layer(crate::without_attention(one)?));
            }
            let model = code::Transformer {
                config: t.config,
                device: t.device,
                embed_tokens: t.embed_tokens,
                wpe: t.wpe,
                rotary_emb: t.rotary_emb,
                layers: t.layers.into_iter().map(layer).collect(),
                norm: norm(t.norm),
                lm_head: t.lm_head,
                ops: t.ops,
            };
            Ok(Box::new(Built { model, without_mlp, without_attention }))
        }
        crate::Day {
            build,
            norm: |n, x| norm(n).forward(x),
            fused: |a, x, step, cache| fused(a).forward(x, step, cache),
        }
    }};
}

frame::checks! {
    day05_model:
    5.1: zero_attention_output_leaves_x_unchanged, the_attention_half_by_hand,
        each_half_has_its_norm, zero_mlp_output_leaves_x_unchanged,
        the_attention_half_equals_transformers, the_mlp_half_equals_transformers;
    5.2: embed_by_hand, embed_equals_transformers, a_bf16_table_is_widened;
    5.3: head_by_hand, head_equals_transformers;
    5.4: logits_equal_transformers, a_long_text_equals_transformers,
        forward_returns_only_the_requested_logits, pieces_equal_the_whole, padding_changes_nothing;
    5.5: the_lens_equals_a_model_truncated_at_each_depth;
    5.6: fused_attention_by_hand, layers_equal_transformers,
        logits_equal_transformers = gpt2_logits_equal_hf,
        a_long_text_equals_transformers = gpt2_long_text_equals_hf,
        pieces_and_padding_change_nothing;
}

/// Returns a projection of the same size that returns zeros.
fn zeros(projection: &Projection) -> Result<Projection> {
    let weight = Weight::new(projection.weight.tensor()?.zeros_like()?)?;
    Ok(Projection { weight, bias: None, ops: projection.ops.clone() })
}

/// Returns the layer with an MLP that returns zeros.
fn without_mlp(layer: &DecoderLayer) -> Result<DecoderLayer> {
    let mut layer = layer.clone();
    match &mut layer.mlp {
        Mlp::Swiglu { down_proj, .. } => *down_proj = zeros(down_proj)?,
        Mlp::Gelu { c_proj, .. } => *c_proj = zeros(c_proj)?,
    }
    Ok(layer)
}

/// Returns the layer with attention that returns zeros.
fn without_attention(layer: &DecoderLayer) -> Result<DecoderLayer> {
    let mut layer = layer.clone();
    match &mut layer.attention {
        SelfAttention::Grouped(attention) => attention.o_proj = zeros(&attention.o_proj)?,
        SelfAttention::Fused(attention) => attention.c_proj = zeros(&attention.c_proj)?,
    }
    Ok(layer)
}

/// Loads a story model, or a small random one.
fn load(day: &Day, name: &str, dtype: DType) -> Result<Box<dyn Seams>> {
    (day.build)(transformer(name, dtype)?)
}

/// Loads the weights of a model for [`load`] into the crate's structs.
fn transformer(name: &str, dtype: DType) -> Result<Transformer> {
    let dir = if name.starts_with("tiny") { small_model(name) } else { models_dir()?.join(name) };
    let message = |e: anyhow::Error| Error::Msg(format!("{e:#}"));
    let config = candecode_formats::read_config(&dir).map_err(message)?;
    let weights = candecode_formats::open_weights(&dir, dtype, &device()?).map_err(message)?;
    match config.family {
        Family::Gpt2 => load::gpt2(&weights, config, &ops()?),
        _ => load::llama(&weights, config, &ops()?),
    }
}

/// Returns the model's number of layers.
fn depth(model: &dyn Seams) -> usize {
    model.model().config().num_hidden_layers
}

/// Returns the ids used for a model's goldens, and their step.
fn golden_step(model: &dyn Seams, name: &str) -> Result<(Vec<u32>, Step)> {
    let ids = golden("day05", &format!("{name}.ids"))?.flatten_all()?.to_vec1::<u32>()?;
    let step = Step::new(model.model(), &ids, 0)?;
    Ok((ids, step))
}

fn of(name: &str, stage: &str) -> Result<Tensor> {
    golden("day05", &format!("{name}.{stage}"))
}

const SEAM: &str = "on the same input as in transformers";

fn check_embed(model: &dyn Seams, name: &str, note: &str) -> Outcome {
    let (_, step) = golden_step(model, name)?;
    close(&format!("{name}, embed{note}"), model.embed(&step), &of(name, "x.0")?, STAGE)
}

fn check_attend(model: &dyn Seams, name: &str, layer: usize, note: &str) -> Outcome {
    let (_, step) = golden_step(model, name)?;
    let (x, want) = (of(name, &format!("x.{layer}"))?, of(name, &format!("attend.{layer}"))?);
    let got = model.attend(layer, &x, &step);
    close(&format!("{name}, layer {layer}, the attention half{note}"), got, &want, STAGE)
}

fn check_feed_forward(model: &dyn Seams, name: &str, layer: usize, note: &str) -> Outcome {
    let (_, step) = golden_step(model, name)?;
    let (x, want) = (of(name, &format!("attend.{layer}"))?, of(name, &format!("x.{}", layer + 1))?);
    let got = model.feed_forward(layer, &x, &step);
    close(&format!("{name}, layer {layer}, the MLP half{note}"), got, &want, STAGE)
}

fn check_head(model: &dyn Seams, name: &str, note: &str) -> Outcome {
    let x = of(name, &format!("x.{}", depth(model)))?;
    close(&format!("{name}, head{note}"), model.head(&x), &of(name, "logits")?, LOGITS)
}

/// Runs every stage on its golden input, in order, and reports the first wrong one.
fn stages(model: &dyn Seams, name: &str) -> Outcome {
    let note = ": the first wrong stage";
    check_embed(model, name, note)?;
    for layer in 0..depth(model) {
        check_attend(model, name, layer, note)?;
        check_feed_forward(model, name, layer, note)?;
    }
    check_head(model, name, note)
}

/// Checks the logits of a whole pass. If they differ, the failure is the first wrong stage.
fn check_logits(day: &Day, name: &str) -> Outcome {
    let model = load(day, name, DType::F32)?;
    let (ids, step) = golden_step(&*model, name)?;
    let got = model.model().forward(&step, &mut NoCache);
    let found = close(
        &format!("{name}, logits of {} tokens", ids.len()),
        got,
        &of(name, "logits")?,
        LOGITS,
    );
    if found.is_err() {
        stages(&*model, name)?;
    }
    found.likely(
        "every stage is right on its own, so the mistake is in forward: in their order or inputs",
    )
}

/// Checks a text of 128 tokens: the best token at every position, and numbers that would expose any
/// other difference.
fn check_long_text(day: &Day, name: &str) -> Outcome {
    let found = long_text(day, name);
    if found.is_err() && check_logits(day, name).is_err() {
        return found.likely("the short text is wrong, too: start with its logits");
    }
    found.likely(
        "the short text is right, so the mistake depends on the length: check positions and mask",
    )
}

fn long_text(day: &Day, name: &str) -> Outcome {
    let model = load(day, name, DType::F32)?;
    let json = golden_json("day05")?;
    let numbers = |key: &str| -> Result<Vec<u32>> {
        let list =
            json[key].as_array().ok_or_else(|| Error::Msg(format!("day05.json: no {key}")))?;
        Ok(list.iter().filter_map(|id| id.as_u64()).map(|id| id as u32).collect())
    };
    let step = Step::new(model.model(), &numbers("text")?, 0)?;
    let logits = model.model().forward(&step, &mut NoCache)?.squeeze(0)?;
    let input = |what: &str| format!("{name}, a story of 128 tokens: {what}");
    let columns: Vec<u32> = (0..logits.dim(1)? as u32).step_by(41).collect();
    let columns = Tensor::new(columns, logits.device())?;
    close(
        &input("every 41st logit"),
        logits.index_select(&columns, 1),
        &of(name, "long")?,
        LOGITS,
    )?;
    close(&input("the best logit"), logits.max(1), &of(name, "best")?, LOGITS)?;
    close(&input("ln of the sum of exp"), logits.log_sum_exp(1), &of(name, "sum")?, LOGITS)?;
    let best = logits.argmax(1)?.to_vec1::<u32>();
    equal_tokens(
        &input("argmax at every position"),
        best,
        &numbers(&format!("{name}.argmax"))?,
        &[],
    )
}

/// Checks the given `Norm::forward`.
fn norms_by_hand(day: &Day) -> Outcome {
    let vector = |a: f32, b: f32| Tensor::new(&[a, b], &device()?);
    let row = |a: f32, b: f32| Tensor::new(&[[[a, b]]], &device()?);
    let rms = |eps| Ok::<_, Error>(Norm::Rms { weight: vector(1.0, 2.0)?, eps, ops: plain() });
    let layer = |eps| {
        let (weight, bias) = (vector(1.0, 2.0)?, vector(10.0, 20.0)?);
        Ok::<_, Error>(Norm::Layer { weight, bias, eps, ops: plain() })
    };
    let x = row(3.0, 4.0)?; // mean square 12.5
    let says = "Norm::Rms of [3, 4], weight [1, 2]";
    let got = (day.norm)(rms(1e-6)?, &x);
    close(&format!("{says}, eps 1e-6"), got, &row(0.848528, 2.262742)?, 1e-5)?;
    let got = (day.norm)(rms(12.5)?, &x); // √(12.5 + 12.5) = 5
    close(&format!("{says}, eps 12.5"), got, &row(0.6, 1.6)?, 1e-5)?;
    let x = row(1.0, 3.0)?; // mean 2, variance 1
    let says = "Norm::Layer of [1, 3], weight [1, 2], bias [10, 20]";
    let got = (day.norm)(layer(1e-6)?, &x);
    close(&format!("{says}, eps 1e-6"), got, &row(9.0, 22.0)?, 1e-5)?;
    let got = (day.norm)(layer(3.0)?, &x); // √(1 + 3) = 2
    close(&format!("{says}, eps 3"), got, &row(9.5, 21.0)?, 1e-5)
}

/// Returns a stack of one layer with one head, on a stream of width 2. Every matrix is the
/// identity, except that writes to the stream are multiplied by `back`. The vocabulary is larger
/// than the width by two, and the head is separate if `untied`.
fn small(back: f32, positions: bool, untied: bool) -> Result<Transformer> {
    let device = device()?;
    let matrix =
        |rows: &[[f32; 2]]| Weight::new(Tensor::from_vec(rows.concat(), (rows.len(), 2), &device)?);
    let times = |factor: f32| -> Result<Projection> {
        Ok(Projection { weight: matrix(&[[factor, 0.], [0., factor]])?, bias: None, ops: plain() })
    };
    let norm = |a: f32, b: f32| -> Result<Norm> {
        Ok(Norm::Rms { weight: Tensor::new(&[a, b], &device)?, eps: 1e-6, ops: plain() })
    };
    let attention = Attention {
        layer_idx: 0,
        num_heads: 1,
        num_kv_heads: 1,
        q_proj: times(1.0)?,
        k_proj: times(1.0)?,
        v_proj: times(1.0)?,
        o_proj: times(back)?,
        qk_norm: None,
        norm_eps: 1e-6,
        ops: plain(),
    };
    let layer = DecoderLayer {
        attention_norm: norm(1.0, 1.0)?,
        attention: SelfAttention::Grouped(attention),
        mlp_norm: norm(1.0, 1.0)?,
        mlp: Mlp::Swiglu { gate_proj: times(1.0)?, up_proj: times(1.0)?, down_proj: times(back)? },
    };
    let mut config = ModelConfig::from_json(
        r#"{"model_type": "llama", "vocab_size": 4, "hidden_size": 2, "intermediate_size": 2,
            "num_hidden_layers": 1, "num_attention_heads": 1, "max_position_embeddings": 4,
            "tie_word_embeddings": true}"#,
    )
    .map_err(|e| Error::Msg(format!("{e:#}")))?;
    config.tie_word_embeddings = !untied;
    Ok(Transformer {
        config,
        device: device.clone(),
        embed_tokens: matrix(&[[0., 1.], [10., 11.], [20., 21.], [30., 31.]])?,
        wpe: if positions {
            Some(Tensor::new(&[[0.5f32, 0.5], [0.1, 0.2], [0.3, 0.4], [0., 0.]], &device)?)
        } else {
            None
        },
        rotary_emb: Some(RotaryEmbedding::new(2, 10_000.0, None, &device)?),
        layers: vec![layer],
        norm: norm(1.0, 2.0)?,
        lm_head: if untied {
            Some(matrix(&[[1., 0.], [0., 1.], [1., 1.], [-1., 0.]])?)
        } else {
            None
        },
        ops: plain(),
    })
}

/// Returns a step over the rows of `small`, at these positions.
fn small_step(model: &dyn Seams, ids: &[u32], positions: &[u32]) -> Result<Step> {
    Step::batch(model.model(), &[ids.to_vec()], &[positions.to_vec()], None)
}

fn zero_attention_output_leaves_x_unchanged(day: &Day) -> Outcome {
    let model = (day.build)(small(0.0, false, false)?)?;
    let x = Tensor::new(&[[[3f32, 4.], [5., -6.]]], &device()?)?;
    let step = small_step(&*model, &[1, 2], &[0, 1])?;
    let got = model.attend(0, &x, &step);
    close("a layer on [3, 4] and [5, -6], o_proj and down_proj all zeros", got, &x, 0.0)
        .likely("the attention's output is added to x itself, not to the normed copy")
}

fn the_attention_half_by_hand(day: &Day) -> Outcome {
    // One token sees only itself, so the attention returns the normed token: (3, 4) / √12.5 =
    // (0.8485, 1.1314).
    let model = (day.build)(small(1.0, false, false)?)?;
    let x = Tensor::new(&[[[3f32, 4.]]], &device()?)?;
    let want = Tensor::new(&[[[3.848528f32, 5.131371]]], &device()?)?;
    let step = small_step(&*model, &[1], &[0])?;
    let got = model.attend(0, &x, &step);
    close("a layer on [3, 4], down_proj all zeros, the others identities", got, &want, 1e-5)
        .likely("x + attention(norm(x))")
}

fn each_half_has_its_norm(day: &Day) -> Outcome {
    let mut transformer = small(1.0, false, false)?;
    let doubled = Tensor::new(&[2f32, 2.], &device()?)?;
    let halved = Tensor::new(&[0.5f32, 0.5], &device()?)?;
    transformer.layers[0].attention_norm = Norm::Rms { weight: doubled, eps: 1e-6, ops: plain() };
    transformer.layers[0].mlp_norm = Norm::Rms { weight: halved, eps: 1e-6, ops: plain() };
    let model = (day.build)(transformer)?;
    let x = Tensor::new(&[[[3f32, 4.]]], &device()?)?;
    let step = small_step(&*model, &[1], &[0])?;
    let input = "a layer on [3, 4], identities, attention_norm's weights 2, mlp_norm's 0.5";
    // [3, 4] normed is [0.8485, 1.1314], and the attention returns twice that.
    let want = Tensor::new(&[[[4.697056f32, 6.262742]]], &device()?)?;
    close(&format!("{input}, down_proj zeros"), model.attend(0, &x, &step), &want, 1e-5)
        .likely("the norm before the attention is attention_norm")?;
    // Half the normed vector is a = [0.4243, 0.5657], and the MLP returns SiLU(a) · a.
    let want = Tensor::new(&[[[3.10881f32, 4.204086]]], &device()?)?;
    close(&format!("{input}, o_proj zeros"), model.feed_forward(0, &x, &step), &want, 1e-5)
        .likely("the norm before the MLP is mlp_norm")?;
    norms_by_hand(day)
}

fn the_attention_half_equals_transformers(day: &Day) -> Outcome {
    for name in ROPE_MODELS {
        let model = load(day, name, DType::F32)?;
        for layer in 0..depth(&*model) {
            check_attend(&*model, name, layer, &format!(", {SEAM}"))?;
        }
    }
    Ok(())
}

fn zero_mlp_output_leaves_x_unchanged(day: &Day) -> Outcome {
    let model = (day.build)(small(0.0, false, false)?)?;
    let x = Tensor::new(&[[[3f32, 4.], [5., -6.]]], &device()?)?;
    let step = small_step(&*model, &[1, 2], &[0, 1])?;
    let got = model.feed_forward(0, &x, &step);
    close("a layer on [3, 4] and [5, -6], down_proj and o_proj all zeros", got, &x, 0.0)
        .likely("the MLP's output is added to the stream itself, not to the normed copy")
}

fn the_mlp_half_equals_transformers(day: &Day) -> Outcome {
    for name in ROPE_MODELS {
        let model = load(day, name, DType::F32)?;
        for layer in 0..depth(&*model) {
            check_feed_forward(&*model, name, layer, &format!(", {SEAM}"))?;
        }
    }
    Ok(())
}

fn embed_by_hand(day: &Day) -> Outcome {
    let table = "the table's rows are [0, 1], [10, 11], [20, 21], [30, 31]";
    let model = (day.build)(small(1.0, false, false)?)?;
    let want = Tensor::new(&[[[20f32, 21.], [0., 1.], [20., 21.]]], &device()?)?;
    let got = model.embed(&small_step(&*model, &[2, 0, 2], &[0, 1, 2])?);
    close(&format!("ids 2 0 2; {table}; no positions"), got, &want, 0.0)?;
    let model = (day.build)(small(1.0, true, false)?)?;
    let want = Tensor::new(&[[[20.1f32, 21.2], [0.3, 1.4]]], &device()?)?;
    let got = model.embed(&small_step(&*model, &[2, 0], &[1, 2])?);
    let input = format!(
        "ids 2 0 at positions 1 2; {table}; wpe has [.1, .2], [.3, .4] for positions 1 and 2"
    );
    close(&input, got, &want, 1e-5)
}

fn embed_equals_transformers(day: &Day) -> Outcome {
    for name in ROPE_MODELS.into_iter().chain([GPT2]) {
        check_embed(&*load(day, name, DType::F32)?, name, "")?;
    }
    Ok(())
}

fn a_bf16_table_is_widened(day: &Day) -> Outcome {
    for name in ["story-3m", GPT2] {
        let model = load(day, name, DType::BF16)?;
        let (_, step) = golden_step(&*model, name)?;
        let want = candecode::kit::device::activation_dtype(DType::BF16, &device()?);
        let input = format!("{name} with bf16 weights: the type of the stream");
        equal(&input, model.embed(&step).map(|x| x.dtype()), &want)?;
    }
    Ok(())
}

fn head_by_hand(day: &Day) -> Outcome {
    // The norm of (3, 4) with weight (1, 2) is (0.848528, 2.262742).
    let x = Tensor::new(&[[[3f32, 4.]]], &device()?)?;
    let want = Tensor::new(&[[[0.848528f32, 2.262742, 3.11127, -0.848528]]], &device()?)?;
    let model = (day.build)(small(1.0, false, true)?)?;
    let input = "head on [3, 4]: norm weight [1, 2], lm_head rows [1, 0], [0, 1], [1, 1], [-1, 0]";
    close(input, model.head(&x), &want, 1e-4)?;
    let want = Tensor::new(&[[[2.262742f32, 33.375442, 64.488142, 95.600842]]], &device()?)?;
    let model = (day.build)(small(1.0, false, false)?)?;
    let input =
        "head on [3, 4]: norm weight [1, 2], tied to the table [0, 1], [10, 11], [20, 21], \
        [30, 31]";
    close(input, model.head(&x), &want, 1e-4)
}

fn head_equals_transformers(day: &Day) -> Outcome {
    for name in ROPE_MODELS.into_iter().chain([GPT2]) {
        check_head(&*load(day, name, DType::F32)?, name, &format!(", {SEAM}"))?;
    }
    Ok(())
}

fn logits_equal_transformers(day: &Day) -> Outcome {
    ROPE_MODELS.into_iter().try_for_each(|name| check_logits(day, name))
}

fn a_long_text_equals_transformers(day: &Day) -> Outcome {
    ["story-3m", "story-230k"].into_iter().try_for_each(|name| check_long_text(day, name))
}

fn forward_returns_only_the_requested_logits(day: &Day) -> Outcome {
    let model = load(day, "tiny-llama", DType::F32)?;
    let rows = [vec![1, 2, 3, 4], vec![5, 6, 7, 8]];
    let positions = [vec![0, 1, 2, 3], vec![0, 1, 2, 3]];
    let step = Step::batch(model.model(), &rows, &positions, None)?;
    let logits = |ask: Logits| model.model().forward(&step.clone().with_logits(ask), &mut NoCache);
    let all = logits(Logits::All)?;
    let input = "tiny-llama, 2 rows of 4 tokens, ";
    let says = "pass the head step.chosen(&x), not every position";
    close(&format!("{input}Logits::Last(1)"), logits(Logits::Last(1)), &all.narrow(1, 3, 1)?, 1e-5)
        .likely(says)?;
    close(&format!("{input}Logits::Last(2)"), logits(Logits::Last(2)), &all.narrow(1, 2, 2)?, 1e-5)
        .likely(says)?;
    let one = |row: usize, at: usize| all.narrow(0, row, 1)?.narrow(1, at, 1);
    let want = Tensor::cat(&[one(0, 2)?, one(1, 0)?], 0)?;
    close(&format!("{input}Logits::At([2, 0])"), logits(Logits::At(vec![2, 0])), &want, 1e-5)
        .likely(says)
}

/// Checks that a run in pieces, with a cache, equals a single pass.
fn check_pieces(day: &Day, name: &str) -> Outcome {
    let model = load(day, name, DType::F32)?;
    let mut random = Random::new(5);
    let ids: Vec<u32> = (0..7).map(|_| random.below(96) as u32).collect();
    let want = model.model().forward(&Step::new(model.model(), &ids, 0)?, &mut NoCache)?;
    let mut cache = Keep::default();
    let mut parts = Vec::new();
    for (from, to) in [(0, 4), (4, 5), (5, 7)] {
        let step = Step::new(model.model(), &ids[from..to], from)?;
        parts.push(model.model().forward(&step, &mut cache)?);
    }
    let layers: Vec<usize> = (0..depth(&*model)).collect();
    let input = format!("{name}, 4 tokens, then 1, then 2, with a cache");
    equal(&format!("{input}: layers appended to"), Ok(cache.appended), &layers.repeat(3))?;
    close(&format!("{input}, against 7 at once"), Tensor::cat(&parts, 1), &want, LOGITS)
        .likely("pass step and cache to every layer, and take positions from the step, not 0 to T")
}

fn pieces_equal_the_whole(day: &Day) -> Outcome {
    ["tiny-llama", "tiny-qwen3"].into_iter().try_for_each(|name| check_pieces(day, name))
}

/// Checks that a left-padded row in a batch equals the same tokens alone.
fn check_padding(day: &Day, name: &str) -> Outcome {
    let model = load(day, name, DType::F32)?;
    let rows = [vec![11u32, 12, 13, 14, 15], vec![0, 0, 21, 22, 23]];
    let positions = [vec![0u32, 1, 2, 3, 4], vec![0, 0, 0, 1, 2]];
    let sees = |row: usize, i: usize, j: usize| j == i || (j < i && (row == 0 || j >= 2));
    let mask = (0..50).map(|at| u8::from(sees(at / 25, at / 5 % 5, at % 5)));
    let mask = Tensor::from_vec(mask.collect::<Vec<_>>(), (2, 1, 5, 5), &device()?)?;
    let step = Step::batch(model.model(), &rows, &positions, Some(mask))?;
    let got = model.model().forward(&step, &mut NoCache)?;
    for (row, padding) in [(0, 0), (1, 2)] {
        let alone = Step::new(model.model(), &rows[row][padding..], 0)?;
        let want = model.model().forward(&alone, &mut NoCache)?;
        let got = got.narrow(0, row, 1)?.narrow(1, padding, 5 - padding);
        let input =
            format!("{name}, two rows, the second padded by 2: row {row}, against that row alone");
        close(&input, got, &want, LOGITS)
            .likely("mask and positions come from the step: pass it on, don't make your own")?;
    }
    Ok(())
}

fn padding_changes_nothing(day: &Day) -> Outcome {
    ["tiny-llama", "tiny-qwen3"].into_iter().try_for_each(|name| check_padding(day, name))?;
    // RoPE sees only distances, so rows of the same distances can't tell whose positions were used.
    let model = load(day, "tiny-llama", DType::F32)?;
    let rows = [vec![11, 12, 13], vec![21, 22, 23]];
    let positions = [vec![0, 1, 2], vec![0, 3, 7]];
    let both = Step::batch(model.model(), &rows, &positions, None)?;
    let got = model.model().forward(&both, &mut NoCache)?;
    for row in [0, 1] {
        let alone = Step::batch(model.model(), &rows[row..=row], &positions[row..=row], None)?;
        let want = model.model().forward(&alone, &mut NoCache)?;
        let input = format!("tiny-llama, positions 0 1 2 and 0 3 7: row {row}, against it alone");
        close(&input, got.narrow(0, row, 1), &want, LOGITS)
            .likely("every row has its own positions")?;
    }
    Ok(())
}

fn fused_attention_by_hand(day: &Day) -> Outcome {
    // q is all zeros, so every token attends equally to all the tokens it sees. k is x plus [5, 7],
    // and v is x plus [1, 2].
    let weight =
        Tensor::new(&[[0f32, 0.], [0., 0.], [1., 0.], [0., 1.], [1., 0.], [0., 1.]], &device()?)?;
    let bias = Tensor::new(&[0f32, 0., 5., 7., 1., 2.], &device()?)?;
    let identity = Tensor::new(&[[1f32, 0.], [0., 1.]], &device()?)?;
    let attention = FusedAttention {
        layer_idx: 0,
        num_heads: 1,
        c_attn: Projection { weight: Weight::new(weight)?, bias: Some(bias), ops: plain() },
        c_proj: Projection { weight: Weight::new(identity)?, bias: None, ops: plain() },
        ops: plain(),
    };
    let x = Tensor::new(&[[[2f32, 4.], [6., 8.]]], &device()?)?;
    let want = Tensor::new(&[[[3f32, 6.], [5., 8.]]], &device()?)?;
    let model = (day.build)(small(1.0, false, false)?)?;
    let step = small_step(&*model, &[0, 1], &[0, 1])?;
    let got = (day.fused)(attention, &x, &step, &mut NoCache);
    close("x is [2, 4] and [6, 8]; q all zeros, k = x + [5, 7], v = x + [1, 2]", got, &want, 1e-5)
        .likely("c_attn returns all of q, then all of k, then all of v")
}

fn layers_equal_transformers(day: &Day) -> Outcome {
    let model = load(day, GPT2, DType::F32)?;
    for layer in 0..depth(&*model) {
        let note = format!(", {SEAM}");
        check_attend(&*model, GPT2, layer, &note)
            .and_then(|()| check_feed_forward(&*model, GPT2, layer, &note))
            .likely(
                "this also runs 5.1: if 5.1 fails, or fused attention by hand passes, start there",
            )?;
    }
    Ok(())
}

fn gpt2_logits_equal_hf(day: &Day) -> Outcome {
    check_logits(day, GPT2)
}

fn gpt2_long_text_equals_hf(day: &Day) -> Outcome {
    check_long_text(day, GPT2)
}

fn pieces_and_padding_change_nothing(day: &Day) -> Outcome {
    check_pieces(day, GPT2)?;
    check_padding(day, GPT2)
}

/// Compares every depth with the reader's own forward on a model that ends at that depth.
fn the_lens_equals_a_model_truncated_at_each_depth(day: &Day) -> Outcome {
    for name in ["tiny-llama", "story-230k"] {
        let model = load(day, name, DType::F32)?;
        let layers = depth(&*model);
        let step = Step::new(model.model(), &[11, 12, 13, 14], 0)?;
        for (ask, what) in [(Logits::All, "Logits::All"), (Logits::Last(1), "Logits::Last(1)")] {
            let step = step.clone().with_logits(ask);
            let input = format!("{name}, {layers} layers, 4 tokens, {what}");
            let mut cache = Keep::default();
            let depths = model.lens(&step, &mut cache)?;
            equal(&format!("{input}: number of tensors"), Ok(depths.len()), &(layers + 1))
                .likely("one for the embedding alone, and one after each layer")?;
            let once: Vec<usize> = (0..layers).collect();
            equal(&format!("{input}: layers run"), Ok(cache.appended), &once)?;
            for (depth, got) in depths.into_iter().enumerate() {
                let mut ends_here = transformer(name, DType::F32)?;
                ends_here.layers.truncate(depth);
                let ends_here = (day.build)(ends_here)?;
                let want = ends_here.model().forward(&step, &mut NoCache)?;
                close(&format!("{input}: after {depth} layers"), Ok(got), &want, LOGITS)?;
            }
        }
    }
    Ok(())
}
