//! Downloads a model's files with the `hf-hub` crate and checks them.
//!
//! `hf-hub` transfers the bytes, resumes interrupted downloads and maintains the cache. This module
//! adds the rest: all files come from one commit, lengths and hashes are checked, a token is sent
//! only after an anonymous request has been refused, a hub that stops responding times out, and
//! every error says how to proceed.

use anyhow::{anyhow, bail, Result};
use candecode_formats::folder::{INDEX, SINGLE};
use candecode_formats::hub::{is_plain_name, Download, Repository};
use candecode_formats::hub::{token, DEFAULT_MODEL, OPTIONAL, REQUIRED};
use candecode_kit::error::describe;
use candecode_kit::note::note;
use candecode_kit::units::bytes;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo, Metadata};
use hf_hub::{Cache, Repo, RepoType};
use indicatif::ProgressBar;
use ring::digest::{Context, SHA256};
use std::collections::VecDeque;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::Duration;

/// Maximum number of attempts per request while the hub is busy or the connection breaks.
const TRIES: u32 = 5;

/// Downloads from the hub.
pub struct Hub {
    /// Whether `--offline` forbids using the network. `HF_HUB_OFFLINE` in the environment does so,
    /// too.
    pub offline: bool,
}

impl Download for Hub {
    fn download(&self, cached: &Repository) -> Result<PathBuf> {
        if self.offline || offline_by_environment() {
            return cached.without_network(OFFLINE);
        }
        fetch(cached)
    }
}

/// Why a model that is missing can't be downloaded with `--offline`.
const OFFLINE: &str = "--offline or HF_HUB_OFFLINE is set; fetch it once without them";

/// Returns true if `HF_HUB_OFFLINE` forbids using the network.
fn offline_by_environment() -> bool {
    std::env::var("HF_HUB_OFFLINE").is_ok_and(|value| {
        !matches!(value.to_ascii_lowercase().as_str(), "" | "0" | "false" | "no" | "off")
    })
}

/// Downloads a repository's missing model files and returns the model's folder. If that fails and
/// only optional files are missing, a note is enough. Errors say how to proceed.
fn fetch(cached: &Repository) -> Result<PathBuf> {
    let why = match complete(cached) {
        Ok(dir) => return Ok(dir),
        Err(error) => describe(&error),
    };
    // Another program may have downloaded the required files. There may be no network now, or the
    // cache may be read-only.
    if let Ok(dir) = cached.without_network(&why) {
        note!("note: using only the cache, as with --offline: {why}");
        return Ok(dir);
    }
    let and = if why.ends_with('?') { "" } else { ";" };
    bail!("{why}{and} --model {DEFAULT_MODEL} needs no network")
}

/// Downloads everything that is missing, including optional files.
fn complete(cached: &Repository) -> Result<PathBuf> {
    let mut hub = Source::new(cached)?;
    let _lock = lock(cached).map_err(|e| hub.explain("it", e.into()))?;
    if let Some(dir) = cached.whole() {
        return Ok(dir); // another process fetched it while this one waited
    }
    let commit = match cached.commit() {
        Some(commit) => commit,
        None => {
            let newest = hub.about("main", REQUIRED[0]);
            newest.map_err(|e| hub.explain(REQUIRED[0], e))?.commit_hash().to_string()
        }
    };
    let mut wanted = VecDeque::from(cached.missing(&commit));
    wanted.extend(cached.unknown(&commit).into_iter().map(String::from));
    while let Some(file) = wanted.pop_front() {
        let optional = OPTIONAL.contains(&file.as_str());
        match hub.download(&commit, &file) {
            Ok(()) if file == INDEX => {
                wanted.extend(cached.missing(&commit).into_iter().filter(|shard| shard != SINGLE));
            }
            Ok(()) => {}
            Err(e) if status(&e) == 404 && file == SINGLE => wanted.push_back(INDEX.into()),
            // The file doesn't exist, or is empty, which hf-hub can't download.
            Err(e) if optional && matches!(status(&e), 404 | 416) => {
                let noted = cached.note_absent(&commit, &file);
                noted.map_err(|e| hub.explain(&file, e.into()))?;
            }
            Err(e) => return Err(hub.explain(&file, e)),
        }
    }
    cached.set_commit(&commit).map_err(|e| hub.explain("it", e.into()))?;
    Ok(cached.snapshot(&commit))
}

/// Waits until no other process is downloading this repository. Dropping the file releases the
/// lock.
fn lock(cached: &Repository) -> io::Result<File> {
    let dir = cached.cache.join(".locks");
    fs::create_dir_all(&dir)?;
    let file = File::create(dir.join(cached.name.replace('/', "--") + ".lock"))?;
    // Some network drives don't support locks, so only a lock held by another process matters.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        note!("waiting: another process is fetching {}", cached.name);
        file.lock()?;
    }
    Ok(file)
}

