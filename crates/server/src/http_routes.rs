//! The HTTP routes and their handlers. This is where requests are parsed and validated, and then
//! sent to the serving loop as a [`Job`].

use crate::answer::{self, Wire};
use crate::connections::Activity;
use crate::guards::{cors, local_only, request_id, with_key};
use crate::helper_threads::HelperThreads;
use crate::metrics::Metrics;
use crate::openai::{cut, ApiError, ApiRequest, Endpoint, Reply};
use crate::prompts::PromptReader;
use crate::rails::Rails;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{header, HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::Router;
use candecode::day20_serve::Job;
use candecode::kit::error::describe;
use candecode_engine::{requests, token_rules};
use http_body_util::BodyExt as _;
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Maximum length of a request body, in bytes: more than any prompt that fits in this course's
/// models.
const LONGEST_BODY: usize = 1 << 20;
/// How long to keep reading and discarding a body that is too long, so that the client gets to read
/// the error.
const DRAIN_TIME: Duration = Duration::from_secs(5);
/// Bodies up to this length, in bytes, are always read immediately.
const SHORT_BODY: usize = 64 << 10;
/// Maximum number of longer bodies in memory at once, while they are read and parsed.
pub const LONG_BODIES: usize = 32;
/// Maximum number of logprobs in one answer, alternatives included. Each takes up to a kilobyte
/// while the answer is serialized.
const MOST_LOGPROBS: usize = 1 << 18;
/// Maximum number of unknown field names to log. Once that many have been logged, no new names are,
/// so a client can't flood the log.
const NOTED_FIELDS: usize = 64;

/// State shared by all handlers.
pub struct Front {
    /// The model's name in the API.
    pub model: String,
    /// Encodes prompts.
    pub prompts: PromptReader,
    /// The API key that clients must send. None: no key needed.
    pub key: Option<String>,
    /// The listening address if only clients on this machine are allowed. None: clients on any
    /// machine are allowed.
    pub local: Option<IpAddr>,
    /// Origins of web pages that may send requests.
    pub origins: Vec<String>,
    /// Threads for slow work.
    pub helpers: HelperThreads,
    /// Compiled automata of requests whose text must match a pattern.
    pub rails: Arc<Rails>,
    /// Permits for long bodies.
    pub long_bodies: Semaphore,
    /// The channel to the serving loop. None once the server is shutting down.
    pub jobs: Mutex<Option<Sender<Job>>>,
    /// How long a client may take to send a request, or go without reading its answer.
    pub patience: Duration,
    /// The server's counters.
    pub metrics: Arc<Metrics>,
    /// Start time of the server, in seconds since 1970.
    pub started: u64,
    /// Number of responses so far, which is part of each response's id.
    pub count: AtomicU64,
    /// Names of ignored fields that have already been logged.
    pub noted: Mutex<BTreeSet<String>>,
}

impl Front {
    /// Stops accepting jobs. The loop ends once the last running job has finished.
    pub fn close(&self) {
        lock(&self.jobs).take();
    }

    fn sender(&self) -> Result<Sender<Job>, ApiError> {
        lock(&self.jobs).clone().ok_or_else(ApiError::closing)
    }

    /// Rejects a request for more logprobs than memory allows.
    fn check_logprobs(&self, request: &ApiRequest, prompts: &[Vec<u32>]) -> Result<(), ApiError> {
        let Some(top) = request.logprobs else { return Ok(()) };
        let context = self.prompts.config.max_position_embeddings;
        let of_prompt = |prompt: &Vec<u32>| {
            let room = (context + 1).saturating_sub(prompt.len());
            request.params.max_new_tokens.min(room) * request.n
        };
        let tokens: usize = prompts.iter().map(of_prompt).sum();
        if tokens * (top + 1) <= MOST_LOGPROBS {
            return Ok(());
        }
        let most = MOST_LOGPROBS / (top + 1);
        let message = format!(
            "the request asks for {tokens} tokens in all choices, with {top} logprobs each, but \
             with that many logprobs, the limit is {most} tokens; lower max_tokens, n or the \
             number of logprobs"
        );
        let param = match request.endpoint {
            Endpoint::Completions => "logprobs",
            Endpoint::Chat => "top_logprobs",
        };
        Err(ApiError::invalid(param, message))
    }

    /// Logs the names of ignored fields, each only once.
    fn note(&self, ignored: &[String]) {
        let mut noted = lock(&self.noted);
        for name in ignored {
            let name: String = name.chars().take(40).collect();
            if noted.len() < NOTED_FIELDS && noted.insert(name.clone()) {
                say(&format!("[a client sent the field {name:?}, which is ignored]"));
            }
        }
    }
}

/// Locks a mutex, ignoring poisoning: another thread's panic doesn't matter here.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints a line to standard error and ignores failures: the server may outlive its terminal, and
/// the disk may be full.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Returns the current time in seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns an unpredictable number, or the time if the system has no randomness to offer.
pub fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|_| now())
}

