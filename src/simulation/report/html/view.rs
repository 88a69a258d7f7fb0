//! Texts and drawings that the page's template needs besides the report: summary, notices, key figures, interval bars.

use serde::Serialize;

use super::super::data::{EventRow, Report, ScoreRow};
use super::super::format::counted;
use super::super::format::grouped;
use super::super::markdown::{adversary, method, side};
use super::super::omitted;
use super::super::stored::judge_warning;
use super::super::summary::{Mean, RolloutInterval};

/// Maximum number of findings and of flagged turns on the page; `report.json` contains all.
const ROWS_MAX: usize = 200;

#[derive(Serialize)]
pub(super) struct PageView {
    /// The run in one line.
    summary: String,
    notices: Vec<String>,
    figures: Vec<(String, String)>,
    bars: Vec<Option<Bar>>,
    stored: Vec<StoredRow>,
    adversaries: String,
    persona_side: String,
    other_side: String,
    left_out: Vec<OmittedRow>,
    findings: Vec<FindingRow>,
    findings_more: usize,
    flags_shown: usize,
    began: String,
}

/// A range and an interval on the score's scale, in per cent of its width.
#[derive(Serialize)]
struct Bar {
    low: f64,
    high: f64,
    interval: Option<(f64, f64)>,
    mean: f64,
}

#[derive(Serialize)]
struct StoredRow {
    method: &'static str,
    judge: Option<String>,
    judge_warning: Option<String>,
    bar: Option<Bar>,
}

/// A sentence left out of prompts.
#[derive(Serialize)]
struct OmittedRow {
    item: String,
    section: &'static str,
    prompts: usize,
}

/// The findings of one rule in one turn's drafts.
#[derive(Serialize)]
struct FindingRow {
    rollout: usize,
    turn: usize,
    rule: String,
    detail: String,
    drafts: usize,
    accepted: bool,
}

impl PageView {
    pub(super) fn of(report: &Report) -> Self {
        let findings = findings(&report.events);
        Self {
            summary: summary(report),
            notices: report.notices().into_iter().map(|notice| notice.replace('\\', "")).collect(),
            figures: figures(report),
            bars: report.scores.iter().map(|row: &ScoreRow| bar(row.value, row.interval)).collect(),
            stored: report
                .stored
                .iter()
                .map(|score| StoredRow {
                    method: method(score.method),
                    judge: score.judge.as_ref().map(|judge| judge.model.clone()),
                    judge_warning: judge_warning(score),
                    bar: bar(score.value, score.interval),
                })
                .collect(),
            adversaries: report.adversaries.iter().map(|kind| adversary(*kind)).collect::<Vec<_>>().join(", "),
            persona_side: side(&report.persona_side).replace('`', ""),
            other_side: side(&report.interlocutor_side).replace('`', ""),
            left_out: report
                .prompts
                .left_out
                .iter()
                .map(|row| OmittedRow {
                    item: row.item.clone(),
                    section: omitted::section(row.section),
                    prompts: row.prompts,
                })
                .collect(),
            findings_more: findings.len().saturating_sub(ROWS_MAX),
            findings: findings.into_iter().take(ROWS_MAX).collect(),
            flags_shown: ROWS_MAX,
            began: report
                .timing
                .began
                .split_once('.')
                .map_or_else(|| report.timing.began.clone(), |(whole, _)| format!("{whole}Z")),
        }
    }
}

fn summary(report: &Report) -> String {
    let seeds: Vec<String> = report.seeds.iter().map(|seed| format!("seed {seed}")).collect();
    let adversaries: Vec<&str> = report.adversaries.iter().map(|kind| adversary(*kind)).collect();
    let planned =
        format!("{} of {} planned", counted(report.rollouts.len(), "rollout"), counted(report.turns_planned, "turn"));
    let parts = std::iter::once(planned.as_str()).chain(adversaries).chain(seeds.iter().map(String::as_str));
    parts.collect::<Vec<_>>().join(", ")
}

fn figures(report: &Report) -> Vec<(String, String)> {
    let turns: usize = report.rollouts.iter().map(|row| row.turns).sum();
    let accepted = report.events.iter().filter(|row| row.event.action.is_final()).count();
    let written = report.persona_side.tokens.tokens_out + report.interlocutor_side.tokens.tokens_out;
    [
        ("turns", grouped(turns as u64)),
        ("monitor findings", grouped(report.events.len() as u64)),
        ("accepted with findings", grouped(accepted as u64)),
        ("regulator decisions", grouped(report.regulator.len() as u64)),
        ("standstills", grouped(report.standstills.len() as u64)),
        ("flagged turns", grouped(report.flags.len() as u64)),
        ("missing replies", grouped(report.failures.len() as u64)),
        ("tokens written", grouped(written)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// A bar on a scale from 0 to 1, or to the highest value if that is larger.
fn bar(value: Option<Mean>, interval: Option<RolloutInterval>) -> Option<Bar> {
    let value = value?;
    let interval = interval.map(|interval| interval.interval);
    let scale = value.high.max(interval.map_or(0.0, |interval| interval.high)).max(1.0);
    // Values below 0, such as log-likelihood ratios, are not on this scale.
    if value.low < 0.0 || interval.is_some_and(|interval| interval.low < 0.0) {
        return None;
    }
    let at = |value: f64| value / scale * 100.0;
    let interval = interval.map(|interval| (at(interval.low), at(interval.high)));
    Some(Bar { low: at(value.low), high: at(value.high), interval, mean: at(value.mean) })
}

fn findings(events: &[EventRow]) -> Vec<FindingRow> {
    let mut sorted: Vec<&EventRow> = events.iter().collect();
    sorted.sort_by_key(|row| (row.rollout, row.turn, &row.event.finding.rule, row.event.attempt));
    let alike = |a: &&EventRow, b: &&EventRow| {
        (a.rollout, a.turn, &a.event.finding.rule) == (b.rollout, b.turn, &b.event.finding.rule)
    };
    let row = |drafts: &[&EventRow]| {
        let accepted = drafts.iter().find(|row| row.event.action.is_final());
        let shown = accepted.or_else(|| drafts.first())?;
        Some(FindingRow {
            rollout: shown.rollout,
            turn: shown.turn,
            rule: shown.event.finding.rule.clone(),
            detail: shown.event.finding.detail.clone(),
            drafts: drafts.len(),
            accepted: accepted.is_some(),
        })
    };
    sorted.chunk_by(alike).filter_map(row).collect()
}
