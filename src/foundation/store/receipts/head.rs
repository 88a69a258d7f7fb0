//! The signed head: how far a log went when it was sealed.

use serde::{Deserialize, Serialize};

use super::key::{Key, PublicKey};
use crate::foundation::base::{Digest, canonical_json};

/// A signed statement that a log had so many receipts, the last of them this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// How many receipts.
    pub receipts: u64,
    /// The digest of the last.
    pub digest: Digest,
    /// The key that signs.
    pub key: PublicKey,
    /// Ed25519 over the rest, hex.
    pub signature: String,
}

impl Head {
    pub(super) fn sign(key: &Key, receipts: u64, digest: Digest) -> Self {
        let signature = key.sign(&message(receipts, digest));
        Self { receipts, digest, key: key.public(), signature }
    }

    /// Whether the key that it names has signed it.
    pub fn is_genuine(&self) -> bool {
        self.key.has_signed(&message(self.receipts, self.digest), &self.signature)
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        Ok((canonical_json(self)? + "\n").into_bytes())
    }

    /// Reads it from the file beside the log; `None` when it is not in the form in which heads are written.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let head: Self = serde_json::from_slice(bytes).ok()?;
        (head.to_bytes().ok()? == bytes).then_some(head)
    }
}

fn message(receipts: u64, digest: Digest) -> Vec<u8> {
    [b"loom receipts head v1\0".as_slice(), &receipts.to_le_bytes(), digest.as_bytes()].concat()
}
