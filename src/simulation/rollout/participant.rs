//! One side of a conversation: the instructions and messages its model has been given, and the model's state after them.
//!
//! Each side sees itself as `assistant` and the other as `user`.

use std::sync::Arc;

use super::transcript::WindowTrim;
use crate::foundation::base::RngStream;
use crate::foundation::chat::{
    Completion, Continuation, DeltaGains, LanguageModel, Message, ModelError, Prompt, Request, Role, Sampling,
    Snapshot, TokenId, TokenSink,
};
use crate::foundation::gate::CallPermit;
use crate::governance::regulator::{ConfidenceSettings, Estimates};
use crate::simulation::persona::Speaker;
use crate::simulation::resampling::{Answered, Costs, Sample, SamplingPlan, resample};

/// A reply uses at most 1 / this of a model's window, so that several turns fit into it.
const WINDOW_PER_REPLY: usize = 6;
/// How many alternatives per token are recorded if available: the regulator computes margins from them.
const ALTERNATIVES: usize = 3;

/// The temperature of samples of a flagged message: the model's own distribution.
const SAMPLES_TEMPERATURE: f32 = 1.0;

/// How the state, the instruction that changes during the conversation, reaches the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatePlacement {
    /// A system message before the reply; the previous one is removed from the history, and what was said since is
    /// processed again without it.
    Replace,
    /// A system message before the reply; the previous ones stay in the history.
    Append,
    /// In the one system message at the top.
    System,
}

/// One side of a conversation. A value: forks are clones.
#[derive(Clone)]
pub(super) struct Participant {
    speaker: Speaker,
    model: Arc<dyn LanguageModel>,
    sampling: Sampling,
    placement: StatePlacement,
    /// The system prompt, which does not change during the conversation.
    opening: String,
    /// The state, if it is part of the system message at the top.
    state_on_top: String,
    history: Vec<Message>,
    /// The position of the state in the history, if it is to be removed when it changes.
    state_at: Option<usize>,
    /// The model's state after the messages up to some point of the history.
    snapshot: Option<Snapshot>,
    /// The permit of the current turn, which every call counts against.
    permit: Option<CallPermit>,
    /// The model's state before the newest instruction: up to the last reply before it, without any instruction that was
    /// removed.
    base: Option<Snapshot>,
}

/// One request for a reply.
pub(super) struct ReplyRequest<'a> {
    /// An instruction for this reply only.
    pub(super) instruction: Option<&'a str>,
    /// A snapshot to continue from, if newer than the participant's own.
    pub(super) after: Option<Snapshot>,
    /// The source of randomness.
    pub(super) stream: RngStream,
    /// Gains on Δ.
    pub(super) gains: Option<DeltaGains>,
    /// The most tokens of the reply, if fewer than the model's own limit.
    pub(super) tokens_max: Option<usize>,
}

/// A message to be sampled again.
pub(super) struct ResampleRequest<'a> {
    /// The instruction for this message only.
    pub(super) instruction: Option<&'a str>,
    /// The state before it.
    pub(super) before: Option<&'a Snapshot>,
    /// What it says.
    pub(super) text: &'a str,
    /// The source of the samples' randomness.
    pub(super) stream: RngStream,
    /// Gains on Δ, as for the message.
    pub(super) gains: Option<&'a DeltaGains>,
    /// The most tokens of a sample, if fewer than the model's own limit.
    pub(super) tokens_max: Option<usize>,
}

impl Participant {
    pub(super) fn new(speaker: Speaker, model: Arc<dyn LanguageModel>, placement: StatePlacement) -> Self {
        let sampling = sampling(model.as_ref());
        Self {
            speaker,
            model,
            sampling,
            placement,
            opening: String::new(),
            state_on_top: String::new(),
            history: Vec::new(),
            state_at: None,
            snapshot: None,
            permit: None,
            base: None,
        }
    }

    /// Sets the permit of the turn's calls.
    pub(super) fn set_permit(&mut self, permit: CallPermit) {
        self.permit = Some(permit);
    }

    /// The permit of the turn's calls.
    pub(super) fn permit(&self) -> Option<CallPermit> {
        self.permit.clone()
    }

