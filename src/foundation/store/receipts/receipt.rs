//! A receipt and its canonical line.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

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
}

impl Receipt {
    /// The previous digest of the first receipt of every log.
    pub fn genesis() -> Digest {
        Digest::of("loom receipts v1")
    }

    /// A receipt and its line, without the line break.
    pub(super) fn write(
        seq: u64,
        prev: Digest,
        at: Timestamp,
        entry: LedgerEntry,
    ) -> Result<(Self, String), serde_json::Error> {
        let mut line = format!(
            r#"{{"at":"{at}","body":{},"contents":{}"#,
            canonical_json(&entry.body)?,
            canonical_json(&entry.contents)?
        );
        let front = line.len();
        let kind = canonical_json(&entry.kind)?;
        line +=
            &[r#","kind":"#, &kind, r#","prev":""#, &prev.to_string(), r#"","seq":"#, &seq.to_string(), "}"].concat();
        let digest = Digest::of(&line);
        line.insert_str(front, &format!(r#","digest":"{digest}""#));
        Ok((Self { seq, prev, at, entry, digest }, line))
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
        let (receipt, written) = Self::write(seq, prev, at, entry).map_err(|_| Unreadable::Malformed)?;
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
