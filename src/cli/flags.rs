//! The flags of the `candecode` command, and the rules that clap checks. Names follow the field's
//! conventions.

use crate::engine::operations::Kernels;
use crate::formats::hub::DEFAULT_MODEL;
use crate::kit::{device, QuantType};
use candle_core::DType;
use clap::builder::{ArgPredicate, NonEmptyStringValueParser};
use clap::{ArgGroup, CommandFactory as _, FromArgMatches as _, Parser, ValueEnum};
use std::ffi::OsString;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The maximum number of tokens a flag accepts, more than any model's context.
const TOKENS: i64 = 1 << 24;
/// The maximum number of beams, samples or draft tokens.
const SEQUENCES: i64 = 1 << 16;
/// The maximum number of tokens in a batch.
const BATCH: i64 = 1 << 30;

/// Text out of a prompt, by the days that are compiled in.
#[derive(Debug, Clone, Parser)]
#[command(name = "candecode", version, about, max_term_width = 100)]
#[command(group = ArgGroup::new("task").args([
    "prompt", "prompt_file", "prompt_ids", "chat", "count_ngrams", "find", "models",
]))]
#[command(group = ArgGroup::new("sampling").multiple(true).args([
    "temperature", "top_k", "top_p", "min_p",
]))]
#[command(group = ArgGroup::new("penalties").multiple(true).args([
    "repetition_penalty", "presence_penalty", "frequency_penalty",
]))]
#[command(group = ArgGroup::new("draft").args(["draft_model", "draft_ngram", "draft_table"]))]
#[command(group = ArgGroup::new("block_list").multiple(true).args(["block", "block_file"]))]
pub struct Args {
    /// An embedded model (story-3m, story-230k, story-gpt2-1m, paper), a folder, a GGUF file, a
    /// short name, owner/repo on the hub, or random-135m (any number): random weights, made in
    /// memory
    #[arg(
        long,
        default_value = DEFAULT_MODEL,
        default_value_if("endpoint", ArgPredicate::IsPresent, ""),
        value_name = "NAME|DIR|FILE|OWNER/REPO"
    )]
    pub model: String,
    /// The text to continue; several make a batch: -p "Paris is" "Tehran is"
    #[arg(short, long, value_name = "TEXT", num_args = 1..)]
    pub prompt: Vec<String>,
    /// Use the prompt as it is with an instruct model, too; otherwise it goes through the model's
    /// chat template
    #[arg(long)]
    pub raw: bool,
    /// A file with the text to continue; - is standard input
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
    /// Token ids to continue, such as 5,9,77, with or without brackets around them
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = token_id)]
    pub prompt_ids: Option<Vec<u32>>,
    /// Tokens to generate at most [default: 128; in a chat 512 an answer]
    #[arg(
        long,
        value_name = "N",
        default_value_t = 128,
        default_value_if("chat", "true", "512"),
        hide_default_value = true,
        value_parser = within(1..=TOKENS)
    )]
    pub max_new_tokens: usize,
    /// cpu, metal or cuda
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: String,
    /// What a layer computes with: the days' own code on candle's tensors, candle-nn's fused
    /// operations, the fast kernels for the CPU, or yours of days 17 to 19 [default: fast on the
    /// CPU, candle on Metal and CUDA; where a day is yours, your own code runs]
    #[arg(long, value_enum, value_name = "KERNELS")]
    pub kernels: Option<Kernels>,
    /// The type of the weights in memory: f32, bf16 or f16, which on the CPU is the slowest of the
    /// three
    /// [default: f32; on the CPU those of a GGUF file in Q8_0, Q4_0 or Q4_1 stay as they are]
    #[arg(long, value_name = "DTYPE", value_parser = device::dtype)]
    pub dtype: Option<DType>,
    /// Quantize the weights as they are loaded; a head that is the embedding table, too, stays q8_0
    #[arg(long, value_enum, value_name = "TYPE", conflicts_with = "dtype")]
    pub quantize: Option<QuantType>,
    /// Tokens to generate before the text may end by EOS or a stop token
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = within(0..=TOKENS))]
    pub min_new_tokens: usize,
    /// A string, or a special token such as <|im_end|>, that ends the text; may be repeated
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub stop: Vec<String>,
    /// Token ids that end the text, such as 5,9
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = token_id)]
    pub stop_token_ids: Vec<u32>,
    /// The seed of sampling; -1 draws one
    #[arg(long, value_name = "SEED", value_parser = seed, requires = "sampling")]
    pub seed: Option<Seed>,
    /// Where sampling's randomness comes from: torch's own stream, or a portable one
    #[arg(long, value_name = "RNG", requires = "sampling")]
    pub rng: Option<RngKind>,
    /// Divides the logits; above 0 it samples
    #[arg(long, value_name = "T", value_parser = single, help_heading = "Sampling")]
    pub temperature: Option<f64>,
    /// Samples among the K likeliest tokens
    #[arg(long, value_name = "K", value_parser = within(1..=TOKENS), help_heading = "Sampling")]
    pub top_k: Option<usize>,
    /// Samples among the likeliest tokens that together reach probability P
    #[arg(long, value_name = "P", help_heading = "Sampling")]
    pub top_p: Option<f64>,
    /// Samples among the tokens at least P times as likely as the likeliest
    #[arg(long, value_name = "P", help_heading = "Sampling")]
    pub min_p: Option<f64>,
    /// Above 1 it discourages every token of prompt and text
    #[arg(long, value_name = "X", value_parser = single_f32, help_heading = "Penalties")]
    pub repetition_penalty: Option<f32>,
    /// Taken once from every token that was generated
    #[arg(long, value_name = "X", value_parser = single_f32, help_heading = "Penalties")]
    pub presence_penalty: Option<f32>,
    /// Taken from a token for each time that it was generated
    #[arg(long, value_name = "X", value_parser = single_f32, help_heading = "Penalties")]
    pub frequency_penalty: Option<f32>,
    /// The penalties on repetition, presence and frequency look at the last N tokens [default: all]
    #[arg(
        long,
        value_name = "N",
        value_parser = within(1..=TOKENS),
        requires = "penalties",
        help_heading = "Penalties"
    )]
    pub penalty_window: Option<usize>,
    /// No sequence of N tokens occurs twice
    #[arg(long, value_name = "N", value_parser = within(1..=TOKENS), help_heading = "Penalties")]
    pub no_repeat_ngram: Option<usize>,
    /// Adds BIAS to the logit of token ID, before the penalties; -inf forbids it. May be repeated
    #[arg(
        long,
        value_name = "ID=BIAS",
        value_parser = logit_bias,
        allow_hyphen_values = true,
        help_heading = "Penalties"
    )]
    pub logit_bias: Vec<(u32, f32)>,
    /// Texts that grow side by side; above 1 it searches with beams
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = within(1..=SEQUENCES),
        conflicts_with_all = ["sampling", "draft"],
        help_heading = "Beams"
    )]
    pub num_beams: usize,
    /// Samples, or beams, to return for each prompt
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = within(1..=SEQUENCES),
        conflicts_with = "draft",
        help_heading = "Beams"
    )]
    pub num_return_sequences: usize,
    /// Above 0 it favors long texts
    #[arg(
        long,
        value_name = "X",
        default_value_t = 1.0,
        requires = "num_beams",
        help_heading = "Beams"
    )]
    pub length_penalty: f64,
    /// When beam search may stop: true, false or never
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "false",
        requires = "num_beams",
        help_heading = "Beams"
    )]
    pub early_stopping: Early,
    /// A small model that drafts: a name, folder or owner/repo, with the same tokenizer
    #[arg(long, value_name = "NAME", help_heading = "Speculation")]
    pub draft_model: Option<String>,
    /// Draft what followed the last N tokens before
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = within(1..=SEQUENCES),
        help_heading = "Speculation"
    )]
    pub draft_ngram: Option<usize>,
    /// Draft from a table of n-grams that --count-ngrams has made
    #[arg(long, value_name = "FILE", help_heading = "Speculation")]
    pub draft_table: Option<PathBuf>,
    /// Draft a tree of this shape before each pass of the model: 3x2x1 is three tokens, two after
    /// each of them, and one after each of those. From n-grams, or with --draft-model or --medusa
    #[arg(
        long,
        value_name = "SHAPE",
        value_parser = tree_shape,
        conflicts_with_all = [
            "draft_table", "num_draft_tokens", "num_beams", "num_return_sequences", "chat",
            "endpoint", "top_logprobs", "cache", "no_cache", "past_context",
        ],
        help_heading = "Speculation"
    )]
    pub draft_tree: Option<TreeShape>,
    /// Draft with Medusa heads, of this file or the model's own [default: medusa.safetensors in the
    /// model's folder; trees of shape 3x2x1x1]
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        conflicts_with_all = [
            "draft", "num_draft_tokens", "num_beams", "num_return_sequences", "chat", "endpoint",
            "top_logprobs", "cache", "no_cache", "past_context",
        ],
        help_heading = "Speculation"
    )]
    pub medusa: Option<Option<PathBuf>>,
    /// Accept drafted tokens that are typical of the model, as Medusa may. Lossy: the text is no
    /// longer the model's own
    #[arg(long, requires = "medusa", help_heading = "Speculation")]
    pub typical_acceptance: bool,
    /// Count the n-grams of a corpus, write the table to --draft-table, and do nothing else.
    /// Between two texts of the corpus stands <|endoftext|>; of a .jsonl file, the field text of
    /// each line is read
    #[arg(long, value_name = "CORPUS", requires = "draft_table", help_heading = "Speculation")]
    pub count_ngrams: Option<PathBuf>,
    /// Tokens to draft at most before each pass of the model
    #[arg(
        long,
        value_name = "K",
        default_value_t = 4,
        value_parser = within(1..=SEQUENCES),
        requires = "draft",
        help_heading = "Speculation"
    )]
    pub num_draft_tokens: usize,
    /// Words that must not appear, in any letter case, also inside other words
    #[arg(long, value_name = "WORD", num_args = 1.., help_heading = "Guard rails")]
    pub block: Vec<String>,
    /// A file with one such word a line
    #[arg(long, value_name = "FILE", help_heading = "Guard rails")]
    pub block_file: Option<PathBuf>,
    /// Block whole words only: they may appear inside other words
    #[arg(long, requires = "block_list", help_heading = "Guard rails")]
    pub block_whole_words: bool,
    /// A sequence of token ids that must not appear, such as 5,9. May be repeated
    #[arg(long, value_name = "IDS", value_parser = token_ids, help_heading = "Guard rails")]
    pub block_ids: Vec<TokenIds>,
    /// A regular expression that the generated text must match, unless a stop string cuts it off
    #[arg(long, value_name = "REGEX", help_heading = "Guard rails")]
    pub allow_regex: Option<String>,
    /// The most tokens that the scheduler's batch may grow to, for --loop day15
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4096,
        value_parser = within(1..=BATCH),
        requires = "loop_day",
        help_heading = "Cache"
    )]
    pub max_batch_tokens: usize,
    /// Recompute every position at every step
    #[arg(long, conflicts_with = "cache", help_heading = "Cache")]
    pub no_cache: bool,
    /// How the cache makes room
    #[arg(long, value_name = "KIND", help_heading = "Cache")]
    pub cache: Option<CacheName>,
    /// The number of positions in a block of a paged cache: a divisor of 64
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16,
        value_parser = block_size,
        help_heading = "Cache"
    )]
    pub block_size: usize,
    /// The number of blocks of a paged cache [default: what the run can need]
    #[arg(
        long = "num-gpu-blocks-override",
        alias = "num-blocks",
        value_name = "N",
        value_parser = within(1..=BATCH),
        help_heading = "Cache"
    )]
    pub num_blocks: Option<usize>,
    /// What happens at the end of the model's context: the text ends, or (one prompt) goes on from
    /// a window of its last tokens
    #[arg(long, value_name = "WHAT", default_value = "stop", help_heading = "Cache")]
    pub past_context: PastContextName,
    /// Talk with the model: every line of standard input is a turn (cargo xtask chat)
    #[arg(
        long,
        conflicts_with_all = [
            "num_beams", "num_return_sequences", "draft", "format", "loop_day", "past_context",
            "top_logprobs",
        ],
        help_heading = "Chat"
    )]
    pub chat: bool,
    /// The system prompt of a chat
    #[arg(long, value_name = "TEXT", help_heading = "Chat", requires = "chat")]
    pub system: Option<String>,
    /// A chat template in place of the model's own: a file, or "story" to write one text in turns
    #[arg(long, value_name = "FILE", help_heading = "Chat", requires = "chat")]
    pub template: Option<String>,
    /// A variable for the chat template, as enable_thinking=false for Qwen3; may be repeated
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Chat")]
    pub template_set: Vec<String>,
    /// The date for chat templates that write it into the prompt, as 2026-01-31 [default: today]
    #[arg(long, value_name = "DATE", help_heading = "Chat")]
    pub template_date: Option<String>,
    /// Ask a server that speaks OpenAI's protocol, at an address as http://127.0.0.1:8000; --model
    /// is then a name of its own, and may be left out if it has one model. Flags that are about
    /// models on this machine, or that the protocol has no field for, don't go with it
    #[arg(
        long,
        value_name = "URL",
        conflicts_with_all = [
            "device", "dtype", "quantize", "kernels", "cache", "no_cache", "num_blocks",
            "max_batch_tokens",
            "loop_day", "draft", "template", "template_date", "rng", "top_logprobs", "num_beams",
            "no_repeat_ngram", "penalty_window", "block_list", "block_ids", "past_context",
            "offline", "find", "count_ngrams",
        ],
        help_heading = "Another engine"
    )]
    pub endpoint: Option<String>,
    /// The key that the server asks for [default: what OPENAI_API_KEY says]
    #[arg(long, value_name = "KEY", help_heading = "Another engine", requires = "endpoint")]
    pub api_key: Option<String>,
    /// Text as it is made, or one JSON object a sequence
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    /// Show the N likeliest tokens of each step, with the log-probabilities that the model gives
    /// them
    #[arg(
        long,
        value_name = "N",
        value_parser = within(1..=TOKENS),
        conflicts_with_all = ["num_beams", "draft"]
    )]
    pub top_logprobs: Option<usize>,
    /// Print speeds to standard error
    #[arg(long)]
    pub stats: bool,
    /// Ask nothing of any network: the model must be on this machine
    #[arg(long)]
    pub offline: bool,
    /// Print the folder of the model, and do nothing else
    #[arg(long = "where")]
    pub find: bool,
    /// Print which models are on this machine, and their sizes, and do nothing else
    #[arg(long)]
    pub models: bool,
    /// The day whose loop runs: day6, day7, day10 to day13, day15, day21 or day24
    #[arg(long = "loop", value_name = "DAY", value_parser = loop_day)]
    pub loop_day: Option<usize>,
    /// Replay the trace of `cargo xtask list --score` with this day's loop, and do nothing else
    #[arg(long, value_name = "DAY", hide = true)]
    pub score: Option<usize>,
}

