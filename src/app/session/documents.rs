//! The documents for the user: the brief before the work, the report after it.

use std::fmt::Write as _;

use super::finding;
use super::outcome::{CRITERIA, ExpertOpinion, ModelJudgement, VerifyCheck, Work};
use super::phrases::{echo, format_value, risks};
use crate::foundation::text::markdown;
use crate::governance::mood::lint::PredictedOutcome;
use crate::governance::statechart::hope::Facts;

/// The text of the brief.
pub(super) fn brief(work: &Work) -> String {
    let mut text =
        format!("# Brief\n\n## Objective\n\n{}\n\n> {}\n\n## Non-goals\n\n", echo(work), markdown(&work.need));
    for goal in [
        "changing the persona's config",
        "training or changing a model",
        "judging a real person",
        "publishing anything",
    ] {
        let _ = writeln!(text, "- {goal}");
    }
    text += "\n## Constraints\n\n- all files are in the session's folder\n- only the named models are called\n";
    for words in &work.words {
        let _ = writeln!(text, "- {}", markdown(words));
    }
    if !work.known.is_empty() {
        text += "\n## Related entries in the memory\n\n";
        for line in &work.known {
            let _ = writeln!(text, "- {}", markdown(line));
        }
    }
    let _ = write!(
        text,
        "\n## Acceptance\n\n- all {} checks of the verification pass on the files as they are\n",
        CRITERIA.len()
    );
    let _ = write!(text, "\n## How the scores will be interpreted\n\n- question: {}\n", finding::hypothesis(work));
    for prediction in finding::predictions(&work.plan) {
        let means = match prediction.means {
            PredictedOutcome::Supports => "it holds",
            PredictedOutcome::Refutes => "it does not hold",
            PredictedOutcome::Silent => "nothing",
        };
        let _ = writeln!(text, "- {}: {means}", prediction.seen.as_str());
    }
    let _ = writeln!(text, "- the interval is the 95 % interval over the rollouts, one value each");
    let _ = writeln!(text, "- power: {}", finding::power(work));
    let _ = writeln!(text, "- registered in registration-{:02}.json before the first rollout", work.rounds + 1);
    text += "\n## Stop\n\n- a \"must not\" criterion is violated\n- the same criterion fails five times\n- a budget of the session is exhausted\n- the user cancels\n";
    if !work.assumptions.is_empty() {
        text += "\n## Assumptions\n\n";
        for line in &work.assumptions {
            let _ = writeln!(text, "- [ASSUMPTION] {}", markdown(line));
        }
    }
    text
}

/// The text of the report.
pub(super) fn report(work: &Work, facts: &Facts) -> String {
    let mut text = format!("# Session\n\n> {}\n\n{}\n\n", markdown(&work.need), echo(work));
    if let Some(footer) = &work.footer {
        let _ = writeln!(text, "{footer}\n");
    }
    let _ = writeln!(text, "Finding: {}.\n", finding::sentence(work));
    if let Some(asserted) = &work.asserted {
        let _ = writeln!(text, "Asserted with the user's approval: {}.\n", markdown(asserted));
    }
    let _ = writeln!(text, "## Results\n\n| Item | Result | Value |\n|---|---|---|");
    for (item, found) in &work.found {
        for (name, value) in found {
            let _ = writeln!(text, "| {item:?} | {name} | {} |", format_value(value));
        }
    }
    let passed = work.checks.iter().filter(|check| check.passed).count();
    let _ = writeln!(text, "\nVerification: {passed} of {} checks passed.", CRITERIA.len());
    for VerifyCheck { criterion, evidence, .. } in work.checks.iter().filter(|check| !check.passed) {
        let _ = writeln!(text, "- FAILED: {criterion} ({})", markdown(evidence));
    }
    text += "\n## Expert reviews\n\n| Expert | Confidence | Opinion |\n|---|---|---|\n";
    for opinion in &work.review {
        let view = match (opinion.blocker, &opinion.judged.choice) {
            (true, _) => "BLOCKER".to_owned(),
            (false, Some(_)) => "no objection".to_owned(),
            (false, None) => format!("no opinion: {}", markdown(opinion.judged.unsure.as_deref().unwrap_or_default())),
        };
        let _ = writeln!(text, "| {} | {} of 9 | {view} |", opinion.expert, opinion.confidence);
    }
    for ExpertOpinion { expert, judged, .. } in &work.objections {
        let _ = writeln!(text, "\nBLOCKER by {expert}, recorded without further work: {}", markdown(&judged.question));
    }
    text += "\n## Assumptions and risks\n\n";
    for line in &work.assumptions {
        let _ = writeln!(text, "- [ASSUMPTION] {}", markdown(line));
    }
    for risk in risks(work, facts) {
        let _ = writeln!(text, "- risk: {risk}");
    }
    let unsure = work.judged.iter().filter(|judged| judged.choice.is_none()).count();
    let _ = writeln!(
        text,
        "\nOf {} questions to the model, {unsure} had no sure answer and took the default.",
        work.judged.len()
    );
    for ModelJudgement { question, choice, margin, .. } in work.judged.iter().filter(|judged| judged.choice.is_some()) {
        let margin = margin.map_or_else(|| "from text".to_owned(), |margin| format!("margin {margin:.2} nats"));
        let _ =
            writeln!(text, "- {}: {} ({margin})", markdown(question), markdown(choice.as_deref().unwrap_or_default()));
    }
    text
}
