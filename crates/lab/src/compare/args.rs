//! The flags of `cargo xtask compare`.

use clap::{value_parser, Args};
use std::path::PathBuf;

/// The flags of `compare`.
#[derive(Args)]
pub struct Compare {
    /// The prompts to continue [default: two of the course's]
    #[arg(short, long, value_name = "TEXT", num_args = 1..)]
    pub(crate) prompt: Vec<String>,
    /// Same as in `run`
    #[arg(long, default_value = "story-3m")]
    pub(crate) model: String,
    /// The maximum number of tokens to generate
    #[arg(long, default_value_t = 64)]
    pub(crate) max_new_tokens: usize,
    /// The draft model [default: story-230k for story-3m, none for other models]
    #[arg(long)]
    pub(crate) draft_model: Option<String>,
    /// Tokens to draft before each pass
    #[arg(long, default_value_t = 4)]
    pub(crate) num_draft_tokens: usize,
    /// A word that the guarded row blocks [default: one that the texts don't contain]
    #[arg(long)]
    pub(crate) block: Option<String>,
    /// Same as in `run`; 0 is greedy
    #[arg(long)]
    pub(crate) temperature: Option<f64>,
    /// Same as in `run`
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// A server that speaks OpenAI's protocol, as the last row: http://127.0.0.1:8000 (put its key
    /// in OPENAI_API_KEY)
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// The model's name on the server [default: the server's only model]
    #[arg(long, value_name = "NAME", requires = "endpoint")]
    pub(crate) endpoint_model: Option<String>,
    /// How many times to run each row, alternating with the others; times are medians
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u8).range(1..))]
    pub(crate) rounds: u8,
    /// Compare the texts of the decoding methods: greedy, sampling, penalties, beams, drafts, guard
    /// rails
    #[arg(long, conflicts_with_all = ["temperature", "rounds", "endpoint"])]
    pub(crate) methods: bool,
    /// cpu, metal or cuda
    #[arg(long, default_value = xtask::host::DEFAULT_DEVICE)]
    pub(crate) device: String,
    /// The engine, if it's built already
    #[arg(long, hide = true)]
    pub(crate) program: Option<PathBuf>,
}

impl Compare {
    /// Returns the draft model, if there is one.
    pub(crate) fn draft(&self) -> Option<&str> {
        self.draft_model.as_deref().or((self.model == "story-3m").then_some("story-230k"))
    }

    /// Returns whether tokens are drawn.
    pub(crate) fn samples(&self) -> bool {
        self.temperature.is_some_and(|temperature| temperature > 0.0)
    }

    /// Returns the flags of `run` that all rows share, except the model and the device.
    pub(crate) fn sampling(&self) -> Vec<String> {
        let mut flags = vec!["--max-new-tokens".to_string(), self.max_new_tokens.to_string()];
        let seed = self.samples().then_some(self.seed);
        for (flag, value) in [
            ("--temperature", self.temperature.map(|value| value.to_string())),
            ("--seed", seed.map(|value| value.to_string())),
        ] {
            flags.extend(value.into_iter().flat_map(|value| [flag.to_string(), value]));
        }
        flags
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::Parser;

    /// A command line with only these flags.
    #[derive(Parser)]
    pub(crate) struct Cli {
        #[command(flatten)]
        pub(crate) args: Compare,
    }
}
