//! What the facts come to: whether the persona held, as far as can be told. Said before the work what would speak for it and
//! what against; afterwards no fact is taken otherwise.

use std::fmt;

use super::outcome::{Found, ItemKind, Value, Work};
use crate::governance::mood::Text;
use crate::governance::mood::lint::{Outcome, Prediction};

/// How many standard errors a mean must lie away from its mark to be told from it.
pub(super) const ERRORS: f64 = 2.0;
/// What scores are told apart from: likelihood ratios from none, ratings from the middle of their scale from 0 to 1.
pub(super) const MARKS: [(&str, f64); 3] =
    [("persona_llr/1", 0.0), ("persona_llr_own_words/1", 0.0), ("persona_adherence/1", 0.5)];

/// Whether the persona held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// What can be told speaks for it.
    Holds,
    /// What can be told speaks against it.
    Fails,
    /// One fact speaks for it and one against it.
    Disputed,
    /// Nothing can be told.
    Unknown,
}

/// What a piece of work found.
pub(super) fn of(work: &Work) -> Finding {
    let facts = work.found.get(&ItemKind::Score).into_iter().flat_map(sides);
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
    /// Whether it says enough to be asserted.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn may_be_asserted(self) -> Result<(), String> {
        match self {
            Self::Holds | Self::Fails => Ok(()),
            Self::Disputed => {
                Err("the facts disagree, so nothing can be asserted: answer NEW: more rollouts".to_owned())
            }
            Self::Unknown => {
                Err("nothing can be told, so nothing can be asserted: name a judge that passed `loom judge check`"
                    .to_owned())
            }
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "the persona holds, as far as the scores tell",
            Self::Fails => "the persona does not hold, as far as the scores tell",
            Self::Disputed => "disputed: one score says that the persona holds, another that it does not",
            Self::Unknown => "not to be told: no score lies clearly on one side of its mark",
        })
    }
}

/// What may be seen, and what it would mean.
pub(super) fn predictions() -> Vec<Prediction> {
    let predict = |(id, mark): (&str, f64)| {
        let one = |side: &str, means| {
            let seen = Text::try_from(format!("{id} {side} {mark}")).ok()?;
            Some(Prediction { seen, means, taken_as: None })
        };
        [one("above", Outcome::Supports), one("below", Outcome::Refutes), one("not told apart from", Outcome::Silent)]
    };
    MARKS.into_iter().flat_map(predict).flatten().collect()
}

/// What a fact's name ends in.
pub(super) const FACT: &str = ": fact";

/// On which side of `mark` the mean of the readings lies, if it can be told from it.
pub(super) fn fact(values: &[f64], mark: f64) -> String {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    let margin = (mean - mark).abs() - ERRORS * error;
    // Of a single reading no error is known, and nothing can be told.
    match margin.partial_cmp(&0.0) {
        Some(std::cmp::Ordering::Greater) if mean > mark => format!("above {mark} by {margin:.3}"),
        Some(std::cmp::Ordering::Greater) => format!("below {mark} by {margin:.3}"),
        _ => format!("not told apart from {mark}"),
    }
}

/// On which side of its mark a score lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Above it: this speaks for the persona.
    Above,
    /// Below it.
    Below,
    /// It cannot be told.
    Untold,
}

/// The facts among findings.
fn sides(found: &Found) -> impl Iterator<Item = (&'static str, Side)> {
    MARKS.into_iter().filter_map(|(id, _)| {
        let Value::Text(fact) = found.get(&format!("{id}{FACT}"))? else { return None };
        let side = match fact.split(' ').next() {
            Some("above") => Side::Above,
            Some("below") => Side::Below,
            _ => Side::Untold,
        };
        Some((id, side))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::need::{Plan, Said};
    use super::*;
    use crate::governance::mood::lint::self_sealing;

    #[test]
    fn one_fact_against_it_is_enough_for_doubt() {
        let check = |facts: &[(&str, &str)], expected: Finding| {
            let mut work = Work::new(1, String::new(), Plan::read("", &Said::default()));
            let found: BTreeMap<_, _> =
                facts.iter().map(|(id, fact)| (format!("{id}: fact"), Value::Text((*fact).to_owned()))).collect();
            work.found.insert(ItemKind::Score, found);
            assert_eq!(of(&work), expected, "{facts:?}");
        };
        check(&[], Finding::Unknown);
        check(&[("persona_llr/1", "not told apart from 0")], Finding::Unknown);
        check(
            &[("persona_llr/1", "above 0 by 0.2"), ("persona_adherence/1", "not told apart from 0.5")],
            Finding::Holds,
        );
        check(&[("persona_adherence/1", "below 0.5 by 0.1")], Finding::Fails);
        check(&[("persona_llr/1", "above 0 by 0.2"), ("persona_adherence/1", "below 0.5 by 0.1")], Finding::Disputed);
        // Something else that happens to read like a fact is none.
        check(&[("distinct_2/1", "above 0 by 0.2")], Finding::Unknown);
    }

    #[test]
    fn the_conjecture_of_a_session_can_be_refuted() {
        assert_eq!(self_sealing(&predictions()), None);
    }

    #[test]
    fn a_mean_is_a_fact_only_where_it_can_be_told_from_its_mark() {
        let check = |values: &[f64], mark: f64, expected: &str| assert_eq!(fact(values, mark), expected, "{values:?}");
        check(&[0.5], 0.0, "not told apart from 0");
        check(&[1.0, -1.0, 0.5], 0.0, "not told apart from 0");
        // The mean is 1, its standard error 0.1/sqrt(3).
        check(&[0.9, 1.0, 1.1], 0.0, "above 0 by 0.885");
        check(&[0.19, 0.2, 0.21], 0.5, "below 0.5 by 0.288");
        check(&[0.5, 0.5], 0.5, "not told apart from 0.5");
        // Readings that all agree leave no error at all.
        check(&[0.75, 0.75], 0.5, "above 0.5 by 0.250");
    }
}
