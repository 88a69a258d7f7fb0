//! One request inside the engine: what it has read, what it has to read, and its task.
//!
//! `ids` holds the prompt, followed by the generated tokens or the tokens to be scored. The state has read a prefix of
//! `ids`; each pass reads more, and rows of logits come back for tokens that are sampled or scored. A snapshot is taken
//! before the reply, and one at the end when every kept token has been read.

use std::ops::Range;
use std::sync::{Arc, Weak};

use super::architecture::{Architecture, Segment};
use super::logit_query::{LogitQuery, QueriedToken, TokenStats};
use super::reply::{Reply, ReplyCut, Step};
use super::steps::Steps;
use crate::foundation::base::Digest;
use crate::foundation::base::limits::PREFIX_TOKENS_MIN;
use crate::foundation::chat::{DeltaGains, Finish, PrefixReuse, Snapshot, SsmStats, TokenId, TokenLogprob, Usage};

/// The content of a local model's snapshot. Tokens after it may be read under other gains than those before it.
pub(super) struct PrefixState<S> {
    model: Digest,
    ids: Box<[TokenId]>,
    state: Arc<S>,
    /// The state before the reply, for prompts that leave out a part of it.
    earlier: Option<Arc<Self>>,
}

impl<S> PrefixState<S> {
    /// This state if it has read a beginning of `ids`, otherwise the one before the reply if that has.
    fn that_begins(self: Arc<Self>, ids: &[TokenId]) -> Option<Arc<Self>> {
        if ids.starts_with(&self.ids) {
            return Some(self);
        }
        self.earlier.clone().filter(|earlier| ids.starts_with(&earlier.ids))
    }

    /// The tokens read into the state.
    pub(super) fn ids(&self) -> &[TokenId] {
        &self.ids
    }
}

/// A request for the engine.
pub(super) struct PreparedRequest {
    pub(super) input: PromptInput,
    pub(super) task: Task,
}

/// The part of a request that precedes its task.
#[derive(Clone)]
pub(super) struct PromptInput {
    pub(super) ids: Vec<TokenId>,
    /// How many of `ids` other prompts may share. [`Outcome::before`] is taken there if possible.
    pub(super) history: usize,
    pub(super) after: Option<Snapshot>,
    pub(super) gains: Option<DeltaGains>,
    /// Whether statistics of Δ are recorded.
    pub(super) record_ssm: bool,
    /// Later prompts may leave out a part of the reply, so the final snapshot keeps the state before it.
    pub(super) drops_thoughts: bool,
}

/// What to do after the prompt.
pub(super) enum Task {
    Write(Box<Reply>),
    /// Score these tokens by teacher forcing.
    Score {
        tokens: Vec<(TokenId, String)>,
        top: usize,
        /// Whether the last token is read as well, so that the caller can continue from there.
        keep_state: bool,
    },
}

impl Task {
    /// Maximum number of tokens after the prompt, and alternatives per token.
    pub(super) fn size(&self) -> (usize, usize) {
        match self {
            Self::Write(reply) => (reply.tokens_max(), reply.top()),
            Self::Score { tokens, top, .. } => (tokens.len(), *top),
        }
    }
}

/// The result of a request.
pub(super) struct Outcome {
    pub(super) tokens: Vec<TokenLogprob>,
    /// The end token that ended the reply, if any.
    pub(super) end: Option<TokenLogprob>,
    pub(super) finish: Finish,
    /// The budget of the thought was spent.
    pub(super) thought_spent: bool,
    pub(super) usage: Usage,
    pub(super) reading: PrefixReuse,
    pub(super) snapshot: Snapshot,
    pub(super) before: Option<Snapshot>,
    pub(super) ssm: Option<SsmStats>,
}

pub(super) struct Sequence<S> {
    model: Digest,
    ids: Vec<TokenId>,
    prompt: usize,
    /// How many of `ids` the state has read.
    read: usize,
    /// How many of the last `ids` are not read because the logits after them are not needed.
    unread_tail: usize,
    /// Shared with snapshots until the next write.
    state: Arc<S>,
    gains: Option<DeltaGains>,
    /// Accumulated Δ so far, and at the fork, if recorded.
    steps: Option<Steps>,
    steps_before: Option<Steps>,
    reading: PrefixReuse,
    cached: usize,
    /// The caller's snapshot that it started from; `None` if it started before the first token.
    origin: Option<Weak<S>>,
    /// How many of `ids` can be shared with sequences of the same origin and gains; `None` if Δ is recorded, because
    /// then every token must be read here.
    shared: Option<usize>,
    /// Positions where other sequences wait for a state.
    checkpoints: Vec<usize>,
    fork_at: usize,
    before: Option<Snapshot>,
    drops_thoughts: bool,
    thought_spent: bool,
    work: Work,
    /// Number of sampled tokens, the end token included.
    sampled: usize,
    /// Range of `ids` that the current pass reads.
    pass: Range<usize>,
}

