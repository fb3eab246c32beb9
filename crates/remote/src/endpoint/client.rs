//! The HTTP client: lists a server's models, sends requests, and reports what a server refuses.

use crate::connection::{explain, is_local, looked_up, retry_after, settings};
use crate::endpoint::events::{error_message, Events};
use crate::endpoint::request::Request;
use crate::endpoint::server::Server;
use crate::endpoint::stream::{Message, Stream};
use crate::origin::Origin;
use anyhow::{anyhow, bail, ensure, Context as _, Result};
use candecode_kit::error::{quoted, shown, usage};
use serde_json::Value;
use std::sync::mpsc::{sync_channel, SyncSender};
use std::thread;
use std::time::Duration;
use ureq::http::{self, Response, Uri};
use ureq::{Agent, Body};

/// Timeout for a silent server. Generous, because a long prompt in a long queue takes time.
const SILENCE: Duration = Duration::from_secs(300);
/// Maximum size of a response that isn't a stream, in bytes.
const LONGEST: u64 = 4 << 20;
/// Maximum number of events to read ahead.
const AHEAD: usize = 64;

/// A server's address and how to connect to it.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    base: String, // ends in /v1
    key: Option<String>,
}

impl Client {
    /// Creates a client for `address`, with or without `/v1`. The key is `--api-key` or
    /// `OPENAI_API_KEY`.
    ///
    /// # Errors
    /// A usage error, if the address is invalid or the key can't be sent in a header.
    pub fn new(address: &str, key: Option<&str>) -> Result<Self> {
        let base = address.trim_end_matches('/').trim_end_matches("/v1");
        let base = format!("{base}/v1");
        let uri: Uri = base.parse().map_err(|_| no_address(address))?;
        Origin::of(&uri).with_context(|| no_address(address))?;
        let (source, key) = match key {
            Some(key) => ("--api-key", Some(key.to_string())),
            None => ("OPENAI_API_KEY", std::env::var("OPENAI_API_KEY").ok()),
        };
        let key = key.filter(|key| !key.is_empty());
        ensure!(
            key.as_ref().is_none_or(|key| key.bytes().all(|byte| byte.is_ascii_graphic())),
            usage(format!(
                "{source}: an API key can't contain spaces, line breaks or non-ASCII characters; \
                 was something else copied with it?"
            ))
        );
        let mut config = settings(SILENCE)?;
        if is_local(&uri) {
            config = config.proxy(None); // through a proxy, localhost would be the proxy's machine
        }
        Ok(Self { agent: config.build().new_agent(), base, key })
    }

    /// Returns the address, with `/v1`.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Returns the server's models.
    ///
    /// # Errors
    /// If no server answers, it rejects the request, or the response isn't a list of models.
    pub fn models(&self) -> Result<Vec<Server>> {
        self.list(self.send("models", None)?)
    }

    /// Reads a list of models.
    fn list(&self, response: Response<Body>) -> Result<Vec<Server>> {
        let text = text_of(self.accepted(response)?.into_body());
        let json: Value = serde_json::from_str(&text).unwrap_or_default();
        let list = json["data"].as_array().with_context(|| {
            format!(
                "--endpoint {}: the server answered, but not in OpenAI's format: {}",
                self.base,
                quoted(one_line(&text))
            )
        })?;
        let server = |model: &Value| {
            let owned_by = model["owned_by"].as_str().unwrap_or_default().to_string();
            Some(Server { model: model["id"].as_str()?.to_string(), owned_by })
        };
        Ok(list.iter().filter_map(server).collect())
    }

    /// Returns the model to use: `wanted`, or if it's empty, the server's only model. If `wanted`
    /// names one, a list that can't be read is ignored, unless the server asks for a key (401).
    ///
    /// # Errors
    /// If no server answers, it asks for a key, it lists models but not `wanted`, or `wanted` is
    /// empty and the server doesn't list exactly one model.
    pub fn choose_model(&self, wanted: &str) -> Result<Server> {
        let base = &self.base;
        let response = self.send("models", None)?;
        let status = response.status();
        let mut models = match self.list(response) {
            Ok(models) => models,
            Err(_) if status == 404 || (status != 401 && !wanted.is_empty()) => Vec::new(),
            Err(error) => return Err(error),
        };
        if models.is_empty() {
            ensure!(
                !wanted.is_empty(),
                usage(format!(
                    "--endpoint {base}: the server doesn't list its models; name one with --model"
                ))
            );
            return Ok(Server { model: wanted.to_string(), owned_by: String::new() });
        }
        let names: Vec<String> = models.iter().take(8).map(|model| shown(&model.model)).collect();
        let more = if models.len() > names.len() { ", …" } else { "" };
        let names = names.join(", ") + more;
        let found = match wanted {
            "" if models.len() == 1 => models.pop(),
            "" => {
                return Err(usage(format!(
                    "--endpoint {base}: the server has {} models; choose one with --model: {names}",
                    models.len()
                )))
            }
            wanted => models.into_iter().find(|model| model.model == wanted),
        };
        found.with_context(|| {
            format!("--endpoint {base}: the server has no model \"{wanted}\"; it has {names}")
        })
    }

