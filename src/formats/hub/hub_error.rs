//! What can go wrong with a request to the hub.

use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
use std::time::Duration;
use ureq::http::{HeaderMap, Response};
use ureq::{Body, Error};

/// What went wrong with a file or a request.
#[derive(Debug)]
pub enum HubError {
    /// There is no such file, or (`repository`) no such repository, as far as this token may see.
    NotFound {
        /// The whole repository is not there.
        repository: bool,
    },
    /// The hub answered 401 or 403.
    Refused {
        /// The repository is open only to those who accepted its terms.
        gated: bool,
        /// What the hub said.
        said: String,
    },
    /// Nobody answers.
    Unreachable(String),
    /// Another request may succeed, if it comes no sooner than the duration, where the hub named one.
    Retryable(String, Option<Duration>),
    /// The bytes are not those that the hub promised.
    Damaged(String),
    /// Whatever answers does not speak the hub's protocol: a login page, a proxy.
    NotAHub(String),
    /// The file could not be written to the disk.
    Disk(std::io::Error),
}

impl HubError {
    /// The error of a request that got no answer.
    pub fn no_answer(error: Error) -> Self {
        match &error {
            Error::Io(io) => match io.kind() {
                BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof => {
                    Self::Retryable("the connection broke".into(), None)
                }
                _ => Self::Unreachable(io.to_string()),
            },
            Error::Protocol(_) => Self::Retryable(format!("the connection broke ({error})"), None),
            Error::HostNotFound => Self::Unreachable("there is no such host".into()),
            Error::Timeout(_) => Self::Unreachable("no answer in time".into()),
            _ => Self::Unreachable(error.to_string()),
        }
    }

    /// The error of an answer that is neither a file nor a redirect. The hub says more than a status: `x-error-code` tells a
    /// gated repository from one that is not there, for both get a 401 where no token is sent.
    pub fn of_status(response: &Response<Body>) -> Self {
        let headers = response.headers();
        let (status, code) = (response.status().as_u16(), header(headers, "x-error-code"));
        let message = header(headers, "x-error-message");
        let said = message.map_or(String::new(), |message| format!(": {message}"));
        match status {
            401 | 403 | 404 if code == Some("RepoNotFound") => Self::NotFound { repository: true },
            404 => Self::NotFound { repository: false },
            401 | 403 => {
                let gated = code == Some("GatedRepo");
                Self::Refused { gated, said: format!("{status}{said}") }
            }
            416 => Self::Damaged("it is shorter than what is here".into()),
            408 | 429 | 500..=599 => {
                let wait = header(headers, "retry-after").and_then(|wait| wait.trim().parse().ok());
                let asks = wait.map_or(String::new(), |n: u64| format!(", and asks to wait {n} s"));
                let what = match status {
                    429 => "the hub is asked too often",
                    _ => "the hub is in trouble",
                };
                let what = format!("{what} ({status}{said}{asks})");
                Self::Retryable(what, wait.map(Duration::from_secs))
            }
            _ => Self::NotAHub(format!("it answers {status}{said}")),
        }
    }
}

/// A header as text.
pub fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
