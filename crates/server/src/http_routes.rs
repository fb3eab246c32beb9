//! What each path answers. A request is read and refused here; what is left of it goes to the loop as a [`Job`].

use crate::answer::{self, EventBody, Wire};
use crate::answer_shape::AnswerShape;
use crate::connections::Activity;
use crate::helper_threads::HelperThreads;
use crate::metrics::Metrics;
use crate::openai::{
    cut, prompt_ids, ApiError, ApiRequest, ChatMessage, Endpoint, Extras, PromptInput, Reply,
};
use crate::other_origins::{cors, request_id, AllowedOrigins};
use crate::rails::Rails;
use anyhow::Result;
use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::uri::{Authority, Uri};
use axum::http::{header, HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::Router;
use candecode::day20_serve::Job;
use candecode::engine::chat_template::{Message, RenderOptions, Template};
use candecode::engine::{token_rules, Engine};
use candecode::kit::error::{describe, plain};
use candecode::kit::ModelConfig;
use percent_encoding::percent_decode_str;
use serde_json::{json, Value};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io::Write as _;
use std::net::IpAddr;
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// The longest body, in bytes: more than any prompt that fits a model of this course.
const LONGEST_BODY: usize = 1 << 20;
/// How long a body that is too long is read and forgotten, so that its sender reads why.
const DRAIN_TIME: Duration = Duration::from_secs(5);
/// A body up to this length, in bytes, is read at any time.
const SHORT_BODY: usize = 64 << 10;
/// How many longer ones are held at once, while they are read and parsed.
pub const LONG_BODIES: usize = 32;
/// The most words of `bad_words`, and their bytes together: the model's thread encodes them.
const BAD_WORDS: (usize, usize) = (256, 4096);
/// The most ids of `stop_token_ids`: each token is compared with all of them.
const MOST_STOP_IDS: usize = 256;
/// The most tokens of `logit_bias` (OpenAI: 300).
const MOST_BIASES: usize = 1024;
/// The most bytes that `echo` repeats in an answer, all choices together.
const MOST_ECHOED: usize = 4 << 20;
/// The most tokens whose logprobs one answer may hold, alternatives included: each costs up to a
/// kilobyte while the answer is written.
const MOST_LOGPROBS: usize = 1 << 18;
/// So many unknown fields are written down; a client that invents more is not heard.
const NOTED_FIELDS: usize = 64;

/// What every handler needs.
pub struct Front {
    /// What clients call the model.
    pub model: String,
    /// Its configuration; the context is what is served, which is less than the model's if the
    /// batch holds less.
    pub config: ModelConfig,
    /// Its engine, of which this side uses the tokenizer; the loop has it, too.
    pub engine: Arc<Engine>,
    /// The bytes of its longest token.
    pub longest_token: usize,
    /// Its chat template, or why it has none.
    pub template: Result<Template, String>,
    /// What clients must show.
    pub key: Option<String>,
    /// The address where only this machine's own clients are answered; None: all are.
    pub local: Option<IpAddr>,
    /// The origins whose pages may ask.
    pub origins: Arc<AllowedOrigins>,
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
    /// Fields that clients have sent, and that nobody here knows.
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

    /// The text of a chat.
    fn render(&self, messages: &[ChatMessage], extras: &Extras) -> Result<String, String> {
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
        let options = RenderOptions {
            add_generation_prompt: extras.add_generation_prompt,
            continue_final_message: extras.continue_final_message,
            kwargs: extras.template_kwargs.clone(),
        };
        template.apply(&said, &options).map_err(|error| describe(&error))
    }

    /// The tokens of a request's prompts. A text that is too long, whatever its tokens are, is refused
    /// before it is encoded.
    fn prompts(&self, request: &ApiRequest) -> Result<Vec<Vec<u32>>, ApiError> {
        for prompt in &request.prompts {
            if let PromptInput::Text(text) = prompt {
                self.check_length("prompt", text)?;
            }
        }
        let mut as_ids = None;
        if !request.extras.add_special_tokens {
            let bare = as_ids.insert(request.clone());
            for prompt in &mut bare.prompts {
                if let PromptInput::Text(text) = prompt {
                    let ids = self.engine.tokenizer().encode_rendered(text);
                    let refused = |error| ApiError::invalid("prompt", plain(&error));
                    *prompt = PromptInput::Ids(ids.map_err(refused)?);
                }
            }
        }
        let request = as_ids.as_ref().unwrap_or(request);
        let too_long = Cell::new(None);
        let render = |messages: &[ChatMessage]| {
            let text = self.render(messages, &request.extras)?;
            self.check_length("messages", &text).map_err(|error| {
                let words = error.to_string();
                too_long.set(Some(error));
                words
            })?;
            Ok(text)
        };
        let prompts = prompt_ids(request, self.engine.tokenizer(), &self.config, &render);
        prompts.map_err(|error| match too_long.take() {
            Some(error) => error,
            None => Self::blame_option(error),
        })
    }

    /// Sets `param` to the option if a template refused an option rather than the messages.
    fn blame_option(error: ApiError) -> ApiError {
        let options = ["chat_template_kwargs", "continue_final_message"];
        match options.iter().find(|name| error.message.starts_with(**name)) {
            Some(name) => ApiError { param: Some(name.to_string()), ..error },
            None => error,
        }
    }

    /// Texts of the prompts for `echo`; empty without it.
    fn echoes(&self, request: &ApiRequest) -> Result<Vec<String>, ApiError> {
        let mut texts = Vec::new();
        let mut bytes = 0;
        for prompt in request.prompts.iter().filter(|_| request.extras.echo) {
            texts.push(match prompt {
                PromptInput::Text(text) => text.clone(),
                PromptInput::Ids(ids) => {
                    let text = self.engine.tokenizer().decode(ids);
                    text.map_err(|error| ApiError::invalid("prompt", plain(&error)))?
                }
                PromptInput::Messages(_) => String::new(),
            });
            bytes += texts.last().map_or(0, String::len) * request.n;
            if bytes > MOST_ECHOED {
                let message = format!(
                    "echo would repeat more than {MOST_ECHOED} bytes; lower n, or leave it out"
                );
                return Err(ApiError::invalid("echo", message));
            }
        }
        Ok(texts)
    }

    /// Refuses a text that has more tokens than the context, if that shows in its length.
    fn check_length(&self, param: &str, text: &str) -> Result<(), ApiError> {
        let context = self.config.max_position_embeddings;
        let least = text.len() / self.longest_token.max(1);
        if text.len() / 16 <= context || least <= context {
            return Ok(());
        }
        let tokens = format!("at least {least}");
        Err(ApiError::context_exceeded(param, tokens, context))
    }

    /// Refuses lists that would cost the model's thread too much.
    fn check_amounts(&self, request: &ApiRequest) -> Result<(), ApiError> {
        let params = &request.params;
        let bytes: usize = params.bad_words.iter().map(String::len).sum();
        let allowed = params.allowed_token_ids.as_ref().map_or(0, Vec::len);
        for (name, what, got, most) in [
            ("bad_words", "words", params.bad_words.len(), BAD_WORDS.0),
            ("bad_words", "bytes in all", bytes, BAD_WORDS.1),
            ("stop_token_ids", "ids", params.stop_token_ids.len(), MOST_STOP_IDS),
            ("logit_bias", "tokens", params.logit_bias.len(), MOST_BIASES),
            ("allowed_token_ids", "ids", allowed, self.config.vocab_size),
        ] {
            if got > most {
                let message = format!("{name} may have at most {most} {what}, got {got}");
                return Err(ApiError::invalid(name, message));
            }
        }
        Ok(())
    }

    /// Refuses an answer whose logprobs would take too much memory.
    fn check_logprobs(&self, request: &ApiRequest, prompts: &[Vec<u32>]) -> Result<(), ApiError> {
        let Some(top) = request.logprobs else { return Ok(()) };
        let context = self.config.max_position_embeddings;
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
            "{tokens} tokens with {top} logprobs beside each are asked for, all choices together; \
             with as many, at most {most} tokens are possible: lower max_tokens, n or the logprobs"
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
        .layer(middleware::from_fn_with_state(front.clone(), local_only))
        .layer(middleware::from_fn_with_state(front.origins.clone(), cors))
        .layer(middleware::from_fn(request_id))
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

/// Refuses what a page of another site may have sent, on a server without a key that only this
/// machine reaches. Such a page can give its own name this machine's address (DNS rebinding), and
/// then a browser takes the server for a part of that site. What it can't change is the name in
/// `Host` and `Origin`.
async fn local_only(State(front): State<Arc<Front>>, request: Request, next: Next) -> Response {
    let Some(address) = front.local else { return next.run(request).await };
    let headers = request.headers();
    let hosts = headers.get_all(header::HOST).iter();
    let hosts = hosts.map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
    let target = request.uri().authority().map(|authority| authority.to_string());
    let foreign = hosts.chain(target).find(|host| !is_local(host, address));
    let origins = headers.get_all(header::ORIGIN).iter();
    let mut origins = origins.map(|origin| String::from_utf8_lossy(origin.as_bytes()).into_owned());
    let may_ask = |origin: &String| is_local_origin(origin, address) || front.origins.allow(origin);
    let message = match (foreign, origins.find(|origin| !may_ask(origin))) {
        (None, None) => return next.run(request).await,
        (Some(host), _) => format!(
            "this server answers only clients of its own machine, who call it localhost or \
             127.0.0.1, and not {:?}; to let others in, start it with --api-key",
            cut(&host, 100)
        ),
        (None, Some(origin)) => format!(
            "pages of {:?} are not answered here; to let them in, start the server with --allowed-origins",
            cut(&origin, 100)
        ),
    };
    front.metrics.refused(403);
    refusal(&http_error(403, None, message))
}

/// Whether a `host:port` names this machine, or the address where the server listens.
fn is_local(authority: &str, address: IpAddr) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host();
    let name = host.strip_suffix('.').unwrap_or(host);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip == address)
}

/// Whether an `Origin`, as `http://localhost:3000`, is a page of this machine.
fn is_local_origin(origin: &str, address: IpAddr) -> bool {
    let uri = origin.parse::<Uri>().ok();
    let authority =
        uri.filter(|uri| uri.scheme().is_some()).and_then(|uri| uri.into_parts().authority);
    authority.is_some_and(|authority| is_local(authority.as_str(), address))
}

/// Lets requests through that show the key, if one is asked for.
async fn with_key(State(front): State<Arc<Front>>, request: Request, next: Next) -> Response {
    if let Some(key) = &front.key {
        let shown = request.headers().get(header::AUTHORIZATION).map_or(&b""[..], |v| v.as_bytes());
        let shown = bearer(shown).unwrap_or_default();
        if !same(shown, key.as_bytes()) {
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

/// The key in `Bearer KEY`. The word's case does not matter (RFC 9110, 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked(6)?;
    let bare = key.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer") && key.len() > bare.len()).then_some(bare)
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
        cut(request.uri().path(), 100)
    );
    refusal(&http_error(404, None, message))
}

async fn no_such_method(request: Request) -> Response {
    let method = cut(request.method().as_str(), 20);
    let message = format!("{method} cannot be used with {}", cut(request.uri().path(), 100));
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
        Some(name) => {
            let decoded = percent_decode_str(name).decode_utf8_lossy();
            if name == front.model || decoded == front.model.as_str() {
                return json_response(StatusCode::OK, &model);
            }
            refusal(&ApiError::no_such_model(&decoded, &front.model))
        }
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
        let request = ApiRequest::parse(endpoint, &utf8(body)?, &reader.model, seed)?;
        let blamed = |(param, message): token_rules::Fault| ApiError::invalid(param, message);
        token_rules::check(&request.params).map_err(blamed)?;
        token_rules::check_ids(&request.params, reader.config.vocab_size).map_err(blamed)?;
        reader.check_amounts(&request)?;
        let prompts = reader.prompts(&request)?;
        let echoes = reader.echoes(&request)?;
        Ok((request, prompts, echoes))
    };
    let (request, prompts, echoes) = lane.run(work).await?;
    drop(place);
    front.note(&request.ignored);
    front.check_logprobs(&request, &prompts)?;
    let automata = front.rails.compile(&request.params, &front.helpers.patterns).await;
    let automata = automata.map_err(|error| match request.extras.pattern_field {
        Some(name) if error.param.is_some() => ApiError { param: Some(name.into()), ..error },
        _ => error,
    })?;

    let prefix = match endpoint {
        Endpoint::Completions => "cmpl",
        Endpoint::Chat => "chatcmpl",
    };
    let own_id = || format!("{:016x}{:06x}", random(), front.count.fetch_add(1, Relaxed));
    let id = format!("{prefix}-{}", request.extras.request_id.clone().unwrap_or_else(own_id));
    let template_stops = match &front.template {
        Ok(template) if endpoint == Endpoint::Chat => template.stops.as_slice(),
        _ => &[],
    };
    let mut shape = AnswerShape::new(
        front.engine.clone(),
        &request,
        &prompts.iter().map(Vec::len).collect::<Vec<_>>(),
        &echoes,
        template_stops,
    );
    let reply = Reply::new(&request, &prompts, id, now(), front.model.clone());
    front.metrics.taken(reply.prompt_tokens);
    let (wire, mut inbox) = Wire::new(reply.choices.len(), front.metrics.clone(), automata);
    let job = Job {
        prompts,
        n: request.n,
        params: request.params,
        logprobs: request.logprobs,
        is_chat: endpoint == Endpoint::Chat,
        connection: Box::new(wire),
    };
    front.sender()?.send(job).map_err(|_| ApiError::closing())?;
    if !request.stream {
        let mut reply = answer::gathered(&mut inbox, reply, &mut shape, &front.metrics).await?;
        let large = answer::is_large(&reply);
        let mut write = move || Ok(shape.whole(&mut reply));
        let whole = match large {
            true => front.helpers.answers.run(write).await?,
            false => write()?,
        };
        let headers = [(header::CONTENT_TYPE, "application/json")];
        return Ok((headers, whole).into_response());
    }
    let first = answer::first(&mut inbox, &front.metrics).await?;
    let events = EventBody::new(first, inbox, reply, shape, front.metrics.clone());
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Ok((headers, Body::new(events)).into_response())
}

/// Refuses what is not called JSON, or is compressed. A page of another origin can send a form or
/// plain text to this machine without being asked; JSON it cannot.
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(header::CONTENT_TYPE).map_or(&b"none"[..], |value| value.as_bytes());
    let given = String::from_utf8_lossy(given);
    let kind = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind != "application/json" && !(kind.starts_with("application/") && kind.ends_with("+json"))
    {
        let message = format!("the content-type must be application/json, got {}", cut(&given, 60));
        return Err(http_error(415, None, message));
    }
    let codings = headers.get_all(header::CONTENT_ENCODING).iter();
    for coding in codings.map(|coding| String::from_utf8_lossy(coding.as_bytes())) {
        if !coding.trim().eq_ignore_ascii_case("identity") && !coding.trim().is_empty() {
            let message = format!(
                "the body must not be compressed, got content-encoding {}",
                cut(&coding, 60)
            );
            return Err(http_error(415, None, message));
        }
    }
    Ok(())
}

