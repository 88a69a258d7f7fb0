//! A model over HTTP with OpenAI's API, and with values that an API usually hides: true log-probabilities of prompts
//! and replies, entropies, ranks, gains on Δ.
//!
//! ```text
//! access.rs                       access checks; counts every request
//! chat.rs completions.rs          requests to the model      common.rs: their common fields
//! tokens.rs embeddings.rs         other endpoints            fields.rs: unknown fields are rejected by name
//! connections.rs budget.rs        deadlines of connections; memory for requests
//! streaming.rs                    streamed responses; work is cancelled when the client disconnects
//! ```
//!
//! It depends on [`LanguageModel`] and [`Embedder`], not on an engine or provider. `docs/SERVE.md` is the page for
//! users.

mod access;
mod budget;
mod connections;
mod streaming;
mod common;
mod chat;
mod completions;
mod embeddings;
mod error;
mod fields;
mod metrics;
mod tokens;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use axum::{Json, Router};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::budget::RequestMemory;
use self::error::ApiError;
use self::metrics::Metrics;
use super::{Gains, text_of, text_of_first, token_json};
use crate::foundation::base::limits::{
    ACTIVE_SEQUENCES_MAX, REQUEST_BYTES_MAX, REQUEST_SILENCE_S_MAX, REQUESTS_WAITING_MAX, TEXT_AT_ONCE_BYTES_MAX,
};
use crate::foundation::base::{Clock, RngStream, SystemClock};
use crate::foundation::chat::{Embedder, LanguageModel};

/// The model to serve and the settings of the server.
pub struct HttpService {
    /// The model.
    pub model: Arc<dyn LanguageModel>,
    /// The model name in requests.
    pub name: String,
    /// The embedder of `/v1/embeddings` and its name.
    pub embedder: Option<(String, Arc<dyn Embedder>)>,
    /// The API key; no authentication if `None`.
    pub key: Option<SecretString>,
    /// Limits of the server.
    pub limits: ServerLimits,
}

/// Limits of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Maximum size of a request in bytes.
    pub body_bytes: usize,
    /// Maximum number of concurrent requests to the model.
    pub active_max: usize,
    /// Maximum number of waiting requests; further ones get status 429.
    pub waiting: usize,
    /// Longest wait for a client: for the head of the next request, between two chunks of a body, and until it reads what
    /// was sent.
    pub silence: Duration,
    /// Maximum number of connections; a new one then takes the place of the one that has been idle the longest.
    pub connections: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            body_bytes: REQUEST_BYTES_MAX,
            active_max: ACTIVE_SEQUENCES_MAX,
            waiting: REQUESTS_WAITING_MAX,
            silence: Duration::from_secs(REQUEST_SILENCE_S_MAX),
            connections: connections::connections_max(),
        }
    }
}

/// State shared by all requests.
struct Shared {
    model: Arc<dyn LanguageModel>,
    name: String,
    embedder: Option<(String, Arc<dyn Embedder>)>,
    /// The digest of the key; the key itself is not stored.
    key: Option<blake3::Hash>,
    slots: Arc<Semaphore>,
    active_max: usize,
    waiting_max: usize,
    silence: Duration,
    memory: RequestMemory,
    metrics: Arc<Metrics>,
    started_at: i64,
    /// The random stream of response ids and default seeds, and the number of draws.
    draws: RngStream,
    drawn: AtomicU64,
}

/// A slot of the concurrent requests, released when dropped.
struct ActiveRequest {
    _permit: OwnedSemaphorePermit,
}

/// Serves until `stop` resolves; then accepts no new requests, and returns when the running ones are answered, after
/// [`SERVER_STOP_S_MAX`](crate::foundation::base::limits::SERVER_STOP_S_MAX) seconds at the latest.
///
/// # Errors
/// If the system provides no randomness, or the metrics cannot be registered.
pub async fn serve(
    listener: TcpListener,
    service: HttpService,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let limits = (service.limits.silence, service.limits.connections);
    connections::serve(listener, routes(service)?, limits, stop).await;
    Ok(())
}

