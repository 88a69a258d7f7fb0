//! What the page shows that is worded or drawn from the report: the sentence under the title, the figures in front, bars
//! for intervals.

use serde::Serialize;

use super::super::aggregate::counted;
use super::super::data::{EventRow, Mean, Report, ScoreRow};
use super::super::left_out;
use super::super::markdown::{adversary, method, side};
use super::super::notation::grouped;
use super::super::stored::doubt;
use crate::foundation::stats::Interval;
use crate::simulation::rollout::{MonitorAction, Outcome};

/// The most rows of findings and of flagged turns on the page; the rest is in `report.json`.
const ROWS_MAX: usize = 200;

#[derive(Serialize)]
pub(super) struct View {
    /// What was run, in a sentence.
    summary: String,
    notices: Vec<String>,
    figures: Vec<(String, String)>,
    bars: Vec<Option<Bar>>,
    stored: Vec<StoredRow>,
    adversaries: String,
    persona_side: String,
    other_side: String,
    left_out: Vec<LeftOutRow>,
    findings: Vec<Row>,
    findings_more: usize,
    flags_shown: usize,
    began: String,
}

/// An interval on the score's scale, in hundredths of its width.
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
    doubt: Option<String>,
    bar: Option<Bar>,
}

/// A sentence that the persona's model was not told.
#[derive(Serialize)]
struct LeftOutRow {
    item: String,
    section: &'static str,
    prompts: usize,
}

/// The findings of one rule in one turn's drafts.
#[derive(Serialize)]
struct Row {
    rollout: usize,
    turn: usize,
    rule: String,
    detail: String,
    drafts: usize,
    stands: bool,
}

impl View {
    pub(super) fn of(report: &Report) -> Self {
        let findings = findings(&report.events);
        Self {
            summary: summary(report),
            notices: notices(report),
            figures: figures(report),
            bars: report.scores.iter().map(|row: &ScoreRow| bar(row.value, row.interval)).collect(),
            stored: report
                .stored
                .iter()
                .map(|score| StoredRow {
                    method: method(score.method),
                    judge: score.judge.as_ref().map(|judge| judge.model.clone()),
                    doubt: doubt(score),
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
                .map(|row| LeftOutRow {
                    item: row.item.clone(),
                    section: left_out::section(row.section),
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
    let seeds: Vec<String> = report.seeds.iter().map(u64::to_string).collect();
    let adversaries: Vec<&str> = report.adversaries.iter().map(|kind| adversary(*kind)).collect();
    format!(
        "{} of {} planned, {}, seed {}",
        counted(report.rollouts.len(), "rollout"),
        counted(report.turns_planned, "turn"),
        adversaries.join(", "),
        seeds.join(", ")
    )
}

/// What a reader must know before the figures.
fn notices(report: &Report) -> Vec<String> {
    let mut notices = Vec::new();
    let ended = |wanted: fn(&Outcome) -> bool| report.rollouts.iter().filter(|row| wanted(&row.outcome)).count();
    let finished = ended(|outcome| *outcome == Outcome::Complete);
    let unfinished = ended(|outcome| *outcome == Outcome::Unfinished);
    let planned = report.rollouts_planned.unwrap_or(report.rollouts.len());
    if finished < planned {
        let mut parts = vec![format!("{finished} of {} finished", counted(planned, "rollout"))];
        parts.extend((unfinished > 0).then(|| format!("{unfinished} under way")));
        let begun = report.rollouts.len();
        parts.extend((begun < planned).then(|| format!("{} not begun", planned - begun)));
        notices.push(format!("Not all of this run is here: {}. What follows covers what there is.", parts.join(", ")));
    }
    for row in &report.rollouts {
        if let Outcome::Stopped { reason, .. } = &row.outcome {
            notices.push(format!(
                "Rollout {} was given up after {}: {reason}",
                row.rollout,
                counted(row.turns, "turn")
            ));
        }
    }
    notices.extend(left_out::notice(&report.prompts));
    notices
}

fn figures(report: &Report) -> Vec<(String, String)> {
    let turns: usize = report.rollouts.iter().map(|row| row.turns).sum();
    let standing = report.events.iter().filter(|row| row.event.action == MonitorAction::Accepted).count();
    let written = report.persona_side.tokens.tokens_out + report.interlocutor_side.tokens.tokens_out;
    [
        ("turns", grouped(turns as u64)),
        ("monitor findings", grouped(report.events.len() as u64)),
        ("of them stand", grouped(standing as u64)),
        ("standstills", grouped(report.stretches.len() as u64)),
        ("flagged turns", grouped(report.flags.len() as u64)),
        ("missing replies", grouped(report.failures.len() as u64)),
        ("tokens written", grouped(written)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// Drawn from 0 to 1, or to the highest value where that is larger.
fn bar(value: Option<Mean>, interval: Option<Interval>) -> Option<Bar> {
    let value = value?;
    let scale = value.high.max(interval.map_or(0.0, |interval| interval.high)).max(1.0);
    // A score below 0 (a log-likelihood ratio can be) has no place on this scale.
    if value.low < 0.0 || interval.is_some_and(|interval| interval.low < 0.0) {
        return None;
    }
    let at = |value: f64| value / scale * 100.0;
    let interval = interval.map(|interval| (at(interval.low), at(interval.high)));
    Some(Bar { low: at(value.low), high: at(value.high), interval, mean: at(value.mean) })
}

fn findings(events: &[EventRow]) -> Vec<Row> {
    let mut sorted: Vec<&EventRow> = events.iter().collect();
    sorted.sort_by_key(|row| (row.rollout, row.turn, &row.event.finding.rule, row.event.attempt));
    let alike = |a: &&EventRow, b: &&EventRow| {
        (a.rollout, a.turn, &a.event.finding.rule) == (b.rollout, b.turn, &b.event.finding.rule)
    };
    let row = |drafts: &[&EventRow]| {
        let stands = drafts.iter().find(|row| row.event.action == MonitorAction::Accepted);
        let told = stands.or_else(|| drafts.first())?;
        Some(Row {
            rollout: told.rollout,
            turn: told.turn,
            rule: told.event.finding.rule.clone(),
            detail: told.event.finding.detail.clone(),
            drafts: drafts.len(),
            stands: stands.is_some(),
        })
    };
    sorted.chunk_by(alike).filter_map(row).collect()
}
