//! Aggregates transcripts into a report.

use std::collections::BTreeMap;

use super::data::{
    EventRow, FORMAT, FailureRow, ModelMessageCount, ParticipantRow, PhaseRow, RegulatorRow, Report, ReportTiming,
    RolloutRow, ScoreRow, StandstillRow, TurnRow, VERSION,
};
use super::flags;
use super::format::counted;
use super::load::{LoadedRollout, ReportError};
use super::omitted;
use super::stored;
use super::summary::{bounds, confidence, interval, summary};
use super::verdict::{DecidingTurn, Verdict, monitors_of_transcript};
use crate::foundation::chat::Finish;
use crate::foundation::stats::mean;
use crate::governance::regulator::Decision;
use crate::simulation::judge::measured::{Measured, MeasuredScore, measure};
use crate::simulation::persona::Speaker;
use crate::simulation::rollout::{Intensity, TokenCount, Transcript, Turn, Utterance};

/// One turn and its measurements.
struct TurnData<'a> {
    turn: &'a Turn,
    words: Option<f64>,
    novelty: Option<f64>,
}

impl Report {
    /// The report on `loaded`; `rollouts_planned` is from the run's manifest, if there is one.
    ///
    /// # Errors
    /// If `loaded` is empty.
    pub fn new(loaded: &[LoadedRollout], rollouts_planned: Option<usize>) -> Result<Self, ReportError> {
        let Some(first) = loaded.first().map(|loaded| &loaded.transcript) else {
            return Err(ReportError::Empty { path: ".".into() });
        };
        let measured: Vec<Measured> = loaded.iter().map(|loaded| measure(&loaded.transcript)).collect();
        let transcripts = || loaded.iter().map(|loaded| &loaded.transcript);
        let both = || transcripts().zip(&measured);
        let data: Vec<TurnData<'_>> =
            both().flat_map(|(transcript, measured)| turn_data(transcript, measured)).collect();

        let events = each_turn(loaded).flat_map(|(rollout, turn)| {
            turn.monitor_events.iter().map(move |event| EventRow { rollout, turn: turn.index, event: event.clone() })
        });
        let failures = each_turn(loaded).flat_map(|(rollout, turn)| {
            [&turn.persona, &turn.interlocutor].into_iter().filter_map(move |utterance| {
                let why = utterance.failure.as_ref()?.why.clone();
                Some(FailureRow { rollout, turn: turn.index, speaker: utterance.speaker, why })
            })
        });
        let standstills = both().flat_map(|(transcript, measured)| {
            let rollout = transcript.run.rollout;
            measured.standstills.iter().map(move |span| StandstillRow { rollout, standstill: span.clone() })
        });
        let measured_ids: Vec<&str> =
            measured.iter().flat_map(|measured| &measured.scores).map(|score| score.id.as_str()).collect();
        let dimensions = transcripts().find_map(|transcript| transcript.turns.first());
        let dimensions: Vec<String> = dimensions.map_or_else(Vec::new, |turn| {
            turn.intensities.iter().map(|intensity| intensity.dimension.clone()).collect()
        });
        Ok(Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            loom: first.loom.clone(),
            persona: first.config.name.clone(),
            config: first.config.source.clone(),
            config_digest: first.config.digest,
            seeds: distinct(transcripts().filter_map(|transcript| transcript.run.seed)),
            adversaries: distinct(transcripts().map(|transcript| transcript.run.adversary)),
            turns_planned: transcripts().map(|transcript| transcript.run.turns_planned).max().unwrap_or_default(),
            rollouts_planned,
            persona_side: participant(loaded, Speaker::Persona),
            interlocutor_side: participant(loaded, Speaker::Interlocutor),
            prompts: omitted::prompts(loaded),
            rollouts: loaded.iter().zip(&measured).map(|(loaded, measured)| row(loaded, measured)).collect(),
            scores: scores(&measured),
            stored: stored::scores(loaded, &measured_ids),
            verdict: Verdict::of(&first.config.name, loaded, &measured, &dimensions),
            monitors: monitors(loaded),
            told_differs: each_turn(loaded)
                .filter(|(_, turn)| turn.told_differs() == Some(true))
                .map(|(rollout, turn)| DecidingTurn { rollout, turn: turn.index })
                .collect(),
            regulator: each_turn(loaded).flat_map(|(rollout, turn)| regulator_rows(rollout, turn)).collect(),
            judges: stored::judge_agreement(loaded),
            dimensions,
            phases: phases(&data),
            turns: turns(&data),
            events: events.collect(),
            standstills: standstills.collect(),
            flags: loaded.iter().flat_map(|loaded| flags::of(&loaded.transcript)).collect(),
            failures: failures.collect(),
            missing: missing(loaded, &data, &measured),
            notes: notes(loaded),
            timing: timing(loaded),
        })
    }
}

fn each_turn(loaded: &[LoadedRollout]) -> impl Iterator<Item = (usize, &Turn)> {
    loaded.iter().flat_map(|LoadedRollout { transcript, .. }| {
        let rollout = transcript.run.rollout;
        transcript.turns.iter().map(move |turn| (rollout, turn))
    })
}

