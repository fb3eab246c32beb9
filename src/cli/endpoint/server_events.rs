//! Server-sent events (WHATWG HTML, section 9.2): lines of a response, as messages.

use std::io::{self, BufRead, Read as _};
use std::time::{Duration, Instant};

/// The longest event, in bytes, and the longest line.
const LONGEST_EVENT: usize = 4 << 20;

/// The data of each event of a stream.
pub struct Events<R> {
    reader: R,
    /// How many bytes the stream may still have.
    left: u64,
    /// How long an event may take. Comments and empty lines, which keep a connection open, are none.
    patience: Duration,
}

impl<R: BufRead> Events<R> {
    /// The events of `reader`: at most `most` bytes of them, and each within `patience`.
    pub fn new(reader: R, most: u64, patience: Duration) -> Self {
        Self { reader, left: most, patience }
    }

    /// The next line, without its end; None at the end of the stream.
    fn line(&mut self) -> io::Result<Option<String>> {
        let mut bytes = Vec::new();
        let most = self.left.min(LONGEST_EVENT as u64) + 1;
        let read = self.reader.by_ref().take(most).read_until(b'\n', &mut bytes)?;
        if read == 0 {
            return Ok(None);
        }
        if read > LONGEST_EVENT {
            return Err(too_long());
        }
        let Some(left) = self.left.checked_sub(read as u64) else {
            return Err(io::Error::other("the stream is longer than any answer to this request"));
        };
        self.left = left;
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
        let began = Instant::now();
        loop {
            if began.elapsed() > self.patience {
                let seconds = self.patience.as_secs();
                let words = format!("the connection is open, but for {seconds} s no event came");
                return Some(Err(io::Error::other(words)));
            }
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
                    Some(data) if data.len() + text.len() >= LONGEST_EVENT => {
                        return Some(Err(too_long()));
                    }
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

/// The error of an event that is too long.
fn too_long() -> io::Error {
    io::Error::other("an event is longer than 4 MiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn events(stream: &str) -> Vec<String> {
        Events::new(stream.as_bytes(), 1 << 20, MINUTE).map(|event| event.unwrap()).collect()
    }

    /// The first error of a stream without an end.
    fn error(endless: &'static str, most: u64, patience: Duration) -> String {
        let reader = io::BufReader::new(Endless(endless.as_bytes().iter().cycle()));
        let mut events = Events::new(reader, most, patience);
        events.find_map(Result::err).unwrap().to_string()
    }

    /// The same bytes, again and again.
    struct Endless(std::iter::Cycle<std::slice::Iter<'static, u8>>);

    impl io::Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.iter_mut().zip(self.0.by_ref()).for_each(|(to, from)| *to = *from);
            Ok(buffer.len())
        }
    }

    #[test]
    fn no_stream_is_endless() {
        let long = "an event is longer than 4 MiB";
        for stream in ["data: aaaaaaaaaaaaaaa\n", "a", "data: a", ": comment ", "data:\n"] {
            assert_eq!(error(stream, 1 << 30, 60 * MINUTE), long, "{stream:?}");
        }
        let most = "the stream is longer than any answer to this request";
        for stream in ["data: {}\n\n", "data: aaaaaaaaaaaaa\n", ": keep-alive\n", "\n", "\r\n"] {
            assert_eq!(error(stream, 100_000, 60 * MINUTE), most, "{stream:?}");
        }
        for stream in [": keep-alive\n", "\n", "event: ping\n", ": a\n\n"] {
            let words = error(stream, u64::MAX - 1, Duration::from_millis(20));
            assert!(words.ends_with("no event came"), "{stream:?}: {words}");
        }
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
        assert!(Events::new(&b"data: \xff\n\n"[..], 99, MINUTE).next().unwrap().is_err());
    }
}
