//! The eight regulatory signals (spec §5), computed from events only, and the statistics of a turn that contain them.

use serde::{Deserialize, Serialize};

use super::cost::ResourceUsage;
use super::tokens::Estimates;
use crate::foundation::chat::Finish;

/// Where a confidence comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfidenceBasis {
    /// The probability of being right, fitted for this model, template and task.
    Calibrated,
    /// The geometric mean of the tokens' probabilities: it ranks replies, but is not a probability of being right.
    Uncalibrated,
    /// No log-probability was seen; estimated from the reply's length and question marks.
    Structural,
}

/// The kind of reply (response-type inference).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseType {
    /// It fulfils the request.
    Completion,
    /// It asks a question back.
    Clarification,
    /// It refuses.
    Refusal,
    /// There is no text.
    Empty,
}

/// The regulatory signals, numbers from 0 to 1.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Signals {
    /// Output-entropy trajectory: entropy that rises within the reply, and corrections by the user.
    pub entropy_trajectory: f64,
    /// The kind of the last reply.
    pub response_type: Option<ResponseType>,
    /// Spent share of the hard cap that is closest to its limit; `None` without a cap.
    pub budget_depletion: Option<f64>,
    /// See [`TurnStats::confidence`].
    pub confidence: Option<f64>,
    /// The learned pattern that applies to this task, by name.
    pub strategy: Option<String>,
    /// Cost-overrun prevention: how far to reduce spending, from the budget, the quality and the entropy trajectory.
    pub overrun_prevention: f64,
    /// Exponential mean of the judged turns; a correction by the user counts as a poor turn.
    pub recent_quality: Option<f64>,
    /// Salience of this turn: an entropy spike, or a correction.
    pub salience: f64,
}

/// Statistics of a turn, running or complete.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TurnStats {
    /// Counted from 1; 0 before the first.
    pub turn: u64,
    /// The reply is complete.
    pub complete: bool,
    /// In [0, 1]; `confidence_basis` says what it means. `None` if nothing is known of the reply.
    pub confidence: Option<f64>,
    /// Where `confidence` comes from.
    pub confidence_basis: Option<ConfidenceBasis>,
    /// Tokens of the reply that arrived as token events.
    pub tokens: u64,
    /// How many of them had a usable log-probability.
    pub tokens_with_logprob: u64,
    /// Mean log-probability, nats.
    pub mean_logprob: Option<f64>,
    /// Lowest log-probability, nats.
    pub min_logprob: Option<f64>,
    /// Mean entropy, nats.
    pub entropy_mean: Option<f64>,
    /// Highest entropy, nats.
    pub entropy_max: Option<f64>,
    /// All estimates of uncertainty.
    pub estimates: Estimates,
    /// Spent since the turn began.
    pub cost: ResourceUsage,
    /// Spent in this session.
    pub cost_session: ResourceUsage,
    /// How far the reply drifts from its task, in [0, 1]; `None` if there is too little text to compare.
    pub drift_score: Option<f64>,
    /// The regulatory signals.
    pub signals: Signals,
    /// Invalid numbers in this turn's events, which were excluded.
    pub unusable: u64,
    /// The reply was longer than the regulator's limit; text past it was not examined.
    pub truncated: bool,
}

impl TurnStats {
    /// Whether `confidence` is a probability of being right.
    pub fn calibrated(&self) -> bool {
        self.confidence_basis == Some(ConfidenceBasis::Calibrated)
    }
}

/// The structure of a reply's text: length, sentences and questions. Words are examined only to detect refusals.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Structure {
    chars: usize,
    questions: usize,
    sentences: usize,
    asks_last: bool,
}

