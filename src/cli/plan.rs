//! From flags to what will run: which day's loop, which processors, which choice. Nothing is loaded yet.

use crate::cli::flags::{Args, CacheName, Early, Format, PastContextName, RngKind};
use crate::cli::text_input;
use crate::engine::loops::LoopPlan;
use crate::engine::operations::Kernels;
use crate::engine::requests::{self, Processors};
use crate::engine::Engine;
use crate::formats::hub;
use crate::kit::error::{quoted, shown, usage};
use crate::kit::note::note;
use crate::kit::{BeamParams, EarlyStopping, Model as _, PastContext, SamplingParams};
use anyhow::{ensure, Result};
use std::path::Path;

/// What the flags ask for.
pub struct Plan {
    /// The day whose loop runs.
    pub day: usize,
    /// Sequences to make: prompts times samples.
    pub rows: usize,
    /// What every request asks for.
    pub params: SamplingParams,
}

impl Plan {
    /// Reads the flags; `prompts` is how many prompts there are.
    ///
    /// # Errors
    /// If a value is out of range, or flags make no sense together.
    pub fn new(args: &Args, prompts: usize) -> Result<Self> {
        let params = sampling_params(args)?;
        let samples = if args.num_beams > 1 { 1 } else { args.num_return_sequences };
        let rows = prompts * samples;
        let plan = Self { day: loop_day(args, rows, params.temperature != 0.0)?, rows, params };
        plan.check(args)?;
        requests::check(&plan.params)?; // a bad parameter is refused before a model is loaded
        Ok(plan)
    }

