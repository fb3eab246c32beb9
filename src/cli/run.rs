//! What the `candecode` command does with its flags.

use crate::cli::flags::{Args, CacheName, RngKind};
use crate::cli::output::Output;
use crate::cli::plan::Plan;
use crate::cli::{chat_terminal, generation_config, interrupt, memory_check};
use crate::day10_kv_cache::{generate_cached, KvCache};
use crate::day13_speculative::{block, ModelDrafter, NgramDrafter};
use crate::day15_scheduler::{Request, Scheduler};
use crate::engine::chat::Chat;
use crate::engine::chat_template::Template;
use crate::engine::load;
use crate::engine::nan_trace::Watched;
use crate::formats::hub;
use crate::kit::draft::{Drafter, Speculation};
use crate::kit::error::{plain, usage};
use crate::kit::rng::RequestRng;
use crate::kit::{check_prompt, days, device, kernels};
use crate::kit::{Cache, CacheKind, FinishReason, Hypothesis, Model, NoCache};
use crate::kit::{ModelConfig, Token, Tokenizer};
use crate::{day06_generate, day07_greedy, day11_beam_search, day12_batching};
use anyhow::{anyhow, ensure, Context as _, Result};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Runs the command; gives its exit code.
///
/// # Errors
/// If a flag is wrong ([`Usage`]), or the model or the text fails.
pub fn run(args: &Args) -> Result<u8> {
    ensure!(args.max_new_tokens > 0, usage("--max-new-tokens is 0; ask for at least 1"));
    let device = device::device(&args.device).map_err(usage)?;
    let dtype = device::dtype(&args.dtype).map_err(usage)?;
    if args.offline {
        std::env::set_var("HF_HUB_OFFLINE", "1");
    }
    if args.models {
        let _ = std::io::stdout().write_all(hub::list()?.as_bytes());
        return Ok(0);
    }
    if args.find {
        println!("{}", hub::resolve(&args.model)?.display());
        return Ok(0);
    }
    let prompted = args.prompt_file.is_some() || args.prompt_ids.is_some();
    if args.prompt.is_empty() && !prompted && !args.chat {
        return Err(usage("no prompt; give one with --prompt, --prompt-file or --prompt-ids"));
    }
    let plan = Plan::new(args, args.prompt.len().max(1))?;
    kernels::choose(args.kernels);
    let began = Instant::now();
    let dir = hub::resolve(&args.model)?;
    let tokenizer = Tokenizer::from_dir(&dir)?;
    let template = if args.chat { Some(template(args, &dir)?) } else { None };
    let prompts = prompts(args, &tokenizer)?;
    let drafter = args.draft_model.as_deref();
    let drafter = drafter.map(|name| draft_model(name, &dir, &tokenizer)).transpose()?;
    interrupt::watch();
    let config = ModelConfig::from_dir(&dir)?;
    let draft_config = drafter.as_deref().map(ModelConfig::from_dir).transpose()?;
    let configs: Vec<_> = [Some(&config), draft_config.as_ref()].into_iter().flatten().collect();
    let mut context = config.max_position_embeddings;
    if let Some(room) = memory_check::available(&device)? {
        let need = memory_check::need(args, &plan, &configs, &prompts, dtype, &device);
        memory_check::check(&need, room, args, &plan)?;
        context = need.longest(room).min(context); // of a chat: what it may grow to
    }
    let watched = |dir: &Path| load::load_transformer(dir, dtype, &device).map(Watched::new);
    let model = watched(&dir)?;
    let drafter = drafter.as_deref().map(watched).transpose()?;
    for (i, prompt) in prompts.iter().enumerate() {
        check_prompt(&model, prompt)
            .map_err(|e| anyhow!("{}{}", which(i, prompts.len()), plain(&e)))?;
    }
    let load_s = began.elapsed().as_secs_f64();
    eprintln!("{}", days::credits(plan.day));
    if args.seed.is_some() && plan.sampling.is_none() {
        eprintln!("note: greedy decoding draws nothing, so --seed has no effect");
    }
    if let Some(note) = generation_config::note(&dir, args) {
        eprintln!("{note}");
    }
    let (model, drafter) = (&model, drafter.as_ref());
    let run = Run { args, model, drafter, tokenizer: &tokenizer, plan, load_s };
    if let Some(template) = template {
        return Ok(u8::from(!run.chat(template, context)?));
    }
    run.all(&prompts)?;
    Ok(if interrupt::asked() { 130 } else { 0 })
}

