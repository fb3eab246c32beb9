//! The model's side of the server: opens the model and runs day 20's serving loop until the last
//! row has ended.

use crate::app_state::AppState;
use crate::body::LONG_BODIES;
use crate::helper_threads::HelperThreads;
use crate::http_thread::HttpThread;
use crate::prompt_report::{ReportedScheduler, Reporter};
use crate::prompts::PromptReader;
use crate::request_maker::RequestMaker;
use crate::serve_flags::{SchedulerDay, ServeFlags};
use crate::unwritten_tasks::{contained, RestartableScheduler};
use crate::util::{now, say};
use anyhow::{anyhow, Context as _, Result};
use candecode::day12_batching::BatchCache;
use candecode::day15_scheduler::Scheduler;
use candecode::day20_serve::{Job, MakeRequest, ServingLoop};
use candecode::day21_pages::PagedCache;
use candecode::day22_shared_prefixes::PrefixCache;
use candecode::day23_token_budget::{Limits, TokenScheduler};
use candecode::kit::error::{describe, usage};
use candecode::kit::panics::or_unwritten;
use candecode::kit::{device, panics, Batch, CacheLoad, Model, ModelConfig};
use candecode::kit::{SchedulerInterface, SchedulerLoad, Tokenizer, WeightFormat};
use candecode::DAYS;
use candecode_engine::chat::Renderer;
use candecode_engine::operations::{self, Kernels};
use candecode_engine::trace::{Trace, TracedScheduler, Watch};
use candecode_engine::{credits, generation_config, memory_check};
use candecode_engine::{extras, load, Engine};
use candecode_formats::{hub, ModelFiles};
use candecode_templates::Template;
use candle_core::{Device, Error};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::net::SocketAddr;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpSocket;
use tokio::sync::Semaphore;

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
    let socket =
        bind(flags.address()).with_context(|| format!("cannot listen at {}", flags.address()))?;
    let address = socket.local_addr()?;
    let files = ModelFiles::at(&locate(&flags.model, flags.offline)?)?;
    let tokenizer = files.tokenizer()?;
    let template = template(flags, &files)?;
    let format = dtype.map_or_else(|| load::own_format(&files, &device), WeightFormat::Tensors);
    let model = ServedModel::open(flags, &files, tokenizer, format, &device)?;

    let (sender, jobs) = mpsc::channel();
    let state = app_state(flags, &model, template, sender);
    // The size of the cache is right before the first request, too.
    let cache = CacheLoad { blocks: model.num_blocks(flags), ..CacheLoad::default() };
    state.metrics.load(0, SchedulerLoad::default(), cache);
    let http = HttpThread::start(socket, state.clone(), flags.max_connections)?;
    say(&credits::credits(20, device::name(&device)));
    print_notes(flags, &files, &model);
    let _ = writeln!(std::io::stdout(), "listening on http://{address}");
    let ran = run_loop(flags, &model, &state, jobs);
    state.close();
    http.finish()?;
    ran
}

