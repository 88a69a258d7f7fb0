//! What is asked of the user before the work: what the plan leaves open, as questions with choices.

use std::fmt::Write as _;

use super::need::{Origin, Plan, other_name};
use crate::foundation::base::limits;
use crate::governance::mood::lint::{Choice, Question};
use crate::simulation::persona::{AdversaryKind, examples};

/// What a question is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    Persona,
    Other,
    Turns,
    Rollouts,
}

/// A question to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    about: About,
    pub(super) question: Question,
}

impl Asked {
    /// How many choices there are.
    pub(super) const fn choices(&self) -> usize {
        self.question.choices.len()
    }
}

const OTHERS: [AdversaryKind; 4] =
    [AdversaryKind::None, AdversaryKind::Contradiction, AdversaryKind::Helpfulness, AdversaryKind::Both];
const TURNS: [usize; 4] = [10, 6, 20, 50];
const ROLLOUTS: [usize; 4] = [1, 2, 4, 8];

/// The next round of questions: what is open, the most important first.
pub(super) fn open_questions(plan: &Plan) -> Vec<Asked> {
    let question = |text: &str, answers: Vec<String>, verb: &str, default: usize| Question {
        text: text.to_owned(),
        choices: answers.into_iter().map(|answer| Choice { next_move: format!("{verb} {answer}"), answer }).collect(),
        default: Some(default),
        escape: Some("none, and the default holds; or another value by EDITS at the echo".to_owned()),
    };
    let names: Vec<_> = examples().iter().map(|example| example.name.to_owned()).collect();
    let default = names.iter().position(|name| *name == plan.persona.value).unwrap_or(0);
    let mut asked = Vec::new();
    if plan.persona.is_open() {
        asked.push(Asked { about: About::Persona, question: question("Which persona?", names, "run", default) });
    }
    if plan.other.is_open() {
        let answers = OTHERS.iter().map(|kind| other_name(*kind).to_owned()).collect();
        asked.push(Asked {
            about: About::Other,
            question: question("Who does it talk with?", answers, "set against it", 0),
        });
    }
    if plan.turns.is_open() {
        let answers = TURNS.iter().map(ToString::to_string).collect();
        asked.push(Asked { about: About::Turns, question: question("How many turns?", answers, "plan turns:", 0) });
    }
    if plan.rollouts.is_open() {
        let answers = ROLLOUTS.iter().map(ToString::to_string).collect();
        asked.push(Asked {
            about: About::Rollouts,
            question: question("How many rollouts?", answers, "plan rollouts:", 0),
        });
    }
    asked.truncate(limits::QUESTIONS_MAX);
    asked
}

/// Takes a choice over into the plan; one that is not among the choices changes nothing.
pub(super) fn choose(plan: &mut Plan, asked: &Asked, choice: usize) {
    let taken = match asked.about {
        About::Persona => examples().get(choice).map(|example| example.name.clone_into(&mut plan.persona.value)),
        About::Other => OTHERS.get(choice).map(|kind| plan.other.value = *kind),
        About::Turns => TURNS.get(choice).map(|turns| plan.turns.value = *turns),
        About::Rollouts => ROLLOUTS.get(choice).map(|rollouts| plan.rollouts.value = *rollouts),
    };
    let origin = match asked.about {
        About::Persona => &mut plan.persona.origin,
        About::Other => &mut plan.other.origin,
        About::Turns => &mut plan.turns.origin,
        About::Rollouts => &mut plan.rollouts.origin,
    };
    if taken.is_some() {
        *origin = Origin::Answered;
    }
}

/// A round of questions, as it is put.
pub(super) fn questions(plan: &Plan) -> String {
    let mut text = String::new();
    for (number, Asked { question, .. }) in (1..).zip(open_questions(plan)) {
        let _ = writeln!(text, "{number}. {}", question.text);
        for (index, (letter, choice)) in ('A'..='Z').zip(&question.choices).enumerate() {
            let recommended = if question.default == Some(index) { "  (recommended)" } else { "" };
            let _ = writeln!(text, "   {letter}) {}{recommended}", choice.answer);
        }
    }
    if text.is_empty() {
        "Nothing is open.".to_owned()
    } else {
        text + "Answer like \"1A, 2B\"; what is left out takes the recommended choice."
    }
}

/// The open questions again, each choice with what it leads to.
pub(super) fn differently(plan: &Plan) -> String {
    let mut text = "In other words, this is what each answer leads to:".to_owned();
    for Asked { question, .. } in open_questions(plan) {
        let moves: Vec<_> = question.choices.iter().map(|choice| choice.next_move.as_str()).collect();
        let _ = write!(text, "\n  {} {}", question.text, moves.join(" / "));
    }
    text
}

/// The questions that no round had room for, a line each.
pub(super) fn still_open(plan: &Plan) -> String {
    let line = |Asked { question, .. }: &Asked| {
        let choices: Vec<_> = question.choices.iter().map(|choice| choice.answer.as_str()).collect();
        format!("Still open: {} {}\n", question.text, choices.join(" / "))
    };
    open_questions(plan).iter().map(line).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::super::need::Said;
    use super::*;
    use crate::governance::mood::lint::round_faults;

    #[test]
    fn the_questions_pass_the_lint_of_the_moods() {
        let mut plan = Plan::read("Something", &Said::default());
        let asked = open_questions(&plan);
        let questions: Vec<_> = asked.iter().map(|asked| asked.question.clone()).collect();
        assert_eq!(questions.len(), 3);
        assert_eq!(round_faults(&questions), []);
        for asked in &asked {
            choose(&mut plan, asked, 1);
        }
        assert_eq!((plan.turns.value, plan.other.value), (6, AdversaryKind::Contradiction));
        assert_eq!(open_questions(&plan).len(), 1);
        // What is no choice changes nothing.
        let last = open_questions(&plan).remove(0);
        choose(&mut plan, &last, 9);
        assert!(plan.rollouts.is_open());
    }
}
