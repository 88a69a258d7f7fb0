//! The commands that write files other than the source of truth: `init`, `scan`, `capture`, `log`, `import`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{Approver, Common, plural};
use crate::app::cli::input::read_text_limited;
use crate::app::cli::{Exit, Failure, Terminal};
use crate::foundation::base::limits;
use crate::foundation::chat::ModelSpec;
use crate::foundation::gate::Effect;
use crate::governance::memory::candidate;
use crate::governance::memory::capture::CaptureInput;
use crate::governance::memory::contradiction::Severity;
use crate::governance::memory::workspace::{BlockRecord, Workspace};
use crate::governance::mood::Mood;
use crate::inference::providers::OpenOptions;
use crate::simulation::authorizer::Authorizer;

/// Create a workspace: adds missing files, overwrites none
#[derive(Debug, clap::Args)]
pub(super) struct Init {
    /// The folder, created if missing; the current folder if not given
    folder: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl Init {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        if let Some(folder) = self.folder.as_ref().or(self.common.dir.as_ref()) {
            let failure = |error| Failure::usage(format!("`{}` cannot be made: {error}", folder.display()));
            std::fs::create_dir_all(folder).map_err(failure)?;
        }
        let created = self.common.open(self.folder.as_ref())?.init()?;
        self.common.print(terminal, &created, |terminal| {
            writeln!(
                terminal.out,
                "{} created; mode detect_only, until seven days of scans find no critical contradiction",
                plural(created.files.len(), "file")
            )
        })?;
        Ok(Exit::Ok)
    }
}

/// Find contradictions, drift and impact; stage proposals where the mode allows it
#[derive(Debug, clap::Args)]
pub(super) struct Scan {
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    /// Also compare decisions by their meaning, with this sentence embedder, for example `local:DIR` with all-MiniLM-L6-v2
    #[arg(long, value_name = "SPEC")]
    embedder: Option<ModelSpec>,
    #[command(flatten)]
    common: Common,
}

impl Scan {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let workspace = self.common.open(self.folder.as_ref())?;
        let mut report = workspace.scan()?;
        if let Some(spec) = &self.embedder {
            let statements = candidate::statements(&workspace.texts()?);
            let texts: Vec<_> = statements.iter().map(|statement| statement.text.as_str()).collect();
            let gate = Authorizer::for_models("memory scan", Mood::Calm, &[], None)?;
            let embedder = gate.open_embedder(spec, &OpenOptions::default())?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let vectors = runtime.block_on(embedder.embed(&texts))?;
            let known: Vec<_> = report.candidates.iter().map(|pair| (pair.a.clone(), pair.b.clone())).collect();
            let found = candidate::by_vectors(&statements, &vectors);
            report
                .candidates
                .extend(found.into_iter().filter(|pair| !known.contains(&(pair.a.clone(), pair.b.clone()))));
        }
        let critical = report.count(Severity::Critical);
        self.common.print(terminal, &report, |terminal| {
            let out = &mut terminal.out;
            for conflict in &report.contradictions {
                writeln!(out, "{:<8} {} {}", conflict.severity.name(), conflict.id, conflict.description)?;
            }
            for pair in &report.candidates {
                writeln!(out, "compare  {} and {}: {}", pair.a, pair.b, pair.why)?;
            }
            for drift in &report.drift {
                writeln!(out, "drift    {} {} {}: {}", drift.id, drift.kind.name(), drift.source, drift.description)?;
            }
            for impact in &report.impact {
                let affected: Vec<_> = impact.reaches.iter().chain(&impact.notes).map(String::as_str).collect();
                writeln!(out, "impact   {} affects {}", impact.source, affected.join(", "))?;
            }
            for id in &report.staged {
                writeln!(out, "staged   {id}")?;
            }
            for id in &report.expired {
                writeln!(out, "expired  {id}")?;
            }
            for finding in &report.unread {
                writeln!(out, "unread   {}:{}: {}", finding.file, finding.line, finding.message)?;
            }
            for note in &report.notes {
                writeln!(out, "note     {note}")?;
            }
            writeln!(
                out,
                "{} ({} active), {}: {} ({critical} critical), {}; mode {}",
                plural(report.decisions, "decision"),
                report.active,
                plural(report.tasks, "task"),
                plural(report.contradictions.len(), "contradiction"),
                plural(report.drift.len(), "drift"),
                report.mode
            )?;
            if !report.candidates.is_empty() {
                writeln!(
                    out,
                    "pairs to compare are no contradictions: if two cannot both hold, state it with \
                     `loom memory decide … --supersedes ID --constraint 'must_not use X for Y'`"
                )?;
            }
            Ok(())
        })?;
        if !report.unread.is_empty() {
            let lines = plural(report.unread.len(), "line");
            terminal.out.flush()?;
            eprintln!(
                "loom: {lines} could not be read, so constraints may be missing; `loom memory validate` says how to mend them"
            );
        }
        Ok(if critical == 0 && report.unread.is_empty() { Exit::Ok } else { Exit::CheckFailed })
    }
}

