//! The flags of the `candecode` command, and the rules that clap checks. The names are those that
//! other engines use.

use candecode::day23_token_budget::Limits;
use candecode::kit::{device, pages, EarlyStopping, QuantType};
use candecode_engine::generation_config::Settings;
use candecode_engine::loops::{self, Loop};
use candecode_engine::operations::Kernels;
use candecode_engine::score::TraceLoop;
use candecode_engine::CacheKind;
use candecode_formats::hub::DEFAULT_MODEL;
use candle_core::DType;
use clap::builder::{ArgPredicate, NonEmptyStringValueParser, PossibleValue};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
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

/// Continues a prompt, using the days that are compiled in.
#[derive(Debug, Clone, Parser)]
#[command(name = "candecode", version, max_term_width = 100)]
#[command(about = "Can I decode? LLM decoding, learned by building it in Rust on candle")]
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
    /// The model: an embedded one (story-3m, story-230k, story-gpt2-1m, paper), story-135m (which
    /// writes story-3m's text at the cost of 135M weights), a folder, a GGUF file, a short name,
    /// owner/repo on the hub, or random-135m (any number), which has random weights
    #[arg(
        long,
        default_value = DEFAULT_MODEL,
        default_value_if("endpoint", ArgPredicate::IsPresent, ""),
        value_name = "NAME|DIR|FILE|OWNER/REPO"
    )]
    pub model: String,
    /// The text to continue. Several texts make a batch: -p "Paris is" "Tehran is"
    #[arg(short, long, value_name = "TEXT", num_args = 1..)]
    pub prompt: Vec<String>,
    /// Use the prompt as is, even with an instruct model. By default, an instruct model's prompt
    /// goes through its chat template
    #[arg(long)]
    pub raw: bool,
    /// A file with the text to continue; - for standard input
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
    /// Token ids to continue, such as 5,9,77, with or without brackets around them
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = token_id)]
    pub prompt_ids: Option<Vec<u32>>,
    /// Maximum number of tokens to generate [default: 128, or 512 per answer in a chat]
    #[arg(
        long,
        value_name = "N",
        value_parser = within(1..=TOKENS)
    )]
    pub max_new_tokens: Option<usize>,
    /// The device to run on: cpu, metal or cuda
    #[arg(long, value_name = "DEVICE", default_value = device::DEFAULT)]
    pub device: String,
    /// How layers are computed: with the days' own code on candle's tensors, candle-nn's fused
    /// operations, the fast CPU kernels, or your own kernels from days 17 to 19 [default: fast on
    /// the CPU and candle on Metal and CUDA, but your own code for days that you wrote]
    #[arg(long, value_enum, value_name = "KERNELS")]
    pub kernels: Option<Kernels>,
    /// The type of the weights in memory: f32, bf16 or f16 (the slowest of the three on the CPU)
    /// [default: f32; on the CPU, Q8_0, Q4_0 and Q4_1 weights from a GGUF file stay quantized]
    #[arg(long, value_name = "DTYPE", value_parser = device::dtype)]
    pub dtype: Option<DType>,
    /// Quantize the weights while loading them. A head shared with the embedding table is always
    /// q8_0
    #[arg(long, value_parser = quant_type(), value_name = "TYPE", conflicts_with = "dtype")]
    pub quantize: Option<QuantType>,
    /// Number of tokens to generate before EOS or a stop token may end the text [default: 0]
    #[arg(long, value_name = "N", value_parser = within(0..=TOKENS))]
    pub min_new_tokens: Option<usize>,
    /// A string, or a special token such as <|im_end|>, that ends the text. May be repeated
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub stop: Vec<String>,
    /// Token ids that end the text, such as 5,9
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = token_id)]
    pub stop_token_ids: Vec<u32>,
    /// The seed for sampling; -1 for a random seed
    #[arg(long, value_name = "SEED", value_parser = seed, requires = "sampling")]
    pub seed: Option<Seed>,
    /// The random number generator for sampling: the same as torch's, so that a seed draws what it
    /// draws in transformers, or a portable one [default: chacha]
    #[arg(long, value_name = "RNG", requires = "sampling")]
    pub rng: Option<RngKind>,
    /// Sampling temperature: the logits are divided by T. 0 means greedy decoding
    #[arg(long, value_name = "T", value_parser = single, help_heading = "Sampling")]
    pub temperature: Option<f64>,
    /// Sample from the K most likely tokens
    #[arg(long, value_name = "K", value_parser = within(1..=TOKENS), help_heading = "Sampling")]
    pub top_k: Option<usize>,
    /// Sample from the most likely tokens whose probabilities add up to P
    #[arg(long, value_name = "P", value_parser = number, help_heading = "Sampling")]
    pub top_p: Option<f64>,
    /// Sample from tokens that are at least P times as likely as the most likely one
    #[arg(long, value_name = "P", value_parser = number, help_heading = "Sampling")]
    pub min_p: Option<f64>,
    /// Penalize every token that is in the prompt or the text; 1 means no penalty
    #[arg(long, value_name = "X", value_parser = single_f32, help_heading = "Penalties")]
    pub repetition_penalty: Option<f32>,
    /// Subtract X from the logit of every token that has been generated
    #[arg(long, value_name = "X", value_parser = single_f32, help_heading = "Penalties")]
    pub presence_penalty: Option<f32>,
    /// Subtract X from a token's logit for every time that it has been generated
    #[arg(long, value_name = "X", value_parser = single_f32, help_heading = "Penalties")]
    pub frequency_penalty: Option<f32>,
    /// Number of recent tokens that the three penalties look at [default: all]
    #[arg(
        long,
        value_name = "N",
        value_parser = within(1..=TOKENS),
        requires = "penalties",
        help_heading = "Penalties"
    )]
    pub penalty_window: Option<usize>,
    /// Forbid repeating any sequence of N tokens
    #[arg(long, value_name = "N", value_parser = within(1..=TOKENS), help_heading = "Penalties")]
    pub no_repeat_ngram: Option<usize>,
    /// Add BIAS to the logit of token ID, before the penalties; -inf forbids the token. May be
    /// repeated
    #[arg(
        long,
        value_name = "ID=BIAS",
        value_parser = logit_bias,
        allow_hyphen_values = true,
        help_heading = "Penalties"
    )]
    pub logit_bias: Vec<(u32, f32)>,
    /// Number of beams; above 1 turns on beam search [default: 1]
    #[arg(
        long,
        value_name = "N",
        value_parser = within(1..=SEQUENCES),
        conflicts_with_all = [
            "temperature", "top_k", "top_p", "min_p", "draft_model", "draft_ngram", "draft_table",
        ],
        help_heading = "Beams"
    )]
    pub num_beams: Option<usize>,
    /// Number of samples or beams to return for each prompt [default: 1]
    #[arg(
        long,
        value_name = "N",
        value_parser = within(1..=SEQUENCES),
        conflicts_with_all = ["draft_model", "draft_ngram", "draft_table"],
        help_heading = "Beams"
    )]
    pub num_return_sequences: Option<usize>,
    /// Length penalty of beam search; above 0 favors long texts [default: 1]
    #[arg(long, value_name = "X", value_parser = number, requires = "num_beams")]
    #[arg(help_heading = "Beams")]
    pub length_penalty: Option<f64>,
    /// When beam search may stop: true, false or never
    #[arg(
        long,
        value_parser = early_stopping(),
        value_name = "WHEN",
        default_value = "false",
        requires = "num_beams",
        help_heading = "Beams"
    )]
    pub early_stopping: EarlyStopping,
    /// Draft with this smaller model, which must have the same tokenizer: a name, a folder or
    /// owner/repo
    #[arg(long, value_name = "NAME", help_heading = "Speculation")]
    pub draft_model: Option<String>,
    /// Draft what followed the last N tokens when they occurred earlier in the text
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = within(1..=SEQUENCES),
        help_heading = "Speculation"
    )]
    pub draft_ngram: Option<usize>,
    /// Draft from a table of n-grams written by --count-ngrams
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
    /// Draft with Medusa heads from this file, or with the model's own [default: medusa.safetensors
    /// in the model's folder, and trees of shape 3x2x1x1]
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        conflicts_with_all = [
            "draft_model", "draft_ngram", "draft_table", "num_draft_tokens", "num_beams",
            "num_return_sequences", "chat", "endpoint", "top_logprobs", "cache", "no_cache",
            "past_context",
        ],
        help_heading = "Speculation"
    )]
    pub medusa: Option<Option<PathBuf>>,
    /// Accept drafted tokens that are typical of the model (Medusa's typical acceptance). Lossy:
    /// the model alone would write a different text
    #[arg(long, requires = "medusa", help_heading = "Speculation")]
    pub typical_acceptance: bool,
    /// Count the n-grams of a corpus, write the table to --draft-table, and exit. <|endoftext|>
    /// separates the texts of the corpus; in a .jsonl file, each line's text field is one text
    #[arg(long, value_name = "CORPUS", requires = "draft_table", help_heading = "Speculation")]
    pub count_ngrams: Option<PathBuf>,
    /// Maximum number of tokens to draft before each pass of the model
    #[arg(
        long,
        value_name = "K",
        default_value_t = 4,
        value_parser = within(1..=SEQUENCES),
        requires = "draft",
        help_heading = "Speculation"
    )]
    pub num_draft_tokens: usize,
    /// Words that must not appear, not even inside other words; not case-sensitive
    #[arg(long, value_name = "WORD", num_args = 1.., help_heading = "Guard rails")]
    pub block: Vec<String>,
    /// A file of words to block, one per line
    #[arg(long, value_name = "FILE", help_heading = "Guard rails")]
    pub block_file: Option<PathBuf>,
    /// Block whole words only: inside other words they are allowed
    #[arg(long, requires = "block_list", help_heading = "Guard rails")]
    pub block_whole_words: bool,
    /// A sequence of token ids that must not appear, such as 5,9. May be repeated
    #[arg(long, value_name = "IDS", value_parser = token_ids, help_heading = "Guard rails")]
    pub block_ids: Vec<TokenIds>,
    /// A regular expression that the generated text must match, unless a stop string cuts it off
    #[arg(long, value_name = "REGEX", help_heading = "Guard rails")]
    pub allow_regex: Option<String>,
    /// A file with a JSON schema that the generated text must follow
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["allow_regex", "endpoint"],
        help_heading = "Guard rails"
    )]
    pub json_schema: Option<PathBuf>,
    /// A file with a grammar in llguidance's variant of Lark that the generated text must follow
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["allow_regex", "json_schema", "endpoint"],
        help_heading = "Guard rails"
    )]
    pub grammar: Option<PathBuf>,
    /// Maximum number of tokens in the scheduler's batch, for --loop day15 [default: 4096]
    #[arg(
        long,
        value_name = "N",
        value_parser = within(1..=BATCH),
        requires = "day_loop",
        help_heading = "Cache"
    )]
    pub max_batch_tokens: Option<usize>,
    /// Maximum number of tokens in a step of day 23's loop. Longer prompts are computed in chunks
    /// [default: 256]
    #[arg(
        long,
        value_name = "N",
        value_parser = within(1..=BATCH),
        help_heading = "Cache"
    )]
    pub max_num_batched_tokens: Option<usize>,
    /// Maximum number of sequences that day 23's loop runs at once [default: 32]
    #[arg(long, value_name = "N", value_parser = within(1..=SEQUENCES), help_heading = "Cache")]
    pub max_num_seqs: Option<usize>,
    /// Recompute every position at every step
    #[arg(long, conflicts_with = "cache", help_heading = "Cache")]
    pub no_cache: bool,
    /// The kind of KV cache
    #[arg(long, value_name = "KIND", help_heading = "Cache")]
    pub cache: Option<CacheKind>,
    /// Positions per block of a paged cache: a divisor of 64 [default: 16]
    #[arg(long, value_name = "N", value_parser = pages::parse_block_size, help_heading = "Cache")]
    pub block_size: Option<usize>,
    /// Number of blocks in a paged cache [default: as many as the run can need]
    #[arg(
        long = "num-gpu-blocks-override",
        alias = "num-blocks",
        value_name = "N",
        value_parser = within(1..=BATCH),
        help_heading = "Cache"
    )]
    pub num_blocks: Option<usize>,
    /// What to do at the end of the model's context: stop, or (for one prompt) continue with a
    /// window of the last tokens
    #[arg(long, value_name = "WHAT", default_value = "stop", help_heading = "Cache")]
    pub past_context: PastContextName,
    /// Chat with the model: every line of standard input is a turn (cargo xtask chat)
    #[arg(
        long,
        conflicts_with_all = [
            "num_beams", "num_return_sequences", "draft_model", "draft_ngram", "draft_table",
            "format", "day_loop", "past_context", "top_logprobs", "trace",
        ],
        help_heading = "Chat"
    )]
    pub chat: bool,
    /// The system prompt of a chat
    #[arg(long, value_name = "TEXT", help_heading = "Chat", requires = "chat")]
    pub system: Option<String>,
    /// A chat template to use instead of the model's own: a file, or "story" to write a story in
    /// turns
    #[arg(long, value_name = "FILE", help_heading = "Chat", requires = "chat")]
    pub template: Option<String>,
    /// A variable for the chat template, such as enable_thinking=false for Qwen3. May be repeated
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Chat")]
    pub template_set: Vec<String>,
    /// The date for chat templates that put it in the prompt, such as 2026-01-31 [default: today]
    #[arg(long, value_name = "DATE", help_heading = "Chat")]
    pub template_date: Option<String>,
    /// Use a server that speaks OpenAI's protocol, at an address such as http://127.0.0.1:8000.
    /// --model is then the server's name for the model, and is optional if it has only one. Flags
    /// that apply only to local models, or that the protocol doesn't cover, can't be used
    #[arg(
        long,
        value_name = "URL",
        conflicts_with_all = [
            "device", "dtype", "quantize", "kernels", "cache", "no_cache", "num_blocks",
            "max_batch_tokens", "max_num_batched_tokens", "max_num_seqs", "trace",
            "day_loop", "draft_model", "draft_ngram", "draft_table", "template", "template_date",
            "rng", "top_logprobs", "num_beams", "no_repeat_ngram", "penalty_window", "block",
            "block_file", "block_ids", "past_context", "offline", "find", "count_ngrams",
        ],
        help_heading = "Another engine"
    )]
    pub endpoint: Option<String>,
    /// The server's API key [default: the value of OPENAI_API_KEY]
    #[arg(long, value_name = "KEY", help_heading = "Another engine", requires = "endpoint")]
    pub api_key: Option<String>,
    /// Print text as it is generated, or one JSON object per sequence
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    /// Show the N most likely tokens of each step, with the log-probabilities that the model
    /// assigns
    #[arg(
        long,
        value_name = "N",
        value_parser = within(1..=TOKENS),
        conflicts_with_all = ["num_beams", "draft_model", "draft_ngram", "draft_table"]
    )]
    pub top_logprobs: Option<usize>,
    /// Print speeds to standard error
    #[arg(long)]
    pub stats: bool,
    /// Print a line to standard error for each pass of the model: its requests, how many of their
    /// tokens are in the cache, drafts and blocks. The text follows at its end. With --format json,
    /// a JSON object per line
    #[arg(long)]
    pub trace: bool,
    /// Don't use the network: the model must be on this machine
    #[arg(long)]
    pub offline: bool,
    /// Print the model's folder and exit
    #[arg(long = "where")]
    pub find: bool,
    /// Print the models on this machine and their sizes, and exit
    #[arg(long)]
    pub models: bool,
    /// The day whose loop runs
    #[arg(
        long = "loop",
        value_name = "DAY",
        value_parser = Loop::parse,
        help = format!("The day whose loop runs: {}", loops::names("or"))
    )]
    pub day_loop: Option<&'static Loop>,
    /// Replay the trace of `cargo xtask list --score` with this day's loop, and exit
    #[arg(long, value_name = "DAY", value_parser = TraceLoop::parse, hide = true)]
    pub score: Option<&'static TraceLoop>,
}

