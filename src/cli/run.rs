//! What the `candecode` command does with its flags.

use crate::cli::flags::{Args, CacheName, Format};
use crate::cli::output::{show, Output};
use crate::cli::plan::{prompt_texts, Plan};
use crate::cli::weight_format::{self, weight_format, ModelLoad};
use crate::cli::{
    chat_terminal, endpoint, generation_config, interrupt, long_wait, memory_check, text_input,
};
use crate::days;
use crate::engine::chat::Chat;
use crate::engine::chat_template::{date, Message, Template};
use crate::engine::loops::{LoopPlan, Models};
use crate::engine::nan_trace::{self, NanTrace};
use crate::engine::ngram_table::{self, NgramTable};
use crate::engine::operations::{self, Kernels};
use crate::engine::requests::{self, Processors};
use crate::engine::{load, CacheKind, Engine};
use crate::formats::{hub, ModelFiles};
use crate::kernels;
use crate::kit::error::{describe, plain, shown, usage};
use crate::kit::note::note;
use crate::kit::{check_prompt, device};
use crate::kit::{Cache, Model, ModelConfig, PastContext, Step, Tokenizer};
use anyhow::{anyhow, ensure, Context as _, Result};
use candle_core::{DType, Device, Tensor};
use std::cell::RefCell;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::path::Path;
use std::time::Instant;

/// Runs the command in four steps, and returns its exit code.
///
/// # Errors
/// If a flag is wrong ([`crate::kit::error::Usage`]), or the model or the text fails.
pub fn run(args: &Args) -> Result<u8> {
    ensure!(args.max_new_tokens > 0, usage("--max-new-tokens is 0; ask for at least 1"));
    if let Some(address) = &args.endpoint {
        return endpoint::run(args, address);
    }
    let device = device::device(&args.device).map_err(usage)?;
    if let Some(code) = answer_without_model(args)? {
        return Ok(code);
    }
    let (asked, tokenizers) = Asked::read(args, device)?;
    let loaded = Loaded::new(&asked, tokenizers)?;
    write(asked, &loaded)
}

/// Step 1: does what needs no model, and returns the exit code. None: there is a text to write.
fn answer_without_model(args: &Args) -> Result<Option<u8>> {
    if let Some(name) = &args.dtype {
        device::dtype(name).map_err(usage)?; // before anything is fetched
    }
    kernels::check_instruction_set().map_err(usage)?;
    if args.models {
        show(&hub::list()?)?;
        return Ok(Some(0));
    }
    if args.find {
        let place = hub::locate(&args.model, args.offline)?;
        ensure!(place.exists(), "{} is made in memory: it has no folder", args.model);
        show(&format!("{}\n", place.display()))?;
        return Ok(Some(0));
    }
    match &args.count_ngrams {
        Some(corpus) => count_ngrams(args, corpus).map(Some),
        None => Ok(None),
    }
}

/// What is asked for: everything that flags, prompts and a model's small files say. What is wrong with
/// them is known before weights are read.
struct Asked<'a> {
    args: &'a Args,
    device: Device,
    plan: Plan,
    files: ModelFiles,
    processors: Processors,
    /// The template of a chat.
    template: Option<Template>,
    /// The tokens of each prompt.
    prompts: Vec<Vec<u32>>,
    /// The prompts as they were typed, where a chat template was put around them.
    questions: Option<Vec<String>>,
    /// The files of a draft model.
    draft_files: Option<ModelFiles>,
    /// N-grams that draft.
    draft_table: Option<NgramTable>,
    began: Instant,
}

/// The tokenizers of the model, and of a draft model.
type Tokenizers = (Tokenizer, Option<Tokenizer>);

