//! The days' generation loops as values: what each of them can do, and how to run it.
//!
//! Each loop has a file with its [`Loop`] and the function that runs it. A new loop is one such file
//! and its line in [`LOOPS`]. All other code asks a loop what it can do, and never which day it is.

mod day06;
mod day07;
mod day10;
mod day11;
mod day12;
mod day13;
mod day15;
mod day21;
mod day24;

use crate::ngram_table::NgramTable;
use crate::requests::{self, Processors};
use crate::{CacheName, Engine};
use anyhow::{ensure, Context as _, Result};
use candecode::day08_sampling::torch_samplers;
use candecode::day24_draft_trees::MedusaHeads;
use candecode::kit::draft::Counts;
use candecode::kit::error::usage;
use candecode::kit::{BeamParams, Hypothesis, Model, PastContext, Request};
use candecode::kit::{Sampler, SamplingParams, Token, TokenIter, Tokenizer};
use std::fmt;

/// The loops, in order of preference: the first that can do what the flags ask for runs.
pub static LOOPS: &[&Loop] = &[
    &day10::LOOP,
    &day07::LOOP,
    &day12::LOOP,
    &day21::LOOP,
    &day11::LOOP,
    &day13::LOOP,
    &day24::LOOP,
    &day15::LOOP,
    &day06::LOOP,
];

/// A day's generation loop, and what it can do.
pub struct Loop {
    /// The day that builds it.
    pub day: usize,
    /// The cache that it runs with unless another is asked for. None: it recomputes every position.
    pub cache: Option<CacheName>,
    /// What it can do.
    pub abilities: &'static [Ability],
    /// An ability that it can't run without, and the flags that ask for it.
    pub needs: Option<(Ability, &'static str)>,
    /// Whether it pads prompts of different lengths, which takes a mask.
    pub pads: bool,
    /// Whether day 16 can predict its passes: one prefill, then one step per token of every row.
    pub predictable: bool,
    /// Runs it. [`Run::run`] has checked the number of prompts.
    run: fn(&Run, &[Vec<u32>], usize, &mut OnToken) -> Result<Found>,
}

/// Something that only some loops can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Runs several sequences at once. Other loops run one prompt after another.
    Batches,
    /// Runs with this cache.
    Cache(CacheName),
    /// Runs without a cache.
    NoCache,
    /// Draws tokens, rather than always choosing the likeliest one.
    Sampling,
    /// Draws from torch's random stream, which all rows of a batch share.
    TorchStream,
    /// Runs logits processors, and ends a text at stop strings and stop tokens.
    Processors,
    /// Reports the likeliest tokens of each step.
    TopLogprobs,
    /// Continues past the context with a window of the last tokens.
    Window,
    /// Searches with beams, and returns hypotheses at the end instead of tokens on the way.
    Beams,
    /// Verifies drafts of several tokens.
    Drafts,
    /// Verifies trees of drafts.
    DraftTrees,
    /// Limits the number of tokens in its batch.
    BatchLimit,
    /// Answers the turns of a chat.
    Chat,
}

/// A flag that was given, and what it asks of a loop.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// The flag, as typed, such as `--cache paged`.
    pub flag: &'static str,
    /// The ability that it asks for.
    pub ability: Ability,
    /// False if a loop that lacks the ability can do without it when it is asked for by name:
    /// several prompts can also run one after another.
    pub required: bool,
}

impl Ability {
    /// Returns how to get around a loop without this ability, for messages.
    fn advice(self) -> &'static str {
        match self {
            Self::Cache(CacheName::Sliding) => {
                ": beams, batches and drafts need the earlier positions"
            }
            Self::TorchStream => {
                ": torch has a single random stream for a whole static batch; use --rng chacha"
            }
            _ => "; leave one of them out",
        }
    }
}

impl fmt::Debug for Loop {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "day{}", self.day)
    }
}

impl PartialEq for Loop {
    fn eq(&self, other: &Self) -> bool {
        self.day == other.day
    }
}

impl Eq for Loop {}

