//! Answers one request: from its body to a [`Job`] for the serving loop, and from the loop's events
//! to the body of the response.

use crate::activity::Activity;
use crate::app_state::AppState;
use crate::body;
use crate::metrics::TokenMeter;
use crate::openai::{checks, AnswerForm, ApiError, ApiRequest, Endpoint, Origin, Reply};
use crate::prompt_report::PromptReport;
use crate::response_sink::{Inbox, ResponseSink};
use crate::util::{now, random};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{header, HeaderMap, HeaderName};
use axum::response::{IntoResponse as _, Response};
use candecode::day20_serve::{ChoiceToken, Job};
use candecode::kit::Prepared;
use futures_util::stream::unfold;
use std::convert::Infallible;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a stream's headers wait for a refusal, which comes before the loop's next step.
const REFUSAL: Duration = Duration::from_secs(1);
/// How long a stream is silent before the client gets a comment.
const SILENCE: Duration = Duration::from_secs(5);
/// A comment among server-sent events, which clients skip.
const WAITING: &str = ": waiting\n\n";

/// A request that has been parsed, checked and encoded.
struct ReadRequest {
    request: ApiRequest,
    /// The ids of each prompt.
    prompts: Vec<Vec<u32>>,
    /// The texts that the answer repeats.
    echoes: Vec<String>,
    /// What to look for in the answer.
    form: AnswerForm,
}

/// Answers a request, with an error if it is rejected or fails.
pub async fn answered(state: Arc<AppState>, endpoint: Endpoint, request: Request) -> Response {
    let metrics = state.metrics.clone();
    answer(state, endpoint, request).await.unwrap_or_else(|error| {
        metrics.refused(error.status);
        error.into_response()
    })
}

async fn answer(
    state: Arc<AppState>,
    endpoint: Endpoint,
    request: Request,
) -> Result<Response, ApiError> {
    state.sender()?; // if the server is shutting down, don't bother reading the body
    let (parts, body) = request.into_parts();
    let activity = parts.extensions.get::<Arc<Activity>>();
    let mut read = read(&state, endpoint, &parts.headers, body, activity).await?;
    state.note(&read.request.ignored);
    let request = &mut read.request;
    let param = request.pattern_field.unwrap_or_default();
    let prepared = state.automata.prepare(&request.params, param, &state.helpers).await?;
    request.params.prepared = prepared;
    if let Some(constraint) = request.constraint.take() {
        request.params.format = Some(state.compile(constraint, param).await?);
    }

    let prefix = match endpoint {
        Endpoint::Completions => "cmpl",
        Endpoint::Chat => "chatcmpl",
    };
    let origin = Origin {
        engine: state.prompts.engine.clone(),
        model: state.model.clone(),
        fingerprint: state.fingerprint.clone(),
        id: format!("{prefix}-{:016x}{:06x}", random(), state.count.fetch_add(1, Relaxed)),
        created: now(),
    };
    let ReadRequest { mut request, prompts, echoes, form } = read;
    let (is_streamed, top) = (request.fields.stream, request.prompt_logprobs());
    let shared = prompts.iter().map(|prompt| Arc::from(&prompt[..]));
    let rows = shared.flat_map(|prompt: Arc<[u32]>| std::iter::repeat_n(prompt, request.n));
    let reports: Vec<_> = rows.map(|prompt| Arc::new(PromptReport::new(prompt, top))).collect();
    request.params.reports = Prepared::new(Arc::new(reports.clone()));
    let prompt_tokens = prompts.iter().map(Vec::len).sum();
    let meter = TokenMeter::new(reports.len(), prompt_tokens, state.metrics.clone());
    let (sink, inbox) = ResponseSink::open(meter);
    let job = Job {
        prompts,
        n: request.n,
        params: std::mem::take(&mut request.params),
        logprobs: request.logprobs,
        is_chat: endpoint == Endpoint::Chat,
        connection: Box::new(sink),
    };
    let reply = Reply::new(origin, request, reports, &echoes, &form);
    state.sender()?.send(job).map_err(|_| ApiError::closing())?;
    match is_streamed {
        true => streamed(inbox, reply, state).await,
        false => gathered(inbox, reply, &state).await,
    }
}

