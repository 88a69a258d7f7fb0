//! An answer under way: as one piece, or piece by piece while it is written. When its client leaves, the future or the
//! stream is dropped, and with it the work.

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
use super::{Shared, Turn};
use crate::foundation::chat::{Completion, Flow, LanguageModel, Request, TokenLogprob};

/// How often a silent stream says that it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Where the chunks of a stream go. Its buffer is bounded by the answer's own length.
#[derive(Clone)]
pub(super) struct Chunks(UnboundedSender<Result<Value, ApiError>>);

impl Chunks {
    /// One more chunk; whether anybody still listens.
    pub(super) fn send(&self, chunk: Value) -> Flow {
        if self.0.send(Ok(chunk)).is_ok() { Flow::Continue } else { Flow::Stop }
    }
}

/// Streams what `work` sends. An error before the first chunk is a plain answer, a later one the stream's last word.
pub(super) async fn stream_of<W, F>(turn: Turn, work: W) -> Result<Response, ApiError>
where
    W: FnOnce(Chunks) -> F,
    F: Future<Output = Result<(), ApiError>> + Send + 'static,
{
    let (sender, mut chunks) = unbounded_channel();
    let work = work(Chunks(sender.clone()));
    // Dropping the set ends the work.
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        if let Err(error) = work.await {
            // Nobody may be there any more.
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

/// One reply, counted; `hear` gets its tokens as they come.
pub(super) async fn complete(
    shared: &Arc<Shared>,
    request: Request,
    hear: Option<impl FnMut(&TokenLogprob) -> Flow + Send>,
) -> Result<Completion, ApiError> {
    let _at_work = shared.metrics.sequence();
    let model: &dyn LanguageModel = &*shared.model;
    let sink = hear.map(|hear| Box::new(hear) as Box<dyn crate::foundation::chat::TokenSink + '_>);
    Ok(model.complete(request, sink).await?)
}
