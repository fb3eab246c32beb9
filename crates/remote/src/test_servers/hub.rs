//! A hub on the loopback, which serves a folder in the hub's protocol and injects the faults a test
//! asks for.

pub use crate::test_servers::loopback::Asked;
use crate::test_servers::loopback::Loopback;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The repository being served.
pub const REPO: &str = "some/name";
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A fault in a response.
#[derive(Clone, Copy)]
pub enum Fault {
    /// Breaks the connection after this many bytes.
    Cut(usize),
    /// Pauses for this long after this many bytes.
    Stall(usize, Duration),
    /// Pauses after this many bytes until the test releases it.
    Hold(usize),
    /// Sends the bytes in small pieces, with pauses.
    Drip,
    /// Sends a different file of the announced length.
    OtherBytes,
    /// Sends a file that is longer than announced.
    OtherLength,
    /// Sends the whole file, ignoring the requested range.
    NoRanges,
    /// Sends the requested range, but doesn't say which it is.
    NoContentRange,
    /// Doesn't say how long the file is.
    NoLength,
    /// Marks the `ETag` as weak, like a cache that may compress files.
    WeakTag,
    /// Responds with this status and these headers.
    Status(u16, &'static str),
    /// Sends a page, like a network that requires a login first.
    Login,
}

/// The location of large files.
#[derive(Clone, Copy, PartialEq)]
pub enum Large {
    /// On the same host as the others.
    Here,
    /// Under another name of this machine, as on the hub: the response contains the location, the
    /// hash and the size.
    Elsewhere,
}

struct Shared {
    dir: PathBuf,
    large: Large,
    faults: Mutex<Vec<(&'static str, &'static str, usize, Fault)>>,
    released: AtomicBool,
    gated: AtomicBool,
}

/// A hub with one repository. `HEAD` is how a client asks what a file is.
pub struct Hub {
    pub address: String,
    server: Loopback,
    shared: Arc<Shared>,
}

impl std::ops::Deref for Hub {
    type Target = Loopback;

    fn deref(&self) -> &Loopback {
        &self.server
    }
}

impl Hub {
    pub fn serve(dir: impl Into<PathBuf>, large: Large) -> Self {
        let shared = Arc::new(Shared {
            dir: dir.into(),
            large,
            faults: Mutex::default(),
            released: AtomicBool::new(false),
            gated: AtomicBool::new(false),
        });
        let serving = shared.clone();
        let server = Loopback::start(move |asked, stream| file(stream, &serving, asked));
        Self { address: server.address.clone(), server, shared }
    }

    /// Refuses requests without the token `hf_secret`.
    pub fn gated(self) -> Self {
        self.shared.gated.store(true, Ordering::SeqCst);
        self
    }

    /// Makes the next `times` requests with this method for this file fail.
    pub fn fault(
        self,
        method: &'static str,
        file: &'static str,
        times: usize,
        fault: Fault,
    ) -> Self {
        self.break_next(method, file, times, fault);
        self
    }

    /// Does the same as [`Hub::fault`] on a running hub.
    pub fn break_next(&self, method: &'static str, file: &'static str, times: usize, fault: Fault) {
        self.shared.faults.lock().unwrap().push((method, file, times, fault));
    }

