//! Converts profiles, intensity schedules and transcripts of the dynamic mania benchmark into Loom's formats
//! (`docs/FORMATS.md`, "Ported from elsewhere").
//!
//! Everything lost or changed is listed in notes at the top of the output. Values are not clamped.

mod note;
mod profile;
mod reader;
mod schedule;
mod threshold;
mod topics;
mod transcript;
mod write;

use std::path::{Path, PathBuf};

pub use profile::Presentation;
pub use transcript::PortedTranscript;

use self::profile::Profile;
use self::schedule::Schedule;
use crate::foundation::config::ConfigErrors;
use crate::simulation::persona;

/// The input of a conversion to a config.
#[derive(Debug, Clone)]
pub struct PortPlan<'a> {
    /// The profile's name for messages, and its text.
    pub profile: (&'a str, &'a str),
    /// The schedule's name and text; the standard schedule if absent.
    pub schedule: Option<(&'a str, &'a str)>,
    /// How the persona presents itself; only for version 2 profiles.
    pub presentation: Option<Presentation>,
    /// The number of turns. The benchmark counts turns from 1, so their positions on the schedule depend on it.
    pub turns: usize,
}

/// A config converted from a profile and a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortedConfig {
    /// The YAML, beginning with the notes.
    pub yaml: String,
    /// The notes.
    pub notes: Vec<String>,
}

/// An error in a conversion.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The source is invalid.
    #[error(transparent)]
    Source(#[from] ConfigErrors),
    /// An I/O error.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// Version 1 profiles have no presentations.
    #[error(
        "{profile} is a version 1 profile: it has no `presentation_modes`, so it cannot be ported as `{mode}`; leave --mode \
         out, or port a version 2 profile"
    )]
    NoPresentation {
        /// The profile.
        profile: String,
        /// The requested presentation.
        mode: &'static str,
    },
    /// A number is out of bounds.
    #[error("--turns must be from 1 to {max} (TURNS_MAX), not {turns}")]
    Turns {
        /// The requested number.
        turns: usize,
        /// The maximum.
        max: usize,
    },
    /// The result is not a valid config, because the benchmark allows values that Loom does not.
    #[error("{profile} does not convert to a valid config: {why}")]
    Invalid {
        /// The profile.
        profile: String,
        /// What is wrong.
        why: String,
    },
    /// The transcript is invalid.
    #[error("{path} is not a transcript of the benchmark: {why}")]
    Transcript {
        /// Where.
        path: String,
        /// What is wrong.
        why: String,
    },
}

/// Converts a profile and a schedule to a config.
///
/// # Errors
/// If the source or the result is invalid.
pub fn config(plan: &PortPlan<'_>) -> Result<PortedConfig, PortError> {
    use crate::foundation::base::limits::TURNS_MAX;
    if !(1..=TURNS_MAX).contains(&plan.turns) {
        return Err(PortError::Turns { turns: plan.turns, max: TURNS_MAX });
    }
    let profile = Profile::read(plan.profile.0, plan.profile.1)?;
    let schedule = match plan.schedule {
        Some((name, text)) => Schedule::read(name, text)?,
        None => Schedule::standard(),
    };
    let ported = write::config(&profile, &schedule, plan.presentation, plan.turns)?;
    match persona::parse(plan.profile.0, &ported.yaml) {
        Ok(_) => Ok(ported),
        Err(errors) => {
            let why = errors.problems().map(|problem| problem.message.clone()).collect::<Vec<_>>().join("; ");
            Err(PortError::Invalid { profile: plan.profile.0.to_owned(), why })
        }
    }
}

/// Converts a transcript of the benchmark; `path` is its name in messages.
///
/// # Errors
/// If it cannot be parsed.
pub fn transcript(path: &Path, text: &str, rollout: usize) -> Result<PortedTranscript, PortError> {
    transcript::port(&path.display().to_string(), text, rollout)
}
