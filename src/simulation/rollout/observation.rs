//! Runs the monitors over finished conversations in which they did not run.

use super::monitors::Monitors;
use super::transcript::{MonitorAction, MonitorEvent, Transcript};
use crate::simulation::persona::{PersonaConfig, Speaker};

/// Runs the monitors over a transcript in which none ran, such as an imported one: the findings are added to its turns.
/// Returns whether they ran.
pub fn observe(transcript: &mut Transcript, config: Option<&PersonaConfig>) -> bool {
    if transcript.monitors.is_some() || transcript.turns.iter().any(|turn| !turn.monitor_events.is_empty()) {
        return false;
    }
    let mut monitors = Monitors::new(config);
    transcript.monitors = Some(monitors.names());
    if let Some(words) = &transcript.opening.words {
        monitors.accept_interlocutor(words);
    }
    let persona_first = transcript.opening.first_speaker == Speaker::Persona;
    for turn in &mut transcript.turns {
        if !persona_first && turn.interlocutor.failure.is_none() {
            monitors.accept_interlocutor(&turn.interlocutor.content);
        }
        if turn.persona.failure.is_none() {
            let findings = monitors.check(turn.index, &turn.persona.content);
            turn.monitor_events.extend(findings.into_iter().map(|finding| MonitorEvent {
                attempt: turn.persona.attempt,
                action: MonitorAction::Observed,
                finding,
            }));
            monitors.accept_persona(&turn.persona.content);
        }
        if persona_first && turn.interlocutor.failure.is_none() {
            monitors.accept_interlocutor(&turn.interlocutor.content);
        }
    }
    true
}
