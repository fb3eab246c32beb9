//! Downloads a model's files into the hub's cache, which Python's `huggingface_hub` shares.
//!
//! All files come from one commit, lengths and hashes are checked, interrupted downloads resume, a
//! token is sent only after an anonymous request has been refused and only to the hub itself, a hub
//! that stops responding times out, and every error says how to proceed.

mod blobs;
mod failure;
mod requests;

use crate::connection::explain;
use crate::retry_after::LONGEST_WAIT;
use anyhow::{anyhow, bail, Result};
use blobs::Blob;
use candecode_formats::folder::{INDEX, SINGLE};
use candecode_formats::hub::{environment, Download, Repository};
use candecode_formats::hub::{DEFAULT_MODEL, OPTIONAL, REQUIRED};
use candecode_kit::error::describe;
use candecode_kit::note::note;
use candecode_kit::units::bytes;
use failure::{usual_pause, Failure};
use indicatif::{ProgressBar, ProgressStyle};
use requests::{About, Requests};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, IsTerminal as _, Read as _, Write as _};
use std::path::PathBuf;

/// Maximum number of attempts per request while the hub is busy or the connection breaks.
const TRIES: u32 = 5;

/// Downloads from the hub.
pub struct Hub {
    /// Whether `--offline` forbids using the network. Variables of the environment do so, too.
    pub offline: bool,
}

impl Download for Hub {
    fn download(&self, cached: &Repository) -> Result<PathBuf> {
        match environment::forbids_network() {
            _ if self.offline => cached.without_network(OFFLINE),
            None => fetch(cached),
            Some("HF_HUB_OFFLINE") => cached.without_network(OFFLINE),
            Some(variable) => {
                cached.without_network(&format!("{variable} is set; fetch it once without it"))
            }
        }
    }
}

/// Why a model that is missing can't be downloaded with `--offline`.
const OFFLINE: &str = "--offline or HF_HUB_OFFLINE is set; fetch it once without them";

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
            newest.map_err(|e| hub.explain(REQUIRED[0], e))?.commit
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
            Err(e) if e.status() == 404 && file == SINGLE => wanted.push_back(INDEX.into()),
            Err(e) if optional && (e.status() == 404 || matches!(e, Failure::Empty)) => {
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

/// A repository on the hub and its part of the cache.
struct Source<'a> {
    cached: &'a Repository,
    requests: Requests,
    /// Not sent until an anonymous request is refused.
    token: Option<String>,
    token_sent: bool,
}

impl<'a> Source<'a> {
    fn new(cached: &'a Repository) -> Result<Self> {
        let token = environment::token();
        Ok(Self { cached, requests: Requests::new()?, token, token_sent: false })
    }

    /// Downloads one file and checks it. A damaged file is deleted and downloaded again.
    fn download(&mut self, commit: &str, file: &str) -> Result<(), Failure> {
        let about = self.about(commit, file)?;
        if about.size == Some(0) {
            return Err(Failure::Empty);
        }
        let (cached, blob) = (self.cached, Blob::open(self.cached, &about)?);
        if !blob.is_here() {
            let bar = bar(file, about.size);
            if bar.is_hidden() {
                let size = about.size.map_or("size unknown".into(), |size| bytes(size as f64));
                note!("fetching {file} ({size})"); // instead of a progress bar
            }
            let mut again = false;
            loop {
                let fetched = self.ask(|hub| transfer(hub, cached, commit, file, &blob, &bar));
                match fetched.and_then(|()| blob.finish()) {
                    Err(Failure::Damaged(what)) => {
                        blob.discard();
                        if again {
                            return Err(Failure::Damaged(what));
                        }
                        note!("{file} came damaged ({what}): fetching it again");
                        again = true;
                    }
                    done => break done?,
                }
            }
            bar.finish();
        }
        Ok(blob.link(&cached.snapshot(commit), file)?)
    }

    /// Returns what the hub says about a file.
    fn about(&mut self, revision: &str, file: &str) -> Result<About, Failure> {
        let repo = &self.cached.name;
        self.ask(|hub| hub.about(repo, revision, file))
    }

    /// Calls the hub, and retries if it is busy, the connection breaks, or a token is required.
    fn ask<T>(&mut self, call: impl Fn(&Requests) -> Result<T, Failure>) -> Result<T, Failure> {
        let (mut tries, mut left) = (0, LONGEST_WAIT);
        loop {
            tries += 1;
            match (call(&self.requests), &self.token) {
                // The hub also limits anonymous requests (429), but not so much with a token.
                (Err(e), Some(token)) if matches!(e.status(), 401 | 403 | 429) => {
                    self.requests.show(token)?;
                    (self.token, self.token_sent) = (None, true);
                }
                (Err(e), _) if e.is_passing() && tries < TRIES => {
                    let Some(pause) = e.pause(tries).filter(|pause| *pause <= left) else {
                        return Err(e);
                    };
                    if let Failure::Status(_, Some(wait)) = &e {
                        if pause > usual_pause(tries) {
                            let said = &wait.said;
                            note!("the hub is busy, and asks to wait {said}: trying again then");
                        }
                    }
                    std::thread::sleep(pause);
                    left -= pause;
                }
                (other, _) => return other,
            }
        }
    }

