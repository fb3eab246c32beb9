//! The hub's protocol: what it says of a file, and the bytes of one.

use crate::formats::hub::hub_cache::plain;
use crate::formats::hub::hub_error::{header, Fault};
use anyhow::{Context as _, Result};
use std::cell::Cell;
use std::time::Duration;
use ureq::http::Response;
use ureq::{Agent, Body};

/// What the hub says of a file.
pub struct About {
    /// The commit that the file is of.
    pub commit: String,
    /// What its content is called: of large files the sha256.
    pub etag: String,
    /// Its length, in bytes, if it is said.
    pub size: Option<u64>,
}

/// A hub, and how it is asked.
pub struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    /// Somebody answered once: then what does not answer may come back.
    reached: Cell<bool>,
}

const TRIES: u32 = 5;
const REDIRECTS: usize = 5;

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
        Self {
            agent: config.build().new_agent(),
            endpoint: endpoint(),
            token,
            reached: Cell::new(false),
        }
    }

    /// True if requests carry a token.
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    fn url(&self, repo: &str, revision: &str, file: &str) -> String {
        format!("{}/{repo}/resolve/{revision}/{file}", self.endpoint)
    }

    /// What the hub says of a file, after some tries.
    ///
    /// # Errors
    /// Any [`Fault`] but those of the file itself.
    pub fn about(&self, repo: &str, revision: &str, file: &str) -> Result<About, Fault> {
        let url = self.url(repo, revision, file);
        let mut tries = 0;
        loop {
            match self.head(&url) {
                Err(fault) => self.again(fault, &mut tries)?,
                Ok(about) => return Ok(about),
            }
        }
    }

    /// Waits, if there is hope: a server that is busy, a connection that broke.
    ///
    /// # Errors
    /// The fault, if there is none.
    pub fn again(&self, fault: Fault, tries: &mut u32) -> Result<(), Fault> {
        let wait = match &fault {
            Fault::Later(_, wait) => *wait,
            Fault::Unreachable(_) if self.reached.get() => None,
            _ => return Err(fault),
        };
        *tries += 1;
        let wait = wait.unwrap_or(Duration::from_millis(250 << *tries));
        if *tries >= TRIES || wait > Duration::from_secs(90) {
            return Err(fault);
        }
        std::thread::sleep(wait);
        Ok(())
    }

    /// One request for headers. A large file lies elsewhere: where is not asked, for what is said of it is said here.
    fn head(&self, url: &str) -> Result<About, Fault> {
        let mut url = url.to_string();
        for _ in 0..REDIRECTS {
            let response = self.send(&url, None)?;
            let headers = response.headers();
            let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
            let etag = text("x-linked-etag").or(text("etag"));
            let etag = etag.map(|etag| etag.trim_start_matches("W/").trim_matches('"').to_string());
            let linked = headers.contains_key("x-linked-etag");
            if let Some(to) = target(&url, &response)?.filter(|_| !linked) {
                url = to;
                continue;
            }
            let (Some(commit), Some(etag)) = (text("x-repo-commit"), etag) else {
                let what = "it does not say x-repo-commit and etag, as a hub does";
                return Err(Fault::Strange(what.into()));
            };
            if !plain(commit) || !plain(&etag) {
                return Err(Fault::Strange(format!("its commit {commit} or etag {etag} is none")));
            }
            let size = if linked { text("x-linked-size") } else { text("content-length") };
            let size = size.and_then(|size| size.parse().ok());
            return Ok(About { commit: commit.to_string(), etag, size });
        }
        Err(Fault::Strange("it redirects without end".into()))
    }

    /// A file's bytes from `from` on, and where they begin: a server may begin at 0 though it is asked for less. The third
    /// is the length of all of it, if it is said.
    ///
    /// # Errors
    /// Any [`Fault`]; this is one try.
    pub fn bytes(
        &self,
        about: &About,
        repo: &str,
        file: &str,
        from: u64,
    ) -> Result<(Body, u64, Option<u64>), Fault> {
        let mut url = self.url(repo, &about.commit, file);
        for _ in 0..REDIRECTS {
            let response = self.send(&url, Some(from))?;
            if let Some(to) = target(&url, &response)? {
                url = to;
                continue;
            }
            let text = |name: &str| response.headers().get(name)?.to_str().ok();
            let range = text("content-range").and_then(|range| range.strip_prefix("bytes "));
            let (begin, size) = match (response.status().as_u16(), range) {
                (206, Some(range)) => {
                    let begin = range.split('-').next().and_then(|begin| begin.parse().ok());
                    let size = range.split('/').next_back().and_then(|size| size.parse().ok());
                    (begin, size)
                }
                (200, _) => (Some(0), text("content-length").and_then(|size| size.parse().ok())),
                _ => (None, None),
            };
            return match begin {
                Some(begin) if begin == from || begin == 0 => {
                    Ok((response.into_body(), begin, size))
                }
                _ => Err(Fault::Damaged("other bytes came than were asked for".into())),
            };
        }
        Err(Fault::Strange("it redirects without end".into()))
    }

    /// One request: for headers, or for bytes from some place on. Redirects come back as they are.
    fn send(&self, url: &str, from: Option<u64>) -> Result<Response<Body>, Fault> {
        let request = if from.is_some() { self.agent.get(url) } else { self.agent.head(url) };
        // Compressed, a file would have another length.
        let mut request = request.header("accept-encoding", "identity");
        if let Some(from) = from {
            request = request.header("range", format!("bytes={from}-"));
        }
        // A token is for the hub, and for nobody whom it sends us to.
        if let Some(token) = self.token.as_ref().filter(|_| origin(url) == origin(&self.endpoint)) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = request.call().map_err(Fault::of_error)?;
        self.reached.set(true);
        Fault::sorted(response)
    }
}

/// The hub's address: `HF_ENDPOINT`, else Hugging Face's.
pub fn endpoint() -> String {
    let named = std::env::var("HF_ENDPOINT").ok().filter(|value| !value.is_empty());
    let endpoint = named.unwrap_or_else(|| "https://huggingface.co".into());
    endpoint.trim_end_matches('/').to_string()
}

/// Where an answer sends us to, if it does.
fn target(url: &str, response: &Response<Body>) -> Result<Option<String>, Fault> {
    if !response.status().is_redirection() {
        return Ok(None);
    }
    let to = header(response.headers(), "location");
    let to = to.with_context(|| format!("{url} redirects to nowhere"));
    let to = to.map_err(|error| Fault::Strange(error.to_string()))?;
    Ok(Some(match to {
        to if to.starts_with("http://") || to.starts_with("https://") => to.to_string(),
        to => format!("{}/{}", origin(url), to.trim_start_matches('/')),
    }))
}

/// Scheme, host and port.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find('/').map_or(url.len(), |at| host + at);
    &url[..end]
}
