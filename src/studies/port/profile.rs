//! The benchmark's patient profiles, versions 1 and 2.

use super::PortError;
use super::reader::FieldReader;
use crate::foundation::config::{Node, Problems};

/// How a persona presents itself; only in version 2 profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presentation {
    /// It states its beliefs and goals.
    Explicit,
    /// It hides them behind another story.
    Implicit,
}

impl Presentation {
    /// The key in a profile.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::Implicit => "implicit",
        }
    }
}

/// A profile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Profile {
    /// The file's name in messages.
    pub(super) source: String,
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) age: String,
    pub(super) gender: String,
    pub(super) occupation: String,
    pub(super) living_situation: String,
    pub(super) social_support: String,
    pub(super) core_belief: String,
    pub(super) harm_type: String,
    pub(super) backstory: String,
    pub(super) diagnosis_history: Option<String>,
    pub(super) medication_status: Option<String>,
    pub(super) insight_level: String,
    pub(super) special_relationship_with_ai: Option<String>,
    pub(super) harm_mechanism: Option<String>,
    pub(super) emotional_tone: String,
    pub(super) response_to_pushback: String,
    pub(super) treatment_resistance: String,
    pub(super) conversation_goal: Option<String>,
    pub(super) primary_symptoms: Vec<String>,
    pub(super) supporting_beliefs: Vec<String>,
    pub(super) speech_patterns: Vec<String>,
    pub(super) symptoms_present: Vec<String>,
    pub(super) symptoms_absent: Vec<String>,
    pub(super) fixed_beliefs: Vec<String>,
    pub(super) emotional_responses: Vec<String>,
    pub(super) motivation: Vec<String>,
    /// Absent in version 1.
    pub(super) modes: Option<Modes>,
    /// Keys that Loom does not use.
    pub(super) left_out: Vec<String>,
}

/// The two presentations of a version 2 profile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Modes {
    pub(super) explicit: Mode,
    pub(super) implicit: Mode,
}

/// One presentation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mode {
    pub(super) surface_narrative: Option<String>,
    pub(super) opening_approach: Option<String>,
    pub(super) harm_request_framing: Option<String>,
    pub(super) reveal_triggers: Vec<String>,
}

impl Profile {
    pub(super) fn read(source: &str, text: &str) -> Result<Self, PortError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let root = Node::parse(source, text)?;
        let mut problems = Problems::new(text);
        let profile = Self::take(&root, source, &mut problems);
        Ok(problems.finish(source, profile)?)
    }

    fn take(root: &Node, source: &str, problems: &mut Problems) -> Option<Self> {
        let mut outer = FieldReader::open(root, "a profile", problems)?;
        let mut left_out = Vec::new();
        let mut fields = match outer.take("profile") {
            Some(node) => {
                left_out.extend(outer.rest());
                FieldReader::open(node, "`profile`", problems)?
            }
            None => outer,
        };
        let profile = Self {
            source: source.to_owned(),
            id: fields.text("id", problems),
            name: required(&mut fields, "name", problems),
            age: required(&mut fields, "age", problems),
            gender: required(&mut fields, "gender", problems),
            occupation: required(&mut fields, "occupation", problems),
            living_situation: required(&mut fields, "living_situation", problems),
            social_support: required(&mut fields, "social_support", problems),
            core_belief: required(&mut fields, "core_belief", problems),
            harm_type: required(&mut fields, "harm_type", problems),
            backstory: required(&mut fields, "backstory", problems),
            diagnosis_history: fields.text("diagnosis_history", problems),
            medication_status: fields.text("medication_status", problems),
            insight_level: fields.text("insight_level", problems).unwrap_or_else(|| "poor".to_owned()),
            special_relationship_with_ai: fields.text("special_relationship_with_ai", problems),
            harm_mechanism: fields.text("harm_mechanism", problems),
            emotional_tone: fields.text("emotional_tone", problems).unwrap_or_else(|| "mixed".to_owned()),
            response_to_pushback: fields
                .text("response_to_pushback", problems)
                .unwrap_or_else(|| "defensive".to_owned()),
            treatment_resistance: fields.text("treatment_resistance", problems).unwrap_or_else(|| "high".to_owned()),
            conversation_goal: fields.text("conversation_goal", problems),
            primary_symptoms: fields.texts("primary_symptoms", problems),
            supporting_beliefs: fields.texts("supporting_beliefs", problems),
            speech_patterns: fields.texts("speech_patterns", problems),
            symptoms_present: fields.texts("symptoms_present", problems),
            symptoms_absent: fields.texts("symptoms_absent", problems),
            fixed_beliefs: fields.texts("fixed_beliefs", problems),
            emotional_responses: fields.texts("emotional_responses", problems),
            motivation: fields.texts("motivation_for_conversation", problems),
            modes: match fields.take("presentation_modes") {
                Some(node) => Some(Modes::take(node, &mut left_out, problems)?),
                None => None,
            },
            left_out: Vec::new(),
        };
        left_out.extend(fields.rest());
        Some(Self { left_out, ..profile })
    }
}

/// A required text. If it is missing, reports a problem and returns an empty text.
fn required(fields: &mut FieldReader<'_>, key: &str, problems: &mut Problems) -> String {
    fields.text(key, problems).or_else(|| fields.required(key, problems)).unwrap_or_default()
}

impl Modes {
    fn take(node: &Node, left_out: &mut Vec<String>, problems: &mut Problems) -> Option<Self> {
        let mut modes = FieldReader::open(node, "`presentation_modes`", problems)?;
        let mut mode = |key| match modes.take(key) {
            Some(node) => Mode::take(node, key, left_out, problems),
            None => Some(Mode::default()),
        };
        let (explicit, implicit) = (mode("explicit")?, mode("implicit")?);
        left_out.extend(modes.rest());
        Some(Self { explicit, implicit })
    }
}

impl Mode {
    fn take(node: &Node, what: &str, left_out: &mut Vec<String>, problems: &mut Problems) -> Option<Self> {
        let mut fields = FieldReader::open(node, what, problems)?;
        let mode = Self {
            surface_narrative: fields.text("surface_narrative", problems),
            opening_approach: fields.text("opening_approach", problems),
            harm_request_framing: fields.text("harm_request_framing", problems),
            reveal_triggers: fields.texts("reveal_triggers", problems),
        };
        left_out.extend(fields.rest().into_iter().map(|key| format!("{what}.{key}")));
        Some(mode)
    }
}
