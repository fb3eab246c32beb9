//! The state that all handlers share.

use crate::automata_cache::AutomataCache;
use crate::formats::Formats;
use crate::helper_threads::HelperThreads;
use crate::metrics::Metrics;
use crate::openai::ApiError;
use crate::prompts::PromptReader;
use crate::util::{lock, say};
use candecode::day20_serve::Job;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
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
    /// Compiles JSON schemas and grammars.
    pub formats: Arc<Formats>,
    /// Permits for long bodies.
    pub long_bodies: Semaphore,
    /// The channel to the serving loop. None once the server is shutting down.
    pub jobs: Mutex<Option<Sender<Job>>>,
    /// How long a client may take to send a request, or go without reading its answer.
    pub patience: Duration,
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
