//! Receipts: a tamper-evident log of decisions and effects, written before they take effect.
//!
//! A log is a folder. `receipts.jsonl` has one line of canonical JSON per receipt, each with its own digest and that of the
//! previous line; it is append-only. `receipts.head` is a signed record of the number of receipts at the last sealing, so
//! that truncation is detected. `contents/` has the texts that receipts refer to by digest: a text can be erased without
//! breaking the chain.
//!
//! | Manipulation | detected by |
//! |---|---|
//! | a flipped bit | the digest or the canonical form of the line |
//! | a line removed, inserted or moved | sequence numbers and the digest of the previous line |
//! | truncation | the signed head, which names a later line |
//! | a chained line without a signature at the end | the signature of the last line of every write |
//! | a rewritten log | the key, or the last digest if it is stored elsewhere |
//!
//! Not detected: a log restored to an earlier sealing together with the head of that time. To detect this, store the last
//! digest elsewhere, as a run's manifest does. A truncation after the last sealing is not detected either; [`verify`]
//! returns how many receipts are sealed.
//!
//! A crash can leave part of a batch at the end. The last line of every write is signed; opening a log removes what is
//! after the last signature and records that in a receipt. Receipts that were reported durable are never removed. After a failed write the log accepts no more entries
//! until it is opened again, because the state of the disk after a failed sync is unknown.

mod contents;
mod export;
mod head;
mod key;
mod log;
mod receipt;
mod shared;
#[cfg(test)]
mod tests;
mod verify;

pub use contents::{ContentState, ContentStore};
pub use export::to_otlp;
pub use head::Head;
pub use key::{KeyError, PublicKey, ReceiptKey};
pub use log::{DurableReceipts, LogError, OpenedLog, ReceiptLog};
pub use receipt::Receipt;
pub use shared::SharedLog;
pub use verify::{LogFault, LogFaultKind, Verified, chain, verify};

/// File name of the log.
pub const LOG: &str = "receipts.jsonl";
/// File name of the signed head.
pub const HEAD: &str = "receipts.head";