impl Args {
    /// Parses a command line. Negative numbers are parsed as values, not flags.
    ///
    /// # Errors
    /// Returns clap's error, or the requested help or version text.
    pub fn read<T: Into<OsString> + Clone>(
        line: impl IntoIterator<Item = T>,
    ) -> Result<Self, clap::Error> {
        let command = Self::command().mut_args(|arg| match arg.get_action().takes_values() {
            true => arg.allow_negative_numbers(true),
            false => arg,
        });
        Self::from_arg_matches(&command.try_get_matches_from(line)?)
    }

    /// Returns true if any flag turns on drafting.
    pub fn drafts(&self) -> bool {
        self.draft_model.is_some()
            || self.draft_ngram.is_some()
            || self.draft_table.is_some()
            || self.draft_trees()
    }

    /// Returns true if trees are drafted.
    pub fn draft_trees(&self) -> bool {
        self.draft_tree.is_some() || self.medusa.is_some()
    }

    /// Returns the shape of the drafted trees, empty if none are drafted.
    pub fn tree_shape(&self) -> Vec<usize> {
        match &self.draft_tree {
            Some(shape) => shape.0.clone(),
            None if self.medusa.is_some() => MEDUSA_SHAPE.to_vec(),
            None => Vec::new(),
        }
    }
}

