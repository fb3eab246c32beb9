//! Server-sent events (WHATWG HTML, section 9.2.6): the data of each event in a response.

use anyhow::{bail, Result};
use candecode_kit::error::quoted;
use std::io::{BufRead as _, BufReader, Read};

/// An event.
#[derive(Debug, Default, PartialEq)]
pub struct Message {
    /// Its data, with line breaks between lines.
    pub data: String,
    /// Whether its type is `error`, or it has llama.cpp's field `error` in place of `data`.
    pub is_error: bool,
}

/// The events of a response. Comments, events without data and unknown fields are skipped.
pub struct Stream<R> {
    reader: BufReader<R>,
    /// Whether an event has been read.
    begun: bool,
    /// The first line that isn't a field, which is quoted if the response has no events.
    unknown: Option<String>,
}

impl<R: Read> Stream<R> {
    /// Reads the events in a body.
    pub fn new(body: R) -> Self {
        Self { reader: BufReader::new(body), begun: false, unknown: None }
    }

    /// Reads the next event. None at the end, where a last event may lack its empty line.
    ///
    /// # Errors
    /// If the body can't be read, or isn't a stream of events.
    pub fn read(&mut self) -> Result<Option<Message>> {
        let mut message = Message::default();
        loop {
            let mut line = Vec::new();
            let is_end = self.reader.read_until(b'\n', &mut line)? == 0;
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\r', '\n']);
            if line.is_empty() {
                if !message.data.trim().is_empty() {
                    self.begun = true;
                    return Ok(Some(message));
                }
                if is_end {
                    break;
                }
                message = Message::default();
                continue;
            }
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "data" | "error" => {
                    if !message.data.is_empty() {
                        message.data.push('\n');
                    }
                    message.data += value;
                    message.is_error |= name == "error";
                }
                "event" => message.is_error |= value == "error",
                "" | "id" | "retry" => {}
                _ => drop(self.unknown.get_or_insert_with(|| line.to_string())),
            }
        }
        match &self.unknown {
            Some(line) if !self.begun => {
                bail!("the server answered, but not in OpenAI's format: {}", quoted(line))
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(sent: &[u8]) -> Vec<Message> {
        let mut stream = Stream::new(sent);
        std::iter::from_fn(|| stream.read().unwrap()).collect()
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
            ("data: a\r\n\r\ndata: b\r\ndata: c\n\r\n", &["a", "b\nc"]),
            ("event: ping\ndata: \n\nretry: 9\ndata: a\n\n", &["a"]),
            ("data: a\n\ndata: [DONE]", &["a", "[DONE]"]),
            ("", &[]),
        ] {
            let data: Vec<_> = messages(sent.as_bytes()).into_iter().map(|m| m.data).collect();
            assert_eq!(data, want, "{sent:?}");
        }
        assert_eq!(messages(b"data: caf\xe9\n\n")[0].data, "caf\u{fffd}");
    }

    #[test]
    fn an_event_is_an_error_by_its_type_or_by_llama_cpps_field() {
        for (sent, is_error) in [
            ("event: error\ndata: a\n\n", true),
            ("data: a\nevent: error\n\n", true),
            ("error: a", true),
            ("event: error\n\ndata: a\n\n", false),
            ("event: message\ndata: a\n\n", false),
        ] {
            let data = "a".to_string();
            assert_eq!(messages(sent.as_bytes()), [Message { data, is_error }], "{sent:?}");
        }
    }
}
