//! Questions to the user: few, transformative, each with a default and a way out.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::foundation::base::limits;

/// An answer that can be chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The answer.
    pub answer: String,
    /// What would be done next if it were chosen.
    pub next_move: String,
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// What is asked.
    pub text: String,
    /// What can be answered.
    pub choices: Vec<Choice>,
    /// The recommended answer, taken when there is none; its place among the choices.
    pub default: Option<usize>,
    /// How to answer otherwise, or not at all.
    pub escape: Option<String>,
}

/// What is wrong with a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum QuestionFault {
    /// Nothing is asked.
    #[error("it asks nothing: end it with a question mark")]
    NotAQuestion,
    /// Whatever the answer, the same happens.
    #[error("it is not transformative: whatever the answer, the same is done next")]
    NotTransformative,
    /// Two choices are one.
    #[error("two of its choices are the same")]
    SameChoices,
    /// Without an answer nothing goes on.
    #[error("it has no default: name the recommended choice")]
    NoDefault,
    /// There is no other way.
    #[error("it has no way out: say how to answer otherwise")]
    NoEscape,
    /// Too many at a time.
    #[error("{count} questions at a time are more than {most}")]
    TooMany {
        /// So many.
        count: usize,
        /// So many may be asked.
        most: usize,
    },
}

/// What is wrong with one question.
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

/// What is wrong with the questions of one round, each fault with the place of its question.
pub fn round_faults(questions: &[Question]) -> Vec<(usize, QuestionFault)> {
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
    fn a_question_decides_something_has_a_default_and_a_way_out() {
        let choice = |answer: &str, next: &str| Choice { answer: answer.to_owned(), next_move: next.to_owned() };
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
        assert_eq!(round_faults(&vec![good.clone(); 3]), []);
        assert_eq!(round_faults(&vec![good; 4]), [(3, QuestionFault::TooMany { count: 4, most: 3 })]);
    }
}