/// Parses an integer in a range.
fn within(range: RangeInclusive<i64>) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number: i64| usize::try_from(number).ok());
        let (least, most) = (range.start(), range.end());
        number.ok_or_else(|| format!("give a whole number from {least} to {most}"))
    }
}

/// Parses a value of `--loop`.
fn loop_day(text: &str) -> Result<usize, String> {
    match text.strip_prefix("day").unwrap_or(text).parse() {
        Ok(day @ (6 | 7 | 10..=13 | 15 | 21 | 24)) => Ok(day),
        _ => Err("the loops are day6, day7, day10 to day13, day15, day21 and day24".to_string()),
    }
}

/// Parses a value of `--block-size`, here and in the server: a divisor of 64.
///
/// # Errors
/// If it isn't one.
pub fn block_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(size) if size > 0 && 64 % size == 0 => Ok(size),
        _ => Err("a block holds 1, 2, 4, 8, 16, 32 or 64 positions".to_string()),
    }
}

/// A value of `--draft-tree`: the number of children at each depth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeShape(pub Vec<usize>);

/// The shape of Medusa's trees, if no other is asked for.
const MEDUSA_SHAPE: [usize; 4] = [3, 2, 1, 1];

/// Parses a value of `--draft-tree`.
fn tree_shape(value: &str) -> Result<TreeShape, String> {
    let widths: Option<Vec<usize>> =
        value.split(['x', '×']).map(|width| width.parse().ok().filter(|n| *n > 0)).collect();
    widths.map(TreeShape).ok_or_else(|| {
        "a shape is the number of children at each depth, each 1 or more, such as 3x2x1".into()
    })
}

