//! Reads request bodies, within limits on their length and on the time they take.

use crate::app_state::AppState;
use crate::openai::{cut, ApiError};
use axum::body::Body;
use axum::http::{header, HeaderMap, HeaderName};
use http_body_util::BodyExt as _;
use std::time::Duration;
use tokio::sync::SemaphorePermit;
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

/// Rejects bodies whose content type isn't JSON in UTF-8, and compressed ones. A page from another
/// origin can send forms and plain text to this machine without a CORS preflight, but not JSON.
///
/// # Errors
/// 415, naming the header.
pub fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = |name: HeaderName| {
        let values = headers.get_all(name).into_iter();
        let texts = values.map(|value| String::from_utf8_lossy(value.as_bytes()).to_lowercase());
        texts.collect::<Vec<_>>().join(", ")
    };
    let kind = given(header::CONTENT_TYPE);
    let mut parts = kind.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let charset = parts.find_map(|part| part.strip_prefix("charset=")).unwrap_or("utf-8");
    let charset = charset.trim_matches('"');
    if name != "application/json" || !["utf-8", "utf8", "us-ascii"].contains(&charset) {
        let got = if kind.is_empty() { "none" } else { &kind };
        let message =
            format!("the content-type must be application/json, in UTF-8, got {}", cut(got, 60));
        return Err(ApiError::http(415, None, message));
    }
    for (header, plain) in
        [(header::CONTENT_ENCODING, "identity"), (header::TRANSFER_ENCODING, "chunked")]
    {
        let value = given(header.clone());
        if !value.is_empty() && value.trim() != plain {
            let message = format!("{header} must be {plain} or missing, got {}", cut(&value, 60));
            return Err(ApiError::http(415, None, message));
        }
    }
    Ok(())
}

/// Reads the whole body, unless it is too long or takes too long. A long body also gets a permit,
/// to be held until the body has been parsed.
///
/// # Errors
/// 413 if the body is too long, 408 if it takes too long, 503 if too many other long ones are being
/// read, and 400 if it ends early.
pub async fn read<'a>(
    state: &'a AppState,
    headers: &HeaderMap,
    mut body: Body,
) -> Result<(Vec<u8>, Option<SemaphorePermit<'a>>), ApiError> {
    let said = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let said: usize = said.map_or(0, |length| length.parse().unwrap_or(usize::MAX));
    let (mut bytes, mut place, mut fits) = (Vec::new(), None, said <= LONGEST_BODY);
    let mut length = 0;
    let reading = async {
        while let Some(frame) = if fits { body.frame().await } else { None } {
            let broken = |_| ApiError::http(400, None, "the body ended early");
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            length = bytes.len() + data.len();
            fits = length <= LONGEST_BODY;
            if length > SHORT_BODY && place.is_none() {
                place = state.long_bodies.acquire().await.ok();
            }
            bytes.extend_from_slice(&data);
        }
        Ok::<(), ApiError>(())
    };
    let read = timeout(state.patience, reading).await;
    match read {
        Ok(read) => read?,
        // It wasn't the client that took so long: there was no permit.
        Err(_) if length > SHORT_BODY && place.is_none() => {
            return Err(ApiError::overloaded(
                "too many other long requests are being read; try again in a few seconds",
            ));
        }
        Err(_) => {
            let seconds = state.patience.as_secs();
            let message = format!("the body did not arrive within {seconds} seconds");
            return Err(ApiError::http(408, None, message));
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
    Err(ApiError::http(413, None, message))
}
