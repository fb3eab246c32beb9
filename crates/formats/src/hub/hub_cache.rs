//! The hub's cache on this machine, which Python's `huggingface_hub` shares.
//!
//! ```text
//! models--OWNER--NAME/refs/main      the newest whole commit here, written last
//!            snapshots/COMMIT/FILE   links
//!            blobs/ETAG              the files themselves; ETAG.candecode.part is still arriving
//!            .no_exist/COMMIT/FILE   empty: the repository has no such file
//! ```

use crate::folder::{shard_names, INDEX, SINGLE};
use crate::hub::environment::folder;
use crate::hub::model_names::DEFAULT_MODEL;
use crate::safetensors_source::SafetensorsSource;
use anyhow::{bail, Result};
use serde::de::IgnoredAny;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// The files that every model needs in addition to its weights.
pub const REQUIRED: [&str; 2] = ["config.json", "tokenizer.json"];

/// Optional files. A repository without them is complete.
pub const OPTIONAL: [&str; 5] = [
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
];

/// A repository's part of the cache.
pub struct Repository {
    /// `OWNER/NAME`.
    pub name: String,
    /// The cache folder.
    pub cache: PathBuf,
    /// The repository's folder in the cache.
    pub dir: PathBuf,
}

impl Repository {
    /// Returns the cache entry for `name`, which doesn't have to exist yet.
    ///
    /// # Errors
    /// If there is no home folder and no variable that names a cache.
    pub fn new(name: &str) -> Result<Self> {
        let cache = folder()?;
        let dir = cache.join(format!("models--{name}").replace('/', "--"));
        Ok(Self { name: name.to_string(), cache, dir })
    }

    /// Returns the folder with a commit's files.
    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.dir.join("snapshots").join(commit)
    }

    /// Returns the model's folder if it is complete, which includes knowing which optional files
    /// the repository has.
    pub fn whole(&self) -> Option<PathBuf> {
        let commit = self.commit()?;
        let whole = self.missing(&commit).is_empty() && self.unknown(&commit).is_empty();
        whole.then(|| self.snapshot(&commit))
    }

    /// Returns the model's folder if no required file is missing, which is enough when nothing can
    /// be downloaded.
    ///
    /// # Errors
    /// If a required file is missing. The message ends with `why` it can't be downloaded.
    pub fn without_network(&self, why: &str) -> Result<PathBuf> {
        let name = &self.name;
        let lacks = match self.commit() {
            Some(commit) => {
                let (missing, dir) = (self.missing(&commit), self.snapshot(&commit));
                if missing.is_empty() {
                    return Ok(dir);
                }
                let (missing, dir) = (missing.join(", "), dir.display());
                format!("is not whole in the cache: {missing} is missing or cut short in {dir}")
            }
            None => format!("is not in the cache, {}", self.cache.display()),
        };
        bail!("{name} {lacks}, and {why}; --model {DEFAULT_MODEL} needs no network")
    }

    /// Returns the cached commit, complete or not.
    pub fn commit(&self) -> Option<String> {
        let commit = fs::read_to_string(self.dir.join("refs/main")).ok()?;
        Some(commit.trim().to_string()).filter(|commit| is_plain_name(commit))
    }

    /// Returns true if the file is present and looks complete: JSON parses, and weights are as long
    /// as their header says.
    fn has(&self, commit: &str, name: &str) -> bool {
        let path = self.snapshot(commit).join(name);
        let Ok(file) = File::open(&path) else { return false };
        match path.extension().and_then(|end| end.to_str()) {
            Some("safetensors") => SafetensorsSource::default().add_file(&path, &file).is_ok(),
            Some("json") => serde_json::from_reader::<_, IgnoredAny>(BufReader::new(file)).is_ok(),
            _ => true,
        }
    }

    /// Returns the required files that are not in the cache. The weights are either the single file
    /// or, if there is an index and no single file, its shards.
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

    /// Returns the optional files that haven't been looked up in the repository yet.
    pub fn unknown(&self, commit: &str) -> Vec<&'static str> {
        let absent = self.dir.join(".no_exist").join(commit);
        let known = |file: &str| self.has(commit, file) || absent.join(file).is_file();
        OPTIONAL.into_iter().filter(|file| !known(file)).collect()
    }

    /// Records that the repository doesn't have a file.
    ///
    /// # Errors
    /// If the cache can't be written to.
    pub fn note_absent(&self, commit: &str, file: &str) -> std::io::Result<()> {
        let absent = self.dir.join(".no_exist").join(commit);
        fs::create_dir_all(&absent)?;
        write(&absent.join(file), "")
    }

    /// Sets the cached commit.
    ///
    /// # Errors
    /// If the cache can't be written to.
    pub fn set_commit(&self, commit: &str) -> std::io::Result<()> {
        let refs = self.dir.join("refs");
        fs::create_dir_all(&refs)?;
        write(&refs.join("main"), commit)
    }
}

/// Writes a file, in place of a link that leads nowhere if there is one, as in a cache that was
/// copied from another machine.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if path.is_symlink() && !path.exists() {
        fs::remove_file(path)?;
    }
    fs::write(path, text)
}

/// Returns true for names that are safe in the cache. In practice, they are hexadecimal digits.
pub fn is_plain_name(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.len() < 200 && name.chars().all(word)
}
