//! The signed head: the length and last digest of a log at its sealing.

use serde::{Deserialize, Serialize};

use super::key::{PublicKey, ReceiptKey};
use crate::foundation::base::{Digest, canonical_json};

/// A signed statement of a log's length and last digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Number of receipts.
    pub receipts: u64,
    /// The digest of the last.
    pub digest: Digest,
    /// The signing key.
    pub key: PublicKey,
    /// Ed25519 signature of the other fields, hex.
    pub signature: String,
}

impl Head {
    pub(super) fn sign(key: &ReceiptKey, receipts: u64, digest: Digest) -> Self {
        let signature = key.sign(&message(receipts, digest));
        Self { receipts, digest, key: key.public(), signature }
    }

    /// Whether the signature is valid for `key`.
    pub fn is_genuine(&self) -> bool {
        self.key.has_signed(&message(self.receipts, self.digest), &self.signature)
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        Ok((canonical_json(self)? + "\n").into_bytes())
    }

    /// Parses the head file; `None` if it is not in canonical form.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let head: Self = serde_json::from_slice(bytes).ok()?;
        (head.to_bytes().ok()? == bytes).then_some(head)
    }
}

fn message(receipts: u64, digest: Digest) -> Vec<u8> {
    [b"loom receipts head v1\0".as_slice(), &receipts.to_le_bytes(), digest.as_bytes()].concat()
}
