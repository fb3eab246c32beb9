//! A file's place in the cache: the blob itself, its part that has arrived so far, and the link to
//! it.

use crate::hub::failure::Failure;
use crate::hub::requests::About;
use candecode_formats::hub::Repository;
use ring::digest::{Context, SHA256};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// A file in the cache.
pub struct Blob<'a> {
    about: &'a About,
    path: PathBuf,
    /// What has arrived so far. An interrupted download is resumed at its end. No other program
    /// uses this name.
    pub part: PathBuf,
}

impl<'a> Blob<'a> {
    /// Returns the file's place in the cache.
    ///
    /// # Errors
    /// If the cache can't be written to.
    pub fn open(cached: &Repository, about: &'a About) -> Result<Self, Failure> {
        let blobs = cached.dir.join("blobs");
        fs::create_dir_all(&blobs)?;
        let part = blobs.join(format!("{}.candecode.part", about.etag));
        if part.is_symlink() && !part.exists() {
            fs::remove_file(&part)?; // a link that leads nowhere
        }
        Ok(Self { about, path: blobs.join(&about.etag), part })
    }

    /// Returns the file's length in bytes, unless the hub doesn't say.
    pub fn size(&self) -> Option<u64> {
        self.about.size
    }

    /// Returns true if the whole file is already here, only without its link. That's certain only
    /// if its name is a SHA-256.
    pub fn is_here(&self) -> bool {
        self.about.etag.len() == 64 && self.check(&self.path).is_ok()
    }

    /// Checks the part as [`check`](Self::check) does, and makes it the blob.
    pub fn finish(&self) -> Result<(), Failure> {
        self.check(&self.part)?;
        Ok(fs::rename(&self.part, &self.path)?)
    }

    /// Deletes what has arrived.
    pub fn discard(&self) {
        let _ = fs::remove_file(&self.part);
    }

    /// Links the blob to its name in a snapshot, in place of what is there: a link that leads
    /// nowhere, or a damaged copy.
    pub fn link(&self, snapshot: &Path, file: &str) -> io::Result<()> {
        fs::create_dir_all(snapshot)?;
        let link = snapshot.join(file);
        if link.is_symlink() || link.exists() {
            fs::remove_file(&link)?;
        }
        let target = Path::new("../../blobs").join(&self.about.etag);
        #[cfg(unix)]
        let linked = std::os::unix::fs::symlink(target, &link);
        #[cfg(windows)]
        let linked = std::os::windows::fs::symlink_file(target, &link);
        // Windows without developer mode, and some disks, have no links.
        linked.or_else(|_| fs::rename(&self.path, &link))
    }

    /// Checks a file against what the hub says about it: its length and, if its name in the cache
    /// is a SHA-256, its hash.
    fn check(&self, path: &Path) -> Result<(), Failure> {
        let (mut file, mut length, mut digest) = (File::open(path)?, 0, Context::new(&SHA256));
        let mut bytes = vec![0; 1 << 20];
        loop {
            let count = file.read(&mut bytes)?;
            if count == 0 {
                break;
            }
            length += count as u64;
            digest.update(&bytes[..count]);
        }
        let (hash, want) = (digest.finish(), self.about.etag.to_ascii_lowercase());
        let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let size = self.about.size.unwrap_or(length);
        if length != size {
            Err(Failure::Damaged(format!("it is {length} bytes long, and should be {size}")))
        } else if want.len() == 64 && hash != want {
            Err(Failure::Damaged(format!("its sha256 is {hash}, and should be {want}")))
        } else {
            Ok(())
        }
    }
}
