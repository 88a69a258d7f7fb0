//! A fallback chain: the models are tried in order, the first reply is used, and the failures before it are recorded
//! with it.

use std::sync::Arc;

use crate::foundation::base::Digest;
use crate::foundation::chat::{
    BoxFuture, Completion, Continuation, Flow, LanguageModel, Message, ModelError, ModelInfo, Request, Scored,
    Snapshot, TokenLogprob, TokenSink,
};

pub(super) struct FallbackChain {
    info: ModelInfo,
    links: Vec<(String, Arc<dyn LanguageModel>)>,
    /// Models that could not be opened: their position in the chain, spec and error.
    unopened: Vec<(usize, String, String)>,
}

/// A snapshot tagged with its link: other links cannot use it.
struct LinkSnapshot {
    link: usize,
    snapshot: Snapshot,
}

impl FallbackChain {
    /// Builds the chain from the models that could be opened.
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
            return Err(all_failed(name, unopened.into_iter().map(|(_, _, why)| why)));
        }
        Ok(Self { info: common_info(name.to_owned(), &links.iter().map(|(_, model)| model.info())), links, unopened })
    }

    /// The models that could not be opened and come just before link number `link`.
    fn unopened_before(&self, link: usize) -> impl Iterator<Item = (String, String)> {
        let unopened_before = self.unopened.iter().filter(move |(before, ..)| *before == link);
        unopened_before.map(|(_, spec, why)| (spec.clone(), why.clone()))
    }
}

/// What is true of every link.
fn common_info<'a>(name: String, links: &(impl Iterator<Item = &'a ModelInfo> + Clone)) -> ModelInfo {
    let least = |value: fn(&ModelInfo) -> Option<usize>| links.clone().filter_map(value).min();
    // A link without a digest must not hide that another link changed.
    let digests = links.clone().map(|info| (info.name.clone(), info.digest.map(|digest| digest.to_string())));
    let digests = format!("{:?}", digests.collect::<Vec<_>>());
    ModelInfo {
        name,
        digest: Some(Digest::of(digests)),
        dtype: links.clone().next().and_then(|info| info.dtype.clone()),
        device: links.clone().next().and_then(|info| info.device.clone()),
        provider: links.clone().find_map(|info| info.provider.clone()),
        // Each link has its own template; the digest covers them.
        template: None,
        layers: links.clone().next().and_then(|info| info.layers),
        vocabulary: links.clone().next().and_then(|info| info.vocabulary),
        window_tokens: least(|info| info.window_tokens),
        prompt_tokens_max: least(|info| info.prompt_tokens_max),
        logprobs: links.clone().all(|info| info.logprobs),
        delta: links.clone().all(|info| info.delta),
        sampling: links.clone().find_map(|info| info.sampling.clone()),
        thinking: links.clone().next().and_then(|info| info.thinking.clone()),
        thinking_settings: links.clone().next().map(|info| info.thinking_settings.clone()).unwrap_or_default(),
    }
}

fn all_failed(model: &str, why: impl Iterator<Item = String>) -> ModelError {
    let why = why.collect::<Vec<_>>().join("; ");
    ModelError::Unavailable { model: model.to_owned(), why: format!("no model of the chain replied: {why}") }
}

impl LanguageModel for FallbackChain {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Counts with the first link, which is the preferred one.
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
            let mut delivered = false;
            let mut fallbacks = Vec::new();
            for (link, (spec, model)) in self.links.iter().enumerate() {
                fallbacks.extend(self.unopened_before(link));
                let listener = sink.as_mut().map(|sink| {
                    let forward = |token: &TokenLogprob| -> Flow {
                        delivered = true;
                        sink.token(token)
                    };
                    Box::new(forward) as Box<dyn TokenSink + '_>
                });
                match model.complete(request_for_link(&request, link), listener).await {
                    Ok(mut completion) => {
                        completion.snapshot = completion.snapshot.map(|snapshot| tag(link, snapshot));
                        completion.before = completion.before.map(|snapshot| tag(link, snapshot));
                        fallbacks.append(&mut completion.fallbacks);
                        completion.fallbacks = fallbacks;
                        return Ok(completion);
                    }
                    // Tokens were already delivered to the sink: another link's reply would be appended to them.
                    Err(error) if delivered => return Err(error),
                    Err(error) => fallbacks.push((spec.clone(), error.to_string())),
                }
            }
            Err(all_failed(&self.info.name, fallbacks.into_iter().map(|(_, why)| why)))
        })
    }

    /// Scores with the first link only: a score does not name its model, so a fallback's score would be taken for the
    /// first model's.
    fn score(&self, request: Request, continuation: Continuation) -> BoxFuture<'_, Result<Scored, ModelError>> {
        Box::pin(async move {
            let Some((_, model)) = self.links.first() else {
                return Err(all_failed(&self.info.name, std::iter::empty()));
            };
            model.score(request_for_link(&request, 0), continuation).await.map(tag_first_link)
        })
    }

    fn score_each(
        &self,
        request: Request,
        continuations: Vec<Continuation>,
    ) -> BoxFuture<'_, Result<Vec<Scored>, ModelError>> {
        Box::pin(async move {
            let Some((_, model)) = self.links.first() else {
                return Err(all_failed(&self.info.name, std::iter::empty()));
            };
            let each = model.score_each(request_for_link(&request, 0), continuations).await?;
            Ok(each.into_iter().map(tag_first_link).collect())
        })
    }
}

/// Tags the snapshots of a score with the first link.
fn tag_first_link(scored: Scored) -> Scored {
    let tag = |snapshot: Option<Snapshot>| snapshot.map(|snapshot| tag(0, snapshot));
    Scored { snapshot: tag(scored.snapshot), before: tag(scored.before), ..scored }
}

fn tag(link: usize, snapshot: Snapshot) -> Snapshot {
    let tokens = snapshot.tokens();
    Snapshot::new(LinkSnapshot { link, snapshot }, tokens)
}

/// The request for link number `link`: its own snapshot without the tag. Another link's snapshot stays tagged; the link
/// does not recognise it and reads the whole prompt.
fn request_for_link(request: &Request, link: usize) -> Request {
    let mut request = request.clone();
    request.after = request.after.map(|snapshot| match snapshot.downcast::<LinkSnapshot>() {
        Some(linked) if linked.link == link => linked.snapshot.clone(),
        _ => snapshot,
    });
    request
}
