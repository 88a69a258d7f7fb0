//! Phrases used in messages and documents.

use super::finding;
use super::need::{Plan, other_name};
pub(super) use super::outcome::counted;
use super::outcome::{FoundValue, Work};
use super::question::StudyQuestion;
use crate::governance::statechart::hope::{Echo, Facts};
use crate::simulation::persona::AdversaryKind;

/// The understood need.
pub(super) fn echo(work: &Work) -> String {
    let Plan { question, persona, other, turns, rollouts, .. } = &work.plan;
    let of = format!("{} of {}", counted(rollouts.value, "rollout"), counted(turns.value, "turn"));
    let between = format!("the persona `{}` and {}", persona.value, other_name(other.value));
    let deliverable = if question.value.compares() {
        let baseline = question.value.baseline();
        format!("a comparison of two arms, each {of}: between {between}, and {baseline}")
    } else {
        format!("a scored report on {of} between {between}")
    };
    let must = match work.plan.compared() {
        Some(_) => format!("whether {}", finding::hypothesis(work)),
        None => "how far the persona holds".to_owned(),
    };
    let constraint = work.words.last().map(String::as_str);
    Echo { deliverable: &deliverable, must_include: Some(&must), constraint }.to_string()
}

/// The main risks, the most important first.
pub(super) fn risks(work: &Work, facts: &Facts) -> Vec<String> {
    let mut risks = Vec::new();
    if !work.objections.is_empty() {
        risks.push(format!("{} of the panel objected", counted(work.objections.len(), "expert")));
    }
    let fewest = if work.plan.question.value.compares() { finding::COMPARED_MIN } else { finding::ROLLOUTS_MIN };
    if work.plan.rollouts.value < fewest {
        risks.push("too few rollouts to tell anything".to_owned());
    }
    if !work.assumptions.is_empty() {
        risks.push(format!("{} not confirmed by the user", counted(work.assumptions.len(), "assumption")));
    }
    if facts.failures > 0 {
        risks.push(format!("{} during the work", counted(facts.failures as usize, "failed attempt")));
    }
    if finding::of(work) == finding::Finding::Disputed {
        risks.insert(0, "the scores disagree".to_owned());
    }
    if work.is_suspect() {
        risks.insert(0, "a reply gives instructions to its reader, so it was not rated".to_owned());
    }
    risks.push(
        "a model's statements about itself are no evidence: a rating counts only if its judge was tested".to_owned(),
    );
    risks.push("a persona that holds here may not hold over more turns".to_owned());
    risks.truncate(3);
    risks
}

/// Formats a found value.
pub(super) fn format_value(value: &FoundValue) -> String {
    match value {
        FoundValue::Count(count) => count.to_string(),
        FoundValue::Number(number) => format!("{number:.3}"),
        // Digests are shortened.
        FoundValue::Text(text) if text.len() == 64 && !text.contains(' ') => text.chars().take(12).collect(),
        FoundValue::Text(text) => one_line(text).replace('|', "\\|"),
    }
}

/// A text on one line.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The interlocutor in words, with what replaces it in the other arm.
pub(super) fn versus(question: StudyQuestion, other: AdversaryKind) -> String {
    let other = other_name(other);
    if question.compares() { format!("{other}, against {}", question.baseline()) } else { other.to_owned() }
}
