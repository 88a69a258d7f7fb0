//! A conversation read beside the real one. It keeps its state from turn to turn, so that its history is read once.

use futures_util::future::join_all;

use crate::foundation::base::Stream;
use crate::foundation::chat::{
    Continuation, DeltaGains, LanguageModel, Message, Prompt, Request, Sampling, Scored, Snapshot, TokenId,
    TokenLogprob,
};

/// How likely a text was token by token, or why that is not known.
pub(super) type Likely = Result<Vec<TokenLogprob>, String>;

/// A conversation and how much of it has been read.
pub(super) struct Shadow<'a> {
    model: &'a dyn LanguageModel,
    read: Option<Snapshot>,
}

impl<'a> Shadow<'a> {
    pub(super) fn new(model: &'a dyn LanguageModel) -> Self {
        Self { model, read: None }
    }

    /// How likely `reply` is after `messages`, and goes on after it.
    pub(super) async fn go_on(
        &mut self,
        messages: Vec<Message>,
        reply: &[TokenId],
        gains: Option<&DeltaGains>,
    ) -> Likely {
        let after = self.read.take();
        let scored = self.score(messages, Continuation::Ids(reply.to_vec()), after, gains).await?;
        self.read = scored.snapshot;
        Ok(scored.tokens)
    }

    /// How likely each of several replies is after `messages`, and stays before them.
    pub(super) async fn stay(
        &mut self,
        messages: Vec<Message>,
        replies: Vec<Continuation>,
        gains: Option<&DeltaGains>,
    ) -> Vec<Likely> {
        let mut replies = replies.into_iter();
        let Some(first) = replies.next() else { return Vec::new() };
        // The first reading brings everyone to the place before the reply.
        let after = self.read.take();
        let first = self.score(messages.clone(), first, after, gains).await;
        if let Ok(scored) = &first {
            self.read.clone_from(&scored.before);
        }
        let this = &*self;
        let rest = replies.map(|reply| this.score(messages.clone(), reply, this.read.clone(), gains));
        let rest = join_all(rest).await;
        std::iter::once(first).chain(rest).map(|scored| scored.map(|scored| scored.tokens)).collect()
    }

    async fn score(
        &self,
        messages: Vec<Message>,
        reply: Continuation,
        after: Option<Snapshot>,
        gains: Option<&DeltaGains>,
    ) -> Result<Scored, String> {
        let mut request = Request::new(Prompt::Chat(messages), Sampling::greedy(), Stream::root(0));
        request.after = after;
        request.gains = gains.cloned();
        self.model.score(request, reply).await.map_err(|error| error.to_string())
    }
}
