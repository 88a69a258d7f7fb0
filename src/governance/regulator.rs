//! The reliability layer beside a model call: events in, decisions out, while the tokens are still being generated.
//!
//! ```
//! use loom_agent::governance::regulator::{CircuitBreakReason, Decision, LlmEvent, Regulator, Settings};
//!
//! let mut settings = Settings::default();
//! settings.cost.hard.tokens = Some(1_000);
//! let mut regulator = Regulator::with_user(settings, "user_123");
//!
//! regulator.on_event(LlmEvent::TurnStart { user_message: "Make this function async." });
//! for (index, (token, logprob)) in [("Done", -0.1), (".", -0.02)].into_iter().enumerate() {
//!     regulator.on_event(LlmEvent::Token { token, logprob: Some(logprob), index, entropy: None, top: &[] });
//! }
//! regulator.on_event(LlmEvent::TurnComplete { full_response: "Done.", finish: None });
//! assert_eq!(regulator.turn_stats().tokens_with_logprob, 2);
//! assert!(!regulator.should_stop());
//!
//! regulator.on_event(LlmEvent::Cost {
//!     call_id: None, model: None, tokens_in: 1_200, tokens_out: 2, tokens_cached: 0, money_micros: 0, wallclock_ms: 80, provider: None,
//! });
//! assert!(regulator.should_stop());
//! let Decision::CircuitBreak { reason: CircuitBreakReason::CostCapReached { spent, cap, .. }, .. } =
//!     &regulator.decide()[0].decision
//! else {
//!     panic!("a reached cap outranks every other decision")
//! };
//! assert_eq!((*spent, *cap), (1_202, 1_000));
//! ```
//!
//! | To | Call |
//! |---|---|
//! | pass it an event | [`Regulator::on_event`], or [`Regulator::on_token`] from a local engine |
//! | know what to do | [`Regulator::decide`]: every [`RankedDecision`] that currently applies, most urgent first, with its [`Evidence`] |
//! | read the statistics of the current turn | [`Regulator::turn_stats`] |
//!
//! It does not call a model, read a clock, draw random numbers or access files. Elapsed time is an event.

mod bench;
mod calibration;
mod complaint;
mod core;
mod corrections;
mod cost;
mod decision;
mod delta;
mod event;
mod event_line;
mod features;
mod hash;
#[doc(hidden)]
pub mod fuzzing;
mod negation;
mod openai;
mod otlp;
mod prohibitions;
#[cfg(test)]
mod properties;
mod quality;
mod references;
mod replay;
mod reply;
mod scanner;
mod scope;
mod segments;
mod settings;
mod signals;
mod spans;
mod state;
mod tokens;
mod tools;
mod topics;
mod volatile;

pub use self::core::Regulator;
pub use bench::{BenchReport, FaultCount, FaultLabel, SessionLabels, SessionLog, SessionLogError, bench};
pub use calibration::{
    AnswerKind, CALIBRATION_REPLIES_MIN, Calibration, CalibrationError, CalibrationProvenance, CalibrationScope,
    Estimator,
};
pub use corrections::signal_blocks;
pub use cost::ResourceUsage;
pub use decision::{
    BreakAction, CircuitBreakReason, ConfidenceSpan, CorrectionPattern, Decision, DriftBasis, DriftSpan, Evidence,
    RankedDecision, Resource, TextSpan, ToolLoopPattern,
};
pub use delta::{DeltaSettings, delta_gains};
pub use event::{Event, LlmEvent, OwnedEvent};
pub use event_line::{EventLine, EventLineError};
pub use references::{CesReference, EstimatorReferences, Wepr};
pub use replay::{DecisionChange, TurnDecisions, decision_changes, replay};
pub use scope::{AnswerLikelihood, SentenceEmbedder};
pub use settings::{
    ConfidenceSettings, CorrectionSettings, CostSettings, ModelPrice, QualitySettings, ResourceLimits, ScopeSettings,
    SettingError, Settings, ToolSettings,
};
pub use signals::{ConfidenceBasis, ResponseType, Signals, TurnStats};
pub use state::{RegulatorState, StateError};
pub use tokens::{Estimates, RankEntropies};
