//! Requests to the hub: what it says about a file, and the file's bytes.
//!
//! Redirects are followed here, one at a time, because the token goes to the hub alone, never to
//! another scheme, host or port that the hub redirects to.

use crate::connection::{looked_up, settings};
use crate::hub::failure::Failure;
use crate::origin::{redirect, Origin, REDIRECTS};
use crate::retry_after::Wait;
use anyhow::{Context as _, Result};
use candecode_formats::hub::is_plain_name;
use std::time::Duration;
use ureq::http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use ureq::{Agent, Body, Timeout};

/// What the hub says about a file.
pub struct About {
    /// The commit that it belongs to.
    pub commit: String,
    /// Its name in the cache: the SHA-256 of a large file.
    pub etag: String,
    /// Its length in bytes, unless the hub doesn't say.
    pub size: Option<u64>,
}

/// The hub's address, and how to connect to it.
pub struct Requests {
    agent: Agent,
    endpoint: String,
    origin: Origin,
    seconds: u64,
    token: Option<HeaderValue>,
}

impl Requests {
    /// Connects to `HF_ENDPOINT`, or to Hugging Face's own hub. A hub that is silent for a minute
    /// (or `HF_HUB_DOWNLOAD_TIMEOUT` seconds, if set) is given up.
    ///
    /// # Errors
    /// If `HF_ENDPOINT` isn't an address, or `SSL_CERT_FILE` has no certificates.
    pub fn new() -> Result<Self> {
        let variable = |name| std::env::var(name).ok().map(|value| value.trim().to_string());
        let named = variable("HF_ENDPOINT").filter(|value| !value.is_empty());
        let endpoint = named.unwrap_or_else(|| "https://huggingface.co".into());
        let endpoint = endpoint.trim_end_matches('/').to_string();
        let origin = endpoint.parse().ok().and_then(|uri| Origin::of(&uri));
        let origin = origin.with_context(|| {
            format!("HF_ENDPOINT={endpoint}: expected an address such as https://huggingface.co")
        })?;
        let seconds = variable("HF_HUB_DOWNLOAD_TIMEOUT").and_then(|s| s.parse().ok());
        let seconds = seconds.filter(|seconds| *seconds > 0).unwrap_or(60);
        // A hub that compresses a file doesn't know its length, and can't resume it.
        let config = settings(Duration::from_secs(seconds))?.accept_encoding("identity");
        let agent = config.build().new_agent();
        Ok(Self { agent, endpoint, origin, seconds, token: None })
    }

    /// Returns the hub's address.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Sends this token with every later request to the hub itself.
    ///
    /// # Errors
    /// If the token can't be sent in a header.
    pub fn show(&mut self, token: &str) -> Result<(), Failure> {
        let plain = token.bytes().all(|byte| byte.is_ascii_graphic());
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut value = value.ok().filter(|_| plain).ok_or(Failure::Token)?;
        value.set_sensitive(true);
        self.token = Some(value);
        Ok(())
    }

    /// Returns what the hub says about a file. A redirect to another host already says it in
    /// `X-Linked-Etag` and `X-Linked-Size`, so that host isn't asked.
    ///
    /// # Errors
    /// If the hub refuses the request, or doesn't name the commit and the file's hash.
    pub fn about(&self, repo: &str, revision: &str, file: &str) -> Result<About, Failure> {
        let mut found = Found::default();
        match self.follow(&Method::HEAD, self.address(repo, revision, file)?, 0, &mut found) {
            // A store may refuse to say how long a file is, but still send it.
            Err(Failure::Elsewhere(..)) if found.is_named() => {}
            asked => drop(asked?),
        }
        let etag = found.linked_etag.or(found.etag).ok_or(Failure::Header("etag", "missing"))?;
        let commit = found.commit.ok_or(Failure::Header("x-repo-commit", "missing"))?;
        // Both are used as file names.
        match (is_plain_name(&commit), is_plain_name(&etag)) {
            (true, true) => Ok(About { commit, etag, size: found.linked_size.or(found.size) }),
            (false, _) => Err(Failure::Header("x-repo-commit", "invalid")),
            (true, false) => Err(Failure::Header("etag", "invalid")),
        }
    }

    /// Requests the bytes of a file from an offset on. Returns the body, and the offset at which it
    /// starts: 0 if the hub sends the whole file instead.
    ///
    /// # Errors
    /// If the hub refuses the request, or sends something else.
    pub fn bytes(
        &self,
        repo: &str,
        revision: &str,
        file: &str,
        from: u64,
    ) -> Result<(Body, u64), Failure> {
        let address = self.address(repo, revision, file)?;
        let response = self.follow(&Method::GET, address, from, &mut Found::default())?;
        let headers = response.headers();
        if word(headers, "content-encoding").is_some_and(|encoding| encoding != "identity") {
            return Err(Failure::Header("content-encoding", "invalid"));
        }
        let from = match response.status().as_u16() {
            200 => 0,
            206 => match word(headers, "content-range") {
                Some(range) => start(&range).ok_or(Failure::Header("content-range", "invalid"))?,
                None => from,
            },
            code => return Err(Failure::Status(code, None)),
        };
        Ok((response.into_body(), from))
    }

