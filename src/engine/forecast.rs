//! What day 16 predicts of a run, for `--stats`.

pub use crate::day16_cost_of_a_token::{Bound, Machine, Prediction};

use crate::day16_cost_of_a_token::{Pass, Precision};
use crate::kernels;
use crate::kit::days::describe_panic;
use crate::kit::ModelConfig;
use candle_core::DType;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// A run by its sizes.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Texts side by side.
    pub rows: usize,
    /// Tokens of the longest prompt.
    pub prompt: usize,
    /// New tokens of a row.
    pub new: usize,
}

/// How long the passes of a run take at least.
#[derive(Debug, Clone, Copy)]
pub struct Forecast {
    /// The pass over the prompts.
    pub prefill: Prediction,
    /// A decoding step, in the middle of the text; None if there was none.
    pub decode: Option<Prediction>,
}

/// This machine, measured: it takes a moment.
pub fn this_machine() -> Machine {
    Machine { bandwidth: kernels::bandwidth(3), peak: kernels::peak_operations(5) }
}

/// The forecast for a run on the CPU, whose cache is f32 whatever the weights are.
///
/// # Errors
/// If day 16 is the reader's, and not written so far, or panics: in words.
pub fn forecast(
    config: &ModelConfig,
    weights: DType,
    sizes: Sizes,
    machine: &Machine,
) -> Result<Forecast, String> {
    let Sizes { rows, prompt, new } = sizes;
    let precision = Precision::new(weights, DType::F32);
    let predict = |pass: &Pass| machine.predict_pass(config, pass, &precision);
    let forecast = || Forecast {
        prefill: predict(&Pass::prefill(rows, prompt)),
        decode: (new > 1).then(|| predict(&Pass::decode(rows, prompt + (new - 1) / 2))),
    };
    catch_unwind(AssertUnwindSafe(forecast)).map_err(|panic| describe_panic(&*panic))
}
