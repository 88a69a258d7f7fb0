//! Operations that do not change the source of truth: validate, scan, capture, log, status, mode, show, search.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use super::{AUDIT_FILE, MemoryError, ReadScope, Result, VALIDATION_REPORT, Workspace};
use crate::foundation::base::Digest;
use crate::foundation::gate::{Category, Effect, Permit, Scope};
use crate::governance::memory::authority::{ApplyWriter, LogWriter, ValidateWriter, WriteSet};
use crate::governance::memory::capture::{self, CaptureInput, SIGNALS_FILE, Signal};
use crate::governance::memory::finding::{Finding, FindingLevel};
use crate::governance::memory::mode::Mode;
use crate::governance::memory::notes::{self, NoteHit};
use crate::governance::memory::plan;
use crate::governance::memory::scan::{self, ScanReport, add_line};
use crate::governance::memory::search::{SearchHit, SearchIndex, SearchQuery};
use crate::governance::memory::state::{CONFIG_FILE, STATE_FILE};
use crate::governance::memory::validate;

/// The status of a memory.
#[derive(Debug, Clone, Serialize)]
pub struct MemoryStatus {
    /// The mode as written.
    pub mode: String,
    /// Blocks by kind.
    pub blocks: BTreeMap<&'static str, usize>,
    /// Proposals by status.
    pub proposals: BTreeMap<String, usize>,
    /// The number of pending signals.
    pub pending_signals: usize,
    /// The number of open contradiction records.
    pub open_contradictions: usize,
    /// The conditions for the next mode.
    pub gates: Gates,
    /// The time of the last scan.
    pub last_scan: Option<String>,
    /// The time of the last apply.
    pub last_apply: Option<String>,
}

/// The upgrade conditions of §4.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Gates {
    /// A week of scans without a critical contradiction: required for `propose`.
    pub flip_gate_week1_clean: bool,
    /// Clean weeks in `propose` so far; two are recommended before `enforce`.
    pub propose_weeks_clean: u64,
    /// The setting `allow_enforce`: required for `enforce`.
    pub allow_enforce: bool,
}

impl Workspace {
    /// Checks S1 to S9 and writes a deterministic report.
    ///
    /// # Errors
    /// If the workspace cannot be read.
    pub fn validate(&self) -> Result<Vec<Finding>> {
        let mut loaded = self.lock_and_read(ReadScope::All)?;
        let mut findings = Vec::new();
        let parsed = loaded.texts.parse();
        for (path, document) in parsed.files() {
            findings.extend(validate::validate(path, document));
        }
        findings.extend(validate::dangling(&parsed));
        drop(parsed);
        let errors = findings.iter().filter(|finding| finding.level == FindingLevel::Error).count();
        let mut report = format!("{errors} errors, {} warnings\n", findings.len() - errors);
        for finding in &findings {
            let level = if finding.level == FindingLevel::Error { "error" } else { "warning" };
            let _ =
                writeln!(report, "{}:{}: {level} {}: {}", finding.file, finding.line, finding.code, finding.message);
        }
        self.load_file(VALIDATION_REPORT, &mut loaded)?;
        let before = loaded.others.remove(VALIDATION_REPORT).and_then(|bytes| String::from_utf8(bytes).ok());
        if before.as_deref() != Some(&report) {
            if let Some(before) = &before {
                loaded.texts.set(VALIDATION_REPORT, before.as_str());
            }
            let mut writes = WriteSet::<ValidateWriter>::default();
            writes.write(VALIDATION_REPORT, before.as_deref(), report)?;
            self.commit(&loaded, writes)?;
        }
        Ok(findings)
    }

    /// Scans, updates the records, and stages proposals where the mode allows it.
    ///
    /// # Errors
    /// If the workspace cannot be read or written.
    pub fn scan(&self) -> Result<ScanReport> {
        let loaded = self.lock_and_read(ReadScope::All)?;
        let (report, writes) = scan::scan(&loaded.texts, &Self::config(&loaded.texts)?, self.today(), &self.stamp())?;
        self.commit(&loaded, writes)?;
        let mut report = report;
        if !report.impact.is_empty() {
            let notes = self.notes()?;
            for impact in &mut report.impact {
                let named = notes::naming(&notes, &impact.source).into_iter();
                impact.notes = named.map(|(file, line)| format!("{file}:{line}")).collect();
            }
        }
        Ok(report)
    }

