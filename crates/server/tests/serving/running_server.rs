//! Starts a server for a single test, and sends requests to it, with ureq or as raw bytes.

use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The model for the tests. It is small and comes with the course.
pub const MODEL: &str = "story-230k";

pub const COMPLETIONS: &str = "/v1/completions";
pub const CHAT: &str = "/v1/chat/completions";

/// A server that is stopped when the test ends.
pub struct Server {
    pub child: Child,
    /// `127.0.0.1:…`
    pub host: String,
}

impl Server {
    /// Starts a server of [`MODEL`] on a free port, with these flags.
    pub fn start(flags: &[&str]) -> Self {
        Self::spawn(Self::command(flags).stderr(Stdio::null()))
    }

    /// Returns the command that starts such a server.
    pub fn command(flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_candecode-serve"));
        command.args(["--model", MODEL]).args(flags);
        if !flags.contains(&"--port") {
            command.args(["--port", "0"]); // a free port
        }
        command.env_remove("CANDECODE_API_KEY").stdin(Stdio::null());
        command
    }

    /// Starts a command and waits until it listens.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let host = line.trim().strip_prefix("listening on http://");
        let host = host.unwrap_or_else(|| panic!("the server printed {line:?}")).to_string();
        Self { child, host }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.host)
    }

    /// Sends a GET request and returns the status and body.
    pub fn get(&self, path: &str) -> (u16, String) {
        answered(agent().get(self.url(path)).call())
    }

    /// Sends a POST request and returns the status and JSON.
    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = self.post_text(path, &body.to_string());
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Same as [`Server::post`], with any body, and returns the response as text.
    pub fn post_text(&self, path: &str, body: &str) -> (u16, String) {
        self.post_as(path, "application/json", body)
    }

    /// Same as [`Server::post_text`], with this content type.
    pub fn post_as(&self, path: &str, kind: &str, body: &str) -> (u16, String) {
        answered(agent().post(self.url(path)).header("content-type", kind).send(body))
    }

    /// Same as [`Server::post`], for a request that must succeed. Returns the JSON.
    pub fn answer(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.post(path, body);
        assert_eq!(status, 200, "{body}: {answer}");
        answer
    }

    /// Returns the text of a completion, which is greedy and short unless `more` changes that.
    pub fn text(&self, prompt: &str, more: &Value) -> String {
        let answer = self.answer(COMPLETIONS, &body(prompt, more));
        answer["choices"][0]["text"].as_str().unwrap().to_string()
    }

    /// Returns the events of a stream, except the last, which is `[DONE]`.
    pub fn events(&self, path: &str, body: &Value) -> Vec<Value> {
        let (status, text) = self.post_text(path, &body.to_string());
        assert_eq!(status, 200, "{text}");
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        let data = text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        let json = data.filter(|data| *data != "[DONE]");
        json.map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    /// Returns the value of a metric from `/metrics`.
    pub fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.get("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("candecode_{name} ")));
        line.unwrap_or_else(|| panic!("no {name}:\n{text}")).parse().unwrap()
    }

    /// Waits until a metric is `value`.
    pub fn wait_for(&self, name: &str, value: f64) {
        let began = Instant::now();
        while self.metric(name) != value {
            let last = self.metric(name);
            assert!(began.elapsed() < Duration::from_secs(60), "{name} stays {last}, not {value}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Opens a connection without sending anything.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.host).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Opens a connection and sends the head of a completion request.
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

    /// Sends a completion request and leaves the response unread.
    pub fn begin(&self, body: &Value) -> TcpStream {
        let body = body.to_string();
        let mut stream = self.post_head(&format!("content-length: {}", body.len()));
        stream.write_all(body.as_bytes()).unwrap();
        stream
    }

    /// Returns the server's peak memory so far, in bytes (Linux).
    #[cfg(target_os = "linux")]
    pub fn peak_memory(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Sends the server a signal, such as INT.
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

/// Returns a body for `/v1/completions`: greedy, 24 tokens, and the fields in `more`.
pub fn body(prompt: &str, more: &Value) -> Value {
    with(json!({"prompt": prompt, "max_tokens": 24, "temperature": 0}), more)
}

/// Returns a body with the fields in `more` added.
pub fn with(mut body: Value, more: &Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Reads the rest of a response from a raw connection, or stops after at least `enough` bytes.
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

/// Returns a client that goes through no proxy.
pub fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None);
    config.timeout_global(Some(Duration::from_secs(120))).build().new_agent()
}

fn answered(response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> (u16, String) {
    let response = response.unwrap();
    let status = response.status().as_u16();
    (status, response.into_body().read_to_string().unwrap())
}
