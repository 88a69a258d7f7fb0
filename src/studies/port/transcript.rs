//! Converts the benchmark's transcripts, so that old runs can be read, scored and compared.

use serde::Deserialize;

use super::PortError;
use super::schedule::DIMENSIONS;
use crate::foundation::base::Digest;
use crate::foundation::chat::Finish;
use crate::simulation::persona::{AdversaryKind, Speaker};
use crate::simulation::rollout::{
    ConfigRef, Intensity, ModelRef, Models, Opening, Outcome, PlacementUsed, RunRef, TRANSCRIPT_FORMAT,
    TRANSCRIPT_VERSION, TokenCount, Totals, Transcript, Turn, Utterance,
};

/// A converted transcript and the notes on what was lost.
#[derive(Debug, Clone, PartialEq)]
pub struct PortedTranscript {
    /// The transcript, which includes the notes.
    pub transcript: Transcript,
    /// The notes.
    pub notes: Vec<String>,
}

#[derive(Deserialize)]
struct Source {
    experiment_id: Option<String>,
    patient_profile_id: String,
    #[serde(default)]
    assistant_model: Option<String>,
    #[serde(default)]
    assistant_prompt_style: Option<String>,
    #[serde(default)]
    num_turns: Option<usize>,
    #[serde(default)]
    intensity_schedule: serde_json::Value,
    #[serde(default)]
    timestamp: Option<String>,
    conversation: Vec<Message>,
    #[serde(default)]
    turn_scores: serde_json::Value,
    #[serde(default)]
    summary_metrics: serde_json::Value,
    #[serde(default)]
    clinical_markers: serde_json::Value,
}

#[derive(Deserialize)]
struct Message {
    turn: usize,
    speaker: SourceSpeaker,
    content: String,
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    intensity: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(default)]
    phase_name: Option<String>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum SourceSpeaker {
    Patient,
    Assistant,
}

#[derive(Deserialize, Default)]
struct Metadata {
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    finish_reason: Option<String>,
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
}

pub(super) fn port(path: &str, text: &str, rollout: usize) -> Result<PortedTranscript, PortError> {
    let wrong = |why: String| PortError::Transcript { path: path.to_owned(), why };
    let source: Source = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    if source.conversation.is_empty() {
        return Err(wrong("its `conversation` is empty".to_owned()));
    }
    let mut notes = notes(&source);
    let mut numbers: Vec<usize> = source.conversation.iter().map(|message| message.turn).collect();
    numbers.sort_unstable();
    numbers.dedup();
    if numbers.iter().zip(numbers.iter().skip(1)).any(|(a, b)| a + 1 != *b) {
        notes.push("Turn numbers have gaps; the existing turns are numbered from 0.".to_owned());
    }
    let planned = source.num_turns.unwrap_or(numbers.len()).max(numbers.len());
    let patient_first = source.conversation.first().is_some_and(|message| message.speaker == SourceSpeaker::Patient);
    let mut turns = Vec::new();
    for (index, number) in numbers.iter().enumerate() {
        let messages_of = |who| {
            let mut of = source.conversation.iter().filter(|message| message.turn == *number && message.speaker == who);
            (of.next(), of.next().is_some())
        };
        let ((patient, patient_again), (assistant, assistant_again)) =
            (messages_of(SourceSpeaker::Patient), messages_of(SourceSpeaker::Assistant));
        if patient_again || assistant_again {
            return Err(wrong(format!("turn {number} has several messages of one speaker")));
        }
        turns.push(turn(index, planned, patient, assistant, &mut notes));
    }
    let model = |who: SourceSpeaker| {
        let mut named = source.conversation.iter().filter(|message| message.speaker == who);
        named.find_map(|message| message.metadata.model.clone())
    };
    let persona = model(SourceSpeaker::Patient);
    let assistant = model(SourceSpeaker::Assistant).or(source.assistant_model.clone());
    let outcome = if turns.len() < planned {
        let reason = format!("the source ends after {} of {planned} turns", turns.len());
        Outcome::Stopped { reason, circuit_break: false }
    } else {
        Outcome::Complete
    };
    let named = format!("mania-bench:{}", source.patient_profile_id);
    let settings =
        serde_json::json!([source.patient_profile_id, source.assistant_prompt_style, source.intensity_schedule]);
    let transcript = Transcript {
        format: TRANSCRIPT_FORMAT.to_owned(),
        version: TRANSCRIPT_VERSION,
        loom: env!("CARGO_PKG_VERSION").to_owned(),
        created_at: source.timestamp.clone().unwrap_or_default(),
        notes: notes.clone(),
        config: ConfigRef {
            source: named,
            digest: Digest::of(settings.to_string()),
            name: source.patient_profile_id.clone(),
        },
        run: RunRef { seed: None, rollout, turns_planned: planned, adversary: AdversaryKind::None },
        models: Models {
            persona: ModelRef::imported(persona.as_deref()),
            interlocutor: ModelRef::imported(assistant.as_deref()),
        },
        opening: Opening {
            first_speaker: if patient_first { Speaker::Persona } else { Speaker::Interlocutor },
            words: None,
            interlocutor_prompt: String::new(),
            placement: PlacementUsed::System,
        },
        totals: Totals::of(&turns),
        monitors: None,
        turns,
        outcome,
        scores: Vec::new(),
    };
    Ok(PortedTranscript { transcript, notes })
}

