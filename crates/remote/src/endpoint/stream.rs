//! Server-sent events: the data of each event in a response.

use anyhow::{anyhow, ensure, Context as _, Result};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::time::{Duration, Instant};
use ureq::{Body, BodyReader};

/// Timeout for a silent server. Generous, because a long prompt in a long queue takes time.
pub const SILENCE: Duration = Duration::from_secs(300);
/// Maximum size of a non-streamed response, and of one event in a stream, in bytes.
pub const LONGEST: u64 = 4 << 20;

/// An event's data, or the error that ended the stream.
pub type Data = Result<String>;

/// The data of each event of a response (WHATWG HTML, section 9.2). Inference servers write an
/// event's data on one line. Comments, empty lines and other fields are skipped.
pub struct Stream {
    reader: BufReader<BodyReader<'static>>,
    /// Maximum number of bytes left to read.
    left: u64,
}

impl Stream {
    /// Reads the events in a body, from which at most `most` bytes are read.
    pub fn new(body: Body, most: u64) -> Self {
        let reader = body.into_with_config().limit(u64::MAX).reader();
        Self { reader: BufReader::new(reader), left: most }
    }

    /// Returns the next line, without its line ending. None at the end of the stream.
    fn line(&mut self) -> Result<Option<String>> {
        let mut bytes = Vec::new();
        let most = self.left.min(LONGEST) + 1;
        let read = self.reader.by_ref().take(most).read_until(b'\n', &mut bytes)? as u64;
        ensure!(read <= LONGEST, "an event is longer than 4 MiB");
        ensure!(read <= self.left, "the stream is longer than any answer to this request");
        self.left -= read;
        let line = String::from_utf8(bytes).context("the stream is not UTF-8 text")?;
        Ok((read > 0).then(|| line.trim_end().to_string()))
    }
}

impl Iterator for Stream {
    type Item = Data;

    fn next(&mut self) -> Option<Data> {
        let began = Instant::now();
        while began.elapsed() < SILENCE {
            match self.line() {
                Ok(None) => return None,
                Ok(Some(line)) => match line.strip_prefix("data:") {
                    Some(data) => return Some(Ok(data.trim_start().to_string())),
                    None => continue,
                },
                Err(error) => return Some(Err(error)),
            }
        }
        let seconds = SILENCE.as_secs();
        Some(Err(anyhow!("the connection is still open, but no event arrived for {seconds} s")))
    }
}

/// Returns the message of a JSON error, if there is one: `error.message` (OpenAI), a plain `error`
/// or `message`, or `detail` (FastAPI).
pub fn error_message(json: &Value) -> Option<String> {
    let message = json["error"]["message"].as_str().or(json["error"].as_str());
    let message = message.or(json["message"].as_str()).or(json["detail"].as_str());
    message.map(str::to_string)
}
