//! Reads a model's files. A missing file is None. An unreadable file, something that isn't a
//! regular file, and a web page or Git LFS pointer saved in its place each get their own error.

use anyhow::{bail, ensure, Context as _, Result};
use candecode_kit::python_json;
use serde_json::Value;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _};
use std::path::Path;

/// Opens a file. Returns None if it doesn't exist.
///
/// # Errors
/// If the file can't be read or is not a regular file (reading a named pipe could block forever),
/// or if it holds a Git LFS pointer or a web page instead of the real content.
pub fn open(path: &Path) -> Result<Option<File>> {
    let shown = path.display();
    let described = |error: std::io::Error| match error.kind() {
        ErrorKind::PermissionDenied => {
            anyhow::anyhow!("{shown}: you have no permission to read it; ask its owner for access")
        }
        _ => anyhow::anyhow!("{shown}: could not be read ({error})"),
    };
    let metadata = match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(described)?,
    };
    ensure!(!metadata.is_dir(), "{shown}: this is a folder, and should be a file");
    ensure!(
        metadata.is_file(),
        "{shown}: not a regular file (a pipe or a device?); models are read from regular files only"
    );
    let mut file = File::open(path).map_err(described)?;
    let mut start = Vec::new();
    let read = (&file).take(256).read_to_end(&mut start).and_then(|_| file.rewind());
    read.map_err(described)?;
    if let Some(instead) = something_else(&start) {
        bail!("{shown}: {instead}");
    }
    Ok(Some(file))
}

/// Recognizes, by its first bytes, a Git LFS pointer or a web page saved instead of the file.
fn something_else(start: &[u8]) -> Option<&'static str> {
    let text = start.strip_prefix("\u{feff}".as_bytes()).unwrap_or(start).trim_ascii_start();
    let begins = |with: &str| {
        text.get(..with.len()).is_some_and(|text| text.eq_ignore_ascii_case(with.as_bytes()))
    };
    if begins("version https://git-lfs.github.com/") || begins("version https://hawser.github.com/")
    {
        return Some(
            "this is a Git LFS pointer, not the file itself; run git lfs pull in its folder",
        );
    }
    // Storage servers send errors as XML.
    let page =
        ["<!doctype html", "<html", "<head", "<?xml", "<error"].iter().any(|tag| begins(tag));
    page.then_some("this is a web page, not the file itself; fetch the file again")
}

/// Returns a file's bytes, or None if it doesn't exist.
///
/// # Errors
/// Same as [`open`], or if reading fails partway.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    let Some(mut file) = open(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)
        .with_context(|| format!("{}: could not be read", path.display()))?;
    Ok(Some(bytes))
}

/// Returns a file's text, or None if it doesn't exist.
///
/// # Errors
/// Same as [`read`], or if the file isn't UTF-8.
pub fn read_text(path: &Path) -> Result<Option<String>> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => bail!("{}: not UTF-8 text", path.display()),
    }
}

/// Returns a file's JSON, or None if it doesn't exist.
///
/// # Errors
/// Same as [`read_text`], or if the file isn't JSON.
pub fn read_json(path: &Path) -> Result<Option<Value>> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    python_json::parse(&text).map(Some).with_context(|| format!("{}: not JSON", path.display()))
}
