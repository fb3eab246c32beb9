//! A download from the hub, over the loopback: a server in this test speaks the hub's protocol and serves an embedded model.
//!
//! Runs the `candecode` command itself, with the reference: `cargo test --features ref --test hub`.

#![cfg(feature = "ref")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

const REPO: &str = "some/name";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn story() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/story-230k")
}

/// What the server was asked: the path, and the headers in small letters.
type Asked = Arc<Mutex<Vec<(String, String)>>>;

/// A hub with one repository. It serves until the test ends, unless it is closed.
struct Hub {
    address: String,
    asked: Asked,
}

impl Hub {
    /// Serves the files of `dir`. `redirect`: files that lie elsewhere, as large ones do on the hub. `cut`: the first answer
    /// with data of a file that is longer than this ends after so many bytes, as when a connection breaks.
    fn serve(dir: PathBuf, redirect: bool, cut: Option<usize>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Asked::default();
        let (seen, here) = (asked.clone(), address.clone());
        let mut cut = cut;
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                if answer(stream, &dir, &here, redirect, &mut cut, &seen).is_none() {
                    break; // closed
                }
            }
        });
        Self { address, asked }
    }

    /// From here on nobody listens there.
    fn close(&self) {
        let mut stream = TcpStream::connect(self.address.trim_start_matches("http://")).unwrap();
        stream.write_all(b"QUIT\r\n\r\n").unwrap();
        let mut rest = Vec::new();
        let _ = std::io::Read::read_to_end(&mut stream, &mut rest); // until the listener is gone
        while TcpStream::connect(self.address.trim_start_matches("http://")).is_ok() {}
    }

    /// The paths asked for, without doubles.
    fn files(&self) -> Vec<String> {
        let mut files: Vec<String> =
            self.asked.lock().unwrap().iter().map(|(path, _)| path.clone()).collect();
        files.dedup();
        files
    }
}

/// One request, one answer. None: the server shall end.
fn answer(
    stream: TcpStream,
    dir: &Path,
    here: &str,
    redirect: bool,
    cut: &mut Option<usize>,
    seen: &Asked,
) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let first = lines.next()?.unwrap_or_default();
    if first == "QUIT" {
        return None;
    }
    let headers: Vec<String> =
        lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let headers = headers.join("\n").to_ascii_lowercase();
    let path = first.split(' ').nth(1).unwrap_or_default().to_string();
    seen.lock().unwrap().push((path.clone(), headers.clone()));

    let mut stream = stream;
    let end = "connection: close\r\n\r\n";
    let (prefix, elsewhere) = (format!("/{REPO}/resolve/main/"), "/elsewhere/");
    let file = path.strip_prefix(&prefix).or(path.strip_prefix(elsewhere));
    let Some(bytes) = file.and_then(|file| std::fs::read(dir.join(file)).ok()) else {
        let _ = write!(stream, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n{end}");
        return Some(());
    };
    let (file, etag) =
        (file.unwrap_or_default(), format!("\"etag-of-{}\"", file.unwrap_or_default()));
    let about = format!("x-repo-commit: {COMMIT}\r\netag: {etag}\r\n");
    if redirect && file.ends_with(".safetensors") && path.starts_with(&prefix) {
        let to = format!("location: {here}{elsewhere}{file}\r\nx-linked-etag: {etag}\r\n");
        let _ = write!(stream, "HTTP/1.1 302 Found\r\n{about}{to}content-length: 0\r\n{end}");
        return Some(());
    }
    let range = headers.lines().find_map(|line| line.strip_prefix("range: bytes="));
    let (from, to) = range.and_then(|range| range.split_once('-')).expect("hf-hub asks for ranges");
    let from: usize = from.parse().unwrap();
    let to = to.parse().unwrap_or(bytes.len() - 1);
    let part = &bytes[from..=to];
    let range = format!(
        "content-range: bytes {from}-{to}/{}\r\ncontent-length: {}\r\n",
        bytes.len(),
        part.len()
    );
    let _ = write!(stream, "HTTP/1.1 206 Partial Content\r\n{about}{range}{end}");
    let sent = match cut {
        Some(n) if part.len() > *n => cut.take().unwrap(),
        _ => part.len(),
    };
    let _ = stream.write_all(&part[..sent]);
    Some(())
}

