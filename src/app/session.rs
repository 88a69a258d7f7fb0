//! A session: works on a need until there is a verified result.
//!
//! The hope chart decides the next step, the mood limits what may be done, the gate grants permits, and every step is a
//! receipt before it takes effect. A session is its log: [`Session::resume`] verifies and replays it and continues, with
//! the same result as an uninterrupted session. A model's text never reaches a guard of the chart: answers are reduced to
//! a choice, or to nothing where the model is unsure.
//!
//! Modules in the order of their imports:
//!
//! | Module | Subject |
//! |---|---|
//! | `reading` | what a need says, word by word, and what of it was not understood |
//! | `need` | the plan stated by a need, and its open parts |
//! | `outcome` | the events of the log |
//! | `judgement` | a model's answer as a choice |
//! | `experts` | the panel |
//! | `finding` | from scores to facts to the finding |
//! | `phrases`, `questions` | phrases of messages and documents; questions to the user |
//! | `state` | the pure part: chart, facts and remaining steps |
//! | `tools` | effects outside the program, each with a permit |
//! | `setup` | inputs, status and errors of a session |
//! | `authorizer` | gate, leases, mood and log |
//! | `question` | what a session may find out |
//! | `study` | the question, its measure and registration; the arms of a comparison |
//! | `model_reading` | the need as a tested model reads it |
//! | `seals` | the digests of a session's files in its receipts |
//! | `documents`, `messages` | brief and report; messages to the user |
//! | `core` | the data of a session |
//! | `claims` | the mood's registers, and the assertion of a finding |
//! | `wave` | rollouts, measures and reports |
//! | `scored` | scores taken by models, and their facts |
//! | `verify` | verification |
//! | `self_check` | the self-check before a response, and its footer |
//! | `recall` | entries of the memory about the need; the proposed verdict |
//! | `asking` | questions to the session's model |
//! | `answer_parser` | the user's answers |
//! | `perform` | the chart's actions |
//! | `lifecycle` | start, resume and run |

mod question;
mod reading;
mod need;
mod judgement;
mod model_reading;
mod outcome;
mod experts;
mod finding;
mod phrases;
mod questions;
mod state;
mod tools;
mod setup;
mod authorizer;
mod documents;
mod messages;
mod core;
mod seals;
mod claims;
mod wave;
mod scored;
mod study;
mod verify;
mod self_check;
mod recall;
mod asking;
mod answer_parser;
mod perform;
mod lifecycle;

pub use core::Session;
pub use model_reading::{ReadingCheck, check_reading};
pub use outcome::{Conclusion, SessionEvent};
pub use question::StudyQuestion;
pub use seals::session_faults;
pub use setup::{SessionEnv, SessionError, SessionSettings, SessionStatus, SessionTexts};
