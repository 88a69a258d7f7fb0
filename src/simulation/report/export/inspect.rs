//! An Inspect log (<https://inspect.aisi.org.uk>) in version 2 of its JSON format: a rollout is a sample, the persona's
//! model is the model. Inspect's readers depend on the order of the keys, hence the structs.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use super::super::data::Report;
use super::super::load::{LoadedRollout, ReportError};
use super::{prompt, utterances};
use crate::foundation::base::Digest;
use crate::foundation::chat::Finish;
use crate::simulation::persona::Speaker;
use crate::simulation::rollout::{Outcome, TokenCount, TokenLine, Transcript, Turn, Utterance};

#[derive(Serialize)]
struct Log {
    version: u32,
    status: &'static str,
    eval: Value,
    plan: Value,
    results: Value,
    stats: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
    // Readers of the header only stop here.
    samples: Vec<Sample>,
}

#[derive(Serialize)]
struct Sample {
    id: String,
    epoch: usize,
    input: String,
    target: &'static str,
    messages: Vec<Value>,
    output: Value,
    scores: BTreeMap<String, Value>,
    metadata: Value,
    events: Vec<Value>,
    model_usage: Value,
    started_at: String,
    completed_at: String,
    total_time: f64,
    uuid: String,
}

/// The log's file name and text.
pub(super) fn log(report: &Report, loaded: &[LoadedRollout]) -> Result<(String, String), ReportError> {
    let created = &report.timing.began;
    let model = model(report);
    let id = Digest::of(format!("{}{:?}{created}", report.config_digest, report.seeds)).short();
    let task: String = report.persona.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    let stopped = loaded.iter().find_map(|loaded| match &loaded.transcript.outcome {
        Outcome::Stopped { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    let complete = loaded.iter().filter(|loaded| loaded.transcript.outcome == Outcome::Complete).count();
    let status = if stopped.is_some() {
        "error"
    } else if complete == loaded.len() {
        "success"
    } else {
        "cancelled"
    };
    let samples: Vec<Sample> =
        loaded.iter().zip(&report.rollouts).map(|(loaded, row)| sample(&id, loaded, &row.scores)).collect();
    let completed = samples.iter().map(|sample| sample.completed_at.clone()).max().unwrap_or_default();
    let log = Log {
        version: 2,
        status,
        eval: json!({
            "eval_id": id, "run_id": id, "created": created, "task": task, "task_id": id, "task_version": 0,
            "task_attribs": {}, "task_args": {},
            "dataset": {"name": report.config, "samples": loaded.len(), "shuffled": false},
            "model": model, "model_args": {}, "config": {},
            "packages": {"loom": report.loom},
            "metadata": {
                "config_digest": report.config_digest, "seeds": report.seeds, "adversaries": report.adversaries,
                "persona_models": report.persona_side.specs, "interlocutor_models": report.interlocutor_side.specs,
            },
        }),
        plan: json!({"name": "loom", "steps": [], "config": {}}),
        results: json!({
            "total_samples": report.rollouts_planned.unwrap_or(loaded.len()),
            "completed_samples": complete,
            "scores": results(report),
        }),
        stats: json!({"started_at": created, "completed_at": completed, "model_usage": usage(report, &model)}),
        error: stopped.map(|why| json!({"message": why, "traceback": "", "traceback_ansi": ""})),
        samples,
    };
    // `2026-01-01T10:00:00.123Z` without characters that file names cannot contain.
    let stamp = created.split('.').next().unwrap_or_default().trim_end_matches('Z').replace(':', "-");
    Ok((format!("{stamp}+00-00_{task}_{id}.json"), serde_json::to_string(&log)? + "\n"))
}

/// The persona's model as `provider/name`, as Inspect names models.
fn model(report: &Report) -> String {
    format!("loom/{}", report.persona_side.specs.join(","))
}

fn usage(report: &Report, model: &str) -> Value {
    let of = |tokens: TokenCount| {
        let TokenCount { tokens_in, tokens_out } = tokens;
        json!({"input_tokens": tokens_in, "output_tokens": tokens_out, "total_tokens": tokens_in + tokens_out})
    };
    let other = format!("loom/{}", report.interlocutor_side.specs.join(","));
    if other == *model {
        let mut both = report.persona_side.tokens;
        both += report.interlocutor_side.tokens;
        return json!({ other: of(both) });
    }
    json!({ model: of(report.persona_side.tokens), other: of(report.interlocutor_side.tokens) })
}

fn results(report: &Report) -> Vec<Value> {
    let result = |name: String, value: f64| {
        json!({
            "name": name, "scorer": name, "params": {},
            "metrics": {"mean": {"name": "mean", "value": value, "params": {}}},
        })
    };
    let measured = report.scores.iter().filter_map(|score| Some(result(score.id.clone(), score.value?.mean)));
    let stored = report.stored.iter().filter_map(|score| {
        let judge = score.judge.as_ref().map(|judge| judge.model.as_str());
        Some(result(score_name(&score.id, score.dimension.as_deref(), judge), score.value?.mean))
    });
    measured.chain(stored).collect()
}

/// A unique name per score.
fn score_name(id: &str, dimension: Option<&str>, judge: Option<&str>) -> String {
    [Some(id), dimension, judge].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn sample(log: &str, loaded: &LoadedRollout, measured: &[(String, Option<f64>)]) -> Sample {
    let transcript = &loaded.transcript;
    let messages = messages(transcript);
    let began = &transcript.created_at;
    let seconds: f64 = transcript.turns.iter().map(|turn| turn.timing.seconds).sum();
    // What the persona's first reply answers: the other side's first message, else the instructions.
    let before = messages.iter().take_while(|message| message["role"] != "assistant");
    let input = before.last().and_then(|message| message["content"].as_str()).unwrap_or_default().to_owned();
    let mut scores: BTreeMap<String, Value> = BTreeMap::new();
    // Scores without a value are left out.
    scores.extend(measured.iter().filter_map(|(id, value)| Some((id.clone(), json!({"value": (*value)?})))));
    for score in &transcript.scores {
        let judge = score.judge.as_ref().map(|judge| judge.model.as_str());
        if let Some(value) = score.value {
            let name = score_name(&score.id, score.dimension.as_deref(), judge);
            scores.insert(name, json!({"value": value, "metadata": {"method": score.method, "points": score.points}}));
        }
    }
    let TokenCount { tokens_in, tokens_out } = transcript.totals.persona;
    Sample {
        id: loaded.file.split('.').next().unwrap_or_default().to_owned(),
        epoch: 1,
        input,
        target: "",
        output: output(loaded),
        scores,
        metadata: json!({
            "seed": transcript.run.seed, "rollout": transcript.run.rollout, "outcome": transcript.outcome,
            "turns": transcript.turns.len(), "monitor_events": transcript.totals.monitor_events,
            "failures": transcript.totals.failures,
        }),
        events: events(log, loaded, &messages),
        messages,
        started_at: began.clone(),
        completed_at: later(began, seconds),
        total_time: seconds,
        uuid: format!("{log}-{}", transcript.run.rollout),
        model_usage: json!({
            format!("loom/{}", transcript.models.persona.spec):
                {"input_tokens": tokens_in, "output_tokens": tokens_out, "total_tokens": tokens_in + tokens_out},
        }),
    }
}

/// The conversation from the persona's view, with Loom's data on each message as metadata.
fn messages(transcript: &Transcript) -> Vec<Value> {
    let rollout = transcript.run.rollout;
    let plain = |name: &str, role: &str, content: &str| json!({"id": format!("{rollout}-{name}"), "content": content, "source": "input", "role": role});
    let system = prompt(transcript, Speaker::Persona).map(|text| plain("system", "system", text));
    let opening = transcript.opening.words.as_deref().map(|text| plain("opening", "user", text));
    let said =
        utterances(transcript).filter_map(|(at, said)| {
            let turn = transcript.turns.get(at)?;
            let mut message = match said.speaker {
                Speaker::Persona => plain(&format!("{}p", turn.index), "assistant", &said.content),
                Speaker::Interlocutor => plain(&format!("{}o", turn.index), "user", &said.content),
            };
            let fields = message.as_object_mut()?;
            if said.speaker == Speaker::Persona {
                fields.insert("source".to_owned(), "generate".into());
                fields.insert("model".to_owned(), json!(said.model));
            }
            fields.insert("metadata".to_owned(), json!({
            "turn": turn.index, "phase": turn.phase, "intensities": turn.intensities, "answered_by": said.model,
            "tokens": said.tokens, "failure": said.failure, "adversary": said.adversary,
            "confidence": said.regulator.reading.confidence,
            "monitor_events": if said.speaker == Speaker::Persona { turn.monitor_events.as_slice() } else { &[] },
        }));
            Some(message)
        });
    system.into_iter().chain(opening).chain(said).collect()
}

/// One event per reply of the persona's model. Its input is what was said since the reply before, so that each message
/// stands in the events once; `messages` has the whole conversation.
fn events(log: &str, loaded: &LoadedRollout, messages: &[Value]) -> Vec<Value> {
    let transcript = &loaded.transcript;
    let model = format!("loom/{}", transcript.models.persona.spec);
    let mut replies = transcript.turns.iter();
    let (mut events, mut input, mut seconds) = (Vec::new(), Vec::new(), 0.0);
    for message in messages {
        if message["role"] != "assistant" {
            input.push(message.clone());
            continue;
        }
        let Some(turn) = replies.next() else { break };
        events.push(json!({
            "uuid": format!("{log}-{}-{}", transcript.run.rollout, turn.index),
            "timestamp": later(&transcript.created_at, seconds), "working_start": seconds, "event": "model",
            "model": model, "input": std::mem::take(&mut input), "tools": [], "tool_choice": "none", "config": {},
            "output": reply(loaded, turn, message), "working_time": turn.persona.timing.seconds,
        }));
        seconds += turn.timing.seconds;
    }
    events
}

/// The point of time `seconds` after `began`; `began` itself if it is no time.
fn later(began: &str, seconds: f64) -> String {
    let after =
        |began: Timestamp| Some(began.checked_add(SignedDuration::try_from_secs_f64(seconds).ok()?).ok()?.to_string());
    began.parse().ok().and_then(after).unwrap_or_else(|| began.to_owned())
}

/// The persona's last message, with the log-probabilities of its tokens if all are known.
fn output(loaded: &LoadedRollout) -> Value {
    let transcript = &loaded.transcript;
    let Some(turn) = transcript.turns.last() else { return json!({}) };
    let id = format!("{}-{}p", transcript.run.rollout, turn.index);
    let message = json!({"id": id, "content": turn.persona.content, "source": "generate", "role": "assistant"});
    reply(loaded, turn, &message)
}

/// The model's output in one turn.
fn reply(loaded: &LoadedRollout, turn: &Turn, message: &Value) -> Value {
    let said = &turn.persona;
    let tokens = loaded.tokens.iter().find(|line| line.turn == turn.index && line.speaker == Speaker::Persona);
    let logprobs = tokens.and_then(logprobs).map(|content| json!({ "content": content }));
    json!({
        "model": said.model.as_deref().unwrap_or("none"),
        "choices": [{
            "message": message,
            "stop_reason": stop_reason(said),
            "logprobs": logprobs,
        }],
        "completion": said.content,
    })
}

fn stop_reason(said: &Utterance) -> &'static str {
    match said.finish {
        Some(Finish::Length) => "max_tokens",
        Some(Finish::Refusal) => "content_filter",
        Some(_) => "stop",
        None => "unknown",
    }
}

/// `None` if one token's log-probability is unknown: Inspect cannot represent that.
fn logprobs(line: &TokenLine) -> Option<Vec<Value>> {
    let tokens = line.text.iter().zip(&line.logprob);
    tokens
        .map(|(text, logprob)| {
            Some(json!({"token": text, "logprob": (*logprob)?, "bytes": text.as_bytes(), "top_logprobs": null}))
        })
        .collect()
}
