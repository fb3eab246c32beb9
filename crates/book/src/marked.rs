//! Blocks of a chapter whose contents come from elsewhere. A marker above a block says from where:
//!
//! | marker | what it shows |
//! |---|---|
//! | `<!-- code: FILE NAME signature -->` | the head of a function |
//! | `<!-- code: FILE NAME item -->` | a whole struct, enum, trait, constant or function |
//! | `<!-- code: FILE NAME reference -->` | a function of the reference, in `<details>` only |
//! | `<!-- code: FILE NAME anchor -->` | the lines between `ANCHOR: NAME` and `ANCHOR_END: NAME` |
//! | `<!-- code: FILE all -->` | the whole file |
//! | `<!-- variant: dayNN NAME -->` | another solution, in `<details>` only |
//! | `<!-- live: NAME -->` | where the figure is interactive |
//! | `<!-- published: … -->` | where the published book is |
//!
//! After `signature` and `item`, `docs` shows the documentation, too. Several `code` markers above
//! one block are shown with an empty line between them.

use crate::excerpt::{anchored, cut, item, refuse_solutions, signature};
use crate::prose::{prefix, Chapter};
use crate::Problem;
use candecode_course::stubs::is_marker;
use candecode_course::Repo;
use std::ops::Range;

/// The scripts of the live figures.
pub const SCRIPTS: &str = "book/src/live/figures";

/// The test that computes the numbers of the paper model.
const PAPER: &str = "crates/lab/tests/paper_model.rs";

/// Markers whose blocks this module fills, and those that `candecode-lab` or people take care of.
const KINDS: [&str; 11] = [
    "code",
    "variant",
    "live",
    "published",
    "output",
    "broken",
    "in the table",
    "paper",
    "measured",
    "prose",
    "by hand",
];

/// A block, and the lines that should be there.
#[derive(Debug, PartialEq)]
pub struct Edit {
    /// The index of the last marker's line.
    pub line: usize,
    /// The block's lines.
    pub body: Range<usize>,
    /// The lines from the source.
    pub lines: Vec<String>,
}

impl Edit {
    /// Returns whether the block differs from its source.
    pub fn differs(&self, page: &[&str]) -> bool {
        page[self.body.clone()] != self.lines
    }
}

/// Splits a marker into its kind and the rest.
pub fn marker(line: &str) -> Option<(&str, &str)> {
    let inside = prefix(line).1.trim_end().strip_prefix("<!-- ")?.strip_suffix("-->")?;
    let (kind, rest) = inside.split_once(": ")?;
    Some((kind, rest.trim()))
}