impl Args {
    /// Parses a command line. Negative numbers are parsed as values, not flags.
    ///
    /// # Errors
    /// Returns clap's error, or the requested help or version text.
    pub fn read<T: Into<OsString> + Clone>(
        line: impl IntoIterator<Item = T>,
    ) -> Result<Self, clap::Error> {
        let command = Self::command().mut_args(|arg| {
            if arg.get_action().takes_values() {
                arg.allow_negative_numbers(true)
            } else {
                arg
            }
        });
        let line: Vec<OsString> = line.into_iter().map(Into::into).collect();
        let foreign = line.iter().skip(1).take_while(|word| *word != "--").find_map(|word| {
            let name = word.to_str()?.split('=').next()?;
            ELSEWHERE.iter().find(|(flag, _)| *flag == name)
        });
        if let Some((flag, here)) = foreign {
            let message = format!("{flag} is a flag of another program; here it's {here}\n");
            return Err(Self::command().error(ErrorKind::UnknownArgument, message));
        }
        Self::from_arg_matches(&command.try_get_matches_from(line)?)
    }

    /// Returns true if any flag turns on drafting.
    pub fn drafts(&self) -> bool {
        self.draft_model.is_some()
            || self.draft_ngram.is_some()
            || self.draft_table.is_some()
            || self.draft_trees()
    }

