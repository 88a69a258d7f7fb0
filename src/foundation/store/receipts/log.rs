//! Writing a log: opening, appending, sealing.

use std::io;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use super::contents::ContentStore;
use super::head::Head;
use super::key::ReceiptKey;
use super::receipt::Receipt;
use super::verify::{LogFault, verify};
use super::{HEAD, LOG};
use crate::foundation::base::{Digest, limits};
use crate::foundation::gate::{Ledger, LedgerEntry, LedgerError};
use crate::foundation::store::{Disk, DiskLock};

const LOCK: &str = "receipts.lock";
const TEMPORARY: &str = "receipts.tmp";

/// Errors of a log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// An I/O error.
    #[error("cannot {action} the receipts: {source}")]
    Io {
        /// The operation.
        action: &'static str,
        /// The error.
        source: io::Error,
    },
    /// The log was altered.
    #[error("the receipts are damaged: {0}; nothing was appended; run `loom receipts verify` for details")]
    Damaged(#[from] LogFault),
    /// An entry that cannot be written as a receipt.
    #[error("a receipt of kind `{kind}` {why}")]
    Invalid {
        /// The kind of the entry.
        kind: String,
        /// The cause.
        why: String,
    },
    /// An earlier write failed, so the state of the disk is unknown.
    #[error("an earlier receipt could not be written: open the log again")]
    Poisoned,
}

/// Digests of durable receipts. Only [`ReceiptLog::commit`] creates one, after the sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurableReceipts {
    digests: Vec<Digest>,
}

impl DurableReceipts {
    /// The digests of the receipts, in the order of the entries.
    pub fn digests(&self) -> &[Digest] {
        &self.digests
    }
}

/// The state of a log when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedLog {
    /// The existing receipts.
    pub receipts: Vec<Receipt>,
    /// Length of what was removed at the end: an incomplete last line, and receipts that nobody signed.
    pub cut_bytes: usize,
}

/// A log opened for writing, exclusively.
pub struct ReceiptLog {
    disk: Arc<dyn Disk>,
    key: Arc<ReceiptKey>,
    next: u64,
    last: Digest,
    sealed: u64,
    poisoned: bool,
    lock: Box<dyn DiskLock>,
}

impl std::fmt::Debug for ReceiptLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReceiptLog({} receipts, {} sealed)", self.next, self.sealed)
    }
}

impl ReceiptLog {
    /// Opens or creates the log in the root folder of `disk`. An existing log is verified completely. Receipts at its end
    /// that are not signed were never reported durable, or were appended by somebody else: they are removed, with an
    /// incomplete last line. Then a receipt `log.opened` is written and the head is sealed.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if the log was altered; it is not changed.
    pub fn open(disk: Arc<dyn Disk>, key: Arc<ReceiptKey>, at: Timestamp) -> Result<(Self, OpenedLog), LogError> {
        let lock = disk.lock(LOCK, true).map_err(io_error("lock"))?;
        let text = disk.read(LOG).map_err(io_error("read"))?.unwrap_or_default();
        let head = disk.read(HEAD).map_err(io_error("read"))?;
        let (mut receipts, signed, sealed) = match (&head, super::verify::chain(&text)?) {
            // A log interrupted before its first sealing has at most the opening receipt.
            (None, (receipts, _)) if receipts.len() <= 1 => {
                let signed = receipts.iter().filter(|receipt| receipt.is_signed_by(key.public())).count();
                (receipts, signed, 0)
            }
            (head, _) => {
                let head = head.as_deref().and_then(Head::read);
                let verified = verify(&text, head.as_ref(), Some(key.public()))?;
                (verified.receipts, verified.signed as usize, verified.sealed)
            }
        };
        receipts.truncate(signed);
        let whole: usize = text.split_inclusive(|byte| *byte == b'\n').take(signed).map(<[u8]>::len).sum();
        let torn = text.len() - whole;
        let (next, last) = (receipts.len() as u64, receipts.last().map_or_else(Receipt::genesis, |last| last.digest));
        let mut log = Self { disk, key, next, last, sealed, poisoned: false, lock };
        if torn > 0 {
            log.replace(LOG, text.get(..whole).unwrap_or_default()).map_err(io_error("repair"))?;
        }
        let opened = if log.lock.is_enforced() {
            json!({"receipts": next, "cut_bytes": torn})
        } else {
            json!({"receipts": next, "cut_bytes": torn, "locked": false})
        };
        log.commit(at, &[LedgerEntry::new("log.opened", opened)])?;
        // Makes the name of a new log durable.
        log.disk.sync_dir("").map_err(io_error("sync"))?;
        log.seal()?;
        Ok((log, OpenedLog { receipts, cut_bytes: torn }))
    }

