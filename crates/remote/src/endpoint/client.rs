//! The HTTP client: lists a server's models, sends requests, and reports what a server refuses.

use crate::connection::{explain, is_local, looked_up, settings};
use crate::endpoint::events::{Events, TICK};
use crate::endpoint::json::error_message;
use crate::endpoint::request::Request;
use crate::endpoint::server::Server;
use crate::endpoint::stream::{Message, Stream, LONGEST, SILENCE};
use crate::origin::{redirect, Origin, REDIRECTS};
use crate::retry_after::{Wait, LONGEST_WAIT};
use anyhow::{anyhow, bail, ensure, Context as _, Result};
use candecode_kit::error::{quoted, shown, usage};
use candecode_kit::note::note;
use serde_json::Value;
use std::sync::mpsc::{sync_channel, Receiver};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Instant;
use ureq::http::{self, Response, Uri};
use ureq::{Agent, Body, BodyReader};

/// Maximum number of attempts per request, while the server is busy and says when to try again.
const TRIES: u32 = 5;
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
        self.list(self.send("models", None, &|| true)?)
    }

    /// Reads a list of models: OpenAI's, a list without a frame, or ollama's.
    fn list(&self, response: Response<Body>) -> Result<Vec<Server>> {
        let text = text_of(self.accepted(response)?.into_body());
        let json: Value = serde_json::from_str(&text).unwrap_or_default();
        let list = match (&json, &json["data"], &json["models"]) {
            (Value::Array(list), ..) | (_, Value::Array(list), _) | (.., Value::Array(list)) => {
                list
            }
            (_, Value::Null, _) if json.get("data").is_some() => &Vec::new(),
            _ => bail!(
                "--endpoint {}: the server answered, but not in OpenAI's format: {}",
                self.base,
                quoted(one_line(&text))
            ),
        };
        let server = |model: &Value| {
            let names = [model, &model["id"], &model["name"], &model["model"]];
            let model_name = names.iter().find_map(|name| name.as_str())?.to_string();
            let owned_by = model["owned_by"].as_str().unwrap_or_default().to_string();
            Some(Server { model: model_name, owned_by })
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
        let response = self.send("models", None, &|| true)?;
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
    pub fn ask(&self, request: &Request<'_>, stop: fn() -> bool) -> Events {
        let wanted = Arc::new(());
        let (path, most) = (request.path(), request.most_bytes());
        let received = self.stream(path, request.body(), most, Arc::downgrade(&wanted));
        Events::new(received, wanted, request, stop)
    }

    /// Sends a request on a thread of its own, so that the caller can stop waiting for it. The
    /// channel receives each event of the response, which may have up to `most` bytes
    /// in total, or an error if the request fails. If the receiver is gone when the next event
    /// arrives, the connection is closed. Once `wanted` is dropped, no further attempt is made.
    fn stream(
        &self,
        path: &'static str,
        body: Value,
        most: u64,
        wanted: Weak<()>,
    ) -> Receiver<Result<Message>> {
        let (sender, events) = sync_channel(AHEAD);
        let client = self.clone();
        let is_wanted = move || wanted.strong_count() > 0;
        thread::spawn(move || match client.events(path, &body, most, &is_wanted) {
            Ok(events) => {
                for event in events {
                    if sender.send(event).is_err() {
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
    fn events(
        &self,
        path: &str,
        body: &Value,
        most: u64,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Stream<BodyReader<'static>>> {
        let body = self.accepted(self.send(path, Some(body), is_wanted)?)?.into_body();
        Ok(Stream::new(body.into_with_config().limit(u64::MAX).reader(), most))
    }

    /// Sends a GET request to a path, or a POST request if there is a body. If the server is busy
    /// and says when to try again, that's done, as long as the response is still wanted.
    fn send(
        &self,
        path: &str,
        body: Option<&Value>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Response<Body>> {
        let (mut tries, mut left) = (1, LONGEST_WAIT);
        loop {
            let response = self.follow(path, body)?;
            let wait =
                Wait::of(response.headers()).and_then(|wait| Some((wait.bounded()?, wait.said)));
            match wait.filter(|_| matches!(response.status().as_u16(), 429 | 503)) {
                Some((pause, said)) if pause <= left && tries < TRIES => {
                    note!("the server is busy, and asks to wait {said}: trying again then");
                    let until = Instant::now() + pause;
                    loop {
                        if !is_wanted() {
                            return Ok(response);
                        }
                        let rest = until.saturating_duration_since(Instant::now());
                        if rest.is_zero() {
                            break;
                        }
                        thread::sleep(TICK.min(rest));
                    }
                    (tries, left) = (tries + 1, left - pause);
                }
                _ => return Ok(response),
            }
        }
    }

    /// Sends a request, and sends it once more to each address on the same server that it is
    /// redirected to. The key and the prompt never go to another scheme, host or port.
    fn follow(&self, path: &str, body: Option<&Value>) -> Result<Response<Body>> {
        let base = &self.base;
        let mut address: Uri = format!("{base}/{path}").parse().map_err(|_| no_address(base))?;
        for _ in 0..=REDIRECTS {
            let response = self.send_once(&address, body)?;
            let status = response.status().as_u16();
            let next = redirect(&address, status, response.headers());
            let next = next.map_err(|_| {
                anyhow!("--endpoint {base}: the server redirects to an invalid address")
            })?;
            let Some(next) = next else { return Ok(response) };
            let same =
                Origin::of(&next) == Origin::of(&address) && (status != 303 || body.is_none());
            ensure!(
                same,
                "--endpoint {base}: the server redirects to {}; if you trust that address, use it \
                 with --endpoint",
                shown(&next)
            );
            address = next;
        }
        bail!("--endpoint {base}: the server's redirects never end")
    }

    /// Sends a request to this address.
    fn send_once(&self, address: &Uri, body: Option<&Value>) -> Result<Response<Body>> {
        let base = &self.base;
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
            let host = looked_up(&self.agent, address);
            let why = explain(&error, &host, "is the server running, and is the port right?");
            anyhow!("--endpoint {base}: no response {why}")
        })
    }

    /// Returns the response if its status is a success.
    fn accepted(&self, response: Response<Body>) -> Result<Response<Body>> {
        let status = response.status().as_u16();
        if response.status().is_success() {
            return Ok(response);
        }
        let wait = Wait::of(response.headers());
        let wait = wait.map_or(String::new(), |wait| format!("; it asks to wait {}", wait.said));
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
