//! What the `candecode` command does with its flags.

use crate::cli::flags::{Args, CacheName, Format, PastContextName, RngKind};
use crate::cli::output::Output;
use crate::cli::plan::{text_file, Plan};
use crate::cli::{chat_terminal, generation_config, interrupt, memory_check};
use crate::day05_model::Transformer;
use crate::day10_kv_cache::{generate_cached, Cached, KvCache};
use crate::day13_speculative::{decode_block, ModelDrafter, NgramDrafter, SpeculativeDecoder};
use crate::day15_scheduler::{NewCache, Scheduler};
use crate::engine::chat::Chat;
use crate::engine::chat_template::Template;
use crate::engine::requests::{self, Processors};
use crate::engine::{load, nan_trace, Engine};
use crate::formats::{hub, ModelFiles};
use crate::kit::draft::Drafter;
use crate::kit::error::{describe, plain, usage};
use crate::kit::rng::RequestRng;
use crate::kit::{check_prompt, days, device, kernels};
use crate::kit::{Cache, CacheKind, FinishReason, Model, ModelConfig, PastContext, Request};
use crate::kit::{Sampler, Step, Token, Tokenizer};
use crate::{day06_generate, day07_greedy, day11_beam_search, day12_batching};
use anyhow::{anyhow, ensure, Context as _, Result};
use candle_core::{DType, Device, Tensor};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::Instant;

/// Runs the command; gives its exit code.
///
/// # Errors
/// If a flag is wrong ([`Usage`]), or the model or the text fails.
pub fn run(args: &Args) -> Result<u8> {
    ensure!(args.max_new_tokens > 0, usage("--max-new-tokens is 0; ask for at least 1"));
    let device = device::device(&args.device).map_err(usage)?;
    let dtype = device::dtype(&args.dtype).map_err(usage)?;
    if args.models {
        let _ = std::io::stdout().write_all(hub::list()?.as_bytes());
        return Ok(0);
    }
    if args.find {
        println!("{}", hub::locate(&args.model, args.offline)?.display());
        return Ok(0);
    }
    let prompted = args.prompt_file.is_some() || args.prompt_ids.is_some();
    if args.prompt.is_empty() && !prompted && !args.chat {
        return Err(usage("no prompt; give one with --prompt, --prompt-file or --prompt-ids"));
    }
    let plan = Plan::new(args, args.prompt.len().max(1))?;
    kernels::choose(args.kernels);
    let began = Instant::now();
    let files = ModelFiles::at(&hub::locate(&args.model, args.offline)?)?;
    let tokenizer = tokenizer(args, &files)?;
    let template = if args.chat { Some(template(args, &files)?) } else { None };
    let config = files.config();
    let processors = requests::processors(&plan.params, &tokenizer, config)?;
    let prompts = prompts(args, &tokenizer, config.max_position_embeddings)?;
    let drafter = args.draft_model.as_deref();
    let drafter = drafter.map(|name| draft_model(name, args, &files, &tokenizer)).transpose()?;
    interrupt::watch();
    let configs: Vec<_> =
        std::iter::once(config).chain(drafter.as_ref().map(ModelFiles::config)).collect();
    let mut context = config.max_position_embeddings;
    if let Some(room) = memory_check::available(&device)? {
        let need = memory_check::need(args, &plan, &configs, &prompts, dtype, &device);
        memory_check::check(&need, room, args, &plan)?;
        context = need.longest(room).min(context); // of a chat: what it may grow to
    }
    let engine = open(args, &files, tokenizer, dtype, &device)?;
    let drafter = match &drafter {
        Some(files) => Some(open(args, files, files.tokenizer()?, dtype, &device)?),
        None => None,
    };
    for (i, prompt) in prompts.iter().enumerate() {
        check_prompt(engine.model(), prompt)
            .map_err(|e| anyhow!("{}{}", which(i, prompts.len()), plain(&e)))?;
    }
    let load_s = began.elapsed().as_secs_f64();
    eprintln!("{}", days::credits(plan.day));
    let asked_for = files.generation_config();
    if let Some(note) = asked_for.and_then(|asked_for| generation_config::advice(asked_for, args)) {
        eprintln!("{note}");
    }
    let model = Interruptible(engine.model());
    let draft_model = drafter.as_ref().map(|drafter| Interruptible(drafter.model()));
    let run = Run {
        args,
        engine: &engine,
        model: &model,
        drafter: drafter.as_ref(),
        draft_model: draft_model.as_ref().map(|model| model as &dyn Model),
        plan: &plan,
        processors,
        load_s,
    };
    if let Some(template) = template {
        return Ok(u8::from(!run.chat(template, context)?));
    }
    run.all(&prompts)?;
    Ok(if interrupt::asked() { 130 } else { 0 })
}

