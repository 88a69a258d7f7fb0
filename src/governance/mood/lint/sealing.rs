//! Self-sealing: claims that no outcome can refute, and refutations that were explained away.

use serde::{Deserialize, Serialize};

use crate::foundation::text::{contains_phrase, fold};
use crate::governance::mood::registers::EntryText;

/// The meaning of a test outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PredictedOutcome {
    /// It supports the claim.
    Supports,
    /// It refutes the claim.
    Refutes,
    /// It says nothing about the claim.
    Silent,
}

/// The meaning of an outcome, stated before the test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prediction {
    /// The outcome.
    pub seen: EntryText,
    /// Its stated meaning.
    pub means: PredictedOutcome,
    /// Its meaning as interpreted after it occurred.
    #[serde(default)]
    pub taken_as: Option<PredictedOutcome>,
}

/// How a claim is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SealingKind {
    /// No outcome would refute it.
    NothingRefutes,
    /// A refuting outcome occurred and was interpreted differently.
    ExplainedAway,
    /// One outcome has two stated meanings.
    Contradictory,
}

/// The form in which self-sealing is disclosed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfSealingDisclosure {
    /// The claim.
    pub claim: EntryText,
    /// How it is sealed.
    pub sealed: SealingKind,
    /// The outcome that would refute it.
    pub would_refute: EntryText,
    /// The mitigation.
    pub mitigation: EntryText,
}

/// How the predictions of a test seal its claim, if they do.
pub fn self_sealing(predictions: &[Prediction]) -> Option<SealingKind> {
    let contradicts =
        |one: &Prediction| predictions.iter().any(|other| other.seen == one.seen && other.means != one.means);
    let explained = |one: &Prediction| {
        one.means == PredictedOutcome::Refutes && one.taken_as.is_some_and(|taken| taken != PredictedOutcome::Refutes)
    };
    if predictions.iter().any(contradicts) {
        Some(SealingKind::Contradictory)
    } else if predictions.iter().any(explained) {
        Some(SealingKind::ExplainedAway)
    } else if !predictions.iter().any(|prediction| prediction.means == PredictedOutcome::Refutes) {
        Some(SealingKind::NothingRefutes)
    } else {
        None
    }
}

/// Phrases that present a failure as a success.
const PHRASES: &[&str] = &[
    "the failure proves",
    "the failure confirms",
    "the failing test shows that it works",
    "which only confirms",
    "exactly what we would expect if it were hidden",
    "absence of evidence proves",
    "cannot be tested but is true",
    "true by definition",
    "any result would confirm",
    "the test must be wrong",
    "the verifier is mistaken because",
];

/// The self-sealing phrases in a text.
pub fn sealing_phrases(text: &str) -> Vec<&'static str> {
    let text = fold(text);
    PHRASES.iter().copied().filter(|phrase| contains_phrase(&text, phrase)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_sealed_if_nothing_refutes_it_or_a_refutation_was_explained_away() {
        let predict = |seen: &str, means, taken_as| Prediction { seen: seen.try_into().unwrap(), means, taken_as };
        let check = |predictions: &[Prediction], expected| assert_eq!(self_sealing(predictions), expected);
        let (yes, no) = (PredictedOutcome::Supports, PredictedOutcome::Refutes);
        check(&[predict("green", yes, None), predict("red", no, None)], None);
        check(&[predict("green", yes, None), predict("red", no, Some(no))], None);
        check(&[predict("green", yes, None), predict("red", no, Some(yes))], Some(SealingKind::ExplainedAway));
        check(&[predict("green", yes, None), predict("red", yes, None)], Some(SealingKind::NothingRefutes));
        check(&[predict("red", yes, None), predict("red", no, None)], Some(SealingKind::Contradictory));
        check(&[], Some(SealingKind::NothingRefutes));
        assert_eq!(sealing_phrases("It failed; the test  must be wrong."), ["the test must be wrong"]);
        assert!(sealing_phrases("It failed; the claim must be wrong.").is_empty());
    }
}
