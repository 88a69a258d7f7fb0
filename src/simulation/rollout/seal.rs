//! The seal of a run: its manifest binds the files and the log, and is signed itself.
//!
//! A receipt `run.wrote` or `score.wrote` with the digest of a file is durable before the file is written. When a run or its
//! scoring ends, the manifest gets the digests of all files and the head of the log, and a signature over both.
//! [`check_run`] compares the three. A run whose files were changed by somebody else is never sealed again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::files::{FileError, at, write_json};
use super::manifest::{Manifest, RunSeal, SealedFile};
use crate::foundation::base::limits::{RECEIPTS_BYTES_MAX, TRANSCRIPT_BYTES_MAX};
use crate::foundation::base::{Digest, canonical_json};
use crate::foundation::gate::LedgerEntry;
use crate::foundation::store::read_limited;
use crate::foundation::store::receipts::{HEAD, Head, LOG, PublicKey, Receipt, ReceiptKey, verify};

/// The result of comparing a run's files with its receipts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunCheck {
    /// What does not agree, a line each.
    pub faults: Vec<String>,
    /// The sealed manifest, if the run is sealed and there are no faults.
    pub sealed: Option<Box<Manifest>>,
}

/// Renews the seal of a run after this program has changed its files.
#[derive(Debug)]
pub struct SealRenewal {
    folder: PathBuf,
    /// What did not agree before: somebody else changed the files or the receipts.
    fault: Option<String>,
}

/// The receipt to be durable before files are written, by name.
pub fn written(kind: &str, files: &BTreeMap<String, Digest>) -> LedgerEntry {
    LedgerEntry::new(kind, json!({ "files": files }))
}

/// Compares the files of the run in `folder` with its manifest and its `receipts`, which have been verified. A folder
/// without a run has nothing to compare.
pub fn check_run(folder: &Path, receipts: &[Receipt], trusted: PublicKey) -> RunCheck {
    check(folder, receipts, trusted, Removed::IsFault)
}

/// Whether a file that was removed is a fault. A user removes a transcript to run its rollout again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removed {
    IsFault,
    IsAllowed,
}

fn check(folder: &Path, receipts: &[Receipt], trusted: PublicKey, removed: Removed) -> RunCheck {
    let mut faults = Vec::new();
    let path = folder.join("run.json");
    let bytes = match read_limited(&path, TRANSCRIPT_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if receipts.iter().any(|receipt| receipt.entry.kind == "run.handed_off" || is_written(receipt)) {
                faults.push("run.json: it was removed".to_owned());
            }
            return RunCheck { faults, sealed: None };
        }
        Err(error) => return RunCheck { faults: vec![format!("run.json: {error}")], sealed: None },
    };
    let manifest: Manifest = match serde_json::from_slice(&bytes) {
        Ok(manifest) => manifest,
        Err(error) => return RunCheck { faults: vec![format!("run.json: {error}")], sealed: None },
    };
    let own = serde_json::to_vec_pretty(&manifest).map(|text| [text.as_slice(), b"\n"].concat());
    if own.ok() != Some(bytes) {
        faults.push("run.json: it is not in the form in which it was written".to_owned());
    }
    let begun = receipts.iter().find(|receipt| receipt.entry.kind == "run.begun");
    let Manifest { config, seed, rollouts, turns, loom, seal, .. } = &manifest;
    let of = json!({"config": config.digest, "seed": seed, "rollouts": rollouts, "turns": turns, "loom": loom});
    if begun.is_none_or(|begun| begun.entry.body != of) {
        faults.push("run.json: the receipts are those of another run".to_owned());
    }
    let ended = receipts.iter().rfind(|receipt| !is_opening(receipt));
    let closed = ended.is_some_and(|last| last.entry.kind.ends_with(".handed_off"));
    match seal {
        Some(seal) => faults.extend(seal_fault(&manifest, seal, receipts, trusted)),
        None if receipts.iter().any(|receipt| receipt.entry.kind == "run.handed_off") => {
            faults.push(
                "run.json: it has no seal: somebody removed it, or an earlier version of loom made the run".to_owned(),
            );
        }
        None => {}
    }
    file_faults(folder, &manifest, receipts, (closed, removed), &mut faults);
    let sealed = (faults.is_empty() && closed && manifest.seal.is_some()).then(|| Box::new(manifest));
    RunCheck { faults, sealed }
}

