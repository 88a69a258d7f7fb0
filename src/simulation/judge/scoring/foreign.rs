//! Conversations that Loom did not hold: mania-bench's transcripts and lines of OpenAI messages. Only what was said is
//! read, and what is known of the persona's state; nothing else is made up.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::foundation::base::Digest;
use crate::foundation::chat::{Finish, ModelInfo, Role, Sampling};
use crate::governance::regulator::TurnReading;
use crate::simulation::persona::{AdversaryKind, InjectionKind, PersonaConfig, Speaker, TEMPLATE_VERSION};
use crate::simulation::rollout::{
    ConfigRef, Failure, Intensity, ModelRef, Models, Opening, Outcome, PlacementUsed, PromptRecord, Regulated, RunRef,
    TRANSCRIPT_FORMAT, TRANSCRIPT_VERSION, TokenCount, TokenSummary, Totals, Transcript, Turn, TurnTiming, Utterance,
    UtteranceTiming,
};

/// A conversation and what its file tells of the persona.
#[derive(Debug, Clone)]
pub(super) struct Foreign {
    pub(super) transcript: Transcript,
    pub(super) profile: Option<String>,
}

/// One message.
struct Said {
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
    /// In the file's order is not kept by JSON; by name it is the same every time.
    #[serde(default)]
    intensity: Option<BTreeMap<String, f64>>,
}

#[derive(Deserialize)]
struct Line {
    messages: Vec<OpenAiMessage>,
}

#[derive(Deserialize)]
struct OpenAiMessage {
    role: Role,
    content: String,
}

