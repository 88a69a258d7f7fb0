//! Whether a log is as it was written, and where it is not.

use super::head::Head;
use super::key::PublicKey;
use super::receipt::{Receipt, Unreadable};

/// A log that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Its receipts.
    pub receipts: Vec<Receipt>,
    /// How many of them the head signs for.
    pub signed: u64,
    /// The bytes of a last line that was not finished; they are no receipt.
    pub torn_bytes: usize,
}

/// What is wrong with a log, at the first place where it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}")]
pub struct Fault {
    /// The line, from 1; for the head, the line that it speaks of.
    pub line: u64,
    /// What.
    pub kind: FaultKind,
}

/// What can be wrong with a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// Not a receipt.
    #[error("this is no receipt")]
    Malformed,
    /// The content does not have the digest that it states.
    #[error("the receipt was altered: it does not have the digest that it states")]
    Altered,
    /// The same content, written in another way.
    #[error("the receipt was rewritten: this is not the form in which receipts are written")]
    NotCanonical,
    /// Another number was due.
    #[error("receipt {found} stands where receipt {expected} belongs: one was dropped, put in or moved")]
    OutOfPlace {
        /// Due.
        expected: u64,
        /// Found.
        found: u64,
    },
    /// It does not follow the line before.
    #[error("the receipt does not follow the one before it: one of the two was replaced")]
    Unchained,
    /// There is no signed head.
    #[error("the log has no signed head: `receipts.head` was removed")]
    Unsigned,
    /// The head's signature is not good.
    #[error("the head's signature is not good")]
    BadSignature,
    /// The head is signed with a key that is not the one expected.
    #[error("the head is signed with another key")]
    StrangeKey,
    /// The head signs for more receipts than there are.
    #[error("the log was cut short: {signed} receipts were signed for, {found} are left")]
    CutShort {
        /// Signed for.
        signed: u64,
        /// Found.
        found: u64,
    },
    /// The head names another receipt.
    #[error("the head signs for another receipt in this place")]
    OtherLog,
}

/// Checks the text of a log against its head. With `trusted`, the head must be signed with that key; without, any key does
/// and only accidents and the unarmed are found.
///
/// # Errors
/// The first thing that is wrong.
pub fn verify(log: &[u8], head: Option<&Head>, trusted: Option<PublicKey>) -> Result<Verified, Fault> {
    let (receipts, torn_bytes) = chain(log)?;
    let found = receipts.len() as u64;
    let Some(head) = head else { return Err(Fault { line: found, kind: FaultKind::Unsigned }) };
    let fault = |kind| Fault { line: head.receipts, kind };
    if trusted.is_some_and(|key| key != head.key) {
        return Err(fault(FaultKind::StrangeKey));
    }
    if !head.is_genuine() {
        return Err(fault(FaultKind::BadSignature));
    }
    if head.receipts > found {
        let kind = FaultKind::CutShort { signed: head.receipts, found };
        return Err(Fault { line: found + 1, kind });
    }
    let named = head.receipts.checked_sub(1).and_then(|index| receipts.get(index as usize));
    if named.is_none_or(|receipt| receipt.digest != head.digest) {
        return Err(fault(FaultKind::OtherLog));
    }
    Ok(Verified { signed: head.receipts, receipts, torn_bytes })
}

/// The receipts of a log, each following the one before, and the bytes of an unfinished last line. Nothing is asked of a head.
///
/// # Errors
/// The first line that is not as it was written.
pub fn chain(log: &[u8]) -> Result<(Vec<Receipt>, usize), Fault> {
    let mut receipts: Vec<Receipt> = Vec::new();
    let mut torn_bytes = 0;
    for (line, bytes) in (1..).zip(log.split_inclusive(|byte| *byte == b'\n')) {
        let Some((b'\n', bytes)) = bytes.split_last() else {
            torn_bytes = bytes.len();
            break;
        };
        let fault = |kind| Fault { line, kind };
        let text = std::str::from_utf8(bytes).map_err(|_| fault(FaultKind::Malformed))?;
        let receipt = Receipt::read(text).map_err(|unreadable| {
            fault(match unreadable {
                Unreadable::Malformed => FaultKind::Malformed,
                Unreadable::Altered => FaultKind::Altered,
                Unreadable::NotCanonical => FaultKind::NotCanonical,
            })
        })?;
        let expected = receipts.len() as u64;
        if receipt.seq != expected {
            return Err(fault(FaultKind::OutOfPlace { expected, found: receipt.seq }));
        }
        if receipt.prev != receipts.last().map_or_else(Receipt::genesis, |last| last.digest) {
            return Err(fault(FaultKind::Unchained));
        }
        receipts.push(receipt);
    }
    Ok((receipts, torn_bytes))
}
