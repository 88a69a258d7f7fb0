//! Aggregates the scores stored in transcripts over the rollouts, grouped by id, dimension, method, judge and question.

use std::collections::BTreeMap;

use super::data::{JudgeAgreement, StoredPoint, StoredScore};
use super::format::number;
use super::load::LoadedRollout;
use super::summary::{bounds, interval, summary};
use crate::foundation::stats::small_sample::krippendorff_alpha;
use crate::simulation::rollout::{Score, ScoreMethod};

/// The stored scores over the rollouts, in order of appearance. Scores with an id in `measured_ids` are left out.
pub(super) fn scores(loaded: &[LoadedRollout], measured_ids: &[&str]) -> Vec<StoredScore> {
    let mut groups: Vec<Vec<&Score>> = Vec::new();
    let all = loaded.iter().flat_map(|loaded| &loaded.transcript.scores);
    for score in all.filter(|score| !measured_ids.contains(&score.id.as_str())) {
        match groups.iter_mut().find(|group| group.first().is_some_and(|first| alike(first, score))) {
            Some(group) => group.push(score),
            None => groups.push(vec![score]),
        }
    }
    groups.iter().filter_map(|group| row(group)).collect()
}

/// Whether two scores may be aggregated: id, dimension, method, judge and prompt agree. The judge's reliability may
/// differ, since it may have been tested after the first score was computed.
fn alike(a: &Score, b: &Score) -> bool {
    let by = |score: &Score| score.judge.as_ref().map(|judge| (judge.model.clone(), judge.digest));
    (&a.id, &a.dimension, a.method, by(a), a.prompt_digest) == (&b.id, &b.dimension, b.method, by(b), b.prompt_digest)
}

/// A warning about the judge; `None` if it passed its test or if the score has no judge.
pub(super) fn judge_warning(score: &StoredScore) -> Option<String> {
    if matches!(score.method, ScoreMethod::Measured | ScoreMethod::Likelihood) {
        return None;
    }
    match &score.judge.as_ref()?.reliability {
        None => Some("not tested".to_owned()),
        Some(known) if known.is_reliable() => None,
        Some(known) => Some(format!("unreliable: agreement {}", number(known.agreement))),
    }
}

fn row(group: &[&Score]) -> Option<StoredScore> {
    let first = group.first()?;
    let values: Vec<f64> = group.iter().filter_map(|score| score.value).collect();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let mut by_turn: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let mut masses = Vec::new();
    for score in group {
        // The reason of a score with points repeats that of its first point.
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
    // A rating is from 0 to 1, also by a rubric that is not shipped.
    let rating = (!matches!(first.method, ScoreMethod::Measured | ScoreMethod::Likelihood)
        && bounds(&first.id).is_none())
    .then_some((0.0, 1.0));
    Some(StoredScore {
        id: first.id.clone(),
        dimension: first.dimension.clone(),
        method: first.method,
        judge: tested.or(first.judge.as_ref()).cloned(),
        prompt_digest: first.prompt_digest,
        interval: interval(&values, rating.or(bounds(&first.id)), &name),
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

/// The agreement of several judges on each score that at least two took.
pub(super) fn judge_agreement(loaded: &[LoadedRollout]) -> Vec<JudgeAgreement> {
    type Windows = BTreeMap<(usize, usize), Vec<f64>>;
    let mut groups: Vec<(&Score, Vec<String>, Windows)> = Vec::new();
    for loaded in loaded {
        for score in &loaded.transcript.scores {
            let Some(judge) = score.judge.as_ref().filter(|_| score.method != ScoreMethod::Likelihood) else {
                continue;
            };
            let alike = |first: &Score| (&first.id, &first.dimension) == (&score.id, &score.dimension);
            let at = groups.iter().position(|(first, ..)| alike(first)).unwrap_or_else(|| {
                groups.push((score, Vec::new(), Windows::new()));
                groups.len() - 1
            });
            let Some((_, judges, windows)) = groups.get_mut(at) else { continue };
            if !judges.contains(&judge.model) {
                judges.push(judge.model.clone());
            }
            for point in &score.points {
                let window = windows.entry((loaded.transcript.run.rollout, point.turns.1)).or_default();
                window.extend(point.value);
            }
        }
    }
    groups.retain(|(_, judges, _)| judges.len() > 1);
    let row = |(first, judges, windows): (&Score, Vec<String>, Windows)| {
        let units: Vec<Vec<f64>> = windows.into_values().filter(|ratings| ratings.len() > 1).collect();
        JudgeAgreement {
            id: first.id.clone(),
            dimension: first.dimension.clone(),
            judges,
            windows: units.len(),
            alpha: krippendorff_alpha(&units),
        }
    };
    groups.into_iter().map(row).collect()
}
