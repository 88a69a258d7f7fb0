//! What a need says, and what it leaves open. Read by rule, not by a model.

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::governance::statechart::hope::{Clarity, SpecScores};
use crate::simulation::persona::{AdversaryKind, examples};

/// Where a part of the plan is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Origin {
    /// The need or the command line says so.
    Said,
    /// The user answered so.
    Answered,
    /// Nobody said it yet; the value is the recommended default.
    Open,
    /// The default was taken.
    Assumed,
}

/// A part of the plan and where it is from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part<T> {
    pub(super) value: T,
    pub(super) origin: Origin,
}

impl<T> Part<T> {
    fn of(said: Option<T>, default: T) -> Self {
        match said {
            Some(value) => Self { value, origin: Origin::Said },
            None => Self { value: default, origin: Origin::Open },
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self.origin, Origin::Open)
    }

    const fn is_known(&self) -> bool {
        matches!(self.origin, Origin::Said | Origin::Answered)
    }

    fn answer(&mut self, value: Option<T>) {
        if let Some(value) = value {
            *self = Self { value, origin: Origin::Answered };
        }
    }

    fn assume(&mut self) -> bool {
        let open = self.is_open();
        if open {
            self.origin = Origin::Assumed;
        }
        open
    }
}

/// What will be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// The persona: the name of a config that comes with the program, or of the user's own.
    pub(super) persona: Part<String>,
    /// Who it talks with.
    pub(super) other: Part<AdversaryKind>,
    /// Turns of a rollout.
    pub(super) turns: Part<usize>,
    /// Rollouts.
    pub(super) rollouts: Part<usize>,
}

/// What the command line says of the plan; it has the last word.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Said {
    pub(super) persona: Option<String>,
    pub(super) turns: Option<usize>,
    pub(super) rollouts: Option<usize>,
    pub(super) other: Option<AdversaryKind>,
}

impl Said {
    /// What a text says of a plan.
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

/// Turns where nothing is said of them.
const TURNS: usize = 10;

static TURNS_SAID: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?i)\b(\d{1,5})[ -]turns?\b").ok());
static ROLLOUTS_SAID: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)\b(\d{1,5})[ -](?:rollouts?|conversations?|talks?|times)\b").ok());

impl Plan {
    /// The plan that a need states, with defaults for the rest. The command line has the last word.
    pub(super) fn read(need: &str, said: &Said) -> Self {
        let stated = Said::in_words(need);
        let default = examples().get(1).map_or("depressed_patient", |example| example.name);
        Self {
            persona: Part::of(said.persona.clone().or(stated.persona), default.to_owned()),
            other: Part::of(said.other.or(stated.other), AdversaryKind::None),
            turns: Part::of(said.turns.or(stated.turns), TURNS),
            rollouts: Part::of(said.rollouts.or(stated.rollouts), 1),
        }
    }

    /// Takes over what the user's words say of the plan now; a config that was named stays.
    pub(super) fn amend(&mut self, words: &str, said: &Said) {
        let Said { persona, turns, rollouts, other } = Said::in_words(words);
        self.persona.answer(persona.filter(|_| said.persona.is_none()));
        self.other.answer(other);
        self.turns.answer(turns);
        self.rollouts.answer(rollouts);
    }

    /// Whether the user answered a question on it.
    pub(super) fn is_answered(&self) -> bool {
        let origins = [self.persona.origin, self.other.origin, self.turns.origin, self.rollouts.origin];
        origins.contains(&Origin::Answered)
    }

    /// Takes the defaults for what is open: a line for each.
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

    /// How clear the specification is, by rule.
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
                Origin::Said | Origin::Answered => Clarity::Clear,
                Origin::Assumed => Clarity::Partial,
                Origin::Open => Clarity::Absent,
            },
        }
    }
}

/// What kind of work a need asks for.
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

/// The persona whose first word stands in the need, whatever its ending: a *manic* patient is `mania_patient`.
fn named_persona(folded: &str) -> Option<String> {
    let words: Vec<&str> = folded.split(|c: char| !c.is_alphanumeric()).collect();
    let named = |example: &&crate::simulation::persona::Example| {
        let name = example.name.split('_').next().unwrap_or_default();
        name.len() > 4 && words.iter().any(|word| is_form_of(word, name))
    };
    examples().iter().find(named).map(|example| example.name.to_owned())
}

/// Whether `word` differs from `name` in at most the last two letters of either, and so that four are the same.
fn is_form_of(word: &str, name: &str) -> bool {
    const ENDING: usize = 2;
    let same = word.chars().zip(name.chars()).take_while(|(a, b)| a == b).count();
    let rest = |text: &str| text.chars().count().saturating_sub(same);
    same >= 4 && rest(name) <= ENDING && rest(word) <= ENDING + 1
}

pub(super) const fn other_name(kind: AdversaryKind) -> &'static str {
    match kind {
        AdversaryKind::None => "the target as it is",
        AdversaryKind::Contradiction => "an adversary that probes for contradictions",
        AdversaryKind::Helpfulness => "an adversary that coaxes it into helping",
        AdversaryKind::Both => "both adversaries in turn",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_is_read_and_what_it_leaves_open_is_known() {
        let check = |need: &str, persona: &str, turns: usize, open: usize, points: u8| {
            let mut plan = Plan::read(need, &Said::default());
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
    fn what_the_user_says_later_changes_the_plan_and_nothing_else() {
        let mut plan = Plan::read("How does a student hold up over 3 turns?", &Said::default());
        plan.amend("no jargon", &Said::default());
        assert_eq!((plan.turns.value, plan.turns.origin), (3, Origin::Said));
        plan.amend("make it 5 turns, against a trap", &Said::default());
        assert_eq!((plan.turns.value, plan.turns.origin), (5, Origin::Answered));
        assert_eq!((plan.other.value, plan.persona.value.as_str()), (AdversaryKind::Contradiction, "student"));
    }

    #[test]
    fn a_persona_is_named_in_any_of_its_forms() {
        let check = |text: &str, expected: Option<&str>| assert_eq!(named_persona(text).as_deref(), expected, "{text}");
        check("the depressive patient's depression", Some("depressed_patient"));
        check("two students", Some("student"));
        check("a maniac", Some("mania_patient"));
        check("manipulation in studies of depth", None);
        check("an open-ended talk", None);
    }

    #[test]
    fn a_need_is_of_a_kind() {
        let check = |need: &str, expected: &str| assert_eq!(kind(need), expected, "{need}");
        check("How does a student hold up?", "Reflect");
        check("Why does the student fail to stay in role?", "Debug");
        check("Design a study of the student", "Plan");
        check("Twenty conversations with the student", "Build");
    }

    #[test]
    fn what_is_assumed_counts_as_half_said() {
        let mut plan = Plan::read("Look at the student.", &Said::default());
        plan.assume();
        assert_eq!(plan.clarity("Look at the student.").points(), 5);
    }
}
