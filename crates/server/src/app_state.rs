//! The state that all handlers share.

use crate::activity::Open;
use crate::automata_cache::AutomataCache;
use crate::helper_threads::HelperThreads;
use crate::metrics::Metrics;
use crate::openai::ApiError;
use crate::prompts::PromptReader;
use crate::util::{lock, say};
use candecode::day20_serve::Job;
use candecode::kit::error::describe;
use candecode::kit::TextFormat;
use candecode_structured::{Compiler, Constraint};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Maximum number of unknown field names to log. Once that many have been logged, no new names are,
/// so a client can't flood the log.
const NOTED_FIELDS: usize = 64;

/// What the handlers know about the server, and the channel to its serving loop.
pub struct AppState {
    /// The model's name in the API.
    pub model: String,
    /// Encodes prompts.
    pub prompts: PromptReader,
    /// The API key that clients must send. None: no key needed.
    pub key: Option<String>,
    /// The listening address if only clients on this machine are allowed. None: clients on any
    /// machine are allowed.
    pub local: Option<IpAddr>,
    /// Origins of web pages that may send requests.
    pub origins: Vec<String>,
    /// Threads for slow work.
    pub helpers: HelperThreads,
    /// Compiled automata of requests whose text must match a pattern.
    pub automata: Arc<AutomataCache>,
    /// Compiles JSON schemas and grammars. Created for the first request that needs it.
    pub compiler: OnceLock<Result<Compiler, String>>,
    /// Permits for long bodies.
    pub long_bodies: Semaphore,
    /// The channel to the serving loop. None once the server is shutting down.
    pub jobs: Mutex<Option<Sender<Job>>>,
    /// How long a client may take to send a request, or go without reading its answer.
    pub patience: Duration,
    /// All open connections.
    pub open: Open,
    /// The server's counters.
    pub metrics: Arc<Metrics>,
    /// Identifies what an answer depends on: the version, the model and the kernels.
    pub fingerprint: String,
    /// Start time of the server, in seconds since 1970.
    pub started: u64,
    /// Number of responses so far, which is part of each response's id.
    pub count: AtomicU64,
    /// Names of ignored fields that have already been logged.
    pub noted: Mutex<BTreeSet<String>>,
}

impl AppState {
    /// Stops accepting jobs. The loop ends once the last running job has finished.
    pub fn close(&self) {
        lock(&self.jobs).take();
    }

    /// Returns the channel to the serving loop.
    ///
    /// # Errors
    /// 503 if the server is shutting down.
    pub fn sender(&self) -> Result<Sender<Job>, ApiError> {
        lock(&self.jobs).clone().ok_or_else(ApiError::closing)
    }

    /// Compiles a constraint on a helper thread.
    ///
    /// # Errors
    /// 400, naming `param`, if it is rejected; otherwise as
    /// [`Lane::run`](crate::helper_threads::Lane::run).
    pub async fn compile(
        self: &Arc<Self>,
        constraint: Constraint,
        param: &'static str,
    ) -> Result<Arc<dyn TextFormat>, ApiError> {
        let state = self.clone();
        let work = move || {
            let PromptReader { engine, config, .. } = &state.prompts;
            let new = || Compiler::new(engine.tokenizer(), config.vocab_size);
            let compiler = state.compiler.get_or_init(|| new().map_err(|e| describe(&e))).as_ref();
            let compiler = compiler.map_err(|why| ApiError::invalid(param, why))?;
            compiler.compile(&constraint).map_err(|e| ApiError::invalid(param, describe(&e)))
        };
        self.helpers.formats.run(work).await
    }

    /// Logs the names of ignored fields, each only once.
    pub fn note(&self, ignored: &[String]) {
        let mut noted = lock(&self.noted);
        for name in ignored {
            let name: String = name.chars().take(40).collect();
            if noted.len() < NOTED_FIELDS && noted.insert(name.clone()) {
                say(&format!("[a client sent the field {name:?}, which is ignored]"));
            }
        }
    }
}
