//! Streamed responses. When the client disconnects, the future or the stream is dropped, which cancels the work.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::error::ApiError;
use super::{ActiveRequest, Shared};
use crate::foundation::chat::{Completion, Flow, LanguageModel, Request, TokenLogprob};

/// Interval of keep-alive messages.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The sender of a stream's chunks. The buffer cannot grow beyond the reply's length.
#[derive(Clone)]
pub(super) struct Chunks(UnboundedSender<Result<Value, ApiError>>);

impl Chunks {
    /// Sends a chunk; `Flow::Stop` if the client has disconnected.
    pub(super) fn send(&self, chunk: Value) -> Flow {
        if self.0.send(Ok(chunk)).is_ok() { Flow::Continue } else { Flow::Stop }
    }
}

/// Streams the chunks sent by `work`. An error before the first chunk becomes a plain error response, a later one the
/// last event.
pub(super) async fn stream_of<W, F>(turn: ActiveRequest, work: W) -> Result<Response, ApiError>
where
    W: FnOnce(Chunks) -> F,
    F: Future<Output = Result<(), ApiError>> + Send + 'static,
{
    let (sender, mut chunks) = unbounded_channel();
    let work = work(Chunks(sender.clone()));
    // Dropping the set cancels the work.
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        if let Err(error) = work.await {
            // The receiver may be gone.
            let _ = sender.send(Err(error));
        }
    });
    let first = match chunks.recv().await {
        Some(Err(error)) => return Err(error),
        first => first,
    };
    let state = Some((first, chunks, tasks, turn));
    let events = stream::unfold(state, |state| async move {
        let (first, mut chunks, tasks, turn): (_, UnboundedReceiver<_>, _, _) = state?;
        let chunk = match first {
            Some(first) => Some(first),
            None => chunks.recv().await,
        };
        let (data, ended) = match chunk {
            Some(Ok(chunk)) => (chunk.to_string(), false),
            Some(Err(error)) => (error.json().to_string(), true),
            None => ("[DONE]".to_owned(), true),
        };
        let rest = (!ended).then_some((None, chunks, tasks, turn));
        Some((Ok::<_, Infallible>(Event::default().data(data)), rest))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// Generates one reply, counted as an active sequence; `on_token` receives its tokens.
pub(super) async fn complete(
    shared: &Arc<Shared>,
    request: Request,
    on_token: Option<impl FnMut(&TokenLogprob) -> Flow + Send>,
) -> Result<Completion, ApiError> {
    let _active = shared.metrics.sequence();
    let model: &dyn LanguageModel = &*shared.model;
    let sink = on_token.map(|on_token| Box::new(on_token) as Box<dyn crate::foundation::chat::TokenSink + '_>);
    Ok(model.complete(request, sink).await?)
}
