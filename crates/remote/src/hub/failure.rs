//! Why a request or a download failed, and whether another try might help.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// Why something couldn't be downloaded.
pub enum Failure {
    /// The hub refused the request with this status.
    Status(u16),
    /// The host that the hub redirected to refused the request with this status.
    Elsewhere(String, u16),
    /// A response has no such header, or an invalid one. The second word says which.
    Header(&'static str, &'static str),
    /// One redirect led to another, too many times.
    Redirects,
    /// Nothing arrived for this many seconds.
    Silent(u64),
    /// The connection couldn't be made, or broke.
    Connection(ureq::Error),
    /// The token can't be sent in a header.
    Token,
    /// The file is empty.
    Empty,
    /// What arrived isn't the file that the hub announced.
    Damaged(String),
    /// Another program holds this lock.
    Locked(PathBuf),
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
            Self::Status(code) => *code,
            _ => 0,
        }
    }

    /// Returns true if a retry might help: the hub is busy, or the connection broke. A store that
    /// the hub redirects to may refuse an address that has expired, and the next one is new.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Status(code) => matches!(code, 408 | 429 | 500..=599),
            Self::Connection(ureq::Error::Io(e)) => {
                e.kind() != ErrorKind::ConnectionRefused && !is_unknown_host(e)
            }
            Self::Connection(error) => matches!(error, ureq::Error::Protocol(_)),
            Self::Elsewhere(..) => true,
            _ => false,
        }
    }
}

/// Returns true if no address was found for a host's name. The standard library has no kind for it.
fn is_unknown_host(error: &io::Error) -> bool {
    error.to_string().starts_with("failed to lookup address information")
}
