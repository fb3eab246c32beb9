//! The flags of `cargo xtask bench`.

use clap::Parser;
use std::path::PathBuf;

/// Counts and measures what a day gains, with your code if you have written the day, and draws the
/// book's plots
#[derive(Parser, Clone)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
pub struct Args {
    /// A day, such as day10 (default: all of them but day16 and day19), or one of these. engine:
    /// the whole engine; machine: this machine; roofline: day 16's predictions for it; day19: the
    /// effect of quantized weights on predictions; serve: the server under load
    pub what: Option<String>,
    /// Number of rounds of a day or engine; the fastest one counts (for engine, the median).
    /// 0: only what can be counted [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(..=20))]
    pub rounds: Option<u8>,
    /// The model for engine, day19 and serve [default: story-3m]
    #[arg(long)]
    pub model: Option<String>,
    /// Also measure candle-transformers, transformers and llama.cpp, if they're installed
    #[arg(long)]
    pub peers: bool,
    /// A Python with the packages in crates/lab/peers/requirements.txt
    #[arg(long)]
    pub python: Option<String>,
    /// llama.cpp's llama-server, to compare with our server
    #[arg(long, value_name = "PROGRAM", requires = "gguf")]
    pub llama_server: Option<PathBuf>,
    /// The model for `bench serve` as a GGUF file, for llama-server
    #[arg(long, value_name = "FILE")]
    pub gguf: Option<PathBuf>,
    /// Approximate number of requests in each load of `bench serve`; a 99th percentile needs a few
    /// hundred
    #[arg(long, value_name = "N", default_value_t = 500)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100_000))]
    pub requests: usize,
    /// For `bench serve`: start our server with each of these token budgets, and let a long prompt
    /// arrive every few seconds while 8 clients read
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    pub max_num_batched_tokens: Vec<usize>,
    /// Device for engine and serve: cpu, metal or cuda
    #[arg(long, default_value = candecode::kit::device::DEFAULT)]
    pub device: String,
    /// Write the plots to this folder instead of target/bench
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// The tokens per second that you expect of random-135m, for day16
    #[arg(long, value_name = "N")]
    pub guess: Option<f64>,
    /// Days that use your code, such as 10,12; all others use the reference [default: the day that
    /// is measured, if you have written its core]
    #[arg(long, value_name = "DAYS")]
    pub mine: Option<String>,
    /// auto: your code for every day you've written; mine: for every day; ref: for none
    #[arg(long, value_name = "DAYS", conflicts_with = "mine")]
    pub solution: Option<String>,
    /// Only times, without the counts before them
    #[arg(long)]
    pub no_counts: bool,
    /// One run of the engine in this process, as JSON
    #[arg(long, hide = true)]
    pub job: Option<String>,
}

impl Args {
    /// Returns the model to measure.
    pub fn model(&self) -> &str {
        self.model.as_deref().unwrap_or("story-3m")
    }

    /// Returns the number of rounds.
    pub fn rounds(&self) -> u8 {
        self.rounds.unwrap_or(3)
    }
}
