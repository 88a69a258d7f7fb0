//! Others' formats into ours: the profiles, intensity schedules and transcripts of the dynamic mania benchmark
//! (`docs/FORMATS.md`, "Ported from elsewhere").
//!
//! Every loss and every change is a note, and the notes stand on top of what is written. Nothing is clamped, and nothing
//! is made up that would look recorded.

mod note;
mod profile;
mod reader;
mod schedule;
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

/// What a config is to be made of.
#[derive(Debug, Clone)]
pub struct PortPlan<'a> {
    /// The profile's name in messages, and its text.
    pub profile: (&'a str, &'a str),
    /// The schedule's, if another than the standard one.
    pub schedule: Option<(&'a str, &'a str)>,
    /// How the persona presents itself; a version 2 profile has a choice.
    pub presentation: Option<Presentation>,
    /// How many turns: the benchmark counts them from 1, and where they fall on the schedule depends on their number.
    pub turns: usize,
}

/// A config made from a profile and a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortedConfig {
    /// The YAML, its notes on top.
    pub yaml: String,
    /// The notes.
    pub notes: Vec<String>,
}

/// Why something cannot be ported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The source has problems.
    #[error(transparent)]
    Source(#[from] ConfigErrors),
    /// The file system said no.
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
        /// What was asked for.
        mode: &'static str,
    },
    /// A number is out of bounds.
    #[error("--turns must be from 1 to {max} (TURNS_MAX), not {turns}")]
    Turns {
        /// What was asked for.
        turns: usize,
        /// The largest that is allowed.
        max: usize,
    },
    /// What came out is no valid config; the benchmark allows what Loom does not.
    #[error("{profile} does not make a valid config: {why}")]
    Invalid {
        /// The profile.
        profile: String,
        /// What is wrong.
        why: String,
    },
    /// The transcript is not as it should be.
    #[error("{path} is no transcript of the benchmark: {why}")]
    Transcript {
        /// Where.
        path: String,
        /// What is wrong.
        why: String,
    },
}

/// Makes a config.
///
/// # Errors
/// When the source has problems, or what comes out would not be valid.
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

/// Makes a transcript of ours from one of the benchmark's; `path` is how messages call it.
///
/// # Errors
/// When it cannot be read.
pub fn transcript(path: &Path, text: &str, rollout: usize) -> Result<PortedTranscript, PortError> {
    transcript::port(&path.display().to_string(), text, rollout)
}
