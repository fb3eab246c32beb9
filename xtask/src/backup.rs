//! Replaces the reader's files. Whatever a file held, even what an editor saves at that very
//! moment, is still there afterwards, and no file is ever half-written.
//!
//! A decision to replace a file rests on what was read before, and an editor may save in between.
//! So the old file is never overwritten: the new one changes places with it in one step, and only
//! then is the old one read. It becomes the copy itself, or returns to its place.

use anyhow::{Context, Result};
use candecode_course::{Day, Repo};
use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Directory for the copies, relative to the root. Ignored by git.
pub const DIR: &str = ".candecode/backup";

/// Writes `bytes` to a file (named relative to the root), and keeps what the file held as a copy.
///
/// Returns the copy's date, or `None` if there was nothing to keep. On failure, the file is
/// unchanged.
///
/// # Errors
/// If the disk is full, if permission is denied, or if something other than a file has that name.
pub fn replace(repo: &Repo, path: &str, bytes: &[u8]) -> Result<Option<String>> {
    replace_after(repo, path, bytes, &|| ())
}

/// Replaces a file only if it holds `old` (`None`: if there is no such file). Otherwise leaves it
/// as it is, and returns false.
///
/// # Errors
/// Same as [`replace`].
pub fn replace_if(repo: &Repo, path: &str, old: Option<&[u8]>, bytes: &[u8]) -> Result<bool> {
    replace_if_after(repo, path, old, bytes, &|| ())
}

/// [`replace`], with something that happens between reading the file and replacing it.
fn replace_after(
    repo: &Repo,
    path: &str,
    bytes: &[u8],
    meanwhile: &dyn Fn(),
) -> Result<Option<String>> {
    let place = repo.root.join(path);
    if place.exists() && repo.read_bytes(path)? == bytes {
        return Ok(None);
    }
    let new = New::write(&place, bytes)?;
    let date = new_dir(repo)?;
    let dir = repo.root.join(DIR).join(&date);
    let attempt = || -> io::Result<bool> {
        let copy = dir.join(path);
        fs::create_dir_all(copy.parent().unwrap_or(Path::new(".")))?;
        meanwhile();
        let replaced = new.put()?;
        if replaced {
            move_file(&new.file, &copy).or_else(|problem| new.put().and(Err(problem)))?;
        }
        Ok(replaced)
    };
    let done = attempt();
    if !matches!(done, Ok(true)) {
        let _ = fs::remove_dir_all(dir); // it's empty
    }
    let replaced = done.with_context(|| format!("cannot write {}", place.display()))?;
    Ok(replaced.then_some(date))
}

/// [`replace_if`], with something that happens between reading the file and replacing it.
fn replace_if_after(
    repo: &Repo,
    path: &str,
    old: Option<&[u8]>,
    bytes: &[u8],
    meanwhile: &dyn Fn(),
) -> Result<bool> {
    let place = repo.root.join(path);
    let there = place.exists().then(|| repo.read_bytes(path)).transpose()?;
    if there.as_deref() != old {
        return Ok(false);
    }
    let new = New::write(&place, bytes)?;
    meanwhile();
    let attempt = || -> io::Result<bool> {
        if old.is_none() {
            return new.put_if_absent();
        }
        if !new.put()? {
            return Ok(true);
        }
        if Some(fs::read(&new.file)?.as_slice()) == old {
            return fs::remove_file(&new.file).map(|()| true);
        }
        new.put()?; // back, unless it was saved once more: then there are two texts to keep
        if fs::read(&new.file)? != bytes {
            keep_file(repo, path, &new.file)?;
        }
        Ok(false)
    };
    attempt().with_context(|| format!("cannot write {}", place.display()))
}

/// Removes a file if it holds `old`. Otherwise leaves it as it is, and returns false.
///
/// # Errors
/// If permission is denied.
pub fn remove_if(repo: &Repo, path: &str, old: &[u8]) -> Result<bool> {
    let place = repo.root.join(path);
    let aside = beside(&place, "old");
    let attempt = || -> io::Result<bool> {
        fs::rename(&place, &aside)?;
        let is_old = fs::read(&aside)? == old;
        if !is_old && fs::hard_link(&aside, &place).is_err() {
            keep_file(repo, path, &aside)?; // it was saved once more
        } else {
            fs::remove_file(&aside)?;
        }
        Ok(is_old)
    };
    attempt().with_context(|| format!("cannot remove {path}"))
}

