//! A log shared by threads, with group commit: the thread that gets the lock writes the entries of all waiting threads with
//! one sync.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use super::log::ReceiptLog;
use crate::foundation::base::Digest;
use crate::foundation::gate::{Ledger, LedgerEntry, LedgerError};

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
    batches: Vec<(u64, Timestamp, Vec<LedgerEntry>)>,
    results: HashMap<u64, Result<Vec<Digest>, LedgerError>>,
}

impl SharedLog {
    /// Shares a log.
    pub fn new(log: ReceiptLog) -> Self {
        Self { inner: Arc::new(Inner { waiting: Mutex::default(), log: Mutex::new(log) }) }
    }

    /// Locks the log, to seal it or to erase a text.
    pub fn log(&self) -> MutexGuard<'_, ReceiptLog> {
        lock(&self.inner.log)
    }

    /// Writes the entries durably, together with those of other waiting threads.
    ///
    /// # Errors
    /// If they may not be durable.
    pub fn record(&self, at: Timestamp, entries: &[LedgerEntry]) -> Result<Vec<Digest>, LedgerError> {
        let ticket = {
            let mut waiting = lock(&self.inner.waiting);
            let ticket = waiting.next;
            waiting.next += 1;
            waiting.batches.push((ticket, at, entries.to_vec()));
            ticket
        };
        let mut log = lock(&self.inner.log);
        let batches = std::mem::take(&mut lock(&self.inner.waiting).batches);
        if !batches.is_empty() {
            let all = batches.iter().flat_map(|(_, at, entries)| entries.iter().map(|entry| (*at, entry)));
            let written = log.commit_all(all).map_err(|error| LedgerError(error.to_string()));
            let mut waiting = lock(&self.inner.waiting);
            let mut digests = written.as_ref().map(|durable| durable.digests().iter().copied()).map_err(Clone::clone);
            for (ticket, _, entries) in &batches {
                let result = match &mut digests {
                    Ok(digests) => Ok(digests.take(entries.len()).collect()),
                    Err(error) => Err(error.clone()),
                };
                waiting.results.insert(*ticket, result);
            }
        }
        let no_result = || Err(LedgerError("the log returned no result".to_owned()));
        lock(&self.inner.waiting).results.remove(&ticket).unwrap_or_else(no_result)
    }
}

impl Ledger for SharedLog {
    fn record(&mut self, at: Timestamp, entries: &[LedgerEntry]) -> Result<Vec<Digest>, LedgerError> {
        Self::record(self, at, entries)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
