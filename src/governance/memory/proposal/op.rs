//! One operation of a proposal: read from its list item, written as one.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::governance::memory::nested::{self, Lookup, Node};
use crate::governance::memory::parse::lines;

/// The seven operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OpKind {
    /// A new block at the end of the file.
    AppendBlock,
    /// A new block after another.
    InsertAfterBlock,
    /// Another value for a field.
    UpdateField,
    /// One more item in a list.
    AppendListItem,
    /// Other lines between two markers of a block.
    ReplaceRange,
    /// Another status, and a line of history.
    SetStatus,
    /// A decision that takes the place of another.
    SupersedeDecision,
}

impl OpKind {
    /// All of them, by name.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::AppendBlock, "append_block"),
        (Self::InsertAfterBlock, "insert_after_block"),
        (Self::UpdateField, "update_field"),
        (Self::AppendListItem, "append_list_item"),
        (Self::ReplaceRange, "replace_range"),
        (Self::SetStatus, "set_status"),
        (Self::SupersedeDecision, "supersede_decision"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }
}

/// One operation of a proposal. Fields that its kind does not use are empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Op {
    /// What to do.
    pub kind: Option<OpKind>,
    /// In which file, relative to the workspace.
    pub file: String,
    /// To which block.
    pub target: String,
    /// `update_field`, `append_list_item`: which field.
    pub field: String,
    /// `update_field`, `append_list_item`: the value or the item.
    pub value: String,
    /// `set_status`: the status.
    pub status: String,
    /// `set_status`: a line for `History`.
    pub history: String,
    /// `replace_range`: the texts that the first line and the line after the last contain.
    pub range: Option<(String, String)>,
    /// The new block, or the new lines.
    pub patch: String,
}

impl Op {
    /// Reads an item of `Ops`.
    pub(super) fn read(item: &str) -> Result<Self, String> {
        let (entries, stray) = nested::read(item);
        if let Some(span) = stray.first() {
            return Err(format!("`{}` in its Ops is no field", item.get(span.clone()).unwrap_or_default()));
        }
        let text = |keys: &[&str]| {
            keys.iter().map(|key| entries.text(key)).find(|text| !text.is_empty()).unwrap_or("").to_owned()
        };
        let name = entries.text("op");
        let kind = OpKind::ALL.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind);
        let range = matches!(entries.node("range"), Some(Node::Map(_))).then(|| {
            let range = entries.map("range");
            (range.text("start").to_owned(), range.text("end").to_owned())
        });
        Ok(Self {
            kind: Some(kind.ok_or_else(|| format!("`{name}` is none of the seven operations"))?),
            file: text(&["file"]),
            target: text(&["target"]),
            field: text(&["field", "list"]),
            value: text(&["value", "item"]),
            status: text(&["status"]),
            history: text(&["history"]),
            range,
            patch: text(&["patch", "new_block"]),
        })
    }

    /// The operation's name, `""` for a default value.
    pub fn name(&self) -> &'static str {
        self.kind.map_or("", OpKind::name)
    }

    /// The fields that are written, in the order in which they are.
    fn written(&self) -> Vec<(&'static str, &str)> {
        let list = self.kind == Some(OpKind::AppendListItem);
        [
            ("op", self.name()),
            ("file", &self.file),
            ("target", &self.target),
            (if list { "list" } else { "field" }, &self.field),
            (if list { "item" } else { "value" }, &self.value),
            ("status", &self.status),
            ("history", &self.history),
            ("patch", &self.patch),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .collect()
    }

    /// The operation as it enters the fingerprint.
    pub(super) fn json(&self) -> Value {
        let mut map: Map<String, Value> =
            self.written().into_iter().map(|(key, value)| (key.to_owned(), Value::from(value))).collect();
        if let Some((start, end)) = &self.range {
            map.insert("range".to_owned(), json!({"start": start, "end": end}));
        }
        Value::Object(map)
    }

    /// Writes it as an item of `Ops`.
    pub(super) fn write(&self, out: &mut String) {
        for (index, (key, value)) in self.written().into_iter().enumerate() {
            out.push_str(if index == 0 { "- " } else { "  " });
            if value.contains('\n') || value.starts_with(['"', '\'', '{', '[', '|']) || value.trim() != value {
                let _ = writeln!(out, "{key}: |");
                for line in lines(value) {
                    let _ = writeln!(out, "{}", format!("    {}", line.text).trim_end());
                }
            } else {
                let _ = writeln!(out, "{key}: {value}");
            }
        }
        if let Some((start, end)) = &self.range {
            let _ = writeln!(out, "  range:\n    start: {start}\n    end: {end}");
        }
    }
}