/// Returns the hub's address: `HF_ENDPOINT`, or Hugging Face's own.
fn endpoint() -> String {
    let named = std::env::var("HF_ENDPOINT").ok().filter(|value| !value.is_empty());
    let endpoint = named.unwrap_or_else(|| "https://huggingface.co".into());
    endpoint.trim_end_matches('/').to_string()
}

/// Returns the HTTP status of a refused request, or 0 for other errors.
fn status(error: &ApiError) -> u16 {
    let ApiError::RequestError(e) = error else { return 0 };
    if let ureq::Error::StatusCode(code) = **e {
        code
    } else {
        0
    }
}

/// Returns true if a retry might help: the hub is busy, or the connection broke.
fn is_passing(error: &ApiError) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Other, UnexpectedEof};
    let broke = [ConnectionAborted, ConnectionReset, Other, UnexpectedEof];
    match error {
        // hf-hub copies from the connection to the file, and errors on either side have this type.
        ApiError::IoError(e) => broke.contains(&e.kind()),
        ApiError::RequestError(e) => match &**e {
            ureq::Error::StatusCode(code) => matches!(code, 408 | 429 | 500..=599),
            ureq::Error::Io(e) => e.kind() != ConnectionRefused,
            error => matches!(error, ureq::Error::Protocol(_)),
        },
        _ => false,
    }
}

/// A repository on the hub and its part of the cache.
struct Source<'a> {
    cached: &'a Repository,
    api: Api,
    /// Not sent until an anonymous request is refused.
    token: Option<String>,
    token_sent: bool,
}

impl<'a> Source<'a> {
    fn new(cached: &'a Repository) -> Result<Self> {
        let named = std::env::var("HF_TOKEN").unwrap_or_default().trim().to_string();
        let token = Some(named).filter(|token| !token.is_empty()).or_else(token);
        Ok(Self { cached, api: api(cached, None)?, token, token_sent: false })
    }

    /// Downloads one file and checks it. A damaged file is deleted and downloaded again.
    fn download(&mut self, commit: &str, file: &str) -> Result<(), ApiError> {
        let about = self.about(commit, file)?;
        let blob = self.cached.dir.join("blobs").join(about.etag());
        if !io::stderr().is_terminal() {
            note!("fetching {file} ({})", bytes(about.size() as f64)); // instead of a progress bar
        }
        let mut again = false;
        loop {
            let fetched =
                self.ask(commit, file, |_, repo, file, bar| repo.download_with_progress(file, bar));
            let what = match fetched.and_then(|_| Ok(check(&blob, &about)?)) {
                Err(ApiError::IoError(e)) if e.kind() == ErrorKind::InvalidData => e.to_string(),
                // The partial file on disk is already as long as the whole file.
                Err(e) if status(&e) == 416 => "nothing is left to download".to_string(),
                Err(ApiError::InvalidResume) => "more is on disk than it is long".to_string(),
                done => return done,
            };
            let _ = fs::remove_file(&blob);
            let _ = fs::remove_file(blob.with_extension("part"));
            if again {
                return Err(io::Error::new(ErrorKind::InvalidData, what).into());
            }
            note!("{file} came damaged ({what}): fetching it again");
            again = true;
        }
    }

    /// Returns the hub's metadata for a file: its commit, its name in the cache and its length in
    /// bytes.
    fn about(&mut self, revision: &str, file: &str) -> Result<Metadata, ApiError> {
        let about = self.ask(revision, file, |api, repo, file, _| api.metadata(&repo.url(file)))?;
        // Both are used as file names.
        match (is_plain_name(about.commit_hash()), is_plain_name(about.etag())) {
            (true, true) => Ok(about),
            (false, _) => Err(ApiError::InvalidHeader("x-repo-commit")),
            (true, false) => Err(ApiError::InvalidHeader("etag")),
        }
    }