/// The whole body, if it is not too long and does not take too long; and the place that a long one
/// takes until it has been parsed.
async fn read<'a>(
    front: &'a Front,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Vec<u8>, Option<SemaphorePermit<'a>>), ApiError> {
    let said = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let said: usize = said.map_or(0, |length| length.parse().unwrap_or(usize::MAX));
    let mut body = pin!(body);
    if said <= LONGEST_BODY {
        let mut place = None;
        let bytes = read_some(body.as_mut(), &front.long_bodies, &mut place);
        let read = timeout(front.patience, bytes).await;
        match read {
            Ok(read) => {
                if let Some(bytes) = read? {
                    return Ok((bytes, place));
                }
            }
            Err(_) => {
                let seconds = front.patience.as_secs();
                let message = format!("the body did not come in {seconds} seconds");
                return Err(http_error(408, None, message));
            }
        }
    }
    // A client that asks before it sends the body (Expect: 100-continue) has sent nothing yet.
    if said <= LONGEST_BODY || !headers.contains_key(header::EXPECT) {
        let forget = async {
            while let Some(Ok(_)) = poll_fn(|context| body.as_mut().poll_frame(context)).await {}
        };
        let _ = timeout(DRAIN_TIME, forget).await;
    }
    let message = format!("the body is longer than {LONGEST_BODY} bytes; shorten it");
    Err(http_error(413, None, message))
}

