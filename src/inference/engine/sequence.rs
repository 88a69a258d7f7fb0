//! One request on its way through the engine: what it has read, what it still has to, and what it is for.
//!
//! Its `ids` are the prompt and then what was written or is to be scored. The state has read some of them; a pass reads
//! more; rows of logits come back for those that are to be judged or continued. A snapshot is taken on the way, before
//! the reply, and one at the end, when everything kept has been read.

use std::ops::Range;
use std::sync::{Arc, Weak};

use super::reply::{Kept, Reply, Step};
use super::row::{Entry, RowAsk, RowReading};
use super::steps::Steps;
use super::{Architecture, Segment};
use crate::foundation::base::Digest;
use crate::foundation::base::limits::PREFIX_TOKENS_MIN;
use crate::foundation::chat::{DeltaGains, Finish, Reading, Snapshot, SsmReading, TokenId, TokenLogprob, Usage};

/// What a snapshot of a local model holds. The tokens after it may be read under other gains than those before it.
pub(super) struct Past<S> {
    model: Digest,
    ids: Box<[TokenId]>,
    state: Arc<S>,
}

impl<S> Past<S> {
    /// What has been read.
    pub(super) fn ids(&self) -> &[TokenId] {
        &self.ids
    }
}

/// What is asked of the engine.
pub(super) struct Prepared {
    pub(super) given: Given,
    pub(super) task: Task,
}

/// What stands before the task.
#[derive(Clone)]
pub(super) struct Given {
    pub(super) ids: Vec<TokenId>,
    /// How many of `ids` other prompts may share: where [`Outcome::before`] is taken, if it can be.
    pub(super) history: usize,
    pub(super) after: Option<Snapshot>,
    pub(super) gains: Option<DeltaGains>,
    /// Whether somebody looks on.
    pub(super) readings: bool,
}

/// What to do after the prompt.
pub(super) enum Task {
    Write(Box<Reply>),
    /// Read these tokens and tell how likely each was.
    Score {
        tokens: Vec<(TokenId, String)>,
        top: usize,
        /// Whether the last of them is read as well, for somebody to go on from there.
        goes_on: bool,
    },
}

impl Task {
    /// How many tokens come after the prompt at most, each with how many alternatives.
    pub(super) fn size(&self) -> (usize, usize) {
        match self {
            Self::Write(reply) => (reply.tokens_max(), reply.top()),
            Self::Score { tokens, top, .. } => (tokens.len(), *top),
        }
    }
}

/// What became of a request.
pub(super) struct Outcome {
    pub(super) tokens: Vec<TokenLogprob>,
    /// The token that ended the reply, if one did.
    pub(super) end: Option<TokenLogprob>,
    pub(super) finish: Finish,
    pub(super) usage: Usage,
    pub(super) reading: Reading,
    pub(super) snapshot: Snapshot,
    pub(super) before: Option<Snapshot>,
    pub(super) ssm: Option<SsmReading>,
}

pub(super) struct Sequence<S> {
    model: Digest,
    ids: Vec<TokenId>,
    prompt: usize,
    /// How many of `ids` the state has read.
    read: usize,
    /// How many of the last ones need no reading, since nobody asks what comes after them.
    idle: usize,
    /// Shared with snapshots until it moves on.
    state: Arc<S>,
    gains: Option<DeltaGains>,
    /// The steps so far, and those up to the fork, if somebody looks on.
    steps: Option<Steps>,
    steps_before: Option<Steps>,
    reading: Reading,
    cached: usize,
    /// Where it began: the state of a caller's snapshot, else before the first token.
    origin: Option<Weak<S>>,
    /// How many of `ids` others may share that began there under the same gains; `None` where somebody looks on, who sees
    /// every token read.
    shared: Option<usize>,
    /// Places on the way where others wait for a state.
    marks: Vec<usize>,
    fork_at: usize,
    before: Option<Snapshot>,
    work: Work,
    /// Tokens that the model drew, the one that ended the reply included.
    drawn: usize,
    /// Which of `ids` the pass in progress reads.
    pass: Range<usize>,
}

enum Work {
    Write(Box<Reply>),
    /// Reads to the end of `ids`, judging as many of the last ones as there are texts for.
    Read(Judged),
}

