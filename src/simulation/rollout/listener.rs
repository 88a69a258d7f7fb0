//! Feeds one side's regulator with its model's tokens.
//!
//! The regulator receives nothing that depends on a clock or on caching, unless time is capped, so its output depends only
//! on the seed. For
//! rejected drafts it receives their cost, and each redraft requested by a monitor counts as a correction.

use super::transcript::{Attempt, MonitorEvent, RegulatorRecord, TokenCount, TokenLine, Utterance};
use crate::foundation::chat::{Completion, Finish, Flow, ModelInfo, TokenLogprob, TokenSink};
use crate::governance::regulator::{
    BreakAction, Calibration, ConfidenceBasis, ConfidenceSpan, CorrectionPattern, Decision, LlmEvent, Regulator,
    Settings, Signals,
};
use crate::simulation::persona::{RegulatorConfig, RegulatorPolicy, Speaker};

/// A regulator and the number of tokens of the current reply it has processed. Every draft is processed by a clone.
#[derive(Clone)]
pub(super) struct RegulatorListener {
    regulator: Regulator,
    enforces: bool,
    tokens: usize,
}

impl RegulatorListener {
    /// A listener for a model's replies. A calibration for another model, or not for free replies, is ignored.
    pub(super) fn new(
        speaker: Speaker,
        model: &ModelInfo,
        regulation: RegulatorConfig,
        calibration: Option<&Calibration>,
    ) -> Self {
        let mut settings = Settings::default();
        // Only the persona has a task; the interlocutor's messages cannot be off topic.
        settings.scope.enabled = speaker == Speaker::Persona;
        settings.confidence.vocabulary = model.vocabulary;
        settings.cost.hard.tokens = regulation.tokens_max;
        settings.cost.hard.money_micros = regulation.money_micros_max;
        settings.cost.hard.wallclock_ms = regulation.wallclock_ms_max;
        let mut regulator = Regulator::new(settings);
        let holds = |calibration: &&Calibration| {
            let fits = calibration.check_model(&model.name, model.digest, model.template).is_ok();
            fits && calibration.check_use().is_ok()
        };
        if let Some(calibration) = calibration.filter(holds) {
            regulator.set_model_scope(Some(calibration.scope.clone()));
            regulator.calibrate(calibration.clone());
        }
        Self { regulator, enforces: regulation.policy == RegulatorPolicy::Enforce, tokens: 0 }
    }

    /// Whether its decisions are carried out.
    pub(super) const fn enforces(&self) -> bool {
        self.enforces
    }

    /// Sets the task that scope drift is measured against.
    pub(super) fn set_task(&mut self, text: &str) {
        self.regulator.on_event(LlmEvent::Task { text });
    }

    /// Starts a turn that answers `text`.
    pub(super) fn begin_turn(&mut self, text: &str) {
        self.tokens = 0;
        self.regulator.on_event(LlmEvent::TurnStart { user_message: text });
    }

