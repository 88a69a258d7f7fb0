//! The plan stated by a need, and the parts it leaves open. Parsed by rules, not by a model.

use serde::{Deserialize, Serialize};

use super::question::{self, StudyQuestion};
use super::reading::{self, CAN, WHAT_COMPARED};
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// What is to be found out.
    pub(super) question: PlanField<StudyQuestion>,
    /// The score that decides; the default ones if absent.
    pub(super) measure: PlanField<Option<String>>,
    /// The threshold of the measure, or of its difference between the arms.
    pub(super) threshold: Option<f64>,
    /// Whether a judge is named.
    pub(super) judged: bool,
    /// The name of a built-in or the user's own config.
    pub(super) persona: PlanField<String>,
    /// The interlocutor.
    pub(super) other: PlanField<AdversaryKind>,
    /// Turns per rollout.
    pub(super) turns: PlanField<usize>,
    /// Number of rollouts.
    pub(super) rollouts: PlanField<usize>,
    /// What of the need was not understood; such a plan runs only after the user has confirmed it.
    pub(super) doubts: Vec<String>,
}

/// The parts of the plan given on the command line; they override everything else.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StatedPlan {
    pub(super) question: Option<StudyQuestion>,
    pub(super) measure: Option<String>,
    pub(super) threshold: Option<f64>,
    pub(super) judged: bool,
    pub(super) persona: Option<String>,
    pub(super) turns: Option<usize>,
    pub(super) rollouts: Option<usize>,
    pub(super) other: Option<AdversaryKind>,
}

/// The default number of rollouts: the fewest from which anything can be told.
const ROLLOUTS: usize = 6;
/// The doubt about a need that names no persona.
const WHICH_PERSONA: &str = "which persona";
/// The default number of turns.
const TURNS: usize = 10;

impl Plan {
    /// The plan stated by a need, with defaults for the rest. The command line overrides it.
    pub(super) fn read(need: &str, from_command_line: &StatedPlan) -> Self {
        let mut stated = reading::read(need, from_command_line.persona.is_some());
        let default = examples().get(1).map_or("depressed_patient", |example| example.name);
        let persona = from_command_line.persona.clone().or(stated.persona.map(str::to_owned));
        if persona.is_none() && !stated.doubts.iter().any(|doubt| doubt.contains("persona")) {
            stated.doubts.push(WHICH_PERSONA.to_owned());
        }
        let mut other = PlanField::of(from_command_line.other.or(stated.other), AdversaryKind::None);
        if stated.any_adversary && from_command_line.other.is_none() {
            // One is wanted; which of them is recommended.
            other.origin = PlanSource::Open;
        }
        let compared = from_command_line.question.or(stated.question);
        if from_command_line.question.is_some() {
            stated.doubts.retain(|doubt| doubt != WHAT_COMPARED && doubt != reading::OTHER_ARM);
        }
        let unsettled = stated.doubts.iter().any(|doubt| doubt == WHAT_COMPARED);
        // A need that compares nothing asks whether the persona holds.
        let origin = if unsettled { PlanSource::Open } else { PlanSource::Stated };
        let measure = from_command_line.measure.clone().or(stated.measure);
        let measured = if measure.is_some() { PlanSource::Stated } else { PlanSource::Assumed };
        Self {
            question: PlanField { value: compared.unwrap_or_default(), origin },
            measure: PlanField { value: measure, origin: measured },
            threshold: from_command_line.threshold,
            judged: from_command_line.judged,
            persona: PlanField::of(persona, default.to_owned()),
            other,
            turns: PlanField::of(from_command_line.turns.or(stated.turns), TURNS),
            rollouts: PlanField::of(from_command_line.rollouts.or(stated.rollouts), ROLLOUTS),
            doubts: stated.doubts,
        }
    }

    /// Applies the parts stated in the user's answer. A persona given on the command line stays.
    pub(super) fn amend(&mut self, words: &str, from_command_line: &StatedPlan) {
        let said = reading::read(words, from_command_line.persona.is_some());
        let persona = said.persona.map(str::to_owned).filter(|_| from_command_line.persona.is_none());
        self.persona.answer(persona);
        self.other.answer(said.other);
        self.turns.answer(said.turns);
        self.rollouts.answer(said.rollouts);
        if from_command_line.question.is_none() {
            self.question.answer(said.question);
        }
        if from_command_line.measure.is_none() && said.measure.is_some() {
            self.measure.answer(Some(said.measure));
        }
        self.settle();
    }

    /// A persona that the user has answered is no doubt any more.
    pub(super) fn settle(&mut self) {
        if self.persona.is_known() {
            self.doubts.retain(|doubt| doubt != WHICH_PERSONA);
        }
        if self.question.is_known() {
            self.doubts.retain(|doubt| doubt != WHAT_COMPARED);
        }
    }

    /// The measure of a comparison and its threshold; `None` if nothing is compared.
    pub(super) fn compared(&self) -> Option<(String, f64)> {
        let default = question::default_measure(self.judged);
        let measure = || self.measure.value.clone().unwrap_or_else(|| default.to_owned());
        self.question.value.compares().then(|| (measure(), self.threshold.unwrap_or(0.0)))
    }

