//! Building scores from per-turn values, and sampling turns.

use crate::foundation::base::Digest;
use crate::foundation::chat::ModelInfo;
use crate::foundation::stats::mean;
use crate::simulation::rollout::{Reliability, Score, ScoreJudge, ScoreMethod, ScorePoint};

/// The fields of a score that do not depend on its values.
#[derive(Debug, Clone)]
pub(super) struct ScoreDefinition<'a> {
    pub(super) id: &'a str,
    pub(super) dimension: Option<&'a str>,
    pub(super) method: ScoreMethod,
    pub(super) judge: Option<ScoreJudge>,
    pub(super) prompt: Option<Digest>,
    pub(super) about: Option<Digest>,
}

impl ScoreDefinition<'_> {
    /// The score over `points`: the mean of their values.
    pub(super) fn over(self, points: Vec<ScorePoint>) -> Score {
        let value = mean(&values(&points));
        let first = || points.iter().find_map(|point| point.why.clone());
        let why = value.is_none().then(|| first().unwrap_or_else(|| "no turn was read".to_owned()));
        self.score(value, why, points)
    }

    /// A score of the whole conversation, without points.
    pub(super) fn whole(self, value: Option<f64>, why: impl FnOnce() -> String) -> Score {
        let why = value.is_none().then(why);
        self.score(value, why, Vec::new())
    }

    fn score(self, value: Option<f64>, why: Option<String>, points: Vec<ScorePoint>) -> Score {
        Score {
            id: self.id.to_owned(),
            dimension: self.dimension.map(str::to_owned),
            method: self.method,
            judge: self.judge,
            prompt_digest: self.prompt,
            about: self.about,
            value,
            why,
            points,
        }
    }
}

/// The values of the points that have one.
pub(super) fn values(points: &[ScorePoint]) -> Vec<f64> {
    points.iter().filter_map(|point| point.value).collect()
}

/// A value for a span of turns, or why there is none.
pub(super) fn point(turns: (usize, usize), value: Result<f64, String>) -> ScorePoint {
    let (value, why) = match value {
        Ok(value) => (Some(value), None),
        Err(why) => (None, Some(why)),
    };
    ScorePoint { turns, value, interval: None, mass: None, top: None, why }
}

/// The model that computed a score.
pub(super) fn score_judge(info: &ModelInfo, reliability: Option<Reliability>) -> ScoreJudge {
    ScoreJudge { model: info.name.clone(), digest: info.digest, device: info.device.clone(), reliability }
}

/// Whether turn `turn` of `turns` belongs to a sample with the share `rate`: evenly spread, at least one turn.
pub(super) fn is_sampled(turn: usize, turns: usize, rate: f64) -> bool {
    let before = |turns: usize| (turns as f64 * rate).floor();
    let none = before(turns) < 1.0;
    before(turn + 1) > before(turn) || (none && turn + 1 == turns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_evenly_spread_and_not_empty() {
        let sample =
            |turns: usize, rate| (0..turns).filter(|&turn| is_sampled(turn, turns, rate)).collect::<Vec<usize>>();
        assert_eq!(sample(4, 1.0), [0, 1, 2, 3]);
        assert_eq!(sample(10, 0.3), [3, 6, 9]);
        assert_eq!(sample(3, 0.1), [2]);
        assert_eq!(sample(0, 0.1), [0; 0]);
    }

    #[test]
    fn a_score_without_values_has_the_reason_of_its_points() {
        let definition = || ScoreDefinition {
            id: "x/1",
            dimension: None,
            method: ScoreMethod::Likelihood,
            judge: None,
            prompt: None,
            about: None,
        };
        let failed = definition().over(vec![point((0, 0), Err("it refused".to_owned()))]);
        assert_eq!((failed.value, failed.why.as_deref()), (None, Some("it refused")));
        let read = definition().over(vec![point((0, 0), Err("it refused".to_owned())), point((1, 1), Ok(2.0))]);
        assert_eq!((read.value, read.why), (Some(2.0), None));
    }
}
