//! Receipts: what was decided and done, on record before it takes effect.
//!
//! A log is a folder. `receipts.jsonl` has one canonical JSON line per receipt, each with its own digest and that of the line
//! before; it only grows. `receipts.head` says, signed, how many there were when it was last sealed, so that a log that was
//! cut short shows. `contents/` has the texts that receipts name by digest: a text can be erased there and the chain stands.
//!
//! | A change | shows because |
//! |---|---|
//! | a flipped bit | the line's digest, or its form: there is one way to write a receipt |
//! | a line dropped, put in, moved | numbers, and each line names the one before |
//! | the end cut off | the signed head names a later line |
//! | everything written anew | another key, or another digest than the one noted elsewhere |
//!
//! What does not show: a log put back as it was at an earlier sealing together with the head of that time. Whoever needs
//! that keeps the last digest in a place of its own; a run's manifest does. Receipts after the last sealing are chained but
//! not signed, and [`verify`] says how many.
//!
//! A crash can leave half a batch at the end. Opening cuts the last line if it is not whole and says so in a receipt;
//! nothing that was reported durable is ever cut. After a failed write the log takes nothing more until it is opened again:
//! what a failed sync left on the disk is not known.

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

pub use contents::{ContentState, Contents};
pub use export::to_otlp;
pub use head::Head;
pub use key::{Key, KeyError, PublicKey};
pub use log::{Durable, LogError, Opened, ReceiptLog};
pub use receipt::Receipt;
pub use shared::SharedLog;
pub use verify::{Fault, FaultKind, Verified, chain, verify};

/// The log.
pub const LOG: &str = "receipts.jsonl";
/// Its signed head.
pub const HEAD: &str = "receipts.head";
