//! Expands `{{#include FILE:ANCHOR}}`, `{{#item FILE:NAME}}`, `{{#signature FILE:NAME}}`,
//! `{{#reference FILE:NAME}}`, `{{#variant dayNN:NAME}}`, `{{#map dayNN}}` and `{{#live NAME}}` to
//! code and figures from files in the repository.
//!
//! This replaces mdBook's own include for three reasons: a missing file or anchor is an error with
//! a line number, a solution appears only inside `<details>`, and excerpts lose their indentation.

use crate::excerpt::{anchored, cut, item, refuse_solutions, signature};
use crate::live::Lessons;
use crate::source::{Line, Origin, Page, Problems};
use candecode_course::stubs::is_marker;
use candecode_course::Repo;
use std::path::Path;

/// The map of the course, relative to the book's `src`.
const MAP: &str = "figures/map.svg";

/// Expands every directive on a page. `dir` is the directory of the page's file.
pub fn expand(
    page: Page,
    root: &Path,
    dir: &Path,
    lessons: &Lessons,
    problems: &mut Problems,
) -> Page {
    let mut lines = Vec::new();
    let mut folds = 0;
    for line in page.lines {
        folds += line.text.matches("<details").count();
        folds -= line.text.matches("</details>").count().min(folds);
        if !line.text.contains("{{#") {
            lines.push(line);
        } else if !line.text.replace("\\{{#", "").contains("{{#") {
            lines.push(Line { text: line.text.replace("\\{{#", "{{#"), at: line.at });
        } else {
            let found = match argument(&line.text, "live") {
                Some(name) => lessons.placeholder(name, root),
                None => directive(&line.text, folds > 0, root, dir, problems),
            };
            match found {
                Ok(more) => lines.extend(more),
                Err(message) => problems.add(&line.at, message),
            }
        }
    }
    Page { lines }
}

/// Expands a line that contains a directive. `folded` is true if the line is inside `<details>`.
fn directive(
    line: &str,
    folded: bool,
    root: &Path,
    dir: &Path,
    problems: &mut Problems,
) -> Result<Vec<Line>, String> {
    let kind = |name: &str| line.trim_start_matches([' ', '>']).starts_with(name);
    if (kind("{{#reference ") || kind("{{#variant ")) && !folded {
        return Err(
            "a reference or a variant must be inside <details>: it's for after the check".into()
        );
    }
    if let Some(target) = argument(line, "variant") {
        return variant(target, root);
    }
    match argument(line, "map") {
        Some(day) => map(day, dir),
        None => included(line, root, dir, problems),
    }
}

/// Returns the argument of a directive of this kind. `None` for any other line.
fn argument<'a>(line: &'a str, kind: &str) -> Option<&'a str> {
    let rest = line.trim().strip_prefix("{{#")?.strip_prefix(kind)?.strip_prefix(' ')?;
    rest.strip_suffix("}}").map(str::trim)
}

/// Returns the map figure with the box of one day, such as `day10`, highlighted.
fn map(day: &str, dir: &Path) -> Result<Vec<Line>, String> {
    let number = day.strip_prefix("day").unwrap_or(day);
    let text = std::fs::read_to_string(dir.join(MAP)).map_err(|e| format!("{MAP}: {e}"))?;
    let (box_of_day, lit) = (
        format!("class=\"known\" data-day=\"{number}\""),
        format!("class=\"new\" data-day=\"{number}\""),
    );
    if !text.contains(&box_of_day) {
        return Err(format!("{MAP} has no box for {day}"));
    }
    let figure = text.replace(&box_of_day, &lit);
    let at = |line| Origin { file: format!("book/src/{MAP}").into(), line };
    let day = number.trim_start_matches('0');
    let day = if day.is_empty() { "0" } else { day };
    let caption = format!("<figcaption>The map of the course. You are on day {day}.</figcaption>");
    let lines = std::iter::once("<figure class=\"fig\">").chain(figure.lines());
    let lines = lines.chain([caption.as_str(), "</figure>"]);
    Ok(lines.enumerate().map(|(i, text)| Line { text: text.into(), at: at(i) }).collect())
}

