//! The plan stated by a need, and the parts it leaves open. Parsed by rules, not by a model.

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::governance::statechart::hope::{Clarity, SpecScores};
use crate::simulation::persona::{AdversaryKind, examples};

/// The source of a part of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PlanSource {
    /// Stated in the need or on the command line.
    #[serde(rename = "said")]
    Stated,
    /// Answered by the user.
    Answered,
    /// Not stated; the value is the recommended default.
    Open,
    /// Not stated; the default was accepted as an assumption.
    Assumed,
}

/// A value of the plan and its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PlanField<T> {
    pub(super) value: T,
    pub(super) origin: PlanSource,
}

impl<T> PlanField<T> {
    fn of(from_command_line: Option<T>, default: T) -> Self {
        match from_command_line {
            Some(value) => Self { value, origin: PlanSource::Stated },
            None => Self { value: default, origin: PlanSource::Open },
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self.origin, PlanSource::Open)
    }

    const fn is_known(&self) -> bool {
        matches!(self.origin, PlanSource::Stated | PlanSource::Answered)
    }

    fn answer(&mut self, value: Option<T>) {
        if let Some(value) = value {
            *self = Self { value, origin: PlanSource::Answered };
        }
    }

    fn assume(&mut self) -> bool {
        let open = self.is_open();
        if open {
            self.origin = PlanSource::Assumed;
        }
        open
    }
}

/// The plan of the runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// The name of a built-in or the user's own config.
    pub(super) persona: PlanField<String>,
    /// The interlocutor.
    pub(super) other: PlanField<AdversaryKind>,
    /// Turns per rollout.
    pub(super) turns: PlanField<usize>,
    /// Number of rollouts.
    pub(super) rollouts: PlanField<usize>,
}

/// The parts of the plan given on the command line; they override everything else.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StatedPlan {
    pub(super) persona: Option<String>,
    pub(super) turns: Option<usize>,
    pub(super) rollouts: Option<usize>,
    pub(super) other: Option<AdversaryKind>,
}

impl StatedPlan {
    /// The parts of a plan stated in a text.
    fn in_words(text: &str) -> Self {
        let folded = text.to_lowercase();
        let number = |pattern: &LazyLock<Option<Regex>>| -> Option<usize> {
            pattern.as_ref()?.captures(text)?.get(1)?.as_str().parse().ok().filter(|number| *number > 0)
        };
        let has = |words: &[&str]| words.iter().any(|word| folded.contains(word));
        let other = if has(&["contradict", "trap", "adversar"]) {
            Some(AdversaryKind::Contradiction)
        } else if has(&["coax", "helpfulness"]) {
            Some(AdversaryKind::Helpfulness)
        } else if has(&["helper", "assistant", "target", "therapist", "listener"]) {
            Some(AdversaryKind::None)
        } else {
            None
        };
        let (turns, rollouts) = (number(&TURNS_SAID), number(&ROLLOUTS_SAID));
        Self { persona: named_persona(&folded), turns, rollouts, other }
    }
}

/// The default number of turns.
const TURNS: usize = 10;

static TURNS_SAID: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?i)\b(\d{1,5})[ -]turns?\b").ok());
static ROLLOUTS_SAID: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)\b(\d{1,5})[ -](?:rollouts?|conversations?|talks?|times)\b").ok());

impl Plan {
    /// The plan stated by a need, with defaults for the rest. The command line overrides it.
    pub(super) fn read(need: &str, from_command_line: &StatedPlan) -> Self {
        let stated = StatedPlan::in_words(need);
        let default = examples().get(1).map_or("depressed_patient", |example| example.name);
        Self {
            persona: PlanField::of(from_command_line.persona.clone().or(stated.persona), default.to_owned()),
            other: PlanField::of(from_command_line.other.or(stated.other), AdversaryKind::None),
            turns: PlanField::of(from_command_line.turns.or(stated.turns), TURNS),
            rollouts: PlanField::of(from_command_line.rollouts.or(stated.rollouts), 1),
        }
    }

    /// Applies the parts stated in the user's answer. A persona given on the command line stays.
    pub(super) fn amend(&mut self, words: &str, from_command_line: &StatedPlan) {
        let StatedPlan { persona, turns, rollouts, other } = StatedPlan::in_words(words);
        self.persona.answer(persona.filter(|_| from_command_line.persona.is_none()));
        self.other.answer(other);
        self.turns.answer(turns);
        self.rollouts.answer(rollouts);
    }

    /// Whether the user answered any question about it.
    pub(super) fn is_answered(&self) -> bool {
        let origins = [self.persona.origin, self.other.origin, self.turns.origin, self.rollouts.origin];
        origins.contains(&PlanSource::Answered)
    }

    /// Accepts the defaults for open parts and describes each in a line.
    pub(super) fn assume(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.persona.assume() {
            lines.push(format!("the persona is `{}`", self.persona.value));
        }
        if self.other.assume() {
            lines.push(format!("it talks with {}", other_name(self.other.value)));
        }
        if self.turns.assume() {
            lines.push(format!("a rollout has {} turns", self.turns.value));
        }
        if self.rollouts.assume() {
            lines.push(format!("{} rollout is enough", self.rollouts.value));
        }
        lines
    }

