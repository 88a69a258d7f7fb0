//! A proxy in front of an OpenAI-compatible endpoint that regulates what passes.
//!
//! ```text
//! session.rs   what each session and key has spent; the regulator of each session
//! relay.rs     passes a stream on, and ends it when the regulator says so
//! page.rs      the sessions as a page and as JSON
//! ```
//!
//! Requests and responses pass unchanged, errors too: the proxy adds headers (`x-loom-…`), and one event at the end of a
//! stream. It stops by cutting a stream, or by refusing a request, and says so. The client's key goes to the upstream and
//! is stored nowhere. `docs/PROXY.md` is the page for users.

mod session;
mod relay;
mod page;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;

pub use self::session::ProxySettings;
use self::session::{Call, SessionId, Sessions, Verdict};
use crate::foundation::base::limits::{REMOTE_ANSWER_BYTES_MAX, REQUEST_BYTES_MAX};
use crate::governance::regulator::EventLine;
use crate::inference::remote::upstream::{Upstream, UpstreamResponse};

/// The header that names a session.
const SESSION: HeaderName = HeaderName::from_static("x-loom-session");
/// Longest name of a session.
const SESSION_BYTES_MAX: usize = 128;
/// How much of a key's digest names it.
const KEY_CHARS: usize = 8;
/// Headers that concern one connection, or that the proxy answers for itself.
const CONNECTION: [HeaderName; 11] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::HOST,
    header::CONTENT_LENGTH,
    header::EXPECT,
    HeaderName::from_static("keep-alive"),
];

struct Proxy {
    upstream: Upstream,
    sessions: Arc<Sessions>,
}

/// Serves until `stop` resolves; then accepts no new requests and returns when the running ones are answered.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    listener: TcpListener,
    upstream: Upstream,
    settings: ProxySettings,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let proxy = Arc::new(Proxy { upstream, sessions: Arc::new(Sessions::new(settings)) });
    let routes = Router::new()
        .route("/", get(page::html))
        .route("/loom/sessions", get(page::json))
        .route_layer(from_fn(page::local_only))
        .route("/loom/events", post(events))
        .route("/v1/{*path}", any(pass))
        .fallback(not_found)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(proxy);
    let listener = axum::serve::ListenerExt::tap_io(listener, |connection| drop(connection.set_nodelay(true)));
    axum::serve(listener, routes.into_make_service_with_connect_info::<SocketAddr>()).with_graceful_shutdown(stop).await
}

/// Passes a request on.
async fn pass(State(proxy): State<Arc<Proxy>>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let id = match session_id(&headers) {
        Ok(id) => id,
        Err(why) => return error(StatusCode::BAD_REQUEST, "loom_session", &why),
    };
    let request = match serde_json::from_slice(&body) {
        Ok(Value::Object(fields)) if method == Method::POST => Some(fields),
        _ => None,
    };
    let mut call = None;
    let mut verdict = None;
    if let Some(request) = &request {
        let (begun, found) = proxy.sessions.begin(id.clone(), request);
        if begun.is_refused() {
            return refusal(&id, &found);
        }
        (call, verdict) = (Some(begun), Some(found));
    }
    let path = uri.path_and_query().map_or_else(|| uri.path(), |path| path.as_str());
    let path = path.strip_prefix("/v1").unwrap_or(path);
    let sent = proxy.upstream.send(method, path, forwarded(&headers, false), body.to_vec()).await;
    let response = match sent {
        Ok(response) => response,
        Err(why) => {
            call.iter_mut().for_each(|call| drop(call.failed()));
            let message = format!("{} cannot be reached: {why}", proxy.upstream.host());
            return error(StatusCode::BAD_GATEWAY, "upstream_unreachable", &message);
        }
    };
    answer(&id, response, call.zip(verdict)).await
}

