//! The engine thread. It owns the model. Each step is one forward pass over all ready sequences: a generating sequence
//! has one row in it, prefilling sequences share the remaining rows. The result of a sequence does not depend on the
//! other sequences in the batch.
//!
//! A token listener runs on its caller's task: tokens are sent there, and the sequence waits for the reply while other
//! sequences continue. If the caller drops its request, the sequence is removed.
//!
//! A prefix shared by several prompts is read once. The state at its end is cached (`prefix.rs`). A prompt that shares
//! a prefix with one that is still being read waits until that one reaches the point where they diverge. A sequence
//! waits only for sequences that arrived earlier, so there is no deadlock. Sequences that continue from the same
//! snapshot share in the same way.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::thread;

use rayon::{ThreadPool, ThreadPoolBuilder};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::admission::{Admission, AdmissionPermit, Budget};
use super::architecture::Architecture;
use super::error::LoadError;
use super::logit_query::Scratch;
use super::prefix::PrefixCache;
use super::sequence::{Outcome, PrefixState, PreparedRequest, Sequence};
use super::spin_pool::with_spinning_pool;
use crate::foundation::base::Digest;
use crate::foundation::base::limits::{LOGITS_BYTES_MAX, PREFIX_TOKENS_MIN};
use crate::foundation::chat::TokenLogprob;

/// Messages to the engine thread. The channel is unbounded: the number of jobs is limited by admission permits.
pub(super) enum Message {
    /// Jobs that were submitted together start in the same pass.
    Start(Vec<Job>),
    /// The listener of job `key` has processed the tokens that it was sent.
    Listened { key: u64, answer: Answer },
    /// The caller of job `key` has dropped its request.
    CallerLeft { key: u64 },
}

/// A request and the channel for its results.
pub(super) struct Job {
    pub(super) key: u64,
    pub(super) request: PreparedRequest,
    /// Send tokens as they are generated, and wait for [`Message::Listened`] after each batch.
    pub(super) listens: bool,
    pub(super) events: UnboundedSender<Event>,
    pub(super) permit: AdmissionPermit,
}

/// A listener's reply.
pub(super) enum Answer {
    Continue,
    /// The listener accepts this many of the tokens it was sent and stops the generation.
    StopAfter(usize),
}

/// Sent to the caller.
pub(super) enum Event {
    Tokens(Vec<TokenLogprob>),
    Done(Result<Box<Outcome>, String>),
}

/// Handle of an engine thread.
pub(super) struct Engine {
    pub(super) admission: Admission,
    pub(super) inbox: UnboundedSender<Message>,
}

/// Starts the engine thread for `model`. The thread ends when the last sender is dropped.
pub(super) fn start<A: Architecture>(
    model: A,
    digest: Digest,
    threads: usize,
    budget: Budget,
) -> Result<Engine, LoadError> {
    let start = |error: &dyn std::error::Error| LoadError::Start(error.to_string());
    let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|index| format!("loom-pool-{index}"));
    let pool: ThreadPool = pool.build().map_err(|error| start(&error))?;
    let model = Arc::new(model);
    let admission = {
        let model = Arc::clone(&model);
        let budget = Budget { state_bytes: model.states_bytes().unwrap_or(budget.state_bytes), ..budget };
        Admission::new(budget, model.sequences_max(), move |tokens| model.state_bytes(tokens))
    };
    let mut scheduler = Scheduler::new(model, digest, budget.prefix_bytes);
    let (sender, mut inbox) = unbounded_channel();
    let thread = thread::Builder::new().name("loom-engine".to_owned());
    thread.spawn(move || pool.install(|| scheduler.run(&mut inbox))).map_err(|error| start(&error))?;
    Ok(Engine { admission, inbox: sender })
}

struct Scheduler<A: Architecture> {
    model: Arc<A>,
    digest: Digest,
    /// In order of arrival.
    active: Vec<Active<A::State>>,
    prefixes: PrefixCache<A::State>,
    scratch: Scratch,
}

/// An active job.
struct Active<S> {
    key: u64,
    sequence: Sequence<S>,
    events: UnboundedSender<Event>,
    listens: bool,
    /// Number of tokens sent to the listener, and whether its reply is outstanding.
    sent: usize,
    awaits_listener: bool,
    /// The job whose state this one will adopt, and at which token.
    awaits_prefix: Option<(u64, usize)>,
    failed: Option<String>,
    /// Released when the job is done.
    _permit: AdmissionPermit,
}

