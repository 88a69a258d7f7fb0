//! Text tables of a study.

use std::fmt::Write as _;

use super::breaks::BreakStudy;
use super::effect::{Effect, PolicyMetrics};
use super::study::{MetricEstimate, Study};
use super::vote::VoteMethod;
use crate::simulation::resampling::{Cost, Costs};

/// The study as a Markdown table, one row per estimator.
pub fn table(study: &Study) -> String {
    let mut text = String::new();
    let accuracy = study.accuracy.map_or_else(|| "–".to_owned(), |figure| shown(Some(figure)));
    // Writing into a string cannot fail.
    let _ = writeln!(
        text,
        "{} on {} ({}): {} items held out, {} to fit; accuracy: {accuracy}{}\n",
        study.subject.model,
        study.subject.task,
        study.subject.protocols.join(", "),
        study.n_held_out,
        study.n_fit,
        if study.unread > 0 { format!("; {} answers could not be read", study.unread) } else { String::new() }
    );
    text.push_str(
        "| Estimator | n | PRR | AUROC | Brier | ECE | AUARC | Brier skill | Tokens per item |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for row in &study.estimators {
        let figures = [row.prr, row.auroc, row.brier, row.ece, row.auarc, row.brier_skill].map(shown);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.1} |",
            row.estimator.name(),
            row.n,
            figures.join(" | "),
            row.tokens_per_item
        );
    }
    if study.costs.samples != Cost::default() || study.costs.p_true != Cost::default() {
        let items = (study.n_fit + study.n_held_out).max(1) as f64;
        text.push_str("\n| Estimators | Tokens per item | Milliseconds per item |\n|---|---|---|\n");
        let Costs { single_pass, samples, meanings, p_true } = study.costs;
        for (name, cost) in [
            ("the answer and those of its tokens", single_pass),
            ("answer_frequency, cocoa_msp, cocoa_ppl, cocoa_mte: the samples", samples),
            ("semantic_entropy, self_consistency, deepconf_vote: their meanings, beside the samples", meanings),
            ("p_true", p_true),
        ] {
            // Writing into a string cannot fail.
            let _ = writeln!(
                text,
                "| {name} | {:.1} | {:.1} |",
                cost.tokens as f64 / items,
                1_000.0 * cost.seconds / items
            );
        }
    }
    if !study.votes.is_empty() {
        text.push_str(
            "\n| Answer | n | Accuracy | Stopped per item | Tokens per item | Milliseconds per item |\n|---|---|---|---|---|---|\n",
        );
        for row in &study.votes {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {:.2} | {:.1} | {:.1} |",
                row.method.map_or("greedy", VoteMethod::name),
                row.n,
                shown(row.accuracy),
                row.stopped_per_item,
                row.tokens_per_item,
                1_000.0 * row.seconds_per_item
            );
        }
    }
    text
}

/// How well scores tell turns that break character, as Markdown tables.
pub fn breaks_table(study: &BreakStudy) -> String {
    let mut text = format!(
        "{}: {} rollouts of {} turns, each untouched, with one broken turn, and with the same turn replaced in character; \
         intervals over rollouts\n\n",
        study.model, study.rollouts, study.turns
    );
    text.push_str(
        "| Score | broken / sound | PRR | AUROC | AUROC within the rollout | Against replaced turns | Against turns written by \
         hand | Found first |\n|---|---|---|---|---|---|---|---|\n",
    );
    for row in &study.scores {
        let figures =
            [row.prr, row.auroc, row.auroc_within, row.auroc_of_replaced, row.auroc_of_written, row.found_first]
                .map(shown);
        let _ = writeln!(text, "| {} | {} / {} | {} |", row.score, row.broken, row.sound, figures.join(" | "));
    }
    let mut kinds: Vec<&String> = study.scores.iter().flat_map(|row| row.by_kind.keys()).collect();
    kinds.sort();
    kinds.dedup();
    let names: Vec<String> = kinds.iter().map(|kind| kind.replace('_', " ")).collect();
    let _ = writeln!(text, "\n| AUROC by kind | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
    for row in &study.scores {
        let figures: Vec<String> = kinds
            .iter()
            .map(|kind| row.by_kind.get(*kind).map_or_else(|| "–".to_owned(), |value| short(*value)))
            .collect();
        let _ = writeln!(text, "| {} | {} |", row.score, figures.join(" | "));
    }
    text
}

/// The effect of enforcing as a Markdown table.
pub fn effect_table(effect: &Effect) -> String {
    let mut text = format!(
        "{}: {} conversations on {} tasks under each policy; intervals over tasks\n\n",
        effect.model, effect.n, effect.tasks
    );
    text.push_str("| | Quality | Scope compliance | Tokens | Interventions |\n|---|---|---|---|---|\n");
    let rows = [("observe", &effect.observe), ("enforce", &effect.enforce), ("difference", &effect.difference)];
    for (name, PolicyMetrics { quality, cost_tokens, scope_compliance, interventions }) in rows {
        let tokens = cost_tokens.map_or_else(
            || "–".to_owned(),
            |figure| {
                let around = figure.interval.map(|interval| format!(" ({:.1} to {:.1})", interval.low, interval.high));
                format!("{:.1}{}", figure.value, around.unwrap_or_default())
            },
        );
        // Writing into a string cannot fail.
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {tokens} | {interventions:.2} |",
            shown(*quality),
            shown(*scope_compliance)
        );
    }
    text
}

/// `.652 (.612 to .690)`.
fn shown(figure: Option<MetricEstimate>) -> String {
    let Some(MetricEstimate { value, interval }) = figure else { return "–".to_owned() };
    let around = interval.map(|interval| format!(" ({} to {})", short(interval.low), short(interval.high)));
    short(value) + &around.unwrap_or_default()
}

/// `.652`, `−.010`, `1.000`.
fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.strip_prefix("0.").map_or_else(
        || text.strip_prefix("-0.").map_or_else(|| text.clone(), |rest| format!("−.{rest}")),
        |rest| format!(".{rest}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::stats::Interval;

    #[test]
    fn figures_are_short() {
        let figure = |value, interval| shown(Some(MetricEstimate { value, interval }));
        assert_eq!(figure(0.6519, Some(Interval { low: -0.01, high: 1.0 })), ".652 (−.010 to 1.000)");
        assert_eq!((figure(-1.5, None), shown(None)), ("-1.500".to_owned(), "–".to_owned()));
    }
}
