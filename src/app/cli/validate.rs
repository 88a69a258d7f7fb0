//! `loom validate`: checks configs and prints every problem with its line.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::json;

use super::{Exit, Failure, Terminal};
use crate::foundation::config::ConfigErrors;
use crate::simulation::persona::{self, AdversaryScript, PersonaConfig, TrajectoryMode};

/// Check configs of personas and adversaries; problems are shown with their lines and a fix
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom validate anna.yaml
  loom validate configs/personas/*.yaml
  loom validate --format json anna.yaml | jq '.[].problems[].message'

Exit codes: 0 all configs are valid, 3 one is not.")]
pub(super) struct Args {
    /// The configs to check
    #[arg(required = true, value_name = "CONFIG")]
    configs: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Format {
    /// For people: one line per valid config, problems underlined
    #[default]
    Text,
    /// For programs: a list with one entry per config
    Json,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let mut exit = Exit::Ok;
        let mut entries = Vec::new();
        for path in &self.configs {
            let outcome = load(path);
            if outcome.is_err() {
                exit = Exit::BadConfig;
            }
            match (self.format, outcome) {
                (Format::Text, Ok(summary)) => writeln!(terminal.out, "{}: ok, {summary}", path.display())?,
                (Format::Text, Err(errors)) => {
                    terminal.out.flush()?;
                    terminal.show_problems(&errors)?;
                }
                (Format::Json, outcome) => entries.push(entry(&path.display().to_string(), outcome.err().as_ref())),
            }
        }
        if matches!(self.format, Format::Json) {
            writeln!(terminal.out, "{:#}", json!(entries))?;
        }
        Ok(exit)
    }
}

/// Reads a persona's or an adversary's config and summarises it in one line.
fn load(path: &Path) -> Result<String, ConfigErrors> {
    // The persona loader reports unreadable files.
    if std::fs::read_to_string(path).is_ok_and(|yaml| AdversaryScript::is_one(&yaml)) {
        let script = AdversaryScript::load(path)?;
        return Ok(format!("{}: an adversary, {}", script.name, count_many(script.strategies.len())));
    }
    persona::load(path).map(|config| summary(&config))
}

fn count_many(strategies: usize) -> String {
    if strategies == 1 { "1 strategy".to_owned() } else { format!("{strategies} strategies") }
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

fn entry(config: &str, errors: Option<&ConfigErrors>) -> serde_json::Value {
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
    json!({ "config": config, "ok": errors.is_none(), "problems": problems })
}
