//! One file, from the hub to the cache: taken up where it broke off, checked, and only then given its name.

use crate::formats::hub::http_client::{Client, FileInfo};
use crate::formats::hub::hub_cache::Repository;
use crate::formats::hub::hub_error::HubError;
use crate::kit::units::bytes;
use indicatif::{ProgressBar, ProgressStyle};
use ring::digest::{Context, SHA256};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;

/// Brings a file of a commit into the cache. If it comes damaged, it is deleted and fetched again, once.
///
/// # Errors
/// Any [`HubError`]. What has come is kept, unless it is damaged.
pub fn download(
    cached: &Repository,
    client: &Client,
    commit: &str,
    file: &str,
) -> Result<(), HubError> {
    let info = client.info(&cached.name, commit, file)?;
    let (part, blob) = (cached.part(&info.etag), cached.blob(&info.etag));
    if let Some(dir) = blob.parent() {
        fs::create_dir_all(dir).map_err(HubError::Disk)?;
    }
    // The file may be here under another commit, or from before its link was lost.
    if !(blob.is_file() && check(&blob, &info).is_ok()) {
        let transfer = Transfer { repo: &cached.name, client, info: &info, file, part: &part };
        match transfer.run("") {
            Err(HubError::Damaged(what)) => {
                eprintln!("{file} came damaged ({what}): fetching it again");
                transfer.run(", again")?;
            }
            other => other?,
        }
        fs::rename(&part, &blob).map_err(HubError::Disk)?;
    }
    cached.link(&info.etag, commit, file).map_err(HubError::Disk)
}

/// One file on its way to its part on disk.
struct Transfer<'a> {
    repo: &'a str,
    client: &'a Client,
    info: &'a FileInfo,
    file: &'a str,
    part: &'a Path,
}

impl Transfer<'_> {
    /// Gets the whole file, and deletes it if it is not what the hub says that it is.
    fn run(&self, again: &str) -> Result<(), HubError> {
        let bar = progress_bar(self.file, self.info.size, again);
        let done = self.get_all(&bar).and_then(|()| check(self.part, self.info));
        bar.abandon();
        if let Err(HubError::Damaged(_)) = done {
            fs::remove_file(self.part).map_err(HubError::Disk)?;
        }
        done
    }

    /// Gets all bytes, in as many requests as it takes, as long as one in a few brings some.
    fn get_all(&self, bar: &ProgressBar) -> Result<(), HubError> {
        let part = File::options().append(true).create(true).open(self.part);
        let mut part = part.map_err(HubError::Disk)?;
        let mut tries = 0;
        loop {
            let before = length(self.part);
            if self.info.size.is_some_and(|size| before >= size) {
                return Ok(()); // of an empty file nothing is asked for; one that is too long is for `check`
            }
            let Err(error) = self.get_rest(&mut part, before, bar) else { return Ok(()) };
            if length(self.part) > before {
                tries = 0;
            }
            self.client.retry_or_fail(error, &mut tries)?;
        }
    }

    /// One request, for what comes after the first `from` bytes.
    fn get_rest(&self, part: &mut File, from: u64, bar: &ProgressBar) -> Result<(), HubError> {
        let (body, begin, said) =
            self.client.bytes(self.repo, &self.info.commit, self.file, from)?;
        let size = self.info.size.or(said);
        if said.is_some() && said != size {
            return Err(wrong_length(said, size));
        }
        if begin < from {
            part.set_len(begin).map_err(HubError::Disk)?; // the server sends the file from its beginning
        }
        bar.set_position(begin);
        bar.reset_eta();
        let (mut body, mut buffer, mut at) = (body.into_reader(), vec![0; 1 << 16], begin);
        loop {
            let n = body
                .read(&mut buffer)
                .map_err(|e| HubError::Retryable(format!("the connection broke ({e})"), None))?;
            if n == 0 {
                break;
            }
            part.write_all(&buffer[..n]).map_err(HubError::Disk)?;
            at += n as u64;
            bar.set_position(at);
        }
        if let Some(size) = size.filter(|size| at < *size) {
            let what = format!("the connection broke at {at} of {size} bytes");
            return Err(HubError::Retryable(what, None));
        }
        part.sync_all().map_err(HubError::Disk)
    }
}

fn wrong_length(found: Option<u64>, want: Option<u64>) -> HubError {
    let [found, want] = [found, want].map(Option::unwrap_or_default);
    HubError::Damaged(format!("it is {found} bytes long, and should be {want}"))
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len())
}

/// Compares a file with what the hub says of it: its length and, of a large file, whose etag it is, its sha256.
fn check(path: &Path, info: &FileInfo) -> Result<(), HubError> {
    let found = Some(length(path));
    if info.size.is_some() && info.size != found {
        return Err(wrong_length(found, info.size));
    }
    let is_sha256 = info.etag.len() == 64 && info.etag.chars().all(|c| c.is_ascii_hexdigit());
    if !is_sha256 {
        return Ok(()); // a small file: its etag is git's
    }
    let mut file = File::open(path).map_err(HubError::Disk)?;
    let (mut hash, mut buffer) = (Context::new(&SHA256), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer).map_err(HubError::Disk)? {
            0 => break,
            n => hash.update(&buffer[..n]),
        }
    }
    let hash: String = hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    if hash != info.etag.to_ascii_lowercase() {
        let what = format!("its sha256 is {hash}, and should be {}", info.etag);
        return Err(HubError::Damaged(what));
    }
    Ok(())
}

/// A bar with speed and time left; where standard error is no terminal, one line.
fn progress_bar(file: &str, size: Option<u64>, again: &str) -> ProgressBar {
    const STYLE: &str = "{msg} [{wide_bar}] {bytes}/{total_bytes} {bytes_per_sec} ({eta})";
    let style = ProgressStyle::with_template(STYLE);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(size.unwrap_or(0)).with_style(style).with_message(file.to_string());
    if bar.is_hidden() {
        let size = size.map_or(String::new(), |size| format!(" ({})", bytes(size as f64)));
        eprintln!("fetching {file}{size}{again}");
    }
    bar
}
