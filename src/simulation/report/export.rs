//! Transcripts in the forms of other tools. What a form has no place for is left out, and `docs/FORMATS.md` says what.

mod inspect;

use serde::Serialize;

use super::data::Report;
use super::load::{Loaded, ReportError};
use crate::simulation::persona::Speaker;
use crate::simulation::rollout::{Transcript, Utterance};

/// A form of export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// One log of Inspect.
    Inspect,
    /// Lines of `{"messages": …}`, as OpenAI's API and trainers take them; once from each side's view.
    Messages,
    /// Lines of `{"conversations": …}` as of ShareGPT; once from each side's view.
    ShareGpt,
}

/// The files of the export: names and texts.
///
/// # Errors
/// When something cannot be JSON.
pub fn export(report: &Report, loaded: &[Loaded], format: ExportFormat) -> Result<Vec<(String, String)>, ReportError> {
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

/// Where a line comes from. Trainers ignore it.
#[derive(Serialize)]
struct Origin<'a> {
    config: &'a str,
    seed: u64,
    rollout: usize,
    /// Messages that are the stand-in of a reply that never came.
    failures: usize,
}

#[derive(Serialize)]
struct MessagesLine<'a> {
    messages: Vec<Said<'a>>,
    loom: Origin<'a>,
}

#[derive(Serialize)]
struct Said<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Serialize)]
struct ShareGptLine<'a> {
    conversations: Vec<Part<'a>>,
    loom: Origin<'a>,
}

#[derive(Serialize)]
struct Part<'a> {
    from: &'static str,
    value: &'a str,
}

fn line(transcript: &Transcript, view: Speaker, format: ExportFormat) -> Result<String, ReportError> {
    let loom = Origin {
        config: &transcript.config.source,
        seed: transcript.run.seed,
        rollout: transcript.run.rollout,
        failures: transcript.totals.failures,
    };
    let said = conversation(transcript, view);
    let json = if format == ExportFormat::ShareGpt {
        let from = |role| match role {
            "assistant" => "gpt",
            "user" => "human",
            other => other,
        };
        let each = said.into_iter().map(|said| Part { from: from(said.role), value: said.content });
        serde_json::to_string(&ShareGptLine { conversations: each.collect(), loom })?
    } else {
        serde_json::to_string(&MessagesLine { messages: said, loom })?
    };
    Ok(json + "\n")
}

/// What one side saw: its system prompt as it stood before the first word, then the messages, its own as `assistant`.
fn conversation(transcript: &Transcript, view: Speaker) -> Vec<Said<'_>> {
    let system = prompt(transcript, view).map(|content| Said { role: "system", content });
    let role = |speaker| if speaker == view { "assistant" } else { "user" };
    let opening = transcript.opening.words.as_deref();
    let opening = opening.map(|content| Said { role: role(Speaker::Interlocutor), content });
    let messages = spoken(transcript).map(|(_, said)| Said { role: role(said.speaker), content: &said.content });
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

/// The messages in the order in which they were said, each with its turn's place.
fn spoken(transcript: &Transcript) -> impl Iterator<Item = (usize, &Utterance)> {
    let persona_first = transcript.opening.first_speaker == Speaker::Persona;
    transcript.turns.iter().enumerate().flat_map(move |(at, turn)| {
        let both =
            if persona_first { [&turn.persona, &turn.interlocutor] } else { [&turn.interlocutor, &turn.persona] };
        both.map(|said| (at, said))
    })
}
