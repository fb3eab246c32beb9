//! Downloads what a model needs with the crate `hf-hub`, and checks it.
//!
//! `hf-hub` brings the bytes, resumes a broken download and keeps the cache. Added here: all files come from one commit,
//! lengths and hashes are checked, a token is sent only where an anonymous request was refused, a hub that has gone silent
//! is given up, and every failure says what to do.

use crate::formats::folder::{shard_names, INDEX, SINGLE};
use crate::formats::hub::hub_cache::{is_plain_name, Repository, REQUIRED};
use crate::formats::hub::DEFAULT_MODEL;
use crate::kit::note::note;
use crate::kit::units::bytes;
use anyhow::{anyhow, bail, Context as _, Result};
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo, Metadata};
use hf_hub::api::Progress;
use hf_hub::{Cache, Repo, RepoType};
use indicatif::{ProgressBar, ProgressStyle};
use ring::digest::{Context, SHA256};
use std::cell::Cell;
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::Duration;

/// Requests in a row that may bring nothing, because the hub is busy or the connection breaks, before it is given up.
const TRIES: usize = 5;

/// Downloads the missing files of a repository's model and returns the model's folder.
///
/// # Errors
/// If a file cannot be fetched. The message says what to do.
pub fn fetch(cached: &Repository, hub: &Path) -> Result<PathBuf> {
    let _lock = lock_repo(cached).with_context(|| unwritable(hub))?;
    if let Some(dir) = cached.whole() {
        return Ok(dir); // another process fetched it while this one waited
    }
    let hub = Hub::new(cached, hub)?;
    let (commit, known) = match cached.commit() {
        Some(commit) => (commit, true),
        None => (hub.newest()?, false),
    };
    for file in REQUIRED {
        hub.file(&commit, file)?;
    }
    for file in cached.unknown(&commit) {
        match hub.download(&commit, file) {
            // There is none, or it is empty, and hf-hub cannot fetch an empty file.
            Err(Problem::Status(404 | 416)) => {
                cached.note_absent(&commit, file).with_context(|| unwritable(&cached.hub))?;
            }
            // Another program fetched the rest, and there is no network now: go on, but say so.
            Err(Problem::Unreachable(_)) if known => {
                note!("note: {}: could not ask whether there is a {file}", cached.name);
            }
            Err(problem) => return Err(hub.explain(file, problem)),
            Ok(()) => {}
        }
    }
    hub.weights(&commit)?;
    cached.set_commit(&commit).with_context(|| unwritable(&cached.hub))?;
    Ok(cached.snapshot(&commit))
}

/// The hub's address: `HF_ENDPOINT`, or Hugging Face's.
fn endpoint() -> String {
    let named = std::env::var("HF_ENDPOINT").ok().filter(|value| !value.is_empty());
    let endpoint = named.unwrap_or_else(|| "https://huggingface.co".into());
    endpoint.trim_end_matches('/').to_string()
}

/// Waits until no other process is fetching this repository. Dropping the file releases the lock.
fn lock_repo(cached: &Repository) -> std::io::Result<File> {
    let path = cached.lock();
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            note!("waiting: another process is fetching {}", cached.name);
            file.lock()?;
        }
        Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Unsupported => {} // some network drives
        Err(TryLockError::Error(e)) => return Err(e),
        Ok(()) => {}
    }
    Ok(file)
}

fn unwritable(hub: &Path) -> String {
    format!(
        "the cache {} could not be written to; is there permission? HF_HOME moves it",
        hub.display()
    )
}

/// Why a file is not here.
enum Problem {
    /// The hub refused the request with this status.
    Status(u16),
    /// No connection was made: why.
    Unreachable(String),
    /// The connection broke: how.
    Broken(String),
    /// Nothing arrived for this long.
    Silent(Duration),
    /// The bytes are not those that the hub announced: how they differ.
    Damaged(String),
    /// The answer is not a hub's: what is wrong with it.
    NotAHub(String),
    /// A program that isn't this one holds the lock of the file.
    Locked(PathBuf),
    /// The file could not be written.
    Disk(std::io::Error),
}