    /// Whether a field with this origin was stated.
    #[expect(clippy::unused_self, reason = "reads as a question about the plan")]
    pub(super) const fn is_stated(&self, origin: PlanSource) -> bool {
        matches!(origin, PlanSource::Stated)
    }

    /// Whether the user answered any question about it.
    pub(super) fn is_answered(&self) -> bool {
        let origins =
            [self.question.origin, self.persona.origin, self.other.origin, self.turns.origin, self.rollouts.origin];
        origins.contains(&PlanSource::Answered)
    }

    /// Accepts the defaults for open parts and describes each in a line.
    pub(super) fn assume(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.question.assume() {
            lines.push("nothing is compared: the question is whether the persona holds".to_owned());
        }
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
            lines.push(format!("{} rollouts are enough", self.rollouts.value));
        }
        lines
    }

    /// The clarity of the specification, by rules.
    pub(super) fn clarity(&self, need: &str) -> SpecScores {
        if !self.doubts.is_empty() {
            // Too little for the work to begin unasked, whatever else is clear.
            return SpecScores { outcome: Clarity::Absent, success: Clarity::Absent, ..self.understood(need) };
        }
        self.understood(need)
    }

    fn understood(&self, need: &str) -> SpecScores {
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

/// Why a need is refused: it has nothing that a session investigates.
///
/// # Errors
/// The refusal, with what a session can do.
pub(super) fn check_scope(need: &str, from_command_line: &StatedPlan) -> Result<(), String> {
    let reading = reading::read(need, from_command_line.persona.is_some());
    if reading.is_foreign { Err(format!("a session cannot investigate this: {CAN}")) } else { Ok(()) }
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
        // Not understood in full: too little to begin.
        check("Measure how a rude student drifts over 3 turns, 2 rollouts, with a trap", "student", 3, 0, 6);
        check("A persona", "depressed_patient", 10, 4, 0);
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
        plan.amend("no adversary after all", &StatedPlan::default());
        assert_eq!((plan.other.value, plan.other.origin), (AdversaryKind::None, PlanSource::Answered));
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

    /// A need of `tests/data/needs` with what is right: a plan with these parts, a question, or a refusal.
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct LabelledNeed {
        need: String,
        run: Option<RightPlan>,
        #[serde(default)]
        ask: bool,
        #[serde(default)]
        refuse: bool,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct RightPlan {
        persona: Option<String>,
        other: Option<AdversaryKind>,
        turns: Option<usize>,
        rollouts: Option<usize>,
        comparison: Option<String>,
    }

    /// How many needs are run as they should, asked about, refused, and run wrongly.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Outcomes {
        needs: usize,
        right_runs: usize,
        asked: usize,
        refused: usize,
        /// What should run is refused.
        wrong_refusals: Vec<String>,
        wrong_runs: Vec<String>,
    }

    fn outcomes(lines: &str) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for line in lines.lines() {
            let LabelledNeed { need, run, ask, refuse } = serde_json::from_str(line).unwrap();
            assert_eq!(usize::from(run.is_some()) + usize::from(ask) + usize::from(refuse), 1, "{need}");
            outcomes.needs += 1;
            if check_scope(&need, &StatedPlan::default()).is_err() {
                outcomes.refused += 1;
                if run.is_some() {
                    outcomes.wrong_refusals.push(need);
                }
                continue;
            }
            let plan = Plan::read(&need, &StatedPlan::default());
            if !plan.doubts.is_empty() {
                outcomes.asked += 1;
                if std::env::var_os("LOOM_NEEDS").is_some() {
                    println!("asked about {need}: {:?}", plan.doubts);
                }
                continue;
            }
            let right = run.is_some_and(|right| {
                let RightPlan { persona, other, turns, rollouts, comparison } = right;
                // What the need leaves open is an assumption that is shown.
                persona.is_none_or(|persona| plan.persona.value == persona)
                    && other.map_or(!plan.other.is_known(), |other| plan.other.value == other)
                    && turns.map_or(plan.turns.is_open(), |turns| plan.turns.value == turns)
                    && rollouts.map_or(plan.rollouts.is_open(), |rollouts| plan.rollouts.value == rollouts)
                    && plan.question.value
                        == match comparison.as_deref() {
                            None => StudyQuestion::Holds,
                            Some("ablation") => StudyQuestion::Ablation,
                            Some("targets") => StudyQuestion::Targets,
                            Some(other) => panic!("{other}"),
                        }
            });
            if right {
                outcomes.right_runs += 1;
            } else {
                outcomes.wrong_runs.push(format!("{need}: {plan:?}"));
            }
        }
        outcomes
    }

    #[test]
    fn no_need_is_run_wrongly() {
        // The rules were written on the first half; the second was read once, after them.
        for (half, lines, right_min) in [
            ("development", include_str!("../../../tests/data/needs/development.jsonl"), 14),
            ("held back", include_str!("../../../tests/data/needs/held_back.jsonl"), 0),
        ] {
            if half == "held back" && std::env::var_os("LOOM_DEV_ONLY").is_some() {
                continue;
            }
            let found = outcomes(lines);
            println!("{half}: {found:?}");
            assert_eq!(found.wrong_runs, [""; 0], "{half}");
            assert_eq!(found.wrong_refusals, [""; 0], "{half}");
            assert!(found.right_runs >= right_min, "{half}: {found:?}");
        }
    }
}
