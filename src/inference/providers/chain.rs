//! A fallback chain: the first model that answers does, and who was asked before is recorded with the answer.

use std::sync::Arc;

use crate::foundation::base::Digest;
use crate::foundation::chat::{
    BoxFuture, Completion, Continuation, Flow, LanguageModel, Message, ModelError, ModelInfo, Request, Scored,
    Snapshot, TokenLogprob, TokenSink,
};

pub(super) struct Chain {
    info: ModelInfo,
    links: Vec<(String, Arc<dyn LanguageModel>)>,
    /// Those that could not be opened, each with its place among the links and why.
    unopened: Vec<(usize, String, String)>,
}

/// A link's snapshot: another link cannot read it.
struct Linked {
    link: usize,
    snapshot: Snapshot,
}

impl Chain {
    /// The chain called `name` of the models that could be opened.
    pub(super) fn new(
        name: &str,
        tried: impl Iterator<Item = (String, Result<Arc<dyn LanguageModel>, ModelError>)>,
    ) -> Result<Self, ModelError> {
        let mut links = Vec::new();
        let mut unopened = Vec::new();
        for (spec, opened) in tried {
            match opened {
                Ok(model) => links.push((spec, model)),
                Err(error) => unopened.push((links.len(), spec, error.to_string())),
            }
        }
        if links.is_empty() {
            return Err(none_answered(name, unopened.into_iter().map(|(_, _, why)| why)));
        }
        Ok(Self { info: common(name.to_owned(), &links.iter().map(|(_, model)| model.info())), links, unopened })
    }

    /// Those that were passed over before link number `link` was asked.
    fn passed(&self, link: usize) -> impl Iterator<Item = (String, String)> {
        let passed = self.unopened.iter().filter(move |(before, ..)| *before == link);
        passed.map(|(_, spec, why)| (spec.clone(), why.clone()))
    }
}

/// What holds whichever link answers.
fn common<'a>(name: String, links: &(impl Iterator<Item = &'a ModelInfo> + Clone)) -> ModelInfo {
    let least = |value: fn(&ModelInfo) -> Option<usize>| links.clone().filter_map(value).min();
    // A link without a digest must not hide that another one changed.
    let digests = links.clone().map(|info| (info.name.clone(), info.digest.map(|digest| digest.to_string())));
    let digests = format!("{:?}", digests.collect::<Vec<_>>());
    ModelInfo {
        name,
        digest: Some(Digest::of(digests)),
        dtype: links.clone().next().and_then(|info| info.dtype.clone()),
        device: links.clone().next().and_then(|info| info.device.clone()),
        // Each link has its own, and the digest covers them.
        template: None,
        layers: links.clone().next().and_then(|info| info.layers),
        vocabulary: links.clone().next().and_then(|info| info.vocabulary),
        window_tokens: least(|info| info.window_tokens),
        prompt_tokens_max: least(|info| info.prompt_tokens_max),
        logprobs: links.clone().all(|info| info.logprobs),
        delta: links.clone().all(|info| info.delta),
        sampling: links.clone().find_map(|info| info.sampling.clone()),
    }
}

fn none_answered(model: &str, why: impl Iterator<Item = String>) -> ModelError {
    let why = why.collect::<Vec<_>>().join("; ");
    ModelError::Unavailable { model: model.to_owned(), why: format!("no model of the chain answered: {why}") }
}

impl LanguageModel for Chain {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The first link's count: it is the one that is meant to answer.
    fn count(&self, messages: &[Message]) -> Option<usize> {
        self.links.first().and_then(|(_, model)| model.count(messages))
    }

    fn complete<'a>(
        &'a self,
        request: Request,
        sink: Option<Box<dyn TokenSink + 'a>>,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(async move {
            let mut sink = sink;
            let mut heard = false;
            let mut fallbacks = Vec::new();
            for (link, (spec, model)) in self.links.iter().enumerate() {
                fallbacks.extend(self.passed(link));
                let listener = sink.as_mut().map(|sink| {
                    let hear = |token: &TokenLogprob| -> Flow {
                        heard = true;
                        sink.token(token)
                    };
                    Box::new(hear) as Box<dyn TokenSink + '_>
                });
                match model.complete(unwrap(&request, link), listener).await {
                    Ok(mut completion) => {
                        completion.snapshot = completion.snapshot.map(|snapshot| wrap(link, snapshot));
                        completion.before = completion.before.map(|snapshot| wrap(link, snapshot));
                        fallbacks.append(&mut completion.fallbacks);
                        completion.fallbacks = fallbacks;
                        return Ok(completion);
                    }
                    // What was heard cannot be unheard: another link's answer would come on top of it.
                    Err(error) if heard => return Err(error),
                    Err(error) => fallbacks.push((spec.clone(), error.to_string())),
                }
            }
            Err(none_answered(&self.info.name, fallbacks.into_iter().map(|(_, why)| why)))
        })
    }

    /// Scores with the first link alone: a score does not say whose it is, so another link's would pass for its own.
    fn score(&self, request: Request, continuation: Continuation) -> BoxFuture<'_, Result<Scored, ModelError>> {
        Box::pin(async move {
            let Some((_, model)) = self.links.first() else {
                return Err(none_answered(&self.info.name, std::iter::empty()));
            };
            model.score(unwrap(&request, 0), continuation).await.map(by_the_first)
        })
    }

    fn score_each(
        &self,
        request: Request,
        continuations: Vec<Continuation>,
    ) -> BoxFuture<'_, Result<Vec<Scored>, ModelError>> {
        Box::pin(async move {
            let Some((_, model)) = self.links.first() else {
                return Err(none_answered(&self.info.name, std::iter::empty()));
            };
            let each = model.score_each(unwrap(&request, 0), continuations).await?;
            Ok(each.into_iter().map(by_the_first).collect())
        })
    }
}

/// What the first link scored, to go on from with it.
fn by_the_first(scored: Scored) -> Scored {
    let wrap = |snapshot: Option<Snapshot>| snapshot.map(|snapshot| wrap(0, snapshot));
    Scored { snapshot: wrap(scored.snapshot), before: wrap(scored.before), ..scored }
}

fn wrap(link: usize, snapshot: Snapshot) -> Snapshot {
    let tokens = snapshot.tokens();
    Snapshot::new(Linked { link, snapshot }, tokens)
}

/// The request as link number `link` gets it: with its own snapshot, or with one that it cannot read, so that it says by
/// itself that it read everything again.
fn unwrap(request: &Request, link: usize) -> Request {
    let mut request = request.clone();
    request.after = request.after.map(|snapshot| match snapshot.downcast::<Linked>() {
        Some(linked) if linked.link == link => linked.snapshot.clone(),
        _ => snapshot,
    });
    request
}