fn turn_data<'a>(transcript: &'a Transcript, measured: &Measured) -> Vec<TurnData<'a>> {
    let of = |turn: &Turn| measured.turns.iter().find(|measures| measures.turn == turn.index);
    let each = transcript.turns.iter().map(|turn| TurnData {
        turn,
        words: of(turn).map(|measures| measures.words as f64),
        novelty: of(turn).and_then(|measures| measures.novelty),
    });
    each.collect()
}

fn row(loaded: &LoadedRollout, measured: &Measured) -> RolloutRow {
    let transcript = &loaded.transcript;
    RolloutRow {
        rollout: transcript.run.rollout,
        file: loaded.file.clone(),
        outcome: transcript.outcome.clone(),
        turns: transcript.turns.len(),
        measures: measured.turns.clone(),
        scores: measured.scores.iter().map(|score| (score.id.clone(), score.value)).collect(),
    }
}

/// The monitors that ran, with how many rollouts each checked.
fn monitors(loaded: &[LoadedRollout]) -> Vec<(String, usize)> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for name in loaded.iter().flat_map(|loaded| monitors_of_transcript(&loaded.transcript)) {
        match counts.iter_mut().find(|(other, _)| other == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name.clone(), 1)),
        }
    }
    counts
}

/// The regulator's decisions on the persona's message other than to continue.
fn regulator_rows(rollout: usize, turn: &Turn) -> impl Iterator<Item = RegulatorRow> {
    let decisions = turn.persona.regulator.decisions.iter().map(|ranked| &ranked.decision);
    let reasons = decisions.filter(|decision| **decision != Decision::Continue);
    reasons.map(move |decision| RegulatorRow {
        rollout,
        turn: turn.index,
        decision: decision.kind().to_owned(),
        detail: regulator_detail(decision),
    })
}

/// What a decision of the regulator rests on, in a line.
fn regulator_detail(decision: &Decision) -> String {
    match decision {
        Decision::CircuitBreak { suggestion, .. } | Decision::ToolLoop { suggestion, .. } => suggestion.clone(),
        Decision::StopEarly { group_logprob: Some(mean), at_token, .. } => {
            format!("mean log-probability {mean:.2} nats at token {at_token}")
        }
        Decision::StopEarly { group_confidence, at_token, .. } => {
            format!("group confidence {:.2} nats at token {at_token}", group_confidence.unwrap_or_default())
        }
        Decision::ScopeDriftWarn { drift_score, .. } => format!("drift {drift_score:.2}"),
        Decision::ProceduralWarning { patterns } => format!("{} recurring corrections", patterns.len()),
        Decision::LowConfidenceSpans { spans } => format!("{} spans of low confidence", spans.len()),
        Decision::Continue => String::new(),
    }
}

const fn utterance_of(turn: &Turn, speaker: Speaker) -> &Utterance {
    match speaker {
        Speaker::Persona => &turn.persona,
        Speaker::Interlocutor => &turn.interlocutor,
    }
}

fn participant(loaded: &[LoadedRollout], speaker: Speaker) -> ParticipantRow {
    let specs = loaded.iter().map(|loaded| match speaker {
        Speaker::Persona => loaded.transcript.models.persona.spec.clone(),
        Speaker::Interlocutor => loaded.transcript.models.interlocutor.spec.clone(),
    });
    let mut row = ParticipantRow {
        specs: distinct(specs),
        answered: Vec::new(),
        messages: 0,
        fallbacks: 0,
        refusals: 0,
        cut_off: 0,
        tokens: TokenCount::default(),
    };
    let mut answered: BTreeMap<String, usize> = BTreeMap::new();
    for (_, turn) in each_turn(loaded) {
        let utterance = utterance_of(turn, speaker);
        row.messages += 1;
        row.fallbacks += usize::from(!utterance.fallbacks.is_empty());
        row.refusals += usize::from(utterance.finish == Some(Finish::Refusal));
        row.cut_off += usize::from(utterance.finish == Some(Finish::Length));
        row.tokens += utterance.usage;
        if let Some(model) = &utterance.model {
            *answered.entry(model.clone()).or_default() += 1;
        }
    }
    row.answered = answered.into_iter().map(|(model, messages)| ModelMessageCount { model, messages }).collect();
    row.answered.sort_by_key(|answered| std::cmp::Reverse(answered.messages));
    row
}

fn scores(measured: &[Measured]) -> Vec<ScoreRow> {
    let Some(first) = measured.first() else { return Vec::new() };
    let row = |score: &MeasuredScore| {
        let of = |measured: &Measured| measured.scores.iter().find(|other| other.id == score.id)?.value;
        let values: Vec<f64> = measured.iter().filter_map(of).collect();
        ScoreRow {
            id: score.id.clone(),
            interval: interval(&values, bounds(&score.id), &score.id),
            value: summary(values),
        }
    };
    first.scores.iter().map(row).collect()
}

