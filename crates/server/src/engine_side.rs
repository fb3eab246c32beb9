//! The model's side of the server: opens the model and runs day 20's serving loop until the last
//! row has ended.

use crate::connections;
use crate::helper_threads::{HelperThreads, THREADS};
use crate::http_routes::{now, random, say, Front, LONG_BODIES};
use crate::metrics::Metrics;
use crate::openai::NO_SEED;
use crate::prompts::PromptReader;
use crate::rails::Rails;
use crate::serve_flags::ServeFlags;
use anyhow::{anyhow, Context as _, Result};
use candecode::day14_guard_rails::MASK_BYTES;
use candecode::day20_serve::{Job, MakeRequest, ServingLoop};
use candecode::day21_pages::PagedCache;
use candecode::day22_shared_prefixes::PrefixCache;
use candecode::day23_token_budget::{Limits, TokenScheduler};
use candecode::kit::error::{describe, usage};
use candecode::kit::{device, panics, ModelConfig, Request, SamplingParams, WeightFormat};
use candecode_engine::chat_template::Template;
use candecode_engine::requests::{self, Processors};
use candecode_engine::token_rules;
use candecode_engine::{credits, generation_config, memory_check};
use candecode_engine::{load, operations, Engine};
use candecode_formats::{hub, ModelFiles};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::Write as _;
use std::net::TcpListener;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{mpsc, Arc, Mutex};
use std::time::Duration;
use tokio::sync::{watch, Semaphore};

/// Maximum number of cached processor sets, for requests that repeat a regular expression.
const KEPT: usize = 8;
/// Maximum size of the automata and masks in the cached sets, in bytes. The newest set is kept even
/// if it is larger.
const MOST_KEPT: usize = 160 << 20;

