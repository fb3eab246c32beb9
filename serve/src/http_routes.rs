//! What each path answers. A request is read and refused here; what is left of it goes to the loop as a [`Job`].

use crate::answer::{self, EventBody, Wire};
use crate::metrics::Metrics;
use anyhow::Result;
use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::{header, HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::Router;
use candecode::day20_serve::{prompt_ids, ApiRequest, ChatMessage, Endpoint, Job, Reply};
use candecode::engine::chat_template::{Message, Template};
use candecode::kit::api::ApiError;
use candecode::kit::error::describe;
use candecode::kit::{ModelConfig, Tokenizer};
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io::Write as _;
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::timeout;

/// The longest body, in bytes: more than any prompt that fits a model of this course.
const LONGEST_BODY: usize = 1 << 20;
/// How long a body that is too long is read and forgotten, so that its sender reads why.
const DRAIN_TIME: Duration = Duration::from_secs(5);
/// So many unknown fields are written down; a client that invents more is not heard.
const NOTED_FIELDS: usize = 64;

/// What every handler needs.
pub struct Front {
    /// What clients call the model.
    pub model: String,
    /// Its configuration.
    pub config: ModelConfig,
    /// Its tokenizer; the loop has it, too.
    pub tokenizer: Arc<Tokenizer>,
    /// Its chat template, or why it has none.
    pub template: Result<Template, String>,
    /// What clients must show.
    pub key: Option<String>,
    /// The way to the loop; None once the server is about to end.
    pub jobs: Mutex<Option<Sender<Job>>>,
    /// How long a client may take to send a request, or take nothing of its answer.
    pub patience: Duration,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// When the server started, in seconds since 1970.
    pub started: u64,
    /// Responses so far: a part of each one's id.
    pub count: AtomicU64,
    /// Fields that clients have sent, and that nobody here knows.
    pub noted: Mutex<BTreeSet<String>>,
}

impl Front {
    /// Takes no more jobs; the loop ends when the last one has.
    pub fn close(&self) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn sender(&self) -> Result<Sender<Job>, ApiError> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.clone().ok_or_else(ApiError::closing)
    }

    /// The text of a chat.
    fn render(&self, messages: &[ChatMessage]) -> Result<String, String> {
        let template = self.template.as_ref().map_err(String::clone)?;
        let mut said = Vec::new();
        for message in messages {
            let role = match message.role.as_str() {
                "system" => "system",
                "assistant" => "assistant",
                _ => "user",
            };
            said.push(Message::new(role, &message.content));
        }
        template.render(&said).map_err(|error| describe(&error))
    }

    /// Writes down fields that were ignored, each name once.
    fn note(&self, ignored: &[String]) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        for name in ignored {
            let name: String = name.chars().take(40).collect();
            if noted.len() < NOTED_FIELDS && noted.insert(name.clone()) {
                say(&format!("[a client sends the field {name:?}, which is ignored]"));
            }
        }
    }
}

/// A line on standard error, if anybody reads it: a server outlives its terminal, and a full disk.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// All paths.
pub fn router(front: Arc<Front>) -> Router {
    let guarded = Router::new()
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(models))
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat))
        .layer(middleware::from_fn_with_state(front.clone(), with_key));
    Router::new()
        .route("/", get(page))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .merge(guarded)
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .with_state(front)
}

/// A refusal that day 20 has no word for: it is HTTP's.
fn http_error(status: u16, code: Option<&'static str>, message: String) -> ApiError {
    let kind = "invalid_request_error";
    ApiError { status, message, kind, param: None, code, retry_after: None }
}

/// An error as a response, in OpenAI's form.
fn refusal(error: &ApiError) -> Response {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(status, &error.body());
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn json_response(status: StatusCode, value: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (status, headers, value.to_string()).into_response()
}

/// Lets requests through that show the key, if one is asked for.
async fn with_key(State(front): State<Arc<Front>>, request: Request, next: Next) -> Response {
    if let Some(key) = &front.key {
        let shown = request.headers().get(header::AUTHORIZATION);
        let shown = shown.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let shown = shown.strip_prefix("Bearer ").unwrap_or_default();
        if !same(shown.as_bytes(), key.as_bytes()) {
            front.metrics.refused(401);
            let message = match shown.is_empty() {
                true => "this server asks for a key, as Authorization: Bearer KEY",
                false => "this is not the key of this server",
            };
            return refusal(&http_error(401, Some("invalid_api_key"), message.into()));
        }
    }
    next.run(request).await
}

/// Whether two keys are equal, in a time that does not tell where they part.
fn same(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b));
    a.len() == b.len() && differences == 0
}

async fn no_such_path(request: Request) -> Response {
    let message = format!(
        "there is no {}; there are /v1/models, /v1/completions, /v1/chat/completions, /health, \
         /metrics and /",
        request.uri().path()
    );
    refusal(&http_error(404, None, message))
}

async fn no_such_method(request: Request) -> Response {
    let message = format!("{} cannot be used with {}", request.method(), request.uri().path());
    refusal(&http_error(405, None, message))
}

/// The page on which one talks with the model. All of it is in this file: nothing is fetched from elsewhere.
async fn page(State(front): State<Arc<Front>>) -> Response {
    let form = if front.template.is_ok() { "chat" } else { "text" };
    let page = include_str!("talk_page.html").replace("{{form}}", form);
    let page = page.replace("{{model}}", &escaped(&front.model));
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                  connect-src 'self'";
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, policy),
    ];
    (headers, page).into_response()
}