impl Loop {
    /// Parses a loop's name, such as `day10` or `10`.
    ///
    /// # Errors
    /// If no loop has this name.
    pub fn parse(text: &str) -> Result<&'static Self, String> {
        let day = text.strip_prefix("day").unwrap_or(text).parse().ok();
        let found = LOOPS.iter().find(|known| Some(known.day) == day);
        found.copied().ok_or_else(|| format!("the loops are {}", names("and")))
    }

    /// Returns the first loop in order of preference that can do all that is asked for.
    ///
    /// # Errors
    /// If there is none. The message names two flags that clash, and a loop that takes only one.
    pub fn smallest(asks: &[Ask]) -> Result<&'static Self> {
        let ready = |known: &&&Self| {
            known.needs.is_none_or(|(needed, _)| asks.iter().any(|ask| ask.ability == needed))
        };
        let mut able: Vec<&Self> = LOOPS.iter().filter(ready).copied().collect();
        // The flag that led to the first of them.
        let mut because = None;
        for Ask { flag, ability, .. } in asks {
            let first = able.first().copied().context("no loop is left")?;
            able.retain(|known| known.can(*ability));
            match (able.first(), because) {
                (Some(next), _) if *next == first => {}
                (Some(_), _) => because = Some(flag),
                (None, None) => return Err(usage(format!("no loop can take {flag}"))),
                (None, Some(other)) => {
                    return Err(usage(format!(
                        "{flag} cannot be used with {other}, because {first} can't take it{}",
                        ability.advice()
                    )))
                }
            }
        }
        able.first().copied().context("no loop is left")
    }

    /// Checks that this loop, asked for by name, can do all that the other flags ask for.
    ///
    /// # Errors
    /// If it can't, or if it needs a flag that is missing. The message names the loop and the flag.
    pub fn check(&self, asks: &[Ask]) -> Result<()> {
        let refused = asks.iter().find(|ask| ask.required && !self.can(ask.ability));
        if let Some(Ask { flag, .. }) = refused {
            let other = Self::smallest(asks)?;
            let day = self.day;
            return Err(usage(format!("--loop day{day} can't take {flag}; {other} can")));
        }
        if let Some((needed, flags)) = self.needs {
            let given = asks.iter().any(|ask| ask.ability == needed);
            ensure!(given, usage(format!("--loop day{} needs {flags}", self.day)));
        }
        Ok(())
    }

    /// Returns true if it has this ability.
    pub fn can(&self, ability: Ability) -> bool {
        self.abilities.contains(&ability)
    }

    /// Returns true if it runs several sequences at once.
    pub fn takes_batches(&self) -> bool {
        self.can(Ability::Batches)
    }

    /// Returns true if it returns hypotheses at its end instead of tokens on the way.
    pub fn searches(&self) -> bool {
        self.can(Ability::Beams)
    }

    /// Returns the number of rows that are in memory at once: of `sequences` in all, of which
    /// `within_limit` fit into the limit of a batch, or of `num_beams` beams.
    pub fn rows(&self, sequences: usize, num_beams: usize, within_limit: usize) -> usize {
        match () {
            () if self.searches() => num_beams,
            () if self.can(Ability::BatchLimit) => sequences.min(within_limit).max(1),
            () if self.takes_batches() => sequences,
            () => 1,
        }
    }

    /// Returns the number of rows that a pool of blocks needs room for. Beams need it twice,
    /// because a step forks all of them before it releases any.
    pub fn rows_in_pool(&self, sequences: usize, num_beams: usize) -> usize {
        let forks = if self.searches() { 2 } else { 1 };
        forks * self.rows(sequences, num_beams, sequences)
    }
}

impl fmt::Display for Loop {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "day {}'s loop", self.day)
    }
}

/// Returns the names of all loops: "day6, day7, day10 to day13 and day15".
pub fn names(conjunction: &str) -> String {
    let mut days: Vec<usize> = LOOPS.iter().map(|known| known.day).collect();
    days.sort_unstable();
    let mut names = Vec::new();
    for run in days.chunk_by(|a, b| a + 1 == *b) {
        match run {
            [first, _, .., last] => names.push(format!("day{first} to day{last}")),
            _ => names.extend(run.iter().map(|day| format!("day{day}"))),
        }
    }
    let last = names.pop().unwrap_or_default();
    format!("{} {conjunction} {last}", names.join(", "))
}

/// Callback for each token of any row. Returns false to end the loop, or an error if the token
/// can't be shown.
pub type OnToken<'a> = dyn FnMut(Token) -> Result<bool> + 'a;

/// Results of a loop other than tokens.
#[derive(Default)]
pub struct Found {
    /// The hypotheses of a beam search.
    pub hypotheses: Vec<Hypothesis>,
    /// Statistics of speculative decoding.
    pub counts: Option<Counts>,
}

