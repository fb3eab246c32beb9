//! The reader's files are replaced only after a copy is kept, and are never half-written.
//!
//! A copy is never written over another: each command keeps its copies in a directory that it alone
//! created, and [`lock`] lets one command at a time write into `src/`.

use crate::note;
use crate::repo::{Day, Repo};
use anyhow::{ensure, Context, Result};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where copies are kept, relative to the root; git ignores it.
pub const DIR: &str = ".candecode/backup";

/// The file that a command locks while it writes into `src/`, relative to the root.
const LOCK: &str = ".candecode/lock";

/// Waits until no other command writes into `src/`. The lock is held until the value is dropped, or
/// the process ends, however it ends.
///
/// Returns `None` on a file system without locks; copies are safe there, too.
///
/// # Errors
/// If there is no space or no permission.
pub fn lock(repo: &Repo) -> Result<Option<File>> {
    let path = repo.root.join(LOCK);
    let open = || -> std::io::Result<File> {
        fs::create_dir_all(repo.root.join(".candecode"))?;
        OpenOptions::new().create(true).append(true).open(&path)
    };
    let file = open().with_context(|| format!("cannot write {LOCK}"))?;
    match file.try_lock() {
        Ok(()) => return Ok(Some(file)),
        Err(TryLockError::WouldBlock) => {
            note!("Waiting for another `cargo xtask`, which writes into src/ …");
        }
        Err(TryLockError::Error(_)) => return Ok(None),
    }
    Ok(file.lock().is_ok().then_some(file))
}

/// The copies that one command keeps, in a dated directory that exists from the first copy on.
pub struct Backup<'a> {
    repo: &'a Repo,
    /// The first directory, if a copy was made.
    first: Option<String>,
    /// The directory in use, and the files that are in it. A second copy of a file begins another.
    current: Option<(String, BTreeSet<String>)>,
}

impl<'a> Backup<'a> {
    /// No copy yet.
    pub fn new(repo: &'a Repo) -> Self {
        Backup { repo, first: None, current: None }
    }

    /// The name of the first directory, if a copy was made.
    pub fn stamp(&self) -> Option<&str> {
        self.first.as_deref()
    }

    /// Writes `bytes` into a file (named relative to the root); other content is copied first.
    ///
    /// Returns where the copy is. If anything fails, the file is as it was.
    ///
    /// # Errors
    /// If there is no space or no permission, or something other than a file has that name.
    pub fn replace(&mut self, path: &str, bytes: &[u8]) -> Result<Option<String>> {
        let place = self.repo.root.join(path);
        let kept = match fs::symlink_metadata(&place) {
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(e).context(path.to_string()),
            Ok(_) if !place.exists() => None, // a link to nothing: `write` says so
            Ok(_) => match self.repo.read_bytes(path)? {
                old if old == bytes => return Ok(None),
                old => Some(self.keep(path, &old)?),
            },
        };
        write(&place, bytes)?;
        Ok(kept)
    }

    /// Keeps a copy of a file (named relative to the root), and returns where.
    ///
    /// # Errors
    /// As [`Backup::replace`].
    pub fn keep_file(&mut self, path: &str) -> Result<String> {
        let bytes = self.repo.read_bytes(path)?;
        self.keep(path, &bytes)
    }

