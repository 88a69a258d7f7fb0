//! `question_endings/1`

use super::{ScoreInfo, Scorer, TextScorer};
use crate::foundation::text::ends_with_question;
use crate::simulation::judge::conversation::Conversation;

pub(super) struct QuestionEndings;

impl Scorer for QuestionEndings {
    fn info(&self) -> ScoreInfo {
        ScoreInfo::share("question_endings/1", "share of messages that end with a question")
    }
}

impl TextScorer for QuestionEndings {
    fn score(&self, conversation: &Conversation<'_>) -> Result<f64, String> {
        conversation.share(|line| ends_with_question(line.text))
    }
}