/// Passes a response on.
async fn answer(id: &SessionId, response: UpstreamResponse, call: Option<(Call, Verdict)>) -> Response {
    let UpstreamResponse { status, headers, body } = response;
    let mut out = Response::new(Body::empty());
    *out.status_mut() = status;
    *out.headers_mut() = forwarded(&headers, true);
    let Some((mut call, verdict)) = call else {
        *out.body_mut() = Body::from_stream(body.map(|chunk| chunk.map_err(io::Error::other)));
        return out;
    };
    if !status.is_success() {
        let (verdict, _) = call.failed();
        mark(out.headers_mut(), id, &verdict);
        *out.body_mut() = Body::from_stream(body.map(|chunk| chunk.map_err(io::Error::other)));
        return out;
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.starts_with("text/event-stream") {
        mark(out.headers_mut(), id, &verdict);
        *out.body_mut() = Body::from_stream(relay::relay(body, call));
        return out;
    }
    if !kind.starts_with("application/json") {
        // Speech, images: passed on as they come, and counted as nothing but their prompt.
        let guard = call;
        *out.body_mut() = Body::from_stream(body.map(move |chunk| {
            let _settled_at_the_end = &guard;
            chunk.map_err(io::Error::other)
        }));
        mark(out.headers_mut(), id, &verdict);
        return out;
    }
    let mut whole = Vec::new();
    let mut body = body;
    while let Some(chunk) = body.next().await {
        match chunk {
            Ok(chunk) if whole.len() + chunk.len() <= REMOTE_ANSWER_BYTES_MAX => whole.extend_from_slice(&chunk),
            Ok(_) => {
                let message = format!("the response is longer than {REMOTE_ANSWER_BYTES_MAX} bytes");
                return error(StatusCode::BAD_GATEWAY, "upstream_too_long", &message);
            }
            Err(why) => {
                let message = format!("the response broke off: {why}");
                return error(StatusCode::BAD_GATEWAY, "upstream_broke_off", &message);
            }
        }
    }
    call.read(&String::from_utf8_lossy(&whole));
    let (verdict, _) = call.end(false);
    mark(out.headers_mut(), id, &verdict);
    *out.body_mut() = Body::from(whole);
    out
}

/// Events that the proxy cannot see, for a session's regulator: feedback and corrections, as lines of JSON.
async fn events(State(proxy): State<Arc<Proxy>>, headers: HeaderMap, body: String) -> Response {
    let id = match session_id(&headers) {
        Ok(id) => id,
        Err(why) => return error(StatusCode::BAD_REQUEST, "loom_session", &why),
    };
    let mut all = Vec::new();
    for (line, number) in body.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty()) {
        match EventLine::parse_line(line) {
            Ok(events) => all.extend(events),
            Err(why) => return error(StatusCode::BAD_REQUEST, "loom_event", &format!("line {number}: {why}")),
        }
    }
    let verdict = proxy.sessions.tell(&id, &all);
    Json(verdict.json(&id, proxy.sessions.spent(&id))).into_response()
}

async fn not_found() -> Response {
    error(StatusCode::NOT_FOUND, "not_found", "requests go to /v1/…; the sessions are at /")
}

/// The session of a request: its key, and the name in the header `x-loom-session`.
fn session_id(headers: &HeaderMap) -> Result<SessionId, String> {
    let key = headers.get(header::AUTHORIZATION).map_or_else(
        || "none".to_owned(),
        |key| blake3::hash(key.as_bytes()).to_hex().chars().take(KEY_CHARS).collect(),
    );
    let name = match headers.get(&SESSION) {
        None => String::new(),
        Some(name) if name.len() <= SESSION_BYTES_MAX => {
            name.to_str().map_err(|_| "x-loom-session must be printable ASCII".to_owned())?.to_owned()
        }
        Some(_) => return Err(format!("x-loom-session is longer than {SESSION_BYTES_MAX} bytes")),
    };
    Ok(SessionId { key, name })
}

/// The headers that are passed on. Requests ask for no compression, since responses are read.
fn forwarded(headers: &HeaderMap, is_response: bool) -> HeaderMap {
    let own = |name: &HeaderName| {
        CONNECTION.contains(name) || !is_response && (*name == header::ACCEPT_ENCODING || *name == SESSION)
    };
    headers.iter().filter(|(name, _)| !own(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Adds what was decided to a response.
fn mark(headers: &mut HeaderMap, id: &SessionId, verdict: &Verdict) {
    let mut set = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    set("x-loom-session", &id.name);
    set("x-loom-turn", &verdict.turn.to_string());
    set("x-loom-decision", verdict.first());
    set("x-loom-stop", if verdict.stop { "true" } else { "false" });
}

/// A refused request. Clients must not send it again: nothing would change.
fn refusal(id: &SessionId, verdict: &Verdict) -> Response {
    let mut out = error(StatusCode::FORBIDDEN, "loom_stop", &verdict.suggestion());
    mark(out.headers_mut(), id, verdict);
    out.headers_mut().insert(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"));
    out
}

/// An error of the proxy itself, in the form that OpenAI's clients read.
fn error(status: StatusCode, code: &'static str, message: &str) -> Response {
    let body = json!({ "error": { "message": format!("loom proxy: {message}"), "type": "loom_proxy", "param": null, "code": code } });
    (status, Json(body)).into_response()
}

/// Whether somebody at this machine asks, by its address: a host name could be one that a web page has rebound to it.
fn is_local(ConnectInfo(peer): ConnectInfo<SocketAddr>, headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let bare = match host.rsplit_once(':') {
        Some((bare, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => bare,
        _ => host,
    };
    let address = bare.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    peer.ip().is_loopback() && (bare == "localhost" || address.is_ok_and(|address| address.is_loopback()))
}
