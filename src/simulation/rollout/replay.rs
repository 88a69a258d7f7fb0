//! Replays a finished rollout turn by turn for scoring: it reconstructs the messages before each of the persona's replies,
//! and the prompts the assembler would give with other settings. Nothing is generated.

use std::sync::Arc;

use super::context::{RolloutContext, RunSettings};
use super::error::{ReplayError, RunError};
use super::runner::{ReplayedTurn, RolloutRunner};
use super::transcript::{Transcript, Turn};
use crate::foundation::chat::LanguageModel;
use crate::simulation::persona::{Assembler, PersonaConfig};

/// The replay of one rollout, turn by turn.
pub struct Replay {
    context: Arc<RolloutContext>,
    runner: RolloutRunner,
}

impl Replay {
    /// A replay of `transcript`, which was produced with `config` and the persona's `model`.
    ///
    /// # Errors
    /// When no prompt can be assembled for this model.
    pub fn new(
        transcript: &Transcript,
        config: &Arc<PersonaConfig>,
        model: &Arc<dyn LanguageModel>,
    ) -> Result<Self, RunError> {
        let run = &transcript.run;
        // The interlocutor's recorded messages are used, so its model and instructions do not matter here.
        let setting =
            RunSettings { seed: run.seed.unwrap_or_default(), turns: run.turns_planned, ..RunSettings::default() };
        let context = RolloutContext::new(Arc::clone(config), setting, Arc::clone(model), Arc::clone(model))?;
        let context = Arc::new(context);
        Ok(Self { runner: RolloutRunner::new(Arc::clone(&context), run.rollout), context })
    }

    /// Replays the next turn; turns must be given in order.
    ///
    /// # Errors
    /// When the assembler now produces another prompt than the recorded one.
    pub async fn turn(&mut self, turn: &Turn) -> Result<ReplayedTurn, ReplayError> {
        self.runner.replay_messages(turn).await
    }

    /// The assembler of the persona's prompts.
    pub fn assembler(&self) -> &Assembler {
        &self.context.assembler
    }

    /// The assembler of another persona for the same run.
    ///
    /// # Errors
    /// When its prompts cannot be assembled for this model.
    pub fn assembler_for(&self, config: Arc<PersonaConfig>) -> Result<Assembler, RunError> {
        self.context.assembler_for(config)
    }
}
