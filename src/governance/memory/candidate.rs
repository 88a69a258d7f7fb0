//! Candidates for contradictions: pairs of active decisions in plain words that may not both hold. Only signatures state
//! facts; a candidate is for a person to judge.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::id::BlockKind;
use super::scan_input::decisions;
use super::signature::Signature;
use super::texts::WorkspaceTexts;

/// Words that turn a statement into its opposite.
const NEGATIONS: [&str; 12] =
    ["never", "not", "no", "don't", "dont", "avoid", "without", "stop", "drop", "against", "won't", "forbid"];
/// Words without a subject of their own.
const EMPTY: [&str; 30] = [
    "a", "an", "the", "to", "of", "in", "on", "at", "is", "are", "be", "we", "our", "it", "its", "and", "or", "that",
    "this", "will", "do", "any", "all", "let's", "decided", "must", "should", "as", "with", "by",
];
/// A word shared by more decisions than this says little about two of them.
const COMMON: usize = 40;
/// The share of common words of two statements that are about the same thing.
const OVERLAP_MIN: f32 = 0.5;
/// The cosine of two statements that are about the same thing, if one negates the other.
const COSINE_OPPOSED_MIN: f32 = 0.7;
/// The cosine of two statements that say nearly the same.
const COSINE_MIN: f32 = 0.85;

/// Two decisions that a person should compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// The first decision in file order.
    pub a: String,
    /// The second.
    pub b: String,
    /// Why they may contradict each other.
    pub why: String,
}

/// An active decision without constraint signatures, or with, and its statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The decision.
    pub id: String,
    /// What it says.
    pub text: String,
    signed: bool,
}

/// The statements of all active decisions, in file order.
pub fn statements(texts: &WorkspaceTexts) -> Vec<Statement> {
    let documents = decisions(texts);
    let blocks = documents.iter().flat_map(super::parse::Document::blocks);
    let active = blocks.filter(|block| block.id().kind() == BlockKind::Decision && block.head("Status") == "active");
    let statement = |block: super::parse::Block<'_, '_>| Statement {
        id: block.id().as_str().to_owned(),
        text: block.value("Statement").unwrap_or_default().replace('\n', " "),
        signed: !Signature::of(&block).is_empty(),
    };
    active.map(statement).collect()
}

/// A statement taken apart.
struct Words {
    negated: bool,
    /// Its words but for negations and empty ones.
    content: BTreeSet<String>,
    /// The words before `for`, and those after it.
    parts: Option<(BTreeSet<String>, BTreeSet<String>)>,
}

fn words(text: &str) -> Words {
    let lower = text.to_lowercase().replace('\u{2019}', "'");
    let split = |text: &str| -> Vec<String> {
        let word = |c: char| !(c.is_alphanumeric() || matches!(c, '\'' | '+' | '#' | '_' | '-'));
        text.split(word).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let content = |text: &str| -> BTreeSet<String> {
        split(text)
            .into_iter()
            .filter(|word| !NEGATIONS.contains(&word.as_str()) && !EMPTY.contains(&word.as_str()))
            .filter(|word| word != "for")
            .collect()
    };
    Words {
        negated: split(&lower).iter().any(|word| NEGATIONS.contains(&word.as_str())),
        content: content(&lower),
        parts: lower.split_once(" for ").map(|(what, context)| (content(what), content(context))),
    }
}

/// Whether two statements may contradict each other, by their words.
fn why(a: &Words, b: &Words) -> Option<String> {
    let shared = a.content.intersection(&b.content).count();
    let overlap = shared as f32 / a.content.union(&b.content).count().max(1) as f32;
    if a.negated != b.negated && overlap >= OVERLAP_MIN {
        return Some("one says the opposite of the other".to_owned());
    }
    let ((what, context), (other, of)) = (a.parts.as_ref()?, b.parts.as_ref()?);
    let same_context = !context.is_empty() && context == of;
    let other_choice = what != other && what.intersection(other).next().is_some();
    (same_context && other_choice && !a.negated && !b.negated).then(|| {
        let context: Vec<_> = context.iter().map(String::as_str).collect();
        format!("two choices for {}", context.join(" "))
    })
}

/// Candidates by words. Pairs in which both decisions have signatures are left out: these are compared as facts.
pub fn by_words(statements: &[Statement]) -> Vec<Candidate> {
    let parts: Vec<_> = statements.iter().map(|statement| words(&statement.text)).collect();
    let mut holding: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, words) in parts.iter().enumerate() {
        words.content.iter().for_each(|word| holding.entry(word).or_default().push(index));
    }
    let mut pairs = BTreeSet::new();
    for group in holding.values().filter(|group| group.len() <= COMMON) {
        for (at, one) in group.iter().enumerate() {
            pairs.extend(group.iter().skip(at + 1).map(|other| (*one, *other)));
        }
    }
    let candidate = |(one, other): (usize, usize)| {
        let (a, b) = (statements.get(one)?, statements.get(other)?);
        let why = why(parts.get(one)?, parts.get(other)?).filter(|_| !(a.signed && b.signed))?;
        Some(Candidate { a: a.id.clone(), b: b.id.clone(), why })
    };
    pairs.into_iter().filter_map(candidate).collect()
}

