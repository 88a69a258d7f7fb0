//! Measures how well a model's confidence separates right from wrong answers, and calibrates it to a probability.
//!
//! A [`Task`] is a list of items with known right answers. [`answer`] runs a model on them and computes the regulator's
//! estimates; [`Study::of`] measures each estimator on held-out items. An item's content alone decides whether it is held
//! out ([`TaskItem::held_out`]). [`effect`] measures the effect of enforcing the regulator's decisions.

mod answer;
mod effect;
mod figure;
mod sampled;
mod study;
mod table;
mod task;

pub use answer::{Alternatives, AnsweredItem, answer};
pub use effect::{Effect, EffectError, PolicyMetrics, effect};
pub use figure::reliability_figure;
pub use sampled::{Cost, Costs, SamplingPlan};
pub use study::{EstimatorMetrics, MetricEstimate, Study, StudyError, StudySubject, fit};
pub use table::{effect_table, table};
pub use task::{AnswerMatching, BUILT_IN, Likelihood, Question, Task, TaskError, TaskItem};
