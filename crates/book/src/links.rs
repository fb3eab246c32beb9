//! Checks that links between chapters lead somewhere, in the built book and on GitHub.

use crate::prose::{line_at, Chapter};
use crate::Problem;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A page's file name, such as `day06_generate.md`, and its text.
pub type Pages = BTreeMap<String, String>;

/// Returns a problem for each link of a page that leads nowhere. `src` is the folder of the pages.
pub fn problems(pages: &Pages, src: &Path) -> Vec<Problem> {
    let anchors: BTreeMap<&str, BTreeSet<String>> =
        pages.iter().map(|(name, text)| (name.as_str(), anchors(text))).collect();
    let mut problems = Vec::new();
    for (page, text) in pages {
        for (place, target) in targets(&Chapter::new(text).prose) {
            if let Err(message) = follow(page, target, &anchors, src) {
                let file = format!("book/src/{page}");
                problems.push(Problem { file, line: line_at(text, place), message });
            }
        }
    }
    problems
}

/// Returns the anchors of a page: its headings, as mdBook and GitHub name them.
fn anchors(text: &str) -> BTreeSet<String> {
    let chapter = Chapter::new(text);
    let in_code = |i: usize| chapter.fences.iter().any(|f| f.open <= i && i <= f.close);
    let lines = text.lines().enumerate().filter(|(i, _)| !in_code(*i));
    let headings = lines.filter_map(|(_, line)| line.strip_prefix('#'));
    headings.map(|heading| slug(heading.trim_start_matches('#'))).collect()
}

/// Returns the anchor of a heading.
fn slug(heading: &str) -> String {
    let words = heading.trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || "_- ".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns the targets of links and images, with their places.
fn targets(prose: &str) -> Vec<(usize, &str)> {
    let target = |(place, mark): (usize, &str)| {
        let rest = &prose[place + mark.len()..];
        (place, &rest[..rest.find([')', '\n', ' ']).unwrap_or(rest.len())])
    };
    prose.match_indices("](").map(target).collect()
}

fn follow(
    page: &str,
    target: &str,
    anchors: &BTreeMap<&str, BTreeSet<String>>,
    src: &Path,
) -> Result<(), String> {
    if ["http:", "https:", "mailto:"].iter().any(|scheme| target.starts_with(scheme)) {
        return Ok(());
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if file.is_empty() { page } else { file };
    match anchors.get(file) {
        Some(known) if anchor.is_empty() || known.contains(anchor) => Ok(()),
        Some(_) => Err(format!("{file} has no heading #{anchor}")),
        None if file.ends_with(".md") => Err(format!("{file} isn't a page of the book")),
        None if file.starts_with("..") => {
            Err(format!("{file} is outside the book: write the path as `code`"))
        }
        None if src.join(file).is_file() => Ok(()),
        None => Err(format!("{file}: no such file; correct the name, or add the file to book/src")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let b = "# One `b` ★\n\n## Two, three";
        let pages = Pages::from([("a.md".into(), text.into()), ("b.md".into(), b.into())]);
        let a = problems(&pages, Path::new("/nonexistent"))
            .into_iter()
            .filter(|p| p.file != "book/src/b.md");
        a.map(|p| format!("{}: {}", p.line, p.message)).collect()
    }

    #[test]
    fn links_lead_to_pages_and_headings() {
        let text =
            "## A, b\n[x](#a-b) [y](b.md#one-b-) [z](b.md#two-three) [w](https://a.b) `[x](u.md)`";
        assert_eq!(found(text), [""; 0]);
        for (text, want) in [
            ("[x](gone.md)", "2: gone.md isn't a page of the book"),
            ("[x](b.md#two)", "2: b.md has no heading #two"),
            ("[x](#none)", "2: a.md has no heading #none"),
            (
                "![x](x.png)",
                "2: x.png: no such file; correct the name, or add the file to book/src",
            ),
            (
                "[x](../../src/lib.rs)",
                "2: ../../src/lib.rs is outside the book: write the path as `code`",
            ),
        ] {
            assert_eq!(found(&format!("\n{text}")), [want]);
        }
    }
}
