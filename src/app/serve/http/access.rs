//! Access checks: the API key, and protection against requests that web pages make a browser send.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};

use super::Shared;
use super::budget::BodyMemory;
use super::error::ApiError;
use crate::foundation::base::limits::REQUEST_BODY_S_MAX;

/// The middleware of every request: counts it and checks access.
pub(super) async fn check_and_count(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let mut timed = shared.metrics.begin(endpoint(request.uri().path()));
    let response = match check_access(&shared, &request) {
        Ok(()) => {
            // Given back when the handler has parsed the body.
            let memory = BodyMemory::default();
            next.run(request.map(|body| limited(body, &shared, memory.clone()))).await
        }
        Err(error) => error.into_response(),
    };
    timed.status = response.status();
    let streams = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
    if !streams {
        return response;
    }
    // A stream has only begun; the timer is dropped at its end.
    response.map(|body| {
        Body::from_stream(body.into_data_stream().map(move |chunk| {
            let _timer = &timed;
            chunk
        }))
    })
}

/// A body with a timeout between chunks and for the whole, and within the memory for all bodies.
fn limited(body: Body, shared: &Arc<Shared>, memory: BodyMemory) -> Body {
    let failed = |kind: io::ErrorKind| Some((Err(axum::Error::new(io::Error::from(kind))), None));
    let until = Instant::now() + Duration::from_secs(REQUEST_BODY_S_MAX);
    let begun = (body.into_data_stream(), Arc::clone(shared), memory);
    let chunks = stream::unfold(Some(begun), move |state| async move {
        let (mut chunks, shared, memory) = state?;
        let next = timeout_at(until.min(Instant::now() + shared.silence), chunks.next());
        match next.await {
            Err(_) => failed(io::ErrorKind::TimedOut),
            Ok(Some(Ok(chunk))) if !shared.memory.receive(&memory, chunk.len()) => failed(io::ErrorKind::OutOfMemory),
            Ok(chunk) => chunk.map(|chunk| (chunk, Some((chunks, shared, memory)))),
        }
    });
    Body::from_stream(chunks)
}

/// The endpoint's name in the metrics, from a fixed set.
fn endpoint(path: &str) -> &'static str {
    const KNOWN: [&str; 9] = [
        "/v1/models",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/tokenize",
        "/detokenize",
        "/tokenizer_info",
        "/health",
        "/metrics",
    ];
    let path = if path.starts_with("/v1/models/") { "/v1/models" } else { path };
    KNOWN.into_iter().find(|known| *known == path).unwrap_or("other")
}

fn check_access(shared: &Shared, request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    if request.uri().path() != "/health" {
        match &shared.key {
            Some(key) => check_key(*key, headers)?,
            None => {
                let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
                let hosts = headers.get_all(header::HOST).iter().map(HeaderValue::as_bytes);
                authority.into_iter().chain(hosts).try_for_each(check_host)?;
            }
        }
    }
    // A page of another origin can send a form without preflight, but not JSON.
    let json =
        |value: &str| value.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if request.method() == Method::POST && !kind.is_some_and(json) {
        let message = "send JSON, with the header `Content-Type: application/json`";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    Ok(())
}

/// Compares digests, which `blake3` does in constant time.
fn check_key(key: blake3::Hash, headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    match given {
        Some(given) if blake3::hash(given) == key => Ok(()),
        Some(_) => Err(ApiError::new(StatusCode::UNAUTHORIZED, "the API key is wrong")),
        None => Err(ApiError::new(StatusCode::UNAUTHORIZED, "send the API key: `Authorization: Bearer KEY`")),
    }
    .map_err(|error| error.code("invalid_api_key"))
}

/// Without a key, the host must be an address or `localhost`: a host name could be one that a web page has rebound to
/// this address.
fn check_host(host: &[u8]) -> Result<(), ApiError> {
    let host = &String::from_utf8_lossy(host);
    let bare = match host.rsplit_once(':') {
        Some((bare, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => bare,
        _ => host.as_ref(),
    };
    let bare = bare.trim_start_matches('[').trim_end_matches(']');
    if bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let message = format!(
        "without an API key, use the server's IP address or `localhost` as the host, not `{}`",
        host.escape_debug()
    );
    Err(ApiError::new(StatusCode::FORBIDDEN, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn addresses_and_localhost_are_allowed_and_names_are_not() {
        for host in ["127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000", "[::1]", "10.0.0.7"] {
            assert!(check_host(host.as_bytes()).is_ok(), "{host}");
        }
        for host in ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example"] {
            assert!(check_host(host.as_bytes()).is_err(), "{host}");
        }
        assert!(check_host(b"evil.example\xff").is_err() && check_host(b"\xff").is_err() && check_host(b"").is_err());
    }

    #[test]
    fn only_the_right_key_is_accepted() {
        let key = blake3::hash(b"secret");
        assert!(check_key(key, &headers(header::AUTHORIZATION, "Bearer secret")).is_ok());
        for wrong in ["Bearer secre", "Bearer secret ", "secret", "Basic secret", "Bearer "] {
            assert!(check_key(key, &headers(header::AUTHORIZATION, wrong)).is_err(), "{wrong}");
        }
        assert!(check_key(key, &HeaderMap::new()).is_err());
    }
}
