//! One log for many threads: whoever finds it free writes for all who wait, with one sync.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use super::log::ReceiptLog;
use crate::foundation::base::Digest;
use crate::foundation::gate::{Entry, Ledger, LedgerError};

/// A handle to a log; clones share it.
#[derive(Debug, Clone)]
pub struct SharedLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    waiting: Mutex<Waiting>,
    log: Mutex<ReceiptLog>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    batches: Vec<(u64, Timestamp, Vec<Entry>)>,
    answers: HashMap<u64, Result<Vec<Digest>, LedgerError>>,
}

impl SharedLog {
    /// Shares a log.
    pub fn new(log: ReceiptLog) -> Self {
        Self { inner: Arc::new(Inner { waiting: Mutex::default(), log: Mutex::new(log) }) }
    }

    /// The log itself, to seal or to erase; nobody writes meanwhile.
    pub fn log(&self) -> MutexGuard<'_, ReceiptLog> {
        held(&self.inner.log)
    }

    /// Writes the entries down for good, together with those of whoever waits at the same time.
    ///
    /// # Errors
    /// When they may not be durable.
    pub fn record(&self, at: Timestamp, entries: &[Entry]) -> Result<Vec<Digest>, LedgerError> {
        let ticket = {
            let mut waiting = held(&self.inner.waiting);
            let ticket = waiting.next;
            waiting.next += 1;
            waiting.batches.push((ticket, at, entries.to_vec()));
            ticket
        };
        let mut log = held(&self.inner.log);
        let batches = std::mem::take(&mut held(&self.inner.waiting).batches);
        if !batches.is_empty() {
            let all = batches.iter().flat_map(|(_, at, entries)| entries.iter().map(|entry| (*at, entry)));
            let written = log.commit_all(all).map_err(|error| LedgerError(error.to_string()));
            let mut waiting = held(&self.inner.waiting);
            let mut digests = written.as_ref().map(|durable| durable.digests().iter().copied()).map_err(Clone::clone);
            for (ticket, _, entries) in &batches {
                let answer = match &mut digests {
                    Ok(digests) => Ok(digests.take(entries.len()).collect()),
                    Err(error) => Err(error.clone()),
                };
                waiting.answers.insert(*ticket, answer);
            }
        }
        let unanswered = || Err(LedgerError("the log gave no answer".to_owned()));
        held(&self.inner.waiting).answers.remove(&ticket).unwrap_or_else(unanswered)
    }
}

impl Ledger for SharedLog {
    fn record(&mut self, at: Timestamp, entries: &[Entry]) -> Result<Vec<Digest>, LedgerError> {
        Self::record(self, at, entries)
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