impl From<ApiError> for Problem {
    fn from(error: ApiError) -> Self {
        use ErrorKind::{ConnectionAborted, ConnectionReset, UnexpectedEof};
        match error {
            ApiError::TooManyRetries(last) => Self::from(*last),
            ApiError::InvalidResume => Self::Damaged("more is on disk than it is long".into()),
            ApiError::LockAcquisition(lock) => Self::Locked(lock),
            // hf-hub copies from the connection to the file, and both fail with this type.
            ApiError::IoError(e) => match e.kind() {
                ConnectionAborted | ConnectionReset | UnexpectedEof | ErrorKind::Other => {
                    Self::Broken(e.to_string())
                }
                _ => Self::Disk(e),
            },
            ApiError::RequestError(error) => match *error {
                ureq::Error::StatusCode(status) => Self::Status(status),
                ureq::Error::Protocol(_) => Self::Broken(error.to_string()),
                ureq::Error::TooManyRedirects => Self::NotAHub(error.to_string()),
                ureq::Error::Io(e) if e.kind() == ErrorKind::ConnectionRefused => {
                    Self::Unreachable(e.to_string())
                }
                ureq::Error::Io(e) => Self::Broken(e.to_string()),
                _ => Self::Unreachable(error.to_string()),
            },
            header => Self::NotAHub(header.to_string()),
        }
    }
}

/// A repository on the hub, and its part of the cache.
struct Hub<'a> {
    cached: &'a Repository,
    anonymous: Api,
    with_token: Option<Api>,
    /// Set once an anonymous request was refused: from then on the token is sent.
    refused: Cell<bool>,
}

impl<'a> Hub<'a> {
    fn new(cached: &'a Repository, folder: &Path) -> Result<Self> {
        let cache = Cache::new(folder.to_path_buf());
        let variable = std::env::var("HF_TOKEN").ok().map(|token| token.trim().to_string());
        let token = variable.filter(|token| !token.is_empty()).or_else(|| cache.token());
        let api = |token: Option<String>| {
            let api = ApiBuilder::from_cache(cache.clone()).with_endpoint(endpoint());
            // No retries of its own: they append the whole file to a part that was begun earlier.
            api.with_token(token).with_retries(0).build()
        };
        let with_token = token.map(|token| api(Some(token))).transpose()?;
        Ok(Self { cached, anonymous: api(None)?, with_token, refused: Cell::new(false) })
    }

    /// The repository's newest commit.
    fn newest(&self) -> Result<String> {
        let newest = self.about("main", REQUIRED[0]);
        let newest = newest.map_err(|problem| self.explain(REQUIRED[0], problem))?;
        Ok(newest.commit_hash().to_string())
    }

    /// Downloads a file that the model needs, unless it is here.
    fn file(&self, commit: &str, file: &str) -> Result<()> {
        if self.cached.has(commit, file) {
            return Ok(());
        }
        self.download(commit, file).map_err(|problem| self.explain(file, problem))
    }

    /// Downloads the weights: one file, or several and their index.
    fn weights(&self, commit: &str) -> Result<()> {
        let has = |file| self.cached.has(commit, file);
        let get = |file| match self.download(commit, file) {
            Err(Problem::Status(404)) => Ok(false),
            other => other.map(|()| true).map_err(|problem| self.explain(file, problem)),
        };
        if !has(SINGLE) && !has(INDEX) && !get(SINGLE)? && !get(INDEX)? {
            bail!(
                "{}: the hub has no {SINGLE} there, and no {INDEX}; candecode reads safetensors, or a GGUF file on disk",
                self.cached.name
            )
        }
        if !has(SINGLE) {
            let index = self.cached.snapshot(commit).join(INDEX);
            let text = fs::read_to_string(&index).with_context(|| index.display().to_string())?;
            for shard in shard_names(&text).with_context(|| index.display().to_string())? {
                self.file(commit, &shard)?;
            }
        }
        Ok(())
    }

