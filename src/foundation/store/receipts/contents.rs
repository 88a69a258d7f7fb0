//! The texts that receipts name by digest, each a file of its own, so that one can be erased.

use std::io;
use std::sync::Arc;

use super::receipt::Receipt;
use crate::foundation::base::Digest;
use crate::foundation::store::Disk;

const FOLDER: &str = "contents";

/// The texts beside a log.
#[derive(Clone)]
pub struct Contents {
    disk: Arc<dyn Disk>,
}

/// How a text that a receipt names is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentState {
    /// As it was.
    Kept,
    /// Erased, and a receipt says so.
    Erased,
    /// Gone without a receipt.
    Missing,
    /// Not what the receipt names.
    Altered,
}

impl Contents {
    /// The texts of the log in the folder that `disk` stands for.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk }
    }

    /// Keeps a text; when this returns it is durable, so that a receipt may name it.
    ///
    /// # Errors
    /// When it may not be durable.
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

    /// A text; `None` when it is not there or not what the digest says.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn get(&self, digest: Digest) -> io::Result<Option<Vec<u8>>> {
        Ok(self.disk.read(&path(digest))?.filter(|text| Digest::of(text) == digest))
    }

    pub(super) fn remove(&self, digest: Digest) -> io::Result<()> {
        self.disk.remove(&path(digest))?;
        if self.disk.is_dir(FOLDER) { self.disk.sync_dir(FOLDER) } else { Ok(()) }
    }

    /// How each text that the receipts name is found, in their order.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn states(&self, receipts: &[Receipt]) -> io::Result<Vec<(u64, String, Digest, ContentState)>> {
        let is_erasure = |receipt: &&Receipt| receipt.entry.kind == "content.erased";
        let erased: Vec<_> =
            receipts.iter().filter(is_erasure).flat_map(|receipt| receipt.entry.contents.values()).collect();
        let mut states = Vec::new();
        for receipt in receipts.iter().filter(|receipt| !is_erasure(receipt)) {
            for (name, digest) in &receipt.entry.contents {
                let state = match self.disk.read(&path(*digest))? {
                    Some(text) if Digest::of(&text) == *digest => ContentState::Kept,
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