    /// Sets the system prompt.
    pub(super) fn set_opening(&mut self, opening: &str) {
        opening.clone_into(&mut self.opening);
    }

    /// Sets the state, in place of the previous one unless that is to stay. The model's state without the previous one is
    /// unknown afterwards: the next reply processes what was said since the base again.
    pub(super) fn set_state(&mut self, text: &str) {
        if self.placement == StatePlacement::System {
            text.clone_into(&mut self.state_on_top);
            self.snapshot = None;
            return;
        }
        if let Some(at) = self.state_at.take() {
            self.history.remove(at);
            self.snapshot = self.base.take();
        }
        if self.placement == StatePlacement::Replace {
            self.state_at = Some(self.history.len());
        }
        self.base = self.snapshot.clone();
        self.history.push(Message::system(text));
    }

    /// [`Participant::set_state`], after processing what was said since the base, so that later changes of the state need
    /// not process it again. Under `gains`, like the reply that follows.
    pub(super) async fn replace_state(&mut self, text: &str, gains: Option<&DeltaGains>) {
        if let Some(at) = self.state_at.take() {
            self.history.remove(at);
            self.snapshot = self.advanced_base(gains).await;
        }
        self.set_state(text);
    }

    /// The model's state after the last reply, from the base. Where it cannot be computed (the model is hosted, or the
    /// reply's tokens are not known), the base.
    async fn advanced_base(&mut self, gains: Option<&DeltaGains>) -> Option<Snapshot> {
        let base = self.base.take();
        let last = self.history.iter().rposition(|message| message.role == Role::Assistant);
        let reply = last.and_then(|at| Some((at, self.history.get(at)?.ids.clone()?)));
        let (Some((at, ids)), Some(_)) = (reply, self.model.vocabulary()) else { return base };
        let mut messages = self.messages(None);
        // The system prompt, if there is one, comes before the history.
        messages.truncate(at + messages.len().saturating_sub(self.history.len()));
        let mut request = Request::new(Prompt::Chat(messages), Sampling::greedy(), RngStream::root(0));
        request.after.clone_from(&base);
        request.gains = gains.cloned();
        request.permit = self.permit();
        match self.model.score(request, Continuation::Ids(ids.to_vec())).await {
            Ok(scored) => scored.snapshot.or(base),
            Err(_) => base,
        }
    }

    /// Adds a message of the other side.
    pub(super) fn push_incoming(&mut self, text: &str) {
        self.history.push(Message::user(text));
    }

    /// A fork in which `question` replaces the last message of the other side.
    pub(super) fn fork_with_question(&self, question: &str) -> Self {
        let mut fork = self.clone();
        if fork.history.last().is_some_and(|last| last.role == Role::User) {
            fork.history.pop();
        }
        fork.push_incoming(question);
        fork
    }

    /// Adds this side's reply; `snapshot` is the model's state after it, if known and if nothing else came before it than
    /// the history.
    pub(super) fn push_reply(&mut self, message: Message, snapshot: Option<Snapshot>) {
        self.history.push(message);
        if snapshot.is_some() {
            self.snapshot = snapshot;
        }
    }

    /// If the next reply would not fit into the model's window: drops the oldest messages until half of the window is free,
    /// so that this happens rarely. Everything else is processed again; `state` becomes the state.
    pub(super) fn trim_to_window(&mut self, tokens_max: Option<usize>, state: Option<&str>) -> Option<WindowTrim> {
        let window = self.model.info().window_tokens?;
        let thought = self.model.info().thought_tokens_max().unwrap_or_default();
        let reply = self.answer_tokens(tokens_max) + thought;
        let tokens_before = self.model.count(&self.messages(None))?;
        if tokens_before + reply <= window {
            return None;
        }
        let spoken = self.history.iter().filter(|message| message.role != Role::System).count();
        let mut best = None;
        for dropped in 0..spoken.max(1) {
            let mut shorter = self.clone();
            shorter.drop_oldest(dropped, state);
            let tokens_after = self.model.count(&shorter.messages(None))?;
            best =
                Some((shorter, WindowTrim { speaker: self.speaker, messages: dropped, tokens_before, tokens_after }));
            if tokens_after <= window / 2 {
                break;
            }
        }
        best.map(|(shorter, slide)| {
            *self = shorter;
            slide
        })
    }