/// Reads a request's body, and parses, checks and encodes it on a helper thread: a long prompt
/// takes a while, and other clients aren't blocked by it there.
async fn read(
    state: &Arc<AppState>,
    endpoint: Endpoint,
    headers: &HeaderMap,
    body: Body,
    activity: Option<&Arc<Activity>>,
) -> Result<ReadRequest, ApiError> {
    body::check_type(headers)?;
    activity.inspect(|activity| activity.reads(true));
    let (body, _place) = body::read(state, headers, body).await?;
    activity.inspect(|activity| activity.reads(false));
    let lane = state.helpers.reading(endpoint, body.len());
    let state = state.clone();
    let work = move || {
        let (reader, config) = (&state.prompts, &state.prompts.config);
        let request = ApiRequest::parse(endpoint, &body, &state.model)?;
        checks::check_for_model(&request.params, reader.engine.tokenizer(), config)?;
        let prompts = reader.read(&request)?;
        checks::check_logprobs(&request, &prompts, config, reader.pass_tokens)?;
        let echoes = reader.echoes(&request)?;
        let form = reader.form(&request, &prompts)?;
        Ok(ReadRequest { request, prompts, echoes, form })
    };
    lane.run(work).await
}

/// Waits until every choice has finished, and responds with the whole answer.
///
/// # Errors
/// Same as [`Inbox::next`], with the HTTP status to respond with.
async fn gathered(
    mut inbox: Inbox,
    mut reply: Reply,
    state: &AppState,
) -> Result<Response, ApiError> {
    while !reply.is_done() {
        let piece = inbox.next().await?;
        reply.take(reply.spell(piece)?);
    }
    inbox.ended = true;
    let whole = match reply.has_logprobs() {
        // Serializing many logprobs would block the HTTP thread for other clients.
        true => state.helpers.answers.run(move || Ok(reply.whole())).await?,
        false => reply.whole(),
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], whole).into_response())
}

/// Responds with a stream. A refusal by the serving loop, which comes at once, decides the
/// response's status. A first token may take longer than proxies and clients wait for headers.
///
/// # Errors
/// Same as [`Inbox::next`].
async fn streamed(
    mut inbox: Inbox,
    reply: Reply,
    state: Arc<AppState>,
) -> Result<Response, ApiError> {
    let first = timeout(REFUSAL, inbox.next()).await.ok().transpose()?;
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        // Otherwise nginx collects events and sends them on in lumps.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, events(first, inbox, reply, state)).into_response())
}

/// Returns a body of server-sent events, built lazily as it is read: `first`, then everything that
/// arrives in `inbox`. While nothing arrives, comments keep the connection open.
fn events(first: Option<ChoiceToken>, inbox: Inbox, reply: Reply, state: Arc<AppState>) -> Body {
    let start = (first, inbox, reply, state);
    Body::from_stream(unfold(start, |(mut first, mut inbox, mut reply, state)| async move {
        let mut text = String::new();
        while text.is_empty() && !inbox.ended {
            let piece = match first.take() {
                Some(first) => Ok(first),
                None => match timeout(SILENCE, inbox.next()).await {
                    Ok(piece) => piece,
                    Err(_) => {
                        text = WAITING.to_string();
                        break;
                    }
                },
            };
            match piece.and_then(|piece| reply.spell(piece)) {
                Ok(delta) => {
                    text = reply.events(delta);
                    inbox.ended = reply.is_done();
                }
                Err(error) => {
                    state.metrics.refused(error.status);
                    text = Reply::failed(&error);
                }
            }
        }
        (!text.is_empty()).then_some((Ok::<_, Infallible>(text), (first, inbox, reply, state)))
    }))
}
