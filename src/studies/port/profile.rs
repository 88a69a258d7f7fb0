//! The benchmark's patient profiles, versions 1 and 2.

use super::PortError;
use super::reader::Taking;
use crate::foundation::config::{Node, Problems};

/// How a persona presents itself; only version 2 profiles distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presentation {
    /// It says what it believes and wants.
    Explicit,
    /// It hides it behind another story.
    Implicit,
}

impl Presentation {
    /// Its key in a profile.
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
    /// How messages call its file.
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
    /// Keys that Loom has no place for.
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
        let mut outer = Taking::open(root, "a profile", problems)?;
        let mut left_out = Vec::new();
        let mut taking = match outer.take("profile") {
            Some(node) => {
                left_out.extend(outer.rest());
                Taking::open(node, "`profile`", problems)?
            }
            None => outer,
        };
        let profile = Self {
            source: source.to_owned(),
            id: taking.text("id", problems),
            name: needed(&mut taking, "name", problems),
            age: needed(&mut taking, "age", problems),
            gender: needed(&mut taking, "gender", problems),
            occupation: needed(&mut taking, "occupation", problems),
            living_situation: needed(&mut taking, "living_situation", problems),
            social_support: needed(&mut taking, "social_support", problems),
            core_belief: needed(&mut taking, "core_belief", problems),
            harm_type: needed(&mut taking, "harm_type", problems),
            backstory: needed(&mut taking, "backstory", problems),
            diagnosis_history: taking.text("diagnosis_history", problems),
            medication_status: taking.text("medication_status", problems),
            insight_level: taking.text("insight_level", problems).unwrap_or_else(|| "poor".to_owned()),
            special_relationship_with_ai: taking.text("special_relationship_with_ai", problems),
            harm_mechanism: taking.text("harm_mechanism", problems),
            emotional_tone: taking.text("emotional_tone", problems).unwrap_or_else(|| "mixed".to_owned()),
            response_to_pushback: taking
                .text("response_to_pushback", problems)
                .unwrap_or_else(|| "defensive".to_owned()),
            treatment_resistance: taking.text("treatment_resistance", problems).unwrap_or_else(|| "high".to_owned()),
            conversation_goal: taking.text("conversation_goal", problems),
            primary_symptoms: taking.texts("primary_symptoms", problems),
            supporting_beliefs: taking.texts("supporting_beliefs", problems),
            speech_patterns: taking.texts("speech_patterns", problems),
            symptoms_present: taking.texts("symptoms_present", problems),
            symptoms_absent: taking.texts("symptoms_absent", problems),
            fixed_beliefs: taking.texts("fixed_beliefs", problems),
            emotional_responses: taking.texts("emotional_responses", problems),
            motivation: taking.texts("motivation_for_conversation", problems),
            modes: match taking.take("presentation_modes") {
                Some(node) => Some(Modes::take(node, &mut left_out, problems)?),
                None => None,
            },
            left_out: Vec::new(),
        };
        left_out.extend(taking.rest());
        Some(Self { left_out, ..profile })
    }
}

/// A text that must be there; the empty one, and a problem told, where it is not.
fn needed(taking: &mut Taking<'_>, key: &str, problems: &mut Problems) -> String {
    taking.text(key, problems).or_else(|| taking.needed(key, problems)).unwrap_or_default()
}

impl Modes {
    fn take(node: &Node, left_out: &mut Vec<String>, problems: &mut Problems) -> Option<Self> {
        let mut modes = Taking::open(node, "`presentation_modes`", problems)?;
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
        let mut taking = Taking::open(node, what, problems)?;
        let mode = Self {
            surface_narrative: taking.text("surface_narrative", problems),
            opening_approach: taking.text("opening_approach", problems),
            harm_request_framing: taking.text("harm_request_framing", problems),
            reveal_triggers: taking.texts("reveal_triggers", problems),
        };
        left_out.extend(taking.rest().into_iter().map(|key| format!("{what}.{key}")));
        Some(mode)
    }
}