    /// Downloads one file and checks it. A damaged one is deleted and fetched once more.
    fn download(&self, commit: &str, file: &str) -> Result<(), Problem> {
        let about = self.about(commit, file)?;
        let blob = self.cached.blob(about.etag());
        for again in ["", ", again"] {
            let bar = progress_bar(file, about.size() as u64, again);
            let fetched = self.ask(commit, file, &bar, |_, repo, file, bar| {
                repo.download_with_progress(file, bar).map(drop)
            });
            bar.abandon();
            let fetched = match fetched {
                // The part on disk is as long as the file already.
                Err(Problem::Status(416)) => {
                    Err(Problem::Damaged("nothing is left to fetch".into()))
                }
                other => other.and_then(|()| check(&blob, &about)),
            };
            match fetched {
                Err(Problem::Damaged(what)) => {
                    let _ = fs::remove_file(&blob);
                    let _ = fs::remove_file(blob.with_extension("part"));
                    if !again.is_empty() {
                        return Err(Problem::Damaged(what));
                    }
                    note!("{file} came damaged ({what}): fetching it again");
                }
                other => return other,
            }
        }
        Ok(())
    }

    /// What the hub says of a file: its commit, its name in the cache and its length in bytes.
    fn about(&self, revision: &str, file: &str) -> Result<Metadata, Problem> {
        let bar = ProgressBar::hidden();
        let about =
            self.ask(revision, file, &bar, |api, repo, file, _| api.metadata(&repo.url(file)))?;
        let (commit, etag) = (about.commit_hash(), about.etag());
        // Both become names of files.
        if !is_plain_name(commit) || !is_plain_name(etag) {
            let what = format!("its commit {commit:.80?} or etag {etag:.80?} isn't one");
            return Err(Problem::NotAHub(what));
        }
        Ok(about)
    }

    /// Calls `hf-hub`: anonymously until that is refused, and again if the hub is busy or the connection breaks.
    fn ask<T: Send + 'static>(
        &self,
        revision: &str,
        file: &str,
        bar: &ProgressBar,
        call: fn(&Api, &ApiRepo, &str, Bar) -> Result<T, ApiError>,
    ) -> Result<T, Problem> {
        let (mut tries, mut arrived) = (0, 0); // tries that brought nothing new
        loop {
            let token = self.with_token.as_ref().filter(|_| self.refused.get());
            let api = token.unwrap_or(&self.anonymous).clone();
            let (name, revision) = (self.cached.name.clone(), revision.to_string());
            let repo = api.repo(Repo::with_revision(name, RepoType::Model, revision));
            let (file, to) = (file.to_string(), Bar(bar.clone()));
            let done = patiently(bar, move || call(&api, &repo, &file, to));
            tries = if bar.position() > arrived { 1 } else { tries + 1 };
            arrived = arrived.max(bar.position());
            match done {
                Err(Problem::Status(401 | 403)) if self.can_show_token() => self.refused.set(true),
                Err(Problem::Status(429 | 500..=599) | Problem::Broken(_)) if tries < TRIES => {
                    std::thread::sleep(Duration::from_millis(250 << tries));
                }
                other => return other,
            }
        }
    }

    fn can_show_token(&self) -> bool {
        self.with_token.is_some() && !self.refused.get()
    }

    /// Says what went wrong and what to do.
    fn explain(&self, file: &str, problem: Problem) -> anyhow::Error {
        let (repo, hub) = (&self.cached.name, endpoint());
        let kept = "what came so far is kept, try again later";
        let why = match problem {
            Problem::Status(404) => {
                "the hub has no such file there, or no such repository; is the name right?".into()
            }
            Problem::Status(code @ (401 | 403)) if self.refused.get() => format!(
                "the hub refuses your token ({code}); open {hub}/{repo} with its account and ask for access, or make a new token on {hub}/settings/tokens and set HF_TOKEN to it"
            ),
            Problem::Status(code @ (401 | 403)) => format!(
                "access refused ({code}); is the name right? If it is, the repository is private or gated: accept its terms on {hub}/{repo}, make a token on {hub}/settings/tokens, and set it: HF_TOKEN=hf_..."
            ),
            Problem::Status(code @ (408 | 429 | 500..=599)) => {
                format!("the hub is busy or in trouble ({code}); {kept}")
            }
            Problem::Status(code) => not_a_hub(&format!("it answers {code}")),
            Problem::NotAHub(what) => not_a_hub(&what),
            Problem::Unreachable(what) => {
                format!("{hub} is out of reach ({what}); is there a network?")
            }
            Problem::Broken(what) => format!("the connection broke ({what}); {kept}"),
            Problem::Silent(time) => {
                format!("nothing has arrived from {hub} for {} s; {kept}", time.as_secs())
            }
            Problem::Damaged(what) => format!(
                "it came damaged twice ({what}) and was deleted; try again, or another network"
            ),
            Problem::Locked(lock) => format!(
                "another program is fetching it; wait for it, or delete {} if there is none",
                lock.display()
            ),
            Problem::Disk(e) if e.kind() == ErrorKind::StorageFull => {
                "the disk is full; free some space, or set HF_HOME to a folder on another disk".into()
            }
            Problem::Disk(e) => format!("{} ({e})", unwritable(&self.cached.hub)),
        };
        let and = if why.ends_with('?') { "" } else { ";" };
        anyhow!(
            "{repo}: could not fetch {file}: {why}{and} --model {DEFAULT_MODEL} needs no network"
        )
    }
}

