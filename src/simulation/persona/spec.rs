//! The parsed configuration, used by everything after the loader. An invalid persona cannot be represented here; the YAML
//! form and its JSON Schema are in `format`, its checks and error messages in `lower`.

mod trajectory;

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;

pub use self::trajectory::*;
use crate::foundation::base::Digest;
use crate::foundation::chat::{DeltaGains, LayerGains, ModelChain, Thinking};
use crate::governance::regulator::DeltaSettings;

/// A persona, how its state moves, and how it is run, watched and scored.
#[derive(Debug, Clone)]
pub struct PersonaConfig {
    /// The file it was read from, as named by the user.
    pub source: String,
    /// The digest of the YAML text.
    pub digest: Digest,
    /// Who the persona is.
    pub persona: Persona,
    /// How its state must move over the conversation.
    pub trajectory: Trajectory,
    /// How the conversation is held and watched.
    pub interaction: Interaction,
    /// How it is scored.
    pub evaluation: Evaluation,
    /// What it must never do.
    pub safety: Safety,
    /// Δ modulation of the persona's model.
    pub delta: DeltaPolicy,
    /// Whether the regulator's decisions are carried out.
    pub regulator: RegulatorConfig,
    /// How the models think before they answer.
    pub models: RoleThinking,
}

/// How the models think before they answer, by role.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RoleThinking {
    /// The persona's model.
    pub persona: Thinking,
    /// The other side's model.
    pub interlocutor: Thinking,
    /// The judge's model.
    pub judge: Thinking,
}

/// Who the persona is.
#[derive(Debug, Clone)]
pub struct Persona {
    /// The full name.
    pub name: String,
    /// Age in years.
    pub age: Option<u32>,
    /// Who they are now.
    pub background: String,
    /// How they came here.
    pub backstory: Option<String>,
    /// What they know at most.
    pub knowledge_ceiling: Option<String>,
    /// Which words they use.
    pub vocabulary_level: Option<String>,
    /// How they reason.
    pub reasoning_style: Option<String>,
    /// How they think.
    pub cognitive_style: Option<String>,
    /// Markers of how they speak.
    pub speech_patterns: Vec<String>,
    /// What they do when caught in a contradiction.
    pub recovery_behavior: Option<String>,
    /// Trigger → response, in the file's order.
    pub emotional_responses: Vec<(String, String)>,
    /// The decisions of a memory that its prompt quotes.
    pub decisions: Vec<CitedDecision>,
}

/// A decision of a governed memory that a config cites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CitedDecision {
    /// Its id.
    pub id: String,
    /// Its statement; `None` until it was looked up in the memory.
    pub statement: Option<String>,
    /// Where the config cites it.
    pub span: std::ops::Range<usize>,
}

/// Settings of the conversation and its monitors.
#[derive(Debug, Clone)]
pub struct Interaction {
    /// The interlocutor's first message, before the persona's first reply.
    pub opening: Option<String>,
    /// Who speaks first when there is no opening.
    pub first_speaker: Speaker,
    /// The interlocutor's system prompt.
    pub target_prompt: String,
    /// When the persona is reminded of who it is.
    pub injection: Injection,
    /// How it resists being talked round.
    pub anti_capitulation: AntiCapitulation,
    /// How long its messages are.
    pub response_length: ResponseLength,
    /// How many of the last turns a judge sees.
    pub judge_window: usize,
    /// The stagnation monitor; `None` when it is off.
    pub stagnation: Option<Stagnation>,
    /// The repetition monitor; `None` when it is off.
    pub repetition: Option<Repetition>,
    /// The breakdown monitors; `None` when all are off.
    pub breakdown: Option<Breakdown>,
}

/// One of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// The simulated person.
    Persona,
    /// The other side: the model under test, or an adversary.
    Interlocutor,
}

/// At which turns the instructions are repeated. Turns count from 0.
#[derive(Debug, Clone)]
pub struct Injection {
    /// The full prompt is given at turns 0, `frequency`, 2·`frequency`, …
    pub frequency: usize,
    /// A reminder is given at multiples of this, except where the full prompt is; `None` is never.
    pub reminder_frequency: Option<usize>,
    /// The reminder, with `{placeholders}`.
    pub reminder_template: String,
    /// Whether instructions are also given when the phase, a level or a topic changes.
    pub on_change: bool,
    /// How instructions reach the model after turn 0.
    pub placement: Placement,
}

/// How instructions reach the model after turn 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub enum Placement {
    /// A system message in the history; the previous one is removed.
    Replace,
    /// A system message in the history; the previous ones stay.
    Append,
    /// In the one system message at the top, which is rewritten.
    System,
}

/// How the persona resists persuasion.
#[derive(Debug, Clone)]
pub struct AntiCapitulation {
    /// How strongly.
    pub resistance: Level,
    /// Replacement utterances, by trigger.
    pub redirects: Vec<Redirect>,
    /// Phrases that the persona must not say; the repetition monitor checks for them.
    pub forbidden_phrases: Vec<String>,
}

/// What to say instead of giving in.
#[derive(Debug, Clone)]
pub struct Redirect {
    /// When.
    pub trigger: String,
    /// What to say.
    pub replacement: String,
}

/// How long the persona's messages are, as text for the prompt.
#[derive(Debug, Clone)]
pub struct ResponseLength {
    /// Everywhere else.
    pub default: Option<String>,
    /// By phase name.
    pub by_phase: BTreeMap<String, String>,
}

