//! Replays finished turns from their record, to resume a rollout or to reconstruct the messages before each reply of the
//! persona.

use std::sync::Arc;

use super::{RolloutRunner, TurnInProgress};
use crate::foundation::base::Digest;
use crate::foundation::chat::{DeltaGains, Message, Thought};
use crate::simulation::persona::{Speaker, TurnPlan};
use crate::simulation::rollout::drafting::SCRIPTED_SPEAKER;
use crate::simulation::rollout::error::ReplayError;
use crate::simulation::rollout::files::TurnLine;
use crate::simulation::rollout::transcript::{Turn, Utterance};

/// The inputs of a recorded reply of the persona.
#[derive(Debug, Clone)]
pub struct ReplayedTurn {
    /// All messages in the model's window before the reply.
    pub messages: Vec<Message>,
    /// The persona's earlier messages, one per finished turn.
    pub persona_messages: Vec<String>,
    /// The interlocutor's earlier messages, one per finished turn.
    pub interlocutor_messages: Vec<String>,
    /// The monitors with findings, one list per finished turn.
    pub findings: Vec<Vec<String>>,
    /// The turn's plan.
    pub plan: TurnPlan,
    /// Gains on Δ.
    pub gains: Option<DeltaGains>,
}

impl RolloutRunner {
    /// Replays a finished turn from its record.
    ///
    /// # Errors
    /// When the assembler now produces another prompt than the recorded one, or the model cannot process its recorded reply.
    pub(in crate::simulation::rollout) async fn replay(&mut self, line: &TurnLine) -> Result<(), ReplayError> {
        let in_progress = self.recorded(&line.turn)?;
        match self.context.first_speaker {
            Speaker::Persona => {
                self.replay_persona(&in_progress, line, true).await?;
                self.replay_interlocutor(line);
            }
            Speaker::Interlocutor => {
                self.replay_interlocutor(line);
                self.replay_persona(&in_progress, line, true).await?;
            }
        }
        Ok(())
    }

    /// Replays a finished turn without model states and returns the inputs of the persona's reply.
    ///
    /// # Errors
    /// When the assembler now produces another prompt than the recorded one.
    pub(in crate::simulation::rollout) async fn replay_messages(
        &mut self,
        turn: &Turn,
    ) -> Result<ReplayedTurn, ReplayError> {
        let in_progress = self.recorded(turn)?;
        let line = TurnLine { turn: turn.clone(), tokens: Vec::new() };
        if self.context.first_speaker == Speaker::Interlocutor {
            self.replay_interlocutor(&line);
        }
        let (persona_messages, findings) = (self.persona_messages.clone(), self.findings.clone());
        let mut interlocutor_messages = self.interlocutor_messages.clone();
        interlocutor_messages.truncate(turn.index);
        let messages = self.replay_persona(&in_progress, &line, false).await?;
        if self.context.first_speaker == Speaker::Persona {
            self.replay_interlocutor(&line);
        }
        Ok(ReplayedTurn {
            messages,
            persona_messages,
            interlocutor_messages,
            findings,
            plan: in_progress.plan,
            gains: in_progress.gains,
        })
    }

    /// Starts a recorded turn, if the assembler still produces its prompt.
    fn recorded(&mut self, turn: &Turn) -> Result<TurnInProgress, ReplayError> {
        let mut in_progress = self.start_turn(turn.index);
        // Without tokens the regulator cannot compute them, so the recorded gains are used.
        in_progress.gains.clone_from(&turn.gains);
        let assembled = Digest::of(&in_progress.plan.prompt);
        if assembled != turn.prompt.digest || self.turns() != turn.index {
            let (recorded, assembled) = (turn.prompt.digest.short(), assembled.short());
            return Err(ReplayError::Prompt { turn: turn.index, recorded, assembled });
        }
        Ok(in_progress)
    }

    /// Returns the messages before the persona's reply; recomputes the model's state if `read` is set and gains vary.
    async fn replay_persona(
        &mut self,
        in_progress: &TurnInProgress,
        line: &TurnLine,
        read: bool,
    ) -> Result<Vec<Message>, ReplayError> {
        let (plan, utterance) = (&in_progress.plan, &line.turn.persona);
        let vary = read && self.context.gains_vary();
        if let Some(message) = &plan.message {
            if vary {
                self.persona.replace_state(message, in_progress.gains.as_ref()).await;
            } else {
                self.persona.set_state(message);
            }
            self.told = Some(plan.prescribed());
        }
        for slide in line.turn.slides.iter().filter(|slide| slide.speaker == Speaker::Persona) {
            self.persona.drop_oldest(slide.messages, Some(&plan.state));
            self.told = Some(plan.prescribed());
        }
        let before = self.persona.messages(utterance.instruction.as_deref());
        if let (Some(gains), true) = (&in_progress.gains, vary && utterance.instruction.is_none()) {
            // Each turn was processed under its own gains; processing all turns under the last turn's gains would differ.
            let ids = utterance.ids.as_deref().unwrap_or_default();
            let read = self.persona.re_read(ids, gains.clone()).await;
            read.map_err(|source| ReplayError::Model { turn: line.turn.index, source })?;
        }
        self.persona_listener.set_task(&plan.sections.must_do);
        self.persona_listener.begin_turn(&self.last_message);
        self.persona_listener.replay(utterance, &line.tokens, &line.turn.monitor_events);
        self.record_interventions(line.turn.index, utterance, &line.turn.monitor_events);
        self.accept_persona(utterance, history_message(utterance), None);
        Ok(before)
    }

    fn replay_interlocutor(&mut self, line: &TurnLine) {
        let utterance = &line.turn.interlocutor;
        let told = utterance.adversary.as_ref().filter(|_| utterance.model.as_deref() != Some(SCRIPTED_SPEAKER));
        let note = told.map(|adversary| adversary.instruction.as_str());
        if let Some(note) = note {
            self.interlocutor.set_state(note);
        }
        for slide in line.turn.slides.iter().filter(|slide| slide.speaker == Speaker::Interlocutor) {
            self.interlocutor.drop_oldest(slide.messages, note);
        }
        self.interlocutor_listener.begin_turn(&self.last_message);
        self.interlocutor_listener.replay(utterance, &line.tokens, &[]);
        self.accept_interlocutor(utterance, history_message(utterance), None);
    }
}

/// `utterance` as stored in its speaker's history.
fn history_message(utterance: &Utterance) -> Message {
    let mut message = Message::assistant(utterance.content.clone());
    message.ids = utterance.ids.as_deref().map(Arc::from);
    message.thought = utterance
        .thought
        .as_ref()
        .map(|thought| Thought { text: thought.content.clone(), ids: thought.ids.as_deref().map(Arc::from) });
    message
}