/// The engine of a folder, with the cache that the flags ask for.
fn open(
    args: &Args,
    files: &ModelFiles,
    tokenizer: Tokenizer,
    dtype: DType,
    device: &Device,
) -> Result<Engine> {
    let mut engine = Engine::new(load::load_files(files, dtype, device)?, tokenizer);
    let context = engine.model().config().max_position_embeddings;
    engine.cache = match args.cache {
        _ if args.no_cache => None,
        Some(CacheName::Static) => Some(CacheKind::Static(context)),
        Some(CacheName::Sliding) => Some(CacheKind::Sliding(context)),
        _ => Some(CacheKind::Dynamic),
    };
    Ok(engine)
}

/// The model's tokenizer. A run whose prompt and whose output are ids, and which looks at no text, does without.
fn tokenizer(args: &Args, files: &ModelFiles) -> Result<Tokenizer> {
    let looks_at_text = !args.stop.is_empty()
        || !args.block.is_empty()
        || args.block_file.is_some()
        || args.allow_regex.is_some();
    let ids_only = args.prompt_ids.is_some() && args.format == Format::Json && !looks_at_text;
    if ids_only && !files.has_tokenizer() {
        return Ok(Tokenizer::empty());
    }
    files.tokenizer()
}

/// The chat template, with the variables that the flags give it.
fn template(args: &Args, files: &ModelFiles) -> Result<Template> {
    let mut template =
        Template::choose(&args.model, files.chat_template()?, args.template.as_deref())?;
    args.template_set.iter().try_for_each(|setting| template.set(setting))?;
    Ok(template)
}

/// The files of a draft model, refused before any weights are read if its tokens are not the target's. One that is no
/// smaller than the target is worth a warning only: the text is the same.
fn draft_model(
    name: &str,
    args: &Args,
    target: &ModelFiles,
    tokenizer: &Tokenizer,
) -> Result<ModelFiles> {
    let files = ModelFiles::at(&hub::locate(name, args.offline)?)?;
    if let Some(difference) = files.tokenizer()?.difference(tokenizer) {
        return Err(usage(format!(
            "--draft-model {name}: a draft must have its target's tokenizer, and this one differs: {difference}"
        )));
    }
    let (draft, target) = (files.config(), target.config());
    if draft.size() >= target.size() {
        eprintln!("warning: the draft model is as large as its target: speculation will be slower than none");
    }
    Ok(files)
}

/// The token ids of every prompt.
fn prompts(args: &Args, tokenizer: &Tokenizer, context: usize) -> Result<Vec<Vec<u32>>> {
    let texts = match (&args.prompt_ids, &args.prompt_file) {
        (Some(ids), _) => return Ok(vec![ids.clone()]),
        (_, Some(file)) => vec![prompt_file(file)?],
        _ => args.prompt.clone(),
    };
    let encode = |(i, text): (usize, &String)| -> Result<Vec<u32>> {
        let which = which(i, texts.len());
        ensure!(
            !text.is_empty(),
            usage(format!("{which}the prompt is empty; give it at least one character"))
        );
        if text.len() / 16 > context {
            // It may be too long in any case: that is known without reading it for minutes.
            let least = text.len() / tokenizer.longest_token().max(1);
            ensure!(
                least <= context,
                "{which}the prompt is {} bytes long, so at least {least} tokens, and the context is \
                 {context} tokens; shorten it",
                text.len()
            );
        }
        Ok(tokenizer.encode(text)?)
    };
    texts.iter().enumerate().map(encode).collect()
}