/// Returns a chapter's marked blocks with the lines from their sources, and its problems.
///
/// `published` is the address of the published book, if there is one.
pub fn edits(repo: &Repo, published: &str, file: &str, text: &str) -> (Vec<Edit>, Vec<Problem>) {
    let chapter = Chapter::new(text);
    let lines: Vec<&str> = text.lines().collect();
    let mut edits = Vec::new();
    let mut problems = Vec::new();
    let mut add = |line: usize, message: String| {
        problems.push(Problem { file: file.to_string(), line, message });
    };
    if text.contains('\r') {
        let line = crate::prose::line_at(text, text.find('\r').unwrap_or(0));
        add(line, "Windows line ends: save the file with LF, as .gitattributes asks for".into());
        return (edits, problems);
    }
    let in_fence = |i: usize| chapter.fences.iter().any(|f| f.open < i && i < f.close);
    let mut folds = 0;
    let mut wanted: Vec<String> = Vec::new();
    for (i, line) in lines.iter().enumerate().filter(|(i, _)| !in_fence(*i)) {
        folds += line.matches("<details").count();
        folds -= line.matches("</details>").count().min(folds);
        let Some((kind, rest)) = marker(line) else {
            continue;
        };
        if !KINDS.contains(&kind) {
            let known = KINDS.join(", ");
            add(i + 1, format!("unknown marker `{kind}`: expected one of {known}"));
            continue;
        }
        let (before, _) = prefix(line);
        let found = match kind {
            "code" => code(repo, rest, folds > 0),
            "variant" if folds == 0 => Err("a variant must be inside <details>".into()),
            "variant" => variant(repo, rest),
            "live" => live(repo, published, file, rest),
            "published" if published.is_empty() => {
                Ok(vec!["It isn't published anywhere yet.".into()])
            }
            "published" => Ok(vec![format!("It's published: <{published}>.")]),
            "paper" => match repo.read(PAPER).map_err(|e| format!("{e:#}")) {
                Ok(test) if test.contains(&format!("\"{rest}\"")) => continue,
                Ok(_) => Err(format!("{PAPER} computes no {rest}")),
                Err(message) => Err(message),
            },
            _ => continue,
        };
        let new = match found {
            Ok(new) => new,
            Err(message) => {
                add(i + 1, message);
                wanted.clear();
                continue;
            }
        };
        let next_is_code =
            lines.get(i + 1).and_then(|l| marker(l)).is_some_and(|(next, _)| next == "code");
        if kind == "code" && next_is_code {
            wanted.extend(new);
            wanted.push(String::new());
            continue;
        }
        let body = match kind {
            "live" | "published" => {
                (i + 1..lines.len()).find(|&j| lines[j].trim().is_empty()).map(|j| i + 1..j)
            }
            _ => chapter.fences.iter().find(|f| f.open == i + 1).map(|f| f.open + 1..f.close),
        };
        let Some(body) = body else {
            add(
                i + 1,
                match kind {
                    "live" | "published" => {
                        "an empty line must follow the line after this marker".into()
                    }
                    _ => {
                        "a fenced block must follow this marker: ```rust, or ```diff for a variant"
                            .into()
                    }
                },
            );
            wanted.clear();
            continue;
        };
        wanted.extend(new);
        let new = wanted.drain(..).map(|line| format!("{before}{line}").trim_end().to_string());
        edits.push(Edit { line: i, body, lines: new.collect() });
    }
    for fence in chapter.fences.iter().filter(|fence| fence.info == "rust") {
        let is_marked = fence.open > 0 && marker(lines[fence.open - 1]).is_some();
        if !is_marked {
            let why = "Rust in the book must come from a compiled file: put \
                       `<!-- code: FILE NAME item -->` above this line";
            add(fence.open + 1, why.into());
        }
    }
    for (place, message) in &chapter.problems {
        add(crate::prose::line_at(text, *place), message.clone());
    }
    (edits, problems)
}

/// Returns the code that a marker asks for.
fn code(repo: &Repo, rest: &str, folded: bool) -> Result<Vec<String>, String> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let (file, name, kind, docs) = match words[..] {
        [file, "all"] => (file, "", "all", false),
        [file, name, kind] => (file, name, kind, false),
        [file, name, kind @ ("signature" | "item"), "docs"] => (file, name, kind, true),
        _ => {
            return Err(format!(
                "cannot read `{rest}`: write FILE NAME and signature, item, reference or anchor, \
                 as in `solutions/day10_kv_cache.rs concat signature docs`, or FILE all"
            ))
        }
    };
    let text = repo.read(file).map_err(|e| format!("{e:#}"))?;
    let all: Vec<&str> = text.lines().collect();
    let range = match kind {
        "all" => Ok(0..all.len()),
        "anchor" => anchored(&all, name),
        "signature" => signature(&all, name, docs),
        "item" | "reference" => item(&all, name, docs),
        _ => Err(format!("unknown word `{kind}`: write signature, item, reference or anchor")),
    };
    let range = range.map_err(|e| format!("{file}: {e}"))?;
    if kind != "reference" {
        refuse_solutions(&all, &range).map_err(|e| format!("{file}: {e}"))?;
    } else if !folded {
        return Err("a reference must be inside <details>: it's for after the check".into());
    }
    let mut lines = cut(&all, range);
    if kind == "signature" {
        if let Some(last) = lines.last_mut() {
            // A function that fits on one line has its body there, too.
            let end = last.find(" {").unwrap_or(last.len());
            last.truncate(end);
        }
    }
    Ok(lines)
}

/// Returns another solution, `dayNN NAME`, as the lines of a diff from the reference.
fn variant(repo: &Repo, rest: &str) -> Result<Vec<String>, String> {
    let (day, name) = rest.split_once(' ').ok_or("write `variant: dayNN NAME`")?;
    let day = repo.day(day).map_err(|e| format!("{e:#}"))?;
    let all = repo.mistakes(day).map_err(|e| format!("{e:#}"))?.variants;
    let found = all.into_iter().find(|variant| variant.name == name);
    let found = found.ok_or_else(|| format!("{} has no variant `{name}`", day.mistakes()))?;
    let mut lines = Vec::new();
    for edit in &found.change.edits {
        for (text, sign) in [(&edit.find, '-'), (&edit.replace, '+')] {
            let shown = text.lines().filter(|line| !is_marker(line));
            lines.extend(shown.map(|line| format!("{sign}{line}").trim_end().to_string()));
        }
    }
    Ok(lines)
}