/// Candidates by the vectors of the statements, which must be in the order of `statements`.
pub fn by_vectors(statements: &[Statement], vectors: &[Vec<f32>]) -> Vec<Candidate> {
    let length = |vector: &[f32]| vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    let rows: Vec<_> = statements.iter().zip(vectors).map(|(one, vector)| (one, vector, words(&one.text))).collect();
    let mut found = Vec::new();
    for (at, (a, va, wa)) in rows.iter().enumerate() {
        for (b, vb, wb) in rows.iter().skip(at + 1) {
            let product: f32 = va.iter().zip(*vb).map(|(x, y)| x * y).sum();
            let cosine = product / (length(va) * length(vb)).max(f32::MIN_POSITIVE);
            let opposed = wa.negated != wb.negated;
            if (a.signed && b.signed) || cosine < if opposed { COSINE_OPPOSED_MIN } else { COSINE_MIN } {
                continue;
            }
            let what = if opposed { "about the same, and one negates it" } else { "nearly the same" };
            found.push(Candidate { a: a.id.clone(), b: b.id.clone(), why: format!("{what} (cosine {cosine:.2})") });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(id: usize, text: &str) -> Statement {
        Statement { id: format!("D-{id:03}"), text: text.to_owned(), signed: false }
    }

    fn check(one: &str, other: &str, expected: Option<&str>) {
        let found = by_words(&[statement(1, one), statement(2, other)]);
        assert_eq!(found.first().map(|candidate| candidate.why.as_str()), expected, "{one} / {other}");
    }

    #[test]
    fn opposites_and_competing_choices_are_candidates_and_unrelated_decisions_are_not() {
        let opposite = Some("one says the opposite of the other");
        check("Use MySQL.", "Never use MySQL", opposite);
        check("We decided to use MySQL for billing", "Do not use MySQL for billing", opposite);
        check("Deploy on Fridays", "Don’t deploy on Fridays", opposite);
        check("Use MySQL for billing", "Use Postgres for billing", Some("two choices for billing"));
        check("Use MySQL for billing", "Use MySQL for search", None);
        check("Use MySQL", "Use MySQL in production", None);
        check("Never use MySQL", "Avoid MySQL", None);
        check("Use SQLite for the cache", "Never deploy on Fridays", None);
        check("Keep logs for a year", "Write the changelog for a release", None);
    }

    #[test]
    fn signed_decisions_are_compared_as_facts_and_vectors_find_other_words() {
        let mut pair = [statement(1, "Use MySQL"), statement(2, "Never use MySQL")];
        pair.iter_mut().for_each(|one| one.signed = true);
        assert_eq!(by_words(&pair), []);
        let statements =
            [statement(1, "Store it in MySQL"), statement(2, "No relational database"), statement(3, "Tea")];
        let vectors = [vec![1.0, 0.1], vec![0.9, 0.3], vec![0.0, 1.0]];
        let found = by_vectors(&statements, &vectors);
        assert_eq!((found.len(), found[0].a.as_str(), found[0].b.as_str()), (1, "D-001", "D-002"));
        assert!(found[0].why.starts_with("about the same, and one negates it (cosine 0."), "{found:?}");
    }
}
