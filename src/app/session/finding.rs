//! The finding: whether the persona held, according to the facts. The interpretation of each fact is fixed before the
//! work.

use std::fmt;

use super::outcome::{Found, FoundValue, Work, WorkItemKind};
use crate::governance::mood::EntryText;
use crate::governance::mood::lint::{PredictedOutcome, Prediction};

/// The number of standard errors by which a mean must differ from its reference value.
pub(super) const STANDARD_ERRORS_MIN: f64 = 2.0;
/// The reference values of the scores: 0 for likelihood ratios, the middle of the scale from 0 to 1 for ratings.
pub(super) const REFERENCES: [(&str, f64); 3] =
    [("persona_llr/1", 0.0), ("persona_llr_own_words/1", 0.0), ("persona_adherence/1", 0.5)];

/// Whether the persona held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// The facts support it.
    Holds,
    /// The facts contradict it.
    Fails,
    /// One fact supports it and one contradicts it.
    Disputed,
    /// There is no clear fact.
    Unknown,
}

/// The finding of a piece of work.
pub(super) fn of(work: &Work) -> Finding {
    let facts = work.found.get(&WorkItemKind::Score).into_iter().flat_map(sides);
    let (mut above, mut below) = (false, false);
    for (_, side) in facts {
        above |= side == Side::Above;
        below |= side == Side::Below;
    }
    match (above, below) {
        (true, false) => Finding::Holds,
        (false, true) => Finding::Fails,
        (true, true) => Finding::Disputed,
        (false, false) => Finding::Unknown,
    }
}

impl Finding {
    /// Checks that the finding can be asserted.
    ///
    /// # Errors
    /// The reason why not.
    pub(super) fn may_be_asserted(self) -> Result<(), String> {
        match self {
            Self::Holds | Self::Fails => Ok(()),
            Self::Disputed => {
                Err("the scores disagree, so nothing can be asserted: answer NEW: more rollouts".to_owned())
            }
            Self::Unknown => {
                Err("the finding is undecided, so nothing can be asserted: name a judge that passed `loom judge check`"
                    .to_owned())
            }
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "the persona holds, according to the scores",
            Self::Fails => "the persona does not hold, according to the scores",
            Self::Disputed => "disputed: one score says that the persona holds, another that it does not",
            Self::Unknown => "undecided: no score differs clearly from its reference value",
        })
    }
}

/// The possible facts and their meaning.
pub(super) fn predictions() -> Vec<Prediction> {
    let predict = |(id, reference): (&str, f64)| {
        let one = |side: &str, means| {
            let seen = EntryText::try_from(format!("{id} {side} {reference}")).ok()?;
            Some(Prediction { seen, means, taken_as: None })
        };
        [
            one("above", PredictedOutcome::Supports),
            one("below", PredictedOutcome::Refutes),
            one("not distinguishable from", PredictedOutcome::Silent),
        ]
    };
    REFERENCES.into_iter().flat_map(predict).flatten().collect()
}

/// The suffix of a fact's name.
pub(super) const FACT: &str = ": fact";

/// The fact of a score: whether its mean is clearly above or below the reference value.
pub(super) fn fact(values: &[f64], reference: f64) -> String {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    let margin = (mean - reference).abs() - STANDARD_ERRORS_MIN * error;
    // A single value has no standard error, so there is no clear result.
    match margin.partial_cmp(&0.0) {
        Some(std::cmp::Ordering::Greater) if mean > reference => format!("above {reference} by {margin:.3}"),
        Some(std::cmp::Ordering::Greater) => format!("below {reference} by {margin:.3}"),
        _ => format!("not distinguishable from {reference}"),
    }
}

/// The side of the reference value that a score is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Above: supports the persona.
    Above,
    /// Below: contradicts the persona.
    Below,
    /// Not distinguishable.
    Undecided,
}

/// The facts among the found values.
fn sides(found: &Found) -> impl Iterator<Item = (&'static str, Side)> {
    REFERENCES.into_iter().filter_map(|(id, _)| {
        let FoundValue::Text(fact) = found.get(&format!("{id}{FACT}"))? else { return None };
        let side = match fact.split(' ').next() {
            Some("above") => Side::Above,
            Some("below") => Side::Below,
            _ => Side::Undecided,
        };
        Some((id, side))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::need::{Plan, StatedPlan};
    use super::*;
    use crate::governance::mood::lint::self_sealing;

    #[test]
    fn a_contradicting_fact_makes_the_finding_disputed() {
        let check = |facts: &[(&str, &str)], expected: Finding| {
            let mut work = Work::new(1, String::new(), Plan::read("", &StatedPlan::default()));
            let found: BTreeMap<_, _> =
                facts.iter().map(|(id, fact)| (format!("{id}: fact"), FoundValue::Text((*fact).to_owned()))).collect();
            work.found.insert(WorkItemKind::Score, found);
            assert_eq!(of(&work), expected, "{facts:?}");
        };
        check(&[], Finding::Unknown);
        check(&[("persona_llr/1", "not distinguishable from 0")], Finding::Unknown);
        check(
            &[("persona_llr/1", "above 0 by 0.2"), ("persona_adherence/1", "not distinguishable from 0.5")],
            Finding::Holds,
        );
        check(&[("persona_adherence/1", "below 0.5 by 0.1")], Finding::Fails);
        check(&[("persona_llr/1", "above 0 by 0.2"), ("persona_adherence/1", "below 0.5 by 0.1")], Finding::Disputed);
        // Another score with a fact-like text is not a fact.
        check(&[("distinct_2/1", "above 0 by 0.2")], Finding::Unknown);
    }

    #[test]
    fn the_predictions_of_a_session_are_falsifiable() {
        assert_eq!(self_sealing(&predictions()), None);
    }

    #[test]
    fn a_fact_needs_a_mean_that_differs_clearly_from_the_reference() {
        let check = |values: &[f64], reference: f64, expected: &str| {
            assert_eq!(fact(values, reference), expected, "{values:?}");
        };
        check(&[0.5], 0.0, "not distinguishable from 0");
        check(&[1.0, -1.0, 0.5], 0.0, "not distinguishable from 0");
        // The mean is 1, its standard error 0.1/sqrt(3).
        check(&[0.9, 1.0, 1.1], 0.0, "above 0 by 0.885");
        check(&[0.19, 0.2, 0.21], 0.5, "below 0.5 by 0.288");
        check(&[0.5, 0.5], 0.5, "not distinguishable from 0.5");
        // Equal values have a standard error of 0.
        check(&[0.75, 0.75], 0.5, "above 0.5 by 0.250");
    }
}