/// The stagnation monitor.
#[derive(Debug, Clone)]
pub struct Stagnation {
    /// How many of the persona's last messages are compared.
    pub window: usize,
    /// Fires when their mean TF-IDF cosine exceeds this.
    pub similarity_threshold: f64,
    /// Fires when persona and interlocutor are more alike than this.
    pub convergence_threshold: f64,
    /// Fires when the share of new content words over the window falls below this; 0 never does.
    pub novelty_threshold: f64,
    /// Never fires before this turn.
    pub min_turn: usize,
    /// The instruction given when it fires, with `{placeholders}`.
    pub intervention_template: String,
}

/// The repetition monitor.
#[derive(Debug, Clone)]
pub struct Repetition {
    /// Texts that no message may contain.
    pub banned: Vec<Pattern>,
    /// Habits that no sequence of messages may show.
    pub structural: Vec<StructuralPattern>,
    /// The most redrafts per message.
    pub max_retries: usize,
}

/// The monitors for breakdowns of the persona: assistant talk, both sides, narration, leaks, refusals, language, silence.
#[derive(Debug, Clone)]
pub struct Breakdown {
    /// The names of those that are off.
    pub off: Vec<String>,
    /// The most redrafts per message.
    pub max_retries: usize,
}

/// A habit over several messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StructuralPattern {
    /// Four messages in a row end with a question.
    EndsWithQuestionToInterlocutor,
    /// Three messages in a row give thanks.
    GratitudeLoop,
}

/// How the run is scored.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// Which scores are wanted.
    pub scoring: BTreeMap<ScoreName, ScoreConfig>,
    /// Rubrics besides these: names of shipped ones, or files below the configuration's folder.
    pub rubrics: Vec<String>,
    /// Who the interlocutor is, unless `--adversary` says otherwise.
    pub adversary: AdversaryKind,
    /// The adversary's model, unless the command line says otherwise.
    pub adversary_model: Option<ModelChain>,
}

/// The spec's five scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScoreName {
    /// Identity, bounds, speech.
    PersonaAdherence,
    /// Expressed against prescribed intensity.
    TrajectoryAdherence,
    /// Neither evasive nor repetitive nor robotic.
    Naturalness,
    /// Agreement loops and dead air.
    Stagnation,
    /// Does the model follow its instructions?
    Fidelity,
}

/// How one score is taken.
#[derive(Debug, Clone)]
pub struct ScoreConfig {
    /// Whether it is taken at all.
    pub enabled: bool,
    /// The share of turns on which it is taken, in `(0, 1]`.
    pub sample_rate: f64,
    /// What the judge is asked.
    pub description: Option<String>,
}

/// Who the interlocutor is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdversaryKind {
    /// The model under test.
    #[default]
    None,
    /// Probes for contradictions.
    Contradiction,
    /// Coaxes the persona into being a capable helper.
    Helpfulness,
    /// Both, in turn.
    Both,
}

/// What the persona must never do.
#[derive(Debug, Clone)]
pub struct Safety {
    /// No dimension exceeds it, in `(0, 1]`.
    pub intensity_ceiling: f64,
    /// Content that is never simulated.
    pub forbidden_content: Vec<String>,
    /// What happens at the ceiling.
    pub escalation_policy: Option<String>,
    /// A note by the author, for every reader.
    pub persona_note: Option<String>,
}

/// Δ modulation of the persona's model.
#[derive(Debug, Clone, PartialEq)]
pub enum DeltaPolicy {
    /// None.
    Off,
    /// The same gains on every turn.
    Fixed(DeltaGains),
    /// The same, from a file as `loom delta calibrate` writes it; a relative path starts at the config's folder.
    Fitted(PathBuf),
    /// Gains move with a dimension: `low` at its minimum, `high` at its maximum, linear between.
    Trajectory {
        /// Which dimension.
        dimension: String,
        /// Gains at the dimension's minimum.
        low: LayerGains,
        /// Gains at the dimension's maximum.
        high: LayerGains,
        /// The layers they act on; all if `None`.
        layers: Option<Vec<usize>>,
    },
    /// The signals of the persona's regulator over the turns so far determine the next turn's gains.
    Regulator(DeltaSettings),
}

/// Whether and how the regulator's decisions are carried out on a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RegulatorConfig {
    /// Recorded only, or carried out.
    pub policy: RegulatorPolicy,
    /// The most regenerations of one message because of low-confidence spans.
    pub regenerations_max: usize,
    /// A hard cap on the tokens that each side may read and write in a rollout; `None` is no cap.
    pub tokens_max: Option<u64>,
    /// A hard cap on the cost of each side's hosted models in a rollout, millionths of a US dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub money_micros_max: Option<u64>,
    /// A hard cap on the time of each side's replies in a rollout, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wallclock_ms_max: Option<u64>,
    /// Source of the quality feedback for the persona's regulator. Runs recorded before this key existed use none.
    #[serde(default = "QualityFeedback::off")]
    pub quality: QualityFeedback,
}

impl Default for RegulatorConfig {
    fn default() -> Self {
        Self {
            policy: RegulatorPolicy::Observe,
            regenerations_max: 1,
            tokens_max: None,
            money_micros_max: None,
            wallclock_ms_max: None,
            quality: QualityFeedback::Measured,
        }
    }
}

/// Source of quality feedback while a rollout runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QualityFeedback {
    /// There is none.
    Off,
    /// Each message of the persona is measured from its words: repetition, echo, agreement.
    Measured,
}

impl QualityFeedback {
    const fn off() -> Self {
        Self::Off
    }
}

/// Whether the regulator's decisions are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RegulatorPolicy {
    /// They are recorded.
    Observe,
    /// They are recorded and carried out.
    Enforce,
}
