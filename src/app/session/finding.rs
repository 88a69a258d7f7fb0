//! The finding: whether the persona held, according to the facts. The interpretation of each fact is fixed before the
//! work.

use super::need::Plan;
use super::outcome::{Found, FoundValue, Work, WorkItemKind, counted};
use super::question::StudyQuestion;
use crate::foundation::stats::Interval;
use crate::foundation::stats::small_sample::detectable_difference;
use crate::governance::mood::EntryText;
use crate::governance::mood::lint::{PredictedOutcome, Prediction};
use crate::governance::statechart::hope::FooterFinding;
use crate::simulation::report::{DifferenceRow, bounds, interval};

/// The fewest rollouts per arm whose 95 % interval of the difference exists.
pub(super) const COMPARED_MIN: usize = 4;
/// The fewest rollouts whose 95 % interval can exclude a reference value. With fewer the finding is that it cannot be told.
pub(super) const ROLLOUTS_MIN: usize = 6;
/// The reference values of the scores: 0 for likelihood ratios, the middle of the scale from 0 to 1 for ratings.
const REFERENCES: [(&str, f64); 3] =
    [("persona_llr/1", 0.0), ("persona_llr_own_words/1", 0.0), ("persona_adherence/1", 0.5)];

/// A score and its reference value.
pub(super) type Reference = (String, f64);

