//! Digests of the hub's files at their first download: one JSON file per repository, outside the cache, so that it
//! survives the cache.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{HubError, variable};
use crate::foundation::store::{Disk, FileChange, LOOM_DIR, RealDisk, open_regular, replace};

const FORMAT: &str = "loom-hub-record";
const VERSION: u32 = 1;
const LOCK: &str = ".loom/lock";

/// Digest and length of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// SHA-256 in lower-case hex.
    pub sha256: String,
    /// Length in bytes.
    pub bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct Record {
    format: String,
    version: u32,
    repo: String,
    /// Commit → file → digest.
    commits: BTreeMap<String, BTreeMap<String, FileRecord>>,
}

/// The record of one repository.
pub(super) struct Records {
    disk: RealDisk,
    file: String,
    repo: String,
}

impl Records {
    /// The default folder of the records.
    pub(super) fn folder() -> Option<PathBuf> {
        let data = variable("XDG_DATA_HOME").map(PathBuf::from);
        let data = data.or_else(|| Some(std::env::home_dir()?.join(".local").join("share")))?;
        Some(data.join("loom").join("hub"))
    }

    pub(super) fn new(folder: PathBuf, repo: &str) -> Self {
        let file = format!("{}.json", repo.replace('/', "--"));
        Self { disk: RealDisk::new(folder), file, repo: repo.to_owned() }
    }

    /// Compares the files `names` in `folder` with the record of `commit`, and adds missing ones to it.
    pub(super) fn check(
        &self,
        commit: &str,
        folder: &Path,
        names: Vec<String>,
    ) -> Result<Vec<(String, FileRecord)>, HubError> {
        let unusable = |why: &dyn std::fmt::Display| {
            HubError::Disk(format!("the record {} cannot be used: {why}", self.path().display()))
        };
        std::fs::create_dir_all(self.disk.root()).map_err(|error| unusable(&error))?;
        self.disk.make_dir(LOOM_DIR).map_err(|error| unusable(&error))?;
        let found = names.into_iter().map(|name| Ok((read(&folder.join(&name))?, name)));
        let found = found.map(|found| found.map(|(content, name)| (name, content)));
        let found: Vec<(String, FileRecord)> = found.collect::<Result<_, HubError>>()?;

        let _lock = self.disk.lock(LOCK, true).map_err(|error| unusable(&error))?;
        let before = self.disk.read(&self.file).map_err(|error| unusable(&error))?;
        let mut record = match &before {
            Some(bytes) => serde_json::from_slice(bytes).map_err(|error| unusable(&error))?,
            None => Record {
                format: FORMAT.to_owned(),
                version: VERSION,
                repo: self.repo.clone(),
                commits: BTreeMap::new(),
            },
        };
        if record.format != FORMAT || record.version != VERSION {
            return Err(unusable(&format!("it is not `{FORMAT}` version {VERSION}")));
        }
        let known = record.commits.entry(commit.to_owned()).or_default();
        let mut added = false;
        for (name, content) in &found {
            match known.get(name) {
                Some(recorded) if recorded == content => {}
                Some(recorded) => {
                    return Err(HubError::Changed {
                        file: folder.join(name).display().to_string(),
                        recorded: recorded.sha256.clone(),
                        found: content.sha256.clone(),
                        record: self.path().display().to_string(),
                    });
                }
                None => {
                    added = true;
                    known.insert(name.clone(), content.clone());
                }
            }
        }
        if added {
            let text = serde_json::to_vec_pretty(&record).map_err(|error| unusable(&error))?;
            let change = FileChange { path: self.file.clone(), before, after: Some(text) };
            replace(&self.disk, &change).map_err(|error| unusable(&error))?;
        }
        Ok(found)
    }

    fn path(&self) -> PathBuf {
        self.disk.root().join(&self.file)
    }
}

/// Digest and length of the file at `path`.
pub(super) fn read(path: &Path) -> Result<FileRecord, HubError> {
    let unreadable = |error: std::io::Error| HubError::Disk(format!("{} cannot be read: {error}", path.display()));
    let mut file = open_regular(path).map_err(unreadable)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer).map_err(unreadable)?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        hash.update(buffer.split_at(read).0);
    }
    let digits = hash.finalize().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let sha256 = digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect();
    Ok(FileRecord { sha256, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_recorded_once_and_compared_afterwards() {
        let (records, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let records = Records::new(records.path().join("deep"), "a/b");
        let check = || records.check("c0ffee", folder.path(), vec!["w".to_owned()]);
        std::fs::write(folder.path().join("w"), "abc").unwrap();
        let first = check().unwrap();
        // FIPS 180-4's example.
        assert_eq!(first[0].1.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(check().unwrap(), first);
        std::fs::write(folder.path().join("w"), "abd").unwrap();
        let error = check().unwrap_err().to_string();
        assert!(error.contains("ba7816bf") && error.contains("a52d159f") && error.contains("a--b.json"), "{error}");
    }
}