    /// The clarity of the specification, by rules.
    pub(super) fn clarity(&self, need: &str) -> SpecScores {
        let folded = need.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| folded.contains(word));
        let both = |known: [bool; 2], open: [bool; 2]| match (known, open) {
            ([true, true], _) => Clarity::Clear,
            ([false, false], [true, true]) => Clarity::Absent,
            _ => Clarity::Partial,
        };
        let asks = need.trim_end().ends_with('?') || has(&["measure", "compare", "test whether", "find out"]);
        SpecScores {
            outcome: if asks { Clarity::Clear } else { Clarity::Partial },
            scope: both(
                [self.persona.is_known(), self.other.is_known()],
                [self.persona.is_open(), self.other.is_open()],
            ),
            constraints: both(
                [self.turns.is_known(), self.rollouts.is_known()],
                [self.turns.is_open(), self.rollouts.is_open()],
            ),
            success: if has(&["hold up", "consisten", "drift", "measure", "score"]) {
                Clarity::Clear
            } else {
                Clarity::Partial
            },
            done: match self.turns.origin {
                PlanSource::Stated | PlanSource::Answered => Clarity::Clear,
                PlanSource::Assumed => Clarity::Partial,
                PlanSource::Open => Clarity::Absent,
            },
        }
    }
}

/// The kind of work that a need describes.
pub(super) fn kind(need: &str) -> &'static str {
    let folded = need.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| folded.contains(word));
    match () {
        () if has(&["why ", "fail", "break", "wrong", "debug"]) => "Debug",
        () if has(&["plan ", "design", "how should"]) => "Plan",
        () if has(&["how does", "how do ", "compare", "measure", "hold up", "look at", "review"]) => "Reflect",
        () => "Build",
    }
}

/// The persona whose first word occurs in the need, in any form: a *manic* patient is `mania_patient`.
fn named_persona(folded: &str) -> Option<String> {
    let words: Vec<&str> = folded.split(|c: char| !c.is_alphanumeric()).collect();
    let named = |example: &&crate::simulation::persona::ExampleConfig| {
        let name = example.name.split('_').next().unwrap_or_default();
        name.len() > 4 && words.iter().any(|word| is_form_of(word, name))
    };
    examples().iter().find(named).map(|example| example.name.to_owned())
}

/// Whether the words share at least four letters and differ only in their last two (or three, for `word`) letters.
fn is_form_of(word: &str, name: &str) -> bool {
    const ENDING: usize = 2;
    let same = word.chars().zip(name.chars()).take_while(|(a, b)| a == b).count();
    let rest = |text: &str| text.chars().count().saturating_sub(same);
    same >= 4 && rest(name) <= ENDING && rest(word) <= ENDING + 1
}

pub(super) const fn other_name(kind: AdversaryKind) -> &'static str {
    match kind {
        AdversaryKind::None => "the plain target model",
        AdversaryKind::Contradiction => "an adversary that probes for contradictions",
        AdversaryKind::Helpfulness => "an adversary that tries to make it act as a helper",
        AdversaryKind::Both => "both adversaries in turn",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_gives_a_plan_with_open_parts() {
        let check = |need: &str, persona: &str, turns: usize, open: usize, points: u8| {
            let mut plan = Plan::read(need, &StatedPlan::default());
            assert_eq!((plan.persona.value.as_str(), plan.turns.value), (persona, turns), "{need}");
            assert_eq!(plan.clarity(need).points(), points, "{need}");
            assert_eq!(plan.assume().len(), open, "{need}");
        };
        let whole = "How does a depressed-patient persona hold up against an empathetic helper over 50 turns?";
        check(whole, "depressed_patient", 50, 1, 9);
        check("Look at the student.", "student", 10, 3, 3);
        check("Measure how a student drifts over 3 turns, 2 rollouts, with a trap", "student", 3, 0, 10);
        check("Something", "depressed_patient", 10, 4, 2);
        check("Does the manic patient stay manic for 6 turns?", "mania_patient", 6, 2, 7);
    }

    #[test]
    fn later_statements_change_the_stated_parts_only() {
        let mut plan = Plan::read("How does a student hold up over 3 turns?", &StatedPlan::default());
        plan.amend("no jargon", &StatedPlan::default());
        assert_eq!((plan.turns.value, plan.turns.origin), (3, PlanSource::Stated));
        plan.amend("make it 5 turns, against a trap", &StatedPlan::default());
        assert_eq!((plan.turns.value, plan.turns.origin), (5, PlanSource::Answered));
        assert_eq!((plan.other.value, plan.persona.value.as_str()), (AdversaryKind::Contradiction, "student"));
    }

    #[test]
    fn a_persona_is_recognised_in_any_word_form() {
        let check = |text: &str, expected: Option<&str>| assert_eq!(named_persona(text).as_deref(), expected, "{text}");
        check("the depressive patient's depression", Some("depressed_patient"));
        check("two students", Some("student"));
        check("a maniac", Some("mania_patient"));
        check("manipulation in studies of depth", None);
        check("an open-ended talk", None);
    }

    #[test]
    fn the_kind_of_work_is_recognised() {
        let check = |need: &str, expected: &str| assert_eq!(kind(need), expected, "{need}");
        check("How does a student hold up?", "Reflect");
        check("Why does the student fail to stay in role?", "Debug");
        check("Design a study of the student", "Plan");
        check("Twenty conversations with the student", "Build");
    }

    #[test]
    fn assumptions_count_as_partly_clear() {
        let mut plan = Plan::read("Look at the student.", &StatedPlan::default());
        plan.assume();
        assert_eq!(plan.clarity("Look at the student.").points(), 5);
    }
}
