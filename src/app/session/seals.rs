//! The seal of a session: the digest of each of its documents and of its runs' results is in its receipts.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use super::core::Session;
use super::outcome::WorkItemKind;
use super::setup::SessionError;
use crate::foundation::base::Digest;
use crate::foundation::base::limits::TRANSCRIPT_BYTES_MAX;
use crate::foundation::store::read_limited;
use crate::foundation::store::receipts::Receipt;
use crate::simulation::rollout::written;

/// The kind of the receipts.
const WROTE: &str = "session.wrote";
/// The results of a run that are bound. `run.json` has the digests of the config, the transcripts and the log.
const RESULTS: [&str; 3] = ["run.json", "report.json", "report.md"];

impl Session {
    /// Records the digest of a document, before it is written.
    pub(super) fn record_document(&self, name: &str, text: &str) -> Result<(), SessionError> {
        let files = BTreeMap::from([(name.to_owned(), Digest::of(text))]);
        self.authorizer.record(vec![written(WROTE, &files)])?;
        Ok(())
    }

    /// Records the digests of the results of a run, as they are now.
    pub(super) fn record_results(&self, run: WorkItemKind) -> Result<(), SessionError> {
        let folder = self.run_folder(run);
        let mut files = BTreeMap::new();
        for result in RESULTS {
            let path = folder.join(result);
            match read_limited(&path, TRANSCRIPT_BYTES_MAX) {
                Ok(bytes) => {
                    let name = format!("runs/{:02}-{}/{result}", self.state.work.rounds, run.folder());
                    files.insert(name, Digest::of(bytes));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(SessionError::io("read", &path)(error)),
            }
        }
        self.authorizer.record(vec![written(WROTE, &files)])?;
        Ok(())
    }
}

/// The files in a session's receipts: number of the receipt, name, digest.
pub(super) fn written_files(receipts: &[Receipt]) -> Vec<(u64, String, Digest)> {
    let mut all = Vec::new();
    for receipt in receipts.iter().filter(|receipt| receipt.entry.kind == WROTE) {
        let files = receipt.entry.body.get("files").cloned().unwrap_or_default();
        let files: BTreeMap<String, Digest> = serde_json::from_value(files).unwrap_or_default();
        all.extend(files.into_iter().map(|(name, digest)| (receipt.seq, name, digest)));
    }
    all
}

/// What does not agree between a session's receipts and the files in `folder`, a line each. While a session is
/// interrupted, a document may be missing or as it was before.
pub fn session_faults(folder: &Path, receipts: &[Receipt]) -> Vec<String> {
    let own = |receipt: &&Receipt| !["log.opened", "content.erased"].contains(&receipt.entry.kind.as_str());
    let closed = receipts.iter().rfind(own).is_some_and(|last| last.entry.kind.ends_with(".handed_off"));
    let mut known: BTreeMap<String, Vec<Digest>> = BTreeMap::new();
    for (_, name, digest) in written_files(receipts) {
        known.entry(name).or_default().push(digest);
    }
    let mut faults = Vec::new();
    for (name, digests) in known {
        // An interrupted run is checked by its own receipts.
        if !closed && name.starts_with("runs/") {
            continue;
        }
        match read_limited(&folder.join(&name), TRANSCRIPT_BYTES_MAX) {
            Ok(bytes) => {
                let now = Digest::of(bytes);
                let same = if closed { digests.last() == Some(&now) } else { digests.contains(&now) };
                if !same {
                    faults.push(format!("{name}: it was changed since the session wrote it"));
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if closed {
                    faults.push(format!("{name}: it was removed"));
                }
            }
            Err(error) => faults.push(format!("{name}: {error}")),
        }
    }
    faults
}
