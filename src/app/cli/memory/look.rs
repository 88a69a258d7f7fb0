//! The read-only commands: `validate`, `show`, `search`, `status`, `export`.

use std::io::Write as _;
use std::path::PathBuf;

use clap::ValueEnum;
use jiff::civil::Date;
use serde_json::json;

use super::{Common, plural};
use crate::app::cli::output::OutputFormat;
use crate::app::cli::terminal::render;
use crate::app::cli::{Exit, Failure, Terminal};
use crate::foundation::chat::ModelSpec;
use crate::governance::memory::finding::FindingLevel;
use crate::governance::memory::id::BlockKind;
use crate::governance::memory::search::SearchQuery;
use crate::governance::memory::workspace::{CachedSearch, VALIDATION_REPORT};
use crate::governance::mood::Mood;
use crate::inference::providers::OpenOptions;
use crate::simulation::authorizer::Authorizer;

/// Check the grammar and the structural invariants S1 to S9
#[derive(Debug, clap::Args)]
pub(super) struct Validate {
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl Validate {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let workspace = self.common.open(self.folder.as_ref())?;
        let findings = workspace.validate()?;
        let errors = findings.iter().filter(|finding| finding.level == FindingLevel::Error).count();
        let warnings = findings.len() - errors;
        let texts = workspace.texts()?;
        let (color, width) = (terminal.color, terminal.width);
        let value = json!({"errors": errors, "warnings": warnings, "findings": findings});
        self.common.print(terminal, &value, |terminal| {
            for finding in &findings {
                writeln!(
                    terminal.out,
                    "{}",
                    render(finding.diagnostic(texts.text(&finding.file)).as_ref(), color, width)
                )?;
            }
            let (errors, warnings) = (plural(errors, "error"), plural(warnings, "warning"));
            writeln!(terminal.out, "{errors}, {warnings}; the report is in {VALIDATION_REPORT}")
        })?;
        Ok(if errors == 0 { Exit::Ok } else { Exit::CheckFailed })
    }
}

/// Show a block
#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// The block's id, D-20260220-001 for example
    id: String,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl Show {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let (file, text) = self.common.open(self.folder.as_ref())?.show(&self.id)?;
        self.common.print(terminal, &json!({"id": self.id, "file": file, "text": text}), |terminal| {
            writeln!(terminal.out, "{file}\n\n{}", text.trim_end())
        })?;
        Ok(Exit::Ok)
    }
}

/// Search blocks by words (BM25), with the contribution of each word, then all other Markdown files of the folder
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom memory search 'sqlite cache' --kind decision --status active
  loom memory search --kind task --project PRJ-001  all tasks of a project, newest first")]
pub(super) struct Search {
    /// The query
    #[arg(default_value = "")]
    words: String,
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    /// Only this kind of block
    #[arg(long, value_parser = kind)]
    kind: Option<BlockKind>,
    /// Only with this status
    #[arg(long, default_value = "")]
    status: String,
    /// Only with this tag
    #[arg(long, default_value = "")]
    tag: String,
    /// Only of this project
    #[arg(long, default_value = "")]
    project: String,
    /// Only from this day on
    #[arg(long, value_name = "DATE")]
    from: Option<Date>,
    /// Only up to this day
    #[arg(long, value_name = "DATE")]
    to: Option<Date>,
    /// Maximum number of hits
    #[arg(long, default_value_t = 10)]
    limit: usize,
    /// Search the blocks only
    #[arg(long)]
    blocks: bool,
    /// Combine with a semantic search by this sentence embedder, for example `local:DIR` with all-MiniLM-L6-v2. The first
    /// search embeds every block
    #[arg(long, value_name = "SPEC")]
    embedder: Option<ModelSpec>,
    #[command(flatten)]
    common: Common,
}

fn kind(name: &str) -> Result<BlockKind, String> {
    let known = || BlockKind::ALL.map(BlockKind::name).join(", ");
    BlockKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| format!("use one of: {}", known()))
}

