//! Repeated searches: the index is kept between searches and rebuilt when a file has changed.

use super::{MemoryError, ReadScope, Result, Workspace};
use crate::foundation::base::Digest;
use crate::foundation::chat::Embedder;
use crate::foundation::store::{FileStamp, StoreError};
use crate::governance::memory::proposal::TYPES;
use crate::governance::memory::search::semantic::{Passage, PassageVectors, passages};
use crate::governance::memory::search::{SearchHit, SearchIndex, SearchQuery};
use crate::governance::memory::texts::{RECORD_FILES, TRUTH_FOLDERS, is_markdown};

/// The number of passages per embedder call.
const BATCH: usize = 64;

/// A search with a cached index, for one workspace.
#[derive(Debug, Default)]
pub struct CachedSearch {
    index: SearchIndex,
    /// The stamps of the block files at indexing time.
    stamps: Vec<(String, FileStamp)>,
    /// The passages of the index, once a hybrid search was made.
    passages: Option<Vec<Passage>>,
    /// Their vectors, and the embedder that made them.
    vectors: PassageVectors,
    model: Option<String>,
}

impl CachedSearch {
    /// The blocks of `workspace` that match `query` by words, best first.
    ///
    /// # Errors
    /// If the workspace cannot be read.
    pub fn search(&mut self, workspace: &Workspace, query: &SearchQuery) -> Result<Vec<SearchHit>> {
        self.refresh(workspace, false)?;
        Ok(self.index.search(query))
    }

    /// A hybrid search. `model` distinguishes the vectors of one embedder from those of another; they are cached in the
    /// workspace's `.loom` folder.
    ///
    /// # Errors
    /// If the workspace cannot be read, or the embedder fails.
    pub async fn search_hybrid(
        &mut self,
        workspace: &Workspace,
        query: &SearchQuery,
        embedder: &dyn Embedder,
        model: &str,
    ) -> Result<Vec<SearchHit>> {
        self.refresh(workspace, true)?;
        let passages = self.passages.take().unwrap_or_default();
        let outcome = self.embed(workspace, &passages, embedder, model).await;
        self.passages = Some(passages);
        outcome?;
        let like = embedder.embed(&[query.text.as_str()]).await?.pop().unwrap_or_default();
        Ok(self.index.search_hybrid(query, &like, self.passages.as_deref().unwrap_or_default(), &self.vectors))
    }

    fn refresh(&mut self, workspace: &Workspace, with_passages: bool) -> Result<()> {
        workspace.demand_workspace()?;
        let now = workspace.stamps()?;
        let same = self.stamps.len() == now.len()
            && self.stamps.iter().zip(&now).all(|((was, before), (is, after))| was == is && before.still(after));
        if same && (self.passages.is_some() || !with_passages) {
            return Ok(());
        }
        // The stamps are taken before reading, so that a later write is seen by the next search.
        let texts = workspace.read(ReadScope::All)?.texts;
        let parsed = texts.parse();
        self.index = SearchIndex::new(&parsed);
        self.passages = with_passages.then(|| passages(&parsed));
        self.stamps = now;
        Ok(())
    }

    async fn embed(
        &mut self,
        workspace: &Workspace,
        passages: &[Passage],
        embedder: &dyn Embedder,
        model: &str,
    ) -> Result<()> {
        let path = format!("{}/vectors-{}", crate::foundation::store::LOOM_DIR, Digest::of(model).short());
        if self.model.as_deref() != Some(model) {
            let cached = workspace.disk.read(&path).ok().flatten().and_then(|bytes| PassageVectors::read(&bytes));
            (self.vectors, self.model) = (cached.unwrap_or_default(), Some(model.to_owned()));
        }
        let missing: Vec<_> = passages.iter().filter(|passage| self.vectors.get(&passage.digest).is_none()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        for batch in missing.chunks(BATCH) {
            let texts: Vec<_> = batch.iter().map(|passage| passage.text.as_str()).collect();
            for (passage, vector) in batch.iter().zip(embedder.embed(&texts).await?) {
                self.vectors.insert(passage.digest, vector);
            }
        }
        self.vectors.keep(passages);
        // A cache: if it cannot be written, the next search computes the vectors again.
        let _ = workspace.disk.write(&path, &self.vectors.print());
        Ok(())
    }
}

impl Workspace {
    /// The stamps of the block files, by path.
    fn stamps(&self) -> Result<Vec<(String, FileStamp)>> {
        let mut paths: Vec<String> =
            RECORD_FILES.into_iter().chain(TYPES.map(|(_, file)| file)).map(str::to_owned).collect();
        let mut folders: Vec<String> =
            TRUTH_FOLDERS.iter().map(|folder| folder.trim_end_matches('/').to_owned()).collect();
        while let Some(folder) = folders.pop() {
            let (files, inner) = self.list(&folder)?;
            paths.extend(files.iter().filter(|file| is_markdown(file)).map(|file| format!("{folder}/{file}")));
            folders.extend(inner.iter().filter(|name| !name.starts_with('.')).map(|name| format!("{folder}/{name}")));
        }
        paths.sort_unstable();
        let stamp = |path: String| {
            let io = |source| MemoryError::from(StoreError::Io { action: "read", path: path.clone(), source });
            let stamp = self.disk.stamp(&path).map_err(io)?;
            Ok(stamp.map(|stamp| (path, stamp)))
        };
        paths.into_iter().filter_map(|path| stamp(path).transpose()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::foundation::store::{Disk as _, SimDisk};

    #[test]
    fn a_manual_edit_is_found_by_the_next_search() {
        let disk = SimDisk::default();
        let workspace = Workspace::on(Arc::new(disk.clone()), "sim", jiff::Timestamp::UNIX_EPOCH);
        workspace.init().unwrap();
        let mut finder = CachedSearch::default();
        let query = SearchQuery { text: "sqlite".into(), limit: 10, ..SearchQuery::default() };
        assert_eq!(finder.search(&workspace, &query).unwrap(), []);
        for statement in ["Use SQLite", "Use SQLite again"] {
            let block = format!("[D-20260201-001]\nDate: 2026-02-01\nStatus: active\nStatement: {statement}\n");
            disk.write("decisions/DECISIONS.md", block.as_bytes()).unwrap();
            assert_eq!(finder.search(&workspace, &query).unwrap()[0].title, statement);
        }
        disk.remove("decisions/DECISIONS.md").unwrap();
        assert_eq!(finder.search(&workspace, &query).unwrap(), []);
    }
}
