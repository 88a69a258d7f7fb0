//! The files of a workspace as texts: the input of the pure parts of the memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::id::{BlockId, BlockKind};
use super::parse::Document;

/// Texts by path, relative to the workspace. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkspaceTexts {
    files: BTreeMap<String, Arc<str>>,
}

/// The file for new decisions.
pub const DECISIONS_FILE: &str = "decisions/DECISIONS.md";

/// The source-of-truth folders; their `*.md` files contain blocks.
pub const TRUTH_FOLDERS: [&str; 3] = ["decisions/", "tasks/", "entities/"];

impl WorkspaceTexts {
    /// The text of a file.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(AsRef::as_ref)
    }

    /// The text of a file, or `""`.
    pub fn text(&self, path: &str) -> &str {
        self.get(path).unwrap_or_default()
    }

    /// Sets a file's text.
    pub fn set(&mut self, path: impl Into<String>, text: impl Into<Arc<str>>) {
        self.files.insert(path.into(), text.into());
    }

    /// Removes a file.
    pub fn remove(&mut self, path: &str) {
        self.files.remove(path);
    }

    /// A copy with some texts replaced.
    #[must_use]
    pub fn with(&self, changes: &BTreeMap<String, String>) -> Self {
        let mut texts = self.clone();
        for (path, text) in changes {
            texts.set(path.clone(), text.as_str());
        }
        texts
    }

    /// All files by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_ref()))
    }

    /// The Markdown files in a folder (given with its `/`) and its subfolders.
    pub fn under<'t>(&'t self, folder: &'t str) -> impl Iterator<Item = (&'t str, &'t str)> {
        let from = self.files.range::<str, _>((std::ops::Bound::Included(folder), std::ops::Bound::Unbounded));
        let files = from.take_while(move |(path, _)| path.starts_with(folder));
        files.filter(|(path, _)| is_markdown(path)).map(|(path, text)| (path.as_str(), text.as_ref()))
    }

    /// The files that contain blocks: the source-of-truth folders and the records in `intelligence/`.
    pub fn block_files(&self) -> impl Iterator<Item = (&str, &str)> {
        let records = RECORD_FILES.into_iter().chain(super::proposal::TYPES.map(|(_, file)| file));
        let records = records.filter_map(|path| self.files.get_key_value(path));
        let records = records.map(|(path, text)| (path.as_str(), text.as_ref()));
        TRUTH_FOLDERS.into_iter().flat_map(|folder| self.under(folder)).chain(records)
    }

    /// Parses the block files.
    pub fn parse(&self) -> ParsedTexts<'_> {
        ParsedTexts { files: self.block_files().map(|(path, text)| (path, Document::parse(text))).collect() }
    }

    /// The next free id of `kind` on `day` in `files`; `None` when the day's counters are used up.
    pub fn next_id(&self, kind: BlockKind, day: jiff::civil::Date, files: &[&str]) -> Option<String> {
        IdSource::new(kind, day, files.iter().map(|file| self.text(file))).next()
    }
}

/// The record files in `intelligence/`.
pub const RECORD_FILES: [&str; 4] =
    ["intelligence/CONTRADICTIONS.md", "intelligence/DRIFT.md", "intelligence/IMPACT.md", "intelligence/SIGNALS.md"];

/// The parsed block files.
#[derive(Debug)]
pub struct ParsedTexts<'a> {
    files: Vec<(&'a str, Document<'a>)>,
}

impl<'a> ParsedTexts<'a> {
    /// Every file and its document.
    pub fn files(&self) -> impl Iterator<Item = (&'a str, &Document<'a>)> {
        self.files.iter().map(|(path, document)| (*path, document))
    }

    /// Every block with its file.
    pub fn blocks(&self) -> impl Iterator<Item = (&'a str, super::parse::Block<'_, 'a>)> {
        self.files().flat_map(|(path, document)| document.blocks().map(move |block| (path, block)))
    }

    /// The first block called `id`.
    pub fn find(&self, id: &str) -> Option<(&'a str, super::parse::Block<'_, 'a>)> {
        self.blocks().find(|(_, block)| block.id().as_str() == id)
    }
}

/// Generates free ids of one kind on one day.
#[derive(Debug)]
pub struct IdSource {
    stem: String,
    last: usize,
}

impl IdSource {
    /// Continues after the highest counter used in `texts`.
    pub fn new<'t>(kind: BlockKind, day: jiff::civil::Date, texts: impl IntoIterator<Item = &'t str>) -> Self {
        let stem = format!("{}-{}-", kind.prefix(), day.strftime("%Y%m%d"));
        let mut last = 0;
        let header = format!("[{stem}");
        for text in texts {
            for at in memchr::memmem::find_iter(text.as_bytes(), header.as_bytes()) {
                let id = text.get(at + 1..at + 1 + stem.len() + 3).and_then(BlockId::parse);
                let counter = id.and_then(|id| id.as_str().rsplit('-').next()).and_then(|counter| counter.parse().ok());
                last = counter.map_or(last, |counter: usize| last.max(counter));
            }
        }
        Self { stem, last }
    }
}

impl Iterator for IdSource {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        self.last += 1;
        (self.last <= crate::foundation::base::limits::COUNTER_MAX).then(|| format!("{}{:03}", self.stem, self.last))
    }
}

/// Whether the path is a Markdown file.
pub fn is_markdown(path: &str) -> bool {
    extension(path) == "md"
}

/// The part of a path after its last dot.
pub fn extension(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, extension)| extension)
}