    /// Sends a request and returns the events of its response. `stop` is asked between events
    /// whether to end the response early, which closes the connection.
    ///
    /// The request is sent on a thread of its own, so that the caller can stop waiting for it.
    pub fn ask(&self, request: &Request<'_>, stop: fn() -> bool) -> Events {
        let (sender, received) = sync_channel(AHEAD);
        let (client, path, body) = (self.clone(), request.path(), request.body());
        let most = request.most_bytes();
        thread::spawn(move || {
            if let Err(error) = client.stream(path, &body, most, &sender) {
                let _ = sender.send(Err(error)); // unless no one waits for it
            }
        });
        Events::new(received, request.n(), stop)
    }

    /// Sends a request, and each event of the response, which may have up to `most` bytes in total,
    /// to the channel. If the receiver is gone when the next event arrives, the connection is
    /// closed.
    ///
    /// # Errors
    /// If no server answers, or it rejects the request. The error includes the server's message.
    fn stream(
        &self,
        path: &str,
        body: &Value,
        most: u64,
        sender: &SyncSender<Result<Message>>,
    ) -> Result<()> {
        let body = self.accepted(self.send(path, Some(body))?)?.into_body();
        let mut stream = Stream::new(body.into_with_config().limit(most).reader());
        while let Some(message) = stream.read()? {
            if sender.send(Ok(message)).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Sends a GET request to a path, or a POST request if there is a body.
    fn send(&self, path: &str, body: Option<&Value>) -> Result<Response<Body>> {
        let base = &self.base;
        let address: Uri = format!("{base}/{path}").parse().map_err(|_| no_address(base))?;
        let mut request = http::Request::builder().uri(address.clone());
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let response = match body {
            None => self.agent.run(request.body(()).map_err(|_| no_address(base))?),
            Some(body) => {
                let request = request.method("POST").header("content-type", "application/json");
                self.agent.run(request.body(body.to_string()).map_err(|_| no_address(base))?)
            }
        };
        response.map_err(|error| {
            let host = looked_up(&self.agent, &address);
            let why = explain(&error, &host, "is the server running, and is the port right?");
            anyhow!("--endpoint {base}: no response {why}")
        })
    }

    /// Returns the response if its status is a success. A redirect isn't followed, so the key and
    /// the prompt go nowhere else.
    fn accepted(&self, response: Response<Body>) -> Result<Response<Body>> {
        let status = response.status().as_u16();
        if response.status().is_success() {
            return Ok(response);
        }
        let location = response.headers().get("location").and_then(|to| to.to_str().ok());
        if let Some(location) = location.filter(|_| response.status().is_redirection()) {
            bail!(
                "--endpoint {}: the server redirects to {}; if you trust that address, use it \
                 with --endpoint",
                self.base,
                shown(location)
            )
        }
        let wait = retry_after(response.headers());
        let wait = wait.map_or(String::new(), |seconds| format!("; it asks to wait {seconds} s"));
        let text = text_of(response.into_body());
        let json: Value = serde_json::from_str(&text).unwrap_or_default();
        let said = one_line(&error_message(&json).unwrap_or(text));
        let said = if said.is_empty() { said } else { format!(": {}", shown(said)) };
        let what = match status {
            401 | 403 if self.key.is_none() => {
                "the server asks for a key; set --api-key or OPENAI_API_KEY"
            }
            401 | 403 => "the server refuses the key",
            404 => "not found; is the address right, and does the server support this endpoint?",
            429 | 503 => "the server is busy",
            500..=599 => "the server failed",
            _ => "the server refuses the request",
        };
        bail!("--endpoint {}: {what} ({status}{said}){wait}", self.base)
    }
}

fn no_address(address: &str) -> anyhow::Error {
    usage(format!("--endpoint {address}: expected an address such as http://127.0.0.1:8000"))
}

/// Returns a body as text. Empty if it is too long or can't be read.
fn text_of(body: Body) -> String {
    let text = body.into_with_config().limit(LONGEST).lossy_utf8(true).read_to_string();
    text.unwrap_or_default()
}

/// Returns the text on one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
