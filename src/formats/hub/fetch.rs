//! Brings what a model needs into the cache: file by file, each checked before anybody can see it.

use crate::formats::folder::{shard_names, INDEX, SINGLE};
use crate::formats::hub::download::download;
use crate::formats::hub::http_client::{endpoint, Client};
use crate::formats::hub::hub_cache::{Repository, REQUIRED};
use crate::formats::hub::hub_error::HubError;
use crate::formats::hub::DEFAULT_MODEL;
use anyhow::{anyhow, bail, Context as _, Result};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

/// Fetches what the cache lacks of a repository's model; gives the folder of the model.
///
/// # Errors
/// If it cannot be fetched: what to do is said.
pub fn fetch(cached: &Repository, hub: &Path) -> Result<PathBuf> {
    let _lock = lock_repo(cached).with_context(|| unwritable(hub))?;
    if let Some(dir) = cached.whole() {
        return Ok(dir); // another process fetched it while we waited
    }
    let client = Client::new(token(hub));
    let fetch = Fetch { cached, client: &client };
    let (commit, known) = match cached.commit() {
        Some(commit) => (commit, true),
        None => (fetch.newest()?, false),
    };
    for file in REQUIRED {
        fetch.file(&commit, file)?;
    }
    for file in cached.unknown(&commit) {
        match fetch.optional(&commit, file) {
            // Another program brought what is needed, and there is no network now: go on, but say so.
            Err(HubError::Unreachable(_)) if known => {
                eprintln!("note: {}: could not ask whether there is a {file}", cached.name);
            }
            Err(error) => return Err(fetch.explain(file, error)),
            Ok(()) => {}
        }
    }
    fetch.weights(&commit)?;
    cached.set_commit(&commit).with_context(|| unwritable(hub))?;
    Ok(cached.snapshot(&commit))
}

/// The token of `HF_TOKEN`, else the one that `hf auth login` left beside the cache.
fn token(hub: &Path) -> Option<String> {
    let login = || fs::read_to_string(hub.parent()?.join("token")).ok();
    let given = |token: &String| !token.trim().is_empty();
    let token = std::env::var("HF_TOKEN").ok().filter(given).or_else(|| login().filter(given));
    token.map(|token| token.trim().to_string())
}

/// Waits until no other process fetches this repository. The lock ends with the file that is given back.
fn lock_repo(cached: &Repository) -> std::io::Result<File> {
    let path = cached.lock();
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            eprintln!("waiting: another process is fetching {}", cached.name);
            file.lock()?;
        }
        Err(TryLockError::Error(e)) if e.kind() == std::io::ErrorKind::Unsupported => {} // some network drives
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

struct Fetch<'a> {
    cached: &'a Repository,
    client: &'a Client,
}

impl Fetch<'_> {
    /// The newest commit of the repository.
    fn newest(&self) -> Result<String> {
        let info = self.client.info(&self.cached.name, "main", REQUIRED[0]);
        Ok(info.map_err(|error| self.explain(REQUIRED[0], error))?.commit)
    }

    /// A file that must be there.
    fn file(&self, commit: &str, file: &str) -> Result<()> {
        if self.cached.has(commit, file) {
            return Ok(());
        }
        self.download(commit, file).map_err(|error| self.explain(file, error))
    }

    /// A file that may be there. That it is not is written down.
    fn optional(&self, commit: &str, file: &str) -> Result<(), HubError> {
        if self.download_if_there(commit, file)? {
            return Ok(());
        }
        self.cached.note_absent(commit, file).map_err(HubError::Disk)
    }

    /// The weights: one file, or several and an index of them.
    fn weights(&self, commit: &str) -> Result<()> {
        let has = |file| self.cached.has(commit, file);
        let get =
            |file| self.download_if_there(commit, file).map_err(|error| self.explain(file, error));
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

    /// False if the repository has no such file.
    fn download_if_there(&self, commit: &str, file: &str) -> Result<bool, HubError> {
        match self.download(commit, file) {
            Err(HubError::NotFound { repository: false }) => Ok(false),
            other => other.map(|()| true),
        }
    }

    fn download(&self, commit: &str, file: &str) -> Result<(), HubError> {
        download(self.cached, self.client, commit, file)
    }

    /// What went wrong, and the way out.
    fn explain(&self, file: &str, error: HubError) -> anyhow::Error {
        let (repo, hub) = (&self.cached.name, endpoint());
        let way_on = format!("--model {DEFAULT_MODEL} needs no network");
        let has_token = self.client.has_token();
        match error {
            HubError::NotFound { repository: true } => anyhow!(
                "{repo}: the hub has no such repository, or hides it; is the name right? A private one needs HF_TOKEN; {way_on}"
            ),
            HubError::NotFound { .. } => {
                anyhow!("{repo}: the hub has no {file} there; is the name right? {way_on}")
            }
            HubError::Refused { gated: true, .. } if has_token => anyhow!(
                "{repo} is gated, and your token has no access to it; ask for it on {hub}/{repo}, with the account of the token in HF_TOKEN; {way_on}"
            ),
            HubError::Refused { gated: true, .. } => anyhow!(
                "{repo} is gated: accept its terms on {hub}/{repo}, make a token on {hub}/settings/tokens, and set it: HF_TOKEN=hf_...; {way_on}"
            ),
            HubError::Refused { said, .. } if has_token => anyhow!(
                "{repo}: the hub does not take your token ({said}); make a new one on {hub}/settings/tokens, and set HF_TOKEN to it; {way_on}"
            ),
            HubError::Refused { said, .. } => anyhow!(
                "{repo}: access refused ({said}); is the name right? If it is private, make a token on {hub}/settings/tokens, and set it: HF_TOKEN=hf_...; {way_on}"
            ),
            HubError::Unreachable(what) => anyhow!(
                "{repo}: could not fetch {file}: {hub} is out of reach ({what}); is there a network? {way_on}"
            ),
            HubError::Retryable(what, _) => anyhow!(
                "{repo}: could not fetch {file}: {what}; what came so far is kept, try again later; {way_on}"
            ),
            HubError::Damaged(what) => anyhow!(
                "{repo}: {file} came damaged twice ({what}) and was deleted; try again, or another network; {way_on}"
            ),
            HubError::NotAHub(what) => anyhow!(
                "{repo}: could not fetch {file}: what answers at {hub} is no hub ({what}); is HF_ENDPOINT right, and is there no login page in between? {way_on}"
            ),
            HubError::Disk(e) if e.kind() == std::io::ErrorKind::StorageFull => anyhow!(
                "{repo}: the disk is full: {file} does not fit; free some space, or set HF_HOME to a folder on another disk"
            ),
            HubError::Disk(e) => anyhow!(
                "{repo}: {file} could not be written to the cache ({e}); is there permission? HF_HOME moves it"
            ),
        }
    }
}
