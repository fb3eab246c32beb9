//! Brings what a model needs into the cache: file by file, each checked before anybody can see it.

use crate::formats::hub::download::download;
use crate::formats::hub::http_client::{endpoint, Client};
use crate::formats::hub::hub_cache::{folder, Repository, OPTIONAL, REQUIRED};
use crate::formats::hub::hub_error::Fault;
use crate::formats::hub::DEFAULT_MODEL;
use crate::kit::weights::{shard_names, INDEX, SINGLE};
use anyhow::{anyhow, bail, Context as _, Result};
use std::fs::{self, File, TryLockError};
use std::path::PathBuf;

/// The folder of a repository's model in the cache, fetched if it is not there. Nothing is asked of a model that is there whole.
///
/// # Errors
/// If it cannot be fetched: what to do is said.
pub fn fetch(name: &str) -> Result<PathBuf> {
    let hub = folder()?;
    let cached = Repository::new(&hub, name);
    let whole =
        |commit: &String| cached.missing(commit).is_empty() && cached.unknown(commit).is_empty();
    if let Some(commit) = cached.commit().filter(whole) {
        return Ok(cached.snapshot(&commit));
    }
    if offline() {
        return without_network(&cached, &hub);
    }
    let _turn = turn(&cached).with_context(|| unwritable(&hub))?;
    if let Some(commit) = cached.commit().filter(whole) {
        return Ok(cached.snapshot(&commit)); // whoever had the turn before us brought it
    }
    // hf-hub knows where `huggingface-cli login` puts a token.
    let token = std::env::var("HF_TOKEN").ok().filter(|token| !token.trim().is_empty());
    let token = token.or_else(|| hf_hub::Cache::new(hub.clone()).token());
    let client = Client::new(token.map(|token| token.trim().to_string()));
    let fetch = Fetch { cached: &cached, client: &client };
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
            Err(Fault::Unreachable(_)) if known => {
                eprintln!("note: {name}: could not ask whether there is a {file}");
            }
            Err(fault) => return Err(fetch.explain(file, fault)),
            Ok(()) => {}
        }
    }
    fetch.weights(&commit)?;
    cached.set_commit(&commit).with_context(|| unwritable(&hub))?;
    Ok(cached.snapshot(&commit))
}

/// True if no network shall be used: `HF_HUB_OFFLINE`, which `--offline` sets.
pub fn offline() -> bool {
    std::env::var("HF_HUB_OFFLINE").is_ok_and(|value| {
        !matches!(value.to_ascii_lowercase().as_str(), "" | "0" | "false" | "no" | "off")
    })
}

/// What is there must do: it does if nothing that is needed is missing.
fn without_network(cached: &Repository, hub: &std::path::Path) -> Result<PathBuf> {
    let (name, way_on) = (&cached.name, format!("--model {DEFAULT_MODEL} needs no network"));
    let why = "--offline or HF_HUB_OFFLINE is set";
    let Some(commit) = cached.commit() else {
        bail!(
            "{name} is not in the cache, {}, and {why}; fetch it once without; {way_on}",
            hub.display()
        )
    };
    let missing = cached.missing(&commit);
    if !missing.is_empty() {
        let dir = cached.snapshot(&commit);
        bail!(
            "{name} is not whole in the cache: {} is missing or cut short in {}, and {why}; run once without, to fetch the rest; {way_on}",
            missing.join(", "),
            dir.display()
        )
    }
    Ok(cached.snapshot(&commit))
}