/// Builds the router with all routes.
pub fn router(front: Arc<Front>) -> Router {
    let guarded = Router::new()
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(model))
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat))
        .layer(from_fn_with_state(front.clone(), with_key));
    Router::new()
        .route("/", get(page))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .merge(guarded)
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(from_fn_with_state(front.clone(), local_only))
        .layer(cors(&front.origins))
        .layer(from_fn(request_id))
        .with_state(front)
}

/// Returns an error at the HTTP level (such as a wrong path, method or content type).
pub fn http_error(status: u16, code: Option<&'static str>, message: String) -> ApiError {
    ApiError { code, ..ApiError::new(status, "invalid_request_error", message) }
}

/// Turns an error into a response in OpenAI's format.
pub fn refusal(error: &ApiError) -> Response {
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

async fn no_such_path(request: Request) -> Response {
    let message = format!(
        "there is no {}; the paths are /v1/models, /v1/completions, /v1/chat/completions, /health, \
         /metrics and /",
        cut(request.uri().path(), 100)
    );
    refusal(&http_error(404, None, message))
}

async fn no_such_method(request: Request) -> Response {
    let method = cut(request.method().as_str(), 20);
    let message = format!("{method} cannot be used with {}", cut(request.uri().path(), 100));
    refusal(&http_error(405, None, message))
}

/// Serves the built-in chat page. It is a single file and loads nothing from elsewhere.
async fn page(State(front): State<Arc<Front>>) -> Response {
    let form = if front.prompts.template.is_ok() { "chat" } else { "text" };
    let name = front.model.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
    let page = include_str!("talk_page.html").replace("{{form}}", form);
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                  connect-src 'self'";
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, policy),
    ];
    (headers, page.replace("{{model}}", &name)).into_response()
}

/// Responds with 200 while the server accepts jobs, and with 503 afterwards.
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

/// Describes the one model being served, as the models endpoint lists it.
fn model_json(front: &Front) -> Value {
    json!({
        "id": front.model, "object": "model", "created": front.started, "owned_by": "candecode",
        "max_model_len": front.prompts.config.max_position_embeddings,
    })
}

async fn models(State(front): State<Arc<Front>>) -> Response {
    json_response(StatusCode::OK, &json!({"object": "list", "data": [model_json(&front)]}))
}

