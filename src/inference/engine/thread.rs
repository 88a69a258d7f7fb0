//! The engine thread: it owns the model, and every step is one forward pass over all sequences that can go on. A
//! sequence that writes has one row in it; those that read share the rest. What a sequence gives does not depend on
//! the company it had.
//!
//! A listener lives on its caller's task: its tokens go there and the sequence waits for the answer, while the others
//! go on. A caller that leaves takes its sequence along.

use std::thread;

use rayon::{ThreadPool, ThreadPoolBuilder};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::sequence::{Outcome, Prepared, Sequence};
use super::{Architecture, LoadError};
use crate::foundation::base::Digest;
use crate::foundation::base::limits::PASS_TOKENS_MAX;
use crate::foundation::chat::TokenLogprob;

/// What the engine is told. The channel needs no bound of its own: every job holds a place, and places are counted.
pub(super) enum Message {
    Start(Job),
    /// The listener of job `key` has heard what it was sent.
    Heard {
        key: u64,
        answer: Answer,
    },
    /// The caller of job `key` no longer waits.
    Left {
        key: u64,
    },
}

/// A request and where its answers go.
pub(super) struct Job {
    pub(super) key: u64,
    pub(super) request: Prepared,
    /// Tokens are to be sent as they come, each time awaiting [`Message::Heard`].
    pub(super) listens: bool,
    pub(super) events: UnboundedSender<Event>,
    pub(super) place: OwnedSemaphorePermit,
}

/// A listener's answer.
pub(super) enum Answer {
    Continue,
    /// It heard this many of the tokens it was sent and wants no more.
    StopAfter(usize),
}

/// What a caller is told.
pub(super) enum Event {
    Tokens(Vec<TokenLogprob>),
    Done(Result<Outcome, String>),
}

/// Starts the thread of `model`. It ends when the last sender is gone.
pub(super) fn start<A: Architecture>(
    model: A,
    digest: Digest,
    threads: usize,
) -> Result<UnboundedSender<Message>, LoadError> {
    let start = |error: &dyn std::error::Error| LoadError::Start(error.to_string());
    let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|index| format!("loom-pool-{index}"));
    let pool: ThreadPool = pool.build().map_err(|error| start(&error))?;
    let (sender, inbox) = unbounded_channel();
    let owner = thread::Builder::new().name("loom-engine".to_owned());
    owner
        .spawn(move || {
            let owner = Owner { model, digest, active: Vec::new(), logits: Vec::new() };
            pool.install(|| owner.run(inbox));
        })
        .map_err(|error| start(&error))?;
    Ok(sender)
}

struct Owner<A: Architecture> {
    model: A,
    digest: Digest,
    active: Vec<Active<A::State>>,
    logits: Vec<f32>,
}

/// A job at work.
struct Active<S> {
    key: u64,
    sequence: Sequence<S>,
    events: UnboundedSender<Event>,
    listens: bool,
    /// How many tokens the listener was sent, and whether its answer is due.
    sent: usize,
    waits: bool,
    failed: Option<String>,
    /// Held until the job is done.
    _place: OwnedSemaphorePermit,
}

impl<A: Architecture> Owner<A> {
    fn run(mut self, mut inbox: UnboundedReceiver<Message>) {
        loop {
            if self.active.iter().all(|active| active.waits) {
                match inbox.blocking_recv() {
                    Some(message) => self.take(message),
                    None => return,
                }
            }
            while let Ok(message) = inbox.try_recv() {
                self.take(message);
            }
            self.step();
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Start(Job { key, request, listens, events, place }) => {
                let sequence = Sequence::new(self.digest, request, || self.model.start());
                self.active.push(Active {
                    key,
                    sequence,
                    events,
                    listens,
                    sent: 0,
                    waits: false,
                    failed: None,
                    _place: place,
                });
            }
            Message::Heard { key, answer } => {
                if let Some(active) = self.active.iter_mut().find(|active| active.key == key) {
                    active.waits = false;
                    if let Answer::StopAfter(count) = answer {
                        active.failed = active.sequence.stop_after(count).err();
                    }
                }
            }
            Message::Left { key } => self.active.retain(|active| active.key != key),
        }
    }

    /// One pass over everything that can go on.
    fn step(&mut self) {
        for active in self.active.iter_mut().filter(|active| !active.waits) {
            if let Some(state) = active.sequence.stands_at_row() {
                self.model.next(state, &mut self.logits);
                active.failed = self.model.fault().or_else(|| active.sequence.judge(&self.logits).err());
                active.tell();
            }
        }
        let able =
            |active: &&mut Active<A::State>| !active.waits && active.failed.is_none() && active.sequence.unread() > 0;
        let mut able: Vec<_> = self.active.iter_mut().filter(able).collect();
        let reading = able.iter().filter(|active| active.sequence.unread() > 1).count();
        let share = (PASS_TOKENS_MAX.saturating_sub(able.len()) / reading.max(1)).max(1);
        let mut batch: Vec<_> = able.iter_mut().map(|active| active.sequence.segment(share)).collect();
        if !batch.is_empty() {
            self.model.forward(&mut batch, &mut self.logits);
        }
        let wanted: Vec<_> = batch.iter().map(|segment| segment.logits.len()).collect();
        drop(batch);
        let fault = self.model.fault();
        let mut rows = self.logits.chunks_exact(self.model.vocabulary());
        for (active, wanted) in able.iter_mut().zip(wanted) {
            active.failed = fault.clone().or_else(|| active.sequence.advance(rows.by_ref().take(wanted)).err());
            active.tell();
        }
        self.hand_over();
    }

    /// Answers those whose work is over, and lets them go.
    fn hand_over(&mut self) {
        for active in self.active.extract_if(.., |active| active.sequence.is_done() || active.failed.is_some()) {
            let outcome = match active.failed {
                Some(why) => Err(why),
                None => Ok(active.sequence.finish()),
            };
            // A caller that has left wants no answer.
            let _ = active.events.send(Event::Done(outcome));
        }
    }
}

impl<S: Clone + Send + Sync + 'static> Active<S> {
    /// Sends the listener what it may have and waits for its answer.
    fn tell(&mut self) {
        let tokens = self.sequence.settled(self.sent);
        if self.listens && !tokens.is_empty() {
            let tokens = tokens.to_vec();
            self.sent += tokens.len();
            self.waits = self.events.send(Event::Tokens(tokens)).is_ok();
        }
    }
}