impl Structure {
    pub(super) fn of(text: &str) -> Self {
        let mut structure = Self::default();
        let mut ended = true;
        for c in text.chars() {
            // Most text is letters and spaces; avoid branches that cannot be predicted.
            let letter = c.is_ascii_alphanumeric();
            if letter || c == ' ' {
                structure.chars += 1;
                structure.asks_last &= !letter;
                ended &= !letter;
                continue;
            }
            let question = matches!(c, '?' | '？' | '؟' | '\u{37e}' | '՞' | '⸮');
            let end = question || matches!(c, '.' | '!' | '。' | '！' | '।' | '…' | '\n');
            structure.chars += 1;
            structure.questions += usize::from(question && !ended);
            structure.sentences += usize::from(end && !ended);
            if question || c.is_alphanumeric() {
                structure.asks_last = question;
            }
            ended = end || (ended && !c.is_alphanumeric());
        }
        structure.sentences += usize::from(!ended);
        structure
    }

    fn question_share(self) -> f64 {
        if self.sentences == 0 { 0.0 } else { self.questions as f64 / self.sentences as f64 }
    }

    /// Confidence estimated from length and question marks (spec §11.1 b), limited to [¼, ¾] because structure alone is
    /// weak evidence. `None` for an empty reply.
    pub(super) fn confidence(self) -> Option<f64> {
        let chars = self.chars as f64;
        (self.sentences > 0).then(|| 0.25 + 0.5 * (chars / (chars + 40.0)) * (1.0 - self.question_share()))
    }

    /// The kind of reply: from `finish` if the provider reports a refusal, else from the opening words, else from question
    /// marks.
    pub(super) fn response_type(self, text: &str, finish: Option<Finish>) -> ResponseType {
        if finish == Some(Finish::Refusal) || opens_with_refusal(text) {
            ResponseType::Refusal
        } else if self.sentences == 0 {
            ResponseType::Empty
        } else if self.asks_last && self.question_share() >= 0.5 {
            ResponseType::Clarification
        } else {
            ResponseType::Completion
        }
    }
}

/// Opening phrases of refusals; compared without case.
const REFUSALS: [&str; 14] = [
    "i can't ",
    "i cannot ",
    "i can not ",
    "i won't ",
    "i'm unable to ",
    "i am unable to ",
    "i'm not able to ",
    "i'm sorry, but i can",
    "sorry, but i can",
    "i must decline",
    "je ne peux pas ",
    "ich kann nicht ",
    "lo siento, pero no puedo ",
    "很抱歉，我无法",
];

fn opens_with_refusal(text: &str) -> bool {
    let opening: String =
        text.trim_start().chars().take(40).map(|c| if c == '’' { '\'' } else { c.to_ascii_lowercase() }).collect();
    REFUSALS.iter().any(|refusal| opening.starts_with(refusal))
}

/// The probability of at least one of two independent events.
pub(super) fn either(a: f64, b: f64) -> f64 {
    1.0 - (1.0 - a) * (1.0 - b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_type_is_inferred_from_structure() {
        for (text, expected) in [
            ("Here is the function, now async.", ResponseType::Completion),
            ("Which function do you mean? The first?", ResponseType::Clarification),
            ("你指的是哪个函数？", ResponseType::Clarification),
            ("Why so? Because it blocks. It waits for the disk.", ResponseType::Completion),
            ("I can’t help with that.", ResponseType::Refusal),
            ("  \n", ResponseType::Empty),
        ] {
            assert_eq!(Structure::of(text).response_type(text, None), expected, "{text}");
        }
        assert_eq!(Structure::of("x").response_type("x", Some(Finish::Refusal)), ResponseType::Refusal);
    }

    #[test]
    fn structural_confidence_stays_modest_and_orders_replies() {
        let of = |text: &str| Structure::of(text).confidence();
        let (full, short, question_share) =
            (of(&"It reads the file. ".repeat(20)), of("It reads."), of("Does it? Which? Why?"));
        assert!(full > short && short > question_share && full < Some(0.75) && question_share >= Some(0.25));
        assert_eq!(of(" ... "), None);
    }
}
