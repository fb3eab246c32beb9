//! A server of OpenAI's protocol without a model: it sends what a test says, byte for byte.

use crate::test_servers::loopback::{Asked, Loopback};
use std::io::{Result, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A server's answers.
pub struct OpenAi {
    /// The answer to a request for its models.
    pub models: Vec<u8>,
    /// The answers to requests for text, in turn. The last one is repeated. Without any, the text
    /// is " a dog.".
    pub texts: Vec<Vec<u8>>,
    /// What follows.
    pub then: Then,
    /// The key that all requests need.
    pub key: Option<&'static str>,
}

/// What follows the answer to a request for text.
#[derive(Clone)]
pub enum Then {
    Close,
    /// Nothing: the connection stays open.
    Wait,
    /// The same bytes over and over.
    Repeat(String),
}

impl Default for OpenAi {
    fn default() -> Self {
        Self::owned_by("vllm")
    }
}

impl OpenAi {
    /// Lists the model "small" with this `owned_by`.
    pub fn owned_by(owner: &str) -> Self {
        let list = format!(r#"{{"data":[{{"id":"small","owned_by":"{owner}"}}]}}"#);
        Self { models: json(&list), texts: Vec::new(), then: Then::Close, key: None }
    }

    /// Sends this for every request for text.
    pub fn sends(text: impl Into<Vec<u8>>) -> Self {
        Self { texts: vec![text.into()], ..Self::default() }
    }

    /// Sends this when asked for its models.
    pub fn lists(models: impl Into<Vec<u8>>) -> Self {
        Self { models: models.into(), ..Self::default() }
    }

    pub fn start(self) -> Loopback {
        Loopback::start(self.answer())
    }

    pub fn start_tls(self) -> Loopback {
        Loopback::start_tls(self.answer())
    }

    fn answer(self) -> impl Fn(&Asked, &mut dyn Write) -> Result<()> + Send + Sync + 'static {
        let count = AtomicUsize::new(0);
        move |asked, stream| {
            let key = self.key.map(|key| format!("bearer {key}"));
            if key.is_some() && asked.header("authorization") != key.as_deref() {
                let said = r#"{"error":{"message":"Incorrect API key provided"}}"#;
                return stream.write_all(&response("401 Unauthorized", "", said));
            }
            if !asked.line.starts_with("POST ") {
                return stream.write_all(&self.models);
            }
            let at = count.fetch_add(1, Ordering::SeqCst).min(self.texts.len().saturating_sub(1));
            match self.texts.get(at) {
                Some(text) => stream.write_all(text)?,
                None => stream.write_all(&stream_of(dog(asked.line.contains("chat"))))?,
            }
            self.follow(stream)
        }
    }

    fn follow(&self, stream: &mut dyn Write) -> Result<()> {
        match &self.then {
            Then::Close => Ok(()),
            Then::Wait => loop {
                std::thread::park();
            },
            Then::Repeat(events) => {
                let many = events.repeat((1 << 16) / events.len() + 1);
                loop {
                    stream.write_all(many.as_bytes())?;
                }
            }
        }
    }
}

/// A response with a body of known length.
pub fn response(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

/// A response with this JSON.
pub fn json(body: &str) -> Vec<u8> {
    response("200 OK", "content-type: application/json\r\n", body)
}

/// A stream of this text, which ends where the connection does.
pub fn stream_of(events: impl AsRef<[u8]>) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    [head.as_bytes(), events.as_ref()].concat()
}

/// The same with `transfer-encoding: chunked`, whose end is missing.
pub fn broken_stream_of(events: &str) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    format!("{head}{:x}\r\n{events}\r\n", events.len()).into_bytes()
}

/// An event with a piece of text, and a finish reason or `null`, as JSON.
pub fn event(text: &str, finish_reason: &str) -> String {
    let choice = format!(r#"{{"index":0,"text":"{text}","finish_reason":{finish_reason}}}"#);
    format!("data: {{\"choices\":[{choice}]}}\n\n")
}

/// The end of a stream.
pub const DONE: &str = "data: [DONE]\n\n";

/// The text " a dog." in two events, and its tokens' number.
fn dog(chat: bool) -> String {
    let mut events = event(" a", "null") + &event(" dog.", "\"stop\"");
    if chat {
        for text in [" a", " dog."] {
            let (plain, delta) = (format!(r#""text":"{text}""#), format!(r#""content":"{text}""#));
            events = events.replace(&plain, &format!(r#""delta":{{{delta}}}"#));
        }
    }
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2}}"#;
    events + &format!("data: {usage}\n\n") + DONE
}