    /// The sink for the reply's tokens.
    pub(super) fn sink(&mut self) -> Box<dyn TokenSink + '_> {
        Box::new(|token: &TokenLogprob| -> Flow {
            self.tokens += 1;
            let flow = self.regulator.on_token(token);
            if self.enforces { flow } else { Flow::Continue }
        })
    }

    /// Completes the reply that started at `before`. If the sink received other tokens than the reply's, for example those of
    /// a model that failed before a fallback, the reply's tokens are processed again.
    pub(super) fn complete(&mut self, before: &Self, completion: &Completion) {
        if self.tokens != completion.tokens.len() {
            *self = before.clone();
            self.feed(&completion.tokens);
        }
        self.end(&completion.message.content, completion.finish);
    }

    /// Records the accepted message: corrections, quality, then the cost of all attempts. Corrections are taken from the
    /// record, so that a replay gives the same result.
    pub(super) fn record_accepted(&mut self, utterance: &Utterance, events: &[MonitorEvent]) {
        let corrections = corrections(utterance, events);
        for correction_message in &corrections {
            self.regulator.on_event(LlmEvent::UserCorrection { correction_message, corrects_last: true });
        }
        // A correction already rates the turn; measured quality must not override it.
        if let Some(quality) = utterance.quality.filter(|_| corrections.is_empty()) {
            self.regulator.on_event(LlmEvent::QualityFeedback { quality: quality.value });
        }
        let TokenCount { tokens_in, tokens_out } = utterance.usage;
        // Money and time are taken from the record, so that a replay gives the same result, and only where they are capped,
        // so that without such a cap nothing depends on a clock.
        let hard = &self.regulator.settings().cost.hard;
        let usd = utterance.hosted.as_ref().and_then(|hosted| hosted.cost_usd).filter(|_| hard.money_micros.is_some());
        let money_micros = (usd.unwrap_or(0.0).max(0.0) * 1e6).round() as u64;
        let seconds = if hard.wallclock_ms.is_some() { utterance.timing.seconds } else { 0.0 };
        let wallclock_ms = (seconds.max(0.0) * 1e3).round() as u64;
        let tokens_cached = 0;
        let provider = None;
        self.regulator.on_event(LlmEvent::Cost {
            call_id: None,
            model: None,
            tokens_in,
            tokens_out,
            tokens_cached,
            money_micros,
            wallclock_ms,
            provider,
        });
    }

    /// Counts what samples of the message cost, and takes its record again.
    pub(super) fn record_resampled(&mut self, utterance: &mut Utterance) {
        if let Some(resampled) = &utterance.resampled {
            self.count_resampled(resampled.tokens);
            utterance.regulator = self.record();
        }
    }

    fn count_resampled(&mut self, tokens_out: u64) {
        self.regulator.on_event(LlmEvent::Cost {
            call_id: None,
            model: None,
            tokens_in: 0,
            tokens_out,
            tokens_cached: 0,
            money_micros: 0,
            wallclock_ms: 0,
            provider: None,
        });
    }

    /// Replays a recorded message; `events` are its monitor findings.
    pub(super) fn replay(&mut self, utterance: &Utterance, lines: &[TokenLine], events: &[MonitorEvent]) {
        if let Some(finish) = utterance.finish {
            for line in lines.iter().filter(|line| line.speaker == utterance.speaker) {
                self.feed(&line.tokens());
            }
            let missing = utterance.tokens.count == 0 && finish == Finish::Refusal;
            self.end(if missing { "" } else { &utterance.content }, finish);
        }
        self.record_accepted(utterance, events);
        if let Some(resampled) = &utterance.resampled {
            self.count_resampled(resampled.tokens);
        }
    }

    /// The confidence in a thought alone, from a regulator of its own, and where it comes from. A calibration is for
    /// answers, so it is not used.
    pub(super) fn confidence_in_thought(&self, tokens: &[TokenLogprob]) -> (Option<f64>, Option<ConfidenceBasis>) {
        let mut regulator = Regulator::new(self.regulator.settings().clone());
        regulator.on_event(LlmEvent::TurnStart { user_message: "" });
        for token in tokens {
            // It is complete, so it cannot be stopped.
            let _flow = regulator.on_token(token);
        }
        let text: String = tokens.iter().map(|token| token.text.as_str()).collect();
        regulator.on_event(LlmEvent::TurnComplete { full_response: &text, finish: Some(Finish::Stop) });
        let reading = regulator.turn_stats();
        (reading.confidence, reading.confidence_basis)
    }

    /// The regulator's record of the turn.
    pub(super) fn record(&self) -> RegulatorRecord {
        RegulatorRecord { reading: self.regulator.turn_stats(), decisions: self.regulator.decide().to_vec() }
    }

    /// The regulator's signals over the conversation so far.
    pub(super) fn signals(&self) -> Signals {
        self.regulator.signals()
    }

    /// The confidence in the last reply, used to choose between drafts.
    pub(super) fn confidence(&self) -> f64 {
        self.regulator.signals().confidence.unwrap_or(0.0)
    }

    /// An instruction for the next reply if the same correction recurred.
    pub(super) fn correction_reminder(&self) -> Option<String> {
        let rulings = self.regulator.decide().iter().filter(|_| self.enforces);
        rulings.map(|ruling| &ruling.decision).find_map(|decision| match decision {
            Decision::ProceduralWarning { patterns } => {
                let latest = patterns.iter().filter_map(|pattern| pattern.example_corrections.last());
                let texts: Vec<_> = latest.map(String::as_str).collect();
                (!texts.is_empty()).then(|| format!("Again and again you had to be told: {}", texts.join(" ")))
            }
            _ => None,
        })
    }

    /// The low-confidence spans of the completed reply, if decisions are carried out.
    pub(super) fn low_confidence_spans(&self) -> &[ConfidenceSpan] {
        let decisions = self.regulator.decide().iter().filter(|_| self.enforces).map(|ruling| &ruling.decision);
        for decision in decisions {
            if let Decision::LowConfidenceSpans { spans } = decision {
                return spans;
            }
        }
        &[]
    }

    /// The kind of decision that stopped the reply, if any.
    pub(super) fn stopped(&self) -> Option<String> {
        let should_stop = self.enforces && self.regulator.should_stop();
        should_stop.then(|| self.regulator.decide().first().map_or("", |ruling| ruling.decision.kind()).to_owned())
    }

    /// The reason to end the rollout, if a circuit break is carried out.
    pub(super) fn circuit_break(&self) -> Option<String> {
        let rulings = self.regulator.decide().iter().filter(|_| self.enforces);
        rulings.map(|ruling| &ruling.decision).find_map(|decision| match decision {
            Decision::CircuitBreak { action: BreakAction::Stop | BreakAction::PauseAndAsk, suggestion, .. } => {
                Some(suggestion.clone())
            }
            _ => None,
        })
    }

    /// The recurring corrections, the most frequent first.
    pub(super) fn correction_patterns(&self) -> Vec<CorrectionPattern> {
        self.regulator.patterns()
    }

    fn feed(&mut self, tokens: &[TokenLogprob]) {
        for token in tokens {
            self.tokens += 1;
            // The reply is already complete, so it cannot be stopped.
            let _flow = self.regulator.on_token(token);
        }
    }

    fn end(&mut self, content: &str, finish: Finish) {
        self.regulator.on_event(LlmEvent::TurnComplete { full_response: content, finish: Some(finish) });
    }
}

/// The corrections of a message: one per redraft, with the instructions that led to it.
fn corrections(utterance: &Utterance, events: &[MonitorEvent]) -> Vec<String> {
    let last = utterance.attempts.last().map_or(0, |attempt: &Attempt| attempt.index).max(utterance.attempt);
    let again = events.iter().filter(|event| event.attempt < last);
    let mut texts: Vec<(usize, String)> = Vec::new();
    for event in again {
        let text =
            if event.finding.instruction.is_empty() { &event.finding.detail } else { &event.finding.instruction };
        match texts.last_mut() {
            Some((attempt, all)) if *attempt == event.attempt => {
                all.push(' ');
                all.push_str(text);
            }
            _ => texts.push((event.attempt, text.clone())),
        }
    }
    texts.into_iter().map(|(_, text)| text).collect()
}
