//! A file server for one reader, on the loopback interface, that builds again on change.

use crate::render::{build, Which};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// What the book is made of: all of it is watched.
const WATCHED: [&str; 6] =
    ["book/book.toml", "book/src", "book/theme", "solutions", "src", "tests"];

/// Builds, serves, watches, until it is stopped.
pub fn serve(root: &Path, open: bool, port: u16) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .with_context(|| format!("cannot listen on port {port}; choose another with --port N"))?;
    let url = format!("http://{}/", listener.local_addr()?);
    let mut seen = snapshot(root);
    let out = build_and_say(root).unwrap_or_else(|| root.join("book/book"));
    println!("serving {url} (Ctrl-C stops it)");
    if open {
        open_browser(&url);
    }
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let out = out.clone();
            std::thread::spawn(move || answer(stream, &out));
        }
    });
    loop {
        std::thread::sleep(Duration::from_millis(700));
        let now = snapshot(root);
        if now != seen {
            seen = now;
            build_and_say(root);
        }
    }
}

fn build_and_say(root: &Path) -> Option<PathBuf> {
    match build(root, Which::Book) {
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

/// Answers one request and closes the connection.
fn answer(mut stream: TcpStream, out: &Path) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let mut request = String::new();
    let mut reader = BufReader::new((&stream).take(8192));
    if reader.read_line(&mut request).is_err() {
        return;
    }
    let mut header = String::new();
    while matches!(reader.read_line(&mut header), Ok(n) if n > 2) {
        header.clear();
    }
    let mut words = request.split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let (status, kind, body) = match method {
        "GET" | "HEAD" => match find(out, target).and_then(|p| Some((fs::read(&p).ok()?, p))) {
            Some((body, path)) => ("200 OK", content_type(&path), body),
            None => ("404 Not Found", "text/plain", b"no such page in the book".to_vec()),
        },
        _ => ("405 Method Not Allowed", "text/plain", b"GET or HEAD".to_vec()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    );
    let sent = stream.write_all(head.as_bytes());
    if sent.is_ok() && method != "HEAD" {
        let _ = stream.write_all(&body);
    }
}

/// The file that a request asks for, never one outside the book.
fn find(out: &Path, target: &str) -> Option<PathBuf> {
    let path = target.split(['?', '#']).next()?.strip_prefix('/')?;
    let path = percent_decoded(path)?;
    let inside = |part| matches!(part, Component::Normal(_));
    if !Path::new(&path).components().all(inside) {
        return None;
    }
    let file = out.join(&path);
    let file = if file.is_dir() { file.join("index.html") } else { file };
    file.is_file().then_some(file)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            let digits = std::str::from_utf8(&digits).ok()?.to_string();
            bytes.push(u8::from_str_radix(&digits, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

fn content_type(path: &Path) -> &'static str {
    match path.extension().and_then(|e| e.to_str()).unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "woff2" => "font/woff2",
        "txt" | "md" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_book_are_served() {
        let out = std::env::temp_dir().join(format!("book-tool-serve-{}", std::process::id()));
        fs::create_dir_all(out.join("a b")).unwrap();
        fs::write(out.join("index.html"), "x").unwrap();
        fs::write(out.join("a b/c.css"), "x").unwrap();
        assert_eq!(find(&out, "/"), Some(out.join("index.html")));
        assert_eq!(find(&out, "/a%20b/c.css?v=1"), Some(out.join("a b/c.css")));
        for bad in ["/../x", "/%2e%2e/x", "//etc/passwd", "/gone", "x", "/a%2", "/a%zz", ""] {
            assert_eq!(find(&out, bad), None, "{bad}");
        }
        fs::remove_dir_all(&out).unwrap();
    }
}
