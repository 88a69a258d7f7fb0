//! The scan: everything the memory can tell about itself, as a pure function of its texts and the day. It reports, keeps
//! the records of contradictions, drift and impact, and stages proposals where the mode allows.

use std::collections::HashMap;

use jiff::civil::Date;
use serde::Serialize;

use super::authority::{Forbidden, Pen, Scan};
use super::contradiction::{Severity, contradictions};
use super::drift::{self, Drift};
use super::edit;
use super::id::Kind;
use super::impact;
use super::known::{Known, sides, signed};
use super::mode::Capability;
use super::plan;
use super::proposal::Proposal;
use super::records;
pub use super::records::Conflict;
use super::stage;
use super::state::{Config, STATE, State};
use super::texts::Texts;
use crate::foundation::base::limits;

/// What a scan found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The day.
    pub date: String,
    /// The mode as it stands.
    pub mode: String,
    /// How many decisions there are, and how many are active.
    pub decisions: usize,
    /// Active decisions.
    pub active: usize,
    /// Tasks.
    pub tasks: usize,
    /// Contradictions, in the order of their files.
    pub contradictions: Vec<Conflict>,
    /// Where what is decided and what is done move apart.
    pub drift: Vec<Drift>,
    /// What a change would reach.
    pub impact: Vec<impact::Impact>,
    /// Ids of the proposals that this scan staged.
    pub staged: Vec<String>,
    /// Ids of the proposals that expired.
    pub expired: Vec<String>,
    /// What else a person should know.
    pub notes: Vec<String>,
}

impl Report {
    /// How many contradictions are of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.contradictions.iter().filter(|conflict| conflict.severity == severity).count()
    }
}

const SCAN_LOG: &str = "intelligence/SCAN_LOG.md";

/// Scans, and says in `pen` what shall be written. `now` is an ISO time with zone, of the day `today`.
///
/// # Errors
/// Never, as long as the table of authority lets the scan write its own files.
pub fn scan(texts: &Texts, config: &Config, today: Date, now: &str) -> Result<(Report, Pen<Scan>), Forbidden> {
    let known = Known::read(texts);
    let signed = signed(&known.decisions);
    let sides = sides(&signed);
    let (found, cut) = contradictions(&sides, limits::CONTRADICTIONS_MAX);
    let mut drift = drift::drift(&known, &signed, today, config);
    let mut state = State::read(texts.get(STATE));
    let mut pen = Pen::default();
    let mut notes = Vec::new();
    if cut {
        notes.push(format!("more than {} contradictions: the rest is not listed", limits::CONTRADICTIONS_MAX));
    }

    let conflicts = records::conflicts(texts, &found, today, &mut pen, &mut notes)?;
    records::drift(texts, &mut drift, today, &mut pen, &mut notes)?;

    let mut proposals: Vec<_> = plan::proposals(texts).into_iter().map(|(_, proposal)| proposal).collect();
    let mut expired = Vec::new();
    let staged = if state.demand(Capability::Propose).is_ok() {
        expired = expire(texts, &mut proposals, today, config, &mut pen)?;
        let wishes = stage::wishes(&found, &drift, &known, today);
        let chosen = stage::choose(wishes, &proposals, &state, config, today, texts);
        if let Some(note) = chosen.note {
            notes.push(note);
        }
        state.set_staged_on(today, state.staged_on(today) + chosen.staged.len());
        for proposal in &chosen.staged {
            let file = proposal.file();
            let text = edit::append(pen.draft(file, texts.text(file)), &proposal.print());
            pen.write(file, texts.get(file), text)?;
        }
        chosen.staged
    } else {
        if let Err(error) = state.mode() {
            notes.push(error.to_string());
        }
        Vec::new()
    };

    let impact = impact::impact(&known, &found, &drift, proposals.iter().chain(&staged));
    records::impact(texts, &impact, today, &mut pen, &mut notes)?;

    let report = Report {
        date: today.to_string(),
        mode: state.mode_name().to_owned(),
        decisions: known.blocks(Kind::Decision).count(),
        active: signed.len(),
        tasks: known.blocks(Kind::Task).count(),
        contradictions: conflicts,
        drift,
        impact,
        staged: staged.into_iter().map(|proposal: Proposal| proposal.id).collect(),
        expired,
        notes,
    };
    if state.is_readable() {
        state.note_scan(report.count(Severity::Critical), today, now);
        pen.write(STATE, texts.get(STATE), state.print())?;
    }
    log(texts, &report, now, &mut pen)?;
    Ok((report, pen))
}

/// One line for the log, and the day's figures.
fn log(texts: &Texts, report: &Report, now: &str, pen: &mut Pen<Scan>) -> Result<(), Forbidden> {
    let [critical, medium, low, warning] =
        [Severity::Critical, Severity::Medium, Severity::Low, Severity::Warning].map(|severity| report.count(severity));
    let line = format!(
        "- {now} mode={} decisions={} active={} tasks={} critical={critical} medium={medium} low={low} warning={warning} drift={} staged={} expired={}",
        report.mode,
        report.decisions,
        report.active,
        report.tasks,
        report.drift.len(),
        report.staged.len(),
        report.expired.len()
    );
    pen.write(SCAN_LOG, texts.get(SCAN_LOG), add_line(texts.text(SCAN_LOG), &line))?;
    let figures = serde_json::json!({
        "date": report.date, "mode": report.mode, "decisions": report.decisions, "active": report.active,
        "tasks": report.tasks, "critical": critical, "medium": medium, "low": low, "warning": warning,
        "drift": report.drift.len(),
    });
    let path = format!("intelligence/state/snapshots/S-{}.json", report.date);
    let text = serde_json::to_string_pretty(&figures).unwrap_or_default() + "\n";
    pen.write(&path, texts.get(&path), text)
}

/// `text` with a line at its end.
pub fn add_line(text: &str, line: &str) -> String {
    let end = super::parse::line_end(text);
    let break_before = if text.is_empty() || text.ends_with('\n') { "" } else { end };
    format!("{text}{break_before}{line}{end}")
}

/// Lets staged proposals expire whose days are over.
fn expire(
    texts: &Texts,
    proposals: &mut [Proposal],
    today: Date,
    config: &Config,
    pen: &mut Pen<Scan>,
) -> Result<Vec<String>, Forbidden> {
    let mut expired = Vec::new();
    for proposal in proposals.iter_mut().filter(|proposal| proposal.is_pending()) {
        let old = proposal.day().is_some_and(|day| super::state::days_between(day, today) > config.proposal_ttl_days);
        if old {
            "expired".clone_into(&mut proposal.status);
            expired.push(proposal.id.clone());
        }
    }
    if !expired.is_empty() {
        let changes: HashMap<_, _> =
            expired.iter().map(|id| (id.as_str(), vec![("Status", "expired".to_owned())])).collect();
        for (path, text) in texts.under("intelligence/proposed/") {
            let edited = edit::set_fields(text, &changes);
            if edited != text {
                pen.write(path, Some(text), edited)?;
            }
        }
    }
    Ok(expired)
}
