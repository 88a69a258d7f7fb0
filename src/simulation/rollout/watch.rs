//! One side's regulator, listening to its model token by token.
//!
//! It is told nothing that depends on a clock or on how the work was cut up, so that its readings are part of what the
//! seed decides. Of rejected drafts it hears what they cost, and each redraft that a monitor asked for is a correction.

use super::transcript::{Attempt, MonitorEvent, Regulated, TokenCount, TokenLine, Utterance};
use crate::foundation::chat::{Completion, Finish, Flow, ModelInfo, TokenLogprob, TokenSink};
use crate::governance::regulator::{
    BreakAction, Calibration, ConfidenceSpan, CorrectionPattern, Decision, LlmEvent, Regulator, Settings, Signals,
};
use crate::simulation::persona::{Regulation, RegulatorPolicy, Speaker};

/// A regulator and how much of the reply it has heard. A value: every draft is heard by a clone.
#[derive(Clone)]
pub(super) struct Watch {
    regulator: Regulator,
    enforces: bool,
    tokens: usize,
}

impl Watch {
    /// For the replies of a model. A calibration that does not hold for it is left aside.
    pub(super) fn new(
        speaker: Speaker,
        model: &ModelInfo,
        regulation: Regulation,
        calibration: Option<&Calibration>,
    ) -> Self {
        let mut settings = Settings::default();
        // The persona has a task, what it must do; to the other side's talk nothing is off topic.
        settings.scope.enabled = speaker == Speaker::Persona;
        settings.confidence.vocabulary = model.vocabulary;
        settings.cost.hard.tokens = regulation.tokens_max;
        let mut regulator = Regulator::new(settings);
        let holds =
            |calibration: &&Calibration| calibration.holds_for(&model.name, model.digest, model.template).is_ok();
        if let Some(calibration) = calibration.filter(holds) {
            regulator.calling(Some(calibration.scope.clone()));
            regulator.calibrate(calibration.clone());
        }
        Self { regulator, enforces: regulation.policy == RegulatorPolicy::Enforce, tokens: 0 }
    }

    /// Whether its decisions are carried out.
    pub(super) const fn enforces(&self) -> bool {
        self.enforces
    }

    /// What is to be done until further notice.
    pub(super) fn task(&mut self, text: &str) {
        self.regulator.on_event(LlmEvent::Task { text });
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
            let flow = self.regulator.on_token(token);
            if self.enforces { flow } else { Flow::Continue }
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

    /// The message stands. What its monitors corrected is learned from its record, so that a replay learns the same; then
    /// comes the bill for all attempts.
    pub(super) fn accepted(&mut self, utterance: &Utterance, events: &[MonitorEvent]) {
        let corrections = corrections(utterance, events);
        for correction_message in &corrections {
            self.regulator.on_event(LlmEvent::UserCorrection { correction_message, corrects_last: true });
        }
        // A correction says what the turn was worth; words without a fault do not take that back.
        if let Some(quality) = utterance.quality.filter(|_| corrections.is_empty()) {
            self.regulator.on_event(LlmEvent::QualityFeedback { quality: quality.value });
        }
        let TokenCount { tokens_in, tokens_out } = utterance.usage;
        let (tokens_cached, money_micros, wallclock_ms) = (0, 0, 0);
        let provider = None;
        self.regulator.on_event(LlmEvent::Cost {
            tokens_in,
            tokens_out,
            tokens_cached,
            money_micros,
            wallclock_ms,
            provider,
        });
    }

    /// A recorded message, heard again; `events` are what the monitors found in it.
    pub(super) fn replay(&mut self, utterance: &Utterance, lines: &[TokenLine], events: &[MonitorEvent]) {
        if let Some(finish) = utterance.finish {
            for line in lines.iter().filter(|line| line.speaker == utterance.speaker) {
                self.hear(&line.tokens());
            }
            let missing = utterance.tokens.count == 0 && finish == Finish::Refusal;
            self.end(if missing { "" } else { &utterance.content }, finish);
        }
        self.accepted(utterance, events);
    }

    /// What the regulator made of the turn.
    pub(super) fn record(&self) -> Regulated {
        Regulated { reading: self.regulator.turn_reading(), decisions: self.regulator.decide().to_vec() }
    }

    /// What the regulator makes of the work so far.
    pub(super) fn signals(&self) -> Signals {
        self.regulator.signals()
    }

    /// How confident the model was, to choose between drafts by.
    pub(super) fn confidence(&self) -> f64 {
        self.regulator.signals().confidence.unwrap_or(0.0)
    }

    /// What to tell the model before it speaks, where it was corrected for the same again and again.
    pub(super) fn prelude(&self) -> Option<String> {
        let rulings = self.regulator.decide().iter().filter(|_| self.enforces);
        rulings.map(|ruling| &ruling.decision).find_map(|decision| match decision {
            Decision::ProceduralWarning { patterns } => {
                let latest = patterns.iter().filter_map(|pattern| pattern.example_corrections.last());
                let told: Vec<_> = latest.map(String::as_str).collect();
                (!told.is_empty()).then(|| format!("Again and again you had to be told: {}", told.join(" ")))
            }
            _ => None,
        })
    }

    /// The parts of the complete reply that the model itself found unlikely, where something is to be done about it.
    pub(super) fn doubts(&self) -> &[ConfidenceSpan] {
        let decisions = self.regulator.decide().iter().filter(|_| self.enforces).map(|ruling| &ruling.decision);
        for decision in decisions {
            if let Decision::LowConfidenceSpans { spans } = decision {
                return spans;
            }
        }
        &[]
    }

    /// Why the reply under way was told to end, as the regulator names it.
    pub(super) fn stopped(&self) -> Option<String> {
        let stops = self.enforces && self.regulator.stops();
        stops.then(|| self.regulator.decide().first().map_or("", |ruling| ruling.decision.kind()).to_owned())
    }

    /// Why the rollout should end, where it is to.
    pub(super) fn broken(&self) -> Option<String> {
        let rulings = self.regulator.decide().iter().filter(|_| self.enforces);
        rulings.map(|ruling| &ruling.decision).find_map(|decision| match decision {
            Decision::CircuitBreak { action: BreakAction::Stop | BreakAction::PauseAndAsk, suggestion, .. } => {
                Some(suggestion.clone())
            }
            _ => None,
        })
    }

    /// What was corrected again and again, the best established first.
    pub(super) fn learned(&self) -> Vec<CorrectionPattern> {
        self.regulator.patterns()
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

/// What was told to a model whose drafts were found wanting, once per draft that was asked for again.
fn corrections(utterance: &Utterance, events: &[MonitorEvent]) -> Vec<String> {
    let last = utterance.attempts.last().map_or(0, |attempt: &Attempt| attempt.index).max(utterance.attempt);
    let again = events.iter().filter(|event| event.attempt < last);
    let mut told: Vec<(usize, String)> = Vec::new();
    for event in again {
        let text =
            if event.finding.instruction.is_empty() { &event.finding.detail } else { &event.finding.instruction };
        match told.last_mut() {
            Some((attempt, all)) if *attempt == event.attempt => {
                all.push(' ');
                all.push_str(text);
            }
            _ => told.push((event.attempt, text.clone())),
        }
    }
    told.into_iter().map(|(_, text)| text).collect()
}
