//! The regulator itself: events go to the parts that need them, and what the parts find is kept ready, ranked.

use super::calibration::{Calibration, CalibrationScope};
use super::cost::{CostTracker, Spent};
use super::decision::{Decision, Evidence, Ruling};
use super::event::LlmEvent;
use super::quality::{CORRECTED, QualityTrack};
use super::reply::Reply;
use super::scope::{Drift, ScopeTracker, SentenceEmbedder};
use super::settings::Settings;
use super::signals::{ConfidenceBasis, ResponseType, Signals, Structure, TurnReading, either};
use super::spans::{Level, low_confidence};
use super::tokens::{Estimates, TokenStats};
use super::tools::ToolCalls;
use crate::foundation::chat::{Finish, Flow, TokenLogprob};

/// Weight of the latest turn in the rate of corrections.
const CORRECTION_RECENCY: f64 = 0.3;

/// Watches one user's model calls. A value: no clock, no randomness, no files; `Send` and `Sync`.
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
    level: Level,
    calibrations: Vec<Calibration>,
    calling: Option<CalibrationScope>,
    /// Exponential mean of "this turn was corrected".
    correction_rate: f64,
    rulings: Vec<Ruling>,
    /// A hard cap forbids going on.
    forbidden: bool,
}

/// Where the turn stands.
#[derive(Debug, Clone, Default)]
struct Turn {
    number: u64,
    complete: bool,
    corrected: bool,
    structure: Option<Structure>,
    response_type: Option<ResponseType>,
    stopped: Option<Ruling>,
    low_confidence: Option<Ruling>,
    drift: Option<Drift>,
    unusable: u64,
}

impl Default for Regulator {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl Regulator {
    /// A regulator for nobody in particular.
    pub fn new(settings: Settings) -> Self {
        Self::with_user(settings, String::new())
    }

    /// A regulator for one user, with the default settings: what it learns from one user is never applied to another.
    pub fn for_user(user_id: impl Into<String>) -> Self {
        Self::with_user(Settings::default(), user_id.into())
    }

    /// A regulator for one user.
    pub fn with_user(settings: Settings, user_id: impl Into<String>) -> Self {
        Self {
            user: user_id.into(),
            turn: Turn::default(),
            reply: Reply::default(),
            tokens: TokenStats::new(&settings.confidence),
            cost: CostTracker::new(settings.cost.clone(), Spent::default()),
            quality: QualityTrack::new(settings.quality.clone(), None),
            tools: ToolCalls::new(settings.tools.clone()),
            scope: ScopeTracker::new(settings.scope.clone()),
            level: Level::default(),
            calibrations: Vec::new(),
            calling: None,
            correction_rate: 0.0,
            rulings: vec![Ruling { decision: Decision::Continue, evidence: Vec::new() }],
            forbidden: false,
            settings,
        }
    }

    /// Whose regulator it is.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// How it judges.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Which model is called, with which template, for which kind of task: a calibration holds for exactly that. `None`
    /// is "unknown", for which none holds.
    pub fn calling(&mut self, scope: Option<CalibrationScope>) {
        self.calling = scope;
    }

    /// Keeps a calibration, in place of an older one for the same use.
    pub fn calibrate(&mut self, calibration: Calibration) {
        self.calibrations.retain(|older| older.scope != calibration.scope);
        self.calibrations.push(calibration);
    }

    /// Hears a sentence embedder beside the words when replies are held against their tasks; `None` hears the words alone.
    pub fn set_embedder(&mut self, embedder: Option<std::sync::Arc<dyn SentenceEmbedder>>) {
        self.scope.set_embedder(embedder);
    }

    /// Takes one event in. All the work is done here; asking costs nothing.
    pub fn on_event(&mut self, event: LlmEvent<'_>) {
        match event {
            LlmEvent::Token { token, logprob, index: _, entropy, top } => {
                self.token(token, logprob, entropy, top, |&logprob| logprob);
                return;
            }
            LlmEvent::Text { text } => {
                self.reply.push_text(text);
                self.cost.text(text.len());
            }
            LlmEvent::Task { text } => self.scope.set_standing(text),
            LlmEvent::ToolCall { tool_name, args_json } => self.tools.call(tool_name, args_json),
            LlmEvent::ToolResult { tool_name, success, duration_ms: _, result } => {
                self.tools.result(tool_name, success, result);
            }
            LlmEvent::TurnStart { user_message } => self.turn_start(user_message),
            LlmEvent::TurnComplete { full_response, finish } => self.turn_complete(full_response, finish),
            LlmEvent::Cost { tokens_in, tokens_out, tokens_cached, money_micros, wallclock_ms, provider: _ } => {
                self.cost.bill(Spent { tokens_in, tokens_out, tokens_cached, money_micros, wallclock_ms });
            }
            LlmEvent::Elapsed { wallclock_ms } => self.cost.elapsed(wallclock_ms),
            LlmEvent::Reserve { tokens_in, tokens_out, money_micros, wallclock_ms } => {
                self.cost.reserve(Spent { tokens_in, tokens_out, tokens_cached: 0, money_micros, wallclock_ms });
            }
            LlmEvent::UserCorrection { correction_message: _, corrects_last } => {
                self.turn.corrected = true;
                if corrects_last {
                    self.quality.judge(self.turn.number, CORRECTED, true);
                }
            }
            LlmEvent::QualityFeedback { quality } => {
                if (0.0..=1.0).contains(&quality) {
                    self.quality.judge(self.turn.number, quality, false);
                } else {
                    self.turn.unusable += 1;
                }
            }
        }
        self.refresh();
    }