/// The chat template, with the variables that the flags give it.
fn template(args: &Args, dir: &Path) -> Result<Template> {
    let mut template = Template::of(&args.model, dir, args.template.as_deref())?;
    args.template_set.iter().try_for_each(|setting| template.set(setting))?;
    Ok(template)
}

/// The folder of a draft model, refused before any weights are read if its tokens are not the target's. One that is no
/// smaller than the target is worth a warning only: the text is the same.
fn draft_model(name: &str, target: &Path, tokenizer: &Tokenizer) -> Result<PathBuf> {
    let dir = hub::resolve(name)?;
    if let Some(difference) = Tokenizer::from_dir(&dir)?.difference(tokenizer) {
        return Err(usage(format!(
            "--draft-model {name}: a draft must have its target's tokenizer, and this one differs: {difference}"
        )));
    }
    let (draft, target) = (ModelConfig::from_dir(&dir)?, ModelConfig::from_dir(target)?);
    let (ours, theirs) = (draft.vocab_size, target.vocab_size);
    ensure!(
        ours == theirs,
        usage(format!(
            "--draft-model {name}: its vocab_size is {ours}, the target's {theirs}; choose a draft of the same family"
        ))
    );
    if draft.size() >= target.size() {
        eprintln!("warning: the draft model is as large as its target: speculation will be slower than none");
    }
    Ok(dir)
}

/// The token ids of every prompt.
fn prompts(args: &Args, tokenizer: &Tokenizer) -> Result<Vec<Vec<u32>>> {
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
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("could not read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| {
        format!("--prompt-file {}: could not be read as UTF-8 text", file.display())
    })
}

