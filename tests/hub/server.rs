//! A hub on the loopback: it serves a folder in the hub's protocol, with the faults that a test
//! asks for.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The repository that is served.
pub const REPO: &str = "some/name";
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What can go wrong with an answer.
#[derive(Clone, Copy)]
pub enum Fault {
    /// The connection breaks after so many bytes.
    Cut(usize),
    /// After so many bytes nothing comes any more, for this long.
    Stall(usize, Duration),
    /// After so many bytes nothing comes, until the test says so.
    Hold(usize),
    /// Little by little, with pauses.
    Drip,
    /// Another file than the hub says, of the same length.
    OtherBytes,
    /// A file that is longer than the hub says.
    OtherLength,
    /// All of the file, whatever was asked for.
    NoRanges,
    /// This status, with these headers.
    Status(u16, &'static str),
    /// A page, as of a network that wants a login first.
    Login,
}

/// Where large files lie.
#[derive(Clone, Copy, PartialEq)]
pub enum Large {
    /// Beside the others.
    Here,
    /// Under another name of this machine, as on the hub: the answer says so, and what the file is.
    Elsewhere,
}

/// One question: `GET /path`, and the headers in small letters.
#[derive(Clone, Debug)]
pub struct Asked {
    pub line: String,
    pub headers: String,
}

struct Shared {
    dir: PathBuf,
    address: String,
    large: Large,
    asked: Mutex<Vec<Asked>>,
    faults: Mutex<Vec<(&'static str, &'static str, usize, Fault)>>,
    released: AtomicBool,
}

/// A hub with one repository. It serves until the test ends, unless it is closed.
pub struct Hub {
    pub address: String,
    shared: Arc<Shared>,
}

impl Hub {
    pub fn serve(dir: impl Into<PathBuf>, large: Large) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            dir: dir.into(),
            address: address.clone(),
            large,
            asked: Mutex::default(),
            faults: Mutex::default(),
            released: AtomicBool::new(false),
        });
        let serving = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, shared) = (stream.unwrap(), serving.clone());
                let mut first = [0; 4];
                if stream.peek(&mut first).is_ok() && &first == b"QUIT" {
                    break;
                }
                std::thread::spawn(move || answer(stream, &shared));
            }
        });
        Self { address, shared }
    }

    /// The next `times` questions with this method for this file go wrong.
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

    /// As [`Hub::fault`].
    pub fn break_next(&self, method: &'static str, file: &'static str, times: usize, fault: Fault) {
        self.shared.faults.lock().unwrap().push((method, file, times, fault));
    }

    /// What is held goes on.
    pub fn release(&self) {
        self.shared.released.store(true, Ordering::SeqCst);
    }

    /// From here on nobody listens there.
    pub fn close(&self) {
        let host = self.address.trim_start_matches("http://");
        let mut stream = TcpStream::connect(host).unwrap();
        stream.write_all(b"QUIT").unwrap();
        while TcpStream::connect(host).is_ok() {}
    }

    /// What was asked since the last time.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.shared.asked.lock().unwrap())
    }

    /// The same as lines.
    pub fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.line).collect()
    }
}

/// The answers to what one connection asks: one, or two by way of a proxy, which this is, too.
fn answer(mut stream: TcpStream, shared: &Shared) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    loop {
        let Some(Ok(first)) = lines.next() else { return };
        let headers: Vec<String> =
            lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let headers = headers.join("\n").to_ascii_lowercase();
        let (method, rest) = first.split_once(' ').unwrap_or((&first, ""));
        // hf-hub asks about a file by fetching its first byte, and for its bytes by fetching all
        // from some place on.
        let probe = headers.lines().any(|line| line == "range: bytes=0-0");
        let method = if probe { "PROBE" } else { method };
        let path = rest.split(' ').next().unwrap_or_default();
        let line = format!("{method} {path}");
        shared.asked.lock().unwrap().push(Asked { line, headers: headers.clone() });
        if method == "CONNECT" {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            continue;
        }
        let _ = file(&mut stream, shared, method, path, &headers);
        return;
    }
}

