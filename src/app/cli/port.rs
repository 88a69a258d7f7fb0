//! `loom port`: converts other tools' formats.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};

use super::input::read_file;
use super::report::{write_file, write_file_inside};
use super::{Exit, Failure, Terminal};
use crate::studies::port::{self, PortError, PortPlan, Presentation};

/// Convert profiles, schedules and transcripts of other tools
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, Subcommand)]
enum From {
    #[command(name = "mania-bench")]
    Mania(Mania),
}

/// The dynamic mania benchmark: profiles (YAML, versions 1 and 2) and transcripts (JSON)
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom port mania-bench profile.yaml --turns 50 --output anna.yaml
  loom port mania-bench profile.yaml --schedule fast.yaml --mode implicit
  loom port mania-bench old-runs/*.json --output results/old  a results folder

Losses and changes are listed at the top of the config, in the `notes` of a transcript, and on standard error.")]
struct Mania {
    /// One profile, or transcripts
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// For a profile: the intensity schedule [default: the benchmark's standard one]
    #[arg(long, value_name = "FILE")]
    schedule: Option<PathBuf>,
    /// For a version 2 profile: how the persona presents itself
    #[arg(long, value_name = "MODE", value_enum)]
    mode: Option<Mode>,
    /// For a profile: number of turns of the config
    #[arg(long, value_name = "N", default_value_t = 50)]
    turns: usize,
    /// The config's file [default: standard output]; for transcripts the results folder
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    /// It states its beliefs and goals
    Explicit,
    /// It hides them behind another story
    Implicit,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let From::Mania(mania) = &self.from;
        if mania.files.iter().all(|file| file.extension().is_some_and(|ending| ending == "json")) {
            mania.transcripts(terminal)
        } else {
            mania.profile(terminal)
        }
    }
}

impl Mania {
    fn profile(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let [profile] = self.files.as_slice() else {
            let why = "name one profile, or transcripts with the extension `.json`: a config has one profile";
            return Err(Failure::usage(why));
        };
        let named = |path: &Path| Ok::<_, Failure>((path.display().to_string(), read_file(path)?));
        let profile = named(profile)?;
        let schedule = self.schedule.as_deref().map(named).transpose()?;
        let ported = port::config(&PortPlan {
            profile: (&profile.0, &profile.1),
            schedule: schedule.as_ref().map(|(name, text)| (name.as_str(), text.as_str())),
            presentation: self.mode.map(|mode| match mode {
                Mode::Explicit => Presentation::Explicit,
                Mode::Implicit => Presentation::Implicit,
            }),
            turns: self.turns,
        })
        .map_err(failure)?;
        let Some(output) = &self.output else {
            write!(terminal.out, "{}", ported.yaml)?;
            return Ok(Exit::Ok);
        };
        require_absent(output)?;
        write_file(output, &ported.yaml)?;
        for note in &ported.notes {
            writeln!(terminal.err, "note: {note}")?;
        }
        writeln!(terminal.out, "{}", output.display())?;
        Ok(Exit::Ok)
    }

    fn transcripts(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let Some(folder) = &self.output else {
            return Err(Failure::usage("transcripts need --output DIR, the results folder to write"));
        };
        fs::create_dir_all(folder)
            .map_err(|error| Failure::usage(format!("{} cannot be created: {error}", folder.display())))?;
        for (rollout, file) in self.files.iter().enumerate() {
            let ported = port::transcript(file, &read_file(file)?, rollout).map_err(failure)?;
            let path = folder.join(format!("rollout_{rollout:03}.json"));
            require_absent(&path)?;
            let json = serde_json::to_string_pretty(&ported.transcript)
                .map_err(|error| Failure::usage(format!("{} cannot be written as JSON: {error}", file.display())))?;
            write_file_inside(&path, &(json + "\n"))?;
            // The source records no tokens, so an empty side file is complete.
            write_file_inside(&path.with_extension("tokens.jsonl"), "")?;
            for note in &ported.notes {
                writeln!(terminal.err, "{}: {note}", file.display())?;
            }
            writeln!(terminal.out, "{}", path.display())?;
        }
        Ok(Exit::Ok)
    }
}

fn require_absent(path: &Path) -> Result<(), Failure> {
    if path.exists() {
        return Err(Failure::usage(format!("{} exists and is not overwritten: choose another name", path.display())));
    }
    Ok(())
}

fn failure(error: PortError) -> Failure {
    match error {
        PortError::Source(errors) => Failure::Config(errors),
        PortError::Invalid { .. } | PortError::Transcript { .. } => {
            Failure::Message { message: error.to_string(), exit: Exit::BadConfig }
        }
        error => Failure::usage(error.to_string()),
    }
}
