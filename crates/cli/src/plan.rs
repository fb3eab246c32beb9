//! From flags to the loop that runs and its settings. Nothing is loaded yet. Rules about
//! combinations of flags alone are in [`flags`](crate::flags), where clap checks them.

use crate::flags::{Args, PastContextName, RngKind};
use crate::text_input;
use anyhow::{bail, ensure, Result};
use candecode::kit::dfa::{MOST_LIST_BYTES, MOST_WORD_BYTES};
use candecode::kit::error::{quoted, shown, usage};
use candecode::kit::note::note;
use candecode::kit::{BeamParams, EarlyStopping, PastContext, SamplingParams};
use candecode_engine::loops::{Ability, Ask, Loop};
use candecode_engine::operations::Kernels;
use candecode_engine::{extras, requests, CacheKind};
use candecode_formats::hub;
use candle_core::DType;

/// Checks the flags, and returns the loop to run and the parameters of every request.
///
/// # Errors
/// If a value is out of range, values don't work together, or the loop can't take a flag.
pub fn plan(args: &Args, prompts: usize) -> Result<(&'static Loop, SamplingParams)> {
    let params = sampling_params(args)?;
    let asks = asks(args, prompts);
    let day_loop = match args.day_loop {
        Some(named) => named.check(&asks).map(|()| named)?,
        None => Loop::smallest(&asks)?,
    };
    check(args, day_loop, &params)?;
    requests::check(&params)?; // reject bad parameters before a model is loaded
    check_extras(args, day_loop, prompts)?;
    Ok((day_loop, params))
}

/// Returns the flags that not every loop can take, and what they ask for. Those that decide which
/// loop runs come first.
fn asks(args: &Args, prompts: usize) -> Vec<Ask> {
    let trees = args.draft_trees();
    let beams = args.num_beams() > 1;
    let together = prompts > 1 && !beams && !args.drafts();
    let cache = |name| args.cache == Some(name);
    // A chat without a cache runs the same loop.
    let no_cache = args.no_cache && !args.chat;
    let warm = args.temperature.is_some_and(|temperature| temperature != 0.0);
    let window = args.past_context == PastContextName::Window;
    let torch = args.rng == Some(RngKind::Torch);
    let asks = [
        (args.draft_tree.is_some(), "--draft-tree", Ability::DraftTrees),
        (args.medusa.is_some(), "--medusa", Ability::DraftTrees),
        (!trees && args.draft_model.is_some(), "--draft-model", Ability::Drafts),
        (!trees && args.draft_ngram.is_some(), "--draft-ngram", Ability::Drafts),
        (!trees && args.draft_table.is_some(), "--draft-table", Ability::Drafts),
        (beams, "--num-beams", Ability::Beams),
        (args.samples() > 1, "--num-return-sequences", Ability::Batches),
        (together, SEVERAL_PROMPTS, Ability::Batches),
        (args.chat, "--chat", Ability::Chat),
        (no_cache, "--no-cache", Ability::NoCache),
        (cache(CacheKind::Dynamic), "--cache dynamic", Ability::Cache(CacheKind::Dynamic)),
        (cache(CacheKind::Static), "--cache static", Ability::Cache(CacheKind::Static)),
        (cache(CacheKind::Sliding), "--cache sliding", Ability::Cache(CacheKind::Sliding)),
        (cache(CacheKind::Paged), "--cache paged", Ability::Cache(CacheKind::Paged)),
        (warm, "--temperature", Ability::Sampling),
        (args.top_k.is_some(), "--top-k", Ability::Sampling),
        (args.top_p.is_some(), "--top-p", Ability::Sampling),
        (args.min_p.is_some(), "--min-p", Ability::Sampling),
        (torch, "--rng torch", Ability::TorchStream),
        (args.min_new_tokens.is_some(), "--min-new-tokens", Ability::Processors),
        (!args.stop.is_empty(), "--stop", Ability::Processors),
        (!args.stop_token_ids.is_empty(), "--stop-token-ids", Ability::Processors),
        (args.repetition_penalty.is_some(), "--repetition-penalty", Ability::Processors),
        (args.presence_penalty.is_some(), "--presence-penalty", Ability::Processors),
        (args.frequency_penalty.is_some(), "--frequency-penalty", Ability::Processors),
        (args.no_repeat_ngram.is_some(), "--no-repeat-ngram", Ability::Processors),
        (!args.logit_bias.is_empty(), "--logit-bias", Ability::Processors),
        (!args.block.is_empty(), "--block", Ability::Processors),
        (args.block_file.is_some(), "--block-file", Ability::Processors),
        (!args.block_ids.is_empty(), "--block-ids", Ability::Processors),
        (args.allow_regex.is_some(), "--allow-regex", Ability::Processors),
        (args.json_schema.is_some(), "--json-schema", Ability::Processors),
        (args.grammar.is_some(), "--grammar", Ability::Processors),
        (window, "--past-context window", Ability::Window),
        (args.top_logprobs.is_some(), "--top-logprobs", Ability::TopLogprobs),
        (args.max_batch_tokens.is_some(), "--max-batch-tokens", Ability::BatchLimit),
        (args.max_num_batched_tokens.is_some(), "--max-num-batched-tokens", Ability::TokenBudget),
        (args.max_num_seqs.is_some(), "--max-num-seqs", Ability::TokenBudget),
        (args.trace, "--trace", Ability::Trace),
    ];
    let given = asks.into_iter().filter(|(given, ..)| *given);
    let ask = |(_, flag, ability)| Ask { flag, ability, required: flag != SEVERAL_PROMPTS };
    given.map(ask).collect()
}

