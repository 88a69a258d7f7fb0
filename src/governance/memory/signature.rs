//! Constraint signatures (Mind Mem 1.0.3, §2): the requirements of a decision in a comparable form.

use std::borrow::Cow;
use std::ops::Range;

use super::nested::{self, NestedEntry, NestedLookup, NestedValue};
use super::parse::{Block, Field, SIGNATURE_KEYS};

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
        let fields = block.fields().iter().filter(|field| SIGNATURE_KEYS.contains(&field.key));
        fields.flat_map(Field::items).map(|item| Self::read(item.text, item.start)).collect()
    }

    fn read(text: &'a str, start: usize) -> Self {
        let (entries, unparsed) = nested::read(text);
        let flat_key = || entries.node("key").filter(|_| is_flattened(&entries, "axis"));
        let axis = entries.map("axis").node("key").or_else(flat_key).or_else(|| entries.node("axis"));
        let key = match axis {
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
        let axis = if is_flattened(&self.entries, "axis") { &self.entries } else { self.entries.map("axis") };
        !axis.text("exclusive").eq_ignore_ascii_case("false")
    }

    /// Whether it has an axis.
    pub fn has_axis(&self) -> bool {
        self.axis != "."
    }

    /// The signatures that this one composes with.
    pub fn others(&self) -> &[Cow<'a, str>] {
        self.entries.list("composes_with")
    }

    /// Whether this signature lists `id` in `composes_with`.
    pub fn composes_with(&self, id: &str) -> bool {
        !id.is_empty() && self.entries.list("composes_with").iter().any(|other| other == id)
    }

    /// A list of the scope: `projects` or `channels`; empty means all.
    pub fn scope(&self, key: &str) -> &[Cow<'a, str>] {
        self.scope_map().list(key)
    }

    /// The entries of the scope.
    fn scope_map(&self) -> &[NestedEntry<'a>] {
        if is_flattened(&self.entries, "scope") { &self.entries } else { self.entries.map("scope") }
    }

    /// The first and last day of the scope; `None` for an open end.
    pub fn time(&self) -> (Option<jiff::civil::Date>, Option<jiff::civil::Date>) {
        let scope = self.scope_map();
        let time = if is_flattened(scope, "time") { scope } else { scope.map("time") };
        // Bounds are days, both inclusive; a time of day is ignored.
        let date = |key| time.text(key).get(..10).and_then(|text| text.parse().ok());
        (date("start"), date("end"))
    }
}

/// Whether `key` has lost its map: a formatter that takes an item's lines for one paragraph moves deeper lines to the level
/// of the key, which is then left without a value.
fn is_flattened(entries: &[NestedEntry<'_>], key: &str) -> bool {
    matches!(entries.node(key), Some(NestedValue::Text(text)) if text.is_empty())
}

/// The lines of a signature for a sentence such as `must use SQLite for cache`: modality, predicate, object, `for`, subject.
///
/// # Errors
/// What the sentence lacks.
pub fn draft(sentence: &str, number: usize) -> Result<String, String> {
    let help = "write for example `must use SQLite for cache`, with must, must_not, should, should_not or may";
    let sentence = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
    let (modality, rest) = sentence.split_once(' ').ok_or(help)?;
    Modality::parse(modality).ok_or_else(|| format!("`{modality}` is not a modality: {help}"))?;
    let (predicate, rest) = rest.split_once(' ').ok_or(help)?;
    let (object, subject) = rest.rsplit_once(" for ").ok_or(help)?;
    let subject = subject.trim().to_lowercase().replace(' ', "_");
    let (object, id) = (object.trim(), format!("CS-{subject}-{number}"));
    if object.is_empty() || subject.is_empty() {
        return Err(help.to_owned());
    }
    Ok(format!(
        "- id: {id}\n  domain: other\n  subject: {subject}\n  predicate: {predicate}\n  object: {object}\n  \
         modality: {modality}\n  priority: 5\n  scope: {{projects: [], channels: [], time: {{}}}}\n  evidence: {sentence}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::governance::memory::parse::Document;

    #[test]
    fn a_sentence_becomes_a_signature_that_reads_back() {
        let text =
            format!("[D-001]\nConstraintSignatures:\n{}", draft("must_not use MySQL 8 for the data base", 1).unwrap());
        let document = Document::parse(&text);
        assert_eq!(document.findings(), []);
        let signatures = Signature::of(&document.block("D-001").unwrap());
        let fields = ["modality", "predicate", "object", "subject"].map(|key| signatures[0].text(key).to_owned());
        assert_eq!(fields, ["must_not", "use", "MySQL 8", "the_data_base"]);
        assert_eq!(signatures[0].axis, "other.the_data_base");
        for bad in ["", "must", "use SQLite for cache", "must use SQLite", "must use for cache", "must use  for "] {
            assert!(draft(bad, 1).is_err(), "{bad}");
        }
    }
}
