//! A model whose calls are authorised: by the permit that a request carries, else by the guard that it was opened with; see
//! [`OpenOptions::guard`](super::OpenOptions).

use std::sync::Arc;

use crate::foundation::base::limits::{PROMPT_TOKENS_MAX, REPLY_ASKED_TOKENS_MAX};
use crate::foundation::chat::{
    BoxFuture, Completion, Continuation, Embedder, LanguageModel, Message, ModelError, ModelInfo, ModelSpec, Prompt,
    Request, Scored, Thinking, TokenSink, Vocabulary,
};
use crate::foundation::gate::{CallGuard, CallPermit, CallUsage, ModelCall};

/// A model or embedder whose calls need permission.
pub(super) struct GuardedModel<M: ?Sized> {
    model: Arc<M>,
    /// The spec string it was opened with.
    spec: String,
    /// The host that a call connects to.
    host: Option<String>,
    guard: Arc<dyn CallGuard>,
}

impl<M: ?Sized> GuardedModel<M> {
    pub(super) fn new(model: Arc<M>, spec: &ModelSpec, guard: &Arc<dyn CallGuard>) -> Self {
        Self { model, spec: spec.to_string(), host: super::host(spec), guard: Arc::clone(guard) }
    }

    /// Counts a call against the permit, or requests it from the guard.
    fn authorize(&self, permit: Option<&CallPermit>, reads: usize, generates: usize) -> Result<(), ModelError> {
        let (reads, generates) = (reads as u64, generates as u64);
        let call = ModelCall { model: &self.spec, host: self.host.as_deref(), reads, generates };
        let allowed = permit.map_or_else(|| self.guard.permit_call(&call), |permit| permit.count(&call));
        allowed.map_err(|refusal| ModelError::Denied { model: self.spec.clone(), why: refusal.to_string() })
    }

    fn record_usage(&self, tokens: Option<(u64, u64)>) {
        let (tokens_in, tokens_out) = tokens.unwrap_or_default();
        let failed = u64::from(tokens.is_none());
        self.guard.record_call(&self.spec, CallUsage { calls: 1, failed, tokens_in, tokens_out });
    }
}

/// Upper bound of a prompt's tokens: one per byte, plus the template's tokens around each message.
fn prompt_tokens_max(prompt: &Prompt) -> usize {
    const TEMPLATE_TOKENS_MAX: usize = 64;
    let most = match prompt {
        Prompt::Chat(messages) => {
            let thought = |message: &Message| message.thought.as_ref().map_or(0, |thought| thought.text.len());
            messages.iter().map(|message| message.content.len() + thought(message) + TEMPLATE_TOKENS_MAX).sum()
        }
        Prompt::Text(text) => text.len(),
        Prompt::Ids(ids) => ids.len(),
    };
    most.min(PROMPT_TOKENS_MAX)
}

/// Upper bound of a scored text's tokens.
fn continuation_tokens_max(continuation: &Continuation) -> usize {
    match continuation {
        Continuation::Text(text) => text.len(),
        Continuation::Ids(ids) => ids.len(),
    }
}

impl LanguageModel for GuardedModel<dyn LanguageModel> {
    fn info(&self) -> &ModelInfo {
        self.model.info()
    }

    fn count(&self, messages: &[Message]) -> Option<usize> {
        self.model.count(messages)
    }

    fn vocabulary(&self) -> Option<&dyn Vocabulary> {
        self.model.vocabulary()
    }

    fn with_thinking(&self, thinking: &Thinking) -> Result<Arc<dyn LanguageModel>, ModelError> {
        let model = self.model.with_thinking(thinking)?;
        let (spec, host, guard) = (self.spec.clone(), self.host.clone(), Arc::clone(&self.guard));
        Ok(Arc::new(Self { model, spec, host, guard }))
    }

    fn complete<'a>(
        &'a self,
        request: Request,
        sink: Option<Box<dyn TokenSink + 'a>>,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(async move {
            let longest = request.sampling.max_tokens;
            if longest > REPLY_ASKED_TOKENS_MAX {
                let why = format!("`max_tokens` is {longest}; it may be at most {REPLY_ASKED_TOKENS_MAX}");
                return Err(ModelError::Unsupported { model: self.spec.clone(), why });
            }
            self.authorize(request.permit.as_ref(), prompt_tokens_max(&request.prompt), longest)?;
            let reply = self.model.complete(request, sink).await;
            self.record_usage(reply.as_ref().ok().map(|reply| (reply.usage.tokens_in, reply.usage.tokens_out)));
            reply
        })
    }

    fn score(&self, request: Request, continuation: Continuation) -> BoxFuture<'_, Result<Scored, ModelError>> {
        Box::pin(async move {
            let reads = prompt_tokens_max(&request.prompt) + continuation_tokens_max(&continuation);
            self.authorize(request.permit.as_ref(), reads.min(PROMPT_TOKENS_MAX), 0)?;
            let scored = self.model.score(request, continuation).await;
            self.record_usage(scored.as_ref().ok().map(|scored| (scored.usage.tokens_in, scored.usage.tokens_out)));
            scored
        })
    }

    /// Counts as one call, whatever the number of texts.
    fn score_each(
        &self,
        request: Request,
        continuations: Vec<Continuation>,
    ) -> BoxFuture<'_, Result<Vec<Scored>, ModelError>> {
        Box::pin(async move {
            let prompt = prompt_tokens_max(&request.prompt);
            let most = |continuation| (prompt + continuation_tokens_max(continuation)).min(PROMPT_TOKENS_MAX);
            self.authorize(request.permit.as_ref(), continuations.iter().map(most).sum(), 0)?;
            let scored = self.model.score_each(request, continuations).await;
            let used = |each: &Vec<Scored>| {
                let used = each.iter().map(|scored| (scored.usage.tokens_in, scored.usage.tokens_out));
                used.fold((0, 0), |sum, used| (sum.0 + used.0, sum.1 + used.1))
            };
            self.record_usage(scored.as_ref().ok().map(used));
            scored
        })
    }
}

