//! Checks of form: copied text, stubs, questions without consequence, unfalsifiable claims, weakened verifiers. Each is a
//! pure function of texts that returns findings; the guards decide what follows.
//!
//! A lint finds forms, not intentions: a finding deserves a look, and no finding proves nothing.

mod copy;
mod reward_hack;
mod question;
mod sealing;
mod stub;
mod suspicion;

pub use copy::{CopiedPassage, SHARED_WORDS_MIN, copied_passages};
pub use question::{Question, QuestionChoice, QuestionFault, question_faults, question_round_faults};
pub use reward_hack::{RewardHackDisclosure, SuspiciousChange, suspicious_changes};
pub use sealing::{PredictedOutcome, Prediction, SealingKind, SelfSealingDisclosure, sealing_phrases, self_sealing};
pub use stub::{Stub, stubs};
pub use suspicion::suspicions;
