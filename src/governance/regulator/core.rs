//! The regulator: dispatches events to its detectors and keeps their decisions ranked by urgency.

use super::calibration::{Calibration, CalibrationScope};
use super::complaint::{Complaint, complaint};
use super::corrections::Corrections;
use super::cost::{CostTracker, ResourceUsage};
use super::decision::{BreakAction, CorrectionPattern, Decision, Evidence, RankedDecision};
use super::event::LlmEvent;
use super::features::Features;
use super::quality::{CORRECTED, QualityTrack};
use super::reply::Reply;
use super::scope::{AnswerLikelihood, Drift, ScopeTracker, SentenceEmbedder};
use super::settings::Settings;
use super::signals::{ConfidenceBasis, ResponseType, Signals, Structure, TurnStats, either};
use super::spans::{Baseline, low_confidence};
use super::state::RegulatorState;
use super::tokens::{Estimates, StopLevel, TokenStats};
use super::tools::ToolCalls;
use super::topics::Topics;
use crate::foundation::chat::{Finish, Flow, TokenLogprob};

/// Weight of the latest turn in the rate of corrections.
const CORRECTION_RECENCY: f64 = 0.3;

/// Monitors one user's model calls. A pure value: no clock, randomness or files; `Send` and `Sync`.
#[derive(Debug, Clone)]
pub struct Regulator {
    settings: Settings,
    user: String,
    turn: Turn,
    reply: Reply,
    tokens: TokenStats,
    cost: CostTracker,
    quality: QualityTrack,
    tools: ToolCalls,
    scope: ScopeTracker,
    corrections: Corrections,
    topics: Topics,
    earlier_turns: u64,
    level: Baseline,
    calibrations: Vec<Calibration>,
    model_scope: Option<CalibrationScope>,
    /// Exponential mean of "this turn was corrected".
    correction_rate: f64,
    decisions: Vec<RankedDecision>,
    /// What the user complains about turn after turn, and its name.
    complained_about: Option<(Features, String)>,
    /// The user's last message may have been a complaint.
    may_complain: bool,
    /// A hard cap is reached.
    hard_cap_reached: bool,
}

/// The state of the current turn.
#[derive(Debug, Clone, Default)]
struct Turn {
    number: u64,
    complete: bool,
    corrected: bool,
    outcome: TurnOutcome,
    warning: Option<RankedDecision>,
    structure: Option<Structure>,
    response_type: Option<ResponseType>,
    stopped: Option<RankedDecision>,
    low_confidence: Option<RankedDecision>,
    drift: Option<Drift>,
    unusable: u64,
}

/// Whether the turn failed or succeeded, as far as known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum TurnOutcome {
    #[default]
    Open,
    Failed,
    Succeeded,
}

impl Default for Regulator {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl Regulator {
    /// A regulator without a user.
    pub fn new(settings: Settings) -> Self {
        Self::with_user(settings, String::new())
    }

    /// A regulator for one user, with default settings. What it learns from one user is never applied to another.
    pub fn for_user(user_id: impl Into<String>) -> Self {
        Self::with_user(Settings::default(), user_id.into())
    }

    /// A regulator for one user.
    pub fn with_user(settings: Settings, user_id: impl Into<String>) -> Self {
        Self::import(settings, RegulatorState::new(user_id.into()))
    }

    /// A regulator with the state that an earlier session exported. Caps are per session and start again at zero.
    pub fn import(settings: Settings, state: RegulatorState) -> Self {
        Self {
            user: state.user,
            turn: Turn::default(),
            reply: Reply::default(),
            tokens: TokenStats::new(&settings.confidence),
            cost: CostTracker::new(settings.cost.clone(), state.spent),
            quality: QualityTrack::new(settings.quality.clone(), state.recent_quality),
            tools: ToolCalls::new(settings.tools.clone()),
            scope: ScopeTracker::new(settings.scope.clone()),
            corrections: state.corrections,
            topics: Topics::default(),
            earlier_turns: state.turns,
            level: state.level,
            calibrations: state.calibrations,
            model_scope: None,
            correction_rate: state.correction_rate,
            decisions: vec![RankedDecision { decision: Decision::Continue, evidence: Vec::new() }],
            complained_about: None,
            may_complain: false,
            hard_cap_reached: false,
            settings,
        }
    }

