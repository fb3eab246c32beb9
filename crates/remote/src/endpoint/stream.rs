//! Server-sent events (WHATWG HTML, section 9.2.6): the data of each event in a response.

use crate::endpoint::json;
use anyhow::{anyhow, bail, ensure, Result};
use candecode_kit::error::quoted;
use std::io::{BufRead as _, BufReader, Read};
use std::time::{Duration, Instant};

/// Timeout for a silent server. Generous, because a long prompt in a long queue takes time.
pub const SILENCE: Duration = Duration::from_secs(300);
/// Maximum size of a non-streamed response, and of one event in a stream, in bytes.
pub const LONGEST: u64 = 4 << 20;

/// An event, or a whole response that isn't a stream.
#[derive(Debug, Default, PartialEq)]
pub struct Message {
    /// Its data, with line breaks between lines.
    pub data: String,
    /// Whether its type is `error`, or it has llama.cpp's field `error` in place of `data`.
    pub is_error: bool,
    /// Whether it is the whole response, as JSON.
    pub is_whole: bool,
}

/// The events of a response. Comments, events without data and unknown fields are skipped.
pub struct Stream<R> {
    reader: BufReader<R>,
    /// Maximum number of bytes left to read.
    left: u64,
    /// Whether the last line ended in a carriage return, which a line feed may follow.
    after_return: bool,
    /// The event that is being read, and whether it has a line of data yet.
    message: Message,
    has_data: bool,
    /// The first line, if it's neither a field nor a comment. It is quoted if the response has no
    /// events.
    unknown: Option<String>,
    state: State,
}

#[derive(PartialEq)]
enum State {
    /// Nothing has been read, or only lines that aren't fields.
    New,
    Begun,
    Ended,
}

impl<R: Read> Stream<R> {
    /// Reads the events in a body, from which at most `most` bytes are read.
    pub fn new(body: R, most: u64) -> Self {
        Self {
            reader: BufReader::new(body),
            left: most,
            after_return: false,
            message: Message::default(),
            has_data: false,
            unknown: None,
            state: State::New,
        }
    }

    /// Returns the next line, without its line ending: LF, CR or both. None at the end, where a
    /// last line may lack its ending.
    fn line(&mut self) -> Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                return Ok((!line.is_empty()).then_some(line));
            }
            let skipped = usize::from(self.after_return && buffer[0] == b'\n');
            let bytes = &buffer[skipped..];
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            line.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
            self.after_return = end.is_some_and(|end| bytes[end] == b'\r');
            let used = skipped + end.map_or(bytes.len(), |end| end + 1);
            self.reader.consume(used);
            let length = (line.len() + self.message.data.len()) as u64;
            ensure!(length <= LONGEST, "an event is longer than 4 MiB");
            let left = self.left.checked_sub(used as u64);
            ensure!(left.is_some(), "the stream is longer than any answer to this request");
            self.left = left.unwrap_or_default();
            if end.is_some() {
                return Ok(Some(line));
            }
        }
    }

    /// Adds a line to the event.
    fn add(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let line = line.strip_prefix('\u{feff}').filter(|_| self.unread()).unwrap_or(&line);
        if self.message.is_whole || (self.unread() && line.trim_start().starts_with(['{', '['])) {
            self.message.is_whole = true;
            self.message.data += line;
            self.message.data.push('\n');
            return;
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" | "error" => {
                if self.has_data {
                    self.message.data.push('\n');
                }
                self.message.data += value;
                self.message.is_error |= name == "error";
                self.has_data = true;
            }
            "event" => self.message.is_error |= value == "error",
            "" | "id" | "retry" => {}
            _ => {
                if self.unread() && !line.trim().is_empty() {
                    self.unknown = Some(line.to_string());
                }
                return;
            }
        }
        self.state = State::Begun;
    }

    /// Returns true if nothing has been read but blank lines.
    fn unread(&self) -> bool {
        self.state == State::New && self.unknown.is_none()
    }

    /// Returns the event that has been read. None if it has no data.
    fn take(&mut self) -> Option<Message> {
        self.has_data = false;
        Some(std::mem::take(&mut self.message)).filter(|message| !message.data.trim().is_empty())
    }

    /// Reads up to the end of an event.
    fn read(&mut self) -> Result<Option<Message>> {
        let began = Instant::now();
        while began.elapsed() < SILENCE {
            match self.line()? {
                Some(line) if line.is_empty() && !self.message.is_whole => {
                    if let Some(message) = self.take() {
                        return Ok(Some(message));
                    }
                }
                Some(line) => self.add(&line),
                None => {
                    if let (State::New, Some(line)) = (&self.state, &self.unknown) {
                        bail!("the server answered, but not in OpenAI's format: {}", quoted(line));
                    }
                    self.state = State::Ended;
                    // Some servers omit the last line break. Half an event isn't one.
                    return Ok(self.take().filter(|last| {
                        last.is_whole
                            || last.is_error
                            || last.data.trim() == "[DONE]"
                            || json::parse(&last.data).is_ok()
                    }));
                }
            }
        }
        let seconds = SILENCE.as_secs();
        Err(anyhow!("the connection is still open, but no event arrived for {seconds} s"))
    }
}

