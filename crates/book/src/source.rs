//! Lines of text that remember where they came from, and the problems found in them.

use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

/// A file (relative to the repository) and a line number (from 1), for messages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    pub file: Rc<str>,
    pub line: usize,
}

/// One line of a page, without its newline.
#[derive(Clone, Debug)]
pub struct Line {
    pub text: String,
    pub at: Origin,
}

/// The Markdown of one page.
#[derive(Clone, Debug)]
pub struct Page {
    pub lines: Vec<Line>,
}

/// A fenced code block: its info string, the index of its opening fence, and those of the lines
/// between the fences.
#[derive(Debug, PartialEq)]
pub struct CodeBlock {
    pub info: String,
    pub fence: usize,
    pub body: std::ops::Range<usize>,
}

impl Page {
    /// Splits a file's text into lines.
    pub fn new(file: &str, text: &str) -> Page {
        let file: Rc<str> = file.into();
        let line = |(i, text): (usize, &str)| Line {
            text: text.to_string(),
            at: Origin { file: file.clone(), line: i + 1 },
        };
        Page { lines: text.lines().enumerate().map(line).collect() }
    }

    /// Returns the whole text, with a newline after every line.
    pub fn text(&self) -> String {
        self.lines.iter().flat_map(|line| [line.text.as_str(), "\n"]).collect()
    }

    /// Returns the origin of the line at byte `offset` of [`Page::text`].
    pub fn at(&self, text: &str, offset: usize) -> Origin {
        let index = text[..offset].matches('\n').count();
        let last = self.lines.len().saturating_sub(1);
        match self.lines.get(index.min(last)) {
            Some(line) => line.at.clone(),
            None => Origin { file: "an empty page".into(), line: 1 },
        }
    }

    /// Returns the fenced code blocks in order, and reports fences that never close.
    pub fn code_blocks(&self, problems: &mut Problems) -> Vec<CodeBlock> {
        let mut blocks = Vec::new();
        let mut open: Option<(usize, String, String)> = None;
        for (i, line) in self.lines.iter().enumerate() {
            let text = line.text.trim_start_matches([' ', '>']);
            let Some((fence, info)) = split_fence(text) else {
                continue;
            };
            match &open {
                None => open = Some((i, fence.to_string(), info.to_string())),
                Some((start, opening, was)) if fence.starts_with(opening) && info.is_empty() => {
                    let block = CodeBlock { info: was.clone(), fence: *start, body: start + 1..i };
                    blocks.push(block);
                    open = None;
                }
                Some(_) => {}
            }
        }
        if let Some((start, _, _)) = open {
            problems.add(&self.lines[start].at, "this code block never ends");
        }
        blocks
    }
}

/// Splits a code fence into its fence characters and info string. None for other lines.
fn split_fence(text: &str) -> Option<(&str, &str)> {
    let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = text.len() - text.trim_start_matches(mark).len();
    let info = text[length..].trim();
    (length >= 3 && !info.contains('`')).then_some((&text[..length], info))
}

/// The problems in the book, sorted by file and line, without duplicates.
#[derive(Default)]
pub struct Problems(BTreeSet<(Origin, String)>);

impl Problems {
    /// Records one problem.
    pub fn add(&mut self, at: &Origin, message: impl Into<String>) {
        self.0.insert((at.clone(), message.into()));
    }

    /// Returns an error that lists all problems, if there are any.
    pub fn into_result(self) -> anyhow::Result<()> {
        anyhow::ensure!(self.0.is_empty(), "{self}");
        Ok(())
    }

    #[cfg(test)]
    pub fn list(&self) -> Vec<String> {
        self.0.iter().map(|(at, what)| format!("{}:{}: {what}", at.file, at.line)).collect()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (at, message) in &self.0 {
            writeln!(f, "{}:{}: {message}", at.file, at.line)?;
        }
        let n = self.0.len();
        write!(f, "the book has {n} problem{}", if n == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_closed_by_at_least_as_many_marks() {
        let page = Page::new("a.md", "````md\n```\nx\n```\n````\n> ~~~\n> y\n> ~~~\n");
        let blocks = page.code_blocks(&mut Problems::default());
        let bodies: Vec<_> = blocks.iter().map(|b| (b.info.as_str(), b.body.clone())).collect();
        assert_eq!(bodies, [("md", 1..4), ("", 6..7)]);
    }

    #[test]
    fn an_unclosed_fence_is_a_problem() {
        let mut problems = Problems::default();
        Page::new("a.md", "x\n```rust\ny\n").code_blocks(&mut problems);
        assert_eq!(problems.list(), ["a.md:2: this code block never ends"]);
    }

    #[test]
    fn an_offset_maps_back_to_its_line() {
        let page = Page::new("a.md", "one\ntwo\nthree");
        let text = page.text();
        assert_eq!(page.at(&text, text.find("three").unwrap()).line, 3);
    }
}
