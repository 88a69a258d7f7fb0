//! From transcripts to a report.

use std::collections::BTreeMap;

use super::data::{
    Answered, EventRow, FORMAT, FailureRow, Mean, PhaseRow, Report, ReportTiming, RolloutRow, ScoreRow, SideRow,
    StretchRow, TurnRow, VERSION,
};
use super::flags;
use super::left_out;
use super::load::{Loaded, ReportError};
use super::stored;
use crate::foundation::base::Stream;
use crate::foundation::chat::Finish;
use crate::foundation::stats::{Interval, bootstrap_mean, mean};
use crate::governance::regulator::ConfidenceBasis;
use crate::simulation::judge::measured::{Measured, Score, measure};
use crate::simulation::persona::Speaker;
use crate::simulation::rollout::{Intensity, TokenCount, Transcript, Turn, Utterance};

/// Fewer rollouts than this give no interval.
pub(super) const INTERVAL_ROLLOUTS_MIN: usize = 3;
/// Resamples of a bootstrap.
pub(super) const RESAMPLES: u32 = 2_000;

/// One turn and everything that is known of it.
struct Held<'a> {
    turn: &'a Turn,
    words: Option<f64>,
    novelty: Option<f64>,
}

impl Report {
    /// The report on `loaded`; `rollouts_planned` as the run's manifest says, if there is one.
    ///
    /// # Errors
    /// When there is nothing to report on.
    pub fn new(loaded: &[Loaded], rollouts_planned: Option<usize>) -> Result<Self, ReportError> {
        let Some(first) = loaded.first().map(|loaded| &loaded.transcript) else {
            return Err(ReportError::Empty { path: ".".into() });
        };
        let measured: Vec<Measured> = loaded.iter().map(|loaded| measure(&loaded.transcript)).collect();
        let transcripts = || loaded.iter().map(|loaded| &loaded.transcript);
        let both = || transcripts().zip(&measured);
        let held: Vec<Held<'_>> = both().flat_map(|(transcript, measured)| held(transcript, measured)).collect();

        let events = each_turn(loaded).flat_map(|(rollout, turn)| {
            turn.monitor_events.iter().map(move |event| EventRow { rollout, turn: turn.index, event: event.clone() })
        });
        let failures = each_turn(loaded).flat_map(|(rollout, turn)| {
            [&turn.persona, &turn.interlocutor].into_iter().filter_map(move |utterance| {
                let why = utterance.failure.as_ref()?.why.clone();
                Some(FailureRow { rollout, turn: turn.index, speaker: utterance.speaker, why })
            })
        });
        let stretches = both().flat_map(|(transcript, measured)| {
            let rollout = transcript.run.rollout;
            measured.stretches.iter().map(move |stretch| StretchRow { rollout, stretch: stretch.clone() })
        });
        let own: Vec<&str> =
            measured.iter().flat_map(|measured| &measured.scores).map(|score| score.id.as_str()).collect();
        let dimensions = transcripts().find_map(|transcript| transcript.turns.first());
        Ok(Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            loom: first.loom.clone(),
            persona: first.config.name.clone(),
            config: first.config.source.clone(),
            config_digest: first.config.digest,
            seeds: distinct(transcripts().map(|transcript| transcript.run.seed)),
            adversaries: distinct(transcripts().map(|transcript| transcript.run.adversary)),
            turns_planned: transcripts().map(|transcript| transcript.run.turns_planned).max().unwrap_or_default(),
            rollouts_planned,
            persona_side: side(loaded, Speaker::Persona),
            interlocutor_side: side(loaded, Speaker::Interlocutor),
            prompts: left_out::prompts(loaded),
            rollouts: loaded.iter().zip(&measured).map(|(loaded, measured)| row(loaded, measured)).collect(),
            scores: scores(&measured, first.run.seed),
            stored: stored::scores(loaded, &own, first.run.seed),
            dimensions: dimensions.map_or_else(Vec::new, |turn| {
                turn.intensities.iter().map(|intensity| intensity.dimension.clone()).collect()
            }),
            phases: phases(&held),
            turns: turns(&held),
            events: events.collect(),
            stretches: stretches.collect(),
            flags: loaded.iter().flat_map(|loaded| flags::of(&loaded.transcript)).collect(),
            failures: failures.collect(),
            missing: missing(loaded, &held, &measured),
            notes: notes(loaded),
            timing: timing(loaded),
        })
    }
}

