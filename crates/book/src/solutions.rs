//! The book prints the solution of a task in a fold for after the check, by `{{#reference}}`, and
//! nowhere else: not by an include, not by a copy.

use crate::include::shown_name;
use crate::source::{CodeBlock, Page, Problems};
use anyhow::{Context, Result};
use std::ops::Range;
use std::path::Path;

const OPEN: &str = "// <solution>";
const CLOSE: &str = "// </solution>";
/// So many lines of a solution in a row, word for word, are a copy and no coincidence.
const COPY: usize = 3;
/// Lines shorter than this (a brace, `let x = y;`) say nothing about where they came from.
const TELLING: usize = 12;

/// Whether a line opens or closes a solution.
pub fn is_marker(line: &str) -> bool {
    matches!(line.trim(), OPEN | CLOSE)
}

/// The marked regions of a file, markers included, as indices of lines.
fn regions(all: &[&str]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut open = None;
    for (i, line) in all.iter().enumerate() {
        match line.trim() {
            OPEN => open = Some(i),
            CLOSE => found.extend(open.take().map(|start| start..i + 1)),
            _ => {}
        }
    }
    found.extend(open.map(|start| start..all.len()));
    found
}

/// Says no to a range of lines that shows part of a marked region.
pub fn refuse(all: &[&str], range: &Range<usize>) -> Result<(), String> {
    let meets = |region: &Range<usize>| region.start < range.end && range.start < region.end;
    match regions(all).into_iter().find(meets) {
        Some(region) => Err(format!(
            "lines {} to {} are a solution, which the book shows in a fold only, by {{{{#reference FILE:NAME}}}}; \
             to show what to write, use {{{{#signature FILE:NAME}}}}",
            region.start + 1,
            region.end
        )),
        None => Ok(()),
    }
}

/// The telling lines of one marked region.
pub struct Solution {
    file: String,
    lines: Vec<String>,
}

/// Reads every solution of the repository.
pub fn load(root: &Path) -> Result<Vec<Solution>> {
    let mut found = Vec::new();
    let dir = root.join("solutions");
    let Ok(entries) = std::fs::read_dir(&dir) else {
        return Ok(found);
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|e| e != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let all: Vec<&str> = text.lines().collect();
        for region in regions(&all) {
            let lines = telling(all[region].iter().copied());
            found.push(Solution { file: shown_name(&path, root), lines });
        }
    }
    Ok(found)
}

/// Lines without indentation and diff signs, comments and short ones left out.
fn telling<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let plain = lines.map(|line| line.trim_start_matches(['+', '-', ' ']).trim());
    plain.filter(|l| l.len() >= TELLING && !l.starts_with("//")).map(str::to_string).collect()
}

/// Finds code blocks of a page that repeat a solution.
pub fn check(page: &Page, blocks: &[CodeBlock], solutions: &[Solution], problems: &mut Problems) {
    for block in blocks {
        let body = &page.lines[block.body.clone()];
        let at = &page.lines[block.fence].at;
        let typed = body.iter().filter(|line| line.at.file == at.file);
        let lines = telling(typed.map(|l| l.text.as_str()));
        for solution in solutions {
            let n = solution.lines.len().min(COPY);
            let copied = n > 0
                && (n == COPY || solution.lines.iter().any(|l| l.len() > 40))
                && solution.lines.windows(n).any(|w| lines.windows(n).any(|l| l == w));
            if copied {
                problems.add(at, format!("this code block copies a solution of {}", solution.file));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(markdown: &str) -> Vec<String> {
        let body = ["let scale = 1.0;", "let scores = q * k;", "softmax(&scores, 1)"];
        let lines = body.map(str::to_string).to_vec();
        let solutions = [Solution { file: "solutions/day01_attention.rs".into(), lines }];
        let mut problems = Problems::default();
        let page = Page::new("a.md", markdown);
        let blocks = page.code_blocks(&mut problems);
        check(&page, &blocks, &solutions, &mut problems);
        problems.list()
    }

    #[test]
    fn a_copied_solution_is_found_in_any_block() {
        let copy =
            "```diff\n+let scale = 1.0;\n\n   let scores = q * k;\n+ softmax(&scores, 1)\n```";
        let want = "a.md:1: this code block copies a solution of solutions/day01_attention.rs";
        assert_eq!(problems(copy), [want]);
        assert_eq!(problems("```diff\n-let scale = 1.0;\n+let scale = 2.0;\n```"), [""; 0]);
    }

    #[test]
    fn an_open_region_reaches_to_the_end() {
        let all = ["a", "  // <solution>", "b"];
        assert!(refuse(&all, &(2..3)).is_err());
        assert!(refuse(&all, &(0..1)).is_ok());
    }
}
