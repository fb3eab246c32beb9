//! `cargo xtask book --refresh` and `--check`: the blocks of the book that come from elsewhere.
//!
//! Code, variants, tables and the style of figures come from files; outputs, messages and the
//! numbers of the paper model from the course's own code. `--refresh` rewrites a block that differs
//! from its source, and touches nothing else; `--check` fails instead. A marker that can't be read,
//! or whose source is gone, is an error, and then nothing is written.

pub mod measured;
pub mod outputs;
pub mod record;

use anyhow::{ensure, Context, Result};
use candecode_book::{figures, links, marked, refuse, Problem};
use candecode_course::Repo;
use clap::Args;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use xtask::checking::table::Sum;
use xtask::{backup, cargo, say};

/// The flags of `book`.
#[derive(Args)]
pub struct Book {
    /// Only pages whose name contains this
    page: Option<String>,
    /// Rewrite the blocks that differ, rather than fail
    #[arg(long)]
    refresh: bool,
    /// Only what needs no build of the engine: code, figures, tables, formulas and links
    #[arg(long, conflicts_with = "broken")]
    quick: bool,
    /// Also the outputs of engines with a known mistake, each of which needs a build
    #[arg(long)]
    broken: bool,
}

/// Runs `book`. The exit code is 1 if a block differs from its source, or can't be compared.
///
/// # Errors
/// If a file can't be read or written, or an engine can't be built.
pub fn run(repo: &Repo, args: &Book) -> Result<ExitCode> {
    let pages = Page::all(repo)?;
    let published = published(repo)?;
    let chapters = pages.iter().filter(|page| page.file.starts_with("book/"));
    let mut problems = links::problems(
        &chapters.map(|page| (page.name.clone(), page.text.clone())).collect(),
        &repo.root.join("book/src"),
    );
    let mut changes = Vec::new();
    for page in &pages {
        let (edits, found) = marked::edits(repo, &published, &page.file, &page.text);
        problems.extend(found);
        problems.extend(outputs::problems(repo, page));
        problems.extend(measured::problems(page));
        changes.push((page, edits));
    }
    problems.extend(record::problems(&pages));
    let figures = drawn(repo, &mut problems)?;
    refuse(problems)?;

    let mut sum = Sum::default();
    let wanted = |name: &str| args.page.as_deref().is_none_or(|part| name.contains(part));
    for (page, edits) in changes.iter().filter(|(page, _)| wanted(&page.name)) {
        sum.add(page.settle(repo, edits, args.refresh)?);
    }
    for (file, old, new) in figures.iter().filter(|(file, ..)| wanted(file)) {
        let same = old == new;
        if !same && args.refresh {
            say!("{file}: updated");
            backup::write(&repo.root.join(file), new.as_bytes())?;
        } else if !same {
            say!("{file}: its style isn't that of {}; {REMEDY}", figures::CSS);
        }
        sum.add(one(same || args.refresh));
    }
    sum.add(measured::compare(&pages, wanted));
    if !args.quick && sum.failed == 0 {
        for page in Page::all(repo)?.iter().filter(|page| wanted(&page.name)) {
            sum.add(outputs::settle(repo, page, args.refresh, args.broken)?);
        }
        for (page, test) in [("paper_model", "paper_model"), ("when_something", "messages")] {
            let shows = |page: &Page| test == "paper_model" && page.text.contains("<!-- paper: ");
            let shown = Page::all(repo)?.iter().any(|page| wanted(&page.name) && shows(page));
            if args.page.is_none() || wanted(page) || shown {
                sum.add(one(run_test(repo, test, args.refresh)?));
            }
        }
    }
    say!("{}", sum.line());
    Ok(ExitCode::from(u8::from(sum.failed > 0)))
}

const REMEDY: &str = "`cargo xtask book --refresh` rewrites it";

fn one(passed: bool) -> Sum {
    Sum { passed: usize::from(passed), failed: usize::from(!passed) }
}

/// Runs a test of this package that compares a page with the course's own code, or rewrites it.
fn run_test(repo: &Repo, test: &str, refresh: bool) -> Result<bool> {
    let mut command = cargo::command(repo);
    command.args(["test", "--quiet", "--package", "candecode-lab", "--test", test]);
    command.envs(refresh.then_some(("CANDECODE_REFRESH", "1")));
    Ok(command.status().context("cannot start cargo")?.success())
}