    /// Drops the first `messages` of the conversation; see [`Participant::trim_to_window`].
    pub(super) fn drop_oldest(&mut self, messages: usize, state: Option<&str>) {
        self.history.retain(|message| message.role != Role::System);
        self.history.drain(..messages.min(self.history.len()));
        (self.state_at, self.snapshot, self.base) = (None, None, None);
        if let Some(state) = state {
            self.set_state(state);
        }
    }

    /// Requests one reply; the participant itself does not change.
    pub(super) async fn reply(
        &self,
        request: ReplyRequest<'_>,
        sink: Box<dyn TokenSink + '_>,
    ) -> Result<Completion, ModelError> {
        let sampling = Sampling { max_tokens: self.answer_tokens(request.tokens_max), ..self.sampling.clone() };
        let ReplyRequest { instruction, after, stream, gains, .. } = request;
        let mut model_request = Request::new(Prompt::Chat(self.messages(instruction)), sampling, stream);
        model_request.after = after.or_else(|| self.snapshot.clone());
        model_request.gains = gains;
        model_request.permit = self.permit();
        model_request.allow_thought(self.model.info());
        self.model.complete(model_request, Some(sink)).await
    }

    /// Samples a message again that this side gave from the state `before`.
    pub(super) async fn resample(
        &self,
        message: &ResampleRequest<'_>,
        samples: usize,
        estimates: &mut Estimates,
        costs: &mut Costs,
    ) -> Result<Vec<Sample>, ModelError> {
        let plan = SamplingPlan {
            samples,
            temperature: SAMPLES_TEMPERATURE,
            top_logprobs: self.sampling.top_logprobs,
            group_tokens: ConfidenceSettings::default().group_tokens,
            embedder: None,
        };
        let answered = Answered {
            prompt: &self.messages(message.instruction),
            before: message.before,
            text: message.text,
            draws: &message.stream,
            tokens_max: self.answer_tokens(message.tokens_max),
            read: None,
            gains: message.gains,
            permit: self.permit.as_ref(),
        };
        resample(&self.model, &plan, answered, estimates, costs).await
    }

    /// Processes everything up to a recorded reply and the reply's `ids`, under the gains of its turn.
    pub(super) async fn re_read(&mut self, ids: &[TokenId], gains: DeltaGains) -> Result<(), ModelError> {
        if ids.is_empty() {
            return Ok(());
        }
        let prompt = Prompt::Chat(self.messages(None));
        let mut request = Request::new(prompt, Sampling::greedy(), RngStream::root(0));
        request.after = self.snapshot.take();
        request.gains = Some(gains);
        request.permit = self.permit();
        self.snapshot = self.model.score(request, Continuation::Ids(ids.to_vec())).await?.snapshot;
        Ok(())
    }

    /// All messages before the next reply, with `instruction` for this reply only.
    pub(super) fn messages(&self, instruction: Option<&str>) -> Vec<Message> {
        let on_top = self.placement == StatePlacement::System;
        let (above, behind) = if on_top { (instruction, None) } else { (None, instruction) };
        let top = [self.opening.as_str(), self.state_on_top.as_str(), above.unwrap_or_default()];
        let top = top.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
        let mut messages = Vec::with_capacity(self.history.len() + 2);
        if !top.is_empty() {
            messages.push(Message::system(top));
        }
        messages.extend(self.history.iter().cloned());
        messages.extend(behind.map(Message::system));
        messages
    }

    fn answer_tokens(&self, tokens_max: Option<usize>) -> usize {
        tokens_max.map_or(self.sampling.max_tokens, |max| max.min(self.sampling.max_tokens)).max(1)
    }
}

/// The sampling settings of a model: its defaults, with replies short enough that several fit into its window.
pub(super) fn sampling(model: &dyn LanguageModel) -> Sampling {
    let mut sampling = model.info().sampling.clone().unwrap_or_default();
    if model.info().logprobs {
        sampling.top_logprobs = sampling.top_logprobs.max(ALTERNATIVES);
    }
    if let Some(window) = model.info().window_tokens {
        sampling.max_tokens = sampling.max_tokens.min((window / WINDOW_PER_REPLY).max(1));
    }
    sampling
}
