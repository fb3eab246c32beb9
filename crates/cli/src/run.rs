//! The `candecode` command: runs what its flags ask for.

use crate::flags::{Args, Format, RngKind};
use crate::locate::locate;
use crate::output::{show, Output};
use crate::plan::{self, prompt_texts};
use crate::weight_format::{self, weight_format, ModelLoad};
use crate::{chat_terminal, endpoint, interrupt, memory_need, text_input};
use anyhow::{anyhow, ensure, Context as _, Result};
use candecode::kit::error::{describe, plain, shown, usage};
use candecode::kit::note::note;
use candecode::kit::panics::Unwritten;
use candecode::kit::units::bytes;
use candecode::kit::{
    check_prompt, device, Model, PastContext, SamplingParams, TextFormat, Tokenizer,
};
use candecode_engine::chat::{Chat, Message, Renderer};
use candecode_engine::kernels;
use candecode_engine::loops::{DraftSource, Drafts, Loop, Run};
use candecode_engine::medusa::{self, HeadsFile};
use candecode_engine::ngram_table::{self, NgramTable};
use candecode_engine::operations::{self, Kernels};
use candecode_engine::requests::{self, Processors};
use candecode_engine::trace::{Trace, TraceFormat};
use candecode_engine::watched::{explained, Watched};
use candecode_engine::{credits, generation_config, load, memory_check, score};
use candecode_engine::{CacheConfig, CacheKind, Engine};
use candecode_formats::{hub, ModelFiles};
use candle_core::{DType, Device};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Runs the command in four steps and returns its exit code.
///
/// # Errors
/// If a flag is wrong ([`candecode::kit::error::Usage`]), or loading or generation fails.
pub fn run(args: &Args) -> Result<u8> {
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

/// Step 1: handles flags that need no loaded model and returns the exit code. None: continue with
/// step 2.
fn answer_without_model(args: &Args) -> Result<Option<u8>> {
    kernels::check_instruction_set().map_err(usage)?;
    if args.models {
        show(&hub::list()?)?;
        return Ok(Some(0));
    }
    if let Some(by) = args.score {
        show(&format!("{}\n", score::score(by)?))?;
        return Ok(Some(0));
    }
    if args.find {
        let place = locate(&args.model, args.offline)?;
        ensure!(place.exists(), "{} is created in memory, so it has no folder", args.model);
        show(&format!("{}\n", place.display()))?;
        return Ok(Some(0));
    }
    match &args.count_ngrams {
        Some(corpus) => count_ngrams(args, corpus).map(Some),
        None => Ok(None),
    }
}

/// The request: everything in the flags, the prompts and the model's small files. Mistakes in these
/// are found before any weights are read.
struct Asked<'a> {
    args: &'a Args,
    device: Device,
    /// The loop to run.
    day_loop: &'static Loop,
    /// The sampling parameters of every request.
    params: SamplingParams,
    files: ModelFiles,
    processors: Processors,
    /// The chat template, if this is a chat.
    template: Option<Box<dyn Renderer>>,
    /// The tokens of each prompt.
    prompts: Vec<Vec<u32>>,
    /// The prompts as typed, if a chat template was applied to them.
    questions: Option<Vec<String>>,
    /// The files of a draft model.
    draft_files: Option<ModelFiles>,
    /// The n-gram table to draft from.
    draft_table: Option<NgramTable>,
    /// The Medusa heads to draft with.
    heads: Option<HeadsFile>,
    began: Instant,
}

/// The tokenizers of the model and the draft model.
type Tokenizers = (Tokenizer, Option<Tokenizer>);

