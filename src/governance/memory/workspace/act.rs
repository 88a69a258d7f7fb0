//! Looking, scanning, listening: what a workspace does without changing what is true.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use super::{AUDIT, MemoryError, Reach, Result, VALIDATION, Workspace};
use crate::foundation::base::Digest;
use crate::foundation::gate::{Category, Effect, Permit, Scope};
use crate::governance::memory::authority::{Apply, Log, Pen, Validate};
use crate::governance::memory::capture::{self, Heard, SIGNALS, Signal};
use crate::governance::memory::finding::{Finding, Level};
use crate::governance::memory::mode::Mode;
use crate::governance::memory::plan;
use crate::governance::memory::scan::{self, Report, add_line};
use crate::governance::memory::search::{Hit, Index, Query};
use crate::governance::memory::state::{CONFIG, STATE};
use crate::governance::memory::validate;

/// How a memory stands.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// The mode as written.
    pub mode: String,
    /// Blocks by kind.
    pub blocks: BTreeMap<&'static str, usize>,
    /// Proposals by status.
    pub proposals: BTreeMap<String, usize>,
    /// Signals that wait.
    pub pending_signals: usize,
    /// Contradictions on record that stand.
    pub open_contradictions: usize,
    /// What has to be so for the next mode up.
    pub gates: Gates,
    /// When the last scan was.
    pub last_scan: Option<String>,
    /// When something was last applied.
    pub last_apply: Option<String>,
}

/// The gates of §4 as they stand.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Gates {
    /// A week of scans without a critical contradiction: opens `propose`.
    pub flip_gate_week1_clean: bool,
    /// Clean weeks in `propose` so far; two are advised before `enforce`.
    pub propose_weeks_clean: u64,
    /// The person's word in the config: opens `enforce`.
    pub allow_enforce: bool,
}

impl Workspace {
    /// Checks S1 to S9 and writes the report, the same bytes for the same workspace.
    ///
    /// # Errors
    /// Where the workspace cannot be read.
    pub fn validate(&self) -> Result<Vec<Finding>> {
        let mut held = self.hold(Reach::All)?;
        let mut findings = Vec::new();
        for (path, document) in held.texts.parse().files() {
            findings.extend(validate::validate(path, document));
        }
        let errors = findings.iter().filter(|finding| finding.level == Level::Error).count();
        let mut report = format!("{errors} errors, {} warnings\n", findings.len() - errors);
        for finding in &findings {
            let level = if finding.level == Level::Error { "error" } else { "warning" };
            let _ =
                writeln!(report, "{}:{}: {level} {}: {}", finding.file, finding.line, finding.code, finding.message);
        }
        self.load_file(VALIDATION, &mut held)?;
        let before = held.others.remove(VALIDATION).and_then(|bytes| String::from_utf8(bytes).ok());
        if before.as_deref() != Some(&report) {
            if let Some(before) = &before {
                held.texts.set(VALIDATION, before.as_str());
            }
            let mut pen = Pen::<Validate>::default();
            pen.write(VALIDATION, before.as_deref(), report)?;
            self.commit(&held, pen)?;
        }
        Ok(findings)
    }

    /// Scans, keeps the records, and stages proposals where the mode allows.
    ///
    /// # Errors
    /// Where the workspace cannot be read or written.
    pub fn scan(&self) -> Result<Report> {
        let held = self.hold(Reach::All)?;
        let (report, pen) = scan::scan(&held.texts, &Self::config(&held.texts)?, self.today(), &self.stamp())?;
        self.commit(&held, pen)?;
        Ok(report)
    }

