//! Conversion of nodes to typed values. A value that cannot be converted becomes `None`, a problem is added, and parsing
//! continues.

use std::borrow::Cow;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{MapEntry, MapKey, Node, NodeValue, Problem, Problems, Span, nearest};

/// A type that can be built from a node.
pub trait FromNode: Sized {
    /// Converts `node`; `None` if a problem was added.
    fn read(node: &Node, problems: &mut Problems) -> Option<Self>;
}

/// A value with its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Its position.
    pub span: Span,
}

impl<T> Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: FromNode> FromNode for Located<T> {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        Some(Self { value: T::read(node, problems)?, span: node.span.clone() })
    }
}

/// A key that may be absent.
pub type Optional<T> = Option<Located<T>>;

/// A required key. Empty only if a problem was added.
#[derive(Debug, Clone)]
pub struct Required<T>(Optional<T>);

impl<T> Deref for Required<T> {
    type Target = Optional<T>;

    fn deref(&self) -> &Optional<T> {
        &self.0
    }
}

/// A mapping with free keys, in the file's order.
#[derive(Debug, Clone)]
pub struct OpenMap<T>(pub Vec<(MapKey, Located<T>)>);

impl<T: FromNode> FromNode for OpenMap<T> {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let entries = mapping(node, problems)?;
        let read = |entry: &MapEntry| Some((entry.key.clone(), Located::read(&entry.value, problems)?));
        Some(Self(entries.iter().filter_map(read).collect()))
    }
}

impl<T: FromNode> FromNode for Vec<T> {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            NodeValue::List(items) => Some(items.iter().filter_map(|item| T::read(item, problems)).collect()),
            _ => mismatch(node, "a list", "write one entry per line, each after `- `", problems),
        }
    }
}

impl FromNode for String {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            NodeValue::Text(text) if text.trim().is_empty() => {
                problems.add(
                    Problem::new(node.span.clone(), "the text is empty").help("write the text, or remove the key"),
                );
                None
            }
            // A block scalar ends with a line break that is not part of the value.
            NodeValue::Text(text) => Some(text.trim_end_matches('\n').to_owned()),
            NodeValue::Bool(_) | NodeValue::Integer(_) | NodeValue::Number(_) => {
                let help = format!("put it in quotes: \"{}\"", problems.source(&node.span));
                mismatch(node, "text", &help, problems)
            }
            _ => mismatch(node, "text", "write the text after the key; a long one under `|`", problems),
        }
    }
}

impl FromNode for bool {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        match node.value {
            NodeValue::Bool(value) => Some(value),
            _ => mismatch(node, "true or false", "write `true` or `false`, without quotes", problems),
        }
    }
}

impl FromNode for f64 {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        match node.value {
            NodeValue::Number(value) if value.is_finite() => Some(value),
            NodeValue::Number(_) => {
                let message = format!("`{}` is not a finite number", problems.source(&node.span));
                problems.add(Problem::new(node.span.clone(), message).help("write a number such as 0.5"));
                None
            }
            NodeValue::Integer(value) => Some(value as Self),
            _ => mismatch(node, "a number", "write a number without quotes, such as 0.5", problems),
        }
    }
}

impl FromNode for usize {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let whole = match node.value {
            NodeValue::Integer(value) => Self::try_from(value).ok(),
            NodeValue::Number(_) => None,
            _ => return mismatch(node, "a whole number", "write a whole number without quotes, such as 5", problems),
        };
        if whole.is_none() {
            let message = format!("`{}` is not a whole number of at least 0", problems.source(&node.span));
            problems.add(Problem::new(node.span.clone(), message).help("write a whole number such as 5"));
        }
        whole
    }
}

fn mismatch<T>(node: &Node, wanted: &str, help: &str, problems: &mut Problems) -> Option<T> {
    let message = format!("expected {wanted} here, found {}", node.value.kind());
    problems.add(Problem::new(node.span.clone(), message).label(format!("expected {wanted}")).help(help));
    None
}

/// The entries of a mapping; a key given twice is a problem.
fn mapping<'n>(node: &'n Node, problems: &mut Problems) -> Option<&'n [MapEntry]> {
    let NodeValue::Map(entries) = &node.value else {
        return mismatch(node, "a mapping", "write `key: value` lines, indented below the key", problems);
    };
    for (index, MapEntry { key, .. }) in entries.iter().enumerate() {
        if entries.iter().take(index).any(|earlier| earlier.key.name == key.name) {
            let message = format!("`{}` is given twice", key.name);
            problems.add(Problem::new(key.span.clone(), message).label("again here").help("keep one of the two"));
        }
    }
    Some(entries)
}