/// Copies files (named relative to the root) into a new directory and returns its name, a date.
///
/// # Errors
/// Same as [`replace`].
pub fn keep(repo: &Repo, paths: &[&str]) -> Result<String> {
    let date = new_dir(repo)?;
    for path in paths {
        write(&repo.root.join(DIR).join(&date).join(path), &repo.read_bytes(path)?)?;
    }
    Ok(date)
}

/// Moves a file into a new directory for copies, as the copy of `path`.
fn keep_file(repo: &Repo, path: &str, file: &Path) -> io::Result<()> {
    let date = new_dir(repo).map_err(io::Error::other)?;
    let copy = repo.root.join(DIR).join(date).join(path);
    fs::create_dir_all(copy.parent().unwrap_or(Path::new(".")))?;
    move_file(file, &copy)
}

/// Moves a file. On another disk, only its content can move.
fn move_file(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to).or_else(|_| fs::copy(from, to).and_then(|_| fs::remove_file(from)))
}

/// Creates a directory for copies, and returns its name, a date.
fn new_dir(repo: &Repo) -> Result<String> {
    let dir = repo.root.join(DIR);
    fs::create_dir_all(&dir).with_context(|| format!("cannot write {DIR}"))?;
    loop {
        // Windows forbids colons in names. Creating the directory reserves the name.
        let now = humantime::format_rfc3339_millis(SystemTime::now()).to_string().replace(':', "-");
        match fs::create_dir(dir.join(&now)) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                std::thread::sleep(Duration::from_millis(1));
            }
            made => return made.map(|()| now).with_context(|| format!("cannot write {DIR}")),
        }
    }
}

/// Writes one of the runner's own files atomically. A symbolic link is kept and its target written.
/// Permissions are preserved.
///
/// # Errors
/// If the disk is full or permission is denied. The old content survives.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = New::write(path, bytes)?;
    fs::rename(&new.file, &new.target).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads one of the runner's own files. `None` if it isn't there or isn't a file: reading a pipe
/// would block.
pub fn read(path: &Path) -> Option<Vec<u8>> {
    path.is_file().then(|| fs::read(path).ok()).flatten()
}

/// A complete file next to the one that it will replace. Removed on drop if it didn't.
struct New {
    file: PathBuf,
    target: PathBuf,
    in_place: Cell<bool>,
}

impl New {
    fn write(path: &Path, bytes: &[u8]) -> Result<New> {
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let new = New { file: beside(&target, "new"), target, in_place: Cell::new(false) };
        let attempt = || -> io::Result<()> {
            fs::create_dir_all(new.target.parent().unwrap_or(Path::new(".")))?;
            let mut file = File::create(&new.file)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            if let Ok(meta) = fs::metadata(&new.target) {
                fs::set_permissions(&new.file, meta.permissions())?;
            }
            Ok(())
        };
        attempt().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(new)
    }

    /// Puts the file in place. Returns whether there was another, which is then `self.file`: the
    /// same file and not a copy, so that it also has what a program that opened it before writes.
    /// The second time, that file returns to its place.
    fn put(&self) -> io::Result<bool> {
        loop {
            match exchange(&self.file, &self.target) {
                Ok(()) => {
                    self.in_place.set(!self.in_place.get());
                    return Ok(true);
                }
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                Err(_) if self.put_if_absent()? => return Ok(false),
                Err(_) => {}
            }
        }
    }

    /// Puts the file in place unless there is another. Returns whether there was none.
    fn put_if_absent(&self) -> io::Result<bool> {
        match fs::hard_link(&self.file, &self.target) {
            Ok(()) => Ok(true),
            Err(_) if self.target.exists() => Ok(false),
            // A file system without hard links.
            Err(_) => fs::rename(&self.file, &self.target).map(|()| true),
        }
    }
}

impl Drop for New {
    fn drop(&mut self) {
        if !self.in_place.get() {
            let _ = fs::remove_file(&self.file);
        }
    }
}