impl<'a> Asked<'a> {
    /// Step 2.
    fn read(args: &'a Args, device: Device) -> Result<(Self, Tokenizers)> {
        let prompted = args.prompt_file.is_some() || args.prompt_ids.is_some();
        if args.prompt.is_empty() && !prompted && !args.chat {
            return Err(usage("no prompt; give one with --prompt, --prompt-file or --prompt-ids"));
        }
        let mut plan = Plan::new(args, args.prompt.len().max(1))?;
        if args.kernels == Some(Kernels::Mine) {
            let dtype = args.dtype.as_deref().unwrap_or("f32");
            operations::try_mine(device::dtype(dtype).map_err(usage)?)?;
        }
        let began = Instant::now();
        let files = ModelFiles::at(&hub::locate(&args.model, args.offline)?)?;
        let tokenizer = tokenizer(args, &files)?;
        let template = if args.chat { Some(template(args, &files)?) } else { None };
        let asking = asking(args, &files)?;
        if let Some(template) = &asking {
            plan.params.stop_token_ids.extend(template.end_of_turn(&tokenizer));
            plan.params.stop.extend(template.stops.iter().cloned());
        }
        let config = files.config();
        requests::check_stops(&plan.params.stop, &tokenizer)?;
        requests::special_stops(&mut plan.params, &tokenizer);
        let processors = requests::processors(&plan.params, &tokenizer, config)?;
        let context = config.max_position_embeddings;
        let texts = if args.prompt_ids.is_some() { Vec::new() } else { prompt_texts(args)? };
        let prompts = prompts(args, &texts, &tokenizer, asking.as_ref(), context)?;
        let drafter = args.draft_model.as_deref();
        let drafter = drafter.map(|name| draft_model(name, args, &files, &tokenizer));
        let (draft_files, draft_tokenizer) = drafter.transpose()?.unzip();
        let draft_table = args.draft_table.as_deref().map(|file| draft_table(file, &tokenizer));
        let asked = Self {
            args,
            device,
            plan,
            processors,
            template,
            prompts,
            questions: asking.map(|_| texts),
            draft_files,
            draft_table: draft_table.transpose()?,
            began,
            files,
        };
        Ok((asked, (tokenizer, draft_tokenizer)))
    }
}

/// The models in memory.
struct Loaded {
    engine: Engine,
    drafter: Option<Engine>,
    /// What a chat may grow to, in tokens.
    context: usize,
    /// How long it took, in seconds.
    load_s: f64,
}

impl Loaded {
    /// Step 3: refuses what memory has no room for, and loads.
    fn new(asked: &Asked, (tokenizer, draft_tokenizer): Tokenizers) -> Result<Self> {
        let Asked { args, device, plan, files, prompts, .. } = asked;
        interrupt::watch();
        let format = weight_format(args, files, device)?;
        let mut loads = vec![ModelLoad { files, format, device }];
        if let Some(files) = &asked.draft_files {
            loads.push(ModelLoad { files, format: weight_format(args, files, device)?, device });
        }
        let mut context = files.config().max_position_embeddings;
        if let Some(room) = memory_check::available(device)? {
            let sizes: Vec<_> = loads.iter().map(ModelLoad::size).collect();
            let mut need = memory_check::need(args, plan, &sizes, prompts, format.dtype(), device);
            need.can_quantize &= loads.iter().all(|load| load.files.quantized_types().is_empty());
            memory_check::check(&need, room, args, plan)?;
            context = need.longest(room).min(context);
        }
        let notes = loads.iter().filter_map(|load| weight_format::note(args, load));
        notes.for_each(|note| note!("{note}"));
        let engine = open(args, &loads[0], tokenizer)?;
        let drafter = loads.get(1).zip(draft_tokenizer);
        let drafter = drafter.map(|(load, tokenizer)| open(args, load, tokenizer)).transpose()?;
        for (i, prompt) in prompts.iter().enumerate() {
            check_prompt(engine.model(), prompt)
                .map_err(|e| anyhow!("{}{}", which(i, prompts.len()), plain(&e)))?;
        }
        Ok(Self { engine, drafter, context, load_s: asked.began.elapsed().as_secs_f64() })
    }
}

/// Step 4: says whose loop runs where, and runs it. Returns the exit code.
fn write(asked: Asked, loaded: &Loaded) -> Result<u8> {
    let Asked { args, plan, files, .. } = asked;
    note!("{}", days::credits(plan.day, device::name(&asked.device)));
    if let Some(seed) = args.seed.filter(|seed| seed.drawn) {
        note!("note: --seed {} writes this again", seed.value);
    }
    let advice = |asked| generation_config::advice(asked, files.generation_config_name(), args);
    if let Some(note) = files.generation_config().and_then(advice) {
        note!("{note}");
    }
    let model = Watched::new(loaded.engine.model());
    let draft_model = loaded.drafter.as_ref().map(|drafter| Watched::new(drafter.model()));
    let drafter = loaded.drafter.as_ref().zip(draft_model.as_ref());
    let models = Models {
        engine: &loaded.engine,
        model: &model,
        drafter: drafter.map(|(engine, model)| (engine, model as &dyn Model)),
    };
    let mut loops = plan.loops(args, asked.processors, &loaded.engine);
    loops.draft_table = asked.draft_table;
    let run = Run {
        args,
        models,
        watched: [Some(&model), draft_model.as_ref()],
        loops,
        rows: plan.rows,
        load_s: loaded.load_s,
        questions: asked.questions,
    };
    if let Some(template) = asked.template {
        return Ok(u8::from(!run.chat(template, loaded.context)?));
    }
    run.all(&asked.prompts)?;
    Ok(if interrupt::asked() { 130 } else { 0 })
}