fn phases(data: &[TurnData<'_>]) -> Vec<PhaseRow> {
    let mut names: Vec<Option<&str>> = Vec::new();
    // Phases in order of the first turn in which any rollout was in them.
    let mut seen: Vec<&TurnData<'_>> = data.iter().collect();
    seen.sort_by_key(|data| data.turn.index);
    for data in seen {
        let name = data.turn.phase.as_deref();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let row = |name: Option<&str>| {
        let of: Vec<&TurnData<'_>> = data.iter().filter(|data| data.turn.phase.as_deref() == name).collect();
        PhaseRow {
            phase: name.map(str::to_owned),
            turns: of.len(),
            intensities: intensities(&of),
            confidence: summary(of.iter().filter_map(|data| confidence(&data.turn.persona))),
            entropy: summary(of.iter().filter_map(|data| data.turn.persona.tokens.entropy_mean)),
            words: summary(of.iter().filter_map(|data| data.words)),
            events: of.iter().map(|data| data.turn.monitor_events.len()).sum(),
        }
    };
    names.into_iter().map(row).collect()
}

fn turns(data: &[TurnData<'_>]) -> Vec<TurnRow> {
    let mut by_turn: BTreeMap<usize, Vec<&TurnData<'_>>> = BTreeMap::new();
    for data in data {
        by_turn.entry(data.turn.index).or_default().push(data);
    }
    let row = |(turn, of): (usize, Vec<&TurnData<'_>>)| {
        let names = distinct(of.iter().map(|data| data.turn.phase.clone()));
        let phase = if let [name] = names.as_slice() { name.clone() } else { None };
        TurnRow {
            turn,
            rollouts: of.len(),
            phase,
            intensities: intensities(&of),
            confidence: summary(of.iter().filter_map(|data| confidence(&data.turn.persona))),
            entropy: summary(of.iter().filter_map(|data| data.turn.persona.tokens.entropy_mean)),
            words: summary(of.iter().filter_map(|data| data.words)),
            novelty: summary(of.iter().filter_map(|data| data.novelty)),
            events: of.iter().map(|data| data.turn.monitor_events.len()).sum(),
        }
    };
    by_turn.into_iter().map(row).collect()
}

fn intensities(of: &[&TurnData<'_>]) -> Vec<Intensity> {
    let Some(first) = of.first() else { return Vec::new() };
    let named = |name: &str| -> Vec<f64> {
        let all = of.iter().flat_map(|data| &data.turn.intensities);
        all.filter(|intensity| intensity.dimension == name).map(|intensity| intensity.value).collect()
    };
    let each = first.turn.intensities.iter().filter_map(|intensity| {
        let value = mean(&named(&intensity.dimension))?;
        Some(Intensity { dimension: intensity.dimension.clone(), value })
    });
    each.collect()
}

fn missing(loaded: &[LoadedRollout], data: &[TurnData<'_>], measured: &[Measured]) -> Vec<String> {
    let mut missing: Vec<String> = loaded
        .iter()
        .filter_map(|loaded| Some(format!("tokens of {}: {}", loaded.file, loaded.tokens_missing.as_ref()?)))
        .collect();
    let spoken = || data.iter().filter(|data| data.turn.persona.failure.is_none());
    let all = spoken().count();
    let without = spoken().filter(|data| confidence(&data.turn.persona).is_none()).count();
    if without > 0 {
        missing.push(format!(
            "confidence on {without} of the persona's {all} messages: the model provides no log-probabilities"
        ));
    }
    let without = spoken().filter(|data| data.turn.persona.tokens.entropy_mean.is_none()).count();
    if without > 0 {
        missing.push(format!(
            "entropy on {without} of the persona's {all} messages: the model does not provide its full distribution"
        ));
    }
    let mut reasons: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for score in measured.iter().flat_map(|measured| &measured.scores) {
        if let Some(why) = &score.missing {
            *reasons.entry((&score.id, why)).or_default() += 1;
        }
    }
    let each = reasons.into_iter().map(|((id, why), count)| format!("{id} on {}: {why}", counted(count, "rollout")));
    missing.extend(each);
    missing
}

fn notes(loaded: &[LoadedRollout]) -> Vec<String> {
    let of = |loaded: &LoadedRollout, note: &String| format!("{}: {note}", loaded.file);
    loaded.iter().flat_map(|loaded| loaded.transcript.notes.iter().map(move |note| of(loaded, note))).collect()
}

fn timing(loaded: &[LoadedRollout]) -> ReportTiming {
    let transcripts = || loaded.iter().map(|loaded| &loaded.transcript);
    let rates: Vec<f64> = transcripts().filter_map(|transcript| transcript.totals.timing.tokens_per_second).collect();
    let utterances = each_turn(loaded).flat_map(|(_, turn)| [&turn.persona, &turn.interlocutor]);
    ReportTiming {
        began: transcripts().map(|transcript| transcript.created_at.clone()).min().unwrap_or_default(),
        seconds: transcripts().map(|transcript| transcript.totals.timing.seconds).sum(),
        tokens_per_second: mean(&rates),
        tokens_cached: utterances.map(|utterance| utterance.timing.tokens_cached).sum(),
    }
}

/// Distinct values in order of appearance.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut seen, value| {
        if !seen.contains(&value) {
            seen.push(value);
        }
        seen
    })
}
