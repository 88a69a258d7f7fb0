//! A YAML text as a tree of nodes with source positions. Depth, aliases and document count are limited here; the file size
//! is limited by the caller.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Location, Spanned};

use super::problem::{ConfigErrors, Problem};
use super::span::Span;
use crate::foundation::base::limits;

/// One value of the tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its position. For a mapping or list under a key this is the position of the key, so that a diagnostic underlines one
    /// word and not the whole block.
    pub span: Span,
    /// Its value.
    pub value: NodeValue,
}

/// The value of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeValue {
    /// Empty, `null` or `~`.
    Null,
    /// `true` or `false`; YAML 1.1's `yes` and `off` are text.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// Any other number, including `.nan` and `.inf`.
    Number(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping in the file's order, including repeated keys.
    Map(Vec<MapEntry>),
}

/// One entry of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct MapEntry {
    /// Its key.
    pub key: MapKey,
    /// Its value.
    pub value: Node,
}

/// A key with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapKey {
    /// The key's text.
    pub name: String,
    /// Its position.
    pub span: Span,
}

impl Node {
    /// Parses one YAML document. `text` must not begin with a byte order mark.
    ///
    /// # Errors
    /// One problem at the first syntax error or exceeded limit.
    pub fn parse(source_name: &str, text: &str) -> Result<Self, ConfigErrors> {
        serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
            let at = error.location().map_or(0..0, |location| error_span(text, &location));
            let message = error.without_snippet().to_string();
            // The diagnostic underlines the location, so the parser's "at line 3, column 5" is removed.
            let message = message.split(" at line ").next().unwrap_or_default().to_owned();
            let problem = Problem::new(at, format!("the YAML cannot be parsed: {message}"))
                .help("check the indentation (spaces, not tabs), closing quotes and brackets, and `: ` after keys");
            ConfigErrors::new(source_name, text, vec![problem])
        })
    }
}

impl NodeValue {
    /// The name of its type, for messages.
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

/// The position of an error; some have only a line and a column, both from 1.
fn error_span(text: &str, location: &Location) -> Span {
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
        let Spanned { value, referenced, .. } = Spanned::<NodeValue>::deserialize(deserializer)?;
        Ok(Self { span: span_of(&referenced), value })
    }
}

impl<'de> Deserialize<'de> for NodeValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = NodeValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<NodeValue, E> {
        Ok(NodeValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<NodeValue, E> {
        Ok(NodeValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<NodeValue, E> {
        Ok(NodeValue::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<NodeValue, E> {
        Ok(NodeValue::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<NodeValue, E> {
        Ok(NodeValue::Integer(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<NodeValue, E> {
        Ok(i128::try_from(value).map_or(NodeValue::Number(value as f64), NodeValue::Integer))
    }

    fn visit_f64<E>(self, value: f64) -> Result<NodeValue, E> {
        Ok(NodeValue::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<NodeValue, E> {
        Ok(NodeValue::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<NodeValue, E> {
        Ok(NodeValue::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<NodeValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(NodeValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NodeValue, A::Error> {
        let mut entries = Vec::new();
        while let Some(Spanned { value: name, referenced, .. }) = map.next_key::<Spanned<String>>()? {
            let key = MapKey { name, span: span_of(&referenced) };
            let mut value: Node = map.next_value()?;
            if matches!(value.value, NodeValue::Map(_) | NodeValue::List(_) | NodeValue::Null) {
                value.span = key.span.clone();
            }
            entries.push(MapEntry { key, value });
        }
        Ok(NodeValue::Map(entries))
    }
}
