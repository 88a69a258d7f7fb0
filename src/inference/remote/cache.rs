//! The response cache: replies by the digest of the request that led to them, one file each.
//!
//! A request's key is its canonical JSON: address, model, messages, sampling, and, where tokens are drawn, the place of
//! the draw (run seed, rollout, turn, role, attempt). So a rerun replays, and another draw asks again. A key (the
//! secret kind) is never part of it. The file holds the request beside the reply and is read back only for an equal one.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::foundation::base::{Digest, canonical_json};
use crate::foundation::chat::{Finish, TokenLogprob, Usage};
use crate::foundation::store::{Change, Disk, HOME, RealDisk, replace};

/// The value of `format` in a cache's files.
const FORMAT: &str = "loom-response";
const VERSION: u32 = 1;
const LOCK: &str = ".loom/lock";

/// A reply as a provider gave it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) content: String,
    pub(super) tokens: Vec<TokenLogprob>,
    pub(super) finish: Finish,
    pub(super) usage: Usage,
    pub(super) usage_told: bool,
    pub(super) served: Option<String>,
    pub(super) left_out: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    format: String,
    version: u32,
    request: Value,
    reply: Answer,
}

/// A folder of replies.
#[derive(Debug, Clone)]
pub(super) struct Responses {
    disk: RealDisk,
    root: PathBuf,
}

impl Responses {
    /// The cache in `root`, which is created.
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(root)?;
        Ok(Self { disk: RealDisk::new(root), root: root.to_owned() })
    }

    /// The reply to `request`, if one was kept.
    ///
    /// # Errors
    /// A file that cannot be read or holds something else; the message names it.
    pub(super) fn get(&self, request: &Value) -> Result<Option<Answer>, String> {
        let path = path(request)?;
        let told = |why: &dyn std::fmt::Display| {
            format!(
                "the cached reply {} cannot be used: {why}; delete it to ask again",
                self.root.join(&path).display()
            )
        };
        let Some(bytes) = self.disk.read(&path).map_err(|error| told(&error))? else { return Ok(None) };
        let entry: Entry = serde_json::from_slice(&bytes).map_err(|error| told(&error))?;
        if entry.format != FORMAT || entry.version != VERSION || entry.request != *request {
            return Err(told(&"it answers another request, or another version of loom wrote it"));
        }
        Ok(Some(entry.reply))
    }

    /// Keeps `reply`; another process may have kept one first, which then stays.
    ///
    /// # Errors
    /// What the disk says, in words.
    pub(super) fn put(&self, request: &Value, reply: &Answer) -> Result<(), String> {
        let path = path(request)?;
        let entry =
            Entry { format: FORMAT.to_owned(), version: VERSION, request: request.clone(), reply: reply.clone() };
        let text = canonical_json(&entry).map_err(|error| error.to_string())?;
        let folder = path.split_once('/').map_or("", |(folder, _)| folder);
        let kept = || -> Result<(), Box<dyn std::error::Error>> {
            self.disk.make_dir(HOME)?;
            let _lock = self.disk.lock(LOCK, true)?;
            if self.disk.read(&path)?.is_none() {
                self.disk.make_dir(folder)?;
                self.disk.sync_dir("")?;
                replace(&self.disk, &Change { path: path.clone(), before: None, after: Some(text.into_bytes()) })?;
            }
            Ok(())
        };
        kept().map_err(|error| {
            format!(
                "the reply cannot be kept in the cache {}: {error}; make room or leave out --cache",
                self.root.display()
            )
        })
    }
}

/// Where the reply to `request` is kept.
fn path(request: &Value) -> Result<String, String> {
    let digest = Digest::of(canonical_json(request).map_err(|error| error.to_string())?).to_string();
    let (folder, _) = digest.split_at(2);
    Ok(format!("{folder}/{digest}.json"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(content: &str) -> Answer {
        Answer {
            content: content.to_owned(),
            tokens: vec![TokenLogprob::unknown(None, content)],
            finish: Finish::Stop,
            usage: Usage { tokens_in: 3, tokens_out: 1, tokens_cached: 0 },
            usage_told: true,
            served: Some("m-2".to_owned()),
            left_out: Vec::new(),
        }
    }

    #[test]
    fn a_reply_is_found_by_its_request_alone_and_the_first_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Responses::open(folder.path()).unwrap();
        let request = json!({"model": "m", "temperature": 0.5, "place": [1, 2]});
        assert_eq!(cache.get(&request), Ok(None));
        cache.put(&request, &answer("first")).unwrap();
        cache.put(&request, &answer("second")).unwrap();
        let again = Responses::open(folder.path()).unwrap();
        assert_eq!(again.get(&request), Ok(Some(answer("first"))));
        assert_eq!(again.get(&json!({"model": "m", "temperature": 0.5, "place": [1, 3]})), Ok(None));
    }

    #[test]
    fn a_damaged_file_is_named_and_not_taken_for_a_reply() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Responses::open(folder.path()).unwrap();
        let request = json!({"model": "m"});
        cache.put(&request, &answer("x")).unwrap();
        let file = folder.path().join(path(&request).unwrap());
        std::fs::write(&file, "{").unwrap();
        let error = cache.get(&request).unwrap_err();
        assert!(error.contains(&file.display().to_string()) && error.contains("delete it"), "{error}");
    }

    #[test]
    fn many_writers_do_not_disturb_each_other() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let cache = Responses::open(folder.path()).unwrap();
                scope.spawn(move || {
                    for number in 0..8 {
                        cache.put(&json!({"number": number}), &answer(&format!("{writer}"))).unwrap();
                    }
                });
            }
        });
        let cache = Responses::open(folder.path()).unwrap();
        assert!((0..8).all(|number| cache.get(&json!({"number": number})).unwrap().is_some()));
    }
}
