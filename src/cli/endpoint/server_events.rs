//! Server-sent events (WHATWG HTML, section 9.2): lines of a response, as messages.

use std::io::{self, BufRead, Read as _};

/// A line longer than this is no event of a server that means well.
const LONGEST_LINE: u64 = 4 << 20;

/// The data of each event of a stream.
pub struct Events<R> {
    reader: R,
}

impl<R: BufRead> Events<R> {
    /// The events that `reader` gives.
    pub fn new(reader: R) -> Self {
        Self { reader }
    }

    /// The next line, without its end; None at the end of the stream.
    fn line(&mut self) -> io::Result<Option<String>> {
        let mut bytes = Vec::new();
        let read = self.reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes)?;
        if read == 0 {
            return Ok(None);
        }
        if read as u64 == LONGEST_LINE {
            return Err(io::Error::other("an event is longer than 4 MiB"));
        }
        let line = String::from_utf8(bytes)
            .map_err(|_| io::Error::other("the stream is not UTF-8 text"))?;
        Ok(Some(line.trim_end_matches(['\n', '\r']).to_string()))
    }
}

impl<R: BufRead> Iterator for Events<R> {
    type Item = io::Result<String>;

    /// The data of the next event. An empty line ends one; comments and other fields are skipped.
    fn next(&mut self) -> Option<Self::Item> {
        let mut data: Option<String> = None;
        loop {
            let line = match self.line() {
                Ok(Some(line)) => line,
                Ok(None) => return data.map(Ok), // some servers end without the last empty line
                Err(error) => return Some(Err(error)),
            };
            if line.is_empty() {
                match data {
                    Some(data) => return Some(Ok(data)),
                    None => continue,
                }
            }
            if let Some(text) = line.strip_prefix("data:") {
                let text = text.strip_prefix(' ').unwrap_or(text);
                match &mut data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(text);
                    }
                    None => data = Some(text.to_string()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(stream: &str) -> Vec<String> {
        Events::new(stream.as_bytes()).map(|event| event.unwrap()).collect()
    }

    #[test]
    fn an_empty_line_ends_an_event() {
        assert_eq!(events("data: {\"a\": 1}\n\ndata: [DONE]\n\n"), ["{\"a\": 1}", "[DONE]"]);
    }

    #[test]
    fn the_space_and_the_carriage_return_are_not_data() {
        assert_eq!(events("data:x\r\n\r\ndata:  y\n\n"), ["x", " y"]);
    }

    #[test]
    fn comments_and_other_fields_are_skipped() {
        assert_eq!(events(": ping\n\nevent: message\nid: 7\ndata: x\n\n"), ["x"]);
    }

    #[test]
    fn lines_of_one_event_are_joined() {
        assert_eq!(events("data: a\ndata: b\n\n"), ["a\nb"]);
    }

    #[test]
    fn a_last_event_without_its_empty_line_counts() {
        assert_eq!(events("data: a\n\ndata: b"), ["a", "b"]);
    }

    #[test]
    fn bytes_that_are_no_text_are_an_error() {
        assert!(Events::new(&b"data: \xff\n\n"[..]).next().unwrap().is_err());
    }
}