/// Takes the address, without listening yet: until the model is loaded, connections are refused.
fn bind(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    #[cfg(unix)] // on Windows this would share an address that is in use
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// The loaded model, and what the flags and the free memory make of it.
struct ServedModel {
    engine: Arc<Engine>,
    /// The configuration, with the context length that is served: the model's own, or the cache's
    /// if that is smaller.
    config: ModelConfig,
    /// Number of positions in the cache.
    batch_tokens: usize,
    /// The scheduler.
    scheduler: SchedulerDay,
}

impl ServedModel {
    /// Decides on the sizes, and loads the model.
    ///
    /// # Errors
    /// If the weights can't be loaded, or there isn't enough memory.
    fn open(
        flags: &ServeFlags,
        files: &ModelFiles,
        tokenizer: Tokenizer,
        format: WeightFormat,
        device: &Device,
    ) -> Result<Self> {
        let weights = files.weight_bytes(format);
        let value_bytes = device::activation_dtype(format.dtype(), device).size_in_bytes();
        let free = memory_check::available(device)?;
        let batch_tokens = flags.batch_tokens(files.config(), weights, value_bytes, free)?;
        let context = files.config().max_position_embeddings.min(batch_tokens);
        let scheduler = flags.scheduler(DAYS);
        if scheduler == SchedulerDay::Day15 {
            extras::check("--scheduler day15", extras::joining_rows)?;
        }
        if flags.kernels == Some(Kernels::Mine) {
            operations::try_mine(format.dtype(), device)?;
        }
        let ops = operations::choose(flags.kernels, device);
        let model = load::load_files(files, format, device, &ops)?;
        Ok(Self {
            engine: Arc::new(Engine::new(model, tokenizer)),
            config: ModelConfig { max_position_embeddings: context, ..files.config().clone() },
            batch_tokens,
            scheduler,
        })
    }

    /// Returns the number of blocks in the cache: none, if the scheduler's batch is a rectangle.
    fn num_blocks(&self, flags: &ServeFlags) -> usize {
        match self.scheduler {
            SchedulerDay::Day15 => 0,
            SchedulerDay::Day23 => self.batch_tokens.div_ceil(flags.block_size()),
        }
    }

    /// Returns the maximum number of positions in one pass. None: a whole prompt.
    fn pass_tokens(&self, flags: &ServeFlags) -> Option<usize> {
        match self.scheduler {
            SchedulerDay::Day15 => None,
            SchedulerDay::Day23 => Some(flags.max_num_batched_tokens.unwrap_or(128)),
        }
    }

    /// Creates the scheduler. Its steps are shown if there is a trace.
    ///
    /// # Errors
    /// If its cache can't be created.
    fn new_scheduler<'a>(
        &'a self,
        flags: &ServeFlags,
        model: &'a dyn Model,
        trace: Option<&'a Trace<'a>>,
    ) -> candle_core::Result<Box<dyn SchedulerInterface<'a> + 'a>> {
        let (tokenizer, layers) = (self.engine.tokenizer(), self.config.num_hidden_layers);
        if self.scheduler == SchedulerDay::Day15 {
            let cache = move || Box::new(BatchCache::new(layers, None)) as Box<dyn Batch>;
            let scheduler = Scheduler::new(model, tokenizer, Box::new(cache), self.batch_tokens);
            return Ok(traced(scheduler, trace));
        }
        let cache = PagedCache::new(layers, self.num_blocks(flags), flags.block_size())?;
        let prefixes = (!flags.no_enable_prefix_caching).then(PrefixCache::new);
        let limits = Limits {
            max_num_batched_tokens: self.pass_tokens(flags).unwrap_or(usize::MAX),
            max_num_seqs: flags.max_num_seqs,
        };
        let scheduler = TokenScheduler::new(model, tokenizer, cache, prefixes, limits)?;
        Ok(traced(scheduler, trace))
    }
}

/// Returns a scheduler whose steps are shown if there is a trace.
fn traced<'a>(
    scheduler: impl SchedulerInterface<'a> + Watch + 'a,
    trace: Option<&'a Trace<'a>>,
) -> Box<dyn SchedulerInterface<'a> + 'a> {
    match trace {
        Some(trace) => Box::new(TracedScheduler { scheduler, trace }),
        None => Box::new(scheduler),
    }
}

/// Returns the path of a model, which is downloaded if necessary, unless `offline` is set.
#[cfg(feature = "hub")]
fn locate(name: &str, offline: bool) -> Result<PathBuf> {
    hub::locate(name, Some(&candecode_remote::hub::Hub { offline }))
}