    /// The effect of capturing these inputs.
    pub fn capture_effect(inputs: &[CaptureInput<'_>]) -> Effect {
        Effect::new(Category::MemoryPropose, format!("capture {}", Digest::of(format!("{inputs:?}"))))
            .reading(Scope::Knowledge)
    }

    /// Captures signals; the second number counts those without a free id.
    ///
    /// # Errors
    /// If the permit is not for it, or the signals cannot be read or written.
    pub fn capture(&self, permit: Permit, inputs: &[CaptureInput<'_>]) -> Result<(Vec<Signal>, usize)> {
        permit.spend(&Self::capture_effect(inputs), self.now.timestamp())?;
        let loaded = self.lock_and_read(ReadScope::Files(&[SIGNALS_FILE, CONFIG_FILE]))?;
        let (signals, lost, writes) =
            capture::capture(&loaded.texts, &Self::config(&loaded.texts)?, inputs, self.today())?;
        self.commit(&loaded, writes)?;
        Ok((signals, lost))
    }

    /// Adds a line to today's log and returns its path.
    ///
    /// # Errors
    /// If the log cannot be written.
    pub fn log(&self, text: &str) -> Result<String> {
        let path = format!("memory/{}.md", self.today());
        let loaded = self.lock_and_read(ReadScope::Files(&[&path]))?;
        let before = loaded.texts.get(&path);
        let line_text = capture::one_line(text, usize::MAX);
        if line_text.is_empty() {
            return Err(MemoryError::InvalidRequest("the line for the log is empty".to_owned()));
        }
        let line = format!("- {} {line_text}", self.now.strftime("%H:%M"));
        let fresh = format!("# {}\n\n", self.today());
        let mut writes = WriteSet::<LogWriter>::default();
        writes.write(&path, before, add_line(before.unwrap_or(&fresh), &line))?;
        self.commit(&loaded, writes)?;
        Ok(path)
    }

    /// The status of the memory.
    ///
    /// # Errors
    /// If the workspace cannot be read.
    pub fn status(&self) -> Result<MemoryStatus> {
        let texts = self.texts()?;
        let (state, config) = (Self::state(&texts), Self::config(&texts)?);
        let mut blocks = BTreeMap::new();
        let (mut pending_signals, mut open_contradictions) = (0, 0);
        for (path, block) in texts.parse().blocks() {
            *blocks.entry(block.id().kind().name()).or_default() += 1;
            pending_signals += usize::from(path == SIGNALS_FILE && block.head("Status") == "pending");
            open_contradictions +=
                usize::from(path == "intelligence/CONTRADICTIONS.md" && block.head("Status") != "resolved");
        }
        let mut proposals = BTreeMap::new();
        for (_, proposal) in plan::proposals(&texts) {
            *proposals.entry(proposal.status).or_default() += 1;
        }
        let text = |key| state.get(key).and_then(Value::as_str).map(str::to_owned);
        Ok(MemoryStatus {
            mode: state.mode_name().to_owned(),
            blocks,
            proposals,
            pending_signals,
            open_contradictions,
            gates: Gates {
                flip_gate_week1_clean: state.flag("flip_gate_week1_clean"),
                propose_weeks_clean: state.get("propose_weeks_clean").and_then(Value::as_u64).unwrap_or(0),
                allow_enforce: config.allow_enforce,
            },
            last_scan: text("last_scan_ts"),
            last_apply: text("last_apply_ts"),
        })
    }

    /// The mode in the state file.
    ///
    /// # Errors
    /// If the file cannot be read, or contains no valid mode.
    pub fn mode(&self) -> Result<Mode> {
        let state = Self::state(&self.read(ReadScope::Files(&[STATE_FILE]))?.texts);
        Ok(Mode::parse(state.mode_name())?)
    }

    /// The effect of changing the mode.
    pub fn mode_effect(to: Mode) -> Effect {
        let effect = Effect::new(Category::MemoryApply, format!("mode {to}"));
        effect.reading(Scope::Knowledge).writing(Scope::Knowledge)
    }

    /// Checks the conditions of a mode change, so that nobody is asked to approve one that is not possible.
    ///
    /// # Errors
    /// If the files cannot be read, or the transition is not possible.
    pub fn check_mode_change(&self, to: Mode) -> Result<()> {
        let texts = self.read(ReadScope::Files(&[STATE_FILE, CONFIG_FILE]))?.texts;
        Ok(Self::state(&texts).step(to, &Self::config(&texts)?, self.today())?)
    }

    /// Changes the mode if its conditions are met.
    ///
    /// # Errors
    /// If the permit is not for it, or the transition is not possible.
    pub fn set_mode(&self, permit: Permit, to: Mode) -> Result<()> {
        permit.spend(&Self::mode_effect(to), self.now.timestamp())?;
        let loaded = self.lock_and_read(ReadScope::Files(&[STATE_FILE, CONFIG_FILE, AUDIT_FILE]))?;
        let mut state = Self::state(&loaded.texts);
        let from = state.mode_name().to_owned();
        state.step(to, &Self::config(&loaded.texts)?, self.today())?;
        let mut writes = WriteSet::<ApplyWriter>::default();
        writes.write(STATE_FILE, loaded.texts.get(STATE_FILE), state.print())?;
        self.audit(&loaded.texts, &mut writes, &format!("mode {from} → {to}"))?;
        self.commit(&loaded, writes)?;
        Ok(())
    }

    /// The file and text of the block `id`.
    ///
    /// # Errors
    /// If there is none.
    pub fn show(&self, id: &str) -> Result<(String, String)> {
        let texts = self.texts()?;
        let parsed = texts.parse();
        let (path, block) =
            parsed.find(id).ok_or_else(|| MemoryError::InvalidRequest(format!("there is no block {id}")))?;
        Ok((path.to_owned(), block.text().to_owned()))
    }

    /// The blocks that match `query`, best first.
    ///
    /// # Errors
    /// If the workspace cannot be read.
    pub fn search(&self, query: &SearchQuery) -> Result<Vec<SearchHit>> {
        let texts = self.texts()?;
        Ok(SearchIndex::new(&texts.parse()).search(query))
    }

    /// The notes that match `query`, best first.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn search_notes(&self, query: &str, limit: usize) -> Result<Vec<NoteHit>> {
        Ok(notes::search(&self.notes()?, query, limit))
    }

    pub(super) fn audit(
        &self,
        texts: &super::WorkspaceTexts,
        writes: &mut WriteSet<ApplyWriter>,
        what: &str,
    ) -> Result<()> {
        let text = add_line(writes.draft(AUDIT_FILE, texts.text(AUDIT_FILE)), &format!("- {} {what}", self.stamp()));
        Ok(writes.write(AUDIT_FILE, texts.get(AUDIT_FILE), text)?)
    }
}
