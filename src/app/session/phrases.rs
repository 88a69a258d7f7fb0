//! Phrases that both what is said and what is written are made of.

use super::finding;
use super::need::{Plan, other_name};
use super::outcome::{Value, Work};
use crate::governance::statechart::hope::{Echo, Facts};

/// What is wanted, as it was understood.
pub(super) fn echo(work: &Work) -> String {
    let Plan { persona, other, turns, rollouts } = &work.plan;
    let deliverable = format!(
        "a scored report on {} of {} between the persona `{}` and {}",
        counted(rollouts.value, "rollout"),
        counted(turns.value, "turn"),
        persona.value,
        other_name(other.value)
    );
    let constraint = work.words.last().map(String::as_str);
    Echo { deliverable: &deliverable, must_include: Some("how far the persona holds"), constraint }.to_string()
}

/// What could go wrong, the worst first.
pub(super) fn risks(work: &Work, facts: &Facts) -> Vec<String> {
    let mut risks = Vec::new();
    if !work.objections.is_empty() {
        risks.push(format!("{} of the panel objected", counted(work.objections.len(), "expert")));
    }
    if work.plan.rollouts.value < 3 {
        risks.push("too few rollouts to tell the persona from chance".to_owned());
    }
    if !work.assumptions.is_empty() {
        risks.push(format!("{} nobody confirmed", counted(work.assumptions.len(), "assumption")));
    }
    if facts.failures > 0 {
        risks.push(format!("{} on the way", counted(facts.failures as usize, "failed attempt")));
    }
    if finding::of(work) == finding::Finding::Disputed {
        risks.insert(0, "the scores disagree".to_owned());
    }
    if work.is_suspect() {
        risks.insert(0, "a reply wants to be obeyed by whoever rates it: nobody rated it".to_owned());
    }
    risks
        .push("what a model says of itself is no evidence: a rating counts only where its judge was tested".to_owned());
    risks.push("a persona that holds here may not hold over more turns".to_owned());
    risks.truncate(3);
    risks
}

/// A finding, for people.
pub(super) fn told(value: &Value) -> String {
    match value {
        Value::Count(count) => count.to_string(),
        Value::Number(number) => format!("{number:.3}"),
        // A digest is known by its beginning.
        Value::Text(text) if text.len() == 64 && !text.contains(' ') => text.chars().take(12).collect(),
        Value::Text(text) => one_line(text).replace('|', "\\|"),
    }
}

/// A text without line breaks.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// So many of something.
pub(super) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