impl<'a> Asked<'a> {
    /// Step 2: reads the request.
    fn read(args: &'a Args, device: Device) -> Result<(Self, Tokenizers)> {
        let prompted = args.prompt_file.is_some() || args.prompt_ids.is_some();
        if args.prompt.is_empty() && !prompted && !args.chat {
            return Err(usage("no prompt; give one with --prompt, --prompt-file or --prompt-ids"));
        }
        let (day_loop, mut params) = plan::plan(args, args.prompt.len().max(1))?;
        if args.kernels == Some(Kernels::Mine) {
            operations::try_mine(args.dtype.unwrap_or(DType::F32), &device)?;
        }
        let began = Instant::now();
        let files = ModelFiles::at(&locate(&args.model, args.offline)?)?;
        let tokenizer = tokenizer(args, &files)?;
        let template = if args.chat { Some(template(args, &files)?) } else { None };
        let asking = asking(args, &files)?;
        if let Some(template) = &asking {
            params.stop_token_ids.extend(template.end_of_turn(&tokenizer));
            params.stop.extend(template.stops().iter().cloned());
        }
        let config = files.config();
        requests::check_stops(&params.stop, &tokenizer)?;
        requests::special_stops(&mut params, &tokenizer, config.vocab_size);
        params.format = text_format(args, &tokenizer, config.vocab_size)?;
        let processors = requests::processors(&params, &tokenizer, config)?;
        let context = config.max_position_embeddings;
        let texts = if args.prompt_ids.is_some() { Vec::new() } else { prompt_texts(args)? };
        let prompts = prompts(args, &texts, &tokenizer, asking.as_deref(), context)?;
        check_tree(&args.tree_shape(), context)?;
        let (draft_files, draft_tokenizer) = match &args.draft_model {
            Some(name) => Some(draft_model(name, args, &files, &tokenizer)?).unzip(),
            None => (None, None),
        };
        let draft_table = match &args.draft_table {
            Some(file) => Some(draft_table(file, &tokenizer)?),
            None => None,
        };
        let asked = Self {
            args,
            device,
            day_loop,
            params,
            processors,
            template,
            prompts,
            questions: asking.map(|_| texts),
            draft_files,
            draft_table,
            heads: heads(args, &files)?,
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
    /// Maximum number of tokens in a chat.
    context: usize,
    /// Load time, in seconds.
    load_s: f64,
}

impl Loaded {
    /// Step 3: checks that the run fits in memory, then loads the models.
    fn new(asked: &Asked, (tokenizer, draft_tokenizer): Tokenizers) -> Result<Self> {
        let Asked { args, device, day_loop, files, prompts, .. } = asked;
        let format = weight_format(args, files, device)?;
        let mut loads = vec![ModelLoad { files, format, device }];
        if let Some(files) = &asked.draft_files {
            loads.push(ModelLoad { files, format: weight_format(args, files, device)?, device });
        }
        let mut context = files.config().max_position_embeddings;
        if let Some(room) = memory_check::available(device)? {
            let sizes: Vec<_> = loads.iter().map(ModelLoad::size).collect();
            let need = memory_need::need(args, day_loop, &sizes, prompts, format.dtype(), device);
            need.check(room)?;
            context = need.longest(room).min(context);
        }
        let notes = loads.iter().filter_map(|load| weight_format::note(args, load));
        notes.for_each(|note| note!("{note}"));
        let kind = |load: &ModelLoad| cache_config(args, day_loop, prompts, load);
        let engine = open(args, &loads[0], tokenizer, kind(&loads[0]))?;
        let drafter = match (loads.get(1), draft_tokenizer) {
            (Some(load), Some(tokenizer)) => Some(open(args, load, tokenizer, kind(load))?),
            _ => None,
        };
        for (i, prompt) in prompts.iter().enumerate() {
            let which = which(i, prompts.len());
            check_prompt(engine.model(), prompt).map_err(|e| anyhow!("{which}{}", plain(&e)))?;
            if let Some(CacheConfig::Paged { block_size, num_blocks }) = engine.cache {
                ensure!(
                    prompt.len() <= num_blocks.saturating_mul(block_size),
                    "{which}the prompt has {} tokens, and the cache has room for {} ({num_blocks} \
                     × {block_size}); raise --num-gpu-blocks-override",
                    prompt.len(),
                    num_blocks * block_size
                );
            }
        }
        Ok(Self { engine, drafter, context, load_s: asked.began.elapsed().as_secs_f64() })
    }
}

/// Step 4: reports which loop runs, on which device, and whose code it is, then runs it. Returns
/// the exit code.
fn write(asked: Asked, loaded: &Loaded) -> Result<u8> {
    interrupt::watch();
    let Asked { args, day_loop, files, .. } = asked;
    note!("{}", credits::credits(day_loop.day, device::name(&asked.device)));
    if let Some(seed) = args.seed.filter(|seed| seed.drawn) {
        note!("note: --seed {} generates the same text again", seed.value);
    }
    let advice =
        |asked| generation_config::advice(asked, files.generation_config_name(), &args.settings());
    if let Some(note) = files.generation_config().and_then(advice) {
        note!("{note}");
    }
    let engine = &loaded.engine;
    let model = Watched::new(engine.model(), args.model.clone(), interrupt::asked);
    let draft_model = loaded.drafter.as_ref().map(|drafter| {
        let name = format!("--draft-model {}", args.draft_model.as_deref().unwrap_or_default());
        Watched::new(drafter.model(), name, interrupt::asked)
    });
    let small = loaded.drafter.as_ref().zip(draft_model.as_ref());
    let source = match (asked.heads, small, asked.draft_table) {
        (Some(heads), ..) => DraftSource::Heads(heads.into_heads(engine.model())?),
        (_, Some((engine, model)), _) => DraftSource::Model(engine, model),
        (.., Some(table)) => DraftSource::Table(table),
        _ => DraftSource::Ngrams(args.draft_ngram.unwrap_or(2)),
    };
    let trace = args.trace.then(|| {
        let format = match args.format {
            Format::Text => TraceFormat::Table,
            Format::Json => TraceFormat::Json,
        };
        Trace::new(&model, format, args.drafts(), |line| note!("{line}"))
    });
    let run = Run {
        day_loop,
        engine,
        model: trace.as_ref().map_or(&model, |trace| trace as &dyn Model),
        params: asked.params,
        processors: asked.processors,
        torch_stream: args.rng == Some(RngKind::Torch),
        top_logprobs: args.top_logprobs,
        past_context: plan::past_context(args, files.config().max_position_embeddings),
        beams: plan::beam_params(args),
        drafts: args.drafts().then(|| Drafts {
            source,
            num_tokens: args.num_draft_tokens,
            tree_shape: args.tree_shape(),
            typical: args.typical_acceptance,
        }),
        max_batch_tokens: args.max_batch_tokens(),
        limits: args.limits(),
        trace: trace.as_ref(),
    };
    if let Some(template) = asked.template {
        return chat(args, &run, template, loaded.context);
    }
    let watched: Vec<_> = std::iter::once(&model).chain(&draft_model).collect();
    let load_s = loaded.load_s;
    let shown = Shown { args, run, watched, load_s, questions: asked.questions };
    if day_loop.takes_batches() {
        let rows = asked.prompts.into_iter().flat_map(|prompt| vec![prompt; args.samples()]);
        shown.some(&rows.collect::<Vec<_>>(), 0)?;
    } else {
        for (number, prompt) in asked.prompts.iter().enumerate() {
            if !interrupt::asked() {
                shown.some(std::slice::from_ref(prompt), number)?;
            }
        }
    }
    Ok(if interrupt::asked() { 130 } else { 0 })
}

/// Chats until the input ends, in at most `context` tokens. Returns the exit code.
fn chat(args: &Args, run: &Run, template: Box<dyn Renderer>, context: usize) -> Result<u8> {
    let tokenizer = run.engine.tokenizer();
    let mut request = run.request(&[], 0);
    request.eos_token_ids.extend(template.end_of_turn(tokenizer));
    request.stop_strings.extend(template.stops().iter().cloned());
    let most = run.model.config().max_position_embeddings;
    if context < most {
        note!("note: memory has room for {context} tokens; the model's context is {most}");
    }
    let cached = run.engine.new_cached(run.model)?;
    let chat = Chat::new(cached, tokenizer, template, context);
    let mut chat = chat_terminal::LocalChat::new(chat, request, args)?;
    chat_terminal::talk(&mut chat, args.stats)
}

/// A run whose output is shown.
struct Shown<'a> {
    args: &'a Args,
    run: Run<'a>,
    /// The run's model, and the draft model if there is one.
    watched: Vec<&'a Watched<'a>>,
    /// Load time, in seconds.
    load_s: f64,
    /// The prompts as typed, if a chat template was applied to them.
    questions: Option<Vec<String>>,
}

impl Shown<'_> {
    /// Runs the loop once for these prompts. The first of them is prompt number `first`.
    fn some(&self, prompts: &[Vec<u32>], first: usize) -> Result<()> {
        let Self { args, run, watched, load_s, .. } = self;
        let Run { day_loop, engine, .. } = run;
        let (questions, searches) = (self.questions.as_deref(), day_loop.searches());
        let mut out = Output::new(args, engine, prompts, *load_s, first, searches, questions)?;
        let stops = run.past_context == PastContext::Stop;
        let predictable = day_loop.predictable && engine.cache.is_some() && stops;
        out.predicted = predictable.then(|| engine.model());
        let done = catch_unwind(AssertUnwindSafe(|| {
            run.run(prompts, first, &mut |token| out.token(token))
        }));
        let done = match done {
            Ok(done) => done,
            Err(panic) => {
                out.keep()?;
                match Unwritten::of(&*panic) {
                    Some(task) => return Err(task.into()),
                    None => resume_unwind(panic),
                }
            }
        };
        let mut open_tasks = Vec::new();
        match done {
            Ok(found) => {
                open_tasks = found.open_tasks.clone();
                out.found(found);
            }
            Err(_) if interrupt::asked() => {}
            Err(error) => {
                out.break_line();
                let nan = watched.iter().any(|model| model.computed_nan());
                let texts = if nan { out.so_far() } else { Vec::new() };
                return Err(explained(error, watched, &texts, !searches));
            }
        }
        let context = run.model.config().max_position_embeddings;
        let cut = stops && args.cache != Some(CacheKind::Sliding) && out.ended_at_context(context);
        let failure = self.failure(&out);
        out.finish()?;
        if !open_tasks.is_empty() {
            let noun = if open_tasks.len() == 1 { "task" } else { "tasks" };
            note!(
                "[the reference's stream showed this text; still to write: {noun} {}]",
                open_tasks.join(", ")
            );
        }
        if cut {
            note!(
                "note: the text ends at the end of the model's context, {context} tokens; with a \
                 single prompt, --past-context window continues it"
            );
        }
        failure.map_or(Ok(()), Err)
    }

