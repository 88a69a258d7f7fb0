//! A model that asks before each call. What asks is whoever opened it gave: see [`OpenOptions::guard`](super::OpenOptions).

use std::sync::Arc;

use crate::foundation::base::limits::{PROMPT_TOKENS_MAX, REPLY_ASKED_TOKENS_MAX};
use crate::foundation::chat::{
    BoxFuture, Completion, Continuation, Embedder, LanguageModel, Message, ModelError, ModelInfo, ModelSpec, Prompt,
    Request, Scored, TokenSink, Vocabulary,
};
use crate::foundation::gate::{Came, Guard};

/// Something that may be called only with the guard's leave.
pub(super) struct Gated<M: ?Sized> {
    model: Arc<M>,
    /// The spec that it was opened by.
    spec: String,
    /// The host that a call reaches.
    host: Option<String>,
    guard: Arc<dyn Guard>,
}

impl<M: ?Sized> Gated<M> {
    pub(super) fn new(model: Arc<M>, spec: &ModelSpec, guard: &Arc<dyn Guard>) -> Self {
        Self { model, spec: spec.to_string(), host: super::host(spec), guard: Arc::clone(guard) }
    }

    fn ask(&self, tokens_max: usize) -> Result<(), ModelError> {
        let allowed = self.guard.allow_call(&self.spec, self.host.as_deref(), tokens_max as u64);
        allowed.map_err(|refusal| ModelError::Denied { model: self.spec.clone(), why: refusal.to_string() })
    }

    fn came(&self, tokens: Option<(u64, u64)>) {
        let (tokens_in, tokens_out) = tokens.unwrap_or_default();
        let failed = u64::from(tokens.is_none());
        self.guard.called(&self.spec, Came { calls: 1, failed, tokens_in, tokens_out });
    }
}

/// Most tokens that a prompt can have: a token has a byte at least, and a template adds its words to each message.
fn tokens_max(prompt: &Prompt) -> usize {
    const AROUND: usize = 64;
    let most = match prompt {
        Prompt::Chat(messages) => messages.iter().map(|message| message.content.len() + AROUND).sum(),
        Prompt::Text(text) => text.len(),
        Prompt::Ids(ids) => ids.len(),
    };
    most.min(PROMPT_TOKENS_MAX)
}

/// Most tokens that a text to be scored can have.
fn said(continuation: &Continuation) -> usize {
    match continuation {
        Continuation::Text(text) => text.len(),
        Continuation::Ids(ids) => ids.len(),
    }
}

impl LanguageModel for Gated<dyn LanguageModel> {
    fn info(&self) -> &ModelInfo {
        self.model.info()
    }

    fn count(&self, messages: &[Message]) -> Option<usize> {
        self.model.count(messages)
    }

    fn vocabulary(&self) -> Option<&dyn Vocabulary> {
        self.model.vocabulary()
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
            self.ask(tokens_max(&request.prompt) + longest)?;
            let reply = self.model.complete(request, sink).await;
            self.came(reply.as_ref().ok().map(|reply| (reply.usage.tokens_in, reply.usage.tokens_out)));
            reply
        })
    }

    fn score(&self, request: Request, continuation: Continuation) -> BoxFuture<'_, Result<Scored, ModelError>> {
        Box::pin(async move {
            self.ask((tokens_max(&request.prompt) + said(&continuation)).min(PROMPT_TOKENS_MAX))?;
            let scored = self.model.score(request, continuation).await;
            self.came(scored.as_ref().ok().map(|scored| (scored.usage.tokens_in, scored.usage.tokens_out)));
            scored
        })
    }

    /// One call, however many texts it is of.
    fn score_each(
        &self,
        request: Request,
        continuations: Vec<Continuation>,
    ) -> BoxFuture<'_, Result<Vec<Scored>, ModelError>> {
        Box::pin(async move {
            let prompt = tokens_max(&request.prompt);
            let most = |continuation| (prompt + said(continuation)).min(PROMPT_TOKENS_MAX);
            self.ask(continuations.iter().map(most).sum())?;
            let scored = self.model.score_each(request, continuations).await;
            let used = |each: &Vec<Scored>| {
                let used = each.iter().map(|scored| (scored.usage.tokens_in, scored.usage.tokens_out));
                used.fold((0, 0), |sum, used| (sum.0 + used.0, sum.1 + used.1))
            };
            self.came(scored.as_ref().ok().map(used));
            scored
        })
    }
}