fn routes(service: HttpService) -> io::Result<Router> {
    let HttpService { model, name, embedder, key, limits } = service;
    let shared = Arc::new(Shared {
        model,
        name,
        embedder,
        key: key.map(|key| blake3::hash(key.expose_secret().as_bytes())),
        slots: Arc::new(Semaphore::new(limits.active_max.clamp(1, Semaphore::MAX_PERMITS))),
        active_max: limits.active_max,
        waiting_max: limits.waiting,
        silence: limits.silence,
        memory: RequestMemory::default(),
        metrics: Arc::new(Metrics::new().map_err(io::Error::other)?),
        started_at: SystemClock.now().as_second(),
        draws: RngStream::root(getrandom::u64()?),
        drawn: AtomicU64::new(0),
    });
    Ok(Router::new()
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(one_model))
        .route("/v1/chat/completions", post(chat::chat))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/tokenizer_info", get(tokens::info))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .method_not_allowed_fallback(wrong_method)
        .fallback(not_found)
        .layer(DefaultBodyLimit::max(limits.body_bytes))
        .layer(from_fn_with_state(Arc::clone(&shared), access::check_and_count))
        .with_state(shared))
}

impl Shared {
    /// Waits for a free slot.
    async fn enter(&self) -> Result<ActiveRequest, ApiError> {
        if let Ok(permit) = Arc::clone(&self.slots).try_acquire_owned() {
            return Ok(ActiveRequest { _permit: permit });
        }
        let _waits = self.metrics.wait();
        if self.metrics.waiting() > self.waiting_max {
            let message = format!("more than {} requests are waiting; try again later", self.waiting_max);
            return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).code("queue_full"));
        }
        let permit = Arc::clone(&self.slots).acquire_owned().await;
        permit.map(|permit| ActiveRequest { _permit: permit }).map_err(|_| {
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the request semaphore is closed: this is a bug")
        })
    }

    /// Whether requests wait for a place, or may wait for one in the engine.
    fn is_crowded(&self) -> bool {
        self.metrics.waiting() > 0 || self.metrics.sequences() >= self.active_max
    }

    fn check_name(&self, model: &str) -> Result<(), ApiError> {
        if model == self.name {
            return Ok(());
        }
        let message = format!("there is no model `{model}` here; this server has `{}`", self.name);
        Err(ApiError::not_found("model", message).code("model_not_found"))
    }

    /// A default seed, small enough for the number types of all languages.
    fn draw_seed(&self) -> u64 {
        self.draws.child("seed", self.drawn.fetch_add(1, Ordering::Relaxed)).bits(0) >> 11
    }

    /// A response id.
    fn response_id(&self, kind: &str) -> String {
        let id = self.draws.child("answer", self.drawn.fetch_add(1, Ordering::Relaxed));
        format!("{kind}-{:016x}", id.bits(0))
    }

    fn model_card(&self) -> Value {
        let info = self.model.info();
        json!({ "id": self.name, "object": "model", "created": self.started_at, "owned_by": "loom", "loom": info })
    }

    fn embedder_card(&self) -> Option<Value> {
        let (name, _) = self.embedder.as_ref()?;
        Some(json!({ "id": name, "object": "model", "created": self.started_at, "owned_by": "loom" }))
    }
}

/// Runs work on `bytes` bytes of a request: much of it on the blocking thread pool, so that other requests do not wait.
async fn run_sized<T: Send + 'static>(
    shared: &Arc<Shared>,
    bytes: usize,
    work: impl FnOnce(&Shared) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    if bytes <= TEXT_AT_ONCE_BYTES_MAX { work(shared) } else { run_blocking(shared, work).await }
}

/// Runs CPU-heavy work on the blocking thread pool.
async fn run_blocking<T: Send + 'static>(
    shared: &Arc<Shared>,
    work: impl FnOnce(&Shared) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let shared = Arc::clone(shared);
    match tokio::task::spawn_blocking(move || work(&shared)).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down")),
    }
}

async fn models(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let cards: Vec<_> = std::iter::once(shared.model_card()).chain(shared.embedder_card()).collect();
    Json(json!({ "object": "list", "data": cards }))
}

async fn one_model(
    State(shared): State<Arc<Shared>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let Path(id) = id.map_err(|rejection| ApiError::not_found("model", rejection.body_text()))?;
    match shared.embedder_card() {
        Some(card) if shared.embedder.as_ref().is_some_and(|(name, _)| *name == id) => Ok(Json(card)),
        _ => shared.check_name(&id).map(|()| Json(shared.model_card())),
    }
}

async fn health(State(shared): State<Arc<Shared>>) -> Json<Value> {
    Json(json!({ "status": "ok", "model": shared.name }))
}

async fn metrics(
    State(shared): State<Arc<Shared>>,
) -> Result<([(header::HeaderName, &'static str); 1], String), ApiError> {
    let page = shared.metrics.page();
    let page = page.map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page))
}

async fn wrong_method() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this endpoint needs another HTTP method; see docs/SERVE.md")
}

async fn not_found() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "there is no such endpoint; docs/SERVE.md lists them")
}
