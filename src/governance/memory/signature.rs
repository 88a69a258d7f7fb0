//! Constraint signatures (Mind Mem 1.0.3, §2): the requirements of a decision in a comparable form.

use std::borrow::Cow;
use std::ops::Range;

use super::nested::{self, NestedEntry, NestedLookup, NestedValue};
use super::parse::{Block, Field};

/// The field names that hold signatures; a block may use both.
pub const HEADERS: [&str; 2] = ["ConstraintSignature", "ConstraintSignatures"];

/// The fields that S5 requires.
pub const REQUIRED: [&str; 9] =
    ["id", "domain", "subject", "predicate", "object", "modality", "priority", "scope", "evidence"];

/// Fields with enumerated values; all others are free text.
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

/// The modality of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Modality {
    /// Required.
    Must,
    /// Prohibited.
    MustNot,
    /// Preferred.
    Should,
    /// Discouraged.
    ShouldNot,
    /// Permitted.
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
    pub entries: Vec<NestedEntry<'a>>,
    /// The bytes of its item in the document.
    pub span: Range<usize>,
    /// The bytes of lines that are not fields.
    pub unparsed: Vec<Range<usize>>,
    /// The modality, if valid.
    pub modality: Option<Modality>,
    /// The axis: `axis.key`, else `domain.subject`.
    pub axis: Cow<'a, str>,
}

impl<'a> Signature<'a> {
    /// The signatures of a block, in order.
    pub fn of(block: &Block<'_, 'a>) -> Vec<Self> {
        let fields = block.fields().iter().filter(|field| HEADERS.contains(&field.key));
        fields.flat_map(Field::items).map(|item| Self::read(item.text, item.start)).collect()
    }

    fn read(text: &'a str, start: usize) -> Self {
        let (entries, unparsed) = nested::read(text);
        let key = match entries.map("axis").node("key").or_else(|| entries.node("axis")) {
            Some(NestedValue::Text(key)) if !key.is_empty() => key.clone(),
            _ => format!("{}.{}", entries.text("domain"), entries.text("subject")).into(),
        };
        Self {
            modality: Modality::parse(entries.text("modality")),
            axis: key,
            span: start..start + text.trim_end().len(),
            unparsed: unparsed.into_iter().map(|span| span.start + start..span.end + start).collect(),
            entries,
        }
    }

    /// A plain field, or `""`.
    pub fn text(&self, key: &str) -> &str {
        self.entries.text(key)
    }

    /// The signature's id.
    pub fn id(&self) -> &str {
        self.text("id")
    }

    /// 1 to 10, 10 highest; `None` if it is not a number.
    pub fn priority(&self) -> Option<u8> {
        self.text("priority").parse().ok()
    }

    /// Whether different objects exclude each other on this axis: true unless the signature says otherwise.
    pub fn exclusive(&self) -> bool {
        !self.entries.map("axis").text("exclusive").eq_ignore_ascii_case("false")
    }

    /// Whether it has an axis.
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

    /// The first and last day of the scope; `None` for an open end.
    pub fn time(&self) -> (Option<jiff::civil::Date>, Option<jiff::civil::Date>) {
        let time = self.entries.map("scope").map("time");
        // Bounds are days, both inclusive; a time of day is ignored.
        let date = |key| time.text(key).get(..10).and_then(|text| text.parse().ok());
        (date("start"), date("end"))
    }
}
