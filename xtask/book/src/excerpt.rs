//! Parts of a file: the lines that an include names, cut out and set flush left.

use crate::source::{Line, Origin};
use std::ops::Range;
use std::rc::Rc;

/// The lines that `part` names: an anchor, `12`, `12:20`, `12:` or `:20`.
pub fn select(all: &[&str], part: &str) -> Result<Range<usize>, String> {
    let number = |text: &str, or: usize| match text {
        "" => Ok(or),
        _ => text
            .parse::<usize>()
            .map_err(|_| format!("{text:?} is no line number")),
    };
    let range = match part.split_once(':') {
        Some((from, to)) => number(from, 1)?.saturating_sub(1)..number(to, all.len())?,
        None => match part.parse::<usize>() {
            Ok(line) => line.saturating_sub(1)..line,
            Err(_) => return anchored(all, part),
        },
    };
    if range.is_empty() || range.end > all.len() {
        return Err(format!(
            "has {} lines, so lines {part} are not there",
            all.len()
        ));
    }
    Ok(range)
}

/// The lines between `ANCHOR: name` and `ANCHOR_END: name`.
fn anchored(all: &[&str], name: &str) -> Result<Range<usize>, String> {
    let find = |mark: &str| {
        let is_here = |line: &&str| {
            let after = line.split_once(mark).map(|(_, rest)| rest.trim_start());
            after.and_then(|rest| rest.split_whitespace().next()) == Some(name)
        };
        all.iter().position(is_here)
    };
    match (find("ANCHOR:"), find("ANCHOR_END:")) {
        (Some(start), Some(end)) if start < end => Ok(start + 1..end),
        (Some(_), _) => Err(format!(
            "anchor `{name}` has no `ANCHOR_END: {name}` after it"
        )),
        (None, _) => Err(format!("no `ANCHOR: {name}` here")),
    }
}

/// The lines of a function's signature, up to the one that opens its body.
pub fn signature(all: &[&str], name: &str, docs: bool) -> Result<Range<usize>, String> {
    let is_it = |line: &&str| {
        let after = line
            .split_once("fn ")
            .map(|(before, rest)| (before.trim_start(), rest));
        after.is_some_and(|(before, rest)| {
            !before.starts_with("//")
                && rest
                    .strip_prefix(name)
                    .is_some_and(|r| r.starts_with(['(', '<']))
        })
    };
    let found: Vec<usize> = (0..all.len()).filter(|&i| is_it(&all[i])).collect();
    let start = match found[..] {
        [one] => one,
        [] => return Err(format!("no function `{name}` here")),
        _ => {
            return Err(format!(
                "several functions are called `{name}`: use an anchor"
            ))
        }
    };
    let ends = |i: &usize| all[*i].ends_with('{') || all[*i].ends_with(';');
    let end = (start..all.len())
        .find(ends)
        .ok_or("this function has no body")?;
    let mut first = start;
    while docs && first > 0 && all[first - 1].trim_start().starts_with("///") {
        first -= 1;
    }
    Ok(first..end + 1)
}

/// The lines of a range without anchors, outer blank lines and common indentation.
pub fn cut(all: &[&str], range: Range<usize>, shown: &str) -> Vec<Line> {
    let file: Rc<str> = shown.into();
    let is_anchor = |line: &str| line.contains("ANCHOR:") || line.contains("ANCHOR_END:");
    let kept: Vec<usize> = range.filter(|&i| !is_anchor(all[i])).collect();
    let full = |i: &&usize| !all[**i].trim().is_empty();
    let indent = |i: &usize| all[*i].len() - all[*i].trim_start().len();
    let common = kept.iter().filter(full).map(indent).min().unwrap_or(0);
    let first = kept.iter().position(|i| full(&i)).unwrap_or(0);
    let end = kept
        .iter()
        .rposition(|i| full(&i))
        .map_or(0, |last| last + 1);
    let line = |&i: &usize| Line {
        text: all[i].get(common..).unwrap_or_default().to_string(),
        at: Origin {
            file: file.clone(),
            line: i + 1,
        },
    };
    kept[first..end.max(first)].iter().map(line).collect()
}
