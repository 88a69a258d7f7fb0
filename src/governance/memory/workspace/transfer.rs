//! Taking a memory elsewhere: one JSON line a block, with its text as it stands, so that nothing of its life is lost.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{MemoryError, Reach, Result, Workspace};
use crate::foundation::base::Digest;
use crate::foundation::gate::{Category, Effect, Permit, Scope};
use crate::governance::memory::authority::{Init, Pen, Place};
use crate::governance::memory::edit;
use crate::governance::memory::parse::Document;

/// One block, on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The block's id.
    pub id: String,
    /// Its kind; told by the id, here for readers of the lines.
    pub kind: String,
    /// The file it stands in.
    pub file: String,
    /// Its fields: a text each, or a list of items. For readers; `text` is what is imported.
    pub fields: serde_json::Map<String, serde_json::Value>,
    /// The block as it stands.
    pub text: String,
}

/// What an import did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// How many blocks are new.
    pub blocks: usize,
    /// How many were there already, with the same text.
    pub known: usize,
}

impl Workspace {
    /// Every block, in the order of the files.
    ///
    /// # Errors
    /// Where the workspace cannot be read.
    pub fn export(&self) -> Result<Vec<Record>> {
        let texts = self.texts()?;
        let parsed = texts.parse();
        let record = |(path, block): (&str, crate::governance::memory::parse::Block<'_, '_>)| {
            let value = |field: &crate::governance::memory::parse::Field<'_>| {
                let items: Vec<_> = field.items().map(|item| item.value().into_owned()).collect();
                if items.is_empty() { serde_json::Value::from(field.value().into_owned()) } else { items.into() }
            };
            Record {
                id: block.id().as_str().to_owned(),
                kind: block.id().kind().name().to_owned(),
                file: path.to_owned(),
                fields: block.fields().iter().map(|field| (field.key.to_owned(), value(field))).collect(),
                text: block.text().to_owned(),
            }
        };
        Ok(parsed.blocks().map(record).collect())
    }

    /// That these are taken in.
    pub fn importing(records: &[Record]) -> Effect {
        let effect = Effect::new(Category::MemoryApply, format!("import {}", Digest::of(format!("{records:?}"))));
        effect.reading(Scope::Knowledge).writing(Scope::Knowledge)
    }

    /// Takes blocks in, whatever their status. Blocks that are there with the same text stay; a block of another text
    /// under a known id stops the import, because that is a change and changes are proposed. Only files that hold no
    /// block yet are filled.
    ///
    /// # Errors
    /// Where the permit is not for them, a record is not one block, or its file holds others already; then nothing was
    /// imported.
    pub fn import(&self, permit: Permit, records: &[Record]) -> Result<Imported> {
        permit.spend(&Self::importing(records), self.now.timestamp())?;
        let held = self.hold(Reach::All)?;
        let parsed = held.texts.parse();
        let known: BTreeMap<_, _> =
            parsed.blocks().map(|(path, block)| (block.id().as_str(), (path, block.text()))).collect();
        let mut seen = BTreeSet::new();
        let mut new: BTreeMap<&str, String> = BTreeMap::new();
        let mut imported = Imported { blocks: 0, known: 0 };
        for record in records {
            let document = Document::parse(&record.text);
            let whole = document
                .blocks()
                .next()
                .filter(|block| block.text() == record.text && block.id().as_str() == record.id);
            let wrong = |what: &str| Err(MemoryError::Request(format!("{}: {what}", record.id)));
            if whole.is_none() || document.blocks().len() != 1 {
                return wrong("its `text` is not that block");
            }
            let place = Place::of(&record.file);
            let blocks_live_there = matches!(
                place,
                Some(
                    Place::Decisions
                        | Place::Tasks
                        | Place::Entities
                        | Place::Signals
                        | Place::Contradictions
                        | Place::Drift
                        | Place::Impact
                        | Place::Proposed
                )
            );
            if !blocks_live_there {
                return wrong("its `file` holds no blocks");
            }
            if !seen.insert(record.id.as_str()) {
                return wrong("it stands twice in the import");
            }
            match known.get(record.id.as_str()) {
                Some((path, text)) if *path == record.file && text.trim_end() == record.text.trim_end() => {
                    imported.known += 1;
                }
                Some((path, _)) if *path != record.file => return wrong("it is here already, in another file"),
                Some(_) => return wrong("it is here with another text: propose the change"),
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
                return Err(MemoryError::Request(format!(
                    "`{file}` holds blocks already: import into an empty memory, or propose them"
                )));
            }
            let text = edit::append(held.texts.text(file), &blocks);
            changes.push((file, text));
        }
        let mut create = Pen::<Init>::default();
        for (file, text) in &changes {
            // A file without a block is as good as none: only its heading is there.
            create.write(file, None, text.as_str())?;
        }
        self.commit(&held, create)?;
        Ok(imported)
    }
}