/// The engine of a folder, with the cache that the flags ask for.
fn open(args: &Args, load: &ModelLoad, tokenizer: Tokenizer) -> Result<Engine> {
    let what = format!("loading {}", shown(load.files.path().display()));
    let ops = operations::choose(args.kernels, load.device);
    let model =
        long_wait::named(&what, || load::load_files(load.files, load.format, load.device, &ops))?;
    let mut engine = Engine::new(model, tokenizer);
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
    template.date = args.template_date.as_deref().map(date).transpose()?;
    Ok(template)
}

/// The files of a draft model and its tokenizer, refused before any weights are read if its tokens are not the target's. One that is no
/// smaller than the target is worth a warning only: the text is the same.
fn draft_model(
    name: &str,
    args: &Args,
    target: &ModelFiles,
    tokenizer: &Tokenizer,
) -> Result<(ModelFiles, Tokenizer)> {
    let files = ModelFiles::at(&hub::locate(name, args.offline)?)?;
    let own = files.tokenizer()?;
    if let Some(difference) = own.difference(tokenizer) {
        return Err(usage(format!(
            "--draft-model {name}: a draft must have its target's tokenizer, and this one differs: {difference}"
        )));
    }
    let (draft, target) = (files.config(), target.config());
    if draft.size() >= target.size() {
        note!("warning: the draft model is as large as its target: speculation will be slower than none");
    }
    Ok((files, own))
}

/// The table that drafts, refused before any weights are read if it was counted in other tokens.
fn draft_table(file: &Path, tokenizer: &Tokenizer) -> Result<NgramTable> {
    let text = text_input::text_file("--draft-table", file)?;
    NgramTable::from_json(&text, tokenizer)
        .map_err(|e| usage(format!("--draft-table {}: {}", file.display(), describe(&e))))
}

/// Counts a corpus in the model's tokens, and writes the table.
fn count_ngrams(args: &Args, corpus: &Path) -> Result<u8> {
    let Some(file) = &args.draft_table else {
        return Err(usage("--count-ngrams needs --draft-table, the file to write"));
    };
    ensure!(
        !file.exists(),
        usage(format!(
            "--draft-table {}: this file exists; remove it or choose another name",
            file.display()
        ))
    );
    let name = format!("--count-ngrams {}", corpus.display());
    let text = text_input::text_file("--count-ngrams", corpus)?;
    let lines = corpus.extension().is_some_and(|extension| extension == "jsonl");
    let texts = ngram_table::texts(&text, lines).map_err(|e| usage(format!("{name}: {e}")))?;
    let tokenizer = ModelFiles::at(&hub::locate(&args.model, args.offline)?)?.tokenizer()?;
    let table = NgramTable::count(&texts, &tokenizer)
        .map_err(|e| usage(format!("{name}: {}", describe(&e))))?;
    std::fs::write(file, table.to_json(&tokenizer)?)
        .with_context(|| format!("--draft-table {}: could not be written", file.display()))?;
    show(&format!("{} texts, {} n-grams: {}\n", texts.len(), table.len(), file.display()))?;
    Ok(0)
}

/// The chat template that turns a prompt into a question, if the model was trained to answer questions.
fn asking(args: &Args, files: &ModelFiles) -> Result<Option<Template>> {
    let instruct = hub::is_instruct(&args.model);
    if args.raw && !instruct {
        note!("note: --raw changes nothing: {} isn't an instruct model", shown(&args.model));
    }
    if args.raw || !instruct || args.chat || args.prompt_ids.is_some() {
        return Ok(None);
    }
    if files.chat_template()?.source.is_none() {
        return Ok(None);
    }
    let template = template(args, files)?;
    template.render(&[Message::new("user", "A question.")])?; // before the weights are read
    note!("note: the prompt goes through the model's chat template; --raw leaves it as it is");
    Ok(Some(template))
}