/// A field of a record: [`Required`] or [`Optional`].
pub trait Field: Sized {
    /// Takes the field from a record.
    fn take(fields: &Fields<'_>, key: &str, problems: &mut Problems) -> Self;
}

impl<T: FromNode> Field for Optional<T> {
    fn take(fields: &Fields<'_>, key: &str, problems: &mut Problems) -> Self {
        let node = &fields.entry(key)?.value;
        if node.value == NodeValue::Null {
            return None;
        }
        let read = Located::read(node, problems);
        if read.is_none() {
            problems.fail(fields.span, key);
        }
        read
    }
}

impl<T: FromNode> Field for Required<T> {
    fn take(fields: &Fields<'_>, key: &str, problems: &mut Problems) -> Self {
        match fields.entry(key) {
            Some(MapEntry { value, .. }) if value.value != NodeValue::Null => Self(Located::read(value, problems)),
            // The misspelt key is already reported, with this key as the suggestion.
            None if fields.is_misspelt(key) => Self(None),
            found => {
                let (message, span) = match found {
                    Some(entry) => (format!("`{key}` has no value"), &entry.key.span),
                    None => (format!("`{key}` is missing"), fields.span),
                };
                let help = format!("add `{key}: …` here; {}", fields.known());
                problems.add(Problem::new(span.clone(), message).label(format!("needs `{key}`")).help(help));
                Self(None)
            }
        }
    }
}

/// The fields of a mapping with known keys.
#[derive(Debug)]
pub struct Fields<'n> {
    span: &'n Span,
    entries: &'n [MapEntry],
    keys: &'static [&'static str],
}

impl<'n> Fields<'n> {
    /// Opens a mapping; every key that is not in `keys` is a problem.
    pub fn open(node: &'n Node, keys: &'static [&'static str], problems: &mut Problems) -> Option<Self> {
        let fields = Self { span: &node.span, entries: mapping(node, problems)?, keys };
        for MapEntry { key, .. } in fields.entries.iter().filter(|entry| !keys.contains(&entry.key.name.as_str())) {
            let help = match nearest(&key.name, keys.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => fields.known(),
            };
            let message = format!("`{}` is not a known key", key.name);
            problems.add(Problem::new(key.span.clone(), message).label("unknown key").help(help));
        }
        Some(fields)
    }

    fn entry(&self, key: &str) -> Option<&'n MapEntry> {
        self.entries.iter().find(|entry| entry.key.name == key)
    }

    fn is_misspelt(&self, key: &str) -> bool {
        let unknown = self.entries.iter().map(|entry| entry.key.name.as_str()).filter(|name| !self.keys.contains(name));
        unknown.into_iter().any(|name| nearest(name, self.keys.iter().copied()) == Some(key))
    }

    fn known(&self) -> String {
        format!("known keys here: {}", self.keys.join(", "))
    }
}

/// A value from a fixed set of names.
pub trait Choice: Copy + 'static {
    /// The names and their values, in the order in which messages list them.
    const NAMES: &'static [(&'static str, Self)];

    /// Converts a name; an unknown name is a problem.
    fn choose(node: &Node, problems: &mut Problems) -> Option<Self> {
        let names = || Self::NAMES.iter().map(|(name, _)| *name);
        let all = || names().collect::<Vec<_>>().join(", ");
        let NodeValue::Text(text) = &node.value else {
            return mismatch(node, "a name", &format!("write one of: {}", all()), problems);
        };
        let found = Self::NAMES.iter().find(|(name, _)| name == text).map(|(_, value)| *value);
        if found.is_none() {
            let help = match nearest(text, names()) {
                Some(meant) => format!("did you mean `{meant}`? Known: {}", all()),
                None => format!("write one of: {}", all()),
            };
            problems.add(Problem::new(node.span.clone(), format!("`{text}` is not a valid value here")).help(help));
        }
        found
    }
}

/// Declares a mapping with known keys: the struct, its parser and, with the doc comments, its JSON Schema. A field is
/// [`Required`] or [`Optional`].
#[macro_export]
macro_rules! config_record {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Debug, schemars::JsonSchema)]
        #[schemars(deny_unknown_fields)]
        $vis struct $name {
            $($(#[$field_meta])* $vis $field: $type,)*
        }

        impl $crate::foundation::config::FromNode for $name {
            fn read(
                node: &$crate::foundation::config::Node,
                problems: &mut $crate::foundation::config::Problems,
            ) -> Option<Self> {
                const KEYS: &[&str] = &[$($crate::config_record!(@key $field)),*];
                let fields = $crate::foundation::config::Fields::open(node, KEYS, problems)?;
                Some(Self {
                    $($field: $crate::foundation::config::Field::take(
                        &fields, $crate::config_record!(@key $field), problems,
                    ),)*
                })
            }
        }
    )*};
    (@key r#type) => { "type" };
    (@key $field:ident) => { stringify!($field) };
}

/// Gives a fieldless enum its names in config files and its parser.
#[macro_export]
macro_rules! config_choices {
    ($($type:ident { $($text:literal => $variant:ident),* $(,)? })*) => {$(
        impl $crate::foundation::config::Choice for $type {
            const NAMES: &'static [(&'static str, Self)] = &[$(($text, Self::$variant)),*];
        }

        impl $crate::foundation::config::FromNode for $type {
            fn read(
                node: &$crate::foundation::config::Node,
                problems: &mut $crate::foundation::config::Problems,
            ) -> Option<Self> {
                $crate::foundation::config::Choice::choose(node, problems)
            }
        }
    )*};
}

/// Gives a wrapper the JSON Schema of the wrapped type.
macro_rules! schema_of_inner {
    ($($wrapper:ident => $inner:ty),*) => {$(
        impl<T: JsonSchema> JsonSchema for $wrapper<T> {
            fn inline_schema() -> bool {
                <$inner>::inline_schema()
            }

            fn schema_name() -> Cow<'static, str> {
                <$inner>::schema_name()
            }

            fn schema_id() -> Cow<'static, str> {
                <$inner>::schema_id()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$inner>::json_schema(generator)
            }
        }
    )*};
}

schema_of_inner!(Located => T, Required => T, OpenMap => std::collections::BTreeMap<String, T>);