/// Returns the address of the published book, from `book/book.toml`. Empty if there is none.
fn published(repo: &Repo) -> Result<String> {
    let config: toml::Table = toml::from_str(&repo.read("book/book.toml")?)?;
    let candecode = config.get("preprocessor").and_then(|table| table.get("candecode"));
    let address = candecode.and_then(|table| table.get("published")?.as_str());
    Ok(address.context("book/book.toml: no `published` in [preprocessor.candecode]")?.to_string())
}

/// A page of the book, or the README.
#[derive(Clone)]
pub struct Page {
    /// Its path in the repository.
    pub file: String,
    /// Its file name, such as `day06_generate.md`.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl Page {
    /// Returns all pages, in the order of their names.
    ///
    /// # Errors
    /// If one can't be read.
    pub fn all(repo: &Repo) -> Result<Vec<Page>> {
        let mut pages = Vec::new();
        let readme = repo.root.join("README.md");
        for path in files(&repo.root.join("book/src"), "md")?.into_iter().chain([readme]) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let dir = if name == "README.md" { "" } else { "book/src/" };
            let file = format!("{dir}{name}");
            pages.push(Page { text: repo.read(&file)?, file, name });
        }
        Ok(pages)
    }

    /// Returns the page's measured blocks.
    ///
    /// # Errors
    /// If one has no command, or no end.
    pub fn blocks(&self, lines: &[&str]) -> Result<Vec<measured::Block>> {
        measured::blocks(lines)
            .map_err(|(line, why)| anyhow::anyhow!("{}:{}: {why}", self.file, line + 1))
    }

    /// Writes the blocks that differ, or prints the differences.
    pub fn settle(&self, repo: &Repo, edits: &[marked::Edit], refresh: bool) -> Result<Sum> {
        let lines: Vec<&str> = self.text.lines().collect();
        let mut new: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let mut sum = Sum::default();
        let mut differs = false;
        // From last to first, because an edit moves all lines after it.
        for edit in edits.iter().rev() {
            let place = format!("{}:{}", self.file, edit.line + 1);
            let same = !edit.differs(&lines);
            if !same && refresh {
                say!("{place}: updated");
                new.splice(edit.body.clone(), edit.lines.iter().cloned());
                differs = true;
            } else if !same {
                let old = &lines[edit.body.clone()];
                say!("{place}: differs from its source; {REMEDY}\n{}", diff(old, &edit.lines));
            }
            sum.add(one(same || refresh));
        }
        if differs {
            self.write(repo, &new)?;
        }
        Ok(sum)
    }

    /// Writes the page's new lines. The last one ends as it did.
    pub fn write(&self, repo: &Repo, lines: &[String]) -> Result<()> {
        let end = if self.text.ends_with('\n') { "\n" } else { "" };
        let text = format!("{}{end}", lines.join("\n"));
        backup::write(&repo.root.join(&self.file), text.as_bytes())
    }
}

/// Returns the lines that differ: those of the page after `-`, those that belong there after `+`.
fn diff(old: &[&str], new: &[String]) -> String {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b);
    let tail = tail.count();
    let gone = old[head..old.len() - tail].iter().map(|line| format!("- {line}"));
    let come = new[head..new.len() - tail].iter().map(|line| format!("+ {line}"));
    gone.chain(come).collect::<Vec<_>>().join("\n")
}

/// Returns every figure's file, and its text before and after its head is renewed.
fn drawn(repo: &Repo, problems: &mut Vec<Problem>) -> Result<Vec<(String, String, String)>> {
    let css = repo.read(figures::CSS)?;
    let mut found = Vec::new();
    for dir in ["book/src/figures", "book/src/bench"] {
        for path in files(&repo.root.join(dir), "svg")? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let file = format!("{dir}/{name}");
            let old = repo.read(&file)?;
            match figures::standalone(&css, &old) {
                Ok(new) => found.push((file, old, new)),
                Err((line, message)) => problems.push(Problem { file, line, message }),
            }
        }
    }
    ensure!(!found.is_empty() || !problems.is_empty(), "book/src/figures has no figures");
    Ok(found)
}

/// Returns a folder's files with this extension, in order.
fn files(dir: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension() == Some(OsStr::new(extension)));
    files.sort();
    Ok(files)
}