    /// Keeps a copy and returns where, relative to the root.
    fn keep(&mut self, path: &str, bytes: &[u8]) -> Result<String> {
        let stamp = match &mut self.current {
            Some((stamp, files)) if !files.contains(path) => {
                files.insert(path.to_string());
                stamp.clone()
            }
            _ => {
                let stamp = new_stamp(&self.repo.root.join(DIR))?;
                self.first.get_or_insert_with(|| stamp.clone());
                self.current = Some((stamp.clone(), BTreeSet::from([path.to_string()])));
                stamp
            }
        };
        let copy = format!("{DIR}/{stamp}/{path}");
        let place = self.repo.root.join(&copy);
        ensure!(fs::symlink_metadata(&place).is_err(), "there is a {copy} already; again, please");
        write(&place, bytes)?;
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
    let described = || format!("cannot write {}", path.display());
    fs::create_dir_all(target.parent().unwrap_or(Path::new("."))).with_context(described)?;
    remove_leftovers(&target);
    let (mut file, new) = unfinished(&target).with_context(described)?;
    let attempt = || -> std::io::Result<()> {
        file.write_all(bytes)?;
        file.sync_all()?;
        if let Some(permissions) = permissions {
            fs::set_permissions(&new, permissions)?;
        }
        fs::rename(&new, &target)
    };
    attempt().inspect_err(|_| drop(fs::remove_file(&new))).with_context(described)
}

/// A new file next to `target`, to be moved into its place. No other process writes to it: one of
/// the same id on another machine, or a file that it left, takes another number.
fn unfinished(target: &Path) -> std::io::Result<(File, PathBuf)> {
    let mut number = std::process::id();
    loop {
        let new = target.with_extension(format!("{UNFINISHED}{number}"));
        match File::create_new(&new) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => number = number.wrapping_add(1),
            made => return made.map(|file| (file, new)),
        }
    }
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

/// All backups, the newest last: their names, and the days in each, as `src/day06_generate.rs`.
///
/// Only the files of days count. What an operating system, an editor or a runner that was killed
/// left among them is skipped, and so is a directory without a day.
///
/// # Errors
/// If the directory is there but cannot be read.
pub fn list(repo: &Repo) -> Result<Vec<(String, Vec<String>)>> {
    let dir = repo.root.join(DIR);
    if !dir.exists() {
        return Ok(vec![]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| DIR.to_string())? {
        let entry = entry.with_context(|| DIR.to_string())?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let files = days_in(&entry.path()).unwrap_or_else(|problem| {
            note!("({DIR}/{name} is left out: {problem})");
            vec![]
        });
        if !files.is_empty() {
            found.push((name, files));
        }
    }
    found.sort_by(|(a, _), (b, _)| (order(a), a).cmp(&(order(b), b)));
    Ok(found)
}

/// The files of days in a backup, in order. A backup without `src/` has none.
fn days_in(backup: &Path) -> std::io::Result<Vec<String>> {
    let entries = match fs::read_dir(backup.join("src")) {
        Err(e) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&e.kind()) => {
            return Ok(vec![])
        }
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let day = name.strip_suffix(".rs").and_then(Day::from_name);
        if let Some(day) = day.filter(|_| entry.path().is_file()) {
            files.push(day.src());
        }
    }
    files.sort();
    Ok(files)
}

/// What a backup's name is sorted by: its second, then its number within that second. A name that
/// no runner chose comes first, so that it is never the newest.
fn order(name: &str) -> (bool, &str, u32) {
    let (second, number) = match name.split_once("Z-") {
        Some((second, number)) => (second, number.parse().ok()),
        None => (name.strip_suffix('Z').unwrap_or(""), Some(1)),
    };
    match number {
        Some(number) if is_second(second) => (true, second, number),
        _ => (false, "", 0),
    }
}

/// Whether `text` has the form of `2026-11-21T09-23-05`.
fn is_second(text: &str) -> bool {
    let fits = |(a, b): (u8, u8)| a == b || (b == b'0' && a.is_ascii_digit());
    text.len() == 19 && text.bytes().zip(*b"0000-00-00T00-00-00").all(fits)
}

/// Creates a directory named after the time now. Creation is what reserves the name, so two
/// processes never share one.
fn new_stamp(dir: &Path) -> Result<String> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let second = utc(seconds);
    fs::create_dir_all(dir).with_context(|| format!("cannot write {}", dir.display()))?;
    let mut number = 1;
    loop {
        let name = match number {
            1 => second.clone(),
            _ => format!("{second}-{number}"),
        };
        match fs::create_dir(dir.join(&name)) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => number += 1,
            made => {
                made.with_context(|| format!("cannot write {}", dir.join(&name).display()))?;
                return Ok(name);
            }
        }
    }
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
    use super::{order, utc};

    #[test]
    fn the_tenth_copy_of_a_second_is_newer_than_the_ninth() {
        let second = "2026-11-21T09-23-05Z";
        let mut names =
            [format!("{second}-10"), format!("{second}-9"), second.into(), format!("{second}-2")];
        names.sort_by(|a, b| order(a).cmp(&order(b)));
        assert_eq!(names.map(|name| name[second.len()..].to_string()), ["", "-2", "-9", "-10"]);
        assert!(order("2026-11-21T09-23-06Z") > order("2026-11-21T09-23-05Z-10"));
        for other in ["mine", "zzz", ".DS_Store", "2026-11-21T09-23-05Z-x", "Z", "Z-3"] {
            assert!(order(other) < order("1970-01-01T00-00-00Z"), "{other}");
        }
    }

    #[test]
    fn dates_are_right() {
        assert_eq!(utc(0), "1970-01-01T00-00-00Z");
        assert_eq!(utc(951_827_696), "2000-02-29T12-34-56Z");
        assert_eq!(utc(1_767_225_599), "2025-12-31T23-59-59Z");
        assert_eq!(utc(1_795_252_985), "2026-11-21T09-23-05Z");
    }
}
