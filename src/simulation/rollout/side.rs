//! One side of a conversation: what its model has been told and has heard, and how much of that it has read.
//!
//! Each side sees itself as `assistant` and the other as `user`. Nothing here decides what is said.

use std::sync::Arc;

use super::transcript::Slide;
use crate::foundation::base::Stream;
use crate::foundation::chat::{
    Completion, Continuation, DeltaGains, LanguageModel, Message, ModelError, Prompt, Request, Role, Sampling,
    Snapshot, TokenId, TokenSink,
};
use crate::simulation::persona::Speaker;

/// A reply takes at most this share of a model's window, so that several turns fit into it.
const WINDOW_PER_REPLY: usize = 6;
/// How many alternatives per token are recorded where the model gives them: the regulator reads margins from them.
const ALTERNATIVES: usize = 3;

/// One side of a conversation. A value: forks are clones.
#[derive(Clone)]
pub(super) struct Side {
    speaker: Speaker,
    model: Arc<dyn LanguageModel>,
    sampling: Sampling,
    /// Instructions after the opening are put into it instead of behind the history.
    rewrites_opening: bool,
    opening: String,
    /// Instructions that stand below the opening; empty unless it is rewritten.
    notes: Vec<String>,
    history: Vec<Message>,
    snapshot: Option<Snapshot>,
}

/// One request for a reply.
pub(super) struct Ask<'a> {
    /// What to tell the model for this reply only.
    pub(super) instruction: Option<&'a str>,
    /// What has been read, if more than the side itself knows.
    pub(super) after: Option<Snapshot>,
    /// Where the draws come from.
    pub(super) stream: Stream,
    /// Gains on Δ.
    pub(super) gains: Option<DeltaGains>,
    /// Longest reply, tokens, if shorter than the model's own.
    pub(super) tokens_max: Option<usize>,
}

impl Side {
    pub(super) fn new(speaker: Speaker, model: Arc<dyn LanguageModel>, rewrites_opening: bool) -> Self {
        let sampling = sampling(model.as_ref());
        let opening = String::new();
        Self {
            speaker,
            model,
            sampling,
            rewrites_opening,
            opening,
            notes: Vec::new(),
            history: Vec::new(),
            snapshot: None,
        }
    }

    /// Sets what stands above the conversation. What was told below it before is forgotten.
    pub(super) fn open(&mut self, opening: &str) {
        opening.clone_into(&mut self.opening);
        self.notes.clear();
    }

    /// Whether a new opening is written in place of the old one.
    pub(super) const fn rewrites_opening(&self) -> bool {
        self.rewrites_opening
    }

    /// Tells the model something that it keeps.
    pub(super) fn instruct(&mut self, text: &str) {
        if self.rewrites_opening {
            self.notes.push(text.to_owned());
        } else {
            self.history.push(Message::system(text));
        }
    }

    /// Forgets what was told below the opening.
    pub(super) fn forget_notes(&mut self) {
        self.notes.clear();
    }

    /// The other side said `text`.
    pub(super) fn hear(&mut self, text: &str) {
        self.history.push(Message::user(text));
    }

    /// A fork that hears `question` in place of what it heard last.
    pub(super) fn aside(&self, question: &str) -> Self {
        let mut fork = self.clone();
        if fork.history.last().is_some_and(|last| last.role == Role::User) {
            fork.history.pop();
        }
        fork.hear(question);
        fork
    }

    /// This side said `message`, and everything up to its end has been read as far as `snapshot` tells.
    pub(super) fn say(&mut self, message: Message, snapshot: Option<Snapshot>) {
        self.history.push(message);
        if snapshot.is_some() {
            self.snapshot = snapshot;
        }
    }

    /// Makes room when the next reply would not fit into the model's window: the oldest messages leave until half of
    /// the window is free again, so that this is rare. Since everything is read again anyway, the opening becomes
    /// `opening`, and of the instructions only `note` stays.
    pub(super) fn slide(
        &mut self,
        tokens_max: Option<usize>,
        opening: Option<&str>,
        note: Option<&str>,
    ) -> Option<Slide> {
        let window = self.model.info().window_tokens?;
        let reply = self.reply_tokens(tokens_max);
        let tokens_before = self.model.count(&self.messages(None))?;
        if tokens_before + reply <= window {
            return None;
        }
        let spoken = self.history.iter().filter(|message| message.role != Role::System).count();
        let mut best = None;
        for leave in 0..spoken.max(1) {
            let mut shorter = self.clone();
            shorter.leave(leave, opening, note);
            let tokens_after = self.model.count(&shorter.messages(None))?;
            best = Some((shorter, Slide { speaker: self.speaker, messages: leave, tokens_before, tokens_after }));
            if tokens_after <= window / 2 {
                break;
            }
        }
        best.map(|(shorter, slide)| {
            *self = shorter;
            slide
        })
    }

    /// The first `messages` that were spoken leave; see [`Side::slide`].
    pub(super) fn leave(&mut self, messages: usize, opening: Option<&str>, note: Option<&str>) {
        self.history.retain(|message| message.role != Role::System);
        self.history.drain(..messages.min(self.history.len()));
        self.open(&opening.map_or_else(|| self.opening.clone(), str::to_owned));
        if let Some(note) = note {
            self.instruct(note);
        }
        self.snapshot = None;
    }

    /// One reply; the side itself does not change.
    pub(super) async fn ask(&self, ask: Ask<'_>, sink: Box<dyn TokenSink + '_>) -> Result<Completion, ModelError> {
        let sampling = Sampling { max_tokens: self.reply_tokens(ask.tokens_max), ..self.sampling.clone() };
        let mut request = Request::new(Prompt::Chat(self.messages(ask.instruction)), sampling, ask.stream);
        request.after = ask.after.or_else(|| self.snapshot.clone());
        request.gains = ask.gains;
        self.model.complete(request, Some(sink)).await
    }

    /// Reads what leads up to a recorded reply, and the reply's own `ids`, under the gains of its turn.
    pub(super) async fn read_again(
        &mut self,
        instruction: Option<&str>,
        ids: &[TokenId],
        gains: DeltaGains,
    ) -> Result<(), ModelError> {
        if ids.is_empty() {
            return Ok(());
        }
        let prompt = Prompt::Chat(self.messages(instruction));
        let mut request = Request::new(prompt, Sampling::greedy(), Stream::root(0));
        request.after = self.snapshot.take();
        request.gains = Some(gains);
        self.snapshot = self.model.score(request, Continuation::Ids(ids.to_vec())).await?.snapshot;
        Ok(())
    }

    /// Everything that stands before the next reply, with `instruction` for this reply only.
    pub(super) fn messages(&self, instruction: Option<&str>) -> Vec<Message> {
        let (above, behind) = if self.rewrites_opening { (instruction, None) } else { (None, instruction) };
        let notes = self.notes.iter().map(String::as_str).chain(above);
        let opening = std::iter::once(self.opening.as_str()).chain(notes).filter(|text| !text.is_empty());
        let opening = opening.collect::<Vec<_>>().join("\n\n");
        let mut messages = Vec::with_capacity(self.history.len() + 2);
        if !opening.is_empty() {
            messages.push(Message::system(opening));
        }
        messages.extend(self.history.iter().cloned());
        messages.extend(behind.map(Message::system));
        messages
    }

    fn reply_tokens(&self, tokens_max: Option<usize>) -> usize {
        tokens_max.map_or(self.sampling.max_tokens, |max| max.min(self.sampling.max_tokens)).max(1)
    }
}

/// How a model's replies are sampled: by its own defaults, and short enough that several fit into its window.
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
