//! Reads text from outside: files named by flags, standard input, and chat input. The size is
//! limited, and reading a file never blocks forever.

use anyhow::{anyhow, ensure, Context as _, Result};
use candecode::kit::error::usage;
use std::fs::File;
use std::io::{BufRead, Read};
use std::path::Path;

/// The longest text to read, in bytes. Any text that fits a model's context is shorter.
const LONGEST: u64 = 64 << 20;

/// Reads the text of a file named by a flag. Also reads pipes opened by the shell, such as
/// `<(sort words)`.
///
/// # Errors
/// If it is a folder or a named pipe, is longer than 64 MiB, isn't UTF-8, or can't be read.
pub fn text_file(flag: &str, file: &Path) -> Result<String> {
    let shown = format!("{flag} {}", file.display());
    let open = || format!("{shown}: could not be read");
    let read = || format!("{shown}: could not be read as UTF-8 text");
    let metadata = std::fs::metadata(file).with_context(open)?;
    ensure!(!metadata.is_dir(), "{shown}: this is a folder, and should be a file");
    ensure!(
        !is_named_pipe(file, &metadata),
        usage(format!("{shown}: this is a named pipe, which may never end; give a file"))
    );
    let text = whole(File::open(file).with_context(open)?).with_context(read)?;
    text.ok_or_else(|| anyhow!("{shown}: longer than 64 MiB; give a shorter text"))
}

/// Reads the text on standard input.
///
/// # Errors
/// If it is longer than 64 MiB, isn't UTF-8, or can't be read.
pub fn standard_input() -> Result<String> {
    let text = whole(std::io::stdin().lock()).context("could not read standard input")?;
    text.context("standard input: longer than 64 MiB; give a shorter text")
}

/// Reads everything, without the byte order mark that some editors and shells add. None if there is
/// too much.
fn whole(reader: impl Read) -> std::io::Result<Option<String>> {
    let mut bytes = Vec::new();
    reader.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Ok(None);
    }
    let text = String::from_utf8(bytes);
    let text = text.map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))?;
    Ok(Some(without_mark(text)))
}

/// Returns the text without a byte order mark at its start.
pub fn without_mark(mut text: String) -> String {
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    text
}

/// Reads the next line, without its line ending. None at the end of the input.
///
/// # Errors
/// If it is longer than 64 MiB or can't be read.
pub fn line(mut reader: impl BufRead) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let read = reader.by_ref().take(LONGEST + 1).read_until(b'\n', &mut bytes);
    read.context("could not read standard input")?;
    ensure!(bytes.len() as u64 <= LONGEST, "standard input: a line is longer than 64 MiB");
    if bytes.is_empty() {
        return Ok(None);
    }
    let end = bytes.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(0, |last| last + 1);
    bytes.truncate(end);
    Ok(Some(bytes))
}

/// Returns true for a named pipe, which may never get a writer. Pipes opened by a shell have
/// writers, and names such as `/dev/fd/63`.
#[cfg(unix)]
fn is_named_pipe(file: &Path, metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    let opened = ["/dev/fd", "/dev/stdin", "/proc"].iter().any(|dir| file.starts_with(dir));
    metadata.file_type().is_fifo() && !opened
}

#[cfg(not(unix))]
fn is_named_pipe(_file: &Path, _metadata: &std::fs::Metadata) -> bool {
    false
}
