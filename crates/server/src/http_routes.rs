//! The HTTP routes, and the handlers that don't need the model.

use crate::answer::answered;
use crate::app_state::AppState;
use crate::guards::{cors, local_only, request_id, with_key};
use crate::openai::{cut, ApiError, Endpoint};
use crate::util::lock;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::header;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::Router;
use serde_json::{json, Value};
use std::sync::Arc;
use tower_http::normalize_path::NormalizePath;

/// Builds the router with all routes. A slash at the end of a path makes no difference.
pub fn router(state: Arc<AppState>) -> NormalizePath<Router> {
    let guarded = Router::new()
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(model))
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat))
        .layer(from_fn_with_state(state.clone(), with_key));
    let all = Router::new()
        .route("/", get(page))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .merge(guarded)
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(from_fn_with_state(state.clone(), local_only))
        .layer(cors(&state.origins))
        .layer(from_fn(request_id))
        .with_state(state);
    NormalizePath::trim_trailing_slash(all)
}

fn json_response(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// Responds with 404. A client that asks for the right path elsewhere has the wrong base path.
async fn no_such_path(request: Request) -> Response {
    let path = request.uri().path();
    let of_responses = path.ends_with("/responses") || path.contains("/responses/");
    let known = ["/models", "/chat/completions", "/completions"];
    let message = match known.into_iter().find(|known| path.ends_with(known)) {
        _ if of_responses => "this server doesn't have OpenAI's Responses API; with the base path \
            /v1, ask for /v1/chat/completions: in OpenAI's clients, chat.completions.create"
            .to_string(),
        Some(known) => {
            format!("there is no {}; the base path is /v1: ask for /v1{known}", cut(path, 100))
        }
        None => format!(
            "there is no {}; the paths are /v1/models, /v1/completions, /v1/chat/completions, \
             /health, /metrics and /",
            cut(path, 100)
        ),
    };
    ApiError::http(404, None, message).into_response()
}

async fn no_such_method(request: Request) -> Response {
    let method = cut(request.method().as_str(), 20);
    let message = format!("{method} cannot be used with {}", cut(request.uri().path(), 100));
    ApiError::http(405, None, message).into_response()
}

/// Serves the built-in chat page. It is a single file and loads nothing from elsewhere.
async fn page(State(state): State<Arc<AppState>>) -> Response {
    let form = if state.prompts.template.is_ok() { "chat" } else { "text" };
    let name = state.model.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
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
async fn health(State(state): State<Arc<AppState>>) -> Response {
    match state.sender() {
        Ok(_) => json_response(&json!({"status": "ok"})),
        Err(error) => error.into_response(),
    }
}

async fn metrics(State(state): State<Arc<AppState>>) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (headers, state.metrics.text(lock(&state.open).len())).into_response()
}

/// Describes the one model being served, as the models endpoint lists it.
fn model_json(state: &AppState) -> Value {
    json!({
        "id": state.model, "object": "model", "created": state.started, "owned_by": "candecode",
        "max_model_len": state.prompts.config.max_position_embeddings,
    })
}

async fn models(State(state): State<Arc<AppState>>) -> Response {
    json_response(&json!({"object": "list", "data": [model_json(&state)]}))
}

async fn model(
    State(state): State<Arc<AppState>>,
    name: Result<Path<String>, PathRejection>,
) -> Response {
    match name {
        Ok(Path(name)) if name == state.model => json_response(&model_json(&state)),
        Ok(Path(name)) => ApiError::no_such_model(&name, &state.model).into_response(),
        Err(error) => ApiError::http(400, None, error.body_text()).into_response(),
    }
}

async fn completions(State(state): State<Arc<AppState>>, request: Request) -> Response {
    answered(state, Endpoint::Completions, request).await
}

async fn chat(State(state): State<Arc<AppState>>, request: Request) -> Response {
    answered(state, Endpoint::Chat, request).await
}