impl Search {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let query = SearchQuery {
            text: self.words.clone(),
            kind: self.kind,
            status: self.status.clone(),
            tag: self.tag.clone(),
            project: self.project.clone(),
            from: self.from,
            to: self.to,
            limit: self.limit,
        };
        let workspace = self.common.open(self.folder.as_ref())?;
        let hits = match &self.embedder {
            None => workspace.search(&query)?,
            Some(spec) => {
                let gate = Authorizer::for_models("memory search", Mood::Calm, &[], None)?;
                let embedder = gate.open_embedder(spec, &OpenOptions::default())?;
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let mut finder = CachedSearch::default();
                runtime.block_on(finder.search_hybrid(&workspace, &query, embedder.as_ref(), &spec.to_string()))?
            }
        };
        // Filters are for blocks; without words there is nothing to look for in notes.
        let filtered = self.kind.is_some() || self.from.is_some() || self.to.is_some();
        let filtered = filtered || [&self.status, &self.tag, &self.project].iter().any(|filter| !filter.is_empty());
        let notes = if filtered || self.words.is_empty() || self.blocks {
            Vec::new()
        } else {
            workspace.search_notes(&self.words, self.limit)?
        };
        if self.common.format == OutputFormat::Json {
            let hits_json = hits.iter().map(|hit| json!(hit));
            let found: Vec<_> =
                hits_json.chain(notes.iter().map(|note| json!({"kind": "note", "note": note}))).collect();
            self.common.print(terminal, &found, |_| Ok(()))?;
            return Ok(if hits.is_empty() && notes.is_empty() { Exit::CheckFailed } else { Exit::Ok });
        }
        self.common.print(terminal, &hits, |terminal| {
            for hit in &hits {
                writeln!(terminal.out, "{}  {}  {}:{}", hit.id, hit.status, hit.file, hit.line)?;
                writeln!(terminal.out, "  {}", hit.title)?;
                if let Some(ranks) = hit.ranks {
                    let place = |rank: Option<usize>| rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string());
                    let cosine = ranks.similarity.map_or_else(String::new, |cosine| format!(", cosine {cosine:.2}"));
                    writeln!(
                        terminal.out,
                        "  {:.4} ranks: words {}, vectors {}{cosine}",
                        hit.score,
                        place(ranks.words),
                        place(ranks.meaning)
                    )?;
                }
                let why: Vec<_> = hit.why.iter().map(|(word, part)| format!("{word} {part:.2}")).collect();
                if !why.is_empty() && hit.ranks.is_none() {
                    writeln!(terminal.out, "  {:.2} = {}", hit.score, why.join(" + "))?;
                }
            }
            for note in &notes {
                writeln!(terminal.out, "{}:{}  {}", note.file, note.line, note.title)?;
                writeln!(terminal.out, "  {}", note.excerpt)?;
            }
            Ok(())
        })?;
        Ok(if hits.is_empty() && notes.is_empty() { Exit::CheckFailed } else { Exit::Ok })
    }
}

/// Show mode, upgrade conditions, block counts and pending items
#[derive(Debug, clap::Args)]
pub(super) struct Status {
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl Status {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let status = self.common.open(self.folder.as_ref())?.status()?;
        self.common.print(terminal, &status, |terminal| {
            let out = &mut terminal.out;
            let gates = status.gates;
            writeln!(out, "mode            {}", status.mode)?;
            writeln!(
                out,
                "gates           clean week: {}, clean weeks in propose: {}, allow_enforce: {}",
                gates.flip_gate_week1_clean, gates.propose_weeks_clean, gates.allow_enforce
            )?;
            for (what, count) in &status.blocks {
                writeln!(out, "{what:<15} {count}")?;
                for (what, count) in status.proposals.iter().filter(|_| *what == "proposal") {
                    writeln!(out, "{:<15} {count}", format!("- {what}"))?;
                }
            }
            writeln!(out, "pending signals {}", status.pending_signals)?;
            writeln!(out, "open conflicts  {}", status.open_contradictions)?;
            writeln!(out, "last scan       {}", status.last_scan.as_deref().unwrap_or("never"))?;
            writeln!(out, "last apply      {}", status.last_apply.as_deref().unwrap_or("never"))
        })?;
        Ok(Exit::Ok)
    }
}

/// Print every block, one JSON line each, or as Markdown
#[derive(Debug, clap::Args)]
pub(super) struct Export {
    /// The workspace; the current folder if not given
    folder: Option<PathBuf>,
    /// JSON lines, which `import` reads, or the Markdown blocks
    #[arg(long, value_enum, default_value_t)]
    r#as: ExportFormat,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    #[default]
    Jsonl,
    Markdown,
}

impl Export {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let records = self.common.open(self.folder.as_ref())?.export()?;
        for record in &records {
            if self.r#as == ExportFormat::Markdown && self.common.format == OutputFormat::Text {
                writeln!(terminal.out, "{}\n", record.text.trim_end())?;
            } else {
                writeln!(terminal.out, "{}", serde_json::to_string(record).map_err(std::io::Error::other)?)?;
            }
        }
        Ok(Exit::Ok)
    }
}