    /// Classifies an error of a connection to this host.
    pub fn broken(&self, host: String, error: ureq::Error) -> Failure {
        match error {
            ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
                Failure::Connection(host, error)
            }
            ureq::Error::Timeout(_) => Failure::Silent(self.seconds),
            error => Failure::Connection(host, error),
        }
    }

    /// Returns a file's address on the hub.
    fn address(&self, repo: &str, revision: &str, file: &str) -> Result<Uri, Failure> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
        let mut name = String::new();
        for byte in file.bytes() {
            match plain(byte) {
                true => name.push(char::from(byte)),
                false => name += &format!("%{byte:02X}"),
            }
        }
        let address = format!("{}/{repo}/resolve/{revision}/{name}", self.endpoint);
        address.parse().map_err(|_| Failure::Status(404, None))
    }

    /// Sends a request and follows its redirects. `HEAD` asks no further once it has found all.
    fn follow(
        &self,
        method: &Method,
        mut address: Uri,
        from: u64,
        found: &mut Found,
    ) -> Result<Response<Body>, Failure> {
        for _ in 0..=REDIRECTS {
            let at_hub = Origin::of(&address).as_ref() == Some(&self.origin);
            let response = self.send(method, &address, from, at_hub)?;
            let (code, headers) = (response.status().as_u16(), response.headers());
            if code >= 400 {
                let host = address.host().unwrap_or_default().to_string();
                return Err(match at_hub {
                    true => Failure::Status(code, Wait::of(headers)),
                    false => Failure::Elsewhere(host, code),
                });
            }
            let next = redirect(&address, code, headers);
            let next = next.map_err(|_| Failure::Header("location", "invalid"))?;
            found.read(headers, &address, next.as_ref());
            match next {
                Some(next) if method == Method::GET || !found.is_complete() => address = next,
                _ => return Ok(response),
            }
        }
        Err(Failure::Redirects)
    }

    /// Sends one request, with the token only if it goes to the hub itself.
    fn send(
        &self,
        method: &Method,
        address: &Uri,
        from: u64,
        at_hub: bool,
    ) -> Result<Response<Body>, Failure> {
        let mut request = Request::builder().method(method.clone()).uri(address.clone());
        if from > 0 {
            request = request.header("range", format!("bytes={from}-"));
        }
        if let Some(token) = self.token.as_ref().filter(|_| at_hub) {
            request = request.header("authorization", token.clone());
        }
        let sent = request.body(()).map_err(Into::into).and_then(|r| self.agent.run(r));
        sent.map_err(|e| self.broken(looked_up(&self.agent, address), e))
    }
}

/// What the responses so far say about a file.
#[derive(Default)]
struct Found {
    commit: Option<String>,
    etag: Option<String>,
    linked_etag: Option<String>,
    size: Option<u64>,
    linked_size: Option<u64>,
}

impl Found {
    /// Reads a response from `address`, which may redirect to `next`. The first one that says
    /// something counts, except that the `ETag` and the length of a redirect within the hub are
    /// those of the redirect.
    fn read(&mut self, headers: &HeaderMap, address: &Uri, next: Option<&Uri>) {
        let header = |name| word(headers, name).filter(|value| !value.is_empty());
        let tag = |name| header(name).map(|tag| plain_tag(&tag));
        self.commit = self.commit.take().or_else(|| header("x-repo-commit"));
        self.linked_etag = self.linked_etag.take().or_else(|| tag("x-linked-etag"));
        self.linked_size = self.linked_size.or_else(|| header("x-linked-size")?.parse().ok());
        let leaves = next.is_some_and(|next| Origin::of(next) != Origin::of(address));
        if next.is_none() || (leaves && self.commit.is_some()) {
            self.etag = self.etag.take().or_else(|| tag("etag"));
        }
        let is_plain = header("content-encoding").is_none_or(|encoding| encoding == "identity");
        if next.is_none() && is_plain {
            self.size = header("content-length").and_then(|length| length.parse().ok());
        }
    }

    /// Returns true if the commit and the name in the cache are known.
    fn is_named(&self) -> bool {
        self.commit.is_some() && (self.linked_etag.is_some() || self.etag.is_some())
    }

    /// Returns true if no other response can add anything.
    fn is_complete(&self) -> bool {
        self.commit.is_some() && self.linked_etag.is_some() && self.linked_size.is_some()
    }
}

/// Returns a header's value as text.
fn word(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.trim().to_string())
}

/// Returns an `ETag` without its quotes. Caches that change a response mark it as weak: `W/"..."`.
fn plain_tag(tag: &str) -> String {
    tag.strip_prefix("W/").unwrap_or(tag).replace('"', "")
}

/// Returns the offset at which a `Content-Range` starts: 5 in `bytes 5-9/10`.
fn start(range: &str) -> Option<u64> {
    range.strip_prefix("bytes")?.trim().split('-').next()?.parse().ok()
}
