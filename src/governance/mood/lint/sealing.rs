//! Self-sealing: a claim that no outcome can refute, or that an outcome which refuted it is explained away.

use serde::{Deserialize, Serialize};

use crate::foundation::text::{contains_phrase, fold};
use crate::governance::mood::registers::Text;

/// What a test can come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It would speak for the claim.
    Supports,
    /// It would speak against it.
    Refutes,
    /// It would say nothing.
    Silent,
}

/// What an outcome of the test was said to mean, before the test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prediction {
    /// What may be seen.
    pub seen: Text,
    /// What it would mean.
    pub means: Outcome,
    /// What it was taken to mean afterwards, if it was seen.
    #[serde(default)]
    pub taken_as: Option<Outcome>,
}

/// How a claim is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sealed {
    /// Nothing that may be seen would refute it.
    NothingRefutes,
    /// What was to refute it was seen and taken otherwise.
    ExplainedAway,
    /// The same sight is said to mean two things.
    Contradictory,
}

/// The form in which self-sealing is disclosed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfSealingDisclosure {
    /// The claim.
    pub claim: Text,
    /// How it is sealed.
    pub sealed: Sealed,
    /// What would have to be seen for it to be wrong.
    pub would_refute: Text,
    /// What to do about it.
    pub mitigation: Text,
}

/// How the predictions of a claim's test seal it, if they do.
pub fn self_sealing(predictions: &[Prediction]) -> Option<Sealed> {
    let contradicts =
        |one: &Prediction| predictions.iter().any(|other| other.seen == one.seen && other.means != one.means);
    let explained =
        |one: &Prediction| one.means == Outcome::Refutes && one.taken_as.is_some_and(|taken| taken != Outcome::Refutes);
    if predictions.iter().any(contradicts) {
        Some(Sealed::Contradictory)
    } else if predictions.iter().any(explained) {
        Some(Sealed::ExplainedAway)
    } else if !predictions.iter().any(|prediction| prediction.means == Outcome::Refutes) {
        Some(Sealed::NothingRefutes)
    } else {
        None
    }
}

/// Turns of phrase that take a failure for a success.
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

/// Those turns of phrase that stand in a text.
pub fn sealing_phrases(text: &str) -> Vec<&'static str> {
    let text = fold(text);
    PHRASES.iter().copied().filter(|phrase| contains_phrase(&text, phrase)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_sealed_when_no_sight_refutes_it_or_one_that_did_was_explained_away() {
        let predict = |seen: &str, means, taken_as| Prediction { seen: seen.try_into().unwrap(), means, taken_as };
        let check = |predictions: &[Prediction], expected| assert_eq!(self_sealing(predictions), expected);
        let (yes, no) = (Outcome::Supports, Outcome::Refutes);
        check(&[predict("green", yes, None), predict("red", no, None)], None);
        check(&[predict("green", yes, None), predict("red", no, Some(no))], None);
        check(&[predict("green", yes, None), predict("red", no, Some(yes))], Some(Sealed::ExplainedAway));
        check(&[predict("green", yes, None), predict("red", yes, None)], Some(Sealed::NothingRefutes));
        check(&[predict("red", yes, None), predict("red", no, None)], Some(Sealed::Contradictory));
        check(&[], Some(Sealed::NothingRefutes));
        assert_eq!(sealing_phrases("It failed; the test  must be wrong."), ["the test must be wrong"]);
        assert!(sealing_phrases("It failed; the claim must be wrong.").is_empty());
    }
}
