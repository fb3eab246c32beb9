//! The flags of the `candecode` command. Names are the field's.

use crate::kit::hub::DEFAULT_MODEL;
use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// Text out of a prompt, by the days that are compiled in.
#[derive(Debug, Clone, Parser)]
#[command(name = "candecode", version, about, max_term_width = 100)]
pub struct Args {
    /// An embedded model (story-3m, story-230k, story-gpt2-1m), a folder, a short name, or owner/repo on the hub
    #[arg(long, default_value = DEFAULT_MODEL, value_name = "NAME|DIR|OWNER/REPO")]
    pub model: String,
    /// The text to continue; may be repeated
    #[arg(short, long, value_name = "TEXT")]
    pub prompt: Vec<String>,
    /// A file with the text to continue; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub prompt_file: Option<PathBuf>,
    /// Token ids to continue, as 5,9,77
    #[arg(long, value_name = "IDS", value_delimiter = ',', conflicts_with_all = ["prompt", "prompt_file"])]
    pub prompt_ids: Option<Vec<u32>>,
    /// Tokens to generate at most
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub max_new_tokens: usize,
    /// cpu, metal or cuda
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: String,
    /// The type of the weights in memory: f32, bf16 or f16
    #[arg(long, value_name = "DTYPE", default_value = "f32")]
    pub dtype: String,
    /// A string that ends the text; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// The seed of sampling
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u64>,
    /// Where sampling's randomness comes from: torch's own stream, or a portable one
    #[arg(long, value_name = "RNG")]
    pub rng: Option<RngKind>,
    /// Text as it is made, or one JSON object a sequence
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    /// Print speeds to standard error
    #[arg(long)]
    pub stats: bool,
    /// Which day's loop shall run: day6 or day7
    #[arg(long = "loop", value_name = "DAY")]
    pub loop_day: Option<String>,
}

/// `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The text, as it is made.
    Text,
    /// One object a sequence, each on a line of its own.
    Json,
}

/// `--rng`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RngKind {
    /// What `torch.manual_seed` starts.
    Torch,
    /// ChaCha, one stream for each request.
    Chacha,
}
