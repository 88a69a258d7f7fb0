//! A session: a piece of work from a need to a verified result.
//!
//! The hope chart says what is next, the mood says what may be done, the gate gives permits, and every step is a receipt
//! before it counts. A session is its log: [`Session::resume`] verifies the chain, replays it and goes on where it ended, and
//! what comes out is what would have come out unbroken. What a model writes reaches no guard: it is quantised into a
//! choice, or into nothing where the model is unsure.
//!
//! | File | Its subject |
//! |---|---|
//! | `need` | what a need says, and what it leaves open |
//! | `outcome` | what can happen to a session: the words of its log |
//! | `course` | the pure part: chart, facts and work after what happened |
//! | `place` | what a session is begun with, where it stands, why it does not go on |
//! | `heed` | what an answer means at a stage |
//! | `judgement` | a model's answer made a choice |
//! | `asking` | the questions to the session's model |
//! | `experts` | the panel |
//! | `ward` | gate, leases, mood and log |
//! | `perform` | what the chart asks for, done |
//! | `wave` | rollouts, measures and reports |
//! | `scored` | scores that models take, made facts |
//! | `finding` | what the facts come to |
//! | `verify` | the verify gate |
//! | `audit` | the soul: the silent audit and the footer |
//! | `claims` | what is claimed, wanted, believed and not seen, and how a finding is asserted |
//! | `recall` | what the memory knows of the need, and the verdict proposed to it |
//! | `say`, `pages` | what is said to the user, and what is written: brief and report |
//! | `tools` | what touches the world, each with a permit |

mod asking;
mod audit;
mod claims;
mod course;
mod drive;
mod experts;
mod finding;
mod heed;
mod judgement;
mod need;
mod outcome;
mod pages;
mod perform;
mod place;
mod recall;
mod say;
mod scored;
pub mod tools;
mod verify;
mod ward;
mod wave;

pub use drive::Session;
pub use outcome::{Conclusion, Happened};
pub use place::{Place, SessionError, Settings, Standing, Texts};