async fn model(State(front): State<Arc<Front>>, Path(name): Path<String>) -> Response {
    match name == front.model {
        true => json_response(StatusCode::OK, &model_json(&front)),
        false => refusal(&ApiError::no_such_model(&name, &front.model)),
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

/// Handles one request, from its body to the response.
async fn answer(
    front: Arc<Front>,
    endpoint: Endpoint,
    request: Request,
) -> Result<Response, ApiError> {
    front.sender()?; // if the server is shutting down, don't bother reading the body
    let (parts, body) = request.into_parts();
    check_type(&parts.headers)?;
    let activity = parts.extensions.get::<Arc<Activity>>();
    activity.inspect(|activity| activity.reads(true));
    let (body, place) = read(&front, &parts.headers, body).await?;
    activity.inspect(|activity| activity.reads(false));

    // Encoding a long prompt takes a while. Do it off the HTTP thread, so that other clients aren't
    // blocked.
    let reader = front.clone();
    let lane = front.helpers.reading(endpoint, body.len());
    let work = move || {
        let request = ApiRequest::parse(endpoint, &body, &reader.model)?;
        let blamed = |(param, message): token_rules::Fault| ApiError::invalid(param, message);
        token_rules::check(&request.params).map_err(blamed)?;
        token_rules::check_ids(&request.params, reader.prompts.config.vocab_size)
            .map_err(blamed)?;
        requests::check_stops(&request.params.stop, reader.prompts.engine.tokenizer())
            .map_err(|error| ApiError::invalid("stop", describe(&error)))?;
        let prompts = reader.prompts.read(&request)?;
        reader.check_logprobs(&request, &prompts)?;
        let echoes = reader.prompts.echoes(&request)?;
        Ok((request, prompts, echoes))
    };
    let (request, prompts, echoes) = lane.run(work).await?;
    drop(place);
    front.note(&request.ignored);
    let param = request.pattern_field.unwrap_or_default();
    let automata = front.rails.compile(&request.params, param, &front.helpers.patterns).await?;

    let prefix = match endpoint {
        Endpoint::Completions => "cmpl",
        Endpoint::Chat => "chatcmpl",
    };
    let id = format!("{prefix}-{:016x}{:06x}", random(), front.count.fetch_add(1, Relaxed));
    let mut reply = Reply::new(&request, &prompts, &echoes, id, now(), front.model.clone());
    let choices = prompts.len() * request.n;
    let prompt_tokens = prompts.iter().map(Vec::len).sum();
    let (wire, mut inbox) = Wire::new(choices, prompt_tokens, front.metrics.clone(), automata);
    let job = Job {
        prompts,
        n: request.n,
        params: request.params,
        logprobs: request.logprobs,
        is_chat: endpoint == Endpoint::Chat,
        connection: Box::new(wire),
    };
    front.sender()?.send(job).map_err(|_| ApiError::closing())?;
    let engine = front.prompts.engine.clone();
    if request.stream {
        let first = inbox.next().await?; // the first event decides the response's status
        let headers = [
            (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
            (header::CACHE_CONTROL, "no-cache"),
        ];
        return Ok((headers, answer::streamed(first, inbox, reply, engine)).into_response());
    }
    reply = answer::gathered(inbox, reply, &engine).await?;
    let whole = match reply.logprobs {
        // Serializing many logprobs would block the HTTP thread for other clients.
        true => front.helpers.answers.run(move || Ok(reply.whole())).await?,
        false => reply.whole(),
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], whole).into_response())
}

/// Rejects bodies whose content type isn't JSON. A page from another origin can send forms and
/// plain text to this machine without a CORS preflight, but not JSON.
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(header::CONTENT_TYPE).map_or(&b"none"[..], |value| value.as_bytes());
    let given = String::from_utf8_lossy(given);
    let kind = given.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = format!("the content-type must be application/json, got {}", cut(&given, 60));
        return Err(http_error(415, None, message));
    }
    Ok(())
}

/// Reads the whole body, unless it is too long or takes too long. A long body also gets a permit,
/// to be held until the body has been parsed.
async fn read<'a>(
    front: &'a Front,
    headers: &HeaderMap,
    mut body: Body,
) -> Result<(Vec<u8>, Option<SemaphorePermit<'a>>), ApiError> {
    let said = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let said: usize = said.map_or(0, |length| length.parse().unwrap_or(usize::MAX));
    let (mut bytes, mut place, mut fits) = (Vec::new(), None, said <= LONGEST_BODY);
    let mut length = 0;
    let reading = async {
        while let Some(frame) = if fits { body.frame().await } else { None } {
            let broken = |_| http_error(400, None, "the body ended early".into());
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            length = bytes.len() + data.len();
            fits = length <= LONGEST_BODY;
            if length > SHORT_BODY && place.is_none() {
                place = front.long_bodies.acquire().await.ok();
            }
            bytes.extend_from_slice(&data);
        }
        Ok::<(), ApiError>(())
    };
    let read = timeout(front.patience, reading).await;
    match read {
        Ok(read) => read?,
        // It wasn't the client that took so long: there was no permit.
        Err(_) if length > SHORT_BODY && place.is_none() => {
            return Err(ApiError::overloaded(
                "too many other long requests are being read; try again in a few seconds",
            ));
        }
        Err(_) => {
            let seconds = front.patience.as_secs();
            return Err(http_error(
                408,
                None,
                format!("the body did not arrive within {seconds} seconds"),
            ));
        }
    }
    if fits {
        return Ok((bytes, place));
    }
    drop((bytes, place));
    // A client that asks first (`Expect: 100-continue`) hasn't sent any of the body yet.
    if said <= LONGEST_BODY || !headers.contains_key(header::EXPECT) {
        let forget = async { while let Some(Ok(_)) = body.frame().await {} };
        let _ = timeout(DRAIN_TIME, forget).await;
    }
    let message = format!("the body is longer than {LONGEST_BODY} bytes; shorten it");
    Err(http_error(413, None, message))
}
