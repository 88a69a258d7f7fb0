//! The files of a workspace as texts: what every pure part of the memory works on.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::id::{BlockId, Kind};
use super::parse::Document;

/// Texts by path, relative to the workspace. Cloning is cheap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    files: BTreeMap<String, Arc<str>>,
}

/// The folders that hold what is true; their `*.md` files are block files.
pub const TRUTH: [&str; 3] = ["decisions/", "tasks/", "entities/"];

impl Texts {
    /// The text of a file.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(AsRef::as_ref)
    }

    /// The text of a file, or `""`.
    pub fn text(&self, path: &str) -> &str {
        self.get(path).unwrap_or_default()
    }

    /// Puts a file in place.
    pub fn set(&mut self, path: impl Into<String>, text: impl Into<Arc<str>>) {
        self.files.insert(path.into(), text.into());
    }

    /// Takes a file away.
    pub fn remove(&mut self, path: &str) {
        self.files.remove(path);
    }

    /// These texts with others over them.
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

    /// The Markdown files directly or deeper in a folder, which is given with its `/`.
    pub fn under<'t>(&'t self, folder: &'t str) -> impl Iterator<Item = (&'t str, &'t str)> {
        let from = self.files.range::<str, _>((std::ops::Bound::Included(folder), std::ops::Bound::Unbounded));
        let files = from.take_while(move |(path, _)| path.starts_with(folder));
        files.filter(|(path, _)| is_markdown(path)).map(|(path, text)| (path.as_str(), text.as_ref()))
    }

    /// The block files: those of decisions, tasks and entities, and those of `intelligence/` that hold records.
    pub fn block_files(&self) -> impl Iterator<Item = (&str, &str)> {
        let records = RECORDS.into_iter().chain(super::proposal::TYPES.map(|(_, file)| file));
        let records = records.filter_map(|path| self.files.get_key_value(path));
        let records = records.map(|(path, text)| (path.as_str(), text.as_ref()));
        TRUTH.into_iter().flat_map(|folder| self.under(folder)).chain(records)
    }

    /// Parses the block files.
    pub fn parse(&self) -> Parsed<'_> {
        Parsed { files: self.block_files().map(|(path, text)| (path, Document::parse(text))).collect() }
    }

    /// The next free id of `kind` on `day` in `files`; `None` when the day's counters are used up.
    pub fn next_id(&self, kind: Kind, day: jiff::civil::Date, files: &[&str]) -> Option<String> {
        IdSource::new(kind, day, files.iter().map(|file| self.text(file))).next()
    }
}

/// The files in `intelligence/` that hold records as blocks.
pub const RECORDS: [&str; 4] =
    ["intelligence/CONTRADICTIONS.md", "intelligence/DRIFT.md", "intelligence/IMPACT.md", "intelligence/SIGNALS.md"];

/// The block files, parsed.
#[derive(Debug)]
pub struct Parsed<'a> {
    files: Vec<(&'a str, Document<'a>)>,
}

impl<'a> Parsed<'a> {
    /// Every file and its document.
    pub fn files(&self) -> impl Iterator<Item = (&'a str, &Document<'a>)> {
        self.files.iter().map(|(path, document)| (*path, document))
    }

    /// Every block with the file it stands in.
    pub fn blocks(&self) -> impl Iterator<Item = (&'a str, super::parse::Block<'_, 'a>)> {
        self.files().flat_map(|(path, document)| document.blocks().map(move |block| (path, block)))
    }

    /// The first block called `id`.
    pub fn find(&self, id: &str) -> Option<(&'a str, super::parse::Block<'_, 'a>)> {
        self.blocks().find(|(_, block)| block.id().as_str() == id)
    }
}

/// Hands out free ids of one kind on one day.
#[derive(Debug)]
pub struct IdSource {
    stem: String,
    last: usize,
}

impl IdSource {
    /// After the highest counter that is used in `texts`.
    pub fn new<'t>(kind: Kind, day: jiff::civil::Date, texts: impl IntoIterator<Item = &'t str>) -> Self {
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

/// Whether the path names a Markdown file.
pub fn is_markdown(path: &str) -> bool {
    extension(path) == "md"
}

/// What follows the last dot of a path.
pub fn extension(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, extension)| extension)
}