/// Opens the model, binds the port and runs the serving loop. Returns after Ctrl-C, once the last
/// row has ended.
///
/// # Errors
/// If a flag is invalid ([`candecode::kit::error::Usage`]), the model can't be loaded, the port is
/// taken, or the loop ends unexpectedly.
pub fn run(flags: &ServeFlags) -> Result<()> {
    flags.check()?;
    let device = device::device(&flags.device).map_err(usage)?;
    let dtype = flags.dtype.as_deref().map(device::dtype).transpose().map_err(usage)?;
    let listener = TcpListener::bind(flags.address())
        .with_context(|| format!("cannot listen at {}", flags.address()))?;
    let address = listener.local_addr()?;
    let files = ModelFiles::at(&hub::locate(&flags.model, flags.offline)?)?;
    let tokenizer = files.tokenizer()?;
    let template = template(flags, &files)?;
    let stops = template.as_ref().map(|template| template.stops.clone()).unwrap_or_default();
    let end_of_turn = template.as_ref().ok().and_then(|t| t.end_of_turn(&tokenizer));
    let format = dtype.map_or_else(|| load::own_format(&files, &device), WeightFormat::Tensors);
    let weights = files.weight_bytes(format);
    let value_bytes = device::activation_dtype(format.dtype(), &device).size_in_bytes();
    let free = memory_check::available(&device)?;
    let batch_tokens = flags.batch_tokens(files.config(), weights, value_bytes, free)?;
    // The context length to serve, used everywhere: the model's own, or the batch's if that is
    // smaller.
    let own_context = files.config().max_position_embeddings;
    let context = own_context.min(batch_tokens);
    let block_size = flags.block_size;
    let num_blocks = batch_tokens.div_ceil(block_size);
    let config = ModelConfig { max_position_embeddings: context, ..files.config().clone() };
    let ops = operations::choose(flags.kernels, &device);
    let model = load::load_files(&files, format, &device, &ops)?;
    let engine = Arc::new(Engine::new(model, tokenizer));

    let (sender, jobs) = mpsc::channel();
    let metrics = Arc::<Metrics>::default();
    let front = Arc::new(Front {
        model: flags.name().to_string(),
        prompts: PromptReader {
            config: config.clone(),
            longest_token: engine.tokenizer().longest_token(),
            engine: engine.clone(),
            template,
        },
        key: flags.key(),
        local: flags.local(),
        origins: flags.allowed_origins.clone(),
        helpers: HelperThreads::new(),
        rails: Arc::default(),
        long_bodies: Semaphore::new(LONG_BODIES),
        patience: Duration::from_secs(flags.patience as u64),
        jobs: Mutex::new(Some(sender)),
        metrics: metrics.clone(),
        started: now(),
        count: Default::default(),
        noted: Default::default(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(THREADS)
        .build()
        .context("the HTTP thread cannot start")?;
    let (ended, has_ended) = watch::channel(false);
    let most = flags.max_connections;
    let serving = connections::serve(listener, front.clone(), most, has_ended);
    let waits = front.clone();
    let http = std::thread::Builder::new()
        .name("http".into())
        .spawn(move || {
            let served = catch_unwind(AssertUnwindSafe(|| runtime.block_on(serving)));
            // After a panic on this thread, no client can be reached anymore, so the loop has to
            // end, too.
            waits.close();
            runtime.shutdown_background(); // does not wait for helper threads that are still busy
            served.unwrap_or_else(|panic| Err(anyhow!("{}", panics::describe_panic(&*panic))))
        })
        .context("the HTTP thread cannot start")?;

    say(&credits::credits(20, device::name(&device)));
    let advice =
        |asked| generation_config::advice_for_requests(asked, files.generation_config_name());
    if let Some(note) = files.generation_config().and_then(advice) {
        say(&note);
    }
    if let Some(note) = flags.context_note(own_context, context) {
        say(&note);
    }
    say(&format!(
        "[{}: at most {} sequences in {num_blocks} blocks of {block_size}, {} requests in the \
         queue]",
        flags.name(),
        flags.max_num_seqs,
        flags.max_queue
    ));
    let _ = writeln!(std::io::stdout(), "listening on http://{address}");
    let layers = files.config().num_hidden_layers;
    let cache = PagedCache::new(layers, num_blocks, block_size)?;
    let prefixes = (!flags.no_enable_prefix_caching).then(PrefixCache::new);
    let limits = Limits {
        max_num_batched_tokens: flags.max_num_batched_tokens,
        max_num_seqs: flags.max_num_seqs,
    };
    let (model, tokenizer) = (engine.model(), engine.tokenizer());
    let scheduler = TokenScheduler::new(model, tokenizer, cache, prefixes, limits)?;
    let maker = RequestMaker {
        config: &config,
        engine: &engine,
        rails: front.rails.clone(),
        stops,
        end_of_turn,
        kept: RefCell::default(),
    };
    let make_request: MakeRequest = Box::new(move |job, index| {
        maker.request(job, index).map_err(|e| candle_core::Error::Msg(describe(&e)))
    });
    let mut serving =
        ServingLoop::new(Box::new(scheduler), make_request, flags.max_num_seqs, flags.max_queue);
    let tell = |serving: &ServingLoop| {
        let scheduler = &serving.scheduler;
        metrics.load(serving.queue.len(), scheduler.load(), scheduler.cache_load());
    };
    let ran = catch_unwind(AssertUnwindSafe(|| serving.run(&jobs, tell)));
    drop(serving); // drops any rows left over from a panic, which notifies their clients
    drop(jobs);
    front.close();
    let _ = ended.send(true);
    match http.join() {
        Ok(served) => served?,
        Err(panic) => std::panic::resume_unwind(panic),
    }
    ran.map_err(|panic| anyhow!("{}", panics::describe_panic(&*panic)))
}

/// Returns the chat template, or an explanation for clients of why there isn't one. If the model's
/// own template can't be used, the terminal gets the reason, which can name paths on this machine.
///
/// # Errors
/// If `--template` was passed and can't be used.
fn template(flags: &ServeFlags, files: &ModelFiles) -> Result<Result<Template, String>> {
    let asked = flags.template.as_deref();
    let own = files.chat_template()?;
    let has_none = matches!(own.source, Ok(None));
    let why = match Template::choose(&flags.model, own, asked) {
        Ok(template) => return Ok(Ok(template)),
        Err(error) if asked.is_some() => return Err(error),
        Err(_) if has_none => "this model has no chat template",
        Err(error) => {
            let error = describe(&error);
            say(&format!("note: chats need --template; the model's own can't be used: {error}"));
            "this model's chat template can't be used, and the server's terminal says why"
        }
    };
    Ok(Err(format!("{why}: use /v1/completions, or start the server with --template")))
}

/// Turns jobs into requests for the scheduler.
struct RequestMaker<'a> {
    config: &'a ModelConfig,
    engine: &'a Engine,
    rails: Arc<Rails>,
    /// Strings that end a chat answer, according to its template.
    stops: Vec<String>,
    end_of_turn: Option<u32>,
    /// Recently built processors that were expensive to build, newest first.
    kept: RefCell<VecDeque<Kept>>,
}

/// Cached processors, the parameters they were built from, and the largest size that their automata
/// and masks can reach, in bytes.
struct Kept {
    made_of: SamplingParams,
    processors: Processors,
    bytes: usize,
}

impl RequestMaker<'_> {
    /// Builds the scheduler's request for one choice of a job.
    fn request(&self, job: &Job, index: usize) -> Result<Request<'static>> {
        let prompt = job.prompt(index);
        let mut params = job.params.clone();
        if job.is_chat && params.allow_regex.is_none() {
            // With a pattern, the whole answer has to match it, even where the template would stop.
            params.stop.extend(self.stops.iter().cloned());
        }
        requests::special_stops(&mut params, self.engine.tokenizer(), self.config.vocab_size);
        let room = (self.config.max_position_embeddings + 1).saturating_sub(prompt.len());
        params.max_new_tokens = params.max_new_tokens.min(room);
        let processors = self.processors(&params)?;
        if params.seed == NO_SEED {
            params.seed = random(); // so that equal prompts in a list get different texts
        }
        // With a seed, all prompts of a list use it, so each gets the text it would get on its own.
        let ops = self.engine.ops();
        let sampler = requests::sampler(&params, index % job.n, ops);
        let mut request =
            requests::request(self.config, prompt, &params, &processors, sampler, ops);
        if job.is_chat && !token_rules::ends_ignored(&params) {
            request.eos_token_ids.extend(self.end_of_turn);
        }
        Ok(request)
    }

    /// Returns the processors for these parameters. Sets with an automaton or bad words are cached:
    /// all choices of a request share them, along with the masks computed so far, and so do
    /// repeated requests. The automaton itself has already been compiled.
    fn processors(&self, params: &SamplingParams) -> Result<Processors> {
        let automata = self.rails.of(params).context("the request's compiled patterns are gone")?;
        let bytes = automata.memory_usage();
        let tokenizer = self.engine.tokenizer();
        let make = || requests::processors_with(params, &automata, tokenizer, self.config);
        if bytes == 0 && params.bad_words.is_empty() {
            return make();
        }
        let key = SamplingParams { seed: 0, max_new_tokens: 0, ..params.clone() };
        let mut kept = self.kept.borrow_mut();
        if let Some(found) = kept.iter().find(|kept| kept.made_of == key) {
            return Ok(found.processors.clone());
        }
        let processors = make()?;
        let bytes = bytes + MASK_BYTES; // a rail's masks grow up to this
        kept.push_front(Kept { made_of: key, processors: processors.clone(), bytes });
        while kept.len() > 1
            && (kept.len() > KEPT || kept.iter().map(|kept| kept.bytes).sum::<usize>() > MOST_KEPT)
        {
            kept.pop_back();
        }
        Ok(processors)
    }
}
