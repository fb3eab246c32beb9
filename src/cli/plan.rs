//! From flags to what will run: which day's loop, which processors, which choice. Nothing is loaded yet.

use crate::cli::flags::{Args, CacheName, Early, Format, RngKind};
use crate::day08_sampling::{chacha_sampler, torch_sampler, warpers, SamplingParams};
use crate::day09_penalties::{penalties, PenaltyParams};
use crate::day14_guard_rails::{allow_rail, block_rails};
use crate::kit::error::usage;
use crate::kit::{
    BeamParams, EarlyStopping, GenerationOptions, LogitsProcessor, ModelConfig, Tokenizer,
};
use crate::{day07_greedy, kit::error::plain};
use anyhow::{ensure, Context as _, Result};

/// What the flags ask for.
pub struct Plan {
    /// The day whose loop runs.
    pub day: usize,
    /// Texts to make: prompts times samples.
    pub rows: usize,
    /// Set if sampling is on.
    pub sampling: Option<SamplingParams>,
    /// What to discourage.
    pub penalties: PenaltyParams,
    /// Words that must not appear.
    pub blocked: Vec<String>,
}

impl Plan {
    /// Reads the flags; `prompts` is how many prompts there are.
    ///
    /// # Errors
    /// If a value is out of range, or flags make no sense together.
    pub fn new(args: &Args, prompts: usize) -> Result<Self> {
        let sampling = sampling(args)?;
        let penalties = PenaltyParams {
            repetition: args.repetition_penalty,
            presence: args.presence_penalty,
            frequency: args.frequency_penalty,
            no_repeat_ngram: args.no_repeat_ngram,
            window: None,
        };
        let samples = if args.num_beams > 1 { 1 } else { args.num_return_sequences };
        let rows = prompts * samples;
        let blocked = blocked(args)?;
        let plan = Self { day: loop_day(args, rows)?, rows, sampling, penalties, blocked };
        plan.check(args)?;
        plan.unguarded()?; // a bad parameter is refused before a model is loaded
        Ok(plan)
    }

    fn check(&self, args: &Args) -> Result<()> {
        ensure!(args.num_beams > 0, usage("--num-beams is 0; 1 is no beam search, 4 is common"));
        ensure!(
            args.num_return_sequences > 0,
            usage("--num-return-sequences is 0; ask for at least 1")
        );
        let (beams, samples) = (args.num_beams, args.num_return_sequences);
        if beams > 1 {
            ensure!(
                samples <= beams,
                usage(format!("--num-return-sequences {samples} is more than --num-beams {beams}"))
            );
            ensure!(self.sampling.is_none(), usage("--num-beams searches; --temperature, --top-k, --top-p and --min-p sample: choose one"));
        }
        ensure!(
            samples == 1 || beams > 1 || self.sampling.is_some(),
            usage("--num-return-sequences without sampling or beams would give the same text again; add --temperature or --num-beams")
        );
        let drafts = args.draft_model.is_some() || args.draft_ngram.is_some();
        if drafts {
            ensure!(
                beams == 1,
                usage("--num-beams and drafts do not go together: a draft is one text")
            );
            ensure!(
                samples == 1,
                usage("drafts make one text a prompt; leave out --num-return-sequences")
            );
            ensure!(args.num_draft_tokens > 0, usage("--num-draft-tokens is 0; 4 is common"));
            ensure!(
                args.draft_ngram != Some(0),
                usage("--draft-ngram 0 matches nothing; 2 or 3 are common")
            );
            ensure!(
                args.cache != Some(CacheName::Sliding),
                usage("--cache sliding cannot take back rejected drafts")
            );
        }
        if args.chat {
            let alone = beams == 1 && samples == 1 && !drafts;
            ensure!(
                alone,
                usage("a chat is one text: leave out beams, drafts and --num-return-sequences")
            );
            ensure!(args.format == Format::Text, usage("--format json is for run, a chat is text"));
            ensure!(
                args.cache != Some(CacheName::Sliding),
                usage("--cache sliding forgets columns, and a chat keeps them from turn to turn")
            );
            ensure!(
                args.loop_day.as_ref().is_none_or(|_| self.day == 10),
                usage("a chat runs day 10's loop; leave out --loop")
            );
        }
        if self.day == 13 || self.day == 15 {
            ensure!(
                args.rng != Some(RngKind::Torch),
                usage("--rng torch draws one stream for a whole static batch; drafts and the scheduler need --rng chacha")
            );
        }
        if self.day == 11 || self.day == 12 || self.day == 15 {
            ensure!(
                args.cache != Some(CacheName::Sliding),
                usage("--cache sliding is for one prompt: its columns are not the same positions in every row")
            );
        }
        ensure!(
            self.sampling.is_some() || args.rng.is_none(),
            usage("--rng is for sampling; add --temperature")
        );
        Ok(())
    }

    /// Penalties and warpers: the processors that need no vocabulary.
    fn unguarded(&self) -> Result<[Vec<Box<dyn LogitsProcessor>>; 2]> {
        let refused = |e| usage(plain(&e));
        let warpers = warpers(&self.sampling.unwrap_or_default()).map_err(refused)?;
        Ok([penalties(&self.penalties).map_err(refused)?, warpers])
    }

