//! What can go wrong with a question to the hub.

use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
use std::time::Duration;
use ureq::http::{HeaderMap, Response};
use ureq::{Body, Error};

/// What went wrong with a request.
#[derive(Debug)]
pub enum Fault {
    /// There is no such file, or (`repository`) no such repository, as far as this token sees.
    Absent {
        /// It is the whole repository that is not there.
        repository: bool,
    },
    /// 401 or 403.
    Refused {
        /// The repository is open to those only who asked for it.
        gated: bool,
        /// What the hub said.
        said: String,
    },
    /// Nobody answers.
    Unreachable(String),
    /// It may be better the next time, not before so long.
    Later(String, Option<Duration>),
    /// What came is not what the hub promised.
    Damaged(String),
    /// What answers is no hub.
    Strange(String),
    /// The disk does not take it.
    Disk(std::io::Error),
}

impl Fault {
    /// Where there was no answer: whether one may come.
    pub fn of_error(error: Error) -> Fault {
        match &error {
            Error::Io(io) => match io.kind() {
                BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof => {
                    Fault::Later("the connection broke".into(), None)
                }
                _ => Fault::Unreachable(io.to_string()),
            },
            Error::Protocol(_) => Fault::Later(format!("the connection broke ({error})"), None),
            Error::HostNotFound => Fault::Unreachable("there is no such host".into()),
            Error::Timeout(_) => Fault::Unreachable("no answer in time".into()),
            _ => Fault::Unreachable(error.to_string()),
        }
    }

    /// Sorts out the answers that are neither a file nor a redirect.
    ///
    /// # Errors
    /// What such an answer means.
    pub fn sorted(response: Response<Body>) -> Result<Response<Body>, Fault> {
        let code = response.status().as_u16();
        let headers = response.headers();
        let error = header(headers, "x-error-code");
        let said =
            header(headers, "x-error-message").map_or(String::new(), |said| format!(": {said}"));
        let repository = matches!(error, Some("RepoNotFound"));
        Err(match code {
            200 | 206 | 301 | 302 | 303 | 307 | 308 => return Ok(response),
            401 | 403 | 404 if repository => Fault::Absent { repository },
            404 => Fault::Absent { repository },
            401 | 403 => {
                Fault::Refused { gated: error == Some("GatedRepo"), said: format!("{code}{said}") }
            }
            416 => Fault::Damaged("it is shorter than what is here".into()),
            408 | 429 | 500..=599 => {
                let wait = header(headers, "retry-after").and_then(|wait| wait.trim().parse().ok());
                let asks = wait.map_or(String::new(), |n: u64| format!(", and asks to wait {n} s"));
                let what = if code == 429 {
                    "the hub is asked too often"
                } else {
                    "the hub is in trouble"
                };
                Fault::Later(format!("{what} ({code}{said}{asks})"), wait.map(Duration::from_secs))
            }
            _ => Fault::Strange(format!("it answers {code}{said}")),
        })
    }
}

/// A header as text.
pub fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