    /// Appends receipts, signs the last of them, and makes them durable with one sync.
    ///
    /// # Errors
    /// If they may not be durable; then none counts, and the log accepts no more entries.
    pub fn commit(&mut self, at: Timestamp, entries: &[LedgerEntry]) -> Result<DurableReceipts, LogError> {
        self.commit_all(entries.iter().map(|entry| (at, entry)))
    }

    /// Appends receipts with individual times, with one sync.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_all<'e>(
        &mut self,
        entries: impl IntoIterator<Item = (Timestamp, &'e LedgerEntry)>,
    ) -> Result<DurableReceipts, LogError> {
        if self.poisoned {
            return Err(LogError::Poisoned);
        }
        let (mut next, mut last) = (self.next, self.last);
        let (mut lines, mut digests) = (String::new(), Vec::new());
        let mut entries = entries.into_iter().peekable();
        while let Some((at, entry)) = entries.next() {
            let signs = entries.peek().is_none().then_some(self.key.as_ref());
            let invalid = |why: String| LogError::Invalid { kind: entry.kind.clone(), why };
            let written = Receipt::write(next, last, at, entry.clone(), signs);
            let (receipt, line) = written.map_err(|error| invalid(error.to_string()))?;
            if line.len() > limits::RECEIPT_BYTES_MAX {
                let most = limits::RECEIPT_BYTES_MAX;
                return Err(invalid(format!(
                    "has {} bytes, more than {most} (RECEIPT_BYTES_MAX): store its text in the contents",
                    line.len()
                )));
            }
            lines.push_str(&line);
            lines.push('\n');
            (next, last) = (next + 1, receipt.digest);
            digests.push(receipt.digest);
        }
        if digests.is_empty() {
            return Ok(DurableReceipts { digests });
        }
        let written = self.disk.append(LOG, lines.as_bytes()).and_then(|()| self.disk.sync(LOG));
        self.poisoned = written.is_err();
        written.map_err(io_error("write"))?;
        (self.next, self.last) = (next, last);
        if self.next - self.sealed >= limits::RECEIPTS_UNSIGNED_MAX {
            self.seal()?;
        }
        Ok(DurableReceipts { digests })
    }

    /// Signs a head for all durable receipts. Call it at the end of a stage.
    ///
    /// # Errors
    /// If the head cannot be written; the log then accepts no more entries.
    pub fn seal(&mut self) -> Result<Head, LogError> {
        if self.poisoned {
            return Err(LogError::Poisoned);
        }
        let head = Head::sign(&self.key, self.next, self.last);
        let written = head.to_bytes().map_err(io::Error::other).and_then(|bytes| self.replace(HEAD, &bytes));
        self.poisoned = written.is_err();
        written.map_err(io_error("sign"))?;
        self.sealed = self.next;
        Ok(head)
    }

    /// The texts that receipts refer to.
    pub fn contents(&self) -> ContentStore {
        ContentStore::new(Arc::clone(&self.disk))
    }

    /// Erases a text after recording the erasure. The chain stays valid.
    ///
    /// # Errors
    /// If the receipt or the removal cannot be made durable.
    pub fn erase(&mut self, digest: Digest, at: Timestamp) -> Result<(), LogError> {
        let entry = LedgerEntry::new("content.erased", json!({})).with_content("erased", digest);
        self.commit(at, &[entry])?;
        self.contents().remove(digest).map_err(io_error("erase a text of"))
    }

    /// The number of receipts and the digest of the last.
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
    fn record(&mut self, at: Timestamp, entries: &[LedgerEntry]) -> Result<Vec<Digest>, LedgerError> {
        self.commit(at, entries).map(|durable| durable.digests).map_err(|error| LedgerError(error.to_string()))
    }
}

fn io_error(action: &'static str) -> impl Fn(io::Error) -> LogError {
    move |source| LogError::Io { action, source }
}
