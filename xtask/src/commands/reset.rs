//! `cargo xtask reset` and `start`: replace the reader's files, keeping a copy of their old
//! content.

use crate::backup;
use crate::say;
use anyhow::{anyhow, Result};
use candecode_course::{stubs, usage, Day, Progress, Repo};
use clap::Args;
use std::process::ExitCode;

/// The flags of `reset`.
#[derive(Args)]
pub struct Reset {
    /// Which day: `day6` or `6`; with --undo, this can also be one of the dates it lists
    #[arg(value_name = "DAY", required_unless_present = "undo")]
    day: Option<String>,
    /// Write the reference's code instead of the stub
    #[arg(long = "ref", conflicts_with = "undo")]
    reference: bool,
    /// Restore the newest copy of the day, or if repeated, the one before it; without a day, list
    /// all copies
    #[arg(long)]
    undo: bool,
}

/// The flags of `start`.
#[derive(Args)]
pub struct Start {
    /// Which day: `day6` or `6`
    #[arg(value_name = "DAY")]
    day: String,
}

/// Runs `reset`: writes the stub, the reference's code or an older copy to `src/`.
///
/// # Errors
/// If the day or copy doesn't exist, or a file can't be read or written.
pub fn run(repo: &Repo, args: &Reset) -> Result<ExitCode> {
    match &args.day {
        None => list(repo),
        Some(what) if args.undo => undo(repo, what)?,
        Some(day) => {
            let day = repo.day(day)?;
            let stub = repo.stub(day)?; // also reports bad markers in the reference
            let (text, words) = match args.reference {
                true => (given(repo, day)?, "the reference's code now"),
                false => (stub, "the stub again"),
            };
            let path = day.src();
            let kept = backup::replace(repo, &path, text.as_bytes())
                .map_err(|e| anyhow!("{e:#}; nothing was changed"))?;
            tell(&path, kept, &format!("{path} is {words}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `start`: fills in the reference's code for every earlier day the reader hasn't started.
///
/// # Errors
/// Same as [`run`]. Days before the one that failed are already filled in.
pub fn start(repo: &Repo, args: &Start) -> Result<ExitCode> {
    let day = repo.day(&args.day)?;
    for earlier in repo.days.iter().filter(|other| other.number < day.number) {
        let (path, number) = (earlier.src(), earlier.number);
        let before = repo.root.join(&path).exists().then(|| repo.read_bytes(&path)).transpose()?;
        match repo.progress(earlier)? {
            Progress::Stub | Progress::Missing => {
                let text = given(repo, earlier)?;
                if backup::replace_if(repo, &path, before.as_deref(), text.as_bytes())? {
                    say!("day {number}: given, the reference's code is in {path}");
                } else {
                    say!("day {number}: you have just saved {path}, so it stays as it is");
                }
            }
            Progress::Begun(left) if left.is_empty() => say!("day {number}: yours, unchanged"),
            Progress::Begun(left) => {
                let open = left.into_iter().collect::<Vec<_>>().join(", ");
                say!(
                    "day {number}: yours, unchanged; not written: {open} (cargo xtask reset \
                     day{number} --ref would replace the day with the reference)"
                );
            }
        }
    }
    say!("Read {}, then: cargo xtask check day{} --watch", day.chapter(), day.number);
    Ok(ExitCode::SUCCESS)
}

/// Returns the reference's code without its markers, as a reader would write it.
fn given(repo: &Repo, day: &Day) -> Result<String> {
    Ok(stubs::unmarked(&repo.read(&day.solution())?))
}

/// Lists all copies.
fn list(repo: &Repo) {
    let all = backup::list(repo);
    for (date, file) in &all {
        say!("{date}  {file}");
    }
    match all.last() {
        Some((newest, _)) => say!("`cargo xtask reset --undo {newest}` restores the newest."),
        None => say!("no copies yet: `reset`, `update` and `stubs --force` make them"),
    }
}

/// A file that marks a copy as made by an undo. It contains the date of the copy that was restored.
const UNDID: &str = "undid";

/// Restores the files of one date, or the newest copy of a day that differs from the current file.
/// Right after an undo, only the copy it restored and older ones count, so that each repetition
/// goes further back. A day that the course has renamed is recognized by its number.
fn undo(repo: &Repo, what: &str) -> Result<()> {
    let mut copies = backup::list(repo);
    let by_date = copies.iter().any(|(date, _)| date == what);
    let read = |(date, file): &(String, String)| {
        repo.read_bytes(&format!("{}/{date}/{file}", backup::DIR))
    };
    if by_date {
        copies.retain(|(date, _)| date == what);
    } else {
        let day = repo.day(what).map_err(|_| {
            usage(format!("no day or copy `{what}`: `cargo xtask reset --undo` lists the copies"))
        })?;
        let path = day.src();
        let there = repo.root.join(&path).exists().then(|| repo.read_bytes(&path)).transpose()?;
        copies.retain(|copy| Day::from_src(&copy.1).is_some_and(|of| of.number == day.number));
        let last = copies.last().map_or(String::new(), |(date, _)| date.clone());
        let undid = repo.read(&format!("{}/{last}/{UNDID}", backup::DIR)).ok();
        copies.retain(|copy| {
            undid.as_ref().is_none_or(|undid| copy.0 <= *undid)
                && read(copy).is_ok_and(|bytes| Some(bytes) != there)
        });
        let newest = copies.pop().ok_or_else(|| {
            usage(match undid {
                Some(_) => format!(
                    "nothing more to undo: {path} matches its oldest copy; `cargo xtask reset \
                     --undo` lists the newer ones"
                ),
                None => {
                    format!("no copy differs from {path}: `cargo xtask reset --undo` lists them")
                }
            })
        })?;
        copies = vec![newest];
    }
    for copy in &copies {
        let number = Day::from_src(&copy.1).map(|day| day.number);
        let now = repo.days.iter().find(|day| Some(day.number) == number);
        let path = now.map_or(copy.1.clone(), Day::src);
        let kept = backup::replace(repo, &path, &read(copy)?)?;
        if let Some(kept) = kept.as_ref().filter(|_| !by_date) {
            let mark = repo.root.join(backup::DIR).join(kept).join(UNDID);
            backup::write(&mark, copy.0.as_bytes())?;
        }
        tell(&path, kept, &format!("{path} is now as it was at {}", copy.0));
    }
    Ok(())
}

/// Prints what the file contains now, and where its old content was saved.
fn tell(path: &str, kept: Option<String>, words: &str) {
    say!("{words}.");
    if let Some(date) = kept {
        say!("The old version is saved as {}/{date}/{path};", backup::DIR);
        say!("`cargo xtask reset --undo {date}` restores it.");
    }
}
