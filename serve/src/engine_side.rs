//! The side of the model: it is opened here, and day 20's loop runs here until the last row has ended.

use crate::connections;
use crate::http_routes::{now, say, Front};
use crate::metrics::Metrics;
use crate::serve_flags::ServeFlags;
use anyhow::{anyhow, Context as _, Result};
use candecode::day15_scheduler::{NewCache, Scheduler};
use candecode::day20_serve::{Endpoint, Job, MakeRequest, ServingLoop};
use candecode::engine::chat_template::Template;
use candecode::engine::load;
use candecode::engine::requests::{self, Processors};
use candecode::engine::roomy_cache::RoomyCache;
use candecode::formats::{hub, ModelFiles};
use candecode::kernels::{self, Choice};
use candecode::kit::error::{describe, usage};
use candecode::kit::{days, device, ModelConfig, Request, SamplingParams, Tokenizer, WeightFormat};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::Write as _;
use std::net::TcpListener;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{mpsc, Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// Sets of processors that are kept, for requests that come again with the same regular expression.
const KEPT: usize = 8;

/// Opens the model, listens, and runs the loop; comes back after Ctrl-C, when the last row has ended.
///
/// # Errors
/// If a flag is wrong ([`candecode::kit::error::Usage`]), the model cannot be had, the port is taken, or the loop ends before
/// it was asked to.
pub fn run(flags: &ServeFlags) -> Result<()> {
    flags.check()?;
    let device = device::device(&flags.device).map_err(usage)?;
    let dtype = flags.dtype.as_deref().map(device::dtype).transpose().map_err(usage)?;
    kernels::choose(flags.kernels.map_or_else(Choice::default, Choice::from));
    let listener = TcpListener::bind(flags.address())
        .with_context(|| format!("cannot listen at {}", flags.address()))?;
    let address = listener.local_addr()?;
    let files = ModelFiles::at(&hub::locate(&flags.model, flags.offline)?)?;
    let tokenizer = Arc::new(files.tokenizer()?);
    let template = template(flags, &files)?;
    let stops = template.as_ref().map(|template| template.stops.clone()).unwrap_or_default();
    let end_of_turn = template.as_ref().ok().and_then(|t| t.end_of_turn(&tokenizer));
    let format = dtype.map_or_else(|| load::own_format(&files, &device), WeightFormat::Tensors);
    let weights = files.weight_bytes(format);
    let batch_tokens = flags.batch_tokens(files.config(), weights, &device)?;
    let model = load::load_files(&files, format, &device)?;

    let (sender, jobs) = mpsc::channel();
    let metrics = Arc::new(Metrics::new());
    let front = Arc::new(Front {
        model: flags.name().to_string(),
        config: files.config().clone(),
        tokenizer: tokenizer.clone(),
        template,
        key: flags.key(),
        patience: Duration::from_secs(flags.patience),
        jobs: Mutex::new(Some(sender)),
        metrics: metrics.clone(),
        started: now(),
        count: Default::default(),
        noted: Default::default(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2) // they read prompts; more would only take the model's cores
        .build()
        .context("the HTTP side cannot start")?;
    let (ended, has_ended) = watch::channel(false);
    let most = flags.max_connections;
    let serving = connections::serve(listener, front.clone(), most, has_ended);
    let http = std::thread::Builder::new()
        .name("http".into())
        .spawn(move || runtime.block_on(serving))
        .context("the HTTP side cannot start")?;

    say(&days::credits(20));
    say(&format!(
        "[{}: at most {} rows of {batch_tokens} tokens in all, {} requests in the queue]",
        flags.name(),
        flags.max_batch,
        flags.max_queue
    ));
    let _ = writeln!(std::io::stdout(), "listening on http://{address}");
    let layers = files.config().num_hidden_layers;
    let new_cache: NewCache = Box::new(move || Box::new(RoomyCache::new(layers)));
    let scheduler = Scheduler::new(&model, &tokenizer, new_cache, batch_tokens)?;
    let maker = RequestMaker {
        config: files.config(),
        tokenizer: &tokenizer,
        batch_tokens,
        stops,
        end_of_turn,
        kept: RefCell::default(),
    };
    let make_request: MakeRequest = Box::new(move |job, index| {
        maker.request(job, index).map_err(|e| candle_core::Error::Msg(describe(&e)))
    });
    let mut serving =
        ServingLoop::new(scheduler, &tokenizer, make_request, flags.max_batch, flags.max_queue);
    let ran = catch_unwind(AssertUnwindSafe(|| serving.run(&jobs, |load| metrics.load(load))));
    drop(serving); // with the rows that a panic has left: their clients are told
    drop(jobs);
    front.close();
    let _ = ended.send(true);
    match http.join() {
        Ok(served) => served?,
        Err(panic) => std::panic::resume_unwind(panic),
    }
    ran.map_err(|panic| anyhow!("{}", days::describe_panic(&*panic)))
}

/// The chat template; or, as words for clients, why there is none.
///
/// # Errors
/// If one was asked for with `--template` and cannot be had.
fn template(flags: &ServeFlags, files: &ModelFiles) -> Result<Result<Template, String>> {
    let asked = flags.template.as_deref();
    let chosen = files.chat_template().and_then(|own| Template::choose(&flags.model, own, asked));
    match chosen {
        Err(error) if asked.is_some() => Err(error),
        Err(_) => Ok(Err("this model has no chat template: use /v1/completions, or start the \
                          server with --template"
            .to_string())),
        Ok(template) => Ok(Ok(template)),
    }
}

/// Makes the scheduler's requests of jobs.
struct RequestMaker<'a> {
    config: &'a ModelConfig,
    tokenizer: &'a Tokenizer,
    batch_tokens: usize,
    /// What ends an answer of a chat, by its template.
    stops: Vec<String>,
    end_of_turn: Option<u32>,
    /// The newest processors that took time to make, and what they were made of.
    kept: RefCell<VecDeque<(SamplingParams, Processors)>>,
}

impl RequestMaker<'_> {
    /// The request of a choice.
    fn request(&self, job: &Job, index: usize) -> Result<Request<'static>> {
        let prompt = job.prompts.get(index / job.n).context("a choice without a prompt")?;
        let mut params = job.params.clone();
        let is_chat = job.endpoint == Endpoint::Chat;
        if is_chat {
            params.stop.extend(self.stops.iter().cloned());
        }
        if params.max_new_tokens == usize::MAX {
            // As many as fit: also into the batch, which may hold less than the model's context.
            params.max_new_tokens = self.batch_tokens.saturating_sub(prompt.len()).max(1);
        }
        let processors = self.processors(&params)?;
        let sampler = requests::sampler(&params, index);
        let mut request = requests::request(self.config, prompt, &params, &processors, sampler);
        if is_chat {
            request.eos_token_ids.extend(self.end_of_turn);
        }
        Ok(request)
    }

    /// The processors of these parameters. An automaton of a regular expression is kept: all choices of a request have the
    /// same one, and so do requests that come again.
    fn processors(&self, params: &SamplingParams) -> Result<Processors> {
        let make = || requests::processors(params, self.tokenizer, self.config);
        if params.allow_regex.is_none() {
            return make();
        }
        let key = SamplingParams { seed: 0, max_new_tokens: 0, ..params.clone() };
        let mut kept = self.kept.borrow_mut();
        if let Some((_, processors)) = kept.iter().find(|(made_of, _)| *made_of == key) {
            return Ok(processors.clone());
        }
        let processors = make()?;
        kept.truncate(KEPT - 1);
        kept.push_front((key, processors.clone()));
        Ok(processors)
    }
}