/// Tokens judged by teacher forcing.
struct Judged {
    finish: Finish,
    tokens: Vec<TokenLogprob>,
    end: Option<TokenLogprob>,
    /// The place of the first token still to be judged, and the texts of it and those after it.
    from: usize,
    texts: std::vec::IntoIter<String>,
    top: usize,
}

impl<S: Clone + Send + Sync + 'static> Sequence<S> {
    /// A sequence that continues from the request's snapshot if it can, and from `start` otherwise.
    pub(super) fn new(model: Digest, request: Prepared, start: impl FnOnce() -> S) -> Self {
        let Prepared { given: Given { mut ids, history, after, gains, readings }, task } = request;
        let prompt = ids.len();
        let continues = after.is_some();
        let past = after.and_then(|snapshot| snapshot.downcast::<Past<S>>());
        let past = past.filter(|past| past.model == model && ids.starts_with(&past.ids));
        let (cached, state, reading) = match &past {
            Some(past) => (past.ids.len(), Arc::clone(&past.state), Reading::Continued),
            None => (0, Arc::new(start()), if continues { Reading::Reread } else { Reading::Fresh }),
        };
        let mut idle = 0;
        let work = match task {
            Task::Write(reply) => Work::Write(reply),
            Task::Score { tokens, top, goes_on } => {
                idle = usize::from(!goes_on);
                let (continuation, texts): (Vec<_>, Vec<_>) = tokens.into_iter().unzip();
                ids.extend(continuation);
                let (finish, texts) = (Finish::Length, texts.into_iter());
                Work::Read(Judged { finish, tokens: Vec::new(), end: None, from: prompt, texts, top })
            }
        };
        let fork_at = history.max(cached).min(prompt);
        let mut sequence = Self {
            model,
            ids,
            prompt,
            read: cached,
            idle,
            state,
            gains,
            steps: readings.then(Steps::default),
            steps_before: None,
            reading,
            cached,
            origin: past.map(|past| Arc::downgrade(&past.state)),
            shared: (!readings).then_some(history.min(prompt)),
            marks: Vec::new(),
            fork_at,
            before: None,
            work,
            drawn: 0,
            pass: 0..0,
        };
        sequence.remember();
        sequence
    }

    /// Tokens to be read before anything else can happen.
    pub(super) fn unread(&self) -> usize {
        self.end() - self.read
    }

    /// Where its reading ends.
    fn end(&self) -> usize {
        self.ids.len() - self.idle
    }

    /// Plans to read up to `most` tokens, up to `rows` of them with a row of logits, and is what they are.
    pub(super) fn segment(&mut self, most: usize, rows: usize) -> Segment<'_, S> {
        let stops = self.marks.iter().copied().chain([self.fork_at, self.end()]);
        let stop = stops.filter(|&at| at > self.read).min().unwrap_or(self.read);
        // The row of a token tells of the one after it.
        let wanted = match &self.work {
            Work::Write(_) => self.ids.len() - 1..self.ids.len(),
            Work::Read(judged) => judged.from.saturating_sub(1)..judged.from.saturating_sub(1) + judged.texts.len(),
        };
        let most = most.min(wanted.start.saturating_sub(self.read).saturating_add(rows));
        self.pass = self.read..stop.min(self.read.saturating_add(most));
        let inside = |at: usize| at.clamp(self.pass.start, self.pass.end) - self.pass.start;
        let logits = inside(wanted.start)..inside(wanted.end);
        let asks = (0..logits.len()).map(|index| self.ask(index)).collect();
        let ids = self.ids.get(self.pass.clone()).unwrap_or_default();
        Segment {
            ids,
            state: Arc::make_mut(&mut self.state),
            gains: self.gains.as_ref(),
            steps: self.steps.as_mut(),
            logits,
            asks,
        }
    }

    /// What is asked of the row number `index` from now on.
    fn ask(&self, index: usize) -> RowAsk {
        match &self.work {
            Work::Write(reply) => reply.ask(&self.ids),
            Work::Read(judged) => {
                let id = self.ids.get(judged.from + index).copied().unwrap_or_default();
                RowAsk { entry: Entry::Given(id), top: judged.top }
            }
        }
    }

    /// Whether nothing is left to do.
    pub(super) fn is_done(&self) -> bool {
        matches!(&self.work, Work::Read(judged) if judged.texts.len() == 0) && self.unread() == 0
    }

    /// Takes what was read of the rows of the pass.
    ///
    /// # Errors
    /// In words, when the model's output makes no sense.
    pub(super) fn advance(&mut self, readings: impl Iterator<Item = Option<RowReading>>) -> Result<(), String> {
        self.read = self.pass.end;
        self.remember();
        for reading in readings {
            self.judge(reading)?;
        }
        Ok(())
    }

    /// Whether the row after the last token read is due without reading anything: a snapshot stands just there. With
    /// what is asked of it.
    pub(super) fn stands_at_row(&self) -> Option<(Arc<S>, RowAsk)> {
        let due = match &self.work {
            Work::Write(_) => self.unread() == 0,
            Work::Read(judged) => judged.from == self.read && judged.texts.len() > 0,
        };
        due.then(|| (Arc::clone(&self.state), self.ask(0)))
    }

    /// Goes on with what was read of one row.
    ///
    /// # Errors
    /// In words, when the row made no sense.
    pub(super) fn judge(&mut self, reading: Option<RowReading>) -> Result<(), String> {
        match &mut self.work {
            Work::Write(reply) => {
                let reading = reading.ok_or_else(|| senseless(self.read))?;
                self.drawn += 1;
                match reply.step(reading) {
                    Step::Token(id) => self.ids.push(id),
                    Step::End(finish, kept) => self.settle(finish, kept)?,
                }
            }
            Work::Read(judged) => {
                let text = judged.texts.next().unwrap_or_default();
                let reading = reading.ok_or_else(|| senseless(judged.from))?;
                judged.tokens.push(reading.into_token(text));
                judged.from += 1;
            }
        }
        Ok(())
    }

    /// Tokens of the reply that a listener may have, from number `heard` on: at its end those held back until then.
    pub(super) fn settled(&self, heard: usize) -> &[TokenLogprob] {
        match &self.work {
            Work::Write(reply) => reply.tokens().get(heard..reply.settled()).unwrap_or_default(),
            Work::Read(judged) if self.is_done() => judged.tokens.get(heard..).unwrap_or_default(),
            Work::Read(_) => &[],
        }
    }

    /// Ends the reply after its first `count` tokens because the listener said so.
    pub(super) fn stop_after(&mut self, count: usize) -> Result<(), String> {
        match &mut self.work {
            Work::Write(_) => self.settle(Finish::Asked, Kept { tokens: count, rest: String::new() }),
            // It had ended by itself, but not before a token that the listener does not want.
            Work::Read(judged) if count < judged.tokens.len() => {
                judged.tokens.truncate(count);
                (judged.finish, judged.end, judged.from) = (Finish::Asked, None, self.prompt + count);
                self.ids.truncate(self.prompt + count);
                self.go_back_to(self.prompt + count)
            }
            Work::Read(_) => Ok(()),
        }
    }

    /// What became of it, once it [`is_done`](Self::is_done).
    pub(super) fn finish<A: Architecture<State = S>>(self, model: &A) -> Outcome {
        let snapshot = self.snapshot();
        let ssm = self.steps.as_ref().and_then(|steps| model.look(&self.state, steps, self.gains.as_ref()));
        let (tokens, end, finish) = match self.work {
            Work::Read(judged) => (judged.tokens, judged.end, judged.finish),
            Work::Write(reply) => (reply.into_tokens(usize::MAX), None, Finish::Length),
        };
        let read = if self.drawn == 0 { self.read } else { self.prompt };
        let usage = Usage { tokens_in: read as u64, tokens_out: self.drawn as u64, tokens_cached: self.cached as u64 };
        Outcome { tokens, end, finish, usage, reading: self.reading, snapshot, before: self.before, ssm }
    }

    /// From writing to reading what is left of what is kept. Where the state has gone further than that, it goes back
    /// to the fork.
    fn settle(&mut self, finish: Finish, kept: Kept) -> Result<(), String> {
        let Kept { tokens: kept, rest } = kept;
        let from = self.prompt + kept;
        let nothing = Vec::new().into_iter();
        let judged = Judged { finish, tokens: Vec::new(), end: None, from, texts: nothing, top: 0 };
        let Work::Write(mut reply) = std::mem::replace(&mut self.work, Work::Read(judged)) else { return Ok(()) };
        let (respelled, texts): (Vec<_>, Vec<_>) = reply.respell(&rest)?.into_iter().unzip();
        self.go_back_to(from)?;
        let (top, end) = (reply.top(), reply.take_end());
        let tokens = reply.into_tokens(kept);
        self.ids.truncate(self.prompt);
        self.ids.extend(tokens.iter().filter_map(|token| token.id).chain(respelled));
        self.work = Work::Read(Judged { finish, tokens, end, from, texts: texts.into_iter(), top });
        Ok(())
    }

    /// Where the state has read more than `from` tokens, it goes back to the fork.
    fn go_back_to(&mut self, from: usize) -> Result<(), String> {
        if self.read > from {
            let past = self.before.as_ref().and_then(Snapshot::downcast::<Past<S>>);
            let past = past.ok_or("its own snapshot is gone: this is a bug in the engine")?;
            (self.state, self.read) = (Arc::clone(&past.state), past.ids.len());
            self.steps.clone_from(&self.steps_before);
        }
        Ok(())
    }

    /// How many tokens the state has read.
    pub(super) fn read(&self) -> usize {
        self.read
    }

    /// What other prompts may share, and the gains under which it is read; `None` where a caller's snapshot began it.
    pub(super) fn opening(&self) -> Option<(&[TokenId], Option<&DeltaGains>)> {
        self.shared().filter(|_| self.origin.is_none()).map(|shared| (shared, self.gains.as_ref()))
    }

    fn shared(&self) -> Option<&[TokenId]> {
        self.ids.get(..self.shared?)
    }

    /// The last place that this one is yet to come to and at which `other` may take over its state.
    pub(super) fn meets(&self, other: &Self) -> Option<usize> {
        let alike = match (&self.origin, &other.origin) {
            (Some(own), Some(other)) => own.ptr_eq(other),
            (own, other) => own.is_none() && other.is_none(),
        };
        let parts = common(self.shared()?, other.shared()?);
        // A state is left at the fork anyway.
        let at_fork = self.fork_at <= parts && parts - self.fork_at < PREFIX_TOKENS_MIN;
        let at = if at_fork { self.fork_at } else { parts };
        (alike && self.gains == other.gains && at > self.read).then_some(at)
    }

    /// Asks for a state at `at`, which it is yet to come to.
    pub(super) fn mark(&mut self, at: usize) {
        if !self.marks.contains(&at) {
            self.marks.push(at);
        }
    }

    /// Takes over the state of another that has read the same, if that saves reading.
    pub(super) fn take_over(&mut self, past: &Past<S>) {
        if past.ids.len() > self.read {
            (self.state, self.read, self.cached) = (Arc::clone(&past.state), past.ids.len(), past.ids.len());
            self.fork_at = self.fork_at.max(self.read);
            self.marks.retain(|&at| at > past.ids.len());
            self.remember();
        }
    }

    /// The state for others at the place that it has just come to, if there is to be one.
    pub(super) fn landmark(&mut self) -> Option<Arc<Past<S>>> {
        let read = self.read;
        let promised = self.marks.extract_if(.., |at| *at == read).next().is_some();
        let worth_keeping =
            || (PREFIX_TOKENS_MIN..=self.opening().map_or(0, |(opening, _)| opening.len())).contains(&read);
        match self.before.as_ref().filter(|before| before.tokens() == read) {
            Some(before) if promised || worth_keeping() => before.downcast(),
            None if promised => self.snapshot().downcast(),
            _ => None,
        }
    }

    /// Takes the snapshot before the reply when it is time.
    fn remember(&mut self) {
        if self.read == self.fork_at && self.before.is_none() {
            self.before = Some(self.snapshot());
            self.steps_before.clone_from(&self.steps);
        }
    }

    /// What has been read so far, as a value.
    fn snapshot(&self) -> Snapshot {
        let (ids, _) = self.ids.split_at(self.read);
        Snapshot::new(Past { model: self.model, ids: ids.into(), state: Arc::clone(&self.state) }, self.read)
    }
}

/// How many tokens `a` and `b` begin with alike.
pub(super) fn common(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn senseless(at: usize) -> String {
    format!("its output after {at} tokens is no distribution; its weights are damaged, or the gains on Δ too large")
}