/// The regulator's confidence in a message, where it rests on the model's own log-probabilities. Its guess from the
/// text's structure alone is not compared with that.
pub(super) fn confidence(utterance: &Utterance) -> Option<f64> {
    let reading = &utterance.regulator.reading;
    reading.confidence.filter(|_| reading.confidence_basis != Some(ConfidenceBasis::Structural))
}

fn each_turn(loaded: &[Loaded]) -> impl Iterator<Item = (usize, &Turn)> {
    loaded.iter().flat_map(|Loaded { transcript, .. }| {
        let rollout = transcript.run.rollout;
        transcript.turns.iter().map(move |turn| (rollout, turn))
    })
}

fn held<'a>(transcript: &'a Transcript, measured: &Measured) -> Vec<Held<'a>> {
    let of = |turn: &Turn| measured.turns.iter().find(|measures| measures.turn == turn.index);
    let each = transcript.turns.iter().map(|turn| Held {
        turn,
        words: of(turn).map(|measures| measures.words as f64),
        novelty: of(turn).and_then(|measures| measures.novelty),
    });
    each.collect()
}

fn row(loaded: &Loaded, measured: &Measured) -> RolloutRow {
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

const fn said(turn: &Turn, speaker: Speaker) -> &Utterance {
    match speaker {
        Speaker::Persona => &turn.persona,
        Speaker::Interlocutor => &turn.interlocutor,
    }
}

fn side(loaded: &[Loaded], speaker: Speaker) -> SideRow {
    let specs = loaded.iter().map(|loaded| match speaker {
        Speaker::Persona => loaded.transcript.models.persona.spec.clone(),
        Speaker::Interlocutor => loaded.transcript.models.interlocutor.spec.clone(),
    });
    let mut side = SideRow {
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
        let utterance = said(turn, speaker);
        side.messages += 1;
        side.fallbacks += usize::from(!utterance.fallbacks.is_empty());
        side.refusals += usize::from(utterance.finish == Some(Finish::Refusal));
        side.cut_off += usize::from(utterance.finish == Some(Finish::Length));
        side.tokens += utterance.usage;
        if let Some(model) = &utterance.model {
            *answered.entry(model.clone()).or_default() += 1;
        }
    }
    side.answered = answered.into_iter().map(|(model, messages)| Answered { model, messages }).collect();
    side.answered.sort_by_key(|answered| std::cmp::Reverse(answered.messages));
    side
}

fn scores(measured: &[Measured], seed: u64) -> Vec<ScoreRow> {
    let Some(first) = measured.first() else { return Vec::new() };
    let row = |score: &Score| {
        let of = |measured: &Measured| measured.scores.iter().find(|other| other.id == score.id)?.value;
        let values: Vec<f64> = measured.iter().filter_map(of).collect();
        ScoreRow { id: score.id.clone(), interval: interval(&values, seed, &score.id), value: summary(values) }
    };
    first.scores.iter().map(row).collect()
}

/// The bootstrap interval of the mean of `values`, one per rollout, for the score called `name`.
pub(super) fn interval(values: &[f64], seed: u64, name: &str) -> Option<Interval> {
    let stream = Stream::root(seed).child("report", 0).child(name, 0);
    if values.len() >= INTERVAL_ROLLOUTS_MIN { bootstrap_mean(values, RESAMPLES, &stream) } else { None }
}

fn phases(held: &[Held<'_>]) -> Vec<PhaseRow> {
    let mut names: Vec<Option<&str>> = Vec::new();
    // In order of the turn at which a phase is first seen, whichever rollout saw it.
    let mut seen: Vec<&Held<'_>> = held.iter().collect();
    seen.sort_by_key(|held| held.turn.index);
    for held in seen {
        let name = held.turn.phase.as_deref();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let row = |name: Option<&str>| {
        let of: Vec<&Held<'_>> = held.iter().filter(|held| held.turn.phase.as_deref() == name).collect();
        PhaseRow {
            phase: name.map(str::to_owned),
            turns: of.len(),
            intensities: intensities(&of),
            confidence: summary(of.iter().filter_map(|held| confidence(&held.turn.persona))),
            entropy: summary(of.iter().filter_map(|held| held.turn.persona.tokens.entropy_mean)),
            words: summary(of.iter().filter_map(|held| held.words)),
            events: of.iter().map(|held| held.turn.monitor_events.len()).sum(),
        }
    };
    names.into_iter().map(row).collect()
}

fn turns(held: &[Held<'_>]) -> Vec<TurnRow> {
    let mut by_turn: BTreeMap<usize, Vec<&Held<'_>>> = BTreeMap::new();
    for held in held {
        by_turn.entry(held.turn.index).or_default().push(held);
    }
    let row = |(turn, of): (usize, Vec<&Held<'_>>)| {
        let names = distinct(of.iter().map(|held| held.turn.phase.clone()));
        let phase = if let [name] = names.as_slice() { name.clone() } else { None };
        TurnRow {
            turn,
            rollouts: of.len(),
            phase,
            intensities: intensities(&of),
            confidence: summary(of.iter().filter_map(|held| confidence(&held.turn.persona))),
            entropy: summary(of.iter().filter_map(|held| held.turn.persona.tokens.entropy_mean)),
            words: summary(of.iter().filter_map(|held| held.words)),
            novelty: summary(of.iter().filter_map(|held| held.novelty)),
            events: of.iter().map(|held| held.turn.monitor_events.len()).sum(),
        }
    };
    by_turn.into_iter().map(row).collect()
}

fn intensities(of: &[&Held<'_>]) -> Vec<Intensity> {
    let Some(first) = of.first() else { return Vec::new() };
    let named = |name: &str| -> Vec<f64> {
        let all = of.iter().flat_map(|held| &held.turn.intensities);
        all.filter(|intensity| intensity.dimension == name).map(|intensity| intensity.value).collect()
    };
    let each = first.turn.intensities.iter().filter_map(|intensity| {
        let value = mean(&named(&intensity.dimension))?;
        Some(Intensity { dimension: intensity.dimension.clone(), value })
    });
    each.collect()
}

fn missing(loaded: &[Loaded], held: &[Held<'_>], measured: &[Measured]) -> Vec<String> {
    let mut missing: Vec<String> = loaded
        .iter()
        .filter_map(|loaded| Some(format!("tokens of {}: {}", loaded.file, loaded.tokens_missing.as_ref()?)))
        .collect();
    let spoken = || held.iter().filter(|held| held.turn.persona.failure.is_none());
    let all = spoken().count();
    let without = spoken().filter(|held| confidence(&held.turn.persona).is_none()).count();
    if without > 0 {
        missing.push(format!(
            "confidence on {without} of the persona's {all} messages: the model that answered gives no log-probabilities"
        ));
    }
    let without = spoken().filter(|held| held.turn.persona.tokens.entropy_mean.is_none()).count();
    if without > 0 {
        missing.push(format!(
            "entropy on {without} of the persona's {all} messages: the model that answered gives no whole distribution"
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

fn notes(loaded: &[Loaded]) -> Vec<String> {
    let of = |loaded: &Loaded, note: &String| format!("{}: {note}", loaded.file);
    loaded.iter().flat_map(|loaded| loaded.transcript.notes.iter().map(move |note| of(loaded, note))).collect()
}

/// `1 rollout`, `2 rollouts`.
pub(super) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn timing(loaded: &[Loaded]) -> ReportTiming {
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

pub(super) fn summary(values: impl IntoIterator<Item = f64>) -> Option<Mean> {
    let values: Vec<f64> = values.into_iter().collect();
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    Some(Mean { mean: mean(&values)?, low, high, n: values.len() })
}

/// Each once, in order of appearance.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut seen, value| {
        if !seen.contains(&value) {
            seen.push(value);
        }
        seen
    })
}