    /// Calls `hf-hub`, and retries if the hub is busy, the connection breaks, or a token is
    /// required. `hf-hub`'s own retries fail if the last one succeeds, and can append the whole
    /// file to an earlier partial download (`download_tempfile`, api/sync.rs, line 622).
    fn ask<T: Send + 'static>(
        &mut self,
        revision: &str,
        file: &str,
        call: fn(&Api, &ApiRepo, &str, ProgressBar) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let (hub, file, name) = (self.api.clone(), file.to_string(), self.cached.name.clone());
            let repo = Repo::with_revision(name, RepoType::Model, revision.to_string());
            match patiently(move |bar| call(&hub, &hub.repo(repo), &file, bar)) {
                // The hub also limits anonymous requests (429), but not so much with a token.
                Err(e) if matches!(status(&e), 401 | 403 | 429) && self.token.is_some() => {
                    self.api = api(self.cached, self.token.take())?;
                    self.token_sent = true;
                }
                Err(e) if is_passing(&e) && tries < TRIES => {
                    std::thread::sleep(Duration::from_millis(250 << tries));
                }
                other => return other,
            }
        }
    }

    /// Describes an error and how to proceed.
    fn explain(&self, file: &str, error: ApiError) -> anyhow::Error {
        let (repo, hub, passing) = (&self.cached.name, endpoint(), is_passing(&error));
        let kept = "what came so far is kept; try again later";
        let no_hub = "is HF_ENDPOINT right, and is there no login page in between?";
        let why = match (status(&error), error) {
            (404, _) if file == INDEX => format!(
                "the hub has no {SINGLE} there, and no {INDEX}; candecode reads safetensors, or a \
                    GGUF file on disk"
            ),
            (404, _) => {
                "the hub has no such file there, or no such repository; is the name right?".into()
            }
            (code @ (401 | 403), _) => format!(
                "{} ({code}); is the name right? If it is, the repository is private or gated: \
                    accept its terms on {hub}/{repo}, make a token on {hub}/settings/tokens, and \
                    set it: HF_TOKEN=hf_...",
                if self.token_sent { "the hub refuses your token" } else { "access refused" }
            ),
            (code @ 1.., _) if passing => format!("the hub is busy or in trouble ({code}); {kept}"),
            (code @ 1.., _) => format!(
                "what answers at {hub} is no hub (it answers {code}); \
                {no_hub}"
            ),
            (_, error) if passing => format!("the connection broke ({error}); {kept}"),
            (_, ApiError::RequestError(e)) => {
                format!("{hub} is out of reach ({e}); is there a network?")
            }
            (_, ApiError::LockAcquisition(lock)) => {
                format!("another program is fetching it, and holds the lock {}", lock.display())
            }
            (_, ApiError::IoError(e)) => match e.kind() {
                ErrorKind::TimedOut => format!("{e}; {kept}"),
                ErrorKind::InvalidData => format!(
                    "it came damaged twice ({e}) and was deleted; try again, or use another network"
                ),
                ErrorKind::StorageFull => {
                    "the disk is full; free some space, or set HF_HOME to a folder on another disk"
                        .into()
                }
                _ => format!(
                    "the cache {} could not be written to ({e}); do you have permission? \
                        Set HF_HOME to move it",
                    self.cached.cache.display()
                ),
            },
            (_, header) => format!("what answers at {hub} is no hub ({header}); {no_hub}"),
        };
        anyhow!("{repo}: could not fetch {file}: {why}")
    }
}

fn api(cached: &Repository, token: Option<String>) -> Result<Api, ApiError> {
    let builder = ApiBuilder::from_cache(Cache::new(cached.cache.clone()));
    builder.with_endpoint(endpoint()).with_token(token).build()
}

/// Runs an `hf-hub` call, which has no timeouts, on its own thread. After a minute without a byte
/// (or `HF_HUB_DOWNLOAD_TIMEOUT` seconds, if set), the thread is abandoned. A later run resumes
/// from the bytes already written.
fn patiently<T: Send + 'static>(
    call: impl FnOnce(ProgressBar) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let seconds = std::env::var("HF_HUB_DOWNLOAD_TIMEOUT").ok().and_then(|s| s.parse().ok());
    let seconds = seconds.filter(|seconds| *seconds > 0).unwrap_or(60);
    let (bar, (sender, receiver)) = (ProgressBar::new(0), channel());
    let shown = bar.clone();
    std::thread::spawn(move || sender.send(call(shown)));
    loop {
        let before = bar.position();
        match receiver.recv_timeout(Duration::from_secs(seconds)) {
            Ok(done) => return done,
            // hf-hub panics on some responses, such as a redirect without a location.
            Err(RecvTimeoutError::Disconnected) => return Err(ApiError::InvalidHeader("location")),
            Err(RecvTimeoutError::Timeout) if bar.position() == before => {
                bar.abandon();
                let silent = format!("nothing has arrived from {} for {seconds} s", endpoint());
                return Err(io::Error::new(ErrorKind::TimedOut, silent).into());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Checks a file against the hub's metadata: its length and, if its name in the cache is a SHA-256,
/// its hash.
fn check(blob: &Path, about: &Metadata) -> io::Result<()> {
    let (mut file, mut length, mut digest) = (File::open(blob)?, 0, Context::new(&SHA256));
    let mut bytes = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut bytes)?;
        if count == 0 {
            break;
        }
        length += count;
        digest.update(&bytes[..count]);
    }
    let (hash, want) = (digest.finish(), about.etag().to_ascii_lowercase());
    let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let what = if length != about.size() {
        format!("it is {length} bytes long, and should be {}", about.size())
    } else if want.len() == 64 && hash != want {
        format!("its sha256 is {hash}, and should be {want}")
    } else {
        return Ok(());
    };
    Err(io::Error::new(ErrorKind::InvalidData, what))
}
