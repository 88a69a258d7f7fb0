//! The ledger to which a gate writes its decisions before it returns them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::foundation::base::Digest;

/// One entry of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// What happened, as `part.event`.
    pub kind: String,
    /// The facts. Long texts, and data that may have to be erased, go to `contents`.
    pub body: Value,
    /// Texts that belong to it, by name and digest; they are stored separately and can be erased.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub contents: BTreeMap<String, Digest>,
}

impl LedgerEntry {
    /// An entry without contents.
    pub fn new(kind: impl Into<String>, body: Value) -> Self {
        Self { kind: kind.into(), body, contents: BTreeMap::new() }
    }

    /// Adds a text that is stored separately.
    #[must_use]
    pub fn with_content(mut self, name: impl Into<String>, content: Digest) -> Self {
        self.contents.insert(name.into(), content);
        self
    }
}

/// The ledger could not write; no entry of the batch counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LedgerError(pub String);

/// Durable storage of entries.
pub trait Ledger {
    /// Writes the entries in order. When it returns `Ok`, all of them are durable. Returns one digest per entry.
    ///
    /// # Errors
    /// If they may not be durable.
    fn record(&mut self, at: Timestamp, entries: &[LedgerEntry]) -> Result<Vec<Digest>, LedgerError>;
}

impl<L: Ledger + ?Sized> Ledger for Box<L> {
    fn record(&mut self, at: Timestamp, entries: &[LedgerEntry]) -> Result<Vec<Digest>, LedgerError> {
        (**self).record(at, entries)
    }
}

/// A ledger in memory, for work that leaves no results on disk: entries are chained by digest and lost when the process
/// ends.
#[derive(Debug, Default)]
pub struct EphemeralLedger {
    last: Option<Digest>,
    written: u64,
}

impl EphemeralLedger {
    /// Number of entries written.
    pub const fn written(&self) -> u64 {
        self.written
    }
}

impl Ledger for EphemeralLedger {
    fn record(&mut self, at: Timestamp, entries: &[LedgerEntry]) -> Result<Vec<Digest>, LedgerError> {
        let mut digests = Vec::with_capacity(entries.len());
        for entry in entries {
            let line = serde_json::to_string(&(self.last, at.to_string(), entry));
            let line = line.map_err(|error| LedgerError(error.to_string()))?;
            let digest = Digest::of(line);
            self.last = Some(digest);
            self.written += 1;
            digests.push(digest);
        }
        Ok(digests)
    }
}
