//! The engine thread: it owns the model, and every step is one forward pass over all sequences that can go on. A
//! sequence that writes has one row in it; those that read share the rest. What a sequence gives does not depend on
//! the company it had.
//!
//! A listener lives on its caller's task: its tokens go there and the sequence waits for the answer, while the others
//! go on. A caller that leaves takes its sequence along.
//!
//! What several prompts begin with is read once. A state left on the way is kept for those to come (`prefix.rs`); one
//! that begins like another which is still being read waits for that one to come to where they part. It waits for
//! earlier ones only, so nobody waits in a circle. Those that go on from one snapshot share what comes next alike.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::thread;

use rayon::{ThreadPool, ThreadPoolBuilder};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::admission::{Admission, Admitted, Budget};
use super::awake::awake;
use super::prefix::Prefixes;
use super::row::Room;
use super::sequence::{Outcome, Past, Prepared, Sequence};
use super::{Architecture, LoadError};
use crate::foundation::base::Digest;
use crate::foundation::base::limits::{LOGITS_BYTES_MAX, PREFIX_TOKENS_MIN};
use crate::foundation::chat::TokenLogprob;

/// What the engine is told. The channel needs no bound of its own: every job holds a place, and places are counted.
pub(super) enum Message {
    /// Jobs that came together begin in the same pass.
    Start(Vec<Job>),
    /// The listener of job `key` has heard what it was sent.
    Heard { key: u64, answer: Answer },
    /// The caller of job `key` no longer waits.
    Left { key: u64 },
}

/// A request and where its answers go.
pub(super) struct Job {
    pub(super) key: u64,
    pub(super) request: Prepared,
    /// Tokens are to be sent as they come, each time awaiting [`Message::Heard`].
    pub(super) listens: bool,
    pub(super) events: UnboundedSender<Event>,
    pub(super) admitted: Admitted,
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
    Done(Result<Box<Outcome>, String>),
}

/// The way to an engine thread.
pub(super) struct Engine {
    pub(super) admission: Admission,
    pub(super) inbox: UnboundedSender<Message>,
}

/// Starts the thread of `model`. It ends when the last sender is gone.
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
    let mut owner = Owner::new(model, digest, budget.prefix_bytes);
    let (sender, mut inbox) = unbounded_channel();
    let thread = thread::Builder::new().name("loom-engine".to_owned());
    thread.spawn(move || pool.install(|| owner.run(&mut inbox))).map_err(|error| start(&error))?;
    Ok(Engine { admission, inbox: sender })
}

struct Owner<A: Architecture> {
    model: Arc<A>,
    digest: Digest,
    /// In order of arrival.
    active: Vec<Active<A::State>>,
    prefixes: Prefixes<A::State>,
    room: Room,
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
    /// The job whose state it is to take over, and at which token.
    awaits: Option<(u64, usize)>,
    failed: Option<String>,
    /// Held until the job is done.
    _admitted: Admitted,
}

impl<A: Architecture> Owner<A> {
    fn new(model: Arc<A>, digest: Digest, prefix_bytes: u64) -> Self {
        let prefixes = Prefixes::new(usize::try_from(prefix_bytes).unwrap_or(usize::MAX));
        Self { model, digest, active: Vec::new(), prefixes, room: Room::default() }
    }

