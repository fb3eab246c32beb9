//! Why a request or a download failed, and whether another try might help.

use crate::connection::reason;
use crate::retry_after::Wait;
use std::io;
use std::time::Duration;

/// Why something couldn't be downloaded.
pub enum Failure {
    /// The hub refused the request with this status, and may have said when to try again.
    Status(u16, Option<Wait>),
    /// The host that the hub redirected to refused the request with this status.
    Elsewhere(String, u16),
    /// A response has no such header, or an invalid one. The second word says which.
    Header(&'static str, &'static str),
    /// One redirect led to another, too many times.
    Redirects,
    /// Nothing arrived for this many seconds.
    Silent(u64),
    /// The connection to this host couldn't be made, or broke.
    Connection(String, ureq::Error),
    /// The token can't be sent in a header.
    Token,
    /// The file is empty.
    Empty,
    /// What arrived isn't the file that the hub announced.
    Damaged(String),
    /// The cache couldn't be read or written.
    Disk(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

impl Failure {
    /// Returns the status with which the hub refused a request, or 0 for other failures.
    pub fn status(&self) -> u16 {
        match self {
            Self::Status(code, _) => *code,
            _ => 0,
        }
    }

    /// Returns true if a retry might help: the hub is busy, or the connection broke. A store that
    /// the hub redirects to may refuse an address that has expired, and the next one is new.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Status(code, _) => matches!(code, 408 | 429 | 500..=599),
            Self::Connection(_, error @ (ureq::Error::Io(_) | ureq::Error::Protocol(_))) => {
                reason(error).is_none()
            }
            Self::Elsewhere(..) => true,
            _ => false,
        }
    }

    /// Returns how long to wait before this try, counted from 1. None if that's too long.
    pub fn pause(&self, tries: u32) -> Option<Duration> {
        let usual = usual_pause(tries);
        match self {
            Self::Status(_, Some(wait)) => wait.bounded().map(|time| time.max(usual)),
            _ => Some(usual),
        }
    }
}

/// Returns how long to wait before this try, counted from 1, if the hub doesn't say.
pub fn usual_pause(tries: u32) -> Duration {
    Duration::from_millis(250 << tries)
}
