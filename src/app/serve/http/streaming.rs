//! Streamed responses. When the client disconnects, the future or the stream is dropped, which cancels the work.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::budget::WorkMemory;
use super::connections::paced;
use super::error::ApiError;
use super::{ActiveRequest, Shared};
use crate::foundation::base::limits::{STREAM_STALLED_S_MAX, STREAM_WAITING_BYTES_MAX};
use crate::foundation::chat::{Completion, Flow, LanguageModel, Request, TokenSink};

/// Interval of keep-alive messages.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Interval in which a stream that nobody reads is looked at.
const STALL_LOOK: Duration = Duration::from_millis(250);

/// The sender of a stream's chunks. While too many bytes wait for the client, the sequences of the stream wait.
#[derive(Clone)]
pub(super) struct Chunks {
    sender: UnboundedSender<Result<String, ApiError>>,
    waiting: Arc<Waiting>,
}

/// The bytes that the client has not read.
#[derive(Default)]
struct Waiting {
    bytes: AtomicUsize,
    /// Chunks that were taken so far.
    taken: AtomicUsize,
    read: Notify,
}

impl Waiting {
    fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > STREAM_WAITING_BYTES_MAX
    }

    fn remove(&self, chunk: &Result<String, ApiError>) {
        if let Ok(text) = chunk {
            self.bytes.fetch_sub(text.len(), Ordering::Relaxed);
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.read.notify_waiters();
    }

    /// Resolves when the client has read nothing for [`STREAM_STALLED_S_MAX`] seconds and other requests need the place.
    async fn stalled(&self, shared: &Shared) {
        let (mut taken, mut since) = (usize::MAX, Instant::now());
        loop {
            sleep(STALL_LOOK).await;
            let now = self.taken.load(Ordering::Relaxed);
            if now != taken || !self.is_full() {
                (taken, since) = (now, Instant::now());
            } else if since.elapsed() >= Duration::from_secs(STREAM_STALLED_S_MAX) && shared.is_crowded() {
                return;
            }
        }
    }
}

impl Chunks {
    /// Sends a chunk; `Flow::Stop` if the client has disconnected.
    pub(super) fn send(&self, chunk: &impl Serialize) -> Flow {
        // A chunk has text keys only, so it can always be written.
        let Ok(text) = serde_json::to_string(chunk) else { return Flow::Stop };
        self.waiting.bytes.fetch_add(text.len(), Ordering::Relaxed);
        if self.sender.send(Ok(text)).is_ok() { Flow::Continue } else { Flow::Stop }
    }
}

/// Streams the chunks sent by `work`. An error before the first chunk becomes a plain error response, a later one the
/// last event.
pub(super) async fn stream_of<W, F>(turn: (ActiveRequest, WorkMemory), work: W) -> Result<Response, ApiError>
where
    W: FnOnce(Chunks) -> F,
    F: Future<Output = Result<(), ApiError>> + Send + 'static,
{
    let (sender, mut chunks) = unbounded_channel();
    let waiting = Arc::new(Waiting::default());
    let work = work(Chunks { sender: sender.clone(), waiting: Arc::clone(&waiting) });
    // Dropping the set cancels the work.
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        // The place is free when the work is done, also if the client has not read all of it.
        let _turn = turn;
        if let Err(error) = work.await {
            // The receiver may be gone.
            let _ = sender.send(Err(error));
        }
    });
    let first = match chunks.recv().await {
        Some(Err(error)) => return Err(error),
        first => first,
    };
    let state = Some((first, chunks, tasks, waiting));
    let events = stream::unfold(state, |state| async move {
        let (first, mut chunks, tasks, waiting): (_, UnboundedReceiver<_>, _, _) = state?;
        let chunk = match first {
            Some(first) => Some(first),
            None => chunks.recv().await,
        };
        if let Some(chunk) = &chunk {
            waiting.remove(chunk);
        }
        let (data, ended) = match chunk {
            Some(Ok(text)) => (text, false),
            Some(Err(error)) => (error.json().to_string(), true),
            None => ("[DONE]".to_owned(), true),
        };
        let rest = (!ended).then_some((None, chunks, tasks, waiting));
        Some((Ok::<_, Infallible>(Event::default().data(data)), rest))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// Generates one reply, counted as an active sequence. With `listener`, its tokens are passed on, and the sequence waits
/// while the client does not read.
pub(super) async fn complete(
    shared: &Arc<Shared>,
    request: Request,
    listener: Option<(&Chunks, impl TokenSink)>,
) -> Result<Completion, ApiError> {
    let _active = shared.metrics.sequence();
    let model: &dyn LanguageModel = &*shared.model;
    let Some((chunks, sink)) = listener else { return Ok(model.complete(request, None).await?) };
    let sink: Box<dyn TokenSink + '_> = Box::new(sink);
    let waiting = &chunks.waiting;
    tokio::select! {
        reply = paced(model.complete(request, Some(sink)), || !waiting.is_full(), || waiting.read.notified()) => Ok(reply?),
        () = waiting.stalled(shared) => {
            let message = "the stream was not read while other requests waited for its place";
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, message).code("stream_not_read"))
        }
    }
}