fn notes(source: &Source) -> Vec<String> {
    let mut notes = vec![
        "Ported from a transcript of the dynamic mania benchmark. Its turns count from 1, these from 0; `progress` is \
         Loom's, t/(N − 1)."
            .to_owned(),
        "The source records neither prompts nor seeds nor sampling nor tokens: seed and sampling are absent, \
         as is everything computed from tokens, and the prompts' digest is that of an empty text with template version 0. The configuration's digest is that of the profile's id, the prompt style and the schedule."
            .to_owned(),
    ];
    notes.extend(source.experiment_id.as_ref().map(|id| format!("Experiment: {id}.")));
    notes.extend(source.assistant_prompt_style.as_ref().map(|style| {
        format!("Prompt style of the assistant: {style}. Its text is not in the source, so the interlocutor's prompt is empty.")
    }));
    let own_scores = [
        ("turn_scores", &source.turn_scores),
        ("summary_metrics", &source.summary_metrics),
        ("clinical_markers", &source.clinical_markers),
    ];
    let present: Vec<&str> = own_scores
        .iter()
        .filter(|(_, value)| match value {
            serde_json::Value::Null => false,
            serde_json::Value::Array(items) => !items.is_empty(),
            serde_json::Value::Object(entries) => !entries.is_empty(),
            _ => true,
        })
        .map(|(name, _)| *name)
        .collect();
    if !present.is_empty() {
        notes.push(format!(
            "The benchmark's own {} are left out: their definitions differ from Loom's scores, so they must not be compared \
             with them.",
            present.join(", ")
        ));
    }
    notes
}

fn turn(
    index: usize,
    planned: usize,
    patient: Option<&Message>,
    assistant: Option<&Message>,
    notes: &mut Vec<String>,
) -> Turn {
    let mut intensities = Vec::new();
    if let Some(intensity) = patient.and_then(|message| message.intensity.as_ref()) {
        for dimension in DIMENSIONS {
            let value = intensity.get(dimension).and_then(serde_json::Value::as_f64);
            intensities.extend(value.map(|value| Intensity { dimension: dimension.to_owned(), value }));
        }
    }
    if intensities.len() < DIMENSIONS.len() {
        notes.push(format!("Turn {index}: the source lacks some of the three intensities."));
    }
    let persona = utterance(Speaker::Persona, patient, index, notes);
    let interlocutor = utterance(Speaker::Interlocutor, assistant, index, notes);
    let phase = patient.and_then(|message| message.phase_name.clone());
    Turn { phase, intensities, ..Turn::imported(index, planned, persona, interlocutor) }
}

fn utterance(speaker: Speaker, message: Option<&Message>, turn: usize, notes: &mut Vec<String>) -> Utterance {
    let content = message.map(|message| message.content.clone());
    let imported = Utterance::imported(speaker, content, "the source has no such message");
    let Some(Metadata { model, finish_reason, input_tokens, output_tokens }) = message.map(|message| &message.metadata)
    else {
        return imported;
    };
    let finish = match finish_reason.as_deref() {
        Some("length" | "max_tokens") => Finish::Length,
        Some("content_filter" | "refusal") => Finish::Refusal,
        None | Some("stop" | "end_turn" | "stop_sequence") => Finish::Stop,
        Some(other) => {
            notes.push(format!("Turn {turn}: the finish reason `{other}` is read as `stop`."));
            Finish::Stop
        }
    };
    let has_reply = imported.failure.is_none();
    let usage = TokenCount { tokens_in: input_tokens.unwrap_or(0), tokens_out: output_tokens.unwrap_or(0) };
    Utterance { model: model.clone().filter(|_| has_reply), finish: has_reply.then_some(finish), usage, ..imported }
}