impl<A: Architecture> Scheduler<A> {
    fn new(model: Arc<A>, digest: Digest, prefix_bytes: u64) -> Self {
        let prefixes = PrefixCache::new(usize::try_from(prefix_bytes).unwrap_or(usize::MAX));
        Self { model, digest, active: Vec::new(), prefixes, scratch: Scratch::default() }
    }

    /// Runs until all senders are dropped and all jobs are answered.
    fn run(&mut self, inbox: &mut UnboundedReceiver<Message>) {
        loop {
            if self.active.iter().all(|active| active.awaits_listener) {
                match inbox.blocking_recv() {
                    Some(message) => self.handle(message),
                    None => return,
                }
            }
            while let Ok(message) = inbox.try_recv() {
                self.handle(message);
            }
            with_spinning_pool(|| self.step());
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Start(jobs) => {
                // Jobs submitted together share one prompt, which is read once however short it is.
                let least = if jobs.len() > 1 { 1 } else { PREFIX_TOKENS_MIN };
                for Job { key, request, listens, events, permit } in jobs {
                    let sequence = Sequence::new(self.digest, request, || self.model.start());
                    self.active.push(Active {
                        key,
                        sequence,
                        events,
                        listens,
                        sent: 0,
                        awaits_listener: false,
                        awaits_prefix: None,
                        failed: None,
                        _permit: permit,
                    });
                    self.match_prefix(self.active.len() - 1, least);
                }
            }
            Message::Listened { key, answer } => {
                if let Some(active) = self.active.iter_mut().find(|active| active.key == key) {
                    active.awaits_listener = false;
                    if let Answer::StopAfter(count) = answer {
                        active.failed = active.sequence.stop_after(count).err();
                    }
                }
            }
            Message::CallerLeft { key } => {
                self.active.retain(|active| active.key != key);
                self.retry_waiting();
            }
        }
    }

    /// Looks for a cached prefix of job `index`, or for an earlier job that is about to read one, that saves at least
    /// `least` tokens.
    fn match_prefix(&mut self, index: usize, least: usize) {
        let Some((earlier, [active, ..])) = self.active.split_at_mut_checked(index) else { return };
        if !self.prefixes.is_enabled() {
            return;
        }
        let mut common = 0;
        if let Some((shareable_prefix, gains)) = active.sequence.shareable_prefix() {
            let known = self.prefixes.longest(shareable_prefix, gains);
            common = self.prefixes.common_len(shareable_prefix, gains);
            if let Some(prefix) = known {
                active.sequence.adopt(&prefix);
            }
        }
        let worth = active.sequence.read() + least;
        let shared_checkpoint =
            earlier.iter_mut().filter_map(|other| Some((other.sequence.shared_checkpoint(&active.sequence)?, other)));
        // Among jobs with the longest common prefix choose the earliest: the later ones wait for it themselves.
        match shared_checkpoint.rev().max_by_key(|(at, _)| *at) {
            Some((at, other)) if at >= worth => {
                other.sequence.add_checkpoint(at);
                active.awaits_prefix = Some((other.key, at));
            }
            // Two prompts share this prefix now; cache it for a third.
            _ if common >= worth => active.sequence.add_checkpoint(common),
            _ => {}
        }
    }

    /// Passes a state on to the jobs that wait for it and caches it for later ones.
    fn publish_prefix(&mut self, key: u64, prefix: &Arc<PrefixState<A::State>>) {
        let at = prefix.ids().len();
        for waiting in self.active.iter_mut().filter(|active| active.awaits_prefix == Some((key, at))) {
            waiting.awaits_prefix = None;
            waiting.sequence.adopt(prefix);
        }
        let reader = self.active.iter().find(|active| active.key == key);
        if let Some((_, gains)) = reader.and_then(|active| active.sequence.shareable_prefix()) {
            let bytes = self.model.state_bytes(at) + size_of_val(prefix.ids());
            self.prefixes.insert(Arc::clone(prefix), gains, bytes);
        }
    }