enum Work {
    Write(Box<Reply>),
    /// Reads to the end of `ids` and scores the last ones, as many as there are texts.
    Read(ForcedTokens),
}

/// Tokens scored by teacher forcing.
struct ForcedTokens {
    finish: Finish,
    tokens: Vec<TokenLogprob>,
    end: Option<TokenLogprob>,
    /// Index of the next token to score, and the texts of it and the following tokens.
    from: usize,
    texts: std::vec::IntoIter<String>,
    top: usize,
}

impl<S: Clone + Send + Sync + 'static> Sequence<S> {
    /// Continues from the request's snapshot if possible, otherwise from `start`.
    pub(super) fn new(model: Digest, request: PreparedRequest, start: impl FnOnce() -> S) -> Self {
        let PreparedRequest { input, task } = request;
        let PromptInput { mut ids, history, after, gains, record_ssm, drops_thoughts } = input;
        let prompt = ids.len();
        let continues = after.is_some();
        let prefix = after.and_then(|snapshot| snapshot.downcast::<PrefixState<S>>());
        let prefix = prefix.filter(|prefix| prefix.model == model).and_then(|prefix| prefix.that_begins(&ids));
        let (cached, state, reading) = match &prefix {
            Some(prefix) => (prefix.ids.len(), Arc::clone(&prefix.state), PrefixReuse::Continued),
            None => (0, Arc::new(start()), if continues { PrefixReuse::Reread } else { PrefixReuse::Fresh }),
        };
        let mut unread_tail = 0;
        let work = match task {
            Task::Write(reply) => Work::Write(reply),
            Task::Score { tokens, top, keep_state } => {
                unread_tail = usize::from(!keep_state);
                let (continuation, texts): (Vec<_>, Vec<_>) = tokens.into_iter().unzip();
                ids.extend(continuation);
                let (finish, texts) = (Finish::Length, texts.into_iter());
                Work::Read(ForcedTokens { finish, tokens: Vec::new(), end: None, from: prompt, texts, top })
            }
        };
        let fork_at = history.max(cached).min(prompt);
        let mut sequence = Self {
            model,
            ids,
            prompt,
            read: cached,
            unread_tail,
            state,
            gains,
            steps: record_ssm.then(Steps::default),
            steps_before: None,
            reading,
            cached,
            origin: prefix.map(|prefix| Arc::downgrade(&prefix.state)),
            shared: (!record_ssm).then_some(history.min(prompt)),
            checkpoints: Vec::new(),
            fork_at,
            before: None,
            drops_thoughts,
            thought_spent: false,
            work,
            sampled: 0,
            pass: 0..0,
        };
        sequence.snapshot_at_fork();
        sequence
    }

    /// Number of tokens that have to be read before the next row is available.
    pub(super) fn unread(&self) -> usize {
        self.end() - self.read
    }

    /// End of the range of `ids` to read.
    fn end(&self) -> usize {
        self.ids.len() - self.unread_tail
    }

    /// The segment for the next pass: at most `most` tokens, at most `rows` of them with logits.
    pub(super) fn segment(&mut self, most: usize, rows: usize) -> Segment<'_, S> {
        let stops = self.checkpoints.iter().copied().chain([self.fork_at, self.end()]);
        let stop = stops.filter(|&at| at > self.read).min().unwrap_or(self.read);
        // The row at a token predicts the next one.
        let wanted = match &self.work {
            Work::Write(_) => self.ids.len() - 1..self.ids.len(),
            Work::Read(forced) => forced.from.saturating_sub(1)..forced.from.saturating_sub(1) + forced.texts.len(),
        };
        let most = most.min(wanted.start.saturating_sub(self.read).saturating_add(rows));
        self.pass = self.read..stop.min(self.read.saturating_add(most));
        let inside = |at: usize| at.clamp(self.pass.start, self.pass.end) - self.pass.start;
        let logits = inside(wanted.start)..inside(wanted.end);
        let queries = (0..logits.len()).map(|index| self.query(index)).collect();
        let ids = self.ids.get(self.pass.clone()).unwrap_or_default();
        Segment {
            ids,
            state: Arc::make_mut(&mut self.state),
            gains: self.gains.as_ref(),
            steps: self.steps.as_mut(),
            logits,
            queries,
        }
    }

    /// The query for the `index`th row from here on.
    fn query(&self, index: usize) -> LogitQuery {
        match &self.work {
            Work::Write(reply) => reply.query(&self.ids),
            Work::Read(forced) => {
                let id = self.ids.get(forced.from + index).copied().unwrap_or_default();
                LogitQuery { token: QueriedToken::Given(id), top: forced.top }
            }
        }
    }

    /// Whether nothing is left to do.
    pub(super) fn is_done(&self) -> bool {
        matches!(&self.work, Work::Read(forced) if forced.texts.len() == 0) && self.unread() == 0
    }

    /// Applies the answers for the rows of the pass.
    ///
    /// # Errors
    /// A message, if the model's output is not a distribution.
    pub(super) fn advance(&mut self, stats: impl Iterator<Item = Option<TokenStats>>) -> Result<(), String> {
        self.read = self.pass.end;
        self.snapshot_at_fork();
        for stats in stats {
            self.apply_stats(stats)?;
        }
        Ok(())
    }

    /// The state and query, if the row after the last read token can be had without reading: the sequence is at a
    /// snapshot.
    pub(super) fn pending_query(&self) -> Option<(Arc<S>, LogitQuery)> {
        let due = match &self.work {
            Work::Write(_) => self.unread() == 0,
            Work::Read(forced) => forced.from == self.read && forced.texts.len() > 0,
        };
        due.then(|| (Arc::clone(&self.state), self.query(0)))
    }

    /// Applies the answer for one row.
    ///
    /// # Errors
    /// A message, if the row is not a distribution.
    pub(super) fn apply_stats(&mut self, reading: Option<TokenStats>) -> Result<(), String> {
        match &mut self.work {
            Work::Write(reply) => {
                let reading = reading.ok_or_else(|| invalid_logits(self.read))?;
                self.sampled += 1;
                match reply.step(reading) {
                    Step::Token(id) => self.ids.push(id),
                    Step::End(finish, cut) => self.end_reply(finish, cut)?,
                }
            }
            Work::Read(forced) => {
                let text = forced.texts.next().unwrap_or_default();
                let reading = reading.ok_or_else(|| invalid_logits(forced.from))?;
                forced.tokens.push(reading.into_token(text));
                forced.from += 1;
            }
        }
        Ok(())
    }

    /// Tokens from index `from` on that may be sent to the listener. Tokens held back for stop texts are included once
    /// the reply is finished.
    pub(super) fn settled(&self, from: usize) -> &[TokenLogprob] {
        match &self.work {
            Work::Write(reply) => reply.tokens().get(from..reply.settled()).unwrap_or_default(),
            Work::Read(forced) if self.is_done() => forced.tokens.get(from..).unwrap_or_default(),
            Work::Read(_) => &[],
        }
    }

    /// Ends the reply after its first `count` tokens because the listener stopped it.
    pub(super) fn stop_after(&mut self, count: usize) -> Result<(), String> {
        match &mut self.work {
            Work::Write(_) => self.end_reply(Finish::Cancelled, ReplyCut { tokens: count, rest: String::new() }),
            // The reply had already ended, but the listener rejected some of its last tokens.
            Work::Read(forced) if count < forced.tokens.len() => {
                forced.tokens.truncate(count);
                (forced.finish, forced.end, forced.from) = (Finish::Cancelled, None, self.prompt + count);
                self.ids.truncate(self.prompt + count);
                self.rewind_to(self.prompt + count)
            }
            Work::Read(_) => Ok(()),
        }
    }

    /// The result, once [`is_done`](Self::is_done) is true.
    pub(super) fn finish<A: Architecture<State = S>>(self, model: &A) -> Outcome {
        let earlier = self.before.as_ref().filter(|_| self.drops_thoughts).and_then(Snapshot::downcast);
        let snapshot = self.snapshot_with(earlier);
        let ssm = self.steps.as_ref().and_then(|steps| model.ssm_stats(&self.state, steps, self.gains.as_ref()));
        let (tokens, end, finish) = match self.work {
            Work::Read(forced) => (forced.tokens, forced.end, forced.finish),
            Work::Write(reply) => (reply.into_tokens(usize::MAX), None, Finish::Length),
        };
        let read = if self.sampled == 0 { self.read } else { self.prompt };
        let usage =
            Usage { tokens_in: read as u64, tokens_out: self.sampled as u64, tokens_cached: self.cached as u64 };
        let thought_spent = self.thought_spent;
        Outcome { tokens, end, finish, thought_spent, usage, reading: self.reading, snapshot, before: self.before, ssm }
    }

    /// Ends generation and switches to reading the kept tokens that are still unread. If the state has read more than
    /// is kept, it is rewound to the fork.
    fn end_reply(&mut self, finish: Finish, cut: ReplyCut) -> Result<(), String> {
        let ReplyCut { tokens: cut, rest } = cut;
        let from = self.prompt + cut;
        let nothing = Vec::new().into_iter();
        let forced = ForcedTokens { finish, tokens: Vec::new(), end: None, from, texts: nothing, top: 0 };
        let Work::Write(mut reply) = std::mem::replace(&mut self.work, Work::Read(forced)) else { return Ok(()) };
        let (respelled, texts): (Vec<_>, Vec<_>) = reply.retokenize(&rest)?.into_iter().unzip();
        self.rewind_to(from)?;
        self.thought_spent = reply.has_spent_thought();
        let (top, end) = (reply.top(), reply.take_end());
        let tokens = reply.into_tokens(cut);
        self.ids.truncate(self.prompt);
        self.ids.extend(tokens.iter().filter_map(|token| token.id).chain(respelled));
        self.work = Work::Read(ForcedTokens { finish, tokens, end, from, texts: texts.into_iter(), top });
        Ok(())
    }

    /// Rewinds the state to the fork if it has read more than `from` tokens.
    fn rewind_to(&mut self, from: usize) -> Result<(), String> {
        if self.read > from {
            let prefix = self.before.as_ref().and_then(Snapshot::downcast::<PrefixState<S>>);
            let prefix = prefix.ok_or("its own snapshot is gone: this is a bug in the engine")?;
            (self.state, self.read) = (Arc::clone(&prefix.state), prefix.ids.len());
            self.steps.clone_from(&self.steps_before);
        }
        Ok(())
    }

    /// How many tokens the state has read.
    pub(super) fn read(&self) -> usize {
        self.read
    }

    /// Tokens that other prompts may share and the gains they are read under; `None` if it started from a caller's
    /// snapshot.
    pub(super) fn shareable_prefix(&self) -> Option<(&[TokenId], Option<&DeltaGains>)> {
        self.shared().filter(|_| self.origin.is_none()).map(|shared| (shared, self.gains.as_ref()))
    }

    fn shared(&self) -> Option<&[TokenId]> {
        self.ids.get(..self.shared?)
    }

    /// The last position, not yet read here, at which `other` can adopt this sequence's state.
    pub(super) fn shared_checkpoint(&self, other: &Self) -> Option<usize> {
        let alike = match (&self.origin, &other.origin) {
            (Some(own), Some(other)) => own.ptr_eq(other),
            (own, other) => own.is_none() && other.is_none(),
        };
        let parts = common_prefix_len(self.shared()?, other.shared()?);
        // A snapshot is taken at the fork in any case.
        let at_fork = self.fork_at <= parts && parts - self.fork_at < PREFIX_TOKENS_MIN;
        let at = if at_fork { self.fork_at } else { parts };
        (alike && self.gains == other.gains && at > self.read).then_some(at)
    }

    /// Requests a state at position `at`, which is not yet read.
    pub(super) fn add_checkpoint(&mut self, at: usize) {
        if !self.checkpoints.contains(&at) {
            self.checkpoints.push(at);
        }
    }

    /// Adopts the state of a sequence that has read the same tokens, if it has read more.
    pub(super) fn adopt(&mut self, prefix: &PrefixState<S>) {
        if prefix.ids.len() > self.read {
            (self.state, self.read, self.cached) = (Arc::clone(&prefix.state), prefix.ids.len(), prefix.ids.len());
            self.fork_at = self.fork_at.max(self.read);
            self.checkpoints.retain(|&at| at > prefix.ids.len());
            self.snapshot_at_fork();
        }
    }

    /// The state to publish at the position just reached, if any.
    pub(super) fn prefix_to_publish(&mut self) -> Option<Arc<PrefixState<S>>> {
        let read = self.read;
        let requested = self.checkpoints.extract_if(.., |at| *at == read).next().is_some();
        let is_shareable = || {
            (PREFIX_TOKENS_MIN..=self.shareable_prefix().map_or(0, |(shareable_prefix, _)| shareable_prefix.len()))
                .contains(&read)
        };
        match self.before.as_ref().filter(|before| before.tokens() == read) {
            Some(before) if requested || is_shareable() => before.downcast(),
            None if requested => self.snapshot().downcast(),
            _ => None,
        }
    }

    /// Takes the snapshot before the reply when its position is reached.
    fn snapshot_at_fork(&mut self) {
        if self.read == self.fork_at && self.before.is_none() {
            self.before = Some(self.snapshot());
            self.steps_before.clone_from(&self.steps);
        }
    }

    /// A snapshot of what has been read so far.
    fn snapshot(&self) -> Snapshot {
        self.snapshot_with(None)
    }

    fn snapshot_with(&self, earlier: Option<Arc<PrefixState<S>>>) -> Snapshot {
        let (ids, _) = self.ids.split_at(self.read);
        let state = Arc::clone(&self.state);
        Snapshot::new(PrefixState { model: self.model, ids: ids.into(), state, earlier }, self.read)
    }
}

/// Length of the common prefix of `a` and `b`.
pub(super) fn common_prefix_len(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn invalid_logits(at: usize) -> String {
    format!(
        "its output after {at} tokens is not a probability distribution; the weights are damaged, or the gains on Δ are too large"
    )
}