impl Embedder for GuardedModel<dyn Embedder> {
    fn embed<'a>(&'a self, texts: &'a [&'a str]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, ModelError>> {
        Box::pin(async move {
            let reads = texts.iter().map(|text| text.len()).sum::<usize>();
            self.authorize(None, reads.min(PROMPT_TOKENS_MAX), 0)?;
            let vectors = self.model.embed(texts).await;
            self.record_usage(vectors.as_ref().ok().map(|_| (0, 0)));
            vectors
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::{OpenOptions, open};
    use super::*;
    use crate::foundation::base::RngStream;
    use crate::foundation::chat::Sampling;
    use crate::foundation::gate::{Refusal, RefusalReason};

    /// Denies every model that is not on its list, and records the calls.
    #[derive(Default)]
    struct Strict {
        allowed: Vec<&'static str>,
        calls: Mutex<Vec<String>>,
    }

    impl CallGuard for Strict {
        fn permit_call(&self, call: &ModelCall<'_>) -> Result<(), Refusal> {
            self.calls.lock().unwrap().push(format!("{} at {:?}", call.model, call.host));
            let allowed = self.allowed.contains(&call.model);
            if allowed { Ok(()) } else { Err(RefusalReason::MayNotReach { host: call.model.to_owned() }.into()) }
        }

        fn record_call(&self, model: &str, usage: CallUsage) {
            self.calls.lock().unwrap().push(format!("{model} called, {} failed", usage.failed));
        }
    }

    fn reply_of(chain: &str, allowed: &[&'static str]) -> (Result<String, ModelError>, Vec<String>) {
        let guard = Arc::new(Strict { allowed: allowed.to_vec(), ..Strict::default() });
        let mut options = OpenOptions::default();
        // Opened before without a guard: the engine is shared, and the guard still applies.
        open(&"echo".parse().unwrap(), &options).unwrap();
        options.guard = Some(Arc::clone(&guard) as _);
        let chain = chain.parse().unwrap();
        let model = open(&chain, &options.naming(&chain)).unwrap();
        let request = Request::new(Prompt::Chat(vec![Message::user("Hi")]), Sampling::greedy(), RngStream::root(0));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let reply = runtime.block_on(model.complete(request, None)).map(|reply| reply.model);
        let calls = guard.calls.lock().unwrap().clone();
        (reply, calls)
    }

    #[test]
    fn scoring_several_texts_is_one_call() {
        let guard = Arc::new(Strict { allowed: vec!["bundled"], ..Strict::default() });
        let options = OpenOptions { guard: Some(Arc::clone(&guard) as _), ..OpenOptions::default() };
        let model = open(&"bundled".parse().unwrap(), &options).unwrap();
        let request = Request::new(Prompt::Chat(vec![Message::user("Hi")]), Sampling::greedy(), RngStream::root(0));
        let texts = ["Yes.", "No."].map(|text| Continuation::Text(text.to_owned()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let scored = runtime.block_on(model.score_each(request, texts.into())).unwrap();
        assert_eq!(scored.len(), 2);
        assert_eq!(*guard.calls.lock().unwrap(), ["bundled at None", "bundled called, 0 failed"]);
    }

    #[test]
    fn every_call_needs_permission_and_each_link_asks_for_its_own_host() {
        let (reply, calls) = reply_of("echo", &["echo"]);
        assert_eq!((reply.unwrap().as_str(), calls.len()), ("echo", 2));
        let (reply, calls) = reply_of("echo", &[]);
        assert!(matches!(reply, Err(ModelError::Denied { .. })));
        assert_eq!(calls, ["echo at None"]);
        // Each link is checked with its own host, and a denial leads to the next link like any other error.
        let (reply, calls) = reply_of("openai-compatible:http://a.example#x,echo", &["echo"]);
        assert_eq!(reply.unwrap(), "echo");
        assert_eq!(calls.first().unwrap(), "openai-compatible:http://a.example#x at Some(\"a.example\")");
    }
}
