//! A conversation read beside the real one. It keeps its state from turn to turn, so that its history is read once.

use crate::foundation::base::Stream;
use crate::foundation::chat::{
    Continuation, DeltaGains, LanguageModel, Message, ModelError, Prompt, Request, Sampling, Scored, Snapshot, TokenId,
    TokenLogprob,
};

/// A conversation and how much of it has been read.
pub(super) struct Shadow<'a> {
    model: &'a dyn LanguageModel,
    read: Option<Snapshot>,
}

/// A place in a conversation: everything before a reply has been read.
pub(super) struct Standing<'a> {
    model: &'a dyn LanguageModel,
    messages: Vec<Message>,
    read: Option<Snapshot>,
    gains: Option<DeltaGains>,
}

impl<'a> Shadow<'a> {
    pub(super) fn new(model: &'a dyn LanguageModel) -> Self {
        Self { model, read: None }
    }

    /// Reads `messages`, so that several replies to them can be scored.
    pub(super) async fn stand(
        &mut self,
        messages: Vec<Message>,
        gains: Option<&DeltaGains>,
    ) -> Result<Standing<'a>, String> {
        // One token, to be thrown away: the snapshot before it is what is wanted.
        let sampling = Sampling { max_tokens: 1, ..Sampling::greedy() };
        let mut request = Request::new(Prompt::Chat(messages.clone()), sampling, Stream::root(0));
        request.after = self.read.take();
        request.gains = gains.cloned();
        let completion = self.model.complete(request, None).await.map_err(told)?;
        self.read.clone_from(&completion.before);
        Ok(Standing { model: self.model, messages, read: completion.before, gains: gains.cloned() })
    }

    /// Reads `messages` and `reply` after them, and tells how likely it was.
    pub(super) async fn go_on(
        &mut self,
        messages: Vec<Message>,
        reply: &[TokenId],
        gains: Option<&DeltaGains>,
    ) -> Result<Vec<TokenLogprob>, String> {
        let standing = Standing { model: self.model, messages, read: self.read.take(), gains: gains.cloned() };
        let scored = standing.score(Continuation::Ids(reply.to_vec())).await?;
        self.read = scored.snapshot;
        Ok(scored.tokens)
    }
}

impl Standing<'_> {
    /// How likely these tokens are as the reply.
    pub(super) async fn ids(&self, reply: &[TokenId]) -> Result<Vec<TokenLogprob>, String> {
        Ok(self.score(Continuation::Ids(reply.to_vec())).await?.tokens)
    }

    /// How likely the reply is to begin with `text`.
    pub(super) async fn text(&self, text: &str) -> Result<Vec<TokenLogprob>, String> {
        Ok(self.score(Continuation::Text(text.to_owned())).await?.tokens)
    }

    async fn score(&self, reply: Continuation) -> Result<Scored, String> {
        let mut request =
            Request::new(Prompt::Chat(self.messages.clone()), Sampling::greedy(), Stream::root(0));
        request.after.clone_from(&self.read);
        request.gains.clone_from(&self.gains);
        self.model.score(request, reply).await.map_err(told)
    }
}

fn told(error: ModelError) -> String {
    error.to_string()
}
