//! How well a model's confidence tells its right answers from its wrong ones, and how to make it a probability.
//!
//! A [`Task`] is a list of items whose right answers are known. [`answer`] has a model answer them and reads every
//! estimate of the regulator's; [`Study::of`] measures each estimator on items that nothing was fitted to. Which items
//! those are follows from their content alone ([`Item::held_out`]). [`effect`] measures what it does to carry out what the
//! regulator decides.

mod answer;
mod effect;
mod figure;
mod study;
mod table;
mod task;

pub use answer::{Alternatives, Answered, answer};
pub use effect::{Effect, EffectError, PolicyFigures, effect};
pub use figure::reliability_figure;
pub use study::{Figure, Measured, Study, StudyError, Subject, fit};
pub use table::{effect_table, table};
pub use task::{BUILT_IN, Item, Likelihood, Matching, Question, Task, TaskError};
