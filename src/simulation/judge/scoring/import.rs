//! Imports conversations of other programs: mania-bench transcripts and JSON lines of OpenAI messages. Only the messages
//! and the recorded intensities are read.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::foundation::base::Digest;
use crate::foundation::chat::Role;
use crate::simulation::persona::{AdversaryKind, PersonaConfig, Speaker};
use crate::simulation::rollout::{
    ConfigRef, Intensity, ModelRef, Models, Opening, Outcome, PlacementUsed, RunRef, TRANSCRIPT_FORMAT,
    TRANSCRIPT_VERSION, Totals, Transcript, Turn, Utterance,
};

/// A conversation and the description of the persona in its file.
#[derive(Debug, Clone)]
pub(super) struct ImportedConversation {
    pub(super) transcript: Transcript,
    pub(super) profile: Option<String>,
}

/// One message.
struct ImportedMessage {
    speaker: Speaker,
    text: String,
    intensities: Vec<Intensity>,
}

#[derive(Deserialize)]
struct ManiaBench {
    #[serde(default)]
    patient_profile_id: Option<String>,
    #[serde(default)]
    assistant_model: Option<String>,
    conversation: Vec<ManiaMessage>,
}

#[derive(Deserialize)]
struct ManiaMessage {
    speaker: String,
    content: String,
    /// Sorted by name, so that the order is deterministic.
    #[serde(default)]
    intensity: Option<BTreeMap<String, f64>>,
}

#[derive(Deserialize)]
struct ChatLine {
    messages: Vec<OpenAiMessage>,
}

#[derive(Deserialize)]
struct OpenAiMessage {
    role: Role,
    content: String,
}

