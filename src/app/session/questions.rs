//! Questions to the user about the open parts of the plan, with choices.

use std::fmt::Write as _;

use super::need::{Plan, PlanSource, other_name};
use super::question::StudyQuestion;
use crate::foundation::base::limits;
use crate::governance::mood::lint::{Question, QuestionChoice};
use crate::simulation::persona::{AdversaryKind, examples};

/// The part of the plan that a question is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlanTopic {
    Question,
    Persona,
    Other,
    Turns,
    Rollouts,
}

/// A question to the user about one part of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlanQuestion {
    about: PlanTopic,
    pub(super) question: Question,
}

impl PlanQuestion {
    /// The number of choices.
    pub(super) const fn choices(&self) -> usize {
        self.question.choices.len()
    }
}

const OTHERS: [AdversaryKind; 4] =
    [AdversaryKind::None, AdversaryKind::Contradiction, AdversaryKind::Helpfulness, AdversaryKind::Both];
/// What the command line gives no value for.
const QUESTIONS: [StudyQuestion; 2] = [StudyQuestion::Ablation, StudyQuestion::Holds];
const TURNS: [usize; 4] = [10, 6, 20, 50];
const ROLLOUTS: [usize; 4] = [6, 1, 12, 24];

fn compared_with(question: StudyQuestion) -> String {
    match question {
        StudyQuestion::Holds => "nothing: does the persona hold by itself?".to_owned(),
        question => question.baseline().to_owned(),
    }
}

/// The next round of questions: the open parts, the most important first.
pub(super) fn open_questions(plan: &Plan) -> Vec<PlanQuestion> {
    let question = |text: &str, answers: Vec<String>, verb: &str, default: usize| Question {
        text: text.to_owned(),
        choices: answers
            .into_iter()
            .map(|answer| QuestionChoice { next_move: format!("{verb} {answer}"), answer })
            .collect(),
        default: Some(default),
        escape: Some(
            "no answer takes the default; another value can be given by EDITS when the plan is shown".to_owned(),
        ),
    };
    let names: Vec<_> = examples().iter().map(|example| example.name.to_owned()).collect();
    let default = names.iter().position(|name| *name == plan.persona.value).unwrap_or(0);
    let mut asked = Vec::new();
    if plan.question.is_open() {
        let answers = QUESTIONS.iter().map(|question| compared_with(*question)).collect();
        asked.push(PlanQuestion {
            about: PlanTopic::Question,
            question: question("What is it compared with?", answers, "compare it with", 0),
        });
    }
    if plan.persona.is_open() {
        asked.push(PlanQuestion {
            about: PlanTopic::Persona,
            question: question("Which persona?", names, "run", default),
        });
    }
    if plan.other.is_open() {
        let other = OTHERS.iter().position(|kind| *kind == plan.other.value).unwrap_or(0);
        let answers = OTHERS.iter().map(|kind| other_name(*kind).to_owned()).collect();
        asked.push(PlanQuestion {
            about: PlanTopic::Other,
            question: question("Who does it talk with?", answers, "set against it", other),
        });
    }
    if plan.turns.is_open() {
        let answers = TURNS.iter().map(ToString::to_string).collect();
        asked.push(PlanQuestion {
            about: PlanTopic::Turns,
            question: question("How many turns?", answers, "plan turns:", 0),
        });
    }
    if plan.rollouts.is_open() {
        let answers = ROLLOUTS.iter().map(ToString::to_string).collect();
        asked.push(PlanQuestion {
            about: PlanTopic::Rollouts,
            question: question("How many rollouts?", answers, "plan rollouts:", 0),
        });
    }
    asked.truncate(limits::QUESTIONS_MAX);
    asked
}

/// Applies a choice to the plan; an invalid choice changes nothing.
pub(super) fn choose(plan: &mut Plan, asked: &PlanQuestion, choice: usize) {
    let taken = match asked.about {
        PlanTopic::Question => QUESTIONS.get(choice).map(|question| plan.question.value = *question),
        PlanTopic::Persona => examples().get(choice).map(|example| example.name.clone_into(&mut plan.persona.value)),
        PlanTopic::Other => OTHERS.get(choice).map(|kind| plan.other.value = *kind),
        PlanTopic::Turns => TURNS.get(choice).map(|turns| plan.turns.value = *turns),
        PlanTopic::Rollouts => ROLLOUTS.get(choice).map(|rollouts| plan.rollouts.value = *rollouts),
    };
    let origin = match asked.about {
        PlanTopic::Question => &mut plan.question.origin,
        PlanTopic::Persona => &mut plan.persona.origin,
        PlanTopic::Other => &mut plan.other.origin,
        PlanTopic::Turns => &mut plan.turns.origin,
        PlanTopic::Rollouts => &mut plan.rollouts.origin,
    };
    if taken.is_some() {
        *origin = PlanSource::Answered;
    }
    plan.settle();
}

/// The text of a round of questions.
pub(super) fn questions(plan: &Plan) -> String {
    let mut text = String::new();
    for (number, PlanQuestion { question, .. }) in (1..).zip(open_questions(plan)) {
        let _ = writeln!(text, "{number}. {}", question.text);
        for (index, (letter, choice)) in ('A'..='Z').zip(&question.choices).enumerate() {
            let recommended = if question.default == Some(index) { "  (recommended)" } else { "" };
            let _ = writeln!(text, "   {letter}) {}{recommended}", choice.answer);
        }
    }
    if text.is_empty() {
        "There are no open questions.".to_owned()
    } else {
        text + "Answer for example \"1A, 2B\". Questions without an answer take the recommended choice."
    }
}

/// The open questions rephrased: the consequence of each choice.
pub(super) fn differently(plan: &Plan) -> String {
    let mut text = "In other words, this is the consequence of each answer:".to_owned();
    for PlanQuestion { question, .. } in open_questions(plan) {
        let moves: Vec<_> = question.choices.iter().map(|choice| choice.next_move.as_str()).collect();
        let _ = write!(text, "\n  {} {}", question.text, moves.join(" / "));
    }
    text
}

/// The open questions that were not asked yet, one line each.
pub(super) fn still_open(plan: &Plan) -> String {
    let line = |PlanQuestion { question, .. }: &PlanQuestion| {
        let choices: Vec<_> = question.choices.iter().map(|choice| choice.answer.as_str()).collect();
        format!("Still open: {} {}\n", question.text, choices.join(" / "))
    };
    open_questions(plan).iter().map(line).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::super::need::StatedPlan;
    use super::*;
    use crate::governance::mood::lint::question_round_faults;

    #[test]
    fn the_questions_pass_the_mood_lint() {
        let mut plan = Plan::read("A persona", &StatedPlan::default());
        let asked = open_questions(&plan);
        let questions: Vec<_> = asked.iter().map(|asked| asked.question.clone()).collect();
        assert_eq!(questions.len(), 3);
        assert_eq!(question_round_faults(&questions), []);
        for asked in &asked {
            choose(&mut plan, asked, 1);
        }
        assert_eq!((plan.turns.value, plan.other.value), (6, AdversaryKind::Contradiction));
        assert_eq!(open_questions(&plan).len(), 1);
        // An invalid choice changes nothing.
        let last = open_questions(&plan).remove(0);
        choose(&mut plan, &last, 9);
        assert!(plan.rollouts.is_open());
    }
}