/// A sequence of token ids, one value of `--block-ids`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenIds(pub Vec<u32>);

/// Parses a value of `--block-ids`.
fn token_ids(value: &str) -> Result<TokenIds, String> {
    let ids: Option<Vec<u32>> = value.split(',').map(|id| id.trim().parse().ok()).collect();
    ids.map(TokenIds)
        .ok_or_else(|| "expected token ids with commas between them, such as 5,9".into())
}

/// Parses a value of `--logit-bias`.
fn logit_bias(value: &str) -> Result<(u32, f32), String> {
    let parts = value.split_once('=');
    let read = parts.and_then(|(id, bias)| Some((id.parse().ok()?, bias.parse().ok()?)));
    match read {
        Some((id, bias)) if bias < f32::INFINITY => Ok((id, bias)), // false for NaN, too
        _ => Err("expected a token id and a number, such as 5=-2.5 or 5=-inf".to_string()),
    }
}

/// Parses a number that will be used as an f32, and rejects values outside f32's range.
fn single(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "it must be a number")?;
    let single = number as f32;
    let too_small = single == 0.0 && number != 0.0;
    if number.is_finite() && (single.is_infinite() || too_small) {
        return Err("it is out of range; an f32 goes from 1e-45 to 3e38".into());
    }
    Ok(number)
}

