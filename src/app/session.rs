//! A session: a piece of work from a need to a verified result.
//!
//! The hope chart says what is next, the mood says what may be done, the gate gives permits, and every step is a receipt
//! before it counts. A session is its log: [`Session::resume`] verifies the chain, replays it and goes on where it ended, and
//! what comes out is what would have come out unbroken. What a model writes reaches no guard: it is quantised into a
//! choice, or into nothing where the model is unsure.
//!
//! A file uses those named before it:
//!
//! | File | Its subject |
//! |---|---|
//! | `need` | what a need says, and what it leaves open |
//! | `outcome` | what can happen to a session: the words of its log |
//! | `judgement` | a model's answer made a choice |
//! | `experts` | the panel |
//! | `finding` | what the scores come to: facts, and the finding |
//! | `phrases`, `questions` | what is said, written and asked is made of these |
//! | `course` | the pure part: chart, facts and work after what happened |
//! | `tools` | what touches the world, each with a permit |
//! | `place` | what a session is begun with, where it stands, why it does not go on |
//! | `ward` | gate, leases, mood and log |
//! | `pages`, `say` | what is written, brief and report, and what is said to the user |
//! | `core` | a session, and what all who work in it do |
//! | `claims` | what is claimed, wanted, believed and not seen, and how a finding is asserted |
//! | `wave` | rollouts, measures and reports |
//! | `scored` | scores that models take, made facts |
//! | `verify` | the verify gate |
//! | `audit` | the soul: the silent audit and the footer |
//! | `recall` | what the memory knows of the need, and the verdict proposed to it |
//! | `asking` | the questions to the session's model |
//! | `heed` | what an answer means at a stage |
//! | `perform` | what the chart asks for, done |
//! | `drive` | a session begun, resumed and driven |

mod need;
mod outcome;
mod judgement;
mod experts;
mod finding;
mod phrases;
mod questions;
mod course;
pub mod tools;
mod place;
mod ward;
mod pages;
mod say;
mod core;
mod claims;
mod wave;
mod scored;
mod verify;
mod audit;
mod recall;
mod asking;
mod heed;
mod perform;
mod drive;

pub use core::Session;
pub use outcome::{Conclusion, Happened};
pub use place::{Place, SessionError, Settings, Standing, Texts};