impl<R: Read> Iterator for Stream<R> {
    type Item = Result<Message>;

    fn next(&mut self) -> Option<Result<Message>> {
        if self.state == State::Ended {
            return None;
        }
        self.read().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends bytes a few at a time.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(self.0.len());
            let (now, later) = self.0.split_at(count);
            buffer[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    /// Returns the data of each event, which must not depend on how the bytes are divided.
    fn data(bytes: &[u8]) -> Vec<String> {
        let read = |piece| {
            let messages = Stream::new(Pieces(bytes, piece), 1 << 20);
            messages.map(|message| message.unwrap().data).collect::<Vec<_>>()
        };
        let whole = read(bytes.len());
        (1..bytes.len().min(9)).for_each(|piece| assert_eq!(read(piece), whole, "{piece}"));
        whole
    }

    /// Examples of the specification, and of section 9.2.6's rules.
    #[test]
    fn events_are_read_as_specified() {
        for (sent, want) in [
            ("data: YHOO\ndata: +2\ndata: 10\n\n", &["YHOO\n+2\n10"][..]),
            (
                ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\n",
                &["first event", "second event"],
            ),
            ("data:test\n\ndata:  test\n\n", &["test", " test"]),
            ("data\n\ndata\ndata\n\ndata:", &[]),
            ("\u{feff}data: a\n\n\u{feff}data: b\n\n", &["a"]),
            ("data: a\r\rdata: b\rdata: c\r\r", &["a", "b\nc"]),
            ("data: a\r\n\r\ndata: b\r\ndata: c\n\r\n", &["a", "b\nc"]),
            ("event: ping\ndata: \n\nretry: 9\ndata: a\n\n", &["a"]),
            ("data: a\n\ndata: {\"half", &["a"]),
            ("data: a\n\ndata: {}", &["a", "{}"]),
            ("data: a\n\ndata: [DONE]", &["a", "[DONE]"]),
            ("data: a\r", &[]),
            ("\n{\"a\":\n\n 5}", &["{\"a\":\n\n 5}\n"]),
            ("", &[]),
        ] {
            assert_eq!(data(sent.as_bytes()), want, "{sent:?}");
        }
        assert_eq!(data(b"data: caf\xe9 \xf0\x9f\n\n"), ["caf\u{fffd} \u{fffd}"]);
    }

    #[test]
    fn an_event_is_an_error_by_its_type_or_by_llama_cpps_field() {
        for (sent, is_error) in [
            ("event: error\ndata: a\n\n", true),
            ("data: a\nevent: error\n\n", true),
            ("error: a\n\n", true),
            ("error: a", true),
            ("event: error\n\ndata: a\n\n", false),
            ("event: message\ndata: a\n\n", false),
        ] {
            let messages = Stream::new(sent.as_bytes(), 1 << 20);
            let found: Vec<_> = messages.map(|message| message.unwrap().is_error).collect();
            assert_eq!(found, [is_error], "{sent:?}");
        }
    }
}