fn single_f32(text: &str) -> Result<f32, String> {
    single(text).map(|number| number as f32)
}

/// Parses one token id of a list. The list may be in brackets, as in this program's own JSON.
fn token_id(text: &str) -> Result<u32, String> {
    let id = text.trim().trim_start_matches('[').trim_end_matches(']').trim();
    id.parse().map_err(|_| "it is not a token id; ids look like 5,9,77".into())
}

/// The value of `--seed`, and whether it was drawn at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed {
    /// The seed.
    pub value: u64,
    /// True if it was drawn at random, for `--seed -1`.
    pub drawn: bool,
}

/// Parses a seed. -1 draws one at random, as in vLLM and llama.cpp.
fn seed(text: &str) -> Result<Seed, String> {
    if text == "-1" {
        // The standard library seeds its maps from the system, differently in every process.
        let value = RandomState::new().build_hasher().finish() >> 32;
        return Ok(Seed { value, drawn: true });
    }
    let value =
        text.parse().map_err(|_| "a seed is a whole number from 0 on, or -1 to draw one")?;
    Ok(Seed { value, drawn: false })
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
    /// PyTorch's own stream, as after `torch.manual_seed`.
    Torch,
    /// ChaCha, one stream for each request.
    Chacha,
}

/// `--early-stopping`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Early {
    /// As soon as there are enough finished texts.
    True,
    /// When the best running text cannot beat the worst finished one as it is.
    False,
    /// When it could not even at the best length.
    Never,
}

/// `--cache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CacheName {
    /// Grows by concatenation.
    Dynamic,
    /// Allocated once, for the whole context.
    Static,
    /// Keeps the last context of tokens; another algorithm past the context, and RoPE only.
    Sliding,
    /// Blocks from one pool; several texts run in one line of tokens (day 21).
    Paged,
}

/// `--past-context`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PastContextName {
    /// The text ends.
    Stop,
    /// It goes on from its last tokens, renumbered.
    Window,
}
