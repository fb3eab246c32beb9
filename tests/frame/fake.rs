//! A scripted model that stops infinite loops.

use candecode::kit::{Cache, Family, Logits, Model, ModelConfig, Step};
use candle_core::{bail, Device, Result, Tensor};
use std::cell::RefCell;

/// Returns the configuration of a model without weights. EOS is 0.
pub fn tiny_config(vocab_size: usize, context: usize) -> ModelConfig {
    ModelConfig {
        family: Family::Llama,
        vocab_size,
        hidden_size: 2,
        intermediate_size: 2,
        num_hidden_layers: 1,
        num_attention_heads: 1,
        num_key_value_heads: 1,
        head_dim: 2,
        max_position_embeddings: context,
        norm_eps: 1e-6,
        rope_theta: 10_000.0,
        rope_scaling: None,
        tie_word_embeddings: true,
        qkv_bias: false,
        output_bias: false,
        mlp_bias: false,
        eos_token_ids: vec![0],
    }
}

/// Returns an error if a model has been called more often than `bound`, which turns an infinite
/// loop into a readable failure.
pub fn refuse_more_than(bound: usize, calls: usize) -> Result<()> {
    if calls > bound {
        bail!(
            "the model was called {} times, more often than needed: does the loop ever end?",
            bound + 1
        )
    }
    Ok(())
}

/// Computes the next logits of a sequence; a [`Fake`] calls it at every position.
type Script = Box<dyn Fn(&[u32]) -> Vec<f32>>;

/// A model that returns `script(ids up to i)` as the logits at position i. It records its passes,
/// and allows no more than `bound`.
pub struct Fake {
    config: ModelConfig,
    script: Script,
    bound: usize,
    /// The ids of each row and their positions, for every pass.
    pub passes: RefCell<Vec<(Vec<Vec<u32>>, Vec<Vec<u32>>)>>,
}

impl Fake {
    /// Creates a model with `vocab_size` tokens and a context of `context` that allows `bound`
    /// passes.
    pub fn new(
        vocab_size: usize,
        context: usize,
        bound: usize,
        script: impl Fn(&[u32]) -> Vec<f32> + 'static,
    ) -> Self {
        let config = tiny_config(vocab_size, context);
        Self { config, script: Box::new(script), bound, passes: RefCell::default() }
    }

    /// Creates a model that prefers `next(last token)` after every sequence, by a wide margin.
    pub fn wants(
        vocab_size: usize,
        context: usize,
        bound: usize,
        next: impl Fn(&[u32]) -> u32 + 'static,
    ) -> Self {
        Self::new(vocab_size, context, bound, move |ids| {
            let mut logits = vec![0.0; vocab_size];
            logits[next(ids) as usize % vocab_size] = 10.0;
            logits
        })
    }
}

impl Model for Fake {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn device(&self) -> &Device {
        &Device::Cpu
    }

    /// Ignores the cache: the ids of a row are its whole sequence.
    fn forward(&self, step: &Step, _cache: &mut dyn Cache) -> Result<Tensor> {
        let (ids, positions) = (step.ids.to_vec2::<u32>()?, step.positions.to_vec2::<u32>()?);
        self.passes.borrow_mut().push((ids.clone(), positions));
        refuse_more_than(self.bound, self.passes.borrow().len())?;
        let (rows, width, vocab) = (ids.len(), ids[0].len(), self.config.vocab_size);
        let mut logits = Vec::with_capacity(rows * width * vocab);
        for row in &ids {
            (1..=width).for_each(|end| logits.extend((self.script)(&row[..end])));
        }
        let logits = Tensor::from_vec(logits, (rows, width, vocab), &Device::Cpu)?;
        step.chosen(&logits)
    }
}