/// Returns an alternative solution, `dayNN:name`, as the lines of a diff from the reference.
fn variant(target: &str, root: &Path) -> Result<Vec<Line>, String> {
    let (day, name) = target.split_once(':').ok_or("expected {{#variant dayNN:NAME}}")?;
    let repo = Repo::open(root).map_err(|e| format!("{e:#}"))?;
    let day = repo.day(day).map_err(|e| format!("{e:#}"))?;
    let all = repo.mistakes(day).map_err(|e| format!("{e:#}"))?.variants;
    let shown = day.mistakes();
    let found = all.into_iter().find(|variant| variant.name == name);
    let found = found.ok_or_else(|| format!("{shown} has no variant `{name}`"))?;
    let at = Origin { file: shown.as_str().into(), line: 1 };
    let mut lines = Vec::new();
    for edit in &found.change.edits {
        for (text, sign) in [(&edit.find, '-'), (&edit.replace, '+')] {
            let shown = text.lines().filter(|line| !is_marker(line));
            lines.extend(shown.map(|line| Line { text: format!("{sign}{line}"), at: at.clone() }));
        }
    }
    Ok(lines)
}

/// Expands a directive that shows a file or part of one.
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
        None => {
            return Err("a {{#…}} must be on its own line (write \\{{# to show it as text)".into())
        }
    };
    let (&[kind, target] | &[kind, target, "docs"]) = &words[..] else {
        return Err(format!("cannot parse {directive:?}: expected {{{{#include FILE:ANCHOR}}}}"));
    };
    let docs = words.len() == 3;
    if matches!(kind, "live" | "map" | "variant") {
        return Err(format!("{{{{#{kind}}}}} can't be in a quotation: remove the `>` before it"));
    }
    if kind == "include" && docs {
        return Err("{{#include}} doesn't take `docs`: move the anchor above the docs".into());
    }
    let (file, part) = match target.split_once(':') {
        Some((file, part)) => (file, Some(part)),
        None => (target, None),
    };
    let path = dir.join(file);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{file}: {e}"))?;
    let shown = shown_name(&path, root);
    let all: Vec<&str> = text.lines().collect();
    let range = match (kind, part) {
        ("include", None) => 0..all.len(),
        ("include", Some(part)) => anchored(&all, part).map_err(|e| format!("{shown}: {e}"))?,
        ("signature", Some(name)) => {
            signature(&all, name, docs).map_err(|e| format!("{shown}: {e}"))?
        }
        ("item" | "reference", Some(name)) => {
            item(&all, name, docs).map_err(|e| format!("{shown}: {e}"))?
        }
        ("signature" | "item" | "reference", None) => {
            return Err(format!("{{{{#{kind} FILE:NAME}}}} needs a name"));
        }
        _ => {
            return Err(format!(
            "unknown {{{{#{kind}}}}}: use include, item, live, map, reference, signature or variant"
        ))
        }
    };
    if kind != "reference" {
        refuse_solutions(&all, &range).map_err(|e| format!("{shown}: {e}"))?;
    }
    let mut lines = cut(&all, range, &shown);
    lines.retain(|line| !is_marker(&line.text));
    if kind == "signature" {
        if let Some(last) = lines.last_mut() {
            // A function that fits on one line has its body there, too.
            let end = last.text.find(" {").unwrap_or(last.text.len());
            last.text.truncate(end);
        }
    }
    if file.ends_with(".svg") {
        // A blank line would end the HTML block, and the rest would be parsed as Markdown.
        lines.retain(|l| !l.text.trim().is_empty() && !l.text.starts_with("<?xml"));
    }
    if let Some(line) = lines.iter().find(|l| l.text.contains("{{#")) {
        problems.add(&line.at, "an included file can't contain directives of its own");
    }
    for line in &mut lines {
        line.text = format!("{prefix}{}", line.text).trim_end().to_string();
    }
    Ok(lines)
}

