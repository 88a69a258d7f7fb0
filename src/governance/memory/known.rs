//! What is read to look for anything: the blocks of the truth, parsed once, the decisions in force and what they sign.

use super::contradiction::Side;
use super::id::{BlockId, Kind, ids_in};
use super::parse::{Block, Document};
use super::signature::Signature;
use super::texts::Texts;

/// The documents of `decisions/`.
pub fn decisions(texts: &Texts) -> Vec<Document<'_>> {
    texts.under("decisions/").map(|(_, text)| Document::parse(text)).collect()
}

/// The active decisions of the documents with their signatures.
pub fn signed<'a>(documents: &[Document<'a>]) -> Vec<(&'a str, Vec<Signature<'a>>)> {
    let blocks = documents.iter().flat_map(Document::blocks);
    let active = blocks.filter(|block| block.id().kind() == Kind::Decision && block.head("Status") == "active");
    active.map(|block| (block.id().as_str(), Signature::of(&block))).collect()
}

/// The signatures one by one.
pub fn sides<'s, 'a>(signed: &'s [(&'a str, Vec<Signature<'a>>)]) -> Vec<Side<'s, 'a>> {
    let one = |(decision, signatures): &'s (&'a str, Vec<Signature<'a>>)| {
        signatures.iter().map(|signature| Side { decision, signature })
    };
    signed.iter().flat_map(one).collect()
}

/// What the scan reads, parsed once.
pub(super) struct Known<'a> {
    pub(super) decisions: Vec<Document<'a>>,
    pub(super) tasks: Vec<Document<'a>>,
    pub(super) entities: Vec<Document<'a>>,
}

impl<'a> Known<'a> {
    pub(super) fn read(texts: &'a Texts) -> Self {
        let parse = |folder: &'static str| texts.under(folder).map(|(_, text)| Document::parse(text)).collect();
        Self { decisions: parse("decisions/"), tasks: parse("tasks/"), entities: parse("entities/") }
    }

    pub(super) fn blocks(&self, kind: Kind) -> impl Iterator<Item = Block<'_, 'a>> {
        let documents = match kind {
            Kind::Decision => &self.decisions,
            Kind::Task => &self.tasks,
            _ => &self.entities,
        };
        documents.iter().flat_map(Document::blocks).filter(move |block| block.id().kind() == kind)
    }
}

/// The ids that a text names, each once.
pub(super) fn named(text: &str, kind: Kind) -> impl Iterator<Item = &str> {
    ids_in(text).filter(move |id| id.kind() == kind).map(BlockId::as_str)
}
