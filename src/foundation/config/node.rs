//! A YAML text as a tree whose every node knows where it stands. Limits (depth, aliases, documents) are kept here; size is
//! the caller's, who reads the file.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Location, Spanned};

use super::problem::{ConfigErrors, Problem};
use crate::foundation::base::limits;

/// Byte offsets into the source text.
pub type Span = Range<usize>;

/// One value of the tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where it stands. Of a mapping or list under a key, where the key stands: a whole block underlined says nothing.
    pub span: Span,
    /// What it is.
    pub value: Value,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing, `null` or `~`.
    Null,
    /// `true` or `false`; the `yes` and `off` of older YAML are text.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// Any other number, `.nan` and `.inf` among them.
    Number(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the file's order, repeated keys included.
    Map(Vec<Entry>),
}

/// One entry of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its key.
    pub key: Key,
    /// Its value.
    pub value: Node,
}

/// A key and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The key's text.
    pub name: String,
    /// Where it stands.
    pub span: Span,
}

impl Node {
    /// Reads one YAML document. `text` has no byte order mark.
    ///
    /// # Errors
    /// One problem, where the text stops being YAML or passes a limit.
    pub fn parse(source_name: &str, text: &str) -> Result<Self, ConfigErrors> {
        serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
            let at = error.location().map_or(0..0, |location| place(text, &location));
            let message = error.without_snippet().to_string();
            // The location is underlined; the parser's own "at line 3, column 5" would only repeat it.
            let message = message.split(" at line ").next().unwrap_or_default().to_owned();
            let problem = Problem::new(at, format!("the YAML cannot be read: {message}"))
                .help("check the indentation (blanks, never tabs), closing quotes and brackets, and `: ` after keys");
            ConfigErrors::new(source_name, text, vec![problem])
        })
    }
}

impl Value {
    /// What it is, in words, for messages.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Integer(_) | Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: limits::CONFIG_DEPTH_MAX,
            max_nodes: limits::CONFIG_NODES_MAX,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: limits::CONFIG_NODES_MAX },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        strict_booleans: true,
        with_snippet: false,
    }
}

/// Where an error is; some carry a line and a column only, both from 1.
fn place(text: &str, location: &Location) -> Span {
    if location.span().byte_offset().is_some() {
        return span_of(location);
    }
    let line = (location.line() as usize).saturating_sub(1);
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = text.get(start..).unwrap_or_default();
    let column = (location.column() as usize).saturating_sub(1);
    let offset: usize = rest.chars().take(column).map(char::len_utf8).sum();
    start + offset..start + offset
}

fn span_of(location: &Location) -> Span {
    let span = location.span();
    let start = span.byte_offset().unwrap_or(0) as usize;
    start..start + span.byte_len().unwrap_or(0) as usize
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { span: span_of(&referenced), value })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(i128::try_from(value).map_or(Value::Number(value as f64), Value::Integer))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(Spanned { value: name, referenced, .. }) = map.next_key::<Spanned<String>>()? {
            let key = Key { name, span: span_of(&referenced) };
            let mut value: Node = map.next_value()?;
            if matches!(value.value, Value::Map(_) | Value::List(_) | Value::Null) {
                value.span = key.span.clone();
            }
            entries.push(Entry { key, value });
        }
        Ok(Value::Map(entries))
    }
}
