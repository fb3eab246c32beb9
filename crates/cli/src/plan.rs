//! Turns flags into a plan: which loop, processors and sampler to use. Nothing is loaded yet. Rules
//! about combinations of flags alone are in [`flags`](crate::flags), where clap checks them.

use crate::flags::{Args, CacheName, Early, PastContextName, RngKind};
use crate::text_input;
use anyhow::{ensure, Result};
use candecode::kit::error::{quoted, shown, usage};
use candecode::kit::note::note;
use candecode::kit::{BeamParams, EarlyStopping, Model as _, PastContext, SamplingParams};
use candecode_engine::loops::{LoopPlan, TreePlan};
use candecode_engine::operations::Kernels;
use candecode_engine::requests::{self, Processors};
use candecode_engine::Engine;
use candecode_formats::hub;
use candle_core::DType;

/// The plan for a run, derived from the flags.
pub struct Plan {
    /// The day of the loop to run.
    pub day: usize,
    /// Total number of sequences: prompts times samples.
    pub rows: usize,
    /// Sampling parameters of every request.
    pub params: SamplingParams,
}

impl Plan {
    /// Creates the plan from the flags and the number of prompts.
    ///
    /// # Errors
    /// If a value is out of range, or values don't work together.
    pub fn new(args: &Args, prompts: usize) -> Result<Self> {
        let params = sampling_params(args)?;
        let samples = if args.num_beams > 1 { 1 } else { args.num_return_sequences };
        let rows = prompts * samples;
        let plan = Self { day: loop_day(args, rows, &params)?, rows, params };
        plan.check(args)?;
        requests::check(&plan.params)?; // reject bad parameters before a model is loaded
        Ok(plan)
    }

    /// Returns true if tokens are sampled rather than chosen greedily.
    pub fn samples(&self) -> bool {
        self.params.temperature != 0.0
    }

    fn check(&self, args: &Args) -> Result<()> {
        let draws = args.top_k.is_some() || args.top_p.is_some() || args.min_p.is_some();
        let draws = draws || args.seed.is_some() || args.rng.is_some();
        let (beams, samples) = (args.num_beams, args.num_return_sequences);
        let (least, most) = (args.min_new_tokens, args.max_new_tokens);
        let window = args.past_context == PastContextName::Window;
        let paged = args.cache == Some(CacheName::Paged);
        let one_text = self.day == 7 || self.day == 10;
        let on_metal = cfg!(feature = "metal") && args.device == "metal";
        let mine = args.kernels == Some(Kernels::Mine);
        let reads = matches!(args.dtype, None | Some(DType::F32))
            || (args.dtype == Some(DType::BF16) && !on_metal);
        let asks = args.chat || (hub::is_instruct(&args.model) && !args.raw);
        for (fine, message) in [
            (
                args.temperature != Some(0.0) || !draws,
                "--temperature 0 means greedy decoding, which doesn't sample; leave out --top-k, \
                 --top-p, --min-p, --seed and --rng",
            ),
            (
                beams == 1 || samples <= beams,
                "--num-return-sequences is more than --num-beams; lower it or use more beams",
            ),
            (args.length_penalty.is_finite(), "--length-penalty must be a finite number"),
            (
                samples == 1 || beams > 1 || self.samples(),
                "--num-return-sequences without sampling or beams would give the same text again; \
                 add --temperature or --num-beams",
            ),
            (least <= most, "--min-new-tokens is more than --max-new-tokens; lower it"),
            (
                args.cache != Some(CacheName::Sliding) || (self.day == 10 && !args.chat && !window),
                "--cache sliding is for one prompt only; beams, batches, drafts, chats and \
                 --past-context window need the earlier positions",
            ),
            (
                !paged || [10, 11, 13, 21].contains(&self.day),
                "--cache paged is for the loops of days 10, 11, 13 and 21",
            ),
            (
                paged || self.day == 21 || (args.num_blocks.is_none() && args.block_size == 16),
                "--block-size and --num-gpu-blocks-override need a paged cache; add --cache paged",
            ),
            (
                !window || one_text,
                "--past-context window is for one prompt only, without beams, drafts or batches",
            ),
            (
                args.top_logprobs.is_none() || [7, 10, 12, 15, 21].contains(&self.day),
                "--top-logprobs is for the loops of days 7, 10, 12, 15 and 21",
            ),
            (
                args.rng != Some(RngKind::Torch) || ![13, 15, 24].contains(&self.day),
                "--rng torch uses a single random stream for a whole static batch; drafts and the \
                 scheduler need --rng chacha",
            ),
            (
                args.max_batch_tokens == 4096 || self.day == 15,
                "--max-batch-tokens is for the scheduler; add --loop day15",
            ),
            (
                !mine || args.device == "cpu" || on_metal,
                "--kernels mine works only on the CPU; leave out --device",
            ),
            (
                !mine || reads,
                "--kernels mine doesn't support this --dtype; leave --kernels or --dtype out",
            ),
            (
                asks || (args.template_set.is_empty() && args.template_date.is_none()),
                "--template-set and --template-date are for chat templates: cargo xtask chat, or \
                 an instruct model without --raw",
            ),
        ] {
            ensure!(fine, usage(message));
        }
        Ok(())
    }

