//! Export and import: one JSON line per block, with its unchanged text.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{MemoryError, ReadScope, Result, Workspace};
use crate::foundation::base::Digest;
use crate::foundation::gate::{Category, Effect, Permit, Scope};
use crate::governance::memory::authority::{InitWriter, WorkspaceArea, WriteSet};
use crate::governance::memory::edit;
use crate::governance::memory::parse::Document;

/// An exported block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRecord {
    /// The block's id.
    pub id: String,
    /// Its kind, for readers of the file; the id determines it.
    pub kind: String,
    /// The file that contains it.
    pub file: String,
    /// Its fields: a text each, or a list of items. For readers; `text` is what is imported.
    pub fields: serde_json::Map<String, serde_json::Value>,
    /// The text of the block.
    pub text: String,
}

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// The number of new blocks.
    pub blocks: usize,
    /// The number of blocks that existed with the same text.
    pub known: usize,
}

impl Workspace {
    /// All blocks, in file order.
    ///
    /// # Errors
    /// If the workspace cannot be read.
    pub fn export(&self) -> Result<Vec<BlockRecord>> {
        let texts = self.texts()?;
        let parsed = texts.parse();
        let record = |(path, block): (&str, crate::governance::memory::parse::Block<'_, '_>)| {
            let value = |field: &crate::governance::memory::parse::Field<'_>| {
                let items: Vec<_> = field.items().map(|item| item.value().into_owned()).collect();
                if items.is_empty() { serde_json::Value::from(field.value().into_owned()) } else { items.into() }
            };
            BlockRecord {
                id: block.id().as_str().to_owned(),
                kind: block.id().kind().name().to_owned(),
                file: path.to_owned(),
                fields: block.fields().iter().map(|field| (field.key.to_owned(), value(field))).collect(),
                text: block.text().to_owned(),
            }
        };
        Ok(parsed.blocks().map(record).collect())
    }

    /// The effect of importing these records.
    pub fn import_effect(records: &[BlockRecord]) -> Effect {
        let effect = Effect::new(
            Category::MemoryApply,
            format!("import {}", Digest::of(serde_json::to_string(records).unwrap_or_default())),
        );
        effect.reading(Scope::Knowledge).writing(Scope::Knowledge)
    }

    /// Imports blocks with any status. Existing blocks with the same text are skipped; an existing id with another text stops
    /// the import, because changes must be proposed. Only files without blocks are filled.
    ///
    /// # Errors
    /// If the permit is not for them, a record is not one block, or its file contains other blocks; nothing is imported
    /// then.
    pub fn import(&self, permit: Permit, records: &[BlockRecord]) -> Result<ImportReport> {
        permit.spend(&Self::import_effect(records), self.now.timestamp())?;
        let loaded = self.lock_and_read(ReadScope::All)?;
        let parsed = loaded.texts.parse();
        let known: BTreeMap<_, _> =
            parsed.blocks().map(|(path, block)| (block.id().as_str(), (path, block.text()))).collect();
        let mut seen = BTreeSet::new();
        let mut new: BTreeMap<&str, String> = BTreeMap::new();
        let mut imported = ImportReport { blocks: 0, known: 0 };
        for record in records {
            let document = Document::parse(&record.text);
            let whole = document
                .blocks()
                .next()
                .filter(|block| block.text() == record.text && block.id().as_str() == record.id);
            let wrong = |what: &str| Err(MemoryError::InvalidRequest(format!("{}: {what}", record.id)));
            if whole.is_none() || document.blocks().len() != 1 {
                return wrong("its `text` is not this block");
            }
            let place = WorkspaceArea::of(&record.file);
            let blocks_live_there = matches!(
                place,
                Some(
                    WorkspaceArea::Decisions
                        | WorkspaceArea::Tasks
                        | WorkspaceArea::Entities
                        | WorkspaceArea::Signals
                        | WorkspaceArea::Contradictions
                        | WorkspaceArea::Drift
                        | WorkspaceArea::DecisionImpact
                        | WorkspaceArea::Proposed
                )
            );
            if !blocks_live_there {
                return wrong("its `file` cannot contain blocks");
            }
            if !seen.insert(record.id.as_str()) {
                return wrong("it occurs twice in the import");
            }
            match known.get(record.id.as_str()) {
                Some((path, text)) if *path == record.file && text.trim_end() == record.text.trim_end() => {
                    imported.known += 1;
                }
                Some((path, _)) if *path != record.file => return wrong("it exists in another file"),
                Some(_) => return wrong("it exists with another text: propose the change"),
                None => {
                    let text = new.entry(&record.file).or_default();
                    *text = edit::append(text, &record.text);
                    imported.blocks += 1;
                }
            }
        }
        let mut changes = Vec::new();
        for (file, blocks) in new {
            let holds = known.values().any(|(path, _)| *path == file);
            if holds {
                return Err(MemoryError::InvalidRequest(format!(
                    "`{file}` already contains blocks: import into an empty memory, or propose them"
                )));
            }
            let text = edit::append(loaded.texts.text(file), &blocks);
            changes.push((file, text));
        }
        let mut create = WriteSet::<InitWriter>::default();
        for (file, text) in &changes {
            // A file without blocks contains only its heading and may be replaced.
            create.write(file, None, text.as_str())?;
        }
        self.commit(&loaded, create)?;
        Ok(imported)
    }
}