    /// True if tokens are drawn, not chosen greedily.
    pub fn samples(&self) -> bool {
        self.params.temperature != 0.0
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
                args.length_penalty.is_finite(),
                usage(format!(
                    "--length-penalty must be a finite number, got {}",
                    args.length_penalty
                ))
            );
            ensure!(
                samples <= beams,
                usage(format!("--num-return-sequences {samples} is more than --num-beams {beams}"))
            );
            ensure!(!self.samples(), usage("--num-beams searches; --temperature, --top-k, --top-p and --min-p sample: choose one"));
        }
        ensure!(
            samples == 1 || beams > 1 || self.samples(),
            usage("--num-return-sequences without sampling or beams would give the same text again; add --temperature or --num-beams")
        );
        let (least, most) = (args.min_new_tokens, args.max_new_tokens);
        ensure!(
            least <= most,
            usage(format!("--min-new-tokens {least} is more than --max-new-tokens {most}"))
        );
        let drafts = args.drafts();
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
                usage("--cache sliding forgets positions, and a chat keeps them from turn to turn")
            );
            ensure!(
                args.loop_day.as_ref().is_none_or(|_| self.day == 10),
                usage("a chat runs day 10's loop; leave out --loop")
            );
        }
        if args.past_context == PastContextName::Window {
            ensure!(
                self.day == 7 || self.day == 10,
                usage("--past-context window is for one prompt, without beams, drafts or batches")
            );
            ensure!(
                args.cache != Some(CacheName::Sliding),
                usage("--past-context window and --cache sliding are two ways past the context; choose one")
            );
            ensure!(
                !args.chat,
                usage("--past-context is for run: a chat forgets its oldest turns")
            );
        }
        if let Some(count) = args.top_logprobs {
            ensure!(count > 0, usage("--top-logprobs is 0; 5 is common"));
            ensure!(
                [7, 10, 12, 15].contains(&self.day) && !args.chat,
                usage(
                    "--top-logprobs is for the loops of days 7, 10, 12 and 15: no beams, drafts or \
                     chat"
                )
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
                usage("--cache sliding is for one prompt: in a batch its entries are not the same positions in every row")
            );
        }
        if args.kernels == Some(Kernels::Mine) {
            let metal = cfg!(feature = "metal") && args.device == "metal";
            ensure!(
                args.device == "cpu" || metal,
                usage("--kernels mine is for the CPU; leave out --device")
            );
            let dtype = args.dtype.as_deref().unwrap_or("f32");
            ensure!(
                dtype == "f32" || (dtype == "bf16" && !metal),
                usage(format!(
                    "--kernels mine does not read {dtype} weights here; leave out --dtype"
                ))
            );
        }
        self.check_effect(args, drafts)
    }

    /// Refuses flags that could do nothing, because the flag that they belong to is not there.
    fn check_effect(&self, args: &Args, drafts: bool) -> Result<()> {
        for (flag, given) in [("--seed", args.seed.is_some()), ("--rng", args.rng.is_some())] {
            ensure!(
                !given || args.temperature != Some(0.0),
                usage(format!(
                    "--temperature 0 is greedy and draws nothing; leave out {flag}, or raise the temperature"
                ))
            );
        }
        let beams = args.num_beams > 1;
        let blocks = !self.params.block.is_empty();
        let asks = args.chat || (hub::is_instruct(&args.model) && !args.raw);
        const ASKS: &str = "chat templates: cargo xtask chat, or an instruct model without --raw";
        let penalised = self.params.repetition_penalty != 1.0
            || self.params.presence_penalty != 0.0
            || self.params.frequency_penalty != 0.0;
        ensure!(
            args.penalty_window != Some(0),
            usage("--penalty-window 0 would look at no token; leave the penalties out")
        );
        for (flag, given, effective, needs) in [
            (
                "--penalty-window",
                args.penalty_window.is_some(),
                penalised,
                "penalties; add --repetition-penalty, --presence-penalty or --frequency-penalty",
            ),
            ("--rng", args.rng.is_some(), self.samples(), "sampling; add --temperature"),
            ("--seed", args.seed.is_some(), self.samples(), "sampling; add --temperature"),
            ("--length-penalty", args.length_penalty != 1.0, beams, "beam search; add --num-beams"),
            (
                "--early-stopping",
                args.early_stopping != Early::False,
                beams,
                "beam search; add --num-beams",
            ),
            (
                "--num-draft-tokens",
                args.num_draft_tokens != 4,
                drafts,
                "drafts; add --draft-model, --draft-ngram or --draft-table",
            ),
            (
                "--max-batch-tokens",
                args.max_batch_tokens != 4096,
                self.day == 15,
                "the scheduler; add --loop day15",
            ),
            (
                "--block-whole-words",
                args.block_whole_words,
                blocks,
                "a block list; add --block or --block-file",
            ),
            ("--system", args.system.is_some(), args.chat, "cargo xtask chat"),
            ("--template", args.template.is_some(), args.chat, "cargo xtask chat"),
            ("--template-set", !args.template_set.is_empty(), asks, ASKS),
            ("--template-date", args.template_date.is_some(), asks, ASKS),
        ] {
            ensure!(!given || effective, usage(format!("{flag} is for {needs}")));
        }
        ensure!(
            args.stop.iter().all(|stop| !stop.is_empty()),
            usage("--stop: a string is empty; it would end every text before its first token")
        );
        Ok(())
    }

    /// The loop that runs, with the processors of its parameters.
    pub fn loops(&self, args: &Args, processors: Processors, engine: &Engine) -> LoopPlan {
        let context = engine.model().config().max_position_embeddings;
        let stride = (context / 4).max(1);
        LoopPlan {
            day: self.day,
            params: self.params.clone(),
            processors,
            ops: engine.ops().clone(),
            torch: args.rng == Some(RngKind::Torch),
            past_context: match args.past_context {
                PastContextName::Stop => PastContext::Stop,
                PastContextName::Window => PastContext::Window { stride },
            },
            beams: self.beams(args),
            draft_ngram: args.draft_ngram.unwrap_or(2),
            draft_table: None,
            num_draft_tokens: args.num_draft_tokens,
            max_batch_tokens: args.max_batch_tokens,
            top_logprobs: args.top_logprobs,
        }
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

/// The parameters of every request. Sampling is on if the temperature is above 0 or a filter is given;
/// nothing else is implied.
fn sampling_params(args: &Args) -> Result<SamplingParams> {
    let filtered = args.top_k.is_some() || args.top_p.is_some() || args.min_p.is_some();
    if args.temperature == Some(0.0) && filtered {
        return Err(usage("--temperature 0 is greedy; leave out --top-k, --top-p and --min-p"));
    }
    let default_temperature = if filtered { 1.0 } else { 0.0 };
    let top_k = match args.top_k {
        Some(k) => Some(usize::try_from(k).ok().filter(|k| *k > 0).ok_or_else(|| {
            usage(format!("--top-k must be at least 1, got {k}; leave it out to keep all tokens"))
        })?),
        None => None,
    };
    let neutral = SamplingParams::default();
    Ok(SamplingParams {
        max_new_tokens: args.max_new_tokens,
        temperature: args.temperature.unwrap_or(default_temperature),
        top_k,
        top_p: args.top_p.unwrap_or(neutral.top_p),
        min_p: args.min_p.unwrap_or(neutral.min_p),
        seed: args.seed.map_or(neutral.seed, |seed| seed.value),
        repetition_penalty: args.repetition_penalty.unwrap_or(neutral.repetition_penalty),
        presence_penalty: args.presence_penalty.unwrap_or(neutral.presence_penalty),
        frequency_penalty: args.frequency_penalty.unwrap_or(neutral.frequency_penalty),
        no_repeat_ngram: args.no_repeat_ngram,
        penalty_window: args.penalty_window,
        stop: args.stop.clone(),
        block: blocked(args)?,
        block_whole_words: args.block_whole_words,
        block_ids: args.block_ids.iter().map(|ids| ids.0.clone()).collect(),
        allow_regex: args.allow_regex.clone(),
        logit_bias: args.logit_bias.clone(),
        min_new_tokens: args.min_new_tokens,
        stop_token_ids: args.stop_token_ids.clone(),
        ..neutral
    })
}

/// The words of `--block` and `--block-file`.
fn blocked(args: &Args) -> Result<Vec<String>> {
    let mut words = args.block.clone();
    if let Some(list) = words.iter().find(|word| word.contains(',')) {
        note!(
            "note: --block {} is one text, commas included; to block each word, write them apart: --block war fight",
            quoted(list)
        );
    }
    if let Some(file) = &args.block_file {
        let text = text_input::text_file("--block-file", file)?;
        let text = text.replace("\r\n", "\n").replace('\r', "\n"); // a bare CR ends a line, too
        let shown = file.display();
        ensure!(
            !text.trim().is_empty(),
            usage(format!("--block-file {shown}: no word in it, so nothing would be blocked"))
        );
        for (i, line) in text.lines().enumerate() {
            ensure!(
                !line.trim().is_empty(),
                usage(format!(
                    "--block-file {shown}: line {} is empty; it would block everything, remove it",
                    i + 1
                ))
            );
            words.push(line.to_string());
        }
    }
    ensure!(
        words.iter().all(|word| !word.trim().is_empty()),
        usage("--block: a word is empty; it would block everything")
    );
    Ok(words)
}

/// The prompts that are texts.
///
/// # Errors
/// If a file cannot be read.
pub fn prompt_texts(args: &Args) -> Result<Vec<String>> {
    match &args.prompt_file {
        Some(file) => Ok(vec![prompt_file(file)?]),
        None => {
            // nanoGPT's spelling of a file.
            let file = args.prompt.iter().find_map(|text| text.strip_prefix("FILE:"));
            if let Some(file) = file {
                let file = shown(file);
                return Err(usage(format!(
                    "-p FILE:{file} would continue these very characters; --prompt-file {file} reads the file"
                )));
            }
            Ok(args.prompt.clone())
        }
    }
}

fn prompt_file(file: &Path) -> Result<String> {
    if file.as_os_str() != "-" {
        return text_input::text_file("--prompt-file", file);
    }
    text_input::standard_input()
}

/// The smallest day whose loop can do what is asked, or the one that `--loop` insists on.
fn loop_day(args: &Args, rows: usize, sampling: bool) -> Result<usize> {
    let drafts = args.drafts();
    let smallest = match () {
        () if drafts => 13,
        () if args.num_beams > 1 => 11,
        () if rows > 1 => 12,
        () if args.no_cache && !args.chat => 7, // a chat runs day 10's loop, without a cache to keep
        () => 10,
    };
    let Some(name) = &args.loop_day else { return Ok(smallest) };
    let day = match name.strip_prefix("day").unwrap_or(name).parse() {
        Ok(day @ (6 | 7 | 10..=13 | 15)) => day,
        _ => {
            let loops = "day6, day7, day10, day11, day12, day13 and day15";
            return Err(usage(format!("--loop {name}: no such loop; there are {loops}")));
        }
    };
    let alone =
        smallest == 7 || smallest == 10 || (smallest == 12 && args.num_return_sequences == 1);
    let able = match day {
        6 => alone && args.stop.is_empty() && args.cache.is_none() && !sampling && !has_rules(args),
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

/// Whether flags change the logits: day 6's loop runs no processors.
fn has_rules(args: &Args) -> bool {
    args.repetition_penalty.is_some_and(|penalty| penalty != 1.0)
        || args.presence_penalty.is_some_and(|penalty| penalty != 0.0)
        || args.frequency_penalty.is_some_and(|penalty| penalty != 0.0)
        || args.no_repeat_ngram.is_some()
        || !args.block.is_empty()
        || args.block_file.is_some()
        || !args.block_ids.is_empty()
        || args.allow_regex.is_some()
        || !args.logit_bias.is_empty()
        || args.min_new_tokens > 0
}
