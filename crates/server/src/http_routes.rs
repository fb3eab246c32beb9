//! What each path answers. A request is read and refused here; what is left of it goes to the loop
//! as a [`Job`].

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
use candecode::engine::token_rules;
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

/// The longest body, in bytes: more than any prompt that fits a model of this course.
const LONGEST_BODY: usize = 1 << 20;
/// How long a body that is too long is read and dropped, so that its sender reads why.
const DRAIN_TIME: Duration = Duration::from_secs(5);
/// A body up to this length, in bytes, is read at any time.
const SHORT_BODY: usize = 64 << 10;
/// How many longer ones are held at once, while they are read and parsed.
pub const LONG_BODIES: usize = 32;
/// The most tokens whose logprobs one answer may hold, alternatives included: each costs up to a
/// kilobyte while the answer is written.
const MOST_LOGPROBS: usize = 1 << 18;
/// The most unknown fields that are written down; a client that invents more is not heard.
const NOTED_FIELDS: usize = 64;

/// What every handler needs.
pub struct Front {
    /// What clients call the model.
    pub model: String,
    /// What encodes prompts.
    pub prompts: PromptReader,
    /// What clients must show.
    pub key: Option<String>,
    /// The address where only this machine's own clients are answered; None: all are.
    pub local: Option<IpAddr>,
    /// The origins whose pages may ask.
    pub origins: Vec<String>,
    /// The threads for what takes a while.
    pub helpers: HelperThreads,
    /// Compiled automata.
    pub rails: Arc<Rails>,
    /// Places for long bodies.
    pub long_bodies: Semaphore,
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
    /// Fields that clients have sent, and that change nothing.
    pub noted: Mutex<BTreeSet<String>>,
}

impl Front {
    /// Takes no more jobs; the loop ends when the last one has.
    pub fn close(&self) {
        lock(&self.jobs).take();
    }

    fn sender(&self) -> Result<Sender<Job>, ApiError> {
        lock(&self.jobs).clone().ok_or_else(ApiError::closing)
    }

    /// Refuses an answer whose logprobs would take too much memory.
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
            "{tokens} tokens with {top} logprobs for each are asked for, all choices together; at \
             most {most} tokens are possible with that many: lower max_tokens, n or the logprobs"
        );
        let param = match request.endpoint {
            Endpoint::Completions => "logprobs",
            Endpoint::Chat => "top_logprobs",
        };
        Err(ApiError::invalid(param, message))
    }

    /// Writes down fields that were ignored, each name once.
    fn note(&self, ignored: &[String]) {
        let mut noted = lock(&self.noted);
        for name in ignored {
            let name: String = name.chars().take(40).collect();
            if noted.len() < NOTED_FIELDS && noted.insert(name.clone()) {
                say(&format!("[a client sends the field {name:?}, which is ignored]"));
            }
        }
    }
}

/// Locks; a panic of another thread does not matter.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line on standard error, if anyone reads it: a server outlives its terminal, and a full disk.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A number that can't be guessed, and that no two requests share.
pub fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|_| now())
}

/// All paths.
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

/// A refusal that day 20 has no word for: it is HTTP's.
pub fn http_error(status: u16, code: Option<&'static str>, message: String) -> ApiError {
    ApiError { code, ..ApiError::new(status, "invalid_request_error", message) }
}

/// An error as a response, in OpenAI's form.
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
        "there is no {}; there are /v1/models, /v1/completions, /v1/chat/completions, /health, \
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

/// The page on which one talks with the model. All of it is in this file: nothing is fetched from
/// elsewhere.
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

/// The one model, as clients list it.
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

/// One request, from its body to its response.
async fn answer(
    front: Arc<Front>,
    endpoint: Endpoint,
    request: Request,
) -> Result<Response, ApiError> {
    front.sender()?; // before a body is read for nothing
    let (parts, body) = request.into_parts();
    check_type(&parts.headers)?;
    let activity = parts.extensions.get::<Arc<Activity>>();
    activity.inspect(|activity| activity.reads(true));
    let (body, place) = read(&front, &parts.headers, body).await?;
    activity.inspect(|activity| activity.reads(false));

    // Reading a long prompt takes a moment, in which other clients want to be answered.
    let reader = front.clone();
    let seed = random();
    let lane = front.helpers.reading(endpoint, body.len());
    let work = move || {
        let request = ApiRequest::parse(endpoint, &body, &reader.model, seed)?;
        let blamed = |(param, message): token_rules::Fault| ApiError::invalid(param, message);
        token_rules::check(&request.params).map_err(blamed)?;
        token_rules::check_ids(&request.params, reader.prompts.config.vocab_size)
            .map_err(blamed)?;
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
    front.metrics.taken(prompts.iter().map(Vec::len).sum());
    let choices = prompts.len() * request.n;
    let (wire, mut inbox) = Wire::new(choices, front.metrics.clone(), automata);
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
        let first = inbox.next().await?; // it decides the status of the response
        let headers = [
            (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
            (header::CACHE_CONTROL, "no-cache"),
        ];
        return Ok((headers, answer::streamed(first, inbox, reply, engine)).into_response());
    }
    reply = answer::gathered(inbox, reply, &engine).await?;
    let whole = match reply.logprobs {
        // Writing many of them would keep the HTTP thread from other clients.
        true => front.helpers.answers.run(move || Ok(reply.whole())).await?,
        false => reply.whole(),
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], whole).into_response())
}

/// Refuses what is not called JSON. A page of another origin can send a form or plain text to this
/// machine without being asked; JSON it cannot.
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

/// The whole body, if it is not too long and does not take too long; and the place that a long one
/// takes until it has been parsed.
async fn read<'a>(
    front: &'a Front,
    headers: &HeaderMap,
    mut body: Body,
) -> Result<(Vec<u8>, Option<SemaphorePermit<'a>>), ApiError> {
    let said = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let said: usize = said.map_or(0, |length| length.parse().unwrap_or(usize::MAX));
    let (mut bytes, mut place, mut fits) = (Vec::new(), None, said <= LONGEST_BODY);
    let reading = async {
        while let Some(frame) = if fits { body.frame().await } else { None } {
            let broken = |_| http_error(400, None, "the body broke off".into());
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            let length = bytes.len() + data.len();
            fits = length <= LONGEST_BODY;
            if length > SHORT_BODY && place.is_none() {
                place = front.long_bodies.acquire().await.ok();
            }
            bytes.extend_from_slice(&data);
        }
        Ok::<(), ApiError>(())
    };
    match timeout(front.patience, reading).await {
        Ok(read) => read?,
        Err(_) => {
            let seconds = front.patience.as_secs();
            return Err(http_error(
                408,
                None,
                format!("the body did not come in {seconds} seconds"),
            ));
        }
    }
    if fits {
        return Ok((bytes, place));
    }
    drop((bytes, place));
    // A client that asks before it sends the body (Expect: 100-continue) has sent nothing yet.
    if said <= LONGEST_BODY || !headers.contains_key(header::EXPECT) {
        let forget = async { while let Some(Ok(_)) = body.frame().await {} };
        let _ = timeout(DRAIN_TIME, forget).await;
    }
    let message = format!("the body is longer than {LONGEST_BODY} bytes; shorten it");
    Err(http_error(413, None, message))
}