const END: &str = "connection: close\r\n\r\n";

/// The answer to one question.
fn file(
    stream: &mut TcpStream,
    shared: &Shared,
    method: &str,
    path: &str,
    headers: &str,
) -> std::io::Result<()> {
    let elsewhere = path.strip_prefix("/elsewhere/");
    let of = |revision: &str| path.strip_prefix(&format!("/{REPO}/resolve/{revision}/"));
    if let Some(file) = path.strip_prefix("/old/name/resolve/") {
        // A repository that was renamed.
        let to = format!("location: /{REPO}/resolve/{file}");
        return write!(stream, "HTTP/1.1 307 Moved\r\n{to}\r\ncontent-length: 0\r\n{END}");
    }
    let name = elsewhere.or(of("main")).or(of(COMMIT));
    let sent_on = shared.large == Large::Elsewhere
        && elsewhere.is_none()
        && name.is_some_and(|name| name.ends_with(".safetensors"));
    // A fault of bytes waits until there are bytes.
    let fault = name.filter(|_| !sent_on || method == "PROBE");
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
    let about = format!("x-repo-commit: {COMMIT}\r\netag: \"{etag}\"\r\n");
    let size = bytes.len();
    if sent_on {
        let there = shared.address.replace("127.0.0.1", "localhost");
        let about = format!(
            "x-repo-commit: \
                {COMMIT}\r\netag: \"no-hash\"\r\nx-linked-etag: \"{etag}\"\r\nx-linked-size: \
                {size}\r\n"
        );
        let to = format!("location: {there}/elsewhere/{name}\r\n");
        return write!(stream, "HTTP/1.1 302 Found\r\n{about}{to}content-length: 0\r\n{END}");
    }
    match fault {
        Some(Fault::OtherBytes) => bytes[size / 2] ^= 1,
        Some(Fault::OtherLength) => bytes.push(0),
        _ => {}
    }
    if method == "PROBE" && size == 0 {
        return write!(stream, "HTTP/1.1 416 No\r\n{about}content-range: bytes */0\r\n{END}");
    }
    if method == "PROBE" {
        let range = format!("content-range: bytes 0-0/{size}\r\ncontent-length: 1\r\n");
        write!(stream, "HTTP/1.1 206 Part\r\n{about}{range}{END}")?;
        return stream.write_all(&bytes[..1]);
    }
    let range = headers.lines().find_map(|line| line.strip_prefix("range: bytes="));
    let from: usize = range.and_then(|range| range.strip_suffix('-')).unwrap().parse().unwrap();
    let (status, part) = match fault {
        Some(Fault::NoRanges) => ("200 OK".to_string(), &bytes[..]),
        _ => {
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

/// Of bytes, as the hub writes it.
pub fn sha256(bytes: &[u8]) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A cache of its own, gone at the end.
pub struct Home(pub PathBuf);

impl Home {
    pub fn new(test: &str) -> Self {
        let dir =
            std::env::temp_dir().join(format!("candecode-home-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        Self(dir)
    }

    /// The repository's part of the cache.
    pub fn repo(&self) -> PathBuf {
        self.0.join("hub").join("models--some--name")
    }

    /// A file of the model in the cache.
    pub fn file(&self, name: &str) -> PathBuf {
        self.repo().join("snapshots").join(COMMIT).join(name)
    }

    /// The files of `blobs/`, with their lengths.
    pub fn blobs(&self) -> Vec<(String, u64)> {
        let Ok(dir) = std::fs::read_dir(self.repo().join("blobs")) else { return Vec::new() };
        // A file may get its name just now, by a program that is still running: then its old name
        // is gone.
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

/// The folder that is served: an embedded model.
pub fn story() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/story-230k")
}
