//! The second noun: what turns a step into logits.

use crate::kit::{Cache, ModelConfig, Step};
use candle_core::{Device, Result, Tensor};

/// A language model: token ids in, logits out.
pub trait Model {
    /// Sizes, context and special ids.
    fn config(&self) -> &ModelConfig;

    /// Where its tensors live; steps are built there.
    fn device(&self) -> &Device;

    /// Runs one step: `(B, T or the positions chosen, V)`, f32. The cache grows by T columns.
    ///
    /// # Errors
    /// If the step does not fit the model or the cache.
    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor>;
}
