//! Where a gate writes down what it answers, before it answers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::foundation::base::Digest;

/// One thing to be written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What happened, as `part.word`.
    pub kind: String,
    /// The facts of it; no long text and nothing that may have to be erased.
    pub body: Value,
    /// Texts that belong to it, by name and digest; they lie elsewhere and can be erased there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub contents: BTreeMap<String, Digest>,
}

impl Entry {
    /// That this happened.
    pub fn new(kind: impl Into<String>, body: Value) -> Self {
        Self { kind: kind.into(), body, contents: BTreeMap::new() }
    }

    /// With a text that lies elsewhere.
    #[must_use]
    pub fn with_content(mut self, name: impl Into<String>, content: Digest) -> Self {
        self.contents.insert(name.into(), content);
        self
    }
}

/// The ledger could not write; nothing of the batch counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LedgerError(pub String);

/// Something that writes entries down for good.
pub trait Ledger {
    /// Writes the entries, in order. When this returns `Ok` all of them are durable; each has a digest of its own.
    ///
    /// # Errors
    /// When they may not be durable.
    fn record(&mut self, at: Timestamp, entries: &[Entry]) -> Result<Vec<Digest>, LedgerError>;
}

impl<L: Ledger + ?Sized> Ledger for Box<L> {
    fn record(&mut self, at: Timestamp, entries: &[Entry]) -> Result<Vec<Digest>, LedgerError> {
        (**self).record(at, entries)
    }
}

/// The ledger of work that leaves nothing behind: each entry is chained to the one before, and all are gone with the process.
/// What leaves results has receipts beside them instead.
#[derive(Debug, Default)]
pub struct Passing {
    last: Option<Digest>,
    written: u64,
}

impl Passing {
    /// How many entries there were.
    pub const fn written(&self) -> u64 {
        self.written
    }
}

impl Ledger for Passing {
    fn record(&mut self, at: Timestamp, entries: &[Entry]) -> Result<Vec<Digest>, LedgerError> {
        let mut digests = Vec::with_capacity(entries.len());
        for entry in entries {
            let told = serde_json::to_string(&(self.last, at.to_string(), entry));
            let told = told.map_err(|error| LedgerError(error.to_string()))?;
            let digest = Digest::of(told);
            self.last = Some(digest);
            self.written += 1;
            digests.push(digest);
        }
        Ok(digests)
    }
}