fn not_a_hub(what: &str) -> String {
    format!(
        "what answers at {} is no hub ({what}); is HF_ENDPOINT right, and is there no login page in between?",
        endpoint()
    )
}

/// Runs a call of `hf-hub`, which knows no time limits, on a thread of its own. After a minute without a byte
/// (`HF_HUB_DOWNLOAD_TIMEOUT` seconds, if it is set) the thread is left behind. A later run resumes what it wrote.
fn patiently<T: Send + 'static>(
    arrived: &ProgressBar,
    call: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, Problem> {
    let seconds = std::env::var("HF_HUB_DOWNLOAD_TIMEOUT").ok().and_then(|s| s.parse().ok());
    let patience = Duration::from_secs(seconds.filter(|seconds| *seconds > 0).unwrap_or(60));
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(call()));
    loop {
        let before = arrived.position();
        match receiver.recv_timeout(patience) {
            Ok(done) => return Ok(done?),
            Err(RecvTimeoutError::Timeout) if arrived.position() != before => {}
            Err(RecvTimeoutError::Timeout) => return Err(Problem::Silent(patience)),
            // hf-hub panics on some answers, such as a redirect that doesn't say where to.
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Problem::NotAHub("its answer makes no sense".into()))
            }
        }
    }
}

/// Compares a file with what the hub says of it: its length and, if its name in the cache is a sha256, its hash.
fn check(blob: &Path, about: &Metadata) -> Result<(), Problem> {
    let length = fs::metadata(blob).map_err(Problem::Disk)?.len();
    if length != about.size() as u64 {
        let what = format!("it is {length} bytes long, and should be {}", about.size());
        return Err(Problem::Damaged(what));
    }
    let want = about.etag();
    if want.len() != 64 {
        return Ok(()); // a small file: its etag is git's
    }
    let (mut file, mut hash) = (File::open(blob).map_err(Problem::Disk)?, Context::new(&SHA256));
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(Problem::Disk)? {
            0 => break,
            n => hash.update(&buffer[..n]),
        }
    }
    let hash: String = hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    match hash == want.to_ascii_lowercase() {
        true => Ok(()),
        false => Err(Problem::Damaged(format!("its sha256 is {hash}, and should be {want}"))),
    }
}

/// A bar with speed and time left. Where standard error isn't a terminal, a line instead.
fn progress_bar(file: &str, size: u64, again: &str) -> ProgressBar {
    const STYLE: &str = "{msg} [{wide_bar}] {bytes}/{total_bytes} {bytes_per_sec} ({eta})";
    let style = ProgressStyle::with_template(STYLE);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(size).with_style(style).with_message(file.to_string());
    if bar.is_hidden() {
        note!("fetching {file} ({}){again}", bytes(size as f64));
    }
    bar
}

/// `hf-hub`'s progress on a bar of ours. Its own implementation for bars counts a resumed part twice.
struct Bar(ProgressBar);

impl Progress for Bar {
    fn init(&mut self, _: usize, _: &str) {
        self.0.set_position(0);
        self.0.reset_eta();
    }

    fn update(&mut self, bytes: usize) {
        self.0.inc(bytes as u64);
    }

    fn finish(&mut self) {}
}
