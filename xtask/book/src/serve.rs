//! A file server for one reader, on the loopback interface, that builds again on change.

use crate::live::Days;
use crate::render::{build, Which};
use anyhow::{anyhow, Result};
use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};
use tiny_http::{Header, Request, Response, Server};

/// What the book is made of: all of it is watched.
const WATCHED: [&str; 7] =
    ["book/book.toml", "book/live", "book/src", "book/theme", "solutions", "src", "tests"];

/// Builds, serves, watches, until it is stopped.
pub fn serve(root: &Path, open: bool, port: u16, days: Days) -> Result<()> {
    let server = Server::http((Ipv4Addr::LOCALHOST, port)).map_err(|problem| {
        anyhow!("cannot listen on port {port} ({problem}); choose another with --port N")
    })?;
    let url = format!("http://{}/", server.server_addr());
    let mut seen = snapshot(root);
    let out = build_and_say(root, days).unwrap_or_else(|| root.join("book/book"));
    println!("serving {url} (Ctrl-C stops it)");
    if open {
        open_browser(&url);
    }
    std::thread::spawn(move || {
        for request in server.incoming_requests() {
            let _ = answer(request, &out);
        }
    });
    loop {
        std::thread::sleep(Duration::from_millis(700));
        let now = snapshot(root);
        if now != seen {
            seen = now;
            build_and_say(root, days);
        }
    }
}

fn build_and_say(root: &Path, days: Days) -> Option<PathBuf> {
    match build(root, Which::Book, days) {
        Ok(report) => {
            println!("built {report}; reload the page to see it");
            Some(report.out)
        }
        Err(error) => {
            eprintln!("{error:#}");
            None
        }
    }
}

/// The times at which the watched files changed.
fn snapshot(root: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let mut found = BTreeMap::new();
    let mut todo: Vec<PathBuf> = WATCHED.iter().map(|name| root.join(name)).collect();
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            todo.extend(entries.map(|entry| entry.path()));
        } else if let Ok(time) = fs::metadata(&path).and_then(|m| m.modified()) {
            found.insert(path, time);
        }
    }
    found
}

/// Asks the system to show a page or a file.
pub fn open_browser(url: &str) {
    let opener = match std::env::consts::OS {
        "macos" => "open",
        "windows" => "explorer",
        _ => "xdg-open",
    };
    if Command::new(opener).arg(url).spawn().is_err() {
        eprintln!("{opener} could not be started; open {url} by hand");
    }
}

/// Answers one request.
fn answer(request: Request, out: &Path) -> std::io::Result<()> {
    let file = find(out, request.url());
    match file.and_then(|path| Some((fs::File::open(&path).ok()?, content_type(&path)?))) {
        Some((file, kind)) => request.respond(Response::from_file(file).with_header(kind)),
        None => {
            let nothing = Response::from_string("no such page in the book");
            request.respond(nothing.with_status_code(404))
        }
    }
}

/// The file that a request asks for, never one outside the book. No name in it needs an escape.
fn find(out: &Path, target: &str) -> Option<PathBuf> {
    let path = Path::new(target.split(['?', '#']).next()?.strip_prefix('/')?);
    if !path.components().all(|part| matches!(part, Component::Normal(_))) {
        return None;
    }
    let file = out.join(path);
    let file = if file.is_dir() { file.join("index.html") } else { file };
    file.is_file().then_some(file)
}

fn content_type(path: &Path) -> Option<Header> {
    let kind = match path.extension().and_then(|ending| ending.to_str()).unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    };
    format!("Content-Type: {kind}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_book_are_served() {
        let out = std::env::temp_dir().join(format!("book-tool-serve-{}", std::process::id()));
        fs::create_dir_all(out.join("a")).unwrap();
        fs::write(out.join("index.html"), "x").unwrap();
        fs::write(out.join("a/c.css"), "x").unwrap();
        assert_eq!(find(&out, "/"), Some(out.join("index.html")));
        assert_eq!(find(&out, "/a/c.css?v=1"), Some(out.join("a/c.css")));
        for bad in ["/../x", "/%2e%2e/x", "//etc/passwd", "/gone", "x", ""] {
            assert_eq!(find(&out, bad), None, "{bad}");
        }
        fs::remove_dir_all(&out).unwrap();
    }
}
