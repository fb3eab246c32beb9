//! Replaces the reader's files. Whatever a file held, even what an editor saves at that very
//! moment, is still there afterwards. No file is ever half-written, except for an instant on drives
//! that have no hard links.
//!
//! A decision to replace a file rests on what was read before, and an editor may save in between.
//! So the old file is never overwritten: the new one changes places with it in one step, and only
//! then is the old one read. It becomes the copy itself, or returns to its place.

use crate::note;
use anyhow::{Context, Result};
use candecode_course::{Day, Repo};
use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Directory for the copies, relative to the root. Ignored by git.
pub const DIR: &str = ".candecode/backup";

/// What a file system can do, and what happens meanwhile.
#[derive(Clone, Copy)]
struct Disk<'a> {
    /// Whether two files can change places in one step.
    exchanges: bool,
    /// Whether a file can have two names.
    links: bool,
    /// Called before each step. In tests, an editor saves the file.
    meanwhile: &'a dyn Fn(),
    /// Reports a copy that the caller doesn't know of.
    report: &'a dyn Fn(&str),
}

/// Tries everything. What a file system can't do, it reports.
const DISK: Disk<'static> =
    Disk { exchanges: true, links: true, meanwhile: &|| (), report: &|words| note!("{words}") };

/// Writes `bytes` to a file (named relative to the root), and keeps what the file held as a copy.
///
/// Returns the copy's date, or `None` if there was nothing to keep. On failure, the file is
/// unchanged.
///
/// # Errors
/// If the disk is full, if permission is denied, or if something other than a file has that name.
pub fn replace(repo: &Repo, path: &str, bytes: &[u8]) -> Result<Option<String>> {
    replace_on(DISK, repo, path, bytes)
}

/// Replaces a file only if it holds `old` (`None`: if there is no such file). Otherwise leaves it
/// as it is, and returns false.
///
/// # Errors
/// Same as [`replace`].
pub fn replace_if(repo: &Repo, path: &str, old: Option<&[u8]>, bytes: &[u8]) -> Result<bool> {
    replace_if_on(DISK, repo, path, old, bytes)
}

/// Removes a file if it holds `old`. Otherwise leaves it as it is, and returns false.
///
/// # Errors
/// If permission is denied.
pub fn remove_if(repo: &Repo, path: &str, old: &[u8]) -> Result<bool> {
    remove_if_on(DISK, repo, path, old)
}

fn replace_on(disk: Disk, repo: &Repo, path: &str, bytes: &[u8]) -> Result<Option<String>> {
    let place = repo.root.join(path);
    if place.exists() && repo.read_bytes(path)? == bytes {
        return Ok(None);
    }
    let new = New::write(disk, &place, bytes)?;
    let date = new_dir(repo)?;
    let dir = repo.root.join(DIR).join(&date);
    let attempt = || -> io::Result<bool> {
        let copy = dir.join(path);
        fs::create_dir_all(copy.parent().unwrap_or(Path::new(".")))?;
        // First the copy, then the change: Ctrl-C between them loses nothing.
        match disk.link(&new.target, &copy) {
            Err(problem) if problem.kind() != ErrorKind::NotFound => return Err(problem),
            _ => {}
        }
        let replaced = new.put()?;
        if replaced {
            (disk.meanwhile)();
            // An editor may have saved since the copy was made, so what was replaced becomes the
            // copy. If both are one file with two names, moving does nothing, and the name in src/
            // is removed.
            move_file(&new.file, &copy).or_else(|problem| new.put().and(Err(problem)))?;
            let _ = fs::remove_file(&new.file);
        }
        Ok(replaced)
    };
    let done = attempt();
    if !matches!(done, Ok(true)) {
        let _ = fs::remove_dir_all(dir); // the file is in its place
    }
    let replaced = done.with_context(|| format!("cannot write {}", place.display()))?;
    Ok(replaced.then_some(date))
}