/// A cache of its own, gone at the end.
struct Home(PathBuf);

impl Home {
    fn new(test: &str) -> Self {
        let dir =
            std::env::temp_dir().join(format!("candecode-home-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        Self(dir)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(model: &str, home: &Home, hub: &Hub, more: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_candecode"));
    command.args(["--model", model, "-p", "Once upon a time", "--max-new-tokens", "20"]);
    for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]
    {
        command.env_remove(name);
    }
    for name in ["HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE"] {
        command.env_remove(name);
    }
    command.env("HF_HOME", &home.0).env("HF_ENDPOINT", &hub.address).envs(more.iter().copied());
    command.stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn text(output: &Output) -> String {
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The same prompt with the model from its folder.
fn local(home: &Home, hub: &Hub) -> String {
    let text = text(&run(story().to_str().unwrap(), home, hub, &[]));
    assert!(text.starts_with("Once upon a time") && text.len() > 40, "{text}");
    text
}

#[test]
fn a_model_is_fetched_and_then_needs_no_network() {
    let (hub, home) = (Hub::serve(story(), false, None), Home::new("fetch"));
    let want = local(&home, &hub);
    assert!(hub.files().is_empty(), "a folder asks nobody: {:?}", hub.files());
    assert_eq!(text(&run(REPO, &home, &hub, &[])), want);
    let resolve = |file: &str| format!("/{REPO}/resolve/main/{file}");
    for file in ["config.json", "tokenizer.json", "generation_config.json", "model.safetensors"] {
        assert!(hub.files().contains(&resolve(file)), "{file} was not fetched: {:?}", hub.files());
    }
    hub.close();
    assert_eq!(text(&run(REPO, &home, &hub, &[])), want, "from the cache, nobody listening");
    assert_eq!(text(&run(REPO, &home, &hub, &[("HF_HUB_OFFLINE", "1")])), want);
}

#[test]
fn a_second_run_fetches_nothing_that_it_has() {
    let (hub, home) = (Hub::serve(story(), false, None), Home::new("again"));
    let want = text(&run(REPO, &home, &hub, &[]));
    hub.asked.lock().unwrap().clear();
    assert_eq!(text(&run(REPO, &home, &hub, &[])), want);
    // Whether there are shards is asked again: the answer, that there are none, is not kept.
    assert_eq!(hub.files(), [format!("/{REPO}/resolve/main/model.safetensors.index.json")]);
}

#[test]
fn large_files_that_lie_elsewhere_are_followed() {
    let (hub, home) = (Hub::serve(story(), true, None), Home::new("elsewhere"));
    assert_eq!(text(&run(REPO, &home, &hub, &[])), local(&home, &hub));
    assert!(hub.files().contains(&"/elsewhere/model.safetensors".to_string()), "{:?}", hub.files());
}

#[test]
fn a_connection_that_breaks_is_taken_up_where_it_broke() {
    let (hub, home) = (Hub::serve(story(), false, Some(100_000)), Home::new("broken"));
    assert_eq!(text(&run(REPO, &home, &hub, &[])), local(&home, &hub));
    let asked = hub.asked.lock().unwrap();
    assert!(asked.iter().any(|(_, headers)| headers.contains("range: bytes=100000-")), "{asked:?}");
}

#[test]
fn the_token_is_shown_to_the_hub() {
    let (hub, home) = (Hub::serve(story(), false, None), Home::new("token"));
    text(&run(REPO, &home, &hub, &[("HF_TOKEN", "hf_secret")]));
    let asked = hub.asked.lock().unwrap();
    assert!(
        asked.iter().all(|(_, headers)| headers.contains("authorization: bearer hf_secret")),
        "{asked:?}"
    );
}

#[test]
fn what_the_hub_does_not_have_is_named() {
    let (hub, home) = (Hub::serve(story(), false, None), Home::new("other"));
    let output = run("other/name", &home, &hub, &[]);
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(
        err.contains("other/name: the hub has no config.json there; is the name right?"),
        "{err}"
    );
}
