//! Tests of the local engine through its public interface: parity with `transformers` and with a plain f64
//! implementation, and independence of how a sequence is read.

mod batches;
mod candle;
mod checkpoints;
mod dtypes;
mod embeddings;
mod gpu;
mod oracle;
mod parity;
mod replies;
mod sharing;
mod snapshots;
mod ssm_stats;
pub(crate) mod texts;
pub(crate) mod thoughts;
mod weights;
mod windows;

use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::{MaybeDone, maybe_done};
use loom_agent::foundation::base::RngStream;
use loom_agent::foundation::chat::{
    BoxFuture, Completion, Continuation, LanguageModel, ModelError, Prompt, Request, Sampling, Scored, TokenLogprob,
};
use loom_agent::inference::engine::{EngineOptions, LocalModel};

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// A file or folder that `scripts/make-mamba-fixtures.py` or `scripts/make-model-fixtures.py` made.
pub(crate) fn fixture(name: &str) -> PathBuf {
    // If the tests were copied to another machine, the variable names the copy's location (`scripts/gpu-check.sh`).
    let root = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let data = PathBuf::from(root).join("tests/data");
    let path = data.join("models").join(name);
    if path.exists() { path } else { data.join("mamba").join(name) }
}

/// The fixtures of language models other than Mamba-1: at least one per architecture.
pub(crate) const MODELS: [&str; 24] = [
    "llama",
    "llama-odd",
    "smollm",
    "qwen2",
    "qwen3",
    "qwen3-yarn",
    "qwen3-moe",
    "qwen3-moe-odd",
    "mamba2",
    "mamba2-odd",
    "falcon-mamba",
    "mistral",
    "smollm3",
    "gemma2",
    "gemma3",
    "olmo2",
    "phi3",
    "granite",
    "granite-hybrid",
    "granite-hybrid-moe",
    "falcon-h1",
    "falcon-h1-normed",
    "bamba",
    "nemotron-h",
];

pub(crate) fn folder(path: &Path, threads: usize) -> LocalModel {
    LocalModel::from_dir(path, &EngineOptions { threads: Some(threads), ..EngineOptions::default() }).unwrap()
}

pub(crate) fn tiny(name: &str) -> LocalModel {
    folder(&fixture(name), 1)
}

pub(crate) fn bundled(threads: usize) -> LocalModel {
    LocalModel::bundled(&EngineOptions { threads: Some(threads), ..EngineOptions::default() }).unwrap()
}

pub(crate) fn request(prompt: Prompt, sampling: Sampling) -> Request {
    Request::new(prompt, sampling, RngStream::root(11).child("reply", 0))
}

pub(crate) fn complete(model: &LocalModel, request: Request) -> Result<Completion, ModelError> {
    block_on(model.complete(request, None))
}

/// A call that was started. It may be finished already.
type Begun<'a> = Pin<Box<MaybeDone<BoxFuture<'a, Result<Completion, ModelError>>>>>;

async fn begun<'a>(model: &'a LocalModel, request: &Request) -> Begun<'a> {
    let mut call = Box::pin(maybe_done(model.complete(request.clone(), None)));
    let poll = |context: &mut Context<'_>| {
        let _ = call.as_mut().poll(context);
        Poll::Ready(())
    };
    poll_fn(poll).await;
    call
}

async fn finished(mut call: Begun<'_>) -> Completion {
    call.as_mut().await;
    call.as_mut().take_output().unwrap().unwrap()
}

/// Scores `ids` after the request's prompt, with `top` alternatives.
pub(crate) fn score(model: &LocalModel, mut request: Request, ids: &[u32], top: usize) -> Scored {
    request.sampling.top_logprobs = top;
    block_on(model.score(request, Continuation::Ids(ids.to_vec()))).unwrap()
}

/// The values that are compared bit for bit.
pub(crate) fn bits(tokens: &[TokenLogprob]) -> Vec<(u32, u32, u32, u32)> {
    let bits = |x: Option<f32>| x.unwrap().to_bits();
    tokens.iter().map(|t| (t.id.unwrap(), bits(t.logprob), bits(t.entropy), t.rank.unwrap())).collect()
}