fn seal_fault(manifest: &Manifest, seal: &RunSeal, receipts: &[Receipt], trusted: PublicKey) -> Option<String> {
    let signed = seal_message(manifest).is_ok_and(|message| trusted.has_signed(&message, &seal.signature));
    if !signed || seal.log.key != trusted || !seal.log.is_genuine() {
        return Some("run.json: the signature of its seal is invalid".to_owned());
    }
    let last = seal.log.receipts.checked_sub(1).and_then(|last| receipts.get(last as usize));
    let same = last.is_some_and(|last| last.digest == seal.log.digest);
    (!same).then(|| "run.json: the log is not the one that was sealed with it".to_owned())
}

/// Compares every file with the digests that the receipts and the seal have for it. While a run or its scoring is
/// interrupted, a file may be as it was before the last receipt.
fn file_faults(
    folder: &Path,
    manifest: &Manifest,
    receipts: &[Receipt],
    (closed, removed): (bool, Removed),
    faults: &mut Vec<String>,
) {
    let mut known: BTreeMap<String, Vec<Digest>> = BTreeMap::new();
    known.entry("config.yaml".to_owned()).or_default().push(manifest.config.digest);
    for receipt in receipts.iter().filter(|receipt| is_written(receipt)) {
        let files = receipt.entry.body.get("files").cloned().unwrap_or_default();
        let files: BTreeMap<String, Digest> = serde_json::from_value(files).unwrap_or_default();
        for (name, digest) in files {
            known.entry(name).or_default().push(digest);
        }
    }
    let sealed: Option<BTreeMap<&str, Digest>> =
        manifest.seal.as_ref().map(|seal| seal.files.iter().map(|file| (file.name.as_str(), file.digest)).collect());
    for (name, digests) in &known {
        let now = match read_limited(&folder.join(name), TRANSCRIPT_BYTES_MAX) {
            Ok(bytes) => Digest::of(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let due = closed || sealed.as_ref().is_some_and(|sealed| sealed.contains_key(name.as_str()));
                if due && removed == Removed::IsFault {
                    faults.push(format!("{name}: it was removed"));
                }
                continue;
            }
            Err(error) => {
                faults.push(format!("{name}: {error}"));
                continue;
            }
        };
        let allowed = if closed { digests.last() == Some(&now) } else { digests.contains(&now) };
        if !allowed {
            faults.push(format!("{name}: it was changed since it was written"));
        }
        if closed
            && let Some(sealed) = &sealed
            && sealed.get(name.as_str()) != Some(&now)
        {
            faults.push(format!("{name}: the seal has another digest"));
        }
    }
    match run_files(folder) {
        Ok(found) => faults.extend(
            found.iter().filter(|name| !known.contains_key(*name)).map(|name| format!("{name}: no receipt for it")),
        ),
        Err(error) => faults.push(error.to_string()),
    }
    faults.dedup();
}

/// Seals the run in `folder`: writes the digests of its files and the head of its log into the manifest, signed.
fn seal(folder: &Path, head: Head) -> Result<(), FileError> {
    let path = folder.join("run.json");
    let read = |name: &str| {
        let path = folder.join(name);
        read_limited(&path, TRANSCRIPT_BYTES_MAX).map_err(at(&path))
    };
    let json = |error: serde_json::Error| at(&path)(error.into());
    let mut manifest: Manifest = serde_json::from_slice(&read("run.json")?).map_err(json)?;
    let mut files = Vec::new();
    for name in run_files(folder)?.into_iter().chain(["config.yaml".to_owned()]) {
        let digest = Digest::of(read(&name)?);
        files.push(SealedFile { name, digest });
    }
    let key = ReceiptKey::path().and_then(|path| ReceiptKey::open(&path));
    let key = key.map_err(|error| at(&path)(io::Error::other(error)))?;
    manifest.seal = Some(RunSeal { files, log: head, signature: String::new() });
    let signature = key.sign(&seal_message(&manifest).map_err(json)?);
    if let Some(seal) = &mut manifest.seal {
        seal.signature = signature;
    }
    write_json(&path, &manifest)
}