/// The conversations in `text`, the content of the file `source`. In chat messages the persona has the role `persona`.
///
/// # Errors
/// What is wrong with the text.
pub(super) fn read(
    source: &str,
    text: &str,
    persona: Role,
    config: Option<&PersonaConfig>,
) -> Result<Vec<ImportedConversation>, String> {
    if let Ok(bench) = serde_json::from_str::<ManiaBench>(text) {
        return mania_bench(source, text, bench, config).map(|imported| vec![imported]);
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let conversations: Result<Vec<ImportedConversation>, String> = lines
        .map(|(index, line)| {
            let parsed: ChatLine = serde_json::from_str(line).map_err(|error| {
                format!(
                    "line {}: {error}; expected a transcript of Loom or of mania-bench, or lines such as \
                     {{\"messages\": [{{\"role\": \"user\", \"content\": \"…\"}}]}}",
                    index + 1
                )
            })?;
            Ok(messages(source, line, index, parsed, persona, config))
        })
        .collect();
    match conversations {
        Ok(conversations) if conversations.is_empty() => Err("there is no conversation in it".to_owned()),
        conversations => conversations,
    }
}

fn mania_bench(
    source: &str,
    text: &str,
    bench: ManiaBench,
    config: Option<&PersonaConfig>,
) -> Result<ImportedConversation, String> {
    let ManiaBench { patient_profile_id, assistant_model, conversation } = bench;
    let messages: Result<Vec<ImportedMessage>, String> = conversation
        .into_iter()
        .map(|message| {
            let speaker = match message.speaker.as_str() {
                "patient" => Speaker::Persona,
                "assistant" => Speaker::Interlocutor,
                other => return Err(format!("`{other}` speaks; in mania-bench it is `patient` or `assistant`")),
            };
            let each = message.intensity.into_iter().flatten();
            let intensities = each.map(|(dimension, value)| Intensity { dimension, value }).collect();
            Ok(ImportedMessage { speaker, text: message.content, intensities })
        })
        .collect();
    let name = patient_profile_id.unwrap_or_else(|| "the patient".to_owned());
    let transcript = transcript(source, text, 0, &name, assistant_model.as_deref(), messages?, config);
    Ok(ImportedConversation { transcript, profile: None })
}

fn messages(
    source: &str,
    text: &str,
    index: usize,
    line: ChatLine,
    persona: Role,
    config: Option<&PersonaConfig>,
) -> ImportedConversation {
    let (system, spoken): (Vec<_>, Vec<_>) =
        line.messages.into_iter().partition(|message| message.role == Role::System);
    let messages = spoken.into_iter().map(|message| ImportedMessage {
        speaker: if message.role == persona { Speaker::Persona } else { Speaker::Interlocutor },
        text: message.content,
        intensities: Vec::new(),
    });
    let transcript = transcript(source, text, index, "the persona", None, messages.collect(), config);
    // A system message is addressed to the assistant: it describes the persona only if the persona is the assistant.
    let instructions: Vec<String> = system.into_iter().map(|message| message.content).collect();
    let profile = (persona == Role::Assistant && !instructions.is_empty()).then(|| instructions.join("\n"));
    ImportedConversation { transcript, profile }
}

/// Groups messages into turns with at most one message per side; consecutive messages of one side are joined.
fn turns(messages: Vec<ImportedMessage>) -> (Speaker, Vec<Turn>) {
    let mut merged: Vec<ImportedMessage> = Vec::new();
    for message in messages {
        match merged.last_mut().filter(|last| last.speaker == message.speaker) {
            Some(last) => {
                last.text.push('\n');
                last.text.push_str(&message.text);
            }
            None => merged.push(message),
        }
    }
    let first = merged.first().map_or(Speaker::Persona, |message| message.speaker);
    let count = merged.len().div_ceil(2);
    let mut messages = merged.into_iter().peekable();
    let mut turns = Vec::with_capacity(count);
    while messages.peek().is_some() {
        let index = turns.len();
        let (mut persona, mut interlocutor, mut intensities) = (None, None, Vec::new());
        for message in messages.by_ref().take(2) {
            match message.speaker {
                Speaker::Persona => (persona, intensities) = (Some(message.text), message.intensities),
                Speaker::Interlocutor => interlocutor = Some(message.text),
            }
        }
        let utterance = |speaker, text| Utterance::imported(speaker, text, "the conversation has no such message");
        let persona = utterance(Speaker::Persona, persona);
        let interlocutor = utterance(Speaker::Interlocutor, interlocutor);
        turns.push(Turn { intensities, ..Turn::imported(index, count, persona, interlocutor) });
    }
    (first, turns)
}

fn transcript(
    source: &str,
    text: &str,
    rollout: usize,
    name: &str,
    interlocutor: Option<&str>,
    messages: Vec<ImportedMessage>,
    config: Option<&PersonaConfig>,
) -> Transcript {
    let (first_speaker, turns) = turns(messages);
    Transcript {
        format: TRANSCRIPT_FORMAT.to_owned(),
        version: TRANSCRIPT_VERSION,
        loom: env!("CARGO_PKG_VERSION").to_owned(),
        created_at: String::new(),
        config: ConfigRef {
            source: config.map_or(source, |config| &config.source).to_owned(),
            digest: config.map_or_else(|| Digest::of(text), |config| config.digest),
            name: config.map_or(name, |config| &config.persona.name).to_owned(),
        },
        run: RunRef { seed: None, rollout, turns_planned: turns.len(), adversary: AdversaryKind::None },
        models: Models { persona: ModelRef::imported(None), interlocutor: ModelRef::imported(interlocutor) },
        opening: Opening {
            first_speaker,
            words: None,
            interlocutor_prompt: String::new(),
            placement: PlacementUsed::Append,
        },
        outcome: Outcome::Complete,
        totals: Totals::of(&turns),
        monitors: None,
        turns,
        scores: Vec::new(),
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(imported: &ImportedConversation) -> Vec<(&str, &str)> {
        let said = |utterance: &'_ Utterance| utterance.failure.is_none();
        let turns = imported.transcript.turns.iter();
        turns
            .map(|turn| {
                let persona = if said(&turn.persona) { turn.persona.content.as_str() } else { "-" };
                (persona, if said(&turn.interlocutor) { turn.interlocutor.content.as_str() } else { "-" })
            })
            .collect()
    }

    #[test]
    fn a_mania_bench_transcript_keeps_its_prescribed_intensities() {
        let text = r#"{"experiment_id": "x", "patient_profile_id": "decoder", "assistant_model": "m", "conversation": [
            {"turn": 1, "speaker": "patient", "content": "Hello.", "intensity": {"belief": 0.1, "distress": 0.2, "action": 0.0}},
            {"turn": 1, "speaker": "assistant", "content": "Hi."},
            {"turn": 2, "speaker": "patient", "content": "The van.", "intensity": {"belief": 0.4, "distress": 0.2, "action": 0.1}}
        ], "turn_scores": []}"#;
        let imported = read("x.json", text, Role::Assistant, None).unwrap().remove(0);
        assert_eq!(texts(&imported), [("Hello.", "Hi."), ("The van.", "-")]);
        assert_eq!(imported.transcript.config.name, "decoder");
        let belief = &imported.transcript.turns[1].intensities[1];
        assert_eq!((belief.dimension.as_str(), belief.value.to_bits()), ("belief", 0.4_f64.to_bits()));
        let wrong = read("x.json", &text.replace("assistant\", \"content", "robot\", \"content"), Role::User, None);
        assert!(wrong.unwrap_err().contains("`robot` speaks"));
    }

    #[test]
    fn chat_messages_are_read_with_the_persona_in_either_role() {
        let line = r#"{"messages": [{"role": "system", "content": "Be Ana."}, {"role": "user", "content": "Hi."}, {"role": "assistant", "content": "One."}, {"role": "assistant", "content": "Two."}]}"#;
        let own = read("x.jsonl", &format!("{line}\n\n{line}\n"), Role::Assistant, None).unwrap();
        assert_eq!(own.len(), 2);
        assert_eq!(texts(&own[1]), [("One.\nTwo.", "Hi.")]);
        assert_eq!(own[1].profile.as_deref(), Some("Be Ana."));
        let other = read("x.jsonl", line, Role::User, None).unwrap();
        assert_eq!((texts(&other[0]), &other[0].profile), (vec![("Hi.", "One.\nTwo.")], &None));
    }

    #[test]
    fn a_blank_message_counts_as_missing() {
        let line = r#"{"messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": " \n"}]}"#;
        let imported = read("x.jsonl", line, Role::Assistant, None).unwrap();
        assert_eq!(texts(&imported[0]), [("-", "Hi.")]);
    }

    #[test]
    fn text_without_conversations_is_an_error() {
        for (text, why) in [("", "no conversation"), ("{}", "line 1"), ("hello", "line 1")] {
            let error = read("x", text, Role::Assistant, None).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
