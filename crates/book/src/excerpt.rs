//! Finds the lines of a file that a marker asks for, cuts them out, and removes their indentation.

use candecode_course::stubs::{is_marker, marked_regions};
use std::ops::Range;

/// Returns the lines between `ANCHOR: name` and `ANCHOR_END: name`.
pub fn anchored(all: &[&str], name: &str) -> Result<Range<usize>, String> {
    let find = |mark: &str| {
        let is_here = |line: &&str| {
            let after = line.split_once(mark).map(|(_, rest)| rest.trim_start());
            after.and_then(|rest| rest.split_whitespace().next()) == Some(name)
        };
        all.iter().position(is_here)
    };
    match (find("ANCHOR:"), find("ANCHOR_END:")) {
        (Some(start), Some(end)) if start < end => Ok(start + 1..end),
        (Some(_), _) => Err(format!("`ANCHOR: {name}` has no `ANCHOR_END: {name}` after it")),
        (None, _) => Err(format!("no `ANCHOR: {name}` here: put it there, or correct the marker")),
    }
}

/// Returns the lines of a function's signature, through the one that ends in `{`, `;` or, if the
/// whole function is on one line, `}`.
pub fn signature(all: &[&str], name: &str, docs: bool) -> Result<Range<usize>, String> {
    let start = find(all, &["fn"], name)?;
    let ends = |i: &usize| all[*i].ends_with(['{', ';', '}']);
    let end = (start..all.len()).find(ends).ok_or("can't find this signature's end")?;
    Ok(above(all, start, docs)..end + 1)
}

/// Returns all lines of a type, trait, function or constant, through its closing brace or
/// semicolon.
pub fn item(all: &[&str], name: &str, docs: bool) -> Result<Range<usize>, String> {
    let kinds = ["struct", "enum", "trait", "fn", "const", "static", "type"];
    let start = find(all, &kinds, name)?;
    let indent = all[start].len() - all[start].trim_start().len();
    let closing = format!("{}}}", " ".repeat(indent));
    let opened = (start..all.len()).find(|&i| all[i].ends_with(['{', ';', '}']));
    let opened = opened.ok_or("can't find this item's end")?;
    if !all[opened].ends_with('{') {
        return Ok(above(all, start, docs)..opened + 1);
    }
    let closes = |i: &usize| all[*i].strip_suffix(';').unwrap_or(all[*i]) == closing;
    let end = (opened..all.len()).find(closes).ok_or("can't find this item's end")?;
    Ok(above(all, start, docs)..end + 1)
}

/// Finds the line that starts the item with this name. A method can be qualified with its type, as
/// in `Cached::logits`. If several items match but only one is public, picks that one: a type's own
/// method rather than a trait's.
fn find(all: &[&str], kinds: &[&str], name: &str) -> Result<usize, String> {
    let (within, name) = match name.split_once("::") {
        Some((owner, method)) => (blocks_of(all, owner), method),
        None => ((0..all.len()).collect(), name),
    };
    let is_it = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let named = |pair: &[&str]| {
            kinds.contains(&pair[0]) && pair[1].strip_prefix(name).is_some_and(ends)
        };
        !line.trim_start().starts_with("//") && words.windows(2).any(named)
    };
    let found: Vec<usize> = within.into_iter().filter(|&i| is_it(all[i])).collect();
    let is_public = |i: &&usize| all[**i].trim_start().starts_with("pub ");
    let public: Vec<usize> = found.iter().filter(is_public).copied().collect();
    match (&found[..], &public[..]) {
        ([one], _) | (_, [one]) => Ok(*one),
        ([], _) => Err(format!(
            "no {} called `{name}` here: if it was renamed, correct the marker",
            if kinds == ["fn"] { "function" } else { "item" }
        )),
        _ => Err(format!(
            "`{name}` is defined {} times: name its type, as in `Cached::{name}`, or put \
             `// ANCHOR: NAME` and `// ANCHOR_END: NAME` around one and write `NAME anchor`",
            found.len()
        )),
    }
}

