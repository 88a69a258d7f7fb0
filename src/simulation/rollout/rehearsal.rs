//! A finished rollout, read again turn by turn for those who score it: what the persona's model had before it each time
//! it spoke, and what else the assembler could have said. Nothing is generated.

use std::sync::Arc;

use super::player::{Heard, Player, ReplayError};
use super::run::RunError;
use super::stage::{Setting, Stage};
use super::transcript::{Transcript, Turn};
use crate::foundation::chat::LanguageModel;
use crate::simulation::persona::{Assembler, PersonaConfig};

/// A rollout's turns, in order.
pub struct Rehearsal {
    stage: Arc<Stage>,
    player: Player,
}

impl Rehearsal {
    /// For `transcript`, which was made with `config` and the persona's `model`.
    ///
    /// # Errors
    /// When no prompt can be assembled for this model.
    pub fn new(
        transcript: &Transcript,
        config: &Arc<PersonaConfig>,
        model: &Arc<dyn LanguageModel>,
    ) -> Result<Self, RunError> {
        let run = &transcript.run;
        // The other side only listens here: who it was, and what it was told, changes nothing that the persona heard.
        let setting = Setting { seed: run.seed, turns: run.turns_planned, ..Setting::default() };
        let stage = Stage::new(Arc::clone(config), setting, Arc::clone(model), Arc::clone(model))?;
        let stage = Arc::new(stage);
        Ok(Self { player: Player::new(Arc::clone(&stage), run.rollout), stage })
    }

    /// The next turn; they must come in order.
    ///
    /// # Errors
    /// When the assembler now gives another prompt than the recorded one.
    pub async fn turn(&mut self, turn: &Turn) -> Result<Heard, ReplayError> {
        self.player.rehearse(turn).await
    }

    /// What assembles the prompts.
    pub fn assembler(&self) -> &Assembler {
        &self.stage.assembler
    }

    /// The assembler of another persona in the same place.
    ///
    /// # Errors
    /// When no prompt of it can be assembled for this model.
    pub fn other(&self, config: Arc<PersonaConfig>) -> Result<Assembler, RunError> {
        self.stage.other(config)
    }
}