/// The bytes of a body; None as soon as there are too many. A long one waits for a place first.
async fn read_some<'a>(
    mut body: Pin<&mut Body>,
    places: &'a Semaphore,
    place: &mut Option<SemaphorePermit<'a>>,
) -> Result<Option<Vec<u8>>, ApiError> {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let broken = |_| http_error(400, None, "the body broke off".into());
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        if bytes.len() + data.len() > LONGEST_BODY {
            return Ok(None);
        }
        if bytes.len() + data.len() > SHORT_BODY && place.is_none() {
            *place = places.acquire().await.ok();
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Some(bytes))
}

/// The body as UTF-8. It may begin with a byte order mark, and be UTF-16 or UTF-32, as Python's
/// `json.loads` takes it.
fn utf8(body: Vec<u8>) -> Result<Vec<u8>, ApiError> {
    let zeros = |i: usize| body.get(i) == Some(&0);
    let wrong = |name: &str| ApiError::unreadable(format!("the body is not JSON: it is no {name}"));
    let (width, big, skip) = match &body[..] {
        [0, 0, 0xFE, 0xFF, ..] => (4, true, 4),
        [0xFF, 0xFE, 0, 0, ..] => (4, false, 4),
        [0xFE, 0xFF, ..] => (2, true, 2),
        [0xFF, 0xFE, ..] => (2, false, 2),
        [0xEF, 0xBB, 0xBF, rest @ ..] => return Ok(rest.to_vec()),
        _ if zeros(0) && zeros(1) => (4, true, 0),
        _ if zeros(0) => (2, true, 0),
        _ if zeros(1) && zeros(2) && zeros(3) => (4, false, 0),
        _ if zeros(1) => (2, false, 0),
        _ => return Ok(body),
    };
    let units = body[skip..].chunks_exact(width);
    let whole = units.remainder().is_empty();
    let unit = |bytes: &[u8]| {
        let add = |sum: u32, byte: &u8| sum << 8 | u32::from(*byte);
        if big {
            bytes.iter().fold(0, add)
        } else {
            bytes.iter().rev().fold(0, add)
        }
    };
    let text: Option<String> = match width {
        4 => units.map(|bytes| char::from_u32(unit(bytes))).collect(),
        _ => {
            char::decode_utf16(units.map(|bytes| unit(bytes) as u16)).collect::<Result<_, _>>().ok()
        }
    };
    let name = if width == 4 { "UTF-32" } else { "UTF-16" };
    text.filter(|_| whole).map(String::into_bytes).ok_or_else(|| wrong(name))
}

/// A number that nobody can guess, and no two requests share.
pub fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|_| now())
}
