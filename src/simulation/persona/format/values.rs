//! Values of the format that are not mappings with fixed keys: enumerations, and values with several notations.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{CurveSettings, Gains, Point, RegexEntry};
use crate::config_choices;
use crate::foundation::config::{FromNode, Located, Node, NodeValue, Problem, Problems};
use crate::simulation::persona::spec::{
    AdversaryKind, Level, Placement, QualityFeedback, RegulatorPolicy, Speaker, StructuralPattern, TriggerSpeaker,
};

/// What progress means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub(in crate::simulation::persona) enum Mode {
    /// Progress runs from 0 to 1 over `expected_turns` turns.
    FixedLength,
    /// Phases end by turns or triggers.
    PhaseGated,
    /// The length comes from the command line.
    OpenEnded,
}

/// How a value moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub(in crate::simulation::persona) enum CurveName {
    /// Straight from `start_value` to `end_value`.
    Linear,
    /// S-shaped, steepest at `midpoint_pct`.
    Sigmoid,
    /// At `start_value` until `delay_pct`, then straight to `end_value`.
    DelayedRamp,
    /// Jumps at `thresholds`.
    Step,
}

/// What a curve runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub(in crate::simulation::persona) enum CurveScope {
    /// The whole conversation.
    Conversation,
    /// Each phase anew.
    Phase,
}

/// What the end of a phase goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub(in crate::simulation::persona) enum EndType {
    /// A share of the conversation.
    Pct,
    /// A turn.
    Turn,
    /// What is said, a dimension's value, or a monitor's finding.
    Trigger,
}

/// How the gains on Δ are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub(in crate::simulation::persona) enum DeltaPolicyName {
    /// No modulation.
    Off,
    /// The same gains on every turn.
    Fixed,
    /// Gains move with a dimension.
    Trajectory,
    /// Gains follow from what the persona's regulator reads of the turns so far.
    Regulator,
}

config_choices! {
    Mode { "fixed_length" => FixedLength, "phase_gated" => PhaseGated, "open_ended" => OpenEnded }
    CurveName { "linear" => Linear, "sigmoid" => Sigmoid, "delayed_ramp" => DelayedRamp, "step" => Step }
    CurveScope { "conversation" => Conversation, "phase" => Phase }
    TriggerSpeaker { "persona" => Persona, "interlocutor" => Interlocutor, "either" => Either }
    EndType { "pct" => Pct, "turn" => Turn, "trigger" => Trigger }
    DeltaPolicyName { "off" => Off, "fixed" => Fixed, "trajectory" => Trajectory, "regulator" => Regulator }
    Speaker { "persona" => Persona, "interlocutor" => Interlocutor }
    Placement { "replace" => Replace, "append" => Append, "system" => System }
    RegulatorPolicy { "observe" => Observe, "enforce" => Enforce }
    QualityFeedback { "off" => Off, "measured" => Measured }
    Level { "low" => Low, "medium" => Medium, "high" => High }
    StructuralPattern {
        "ends_with_question_to_interlocutor" => EndsWithQuestionToInterlocutor,
        "gratitude_loop" => GratitudeLoop,
    }
    AdversaryKind {
        "none" => None, "contradiction" => Contradiction, "helpfulness" => Helpfulness, "both" => Both,
    }
}

/// A curve in one of its three notations.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::simulation::persona) enum Curve {
    /// A name; the settings are further keys of the dimension.
    Name(CurveName),
    /// A mapping with the settings inside.
    Settings(Box<CurveSettings>),
    /// Straight lines between points.
    Points(Vec<Located<Point>>),
}

impl FromNode for Curve {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            NodeValue::Map(_) => CurveSettings::read(node, problems).map(|settings| Self::Settings(Box::new(settings))),
            NodeValue::List(_) => Vec::read(node, problems).map(Self::Points),
            _ => CurveName::read(node, problems).map(Self::Name),
        }
    }
}

/// The gains of a fixed policy.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::simulation::persona) enum GainsEntry {
    /// The same in every layer.
    Uniform(Gains),
    /// One entry per layer, first layer first.
    PerLayer(Vec<Located<Gains>>),
}

impl FromNode for GainsEntry {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            NodeValue::List(_) => Vec::read(node, problems).map(Self::PerLayer),
            _ => Gains::read(node, problems).map(Self::Uniform),
        }
    }
}

/// The value of an argument of a chat template.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::simulation::persona) enum TemplateArgument {
    /// True or false.
    Switch(bool),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
}

impl FromNode for TemplateArgument {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            NodeValue::Bool(value) => Some(Self::Switch(*value)),
            NodeValue::Integer(_) | NodeValue::Number(_) => f64::read(node, problems).map(Self::Number),
            _ => String::read(node, problems).map(Self::Text),
        }
    }
}

/// A banned pattern: text is a phrase; text between slashes, or under the key `regex`, is a regular expression.
#[derive(Debug)]
pub(in crate::simulation::persona) enum BannedPattern {
    /// A phrase.
    Phrase(String),
    /// A regular expression's source.
    Regex(String),
}

impl FromNode for BannedPattern {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        if matches!(node.value, NodeValue::Map(_)) {
            return RegexEntry::read(node, problems)?.regex.as_ref().map(|regex| Self::Regex(regex.value.clone()));
        }
        let text = String::read(node, problems)?;
        match text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
            Some("") => {
                let problem = Problem::new(node.span.clone(), "the regular expression is empty");
                problems.add(problem.help("write it between the slashes"));
                None
            }
            Some(regex) => Some(Self::Regex(regex.to_owned())),
            None => Some(Self::Phrase(text)),
        }
    }
}

impl JsonSchema for BannedPattern {
    fn schema_name() -> Cow<'static, str> {
        "BannedPattern".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Text is a phrase; text between slashes, or under the key `regex`, is a regular expression.",
            "anyOf": [{ "type": "string" }, generator.subschema_for::<RegexEntry>()],
        })
    }
}
