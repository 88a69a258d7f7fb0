//! A receipt and its canonical line.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::key::{PublicKey, ReceiptKey};
use crate::foundation::base::{Digest, canonical_json};
use crate::foundation::gate::LedgerEntry;

/// One receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Sequence number, from 0.
    pub seq: u64,
    /// The digest of the previous receipt; [`Receipt::genesis`] for the first.
    pub prev: Digest,
    /// The time.
    pub at: Timestamp,
    /// The entry.
    pub entry: LedgerEntry,
    /// The digest of its line without this field.
    pub digest: Digest,
    /// The writer's signature, hex. The last receipt of every write has one; through the chain it covers those before.
    pub signature: Option<String>,
}

impl Receipt {
    /// The previous digest of the first receipt of every log.
    pub fn genesis() -> Digest {
        Digest::of("loom receipts v1")
    }

    /// A receipt and its line, without the line break, signed with `key` if there is one.
    pub(super) fn write(
        seq: u64,
        prev: Digest,
        at: Timestamp,
        entry: LedgerEntry,
        key: Option<&ReceiptKey>,
    ) -> Result<(Self, String), serde_json::Error> {
        let receipt = Self { seq, prev, at, entry, digest: prev, signature: None };
        let signature = key.map(|key| Ok::<_, serde_json::Error>(key.sign(&receipt.signed_message()?))).transpose()?;
        Self { signature, ..receipt }.finished()
    }

    /// Computes the digest and the line.
    fn finished(mut self) -> Result<(Self, String), serde_json::Error> {
        let (mut line, front) = self.unsigned_line()?;
        if let Some(signature) = &self.signature {
            line.pop();
            line += &[r#","signature":"#, &canonical_json(signature)?, "}"].concat();
        }
        self.digest = Digest::of(&line);
        line.insert_str(front, &format!(r#","digest":"{}""#, self.digest));
        Ok((self, line))
    }

    /// The line without digest and signature, and where the digest is inserted.
    fn unsigned_line(&self) -> Result<(String, usize), serde_json::Error> {
        let Self { seq, prev, at, entry, .. } = self;
        let mut line = format!(
            r#"{{"at":"{at}","body":{},"contents":{}"#,
            canonical_json(&entry.body)?,
            canonical_json(&entry.contents)?
        );
        let front = line.len();
        let kind = canonical_json(&entry.kind)?;
        line +=
            &[r#","kind":"#, &kind, r#","prev":""#, &prev.to_string(), r#"","seq":"#, &seq.to_string(), "}"].concat();
        Ok((line, front))
    }

    fn signed_message(&self) -> Result<Vec<u8>, serde_json::Error> {
        let (line, _) = self.unsigned_line()?;
        Ok([b"loom receipts line v1\0".as_slice(), Digest::of(line).as_bytes()].concat())
    }

    /// Whether the receipt has a signature, and it is valid for `key`.
    pub(super) fn is_signed_by(&self, key: PublicKey) -> bool {
        let signed = self.signature.as_ref().zip(self.signed_message().ok());
        signed.is_some_and(|(signature, message)| key.has_signed(&message, signature))
    }

    /// Parses a line that [`write`](Self::write) has written, and checks its digest but not the chain.
    pub(super) fn read(line: &str) -> Result<Self, Unreadable> {
        let value: Value = serde_json::from_str(line).map_err(|_| Unreadable::Malformed)?;
        let fields = value.as_object().ok_or(Unreadable::Malformed)?;
        let text = |name: &str| fields.get(name).and_then(Value::as_str).ok_or(Unreadable::Malformed);
        let digest = |name: &str| text(name)?.parse::<Digest>().map_err(|_| Unreadable::Malformed);
        let contents: BTreeMap<String, Digest> =
            serde_json::from_value(fields.get("contents").cloned().unwrap_or_default())
                .map_err(|_| Unreadable::Malformed)?;
        let entry = LedgerEntry {
            kind: text("kind")?.to_owned(),
            body: fields.get("body").cloned().ok_or(Unreadable::Malformed)?,
            contents,
        };
        let seq = fields.get("seq").and_then(Value::as_u64).ok_or(Unreadable::Malformed)?;
        let at = text("at")?.parse().map_err(|_| Unreadable::Malformed)?;
        let (stated, prev) = (digest("digest")?, digest("prev")?);
        let signature = fields.get("signature").map(|signature| signature.as_str().ok_or(Unreadable::Malformed));
        let signature = signature.transpose()?.map(str::to_owned);
        let read = Self { seq, prev, at, entry, digest: stated, signature };
        let (receipt, written) = read.finished().map_err(|_| Unreadable::Malformed)?;
        if receipt.digest != stated {
            return Err(Unreadable::Altered);
        }
        if written == line { Ok(receipt) } else { Err(Unreadable::NotCanonical) }
    }
}

/// Why a line is not a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    Malformed,
    Altered,
    NotCanonical,
}
