//! Measures how well a model's confidence separates right from wrong answers, and calibrates it to a probability.
//!
//! A [`Task`] is a list of items with known right answers. [`answer`] runs a model on them and computes the regulator's
//! estimates; [`Study::of`] measures each estimator on held-out items. An item's content alone decides whether it is held
//! out ([`TaskItem::held_out`]). [`effect`] measures the effect of enforcing the regulator's decisions, [`breaks`] how well
//! a model's likelihoods tell the turn in which a persona breaks character.

mod answer;
mod breaks;
mod effect;
mod figure;
mod protocol;
mod published;
mod question;
mod study;
mod table;
mod task;
mod vote;

pub use answer::{Alternatives, AnswerPlan, AnsweredItem, answer};
pub use breaks::{BreakMetrics, BreakPlan, BreakStudy, BreaksError, ReadTurn, Version, breaks};
pub use effect::{Effect, EffectError, PolicyMetrics, effect};
pub use figure::reliability_figure;
pub use protocol::Protocol;
pub use question::{Likelihood, Question};
pub use study::{EstimatorMetrics, MetricEstimate, Study, StudyError, StudySubject, VoteMetrics, fit};
pub use table::{breaks_table, effect_table, table};
pub use task::{BUILT_IN, Task, TaskError, TaskItem};
pub use vote::{Vote, VoteMethod};
