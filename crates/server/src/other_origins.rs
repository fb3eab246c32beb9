//! Cross-origin requests (CORS), which browsers send only after asking, and request ids.

use anyhow::{ensure, Result};
use axum::extract::{Request, State};
use axum::http::{header, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use candecode::kit::error::{shown, usage};
use std::sync::Arc;

/// The header for request ids; OpenAI's clients read it as `_request_id`.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// How long a browser may cache a preflight response, in seconds.
const REMEMBERED: &str = "600";

/// Origins whose pages may use the server.
#[derive(Debug, Clone, Default)]
pub struct AllowedOrigins(Vec<String>);

impl AllowedOrigins {
    /// The origins of `--allowed-origins`.
    ///
    /// # Errors
    /// As wrong usage, if one is neither `*` nor an origin.
    pub fn new(origins: &[String]) -> Result<Self> {
        for origin in origins {
            let uri = origin.parse::<Uri>().ok();
            let is_origin = uri.is_some_and(|uri| {
                uri.scheme().is_some()
                    && uri.authority().is_some()
                    && !origin.ends_with('/')
                    && uri.path() == "/"
                    && uri.query().is_none()
            });
            ensure!(
                origin == "*" || is_origin,
                usage(format!(
                    "--allowed-origins {}: an origin is as http://localhost:3000, without a path; * is any",
                    shown(origin)
                ))
            );
        }
        Ok(Self(origins.to_vec()))
    }

    /// Whether pages of this origin may use the server.
    pub fn allow(&self, origin: &str) -> bool {
        self.0.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin))
    }

    /// A request's origin, if it is allowed.
    fn of(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        origin.to_str().is_ok_and(|origin| self.allow(origin)).then(|| origin.clone())
    }
}

/// Answers a browser's preflight request, and marks every response as readable for allowed origins.
pub async fn cors(
    State(allowed): State<Arc<AllowedOrigins>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(origin) = allowed.of(request.headers()) else { return next.run(request).await };
    let headers = request.headers();
    let asks = request.method() == Method::OPTIONS
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let wanted = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let mut response = match asks {
        true => StatusCode::NO_CONTENT.into_response(),
        false => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    let (name, value) = match asks {
        true => (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, OPTIONS"),
        false => (header::ACCESS_CONTROL_EXPOSE_HEADERS, "x-request-id, retry-after"),
    };
    headers.insert(name, HeaderValue::from_static(value));
    if asks {
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(REMEMBERED));
        if let Some(wanted) = wanted {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted);
        }
    }
    response
}

/// Adds the request's own `x-request-id` to its response, or a new one.
pub async fn request_id(request: Request, next: Next) -> Response {
    let fits = |id: &&HeaderValue| {
        !id.is_empty() && id.len() <= 128 && id.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    let given = request.headers().get(REQUEST_ID).filter(fits).cloned();
    let own = || HeaderValue::from_str(&format!("req_{:016x}", crate::http_routes::random())).ok();
    let id = given.or_else(own);
    let mut response = next.run(request).await;
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}
