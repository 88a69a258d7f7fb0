//! Whether a log is as it was written, and where it is not.

use super::head::Head;
use super::key::PublicKey;
use super::receipt::{Receipt, Unreadable};

/// A log that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Its receipts.
    pub receipts: Vec<Receipt>,
    /// How many of them the head signs for: a truncation within them is found.
    pub sealed: u64,
    /// How many of them are signed, by the head or by the signature of the last receipt of a write. Those after them were
    /// left by an interrupted write, or were appended by somebody without the key.
    pub signed: u64,
    /// The bytes of a last line that was not finished; they are no receipt.
    pub torn_bytes: usize,
}

/// The first fault in a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}")]
pub struct LogFault {
    /// The line, from 1; for the head, the line that it refers to.
    pub line: u64,
    /// The kind of fault.
    pub kind: LogFaultKind,
}

/// Kinds of faults in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LogFaultKind {
    /// Not a receipt.
    #[error("not a receipt")]
    Malformed,
    /// The digest does not match.
    #[error("the receipt was altered: its digest does not match")]
    Altered,
    /// The line is not in canonical form.
    #[error("the receipt was rewritten: it is not in canonical form")]
    NotCanonical,
    /// The sequence number is wrong.
    #[error("expected receipt {expected}, found receipt {found}: a receipt was removed, inserted or moved")]
    OutOfOrder {
        /// The expected number.
        expected: u64,
        /// The number found.
        found: u64,
    },
    /// The previous digest does not match.
    #[error("the receipt does not follow the previous one: one of the two was replaced")]
    Unchained,
    /// There is no signed head.
    #[error("the log has no signed head: `receipts.head` was removed")]
    Unsigned,
    /// The signature of the head is invalid.
    #[error("the signature of the head is invalid")]
    BadSignature,
    /// The signature of a receipt is invalid.
    #[error("the signature of the receipt is invalid")]
    BadReceiptSignature,
    /// The head is signed with another key than expected.
    #[error("the head is signed with another key")]
    OtherKey,
    /// The head covers more receipts than there are.
    #[error("the log was truncated: {signed} receipts were signed, {found} are left")]
    Truncated {
        /// Number of signed receipts.
        signed: u64,
        /// Found.
        found: u64,
    },
    /// The head has another digest for this receipt.
    #[error("the head has another digest for this receipt")]
    OtherLog,
}

/// Verifies the text of a log against its head. With `trusted`, the head must be signed with that key; without it any key is
/// accepted, and only accidental damage is detected reliably.
///
/// # Errors
/// The first fault.
pub fn verify(log: &[u8], head: Option<&Head>, trusted: Option<PublicKey>) -> Result<Verified, LogFault> {
    let (receipts, torn_bytes) = chain(log)?;
    let found = receipts.len() as u64;
    let Some(head) = head else { return Err(LogFault { line: found, kind: LogFaultKind::Unsigned }) };
    let fault = |kind| LogFault { line: head.receipts, kind };
    if trusted.is_some_and(|key| key != head.key) {
        return Err(fault(LogFaultKind::OtherKey));
    }
    if !head.is_genuine() {
        return Err(fault(LogFaultKind::BadSignature));
    }
    if head.receipts > found {
        let kind = LogFaultKind::Truncated { signed: head.receipts, found };
        return Err(LogFault { line: found + 1, kind });
    }
    let named = head.receipts.checked_sub(1).and_then(|index| receipts.get(index as usize));
    if named.is_none_or(|receipt| receipt.digest != head.digest) {
        return Err(fault(LogFaultKind::OtherLog));
    }
    // The chain covers the receipts before the last signature.
    let last = receipts.iter().skip(head.receipts as usize).rev().find(|receipt| receipt.signature.is_some());
    if let Some(unsigned) = last.filter(|receipt| !receipt.is_signed_by(head.key)) {
        return Err(LogFault { line: unsigned.seq + 1, kind: LogFaultKind::BadReceiptSignature });
    }
    let signed = last.map_or(head.receipts, |receipt| receipt.seq + 1);
    Ok(Verified { sealed: head.receipts, signed, receipts, torn_bytes })
}

/// Verifies the chain of a log without its head. Returns the receipts and the length of an incomplete last line.
///
/// # Errors
/// The first fault.
pub fn chain(log: &[u8]) -> Result<(Vec<Receipt>, usize), LogFault> {
    let mut receipts: Vec<Receipt> = Vec::new();
    let mut torn_bytes = 0;
    for (line, bytes) in (1..).zip(log.split_inclusive(|byte| *byte == b'\n')) {
        let Some((b'\n', bytes)) = bytes.split_last() else {
            torn_bytes = bytes.len();
            break;
        };
        let fault = |kind| LogFault { line, kind };
        let text = std::str::from_utf8(bytes).map_err(|_| fault(LogFaultKind::Malformed))?;
        let receipt = Receipt::read(text).map_err(|unreadable| {
            fault(match unreadable {
                Unreadable::Malformed => LogFaultKind::Malformed,
                Unreadable::Altered => LogFaultKind::Altered,
                Unreadable::NotCanonical => LogFaultKind::NotCanonical,
            })
        })?;
        let expected = receipts.len() as u64;
        if receipt.seq != expected {
            return Err(fault(LogFaultKind::OutOfOrder { expected, found: receipt.seq }));
        }
        if receipt.prev != receipts.last().map_or_else(Receipt::genesis, |last| last.digest) {
            return Err(fault(LogFaultKind::Unchained));
        }
        receipts.push(receipt);
    }
    Ok((receipts, torn_bytes))
}
