//! The response cache: one file per reply, named by the digest of the request.
//!
//! The key of a request is its canonical JSON: address, model, messages, sampling, and, at a temperature above 0, the
//! random stream (run seed, rollout, turn, role, attempt). So a rerun replays, and another draw sends a new request.
//! API keys are never part of it. The file holds request and reply, and is used only for an equal request.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::foundation::base::{Digest, canonical_json};
use crate::foundation::chat::{Finish, TokenLogprob, Usage};
use crate::foundation::store::{Disk, FileChange, LOOM_DIR, RealDisk, replace};

/// The value of `format` in a cache's files.
const FORMAT: &str = "loom-response";
const VERSION: u32 = 1;
const LOCK: &str = ".loom/lock";

/// A reply as the provider sent it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CachedReply {
    pub(super) content: String,
    pub(super) tokens: Vec<TokenLogprob>,
    /// The tokens of the thought that the provider sent apart from the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) thought: Option<Vec<TokenLogprob>>,
    pub(super) finish: Finish,
    pub(super) usage: Usage,
    #[serde(rename = "usage_told")]
    pub(super) usage_reported: bool,
    pub(super) served: Option<String>,
    pub(super) left_out: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct CacheFile {
    format: String,
    version: u32,
    request: Value,
    reply: CachedReply,
}

/// A folder of replies.
#[derive(Debug, Clone)]
pub(super) struct ResponseCache {
    disk: RealDisk,
    root: PathBuf,
}

impl ResponseCache {
    /// The cache in `root`, which is created.
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(root)?;
        Ok(Self { disk: RealDisk::new(root), root: root.to_owned() })
    }

    /// The cached reply to `request`, if there is one.
    ///
    /// # Errors
    /// A file that cannot be read or does not belong to the request; the message names it.
    pub(super) fn get(&self, request: &Value) -> Result<Option<CachedReply>, String> {
        let path = path(request)?;
        let unusable = |why: &dyn std::fmt::Display| {
            format!(
                "the cached reply {} cannot be used: {why}; delete it to send the request again",
                self.root.join(&path).display()
            )
        };
        let Some(bytes) = self.disk.read(&path).map_err(|error| unusable(&error))? else { return Ok(None) };
        let entry: CacheFile = serde_json::from_slice(&bytes).map_err(|error| unusable(&error))?;
        if entry.format != FORMAT || entry.version != VERSION || entry.request != *request {
            return Err(unusable(&"it belongs to another request, or another version of loom wrote it"));
        }
        Ok(Some(entry.reply))
    }

    /// Stores `reply`, unless another process has stored one first.
    ///
    /// # Errors
    /// The error of the file system.
    pub(super) fn put(&self, request: &Value, reply: &CachedReply) -> Result<(), String> {
        let path = path(request)?;
        let entry =
            CacheFile { format: FORMAT.to_owned(), version: VERSION, request: request.clone(), reply: reply.clone() };
        let text = canonical_json(&entry).map_err(|error| error.to_string())?;
        let folder = path.split_once('/').map_or("", |(folder, _)| folder);
        let written = || -> Result<(), Box<dyn std::error::Error>> {
            self.disk.make_dir(LOOM_DIR)?;
            let _lock = self.disk.lock(LOCK, true)?;
            if self.disk.read(&path)?.is_none() {
                self.disk.make_dir(folder)?;
                self.disk.sync_dir("")?;
                replace(&self.disk, &FileChange { path: path.clone(), before: None, after: Some(text.into_bytes()) })?;
            }
            Ok(())
        };
        written().map_err(|error| {
            format!(
                "the reply cannot be stored in the cache {}: {error}; free some space or leave out --cache",
                self.root.display()
            )
        })
    }
}

/// The file of the reply to `request`.
fn path(request: &Value) -> Result<String, String> {
    let digest = Digest::of(canonical_json(request).map_err(|error| error.to_string())?).to_string();
    let (folder, _) = digest.split_at(2);
    Ok(format!("{folder}/{digest}.json"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(content: &str) -> CachedReply {
        CachedReply {
            thought: None,
            content: content.to_owned(),
            tokens: vec![TokenLogprob::unknown(None, content)],
            finish: Finish::Stop,
            usage: Usage { tokens_in: 3, tokens_out: 1, tokens_cached: 0 },
            usage_reported: true,
            served: Some("m-2".to_owned()),
            left_out: Vec::new(),
        }
    }

    #[test]
    fn a_reply_is_found_by_its_request_and_the_first_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ResponseCache::open(folder.path()).unwrap();
        let request = json!({"model": "m", "temperature": 0.5, "place": [1, 2]});
        assert_eq!(cache.get(&request), Ok(None));
        cache.put(&request, &answer("first")).unwrap();
        cache.put(&request, &answer("second")).unwrap();
        let again = ResponseCache::open(folder.path()).unwrap();
        assert_eq!(again.get(&request), Ok(Some(answer("first"))));
        assert_eq!(again.get(&json!({"model": "m", "temperature": 0.5, "place": [1, 3]})), Ok(None));
    }

    #[test]
    fn a_damaged_file_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ResponseCache::open(folder.path()).unwrap();
        let request = json!({"model": "m"});
        cache.put(&request, &answer("x")).unwrap();
        let file = folder.path().join(path(&request).unwrap());
        std::fs::write(&file, "{").unwrap();
        let error = cache.get(&request).unwrap_err();
        assert!(error.contains(&file.display().to_string()) && error.contains("delete it"), "{error}");
    }

    #[test]
    fn concurrent_writers_all_succeed() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let cache = ResponseCache::open(folder.path()).unwrap();
                scope.spawn(move || {
                    for number in 0..8 {
                        cache.put(&json!({"number": number}), &answer(&format!("{writer}"))).unwrap();
                    }
                });
            }
        });
        let cache = ResponseCache::open(folder.path()).unwrap();
        assert!((0..8).all(|number| cache.get(&json!({"number": number})).unwrap().is_some()));
    }
}
