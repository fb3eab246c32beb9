//! The hub's cache on this machine: the crate `hf-hub`'s, which Python's `huggingface_hub` shares.
//!
//! ```text
//! models--OWNER--NAME/refs/main               the newest commit here: written last, so it names whole models
//!                     snapshots/COMMIT/FILE   links
//!                     blobs/ETAG              the files themselves; ETAG.part is one that is still arriving
//!                     .no_exist/COMMIT/FILE   empty: the repository has no such file, so don't ask again
//! ```

use crate::formats::folder::{shard_names, INDEX, SINGLE};
use crate::formats::hub::DEFAULT_MODEL;
use crate::formats::safetensors_source::SafetensorsSource;
use anyhow::{bail, ensure, Context as _, Result};
use hf_hub::{Cache, CacheRepo, Repo};
use serde::de::IgnoredAny;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// What every model needs beside its weights.
pub const REQUIRED: [&str; 2] = ["config.json", "tokenizer.json"];

/// What a model may have. A repository without them is complete.
pub const OPTIONAL: [&str; 5] = [
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
];

/// The folder of the cache: `HF_HUB_CACHE`, else `hub` in `HF_HOME`, else in `~/.cache/huggingface`.
///
/// # Errors
/// If there is no home folder.
pub fn folder() -> Result<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(dir) = named("HF_HUB_CACHE") {
        return Ok(dir.into());
    }
    if let Some(home) = named("HF_HOME") {
        return Ok(PathBuf::from(home).join("hub"));
    }
    let cache = named("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(std::env::home_dir()?.join(".cache")));
    let cache = cache.context("there is no home folder for the hub's cache; set HF_HOME")?;
    Ok(cache.join("huggingface").join("hub"))
}

/// One repository's part of the cache.
pub struct Repository {
    /// `OWNER/NAME`.
    pub name: String,
    /// The folder of the whole cache.
    pub hub: PathBuf,
    dir: PathBuf,
    files: CacheRepo,
}

impl Repository {
    /// The part of `name` in the cache in folder `hub`; it need not be there yet.
    pub fn new(hub: &Path, name: &str) -> Self {
        let dir = hub.join(Repo::model(name.to_string()).folder_name());
        let files = Cache::new(hub.to_path_buf()).model(name.to_string());
        Self { name: name.to_string(), hub: hub.to_path_buf(), dir, files }
    }

    /// The folder of a commit's files.
    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.files.pointer_path(commit)
    }

    /// An empty file that says: the repository has no such file.
    fn absent(&self, commit: &str, file: &str) -> PathBuf {
        self.dir.join(".no_exist").join(commit).join(file)
    }

    /// The folder of the model, if all of it is here, and it is known which optional files there are.
    pub fn whole(&self) -> Option<PathBuf> {
        let commit = self.commit()?;
        let whole = self.missing(&commit).is_empty() && self.unknown(&commit).is_empty();
        whole.then(|| self.snapshot(&commit))
    }

    /// The folder of the model, if nothing that it needs is missing: what must do where nothing can be fetched.
    ///
    /// # Errors
    /// If something is missing.
    pub fn without_network(&self) -> Result<PathBuf> {
        let (why, fetch) = if cfg!(feature = "hub") {
            ("--offline or HF_HUB_OFFLINE is set", "without")
        } else {
            ("this build has no feature `hub`", "with a build that has it")
        };
        let (name, way_on) = (&self.name, format!("--model {DEFAULT_MODEL} needs no network"));
        let Some(commit) = self.commit() else {
            let hub = self.hub.display();
            bail!("{name} is not in the cache, {hub}, and {why}; fetch it once {fetch}; {way_on}")
        };
        let (missing, dir) = (self.missing(&commit), self.snapshot(&commit));
        ensure!(
            missing.is_empty(),
            "{name} is not whole in the cache: {} is missing or cut short in {}, and {why}; run once {fetch}, to fetch the rest; {way_on}",
            missing.join(", "),
            dir.display()
        );
        Ok(dir)
    }

    /// The commit that is here, whole or not.
    pub fn commit(&self) -> Option<String> {
        let commit = fs::read_to_string(self.dir.join("refs").join("main")).ok()?;
        Some(commit.trim().to_string()).filter(|commit| is_plain_name(commit))
    }

    /// True if the file is here, and as long as it says that it is.
    pub fn has(&self, commit: &str, file: &str) -> bool {
        is_whole(&self.snapshot(commit).join(file))
    }

    /// The needed files that are not here. Of weights: the single file, unless an index is here.
    pub fn missing(&self, commit: &str) -> Vec<String> {
        let mut needed: Vec<String> = REQUIRED.map(String::from).to_vec();
        let index = fs::read_to_string(self.snapshot(commit).join(INDEX)).ok();
        match index.and_then(|text| shard_names(&text).ok()) {
            Some(shards) if !self.has(commit, SINGLE) => needed.extend(shards),
            _ => needed.push(SINGLE.into()),
        }
        needed.retain(|file| !self.has(commit, file));
        needed
    }

    /// The optional files of which it is not known whether there are any.
    pub fn unknown(&self, commit: &str) -> Vec<&'static str> {
        let known = |file: &str| self.has(commit, file) || self.absent(commit, file).is_file();
        OPTIONAL.into_iter().filter(|file| !known(file)).collect()
    }

    /// Bytes of the repository in the cache, and how many of them are of files on their way, ours or others'.
    pub fn sizes(&self) -> (u64, u64) {
        let (mut all, mut parts) = (0, 0);
        for file in fs::read_dir(self.dir.join("blobs")).into_iter().flatten().flatten() {
            let size = file.metadata().map_or(0, |file| file.len());
            let end = file.path().extension().map(|end| end.to_os_string());
            let coming = ["incomplete", "part"].iter().any(|e| end.as_deref() == Some(e.as_ref()));
            all += size;
            parts += if coming { size } else { 0 };
        }
        (all, parts)
    }
}

/// What a download writes.
#[cfg(feature = "hub")]
impl Repository {
    /// Where a file of this content is.
    pub fn blob(&self, etag: &str) -> PathBuf {
        self.files.blob_path(etag)
    }

    /// The file that a process locks while it fetches the repository.
    pub fn lock(&self) -> PathBuf {
        let folder = Repo::model(self.name.clone()).folder_name();
        self.hub.join(".locks").join(folder).join("candecode.lock")
    }

    /// Notes that the repository has no such file.
    ///
    /// # Errors
    /// If the note cannot be written.
    pub fn note_absent(&self, commit: &str, file: &str) -> std::io::Result<()> {
        let absent = self.absent(commit, file);
        if let Some(dir) = absent.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(absent, "")
    }

    /// Makes this commit the one that is here. `hf-hub` has noted it under its own name with every file; that note goes.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn set_commit(&self, commit: &str) -> std::io::Result<()> {
        let _ = fs::remove_file(self.dir.join("refs").join(commit));
        self.files.create_ref(commit)
    }
}

/// True for what may be a name in the cache: hexadecimal digits, in practice.
pub fn is_plain_name(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.len() < 200 && name.chars().all(word)
}

/// True if a file is whole, as far as it can be seen: JSON parses, and weights are as long as their header says.
fn is_whole(path: &Path) -> bool {
    let Ok(file) = fs::File::open(path) else { return false };
    match path.extension().and_then(|end| end.to_str()) {
        Some("safetensors") => SafetensorsSource::default().add_file(path, &file).is_ok(),
        Some("json") => serde_json::from_reader::<_, IgnoredAny>(BufReader::new(file)).is_ok(),
        _ => true,
    }
}
