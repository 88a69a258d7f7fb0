//! `loom validate`: checks configs and prints every problem with its line.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use super::output::OutputFormat;
use super::{Exit, Failure, Terminal};
use crate::foundation::base::limits::CONFIG_BYTES_MAX;
use crate::foundation::base::{Clock, SystemClock};
use crate::foundation::config::ConfigErrors;
use crate::foundation::store::read_text;
use crate::governance::memory::texts::WorkspaceTexts;
use crate::governance::memory::workspace::Workspace;
use crate::simulation::persona::{self, AdversaryScript, Assembler, PersonaConfig, TrajectoryMode};
use crate::simulation::rollout::monitors::Monitors;

/// The turns of a run for the warnings about a config without a length.
const USUAL_TURNS: usize = 50;

/// Check configs of personas and adversaries; problems are shown with their lines and a fix
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom validate anna.yaml
  loom validate configs/personas/*.yaml
  loom validate --memory vault anna.yaml          the decisions that it cites are in the memory, and active
  loom validate --format json anna.yaml | jq '.[].problems[].message'

Exit codes: 0 all configs are valid, 3 one is not.")]
pub(super) struct Args {
    /// The configs to check
    #[arg(required = true, value_name = "CONFIG")]
    configs: Vec<PathBuf>,
    /// The memory workspace with the decisions that the configs cite
    #[arg(long, value_name = "DIR")]
    memory: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let mut exit = Exit::Ok;
        let mut entries = Vec::new();
        let memory = match &self.memory {
            Some(folder) => Some(Workspace::at(folder, SystemClock.now())?.texts()?),
            None => None,
        };
        for path in &self.configs {
            let outcome = load(path, memory.as_ref());
            if outcome.is_err() {
                exit = Exit::BadConfig;
            }
            match (self.format, outcome) {
                (OutputFormat::Text, Ok((summary, warnings))) => {
                    writeln!(terminal.out, "{}: ok, {summary}", path.display())?;
                    for warning in warnings {
                        writeln!(terminal.out, "  warning: {warning}")?;
                    }
                }
                (OutputFormat::Text, Err(errors)) => {
                    terminal.out.flush()?;
                    terminal.show_problems(&errors)?;
                }
                (OutputFormat::Json, outcome) => entries.push(entry(&path.display().to_string(), outcome)),
            }
        }
        if matches!(self.format, OutputFormat::Json) {
            writeln!(terminal.out, "{:#}", json!(entries))?;
        }
        Ok(exit)
    }
}

/// Reads a persona's or an adversary's config: its summary in one line, and warnings.
fn load(path: &Path, memory: Option<&WorkspaceTexts>) -> Result<(String, Vec<String>), ConfigErrors> {
    // The persona loader reports unreadable files; a stream can be read only once.
    if path.is_file() && read_text(path, CONFIG_BYTES_MAX).is_ok_and(|yaml| AdversaryScript::is_one(&yaml)) {
        let script = AdversaryScript::load(path)?;
        return Ok((format!("{}: an adversary, {}", script.name, count_many(script.strategies.len())), Vec::new()));
    }
    let (config, yaml) = persona::load_with_text(path)?;
    let mut unchecked = None;
    match (memory, config.persona.decisions.as_slice()) {
        (Some(memory), _) => persona::check_decisions(&config, &yaml, memory)?,
        (None, []) => {}
        (None, cited) => {
            let ids: Vec<_> = cited.iter().map(|decision| decision.id.as_str()).collect();
            unchecked = Some(format!(
                "whether {} still hold is not checked: name the memory with --memory DIR",
                ids.join(", ")
            ));
        }
    }
    let summary = summary(&config);
    Ok((summary, unchecked.into_iter().chain(warnings(config)).collect()))
}

fn count_many(strategies: usize) -> String {
    if strategies == 1 { "1 strategy".to_owned() } else { format!("{strategies} strategies") }
}

/// What works against itself, in a run of the config's length, or of a usual one if it has none.
fn warnings(config: PersonaConfig) -> Vec<String> {
    let turns = match config.trajectory.mode {
        TrajectoryMode::FixedLength { turns } | TrajectoryMode::PhaseGated { turns: Some(turns) } => turns,
        TrajectoryMode::PhaseGated { turns: None } | TrajectoryMode::OpenEnded => USUAL_TURNS,
    };
    let off = config.interaction.breakdown.iter().flat_map(|breakdown| &breakdown.off);
    let unknown = off.filter(|name| !Monitors::all().any(|known| known == name.as_str()));
    let mut warnings: Vec<String> = unknown
        .map(|name| {
            let all = Monitors::all().collect::<Vec<_>>().join(", ");
            format!("`breakdown_detection.off` contains `{name}`, which is no monitor: the monitors are {all}")
        })
        .collect();
    match Assembler::new(Arc::new(config), turns, None) {
        Ok(assembler) => warnings.extend(assembler.warnings()),
        Err(error) => warnings.push(error.to_string()),
    }
    warnings
}

fn summary(config: &PersonaConfig) -> String {
    let length = match config.trajectory.mode {
        TrajectoryMode::FixedLength { turns } => format!("{} of fixed length", count(turns, "turn")),
        TrajectoryMode::PhaseGated { turns: Some(turns) } => format!("phase-gated, about {}", count(turns, "turn")),
        TrajectoryMode::PhaseGated { turns: None } => "phase-gated".to_owned(),
        TrajectoryMode::OpenEnded => "open-ended".to_owned(),
    };
    let dimensions = count(config.trajectory.dimensions.len(), "dimension");
    let phases = count(config.trajectory.phases.len(), "phase");
    format!("{}: {length}, {dimensions}, {phases}", config.persona.name)
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn entry(config: &str, outcome: Result<(String, Vec<String>), ConfigErrors>) -> serde_json::Value {
    let (warnings, errors) = match outcome {
        Ok((_, warnings)) => (warnings, None),
        Err(errors) => (Vec::new(), Some(errors)),
    };
    let errors = errors.as_ref();
    let problems: Vec<_> = errors
        .into_iter()
        .flat_map(|errors| errors.problems().map(move |problem| (errors, problem)))
        .map(|(errors, problem)| {
            let (line, column) = errors.line_column(problem.span.start);
            json!({
                "line": line,
                "column": column,
                "message": problem.message,
                "help": problem.help,
            })
        })
        .collect();
    json!({ "config": config, "ok": errors.is_none(), "problems": problems, "warnings": warnings })
}
