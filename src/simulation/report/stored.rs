//! Scores that stand in the transcripts, put together over the rollouts: by what they measure, how they were taken and by
//! whom. Nothing here knows what a score means; `docs/SCORES.md` does.

use std::collections::BTreeMap;

use super::aggregate::{interval, summary};
use super::data::{StoredPoint, StoredScore};
use super::load::Loaded;
use super::notation::number;
use crate::simulation::rollout::{Score, ScoreMethod};

/// The stored scores over the rollouts, in the order in which they are first met. What the report itself measures, `own`
/// by id, is left out.
pub(super) fn scores(loaded: &[Loaded], own: &[&str], seed: u64) -> Vec<StoredScore> {
    let mut groups: Vec<Vec<&Score>> = Vec::new();
    let all = loaded.iter().flat_map(|loaded| &loaded.transcript.scores);
    for score in all.filter(|score| !own.contains(&score.id.as_str())) {
        match groups.iter_mut().find(|group| group.first().is_some_and(|first| alike(first, score))) {
            Some(group) => group.push(score),
            None => groups.push(vec![score]),
        }
    }
    groups.iter().filter_map(|group| row(group, seed)).collect()
}

/// Numbers may be put together only where id, dimension, method, judge and prompt agree. What is known of the judge is no
/// part of that: it may have been tested after the first of them was taken.
fn alike(a: &Score, b: &Score) -> bool {
    let by = |score: &Score| score.judge.as_ref().map(|judge| (judge.model.clone(), judge.digest));
    (&a.id, &a.dimension, a.method, by(a), a.prompt_digest) == (&b.id, &b.dimension, b.method, by(b), b.prompt_digest)
}

/// What speaks against a judge's word; nothing where it passed its test, or where nothing was judged.
pub(super) fn doubt(score: &StoredScore) -> Option<String> {
    if matches!(score.method, ScoreMethod::Measured | ScoreMethod::Likelihood) {
        return None;
    }
    match &score.judge.as_ref()?.reliability {
        None => Some("not tested".to_owned()),
        Some(known) if known.is_reliable() => None,
        Some(known) => Some(format!("unreliable: agreement {}", number(known.agreement))),
    }
}

fn row(group: &[&Score], seed: u64) -> Option<StoredScore> {
    let first = group.first()?;
    let values: Vec<f64> = group.iter().filter_map(|score| score.value).collect();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let mut by_turn: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let mut masses = Vec::new();
    for score in group {
        // A score over points says again what its first point says.
        let points = || score.points.iter().filter_map(|point| point.why.as_deref());
        let whole = score.why.as_deref().filter(|_| points().next().is_none());
        for why in points().chain(whole) {
            *reasons.entry(why).or_default() += 1;
        }
        for point in &score.points {
            masses.extend(point.mass);
            if let Some(value) = point.value {
                by_turn.entry(point.turns.1).or_default().push(value);
            }
        }
    }
    let tested = group.iter().filter_map(|score| score.judge.as_ref()).find(|judge| judge.reliability.is_some());
    let name = format!("{} {}", first.id, first.dimension.as_deref().unwrap_or_default());
    Some(StoredScore {
        id: first.id.clone(),
        dimension: first.dimension.clone(),
        method: first.method,
        judge: tested.or(first.judge.as_ref()).cloned(),
        prompt_digest: first.prompt_digest,
        interval: interval(&values, seed, &name),
        value: summary(values),
        mass: summary(masses),
        top: group.iter().flat_map(|score| &score.points).filter_map(|point| point.top).min(),
        points: by_turn
            .into_iter()
            .filter_map(|(turn, values)| Some(StoredPoint { turn, value: summary(values)? }))
            .collect(),
        missing: reasons.into_iter().map(|(why, count)| (why.to_owned(), count)).collect(),
    })
}
