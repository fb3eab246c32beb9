//! One file, from the hub to the cache: taken up where it broke, checked, and only then given its name.

use crate::formats::hub::http_client::{About, Client};
use crate::formats::hub::hub_cache::Repository;
use crate::formats::hub::hub_error::Fault;
use crate::kit::units::bytes;
use hf_hub::api::Progress as _;
use indicatif::ProgressBar;
use ring::digest::{Context, SHA256};
use std::fs::{self, File};
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::Path;

/// Brings a file of a commit into the cache. If it comes damaged it is deleted and fetched again, once.
///
/// # Errors
/// Any [`Fault`]. What has come is kept, unless it is damaged.
pub fn download(
    cached: &Repository,
    client: &Client,
    commit: &str,
    file: &str,
) -> Result<(), Fault> {
    let about = client.about(&cached.name, commit, file)?;
    let (part, blob) = (cached.part(&about.etag), cached.blob(&about.etag));
    if let Some(dir) = blob.parent() {
        fs::create_dir_all(dir).map_err(Fault::Disk)?;
    }
    // It may be here under another commit, or from before its link was lost.
    if !(blob.is_file() && check(&blob, &about).is_ok()) {
        let transfer = Transfer { repo: &cached.name, client, about: &about, file, part: &part };
        match transfer.checked("") {
            Err(Fault::Damaged(what)) => {
                eprintln!("{file} came damaged ({what}): fetching it again");
                transfer.checked(", again")?;
            }
            other => other?,
        }
        fs::rename(&part, &blob).map_err(Fault::Disk)?;
    }
    cached.link(&about.etag, commit, file).map_err(Fault::Disk)
}

/// One file on its way to its part on disk.
struct Transfer<'a> {
    repo: &'a str,
    client: &'a Client,
    about: &'a About,
    file: &'a str,
    part: &'a Path,
}

impl Transfer<'_> {
    /// Gets all of it, and deletes it if it is not what the hub says that it is.
    fn checked(&self, again: &str) -> Result<(), Fault> {
        let bar = Bar::new(self.file, self.about.size, again);
        let done = self.all(&bar).and_then(|()| check(self.part, self.about));
        if let Err(Fault::Damaged(_)) = done {
            fs::remove_file(self.part).map_err(Fault::Disk)?;
        }
        done
    }

    /// Gets all bytes, in as many requests as it takes, as long as one in a few brings some.
    fn all(&self, bar: &Bar) -> Result<(), Fault> {
        let mut tries = 0;
        loop {
            let before = length(self.part);
            if self.about.size.is_some_and(|size| before >= size) {
                return Ok(()); // too long is for `check` to say
            }
            match self.rest(before, bar) {
                Ok(()) => return Ok(()),
                Err(fault) => {
                    if length(self.part) > before {
                        tries = 0;
                    }
                    self.client.again(fault, &mut tries)?;
                }
            }
        }
    }

    /// One request, for what comes after the first `from` bytes.
    fn rest(&self, from: u64, bar: &Bar) -> Result<(), Fault> {
        let mut part =
            File::options().append(true).create(true).open(self.part).map_err(Fault::Disk)?;
        let (body, begin, size) = self.client.bytes(self.about, self.repo, self.file, from)?;
        let size = match (self.about.size, size) {
            (Some(want), Some(size)) if want != size => return Err(lengths(size, want)),
            (want, size) => want.or(size),
        };
        if begin < from {
            part.set_len(begin).map_err(Fault::Disk)?; // the server knows no ranges
        }
        bar.at(begin);
        let (mut body, mut buffer, mut at) = (body.into_reader(), vec![0; 1 << 16], begin);
        loop {
            let n = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) => return Err(Fault::Later(format!("the connection broke ({e})"), None)),
            };
            part.write_all(&buffer[..n]).map_err(Fault::Disk)?;
            at += n as u64;
            bar.at(at);
        }
        match size {
            Some(size) if at < size => {
                Err(Fault::Later(format!("the connection broke at {at} of {size} bytes"), None))
            }
            _ => part.sync_all().map_err(Fault::Disk),
        }
    }
}

fn lengths(found: u64, want: u64) -> Fault {
    Fault::Damaged(format!("it is {found} bytes long, and should be {want}"))
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len())
}

/// Compares a file with what the hub says of it: its length and, of large files, whose etag it is, its sha256.
fn check(path: &Path, about: &About) -> Result<(), Fault> {
    let found = length(path);
    if let Some(size) = about.size.filter(|size| *size != found) {
        return Err(lengths(found, size));
    }
    let hexadecimal = about.etag.chars().all(|c| c.is_ascii_hexdigit());
    if about.etag.len() != 64 || !hexadecimal {
        return Ok(()); // a small file, named by git
    }
    let mut file = File::open(path).map_err(Fault::Disk)?;
    let (mut hash, mut buffer) = (Context::new(&SHA256), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer).map_err(Fault::Disk)? {
            0 => break,
            n => hash.update(&buffer[..n]),
        }
    }
    let hash: String = hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    match hash == about.etag.to_ascii_lowercase() {
        true => Ok(()),
        false => Err(Fault::Damaged(format!("its sha256 is {hash}, and should be {}", about.etag))),
    }
}

/// A progress bar with speed and time left, or one line where nobody watches.
struct Bar(Option<ProgressBar>);

impl Bar {
    fn new(file: &str, size: Option<u64>, again: &str) -> Self {
        if !std::io::stderr().is_terminal() {
            let size = size.map_or(String::new(), |size| format!(" ({})", bytes(size as f64)));
            eprintln!("fetching {file}{size}{again}");
            return Self(None);
        }
        let mut bar = ProgressBar::new(0);
        bar.init(size.unwrap_or(0) as usize, file); // hf-hub's style
        Self(Some(bar))
    }

    fn at(&self, bytes: u64) {
        if let Some(bar) = &self.0 {
            match bar.position() {
                0 => bar.set_position(bytes),
                before => bar.inc(bytes.saturating_sub(before)),
            }
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.abandon();
        }
    }
}