/// "prompt 2 of 3: ", where there are several.
fn which(i: usize, prompts: usize) -> String {
    match prompts {
        1 => String::new(),
        _ => format!("prompt {} of {prompts}: ", i + 1),
    }
}

fn prompt_file(file: &Path) -> Result<String> {
    if file.as_os_str() != "-" {
        return text_file("--prompt-file", file);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("could not read standard input")?;
    Ok(text)
}

/// The loops of the days, with the flags.
struct Run<'a> {
    args: &'a Args,
    engine: &'a Engine,
    model: &'a Interruptible<'a>,
    drafter: Option<&'a Engine>,
    draft_model: Option<&'a dyn Model>,
    plan: &'a Plan,
    processors: Processors,
    load_s: f64,
}

impl<'a> Run<'a> {
    /// All prompts: together where the loop can, else one after another.
    fn all(&self, prompts: &[Vec<u32>]) -> Result<()> {
        if self.plan.day == 12 || self.plan.day == 15 {
            let samples = self.plan.rows / prompts.len();
            let rows: Vec<Vec<u32>> =
                prompts.iter().flat_map(|prompt| vec![prompt.clone(); samples]).collect();
            return self.rows(&rows, 0);
        }
        for (row, prompt) in prompts.iter().enumerate() {
            self.rows(std::slice::from_ref(prompt), row)?;
            if interrupt::asked() {
                break;
            }
        }
        Ok(())
    }

    /// Turn after turn, until the input ends. False: a line was refused.
    fn chat(&self, template: Template, context: usize) -> Result<bool> {
        let mut request = self.request(&[], 0);
        request.eos_token_ids.extend(template.end_of_turn(self.engine.tokenizer()));
        request.stop_strings.extend(template.stops.iter().cloned());
        let most = self.model.config().max_position_embeddings;
        if context < most {
            eprintln!("note: memory has room for {context} tokens, the model's context is {most}");
        }
        let cached = Cached::new(self.model, self.engine.new_cache());
        let mut chat = Chat::new(cached, self.engine.tokenizer(), template, context);
        chat.set_system(self.args.system.as_deref())?;
        chat_terminal::talk(&mut chat, self.args, &mut request)
    }

    /// Some prompts in one run of the loop; the first of them is prompt `first`.
    fn rows(&self, prompts: &[Vec<u32>], first: usize) -> Result<()> {
        let tokenizer = self.engine.tokenizer();
        let mut out = Output::new(self.args, tokenizer, prompts, self.load_s, first)?;
        let done = match self.plan.day {
            6 => self.simple(&prompts[0], &mut out),
            11 => self.search(&prompts[0], &mut out),
            13 => self.speculate(&prompts[0], first, &mut out),
            15 => self.serve(prompts, &mut out),
            _ => self.stream(prompts, first, &mut out),
        };
        if interrupt::asked() {
            return out.finish();
        }
        if let Err(error) = done {
            out.break_line();
            return Err(self.explained(error, &out));
        }
        out.finish()
    }

