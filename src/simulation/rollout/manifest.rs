//! `run.json`: everything that determines the content of a run. With the configuration stored next to it, a run can be
//! resumed or repeated.

use serde::{Deserialize, Serialize};

use super::delta::FittedGains;
use super::transcript::{ConfigRef, ModelRef};
use crate::foundation::base::Digest;
use crate::foundation::chat::Thinking;
use crate::foundation::store::receipts::Head;
use crate::governance::regulator::Calibration;
use crate::simulation::persona::{AdversaryKind, RegulatorConfig};

/// The value of [`Manifest::format`].
pub const RUN_FORMAT: &str = "loom-run";
/// The version that this program writes and reads.
pub const RUN_VERSION: u32 = 1;

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`RUN_FORMAT`].
    pub format: String,
    /// [`RUN_VERSION`].
    pub version: u32,
    /// The version of the program that created it.
    pub loom: String,
    /// When it began, RFC 3339, UTC.
    pub created_at: String,
    /// The configuration; its text is in `config.yaml`.
    pub config: ConfigRef,
    /// The seed of all random draws.
    pub seed: u64,
    /// How many rollouts.
    pub rollouts: usize,
    /// How many turns each.
    pub turns: usize,
    /// Who the interlocutor is.
    pub adversary: AdversaryKind,
    /// The text of the adversary's file, if one was given instead of the embedded strategies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adversary_script: Option<String>,
    /// The models, by role.
    pub models: RunModels,
    /// The text of the chat template that replaces the models' own.
    pub chat_template: Option<String>,
    /// Whether the regulator's decisions are carried out.
    #[serde(default)]
    pub regulator: RegulatorConfig,
    /// A calibration that turns confidence into a probability, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// The gains on Δ in the configuration's file when the run was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fitted_gains: Option<FittedGains>,
    /// What binds the files and the log to this manifest, since the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<RunSeal>,
}

/// What a sealed manifest binds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSeal {
    /// The configuration, the transcripts and their side files.
    pub files: Vec<SealedFile>,
    /// The head of the log at that time.
    pub log: Head,
    /// Ed25519 signature of the manifest with an empty string in this place, hex.
    pub signature: String,
}

/// A file that a seal binds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedFile {
    /// Its name.
    pub name: String,
    /// The digest of its bytes.
    pub digest: Digest,
}

/// The models of a run, by role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunModels {
    /// The persona's.
    pub persona: ModelRef,
    /// The other side's: the target's or the adversary's.
    pub interlocutor: ModelRef,
    /// The judge's spec string; it is opened when scores need it.
    pub judge: String,
    /// The number type asked for the judge's model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge_dtype: Option<String>,
    /// How the judge's model thinks before it answers.
    #[serde(default, skip_serializing_if = "Thinking::is_default")]
    pub judge_thinking: Thinking,
}
