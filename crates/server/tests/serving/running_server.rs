//! A server of its own for a test, and ways to ask it: politely, by ureq, and byte by byte.

use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The model of the tests: it is small, and comes with the course.
pub const MODEL: &str = "story-230k";

/// A server that ends with the test.
pub struct Server {
    pub child: Child,
    /// `127.0.0.1:…`
    pub host: String,
}

impl Server {
    /// A server of [`MODEL`] at a free port, with more flags.
    pub fn start(flags: &[&str]) -> Self {
        Self::spawn(Self::command(flags).stderr(Stdio::null()))
    }

    /// The command for it.
    pub fn command(flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_candecode-serve"));
        command.args(["--model", MODEL]).args(flags);
        if !flags.contains(&"--port") {
            command.args(["--port", "0"]); // a free one
        }
        command.env_remove("CANDECODE_API_KEY").stdin(Stdio::null());
        command
    }

    /// Starts a command, and waits until it listens.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let host = line.trim().strip_prefix("listening on http://");
        let host = host.unwrap_or_else(|| panic!("the server says {line:?}")).to_string();
        Self { child, host }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.host)
    }

    /// Status and body of a GET.
    pub fn get(&self, path: &str) -> (u16, String) {
        answered(agent().get(self.url(path)).call())
    }

    /// Status and JSON of a request for a text.
    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = self.post_text(path, &body.to_string());
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// As [`Server::post`], with any body, and the answer as it came.
    pub fn post_text(&self, path: &str, body: &str) -> (u16, String) {
        self.post_as(path, "application/json", body)
    }

    /// As [`Server::post_text`], with a body of another kind.
    pub fn post_as(&self, path: &str, kind: &str, body: &str) -> (u16, String) {
        answered(agent().post(self.url(path)).header("content-type", kind).send(body))
    }

    /// The text of a completion; what is not in `more` is greedy and short.
    pub fn text(&self, prompt: &str, more: &Value) -> String {
        let (status, answer) = self.post("/v1/completions", &body(prompt, more));
        assert_eq!(status, 200, "{answer}");
        answer["choices"][0]["text"].as_str().unwrap().to_string()
    }

    /// The events of a stream, without the last, which is `[DONE]`.
    pub fn events(&self, path: &str, body: &Value) -> Vec<Value> {
        let (status, text) = self.post_text(path, &body.to_string());
        assert_eq!(status, 200, "{text}");
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        let data = text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        let json = data.filter(|data| *data != "[DONE]");
        json.map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    /// The value of a line of `/metrics`.
    pub fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.get("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("candecode_{name} ")));
        line.unwrap_or_else(|| panic!("no {name}:\n{text}")).parse().unwrap()
    }

    /// Waits until a number of `/metrics` is `value`.
    pub fn wait_for(&self, name: &str, value: f64) {
        let began = Instant::now();
        while self.metric(name) != value {
            let last = self.metric(name);
            assert!(began.elapsed() < Duration::from_secs(20), "{name} stays {last}, not {value}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A connection, with nothing said yet.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.host).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// A connection on which the head of a completion's request was sent.
    pub fn post_head(&self, more: &str) -> TcpStream {
        let mut stream = self.connect();
        write!(
            stream,
            "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             {more}\r\n\r\n"
        )
        .unwrap();
        stream
    }

    /// Sends a request for a completion, and leaves the answer unread.
    pub fn begin(&self, body: &Value) -> TcpStream {
        let body = body.to_string();
        let mut stream = self.post_head(&format!("content-length: {}", body.len()));
        stream.write_all(body.as_bytes()).unwrap();
        stream
    }

    /// The most memory that the server has held so far, in bytes (Linux).
    #[cfg(target_os = "linux")]
    pub fn peak_memory(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Sends the server a signal, as INT.
    #[cfg(unix)]
    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A body for `/v1/completions`: greedy, 24 tokens, and what `more` says.
pub fn body(prompt: &str, more: &Value) -> Value {
    with(json!({"prompt": prompt, "max_tokens": 24, "temperature": 0}), more)
}

/// A body, and what `more` says.
pub fn with(mut body: Value, more: &Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// What is left of a response on a raw connection, up to its end, or the first `enough` bytes.
pub fn read_some(stream: &mut TcpStream, enough: usize) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while bytes.len() < enough {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None);
    config.timeout_global(Some(Duration::from_secs(120))).build().new_agent()
}

fn answered(response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> (u16, String) {
    let response = response.unwrap();
    let status = response.status().as_u16();
    (status, response.into_body().read_to_string().unwrap())
}