    /// Describes an error and how to proceed.
    fn explain(&self, file: &str, error: Failure) -> anyhow::Error {
        let (repo, hub, passing) =
            (&self.cached.name, self.requests.endpoint(), error.is_passing());
        let kept = "what came so far is kept; try again later";
        let no_hub = "is HF_ENDPOINT right, and is there no login page in between?";
        let why = match error {
            Failure::Status(404, _) if file == INDEX => format!(
                "the hub has no {SINGLE} there, and no {INDEX}; candecode reads safetensors, or a \
                    GGUF file on disk"
            ),
            Failure::Status(404, _) => {
                "the hub has no such file there, or no such repository; is the name right?".into()
            }
            Failure::Status(code @ (401 | 403), _) if environment::forbids_token() => format!(
                "access refused ({code}); HF_HUB_DISABLE_IMPLICIT_TOKEN is set, so no token was \
                    sent"
            ),
            Failure::Status(code @ (401 | 403), _) => format!(
                "{} ({code}); is the name right? If it is, the repository is private or gated: \
                    accept its terms on {hub}/{repo}, make a token on {hub}/settings/tokens, and \
                    set it: HF_TOKEN=hf_...",
                if self.token_sent { "the hub refuses your token" } else { "access refused" }
            ),
            Failure::Status(code, wait) if passing => {
                let wait = wait.filter(|wait| wait.bounded().is_none());
                let wait =
                    wait.map_or(String::new(), |wait| format!("it asks to wait {}; ", wait.said));
                format!("the hub is busy or in trouble ({code}); {wait}{kept}")
            }
            Failure::Status(code, _) => {
                format!("what answers at {hub} isn't a hub (it answers {code}); {no_hub}")
            }
            Failure::Elsewhere(host, code) => {
                format!("{host}, where the hub keeps it, refuses the request ({code}); {kept}")
            }
            Failure::Header(name, what) => {
                format!("what answers at {hub} isn't a hub (Header {name} is {what}); {no_hub}")
            }
            Failure::Redirects => {
                format!("what answers at {hub} isn't a hub (its redirects never end); {no_hub}")
            }
            Failure::Silent(seconds) => {
                format!("nothing has arrived from {hub} for {seconds} s; {kept}")
            }
            Failure::Connection(_, error) if passing => {
                format!("the connection broke ({error}); {kept}")
            }
            Failure::Connection(host, error) => {
                let why = explain(&error, &host, "is there a network?");
                format!("{hub} is out of reach {why}")
            }
            Failure::Token => {
                "the hub asks for a token, and yours contains spaces, line breaks or \
                non-ASCII characters; was something else copied with it?"
                    .into()
            }
            Failure::Empty => "the hub's file is empty; is the name right?".into(),
            Failure::Damaged(what) => format!(
                "it came damaged twice ({what}) and was deleted; try again, or use another network"
            ),
            Failure::Disk(e) if e.kind() == ErrorKind::StorageFull => {
                "the disk is full; free some space, or set HF_HOME to a folder on another disk"
                    .into()
            }
            Failure::Disk(e) => format!(
                "the cache {} could not be written to ({e}); do you have permission? \
                    Set HF_HOME to move it",
                self.cached.cache.display()
            ),
        };
        anyhow!("{repo}: could not fetch {file}: {why}")
    }
}

/// Returns a progress bar for a file. It is hidden if standard error isn't a terminal, or
/// `HF_HUB_DISABLE_PROGRESS_BARS` is set.
fn bar(file: &str, size: Option<u64>) -> ProgressBar {
    let shown = io::stderr().is_terminal() && !environment::is_on("HF_HUB_DISABLE_PROGRESS_BARS");
    let bar = match size.filter(|_| shown) {
        Some(size) => ProgressBar::new(size),
        None => return ProgressBar::hidden(),
    };
    let template = "{msg} [{elapsed_precise}] [{wide_bar}] {bytes}/{total_bytes} {bytes_per_sec} \
        ({eta})";
    bar.set_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.with_message(file.to_string())
}

/// Downloads what is missing of a file, and appends it to the part that is on disk.
fn transfer(
    hub: &Requests,
    cached: &Repository,
    commit: &str,
    file: &str,
    blob: &Blob<'_>,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let size = blob.size().unwrap_or(u64::MAX);
    let mut part = OpenOptions::new().append(true).create(true).open(&blob.part)?;
    let there = part.metadata()?.len();
    if there > size {
        return Err(Failure::Damaged("more is on disk than it is long".into()));
    }
    if there == size {
        return Ok(()); // `finish` checks it
    }
    let (body, from) = match hub.bytes(&cached.name, commit, file, there) {
        Err(Failure::Status(416, _)) => {
            return Err(Failure::Damaged("nothing is left to download".into()))
        }
        answer => answer?,
    };
    if from == 0 && there > 0 {
        part.set_len(0)?;
    } else if from != there {
        return Err(Failure::Damaged("other bytes arrived than were requested".into()));
    }
    bar.set_position(from);
    let mut body = body.into_with_config().limit(u64::MAX).reader();
    let (mut length, mut bytes) = (from, vec![0; 1 << 16]);
    // One byte too many is enough for `finish` to reject the file.
    while length <= size {
        let count = body.read(&mut bytes).map_err(|e| hub.broken(String::new(), e.into()))?;
        if count == 0 {
            break;
        }
        part.write_all(&bytes[..count])?;
        length += count as u64;
        bar.set_position(length);
    }
    Ok(())
}
