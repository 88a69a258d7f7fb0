//! The parts of a prompt that its full and its compact form share.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::revelations::OpenRevelation;
use super::{Dimension, Level};

/// The most tokens of instructions that a model accepts, and how they are counted.
#[derive(Clone)]
pub struct PromptBudget {
    /// Tokens at most.
    pub tokens_max: usize,
    /// Counts a text's tokens.
    pub count: Arc<dyn Fn(&str) -> usize + Send + Sync>,
}

impl fmt::Debug for PromptBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptBudget").field("tokens_max", &self.tokens_max).finish_non_exhaustive()
    }
}

/// A section of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptSection {
    /// What is binding this turn.
    MustDo,
    /// How the persona speaks.
    How,
    /// The persona's identity and the topics it may mention.
    Context,
    /// The reminder between full injections.
    Reminder,
}

/// Something that a prompt left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedItem {
    /// The section it belongs to.
    pub section: PromptSection,
    /// The sentence.
    pub item: String,
    /// Why it was left out.
    pub reason: String,
}

/// The three sections of a prompt. In the full form each begins with its heading; the compact form has no headings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptSections {
    /// What is binding: the rules of the whole run, then the state of this turn.
    pub must_do: String,
    /// How the persona speaks.
    pub how: String,
    /// The persona's identity and history.
    pub context: String,
}

/// What an instruction names: the phase and the level of each dimension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldState {
    /// The phase's name; `None` when there are no phases.
    pub phase: Option<String>,
    /// The levels, in the file's order.
    pub levels: Vec<ToldLevel>,
}

/// The level of one dimension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldLevel {
    /// The dimension's name.
    pub dimension: String,
    /// Its level.
    pub level: Level,
}

impl ToldState {
    /// What an instruction names for this phase and these intensities.
    pub fn new<'a>(phase: Option<&str>, intensities: impl IntoIterator<Item = (&'a str, f64)>) -> Self {
        let levels = intensities.into_iter();
        let levels = levels.map(|(name, value)| ToldLevel { dimension: name.to_owned(), level: Level::of(value) });
        Self { phase: phase.map(str::to_owned), levels: levels.collect() }
    }
}

/// The phase and the levels, such as `escalation, belief high, distress low`.
impl fmt::Display for ToldState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels = self.levels.iter().map(|one| format!("{} {}", one.dimension, one.level.name()));
        let parts: Vec<String> = self.phase.iter().cloned().chain(levels).collect();
        out.write_str(&parts.join(", "))
    }
}

/// The inputs of a turn's prompt.
pub(super) struct PromptInputs<'a> {
    pub turn: usize,
    pub dimensions: &'a [Dimension],
    pub intensities: &'a [(String, f64)],
    pub phase: Option<usize>,
    pub revelations: &'a [OpenRevelation<'a>],
    pub response_length: Option<&'a str>,
}
