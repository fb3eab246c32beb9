//! Tasks beyond the core of their day that a flag or a model leads to.
//!
//! A day runs the reader's code once its core tasks are written, so such a task may still be open.
//! Each function here makes the call that would reach it, with a number or two, so that a run can
//! be refused before anything is loaded. (`operations::try_mine` does the same for kernels.)

use anyhow::bail;
use candecode::day03_norms_and_mlps::{gelu_mlp, Projection};
use candecode::day05_model::FusedAttention;
use candecode::day07_greedy::{window, Sequence};
use candecode::day10_kv_cache::{SlidingCache, StaticCache};
use candecode::day11_beam_search as day11;
use candecode::day12_batching::BatchCache;
use candecode::day14_guard_rails as day14;
use candecode::day19_quantized_weights::{dequantize_block_q4_1, dot_q4_1, BlockQ4_1, BlockQ8_0};
use candecode::day24_draft_trees::{several, walk_typical, ModelTree, TreeCache};
use candecode::kit::draft::{DraftTree, TreeDrafter as _};
use candecode::kit::panics::Unwritten;
use candecode::kit::{Batch as _, BeamParams, Cache, EarlyStopping, Family, FinishReason};
use candecode::kit::{Hypothesis, Model, ModelConfig, NoCache, PastContext, ProcessorInput};
use candecode::kit::{Logits, Request, SharedOps, Step, Tokenizer, Weight};
use candle_core::{DType, Device, Result, Tensor};

/// Refuses something that needs a task which isn't written. `what` names the flag or the model, and
/// `call` makes the call that reaches the task. How else the call ends doesn't matter here: the run
/// reports that.
///
/// # Errors
/// If `call` reaches a task that isn't written.
pub fn check(what: &str, call: impl FnOnce() -> Result<()>) -> anyhow::Result<()> {
    match Unwritten::reached_by(call) {
        None => Ok(()),
        Some(Unwritten { task, title }) => {
            bail!("{what} needs task {task}, which is not written yet: {title}")
        }
    }
}

/// A window past the context: tasks 7.8 and 7.9.
pub fn windows() -> Result<()> {
    window(3, 2, 1)?;
    let (model, tokenizer) = (Tiny(config()), Tokenizer::empty());
    let mut request = Request::new(&model.0, &[0, 0], 1, |_| Ok(0));
    request.past_context = PastContext::Window { stride: 1 };
    Sequence::new(request, &tokenizer).visible(&model)?;
    Ok(())
}

/// A static cache: tasks 10.6 and 10.7.
pub fn static_cache() -> Result<()> {
    let one = number()?;
    StaticCache::new(1, 1).append(0, &one, &one)?;
    Ok(())
}

/// A sliding cache: task 10.10.
pub fn sliding_cache() -> Result<()> {
    let one = number()?;
    SlidingCache::new(1, 1).append(0, &one, &one)?;
    Ok(())
}

/// The score of a finished beam: task 11.6.
pub fn length_penalty() -> Result<()> {
    day11::length_normalized(-1.0, 1, 1.0);
    Ok(())
}

/// Whether a search goes on: task 11.7.
pub fn early_stopping() -> Result<()> {
    let params = BeamParams {
        num_beams: 1,
        num_return_sequences: 1,
        length_penalty: 0.0,
        early_stopping: EarlyStopping::Never,
    };
    let finished = Hypothesis { new_ids: vec![0], score: -1.0, finish: FinishReason::Eos };
    day11::can_improve(-1.0, 1, 2, &[finished], &params);
    Ok(())
}

/// Rows that join a batch: tasks 12.9 and 12.10.
pub fn joining_rows() -> Result<()> {
    let one = number()?;
    let (mut running, mut new) = (BatchCache::new(1, None), BatchCache::new(1, None));
    running.append(0, &one, &one)?;
    new.append(0, &one, &one)?;
    running.join(&new)
}

/// Lists of ids to block: task 14.10.
pub fn block_ids() -> Result<()> {
    day14::block_sequences(&mut [0.0], &[0], &[vec![0]], &[]);
    Ok(())
}

/// Typical acceptance: task 24.10.
pub fn typical_acceptance() -> Result<()> {
    walk_typical(&DraftTree::new(0), 0.1, 0.1, &mut |_| Ok(vec![1.0]))?;
    Ok(())
}

/// Trees drafted by a model: tasks 24.11 and 24.12.
pub fn model_trees() -> Result<()> {
    several(&[1.0], 1, true, &mut || 0.0)?;
    let model = Tiny(config());
    let mut drafter = ModelTree {
        model: &model,
        cache: TreeCache::new(1),
        tokens: Vec::new(),
        processors: Vec::new(),
        greedy: true,
        vocab_size: 1,
    };
    let input = ProcessorInput { tokens: &[0], prompt_len: 1, remaining: 1, eos: &[] };
    drafter.draft(&input, &[1], None, &mut || 0.0)?;
    Ok(())
}

/// GPT-2's attention and MLP: tasks 5.6 and 3.7.
pub fn gpt2(ops: &SharedOps) -> Result<()> {
    let projection = |out: usize| -> Result<Projection> {
        let weight = Weight::new(Tensor::ones((out, 1), DType::F32, &Device::Cpu)?)?;
        Ok(Projection { weight, bias: None, ops: ops.clone() })
    };
    let attention = FusedAttention {
        layer_idx: 0,
        num_heads: 1,
        c_attn: projection(3)?,
        c_proj: projection(1)?,
        ops: ops.clone(),
    };
    let ids = Tensor::zeros((1, 1), DType::U32, &Device::Cpu)?;
    let (positions, logits) = (ids.clone(), Logits::All);
    let step = Step { ids, positions, mask: None, logits, chunks: None };
    let x = Tensor::ones((1, 1, 1), DType::F32, &Device::Cpu)?;
    attention.forward(&x, &step, &mut NoCache)?;
    gelu_mlp(&x, &projection(1)?, &projection(1)?)?;
    Ok(())
}

/// Weights in blocks that have a minimum, multiplied by day 19's code: tasks 19.13 and 19.14.
pub fn q4_1() -> Result<()> {
    let weights = BlockQ4_1::from_bytes(&[0; 20]);
    dequantize_block_q4_1(&weights);
    dot_q4_1(&weights, &BlockQ8_0::from_bytes(&[0; 34]));
    Ok(())
}

/// Returns keys or values of one position.
fn number() -> Result<Tensor> {
    Tensor::ones((1, 1, 1, 1), DType::F32, &Device::Cpu)
}

/// A model that is never run.
struct Tiny(ModelConfig);

impl Model for Tiny {
    fn config(&self) -> &ModelConfig {
        &self.0
    }

    fn device(&self) -> &Device {
        &Device::Cpu
    }

    fn forward(&self, _: &Step, _: &mut dyn Cache) -> Result<Tensor> {
        candle_core::bail!("this model has no weights")
    }
}

fn config() -> ModelConfig {
    ModelConfig {
        family: Family::Llama,
        vocab_size: 1,
        hidden_size: 1,
        intermediate_size: 1,
        num_hidden_layers: 1,
        num_attention_heads: 1,
        num_key_value_heads: 1,
        head_dim: 1,
        max_position_embeddings: 2,
        norm_eps: 1e-5,
        rope_theta: 1e4,
        rope_scaling: None,
        tie_word_embeddings: true,
        qkv_bias: false,
        output_bias: false,
        mlp_bias: false,
        eos_token_ids: Vec::new(),
    }
}
