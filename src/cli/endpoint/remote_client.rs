//! The HTTP of `--endpoint`: which models a server has, and a response as events.

use crate::cli::endpoint::remote_request::{Program, Server};
use crate::cli::endpoint::server_events::Events;
use crate::kit::error::{quoted, shown, usage};
use anyhow::{anyhow, bail, ensure, Result};
use serde_json::Value;
use std::io::BufReader;
use std::time::Duration;
use ureq::http::Response;
use ureq::{Agent, Body, BodyReader};

/// How long a server may be silent: a long prompt in a long queue takes its time.
const SILENCE: Duration = Duration::from_secs(300);
/// At most so many bytes of an answer that is not a stream.
const LONGEST_ANSWER: u64 = 4 << 20;
/// A server, and how it is asked.
pub struct Client {
    agent: Agent,
    base: String, // ends in /v1
    key: Option<String>,
}

/// A model of a server's list.
#[derive(Debug, Clone)]
pub struct ListedModel {
    /// Its name.
    pub id: String,
    /// What the server says of itself there.
    pub owned_by: String,
}

/// The events of one response.
pub type Stream = Events<BufReader<BodyReader<'static>>>;

impl Client {
    /// The server at `address`, with or without `/v1`. The key is `--api-key`, else `OPENAI_API_KEY`.
    ///
    /// # Errors
    /// As wrong usage, if the address or the key is none.
    pub fn new(address: &str, key: Option<&str>) -> Result<Self> {
        let host = address.strip_prefix("http://").or(address.strip_prefix("https://"));
        ensure!(
            host.is_some_and(|host| !host.is_empty() && !host.starts_with('/')),
            usage(format!("--endpoint {address}: expected an address, as http://127.0.0.1:8000"))
        );
        let address = address.trim_end_matches('/');
        let base = match address.ends_with("/v1") {
            true => address.to_string(),
            false => format!("{address}/v1"),
        };
        let key = api_key(key)?;
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_resolve(Some(Duration::from_secs(15)))
            .timeout_connect(Some(Duration::from_secs(15)))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .user_agent(concat!("candecode/", env!("CARGO_PKG_VERSION")));
        if is_loopback(host.unwrap_or_default()) {
            config = config.proxy(None); // a proxy's loopback is another machine
        }
        Ok(Self { agent: config.build().new_agent(), base, key })
    }

    /// The address, with `/v1`.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The models of the server; None if it has no list of them.
    ///
    /// # Errors
    /// If nobody answers, or the server refuses.
    pub fn models(&self) -> Result<Option<Vec<ListedModel>>> {
        let mut request = self.agent.get(format!("{}/models", self.base));
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let response = request.call().map_err(|e| self.no_answer(&e))?;
        if response.status().as_u16() == 404 {
            return Ok(None);
        }
        let answer = self.accepted(response)?.into_body();
        let text = text_of(answer);
        let json: Value = serde_json::from_str(&text).unwrap_or_default();
        let Some(list) = json["data"].as_array() else {
            bail!(
                "--endpoint {}: it answers, but not as OpenAI's protocol does: {}",
                self.base,
                quoted(one_line(&text))
            )
        };
        let word = |model: &Value, name: &str| model[name].as_str().unwrap_or("").to_string();
        let listed = |model: &Value| ListedModel {
            id: word(model, "id"),
            owned_by: word(model, "owned_by"),
        };
        Ok(Some(list.iter().map(listed).collect()))
    }

    /// The model to ask: `wanted`, or the server's only one if that is empty.
    ///
    /// # Errors
    /// If the server has no such model, or several and none is named.
    pub fn choose_model(&self, wanted: &str) -> Result<Server> {
        let Some(models) = self.models()? else {
            ensure!(
                !wanted.is_empty(),
                usage(format!("{}: it has no list of models; name one with --model", self.base))
            );
            return Ok(Server { model: wanted.to_string(), program: Program::Other });
        };
        let mut names: Vec<String> = models.iter().take(8).map(|model| shown(&model.id)).collect();
        if models.len() > names.len() {
            names.push("…".to_string());
        }
        let names = names.join(", ");
        let chosen = match models.as_slice() {
            [] => bail!("--endpoint {}: the server has no model", self.base),
            [only] if wanted.is_empty() => only,
            several if wanted.is_empty() => bail!(usage(format!(
                "--endpoint {}: the server has {} models; choose one with --model: {names}",
                self.base,
                several.len()
            ))),
            models => models.iter().find(|model| model.id == wanted).ok_or_else(|| {
                let base = &self.base;
                anyhow!("--endpoint {base}: the server has no model \"{wanted}\"; it has {names}")
            })?,
        };
        Ok(Server { model: chosen.id.clone(), program: Program::of(&chosen.owned_by) })
    }

