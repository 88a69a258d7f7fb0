//! Questions to the user: few, with consequences, each with a default and a way to answer differently.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::foundation::base::limits;

/// A possible answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionChoice {
    /// The answer.
    pub answer: String,
    /// The next action if it is chosen.
    pub next_move: String,
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The text.
    pub text: String,
    /// The possible answers.
    pub choices: Vec<QuestionChoice>,
    /// The index of the recommended answer, which is used if there is none.
    pub default: Option<usize>,
    /// How to answer differently, or not at all.
    pub escape: Option<String>,
}

/// A fault of a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum QuestionFault {
    /// It is not a question.
    #[error("it is not a question: end it with a question mark")]
    NotAQuestion,
    /// All answers have the same consequence.
    #[error("all its answers have the same consequence")]
    NotTransformative,
    /// Two answers are the same.
    #[error("two of its answers are the same")]
    SameChoices,
    /// There is no default.
    #[error("it has no default: name the recommended answer")]
    NoDefault,
    /// There is no way to answer differently.
    #[error("it has no way to answer differently: name one")]
    NoEscape,
    /// Too many questions at once.
    #[error("{count} questions at a time are more than {most}")]
    TooMany {
        /// The number of questions.
        count: usize,
        /// The limit.
        most: usize,
    },
}

/// The faults of one question.
pub fn question_faults(question: &Question) -> Vec<QuestionFault> {
    let mut faults = Vec::new();
    let folded = |text: &str| text.trim().to_lowercase();
    let answers: BTreeSet<_> = question.choices.iter().map(|choice| folded(&choice.answer)).collect();
    let moves: BTreeSet<_> = question.choices.iter().map(|choice| folded(&choice.next_move)).collect();
    if !question.text.trim_end().ends_with('?') {
        faults.push(QuestionFault::NotAQuestion);
    }
    if moves.len() < 2 {
        faults.push(QuestionFault::NotTransformative);
    }
    if answers.len() < question.choices.len() || answers.contains("") {
        faults.push(QuestionFault::SameChoices);
    }
    if question.default.is_none_or(|default| default >= question.choices.len()) {
        faults.push(QuestionFault::NoDefault);
    }
    if question.escape.as_deref().is_none_or(|escape| escape.trim().is_empty()) {
        faults.push(QuestionFault::NoEscape);
    }
    faults
}

/// The faults of the questions of one round, each with the index of its question.
pub fn question_round_faults(questions: &[Question]) -> Vec<(usize, QuestionFault)> {
    let (count, most) = (questions.len(), limits::QUESTIONS_MAX);
    let many = (count > most).then_some((most, QuestionFault::TooMany { count, most }));
    let each = questions
        .iter()
        .enumerate()
        .flat_map(|(at, question)| question_faults(question).into_iter().map(move |fault| (at, fault)));
    each.chain(many).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_needs_consequences_a_default_and_an_alternative() {
        let choice =
            |answer: &str, next: &str| QuestionChoice { answer: answer.to_owned(), next_move: next.to_owned() };
        let good = Question {
            text: "Which matters more here?".to_owned(),
            choices: vec![
                choice("speed", "run 8 rollouts on the bundled model"),
                choice("realism", "run 2 on the large one"),
            ],
            default: Some(0),
            escape: Some("say something else, or leave it to me".to_owned()),
        };
        assert_eq!(question_faults(&good), []);
        let mut idle = good.clone();
        idle.choices[1].next_move = "Run 8 rollouts on the bundled model ".to_owned();
        assert_eq!(question_faults(&idle), [QuestionFault::NotTransformative]);
        let bare = Question { default: Some(2), escape: None, text: "Go on.".to_owned(), ..good.clone() };
        assert_eq!(
            question_faults(&bare),
            [QuestionFault::NotAQuestion, QuestionFault::NoDefault, QuestionFault::NoEscape]
        );
        assert_eq!(question_round_faults(&vec![good.clone(); 3]), []);
        assert_eq!(question_round_faults(&vec![good; 4]), [(3, QuestionFault::TooMany { count: 4, most: 3 })]);
    }
}