    /// Serves until nobody can send any more and everybody is answered.
    fn run(&mut self, inbox: &mut UnboundedReceiver<Message>) {
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
            awake(|| self.step());
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Start(jobs) => {
                // What came together has one prompt, and however short that is, it is read once.
                let least = if jobs.len() > 1 { 1 } else { PREFIX_TOKENS_MIN };
                for Job { key, request, listens, events, admitted } in jobs {
                    let sequence = Sequence::new(self.digest, request, || self.model.start());
                    self.active.push(Active {
                        key,
                        sequence,
                        events,
                        listens,
                        sent: 0,
                        waits: false,
                        awaits: None,
                        failed: None,
                        _admitted: admitted,
                    });
                    self.find_opening(self.active.len() - 1, least);
                }
            }
            Message::Heard { key, answer } => {
                if let Some(active) = self.active.iter_mut().find(|active| active.key == key) {
                    active.waits = false;
                    if let Answer::StopAfter(count) = answer {
                        active.failed = active.sequence.stop_after(count).err();
                    }
                }
            }
            Message::Left { key } => {
                self.active.retain(|active| active.key != key);
                self.release();
            }
        }
    }

    /// Sees whether the beginning of number `index` has been read, or is about to be, `least` tokens of it.
    fn find_opening(&mut self, index: usize, least: usize) {
        let Some((earlier, [active, ..])) = self.active.split_at_mut_checked(index) else { return };
        if !self.prefixes.is_on() {
            return;
        }
        let mut parts = 0;
        if let Some((opening, gains)) = active.sequence.opening() {
            let known = self.prefixes.longest(opening, gains);
            parts = self.prefixes.parts(opening, gains);
            if let Some(past) = known {
                active.sequence.take_over(&past);
            }
        }
        let worth = active.sequence.read() + least;
        let meets = earlier.iter_mut().filter_map(|other| Some((other.sequence.meets(&active.sequence)?, other)));
        // Of those that come equally far the earliest: the others wait for it themselves.
        match meets.rev().max_by_key(|(at, _)| *at) {
            Some((at, other)) if at >= worth => {
                other.sequence.mark(at);
                active.awaits = Some((other.key, at));
            }
            // Two have begun like this now: a third one may.
            _ if parts >= worth => active.sequence.mark(parts),
            _ => {}
        }
    }

    /// Gives a state on to those that wait for it, and keeps it for those to come.
    fn hand_on(&mut self, key: u64, past: &Arc<Past<A::State>>) {
        let at = past.ids().len();
        for waiting in self.active.iter_mut().filter(|active| active.awaits == Some((key, at))) {
            waiting.awaits = None;
            waiting.sequence.take_over(past);
        }
        let reader = self.active.iter().find(|active| active.key == key);
        if let Some((_, gains)) = reader.and_then(|active| active.sequence.opening()) {
            let bytes = self.model.state_bytes(at) + size_of_val(past.ids());
            self.prefixes.keep(Arc::clone(past), gains, bytes);
        }
    }

    /// Lets those go on by themselves whose state will not come any more.
    fn release(&mut self) {
        for index in 0..self.active.len() {
            let Some((key, at)) = self.active.get(index).and_then(|active| active.awaits) else { continue };
            let comes = |active: &Active<A::State>| active.key == key && active.sequence.read() < at;
            if !self.active.iter().any(comes) {
                if let Some(active) = self.active.get_mut(index) {
                    active.awaits = None;
                }
                self.find_opening(index, PREFIX_TOKENS_MIN);
            }
        }
    }

    /// One pass over everything that can go on.
    fn step(&mut self) {
        self.read_standing();
        let able = |active: &&mut Active<A::State>| active.can_go_on() && active.sequence.unread() > 0;
        let mut able: Vec<_> = self.active.iter_mut().filter(able).collect();
        let reading = able.iter().filter(|active| active.sequence.unread() > 1).count();
        let share = (self.model.pass_tokens_max().saturating_sub(able.len()) / reading.max(1)).max(1);
        // As many rows of logits as there is room for: a long text to be scored takes more passes instead.
        let rows = LOGITS_BYTES_MAX / size_of::<f32>() / self.model.vocabulary().max(1);
        let rows = (rows.saturating_sub(able.len()) / reading.max(1)).max(1);
        let mut batch: Vec<_> = able.iter_mut().map(|active| active.sequence.segment(share, rows)).collect();
        let readings = if batch.is_empty() { Vec::new() } else { self.model.read(&mut batch, &mut self.room) };
        let wanted: Vec<_> = batch.iter().map(|segment| segment.logits.len()).collect();
        drop(batch);
        let fault = self.model.fault();
        let mut readings = readings.into_iter();
        let mut landmarks = Vec::new();
        for (active, wanted) in able.iter_mut().zip(wanted) {
            let mine: Vec<_> = readings.by_ref().take(wanted).collect();
            active.failed = fault.clone().or_else(|| active.sequence.advance(mine.into_iter()).err());
            active.tell();
            landmarks.extend(active.sequence.landmark().map(|past| (active.key, past)));
        }
        for (key, past) in landmarks {
            self.hand_on(key, &past);
        }
        self.hand_over();
        self.release();
    }

    /// Reads the rows that snapshots stand at; forks of one that came together share theirs.
    fn read_standing(&mut self) {
        let able = self.active.iter_mut().filter(|active| active.can_go_on());
        let standing =
            able.filter_map(|active| active.sequence.stands_at_row().map(|(state, ask)| (active, state, ask)));
        let mut standing: Vec<_> = standing.collect();
        for forks in standing.chunk_by_mut(|(_, one, _), (_, other, _)| Arc::ptr_eq(one, other)) {
            let Some((_, state, _)) = forks.first() else { continue };
            let asks: Vec<_> = forks.iter().map(|(_, _, ask)| ask).collect();
            let readings = self.model.read_next(state, &asks, &mut self.room);
            let fault = self.model.fault();
            for ((active, ..), reading) in forks.iter_mut().zip(readings) {
                active.failed = fault.clone().or_else(|| active.sequence.judge(reading).err());
                active.tell();
            }
        }
    }

    /// Answers those whose work is over, and lets them go.
    fn hand_over(&mut self) {
        for active in self.active.extract_if(.., |active| active.is_over()) {
            let outcome = match active.failed {
                Some(why) => Err(why),
                None => Ok(Box::new(active.sequence.finish(&*self.model))),
            };
            // A caller that has left wants no answer.
            let _ = active.events.send(Event::Done(outcome));
        }
    }
}

impl<S: Clone + Send + Sync + 'static> Active<S> {
    /// Whether it waits for nobody.
    fn can_go_on(&self) -> bool {
        !self.waits && self.awaits.is_none() && self.failed.is_none()
    }

    /// Whether its caller can be answered.
    fn is_over(&self) -> bool {
        self.failed.is_some() || (!self.waits && self.awaits.is_none() && self.sequence.is_done())
    }

    /// Sends the listener what it may have and waits for its answer.
    fn tell(&mut self) {
        let tokens = self.sequence.settled(self.sent);
        if self.listens && self.failed.is_none() && !tokens.is_empty() {
            let tokens = tokens.to_vec();
            self.sent += tokens.len();
            self.waits = self.events.send(Event::Tokens(tokens)).is_ok();
        }
    }
}