    /// Returns the error of the first failed row in a batch. The other rows' texts are complete.
    fn failure(&self, out: &Output) -> Option<anyhow::Error> {
        let mut failed =
            out.texts.iter().zip(out.so_far()).filter(|(text, _)| text.error.is_some());
        let (text, so_far) = failed.next()?;
        let error = anyhow!("{}{}", so_far.which, text.error.as_deref().unwrap_or_default());
        let error = explained(error, &self.watched[..1], &[so_far], true);
        Some(match failed.count() {
            0 => error,
            more => anyhow!("{} ({} texts failed)", describe(&error), more + 1),
        })
    }
}

/// Returns the kind of cache for this loop. Unless flags set its size, a pool of blocks has
/// room for every row at its full length, plus one block per row to copy into.
fn cache_config(
    args: &Args,
    day_loop: &Loop,
    prompts: &[Vec<u32>],
    load: &ModelLoad,
) -> Option<CacheConfig> {
    let context = load.files.config().max_position_embeddings;
    Some(match args.cache(day_loop)? {
        CacheKind::Dynamic => CacheConfig::Dynamic,
        CacheKind::Static => CacheConfig::Static(context),
        CacheKind::Sliding => CacheConfig::Sliding(context),
        CacheKind::Paged => {
            let block_size = args.block_size();
            let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
            let positions = if args.chat {
                context
            } else {
                longest.saturating_add(args.max_new_tokens()).min(context)
            };
            let sequences = prompts.len() * args.samples();
            let rows = day_loop.rows_in_pool(sequences, args.num_beams());
            let num_blocks = rows * (positions.div_ceil(block_size) + 1);
            CacheConfig::Paged { block_size, num_blocks: args.num_blocks.unwrap_or(num_blocks) }
        }
    })
}