/// The conversations in `text`, which `source` calls so. In lines of messages the persona has the role `persona`.
///
/// # Errors
/// What is wrong with the text, in words.
pub(super) fn read(
    source: &str,
    text: &str,
    persona: Role,
    config: Option<&PersonaConfig>,
) -> Result<Vec<Foreign>, String> {
    if let Ok(bench) = serde_json::from_str::<ManiaBench>(text) {
        return mania_bench(source, text, bench, config).map(|foreign| vec![foreign]);
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let conversations: Result<Vec<Foreign>, String> = lines
        .map(|(index, line)| {
            let parsed: Line = serde_json::from_str(line).map_err(|error| {
                format!(
                    "line {}: {error}; it is neither a transcript of Loom nor of mania-bench, nor a line such as \
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

fn mania_bench(source: &str, text: &str, bench: ManiaBench, config: Option<&PersonaConfig>) -> Result<Foreign, String> {
    let ManiaBench { patient_profile_id, assistant_model, conversation } = bench;
    let said: Result<Vec<Said>, String> = conversation
        .into_iter()
        .map(|message| {
            let speaker = match message.speaker.as_str() {
                "patient" => Speaker::Persona,
                "assistant" => Speaker::Interlocutor,
                other => return Err(format!("`{other}` speaks; in mania-bench it is `patient` or `assistant`")),
            };
            let each = message.intensity.into_iter().flatten();
            let intensities = each.map(|(dimension, value)| Intensity { dimension, value }).collect();
            Ok(Said { speaker, text: message.content, intensities })
        })
        .collect();
    let name = patient_profile_id.unwrap_or_else(|| "the patient".to_owned());
    let transcript = transcript(source, text, 0, &name, assistant_model.as_deref(), said?, config);
    Ok(Foreign { transcript, profile: None })
}

fn messages(
    source: &str,
    text: &str,
    index: usize,
    line: Line,
    persona: Role,
    config: Option<&PersonaConfig>,
) -> Foreign {
    let (system, spoken): (Vec<_>, Vec<_>) =
        line.messages.into_iter().partition(|message| message.role == Role::System);
    let said = spoken.into_iter().map(|message| Said {
        speaker: if message.role == persona { Speaker::Persona } else { Speaker::Interlocutor },
        text: message.content,
        intensities: Vec::new(),
    });
    let transcript = transcript(source, text, index, "the persona", None, said.collect(), config);
    // A system message speaks to the assistant: it tells of the persona only where the persona is the assistant.
    let told: Vec<String> = system.into_iter().map(|message| message.content).collect();
    let profile = (persona == Role::Assistant && !told.is_empty()).then(|| told.join("\n"));
    Foreign { transcript, profile }
}

/// Messages as turns: in each, every side speaks at most once; what a side says in several messages in a row is one.
fn turns(said: Vec<Said>) -> (Speaker, Vec<Turn>) {
    let mut merged: Vec<Said> = Vec::new();
    for message in said {
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
        turns.push(Turn {
            index,
            phase: None,
            progress: if count > 1 { index as f64 / (count - 1) as f64 } else { 0.0 },
            intensities,
            prompt: PromptRecord {
                injection: InjectionKind::None,
                digest: Digest::of(""),
                template_version: TEMPLATE_VERSION,
                dropped: Vec::new(),
            },
            injected: Vec::new(),
            gains: None,
            slides: Vec::new(),
            persona: utterance(Speaker::Persona, persona),
            interlocutor: utterance(Speaker::Interlocutor, interlocutor),
            probes: Vec::new(),
            monitor_events: Vec::new(),
            timing: TurnTiming::default(),
        });
    }
    (first, turns)
}

fn utterance(speaker: Speaker, text: Option<String>) -> Utterance {
    let failure = text.is_none().then(|| Failure { why: "the conversation ends before it".to_owned() });
    Utterance {
        speaker,
        adversary: None,
        finish: text.is_some().then_some(Finish::Stop),
        content: text.unwrap_or_else(|| "…".to_owned()),
        ids: None,
        model: None,
        fallbacks: Vec::new(),
        failure,
        attempt: 0,
        instruction: None,
        attempts: Vec::new(),
        usage: TokenCount::default(),
        tokens: TokenSummary::default(),
        regulator: Regulated { reading: TurnReading::default(), decisions: Vec::new() },
        interventions: Vec::new(),
        hosted: None,
        timing: UtteranceTiming::default(),
    }
}

fn transcript(
    source: &str,
    text: &str,
    rollout: usize,
    name: &str,
    interlocutor: Option<&str>,
    said: Vec<Said>,
    config: Option<&PersonaConfig>,
) -> Transcript {
    let (first_speaker, turns) = turns(said);
    let model = |name: Option<&str>| {
        let name = name.unwrap_or("unknown").to_owned();
        let info = ModelInfo { name: name.clone(), ..ModelInfo::default() };
        ModelRef { spec: name, dtype: None, info, sampling: Sampling::default() }
    };
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
        run: RunRef { seed: 0, rollout, turns_planned: turns.len(), adversary: AdversaryKind::None },
        models: Models { persona: model(None), interlocutor: model(interlocutor) },
        opening: Opening {
            first_speaker,
            words: None,
            interlocutor_prompt: String::new(),
            placement: PlacementUsed::Append,
        },
        outcome: Outcome::Complete,
        totals: Totals::of(&turns),
        turns,
        scores: Vec::new(),
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(foreign: &Foreign) -> Vec<(&str, &str)> {
        let said = |utterance: &'_ Utterance| utterance.failure.is_none();
        let turns = foreign.transcript.turns.iter();
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
        let foreign = read("x.json", text, Role::Assistant, None).unwrap().remove(0);
        assert_eq!(said(&foreign), [("Hello.", "Hi."), ("The van.", "-")]);
        assert_eq!(foreign.transcript.config.name, "decoder");
        let belief = &foreign.transcript.turns[1].intensities[1];
        assert_eq!((belief.dimension.as_str(), belief.value.to_bits()), ("belief", 0.4_f64.to_bits()));
        let wrong = read("x.json", &text.replace("assistant\", \"content", "robot\", \"content"), Role::User, None);
        assert!(wrong.unwrap_err().contains("`robot` speaks"));
    }

    #[test]
    fn lines_of_messages_are_read_from_either_side() {
        let line = r#"{"messages": [{"role": "system", "content": "Be Ana."}, {"role": "user", "content": "Hi."}, {"role": "assistant", "content": "One."}, {"role": "assistant", "content": "Two."}]}"#;
        let own = read("x.jsonl", &format!("{line}\n\n{line}\n"), Role::Assistant, None).unwrap();
        assert_eq!(own.len(), 2);
        assert_eq!(said(&own[1]), [("One.\nTwo.", "Hi.")]);
        assert_eq!(own[1].profile.as_deref(), Some("Be Ana."));
        let other = read("x.jsonl", line, Role::User, None).unwrap();
        assert_eq!((said(&other[0]), &other[0].profile), (vec![("Hi.", "One.\nTwo.")], &None));
    }

    #[test]
    fn what_is_no_conversation_is_refused() {
        for (text, why) in [("", "no conversation"), ("{}", "line 1"), ("hello", "line 1")] {
            let error = read("x", text, Role::Assistant, None).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
