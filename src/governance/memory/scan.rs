//! The scan, a pure function of the texts and the date. It reports contradictions, drift and impact, updates their
//! records, and stages proposals where the mode allows it.

use std::collections::HashMap;

use jiff::civil::Date;
use serde::Serialize;

use super::authority::{ScanWriter, WriteForbidden, WriteSet};
use super::candidate::{self, Candidate};
use super::contradiction::{Severity, contradictions};
use super::drift::{self, Drift};
use super::edit;
use super::finding::Finding;
use super::id::BlockKind;
use super::impact;
use super::mode::MemoryCapability;
use super::plan;
use super::proposal::Proposal;
use super::records;
pub use super::records::ContradictionRecord;
use super::scan_input::{ScanInput, active_signatures, contradiction_sides};
use super::staging;
use super::state::{MemoryConfig, MemoryState, STATE_FILE};
use super::texts::WorkspaceTexts;
use crate::foundation::base::limits;

/// The result of a scan.
#[derive(Debug, Clone, Serialize)]
pub struct ScanReport {
    /// The date.
    pub date: String,
    /// The mode.
    pub mode: String,
    /// The number of decisions.
    pub decisions: usize,
    /// The number of active decisions.
    pub active: usize,
    /// The number of tasks.
    pub tasks: usize,
    /// The contradictions, in file order.
    pub contradictions: Vec<ContradictionRecord>,
    /// Pairs of decisions in plain words that a person should compare. They are no contradictions until signatures say so.
    pub candidates: Vec<Candidate>,
    /// The drift.
    pub drift: Vec<Drift>,
    /// The blocks that pending changes affect.
    pub impact: Vec<impact::DecisionImpact>,
    /// Ids of the proposals staged by this scan.
    pub staged: Vec<String>,
    /// Ids of the proposals that expired.
    pub expired: Vec<String>,
    /// The lines of decisions, tasks and entities that could not be read. While there are any, a constraint may be lost, so
    /// the scan does not count as clean.
    pub unread: Vec<Finding>,
    /// Further messages for the user.
    pub notes: Vec<String>,
}

impl ScanReport {
    /// The number of contradictions with this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.contradictions.iter().filter(|conflict| conflict.severity == severity).count()
    }
}

const SCAN_LOG: &str = "intelligence/SCAN_LOG.md";

/// Scans, and returns the files to write. `now` is an ISO time with zone on the day `today`.
///
/// # Errors
/// None in practice: [`ScanWriter`] owns the files that are written.
pub fn scan(
    texts: &WorkspaceTexts,
    config: &MemoryConfig,
    today: Date,
    now: &str,
) -> Result<(ScanReport, WriteSet<ScanWriter>), WriteForbidden> {
    let known = ScanInput::read(texts);
    let unread = known.unread(texts);
    let active_signatures = active_signatures(&known.decisions);
    let contradiction_sides = contradiction_sides(&active_signatures);
    let (found, cut) = contradictions(&contradiction_sides, limits::CONTRADICTIONS_MAX);
    let mut drift = drift::drift(&known, &active_signatures, today, config);
    let mut state = MemoryState::read(texts.get(STATE_FILE));
    let mut writes = WriteSet::default();
    let mut notes = Vec::new();
    if cut {
        notes.push(format!("more than {} contradictions: the others are not listed", limits::CONTRADICTIONS_MAX));
    }

    let conflicts = records::conflicts(texts, &found, today, &mut writes, &mut notes)?;
    records::drift(texts, &mut drift, today, &mut writes, &mut notes)?;

    let mut proposals: Vec<_> = plan::proposals(texts).into_iter().map(|(_, proposal)| proposal).collect();
    let mut expired = Vec::new();
    let staged = if state.require(MemoryCapability::Propose).is_ok() {
        expired = expire(texts, &mut proposals, today, config, &mut writes)?;
        let candidates = staging::candidates(&found, &drift, &known, today);
        let chosen = staging::choose(candidates, &proposals, &state, config, today, texts);
        if let Some(note) = chosen.note {
            notes.push(note);
        }
        state.set_staged_on(today, state.staged_on(today) + chosen.staged.len());
        for proposal in &chosen.staged {
            let file = proposal.file();
            let text = edit::append(writes.draft(file, texts.text(file)), &proposal.print());
            writes.write(file, texts.get(file), text)?;
        }
        chosen.staged
    } else {
        if let Err(error) = state.mode() {
            notes.push(error.to_string());
        }
        Vec::new()
    };

    let impact = impact::impact(&known, &found, &drift, proposals.iter().chain(&staged));
    records::impact(texts, &impact, today, &mut writes, &mut notes)?;

    let report = ScanReport {
        date: today.to_string(),
        mode: state.mode_name().to_owned(),
        decisions: known.blocks(BlockKind::Decision).count(),
        active: active_signatures.len(),
        tasks: known.blocks(BlockKind::Task).count(),
        contradictions: conflicts,
        candidates: candidate::by_words(&candidate::statements(texts)),
        drift,
        impact,
        staged: staged.into_iter().map(|proposal: Proposal| proposal.id).collect(),
        expired,
        unread,
        notes,
    };
    if state.is_readable() {
        let clean = report.count(Severity::Critical) == 0 && report.unread.is_empty();
        state.note_scan(clean, today, now);
        writes.write(STATE_FILE, texts.get(STATE_FILE), state.print())?;
    }
    log(texts, &report, now, &mut writes)?;
    Ok((report, writes))
}

/// Adds a line to the log and writes the day's counts.
fn log(
    texts: &WorkspaceTexts,
    report: &ScanReport,
    now: &str,
    writes: &mut WriteSet<ScanWriter>,
) -> Result<(), WriteForbidden> {
    let [critical, medium, low, warning] =
        [Severity::Critical, Severity::Medium, Severity::Low, Severity::Warning].map(|severity| report.count(severity));
    let line = format!(
        "- {now} mode={} decisions={} active={} tasks={} critical={critical} medium={medium} low={low} warning={warning} drift={} staged={} expired={} unread={}",
        report.mode,
        report.decisions,
        report.active,
        report.tasks,
        report.drift.len(),
        report.staged.len(),
        report.expired.len(),
        report.unread.len()
    );
    writes.write(SCAN_LOG, texts.get(SCAN_LOG), add_line(texts.text(SCAN_LOG), &line))?;
    let figures = serde_json::json!({
        "date": report.date, "mode": report.mode, "decisions": report.decisions, "active": report.active,
        "tasks": report.tasks, "critical": critical, "medium": medium, "low": low, "warning": warning,
        "drift": report.drift.len(),
    });
    let path = format!("intelligence/state/snapshots/S-{}.json", report.date);
    let text = serde_json::to_string_pretty(&figures).unwrap_or_default() + "\n";
    writes.write(&path, texts.get(&path), text)
}

/// `text` with a line appended.
pub fn add_line(text: &str, line: &str) -> String {
    let end = super::parse::line_end(text);
    let break_before = if text.is_empty() || text.ends_with('\n') { "" } else { end };
    format!("{text}{break_before}{line}{end}")
}

/// Marks staged proposals as expired when they are too old.
fn expire(
    texts: &WorkspaceTexts,
    proposals: &mut [Proposal],
    today: Date,
    config: &MemoryConfig,
    writes: &mut WriteSet<ScanWriter>,
) -> Result<Vec<String>, WriteForbidden> {
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
                writes.write(path, Some(text), edited)?;
            }
        }
    }
    Ok(expired)
}
