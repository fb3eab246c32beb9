//! `{{#include FILE:ANCHOR}}`, `{{#item FILE:NAME}}` and `{{#signature FILE:NAME}}`: code and
//! figures from files that exist.
//!
//! Ours and not mdBook's, for three reasons: a missing file or anchor is an error with a line, a
//! solution is never shown, and what is cut out of the middle of a file loses its indentation.

use crate::excerpt::{cut, item, select, signature};
use crate::solutions;
use crate::source::{Line, Page, Problems};
use std::path::Path;

/// Replaces every directive of a page; `dir` is where the page's file lies.
pub fn expand(page: Page, root: &Path, dir: &Path, problems: &mut Problems) -> Page {
    let mut lines = Vec::new();
    for line in page.lines {
        if !line.text.contains("{{#") {
            lines.push(line);
        } else if !line.text.replace("\\{{#", "").contains("{{#") {
            lines.push(Line { text: line.text.replace("\\{{#", "{{#"), at: line.at });
        } else {
            match included(&line.text, root, dir, problems) {
                Ok(more) => lines.extend(more),
                Err(message) => problems.add(&line.at, message),
            }
        }
    }
    Page { lines }
}

/// What one directive line stands for.
fn included(
    line: &str,
    root: &Path,
    dir: &Path,
    problems: &mut Problems,
) -> Result<Vec<Line>, String> {
    let directive = line.trim_start_matches([' ', '>']);
    let prefix = &line[..line.len() - directive.len()];
    let inner = directive.trim_end().strip_prefix("{{#").and_then(|d| d.strip_suffix("}}"));
    let words: Vec<&str> = match inner {
        Some(inner) => inner.split_whitespace().collect(),
        None => return Err("a {{#…}} stands on a line of its own (write \\{{# for text)".into()),
    };
    let (&[kind, target] | &[kind, target, "docs"]) = &words[..] else {
        return Err(format!(
            "cannot read {directive:?}: {{{{#include FILE:ANCHOR}}}} was expected"
        ));
    };
    let (file, part) = match target.split_once(':') {
        Some((file, part)) => (file, Some(part)),
        None => (target, None),
    };
    let path = dir.join(file);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{file}: {e}"))?;
    let shown = shown_name(&path, root);
    let all: Vec<&str> = text.lines().collect();
    let docs = words.len() == 3;
    let range = match (kind, part) {
        ("include", None) => 0..all.len(),
        ("include", Some(part)) => select(&all, part).map_err(|e| format!("{shown}: {e}"))?,
        ("signature", Some(name)) => {
            signature(&all, name, docs).map_err(|e| format!("{shown}: {e}"))?
        }
        ("item", Some(name)) => item(&all, name, docs).map_err(|e| format!("{shown}: {e}"))?,
        ("signature" | "item", None) => {
            return Err(format!("{{{{#{kind} FILE:NAME}}}} needs a name"));
        }
        _ => return Err(format!("no {{{{#{kind}}}}}: there are include, item and signature")),
    };
    solutions::refuse(&all, &range).map_err(|e| format!("{shown}: {e}"))?;
    let mut lines = cut(&all, range, &shown);
    if kind == "signature" {
        if let Some(last) = lines.last_mut() {
            last.text = last.text.trim_end_matches(" {").to_string();
        }
    }
    if file.ends_with(".svg") {
        // A blank line would end the block of HTML, and Markdown would read the rest.
        lines.retain(|l| !l.text.trim().is_empty() && !l.text.starts_with("<?xml"));
    }
    if let Some(line) = lines.iter().find(|l| l.text.contains("{{#")) {
        problems.add(&line.at, "an included file includes nothing further");
    }
    for line in &mut lines {
        line.text = format!("{prefix}{}", line.text).trim_end().to_string();
    }
    Ok(lines)
}

