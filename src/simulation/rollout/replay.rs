//! Replays a finished rollout turn by turn for scoring: it reconstructs the messages before each of the persona's replies,
//! and the prompts the assembler would give with other settings. Nothing is generated.
//!
//! [`Replay`] does so for the model that spoke, [`TextReplay`] for another one that reads the same messages.

use std::sync::Arc;

use super::context::{RolloutContext, RunSettings, prompt_budget, takes_later_instructions};
use super::error::{ReplayError, RunError};
use super::runner::{ReplayedTurn, RolloutRunner};
use super::transcript::{PlacementUsed, Transcript, Turn};
use crate::foundation::chat::{LanguageModel, Message};
use crate::simulation::persona::{Assembler, PersonaConfig, Speaker, TurnInput};

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

/// The messages of a transcript as they are given to a model that did not generate them. It is told at every turn what is
/// prescribed then; what the run's own model was told, its drafts and its gains are not repeated.
pub struct TextReplay {
    model: Arc<dyn LanguageModel>,
    assembler: Assembler,
    placement: PlacementUsed,
    first_speaker: Speaker,
    history: Vec<Message>,
    persona_messages: Vec<String>,
    interlocutor_messages: Vec<String>,
}

impl TextReplay {
    /// A replay of `transcript` for `model`, with the prompts of `config`.
    ///
    /// # Errors
    /// When no prompt can be assembled for this model.
    pub fn new(
        transcript: &Transcript,
        config: Arc<PersonaConfig>,
        model: &Arc<dyn LanguageModel>,
    ) -> Result<Self, RunError> {
        let opening = &transcript.opening;
        let placement = if takes_later_instructions(model.as_ref()) {
            PlacementUsed::Replace
        } else {
            PlacementUsed::SystemForTemplate
        };
        Ok(Self {
            assembler: Assembler::new(config, transcript.run.turns_planned, prompt_budget(model))?,
            placement,
            model: Arc::clone(model),
            first_speaker: opening.first_speaker,
            history: opening.words.iter().map(|words| Message::user(words.clone())).collect(),
            persona_messages: Vec::new(),
            interlocutor_messages: Vec::new(),
        })
    }

    /// The messages before the reply of the next turn; turns must be given in order. The oldest ones are left out so that
    /// they and the reply's `reply_tokens` fit into the model's window.
    pub fn turn(&mut self, turn: &Turn, reply_tokens: usize) -> ReplayedTurn {
        if self.first_speaker == Speaker::Interlocutor {
            self.hear(turn);
        }
        let (persona_messages, mut interlocutor_messages) =
            (self.persona_messages.clone(), self.interlocutor_messages.clone());
        interlocutor_messages.truncate(turn.index);
        let plan = self.assembler.plan(&TurnInput {
            turn: turn.index,
            persona_messages: &persona_messages,
            interlocutor_messages: &interlocutor_messages,
            findings: &[],
        });
        let (first, last) = self.placement.instructions(&plan);
        let around = |history: &[Message]| -> Vec<Message> {
            let system = |text: &str| (!text.is_empty()).then(|| Message::system(text));
            system(first).into_iter().chain(history.iter().cloned()).chain(system(last)).collect()
        };
        let mut messages = around(&self.history);
        while let (Some(window), Some(tokens)) = (self.model.info().window_tokens, self.model.count(&messages))
            && tokens + reply_tokens > window
            && self.history.len() > 1
        {
            // Half of the messages at once, so that the turns that follow share a beginning.
            self.history.drain(..self.history.len() / 2);
            messages = around(&self.history);
        }
        self.history.push(Message::assistant(turn.persona.content.clone()));
        self.persona_messages.push(turn.persona.content.clone());
        if self.first_speaker == Speaker::Persona {
            self.hear(turn);
        }
        ReplayedTurn { messages, persona_messages, interlocutor_messages, findings: Vec::new(), plan, gains: None }
    }

    fn hear(&mut self, turn: &Turn) {
        self.history.push(Message::user(turn.interlocutor.content.clone()));
        self.interlocutor_messages.push(turn.interlocutor.content.clone());
    }

    /// The assembler of the persona's prompts.
    pub fn assembler(&self) -> &Assembler {
        &self.assembler
    }

    /// The assembler of another persona for the same model and number of turns.
    ///
    /// # Errors
    /// When its prompts cannot be assembled for this model.
    pub fn assembler_for(&self, config: Arc<PersonaConfig>) -> Result<Assembler, RunError> {
        Ok(Assembler::new(config, self.assembler.turns(), prompt_budget(&self.model))?)
    }

    /// Where the model is given the state.
    pub const fn placement(&self) -> PlacementUsed {
        self.placement
    }
}