/// Capture lines that sound like a decision, a commitment, a deadline, a correction or an incident
#[derive(Debug, clap::Args)]
pub(super) struct Capture {
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    /// The text; standard input if neither this nor --file is given
    #[arg(long, conflicts_with = "file")]
    text: Option<String>,
    /// A file with the text
    #[arg(long)]
    file: Option<PathBuf>,
    /// The kind of signal; the whole text is then captured as one signal
    #[arg(long)]
    r#type: Option<String>,
    /// The source of the text (required: a signal without a source is not accepted)
    #[arg(long)]
    source: String,
    #[command(flatten)]
    common: Common,
}

impl Capture {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let text = match (&self.text, &self.file) {
            (Some(text), _) => text.clone(),
            (None, file) => read(file.as_deref().unwrap_or(Path::new("-")))?,
        };
        let heard = CaptureInput { text: &text, source: &self.source, kind: self.r#type.as_deref() };
        let (signals, lost) = self.common.with_permit(self.folder.as_ref(), |workspace, ask| {
            workspace.capture(ask(&Workspace::capture_effect(&[heard]))?, &[heard])
        })?;
        self.common.print(terminal, &json!({"signals": signals, "lost": lost}), |terminal| {
            for signal in &signals {
                writeln!(terminal.out, "{} {}: {}", signal.id, signal.kind, signal.excerpt)?;
            }
            if lost > 0 {
                writeln!(terminal.out, "{lost} not captured: a day has ids for {} signals", limits::COUNTER_MAX)?;
            }
            Ok(())
        })?;
        Ok(if lost == 0 { Exit::Ok } else { Exit::CheckFailed })
    }
}

/// Append a line to today's log
#[derive(Debug, clap::Args)]
pub(super) struct Log {
    /// The line
    text: String,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl Log {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let file = self.common.open(self.folder.as_ref())?.log(&self.text)?;
        self.common.print(terminal, &json!({"file": file}), |terminal| writeln!(terminal.out, "{file}"))?;
        Ok(Exit::Ok)
    }
}

/// Import the output of `export` into a memory without blocks
#[derive(Debug, clap::Args)]
pub(super) struct Import {
    /// The JSON lines; standard input if `-`
    records: PathBuf,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    /// A token for importing exactly these blocks
    #[arg(long)]
    token: Option<String>,
    #[command(flatten)]
    common: Common,
}

impl Import {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let text = read(&self.records)?;
        let mut records: Vec<BlockRecord> = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let failure = |error| Failure::usage(format!("{}:{}: {error}", self.records.display(), number + 1));
            records.push(serde_json::from_str(line).map_err(failure)?);
        }
        let approve = |approver: &Approver<'_>, effect: &Effect| {
            let question = format!("importing {}", plural(records.len(), "block"));
            approver.by_token_or_person(self.token.as_deref(), effect, &question, "loom memory import")
        };
        let imported = self.common.with_approval(self.folder.as_ref(), approve, |workspace, ask| {
            workspace.import(ask(&Workspace::import_effect(&records))?, &records)
        })?;
        self.common.print(terminal, &imported, |terminal| {
            writeln!(terminal.out, "{} imported, {} already present", plural(imported.blocks, "block"), imported.known)
        })?;
        Ok(Exit::Ok)
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    read_text_limited(path, limits::MEMORY_BYTES_MAX)
}
