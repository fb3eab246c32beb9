//! The days' generation loops as values: what each of them can do, and how to run it.
//!
//! Each loop has a file with its [`Loop`] and the function that runs it. A new loop is one such
//! file, named here by `mod` and in [`LOOPS`]. All other code asks a loop what it can do, and never
//! which day it is.

mod day06;
mod day07;
mod day10;
mod day11;
mod day12;
mod day13;
mod day15;
mod day21;
mod day22;
mod day23;
mod day24;
mod run;

pub use run::{DraftSource, Drafts, Found, OnToken, Run};

use crate::CacheKind;
use anyhow::{ensure, Context as _, Result};
use candecode::kit::error::usage;
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
    &day22::LOOP,
    &day23::LOOP,
];

/// A day's generation loop, and what it can do.
pub struct Loop {
    /// The day that builds it.
    pub day: usize,
    /// The cache that it runs with unless another is asked for. None: it recomputes every position.
    pub cache: Option<CacheKind>,
    /// What it can do.
    pub abilities: &'static [Ability],
    /// An ability that it can't run without, and the flags that ask for it.
    pub needs: Option<(Ability, &'static str)>,
    /// Whether it pads prompts of different lengths, which takes a mask.
    pub pads: bool,
    /// Whether day 16 can predict its passes: one prefill, then one step per token of every row.
    pub predictable: bool,
    /// Runs it. [`Run::run`] has checked the number of prompts.
    run: RunLoop,
}

/// Runs a loop for these prompts, the first of which is request number N of the whole run.
type RunLoop = fn(&Run, &[Vec<u32>], usize, &mut OnToken) -> Result<Found>;

/// Something that only some loops can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Runs several sequences at once. Other loops run one prompt after another.
    Batches,
    /// Runs with this cache.
    Cache(CacheKind),
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
    /// Limits the number of tokens and sequences in a step.
    TokenBudget,
    /// Answers the turns of a chat.
    Chat,
    /// Shows its passes. Beam search doesn't: its rows are copied, and belong to one request.
    Trace,
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
            Self::Cache(CacheKind::Sliding) => {
                ": beams, batches and drafts need the earlier positions"
            }
            Self::Window => {
                ": a window that moves computes all its positions again, which the loops of days 7 \
                 and 10 do, for one prompt at a time"
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
