//! Access control: clients with the API key, programs on this machine, and browser pages from
//! allowed origins.

use crate::app_state::AppState;
use crate::openai::{cut, ApiError};
use crate::util::random;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::uri::{Authority, Uri};
use axum::http::{header, HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tower_http::cors::{AllowHeaders, AllowOrigin, AllowPrivateNetwork, CorsLayer};

/// The request id header. OpenAI's clients expose it as `_request_id`.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Returns a CORS layer that lets browser pages from these origins send requests, also if a page is
/// from the internet and the server on this machine (Chromium asks for that separately). `*` allows
/// any origin, but not that.
pub fn cors(origins: &[String]) -> CorsLayer {
    let allowed = match origins.iter().any(|origin| origin == "*") {
        true => AllowOrigin::mirror_request(),
        false => AllowOrigin::list(origins.iter().filter_map(|origin| origin.parse().ok())),
    };
    let named = origins.to_vec();
    let named = AllowPrivateNetwork::predicate(move |origin: &HeaderValue, _: &Parts| {
        named.iter().any(|one| one.as_bytes() == origin.as_bytes())
    });
    CorsLayer::new()
        .allow_origin(allowed)
        .allow_private_network(named)
        .allow_methods([Method::GET, Method::POST])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([REQUEST_ID, header::RETRY_AFTER])
        .max_age(Duration::from_secs(600))
}

/// Copies the request's `x-request-id` to the response, or generates one.
pub async fn request_id(request: Request, next: Next) -> Response {
    let fits = |id: &&HeaderValue| {
        !id.is_empty() && id.len() <= 128 && id.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    let given = request.headers().get(REQUEST_ID).filter(fits).cloned();
    let own = || HeaderValue::from_str(&format!("req_{:016x}", random())).ok();
    let id = given.or_else(own);
    let mut response = next.run(request).await;
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// On a server that has no key and only listens locally, rejects requests that another site's page
/// could have sent. Such a page can point its own domain at this machine (DNS rebinding), and the
/// browser then treats the server as part of that site. It can't forge the names in `Host` and
/// `Origin`, though.
pub async fn local_only(
    State(state): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(address) = state.local else { return next.run(request).await };
    let texts = |name: HeaderName, headers: &HeaderMap| {
        let values = headers.get_all(name).into_iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    };
    let mut hosts: Vec<String> = texts(header::HOST, request.headers());
    hosts.extend(request.uri().authority().map(Authority::to_string));
    let origins: Vec<String> = texts(header::ORIGIN, request.headers());
    let allowed = |origin: &String| {
        state.origins.iter().any(|one| one == "*" || one == origin)
            || is_local_origin(origin, address)
    };
    let message = if let Some(host) = hosts.iter().find(|host| !is_local(host, address)) {
        format!(
            "this server answers only clients on its own machine, which address it as localhost \
             or 127.0.0.1, not as {:?}; to allow others, start it with --api-key",
            cut(host, 100)
        )
    } else if let Some(origin) = origins.iter().find(|origin| !allowed(origin)) {
        format!(
            "requests from pages of {:?} are not allowed; to allow them, start the server with \
             --allowed-origins",
            cut(origin, 100)
        )
    } else {
        return next.run(request).await;
    };
    state.metrics.refused(403);
    ApiError::http(403, None, message).into_response()
}

/// Whether a `host:port` refers to this machine or to the address the server listens on.
fn is_local(authority: &str, address: IpAddr) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host();
    let name = host.strip_suffix('.').unwrap_or(host);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip == address)
}

/// Whether an `Origin`, such as `http://localhost:3000`, belongs to this machine.
fn is_local_origin(origin: &str, address: IpAddr) -> bool {
    let uri = origin.parse::<Uri>().ok().filter(|uri| uri.scheme().is_some());
    uri.as_ref().and_then(Uri::authority).is_some_and(|one| is_local(one.as_str(), address))
}

/// Requires the API key on every request, if the server has one.
pub async fn with_key(
    State(state): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Response {
    if let Some(key) = &state.key {
        let shown = request.headers().get(header::AUTHORIZATION).map_or(&b""[..], |v| v.as_bytes());
        let shown = bearer(shown).unwrap_or_default();
        if !same(shown, key.as_bytes()) {
            state.metrics.refused(401);
            let message = match shown.is_empty() {
                true => "this server requires a key; send Authorization: Bearer KEY",
                false => "this is the wrong key for this server",
            };
            return ApiError::http(401, Some("invalid_api_key"), message).into_response();
        }
    }
    next.run(request).await
}

/// Extracts the key from `Bearer KEY`. The scheme is case-insensitive (RFC 9110, 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked(6)?;
    let bare = key.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer") && key.len() > bare.len()).then_some(bare)
}

/// Compares two keys without stopping early, so that timing doesn't reveal where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b));
    a.len() == b.len() && differences == 0
}