/// A text as it may stand in HTML.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

/// 200 while jobs are taken, 503 afterwards.
async fn health(State(front): State<Arc<Front>>) -> Response {
    match front.sender() {
        Ok(_) => json_response(StatusCode::OK, &json!({"status": "ok"})),
        Err(error) => refusal(&error),
    }
}

async fn metrics(State(front): State<Arc<Front>>) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (headers, front.metrics.text()).into_response()
}

/// The one model, as a list, or by its name.
async fn models(State(front): State<Arc<Front>>, request: Request) -> Response {
    let model = json!({
        "id": front.model, "object": "model", "created": front.started, "owned_by": "candecode",
        "max_model_len": front.config.max_position_embeddings,
    });
    match request.uri().path().strip_prefix("/v1/models/") {
        None => {
            let list = json!({"object": "list", "data": [model]});
            json_response(StatusCode::OK, &list)
        }
        Some(name) if name == front.model => json_response(StatusCode::OK, &model),
        Some(name) => refusal(&ApiError::no_such_model(name, &front.model)),
    }
}

async fn completions(State(front): State<Arc<Front>>, request: Request) -> Response {
    answered(front, Endpoint::Completions, request).await
}

async fn chat(State(front): State<Arc<Front>>, request: Request) -> Response {
    answered(front, Endpoint::Chat, request).await
}

async fn answered(front: Arc<Front>, endpoint: Endpoint, request: Request) -> Response {
    let metrics = front.metrics.clone();
    answer(front, endpoint, request).await.unwrap_or_else(|error| {
        metrics.refused(error.status);
        refusal(&error)
    })
}

/// One request, from its body to its response.
async fn answer(
    front: Arc<Front>,
    endpoint: Endpoint,
    request: Request,
) -> Result<Response, ApiError> {
    front.sender()?; // before a body is read for nothing
    let (parts, body) = request.into_parts();
    check_type(&parts.headers)?;
    let body = read(&parts.headers, body, front.patience).await?;

    // Reading a long prompt takes a moment, in which other clients want to be answered.
    let reader = front.clone();
    let seed = random();
    let task = tokio::task::spawn_blocking(move || {
        let request = ApiRequest::parse(endpoint, &body, &reader.model, seed)?;
        let render = |messages: &[ChatMessage]| reader.render(messages);
        let prompts = prompt_ids(&request, &reader.tokenizer, &reader.config, &render)?;
        Ok((request, prompts))
    });
    let failed =
        |_| ApiError::failed("the request could not be read: the server's output says why");
    let (request, prompts) = task.await.map_err(failed)??;
    front.note(&request.ignored);

    let prefix = match endpoint {
        Endpoint::Completions => "cmpl",
        Endpoint::Chat => "chatcmpl",
    };
    let id = format!("{prefix}-{:016x}{:06x}", random(), front.count.fetch_add(1, Relaxed));
    let reply = Reply::new(&request, &prompts, id, now(), front.model.clone());
    front.metrics.taken(reply.prompt_tokens);
    let (wire, mut inbox) = Wire::new(reply.choices.len(), front.metrics.clone());
    let job = Job {
        endpoint,
        prompts,
        n: request.n,
        params: request.params,
        logprobs: request.logprobs,
        ignore_eos: request.ignore_eos,
        connection: Box::new(wire),
    };
    front.sender()?.send(job).map_err(|_| ApiError::closing())?;
    if !request.stream {
        let whole = answer::whole(&mut inbox, reply, &front.metrics).await?;
        return Ok(json_response(StatusCode::OK, &whole));
    }
    let first = answer::first(&mut inbox, &front.metrics).await?;
    let events = EventBody::new(first, inbox, reply, front.metrics.clone());
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Ok((headers, Body::new(events)).into_response())
}

/// Refuses what is not called JSON. A page of another origin can send a form or plain text to this machine without being
/// asked; JSON it cannot.
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let given = given.unwrap_or("none");
    if given.split(';').next().is_some_and(|kind| kind.trim() == "application/json") {
        return Ok(());
    }
    let message = format!("the content-type must be application/json, got {given}");
    Err(http_error(415, None, message))
}

/// The whole body, if it is not too long and does not take too long.
async fn read(headers: &HeaderMap, body: Body, patience: Duration) -> Result<Vec<u8>, ApiError> {
    let said = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let said: usize = said.and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = pin!(body);
    if said <= LONGEST_BODY {
        let seconds = patience.as_secs();
        let slow = || http_error(408, None, format!("the body did not come in {seconds} seconds"));
        let read = timeout(patience, read_some(body.as_mut())).await.map_err(|_| slow())??;
        if let Some(bytes) = read {
            return Ok(bytes);
        }
    }
    let forget = async {
        while let Some(Ok(_)) = poll_fn(|context| body.as_mut().poll_frame(context)).await {}
    };
    let _ = timeout(DRAIN_TIME, forget).await;
    let message = format!("the body is longer than {LONGEST_BODY} bytes; shorten it");
    Err(http_error(413, None, message))
}

/// The bytes of a body; None as soon as there are too many.
async fn read_some(mut body: Pin<&mut Body>) -> Result<Option<Vec<u8>>, ApiError> {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let broken = |_| http_error(400, None, "the body broke off".into());
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        if bytes.len() + data.len() > LONGEST_BODY {
            return Ok(None);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Some(bytes))
}

/// A number that nobody can guess, and no two requests share.
fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|_| now())
}