/// Returns a path next to `path` that nothing else uses.
fn beside(path: &Path, kind: &str) -> PathBuf {
    path.with_extension(format!("{kind}-{}", std::process::id()))
}

/// Makes two files change places, in one step where the file system can do that.
fn exchange(new: &Path, target: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    {
        use rustix::fs::{renameat_with, RenameFlags, CWD};
        match renameat_with(CWD, new, CWD, target, RenameFlags::EXCHANGE) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(e.into()),
            Ok(()) => return Ok(()),
            Err(_) => {} // network and FAT drives can't
        }
    }
    let old = beside(target, "old");
    fs::hard_link(target, &old).or_else(|_| fs::copy(target, &old).map(drop))?;
    fs::rename(new, target)?;
    fs::rename(old, new)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const DAY: &str = "src/day06_generate.rs";

    /// An editor's way of saving a file.
    type Save = fn(&Path, &str);

    const SAVES: [Save; 3] = [
        |path, text| fs::write(path, text).unwrap(),
        |path, text| {
            fs::write(path.with_extension("swp"), text).unwrap();
            fs::rename(path.with_extension("swp"), path).unwrap();
        },
        |path, text| {
            fs::remove_file(path).unwrap();
            fs::write(path, text).unwrap();
        },
    ];

    /// Runs a test in a folder with a day that holds `stub`.
    fn with_day(name: &str, test: impl FnOnce(&Repo, &Path)) {
        let root = std::env::temp_dir().join(format!("candecode-{name}-{}", std::process::id()));
        let repo = Repo { root: root.clone(), days: vec![] };
        write(&root.join(DAY), b"stub").unwrap();
        test(&repo, &root.join(DAY));
        let left = fs::read_dir(root.join("src")).unwrap().count();
        assert!(left <= 1, "nothing else stays in src/");
        fs::remove_dir_all(root).unwrap();
    }

    fn copies(repo: &Repo) -> Vec<String> {
        let text = |(date, path)| fs::read_to_string(repo.root.join(DIR).join(date).join(path));
        list(repo).into_iter().map(|copy: (String, String)| text(copy).unwrap()).collect()
    }

    #[test]
    fn what_is_saved_after_the_file_was_read_is_kept_as_the_copy() {
        for save in SAVES {
            with_day("replace", |repo, day| {
                let saved = replace_after(repo, DAY, b"new", &|| save(day, "mine")).unwrap();
                assert_eq!(fs::read(day).unwrap(), b"new");
                assert!(saved.is_some());
                assert_eq!(copies(repo), ["mine"]);
            });
        }
    }

    #[test]
    fn what_is_saved_after_the_file_was_read_stays_in_place() {
        for save in SAVES {
            with_day("replace-if", |repo, day| {
                let old = Some(&b"stub"[..]);
                let save = || save(day, "mine");
                assert!(!replace_if_after(repo, DAY, old, b"new", &save).unwrap());
                assert_eq!(fs::read(day).unwrap(), b"mine");
                assert!(!replace_if(repo, DAY, old, b"new").unwrap());
                assert!(!remove_if(repo, DAY, b"stub").unwrap());
                assert_eq!(fs::read(day).unwrap(), b"mine");
                assert!(replace_if(repo, DAY, Some(b"mine"), b"new").unwrap());
                assert_eq!(fs::read(day).unwrap(), b"new");
                assert!(remove_if(repo, DAY, b"new").unwrap());
                assert!(!replace_if_after(repo, DAY, None, b"new", &|| {
                    fs::write(day, "mine").unwrap();
                })
                .unwrap());
                assert_eq!(fs::read(day).unwrap(), b"mine");
                assert!(copies(repo).is_empty(), "there is one text, and it's in place");
            });
        }
    }

    #[test]
    fn a_program_that_opened_the_file_before_writes_into_the_copy() {
        with_day("opened", |repo, day| {
            let file = RefCell::new(None);
            replace_after(repo, DAY, b"new", &|| {
                *file.borrow_mut() = Some(File::create(day).unwrap());
            })
            .unwrap();
            file.take().unwrap().write_all(b"mine").unwrap();
            assert_eq!(
                (fs::read(day).unwrap(), copies(repo)),
                (b"new".into(), vec!["mine".into()])
            );
        });
    }
}