/// Creates an engine from a model's files.
fn open(
    args: &Args,
    load: &ModelLoad,
    tokenizer: Tokenizer,
    cache: Option<CacheConfig>,
) -> Result<Engine> {
    let weights = load.files.weight_bytes(load.format);
    if weights > 1e9 {
        note!("[loading {}: {}]", shown(load.files.path().display()), bytes(weights));
    }
    let ops = operations::choose(args.kernels, load.device);
    let model = load::load_files(load.files, load.format, load.device, &ops)?;
    let mut engine = Engine::new(model, tokenizer);
    engine.cache = cache;
    Ok(engine)
}

/// Returns the model's tokenizer. A run with ids for input and output, and without flags about
/// text, doesn't need one.
fn tokenizer(args: &Args, files: &ModelFiles) -> Result<Tokenizer> {
    let looks_at_text = !args.stop.is_empty()
        || !args.block.is_empty()
        || args.block_file.is_some()
        || args.allow_regex.is_some()
        || args.json_schema.is_some()
        || args.grammar.is_some();
    let ids_only = args.prompt_ids.is_some() && args.format == Format::Json && !looks_at_text;
    if ids_only && !files.has_tokenizer() {
        return Ok(Tokenizer::empty());
    }
    files.tokenizer()
}

/// The format of `--json-schema` or `--grammar`.
type TextForm = Option<Arc<dyn TextFormat>>;