    /// The error of a loop; if the model computed NaN, where that comes from instead.
    fn explained(&self, error: anyhow::Error, out: &Output) -> anyhow::Error {
        let way = match self.args.dtype.as_str() {
            "f16" => {
                "f16 ends at 65504, try --dtype bf16 or f32; or is the file damaged? fetch it again"
            }
            _ => "is the file damaged? fetch it again",
        };
        let drafter = self.args.draft_model.as_deref().unwrap_or_default();
        let draft_name = format!("--draft-model {drafter}");
        let models = [(Some(self.engine), &self.args.model), (self.drafter, &draft_name)];
        let rows = out.sequences();
        for (engine, name) in models {
            let Some(engine) = engine else { continue };
            for (row, tokens) in rows.iter().enumerate() {
                let found = if self.plan.day == 11 {
                    let bound = self.plan.params.max_new_tokens;
                    nan_trace::first_nan_behind(engine.model(), tokens, bound)
                } else {
                    let source = nan_trace::first_nan(engine.model(), tokens).flatten();
                    source.map(|source| (tokens.clone(), source))
                };
                let Some((tokens, source)) = found else { continue };
                let position = tokens.len() - 1;
                let step = tokens.len() - out.prompt_len(row) + 1;
                let row = match rows.len() {
                    1 => String::new(),
                    count => format!(", row {row} of {count}"),
                };
                return anyhow!(
                    "{name}: logits are NaN at step {step}, position {position}{row}: {source}; {way}"
                );
            }
        }
        let text = describe(&error);
        if text.contains("NaN") {
            return anyhow!(
                "{text}; the model alone gives numbers for this text: look at the cache, the mask and the \
                 positions of the step that failed"
            );
        }
        error
    }