fn replace_if_on(
    disk: Disk,
    repo: &Repo,
    path: &str,
    old: Option<&[u8]>,
    bytes: &[u8],
) -> Result<bool> {
    let place = repo.root.join(path);
    let there = place.exists().then(|| repo.read_bytes(path)).transpose()?;
    if there.as_deref() != old {
        return Ok(false);
    }
    let new = New::write(disk, &place, bytes)?;
    let attempt = || -> io::Result<bool> {
        if old.is_none() {
            return disk.link(&new.file, &new.target);
        }
        if !new.put()? {
            return Ok(true);
        }
        (disk.meanwhile)();
        let mut theirs = fs::read(&new.file)?;
        if Some(theirs.as_slice()) == old {
            return fs::remove_file(&new.file).map(|()| true);
        }
        // It was saved, so what was saved last returns to its place.
        let mut ours = bytes.to_vec();
        while new.put()? {
            let found = fs::read(&new.file)?;
            if found == ours {
                if ours != bytes {
                    keep_file(disk, repo, path, &new.file)?; // an earlier save
                }
                break;
            }
            ours = std::mem::replace(&mut theirs, found); // it was saved once more
        }
        let _ = fs::remove_file(&new.file);
        Ok(false)
    };
    attempt().with_context(|| format!("cannot write {}", place.display()))
}

fn remove_if_on(disk: Disk, repo: &Repo, path: &str, old: &[u8]) -> Result<bool> {
    let place = repo.root.join(path);
    let aside = beside(&place, "old");
    let attempt = || -> io::Result<bool> {
        (disk.meanwhile)();
        fs::rename(&place, &aside)?;
        let is_old = fs::read(&aside).is_ok_and(|text| text == old);
        if is_old || disk.link(&aside, &place).unwrap_or(false) {
            fs::remove_file(&aside)?;
        } else {
            keep_file(disk, repo, path, &aside)?; // it was saved once more
        }
        Ok(is_old)
    };
    attempt().with_context(|| format!("cannot remove {path}"))
}

impl Disk<'_> {
    /// Makes `to` another name of the file `from`, or a copy where a file can't have two names.
    /// Returns false, and changes nothing, if there is a file `to`.
    fn link(&self, from: &Path, to: &Path) -> io::Result<bool> {
        (self.meanwhile)();
        let made = match self.links {
            true => fs::hard_link(from, to),
            false => Err(ErrorKind::Unsupported.into()),
        };
        let made = made.or_else(|problem| match problem.kind() {
            ErrorKind::AlreadyExists => Err(problem),
            _ => copy_new(from, to),
        });
        match made {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
            made => made.map(|()| true),
        }
    }

    /// Makes two files change places, in one step where the file system can do that.
    fn exchange(&self, new: &Path, target: &Path) -> io::Result<()> {
        (self.meanwhile)();
        if self.exchanges && exchange_in_one_step(new, target)? {
            return Ok(());
        }
        let old = beside(target, "old");
        fs::rename(target, &old)?;
        loop {
            match self.link(new, target) {
                Ok(true) => {
                    (self.meanwhile)();
                    return fs::rename(old, new);
                }
                // An editor has saved it, and that replaces the old text as any save does.
                Ok(false) => match fs::rename(target, &old) {
                    Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                    _ => {}
                },
                Err(problem) => {
                    if !target.exists() {
                        fs::rename(old, target)?;
                    }
                    return Err(problem);
                }
            }
        }
    }
}

/// Makes two files change places in one step. Returns false if the file system can't do that.
fn exchange_in_one_step(new: &Path, target: &Path) -> io::Result<bool> {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    {
        use rustix::fs::{renameat_with, RenameFlags, CWD};
        match renameat_with(CWD, new, CWD, target, RenameFlags::EXCHANGE) {
            Err(e) if e.kind() == ErrorKind::NotFound => Err(e.into()),
            done => Ok(done.is_ok()), // network and FAT drives can't
        }
    }
    #[cfg(not(any(target_os = "linux", target_os = "macos")))]
    {
        let _ = (new, target);
        Ok(false)
    }
}