/// Stands for a flag in messages.
const SEVERAL_PROMPTS: &str = "several prompts";

/// Checks the values that must fit together, whichever loop runs.
fn check(args: &Args, day_loop: &Loop, params: &SamplingParams) -> Result<()> {
    let draws = args.top_k.is_some() || args.top_p.is_some() || args.min_p.is_some();
    let draws = draws || args.seed.is_some() || args.rng.is_some();
    let (beams, samples) = (args.num_beams(), args.num_return_sequences());
    let window = args.past_context == PastContextName::Window;
    let paged = args.cache(day_loop) == Some(CacheKind::Paged);
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
        (
            args.length_penalty.is_none_or(f64::is_finite),
            "--length-penalty must be a finite number",
        ),
        (
            samples == 1 || beams > 1 || params.temperature != 0.0,
            "--num-return-sequences without sampling or beams would give the same text again; \
             add --temperature or --num-beams",
        ),
        (
            params.min_new_tokens <= params.max_new_tokens,
            "--min-new-tokens is more than --max-new-tokens; lower it",
        ),
        (
            args.cache != Some(CacheKind::Sliding) || (!args.chat && !window),
            "--cache sliding is for one prompt only; chats and --past-context window need the \
             earlier positions",
        ),
        (
            !args.trace || !window,
            "--trace can't follow a window that moves; leave out --past-context window",
        ),
        (
            paged || (args.num_blocks.is_none() && args.block_size.is_none()),
            "--block-size and --num-gpu-blocks-override need a paged cache; add --cache paged",
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
            "--template-set and --template-date are for chat templates: cargo xtask chat, or an \
             instruct model without --raw",
        ),
    ] {
        ensure!(fine, usage(message));
    }
    Ok(())
}

/// A call that reaches a task beyond the core of its day.
type Extra = fn() -> candle_core::Result<()>;

/// Refuses flags that lead to tasks beyond the core of their day, if those aren't written.
fn check_extras(args: &Args, day_loop: &Loop, prompts: usize) -> Result<()> {
    let beams = args.num_beams() > 1;
    let stops = args.early_stopping == EarlyStopping::True;
    let never = args.early_stopping == EarlyStopping::Never;
    let no_penalty = args.length_penalty == Some(0.0);
    let joins = day_loop.can(Ability::BatchLimit) && prompts * args.samples() > 1;
    let trees = args.draft_trees() && args.draft_model.is_some();
    let extras: [(bool, &str, Extra); 10] = [
        (args.past_context == PastContextName::Window, "--past-context window", extras::windows),
        (args.cache == Some(CacheKind::Static), "--cache static", extras::static_cache),
        (args.cache == Some(CacheKind::Sliding), "--cache sliding", extras::sliding_cache),
        (beams && never, "--early-stopping never", extras::early_stopping),
        (
            beams && !never && !stops,
            "--num-beams (without --early-stopping true)",
            extras::early_stopping,
        ),
        (beams && !no_penalty, "--num-beams (without --length-penalty 0)", extras::length_penalty),
        (joins, "a batch that requests join", extras::joining_rows),
        (!args.block_ids.is_empty(), "--block-ids", extras::block_ids),
        (args.typical_acceptance, "--typical-acceptance", extras::typical_acceptance),
        (trees, "--draft-tree with --draft-model", extras::model_trees),
    ];
    let asked = extras.into_iter().filter(|(asked, ..)| *asked);
    asked.into_iter().try_for_each(|(_, flag, call)| extras::check(flag, call))
}

/// Returns what happens at the end of the model's context.
pub fn past_context(args: &Args, context: usize) -> PastContext {
    match args.past_context {
        PastContextName::Stop => PastContext::Stop,
        PastContextName::Window => PastContext::Window { stride: (context / 4).max(1) },
    }
}

/// Returns the parameters of a beam search.
pub fn beam_params(args: &Args) -> BeamParams {
    BeamParams {
        num_beams: args.num_beams(),
        num_return_sequences: args.num_return_sequences(),
        length_penalty: args.length_penalty.unwrap_or(1.0),
        early_stopping: args.early_stopping,
    }
}

/// Returns the parameters of every request. Sampling is on if the temperature is above 0 or a
/// filter is set; nothing else is implied.
fn sampling_params(args: &Args) -> Result<SamplingParams> {
    let filtered = args.top_k.is_some() || args.top_p.is_some() || args.min_p.is_some();
    let default_temperature = if filtered { 1.0 } else { 0.0 };
    let neutral = SamplingParams::default();
    Ok(SamplingParams {
        max_new_tokens: args.max_new_tokens(),
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
        min_new_tokens: args.min_new_tokens.unwrap_or(neutral.min_new_tokens),
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
            ensure!(
                line.len() <= MOST_WORD_BYTES,
                usage(format!(
                    "--block-file {shown}: line {} has {} bytes; write one word or phrase per \
                     line, of at most {MOST_WORD_BYTES}",
                    i + 1,
                    line.len()
                ))
            );
            words.push(line.to_string());
        }
        let bytes: usize = words.iter().map(String::len).sum();
        ensure!(
            bytes <= MOST_LIST_BYTES,
            usage(format!(
                "--block-file {shown}: the words to block have {bytes} bytes in total; at most \
                 {MOST_LIST_BYTES} are allowed, so leave some out"
            ))
        );
    }
    if let Some(long) = args.block.iter().find(|word| word.len() > MOST_WORD_BYTES) {
        bail!(usage(format!(
            "--block: this text has {} bytes; at most {MOST_WORD_BYTES} are allowed",
            long.len()
        )));
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