/// A path as messages write it: relative to the repository, without `..`.
pub fn shown_name(path: &Path, root: &Path) -> String {
    let full = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    full.strip_prefix(root).unwrap_or(&full).display().to_string().replace('\\', "/")
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
pub fn long<T>(
    a: T,
) -> T {
    // task 1.1: think
    // <solution>
    a
    // </solution>
}
/// Two.
#[a]
struct Two(u8, u8);
";

    fn page(text: &str) -> (Vec<String>, Vec<String>) {
        let dir = std::env::temp_dir().join(format!(
            "book-tool-include-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::create_dir_all(&dir).unwrap();
        let dir = dir.canonicalize().unwrap();
        std::fs::write(dir.join("code.rs"), CODE).unwrap();
        std::fs::write(dir.join("x.svg"), "<?xml ?>\n<svg>\n\n</svg>\n").unwrap();
        let mut problems = Problems::default();
        let page = expand(Page::new("a.md", text), &dir, &dir, &mut problems);
        (page.lines.into_iter().map(|l| l.text).collect(), problems.list())
    }

    #[test]
    fn an_anchor_is_cut_out_and_loses_its_indentation() {
        let (lines, problems) = page("x\n> {{#include code.rs:core}}");
        assert_eq!(problems, [""; 0]);
        assert_eq!(lines, ["x", "> let b = 1;", ">   a + b"]);
    }

    #[test]
    fn a_signature_ends_before_the_body() {
        assert_eq!(
            page("{{#signature code.rs:long}}").0,
            ["pub fn long<T>(", "    a: T,", ") -> T"]
        );
        let lines = page("{{#signature code.rs:add docs}}").0;
        assert_eq!(lines, ["/// Adds.", "pub fn add(a: u32) -> u32"]);
    }

    #[test]
    fn an_item_is_whole() {
        let lines = ["pub fn add(a: u32) -> u32 {", "", "    let b = 1;", "      a + b", "", "}"];
        assert_eq!(page("{{#item code.rs:add}}").0, lines);
        assert!(page("{{#item code.rs:long}}").1[0].contains("are a solution"));
        assert_eq!(
            page("{{#item code.rs:Two docs}}").0,
            ["/// Two.", "#[a]", "struct Two(u8, u8);"]
        );
        assert_eq!(page("{{#item code.rs:Two}}").0, ["#[a]", "struct Two(u8, u8);"]);
    }

    #[test]
    fn a_solution_is_refused() {
        for target in ["code.rs", "code.rs:12:15", "code.rs:15", "code.rs:13:"] {
            let (lines, problems) = page(&format!("{{{{#include {target}}}}}"));
            assert_eq!(lines, [""; 0], "{target}");
            assert!(problems[0].contains("solution"), "{problems:?}");
        }
        assert_eq!(page("{{#include code.rs:10:13}}").1, [""; 0]);
    }

    #[test]
    fn what_is_not_there_is_a_problem_with_a_line() {
        for (line, want) in [
            ("{{#include gone.rs}}", "a.md:2: gone.rs: "),
            ("{{#include code.rs:gone}}", "a.md:2: code.rs: no `ANCHOR: gone` here"),
            ("{{#include code.rs:40:50}}", "a.md:2: code.rs: has 20 lines"),
            ("{{#signature code.rs:gone}}", "a.md:2: code.rs: no fn called `gone`"),
            ("see {{#include code.rs}}", "a.md:2: a {{#…}} stands on a line of its own"),
            ("{{#title x}}", "a.md:2: "),
        ] {
            let (_, problems) = page(&format!("\n{line}"));
            assert_eq!(problems.len(), 1, "{line}");
            assert!(problems[0].starts_with(want), "{problems:?} does not start with {want:?}");
        }
    }

    #[test]
    fn an_escaped_directive_is_text_and_a_figure_has_no_blank_line() {
        assert_eq!(page("`\\{{#include x}}`").0, ["`{{#include x}}`"]);
        assert_eq!(page("{{#include x.svg}}").0, ["<svg>", "</svg>"]);
    }
}
