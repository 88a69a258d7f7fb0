//! Exports transcripts for other tools. `docs/FORMATS.md` lists what each format leaves out.

mod inspect;

use serde::Serialize;

use super::data::Report;
use super::load::{LoadedRollout, ReportError};
use crate::simulation::persona::Speaker;
use crate::simulation::rollout::{Transcript, Utterance};

/// An export format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// An Inspect log.
    Inspect,
    /// Lines of `{"messages": …}` as in OpenAI's API; one file for each side's view.
    Messages,
    /// Lines of `{"conversations": …}` as in ShareGPT; one file for each side's view.
    ShareGpt,
}

/// The exported files: names and contents.
///
/// # Errors
/// If something cannot be serialised.
pub fn export(
    report: &Report,
    loaded: &[LoadedRollout],
    format: ExportFormat,
) -> Result<Vec<(String, String)>, ReportError> {
    let name = match format {
        ExportFormat::Inspect => return Ok(vec![inspect::log(report, loaded)?]),
        ExportFormat::Messages => "messages",
        ExportFormat::ShareGpt => "sharegpt",
    };
    let views = [(Speaker::Persona, "persona"), (Speaker::Interlocutor, "interlocutor")];
    let file = |(view, whose): (Speaker, &str)| {
        let lines = loaded.iter().map(|loaded| line(&loaded.transcript, view, format));
        Ok((format!("{name}_{whose}.jsonl"), lines.collect::<Result<String, ReportError>>()?))
    };
    views.into_iter().map(file).collect()
}

/// The origin of a line. Trainers ignore it.
#[derive(Serialize)]
struct LineOrigin<'a> {
    config: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    rollout: usize,
    /// Messages that are placeholders for missing replies.
    failures: usize,
}

#[derive(Serialize)]
struct MessagesLine<'a> {
    messages: Vec<ChatMessage<'a>>,
    loom: LineOrigin<'a>,
}

#[derive(Serialize)]
struct ChatMessage<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Serialize)]
struct ShareGptLine<'a> {
    conversations: Vec<ShareGptMessage<'a>>,
    loom: LineOrigin<'a>,
}

#[derive(Serialize)]
struct ShareGptMessage<'a> {
    from: &'static str,
    value: &'a str,
}

fn line(transcript: &Transcript, view: Speaker, format: ExportFormat) -> Result<String, ReportError> {
    let loom = LineOrigin {
        config: &transcript.config.source,
        seed: transcript.run.seed,
        rollout: transcript.run.rollout,
        failures: transcript.totals.failures,
    };
    let messages = conversation(transcript, view);
    let json = if format == ExportFormat::ShareGpt {
        let from = |role| match role {
            "assistant" => "gpt",
            "user" => "human",
            other => other,
        };
        let each =
            messages.into_iter().map(|message| ShareGptMessage { from: from(message.role), value: message.content });
        serde_json::to_string(&ShareGptLine { conversations: each.collect(), loom })?
    } else {
        serde_json::to_string(&MessagesLine { messages, loom })?
    };
    Ok(json + "\n")
}

/// One side's view: its initial system prompt, then the messages, its own as `assistant`.
fn conversation(transcript: &Transcript, view: Speaker) -> Vec<ChatMessage<'_>> {
    let system = prompt(transcript, view).map(|content| ChatMessage { role: "system", content });
    let role = |speaker| if speaker == view { "assistant" } else { "user" };
    let opening = transcript.opening.words.as_deref();
    let opening = opening.map(|content| ChatMessage { role: role(Speaker::Interlocutor), content });
    let messages = utterances(transcript)
        .map(|(_, utterance)| ChatMessage { role: role(utterance.speaker), content: &utterance.content });
    system.into_iter().chain(opening).chain(messages).collect()
}

/// The system prompt of one side.
fn prompt(transcript: &Transcript, side: Speaker) -> Option<&str> {
    let text = match side {
        Speaker::Persona => transcript.turns.first()?.injected.first()?,
        Speaker::Interlocutor => &transcript.opening.interlocutor_prompt,
    };
    (!text.is_empty()).then_some(text)
}

/// The messages in chronological order, each with the index of its turn.
fn utterances(transcript: &Transcript) -> impl Iterator<Item = (usize, &Utterance)> {
    let persona_first = transcript.opening.first_speaker == Speaker::Persona;
    transcript.turns.iter().enumerate().flat_map(move |(at, turn)| {
        let both =
            if persona_first { [&turn.persona, &turn.interlocutor] } else { [&turn.interlocutor, &turn.persona] };
        both.map(|utterance| (at, utterance))
    })
}