/// A loop with all that it needs to run: models, parameters and settings.
pub struct Run<'a> {
    /// The loop.
    pub day_loop: &'static Loop,
    /// The engine that provides the tokenizer and caches.
    pub engine: &'a Engine,
    /// The model to run: the engine's own, or a wrapper around it that can be stopped.
    pub model: &'a dyn Model,
    /// Sampling parameters of every request.
    pub params: SamplingParams,
    /// Logits processors built from these parameters.
    pub processors: Processors,
    /// Whether to draw from torch's random stream, which all rows of a batch share.
    pub torch_stream: bool,
    /// Number of top alternatives to report with each token.
    pub top_logprobs: Option<usize>,
    /// Behavior when the context is full.
    pub past_context: PastContext,
    /// Parameters of a beam search.
    pub beams: BeamParams,
    /// Drafts to verify.
    pub drafts: Option<Drafts<'a>>,
    /// Maximum number of positions in a batch whose loop limits it.
    pub max_batch_tokens: usize,
}

/// Drafts for speculative decoding.
pub struct Drafts<'a> {
    /// Their source.
    pub source: DraftSource<'a>,
    /// Maximum number of tokens in a draft that isn't a tree.
    pub num_tokens: usize,
    /// Maximum number of children at each depth of a tree.
    pub tree_shape: Vec<usize>,
    /// Whether to use typical acceptance for trees, which changes the text.
    pub typical: bool,
}

/// Where drafts come from.
pub enum DraftSource<'a> {
    /// What followed the last N tokens earlier in the sequence.
    Ngrams(usize),
    /// N-grams of a corpus.
    Table(NgramTable),
    /// A smaller engine, and its model or a wrapper around it.
    Model(&'a Engine, &'a dyn Model),
    /// Medusa heads.
    Heads(MedusaHeads),
}

impl<'a> Run<'a> {
    /// Runs the loop for `prompts`. The first one is request number `first` of the whole run, and
    /// row 0 draws that request's random numbers. Only loops that take batches accept several.
    ///
    /// # Errors
    /// If the prompt doesn't fit, or if the model, a processor or `on_token` fails.
    pub fn run(&self, prompts: &[Vec<u32>], first: usize, on_token: &mut OnToken) -> Result<Found> {
        let takes = prompts.len() == 1 || self.day_loop.takes_batches();
        ensure!(takes, "{} takes one prompt", self.day_loop);
        (self.day_loop.run)(self, prompts, first, on_token)
    }

    /// Creates a request for this prompt, greedy or with portable random stream number `stream`.
    pub fn request(&self, prompt: &[u32], stream: usize) -> Request<'static> {
        self.request_with(prompt, requests::sampler(&self.params, stream, self.engine.ops()))
    }

    fn request_with(&self, prompt: &[u32], sampler: Sampler<'static>) -> Request<'static> {
        let (config, ops) = (self.model.config(), self.engine.ops());
        let processors = &self.processors;
        let mut request = requests::request(config, prompt, &self.params, processors, sampler, ops);
        request.past_context = self.past_context;
        request.top_logprobs = self.top_logprobs;
        request
    }

    /// Creates the requests of a batch, the first of which draws random stream number `first`. In
    /// torch, all rows share one stream.
    fn requests(&self, prompts: &[Vec<u32>], first: usize) -> Vec<Request<'static>> {
        if self.torch_stream {
            let samplers = torch_samplers(self.params.seed, prompts.len());
            let rows = prompts.iter().zip(samplers);
            return rows.map(|(prompt, sampler)| self.request_with(prompt, sampler)).collect();
        }
        prompts.iter().zip(first..).map(|(prompt, row)| self.request(prompt, row)).collect()
    }

    /// Creates the request of a loop that takes one prompt. Its random stream is number `first`.
    fn only_request(&self, prompts: &[Vec<u32>], first: usize) -> Result<Request<'static>> {
        self.requests(prompts, first).pop().context("a loop needs a prompt")
    }

    fn tokenizer(&self) -> &'a Tokenizer {
        self.engine.tokenizer()
    }

    /// Returns the drafts.
    fn drafts(&self) -> Result<&Drafts<'a>> {
        self.drafts.as_ref().with_context(|| format!("{} needs drafts", self.day_loop))
    }

    fn is_greedy(&self) -> bool {
        self.params.temperature == 0.0
    }
}

/// Passes the tokens on until they end or `on_token` returns false.
fn stream(tokens: TokenIter, on_token: &mut OnToken) -> Result<Found> {
    for token in tokens {
        if !on_token(token?)? {
            break;
        }
    }
    Ok(Found::default())
}
