//! Text tables of a study.

use std::fmt::Write as _;

use super::effect::{Effect, PolicyMetrics};
use super::sampled::{Cost, Costs};
use super::study::{MetricEstimate, Study};

/// The study as a Markdown table, one row per estimator.
pub fn table(study: &Study) -> String {
    let mut text = String::new();
    let accuracy = study.accuracy.map_or_else(|| "–".to_owned(), |figure| shown(Some(figure)));
    // Writing into a string cannot fail.
    let _ = writeln!(
        text,
        "{} on {}: {} items held out, {} to fit; accuracy: {accuracy}\n",
        study.subject.model, study.subject.task, study.n_held_out, study.n_fit
    );
    text.push_str(
        "| Estimator | n | AUROC | PRR | AUARC | ECE | Brier | Brier skill |\n|---|---|---|---|---|---|---|---|\n",
    );
    for row in &study.estimators {
        let figures = [row.auroc, row.prr, row.auarc, row.ece, row.brier, row.brier_skill].map(shown);
        let _ = writeln!(text, "| {} | {} | {} |", row.estimator.name(), row.n, figures.join(" | "));
    }
    if study.costs.samples != Cost::default() || study.costs.p_true != Cost::default() {
        let items = (study.n_fit + study.n_held_out).max(1) as f64;
        text.push_str("\n| Estimators | Tokens per item | Milliseconds per item |\n|---|---|---|\n");
        let Costs { single_pass, samples, meanings, p_true } = study.costs;
        for (name, cost) in [
            ("the answer and those of its tokens", single_pass),
            ("answer_frequency, self_consistency: the samples", samples),
            ("semantic_entropy, self_consistency: their meanings", meanings),
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
    let short = |value: f64| {
        let text = format!("{value:.3}");
        text.strip_prefix("0.").map_or_else(
            || text.strip_prefix("-0.").map_or_else(|| text.clone(), |rest| format!("−.{rest}")),
            |rest| format!(".{rest}"),
        )
    };
    let around = interval.map(|interval| format!(" ({} to {})", short(interval.low), short(interval.high)));
    short(value) + &around.unwrap_or_default()
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
