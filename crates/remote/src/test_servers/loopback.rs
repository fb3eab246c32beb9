//! A server on the loopback that reads requests and lets a function answer them.

use std::io::{BufRead as _, BufReader, Read as _, Result, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request: its method and path, its headers in lower case, and its body.
#[derive(Clone, Debug)]
pub struct Asked {
    pub line: String,
    pub headers: String,
    pub body: String,
}

impl Asked {
    /// Returns a header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let value = |line: &'_ str| line.strip_prefix(name).is_some_and(|l| l.starts_with(':'));
        let line = self.headers.lines().find(|line| value(line))?;
        Some(line[name.len() + 1..].trim())
    }
}

/// A server that runs until the test ends, unless closed earlier.
pub struct Loopback {
    pub address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Loopback {
    /// Starts a server. `answer` writes the answer to each request, after which the connection is
    /// closed.
    pub fn start(
        answer: impl Fn(&Asked, &mut TcpStream) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (asked, answer) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::new(answer));
        let noted = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, noted, answer) = (stream.unwrap(), noted.clone(), answer.clone());
                let mut first = [0; 4];
                if stream.peek(&mut first).is_ok() && &first == b"QUIT" {
                    break;
                }
                std::thread::spawn(move || {
                    let Ok(Some(asked)) = read(&mut stream, &noted) else { return };
                    let _ = answer(&asked, &mut stream);
                });
            }
        });
        Self { address, asked }
    }

    /// Returns the requests received since the last call.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// Does the same, but returns only the request lines.
    pub fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.line).collect()
    }

    /// Stops listening on the address.
    pub fn close(&self) {
        let host = self.address.trim_start_matches("http://");
        let mut stream = TcpStream::connect(host).unwrap();
        stream.write_all(b"QUIT").unwrap();
        while TcpStream::connect(host).is_ok() {}
    }
}

/// Reads a request and notes it. Through a proxy, which this server is as well, there are two.
fn read(stream: &mut TcpStream, noted: &Mutex<Vec<Asked>>) -> Result<Option<Asked>> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut lines = reader.by_ref().lines();
        let Some(first) = lines.next().transpose()? else { return Ok(None) };
        let headers: Vec<String> =
            lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let line = first.rsplit_once(' ').map_or("", |(line, _)| line).to_string();
        let headers = headers.join("\n").to_ascii_lowercase();
        let mut asked = Asked { line, headers, body: String::new() };
        let length = asked.header("content-length").map_or(0, |length| length.parse().unwrap());
        reader.by_ref().take(length).read_to_string(&mut asked.body)?;
        noted.lock().unwrap().push(asked.clone());
        if !asked.line.starts_with("CONNECT ") {
            return Ok(Some(asked));
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    }
}
