//! `cargo xtask give`, `start`, `reset`, `restore`: other content for the reader's files, with a
//! copy of what was there.

use crate::backup::{self, Backup};
use crate::progress::{self, Progress};
use crate::repo::{Day, Repo};
use crate::say;
use crate::stubs;
use crate::usage;
use anyhow::{anyhow, Result};
use clap::Args;
use std::process::ExitCode;

/// The flags of `give`, `start` and `reset`.
#[derive(Args)]
pub struct One {
    /// Which day: `day6` or `6`
    #[arg(value_name = "DAY")]
    day: String,
}

/// The flags of `restore`.
#[derive(Args)]
pub struct Restore {
    /// Which backup, by its date, or the newest of a day, as `day6`; without it, all are listed
    #[arg(value_name = "DATE|DAY")]
    what: Option<String>,
}

/// `give`: puts the reference's code into `src/`.
///
/// # Errors
/// If the day does not exist, or a file cannot be read or written.
pub fn give(repo: &Repo, args: &One) -> Result<ExitCode> {
    let day = repo.day(&args.day)?;
    repo.tasks(day)?;
    let _lock = backup::lock(repo)?;
    let text = stubs::unmarked(&repo.read(&day.solution())?);
    put(repo, &day.src(), &text, &format!("{} is the reference's code now", day.src()))
}

/// `start`: gives every earlier day that is not begun, so that this one has its company in `src/`.
///
/// # Errors
/// As [`give`]. Days before the one that fails are given.
pub fn start(repo: &Repo, args: &One) -> Result<ExitCode> {
    let day = repo.day(&args.day)?;
    let _lock = backup::lock(repo)?;
    let mut copies = Backup::new(repo);
    for earlier in repo.days.iter().filter(|other| other.number < day.number) {
        let (path, number) = (earlier.src(), earlier.number);
        match progress::of(repo, earlier)? {
            Progress::Stub | Progress::Missing => {
                let text = stubs::unmarked(&repo.read(&earlier.solution())?);
                copies.replace(&path, text.as_bytes())?;
                say!("day {number}: given, the reference's code is in {path}");
            }
            Progress::Begun(left) if left.is_empty() => say!("day {number}: yours, as it was"),
            Progress::Begun(left) => {
                let open = left.into_iter().collect::<Vec<_>>().join(", ");
                say!(
                    "day {number}: yours, as it was; not written: {open} (cargo xtask give \
                      day{number} would fill them in)"
                );
            }
        }
    }
    say!("Read {}, then: cargo xtask watch day{}", day.chapter(), day.number);
    Ok(ExitCode::SUCCESS)
}

/// `reset`: puts the stub back into `src/`.
///
/// # Errors
/// As [`give`].
pub fn reset(repo: &Repo, args: &One) -> Result<ExitCode> {
    let day = repo.day(&args.day)?;
    let _lock = backup::lock(repo)?;
    put(repo, &day.src(), &repo.stub(day)?, &format!("{} is the stub again", day.src()))
}

/// `restore`: lists all backups, or brings back the files of one, or the newest copy of a day.
///
/// # Errors
/// Bad usage, naming what there is; or a file that cannot be read or written.
pub fn restore(repo: &Repo, args: &Restore) -> Result<ExitCode> {
    let _lock = if args.what.is_some() { backup::lock(repo)? } else { None };
    let all = backup::list(repo)?;
    let Some(what) = &args.what else {
        for (stamp, files) in &all {
            say!("{stamp}  {}", files.join(" "));
        }
        match all.last() {
            Some((newest, _)) => say!("`cargo xtask restore {newest}` brings the newest back."),
            None => say!(
                "no backups yet: they are made by `give`, `reset`, `update` and `stubs --force`"
            ),
        }
        return Ok(ExitCode::SUCCESS);
    };
    let copies = match (all.iter().find(|(stamp, _)| stamp == what), repo.day(what)) {
        (Some((stamp, files)), _) => {
            files.iter().map(|file| Copy { stamp, file, to: file.clone() }).collect()
        }
        (None, Ok(day)) => vec![newest(repo, &all, day)?],
        (None, Err(_)) => {
            return Err(usage(format!("no backup `{what}`: `cargo xtask restore` lists them")))
        }
    };
    let mut backup = Backup::new(repo);
    for Copy { stamp, file, to } in &copies {
        let bytes = repo.read_bytes(&format!("{}/{stamp}/{file}", backup::DIR))?;
        tell(backup.replace(to, &bytes)?, &format!("{to} is as it was at {stamp}"));
        if repo.days.iter().all(|day| day.src() != *to) {
            say!("(No day of the course has that name now: `cargo xtask list` shows their names.)");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A copy in a backup, and where it goes.
struct Copy<'a> {
    stamp: &'a str,
    file: &'a str,
    to: String,
}

/// The newest copy of a day that differs from what is in `src/`. A day that the course has renamed
/// is known by its number.
fn newest<'a>(repo: &Repo, all: &'a [(String, Vec<String>)], day: &Day) -> Result<Copy<'a>> {
    let there = repo.read_bytes(&day.src()).ok();
    for (stamp, files) in all.iter().rev() {
        let named = files.iter().filter(|file| **file == day.src());
        let renamed = files.iter().filter(|file| **file != day.src());
        for file in named.chain(renamed).filter(|file| number(file) == Some(day.number)) {
            let copy = repo.read_bytes(&format!("{}/{stamp}/{file}", backup::DIR));
            if copy.is_ok_and(|copy| Some(copy) != there) {
                return Ok(Copy { stamp, file, to: day.src() });
            }
        }
    }
    Err(usage(format!("no backup has another {}: `cargo xtask restore` lists them", day.src())))
}

/// The number of the day that a file of `src/` is.
fn number(file: &str) -> Option<u32> {
    Day::from_src(file).map(|day| day.number)
}

/// Replaces one file and says what became of the old one.
fn put(repo: &Repo, path: &str, text: &str, words: &str) -> Result<ExitCode> {
    let kept = Backup::new(repo)
        .replace(path, text.as_bytes())
        .map_err(|e| anyhow!("{e:#}; nothing was changed"))?;
    tell(kept, words);
    Ok(ExitCode::SUCCESS)
}

/// One line, and one more if something was there.
fn tell(kept: Option<String>, words: &str) {
    say!("{words}.");
    if let Some(copy) = kept {
        let stamp = copy.split('/').nth(2).unwrap_or_default();
        say!("What was there is kept as {copy}; `cargo xtask restore {stamp}` brings it back.");
    }
}
