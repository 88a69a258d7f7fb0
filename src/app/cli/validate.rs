//! `loom validate`: checks configs and shows every problem with its line.

use std::io::Write;
use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::json;

use super::{Exit, Failure, Terminal};
use crate::foundation::config::ConfigErrors;
use crate::simulation::persona::{self, PersonaConfig, TrajectoryMode};

/// Check persona configs; every problem is shown with its line and how to mend it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom validate anna.yaml
  loom validate configs/personas/*.yaml
  loom validate --format json anna.yaml | jq '.[].problems[].message'

Exit codes: 0 all are good, 3 one is not.")]
pub(super) struct Args {
    /// The configs to check
    #[arg(required = true, value_name = "CONFIG")]
    configs: Vec<PathBuf>,
    /// How to tell the outcome
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Format {
    /// For people: one line per good config, problems underlined
    #[default]
    Human,
    /// For programs: a list with one entry per config
    Json,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let mut exit = Exit::Ok;
        let mut entries = Vec::new();
        for path in &self.configs {
            let outcome = persona::load(path);
            if outcome.is_err() {
                exit = Exit::BadConfig;
            }
            match (self.format, outcome) {
                (Format::Human, Ok(config)) => writeln!(terminal.out, "{}: ok, {}", path.display(), summary(&config))?,
                (Format::Human, Err(errors)) => {
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
