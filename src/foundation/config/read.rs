//! Typed reading of a node, problems collected. What could not be read is `None`, and the reader goes on.

use std::borrow::Cow;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{Entry, Key, Node, Problem, Problems, Span, Value, nearest};

/// A type that can be read from a node.
pub trait Read: Sized {
    /// Reads it; `None` after a problem was added.
    fn read(node: &Node, problems: &mut Problems) -> Option<Self>;
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub span: Span,
}

impl<T> Deref for At<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Read> Read for At<T> {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        Some(Self { value: T::read(node, problems)?, span: node.span.clone() })
    }
}

/// A key that may be absent.
pub type Maybe<T> = Option<At<T>>;

/// A key that must be there. Empty only if a problem was added.
#[derive(Debug, Clone)]
pub struct Required<T>(Maybe<T>);

impl<T> Deref for Required<T> {
    type Target = Maybe<T>;

    fn deref(&self) -> &Maybe<T> {
        &self.0
    }
}

/// A mapping with free keys, in the file's order.
#[derive(Debug, Clone)]
pub struct Entries<T>(pub Vec<(Key, At<T>)>);

impl<T: Read> Read for Entries<T> {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let entries = mapping(node, problems)?;
        let read = |entry: &Entry| Some((entry.key.clone(), At::read(&entry.value, problems)?));
        Some(Self(entries.iter().filter_map(read).collect()))
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::List(items) => Some(items.iter().filter_map(|item| T::read(item, problems)).collect()),
            _ => mismatch(node, "a list", "write one entry per line, each after `- `", problems),
        }
    }
}

impl Read for String {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Text(text) if text.trim().is_empty() => {
                problems.add(
                    Problem::new(node.span.clone(), "the text is empty").help("write the text, or remove the key"),
                );
                None
            }
            // A block text ends with a line break that nobody means.
            Value::Text(text) => Some(text.trim_end_matches('\n').to_owned()),
            Value::Bool(_) | Value::Integer(_) | Value::Number(_) => {
                let help = format!("put it in quotes: \"{}\"", problems.source(&node.span));
                mismatch(node, "text", &help, problems)
            }
            _ => mismatch(node, "text", "write the text after the key; a long one under `|`", problems),
        }
    }
}

impl Read for bool {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        match node.value {
            Value::Bool(value) => Some(value),
            _ => mismatch(node, "true or false", "write `true` or `false`, without quotes", problems),
        }
    }
}

impl Read for f64 {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        match node.value {
            Value::Number(value) if value.is_finite() => Some(value),
            Value::Number(_) => {
                let message = format!("`{}` is not a finite number", problems.source(&node.span));
                problems.add(Problem::new(node.span.clone(), message).help("write a number such as 0.5"));
                None
            }
            Value::Integer(value) => Some(value as Self),
            _ => mismatch(node, "a number", "write a number without quotes, such as 0.5", problems),
        }
    }
}

impl Read for usize {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let whole = match node.value {
            Value::Integer(value) => Self::try_from(value).ok(),
            Value::Number(_) => None,
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
    let message = format!("{wanted} is needed here, not {}", node.value.kind());
    problems.add(Problem::new(node.span.clone(), message).label(format!("needs {wanted}")).help(help));
    None
}

/// The entries of a mapping; a key given twice is a problem.
fn mapping<'n>(node: &'n Node, problems: &mut Problems) -> Option<&'n [Entry]> {
    let Value::Map(entries) = &node.value else {
        return mismatch(node, "a mapping", "write `key: value` lines, indented below the key", problems);
    };
    for (index, Entry { key, .. }) in entries.iter().enumerate() {
        if entries.iter().take(index).any(|earlier| earlier.key.name == key.name) {
            let message = format!("`{}` is given twice", key.name);
            problems.add(Problem::new(key.span.clone(), message).label("again here").help("keep one of the two"));
        }
    }
    Some(entries)
}

