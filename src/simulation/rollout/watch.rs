//! One side's regulator, listening to its model token by token.
//!
//! It is told nothing that depends on a clock or on how the work was cut up, so that its readings are part of what the
//! seed decides. Rejected drafts it never hears of, but for what they cost.

use super::transcript::{Regulated, TokenCount, TokenLine, Utterance};
use crate::foundation::chat::{Completion, Finish, Flow, ModelInfo, TokenLogprob, TokenSink};
use crate::governance::regulator::{LlmEvent, Regulator, Settings};

/// A regulator and how much of the reply it has heard. A value: every draft is heard by a clone.
#[derive(Clone)]
pub(super) struct Watch {
    regulator: Regulator,
    tokens: usize,
}

impl Watch {
    /// For the replies of a model.
    pub(super) fn new(model: &ModelInfo) -> Self {
        let mut settings = Settings::default();
        // Talk wanders; that is no drift from a task.
        settings.scope.enabled = false;
        settings.confidence.vocabulary = model.vocabulary;
        Self { regulator: Regulator::new(settings), tokens: 0 }
    }

    /// The other side said `text`.
    pub(super) fn heard(&mut self, text: &str) {
        self.tokens = 0;
        self.regulator.on_event(LlmEvent::TurnStart { user_message: text });
    }

    /// What listens to the reply.
    pub(super) fn sink(&mut self) -> Box<dyn TokenSink + '_> {
        Box::new(|token: &TokenLogprob| -> Flow {
            self.tokens += 1;
            self.regulator.on_token(token)
        })
    }

    /// The reply that was listened to since `before` is complete. Should the sink have heard something else, the
    /// beginning of a fallback's predecessor for example, the tokens are heard again.
    pub(super) fn complete(&mut self, before: &Self, completion: &Completion) {
        if self.tokens != completion.tokens.len() {
            *self = before.clone();
            self.hear(&completion.tokens);
        }
        self.end(&completion.message.content, completion.finish);
    }

    /// What all attempts of the turn cost.
    pub(super) fn cost(&mut self, usage: TokenCount) {
        self.regulator.on_event(LlmEvent::Cost {
            tokens_in: usage.tokens_in,
            tokens_out: usage.tokens_out,
            tokens_cached: 0,
            money_micros: 0,
            wallclock_ms: 0,
            provider: None,
        });
    }

    /// A recorded message, heard again.
    pub(super) fn replay(&mut self, utterance: &Utterance, lines: &[TokenLine]) {
        if let Some(finish) = utterance.finish {
            for line in lines.iter().filter(|line| line.speaker == utterance.speaker) {
                self.hear(&line.tokens());
            }
            let missing = utterance.tokens.count == 0 && finish == Finish::Refusal;
            self.end(if missing { "" } else { &utterance.content }, finish);
        }
        self.cost(utterance.usage);
    }

    /// What the regulator made of the turn.
    pub(super) fn record(&self) -> Regulated {
        Regulated { reading: self.regulator.turn_reading(), decisions: self.regulator.decide().to_vec() }
    }

    fn hear(&mut self, tokens: &[TokenLogprob]) {
        for token in tokens {
            self.tokens += 1;
            // The reply is written already: nothing is left to stop.
            let _flow = self.regulator.on_token(token);
        }
    }

    fn end(&mut self, content: &str, finish: Finish) {
        self.regulator.on_event(LlmEvent::TurnComplete { full_response: content, finish: Some(finish) });
    }
}
