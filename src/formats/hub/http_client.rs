//! The hub's protocol: what it says of a file, and the bytes of one.
//!
//! hf-hub 0.5 has a client, too. It knows no time limits, keeps neither the error codes nor `Retry-After`, appends a whole
//! file to a part where a server ignores `Range`, and checks no sha256; so this one is our own.

use crate::formats::hub::hub_cache::is_plain_name;
use crate::formats::hub::hub_error::{header, HubError};
use std::cell::Cell;
use std::time::Duration;
use ureq::http::Response;
use ureq::{Agent, Body};

/// What the hub says of a file.
pub struct FileInfo {
    /// The commit that the file is of.
    pub commit: String,
    /// What its content is called; of a large file that is the sha256.
    pub etag: String,
    /// Its length in bytes, if it is said.
    pub size: Option<u64>,
}

/// A hub, and how it is asked.
pub struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    /// Set after the first response. Only then are requests that nobody answers tried again: before, there is no network.
    reached: Cell<bool>,
}

const TRIES: u32 = 5;
const REDIRECTS: usize = 5;
const LONGEST_WAIT: Duration = Duration::from_secs(90);

impl Client {
    /// The hub of `HF_ENDPOINT`, asked with `token`, by way of the proxy of `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY`.
    pub fn new(token: Option<String>) -> Self {
        let seconds = |name: &str, default: u64| {
            let value = std::env::var(name).ok().and_then(|value| value.parse().ok());
            Some(Duration::from_secs(value.filter(|n| *n > 0).unwrap_or(default)))
        };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_resolve(Some(Duration::from_secs(15)))
            .timeout_connect(Some(Duration::from_secs(15)))
            .timeout_recv_response(seconds("HF_HUB_ETAG_TIMEOUT", 30))
            .timeout_per_read(seconds("HF_HUB_DOWNLOAD_TIMEOUT", 30))
            .user_agent(concat!("candecode/", env!("CARGO_PKG_VERSION")));
        let agent = config.build().new_agent();
        Self { agent, endpoint: endpoint(), token, reached: Cell::new(false) }
    }

    /// True if requests carry a token.
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// What the hub says of a file, after some tries.
    ///
    /// # Errors
    /// Any [`HubError`] but those of the file's bytes.
    pub fn info(&self, repo: &str, revision: &str, file: &str) -> Result<FileInfo, HubError> {
        let mut tries = 0;
        loop {
            match self.info_once(repo, revision, file) {
                Err(error) => self.retry_or_fail(error, &mut tries)?,
                Ok(info) => return Ok(info),
            }
        }
    }

    fn info_once(&self, repo: &str, revision: &str, file: &str) -> Result<FileInfo, HubError> {
        let response = self.request(repo, revision, file, None)?;
        let text = |name: &str| header(response.headers(), name);
        // Of a large file, which lies elsewhere, the hub's own answer has these; its other headers are of the redirect.
        let (etag, size) = match text("x-linked-etag") {
            Some(etag) => (Some(etag), text("x-linked-size")),
            None => (text("etag"), text("content-length")),
        };
        let (Some(commit), Some(etag)) = (text("x-repo-commit"), etag) else {
            let what = "it does not say x-repo-commit and etag, as a hub does";
            return Err(HubError::NotAHub(what.into()));
        };
        let etag = etag.trim_start_matches("W/").trim_matches('"');
        if !is_plain_name(commit) || !is_plain_name(etag) {
            return Err(HubError::NotAHub(format!("its commit {commit} or etag {etag} is none")));
        }
        let size = size.and_then(|size| size.parse().ok());
        Ok(FileInfo { commit: commit.to_string(), etag: etag.to_string(), size })
    }

