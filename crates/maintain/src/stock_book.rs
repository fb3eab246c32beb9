//! Checks that mdBook's own command, from the registry, builds the same book as `cargo xtask book`.

use anyhow::{ensure, Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::cargo;
use xtask::repo::Repo;

/// The version in `book/book.toml`, and of the library in the book tool.
const VERSION: &str = "0.5.4";

/// Installs mdBook into `target/mdbook`, builds the book with it, and compares the pages with those
/// of `book/book`, byte by byte.
///
/// # Errors
/// If mdBook cannot be had, cannot build the book, or builds another one.
pub fn compare(repo: &Repo) -> Result<()> {
    let target = cargo::target_dir(repo);
    let root = target.join("mdbook");
    let status = cargo::command(repo)
        .args(["install", "mdbook", "--version", VERSION, "--locked", "--quiet", "--debug"])
        // Without its server it compiles in half the time.
        .args(["--no-default-features", "--features", "search", "--root"])
        .arg(&root)
        .arg("--target-dir")
        .arg(root.join("build"))
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "mdBook {VERSION} could not be installed");
    let stock = target.join("book-stock");
    let status = Command::new(root.join("bin/mdbook"))
        .args(["build", "book", "--dest-dir"])
        .arg(&stock)
        .current_dir(&repo.root)
        .status()
        .context("cannot start mdBook")?;
    ensure!(status.success(), "`mdbook build book` failed");
    let found = differences(files(&repo.root.join("book/book"))?, files(&stock)?);
    let all = found.join(", ");
    ensure!(
        found.is_empty(),
        "`mdbook build book` and `cargo xtask book` differ in {all} (if it's searchindex.js alone: \
         Cargo.lock needs the version of elasticlunr-rs that mdBook's own lock file has)"
    );
    Ok(())
}

/// The files of a folder, by their names in it.
type Files = BTreeMap<PathBuf, Vec<u8>>;

fn files(folder: &Path) -> Result<Files> {
    let mut found = Files::new();
    let mut todo = vec![folder.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                todo.push(path);
            } else {
                found.insert(path.strip_prefix(folder)?.to_path_buf(), fs::read(&path)?);
            }
        }
    }
    ensure!(!found.is_empty(), "{}: an empty folder", folder.display());
    Ok(found)
}

/// The names of the files that are in one folder only, or have other contents in the other.
fn differences(ours: Files, mut theirs: Files) -> Vec<String> {
    let differ = |(name, ours): &(PathBuf, Vec<u8>)| theirs.remove(name).as_ref() != Some(ours);
    let mut found: Vec<PathBuf> = ours.into_iter().filter(differ).map(|(name, _)| name).collect();
    found.extend(theirs.into_keys());
    found.iter().map(|name| name.display().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_missing_new_or_changed_is_a_difference() {
        let folder = |files: &[(&str, &str)]| -> Files {
            files.iter().map(|(name, text)| (name.into(), text.as_bytes().to_vec())).collect()
        };
        let ours = folder(&[("a.html", "a"), ("b.html", "b"), ("c.html", "c")]);
        assert_eq!(differences(ours.clone(), ours.clone()), [""; 0]);
        let theirs = folder(&[("a.html", "a"), ("b.html", "B"), ("d.html", "d")]);
        assert_eq!(differences(ours, theirs), ["b.html", "c.html", "d.html"]);
    }
}