/// The token ids of every prompt.
fn prompts(
    args: &Args,
    texts: &[String],
    tokenizer: &Tokenizer,
    asking: Option<&Template>,
    context: usize,
) -> Result<Vec<Vec<u32>>> {
    if let Some(ids) = &args.prompt_ids {
        return Ok(vec![ids.clone()]);
    }
    let encode = |(i, text): (usize, &String)| -> Result<Vec<u32>> {
        let which = which(i, texts.len());
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
        let ids = match asking {
            None => tokenizer.encode(text)?, // of an empty text, BOS, where the tokenizer adds it
            Some(template) => {
                let turn = template.render(&[Message::new("user", text)])?;
                tokenizer.encode_rendered(&turn)?
            }
        };
        ensure!(
            !ids.is_empty(),
            usage(format!("{which}the prompt is empty; give it at least one character"))
        );
        Ok(ids)
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

/// A run of the command: the flags, the models, and the loop that the flags ask for.
struct Run<'a> {
    args: &'a Args,
    models: Models<'a>,
    /// The two models again: the one that writes, and the one that drafts.
    watched: [Option<&'a Watched<'a>>; 2],
    loops: LoopPlan,
    rows: usize,
    load_s: f64,
    /// The prompts as they were typed, where a chat template was put around them.
    questions: Option<Vec<String>>,
}

impl Run<'_> {
    /// All prompts: together where the loop can, else one after another.
    fn all(&self, prompts: &[Vec<u32>]) -> Result<()> {
        if self.loops.day == 12 || self.loops.day == 15 {
            let samples = self.rows / prompts.len();
            let rows: Vec<Vec<u32>> =
                prompts.iter().flat_map(|prompt| vec![prompt.clone(); samples]).collect();
            return self.some(&rows, 0);
        }
        for (number, prompt) in prompts.iter().enumerate() {
            self.some(std::slice::from_ref(prompt), number)?;
            if interrupt::asked() {
                break;
            }
        }
        Ok(())
    }

    /// Turn after turn, until the input ends. False: a line was refused.
    fn chat(&self, template: Template, context: usize) -> Result<bool> {
        let mut request = self.loops.request(self.models.model, &[], 0);
        request.eos_token_ids.extend(template.end_of_turn(self.models.engine.tokenizer()));
        request.stop_strings.extend(template.stops.iter().cloned());
        let most = self.models.model.config().max_position_embeddings;
        if context < most {
            note!("note: memory has room for {context} tokens, the model's context is {most}");
        }
        let cached = self.models.engine.new_cached(self.models.model);
        let mut chat = Chat::new(cached, self.models.engine.tokenizer(), template, context);
        chat.set_system(self.args.system.as_deref())?;
        chat_terminal::talk(&mut chat, self.args, &mut request)
    }

    /// Some prompts in one run of the loop; the first of them is prompt `first`.
    fn some(&self, prompts: &[Vec<u32>], first: usize) -> Result<()> {
        let questions = self.questions.as_deref();
        let engine = self.models.engine;
        let mut out = Output::new(self.args, engine, prompts, self.load_s, first, questions)?;
        // A prefill, then a step for each token of every row: beams, drafts and a queue do otherwise.
        let plain_steps = [10, 12].contains(&self.loops.day) && self.models.engine.cache.is_some();
        let stops = self.loops.past_context == PastContext::Stop;
        out.predicted = (plain_steps && stops).then(|| self.models.engine.model());
        let run = || self.loops.run(self.models, prompts, first, &mut out);
        let done = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            out.break_line(); // a task that isn't written yet
            resume_unwind(panic)
        });
        if let Err(error) = done {
            if !interrupt::asked() {
                out.break_line();
                return Err(self.explained(error, &out));
            }
        }
        let context = self.models.model.config().max_position_embeddings;
        let at_context = out.ended_at_context(context);
        let failure = self.failure(&out);
        out.finish()?;
        let slides =
            self.models.engine.cache.is_some_and(|kind| matches!(kind, CacheKind::Sliding(_)));
        if at_context > 0 && !slides && self.loops.past_context == PastContext::Stop {
            note!(
                "note: the text ends where the model's context does, at {context} tokens; one prompt \
                 goes on with --past-context window"
            );
        }
        failure.map_or(Ok(()), Err)
    }

    /// The error of the first row of a batch that failed; if the model computed NaN for it, where that
    /// comes from instead. The texts of the other rows are whole.
    fn failure(&self, out: &Output) -> Option<anyhow::Error> {
        let failed = out.failed();
        let (row, error) = *failed.first()?;
        let others = match failed.len() - 1 {
            0 => String::new(),
            1 => " (another text failed, too)".to_string(),
            more => format!(" ({more} other texts failed, too)"),
        };
        let tokens = &out.sequences()[row];
        if let NanTrace::FirstIn(stage) = nan_trace::first_nan(self.models.engine.model(), tokens) {
            let error = self.nan_error(&self.args.model, &stage, tokens.len(), row, out);
            return Some(anyhow!("{error}{others}"));
        }
        let which = match out.num_texts() {
            1 => String::new(),
            texts => format!("text {} of {texts}: ", row + 1),
        };
        Some(anyhow!("{which}{error}{others}"))
    }

    /// The error of a loop; if the model computed NaN, where that comes from instead.
    fn explained(&self, error: anyhow::Error, out: &Output) -> anyhow::Error {
        if !self.watched.iter().flatten().any(|model| model.computed_nan()) {
            return error;
        }
        let drafter = self.args.draft_model.as_deref().unwrap_or_default();
        let draft_name = format!("--draft-model {drafter}");
        let drafting = self.models.drafter.map(|(engine, _)| engine);
        let models = [(Some(self.models.engine), &self.args.model), (drafting, &draft_name)];
        let rows = out.sequences();
        // No stage is found if all texts give numbers, or if one cannot be computed again.
        let mut without_source = NanTrace::NoNan;
        for (engine, name) in models {
            let Some(engine) = engine else { continue };
            for (row, tokens) in rows.iter().enumerate() {
                let (tokens, trace) = if self.loops.day == 11 {
                    let bound = self.loops.params.max_new_tokens;
                    nan_trace::first_nan_behind(engine.model(), tokens, bound)
                } else {
                    (tokens.clone(), nan_trace::first_nan(engine.model(), tokens))
                };
                let source = match trace {
                    NanTrace::FirstIn(stage) => stage,
                    NanTrace::NoNan => continue,
                    NanTrace::NotRepeatable => {
                        without_source = NanTrace::NotRepeatable;
                        continue;
                    }
                };
                return self.nan_error(name, &source, tokens.len(), row, out);
            }
        }
        anyhow!("{}; {without_source}", describe(&error))
    }

    /// Says where the model `name` computed NaN: after `len` tokens of a row.
    fn nan_error(
        &self,
        name: &str,
        stage: &str,
        len: usize,
        row: usize,
        out: &Output,
    ) -> anyhow::Error {
        let way = match self.args.dtype.as_deref() {
            Some("f16") => {
                "f16 ends at 65504, try --dtype bf16 or f32; or is the file damaged? fetch it again"
            }
            _ => "is the file damaged? fetch it again",
        };
        let position = len - 1;
        let step = len - out.prompt_len(row) + 1;
        let row = match out.num_texts() {
            1 => String::new(),
            count => format!(", text {} of {count}", row + 1),
        };
        anyhow!("{name}: logits are NaN at step {step}, position {position}{row}: {stage}; {way}")
    }
}

