//! The texts that receipts refer to by digest, one file each, so that each can be erased.

use std::io;
use std::sync::Arc;

use super::receipt::Receipt;
use crate::foundation::base::Digest;
use crate::foundation::store::Disk;

const FOLDER: &str = "contents";

/// The texts of a log.
#[derive(Clone)]
pub struct ContentStore {
    disk: Arc<dyn Disk>,
}

/// The state of a text that a receipt refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentState {
    /// Unchanged.
    Intact,
    /// Erased, as recorded in a receipt.
    Erased,
    /// Missing, without a receipt of its erasure.
    Missing,
    /// Its digest is not the one in the receipt.
    Altered,
}

impl ContentStore {
    /// The texts of the log in the root folder of `disk`.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk }
    }

    /// Stores a text durably and returns its digest.
    ///
    /// # Errors
    /// If it may not be durable.
    pub fn put(&self, text: &[u8]) -> io::Result<Digest> {
        let digest = Digest::of(text);
        let path = path(digest);
        if self.disk.read(&path)?.as_deref() == Some(text) {
            return Ok(digest);
        }
        if !self.disk.is_dir(FOLDER) {
            self.disk.make_dir(FOLDER)?;
            self.disk.sync_dir("")?;
        }
        let temporary = format!("{path}.tmp");
        self.disk.write(&temporary, text)?;
        self.disk.sync(&temporary)?;
        self.disk.rename(&temporary, &path)?;
        self.disk.sync_dir(FOLDER)?;
        Ok(digest)
    }

    /// A text; `None` if it is missing or altered.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn get(&self, digest: Digest) -> io::Result<Option<Vec<u8>>> {
        Ok(self.disk.read(&path(digest))?.filter(|text| Digest::of(text) == digest))
    }

    pub(super) fn remove(&self, digest: Digest) -> io::Result<()> {
        self.disk.remove(&path(digest))?;
        if self.disk.is_dir(FOLDER) { self.disk.sync_dir(FOLDER) } else { Ok(()) }
    }

    /// The state of each text that the receipts refer to, in their order.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn states(&self, receipts: &[Receipt]) -> io::Result<Vec<(u64, String, Digest, ContentState)>> {
        let is_erasure = |receipt: &&Receipt| receipt.entry.kind == "content.erased";
        let erased: Vec<_> =
            receipts.iter().filter(is_erasure).flat_map(|receipt| receipt.entry.contents.values()).collect();
        let mut states = Vec::new();
        for receipt in receipts.iter().filter(|receipt| !is_erasure(receipt)) {
            for (name, digest) in &receipt.entry.contents {
                let state = match self.disk.read(&path(*digest))? {
                    Some(text) if Digest::of(&text) == *digest => ContentState::Intact,
                    Some(_) => ContentState::Altered,
                    None if erased.contains(&digest) => ContentState::Erased,
                    None => ContentState::Missing,
                };
                states.push((receipt.seq, name.clone(), *digest, state));
            }
        }
        Ok(states)
    }
}

fn path(digest: Digest) -> String {
    format!("{FOLDER}/{digest}")
}