/// The scores that decide whether the persona holds: the one that was named, or the default ones.
pub(super) fn references(plan: &Plan) -> Vec<Reference> {
    let known = |id: &str| REFERENCES.iter().find(|(known, _)| *known == id).map_or(0.0, |(_, reference)| *reference);
    match &plan.measure.value {
        Some(measure) => vec![(measure.clone(), plan.threshold.unwrap_or_else(|| known(measure)))],
        None => REFERENCES.iter().map(|(id, reference)| ((*id).to_owned(), *reference)).collect(),
    }
}

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
    let (item, scores) = match work.plan.compared() {
        Some((measure, _)) => (WorkItemKind::Compare, vec![measure]),
        None => (WorkItemKind::Score, references(&work.plan).into_iter().map(|(id, _)| id).collect()),
    };
    let (mut above, mut below) = (false, false);
    for side in work.found.get(&item).into_iter().flat_map(|found| sides(found, &scores)) {
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
    /// The finding as the footer states it.
    pub(super) const fn in_footer(self) -> FooterFinding {
        match self {
            Self::Holds => FooterFinding::Holds,
            Self::Fails => FooterFinding::Fails,
            Self::Disputed | Self::Unknown => FooterFinding::CannotTell,
        }
    }

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

/// The finding of a piece of work in a sentence.
pub(super) fn sentence(work: &Work) -> String {
    let found = of(work);
    let Some((measure, threshold)) = work.plan.compared() else {
        return match found {
            Finding::Holds => "the persona holds, according to the scores",
            Finding::Fails => "the persona does not hold, according to the scores",
            Finding::Disputed => "cannot tell: one score says that the persona holds, another that it does not",
            Finding::Unknown => "cannot tell: no interval of a score excludes its reference value",
        }
        .to_owned();
    };
    let compared = work.found.get(&WorkItemKind::Compare);
    let fact = match compared.and_then(|found| found.get(&format!("{measure}{FACT}"))) {
        Some(FoundValue::Text(fact)) => fact.as_str(),
        _ => "not compared yet",
    };
    let reason = fact.split_once(": ").map_or(fact, |(_, reason)| reason);
    let arm = match work.plan.question.value {
        StudyQuestion::Targets => "the other target",
        StudyQuestion::Prompts => "the other config",
        _ => "the ablation",
    };
    match found {
        Finding::Holds => format!("it holds: {measure} exceeds that of {arm} by more than {threshold}; {reason}"),
        Finding::Fails => {
            format!("it does not hold: {measure} does not exceed that of {arm} by more than {threshold}; {reason}")
        }
        Finding::Disputed | Finding::Unknown => {
            format!("cannot tell whether {measure} exceeds that of {arm} by more than {threshold}; {reason}")
        }
    }
}

/// The possible facts and their meaning.
pub(super) fn predictions(plan: &Plan) -> Vec<Prediction> {
    let compared = plan.compared().map(|(id, threshold)| vec![(format!("the difference in {id}"), threshold)]);
    let predict = |(id, reference): Reference| {
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
    compared.unwrap_or_else(|| references(plan)).into_iter().flat_map(predict).flatten().collect()
}

/// The hypothesis that the work tests.
pub(super) fn hypothesis(work: &Work) -> String {
    let plan = &work.plan;
    let persona = &plan.persona.value;
    let Some((measure, threshold)) = plan.compared() else {
        return format!("the persona `{persona}` holds: {}", measures(&references(plan)));
    };
    let arms = match plan.question.value {
        StudyQuestion::Targets => format!("of `{persona}` with the target exceeds that with the other target"),
        StudyQuestion::Prompts => format!("of `{persona}` exceeds that of the other config"),
        _ => format!("of `{persona}` exceeds that of its ablation"),
    };
    format!("{measure} {arms} by more than {threshold}")
}

fn measures(references: &[Reference]) -> String {
    let each: Vec<_> = references.iter().map(|(id, reference)| format!("{id} above {reference}")).collect();
    each.join(" or ")
}

/// What so many rollouts can tell, in a sentence.
pub(super) fn power(work: &Work) -> String {
    let rollouts = work.plan.rollouts.value;
    let planned = counted(rollouts, "rollout");
    if !work.plan.question.value.compares() {
        return format!(
            "{planned} planned; {ROLLOUTS_MIN} are the fewest whose interval can exclude a reference value, if all agree"
        );
    }
    match detectable_difference(1.0, rollouts, rollouts, 1) {
        Some(detectable) => format!(
            "{planned} per arm show a difference of {detectable:.2} standard deviations with 80 % probability; smaller ones need more"
        ),
        None => format!("{planned} per arm can tell nothing: at least {COMPARED_MIN} are needed"),
    }
}

/// The fact of a comparison: whether the 95 % interval of the difference is above the threshold, below it, or neither.
pub(super) fn compared_fact(row: Result<&DifferenceRow, String>, threshold: f64) -> String {
    let undecided = |why: &str| format!("not distinguishable from {threshold}: {why}");
    let row = match row {
        Ok(row) => row,
        Err(why) => return undecided(&why),
    };
    let counts = [row.a, row.b].map(|side| side.map_or(0, |side| side.n));
    let fewest = counts.into_iter().min().unwrap_or_default();
    if fewest < COMPARED_MIN {
        return undecided(&format!(
            "{} per arm with a value, at least {COMPARED_MIN} are needed",
            counted(fewest, "rollout")
        ));
    }
    let (Some(difference), Some(interval)) = (row.difference, row.interval) else {
        return undecided("there is no interval of the difference");
    };
    let of = format!(
        "difference {difference:.3}, 95 % interval {:.3} to {:.3}, {} and {} rollouts",
        interval.low, interval.high, counts[1], counts[0]
    );
    match () {
        () if interval.low > threshold => format!("above {threshold}: {of}"),
        () if interval.high < threshold => format!("below {threshold}: {of}"),
        () => undecided(&of),
    }
}

/// The suffix of a fact's name.
pub(super) const FACT: &str = ": fact";

/// The fact of a score: whether the 95 % interval over the rollouts, one value each, excludes the reference value. For a
/// rating it is the interval of the mean, for a likelihood ratio, which has no bounds, that of the median.
pub(super) fn fact(id: &str, values: &[f64], reference: f64) -> String {
    let rollouts = counted(values.len(), "rollout");
    if values.len() < ROLLOUTS_MIN {
        return format!("not distinguishable from {reference}: {rollouts}, at least {ROLLOUTS_MIN} are needed");
    }
    let Some(Interval { low, high }) = interval(values, bounds(id), id).map(|interval| interval.interval) else {
        return format!("not distinguishable from {reference}: no interval for {rollouts}");
    };
    let of = format!("95 % interval {low:.3} to {high:.3}, {rollouts}");
    match () {
        () if low > reference => format!("above {reference}: {of}"),
        () if high < reference => format!("below {reference}: {of}"),
        () => format!("not distinguishable from {reference}: {of}"),
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
fn sides(found: &Found, scores: &[String]) -> Vec<Side> {
    let side = |id: &String| {
        let FoundValue::Text(fact) = found.get(&format!("{id}{FACT}"))? else { return None };
        Some(match fact.split(' ').next() {
            Some("above") => Side::Above,
            Some("below") => Side::Below,
            _ => Side::Undecided,
        })
    };
    scores.iter().filter_map(side).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::need::StatedPlan;
    use super::*;
    use crate::governance::mood::lint::self_sealing;

    #[test]
    fn the_fact_of_a_comparison_needs_an_interval_beyond_the_threshold() {
        let check = |a: &[f64], b: &[f64], threshold: f64, expected: &str| {
            let some = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
            let row = DifferenceRow::of("mattr/1", &some(b), &some(a));
            let fact = compared_fact(Ok(&row), threshold);
            assert!(fact.starts_with(expected), "{fact}");
        };
        let (high, low) = ([3.0, 3.1, 3.2, 3.3, 3.4, 3.5], [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]);
        check(&high, &low, 0.0, "above 0: difference 2.000, 95 % interval ");
        check(&low, &high, 0.0, "below 0: difference -2.000, 95 % interval ");
        // A difference that is smaller than what was registered does not hold.
        check(&high, &low, 5.0, "below 5: difference 2.000");
        check(&high, &low, 2.0, "not distinguishable from 2: difference 2.000");
        check(&high, &high, 0.0, "not distinguishable from 0: difference 0.000");
        check(&high[..3], &low[..3], 0.0, "not distinguishable from 0: 3 rollouts per arm with a value, at least 4");
        check(&high[..4], &low[..4], 0.0, "above 0");
        assert_eq!(compared_fact(Err("no judge".to_owned()), 0.5), "not distinguishable from 0.5: no judge");
    }

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
        check(&[("persona_adherence/1", "below 0.5: 95 % interval 0.1 to 0.4, 6 rollouts")], Finding::Fails);
        check(&[("persona_llr/1", "above 0 by 0.2"), ("persona_adherence/1", "below 0.5 by 0.1")], Finding::Disputed);
        // Another score with a fact-like text is not a fact.
        check(&[("distinct_2/1", "above 0 by 0.2")], Finding::Unknown);
    }

    #[test]
    fn the_predictions_of_a_session_are_falsifiable() {
        assert_eq!(self_sealing(&predictions(&Plan::read("", &StatedPlan::default()))), None);
    }

    #[test]
    fn a_fact_needs_an_interval_that_excludes_the_reference() {
        let check = |id: &str, values: &[f64], reference: f64, expected: &str| {
            assert_eq!(fact(id, values, reference), expected, "{values:?}");
        };
        let (ratio, rating) = ("persona_llr/1", "persona_adherence/1");
        let few = "not distinguishable from 0.5: 5 rollouts, at least 6 are needed";
        check(rating, &[1.0; 5], 0.5, few);
        check(ratio, &[], 0.0, "not distinguishable from 0: 0 rollouts, at least 6 are needed");
        // Six equal ratings of 1: the lower bound of Clopper and Pearson is .025^(1/6).
        let all = fact(rating, &[1.0; 6], 0.5);
        assert!(all.starts_with("above 0.5: 95 % interval 0.5") && all.ends_with("to 1.000, 6 rollouts"), "{all}");
        assert!(fact(rating, &[0.0; 6], 0.5).starts_with("below 0.5: 95 % interval 0.000 to 0.4"));
        assert!(fact(rating, &[0.5; 6], 0.5).starts_with("not distinguishable from 0.5: 95 %"));
        assert!(fact(rating, &[0.9, 0.1, 0.8, 0.2, 0.9, 0.1], 0.5).starts_with("not distinguishable from 0.5: 95 %"));
        // The interval of the median of six is their range.
        check(ratio, &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 0.0, "above 0: 95 % interval 0.100 to 0.600, 6 rollouts");
        check(ratio, &[-0.1, -0.2, -0.3, -0.4, -0.5, -0.6], 0.0, "below 0: 95 % interval -0.600 to -0.100, 6 rollouts");
        check(
            ratio,
            &[-0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
            0.0,
            "not distinguishable from 0: 95 % interval -0.100 to 0.600, 6 rollouts",
        );
    }
}
