//! Flags turns worth reading: something went wrong, or the persona was least sure.

use super::data::Flag;
use super::summary::confidence;
use crate::foundation::chat::Finish;
use crate::simulation::persona::Speaker;
use crate::simulation::rollout::{Transcript, Turn, Utterance};

/// The flagged turns of a rollout, in order.
pub(super) fn of(transcript: &Transcript) -> Vec<Flag> {
    let least = transcript
        .turns
        .iter()
        .filter_map(|turn| Some((turn.index, confidence(&turn.persona)?)))
        .min_by(|a, b| a.1.total_cmp(&b.1));
    let mut before = transcript.opening.words.clone();
    let mut flags = Vec::new();
    for turn in &transcript.turns {
        if transcript.opening.first_speaker == Speaker::Interlocutor {
            before = text_of(&turn.interlocutor);
        }
        let mut why = reasons(turn);
        if let Some((_, confidence)) = least.filter(|(index, _)| *index == turn.index) {
            why.push(format!("the persona's least confident message of this rollout ({confidence:.2})"));
        }
        if !why.is_empty() {
            flags.push(Flag {
                rollout: transcript.run.rollout,
                turn: turn.index,
                phase: turn.phase.clone(),
                why,
                before: before.clone(),
                persona: turn.persona.content.clone(),
            });
        }
        if transcript.opening.first_speaker == Speaker::Persona {
            before = text_of(&turn.interlocutor);
        }
    }
    flags
}

fn text_of(utterance: &Utterance) -> Option<String> {
    utterance.failure.is_none().then(|| utterance.content.clone())
}

fn reasons(turn: &Turn) -> Vec<String> {
    let mut why: Vec<String> = turn
        .monitor_events
        .iter()
        .filter(|event| event.action.is_final())
        .map(|event| format!("accepted despite a monitor's finding: {}", event.finding.detail))
        .collect();
    for (side, utterance) in [("the persona's", &turn.persona), ("the other side's", &turn.interlocutor)] {
        if let Some(failure) = &utterance.failure {
            why.push(format!("{side} reply is missing: {}", failure.why));
        }
        if utterance.finish == Some(Finish::Refusal) {
            why.push(format!("{side} model refused"));
        }
    }
    why
}