/// Copies a file to a name that nothing has.
fn copy_new(from: &Path, to: &Path) -> io::Result<()> {
    let mut text = File::open(from)?;
    let mut file = File::create_new(to)?;
    let copied = io::copy(&mut text, &mut file).and_then(|_| {
        file.set_permissions(text.metadata()?.permissions())?;
        file.sync_all()
    });
    copied.inspect_err(|_| drop(fs::remove_file(to)))
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

/// Moves a file into a new directory for copies, as the copy of `path`, and reports it.
fn keep_file(disk: Disk, repo: &Repo, path: &str, file: &Path) -> io::Result<()> {
    let date = new_dir(repo).map_err(io::Error::other)?;
    let copy = repo.root.join(DIR).join(&date).join(path);
    fs::create_dir_all(copy.parent().unwrap_or(Path::new(".")))?;
    move_file(file, &copy)?;
    (disk.report)(&format!("an earlier save of {path} is kept as {DIR}/{date}/{path}"));
    Ok(())
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
    let new = New::write(DISK, path, bytes)?;
    fs::rename(&new.file, &new.target).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads one of the runner's own files. `None` if it isn't there or isn't a file: reading a pipe
/// would block.
pub fn read(path: &Path) -> Option<Vec<u8>> {
    path.is_file().then(|| fs::read(path).ok()).flatten()
}

/// A complete file next to the one that it will replace. Removed on drop if it didn't.
struct New<'a> {
    disk: Disk<'a>,
    file: PathBuf,
    target: PathBuf,
    in_place: Cell<bool>,
}

impl<'a> New<'a> {
    fn write(disk: Disk<'a>, path: &Path, bytes: &[u8]) -> Result<New<'a>> {
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let new = New { disk, file: beside(&target, "new"), target, in_place: Cell::new(false) };
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
            match self.disk.exchange(&self.file, &self.target) {
                Ok(()) => {
                    self.in_place.set(!self.in_place.get());
                    return Ok(true);
                }
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                Err(_) if self.disk.link(&self.file, &self.target)? => return Ok(false),
                Err(_) => {}
            }
        }
    }
}

impl Drop for New<'_> {
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
            let _ = fs::remove_file(path); // it may be gone for a moment
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

    /// Runs something on each kind of file system while an editor saves "first" and then "second",
    /// at any two moments. Gets the saves that came in time, what the day holds afterwards, and the
    /// copies.
    fn at_any_moment(
        name: &str,
        run: impl Fn(Disk, &Repo, &Path),
        check: impl Fn(&[&str], &str, &[String]),
    ) {
        let saves = ["first", "second"];
        let once = |disk: (bool, bool), save: Save, moments: [usize; 2]| {
            let (now, saved) = (Cell::new(0), Cell::new(0));
            with_day(name, |repo, day| {
                let meanwhile = || {
                    while saved.get() < 2 && moments[saved.get()] == now.get() {
                        save(day, saves[saved.get()]);
                        saved.set(saved.get() + 1);
                    }
                    now.set(now.get() + 1);
                };
                let (exchanges, links) = disk;
                let meanwhile = &meanwhile;
                run(Disk { exchanges, links, meanwhile, report: &|_| () }, repo, day);
                let text = fs::read_to_string(day).unwrap_or_default();
                check(&saves[..saved.get()], &text, &copies(repo));
            });
            saved.get()
        };
        for disk in [(true, true), (false, true), (false, false)] {
            for save in SAVES {
                let any = |first: &usize| {
                    let both = |second: &usize| once(disk, save, [*first, *second]) == 2;
                    (*first..).take_while(both).count();
                    once(disk, save, [*first, usize::MAX]) == 1
                };
                assert!((0..).take_while(any).count() > 0);
            }
        }
    }

    #[test]
    fn what_is_saved_while_a_file_is_replaced_is_in_place_or_the_copy() {
        at_any_moment(
            "replace",
            |disk, repo, _| assert!(replace_on(disk, repo, DAY, b"new").unwrap().is_some()),
            |saved, day, copies| match saved.last() {
                Some(last) if day != "new" => assert_eq!(day, *last),
                last => {
                    assert_eq!((day, copies), ("new", &[last.unwrap_or(&"stub").to_string()][..]))
                }
            },
        );
    }

    #[test]
    fn an_interruption_at_any_moment_leaves_the_old_text_in_place_or_a_copy() {
        for (exchanges, links) in [(true, true), (false, true), (false, false)] {
            with_day("interrupted", |repo, day| {
                let moments = Cell::new(0);
                let meanwhile = || {
                    let in_place = fs::read(day).is_ok_and(|text| text == b"stub");
                    assert!(in_place || copies(repo) == ["stub"], "moment {}", moments.get());
                    moments.set(moments.get() + 1);
                };
                let disk = Disk { exchanges, links, meanwhile: &meanwhile, report: &|_| () };
                replace_on(disk, repo, DAY, b"new").unwrap();
                assert!(moments.get() > 2);
                assert_eq!(
                    (fs::read(day).unwrap(), copies(repo)),
                    (b"new".into(), vec!["stub".into()])
                );
            });
        }
    }

    #[test]
    fn what_is_saved_last_while_a_stub_is_replaced_or_removed_is_in_place() {
        let check = |saved: &[&str], day: &str, copies: &[String], without: &str| {
            assert_eq!(day, *saved.last().unwrap_or(&without));
            assert!(copies.iter().all(|copy| saved.len() == 2 && copy == "first"), "{copies:?}");
        };
        at_any_moment(
            "replace-if",
            |disk, repo, _| {
                replace_if_on(disk, repo, DAY, Some(b"stub"), b"new").unwrap();
            },
            |saved, day, copies| check(saved, day, copies, "new"),
        );
        at_any_moment(
            "create",
            |disk, repo, day| {
                fs::remove_file(day).unwrap();
                replace_if_on(disk, repo, DAY, None, b"new").unwrap();
            },
            |saved, day, copies| check(saved, day, copies, "new"),
        );
        at_any_moment(
            "remove-if",
            |disk, repo, _| {
                remove_if_on(disk, repo, DAY, b"stub").unwrap();
            },
            |saved, day, copies| check(saved, day, copies, ""),
        );
    }

    #[test]
    fn a_file_that_holds_something_else_stays() {
        with_day("else", |repo, day| {
            assert!(!replace_if(repo, DAY, Some(b"old"), b"new").unwrap());
            assert!(!replace_if(repo, DAY, None, b"new").unwrap());
            assert!(!remove_if(repo, DAY, b"old").unwrap());
            assert_eq!(fs::read(day).unwrap(), b"stub");
            assert!(replace_if(repo, DAY, Some(b"stub"), b"new").unwrap());
            assert!(remove_if(repo, DAY, b"new").unwrap());
            assert!(replace_if(repo, DAY, None, b"new").unwrap());
            assert_eq!(fs::read(day).unwrap(), b"new");
            assert!(copies(repo).is_empty());
        });
    }

    #[test]
    fn a_program_that_opened_the_file_before_writes_into_the_copy() {
        with_day("opened", |repo, day| {
            let file = RefCell::new(None);
            let meanwhile = || {
                file.borrow_mut().get_or_insert_with(|| File::create(day).unwrap());
            };
            replace_on(Disk { meanwhile: &meanwhile, ..DISK }, repo, DAY, b"new").unwrap();
            file.take().unwrap().write_all(b"mine").unwrap();
            assert_eq!(
                (fs::read(day).unwrap(), copies(repo)),
                (b"new".into(), vec!["mine".into()])
            );
        });
    }
}
