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
//! | `judgement` | a model's answer made a choice |
//! | `experts` | the panel |
//! | `ward` | gate, leases, mood and log |
//! | `perform` | what the chart asks for, done |
//! | `wave` | rollouts, measures and the verify gate |
//! | `scored` | scores that models take, made facts |
//! | `recall` | what the memory knows of the need, and the verdict proposed to it |
//! | `say` | the texts for the user: questions, echo, brief, report |
//! | `tools` | what touches the world, each with a permit |

mod course;
mod drive;
mod experts;
mod judgement;
mod need;
mod outcome;
mod perform;
mod recall;
mod say;
mod scored;
pub mod tools;
mod ward;
mod wave;

pub use drive::{Place, Session, SessionError, Settings, Standing};
pub use outcome::{Conclusion, Happened};
