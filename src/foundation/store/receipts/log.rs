//! A log that is written: opened, added to, sealed.

use std::io;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use super::contents::Contents;
use super::head::Head;
use super::key::Key;
use super::receipt::Receipt;
use super::verify::{Fault, verify};
use super::{HEAD, LOG};
use crate::foundation::base::{Digest, limits};
use crate::foundation::gate::{Entry, Ledger, LedgerError};
use crate::foundation::store::{Disk, Lock};

const LOCK: &str = "receipts.lock";
const TEMPORARY: &str = "receipts.tmp";

/// What can go wrong with a log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The operating system said no.
    #[error("cannot {action} the receipts: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The log is not as it was written.
    #[error("the receipts are damaged: {0}; nothing is added to them: `loom receipts verify` tells more")]
    Damaged(#[from] Fault),
    /// An entry that cannot be a receipt.
    #[error("a receipt of kind `{kind}` {why}")]
    Unfit {
        /// Of which kind.
        kind: String,
        /// What is wrong with it.
        why: String,
    },
    /// An earlier write failed; what is on the disk is not known.
    #[error("an earlier receipt could not be written: open the log again")]
    Poisoned,
}

/// That receipts are durable. Only [`ReceiptLog::commit`] makes one, after the sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durable {
    digests: Vec<Digest>,
}

impl Durable {
    /// The digests of the receipts, in the order of the entries.
    pub fn digests(&self) -> &[Digest] {
        &self.digests
    }
}

/// How a log was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The receipts that were there.
    pub receipts: Vec<Receipt>,
    /// The bytes of an unfinished last line, which were cut.
    pub cut_bytes: usize,
}

/// A log open for writing, by this process alone.
pub struct ReceiptLog {
    disk: Arc<dyn Disk>,
    key: Arc<Key>,
    next: u64,
    last: Digest,
    signed: u64,
    poisoned: bool,
    _lock: Box<dyn Lock>,
}

impl std::fmt::Debug for ReceiptLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReceiptLog({} receipts, {} signed)", self.next, self.signed)
    }
}

impl ReceiptLog {
    /// Opens the log in the folder that `disk` stands for, or begins one. What is there is verified whole; an unfinished last
    /// line is cut. A receipt `log.opened` says so either way, and the head is sealed.
    ///
    /// # Errors
    /// [`LogError::Damaged`] when it is not as it was written; it is left as it is.
    pub fn open(disk: Arc<dyn Disk>, key: Arc<Key>, at: Timestamp) -> Result<(Self, Opened), LogError> {
        let lock = disk.lock(LOCK, true).map_err(io_error("lock"))?;
        let text = disk.read(LOG).map_err(io_error("read"))?.unwrap_or_default();
        let head = disk.read(HEAD).map_err(io_error("read"))?;
        let (receipts, signed, torn) = match (&head, super::verify::chain(&text)?) {
            // A log that was interrupted before its first sealing holds the opening at most.
            (None, (receipts, torn)) if receipts.len() <= 1 => (receipts, 0, torn),
            (head, _) => {
                let head = head.as_deref().and_then(Head::read);
                let verified = verify(&text, head.as_ref(), Some(key.public()))?;
                (verified.receipts, verified.signed, verified.torn_bytes)
            }
        };
        let (next, last) = (receipts.len() as u64, receipts.last().map_or_else(Receipt::genesis, |last| last.digest));
        let mut log = Self { disk, key, next, last, signed, poisoned: false, _lock: lock };
        if torn > 0 {
            let whole = text.get(..text.len() - torn).unwrap_or_default();
            log.replace(LOG, whole).map_err(io_error("mend"))?;
        }
        log.commit(at, &[Entry::new("log.opened", json!({"receipts": next, "cut_bytes": torn}))])?;
        // The name of a new log.
        log.disk.sync_dir("").map_err(io_error("sync"))?;
        log.seal()?;
        Ok((log, Opened { receipts, cut_bytes: torn }))
    }

