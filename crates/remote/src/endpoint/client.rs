//! The HTTP client: lists a server's models, sends requests, and turns down what a server refuses.

use crate::endpoint::events::Events;
use crate::endpoint::request::Request;
use crate::endpoint::server::Server;
use crate::endpoint::stream::{error_message, Data, Stream, LONGEST, SILENCE};
use anyhow::{anyhow, bail, ensure, Context as _, Result};
use candecode_kit::error::{quoted, shown, usage};
use serde_json::Value;
use std::sync::mpsc::{sync_channel, Receiver};
use std::time::Duration;
use ureq::http::{self, Response};
use ureq::{Agent, Body};

/// Maximum number of events to read ahead: 256 MiB at most, since an event has up to [`LONGEST`]
/// bytes.
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
        let host = address.strip_prefix("http://").or(address.strip_prefix("https://"));
        let host = host.filter(|host| !host.is_empty() && !host.starts_with('/'));
        let host = host.ok_or_else(|| no_address(address))?;
        let base = address.trim_end_matches('/').trim_end_matches("/v1");
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
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_resolve(Some(Duration::from_secs(15)))
            .timeout_connect(Some(Duration::from_secs(15)))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .user_agent(concat!("candecode/", env!("CARGO_PKG_VERSION")));
        if ["127.", "localhost", "[::1]"].iter().any(|name| host.starts_with(name)) {
            config = config.proxy(None); // through a proxy, localhost would be the proxy's machine
        }
        Ok(Self { agent: config.build().new_agent(), base: format!("{base}/v1"), key })
    }

    /// Returns the address, with `/v1`.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Returns the server's models, or None if the server doesn't list them.
    ///
    /// # Errors
    /// If no server answers, it rejects the request, or the response isn't a list of models.
    pub fn models(&self) -> Result<Option<Vec<Server>>> {
        let response = self.send("models", None)?;
        if response.status() == 404 {
            return Ok(None);
        }
        let text = text_of(self.accepted(response)?.into_body());
        let json: Value = serde_json::from_str(&text).unwrap_or_default();
        let Some(list) = json["data"].as_array() else {
            bail!(
                "--endpoint {}: the server answered, but not in OpenAI's format: {}",
                self.base,
                quoted(one_line(&text))
            )
        };
        let word = |model: &Value, name: &str| model[name].as_str().unwrap_or_default().to_string();
        let server = |model| Server { model: word(model, "id"), owned_by: word(model, "owned_by") };
        Ok(Some(list.iter().map(server).collect()))
    }

    /// Returns the model to use: `wanted`, or if it's empty, the server's only model.
    ///
    /// # Errors
    /// If [`models`](Self::models) fails, the server has no such model, or `wanted` is empty and
    /// the server doesn't have exactly one model.
    pub fn choose_model(&self, wanted: &str) -> Result<Server> {
        let base = &self.base;
        let Some(mut models) = self.models()? else {
            ensure!(
                !wanted.is_empty(),
                usage(format!(
                    "--endpoint {base}: the server doesn't list its models; name one with --model"
                ))
            );
            return Ok(Server { model: wanted.to_string(), owned_by: String::new() });
        };
        let names: Vec<String> = models.iter().take(8).map(|model| shown(&model.model)).collect();
        let more = if models.len() > names.len() { ", …" } else { "" };
        let names = names.join(", ") + more;
        if wanted.is_empty() {
            ensure!(
                models.len() < 2,
                usage(format!(
                    "--endpoint {base}: the server has {} models; choose one with --model: {names}",
                    models.len()
                ))
            );
            return models
                .pop()
                .with_context(|| format!("--endpoint {base}: the server lists no models"));
        }
        models.into_iter().find(|model| model.model == wanted).ok_or_else(|| {
            anyhow!("--endpoint {base}: the server has no model \"{wanted}\"; it has {names}")
        })
    }

    /// Sends a request and returns the events of its response. `stop` is asked between events
    /// whether to end the response early, which closes the connection.
    pub fn ask(&self, request: &Request<'_>, stop: fn() -> bool) -> Events {
        let received = self.stream(request.path(), request.body(), request.most_bytes());
        Events::new(received, request, stop)
    }

    /// Sends a request on a thread of its own, so that the caller can stop waiting for it. The
    /// channel receives the data of each event of the response, which may have up to `most` bytes
    /// in total, or an error if the request fails. If the receiver is gone when the next event
    /// arrives, the connection is closed.
    fn stream(&self, path: &'static str, body: Value, most: u64) -> Receiver<Result<Data>> {
        let (sender, events) = sync_channel(AHEAD);
        let client = self.clone();
        std::thread::spawn(move || match client.events(path, &body, most) {
            Ok(events) => {
                for event in events {
                    if sender.send(Ok(event)).is_err() {
                        break;
                    }
                }
            }
            Err(error) => {
                let _ = sender.send(Err(error));
            }
        });
        events
    }

    /// Sends a request and returns the events of the response, which may have up to `most` bytes in
    /// total.
    ///
    /// # Errors
    /// If no server answers, or it rejects the request. The error includes the server's message.
    fn events(&self, path: &str, body: &Value, most: u64) -> Result<Stream> {
        let body = self.accepted(self.send(path, Some(body))?)?.into_body();
        Ok(Stream::new(body, most))
    }

    /// Sends a GET request to a path, or a POST request if there is a body.
    fn send(&self, path: &str, body: Option<&Value>) -> Result<Response<Body>> {
        let base = &self.base;
        let mut request = http::Request::builder().uri(format!("{base}/{path}"));
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
            let why = match error {
                ureq::Error::Io(error) => error.to_string(),
                other => other.to_string(),
            };
            anyhow!(
                "--endpoint {base}: no response ({why}); is the server running, and is the port \
                 right?"
            )
        })
    }

    /// Returns the response if its status is 200.
    fn accepted(&self, response: Response<Body>) -> Result<Response<Body>> {
        let status = response.status().as_u16();
        if status == 200 {
            return Ok(response);
        }
        let wait = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let wait =
            wait.map_or(String::new(), |wait| format!("; it asks to wait {} s", shown(wait)));
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
