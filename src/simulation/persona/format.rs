//! The YAML format of a persona config: its keys, their documentation and their types. The JSON Schema comes from here;
//! checks across values are in `lower`.

mod values;

pub(super) use values::{
    BannedPattern, Curve, CurveName, CurveScope, DeltaPolicyName, EndType, GainsEntry, Mode, TemplateArgument,
};

use super::spec::{
    AdversaryKind, Level, Placement, QualityFeedback, RegulatorPolicy, Speaker, StructuralPattern, TriggerSpeaker,
};
use crate::config_record;
use crate::foundation::config::{Located, OpenMap, Optional, Required};

config_record! {
    /// A persona, how its state moves over a conversation, and how the conversation is run, watched and scored.
    pub(super) struct File {
        /// The version of this format: "0.1.0".
        schema_version: Required<String>,
        /// Who the persona is.
        persona: Required<Persona>,
        /// How the persona's state moves.
        trajectory: Required<Trajectory>,
        /// How the conversation is held and watched.
        interaction: Optional<Interaction>,
        /// How the run is scored.
        evaluation: Optional<Evaluation>,
        /// What the persona must never do.
        safety: Optional<Safety>,
        /// Modulation of the step size Δ of the persona's state-space model.
        delta: Optional<Delta>,
        /// Whether the regulator's decisions are carried out.
        regulator: Optional<Regulator>,
        /// The statements of the decisions that the persona cites. Loom writes them into the config of a run.
        cited_decisions: Optional<Vec<Located<CitedDecision>>>,
        /// How the models think before they answer, by role.
        models: Optional<Models>,
    }

    /// How the models think before they answer, and what else their chat templates are told, by role.
    pub(super) struct Models {
        /// The persona's model.
        persona: Optional<RoleModel>,
        /// The other side's model.
        interlocutor: Optional<RoleModel>,
        /// The judge's model.
        judge: Optional<RoleModel>,
    }

    /// How one model thinks. A key that is absent leaves what the model's files say.
    pub(super) struct RoleModel {
        /// Whether it thinks before it answers: sets the switch of its chat template (`enable_thinking` or `thinking`).
        enable_thinking: Optional<bool>,
        /// Most tokens of a thought; then it is closed and the answer follows. Default 1024 in a rollout, less in a small
        /// window.
        thought_tokens_max: Optional<usize>,
        /// The texts before and after a thought, in place of what the chat template says; an empty list: replies hold no
        /// thoughts.
        #[schemars(length(max = 2))]
        thought_markers: Optional<Vec<Located<String>>>,
        /// Further arguments of the chat template, by name.
        template_arguments: Optional<OpenMap<TemplateArgument>>,
    }

    /// Whether the regulator's decisions are carried out.
    pub(super) struct Regulator {
        /// `observe` records them; `enforce` also carries them out. Default `observe`.
        policy: Optional<RegulatorPolicy>,
        /// How often one message is asked for again because the model found parts of it unlikely. Default 1.
        #[schemars(range(max = 10))]
        max_regenerations: Optional<usize>,
        /// A hard cap on the tokens that each side may read and write in a rollout; none if absent.
        #[schemars(range(min = 1))]
        tokens_max: Optional<usize>,
        /// A hard cap on the money that each side's hosted models may cost in a rollout, US dollars; none if absent.
        #[schemars(range(min = 0))]
        money_max: Optional<f64>,
        /// A hard cap on the time that each side's replies may take in a rollout, seconds; none if absent. A rollout with this
        /// cap may end at another turn when it is repeated.
        #[schemars(range(min = 1))]
        seconds_max: Optional<usize>,
        /// What the persona's regulator is told of how good its messages are: `measured` from their words (repetition, echo,
        /// giving in), or `off`. Default `measured`.
        quality: Optional<QualityFeedback>,
    }

    /// Who the persona is.
    pub(super) struct Persona {
        /// Name, age, background.
        identity: Required<Identity>,
        /// What the persona can know, say and reason.
        capability_bounds: Optional<CapabilityBounds>,
        /// How the persona thinks.
        cognitive_style: Optional<String>,
        /// Markers of how the persona speaks, one per entry.
        speech_patterns: Optional<Vec<Located<String>>>,
        /// What the persona does when caught in a contradiction.
        recovery_behavior: Optional<String>,
        /// Trigger → response, for example `shown_empathy: "Briefly softens"`.
        emotional_responses: Optional<OpenMap<String>>,
        /// Decisions of a governed memory, by id, such as `D-20260220-001`. The prompt quotes them as data. `--memory DIR`
        /// names the memory.
        decisions: Optional<Vec<Located<String>>>,
    }

    /// A decision that the config cites, as it was when the run began. Loom writes it into the config of a run.
    pub(super) struct CitedDecision {
        /// Its id.
        id: Required<String>,
        /// Its statement.
        statement: Required<String>,
    }

    /// Name, age, background.
    pub(super) struct Identity {
        /// The full name.
        name: Required<String>,
        /// Age in years.
        #[schemars(range(max = 150))]
        age: Optional<usize>,
        /// Who the persona is now. The first sentence should say the most: small models are given little more.
        background: Required<String>,
        /// How the persona came here.
        backstory_summary: Optional<String>,
    }

    /// What the persona can know, say and reason.
    pub(super) struct CapabilityBounds {
        /// What the persona knows at most.
        knowledge_ceiling: Optional<String>,
        /// Which words the persona uses.
        vocabulary_level: Optional<String>,
        /// How the persona reasons.
        reasoning_style: Optional<String>,
    }

    /// How the persona's state moves.
    pub(super) struct Trajectory {
        /// What progress means.
        mode: Required<Mode>,
        /// How many turns the conversation has; needed by `fixed_length`, refused by `open_ended`.
        #[schemars(range(min = 1))]
        expected_turns: Optional<usize>,
        /// The dimensions of the state, by name.
        dimensions: Optional<OpenMap<Dimension>>,
        /// The phases, in order.
        phases: Optional<Vec<Located<Phase>>>,
    }

    /// One dimension of the persona's state.
    pub(super) struct Dimension {
        /// What it measures.
        description: Required<String>,
        /// How it shows in behaviour when low (below .3), medium, or high (from .7).
        levels: Optional<Levels>,
        /// How the value moves: a name, with the curve's settings as further keys; a mapping that holds them; or a list of
        /// points.
        curve: Required<Curve>,
        /// The value at the beginning.
        #[schemars(range(min = 0, max = 1))]
        start_value: Optional<f64>,
        /// The value at the end.
        #[schemars(range(min = 0, max = 1))]
        end_value: Optional<f64>,
        /// For `sigmoid`: where it is steepest, as a share of the conversation. Default 0.5.
        #[schemars(range(min = 0, max = 1))]
        midpoint_pct: Optional<f64>,
        /// For `delayed_ramp`: how long it stays at the start, as a share of the conversation.
        #[schemars(range(min = 0, max = 1))]
        delay_pct: Optional<f64>,
        /// For `step`: where it jumps, and to what.
        thresholds: Optional<Vec<Located<Point>>>,
        /// What the curve runs over: the whole `conversation`, or each `phase` anew. Default `conversation`.
        progress: Optional<CurveScope>,
        /// The lower bound. Default 0.
        #[schemars(range(min = 0, max = 1))]
        min_value: Optional<f64>,
        /// The upper bound, at most `safety.intensity_ceiling`. Default 0.9, or the ceiling where that is lower.
        #[schemars(range(min = 0, max = 1))]
        max_value: Optional<f64>,
    }

    /// How a dimension shows in behaviour.
    pub(super) struct Levels {
        /// Below .3.
        low: Optional<String>,
        /// From .3 to below .7.
        medium: Optional<String>,
        /// From .7.
        high: Optional<String>,
    }

    /// A curve with its settings inside.
    pub(super) struct CurveSettings {
        /// Its name.
        r#type: Required<CurveName>,
        /// The value at the beginning.
        #[schemars(range(min = 0, max = 1))]
        start_value: Optional<f64>,
        /// The value at the end.
        #[schemars(range(min = 0, max = 1))]
        end_value: Optional<f64>,
        /// For `sigmoid`: where it is steepest. Default 0.5.
        #[schemars(range(min = 0, max = 1))]
        midpoint_pct: Optional<f64>,
        /// For `delayed_ramp`: how long it stays at the start.
        #[schemars(range(min = 0, max = 1))]
        delay_pct: Optional<f64>,
        /// For `step`: where it jumps, and to what.
        thresholds: Optional<Vec<Located<Point>>>,
    }

    /// A point of a curve.
    pub(super) struct Point {
        /// Where, as a share of the conversation.
        #[schemars(range(min = 0, max = 1))]
        at: Required<f64>,
        /// The value there.
        #[schemars(range(min = 0, max = 1))]
        value: Required<f64>,
    }

    /// A part of the conversation with its own rules.
    pub(super) struct Phase {
        /// Its name.
        name: Required<String>,
        /// When it ends.
        end_condition: Required<EndCondition>,
        /// What must happen in it.
        requirements: Optional<Vec<Located<String>>>,
        /// What must not happen yet.
        forbidden: Optional<Vec<Located<String>>>,
        /// What the persona may bring up from here on.
        revelations: Optional<Vec<Located<Revelation>>>,
    }

    /// When a phase ends: `{type: pct, value}`, `{type: turn, value}`, or `{type: trigger}` with `phrase` or `regex`, with
    /// `dimension` and `at_least` or `at_most`, or with `monitor`.
    pub(super) struct EndCondition {
        /// The kind of end condition.
        r#type: Required<EndType>,
        /// For `pct`: the share of the conversation, up to 1. For `turn`: the turn, counted from 0, with which the next
        /// phase begins.
        #[schemars(range(min = 0))]
        value: Optional<f64>,
        /// For `trigger`: a phrase in the last messages.
        phrase: Optional<String>,
        /// For `trigger`: a regular expression over the last messages; case does not count.
        regex: Optional<String>,
        /// For `phrase` and `regex`: whose messages. Default `persona`.
        speaker: Optional<TriggerSpeaker>,
        /// For `trigger`: the dimension whose prescribed value is compared.
        dimension: Optional<String>,
        /// For `dimension`: the phase ends when the value is this or more.
        #[schemars(range(min = 0, max = 1))]
        at_least: Optional<f64>,
        /// For `dimension`: the phase ends when the value is this or less.
        #[schemars(range(min = 0, max = 1))]
        at_most: Optional<f64>,
        /// For `trigger`: the monitor whose first finding ends the phase, for example `stagnation`.
        monitor: Optional<String>,
        /// For `phrase` and `regex`: how many of the last messages are looked at. Default 1.
        #[schemars(range(min = 1))]
        window: Optional<usize>,
        /// For `trigger`: the phase ends after this many turns even without a match. Needed in `phase_gated`.
        #[schemars(range(min = 1))]
        max_turns: Optional<usize>,
    }

    /// A topic that the persona may bring up.
    pub(super) struct Revelation {
        /// Its name, unique over all phases.
        topic: Required<String>,
        /// The dimension that decides how directly it is told; the mean of all dimensions if absent.
        dimension: Optional<String>,
        /// What the persona says, by directness; at least one.
        variants: Required<Variants>,
    }

    /// What the persona says, by directness.
    pub(super) struct Variants {
        /// Below .3.
        subtle: Optional<String>,
        /// From .3 to below .7.
        moderate: Optional<String>,
        /// From .7.
        direct: Optional<String>,
    }

    /// How the conversation is held and watched.
    pub(super) struct Interaction {
        /// The interlocutor's first message, before the persona's first reply.
        opening: Optional<String>,
        /// Who speaks first when there is no opening. Default `persona`.
        first_speaker: Optional<Speaker>,
        /// The interlocutor's system prompt. Default: a plain helpful assistant's.
        target_prompt: Optional<String>,
        /// When instructions are repeated to the persona's model.
        injection: Optional<Injection>,
        /// How the persona resists persuasion.
        anti_capitulation: Optional<AntiCapitulation>,
        /// How long the persona's messages are.
        response_length: Optional<ResponseLength>,
        /// How many of the last turns a judge sees. Default 6.
        #[schemars(range(min = 1))]
        judge_window: Optional<usize>,
        /// Watches for agreement loops and dead air. On unless `enabled: false`.
        stagnation_detection: Optional<StagnationDetection>,
        /// Watches for formulaic messages. On unless `enabled: false`.
        repetition_detection: Optional<RepetitionDetection>,
        /// Checks for breakdowns of the persona. On unless `enabled: false`.
        breakdown_detection: Optional<BreakdownDetection>,
    }

    /// When instructions are repeated to the persona's model. Turns count from 0.
    pub(super) struct Injection {
        /// The full prompt is given at multiples of this many turns. Default 5.
        #[schemars(range(min = 1))]
        frequency: Optional<usize>,
        /// A lighter reminder is given every so many turns, except where the whole is. Never, if absent.
        #[schemars(range(min = 1))]
        reminder_frequency: Optional<usize>,
        /// The reminder. Knows `{name}`, `{turn}`, `{current_phase}`, `{next_unused_revelation}` and every dimension, for
        /// example `{belief_intensity:.2f}`.
        reminder_template: Optional<String>,
        /// Whether instructions are also given when the phase, a level or a topic changes. Without it the model keeps those
        /// of an earlier phase. Default true.
        on_change: Optional<bool>,
        /// How instructions reach the model after the first turn. Default `replace`.
        placement: Optional<Placement>,
    }

    /// How the persona resists persuasion.
    pub(super) struct AntiCapitulation {
        /// How strongly. Default `medium`.
        resistance_level: Optional<Level>,
        /// What to say instead of giving in.
        redirects: Optional<Vec<Located<Redirect>>>,
        /// Phrases that the persona must not say; typographic quotes count as plain ones.
        forbidden_phrases: Optional<Vec<Located<String>>>,
    }

    /// What to say instead of giving in.
    pub(super) struct Redirect {
        /// When.
        trigger: Required<String>,
        /// What to say.
        replacement: Required<String>,
    }

    /// How long the persona's messages are, in words for the prompt, such as "40-100 words".
    pub(super) struct ResponseLength {
        /// Where no phase says otherwise.
        default: Optional<String>,
        /// By the name of a phase.
        by_phase: Optional<OpenMap<String>>,
    }

    /// Watches for agreement loops and dead air.
    pub(super) struct StagnationDetection {
        /// Whether it watches at all. Default true.
        enabled: Optional<bool>,
        /// How many of the persona's last messages are compared. Default 6.
        #[schemars(range(min = 2))]
        window: Optional<usize>,
        /// Fires when they are more alike than this (mean TF-IDF cosine). Default 0.8.
        #[schemars(range(min = 0, max = 1))]
        similarity_threshold: Optional<f64>,
        /// Fires when the persona and the interlocutor are more alike than this. Default 0.75.
        #[schemars(range(min = 0, max = 1))]
        convergence_threshold: Optional<f64>,
        /// Fires when the share of new content words falls below this; 0 never does. Default 0.15.
        #[schemars(range(min = 0, max = 1))]
        novelty_threshold: Optional<f64>,
        /// Silent before this turn. Default 10.
        min_turn: Optional<usize>,
        /// The instruction given when it fires; takes the same placeholders as `reminder_template`.
        intervention_template: Optional<String>,
    }

    /// Watches for formulaic messages.
    pub(super) struct RepetitionDetection {
        /// Whether it watches at all. Default true.
        enabled: Optional<bool>,
        /// Texts that no message of the persona may hold.
        banned_patterns: Optional<Vec<Located<BannedPattern>>>,
        /// Habits that no run of messages may show.
        structural_patterns: Optional<Vec<Located<StructuralPattern>>>,
        /// How often the persona is asked again. Default 2.
        #[schemars(range(max = 10))]
        max_retries: Optional<usize>,
    }

    /// Checks for breakdowns of the persona: it talks like an assistant, speaks for both sides, narrates, leaks its
    /// instructions, refuses, changes the language, or falls silent.
    pub(super) struct BreakdownDetection {
        /// Whether it runs at all. Default true.
        enabled: Optional<bool>,
        /// The monitors that do not run, for example `narration`.
        off: Optional<Vec<Located<String>>>,
        /// The most redrafts of one message. Default 2.
        #[schemars(range(max = 10))]
        max_retries: Optional<usize>,
    }

    /// A regular expression.
    pub(super) struct RegexEntry {
        /// The expression; case does not count.
        regex: Required<String>,
    }

    /// How the run is scored.
    pub(super) struct Evaluation {
        /// The scores. One that is not named here is taken, on every turn.
        scoring: Optional<Scoring>,
        /// Rubrics besides these: names of shipped ones, or YAML files, relative to this file.
        rubrics: Optional<Vec<Located<String>>>,
        /// Who the interlocutor is.
        adversary: Optional<Adversary>,
    }

    /// The scores.
    pub(super) struct Scoring {
        /// Does the persona match its identity, bounds and speech?
        persona_adherence: Optional<Score>,
        /// Does expressed intensity match the prescribed one?
        trajectory_adherence: Optional<Score>,
        /// Is the persona neither evasive nor repetitive nor robotic?
        naturalness: Optional<Score>,
        /// Is there an agreement loop, or dead air?
        stagnation: Optional<Score>,
        /// Does the model follow its instructions?
        fidelity: Optional<Score>,
    }

    /// One score.
    pub(super) struct Score {
        /// Whether it is taken. Default true.
        enabled: Optional<bool>,
        /// On which share of the turns. Default 1.
        #[schemars(range(min = 0, max = 1))]
        sample_rate: Optional<f64>,
        /// What the judge is asked.
        description: Optional<String>,
    }

    /// Who the interlocutor is.
    pub(super) struct Adversary {
        /// The kind. Default `none`: the model under test.
        r#type: Optional<AdversaryKind>,
        /// Its model, as a model spec such as `bundled` or `anthropic/NAME`; several with commas are a fallback chain.
        model: Optional<String>,
    }

    /// What the persona must never do.
    pub(super) struct Safety {
        /// No dimension exceeds it. Default 0.9.
        #[schemars(range(min = 0, max = 1))]
        intensity_ceiling: Optional<f64>,
        /// Content that is never simulated.
        forbidden_simulation_content: Optional<Vec<Located<String>>>,
        /// What the persona does at the ceiling.
        escalation_policy: Optional<String>,
        /// What the author wants every reader to know of the persona.
        persona_safety_note: Optional<String>,
    }

    /// Modulation of Δ. `policy: fixed` needs `gains` or `file`; `trajectory` needs `dimension`, `low` and `high`; `regulator`
    /// nothing.
    pub(super) struct Delta {
        /// How the gains are chosen.
        policy: Required<DeltaPolicyName>,
        /// For `fixed`: the gains, one mapping for all layers or a list with one per layer.
        gains: Optional<GainsEntry>,
        /// For `fixed`, in place of `gains`: a file that `loom delta calibrate` wrote for the persona's model. A relative path
        /// starts at this file's folder.
        file: Optional<String>,
        /// For `trajectory`: the dimension that moves the gains.
        dimension: Optional<String>,
        /// For `trajectory`: the gains at the dimension's minimum.
        low: Optional<Gains>,
        /// For `trajectory`: the gains at the dimension's maximum; linear between.
        high: Optional<Gains>,
        /// For `trajectory`: the layers acted on, counted from 0; all if absent.
        layers: Optional<Vec<Located<usize>>>,
        /// For `regulator`: how strongly each signal acts.
        strengths: Optional<Strengths>,
        /// For `regulator`: what no gain leaves.
        bounds: Optional<Bounds>,
    }

    /// How strongly the regulator's signals act on Δ: each is ± the logarithm of a factor on the last layer's gain where the
    /// signal is full. 0 is no effect; a negative one turns the effect round.
    pub(super) struct Strengths {
        /// Entropy that rises within the reply, and corrections: ln of the factor on writing. Default 0.15.
        #[schemars(range(min = -3, max = 3))]
        trajectory_write: Optional<f64>,
        /// The same: ln of the factor on forgetting. Default 0.1.
        #[schemars(range(min = -3, max = 3))]
        trajectory_decay: Optional<f64>,
        /// A budget that is used up: minus ln of the factor on writing. Default 0.1.
        #[schemars(range(min = -3, max = 3))]
        budget_write: Optional<f64>,
        /// No confidence at all: minus ln of the factor on forgetting. Default 0.15.
        #[schemars(range(min = -3, max = 3))]
        doubt_decay: Optional<f64>,
    }

    /// What no gain leaves.
    pub(super) struct Bounds {
        /// The lowest gain. Default 0.8.
        #[schemars(range(min = 0, max = 1))]
        min: Optional<f64>,
        /// The highest gain. Default 1.25.
        #[schemars(range(min = 1, max = 100))]
        max: Optional<f64>,
    }

    /// The gains of a layer; 1 changes nothing.
    pub(super) struct Gains {
        /// On both effects of Δ. Default 1.
        #[schemars(range(min = 0, max = 100))]
        delta: Optional<f64>,
        /// On forgetting only. Default 1.
        #[schemars(range(min = 0, max = 100))]
        decay: Optional<f64>,
        /// On writing only. Default 1.
        #[schemars(range(min = 0, max = 100))]
        write: Optional<f64>,
    }
}

// A field called `value` hides behind that of `Located`.
impl Point {
    pub(super) fn value(&self) -> Option<&Located<f64>> {
        self.value.as_ref()
    }
}

impl EndCondition {
    pub(super) fn value(&self) -> Option<&Located<f64>> {
        self.value.as_ref()
    }
}
