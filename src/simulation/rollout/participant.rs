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
use crate::simulation::persona::Speaker;

/// A reply uses at most 1 / this of a model's window, so that several turns fit into it.
const WINDOW_PER_REPLY: usize = 6;
/// How many alternatives per token are recorded if available: the regulator computes margins from them.
const ALTERNATIVES: usize = 3;

/// One side of a conversation. A value: forks are clones.
#[derive(Clone)]
pub(super) struct Participant {
    speaker: Speaker,
    model: Arc<dyn LanguageModel>,
    sampling: Sampling,
    /// Instructions after the system_prompt are put into it instead of behind the history.
    rewrites_system_prompt: bool,
    system_prompt: String,
    /// Instructions below the system prompt; empty unless it is rewritten.
    notes: Vec<String>,
    history: Vec<Message>,
    snapshot: Option<Snapshot>,
    /// The permit of the current turn, which every call counts against.
    permit: Option<CallPermit>,
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

impl Participant {
    pub(super) fn new(speaker: Speaker, model: Arc<dyn LanguageModel>, rewrites_system_prompt: bool) -> Self {
        let sampling = sampling(model.as_ref());
        let system_prompt = String::new();
        Self {
            speaker,
            model,
            sampling,
            rewrites_system_prompt,
            system_prompt,
            notes: Vec::new(),
            history: Vec::new(),
            snapshot: None,
            permit: None,
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

    /// Sets the system prompt and removes the notes below it.
    pub(super) fn set_system_prompt(&mut self, system_prompt: &str) {
        system_prompt.clone_into(&mut self.system_prompt);
        self.notes.clear();
    }

    /// Whether instructions replace the system prompt instead of being appended.
    pub(super) const fn rewrites_system_prompt(&self) -> bool {
        self.rewrites_system_prompt
    }

    /// Adds an instruction that stays in the history.
    pub(super) fn add_instruction(&mut self, text: &str) {
        if self.rewrites_system_prompt {
            self.notes.push(text.to_owned());
        } else {
            self.history.push(Message::system(text));
        }
    }

    /// Removes the notes below the system prompt.
    pub(super) fn clear_notes(&mut self) {
        self.notes.clear();
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

    /// Adds this side's reply; `snapshot` is the model's state after it, if known.
    pub(super) fn push_reply(&mut self, message: Message, snapshot: Option<Snapshot>) {
        self.history.push(message);
        if snapshot.is_some() {
            self.snapshot = snapshot;
        }
    }

    /// If the next reply would not fit into the model's window: drops the oldest messages until half of the window is free,
    /// so that this happens rarely. Since everything is processed again anyway, the system prompt is replaced by
    /// `system_prompt`, and of the other instructions only `note` is retained.
    pub(super) fn trim_to_window(
        &mut self,
        tokens_max: Option<usize>,
        system_prompt: Option<&str>,
        note: Option<&str>,
    ) -> Option<WindowTrim> {
        let window = self.model.info().window_tokens?;
        let reply = self.reply_tokens(tokens_max);
        let tokens_before = self.model.count(&self.messages(None))?;
        if tokens_before + reply <= window {
            return None;
        }
        let spoken = self.history.iter().filter(|message| message.role != Role::System).count();
        let mut best = None;
        for dropped in 0..spoken.max(1) {
            let mut shorter = self.clone();
            shorter.drop_oldest(dropped, system_prompt, note);
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
    pub(super) fn drop_oldest(&mut self, messages: usize, system_prompt: Option<&str>, note: Option<&str>) {
        self.history.retain(|message| message.role != Role::System);
        self.history.drain(..messages.min(self.history.len()));
        self.set_system_prompt(&system_prompt.map_or_else(|| self.system_prompt.clone(), str::to_owned));
        if let Some(note) = note {
            self.add_instruction(note);
        }
        self.snapshot = None;
    }

    /// Requests one reply; the participant itself does not change.
    pub(super) async fn reply(
        &self,
        request: ReplyRequest<'_>,
        sink: Box<dyn TokenSink + '_>,
    ) -> Result<Completion, ModelError> {
        let sampling = Sampling { max_tokens: self.reply_tokens(request.tokens_max), ..self.sampling.clone() };
        let ReplyRequest { instruction, after, stream, gains, .. } = request;
        let mut model_request = Request::new(Prompt::Chat(self.messages(instruction)), sampling, stream);
        model_request.after = after.or_else(|| self.snapshot.clone());
        model_request.gains = gains;
        model_request.permit = self.permit();
        self.model.complete(model_request, Some(sink)).await
    }

    /// Processes everything up to a recorded reply and the reply's `ids`, under the gains of its turn.
    pub(super) async fn re_read(
        &mut self,
        instruction: Option<&str>,
        ids: &[TokenId],
        gains: DeltaGains,
    ) -> Result<(), ModelError> {
        if ids.is_empty() {
            return Ok(());
        }
        let prompt = Prompt::Chat(self.messages(instruction));
        let mut request = Request::new(prompt, Sampling::greedy(), RngStream::root(0));
        request.after = self.snapshot.take();
        request.gains = Some(gains);
        self.snapshot = self.model.score(request, Continuation::Ids(ids.to_vec())).await?.snapshot;
        Ok(())
    }

    /// All messages before the next reply, with `instruction` for this reply only.
    pub(super) fn messages(&self, instruction: Option<&str>) -> Vec<Message> {
        let (above, behind) = if self.rewrites_system_prompt { (instruction, None) } else { (None, instruction) };
        let notes = self.notes.iter().map(String::as_str).chain(above);
        let system_prompt = std::iter::once(self.system_prompt.as_str()).chain(notes).filter(|text| !text.is_empty());
        let system_prompt = system_prompt.collect::<Vec<_>>().join("\n\n");
        let mut messages = Vec::with_capacity(self.history.len() + 2);
        if !system_prompt.is_empty() {
            messages.push(Message::system(system_prompt));
        }
        messages.extend(self.history.iter().cloned());
        messages.extend(behind.map(Message::system));
        messages
    }

    fn reply_tokens(&self, tokens_max: Option<usize>) -> usize {
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
