//! A finished run as an in-toto statement in a DSSE envelope, which other programs verify.
//!
//! The subjects are the run's files with their SHA-256, the predicate is the manifest without the seal, with the head of the
//! log. Specifications: in-toto Statement v1, DSSE v1.0.2 (`PAE`).

use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::manifest::{Manifest, SealedFile};
use crate::foundation::base::limits::TRANSCRIPT_BYTES_MAX;
use crate::foundation::store::read_limited;
use crate::foundation::store::receipts::ReceiptKey;

/// The type of the payload.
const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
/// The type of the statement.
const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
/// The type of the predicate; its fields are those of `run.json` (docs/FORMATS.md).
const PREDICATE_TYPE: &str = "urn:loom-agent:run:v1";

/// A statement on the files of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statement {
    #[serde(rename = "_type")]
    kind: &'static str,
    subject: Vec<Value>,
    #[serde(rename = "predicateType")]
    predicate_type: &'static str,
    predicate: Value,
}

/// A signed statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Envelope {
    #[serde(rename = "payloadType")]
    payload_type: &'static str,
    /// Base64 of the statement.
    payload: String,
    signatures: Vec<EnvelopeSignature>,
}

/// A signature of an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct EnvelopeSignature {
    /// The public key, hex.
    keyid: String,
    /// Ed25519, base64.
    sig: String,
}

impl Statement {
    /// The statement on a sealed run, whose files have just been compared with the seal.
    ///
    /// # Errors
    /// If the run is not sealed, or a file cannot be read.
    pub fn of(folder: &Path, mut manifest: Manifest) -> io::Result<Self> {
        let seal = manifest.seal.take().ok_or_else(|| io::Error::other("the run is not sealed"))?;
        let subject = |SealedFile { name, .. }: &SealedFile| -> io::Result<Value> {
            let bytes = read_limited(&folder.join(name), TRANSCRIPT_BYTES_MAX)?;
            let digest = Sha256::digest(bytes).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
            Ok(json!({"name": name, "digest": {"sha256": digest}}))
        };
        Ok(Self {
            kind: STATEMENT_TYPE,
            subject: seal.files.iter().map(subject).collect::<io::Result<_>>()?,
            predicate_type: PREDICATE_TYPE,
            predicate: json!({"run": manifest, "log": seal.log}),
        })
    }
}

impl Envelope {
    /// Signs a statement.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn sign(statement: &Statement, key: &ReceiptKey) -> Result<Self, serde_json::Error> {
        let payload = serde_json::to_vec(statement)?;
        let sig = STANDARD.encode(key.sign_bytes(&pre_authentication_encoding(PAYLOAD_TYPE, &payload)));
        Ok(Self {
            payload_type: PAYLOAD_TYPE,
            payload: STANDARD.encode(payload),
            signatures: vec![EnvelopeSignature { keyid: key.public().to_string(), sig }],
        })
    }
}

/// What the signature of an envelope covers.
fn pre_authentication_encoding(kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {kind} {} ", kind.len(), body.len());
    [head.as_bytes(), body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_is_that_of_the_specification() {
        // The test vector of the DSSE protocol, and a type and a body of other lengths.
        let check = |kind: &str, body: &str, expected: &str| {
            assert_eq!(pre_authentication_encoding(kind, body.as_bytes()), expected.as_bytes());
        };
        check("http://example.com/HelloWorld", "hello world", "DSSEv1 29 http://example.com/HelloWorld 11 hello world");
        check("", "", "DSSEv1 0  0 ");
        check("\u{e9}", "\u{e9}\u{e9}", "DSSEv1 2 \u{e9} 4 \u{e9}\u{e9}");
    }
}
