//! The page that says which machine printed each measured block, and at which commit.

use super::Page;
use anyhow::{Context, Result};
use candecode_book::Problem;

/// The page.
pub const PAGE: &str = "measurements.md";
/// The line after its rows.
pub const END: &str = "<!-- end of the record -->";

/// Returns the record's text with a row for a command: its machine, commit and seconds. Leaves out
/// the rows of commands that no page has any more, and puts the others in the book's order.
///
/// # Errors
/// If the record has no table, or a page has a damaged block.
pub fn with(text: &str, pages: &[Page], command: &str, row: &str) -> Result<String> {
    let mut all = rows(text);
    all.retain(|row| !is_of(row, command));
    all.push(format!("{} | {row}", cell(command)));
    let mut kept = String::new();
    for command in commands(pages)? {
        for row in all.iter().filter(|row| is_of(row, &command)) {
            kept += &format!("{row}\n");
        }
    }
    let missing = || format!("{PAGE} has no table that ends with `{END}`");
    let (before, after) = text.split_once(END).with_context(missing)?;
    let (head, _) = before.split_once("--:|\n").with_context(missing)?;
    Ok(format!("{head}--:|\n{kept}\n{END}{after}"))
}

/// Returns the commands of all measured blocks, in the book's order, each once.
fn commands(pages: &[Page]) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for page in pages {
        for block in page.blocks(&page.text.lines().collect::<Vec<_>>())? {
            if !all.contains(&block.command) {
                all.push(block.command);
            }
        }
    }
    Ok(all)
}

/// Returns the beginning of a command's row.
fn cell(command: &str) -> String {
    format!("| `{}`", command.replace('|', "\\|"))
}

fn is_of(row: &str, command: &str) -> bool {
    row.starts_with(&format!("{} |", cell(command)))
}

/// Returns the record's rows.
fn rows(text: &str) -> Vec<String> {
    text.lines().filter(|line| line.starts_with("| `")).map(str::to_string).collect()
}

/// Returns the problems with the record: commands without a row, and rows without a command.
pub fn problems(pages: &[Page]) -> Vec<Problem> {
    let (Ok(commands), Some(page)) = (commands(pages), pages.iter().find(|page| page.name == PAGE))
    else {
        return Vec::new(); // a damaged block is a problem of its page
    };
    let rows = rows(&page.text);
    let unknown = rows.iter().filter(|row| !commands.iter().any(|command| is_of(row, command)));
    let unmeasured = commands.iter().filter(|command| !rows.iter().any(|row| is_of(row, command)));
    let problem = |message| Problem { file: page.file.clone(), line: 1, message };
    let remedy = "`cargo lab measure` writes the record";
    let unmeasured = unmeasured
        .map(|command| problem(format!("no row says who measured `{command}`; {remedy}")));
    let unknown = unknown.map(|row| problem(format!("no block shows {row}; {remedy}")));
    unmeasured.chain(unknown).collect()
}