    /// Adds receipts and makes all of them durable with one sync.
    ///
    /// # Errors
    /// When they may not be durable: then none counts, and the log takes nothing more.
    pub fn commit(&mut self, at: Timestamp, entries: &[Entry]) -> Result<Durable, LogError> {
        self.commit_all(entries.iter().map(|entry| (at, entry)))
    }

    /// Adds receipts of several times with one sync.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_all<'e>(
        &mut self,
        entries: impl IntoIterator<Item = (Timestamp, &'e Entry)>,
    ) -> Result<Durable, LogError> {
        if self.poisoned {
            return Err(LogError::Poisoned);
        }
        let (mut next, mut last) = (self.next, self.last);
        let (mut lines, mut digests) = (String::new(), Vec::new());
        for (at, entry) in entries {
            let unfit = |why: String| LogError::Unfit { kind: entry.kind.clone(), why };
            let written = Receipt::write(next, last, at, entry.clone());
            let (receipt, line) = written.map_err(|error| unfit(error.to_string()))?;
            if line.len() > limits::RECEIPT_BYTES_MAX {
                let most = limits::RECEIPT_BYTES_MAX;
                return Err(unfit(format!(
                    "has {} bytes, more than {most} (RECEIPT_BYTES_MAX): put its text among the contents",
                    line.len()
                )));
            }
            lines.push_str(&line);
            lines.push('\n');
            (next, last) = (next + 1, receipt.digest);
            digests.push(receipt.digest);
        }
        if digests.is_empty() {
            return Ok(Durable { digests });
        }
        let written = self.disk.append(LOG, lines.as_bytes()).and_then(|()| self.disk.sync(LOG));
        self.poisoned = written.is_err();
        written.map_err(io_error("write"))?;
        (self.next, self.last) = (next, last);
        if self.next - self.signed >= limits::RECEIPTS_UNSIGNED_MAX {
            self.seal()?;
        }
        Ok(Durable { digests })
    }

    /// Signs for everything that is durable so far. Call it where a stage or the work ends.
    ///
    /// # Errors
    /// When the head cannot be written; the log then takes nothing more.
    pub fn seal(&mut self) -> Result<Head, LogError> {
        if self.poisoned {
            return Err(LogError::Poisoned);
        }
        let head = Head::sign(&self.key, self.next, self.last);
        let written = head.to_bytes().map_err(io::Error::other).and_then(|bytes| self.replace(HEAD, &bytes));
        self.poisoned = written.is_err();
        written.map_err(io_error("sign"))?;
        self.signed = self.next;
        Ok(head)
    }

    /// The texts that receipts name.
    pub fn contents(&self) -> Contents {
        Contents::new(Arc::clone(&self.disk))
    }

    /// Erases a text. The receipt of it comes first; the chain stands.
    ///
    /// # Errors
    /// When the receipt or the removal cannot be made durable.
    pub fn erase(&mut self, digest: Digest, at: Timestamp) -> Result<(), LogError> {
        let entry = Entry::new("content.erased", json!({})).with_content("erased", digest);
        self.commit(at, &[entry])?;
        self.contents().remove(digest).map_err(io_error("erase a text of"))
    }

    /// How many receipts there are, and the digest of the last.
    pub const fn last(&self) -> (u64, Digest) {
        (self.next, self.last)
    }

    fn replace(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.disk.write(TEMPORARY, bytes)?;
        self.disk.sync(TEMPORARY)?;
        self.disk.rename(TEMPORARY, path)?;
        self.disk.sync_dir("")
    }
}

impl Ledger for ReceiptLog {
    fn record(&mut self, at: Timestamp, entries: &[Entry]) -> Result<Vec<Digest>, LedgerError> {
        self.commit(at, entries).map(|durable| durable.digests).map_err(|error| LedgerError(error.to_string()))
    }
}

fn io_error(action: &'static str) -> impl Fn(io::Error) -> LogError {
    move |source| LogError::Io { action, source }
}