/// Returns the format that the text must have.
#[cfg(feature = "structured")]
fn text_format(args: &Args, tokenizer: &Tokenizer, vocab_size: usize) -> Result<TextForm> {
    use candecode_structured::{Compiler, Constraint};
    let (flag, constraint) = match (&args.json_schema, &args.grammar) {
        (Some(file), _) => {
            let text = text_input::text_file("--json-schema", file)?;
            let schema = serde_json::from_str(&text);
            let schema = schema.map_err(|error| usage(format!("--json-schema: {error}")))?;
            ("--json-schema", Constraint::JsonSchema(schema))
        }
        (None, Some(file)) => {
            ("--grammar", Constraint::Grammar(text_input::text_file("--grammar", file)?))
        }
        (None, None) => return Ok(None),
    };
    let compiled = Compiler::new(tokenizer, vocab_size)?.compile(&constraint);
    compiled.map(Some).map_err(|error| usage(format!("{flag}: {}", describe(&error))))
}

/// Refuses a format: this program was compiled without them.
#[cfg(not(feature = "structured"))]
fn text_format(args: &Args, _: &Tokenizer, _: usize) -> Result<TextForm> {
    ensure!(
        args.json_schema.is_none() && args.grammar.is_none(),
        usage(
            "this program was compiled without --json-schema and --grammar: use `cargo xtask run`, \
             or build it with --features structured"
        )
    );
    Ok(None)
}

/// Returns the chat template, with the variables set by flags.
#[cfg(feature = "templates")]
fn template(args: &Args, files: &ModelFiles) -> Result<Box<dyn Renderer>> {
    use candecode_templates::{date, Template};
    let mut template =
        Template::choose(&args.model, files.chat_template()?, args.template.as_deref())?;
    args.template_set.iter().try_for_each(|setting| template.set(setting))?;
    template.date = args.template_date.as_deref().map(date).transpose()?;
    Ok(Box::new(template))
}

/// Refuses: this program was compiled without templates.
#[cfg(not(feature = "templates"))]
fn template(_args: &Args, _files: &ModelFiles) -> Result<Box<dyn Renderer>> {
    anyhow::bail!(
        "this program was compiled without chat templates: use `cargo xtask chat`, or build it \
        with --features templates"
    )
}

/// Returns the files of a draft model and its tokenizer. Rejects it before any weights are read if
/// its tokens differ from the target's. If it isn't smaller than the target, a warning is enough,
/// because the text is the same.
fn draft_model(
    name: &str,
    args: &Args,
    target: &ModelFiles,
    tokenizer: &Tokenizer,
) -> Result<(ModelFiles, Tokenizer)> {
    let files = ModelFiles::at(&locate(name, args.offline)?)?;
    let own = files.tokenizer()?;
    if let Some(difference) = own.difference(tokenizer) {
        return Err(usage(format!(
            "--draft-model {name}: a draft must have its target's tokenizer, but this one differs: \
                {difference}"
        )));
    }
    let (draft, target) = (files.config(), target.config());
    if draft.size() >= target.size() {
        note!(
            "warning: the draft model is as large as its target, so speculation will be slower \
            than none"
        );
    }
    Ok((files, own))
}

/// Returns the draft table. Rejects it before any weights are read if it was counted with another
/// tokenizer.
fn draft_table(file: &Path, tokenizer: &Tokenizer) -> Result<NgramTable> {
    let text = text_input::text_file("--draft-table", file)?;
    NgramTable::from_json(&text, tokenizer)
        .map_err(|e| anyhow!("--draft-table {}: {}", file.display(), describe(&e)))
}