    /// Lets held responses continue.
    pub fn release(&self) {
        self.shared.released.store(true, Ordering::SeqCst);
    }
}

const END: &str = "connection: close\r\n\r\n";

/// Answers one request.
fn file(stream: &mut dyn Write, shared: &Shared, asked: &Asked) -> std::io::Result<()> {
    let (method, path) = asked.line.split_once(' ').unwrap_or_default();
    let elsewhere = path.strip_prefix("/elsewhere/");
    let known = asked.header("authorization") == Some("bearer hf_secret");
    if shared.gated.load(Ordering::SeqCst) && elsewhere.is_none() && !known {
        let code = "x-error-code: GatedRepo";
        return write!(stream, "HTTP/1.1 401 No\r\n{code}\r\ncontent-length: 0\r\n{END}");
    }
    let of = |revision: &str| path.strip_prefix(&format!("/{REPO}/resolve/{revision}/"));
    if let Some(file) = path.strip_prefix("/old/name/resolve/") {
        // A renamed repository.
        let to = format!("location: /{REPO}/resolve/{file}");
        return write!(stream, "HTTP/1.1 307 Moved\r\n{to}\r\ncontent-length: 0\r\n{END}");
    }
    let name = elsewhere.or(of("main")).or(of(COMMIT));
    let sent_on = shared.large == Large::Elsewhere
        && elsewhere.is_none()
        && name.is_some_and(|name| name.ends_with(".safetensors"));
    // Faults that affect the body apply to the response that has one.
    let fault = name.filter(|_| !sent_on || method == "HEAD");
    let fault = fault.and_then(|name| next_fault(shared, method, name));
    let bytes = name.and_then(|name| std::fs::read(shared.dir.join(name)).ok());
    match fault {
        Some(Fault::Status(code, headers)) => {
            return write!(stream, "HTTP/1.1 {code} No\r\n{headers}\r\ncontent-length: 0\r\n{END}");
        }
        Some(Fault::Login) => {
            let page = "<html>Accept our terms to use this network</html>";
            let length = page.len();
            return write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n{END}{page}");
        }
        _ => {}
    }
    let Some((name, mut bytes)) = name.zip(bytes) else {
        let code = if name.is_some() { "EntryNotFound" } else { "RepoNotFound" };
        return write!(
            stream,
            "HTTP/1.1 404 Not Found\r\nx-error-code: {code}\r\ncontent-length: 0\r\n{END}"
        );
    };
    let large = name.ends_with(".safetensors");
    let etag = if large { sha256(&bytes) } else { format!("git-{name}") };
    let weak = if matches!(fault, Some(Fault::WeakTag)) { "W/" } else { "" };
    let about = format!("x-repo-commit: {COMMIT}\r\netag: {weak}\"{etag}\"\r\n");
    let size = bytes.len();
    if sent_on {
        let there = asked.header("host").unwrap_or_default().replace("127.0.0.1", "localhost");
        let about = format!(
            "x-repo-commit: \
                {COMMIT}\r\netag: \"no-hash\"\r\nx-linked-etag: \"{etag}\"\r\nx-linked-size: \
                {size}\r\n"
        );
        let to = format!("location: http://{there}/elsewhere/{name}\r\n");
        return write!(stream, "HTTP/1.1 302 Found\r\n{about}{to}content-length: 0\r\n{END}");
    }
    match fault {
        Some(Fault::OtherBytes) => bytes[size / 2] ^= 1,
        Some(Fault::OtherLength) => bytes.push(0),
        _ => {}
    }
    if method == "HEAD" {
        let length = match fault {
            Some(Fault::NoLength) => String::new(),
            _ => format!("content-length: {size}\r\n"),
        };
        return write!(stream, "HTTP/1.1 200 OK\r\n{about}{length}{END}");
    }
    let range = asked.header("range").and_then(|range| range.strip_prefix("bytes="));
    let from = range.map(|range| range.trim_end_matches('-').parse::<usize>().unwrap());
    let (status, part) = match (fault, from) {
        (Some(Fault::NoRanges), _) | (_, None) => ("200 OK".to_string(), &bytes[..]),
        (Some(Fault::NoContentRange), Some(from)) => ("206 Part".to_string(), &bytes[from..]),
        (_, Some(from)) => {
            let (end, all) = (bytes.len() - 1, bytes.len());
            (format!("206 Part\r\ncontent-range: bytes {from}-{end}/{all}"), &bytes[from..])
        }
    };
    write!(stream, "HTTP/1.1 {status}\r\n{about}content-length: {}\r\n{END}", part.len())?;
    match fault {
        Some(Fault::Cut(n)) => stream.write_all(&part[..n]),
        Some(Fault::Stall(n, time)) => {
            stream.write_all(&part[..n])?;
            std::thread::sleep(time);
            Ok(())
        }
        Some(Fault::Hold(n)) => {
            stream.write_all(&part[..n])?;
            while !shared.released.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(10));
            }
            stream.write_all(&part[n..])
        }
        Some(Fault::Drip) => part.chunks(part.len() / 20).try_for_each(|drop| {
            std::thread::sleep(Duration::from_millis(20));
            stream.write_all(drop)
        }),
        _ => stream.write_all(part),
    }
}

fn next_fault(shared: &Shared, method: &str, name: &str) -> Option<Fault> {
    let mut faults = shared.faults.lock().unwrap();
    let fits = |fault: &&mut (&str, &str, usize, Fault)| {
        fault.0 == method && fault.1 == name && fault.2 > 0
    };
    let found = faults.iter_mut().find(fits)?;
    found.2 -= 1;
    Some(found.3)
}

/// Returns the SHA-256 of some bytes in the hub's format.
pub fn sha256(bytes: &[u8]) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A test's own cache, removed at the end.
pub struct Home(pub PathBuf);

impl Home {
    /// Names a cache that doesn't exist yet, even if another test calls its own the same.
    pub fn new(test: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("candecode-home-{test}-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        Self(dir)
    }

    /// Returns the repository's folder in the cache.
    pub fn repo(&self) -> PathBuf {
        self.0.join("hub").join("models--some--name")
    }

    /// Returns the path of a model file in the cache.
    pub fn file(&self, name: &str) -> PathBuf {
        self.repo().join("snapshots").join(COMMIT).join(name)
    }

    /// Returns the path of what has arrived of a blob.
    pub fn part(&self, etag: &str) -> PathBuf {
        self.repo().join("blobs").join(format!("{etag}.candecode.part"))
    }

    /// Lists the files in `blobs/` with their lengths.
    pub fn blobs(&self) -> Vec<(String, u64)> {
        let Ok(dir) = std::fs::read_dir(self.repo().join("blobs")) else { return Vec::new() };
        // A program that is still running may rename a file at any moment, in which case the old
        // name is gone.
        let mut blobs: Vec<(String, u64)> = dir
            .filter_map(|file| {
                let file = file.unwrap();
                let length = file.metadata().ok()?.len();
                Some((file.file_name().into_string().unwrap(), length))
            })
            .collect();
        blobs.sort();
        blobs
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the folder to serve: an embedded model.
pub fn story() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/story-230k")
}