/// Returns the path of a model on this machine.
#[cfg(not(feature = "hub"))]
fn locate(name: &str, _offline: bool) -> Result<PathBuf> {
    hub::locate(name, None)
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

/// Returns the state that the handlers share, with the channel on which they send jobs.
fn app_state(
    flags: &ServeFlags,
    model: &ServedModel,
    template: Result<Template, String>,
    jobs: Sender<Job>,
) -> Arc<AppState> {
    Arc::new(AppState {
        model: flags.name().to_string(),
        prompts: PromptReader {
            config: model.config.clone(),
            longest_token: model.engine.tokenizer().longest_token(),
            pass_tokens: model.pass_tokens(flags),
            engine: model.engine.clone(),
            template,
        },
        key: flags.key(),
        local: flags.local(),
        origins: flags.allowed_origins.clone(),
        helpers: HelperThreads::new(),
        automata: Arc::default(),
        compiler: Default::default(),
        long_bodies: Semaphore::new(LONG_BODIES),
        jobs: Mutex::new(Some(jobs)),
        patience: Duration::from_secs(flags.patience as u64),
        open: Default::default(),
        metrics: Arc::default(),
        fingerprint: fingerprint(flags, model),
        started: now(),
        count: Default::default(),
        noted: Default::default(),
    })
}

/// Returns OpenAI's `system_fingerprint`: while it stays the same, so does the text of a seed.
fn fingerprint(flags: &ServeFlags, model: &ServedModel) -> String {
    let mut hasher = DefaultHasher::new();
    let kernels = model.engine.ops().describe(model.engine.model().device().is_cpu());
    let format = (&flags.model, flags.dtype.as_deref(), &flags.device);
    (env!("CARGO_PKG_VERSION"), format, kernels).hash(&mut hasher);
    format!("fp_{:010x}", hasher.finish() >> 24)
}

/// Prints what the terminal should know about the model and the batch.
fn print_notes(flags: &ServeFlags, files: &ModelFiles, model: &ServedModel) {
    let advice =
        |asked| generation_config::advice_for_requests(asked, files.generation_config_name());
    if let Some(note) = files.generation_config().and_then(advice) {
        say(&note);
    }
    let own_context = files.config().max_position_embeddings;
    if let Some(note) = flags.context_note(own_context, model.config.max_position_embeddings) {
        say(&note);
    }
    let room = match model.scheduler {
        SchedulerDay::Day15 => format!("day 15's rectangle of {} positions", model.batch_tokens),
        SchedulerDay::Day23 => {
            format!("{} blocks of {}", model.num_blocks(flags), flags.block_size())
        }
    };
    say(&format!(
        "[{}: at most {} sequences in {room}, {} requests in the queue]",
        flags.name(),
        flags.max_num_seqs,
        flags.max_queue
    ));
}

/// Runs the serving loop until nobody can send jobs anymore and the last row has ended.
///
/// # Errors
/// If the scheduler can't be created, or a day's code panics.
fn run_loop(
    flags: &ServeFlags,
    model: &ServedModel,
    state: &AppState,
    jobs: Receiver<Job>,
) -> Result<()> {
    let ServedModel { engine, config, .. } = model;
    let trace = flags.trace.then(|| Trace::new(engine.model(), flags.format, false, say));
    let passes = trace.as_ref().map_or(engine.model() as &dyn Model, |trace| trace);
    let reporter = Reporter::new(passes);
    let create = || model.new_scheduler(flags, &reporter, trace.as_ref());
    let scheduler =
        ReportedScheduler { scheduler: RestartableScheduler::new(create)?, reporter: &reporter };
    let template = state.prompts.template.as_ref().ok();
    let stops = template.map(|template| template.stops().to_vec()).unwrap_or_default();
    let end_of_turn = template.and_then(|template| template.end_of_turn(engine.tokenizer()));
    let maker = RequestMaker::new(config, engine, stops, end_of_turn);
    let make_request: MakeRequest = Box::new(move |job, index| {
        let request = || maker.request(job, index).map_err(|e| Error::Msg(describe(&e)));
        Ok(contained(or_unwritten(request)?))
    });
    let mut serving =
        ServingLoop::new(Box::new(scheduler), make_request, flags.max_num_seqs, flags.max_queue);
    let report_load = |serving: &ServingLoop| {
        let scheduler = &serving.scheduler;
        state.metrics.load(serving.queue.len(), scheduler.load(), scheduler.cache_load());
    };
    let ran = catch_unwind(AssertUnwindSafe(|| serving.run(&jobs, report_load)));
    drop(serving); // drops any rows left over from a panic, which notifies their clients
    ran.map_err(|panic| anyhow!("{}", panics::describe_panic(&*panic)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_refused_until_the_server_listens() {
        let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let connect = || std::net::TcpStream::connect(address);
        assert_eq!(connect().unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let _listener = socket.listen(8).unwrap();
        assert!(connect().is_ok());
    }
}