    /// One token of the reply, as a local engine gives it: [`Flow::Stop`] when the reply should end after it.
    pub fn on_token(&mut self, token: &TokenLogprob) -> Flow {
        self.token(&token.text, token.logprob, token.entropy, &token.top, |&(_, logprob)| logprob);
        if self.stops() { Flow::Stop } else { Flow::Continue }
    }

    /// Every decision that holds now, the most urgent first; [`Decision::Continue`] alone when none does.
    ///
    /// Caps and hopeless replies are noticed in mid-stream; unlikely and drifting parts when the reply is complete.
    pub fn decide(&self) -> &[Ruling] {
        &self.rulings
    }

    /// Whether the reply that is being generated should end now: a hard cap is met, or the reply is hopeless. The other
    /// decisions concern the next call, not this one.
    pub fn stops(&self) -> bool {
        self.forbidden || self.turn.stopped.is_some()
    }

    /// What is known of the current turn.
    pub fn turn_reading(&self) -> TurnReading {
        let estimates = self.tokens.estimates();
        let signals = self.signals_with(&estimates);
        TurnReading {
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
            strategy: None,
            overrun_prevention: budget_depletion.unwrap_or(0.0) * (1.0 + either(poor, entropy_trajectory)) / 2.0,
            recent_quality,
            salience: either(spike, corrections),
        }
    }

    fn confidence(&self, estimates: &Estimates) -> Option<(f64, ConfidenceBasis)> {
        let calibration =
            self.calling.as_ref().and_then(|now| self.calibrations.iter().find(|known| known.scope == *now));
        if let Some(probability) = calibration.and_then(|calibration| calibration.probability(estimates)) {
            return Some((probability, ConfidenceBasis::Calibrated));
        }
        if let Some(mean) = self.tokens.mean_logprob() {
            return Some((libm::exp(mean), ConfidenceBasis::Uncalibrated));
        }
        let structural = self.turn.structure.and_then(Structure::confidence)?;
        Some((structural, ConfidenceBasis::Structural))
    }

    fn turn_start(&mut self, user_message: &str) {
        self.scope.set_of_turn(user_message);
        let corrected = if self.turn.corrected { 1.0 } else { 0.0 };
        if self.turn.number > 0 {
            self.correction_rate += CORRECTION_RECENCY * (corrected - self.correction_rate);
        }
        self.level.learn(self.tokens.known(), self.tokens.mean_logprob());
        self.turn = Turn { number: self.turn.number + 1, ..Turn::default() };
        self.reply.clear();
        self.tokens.clear();
        self.cost.turn_start();
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
        let mut news = cap_met;
        if self.turn.stopped.is_none()
            && let Some(group_logprob) = self.tokens.hopeless()
        {
            self.turn.stopped = Some(self.stop_early(group_logprob));
            news = true;
        }
        if news {
            self.refresh();
        }
    }

