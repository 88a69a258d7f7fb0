//! Judgements of form: copied text, stubs, questions that decide nothing, claims that nothing can refute, verifiers that are
//! cheated. Each is a pure function of texts and gives findings; what follows from one is up to the guards.
//!
//! A lint finds forms, not intentions: what it finds is worth a look, and what it does not find is not thereby good.

mod copy;
mod hack;
mod question;
mod sealing;
mod stub;
mod suspect;

pub use copy::{Copied, SHARED_WORDS_MIN, no_copy};
pub use hack::{Hack, RewardHackDisclosure, reward_hacks};
pub use question::{Choice, Question, QuestionFault, question_faults, round_faults};
pub use sealing::{Outcome, Prediction, Sealed, SelfSealingDisclosure, sealing_phrases, self_sealing};
pub use stub::{Stub, stubs};
pub use suspect::suspicions;