/// A field of a record: [`Required`] or [`Maybe`].
pub trait Field: Sized {
    /// Reads it out of a record.
    fn take(fields: &Fields<'_>, key: &str, problems: &mut Problems) -> Self;
}

impl<T: Read> Field for Maybe<T> {
    fn take(fields: &Fields<'_>, key: &str, problems: &mut Problems) -> Self {
        let node = &fields.entry(key)?.value;
        if node.value == Value::Null {
            return None;
        }
        let read = At::read(node, problems);
        if read.is_none() {
            problems.fail(fields.span, key);
        }
        read
    }
}

impl<T: Read> Field for Required<T> {
    fn take(fields: &Fields<'_>, key: &str, problems: &mut Problems) -> Self {
        match fields.entry(key) {
            Some(Entry { value, .. }) if value.value != Value::Null => Self(At::read(value, problems)),
            // The unknown key has been told, with this one as what was meant.
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

/// A mapping with known keys, while it is read.
#[derive(Debug)]
pub struct Fields<'n> {
    span: &'n Span,
    entries: &'n [Entry],
    keys: &'static [&'static str],
}

impl<'n> Fields<'n> {
    /// Opens a mapping; every key that is not among `keys` is a problem.
    pub fn open(node: &'n Node, keys: &'static [&'static str], problems: &mut Problems) -> Option<Self> {
        let fields = Self { span: &node.span, entries: mapping(node, problems)?, keys };
        for Entry { key, .. } in fields.entries.iter().filter(|entry| !keys.contains(&entry.key.name.as_str())) {
            let help = match nearest(&key.name, keys.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => fields.known(),
            };
            let message = format!("`{}` is not a known key", key.name);
            problems.add(Problem::new(key.span.clone(), message).label("unknown key").help(help));
        }
        Some(fields)
    }

    fn entry(&self, key: &str) -> Option<&'n Entry> {
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

/// A value out of a fixed set of names.
pub trait Choice: Copy + 'static {
    /// The names and what they mean, in the order in which they are told.
    const NAMES: &'static [(&'static str, Self)];

    /// Reads one; another name is a problem.
    fn choose(node: &Node, problems: &mut Problems) -> Option<Self> {
        let names = || Self::NAMES.iter().map(|(name, _)| *name);
        let all = || names().collect::<Vec<_>>().join(", ");
        let Value::Text(text) = &node.value else {
            return mismatch(node, "a name", &format!("write one of: {}", all()), problems);
        };
        let found = Self::NAMES.iter().find(|(name, _)| name == text).map(|(_, value)| *value);
        if found.is_none() {
            let help = match nearest(text, names()) {
                Some(meant) => format!("did you mean `{meant}`? Known: {}", all()),
                None => format!("write one of: {}", all()),
            };
            problems.add(Problem::new(node.span.clone(), format!("`{text}` is not known here")).help(help));
        }
        found
    }
}

/// Declares a mapping with known keys: the struct, its reader and, through the doc comments, its JSON Schema. A field is
/// [`Required`] or [`Maybe`].
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

        impl $crate::foundation::config::Read for $name {
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

/// Gives a fieldless enum its names in the file and its reader.
#[macro_export]
macro_rules! config_choices {
    ($($type:ident { $($text:literal => $variant:ident),* $(,)? })*) => {$(
        impl $crate::foundation::config::Choice for $type {
            const NAMES: &'static [(&'static str, Self)] = &[$(($text, Self::$variant)),*];
        }

        impl $crate::foundation::config::Read for $type {
            fn read(
                node: &$crate::foundation::config::Node,
                problems: &mut $crate::foundation::config::Problems,
            ) -> Option<Self> {
                $crate::foundation::config::Choice::choose(node, problems)
            }
        }
    )*};
}

/// The JSON Schema of a wrapper is that of what it wraps.
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

schema_of_inner!(At => T, Required => T, Entries => std::collections::BTreeMap<String, T>);