    fn stop_early(&self, group_logprob: f64) -> Ruling {
        let limit = self.settings.confidence.stop_nll.map(|nll| -nll);
        Ruling {
            decision: Decision::StopEarly {
                group_logprob,
                window_tokens: self.settings.confidence.group_tokens,
                at_token: self.tokens.tokens().saturating_sub(1),
            },
            evidence: vec![Evidence::new("group_mean_logprob_nats", group_logprob, limit)],
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
        self.turn.complete = true;
    }

    fn low_confidence(&self) -> Option<Ruling> {
        let settings = &self.settings.confidence;
        let spans = low_confidence(self.reply.text(), self.reply.places(), self.level, settings);
        let lowest = spans.iter().map(|span| span.mean_token_logprob).reduce(f64::min)?;
        let evidence = vec![Evidence::new("lowest_span_mean_logprob_nats", lowest, -settings.span_nll)];
        Some(Ruling { decision: Decision::LowConfidenceSpans { spans }, evidence })
    }

    /// Asks every part anew and ranks what they say.
    fn refresh(&mut self) {
        let rulings = &mut self.rulings;
        rulings.clear();
        let (judged, mean) = self.quality.last(self.settings.cost.compound_turns);
        self.forbidden = self.cost.rulings(mean, judged, rulings);
        self.quality.rulings(rulings);
        rulings.extend(self.tools.ruling().cloned());
        rulings.extend(self.turn.drift.iter().filter_map(|drift| drift.ruling.clone()));
        rulings.extend([&self.turn.stopped, &self.turn.low_confidence].into_iter().flatten().cloned());
        if rulings.is_empty() {
            rulings.push(Ruling { decision: Decision::Continue, evidence: Vec::new() });
        }
        rulings.sort_by_key(|ruling| ruling.decision.rank());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::chat::Basis;
    use crate::governance::regulator::{BreakAction, CircuitBreakReason};

    fn token(token: &str, logprob: f32) -> LlmEvent<'_> {
        LlmEvent::Token { token, logprob: Some(logprob), index: 0, entropy: None, top: &[] }
    }

    fn kinds(regulator: &Regulator) -> Vec<String> {
        regulator
            .decide()
            .iter()
            .map(|ruling| serde_json::to_value(ruling).unwrap()["decision"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn it_can_move_between_threads_and_be_shared() {
        fn check<T: Send + Sync + Clone + 'static>() {}
        check::<Regulator>();
    }

    #[test]
    fn nothing_holds_before_anything_happened() {
        let regulator = Regulator::for_user("u");
        assert_eq!(kinds(&regulator), ["continue"]);
        assert_eq!(regulator.turn_reading(), TurnReading::default());
    }

    #[test]
    fn a_turn_is_read_and_the_next_one_starts_clean() {
        let mut regulator = Regulator::default();
        regulator.on_event(LlmEvent::TurnStart { user_message: "Greet." });
        for (text, logprob) in [("Good", -0.5), (" day", -1.5)] {
            regulator.on_event(token(text, logprob));
        }
        regulator.on_event(LlmEvent::TurnComplete { full_response: "Good day", finish: None });
        let reading = regulator.turn_reading();
        assert_eq!((reading.turn, reading.complete, reading.tokens), (1, true, 2));
        assert_eq!((reading.mean_logprob, reading.min_logprob), (Some(-1.0), Some(-1.5)));
        assert_eq!(reading.confidence, Some(libm::exp(-1.0)));
        assert_eq!(reading.confidence_basis, Some(ConfidenceBasis::Uncalibrated));
        assert_eq!(reading.cost.tokens_out, 2);
        let json = serde_json::to_string(&reading).unwrap();
        assert_eq!(serde_json::from_str::<TurnReading>(&json).unwrap(), reading);

        regulator.on_event(LlmEvent::TurnStart { user_message: "Again." });
        let reading = regulator.turn_reading();
        assert_eq!((reading.turn, reading.complete, reading.tokens, reading.confidence), (2, false, 0, None));
        assert_eq!((reading.cost.tokens_out, reading.cost_session.tokens_out), (0, 2));
    }

    #[test]
    fn without_logprobs_confidence_is_structural_and_says_so() {
        let mut regulator = Regulator::default();
        regulator.on_event(LlmEvent::TurnStart { user_message: "Greet." });
        regulator.on_event(LlmEvent::Text { text: "Good day." });
        assert_eq!(regulator.turn_reading().confidence, None);
        regulator.on_event(LlmEvent::TurnComplete { full_response: "Good day.", finish: None });
        assert_eq!(regulator.turn_reading().confidence_basis, Some(ConfidenceBasis::Structural));
    }

    #[test]
    fn the_local_path_and_the_event_path_agree() {
        let (mut by_event, mut by_token) = (Regulator::default(), Regulator::default());
        let top = [-0.2f32, -1.9];
        let mut full = TokenLogprob::unknown(Some(7), "x");
        full.logprob = Some(top[0]);
        full.basis = Basis::Raw;
        full.top = vec![(7, top[0]), (8, top[1])];
        assert_eq!(by_token.on_token(&full), Flow::Continue);
        by_event.on_event(LlmEvent::Token { token: "x", logprob: Some(top[0]), index: 0, entropy: None, top: &top });
        assert_eq!(by_event.turn_reading(), by_token.turn_reading());
    }

    #[test]
    fn a_hopeless_reply_is_stopped_in_mid_stream_and_the_next_one_is_not() {
        let mut regulator = Regulator::default();
        regulator.on_event(LlmEvent::TurnStart { user_message: "Greet." });
        let stopped = (0..100).find(|_| {
            regulator.on_event(token(" zq", -10.5));
            regulator.stops()
        });
        assert_eq!(stopped, Some(31), "once the first group of 32 is full");
        assert_eq!(kinds(&regulator), ["stop_early"]);
        regulator.on_event(LlmEvent::TurnStart { user_message: "Again." });
        assert_eq!((kinds(&regulator), regulator.stops()), (vec!["continue".to_owned()], false));
    }

    #[test]
    fn a_hard_cap_stops_the_reply_at_the_token_that_meets_it() {
        let mut settings = Settings::default();
        settings.cost.hard.tokens_out = Some(5);
        settings.cost.hard_action = BreakAction::PauseAndAsk;
        let mut regulator = Regulator::new(settings);
        let mut tokens = 0;
        while regulator.on_token(&TokenLogprob::unknown(None, "x")) == Flow::Continue {
            tokens += 1;
        }
        assert_eq!(tokens, 4);
        assert!(matches!(
            regulator.decide(),
            [Ruling {
                decision: Decision::CircuitBreak {
                    reason: CircuitBreakReason::CostCapReached { spent: 5, cap: 5, .. },
                    action: BreakAction::PauseAndAsk,
                    ..
                },
                ..
            }]
        ));
    }

    #[test]
    fn all_that_holds_is_said_the_most_urgent_first() {
        let mut settings = Settings::default();
        settings.cost.hard.tokens = Some(10);
        settings.cost.soft.tokens = Some(5);
        let mut regulator = Regulator::new(settings);
        for quality in [0.9, 0.6, 0.3, 0.0] {
            regulator.on_event(LlmEvent::TurnStart { user_message: "Go on." });
            regulator.on_event(LlmEvent::QualityFeedback { quality });
        }
        regulator.on_event(LlmEvent::Cost {
            tokens_in: 20,
            tokens_out: 0,
            tokens_cached: 0,
            money_micros: 0,
            wallclock_ms: 0,
            provider: None,
        });
        let found: Vec<_> = regulator
            .decide()
            .iter()
            .map(|ruling| match &ruling.decision {
                Decision::CircuitBreak { reason: CircuitBreakReason::CostCapReached { cap, .. }, .. } => {
                    cap.to_string()
                }
                Decision::CircuitBreak { reason: CircuitBreakReason::QualityDeclineNoRecovery { .. }, .. } => {
                    "decline".into()
                }
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(found, ["10", "decline", "5"]);
        assert!(regulator.decide().iter().all(|ruling| !ruling.evidence.is_empty()));
        let json = serde_json::to_string(regulator.decide()).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Ruling>>(&json).unwrap(), regulator.decide());
    }

    #[test]
    fn a_calibration_holds_for_its_model_and_template_alone() {
        use crate::governance::regulator::calibration::tests::{fitted, scope};
        let mut regulator = Regulator::default();
        regulator.calibrate(fitted("m"));
        regulator.on_event(LlmEvent::TurnStart { user_message: "?" });
        regulator.on_event(token("x", -0.1));
        let basis = |regulator: &Regulator| regulator.turn_reading().confidence_basis;
        assert_eq!(basis(&regulator), Some(ConfidenceBasis::Uncalibrated), "unknown model");
        regulator.calling(Some(scope("another")));
        assert_eq!(basis(&regulator), Some(ConfidenceBasis::Uncalibrated), "another model");
        regulator.calling(Some(scope("m")));
        let reading = regulator.turn_reading();
        assert!(reading.calibrated() && (reading.confidence.unwrap() - 0.9).abs() < 1e-9);
    }

    #[test]
    fn unlikely_words_are_pointed_out_when_the_reply_is_complete() {
        let mut regulator = Regulator::default();
        regulator.on_event(LlmEvent::TurnStart { user_message: "Capital of Tanzania?" });
        for (text, logprob) in [("It", -0.1), (" is", -0.1), (" Zan", -6.0), ("zibar", -5.0), (".", -0.1)] {
            regulator.on_event(token(text, logprob));
        }
        assert_eq!(kinds(&regulator), ["continue"]);
        regulator.on_event(LlmEvent::TurnComplete { full_response: "It is Zanzibar.", finish: None });
        let [Ruling { decision: Decision::LowConfidenceSpans { spans }, .. }] = regulator.decide() else { panic!() };
        assert_eq!((spans[0].text.as_str(), spans[0].span.start_char, spans.len()), ("Zanzibar", 6, 1));
    }

    #[test]
    fn numbers_that_make_no_sense_are_counted_and_left_out() {
        let mut regulator = Regulator::default();
        regulator.on_event(LlmEvent::TurnStart { user_message: "" });
        for quality in [f64::NAN, -0.1, 1.1, f64::INFINITY] {
            regulator.on_event(LlmEvent::QualityFeedback { quality });
        }
        regulator.on_event(token("x", f32::NAN));
        let reading = regulator.turn_reading();
        assert_eq!((reading.unusable, reading.signals.recent_quality, reading.confidence), (5, None, None));
    }
}