/// Returns the line that says where a figure is live.
fn live(repo: &Repo, published: &str, file: &str, name: &str) -> Result<Vec<String>, String> {
    let script = format!("{SCRIPTS}/{name}.js");
    if !repo.root.join(&script).is_file() {
        return Err(format!("{script}: no such live figure"));
    }
    if published.is_empty() {
        let how = "`cargo xtask book --live --open`";
        return Ok(vec![format!("(In the built book, this figure is interactive: {how}.)")]);
    }
    let page = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".md");
    let base = published.trim_end_matches('/');
    let there = format!("[the published book]({base}/{page}.html)");
    Ok(vec![format!("(This figure is interactive in {there}.)")])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn read(text: &str) -> (Vec<Edit>, Vec<String>) {
        let repo = Repo::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
        let (edits, problems) = edits(&repo, "https://a.b/", "book/src/day02_positions.md", text);
        (edits, problems.iter().map(|p| format!("{}: {}", p.line, p.message)).collect())
    }

    const CODE: &str = "<!-- code: solutions/day10_kv_cache.rs";

    #[test]
    fn blocks_get_their_source_and_nothing_else_changes() {
        let text = format!(
            "a\n\n> {CODE} concat signature -->\n\
             > {CODE} View2 signature -->\n> ```rust\n> old\n> ```\n"
        );
        let (found, problems) = read(&text.replace("View2", "held"));
        assert_eq!(problems, [""; 0]);
        let concat = "> pub fn concat(old: &Tensor, new: &Tensor) -> Result<Tensor>";
        assert_eq!((found[0].line, found[0].body.clone()), (3, 5..6));
        assert_eq!(found[0].lines[..2], [concat, ">"]);
        assert!(found[0].lines[2].contains("fn held(") && found[0].differs(&["> old"; 6]));
    }

    #[test]
    fn a_solution_is_shown_only_in_a_fold() {
        let block = |kind| format!("{CODE} concat {kind} -->\n```rust\n```\n");
        let (found, problems) = read(&format!("<details>\n\n{}\n</details>", block("reference")));
        assert!(problems.is_empty() && found[0].lines.last().unwrap() == "}", "{problems:?}");
        let (found, problems) = read(&block("reference"));
        assert!(found.is_empty() && problems[0].starts_with("1: a reference must be inside"));
        assert!(read(&block("item")).1[0].contains("are a solution"));
        let variant = "<!-- variant: day06 for_loop -->\n```diff\n```\n";
        assert!(read(variant).1[0].contains("must be inside <details>"));
        let folded = read(&format!("<details>\n{variant}</details>")).0;
        assert!(folded[0].lines.iter().all(|line| line.starts_with(['-', '+'])));
    }

    #[test]
    fn a_live_figure_needs_no_fence() {
        let (found, problems) = read("<!-- live: rope -->\nx\n\ny");
        assert_eq!(problems, [""; 0]);
        let line = &found[0].lines[0];
        assert!(line.contains("[the published book](https://a.b/day02_positions.html)"), "{line}");
        assert_eq!(found[0].body, 1..2);
    }

    #[test]
    fn a_wrong_marker_is_a_problem_with_a_line() {
        for (text, want) in [
            (
                format!("\n{CODE} gone item -->\n```rust\n```"),
                "2: solutions/day10_kv_cache.rs: no item called `gone`",
            ),
            (format!("{CODE} append signature -->\n```rust\n```"), "`append` is defined 3 times"),
            (format!("{CODE} concat sign -->\n```rust\n```"), "unknown word `sign`"),
            (format!("{CODE} concat -->\n```rust\n```"), "cannot read `solutions"),
            (format!("{CODE} concat signature -->\n\n```rust\n```"), "a fenced block must follow"),
            ("<!-- code: solutions/gone.rs a item -->\n```rust\n```".into(), "solutions/gone.rs"),
            ("<!-- cod: x -->".into(), "unknown marker `cod`"),
            ("<!-- paper: gone -->".into(), "paper_model.rs computes no gone"),
            ("<!-- live: gone -->\nx\n\n".into(), "gone.js: no such live figure"),
            ("```rust\nlet x = 1;\n```".into(), "1: Rust in the book must come from"),
            ("a\r\nb\r\n".into(), "1: Windows line ends"),
            ("a\n$5".into(), "2: an unpaired dollar"),
        ] {
            let (_, problems) = read(&text);
            assert!(problems.iter().any(|said| said.contains(want)), "{text}: {problems:?}");
        }
    }
}
