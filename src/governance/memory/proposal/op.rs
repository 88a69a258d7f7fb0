//! One operation of a proposal, read from and written as a list item.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::governance::memory::nested::{self, NestedLookup, NestedValue};
use crate::governance::memory::parse::lines;

/// The seven operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalOpKind {
    /// Append a block to a file.
    AppendBlock,
    /// Insert a block after another.
    InsertAfterBlock,
    /// Set a field.
    UpdateField,
    /// Append a list item.
    AppendListItem,
    /// Replace the lines between two markers of a block.
    ReplaceRange,
    /// Set the status and add a history entry.
    SetStatus,
    /// Replace a decision by a new one.
    SupersedeDecision,
}

impl ProposalOpKind {
    /// All kinds with their names.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::AppendBlock, "append_block"),
        (Self::InsertAfterBlock, "insert_after_block"),
        (Self::UpdateField, "update_field"),
        (Self::AppendListItem, "append_list_item"),
        (Self::ReplaceRange, "replace_range"),
        (Self::SetStatus, "set_status"),
        (Self::SupersedeDecision, "supersede_decision"),
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }
}

/// One operation of a proposal. Fields that its kind does not use are empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProposalOp {
    /// The kind.
    pub kind: Option<ProposalOpKind>,
    /// The file, relative to the workspace.
    pub file: String,
    /// The target block.
    pub target: String,
    /// `update_field`, `append_list_item`: the field.
    pub field: String,
    /// `update_field`, `append_list_item`: the value or the item.
    pub value: String,
    /// `set_status`: the new status.
    pub status: String,
    /// `set_status`: a line for `History`.
    pub history: String,
    /// `replace_range`: substrings of the first line and of the line after the last.
    pub range: Option<(String, String)>,
    /// The new block, or the new lines.
    pub patch: String,
}

impl ProposalOp {
    /// Reads an item of `Ops`.
    pub(super) fn read(item: &str) -> Result<Self, String> {
        let (entries, unparsed) = nested::read(item);
        if let Some(span) = unparsed.first() {
            return Err(format!("`{}` in its Ops is no field", item.get(span.clone()).unwrap_or_default()));
        }
        let text = |keys: &[&str]| {
            keys.iter().map(|key| entries.text(key)).find(|text| !text.is_empty()).unwrap_or("").to_owned()
        };
        let name = entries.text("op");
        let kind = ProposalOpKind::ALL.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind);
        let range = matches!(entries.node("range"), Some(NestedValue::Map(_))).then(|| {
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

    /// The operation's name; `""` if it has no kind.
    pub fn name(&self) -> &'static str {
        self.kind.map_or("", ProposalOpKind::name)
    }

    /// The non-empty fields, in writing order.
    fn written(&self) -> Vec<(&'static str, &str)> {
        let list = self.kind == Some(ProposalOpKind::AppendListItem);
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

    /// The operation as used in the fingerprint.
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