    /// Returns true if the run drafts trees.
    pub fn draft_trees(&self) -> bool {
        self.draft_tree.is_some() || self.medusa.is_some()
    }

    /// Returns the maximum number of tokens to generate.
    pub fn max_new_tokens(&self) -> usize {
        self.max_new_tokens.unwrap_or(if self.chat { 512 } else { 128 })
    }

    /// Returns the number of beams. 1: no beam search.
    pub fn num_beams(&self) -> usize {
        self.num_beams.unwrap_or(1)
    }

    /// Returns the number of samples or beams to return for each prompt.
    pub fn num_return_sequences(&self) -> usize {
        self.num_return_sequences.unwrap_or(1)
    }

    /// Returns the number of sequences to run for each prompt. A beam search is one.
    pub fn samples(&self) -> usize {
        if self.num_beams() > 1 {
            1
        } else {
            self.num_return_sequences()
        }
    }

    /// Returns the number of positions in a block of a paged cache.
    pub fn block_size(&self) -> usize {
        self.block_size.unwrap_or(16)
    }

    /// Returns the maximum number of tokens in the scheduler's batch.
    pub fn max_batch_tokens(&self) -> usize {
        self.max_batch_tokens.unwrap_or(4096)
    }

    /// Returns the bounds of a step of day 23's loop.
    pub fn limits(&self) -> Limits {
        Limits {
            max_num_batched_tokens: self.max_num_batched_tokens.unwrap_or(256),
            max_num_seqs: self.max_num_seqs.unwrap_or(32),
        }
    }