    /// Sends a request, and returns the events of its response, of which there may be `most` bytes.
    ///
    /// # Errors
    /// If nobody answers, or the server refuses: with its words.
    pub fn stream(&self, path: &str, body: &Value, most: u64) -> Result<Stream> {
        let url = format!("{}/{path}", self.base);
        let mut request = self.agent.post(&url).header("content-type", "application/json");
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let response = request.send(body.to_string()).map_err(|e| self.no_answer(&e))?;
        let body = self.accepted(response)?.into_body();
        let reader = body.into_with_config().limit(u64::MAX).reader();
        Ok(Events::new(BufReader::new(reader), most, SILENCE))
    }

    /// A response that is no refusal.
    fn accepted(&self, response: Response<Body>) -> Result<Response<Body>> {
        let status = response.status().as_u16();
        if status == 200 {
            return Ok(response);
        }
        let wait = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let wait =
            wait.map_or(String::new(), |wait| format!("; it asks to wait {} s", shown(wait)));
        let said = said(&text_of(response.into_body()));
        let base = &self.base;
        Err(match status {
            401 | 403 if self.key.is_none() => anyhow!(
                "--endpoint {base}: the server asks for a key ({status}{said}); give it with \
                 --api-key, or in OPENAI_API_KEY"
            ),
            401 | 403 => anyhow!("--endpoint {base}: the server refuses the key ({status}{said})"),
            404 => anyhow!(
                "--endpoint {base}: the server has no such thing ({status}{said}); is the address \
                 right, and does it have completions?"
            ),
            429 | 503 => anyhow!("--endpoint {base}: the server is busy ({status}{said}){wait}"),
            500..=599 => anyhow!("--endpoint {base}: the server failed ({status}{said})"),
            _ => anyhow!("--endpoint {base}: the server refuses the request ({status}{said})"),
        })
    }

    /// The error of a request that got no answer.
    fn no_answer(&self, error: &ureq::Error) -> anyhow::Error {
        let base = &self.base;
        let why = match error {
            ureq::Error::HostNotFound => "there is no such host".to_string(),
            ureq::Error::Timeout(_) => "no answer in time".to_string(),
            ureq::Error::Io(io) => io.to_string(),
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
                return usage(format!(
                    "--endpoint {base}: expected an address, as http://127.0.0.1:8000"
                ))
            }
            other => other.to_string(),
        };
        anyhow!(
            "--endpoint {base}: nobody answers ({why}); is the server running, and on this port?"
        )
    }
}

/// The key to send: that of the flag, else that of the environment; None if there is none.
///
/// # Errors
/// As wrong usage, if it cannot be in a header.
fn api_key(flag: Option<&str>) -> Result<Option<String>> {
    let environment = std::env::var_os("OPENAI_API_KEY").map(|key| key.to_string_lossy().into());
    let (source, key) = match flag {
        Some(key) => ("--api-key", Some(key.to_string())),
        None => ("OPENAI_API_KEY", environment),
    };
    let key = key.filter(|key: &String| !key.is_empty());
    ensure!(
        key.as_ref().is_none_or(|key| key.bytes().all(|byte| byte.is_ascii_graphic())),
        usage(format!(
            "{source}: a key has no spaces, line breaks or letters beyond ASCII; was something else \
             copied with it?"
        ))
    );
    Ok(key)
}

/// Whether the host of an address is this machine's loopback.
fn is_loopback(host: &str) -> bool {
    host.starts_with("127.") || host.starts_with("localhost") || host.starts_with("[::1]")
}

/// A body as text, as far as it is shown.
fn text_of(body: Body) -> String {
    let text = body.into_with_config().limit(LONGEST_ANSWER).lossy_utf8(true).read_to_string();
    text.unwrap_or_default()
}

/// What a server says of an error, after a colon: in OpenAI's form, in FastAPI's, or as it is.
fn said(text: &str) -> String {
    let json: Value = serde_json::from_str(text).unwrap_or_default();
    let message = error_message(&json).unwrap_or_else(|| text.trim().to_string());
    match message.is_empty() {
        true => String::new(),
        false => format!(": {}", shown(one_line(&message))),
    }
}

/// The message of an error in JSON, if it is one.
pub fn error_message(json: &Value) -> Option<String> {
    let message = json["error"]["message"].as_str().or(json["error"].as_str());
    let message = message.or(json["message"].as_str()).or(json["detail"].as_str());
    message.map(str::to_string)
}

/// A text on one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