    /// Request number `id` for this prompt, greedy or with the portable stream.
    fn request(&self, prompt: &[u32], id: usize) -> Request<'static> {
        let sampler = requests::sampler(&self.plan.params, id);
        self.request_with(prompt, sampler)
    }

    fn request_with(&self, prompt: &[u32], sampler: Sampler<'static>) -> Request<'static> {
        let config = self.model.config();
        let mut request =
            requests::request(config, prompt, &self.plan.params, &self.processors, sampler);
        if self.args.past_context == PastContextName::Window {
            let stride = (config.max_position_embeddings / 4).max(1);
            request.past_context = PastContext::Window { stride };
        }
        request
    }

    /// The loops that are iterators of tokens; row 0 of theirs is request `first`, and draws what is
    /// that request's.
    fn stream(&self, prompts: &[Vec<u32>], first: usize, out: &mut Output) -> Result<()> {
        let model: &dyn Model = self.model;
        let tokenizer = self.engine.tokenizer();
        let torch = self.args.rng == Some(RngKind::Torch);
        let mut requests = Vec::new();
        if torch {
            // One stream for all rows of a batch; a sequence of its own has its own.
            let samplers = requests::samplers(&self.plan.params, prompts.len(), true);
            for (prompt, sampler) in prompts.iter().zip(samplers) {
                requests.push(self.request_with(prompt, sampler));
            }
        } else {
            for (row, prompt) in prompts.iter().enumerate() {
                requests.push(self.request(prompt, first + row));
            }
        }
        let tokens = if self.plan.day == 12 {
            day12_batching::generate_batch(model, tokenizer, requests, self.engine.new_cache())?
        } else {
            let request = requests.remove(0);
            if self.plan.day == 7 {
                day07_greedy::generate(model, tokenizer, request)?
            } else {
                let cached = Cached::new(model, self.engine.new_cache());
                generate_cached(cached, tokenizer, request)?
            }
        };
        for token in tokens {
            out.take(token?)?;
            if interrupt::asked() {
                break;
            }
        }
        Ok(())
    }

    /// Day 11: beams.
    fn search(&self, prompt: &[u32], out: &mut Output) -> Result<()> {
        let mut request = self.request(prompt, 0);
        let found = day11_beam_search::beam_search(
            self.model,
            self.engine.tokenizer(),
            &mut request,
            &self.plan.beams(self.args),
            &mut *self.engine.new_cache(),
        )?;
        out.hypotheses(found);
        Ok(())
    }

    /// Day 13: blocks of drafted and verified tokens.
    fn speculate(&self, prompt: &[u32], number: usize, out: &mut Output) -> Result<()> {
        let vocab_size = self.model.config().vocab_size;
        let drafter: Box<dyn Drafter + 'a> = match (self.drafter, self.draft_model) {
            (Some(engine), Some(model)) => Box::new(ModelDrafter {
                cached: Cached::new(model, engine.new_cache()),
                processors: self.processors.clone(),
                greedy: !self.plan.samples(),
                vocab_size,
            }),
            _ => Box::new(NgramDrafter { n: self.args.draft_ngram.unwrap_or(2), vocab_size }),
        };
        let model: &dyn Model = self.model;
        let mut decoder = SpeculativeDecoder::new(
            Cached::new(model, self.engine.new_cache()),
            self.engine.tokenizer(),
            self.request(prompt, 0),
            drafter,
            self.args.num_draft_tokens,
        )?;
        if self.plan.samples() {
            decoder.rng = Some(RequestRng::new(self.plan.params.seed, number as u64));
        }
        while decoder.sequence.finish.is_none() && !interrupt::asked() {
            let block = decode_block(&mut decoder)?;
            for token in block {
                out.take(token)?;
            }
        }
        out.speculated(decoder.counts);
        Ok(())
    }

    /// Day 15: the prompts are requests to the scheduler, in the order given.
    fn serve(&self, prompts: &[Vec<u32>], out: &mut Output) -> Result<()> {
        let kind = self.engine.cache.unwrap_or(CacheKind::Dynamic);
        let layers = self.model.config().num_hidden_layers;
        let new_cache: NewCache = Box::new(move || Box::new(KvCache::new(kind, layers)));
        let tokenizer = self.engine.tokenizer();
        let mut scheduler =
            Scheduler::new(self.model, tokenizer, new_cache, self.args.max_batch_tokens)?;
        for (id, prompt) in prompts.iter().enumerate() {
            let mut request = self.request(prompt, id);
            request.id = id;
            scheduler.submit(request)?;
        }
        while !scheduler.is_idle() && !interrupt::asked() {
            for token in scheduler.step()? {
                out.take(token)?;
            }
        }
        Ok(())
    }

    /// Day 6's loop knows ids only: text and ends are added here; log-probabilities it does not compute.
    fn simple(&self, prompt: &[u32], out: &mut Output) -> Result<()> {
        let eos = &self.model.config().eos_token_ids;
        let mut stream = day06_generate::TextStream::after(self.engine.tokenizer(), prompt);
        let room = self.model.config().max_position_embeddings + 1 - prompt.len();
        let max = self.plan.params.max_new_tokens.min(room);
        let mut left = max;
        let mut failed = Ok(());
        let on_token = |id| {
            left -= 1;
            let finish = match (eos.contains(&id), left) {
                (true, _) => Some(FinishReason::Eos),
                (_, 0) => Some(FinishReason::Length),
                _ => None,
            };
            let mut text = if eos.contains(&id) { String::new() } else { stream.push(id)? };
            if finish.is_some() {
                text.push_str(&stream.finish()?);
            }
            failed = out.take(Token { row: 0, id, logprob: f32::NAN, text, finish });
            if failed.is_err() || interrupt::asked() {
                candle_core::bail!("stopped")
            }
            Ok(())
        };
        let pick = day07_greedy::argmax;
        let result = day06_generate::simple_generate(self.model, prompt, max, eos, pick, on_token);
        failed?;
        result?;
        Ok(())
    }
}

/// A model that fails at its next pass once Ctrl-C was pressed: so that every loop can be stopped, also
/// one that gives no token for a long time, as beam search.
struct Interruptible<'a>(&'a Transformer);

impl Model for Interruptible<'_> {
    fn config(&self) -> &ModelConfig {
        self.0.config()
    }

    fn device(&self) -> &Device {
        self.0.device()
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> candle_core::Result<Tensor> {
        if interrupt::asked() {
            candle_core::bail!("stopped")
        }
        self.0.forward(step, cache)
    }
}