    /// That this is captured.
    pub fn capturing(heard: &[Heard<'_>]) -> Effect {
        Effect::new(Category::MemoryPropose, format!("capture {}", Digest::of(format!("{heard:?}"))))
            .reading(Scope::Knowledge)
    }

    /// Captures signals; the second number is how many found no id left today.
    ///
    /// # Errors
    /// Where the permit is not for it, or the signals cannot be read or written.
    pub fn capture(&self, permit: Permit, heard: &[Heard<'_>]) -> Result<(Vec<Signal>, usize)> {
        permit.spend(&Self::capturing(heard), self.now.timestamp())?;
        let held = self.hold(Reach::Files(&[SIGNALS, CONFIG]))?;
        let (signals, lost, pen) = capture::capture(&held.texts, &Self::config(&held.texts)?, heard, self.today())?;
        self.commit(&held, pen)?;
        Ok((signals, lost))
    }

    /// Adds a line to today's log.
    ///
    /// # Errors
    /// Where the log cannot be written.
    pub fn log(&self, text: &str) -> Result<String> {
        let path = format!("memory/{}.md", self.today());
        let held = self.hold(Reach::Files(&[&path]))?;
        let before = held.texts.get(&path);
        let said = capture::one_line(text, usize::MAX);
        if said.is_empty() {
            return Err(MemoryError::Request("the line for the log is empty".to_owned()));
        }
        let line = format!("- {} {said}", self.now.strftime("%H:%M"));
        let fresh = format!("# {}\n\n", self.today());
        let mut pen = Pen::<Log>::default();
        pen.write(&path, before, add_line(before.unwrap_or(&fresh), &line))?;
        self.commit(&held, pen)?;
        Ok(path)
    }

    /// How the memory stands.
    ///
    /// # Errors
    /// Where the workspace cannot be read.
    pub fn status(&self) -> Result<Status> {
        let texts = self.texts()?;
        let (state, config) = (Self::state(&texts), Self::config(&texts)?);
        let mut blocks = BTreeMap::new();
        let (mut pending_signals, mut open_contradictions) = (0, 0);
        for (path, block) in texts.parse().blocks() {
            *blocks.entry(block.id().kind().name()).or_default() += 1;
            pending_signals += usize::from(path == SIGNALS && block.head("Status") == "pending");
            open_contradictions +=
                usize::from(path == "intelligence/CONTRADICTIONS.md" && block.head("Status") != "resolved");
        }
        let mut proposals = BTreeMap::new();
        for (_, proposal) in plan::proposals(&texts) {
            *proposals.entry(proposal.status).or_default() += 1;
        }
        let text = |key| state.get(key).and_then(Value::as_str).map(str::to_owned);
        Ok(Status {
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

    /// The mode, read from its file.
    ///
    /// # Errors
    /// Where the file cannot be read, or names no mode.
    pub fn mode(&self) -> Result<Mode> {
        let state = Self::state(&self.read(Reach::Files(&[STATE]))?.texts);
        Ok(Mode::parse(state.mode_name())?)
    }

    /// That the memory goes to another mode.
    pub fn going_to(to: Mode) -> Effect {
        let effect = Effect::new(Category::MemoryApply, format!("mode {to}"));
        effect.reading(Scope::Knowledge).writing(Scope::Knowledge)
    }

    /// Goes to another mode, through its gates.
    ///
    /// # Errors
    /// Where the permit is not for it, or the step is not open.
    pub fn set_mode(&self, permit: Permit, to: Mode) -> Result<()> {
        permit.spend(&Self::going_to(to), self.now.timestamp())?;
        let held = self.hold(Reach::Files(&[STATE, CONFIG, AUDIT]))?;
        let mut state = Self::state(&held.texts);
        let from = state.mode_name().to_owned();
        state.step(to, &Self::config(&held.texts)?, self.today())?;
        let mut pen = Pen::<Apply>::default();
        pen.write(STATE, held.texts.get(STATE), state.print())?;
        self.audit(&held.texts, &mut pen, &format!("mode {from} → {to}"))?;
        self.commit(&held, pen)?;
        Ok(())
    }

    /// The block called `id`, as it stands in its file, and the file.
    ///
    /// # Errors
    /// Where there is none.
    pub fn show(&self, id: &str) -> Result<(String, String)> {
        let texts = self.texts()?;
        let parsed = texts.parse();
        let (path, block) = parsed.find(id).ok_or_else(|| MemoryError::Request(format!("there is no block {id}")))?;
        Ok((path.to_owned(), block.text().to_owned()))
    }

    /// The blocks that fit `query`, best first.
    ///
    /// # Errors
    /// Where the workspace cannot be read.
    pub fn search(&self, query: &Query) -> Result<Vec<Hit>> {
        let texts = self.texts()?;
        Ok(Index::new(&texts.parse()).search(query))
    }

    pub(super) fn audit(&self, texts: &super::Texts, pen: &mut Pen<Apply>, what: &str) -> Result<()> {
        let text = add_line(pen.draft(AUDIT, texts.text(AUDIT)), &format!("- {} {what}", self.stamp()));
        Ok(pen.write(AUDIT, texts.get(AUDIT), text)?)
    }
}
