//! Who may ask: the API key, and guards against a browser that is made to ask by a page it shows.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use tokio::time::timeout;

use super::Shared;
use super::error::ApiError;

/// Every request passes here: it is counted, and turned away unless it may ask.
pub(super) async fn door(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let mut timed = shared.metrics.begin(endpoint(request.uri().path()));
    let response = match may(&shared, &request) {
        Ok(()) => next.run(request.map(|body| patient(body, shared.silence))).await,
        Err(error) => error.into_response(),
    };
    timed.status = response.status();
    let streams = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
    if !streams {
        return response;
    }
    // The answer has only begun.
    response.map(|body| {
        Body::from_stream(body.into_data_stream().map(move |chunk| {
            let _until_the_end = &timed;
            chunk
        }))
    })
}

/// A body whose sender may not fall silent for longer: one that never ends would keep the server from ending.
fn patient(body: Body, silence: Duration) -> Body {
    let pieces = stream::unfold(Some(body.into_data_stream()), move |pieces| async move {
        let mut pieces = pieces?;
        match timeout(silence, pieces.next()).await {
            Ok(piece) => piece.map(|piece| (piece, Some(pieces))),
            Err(_) => Some((Err(axum::Error::new(io::Error::from(io::ErrorKind::TimedOut))), None)),
        }
    });
    Body::from_stream(pieces)
}

/// The endpoint's name in the metrics: a fixed set, whatever paths are asked for.
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

fn may(shared: &Shared, request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    if request.uri().path() != "/health" {
        match &shared.key {
            Some(key) => check_key(*key, headers)?,
            None => check_host(headers)?,
        }
    }
    // A page of another origin can send a form to this address without asking, but not JSON.
    let json =
        |value: &str| value.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if request.method() == Method::POST && !kind.is_some_and(json) {
        let message = "send JSON, with the header `Content-Type: application/json`";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    Ok(())
}

/// Digests are compared, which `blake3` does in constant time.
fn check_key(key: blake3::Hash, headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    match given {
        Some(given) if blake3::hash(given) == key => Ok(()),
        Some(_) => Err(ApiError::new(StatusCode::UNAUTHORIZED, "this is not the server's API key")),
        None => Err(ApiError::new(StatusCode::UNAUTHORIZED, "send the API key: `Authorization: Bearer KEY`")),
    }
    .map_err(|error| error.code("invalid_api_key"))
}

/// Without a key, only those may ask who know the address: a name could be one that a web page has turned to it.
fn check_host(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return Ok(()) };
    let bare = match host.rsplit_once(':') {
        Some((bare, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => bare,
        _ => host,
    };
    let bare = bare.trim_start_matches('[').trim_end_matches(']');
    if bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let message = format!("without an API key, ask for this server by its address or as `localhost`, not as `{host}`");
    Err(ApiError::new(StatusCode::FORBIDDEN, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn addresses_and_localhost_pass_and_names_do_not() {
        for host in ["127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000", "[::1]", "10.0.0.7"] {
            assert!(check_host(&headers(header::HOST, host)).is_ok(), "{host}");
        }
        for host in ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example"] {
            assert!(check_host(&headers(header::HOST, host)).is_err(), "{host}");
        }
    }

    #[test]
    fn a_key_opens_and_another_does_not() {
        let key = blake3::hash(b"secret");
        assert!(check_key(key, &headers(header::AUTHORIZATION, "Bearer secret")).is_ok());
        for wrong in ["Bearer secre", "Bearer secret ", "secret", "Basic secret", "Bearer "] {
            assert!(check_key(key, &headers(header::AUTHORIZATION, wrong)).is_err(), "{wrong}");
        }
        assert!(check_key(key, &HeaderMap::new()).is_err());
    }
}
