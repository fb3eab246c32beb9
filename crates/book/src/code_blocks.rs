//! Checks code blocks: Rust must come from compiled files, and the language must be one that the
//! pages can highlight.

use crate::source::{CodeBlock, Page, Problems};

/// Languages that the pages' highlighter knows and that a chapter might use.
const LANGUAGES: [&str; 16] = [
    "bash", "c", "console", "cpp", "diff", "html", "ini", "json", "lua", "markdown", "python",
    "rust", "sh", "text", "toml", "yaml",
];

/// Reports Rust that was typed directly into a page, and languages that can't be highlighted.
pub fn check(page: &Page, blocks: &[CodeBlock], problems: &mut Problems) {
    for block in blocks {
        let at = &page.lines[block.fence].at;
        let language = block.info.split([',', ' ']).next().unwrap_or_default();
        if !LANGUAGES.contains(&language) {
            let known = LANGUAGES.join(", ");
            let what = if language.is_empty() { "none" } else { language };
            problems.add(at, format!("unknown code language ({what}): use one of {known}"));
        }
        let body = &page.lines[block.body.clone()];
        let typed = body.iter().find(|l| l.at.file == at.file && !l.text.trim().is_empty());
        if let Some(line) = typed.filter(|_| language == "rust") {
            let why = "Rust in the book must come from a compiled file: {{#include}} it";
            problems.add(&line.at, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(markdown: &str) -> Vec<String> {
        let mut problems = Problems::default();
        let page = Page::new("a.md", markdown);
        let blocks = page.code_blocks(&mut problems);
        check(&page, &blocks, &mut problems);
        problems.list()
    }

    #[test]
    fn a_rust_code_block_in_a_chapter_is_a_problem() {
        let found = problems("```rust\n\nlet x = 1;\n```");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a.md:3: Rust in the book"), "{found:?}");
        assert_eq!(problems("```text\nlet x = 1;\n```"), [""; 0]);
    }

    #[test]
    fn a_language_without_highlighting_is_a_problem() {
        assert!(problems("```elisp\n```")[0].starts_with("a.md:1: unknown code language (elisp)"));
        assert!(problems("```\n```")[0].starts_with("a.md:1: unknown code language (none)"));
    }
}