    /// Finds another source for jobs whose awaited state will not be produced any more.
    fn retry_waiting(&mut self) {
        for index in 0..self.active.len() {
            let Some((key, at)) = self.active.get(index).and_then(|active| active.awaits_prefix) else { continue };
            let will_publish = |active: &Active<A::State>| active.key == key && active.sequence.read() < at;
            if !self.active.iter().any(will_publish) {
                if let Some(active) = self.active.get_mut(index) {
                    active.awaits_prefix = None;
                }
                self.match_prefix(index, PREFIX_TOKENS_MIN);
            }
        }
    }

    /// Runs one pass over everything that is ready.
    fn step(&mut self) {
        self.query_snapshots();
        let ready = |active: &&mut Active<A::State>| active.is_ready() && active.sequence.unread() > 0;
        let mut ready: Vec<_> = self.active.iter_mut().filter(ready).collect();
        let reading = ready.iter().filter(|active| active.sequence.unread() > 1).count();
        let share = (self.model.pass_tokens_max().saturating_sub(ready.len()) / reading.max(1)).max(1);
        // The rows of logits per pass are bounded: scoring a long text takes more passes instead.
        let rows = LOGITS_BYTES_MAX / size_of::<f32>() / self.model.vocabulary().max(1);
        let rows = (rows.saturating_sub(ready.len()) / reading.max(1)).max(1);
        let mut batch: Vec<_> = ready.iter_mut().map(|active| active.sequence.segment(share, rows)).collect();
        let stats = if batch.is_empty() { Vec::new() } else { self.model.read(&mut batch, &mut self.scratch) };
        let wanted: Vec<_> = batch.iter().map(|segment| segment.logits.len()).collect();
        drop(batch);
        let fault = self.model.fault();
        let mut stats = stats.into_iter();
        let mut published = Vec::new();
        for (active, wanted) in ready.iter_mut().zip(wanted) {
            let mine: Vec<_> = stats.by_ref().take(wanted).collect();
            active.failed = fault.clone().or_else(|| active.sequence.advance(mine.into_iter()).err());
            active.send_tokens();
            published.extend(active.sequence.prefix_to_publish().map(|prefix| (active.key, prefix)));
        }
        for (key, prefix) in published {
            self.publish_prefix(key, &prefix);
        }
        self.answer_finished();
        self.retry_waiting();
    }

    /// Queries the logits at snapshots, without reading a token. Forks of one snapshot share the row.
    fn query_snapshots(&mut self) {
        let ready = self.active.iter_mut().filter(|active| active.is_ready());
        let pending =
            ready.filter_map(|active| active.sequence.pending_query().map(|(state, query)| (active, state, query)));
        let mut pending: Vec<_> = pending.collect();
        for forks in pending.chunk_by_mut(|(_, one, _), (_, other, _)| Arc::ptr_eq(one, other)) {
            let Some((_, state, _)) = forks.first() else { continue };
            let queries: Vec<_> = forks.iter().map(|(_, _, query)| query).collect();
            let answers = self.model.read_next(state, &queries, &mut self.scratch);
            let fault = self.model.fault();
            for ((active, ..), answer) in forks.iter_mut().zip(answers) {
                active.failed = fault.clone().or_else(|| active.sequence.apply_stats(answer).err());
                active.send_tokens();
            }
        }
    }

    /// Sends results of finished jobs and removes the jobs.
    fn answer_finished(&mut self) {
        for active in self.active.extract_if(.., |active| active.is_finished()) {
            let outcome = match active.failed {
                Some(why) => Err(why),
                None => Ok(Box::new(active.sequence.finish(&*self.model))),
            };
            // The receiver may be gone; then the result is dropped.
            let _ = active.events.send(Event::Done(outcome));
        }
    }
}

impl<S: Clone + Send + Sync + 'static> Active<S> {
    /// Whether it waits for nothing.
    fn is_ready(&self) -> bool {
        !self.awaits_listener && self.awaits_prefix.is_none() && self.failed.is_none()
    }

    /// Whether its result can be sent.
    fn is_finished(&self) -> bool {
        self.failed.is_some() || (!self.awaits_listener && self.awaits_prefix.is_none() && self.sequence.is_done())
    }

    /// Sends new tokens to the listener and waits for its reply.
    fn send_tokens(&mut self) {
        let tokens = self.sequence.settled(self.sent);
        if self.listens && self.failed.is_none() && !tokens.is_empty() {
            let tokens = tokens.to_vec();
            self.sent += tokens.len();
            self.awaits_listener = self.events.send(Event::Tokens(tokens)).is_ok();
        }
    }
}