    /// Everything that is stored between sessions.
    pub fn export(&self) -> RegulatorState {
        let mut level = self.level;
        level.learn(self.tokens.known(), self.tokens.mean_logprob());
        let mut state = RegulatorState::new(self.user.clone());
        state.turns = self.earlier_turns.saturating_add(self.turn.number);
        state.spent = self.cost.lifetime();
        state.recent_quality = self.quality.recent();
        state.correction_rate = self.rate_with_this_turn();
        state.level = level;
        state.corrections.clone_from(&self.corrections);
        state.calibrations.clone_from(&self.calibrations);
        state
    }

    /// The rules learned from the user's corrections, the most frequent first.
    pub fn patterns(&self) -> Vec<CorrectionPattern> {
        self.corrections.patterns(&self.settings.corrections, &self.user)
    }

    /// The user's id.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The current turn, from 1; 0 before the first.
    pub fn turn(&self) -> u64 {
        self.turn.number
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sets which model is called, with which chat template, for which kind of task. A calibration is used only if its
    /// scope is equal; with `None` (unknown) no calibration is used.
    pub fn set_model_scope(&mut self, scope: Option<CalibrationScope>) {
        self.model_scope = scope;
    }

    /// Adds a calibration; it replaces one with the same scope.
    pub fn calibrate(&mut self, calibration: Calibration) {
        self.calibrations.retain(|older| older.scope != calibration.scope);
        self.calibrations.push(calibration);
    }

    /// Sets a sentence embedder that is used in addition to words when a reply is compared with its task; `None` uses words
    /// alone.
    pub fn set_embedder(&mut self, embedder: Option<std::sync::Arc<dyn SentenceEmbedder>>) {
        self.scope.set_embedder(embedder);
    }

    /// Sets a local model that judges how likely a reply is with its task and without; it is preferred to embeddings and words.
    pub fn set_likelihood(&mut self, likelihood: Option<std::sync::Arc<dyn AnswerLikelihood>>) {
        self.scope.set_likelihood(likelihood);
    }

    /// Processes one event. All work is done here; [`Regulator::decide`] only returns what was found.
    pub fn on_event(&mut self, event: LlmEvent<'_>) {
        // Most events are tokens: keep their path short and its stack frame small.
        if let LlmEvent::Token { token, logprob, index: _, entropy, top } = event {
            self.token(token, logprob, entropy, top, |&logprob| logprob);
        } else {
            self.rarer_event(event);
        }
    }

    #[inline(never)]
    fn rarer_event(&mut self, event: LlmEvent<'_>) {
        match event {
            // Handled in `on_event`.
            LlmEvent::Token { .. } => return,
            LlmEvent::Text { text } => {
                self.reply.push_text(text);
                self.cost.text(text.len());
            }
            LlmEvent::Task { text } => self.scope.set_standing(text),
            LlmEvent::ToolCall { call_id, tool_name, args_json } => {
                self.scope.add_context(args_json);
                self.tools.call(call_id, tool_name, args_json);
            }
            LlmEvent::ToolResult { call_id, tool_name, success, duration_ms, result } => {
                self.scope.add_context(result.unwrap_or_default());
                self.cost.tool_time(duration_ms);
                self.tools.result(call_id, tool_name, success, result);
            }
            LlmEvent::TurnStart { user_message } => self.turn_start(user_message),
            LlmEvent::TurnComplete { full_response, finish } => self.turn_complete(full_response, finish),
            LlmEvent::Cost {
                call_id,
                model,
                tokens_in,
                tokens_out,
                tokens_cached,
                money_micros,
                wallclock_ms,
                provider: _,
            } => {
                let amount = ResourceUsage { tokens_in, tokens_out, tokens_cached, money_micros, wallclock_ms };
                self.cost.bill(call_id, model, amount);
            }
            LlmEvent::Elapsed { wallclock_ms } => self.cost.elapsed(wallclock_ms),
            LlmEvent::Reserve { call_id, tokens_in, tokens_out, money_micros, wallclock_ms } => {
                let tokens_cached = 0;
                let amount = ResourceUsage { tokens_in, tokens_out, tokens_cached, money_micros, wallclock_ms };
                self.cost.reserve(call_id, amount);
            }
            LlmEvent::UserCorrection { correction_message, corrects_last } => {
                self.correction(correction_message, corrects_last);
            }
            LlmEvent::QualityFeedback { quality } => self.feedback(quality),
        }
        self.refresh();
    }

    /// Processes one token from a local engine; [`Flow::Stop`] if the reply should end after it.
    pub fn on_token(&mut self, token: &TokenLogprob) -> Flow {
        self.token(&token.text, token.logprob, token.entropy, &token.top, |&(_, logprob)| logprob);
        if self.should_stop() { Flow::Stop } else { Flow::Continue }
    }

    /// Every decision that applies now, the most urgent first; only [`Decision::Continue`] if there is none.
    ///
    /// Caps and early stops are detected while tokens arrive; low-confidence spans and drift when the reply is complete.
    pub fn decide(&self) -> &[RankedDecision] {
        &self.decisions
    }

    /// Whether generation of the current reply should end now: a hard cap is reached, or [`Decision::StopEarly`] applies.
    /// All other decisions concern the next call.
    pub fn should_stop(&self) -> bool {
        self.hard_cap_reached || self.turn.stopped.is_some()
    }

    /// Whether the work should end: [`Regulator::should_stop`], or any decision whose action is to stop.
    pub fn stop_requested(&self) -> bool {
        let stops = |ranked: &RankedDecision| {
            matches!(ranked.decision, Decision::CircuitBreak { action: BreakAction::Stop, .. })
        };
        self.should_stop() || self.decisions.iter().any(stops)
    }

    /// Bytes held by the reply's buffers.
    #[cfg(test)]
    pub(super) fn retained_bytes(&self) -> usize {
        self.reply.retained_bytes() + self.tokens.retained_bytes()
    }

    /// Statistics of the current turn.
    pub fn turn_stats(&self) -> TurnStats {
        let mut estimates = self.tokens.estimates();
        let signals = self.signals_with(&estimates);
        if let Some(calibration) = self.calibration() {
            estimates = calibration.references.complete(estimates);
        }
        TurnStats {
            turn: self.turn.number,
            complete: self.turn.complete,
            confidence: signals.confidence,
            confidence_basis: self.confidence(&estimates).map(|(_, basis)| basis),
            tokens: self.tokens.tokens(),
            tokens_with_logprob: self.tokens.known(),
            mean_logprob: self.tokens.mean_logprob(),
            min_logprob: self.tokens.min_logprob(),
            entropy_mean: estimates.entropy_mean,
            entropy_max: estimates.entropy_max,
            estimates,
            cost: self.cost.this_turn(),
            cost_session: self.cost.spent(),
            drift_score: self.turn.drift.as_ref().map(|drift| drift.score),
            signals,
            unusable: self.turn.unusable + self.tokens.unusable(),
            truncated: self.reply.truncated(),
        }
    }

    /// The regulatory signals now (spec §5).
    pub fn signals(&self) -> Signals {
        self.signals_with(&self.tokens.estimates())
    }

    fn signals_with(&self, estimates: &Estimates) -> Signals {
        let corrections = if self.turn.corrected { 1.0 } else { self.correction_rate };
        let (rise, spike) = self.tokens.rise_and_spike().unwrap_or_default();
        let entropy_trajectory = either(rise, corrections);
        let budget_depletion = self.cost.depletion();
        let recent_quality = self.quality.recent();
        let poor = recent_quality.map_or(0.0, |quality| 1.0 - quality);
        Signals {
            entropy_trajectory,
            response_type: self.turn.response_type,
            budget_depletion,
            confidence: self.confidence(estimates).map(|(confidence, _)| confidence),
            strategy: self.strategy(),
            overrun_prevention: budget_depletion.unwrap_or(0.0) * (1.0 + either(poor, entropy_trajectory)) / 2.0,
            recent_quality,
            salience: either(spike, corrections),
        }
    }

    /// The name of the most frequent rule that applies to this task.
    fn strategy(&self) -> Option<String> {
        match &self.turn.warning.as_ref()?.decision {
            Decision::ProceduralWarning { patterns } => patterns.first().map(|pattern| pattern.pattern_name.clone()),
            _ => None,
        }
    }

    /// The calibration whose scope equals the current model, template and task.
    fn calibration(&self) -> Option<&Calibration> {
        let now = self.model_scope.as_ref()?;
        self.calibrations.iter().find(|known| known.scope == *now && known.is_reliable())
    }

    fn confidence(&self, estimates: &Estimates) -> Option<(f64, ConfidenceBasis)> {
        if let Some(probability) = self.calibration().and_then(|calibration| calibration.probability(estimates)) {
            return Some((probability, ConfidenceBasis::Calibrated));
        }
        if let Some(mean) = self.tokens.mean_logprob() {
            return Some((libm::exp(mean), ConfidenceBasis::Uncalibrated));
        }
        let structural = self.turn.structure.and_then(Structure::confidence)?;
        Some((structural, ConfidenceBasis::Structural))
    }

    fn turn_start(&mut self, user_message: &str) {
        self.level.learn(self.tokens.known(), self.tokens.mean_logprob());
        self.correction_rate = self.rate_with_this_turn();
        let last = std::mem::take(&mut self.turn);
        self.turn.number = last.number + 1;
        self.reply.clear();
        self.tokens.clear();
        self.cost.turn_start(user_message.len());
        let alike = self.scope.set_of_turn(user_message).map_or(0.0, f64::from);
        let corrects =
            self.is_correction(user_message, alike) && last.complete && last.outcome != TurnOutcome::Succeeded;
        if corrects {
            self.quality.judge(last.number, CORRECTED, true);
            if last.outcome == TurnOutcome::Open {
                self.complaint_failed(last.number);
            }
        } else {
            self.complained_about = None;
        }
        if self.scope.is_request() {
            self.tools.new_request();
        } else {
            self.tools.new_turn();
        }
        self.scope.add_context(user_message);
        if let Some(task) = self.scope.current() {
            self.turn.warning = self.corrections.warning(&self.settings.corrections, &self.user, task);
        }
    }

    /// Whether a message corrects the last reply: it complains of it, clearly or while it repeats the request. A repeated
    /// request alone is a routine.
    fn is_correction(&mut self, user_message: &str, alike: f64) -> bool {
        let complaint = complaint(user_message);
        let may_complain_before = std::mem::replace(&mut self.may_complain, complaint == Complaint::Possible);
        let settings = &self.settings.corrections;
        match complaint {
            Complaint::Clear => settings.infer_from_complaints,
            // After a complaint, "and it still doesn't scroll" is another one; so is the second of two that may be complaints.
            Complaint::Possible if self.complained_about.is_some() || may_complain_before => {
                settings.infer_from_complaints
            }
            Complaint::Possible | Complaint::Refusal => settings.infer_from_repeats && alike >= settings.asked_again,
            Complaint::None => false,
        }
    }

    /// A complaint counts against what was asked for when the complaints began, however it is worded.
    fn complaint_failed(&mut self, turn: u64) {
        if self.complained_about.is_none() {
            self.complained_about = self.scope.previous().map(|(task, name)| (task.clone(), name));
        }
        if let Some((task, name)) = &self.complained_about {
            self.topics.failed(task, turn, &self.settings.quality, || name.clone());
        }
    }

    fn correction(&mut self, message: &str, corrects_last: bool) {
        self.turn.corrected = true;
        if corrects_last {
            self.quality.judge(self.turn.number, CORRECTED, true);
            self.turn_failed();
        }
        self.corrections.learn(&self.settings.corrections, message, self.scope.corrected_by(message));
    }

    fn feedback(&mut self, quality: f64) {
        if !(0.0..=1.0).contains(&quality) {
            self.turn.unusable += 1;
            return;
        }
        self.quality.judge(self.turn.number, quality, false);
        if quality < self.settings.quality.failure {
            self.turn_failed();
        } else if quality >= self.settings.quality.success {
            self.turn.outcome = TurnOutcome::Succeeded;
            if let Some((_, task)) = self.scope.current() {
                self.topics.succeeded(task);
            }
        }
    }

    fn turn_failed(&mut self) {
        if self.turn.outcome != TurnOutcome::Failed {
            self.turn.outcome = TurnOutcome::Failed;
            self.topic_failed();
        }
    }

    fn topic_failed(&mut self) {
        if let Some((_, task)) = self.scope.current() {
            self.topics.failed(task, self.turn.number, &self.settings.quality, || self.scope.topic_name());
        }
    }

    /// The rate of corrected turns, the current one included.
    fn rate_with_this_turn(&self) -> f64 {
        let corrected = if self.turn.corrected { 1.0 } else { 0.0 };
        let weight = if self.turn.number > 0 { CORRECTION_RECENCY } else { 0.0 };
        self.correction_rate + weight * (corrected - self.correction_rate)
    }

    fn token<T>(
        &mut self,
        text: &str,
        logprob: Option<f32>,
        entropy: Option<f32>,
        top: &[T],
        value: impl Fn(&T) -> f32,
    ) {
        let logprob = self.tokens.push(logprob, entropy, top, value);
        self.reply.push_token(text, logprob);
        let cap_met = self.cost.token();
        let below_stop_level = self.tokens.below_stop_level().filter(|_| self.turn.stopped.is_none());
        if cap_met || below_stop_level.is_some() {
            self.stop_or_cap(below_stop_level);
        }
    }

    /// A cap is reached, or the reply is to be stopped: rare.
    #[cold]
    fn stop_or_cap(&mut self, below_stop_level: Option<StopLevel>) {
        if let Some(level) = below_stop_level {
            self.turn.stopped = Some(self.stop_early(level));
        }
        self.refresh();
    }

    fn stop_early(&self, level: StopLevel) -> RankedDecision {
        let settings = &self.settings.confidence;
        let (group_logprob, group_confidence, evidence) = match level {
            StopLevel::Logprob(mean) => {
                (Some(mean), None, Evidence::new("group_mean_logprob_nats", mean, settings.stop_nll.map(|nll| -nll)))
            }
            StopLevel::Confidence(mean) => {
                (None, Some(mean), Evidence::new("group_confidence_nats", mean, settings.stop_group_confidence))
            }
        };
        RankedDecision {
            decision: Decision::StopEarly {
                group_logprob,
                group_confidence,
                window_tokens: settings.group_tokens,
                at_token: self.tokens.tokens().saturating_sub(1),
            },
            evidence: vec![evidence],
        }
    }

    fn turn_complete(&mut self, full_response: &str, finish: Option<Finish>) {
        self.reply.complete(full_response);
        let text = self.reply.text();
        let structure = Structure::of(text);
        self.turn.response_type = Some(structure.response_type(text, finish));
        self.turn.structure = Some(structure);
        self.turn.low_confidence = self.low_confidence();
        self.turn.drift = self.scope.judge(self.reply.text());
        self.scope.add_context(self.reply.text());
        self.cost.complete();
        self.turn.complete = true;
    }

    fn low_confidence(&self) -> Option<RankedDecision> {
        let settings = &self.settings.confidence;
        let spans = low_confidence(self.reply.text(), self.reply.places(), self.level, settings);
        let lowest = spans.iter().map(|span| span.mean_token_logprob).reduce(f64::min)?;
        let evidence = vec![Evidence::new("lowest_span_mean_logprob_nats", lowest, -settings.span_nll)];
        Some(RankedDecision { decision: Decision::LowConfidenceSpans { spans }, evidence })
    }

    /// Collects the decisions of all detectors and ranks them.
    fn refresh(&mut self) {
        let decisions = &mut self.decisions;
        decisions.clear();
        let now = self.turn.number;
        let (judged, mean) = self.quality.last(self.settings.cost.compound_turns, now);
        // One good turn is a recovery, however poor those before it were.
        let recovered = self.quality.latest().is_some_and(|latest| latest >= self.settings.cost.compound_quality);
        let judged = if recovered { 0 } else { judged };
        self.hard_cap_reached = self.cost.decisions(mean, judged, decisions);
        self.quality.decisions(now, decisions);
        decisions.extend(self.tools.ranked().cloned());
        decisions.extend(self.turn.drift.iter().filter_map(|drift| drift.ranked.clone()));
        self.topics.decisions(&self.settings.quality, now, decisions);
        decisions
            .extend([&self.turn.stopped, &self.turn.warning, &self.turn.low_confidence].into_iter().flatten().cloned());
        if decisions.is_empty() {
            decisions.push(RankedDecision { decision: Decision::Continue, evidence: Vec::new() });
        }
        decisions.sort_by_key(|ranked| ranked.decision.rank());
    }
}

#[cfg(test)]
mod tests;
