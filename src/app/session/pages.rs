//! What is written for the user: the brief before the work, the report after it.

use std::fmt::Write as _;

use super::finding;
use super::outcome::{CRITERIA, Check, Judged, Opinion, Work};
use super::phrases::{echo, risks, told};
use crate::governance::mood::lint::Outcome;
use crate::governance::statechart::hope::Facts;

/// The brief.
pub(super) fn brief(work: &Work) -> String {
    let mut text = format!("# Brief\n\n## Objective\n\n{}\n\n> {}\n\n## Non-goals\n\n", echo(work), work.need);
    for goal in [
        "changing the persona's config",
        "training or changing a model",
        "judging a real person",
        "publishing anything",
    ] {
        let _ = writeln!(text, "- {goal}");
    }
    text +=
        "\n## Constraints\n\n- all files lie in the session's folder\n- only the models that were named are called\n";
    for words in &work.words {
        let _ = writeln!(text, "- {words}");
    }
    if !work.known.is_empty() {
        text += "\n## What the memory holds of it\n\n";
        for line in &work.known {
            let _ = writeln!(text, "- {line}");
        }
    }
    text += "\n## Acceptance\n\n";
    for (_, criterion) in CRITERIA {
        let _ = writeln!(text, "- {criterion}");
    }
    text += "\n## What would tell\n\n";
    for prediction in finding::predictions() {
        let means = match prediction.means {
            Outcome::Supports => "the persona holds",
            Outcome::Refutes => "it does not hold",
            Outcome::Silent => "nothing",
        };
        let _ = writeln!(text, "- {}: {means}", prediction.seen.as_str());
    }
    text += "\n## Stop\n\n- a mustNot is broken\n- the same criterion fails five times\n- a budget of the session is spent\n- the user cancels\n";
    if !work.assumptions.is_empty() {
        text += "\n## Assumptions\n\n";
        for line in &work.assumptions {
            let _ = writeln!(text, "- [ASSUMPTION] {line}");
        }
    }
    text
}

/// The report.
pub(super) fn report(work: &Work, facts: &Facts) -> String {
    let mut text = format!("# Session\n\n> {}\n\n{}\n\n", work.need, echo(work));
    if let Some(footer) = &work.footer {
        let _ = writeln!(text, "{footer}\n");
    }
    let _ = writeln!(text, "Finding: {}.\n", finding::of(work));
    if let Some(asserted) = &work.asserted {
        let _ = writeln!(text, "Asserted by the user's word: {asserted}.\n");
    }
    let _ = writeln!(text, "## What was found\n\n| Item | Finding | Value |\n|---|---|---|");
    for (item, found) in &work.found {
        for (name, value) in found {
            let _ = writeln!(text, "| {item:?} | {name} | {} |", told(value));
        }
    }
    text += "\n## The verify gate\n\n| Tier | Criterion | | Evidence |\n|---|---|---|---|\n";
    for Check { tier, criterion, passed, evidence } in &work.checks {
        let mark = if *passed { "passed" } else { "FAILED" };
        let _ = writeln!(text, "| {tier:?} | {criterion} | {mark} | {evidence} |");
    }
    if work.checks.len() < CRITERIA.len() {
        let _ = writeln!(
            text,
            "\n{} of {} criteria were not looked at.",
            CRITERIA.len() - work.checks.len(),
            CRITERIA.len()
        );
    }
    text += "\n## The panel\n\n| Expert | Confidence | On the finished work |\n|---|---|---|\n";
    for opinion in &work.review {
        let view = match (opinion.blocker, &opinion.judged.choice) {
            (true, _) => "BLOCKER".to_owned(),
            (false, Some(_)) => "no objection".to_owned(),
            (false, None) => format!("no view: {}", opinion.judged.unsure.as_deref().unwrap_or_default()),
        };
        let _ = writeln!(text, "| {} | {} of 9 | {view} |", opinion.expert, opinion.confidence);
    }
    for Opinion { expert, judged, .. } in &work.objections {
        let _ = writeln!(text, "\nBLOCKER by {expert}, on record and not answered by more work: {}", judged.question);
    }
    text += "\n## Assumptions and risks\n\n";
    for line in &work.assumptions {
        let _ = writeln!(text, "- [ASSUMPTION] {line}");
    }
    for risk in risks(work, facts) {
        let _ = writeln!(text, "- risk: {risk}");
    }
    let unsure = work.judged.iter().filter(|judged| judged.choice.is_none()).count();
    let _ = writeln!(
        text,
        "\nOf {} questions to the model, {unsure} had no sure answer; defaults hold there.",
        work.judged.len()
    );
    for Judged { question, choice, margin, .. } in work.judged.iter().filter(|judged| judged.choice.is_some()) {
        let margin = margin.map_or_else(|| "in words".to_owned(), |margin| format!("by {margin:.2} nats"));
        let _ = writeln!(text, "- {question}: {} ({margin})", choice.as_deref().unwrap_or_default());
    }
    text
}
