//! A model over HTTP, as OpenAI's API speaks, with what an API usually hides: true log-probabilities of prompts and
//! replies, entropies and ranks, gains on Δ.
//!
//! ```text
//! access.rs                       who may ask; every request is counted
//! chat.rs completions.rs          requests to the model      asked.rs: what they share
//! tokens.rs embeddings.rs         the rest                   fields.rs: what nobody understands is refused by name
//! answer.rs                       whole or streamed; a client that leaves takes its work along
//! ```
//!
//! It knows [`LanguageModel`] and [`Embedder`], not which engine or provider stands behind them. `docs/SERVE.md` is the
//! page for users.

mod access;
mod answer;
mod asked;
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
use axum::serve::ListenerExt;
use axum::{Json, Router};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::error::ApiError;
use self::metrics::Metrics;
use super::{Gains, reading, text_of, text_of_first};
use crate::foundation::base::limits::{
    ACTIVE_SEQUENCES_MAX, REQUEST_BYTES_MAX, REQUEST_SILENCE_S_MAX, REQUESTS_WAITING_MAX,
};
use crate::foundation::base::{Clock, Stream, SystemClock};
use crate::foundation::chat::{Embedder, LanguageModel};

/// What is served, and to whom.
pub struct Service {
    /// The model.
    pub model: Arc<dyn LanguageModel>,
    /// The name that requests call it by.
    pub name: String,
    /// Turns texts into vectors, under a name of its own.
    pub embedder: Option<(String, Arc<dyn Embedder>)>,
    /// What a client must know to be answered; nobody is asked for anything if `None`.
    pub key: Option<SecretString>,
    /// How much at a time.
    pub bounds: Bounds,
}

/// How much a server takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Largest request, bytes.
    pub body_bytes: usize,
    /// Requests to the model at work at the same time.
    pub at_work: usize,
    /// Requests that may wait for one of these to end; more are turned away with status 429.
    pub waiting: usize,
    /// Longest silence within a request that is still being sent; then it is given up.
    pub silence: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            body_bytes: REQUEST_BYTES_MAX,
            at_work: ACTIVE_SEQUENCES_MAX,
            waiting: REQUESTS_WAITING_MAX,
            silence: Duration::from_secs(REQUEST_SILENCE_S_MAX),
        }
    }
}

/// What all requests share.
struct Shared {
    model: Arc<dyn LanguageModel>,
    name: String,
    embedder: Option<(String, Arc<dyn Embedder>)>,
    /// The key's digest: the key itself is not kept.
    key: Option<blake3::Hash>,
    places: Arc<Semaphore>,
    waiting_max: usize,
    silence: Duration,
    metrics: Arc<Metrics>,
    begun: i64,
    /// Where answers' names and the seeds of those who give none come from, and how many were drawn.
    draws: Stream,
    drawn: AtomicU64,
}

/// A place among the requests at work.
struct Turn {
    _place: OwnedSemaphorePermit,
}

/// Serves until `stop` is done; then takes no new request, and ends when those under way are answered.
///
/// # Errors
/// When the system gives no randomness, or the listener fails.
pub async fn serve(
    listener: TcpListener,
    service: Service,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let routes = routes(service)?;
    // A token is worth a packet of its own.
    let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
    axum::serve(listener, routes).with_graceful_shutdown(stop).await
}

fn routes(service: Service) -> io::Result<Router> {
    let Service { model, name, embedder, key, bounds } = service;
    let shared = Arc::new(Shared {
        model,
        name,
        embedder,
        key: key.map(|key| blake3::hash(key.expose_secret().as_bytes())),
        places: Arc::new(Semaphore::new(bounds.at_work.clamp(1, Semaphore::MAX_PERMITS))),
        waiting_max: bounds.waiting,
        silence: bounds.silence,
        metrics: Arc::default(),
        begun: SystemClock.now().as_second(),
        draws: Stream::root(getrandom::u64()?),
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
        .fallback(nothing_here)
        .layer(DefaultBodyLimit::max(bounds.body_bytes))
        .layer(from_fn_with_state(Arc::clone(&shared), access::door))
        .with_state(shared))
}

impl Shared {
    /// Waits for a place among the requests at work.
    async fn enter(&self) -> Result<Turn, ApiError> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(Turn { _place: place });
        }
        let _waits = self.metrics.wait();
        if self.metrics.waiting() > self.waiting_max {
            let message = format!("more than {} requests wait already; come again later", self.waiting_max);
            return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).code("queue_full"));
        }
        let place = Arc::clone(&self.places).acquire_owned().await;
        place.map(|place| Turn { _place: place }).map_err(|_| {
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the server has lost count of its requests: this is a bug")
        })
    }

    fn check_name(&self, model: &str) -> Result<(), ApiError> {
        if model == self.name {
            return Ok(());
        }
        let message = format!("there is no model `{model}` here; this server has `{}`", self.name);
        Err(ApiError::not_found("model", message).code("model_not_found"))
    }

    /// A seed for those who give none: small enough for every language's numbers.
    fn draw(&self) -> u64 {
        self.draws.child("seed", self.drawn.fetch_add(1, Ordering::Relaxed)).bits(0) >> 11
    }

    /// A name for an answer.
    fn answer_id(&self, kind: &str) -> String {
        let id = self.draws.child("answer", self.drawn.fetch_add(1, Ordering::Relaxed));
        format!("{kind}-{:016x}", id.bits(0))
    }

    fn model_card(&self) -> Value {
        let info = self.model.info();
        json!({ "id": self.name, "object": "model", "created": self.begun, "owned_by": "loom", "loom": info })
    }

    fn embedder_card(&self) -> Option<Value> {
        let (name, _) = self.embedder.as_ref()?;
        Some(json!({ "id": name, "object": "model", "created": self.begun, "owned_by": "loom" }))
    }
}

/// Does what may take long with a long text, beside the few threads that serve everybody.
async fn aside<T: Send + 'static>(
    shared: &Arc<Shared>,
    work: impl FnOnce(&Shared) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let shared = Arc::clone(shared);
    match tokio::task::spawn_blocking(move || work(&shared)).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is ending")),
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

async fn metrics(State(shared): State<Arc<Shared>>) -> ([(header::HeaderName, &'static str); 1], String) {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], shared.metrics.page())
}

async fn wrong_method() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this endpoint takes another method; see docs/SERVE.md")
}

async fn nothing_here() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "there is no such endpoint; see docs/SERVE.md for those that there are")
}
