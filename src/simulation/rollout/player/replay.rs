//! Finished turns played again from their record: to go on with a rollout, or to learn what stood before the persona's
//! model when it spoke.

use std::sync::Arc;

use super::{Going, Player, note};
use crate::foundation::base::Digest;
use crate::foundation::chat::{DeltaGains, Message, ModelError};
use crate::simulation::persona::{Speaker, TurnPlan};
use crate::simulation::rollout::drafting::WRITTEN;
use crate::simulation::rollout::files::TurnLine;
use crate::simulation::rollout::transcript::{Turn, Utterance};

/// Why a record cannot be played again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// This program would not have made it.
    #[error(
        "turn {turn} was recorded with the prompt {recorded}, but this version of loom assembles {assembled}; resume \
         with the version that began the run"
    )]
    Prompt {
        /// The turn.
        turn: usize,
        /// The recorded prompt's digest.
        recorded: String,
        /// The digest of the one that is assembled now.
        assembled: String,
    },
    /// The persona's model cannot read again what it said.
    #[error("turn {turn} cannot be read again: {source}")]
    Model {
        /// The turn.
        turn: usize,
        /// Why.
        source: ModelError,
    },
}

/// What stood before the persona's model when it said a recorded message.
#[derive(Debug, Clone)]
pub struct Heard {
    /// Everything it had been told and had heard, as it stood in its window.
    pub messages: Vec<Message>,
    /// What the persona had said before, one entry per finished turn.
    pub said: Vec<String>,
    /// The turn's plan.
    pub plan: TurnPlan,
    /// Gains on Δ.
    pub gains: Option<DeltaGains>,
}

impl Player {
    /// A finished turn, played again from its record.
    ///
    /// # Errors
    /// When the assembler now gives another prompt than the recorded one, or the model cannot read its own words again.
    pub(in crate::simulation::rollout) async fn replay(&mut self, line: &TurnLine) -> Result<(), ReplayError> {
        let going = self.recorded(&line.turn)?;
        match self.stage.first_speaker {
            Speaker::Persona => {
                self.replay_persona(&going, line, true).await?;
                self.replay_interlocutor(line);
            }
            Speaker::Interlocutor => {
                self.replay_interlocutor(line);
                self.replay_persona(&going, line, true).await?;
            }
        }
        Ok(())
    }

    /// A finished turn, played again without the models' states: what the persona's model had before it when it spoke.
    ///
    /// # Errors
    /// When the assembler now gives another prompt than the recorded one.
    pub(in crate::simulation::rollout) async fn rehearse(&mut self, turn: &Turn) -> Result<Heard, ReplayError> {
        let going = self.recorded(turn)?;
        let line = TurnLine { turn: turn.clone(), tokens: Vec::new() };
        if self.stage.first_speaker == Speaker::Interlocutor {
            self.replay_interlocutor(&line);
        }
        let said = self.said.clone();
        let messages = self.replay_persona(&going, &line, false).await?;
        if self.stage.first_speaker == Speaker::Persona {
            self.replay_interlocutor(&line);
        }
        Ok(Heard { messages, said, plan: going.plan, gains: going.gains })
    }

    /// Begins a turn that was played before, if this program would have begun it so.
    fn recorded(&mut self, turn: &Turn) -> Result<Going, ReplayError> {
        let mut going = self.begin(turn.index);
        // A rehearsal hears no tokens, from which a regulator would make them.
        going.gains.clone_from(&turn.gains);
        let assembled = Digest::of(&going.plan.prompt);
        if assembled != turn.prompt.digest || self.turns() != turn.index {
            let (recorded, assembled) = (turn.prompt.digest.short(), assembled.short());
            return Err(ReplayError::Prompt { turn: turn.index, recorded, assembled });
        }
        Ok(going)
    }

    /// Is what the persona's model had before it; its state is made anew if `read` and nothing else would.
    async fn replay_persona(
        &mut self,
        going: &Going,
        line: &TurnLine,
        read: bool,
    ) -> Result<Vec<Message>, ReplayError> {
        let (plan, utterance) = (&going.plan, &line.turn.persona);
        for slide in line.turn.slides.iter().filter(|slide| slide.speaker == Speaker::Persona) {
            self.persona.leave(slide.messages, Some(&plan.prompt), note(plan));
        }
        let before = self.persona.messages(utterance.instruction.as_deref());
        if let (Some(gains), true) = (&going.gains, read && self.stage.gains_vary()) {
            // Each turn was read under gains of its own; one reading of the whole under the last turn's would differ.
            let ids = utterance.ids.as_deref().unwrap_or_default();
            let read = self.persona.read_again(utterance.instruction.as_deref(), ids, gains.clone()).await;
            read.map_err(|source| ReplayError::Model { turn: line.turn.index, source })?;
        }
        self.persona_watch.task(&plan.sections.must_do);
        self.persona_watch.heard(&self.last_words);
        self.persona_watch.replay(utterance, &line.tokens, &line.turn.monitor_events);
        self.note_interventions(line.turn.index, utterance, &line.turn.monitor_events);
        self.persona_said(utterance, remembered(utterance), None);
        Ok(before)
    }

    fn replay_interlocutor(&mut self, line: &TurnLine) {
        let utterance = &line.turn.interlocutor;
        let told = utterance.adversary.as_ref().filter(|_| utterance.model.as_deref() != Some(WRITTEN));
        let note = told.map(|adversary| adversary.instruction.as_str());
        if let Some(note) = note {
            self.interlocutor.instruct(note);
        }
        for slide in line.turn.slides.iter().filter(|slide| slide.speaker == Speaker::Interlocutor) {
            self.interlocutor.leave(slide.messages, None, note);
        }
        self.interlocutor_watch.heard(&self.last_words);
        self.interlocutor_watch.replay(utterance, &line.tokens, &[]);
        self.interlocutor_said(utterance, remembered(utterance), None);
    }
}

/// What the side that said `utterance` remembers of it.
fn remembered(utterance: &Utterance) -> Message {
    let mut message = Message::assistant(utterance.content.clone());
    message.ids = utterance.ids.as_deref().map(Arc::from);
    message
}