    /// Returns the loop to run, with the processors for its parameters.
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
            beams: BeamParams {
                num_beams: args.num_beams,
                num_return_sequences: args.num_return_sequences,
                length_penalty: args.length_penalty,
                early_stopping: match args.early_stopping {
                    Early::True => EarlyStopping::True,
                    Early::False => EarlyStopping::False,
                    Early::Never => EarlyStopping::Never,
                },
            },
            draft_ngram: args.draft_ngram.unwrap_or(2),
            draft_table: None,
            num_draft_tokens: args.num_draft_tokens,
            tree: TreePlan {
                shape: args.tree_shape(),
                typical: args.typical_acceptance,
                heads: None,
            },
            max_batch_tokens: args.max_batch_tokens,
            top_logprobs: args.top_logprobs,
        }
    }
}

/// Returns the parameters of every request. Sampling is on if the temperature is above 0 or a
/// filter is set; nothing else is implied.
fn sampling_params(args: &Args) -> Result<SamplingParams> {
    let filtered = args.top_k.is_some() || args.top_p.is_some() || args.min_p.is_some();
    let default_temperature = if filtered { 1.0 } else { 0.0 };
    let neutral = SamplingParams::default();
    Ok(SamplingParams {
        max_new_tokens: args.max_new_tokens,
        temperature: args.temperature.unwrap_or(default_temperature),
        top_k: args.top_k,
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

/// Returns the words of `--block` and `--block-file`.
fn blocked(args: &Args) -> Result<Vec<String>> {
    let mut words = args.block.clone();
    if let Some(list) = words.iter().find(|word| word.contains(',')) {
        note!(
            "note: --block {} is one text, commas included; to block each word, write them apart: \
                --block war fight",
            quoted(list)
        );
    }
    if let Some(file) = &args.block_file {
        let text = text_input::text_file("--block-file", file)?;
        let text = text.replace("\r\n", "\n").replace('\r', "\n"); // a bare CR also ends a line
        let shown = file.display();
        ensure!(
            !text.trim().is_empty(),
            usage(format!("--block-file {shown}: contains no words, so nothing would be blocked"))
        );
        for (i, line) in text.lines().enumerate() {
            ensure!(
                !line.trim().is_empty(),
                usage(format!(
                    "--block-file {shown}: line {} is empty; it would block everything, so \
                     remove it",
                    i + 1
                ))
            );
            words.push(line.to_string());
        }
    }
    ensure!(
        words.iter().all(|word| !word.trim().is_empty()),
        usage("--block: empty word; it would block everything")
    );
    Ok(words)
}

/// Returns the prompts that were given as text.
///
/// # Errors
/// If a file can't be read.
pub fn prompt_texts(args: &Args) -> Result<Vec<String>> {
    match &args.prompt_file {
        Some(file) if file.as_os_str() == "-" => Ok(vec![text_input::standard_input()?]),
        Some(file) => Ok(vec![text_input::text_file("--prompt-file", file)?]),
        None => {
            // nanoGPT's syntax for a file.
            let file = args.prompt.iter().find_map(|text| text.strip_prefix("FILE:"));
            if let Some(file) = file {
                let file = shown(file);
                return Err(usage(format!(
                    "-p FILE:{file} would continue these very characters; --prompt-file {file} \
                        reads the file"
                )));
            }
            Ok(args.prompt.clone())
        }
    }
}

/// Returns the day of the loop to run: the first one that can do what the flags ask for, or the one
/// requested by `--loop`.
fn loop_day(args: &Args, rows: usize, params: &SamplingParams) -> Result<usize> {
    let drafts = args.drafts();
    let smallest = match () {
        () if args.draft_trees() => 24,
        () if drafts => 13,
        () if args.num_beams > 1 => 11,
        () if rows > 1 && args.cache == Some(CacheName::Paged) => 21,
        () if rows > 1 => 12,
        // A chat always runs day 10's loop; with `--no-cache` it doesn't keep a cache.
        () if args.no_cache && !args.chat => 7,
        () => 10,
    };
    let Some(day) = args.loop_day else { return Ok(smallest) };
    let batch = smallest == 12 || smallest == 21;
    let alone = smallest == 7 || smallest == 10 || (batch && args.num_return_sequences == 1);
    let able = match day {
        6 => {
            // Its loop is greedy and has no processors.
            let max_new_tokens = params.max_new_tokens;
            let plain = SamplingParams { max_new_tokens, ..SamplingParams::default() };
            alone && args.cache.is_none() && *params == plain
        }
        7 => alone && args.cache.is_none(), // several prompts run one after another
        10 => alone && !args.no_cache,
        11 => (alone || smallest == 11) && params.temperature == 0.0,
        12 => alone || batch,
        13 | 24 => smallest == day,
        21 => {
            let paged = matches!(args.cache, None | Some(CacheName::Paged));
            (alone || batch) && paged && !args.no_cache
        }
        _ => (alone || batch) && !args.no_cache,
    };
    ensure!(
        able,
        usage(format!(
            "--loop day{day} cannot do what the other flags ask for; day {smallest}'s loop can"
        ))
    );
    Ok(day)
}