    /// The processors, in HF's order: penalties, guard rails, warpers.
    ///
    /// # Errors
    /// If a parameter is out of range, or a pattern is refused.
    pub fn processors(
        &self,
        args: &Args,
        tokenizer: &Tokenizer,
        vocab_size: usize,
    ) -> Result<Vec<Box<dyn LogitsProcessor>>> {
        let [mut all, warpers] = self.unguarded()?;
        let refused = |e| usage(plain(&e));
        if !self.blocked.is_empty() {
            let whole = args.block_whole_words;
            let rails = block_rails(&self.blocked, whole, &args.stop, tokenizer, vocab_size);
            all.extend(rails.map_err(refused)?.into_iter().map(|rail| Box::new(rail) as _));
        }
        if let Some(regex) = &args.allow_regex {
            all.push(Box::new(allow_rail(regex, tokenizer, vocab_size).map_err(refused)?));
        }
        all.extend(warpers);
        Ok(all)
    }

    /// The options of every loop from day 7 on.
    ///
    /// # Errors
    /// As [`Plan::processors`].
    pub fn options(
        &self,
        args: &Args,
        config: &ModelConfig,
        tokenizer: &Tokenizer,
    ) -> Result<GenerationOptions<'static>> {
        let seed = args.seed.unwrap_or(0);
        let mut options = GenerationOptions::new(config, args.max_new_tokens, day07_greedy::greedy);
        if self.sampling.is_some() {
            options.choose = match args.rng {
                // One stream for all rows of a batch; a text of its own has its own.
                Some(RngKind::Torch) if self.day == 12 => torch_sampler(seed, self.rows),
                Some(RngKind::Torch) => torch_sampler(seed, 1),
                _ => chacha_sampler(seed),
            };
        }
        options.processors = self.processors(args, tokenizer, config.vocab_size)?;
        options.stop_strings.clone_from(&args.stop);
        Ok(options)
    }

    /// How to search with beams.
    pub fn beams(&self, args: &Args) -> BeamParams {
        BeamParams {
            num_beams: args.num_beams,
            num_return_sequences: args.num_return_sequences,
            length_penalty: args.length_penalty,
            early_stopping: match args.early_stopping {
                Early::True => EarlyStopping::True,
                Early::False => EarlyStopping::False,
                Early::Never => EarlyStopping::Never,
            },
        }
    }
}

/// Sampling is on if the temperature is above 0 or a filter is given; nothing else is implied.
fn sampling(args: &Args) -> Result<Option<SamplingParams>> {
    let filtered = args.top_k.is_some() || args.top_p.is_some() || args.min_p.is_some();
    let temperature = match args.temperature {
        Some(t) if t == 0.0 && filtered => {
            return Err(usage("--temperature 0 is greedy; leave out --top-k, --top-p and --min-p"))
        }
        Some(0.0) => return Ok(None),
        Some(t) => Some(t),
        None if filtered => Some(1.0),
        None => return Ok(None),
    };
    let top_k = match args.top_k {
        Some(k) => Some(usize::try_from(k).ok().filter(|k| *k > 0).ok_or_else(|| {
            usage(format!("--top-k must be at least 1, got {k}; leave it out to keep all tokens"))
        })?),
        None => None,
    };
    Ok(Some(SamplingParams { temperature, top_k, top_p: args.top_p, min_p: args.min_p }))
}

/// The words of `--block` and `--block-file`.
fn blocked(args: &Args) -> Result<Vec<String>> {
    let mut words = args.block.clone();
    if let Some(file) = &args.block_file {
        let text = std::fs::read_to_string(file).with_context(|| {
            format!("--block-file {}: could not be read as UTF-8 text", file.display())
        })?;
        // The mark that some editors put in front is no part of the first word, which would never match with it.
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        words.extend(text.lines().map(str::to_string));
        if let Some(line) = text.lines().position(|line| line.trim().is_empty()) {
            return Err(usage(format!(
                "--block-file {}: line {} is empty; it would block everything, remove it",
                file.display(),
                line + 1
            )));
        }
    }
    ensure!(
        words.iter().all(|word| !word.trim().is_empty()),
        usage("--block: a word is empty; it would block everything")
    );
    Ok(words)
}

/// The smallest day whose loop can do what is asked, or the one that `--loop` insists on.
fn loop_day(args: &Args, rows: usize) -> Result<usize> {
    let drafts = args.draft_model.is_some() || args.draft_ngram.is_some();
    let smallest = match () {
        () if drafts => 13,
        () if args.num_beams > 1 => 11,
        () if rows > 1 => 12,
        () if args.no_cache && !args.chat => 7, // a chat runs day 10's loop, without a cache to keep
        () => 10,
    };
    let Some(name) = &args.loop_day else { return Ok(smallest) };
    let day = match name.trim_start_matches("day").parse() {
        Ok(day @ (6 | 7 | 10..=13 | 15)) => day,
        _ => {
            let loops = "day6, day7, day10, day11, day12, day13 and day15";
            return Err(usage(format!("--loop {name}: no such loop; there are {loops}")));
        }
    };
    let alone =
        smallest == 7 || smallest == 10 || (smallest == 12 && args.num_return_sequences == 1);
    let sampling = sampling(args)?.is_some();
    let able = match day {
        6 => alone && args.stop.is_empty() && args.cache.is_none() && !sampling,
        7 => alone && args.cache.is_none(), // several prompts: one after another
        10 => alone && !args.no_cache,
        11 => (alone || smallest == 11) && !sampling,
        12 => alone || smallest == 12,
        13 => smallest == 13,
        _ => (alone || smallest == 12) && !args.no_cache,
    };
    ensure!(
        able,
        usage(format!(
            "--loop {name} cannot do what the other flags ask for; day {smallest}'s loop can"
        ))
    );
    Ok(day)
}