/// A model that fails at its next pass once Ctrl-C was pressed, so that every loop can be stopped, even
/// one that returns no token for a long time, such as beam search. It keeps the logits of its last pass, for the case that
/// a loop fails on them.
struct Watched<'a> {
    model: &'a dyn Model,
    last: RefCell<Option<Tensor>>,
}

impl<'a> Watched<'a> {
    fn new(model: &'a dyn Model) -> Self {
        Self { model, last: RefCell::default() }
    }

    /// True if there is a NaN among the logits of the last pass.
    fn computed_nan(&self) -> bool {
        let numbers =
            |logits: &Tensor| logits.flatten_all()?.to_dtype(DType::F32)?.to_vec1::<f32>();
        let last = self.last.borrow();
        last.as_ref()
            .and_then(|logits| numbers(logits).ok())
            .is_some_and(|all| all.iter().any(|x| x.is_nan()))
    }
}

impl Model for Watched<'_> {
    fn config(&self) -> &ModelConfig {
        self.model.config()
    }

    fn device(&self) -> &Device {
        self.model.device()
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> candle_core::Result<Tensor> {
        if interrupt::asked() {
            candle_core::bail!("stopped")
        }
        self.last.take(); // not kept in memory beside the next pass
        let logits = self.model.forward(step, cache)?;
        self.last.replace(Some(logits.clone()));
        Ok(logits)
    }
}