impl Embedder for Gated<dyn Embedder> {
    fn embed<'a>(&'a self, texts: &'a [&'a str]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, ModelError>> {
        Box::pin(async move {
            self.ask(texts.iter().map(|text| text.len()).sum::<usize>().min(PROMPT_TOKENS_MAX))?;
            let vectors = self.model.embed(texts).await;
            self.came(vectors.as_ref().ok().map(|_| (0, 0)));
            vectors
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::{OpenOptions, open};
    use super::*;
    use crate::foundation::base::Stream;
    use crate::foundation::chat::Sampling;
    use crate::foundation::gate::{Effect, Reason, Refusal};

    /// Says no to everything that is not on its list, and remembers who asked.
    #[derive(Default)]
    struct Strict {
        allows: Vec<&'static str>,
        heard: Mutex<Vec<String>>,
    }

    impl Guard for Strict {
        fn allow(&self, effect: &Effect) -> Result<(), Refusal> {
            Err(Reason::NotAllowed { category: effect.category() }.into())
        }

        fn allow_call(&self, model: &str, host: Option<&str>, _: u64) -> Result<(), Refusal> {
            self.heard.lock().unwrap().push(format!("{model} at {host:?}"));
            let allowed = self.allows.contains(&model);
            if allowed { Ok(()) } else { Err(Reason::MayNotReach { host: model.to_owned() }.into()) }
        }

        fn called(&self, model: &str, came: Came) {
            self.heard.lock().unwrap().push(format!("{model} called, {} failed", came.failed));
        }
    }

    fn said(chain: &str, allows: &[&'static str]) -> (Result<String, ModelError>, Vec<String>) {
        let guard = Arc::new(Strict { allows: allows.to_vec(), ..Strict::default() });
        let mut options = OpenOptions::default();
        // Opened before without a guard: the same engine is shared, and the guard stands before it all the same.
        open(&"echo".parse().unwrap(), &options).unwrap();
        options.guard = Some(Arc::clone(&guard) as _);
        let model = open(&chain.parse().unwrap(), &options).unwrap();
        let request = Request::new(Prompt::Chat(vec![Message::user("Hi")]), Sampling::greedy(), Stream::root(0));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let reply = runtime.block_on(model.complete(request, None)).map(|reply| reply.model);
        let heard = guard.heard.lock().unwrap().clone();
        (reply, heard)
    }

    #[test]
    fn several_texts_at_one_place_are_one_call() {
        let guard = Arc::new(Strict { allows: vec!["bundled"], ..Strict::default() });
        let options = OpenOptions { guard: Some(Arc::clone(&guard) as _), ..OpenOptions::default() };
        let model = open(&"bundled".parse().unwrap(), &options).unwrap();
        let request = Request::new(Prompt::Chat(vec![Message::user("Hi")]), Sampling::greedy(), Stream::root(0));
        let texts = ["Yes.", "No."].map(|text| Continuation::Text(text.to_owned()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let scored = runtime.block_on(model.score_each(request, texts.into())).unwrap();
        assert_eq!(scored.len(), 2);
        assert_eq!(*guard.heard.lock().unwrap(), ["bundled at None", "bundled called, 0 failed"]);
    }

    #[test]
    fn nobody_is_called_without_leave_and_each_link_of_a_chain_asks_for_its_own_host() {
        let (reply, heard) = said("echo", &["echo"]);
        assert_eq!((reply.unwrap().as_str(), heard.len()), ("echo", 2));
        let (reply, heard) = said("echo", &[]);
        assert!(matches!(reply, Err(ModelError::Denied { .. })));
        assert_eq!(heard, ["echo at None"]);
        // The host is asked for by whom it belongs to, and a refusal is a fallback like any other.
        let (reply, heard) = said("openai-compatible:http://a.example#x,echo", &["echo"]);
        assert_eq!(reply.unwrap(), "echo");
        assert_eq!(heard.first().unwrap(), "openai-compatible:http://a.example#x at Some(\"a.example\")");
    }
}