/// What the seal signs: the manifest with an empty signature.
fn seal_message(manifest: &Manifest) -> Result<Vec<u8>, serde_json::Error> {
    let mut unsigned = manifest.clone();
    if let Some(seal) = &mut unsigned.seal {
        seal.signature.clear();
    }
    Ok([b"loom run manifest v1\0".as_slice(), canonical_json(&unsigned)?.as_bytes()].concat())
}

/// The names of the finished transcripts and their side files.
fn run_files(folder: &Path) -> Result<BTreeSet<String>, FileError> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(at(folder))? {
        let name = entry.map_err(at(folder))?.file_name().to_string_lossy().into_owned();
        let ending = name.strip_prefix("rollout_").and_then(|rest| rest.split_once('.')).map(|(_, ending)| ending);
        if matches!(ending, Some("json" | "tokens.jsonl")) {
            names.insert(name);
        }
    }
    Ok(names)
}

fn is_written(receipt: &Receipt) -> bool {
    matches!(receipt.entry.kind.as_str(), "run.wrote" | "score.wrote")
}

/// Receipts that change no file of the run.
fn is_opening(receipt: &Receipt) -> bool {
    matches!(receipt.entry.kind.as_str(), "log.opened" | "content.erased")
}

impl SealRenewal {
    /// For a run that is being created.
    pub(super) fn of_new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), fault: None }
    }

    /// For an existing run, whose files may have been removed but not changed. Call it before its log is opened.
    pub fn of(folder: &Path) -> Self {
        let faults = own_key().and_then(|key| faults(folder, key, Removed::IsAllowed));
        Self { folder: folder.to_owned(), fault: faults.map_or_else(Some, |faults| faults.into_iter().next()) }
    }

    /// Why the run will not be sealed again, in a line for the user.
    pub fn notice(&self) -> Option<String> {
        let (fault, folder) = (self.fault.as_ref()?, self.folder.display());
        Some(format!("{folder} will not be sealed again ({fault}): loom receipts verify {folder}"))
    }

    /// Seals the run, if it was intact. `head` is that of its log.
    ///
    /// # Errors
    /// If the manifest cannot be written.
    pub fn renew(&self, head: Option<Head>) -> Result<(), FileError> {
        match head {
            Some(head) if self.fault.is_none() => seal(&self.folder, head),
            _ => Ok(()),
        }
    }
}

/// What does not agree between the log, the manifest and the files of the run in `folder`, a line each. The signer is this
/// user, or has the key `other`.
pub fn run_faults(folder: &Path, other: PublicKey) -> Vec<String> {
    let own = own_key().and_then(|key| faults(folder, key, Removed::IsFault));
    match own {
        Ok(faults) if faults.is_empty() => faults,
        own => faults(folder, other, Removed::IsFault).or(own).unwrap_or_else(|error| vec![error]),
    }
}

fn own_key() -> Result<PublicKey, String> {
    let key = ReceiptKey::path().and_then(|path| ReceiptKey::open(&path));
    key.map(|key| key.public()).map_err(|error| error.to_string())
}

fn faults(folder: &Path, key: PublicKey, removed: Removed) -> Result<Vec<String>, String> {
    let read = |name: &str| {
        let bytes = read_limited(&folder.join(name), RECEIPTS_BYTES_MAX);
        bytes.map_err(|error| format!("{}: {error}", folder.join(name).display()))
    };
    let head = Head::read(&read(HEAD)?);
    let mut verified = verify(&read(LOG)?, head.as_ref(), Some(key)).map_err(|fault| format!("{LOG}: {fault}"))?;
    // What follows the last signature is removed when the log is opened.
    verified.receipts.truncate(verified.signed as usize);
    Ok(check(folder, &verified.receipts, key, removed).faults)
}