    /// Returns the cache for this loop. None: no cache.
    pub fn cache(&self, day_loop: &Loop) -> Option<CacheKind> {
        if self.no_cache {
            None
        } else {
            self.cache.or(day_loop.cache)
        }
    }

    /// Returns the settings that a model's `generation_config.json` may ask for, too.
    pub fn settings(&self) -> Settings {
        Settings {
            temperature: self.temperature,
            top_k: self.top_k.map(|k| k as f64),
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty.map(f64::from),
            no_repeat_ngram: self.no_repeat_ngram.map(|n| n as f64),
            num_beams: self.num_beams.map(|n| n as f64),
            num_return_sequences: self.num_return_sequences.map(|n| n as f64),
            length_penalty: self.length_penalty,
            max_new_tokens: self.max_new_tokens.map(|n| n as f64),
        }
    }

    /// Returns the shape of the drafted trees. Empty if the run doesn't draft trees.
    pub fn tree_shape(&self) -> Vec<usize> {
        match &self.draft_tree {
            Some(shape) => shape.0.clone(),
            None if self.medusa.is_some() => MEDUSA_SHAPE.to_vec(),
            None => Vec::new(),
        }
    }
}

/// Flags of tiny-llm and nanoGPT, and what they are called here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("--loader", "--loop: week1 is --loop day6, and week2 is --loop day10"),
    ("--sampler-temp", "--temperature"),
    ("--sampler-top-p", "--top-p"),
    ("--sampler-top-k", "--top-k"),
    ("--enable-thinking", "--template-set enable_thinking=true"),
    ("--enable-flash-attn", "--kernels fast, the default"),
    ("--batch-size", "several texts after one -p"),
    ("--prefill-step", "--max-batch-tokens, with --loop day15"),
    ("--start", "-p"),
    ("--num_samples", "--num-return-sequences"),
    ("--max_new_tokens", "--max-new-tokens"),
    ("--top_k", "--top-k"),
    ("--init_from", "--model"),
];

