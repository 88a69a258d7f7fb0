//! Constraint signatures (Mind Mem 1.0.3, §2): what a decision demands, in a form that can be compared.

use std::borrow::Cow;
use std::ops::Range;

use super::nested::{self, Entry, Lookup, Node};
use super::parse::{Block, Field};

/// The headers under which signatures stand; a block may use both, and both count.
pub const HEADERS: [&str; 2] = ["ConstraintSignature", "ConstraintSignatures"];

/// The fields that S5 asks for.
pub const REQUIRED: [&str; 9] =
    ["id", "domain", "subject", "predicate", "object", "modality", "priority", "scope", "evidence"];

/// The values that some fields must have; the others are free text.
pub const ENUMS: [(&str, &[&str]); 4] = [
    (
        "domain",
        &[
            "integrity",
            "memory",
            "retrieval",
            "security",
            "llm_strategy",
            "workflow",
            "project",
            "comms",
            "finance",
            "other",
        ],
    ),
    ("modality", &["must", "must_not", "should", "should_not", "may"]),
    ("relation", &["standalone", "requires", "implies", "composes_with", "overrides", "equivalent"]),
    ("enforcement", &["invariant", "structural", "policy", "guideline"]),
];

/// How strongly a signature speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Modality {
    /// Binding.
    Must,
    /// Binding, against.
    MustNot,
    /// A preference.
    Should,
    /// A preference, against.
    ShouldNot,
    /// A permission.
    May,
}

impl Modality {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "must" => Self::Must,
            "must_not" => Self::MustNot,
            "should" => Self::Should,
            "should_not" => Self::ShouldNot,
            "may" => Self::May,
            _ => return None,
        })
    }
}

/// One signature of one decision.
#[derive(Debug, Clone)]
pub struct Signature<'a> {
    /// All its fields.
    pub entries: Vec<Entry<'a>>,
    /// Where its item begins in the document, and how long it is.
    pub span: Range<usize>,
    /// Lines that are no field, as bytes of the document.
    pub stray: Vec<Range<usize>>,
    /// The modality, where it is one.
    pub modality: Option<Modality>,
    /// What it is about: `axis.key`, else `domain.subject`.
    pub axis: Cow<'a, str>,
}

impl<'a> Signature<'a> {
    /// The signatures of a block, in order.
    pub fn of(block: &Block<'_, 'a>) -> Vec<Self> {
        let fields = block.fields().iter().filter(|field| HEADERS.contains(&field.key));
        fields.flat_map(Field::items).map(|item| Self::read(item.text, item.start)).collect()
    }

    fn read(text: &'a str, start: usize) -> Self {
        let (entries, stray) = nested::read(text);
        let key = match entries.map("axis").node("key").or_else(|| entries.node("axis")) {
            Some(Node::Text(key)) if !key.is_empty() => key.clone(),
            _ => format!("{}.{}", entries.text("domain"), entries.text("subject")).into(),
        };
        Self {
            modality: Modality::parse(entries.text("modality")),
            axis: key,
            span: start..start + text.trim_end().len(),
            stray: stray.into_iter().map(|span| span.start + start..span.end + start).collect(),
            entries,
        }
    }

    /// A plain field, or `""`.
    pub fn text(&self, key: &str) -> &str {
        self.entries.text(key)
    }

    /// The signature's own id.
    pub fn id(&self) -> &str {
        self.text("id")
    }

    /// 1 to 10, 10 highest; `None` where it is not a number.
    pub fn priority(&self) -> Option<u8> {
        self.text("priority").parse().ok()
    }

    /// Whether two different objects exclude each other on this axis; they do unless the signature says otherwise.
    pub fn exclusive(&self) -> bool {
        !self.entries.map("axis").text("exclusive").eq_ignore_ascii_case("false")
    }

    /// Whether the axis can be named at all.
    pub fn has_axis(&self) -> bool {
        self.axis != "."
    }

    /// Whether this signature lists `id` in `composes_with`.
    pub fn composes_with(&self, id: &str) -> bool {
        !id.is_empty() && self.entries.list("composes_with").iter().any(|other| other == id)
    }

    /// A list of the scope: `projects` or `channels`; empty means all.
    pub fn scope(&self, key: &str) -> &[Cow<'a, str>] {
        self.entries.map("scope").list(key)
    }

    /// The first and the last day of the scope, each open where it is not given or not a date.
    pub fn time(&self) -> (Option<jiff::civil::Date>, Option<jiff::civil::Date>) {
        let time = self.entries.map("scope").map("time");
        // A time of day after the date does not matter: the bounds are days, both included.
        let date = |key| time.text(key).get(..10).and_then(|text| text.parse().ok());
        (date("start"), date("end"))
    }
}
