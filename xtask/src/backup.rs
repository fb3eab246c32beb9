//! Replaces the reader's files, always keeping a copy first and never leaving one half-written.

use anyhow::{Context, Result};
use candecode_course::{Day, Repo};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Directory for the copies, relative to the root. Ignored by git.
pub const DIR: &str = ".candecode/backup";

/// Writes `bytes` to a file (named relative to the root) after copying its previous content.
///
/// Returns the copy's date, or `None` if there was nothing to copy. On failure, the file is
/// unchanged.
///
/// # Errors
/// If the disk is full, if permission is denied, or if something other than a file has that name.
pub fn replace(repo: &Repo, path: &str, bytes: &[u8]) -> Result<Option<String>> {
    let place = repo.root.join(path);
    let kept = match place.exists() {
        true if repo.read_bytes(path)? == bytes => return Ok(None),
        true => Some(keep(repo, &[path])?),
        false => None,
    };
    write(&place, bytes)?;
    Ok(kept)
}

/// Copies files (named relative to the root) into a new directory and returns its name, a date.
///
/// # Errors
/// Same as [`replace`].
pub fn keep(repo: &Repo, paths: &[&str]) -> Result<String> {
    let dir = repo.root.join(DIR);
    fs::create_dir_all(&dir).with_context(|| format!("cannot write {DIR}"))?;
    let date = loop {
        // Windows forbids colons in names. Creating the directory reserves the name.
        let now = humantime::format_rfc3339_millis(SystemTime::now()).to_string().replace(':', "-");
        match fs::create_dir(dir.join(&now)) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                std::thread::sleep(Duration::from_millis(1));
            }
            made => break made.map(|()| now).with_context(|| format!("cannot write {DIR}"))?,
        }
    };
    for path in paths {
        write(&dir.join(&date).join(path), &repo.read_bytes(path)?)?;
    }
    Ok(date)
}

/// Writes a file atomically: to a temporary file next to it first, then by renaming.
///
/// A symbolic link is kept and its target written. Permissions are preserved.
///
/// # Errors
/// If the disk is full or permission is denied. The old content survives.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let new = target.with_extension(format!("new-{}", std::process::id()));
    let attempt = || -> std::io::Result<()> {
        fs::create_dir_all(target.parent().unwrap_or(Path::new(".")))?;
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        if let Ok(meta) = fs::metadata(&target) {
            fs::set_permissions(&new, meta.permissions())?;
        }
        fs::rename(&new, &target)
    };
    attempt()
        .inspect_err(|_| drop(fs::remove_file(&new)))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Returns all copies, oldest first, as dates and day files such as `src/day06_generate.rs`.
///
/// Skips anything else in the directory, such as files left by the operating system or an editor.
pub fn list(repo: &Repo) -> Vec<(String, String)> {
    let names = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let (dir, mut found) = (repo.root.join(DIR), Vec::new());
    for date in names(&dir) {
        let files = names(&dir.join(&date).join("src")).into_iter();
        let days = files.map(|name| format!("src/{name}")).filter(|path| is_day(path));
        found.extend(days.map(|path| (date.clone(), path)));
    }
    found.sort();
    found
}

/// Returns whether a path is a day in `src/`, in this version of the course or an older one.
pub fn is_day(path: &str) -> bool {
    Day::from_src(path).is_some()
}
