//! Scores that stand in the transcripts, put together over the rollouts: by what they measure, how they were taken and by
//! whom. Nothing here knows what a score means; `docs/SCORES.md` does.

use std::collections::BTreeMap;

use super::aggregate::{interval, summary};
use super::data::{StoredPoint, StoredScore};
use super::load::Loaded;
use crate::simulation::rollout::Score;

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

/// Numbers may be put together only where id, dimension, method, judge and prompt agree.
fn alike(a: &Score, b: &Score) -> bool {
    (&a.id, &a.dimension, a.method, &a.judge, a.prompt_digest)
        == (&b.id, &b.dimension, b.method, &b.judge, b.prompt_digest)
}

fn row(group: &[&Score], seed: u64) -> Option<StoredScore> {
    let first = group.first()?;
    let values: Vec<f64> = group.iter().filter_map(|score| score.value).collect();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let mut by_turn: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let mut masses = Vec::new();
    for score in group {
        let whole = score.why.as_deref().filter(|_| score.value.is_none());
        for why in whole.into_iter().chain(score.points.iter().filter_map(|point| point.why.as_deref())) {
            *reasons.entry(why).or_default() += 1;
        }
        for point in &score.points {
            masses.extend(point.mass);
            if let Some(value) = point.value {
                by_turn.entry(point.turns.1).or_default().push(value);
            }
        }
    }
    let name = format!("{} {}", first.id, first.dimension.as_deref().unwrap_or_default());
    Some(StoredScore {
        id: first.id.clone(),
        dimension: first.dimension.clone(),
        method: first.method,
        judge: first.judge.clone(),
        prompt_digest: first.prompt_digest,
        interval: interval(&values, seed, &name),
        value: summary(values),
        mass: summary(masses),
        points: by_turn
            .into_iter()
            .filter_map(|(turn, values)| Some(StoredPoint { turn, value: summary(values)? }))
            .collect(),
        missing: reasons.into_iter().map(|(why, count)| (why.to_owned(), count)).collect(),
    })
}
