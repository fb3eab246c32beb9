//! The hub's cache on this machine, in the layout of Python's `huggingface_hub`, which shares it.
//!
//! ```text
//! models--OWNER--NAME/refs/main               which commit is the newest here: written last, so that it names whole models
//!                     snapshots/COMMIT/FILE   links
//!                     blobs/ETAG              the files themselves; ETAG.candecode is one on its way
//!                     .no_exist/COMMIT/FILE   empty: the repository has no such file, nobody need ask again
//! ```

use crate::formats::folder::{shard_names, INDEX, SINGLE};
use crate::formats::hub::DEFAULT_MODEL;
use anyhow::{bail, ensure, Context as _, Result};
use std::fs;
use std::io::Read as _;
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
    hub: PathBuf,
    dir: PathBuf,
}

impl Repository {
    /// The part of `name` in the cache in folder `hub`; it need not be there yet.
    pub fn new(hub: &Path, name: &str) -> Self {
        let dir = hub.join(folder_of(name));
        Self { name: name.to_string(), hub: hub.to_path_buf(), dir }
    }

    /// The folder of a commit's files.
    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.dir.join("snapshots").join(commit)
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
        is_complete(&self.snapshot(commit).join(file))
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
            let coming = ["candecode", "incomplete", "part"]
                .iter()
                .any(|e| end.as_deref() == Some(e.as_ref()));
            all += size;
            parts += if coming { size } else { 0 };
        }
        (all, parts)
    }
}

/// What the client writes.
#[cfg(feature = "hub")]
impl Repository {
    /// Where a file of this content is.
    pub fn blob(&self, etag: &str) -> PathBuf {
        self.dir.join("blobs").join(etag)
    }

    /// Where a file of this content is while it is on its way. No other program has such files.
    pub fn part(&self, etag: &str) -> PathBuf {
        self.dir.join("blobs").join(format!("{etag}.candecode"))
    }

    /// The file that a process locks while it fetches the repository.
    pub fn lock(&self) -> PathBuf {
        self.hub.join(".locks").join(folder_of(&self.name)).join("candecode.lock")
    }

    /// Writes down that the repository has no such file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn note_absent(&self, commit: &str, file: &str) -> std::io::Result<()> {
        let absent = self.absent(commit, file);
        if let Some(dir) = absent.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(absent, "")
    }

    /// From now on this commit is the one that is here.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn set_commit(&self, commit: &str) -> std::io::Result<()> {
        let refs = self.dir.join("refs");
        fs::create_dir_all(&refs)?;
        let part = refs.join("main.candecode");
        fs::write(&part, commit)?;
        fs::rename(part, refs.join("main"))
    }

    /// Makes a file of `blobs/` a file of the commit.
    ///
    /// # Errors
    /// If the link cannot be made.
    pub fn link(&self, etag: &str, commit: &str, file: &str) -> std::io::Result<()> {
        let (dir, link) = (self.snapshot(commit), self.snapshot(commit).join(file));
        fs::create_dir_all(&dir)?;
        // One that is there leads nowhere, or to a damaged file: `has` said so.
        if link.symlink_metadata().is_ok() {
            fs::remove_file(&link)?;
        }
        let target = Path::new("..").join("..").join("blobs").join(etag);
        #[cfg(unix)]
        return std::os::unix::fs::symlink(target, link);
        #[cfg(windows)] // where links need a right that not everybody has
        return std::os::windows::fs::symlink_file(target, &link)
            .or_else(|_| fs::rename(self.blob(etag), link));
        #[cfg(not(any(unix, windows)))]
        return fs::rename(self.blob(etag), link);
    }
}

fn folder_of(name: &str) -> String {
    format!("models--{}", name.replace('/', "--"))
}

/// True for what may be a name in the cache: hexadecimal digits, in practice.
pub fn is_plain_name(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.len() < 200 && name.chars().all(word)
}

/// True if a file is complete by its own words: JSON to its last bracket, weights as long as their header says.
fn is_complete(path: &Path) -> bool {
    let Ok(mut file) = fs::File::open(path) else { return false };
    match path.extension().and_then(|end| end.to_str()) {
        Some("safetensors") => {
            let length = file.metadata().map(|file| file.len()).ok();
            length.is_some() && expected_len(&mut file) == length
        }
        Some("json") => fs::read(path)
            .is_ok_and(|text| serde_json::from_slice::<serde::de::IgnoredAny>(&text).is_ok()),
        _ => true,
    }
}

/// How long a safetensors file must be by its own header.
fn expected_len(file: &mut fs::File) -> Option<u64> {
    let mut length = [0; 8];
    file.read_exact(&mut length).ok()?;
    let length = u64::from_le_bytes(length);
    let mut header = Vec::new();
    file.take(length.min(1 << 28)).read_to_end(&mut header).ok()?;
    let header: serde_json::Value = serde_json::from_slice(&header).ok()?;
    let ends = header.as_object()?.values().filter_map(|tensor| tensor.get("data_offsets"));
    let end = ends.filter_map(|offsets| offsets.get(1)?.as_u64()).max().unwrap_or(0);
    end.checked_add(8)?.checked_add(length)
}
