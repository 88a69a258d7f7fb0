//! The input of a scan: the parsed source-of-truth blocks, the active decisions and their signatures.

use super::contradiction::ContradictionSide;
use super::finding::Finding;
use super::id::{BlockId, BlockKind, ids_in};
use super::parse::{Block, Document};
use super::signature::Signature;
use super::texts::{TRUTH_FOLDERS, WorkspaceTexts};

/// The documents of `decisions/`.
pub fn decisions(texts: &WorkspaceTexts) -> Vec<Document<'_>> {
    texts.under("decisions/").map(|(_, text)| Document::parse(text)).collect()
}

/// The active decisions of the documents with their signatures.
pub fn active_signatures<'a>(documents: &[Document<'a>]) -> Vec<(&'a str, Vec<Signature<'a>>)> {
    let blocks = documents.iter().flat_map(Document::blocks);
    let active = blocks.filter(|block| block.id().kind() == BlockKind::Decision && block.head("Status") == "active");
    active.map(|block| (block.id().as_str(), Signature::of(&block))).collect()
}

/// The signatures as a flat list.
pub fn contradiction_sides<'s, 'a>(
    active_signatures: &'s [(&'a str, Vec<Signature<'a>>)],
) -> Vec<ContradictionSide<'s, 'a>> {
    let one = |(decision, signatures): &'s (&'a str, Vec<Signature<'a>>)| {
        signatures.iter().map(|signature| ContradictionSide { decision, signature })
    };
    active_signatures.iter().flat_map(one).collect()
}

/// The source-of-truth folders, parsed once.
pub(super) struct ScanInput<'a> {
    pub(super) decisions: Vec<Document<'a>>,
    pub(super) tasks: Vec<Document<'a>>,
    pub(super) entities: Vec<Document<'a>>,
}

impl<'a> ScanInput<'a> {
    pub(super) fn read(texts: &'a WorkspaceTexts) -> Self {
        let parse = |folder: &'static str| texts.under(folder).map(|(_, text)| Document::parse(text)).collect();
        Self { decisions: parse("decisions/"), tasks: parse("tasks/"), entities: parse("entities/") }
    }

    /// What could not be read, in file order: a constraint may be lost there.
    pub(super) fn unread(&self, texts: &WorkspaceTexts) -> Vec<Finding> {
        let folders = TRUTH_FOLDERS.into_iter().zip([&self.decisions, &self.tasks, &self.entities]);
        let files = folders.flat_map(|(folder, documents)| texts.under(folder).map(|(path, _)| path).zip(documents));
        let named = |path: &str, finding: &Finding| Finding { file: path.to_owned(), ..finding.clone() };
        files.flat_map(|(path, document)| document.findings().iter().map(move |finding| named(path, finding))).collect()
    }

    pub(super) fn blocks(&self, kind: BlockKind) -> impl Iterator<Item = Block<'_, 'a>> {
        let documents = match kind {
            BlockKind::Decision => &self.decisions,
            BlockKind::Task => &self.tasks,
            _ => &self.entities,
        };
        documents.iter().flat_map(Document::blocks).filter(move |block| block.id().kind() == kind)
    }
}

/// The ids of `kind` in a text.
pub(super) fn ids_of_kind(text: &str, kind: BlockKind) -> impl Iterator<Item = &str> {
    ids_in(text).filter(move |id| id.kind() == kind).map(BlockId::as_str)
}