/// Returns the indices of all lines in `impl` blocks of the type, or in the trait, with this name.
fn blocks_of(all: &[&str], owner: &str) -> Vec<usize> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let opens = |line: &str| {
        let head = line.strip_prefix("impl").or_else(|| line.strip_prefix("pub trait"));
        let of = head.map(|head| head.rsplit(" for ").next().unwrap_or(head));
        of.is_some_and(|of| of.split(|c| !is_word(c)).any(|word| word == owner))
    };
    let end = |start: usize| (start..all.len()).find(|&i| all[i] == "}").unwrap_or(all.len());
    (0..all.len()).filter(|&i| opens(all[i])).flat_map(|start| start..end(start)).collect()
}

/// Returns the line where an item starts, counting its attributes, and its docs if `docs` is true.
fn above(all: &[&str], start: usize, docs: bool) -> usize {
    let belongs = |line: &str| {
        if docs {
            line.starts_with("///") || line.starts_with("#[")
        } else {
            line.starts_with("#[")
        }
    };
    let first = (0..start).rev().find(|&i| !belongs(all[i].trim_start()));
    first.map_or(0, |i| i + 1)
}

/// Returns the lines of a range without anchor lines, the markers of solutions, common indentation,
/// or leading and trailing blank lines.
pub fn cut(all: &[&str], range: Range<usize>) -> Vec<String> {
    let is_left_out =
        |line: &str| line.contains("ANCHOR:") || line.contains("ANCHOR_END:") || is_marker(line);
    let kept: Vec<&str> = all[range].iter().filter(|line| !is_left_out(line)).copied().collect();
    let full = |line: &&str| !line.trim().is_empty();
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let common = kept.iter().filter(|line| full(line)).map(indent).min().unwrap_or(0);
    let first = kept.iter().position(full).unwrap_or(0);
    let end = kept.iter().rposition(full).map_or(0, |last| last + 1);
    let line = |line: &&str| line.get(common..).unwrap_or_default().trim_end().to_string();
    kept[first..end.max(first)].iter().map(line).collect()
}

/// Returns an error if a range of lines shows part of a solution.
pub fn refuse_solutions(all: &[&str], range: &Range<usize>) -> Result<(), String> {
    for Range { start, end } in marked_regions(all) {
        if start < range.end && range.start < end {
            return Err(format!(
                "lines {} to {end} are a solution, which a chapter shows only inside <details>, \
                 with the word `reference`; to show just the head of a function, write `signature`",
                start + 1
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "\
/// Adds.
pub fn add(a: u32) -> u32 {
    // ANCHOR: core

    let b = 1;
      a + b

    // ANCHOR_END: core
}
impl A {
    fn x() {
        1
    }
    pub fn y() {
    }
}
impl B for C<'_> {
    fn x() {
        2
    }
    fn y() {
    }
}
/// Two.
#[a]
struct Two(u8, u8);
const LIST: T = T {
    a: 1,
};
";

    fn lines(found: Result<Range<usize>, String>) -> Vec<String> {
        cut(&CODE.lines().collect::<Vec<_>>(), found.unwrap())
    }

    #[test]
    fn excerpts_lose_their_indentation() {
        let all: Vec<&str> = CODE.lines().collect();
        assert_eq!(lines(anchored(&all, "core")), ["let b = 1;", "  a + b"]);
        assert_eq!(
            lines(signature(&all, "add", true)),
            ["/// Adds.", "pub fn add(a: u32) -> u32 {"]
        );
        assert_eq!(lines(item(&all, "Two", true)), ["/// Two.", "#[a]", "struct Two(u8, u8);"]);
        assert_eq!(lines(item(&all, "LIST", false)), ["const LIST: T = T {", "    a: 1,", "};"]);
    }

    #[test]
    fn a_method_is_found_by_its_type_or_because_it_is_public() {
        let all: Vec<&str> = CODE.lines().collect();
        assert_eq!(lines(item(&all, "C::x", false))[1], "    2");
        assert_eq!(lines(item(&all, "y", false))[0], "pub fn y() {");
        assert!(item(&all, "D::x", false).is_err());
        assert!(item(&all, "x", false).unwrap_err().contains("defined 2 times: name its type"));
    }
}
