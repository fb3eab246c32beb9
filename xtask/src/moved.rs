//! A day's file from one version of the course to the next: signatures move, bodies stay.

use crate::lift;
use crate::stubs;
use anyhow::{anyhow, Result};
use std::collections::BTreeMap;

/// What became of a day's file.
#[derive(Debug, PartialEq, Eq)]
pub enum Moved {
    /// It needs no change.
    Same,
    /// The new text; nothing of the reader's was in the old one.
    Fresh(String),
    /// The new text, with the reader's bodies in it; and the tasks that are gone, whose bodies are not.
    Merged(String, Vec<String>),
    /// The course and the reader changed the same lines: a merge would have to guess.
    ByHand,
}

/// Moves the reader's file from the stub of one reference to the stub of another.
///
/// `merge` merges three texts line by line (mine, base, theirs), or gives up. What it gives is believed only if every
/// line that the reader wrote is in it.
///
/// # Errors
/// If a reference breaks the rules of its markers, or the merge cannot be tried.
pub fn day(
    mine: &str,
    old: &str,
    new: &str,
    merge: impl Fn(&str, &str, &str) -> Result<Option<String>>,
) -> Result<Moved> {
    let stub_of = |source: &str| stubs::stub(source).map_err(|e| anyhow!("the reference: {e}"));
    let mine = &mine.replace("\r\n", "\n");
    let (old_stub, new_stub) = (stub_of(old)?, stub_of(new)?);
    let (old_given, new_given) = (stubs::unmarked(old), stubs::unmarked(new));
    if old_stub == new_stub || *mine == new_stub || *mine == new_given {
        return Ok(match *mine == old_given && old_given != new_given {
            true => Moved::Fresh(new_given),
            false => Moved::Same,
        });
    }
    if *mine == old_stub {
        return Ok(Moved::Fresh(new_stub));
    }
    if *mine == old_given {
        return Ok(Moved::Fresh(new_given));
    }
    let ids = |source: &str| -> Result<Vec<String>> {
        let tasks = stubs::tasks(source).map_err(|e| anyhow!("the reference: {e}"))?;
        Ok(tasks.into_iter().map(|task| task.id).collect())
    };
    let (old_ids, new_ids) = (ids(old)?, ids(new)?);
    let old_lines: Vec<&str> = old_stub.lines().collect();
    let base = lift::stub(&old_lines, &old_ids);
    let yours = lift::mine(&mine.lines().collect::<Vec<_>>(), &old_lines, &old_ids);
    // a task that only they have brings its `todo!` with it
    let both: Vec<String> = old_ids.iter().filter(|id| new_ids.contains(id)).cloned().collect();
    let theirs = lift::stub(&new_stub.lines().collect::<Vec<_>>(), &both);
    let text = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let merged = merge(&text(&yours.skeleton), &text(&base.skeleton), &text(&theirs.skeleton))?;
    let Some(merged) = merged else { return Ok(Moved::ByHand) };

    let written =
        |id: &String| yours.bodies.get(id).filter(|body| base.bodies.get(id) != Some(body));
    let bodies: BTreeMap<String, &Vec<String>> = old_ids
        .iter()
        .filter_map(|id| Some((lift::mark(id), written(id).or_else(|| theirs.bodies.get(id))?)))
        .collect();
    let mut out = String::new();
    for line in merged.lines() {
        match bodies.get(line) {
            Some(body) => out += &text(body),
            None if line.contains('\u{1}') => return Ok(Moved::ByHand),
            None => out += &format!("{line}\n"),
        }
    }
    let gone: Vec<String> = old_ids
        .iter()
        .filter(|id| written(id).is_some() && !merged.contains(&lift::mark(id)))
        .cloned()
        .collect();
    let excused: Vec<&str> =
        gone.iter().filter_map(|id| yours.bodies.get(id)).flatten().map(String::as_str).collect();
    match keeps(mine, &old_stub, &out, &excused) {
        true => Ok(Moved::Merged(out, gone)),
        false => Ok(Moved::ByHand),
    }
}

/// Whether every line that the reader wrote (it is in `mine` more often than in `old`) is in `new`, or excused.
fn keeps(mine: &str, old: &str, new: &str, excused: &[&str]) -> bool {
    let mut left: BTreeMap<&str, i64> = BTreeMap::new();
    for line in mine.lines() {
        *left.entry(line.trim()).or_default() += 1;
    }
    for line in old.lines() {
        *left.entry(line.trim()).or_default() -= 1;
    }
    left.retain(|line, count| *count > 0 && !line.is_empty());
    for line in new.lines().chain(excused.iter().copied()) {
        if let Some(count) = left.get_mut(line.trim()) {
            *count -= 1;
        }
    }
    left.values().all(|count| *count <= 0)
}