/// Waits until no other process fetches this repository. The turn ends with the file that is given back.
fn turn(cached: &Repository) -> std::io::Result<File> {
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

fn unwritable(hub: &std::path::Path) -> String {
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
        let about = self.client.about(&self.cached.name, "main", REQUIRED[0]);
        Ok(about.map_err(|fault| self.explain(REQUIRED[0], fault))?.commit)
    }

    /// A file that must be there.
    fn file(&self, commit: &str, file: &str) -> Result<()> {
        if self.cached.has(commit, file) {
            return Ok(());
        }
        download(self.cached, self.client, commit, file).map_err(|fault| self.explain(file, fault))
    }

    /// A file that may be there. That it is not is written down.
    fn optional(&self, commit: &str, file: &str) -> Result<(), Fault> {
        match download(self.cached, self.client, commit, file) {
            Err(Fault::Absent { repository: false }) => {
                let absent = self.cached.absent(commit, file);
                let dir = absent.parent().map_or(Ok(()), fs::create_dir_all);
                dir.and_then(|()| fs::write(absent, "")).map_err(Fault::Disk)
            }
            other => other,
        }
    }

    /// The weights: one file, or several and an index of them.
    fn weights(&self, commit: &str) -> Result<()> {
        let has = |file| self.cached.has(commit, file);
        if !has(SINGLE) && !has(INDEX) {
            match download(self.cached, self.client, commit, SINGLE) {
                Err(Fault::Absent { repository: false }) => {
                    match download(self.cached, self.client, commit, INDEX) {
                        Err(Fault::Absent { repository: false }) => bail!(
                            "{}: the hub has no {SINGLE} there, and no {INDEX}; candecode reads safetensors, or a GGUF file on disk",
                            self.cached.name
                        ),
                        other => other.map_err(|fault| self.explain(INDEX, fault))?,
                    }
                }
                other => other.map_err(|fault| self.explain(SINGLE, fault))?,
            }
        }
        if !has(SINGLE) {
            let index = self.cached.snapshot(commit).join(INDEX);
            let text = fs::read_to_string(&index).with_context(|| index.display().to_string())?;
            let shards = shard_names(&text).with_context(|| index.display().to_string())?;
            shards.iter().try_for_each(|shard| self.file(commit, shard))?;
        }
        Ok(())
    }

    /// What went wrong, and the way out.
    fn explain(&self, file: &str, fault: Fault) -> anyhow::Error {
        let (repo, hub) = (&self.cached.name, endpoint());
        let way_on = format!("--model {DEFAULT_MODEL} needs no network");
        let has_token = self.client.has_token();
        match fault {
            Fault::Absent { repository: true } => anyhow!(
                "{repo}: the hub has no such repository, or hides it; is the name right? A private one needs HF_TOKEN; {way_on}"
            ),
            Fault::Absent { .. } if OPTIONAL.contains(&file) => anyhow!("{repo}: no {file}"),
            Fault::Absent { .. } => {
                anyhow!("{repo}: the hub has no {file} there; is the name right? {way_on}")
            }
            Fault::Refused { gated: true, .. } if has_token => anyhow!(
                "{repo} is gated, and your token has no access to it; ask for it on {hub}/{repo}, with the account of the token in HF_TOKEN; {way_on}"
            ),
            Fault::Refused { gated: true, .. } => anyhow!(
                "{repo} is gated: accept its terms on {hub}/{repo}, make a token on {hub}/settings/tokens, and set it: HF_TOKEN=hf_...; {way_on}"
            ),
            Fault::Refused { said, .. } if has_token => anyhow!(
                "{repo}: the hub does not take your token ({said}); make a new one on {hub}/settings/tokens, and set HF_TOKEN to it; {way_on}"
            ),
            Fault::Refused { said, .. } => anyhow!(
                "{repo}: access refused ({said}); is the name right? If it is private, make a token on {hub}/settings/tokens, and set it: HF_TOKEN=hf_...; {way_on}"
            ),
            Fault::Unreachable(what) => anyhow!(
                "{repo}: could not fetch {file}: {hub} is out of reach ({what}); is there a network? {way_on}"
            ),
            Fault::Later(what, _) => anyhow!(
                "{repo}: could not fetch {file}: {what}; what came so far is kept, try again later; {way_on}"
            ),
            Fault::Damaged(what) => anyhow!(
                "{repo}: {file} came damaged twice ({what}) and was deleted; try again, or another network; {way_on}"
            ),
            Fault::Strange(what) => anyhow!(
                "{repo}: could not fetch {file}: what answers at {hub} is no hub ({what}); is HF_ENDPOINT right, and is there no login page in between? {way_on}"
            ),
            Fault::Disk(e) if e.kind() == std::io::ErrorKind::StorageFull => anyhow!(
                "{repo}: the disk is full: {file} does not fit; free some space, or set HF_HOME to a folder on another disk"
            ),
            Fault::Disk(e) => anyhow!(
                "{repo}: {file} could not be written to the cache ({e}); is there permission? HF_HOME moves it"
            ),
        }
    }
}
