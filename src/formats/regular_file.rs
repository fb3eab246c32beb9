//! The files of a model: read if they are regular files, and told apart if they are missing, forbidden or something else.

use anyhow::{bail, ensure, Context as _, Result};
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

/// Opens a file; None if there is no file of that name.
///
/// # Errors
/// If it cannot be read, or is no regular file: a named pipe, say, whose reader would wait for ever.
pub fn open(path: &Path) -> Result<Option<File>> {
    let shown = path.display();
    let described = |error: std::io::Error| match error.kind() {
        ErrorKind::PermissionDenied => {
            anyhow::anyhow!("{shown}: you have no permission to read it; ask its owner for it")
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
    File::open(path).map(Some).map_err(described)
}

/// The bytes of a file; None if there is no file of that name.
///
/// # Errors
/// As [`open`].
pub fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    let Some(mut file) = open(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)
        .with_context(|| format!("{}: could not be read", path.display()))?;
    Ok(Some(bytes))
}

/// The text of a file; None if there is no file of that name.
///
/// # Errors
/// As [`open`], and if it is not UTF-8.
pub fn read_text(path: &Path) -> Result<Option<String>> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => bail!("{}: not UTF-8 text", path.display()),
    }
}