    /// Waits before the next try, if there is hope: the server is busy, or a connection broke.
    ///
    /// # Errors
    /// The error itself, if there is no hope, or after five tries.
    pub fn retry_or_fail(&self, error: HubError, tries: &mut u32) -> Result<(), HubError> {
        let wait = match &error {
            HubError::Retryable(_, wait) => *wait,
            HubError::Unreachable(_) if self.reached.get() => None,
            _ => return Err(error),
        };
        *tries += 1;
        let wait = wait.unwrap_or(Duration::from_millis(250 << *tries));
        if *tries >= TRIES || wait > LONGEST_WAIT {
            return Err(error);
        }
        std::thread::sleep(wait);
        Ok(())
    }

    /// A file's bytes from `from` on, where they begin, and the length of the whole file, if it is said. A server without
    /// range support sends the whole file, whatever it is asked for, so the bytes may begin at 0.
    ///
    /// # Errors
    /// Any [`HubError`]; this is one try.
    pub fn bytes(
        &self,
        repo: &str,
        commit: &str,
        file: &str,
        from: u64,
    ) -> Result<(Body, u64, Option<u64>), HubError> {
        let response = self.request(repo, commit, file, Some(from))?;
        let text = |name: &str| header(response.headers(), name);
        let range = text("content-range").and_then(|range| range.strip_prefix("bytes "));
        let (begin, size) = match (response.status().as_u16(), range) {
            (206, Some(range)) => {
                (range.split('-').next(), range.split('/').next_back()) // 100-199/200
            }
            (200, _) => (Some("0"), text("content-length")),
            _ => (None, None),
        };
        let begin = begin.and_then(|begin| begin.parse().ok());
        let size = size.and_then(|size| size.parse().ok());
        match begin {
            Some(begin) if begin == from || begin == 0 => Ok((response.into_body(), begin, size)),
            _ => Err(HubError::Damaged("other bytes came than were asked for".into())),
        }
    }

    /// Asks for the headers of a file, or for its bytes from some place on, and follows redirects. What the hub says of a
    /// large file is said with the redirect to it, so where only headers are wanted that one is not followed.
    fn request(
        &self,
        repo: &str,
        revision: &str,
        file: &str,
        from: Option<u64>,
    ) -> Result<Response<Body>, HubError> {
        let mut url = format!("{}/{repo}/resolve/{revision}/{file}", self.endpoint);
        for _ in 0..REDIRECTS {
            let response = self.request_once(&url, from)?;
            let enough = from.is_none() && response.headers().contains_key("x-linked-etag");
            if !response.status().is_redirection() || enough {
                return Ok(response);
            }
            url = match header(response.headers(), "location") {
                Some(to) if to.starts_with("http://") || to.starts_with("https://") => to.into(),
                Some(to) => format!("{}/{}", origin(&url), to.trim_start_matches('/')),
                None => return Err(HubError::NotAHub(format!("{url} redirects to nowhere"))),
            };
        }
        Err(HubError::NotAHub("it redirects without end".into()))
    }

    fn request_once(&self, url: &str, from: Option<u64>) -> Result<Response<Body>, HubError> {
        let mut request = match from {
            Some(from) => self.agent.get(url).header("range", format!("bytes={from}-")),
            None => self.agent.head(url),
        };
        // A compressed file would have another length.
        request = request.header("accept-encoding", "identity");
        // The token is for the hub, and not for other hosts that it redirects to.
        if let Some(token) = self.token.as_ref().filter(|_| origin(url) == origin(&self.endpoint)) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = request.call().map_err(HubError::no_answer)?;
        self.reached.set(true);
        match response.status().as_u16() {
            200 | 206 | 301 | 302 | 303 | 307 | 308 => Ok(response),
            _ => Err(HubError::of_status(&response)),
        }
    }
}

/// The hub's address: `HF_ENDPOINT`, else Hugging Face's.
pub fn endpoint() -> String {
    let named = std::env::var("HF_ENDPOINT").ok().filter(|value| !value.is_empty());
    let endpoint = named.unwrap_or_else(|| "https://huggingface.co".into());
    endpoint.trim_end_matches('/').to_string()
}

/// Scheme, host and port.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find('/').map_or(url.len(), |at| host + at);
    &url[..end]
}