struct Run<'a> {
    args: &'a Args,
    model: &'a Watched,
    drafter: Option<&'a Watched>,
    tokenizer: &'a Tokenizer,
    plan: Plan,
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
        let mut options = self.plan.options(self.args, self.model.config(), self.tokenizer)?;
        options.eos_token_ids.extend(template.end_of_turn(self.tokenizer));
        options.stop_strings.extend(template.stops.iter().cloned());
        let cache = self.cache(self.model);
        let most = self.model.config().max_position_embeddings;
        if context < most {
            eprintln!("note: memory has room for {context} tokens, the model's context is {most}");
        }
        let mut chat = Chat::new(self.model, self.tokenizer, template, cache, context);
        chat.set_system(self.args.system.as_deref())?;
        chat_terminal::talk(&mut chat, self.args, &mut options)
            .map_err(|error| self.explained(error))
    }

    /// Some prompts in one run of the loop; the first of them is prompt `first`.
    fn rows(&self, prompts: &[Vec<u32>], first: usize) -> Result<()> {
        let mut out = Output::new(self.args, self.tokenizer, prompts, self.load_s, first)?;
        std::iter::once(self.model).chain(self.drafter).for_each(Watched::begin);
        let done = match self.plan.day {
            6 => self.simple(&prompts[0], &mut out),
            11 => self.search(&prompts[0]).map(|found| out.hypotheses(found)),
            13 => self.speculate(&prompts[0], first, &mut out),
            15 => self.serve(prompts, &mut out),
            _ => self.stream(prompts, first, &mut out),
        };
        done.map_err(|error| self.explained(error))?;
        out.finish()
    }

    /// The error of a loop; if the model computed NaN, where that comes from instead.
    fn explained(&self, error: anyhow::Error) -> anyhow::Error {
        let name = self.args.draft_model.as_deref().unwrap_or_default();
        let nan = self.model.nan().map(|nan| format!("{}: {nan}", self.args.model));
        let nan = nan.or_else(|| Some(format!("--draft-model {name}: {}", self.drafter?.nan()?)));
        let way = match self.args.dtype.as_str() {
            "f16" => {
                "f16 ends at 65504, try --dtype bf16 or f32; or is the file damaged? fetch it again"
            }
            _ => "is the file damaged? fetch it again",
        };
        nan.map_or(error, |nan| anyhow!("{nan}; {way}"))
    }

    /// The loops that are iterators of tokens.
    fn stream(&self, prompts: &[Vec<u32>], first: usize, out: &mut Output) -> Result<()> {
        for token in self.tokens(prompts, first)? {
            out.take(token?)?;
            if interrupt::asked() {
                break;
            }
        }
        Ok(())
    }

    /// The cache that the flags ask for.
    fn cache(&self, model: &'a Watched) -> Box<dyn Cache + 'a> {
        let config = model.config();
        let context = config.max_position_embeddings;
        let kind = match self.args.cache {
            _ if self.args.no_cache => return Box::new(NoCache),
            Some(CacheName::Static) => CacheKind::Static(context),
            Some(CacheName::Sliding) => CacheKind::Sliding(context),
            _ => CacheKind::Dynamic,
        };
        model.cache(Box::new(KvCache::new(kind, config.num_hidden_layers)))
    }

    /// The loops that are iterators of tokens; row 0 of theirs is request `first`, and draws what is that request's.
    fn tokens(
        &self,
        prompts: &[Vec<u32>],
        first: usize,
    ) -> Result<Box<dyn Iterator<Item = candle_core::Result<Token>> + 'a>> {
        let mut options = self.plan.options(self.args, self.model.config(), self.tokenizer)?;
        if first > 0 && self.args.rng != Some(RngKind::Torch) {
            let mut choose = options.choose;
            options.choose = Box::new(move |row, logits| choose(first + row, logits));
        }
        let (model, tokenizer) = (self.model, self.tokenizer);
        Ok(match self.plan.day {
            7 => Box::new(day07_greedy::generate(model, tokenizer, &prompts[0], options)?),
            12 => Box::new(day12_batching::generate_batch(
                model,
                tokenizer,
                prompts,
                options,
                self.cache(self.model),
            )?),
            _ => Box::new(generate_cached(
                model,
                tokenizer,
                &prompts[0],
                options,
                self.cache(self.model),
            )?),
        })
    }

    fn search(&self, prompt: &[u32]) -> Result<Vec<Hypothesis>> {
        let options = self.plan.options(self.args, self.model.config(), self.tokenizer)?;
        let (beams, mut cache) = (self.plan.beams(self.args), self.cache(self.model));
        let (model, tokenizer) = (self.model, self.tokenizer);
        let found =
            day11_beam_search::beam_search(model, tokenizer, prompt, &options, &beams, &mut *cache);
        Ok(found?)
    }

    /// Day 13: blocks of drafted and verified tokens.
    fn speculate(&self, prompt: &[u32], number: usize, out: &mut Output) -> Result<()> {
        let options = self.plan.options(self.args, self.model.config(), self.tokenizer)?;
        let vocab_size = self.model.config().vocab_size;
        let drafter: Box<dyn Drafter + 'a> = match self.drafter {
            None => Box::new(NgramDrafter { n: self.args.draft_ngram.unwrap_or(2), vocab_size }),
            Some(model) => Box::new(ModelDrafter {
                model,
                cache: self.cache(model),
                held: Vec::new(),
                processors: self.plan.processors(self.args, self.tokenizer, vocab_size)?,
                greedy: self.plan.sampling.is_none(),
            }),
        };
        let (cache, k) = (self.cache(self.model), self.args.num_draft_tokens);
        let (model, tokenizer) = (self.model, self.tokenizer);
        let mut text = Speculation::new(model, tokenizer, prompt, options, cache, drafter, k)?;
        if self.plan.sampling.is_some() {
            text.coins = Some(RequestRng::new(self.args.seed.unwrap_or(0), number as u64));
        }
        let mut going = true;
        while going && !interrupt::asked() {
            for token in block(&mut text)? {
                going = token.finish.is_none();
                out.take(Token { row: 0, ..token })?;
            }
        }
        out.speculated(text.counts);
        Ok(())
    }

    /// Day 15: the prompts are requests to the scheduler, in the order given.
    fn serve(&self, prompts: &[Vec<u32>], out: &mut Output) -> Result<()> {
        let options = self.plan.options(self.args, self.model.config(), self.tokenizer)?;
        let (model, bound) = (self.model, self.args.max_batch_tokens);
        let new_cache = Box::new(|| self.cache(model));
        let mut scheduler = Scheduler::new(model, self.tokenizer, options, new_cache, bound)?;
        for (id, prompt) in prompts.iter().enumerate() {
            scheduler.submit(Request { id, prompt: prompt.clone() })?;
        }
        while !scheduler.is_idle() && !interrupt::asked() {
            scheduler.step()?.into_iter().try_for_each(|token| out.take(token))?;
        }
        Ok(())
    }

    /// Day 6's loop knows ids only: text and ends are added here; log-probabilities it does not compute.
    fn simple(&self, prompt: &[u32], out: &mut Output) -> Result<()> {
        let eos = &self.model.config().eos_token_ids;
        let mut stream = day06_generate::TextStream::after(self.tokenizer, prompt);
        let (max, mut left) = (self.args.max_new_tokens, self.args.max_new_tokens);
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
        let (model, pick) = (self.model, day07_greedy::argmax);
        let result = day06_generate::simple_generate(model, prompt, max, eos, pick, on_token);
        failed?;
        match result {
            Err(_) if interrupt::asked() => Ok(()),
            result => Ok(result.map(|_| ())?),
        }
    }
}
