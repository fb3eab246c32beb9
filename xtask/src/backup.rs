//! Files of the reader's are replaced only after a copy is kept, and never half-written.

use crate::repo::Repo;
use anyhow::{ensure, Context, Result};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where copies are kept, relative to the root; git ignores it.
pub const DIR: &str = ".candecode/backup";

/// The copies that one command keeps, in one dated directory that exists from the first copy on.
pub struct Backup<'a> {
    repo: &'a Repo,
    stamp: Option<String>,
}

impl<'a> Backup<'a> {
    /// No copy yet.
    pub fn new(repo: &'a Repo) -> Self {
        Backup { repo, stamp: None }
    }

    /// The name of the directory, if a copy was made.
    pub fn stamp(&self) -> Option<&str> {
        self.stamp.as_deref()
    }

    /// Puts `bytes` into a file (named relative to the root); other content is copied first.
    ///
    /// Says where the copy is. If anything fails, the file is as it was.
    ///
    /// # Errors
    /// If there is no space or no permission.
    pub fn replace(&mut self, path: &str, bytes: &[u8]) -> Result<Option<String>> {
        let kept = match fs::read(self.repo.root.join(path)) {
            Ok(old) if old == bytes => return Ok(None),
            Ok(old) => Some(self.keep(path, &old)?),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(e).context(path.to_string()),
        };
        write(&self.repo.root.join(path), bytes)?;
        Ok(kept)
    }

    /// Keeps a copy of a file (named relative to the root), and says where.
    ///
    /// # Errors
    /// If there is no space or no permission.
    pub fn keep_file(&mut self, path: &str) -> Result<String> {
        let bytes = fs::read(self.repo.root.join(path)).with_context(|| path.to_string())?;
        self.keep(path, &bytes)
    }

    /// Keeps a copy and says where, relative to the root.
    fn keep(&mut self, path: &str, bytes: &[u8]) -> Result<String> {
        let stamp = match &self.stamp {
            Some(stamp) => stamp.clone(),
            None => self.stamp.insert(free_stamp(&self.repo.root.join(DIR))).clone(),
        };
        let copy = format!("{DIR}/{stamp}/{path}");
        write(&self.repo.root.join(&copy), bytes)?;
        Ok(copy)
    }
}

/// Writes a file as a whole: first beside its place, then moved into it.
///
/// A link stays a link, and what it points to is written; the permissions stay as they are.
///
/// # Errors
/// If there is no space or no permission, or the file is read-only; what was there stays.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    ensure!(!target.is_symlink(), "cannot write {}: it is a link to nothing", path.display());
    let permissions = fs::metadata(&target).ok().map(|meta| meta.permissions());
    ensure!(
        !permissions.as_ref().is_some_and(|permissions| permissions.readonly()),
        "cannot write {}: it is read-only; allow writing (`chmod u+w {0}`), then again",
        path.display()
    );
    remove_leftovers(&target);
    let new = target.with_extension(format!("{UNFINISHED}{}", std::process::id()));
    let attempt = || -> std::io::Result<()> {
        fs::create_dir_all(target.parent().unwrap_or(Path::new(".")))?;
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        if let Some(permissions) = permissions {
            fs::set_permissions(&new, permissions)?;
        }
        fs::rename(&new, &target)
    };
    attempt()
        .inspect_err(|_| drop(fs::remove_file(&new)))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The extension of a file on its way to its place; the id of the process follows.
const UNFINISHED: &str = "new-";

/// Removes what a runner that was killed left beside a file. What is young may be another runner's,
/// at work just now.
fn remove_leftovers(path: &Path) {
    let entries = path.parent().and_then(|dir| fs::read_dir(dir).ok());
    for entry in entries.into_iter().flatten().flatten() {
        let other = entry.path();
        let extension = other.extension().unwrap_or_default().to_string_lossy();
        let id = extension.strip_prefix(UNFINISHED).unwrap_or_default();
        let unfinished = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        let modified = entry.metadata().and_then(|meta| meta.modified()).ok();
        let age = modified.and_then(|at| at.elapsed().ok()).unwrap_or_default();
        if unfinished && other.file_stem() == path.file_stem() && age > Duration::from_secs(60) {
            let _ = fs::remove_file(&other);
        }
    }
}

/// All backups, the newest last: their names, and the files in each, relative to it.
///
/// # Errors
/// If the directory is there but cannot be read.
pub fn list(repo: &Repo) -> Result<Vec<(String, Vec<String>)>> {
    let dir = repo.root.join(DIR);
    if !dir.exists() {
        return Ok(vec![]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(&dir)? {
        let entry = entry?;
        let mut files = Vec::new();
        walk(&entry.path(), &entry.path(), &mut files)?;
        files.sort();
        found.push((entry.file_name().to_string_lossy().into_owned(), files));
    }
    found.sort();
    Ok(found)
}

/// Collects all files below `dir`, relative to `root`, with `/` between their parts.
fn walk(root: &Path, dir: &Path, files: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path: PathBuf = entry?.path();
        if path.is_dir() {
            walk(root, &path, files)?;
        } else if let Ok(relative) = path.strip_prefix(root) {
            files.push(relative.to_string_lossy().replace('\\', "/"));
        }
    }
    Ok(())
}

/// Now, as a directory name that no backup has yet.
fn free_stamp(dir: &Path) -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let stamp = utc(seconds);
    let later = (2..).map(|n| format!("{stamp}-{n}"));
    std::iter::once(stamp.clone())
        .chain(later)
        .find(|name| !dir.join(name).exists())
        .unwrap_or(stamp)
}

/// Seconds since 1970 as `2026-11-21T09-23-05Z`; no colons, for Windows has none in file names.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // years from March on, so that the leap day is the last of its year; eras of 400 years have
    // 146,097 days
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}-{minute:02}-{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn dates_are_right() {
        assert_eq!(utc(0), "1970-01-01T00-00-00Z");
        assert_eq!(utc(951_827_696), "2000-02-29T12-34-56Z");
        assert_eq!(utc(1_767_225_599), "2025-12-31T23-59-59Z");
        assert_eq!(utc(1_795_252_985), "2026-11-21T09-23-05Z");
    }
}
