//! The book's chapters: the blocks whose contents come from elsewhere (code, figures, tables), the
//! formulas, and the links. `cargo xtask book --refresh` and `--check` use this library, and so
//! does the preprocessor that turns chapters into pages.
#![warn(missing_docs)]

mod excerpt;
pub mod figures;
pub mod links;
pub mod marked;
pub mod prose;

use std::fmt;

/// A problem in a file of the book.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file, relative to the repository.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and how to fix it.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// Returns an error that lists all problems, if there are any.
///
/// # Errors
/// If there is a problem.
pub fn refuse(mut problems: Vec<Problem>) -> anyhow::Result<()> {
    problems.sort();
    problems.dedup();
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    let s = if lines.len() == 1 { "" } else { "s" };
    anyhow::ensure!(
        lines.is_empty(),
        "{}\nthe book has {} problem{s}",
        lines.join("\n"),
        lines.len()
    );
    Ok(())
}