/// Parses an integer in a range.
fn within(range: RangeInclusive<i64>) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number: i64| usize::try_from(number).ok());
        let (least, most) = (range.start(), range.end());
        number.ok_or_else(|| format!("give a whole number from {least} to {most}"))
    }
}

/// Parses a value of `--quantize`.
fn quant_type() -> impl TypedValueParser<Value = QuantType> {
    let names = [
        PossibleValue::new("q8_0").help("A scale `d` and 32 signed bytes `q`: a number is `d * q`"),
        PossibleValue::new("q4_0").help(
            "A scale `d` and 16 bytes of two numbers `q` from 0 to 15 each: a number is `d * (q - \
             8)`. Byte `i` has number `i` in its lower four bits and number `i + 16` in its upper \
             four",
        ),
    ];
    PossibleValuesParser::new(names).map(|name| match &*name {
        "q8_0" => QuantType::Q8_0,
        _ => QuantType::Q4_0,
    })
}

/// Parses a value of `--early-stopping`.
fn early_stopping() -> impl TypedValueParser<Value = EarlyStopping> {
    let names = [
        PossibleValue::new("true").help("Stop as soon as there are enough finished texts"),
        PossibleValue::new("false").help(
            "Stop when the best running text, at its current length, can't beat the worst finished \
             one",
        ),
        PossibleValue::new("never").help("Stop when it couldn't at any length"),
    ];
    PossibleValuesParser::new(names).map(|name| match &*name {
        "true" => EarlyStopping::True,
        "never" => EarlyStopping::Never,
        _ => EarlyStopping::False,
    })
}

/// A value of `--draft-tree`: the number of children at each depth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeShape(pub Vec<usize>);

/// The default shape of Medusa's trees.
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

/// Parses a number.
fn number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "it must be a number".to_string())
}

/// Parses a number that will be used as an f32, and rejects values outside f32's range.
fn single(text: &str) -> Result<f64, String> {
    let number = number(text)?;
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
    id.parse().map_err(|_| "not a token id; token ids look like 5,9,77".into())
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
    /// The text, as it is generated.
    Text,
    /// One JSON object per sequence, each on its own line.
    Json,
}

/// `--rng`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RngKind {
    /// PyTorch's generator, seeded as by `torch.manual_seed`.
    Torch,
    /// ChaCha, with one stream per request.
    Chacha,
}

/// `--past-context`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PastContextName {
    /// The text ends.
    Stop,
    /// The text continues from its last tokens, whose positions are renumbered.
    Window,
}
