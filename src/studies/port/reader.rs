//! Reading a mapping of someone else's: what is known is taken out, what is left over is named, wrong kinds are problems.

use crate::foundation::config::{Entry, Node, Problem, Problems, Read, Value};

/// A mapping whose entries are taken out one by one.
pub(super) struct Taking<'n> {
    whole: &'n Node,
    left: Vec<&'n Entry>,
}

impl<'n> Taking<'n> {
    pub(super) fn open(node: &'n Node, what: &str, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Map(entries) => Some(Self { whole: node, left: entries.iter().collect() }),
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
        (node.value != Value::Null).then_some(node)
    }

    /// A value that must be there.
    pub(super) fn needed<T: Read>(&mut self, key: &str, problems: &mut Problems) -> Option<T> {
        let node = self.take(key);
        if node.is_none() {
            let message = format!("`{key}` is missing");
            problems.add(Problem::new(self.whole.span.clone(), message).help(format!("add `{key}: …`")));
        }
        T::read(node?, problems)
    }

    /// A text that may be missing or empty. Numbers count as text: the benchmark's files do not quote them.
    pub(super) fn text(&mut self, key: &str, problems: &mut Problems) -> Option<String> {
        let node = self.take(key)?;
        match &node.value {
            Value::Text(text) if text.trim().is_empty() => None,
            Value::Integer(number) => Some(number.to_string()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(value) => Some(value.to_string()),
            _ => String::read(node, problems),
        }
    }

    /// A list of texts that may be missing.
    pub(super) fn texts(&mut self, key: &str, problems: &mut Problems) -> Vec<String> {
        self.take(key).and_then(|node| Vec::read(node, problems)).unwrap_or_default()
    }

    /// The keys that nobody asked for.
    pub(super) fn rest(self) -> Vec<String> {
        self.left.into_iter().map(|entry| entry.key.name.clone()).collect()
    }
}
