//! Reads mappings of foreign formats: known keys are taken, unknown keys are listed, wrong types are problems.

use crate::foundation::config::{FromNode, MapEntry, Node, NodeValue, Problem, Problems};

/// A mapping whose entries are taken one by one.
pub(super) struct FieldReader<'n> {
    whole: &'n Node,
    left: Vec<&'n MapEntry>,
}

impl<'n> FieldReader<'n> {
    pub(super) fn open(node: &'n Node, what: &str, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            NodeValue::Map(entries) => Some(Self { whole: node, left: entries.iter().collect() }),
            other => {
                let message = format!("{what} must be a mapping, not {}", other.kind());
                problems.add(Problem::new(node.span.clone(), message));
                None
            }
        }
    }

    pub(super) fn take(&mut self, key: &str) -> Option<&'n Node> {
        let at = self.left.iter().position(|entry| entry.key.name == key)?;
        let node = &self.left.remove(at).value;
        (node.value != NodeValue::Null).then_some(node)
    }

    /// A required value.
    pub(super) fn required<T: FromNode>(&mut self, key: &str, problems: &mut Problems) -> Option<T> {
        let node = self.take(key);
        if node.is_none() {
            let message = format!("`{key}` is missing");
            problems.add(Problem::new(self.whole.span.clone(), message).help(format!("add `{key}: …`")));
        }
        T::read(node?, problems)
    }

    /// An optional text. Numbers and booleans are accepted, since the benchmark's files do not quote them.
    pub(super) fn text(&mut self, key: &str, problems: &mut Problems) -> Option<String> {
        let node = self.take(key)?;
        match &node.value {
            NodeValue::Text(text) if text.trim().is_empty() => None,
            NodeValue::Integer(number) => Some(number.to_string()),
            NodeValue::Number(number) => Some(number.to_string()),
            NodeValue::Bool(value) => Some(value.to_string()),
            _ => String::read(node, problems),
        }
    }

    /// An optional list of texts.
    pub(super) fn texts(&mut self, key: &str, problems: &mut Problems) -> Vec<String> {
        self.take(key).and_then(|node| Vec::read(node, problems)).unwrap_or_default()
    }

    /// The keys that were not taken.
    pub(super) fn rest(self) -> Vec<String> {
        self.left.into_iter().map(|entry| entry.key.name.clone()).collect()
    }
}
