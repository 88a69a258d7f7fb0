//! The scores that need no judge, one file each. To add one, write its file and name it in [`TEXT`] or [`LIKELIHOOD`]:
//!
//! ```text
//! pub(super) struct QuestionEndings;
//!
//! impl Scorer for QuestionEndings {
//!     fn info(&self) -> ScoreInfo {
//!         ScoreInfo::share("question_endings/1", "share of messages that end with a question")
//!     }
//! }
//!
//! impl TextScorer for QuestionEndings {
//!     fn score(&self, conversation: &Conversation<'_>) -> Result<f64, String> {
//!         conversation.share(|message| ends_with_question(message.text))
//!     }
//! }
//! ```
//!
//! An id changes when the definition does, so that values of two versions are not compared by mistake. `docs/SCORES.md`
//! defines every id; a test compares both.

mod agreement;
mod capitulation_pressure;
mod compression;
mod convergence;
mod copy_gain;
mod copy_rate;
mod distinct;
mod endings;
mod initiative;
mod mattr;
mod novelty;
mod novelty_nll;
mod openings;
mod persona_llr;
mod question_endings;
mod self_repetition;
mod standstill;
mod structural_diversity;
mod words_per_message;

use super::conversation::Conversation;
use crate::foundation::chat::TokenLogprob;

/// The scores computed from the text, in the order of `docs/SCORES.md`.
pub const TEXT: &[&dyn TextScorer] = &[
    &words_per_message::WordsPerMessage,
    &distinct::Distinct::<1>,
    &distinct::Distinct::<2>,
    &mattr::Mattr,
    &self_repetition::SelfRepetition,
    &compression::Compression,
    &structural_diversity::StructuralDiversity,
    &openings::OpeningVariety,
    &endings::EndingVariety,
    &question_endings::QuestionEndings,
    &agreement::Agreement,
    &novelty::Novelty,
    &initiative::Initiative,
    &convergence::Convergence,
    &standstill::StandstillShare,
];

/// The likelihood scores of every turn, in the order of `docs/SCORES.md`.
pub const LIKELIHOOD: &[&dyn LikelihoodScorer] = &[
    &persona_llr::PersonaLlr { own_words: false },
    &persona_llr::PersonaLlr { own_words: true },
    &copy_rate::CopyRate,
    &novelty_nll::NoveltyNll,
    &copy_gain::CopyGain,
    &capitulation_pressure::CapitulationPressure,
];

/// The neutral prompt, which describes no persona.
pub(super) const NEUTRAL: &str = "You are talking with someone.";

/// What a score is, for reports and statistics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreInfo {
    /// Its id with its version.
    pub id: &'static str,
    /// How to read its value, in a line.
    pub meaning: &'static str,
    /// The bounds of its value; `None` for one without, whose mean has no interval.
    pub bounds: Option<(f64, f64)>,
}

impl ScoreInfo {
    /// A score from 0 to 1.
    pub const fn share(id: &'static str, meaning: &'static str) -> Self {
        Self { id, meaning, bounds: Some((0.0, 1.0)) }
    }

    /// A score without bounds.
    pub const fn unbounded(id: &'static str, meaning: &'static str) -> Self {
        Self { id, meaning, bounds: None }
    }
}

/// A score.
pub trait Scorer: Sync {
    /// What it is.
    fn info(&self) -> ScoreInfo;
}

/// A score computed from the text.
pub trait TextScorer: Scorer {
    /// Its value.
    ///
    /// # Errors
    /// Why there is none.
    fn score(&self, conversation: &Conversation<'_>) -> Result<f64, String>;
}

/// A score computed from the log-probabilities of one reply; the transcript's value is the mean over its turns.
pub trait LikelihoodScorer: Scorer {
    /// The prompt that is part of its definition, if any.
    fn prompt(&self) -> Option<&'static str> {
        None
    }

    /// Its value on one turn.
    ///
    /// # Errors
    /// Why there is none.
    fn score(&self, reply: &ReplyLikelihoods<'_>) -> Result<f64, String>;
}

/// One reply's log-probabilities in different contexts, in nats per token.
pub struct ReplyLikelihoods<'a> {
    /// In its own conversation.
    pub own: &'a [f64],
    /// With the same history under a prompt that describes no persona.
    pub neutral: &'a Result<Vec<f64>, String>,
    /// Under that prompt, without a history.
    pub alone: &'a Result<Vec<f64>, String>,
    /// Per token, whether it is copied from the instructions.
    pub copied: &'a [bool],
    /// The share of the reply's words that are copied from the instructions; `None` without words.
    pub copy_rate: Option<f64>,
    /// ln of the probability that the reply begins with a forbidden phrase.
    pub forbidden: &'a Result<f64, String>,
}

/// The log-probabilities of `tokens`.
pub(super) fn logprobs(tokens: &[TokenLogprob]) -> Result<Vec<f64>, String> {
    let each: Option<Vec<f64>> = tokens.iter().map(|token| token.logprob.map(f64::from)).collect();
    each.ok_or_else(|| "the model gives no log-probabilities of a text that it is given".to_owned())
}
