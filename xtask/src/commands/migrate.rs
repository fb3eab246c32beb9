//! `cargo xtask migrate`: brings days that the reader began before an update up to it. The days'
//! old content is kept.

use crate::backup;
use crate::{note, say};
use anyhow::{anyhow, Result};
use candecode_course::{Day, Migration, Repo};
use clap::Args;
use std::process::ExitCode;

/// The flags of `migrate`.
#[derive(Args)]
pub struct Migrate {
    /// Which day: `day6` or `6` [default: all]
    #[arg(value_name = "DAY")]
    day: Option<String>,
}

/// Runs `migrate`: changes old names, and appends functions that the course has added since. The
/// exit code is 1 if a day was saved in the meantime and so stays as it is.
///
/// # Errors
/// If the day doesn't exist, its brackets don't match, or a file can't be read or written.
pub fn run(repo: &Repo, args: &Migrate) -> Result<ExitCode> {
    let chosen = args.day.as_ref().map(|day| repo.day(day)).transpose()?;
    let days = repo.days.iter().filter(|day| chosen.is_none_or(|chosen| chosen == *day));
    let mut old: Vec<(&Day, Migration)> = Vec::new();
    for day in days {
        let migration = repo.migration(day).map_err(|e| anyhow!("{e:#}; nothing was changed"))?;
        old.extend(migration.map(|migration| (day, migration)));
    }
    if old.is_empty() {
        say!("Up to date: no old names, and no missing functions.");
        return Ok(ExitCode::SUCCESS);
    }
    let files: Vec<String> = old.iter().map(|(day, _)| day.src()).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let kept = backup::keep(repo, &files).map_err(|e| anyhow!("{e:#}; nothing was changed"))?;
    let changed = apply(repo, &old)?;
    if changed > 0 {
        say!("Your old files are kept; `cargo xtask reset --undo {kept}` restores them.");
    }
    Ok(ExitCode::from(u8::from(changed < old.len())))
}

/// Writes the days that haven't been saved since they were read. Returns how many.
fn apply(repo: &Repo, old: &[(&Day, Migration)]) -> Result<usize> {
    let mut changed = 0;
    for (day, migration) in old {
        let (before, now) = (migration.before.as_bytes(), migration.text.as_bytes());
        if !backup::replace_if(repo, &day.src(), Some(before), now)? {
            say!("day {}: you have just saved it, so it stays; try again", day.number);
            continue;
        }
        let now = |(old, new): &(&str, &str)| format!("{old} is now {new}");
        let mut words: Vec<String> = migration.renamed.iter().map(now).collect();
        if !migration.added.is_empty() {
            words.push(format!("at the end of the file, new: {}", migration.added.join(", ")));
        }
        say!("day {}: {}", day.number, words.join(", "));
        changed += 1;
    }
    Ok(changed)
}

/// Says which begun days are older than the course, and what to do about it.
pub fn note_old_days(repo: &Repo) {
    let mut is_old = false;
    for day in &repo.days {
        // A day that can't be compared is reported by the command that needs it.
        let Ok(Some(Migration { renamed, added, .. })) = repo.migration(day) else { continue };
        let names: Vec<&str> = renamed.iter().map(|(old, _)| *old).collect();
        let mut words = Vec::new();
        if !names.is_empty() {
            words.push(format!("uses names that have changed ({})", names.join(", ")));
        }
        if !added.is_empty() {
            words.push(format!("lacks functions that are new ({})", added.join(", ")));
        }
        note!("{} {}", day.src(), words.join(" and "));
        is_old = true;
    }
    if is_old {
        note!("`cargo xtask migrate` brings your days up to date, and keeps copies");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_saved_after_it_was_read_stays_and_is_not_counted() {
        let root = std::env::temp_dir().join(format!("candecode-migrate-{}", std::process::id()));
        let repo = Repo { root: root.clone(), days: vec![] };
        let day = |name: &str, text: &str| {
            let day = Day::from_name(name).unwrap();
            backup::write(&root.join(day.src()), text.as_bytes()).unwrap();
            day
        };
        let (saved, other) = (day("day01_two", "saved"), day("day02_three", "read"));
        let migration = || Migration {
            before: "read".into(),
            text: "new".into(),
            renamed: vec![],
            added: vec!["three".into()],
        };
        let old = [(&saved, migration()), (&other, migration())];
        assert_eq!(apply(&repo, &old).unwrap(), 1);
        assert_eq!(repo.read(&saved.src()).unwrap(), "saved");
        assert_eq!(repo.read(&other.src()).unwrap(), "new");
        std::fs::remove_dir_all(root).unwrap();
    }
}