/// Formats a path for messages: relative to the repository, without `..`.
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
fn one(&self) -> usize { 3 }
const LIST: T = T {
    a: 1,
};
fn last() {}
";

    fn page(text: &str) -> (Vec<String>, Vec<String>) {
        let dir = std::env::temp_dir().join(format!(
            "candecode-book-include-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::create_dir_all(&dir).unwrap();
        let dir = dir.canonicalize().unwrap();
        std::fs::write(dir.join("code.rs"), CODE).unwrap();
        std::fs::write(dir.join("x.svg"), "<?xml ?>\n<svg>\n\n</svg>\n").unwrap();
        let mut problems = Problems::default();
        let page = expand(Page::new("a.md", text), &dir, &dir, &Lessons::none(), &mut problems);
        (page.lines.into_iter().map(|l| l.text).collect(), problems.list())
    }

    #[test]
    fn an_anchored_excerpt_loses_its_indentation() {
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
        assert_eq!(page("{{#signature code.rs:one}}").0, ["fn one(&self) -> usize"]);
        assert_eq!(page("{{#signature code.rs:last}}").0, ["fn last()"]);
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
        assert_eq!(page("{{#item code.rs:LIST}}").0, ["const LIST: T = T {", "    a: 1,", "};"]);
    }

    #[test]
    fn the_reference_is_shown_only_inside_details() {
        let (lines, problems) = page("<details>\n{{#reference code.rs:long}}\n</details>");
        assert_eq!(problems, [""; 0]);
        let body =
            ["pub fn long<T>(", "    a: T,", ") -> T {", "    // task 1.1: think", "    a", "}"];
        assert_eq!(lines[1..lines.len() - 1], body);
        let (_, problems) = page("<details>\n</details>\n{{#reference code.rs:long}}");
        assert!(
            problems[0].starts_with("a.md:3: a reference or a variant must be inside"),
            "{problems:?}"
        );
    }

    #[test]
    fn a_method_is_found_by_its_type() {
        let code: Vec<&str> = "impl A {\n    fn x() {\n        1\n    }\n}\n\
             impl B for C<'_> {\n    fn x() {\n        2\n    }\n}"
            .lines()
            .collect();
        assert_eq!(item(&code, "A::x", false), Ok(1..4));
        assert_eq!(item(&code, "C::x", false), Ok(6..9));
        assert!(item(&code, "D::x", false).is_err());
        assert!(item(&code, "x", false).unwrap_err().contains("more than once"));
        let code: Vec<&str> = "impl A {\n    pub fn x() {\n    }\n}\n\
             impl B for A {\n    fn x() {\n        2\n    }\n}"
            .lines()
            .collect();
        assert_eq!(item(&code, "x", false), Ok(1..3));
    }

    #[test]
    fn a_solution_is_refused() {
        let (lines, problems) = page("{{#include code.rs}}");
        assert_eq!(lines, [""; 0]);
        assert!(problems[0].contains("lines 14 to 16 are a solution"), "{problems:?}");
        let all = ["a", "  // <solution>", "b"];
        assert!(
            refuse_solutions(&all, &(2..3)).is_err(),
            "an unclosed solution extends to the end of the file"
        );
        assert!(refuse_solutions(&all, &(0..1)).is_ok());
    }

    #[test]
    fn invalid_directives_are_reported_with_their_line() {
        for (line, want) in [
            ("{{#include gone.rs}}", "a.md:2: gone.rs: "),
            ("{{#include code.rs:gone}}", "a.md:2: code.rs: no `ANCHOR: gone` here"),
            ("{{#include code.rs:4:5}}", "a.md:2: code.rs: no `ANCHOR: 4:5` here"),
            ("{{#signature code.rs:gone}}", "a.md:2: code.rs: no fn called `gone`"),
            ("see {{#include code.rs}}", "a.md:2: a {{#…}} must be on its own line"),
            ("{{#title x}}", "a.md:2: "),
            ("{{#include code.rs:core docs}}", "a.md:2: {{#include}} doesn't take `docs`"),
            ("> {{#map day10}}", "a.md:2: {{#map}} can't be in a quotation"),
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