/// Returns the Medusa heads that the flags ask for, from the named file or the model's folder.
/// Rejects them if they belong to another model, or there are too few for the tree. The last norm
/// is the only one of the model's weights that this reads.
fn heads(args: &Args, files: &ModelFiles) -> Result<Option<HeadsFile>> {
    let Some(file) = &args.medusa else { return Ok(None) };
    if let (None, Some(inside)) = (file, files.inside()) {
        let inside = ModelFiles::at(inside)?;
        return Ok(match heads(args, &inside)? {
            Some(heads) => Some(heads.widened(files.config())?),
            None => None,
        });
    }
    let folder = if files.path().is_file() {
        // a GGUF file's folder
        files.path().parent().unwrap_or(Path::new(""))
    } else {
        files.path()
    };
    let file = file.clone().unwrap_or_else(|| folder.join(medusa::FILE));
    let heads = HeadsFile::read(&file, files.config())?;
    let (levels, count) = (args.tree_shape().len(), heads.num_heads());
    ensure!(
        levels <= count,
        usage(format!(
            "--draft-tree has {levels} levels, but {count} Medusa heads can draft only {count}; \
             use a smaller shape"
        ))
    );
    heads.check_model(&load::last_norm(files)?)?;
    Ok(Some(heads))
}

/// Rejects a tree with more tokens than the whole context. Near the context's end, a tree gets
/// fewer levels by itself.
fn check_tree(shape: &[usize], context: usize) -> Result<()> {
    let size = medusa::tree_size(shape);
    ensure!(
        size <= context,
        "--draft-tree drafts {size} tokens, more than the model's context of {context}; use a \
         smaller shape"
    );
    Ok(())
}

/// Counts n-grams of a corpus in the model's tokens and writes the table.
fn count_ngrams(args: &Args, corpus: &Path) -> Result<u8> {
    let Some(file) = &args.draft_table else {
        return Err(usage("--count-ngrams needs --draft-table, the file to write"));
    };
    ensure!(
        !file.exists(),
        usage(format!(
            "--draft-table {}: this file already exists; remove it or choose another name",
            file.display()
        ))
    );
    let name = format!("--count-ngrams {}", corpus.display());
    let text = text_input::text_file("--count-ngrams", corpus)?;
    let lines = corpus.extension().is_some_and(|extension| extension == "jsonl");
    let texts = ngram_table::texts(&text, lines).map_err(|e| usage(format!("{name}: {e}")))?;
    let tokenizer = ModelFiles::at(&locate(&args.model, args.offline)?)?.tokenizer()?;
    let table = NgramTable::count(&texts, &tokenizer)
        .map_err(|e| usage(format!("{name}: {}", describe(&e))))?;
    std::fs::write(file, table.to_json(&tokenizer)?)
        .with_context(|| format!("--draft-table {}: could not be written", file.display()))?;
    show(&format!("{} texts, {} n-grams: {}\n", texts.len(), table.len(), file.display()))?;
    Ok(0)
}

/// Returns the chat template to wrap around a prompt, if the model was trained to answer questions.
fn asking(args: &Args, files: &ModelFiles) -> Result<Option<Box<dyn Renderer>>> {
    let instruct = hub::is_instruct(&args.model);
    if args.raw && !instruct {
        note!("note: --raw changes nothing: {} isn't an instruct model", shown(&args.model));
    }
    if args.raw || !instruct || args.chat || args.prompt_ids.is_some() {
        return Ok(None);
    }
    if files.chat_template()?.source?.is_none() {
        return Ok(None);
    }
    let template = template(args, files)?;
    template.render(&[Message::new("user", "A question.")])?; // fail before the weights are read
    note!("note: the prompt goes through the model's chat template; --raw leaves it as it is");
    Ok(Some(template))
}

/// Returns the token ids of every prompt.
fn prompts(
    args: &Args,
    texts: &[String],
    tokenizer: &Tokenizer,
    asking: Option<&dyn Renderer>,
    context: usize,
) -> Result<Vec<Vec<u32>>> {
    if let Some(ids) = &args.prompt_ids {
        return Ok(vec![ids.clone()]);
    }
    let encode = |(i, text): (usize, &String)| -> Result<Vec<u32>> {
        let which = which(i, texts.len());
        if text.len() / 16 > context {
            // The length in bytes may already rule a prompt out, which saves minutes of tokenizing.
            let least = text.len() / tokenizer.longest_token().max(1);
            ensure!(
                least <= context,
                "{which}the prompt is {} bytes long, so at least {least} tokens, and the context \
                 is {context} tokens; shorten it",
                text.len()
            );
        }
        let ids = match asking {
            None => tokenizer.encode(text)?, // an empty text becomes BOS, if the tokenizer adds it
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

/// Returns "prompt 2 of 3: " if there are several prompts, else an empty string.
fn which(i: usize, prompts: usize) -> String {
    match prompts {
        1 => String::new(),
        _ => format!("prompt {} of {prompts}: ", i + 1),
    }
}
