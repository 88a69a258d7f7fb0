//! Lists of scores: comparing, updating and merging them.

use crate::simulation::rollout::{Score, ScoreMethod};

/// Whether both scores have the same id, dimension, method, prompt, profile and judge.
pub(super) fn same_definition(one: &Score, other: &Score) -> bool {
    let by = |score: &Score| score.judge.as_ref().map(|judge| (judge.model.clone(), judge.digest));
    (&one.id, &one.dimension, one.method, one.prompt_digest, one.about, by(one))
        == (&other.id, &other.dimension, other.method, other.prompt_digest, other.about, by(other))
}

/// Whether a list may contain only one of the two. Scores of different judges do not exclude each other; but once a
/// reader gave a likelihood, it is no longer missing because the persona's own model gives none.
fn same_slot(one: &Score, other: &Score) -> bool {
    let by = |score: &Score| score.judge.as_ref().map(|judge| judge.model.clone());
    let likelihoods = (one.method, other.method) == (ScoreMethod::Likelihood, ScoreMethod::Likelihood);
    let unread = likelihoods && (one.value.is_none() || other.value.is_none());
    (&one.id, &one.dimension) == (&other.id, &other.dimension)
        && (one.judge.is_none() || other.judge.is_none() || by(one) == by(other) || unread)
}

/// Replaces scores by new ones of the same name and judge, and adds the others. A score without a value does not replace
/// one with a value. Returns how many were replaced or added.
pub(super) fn insert_scores(scores: &mut Vec<Score>, new: Vec<Score>) -> usize {
    let mut count = new.len();
    for score in new {
        match scores.iter_mut().find(|old| same_slot(old, &score)) {
            // An existing value stays valid: its model, digest and prompt are recorded with it.
            Some(old) if score.value.is_none() && old.value.is_some() => count -= 1,
            Some(old) => *old = score,
            None => scores.push(score),
        }
    }
    count
}

/// Adds the scores that another process computed for the same transcript.
///
/// # Errors
/// The id of a score that both lists contain with a different definition or value.
pub fn merge_scores(scores: &mut Vec<Score>, others: Vec<Score>) -> Result<(), String> {
    for other in others {
        match scores.iter_mut().find(|score| same_slot(score, &other)) {
            None => scores.push(other),
            Some(_) if other.value.is_none() => {}
            Some(score) if score.value.is_none() => *score = other,
            Some(score)
                if same_definition(score, &other) && (score.value, &score.points) == (other.value, &other.points) =>
            {
                // The judge may have been tested in between.
                if let (Some(judge), Some(tested)) = (&mut score.judge, other.judge) {
                    judge.reliability = judge.reliability.take().or(tested.reliability);
                }
            }
            Some(_) => return Err(other.id),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::base::Digest;
    use crate::simulation::rollout::{Reliability, ScoreJudge, ScoreMethod};

    /// A score of `judge` with a value and the judge's agreement.
    fn score(judge: &str, value: Option<f64>, agreement: Option<f64>) -> Score {
        let reliability = agreement.map(|agreement| Reliability { agreement, interval: None, pairs: 8 });
        Score {
            id: "naturalness/1".to_owned(),
            dimension: None,
            method: ScoreMethod::WrittenRating,
            judge: Some(ScoreJudge { model: judge.to_owned(), digest: None, device: None, reliability }),
            prompt_digest: Some(Digest::of("asked")),
            about: None,
            value,
            why: value.is_none().then(|| "it refused".to_owned()),
            points: Vec::new(),
        }
    }

    #[track_caller]
    fn check(mine: &[Score], others: &[Score], expected: Result<&[Score], &str>) {
        let mut joined = mine.to_vec();
        let result = merge_scores(&mut joined, others.to_vec());
        assert_eq!(result.as_ref().map(|()| joined.as_slice()).map_err(String::as_str), expected);
    }

    #[test]
    fn merging_is_a_union() {
        let (a, b, refused) = (score("a", Some(0.5), None), score("b", Some(1.0), None), score("a", None, None));
        check(std::slice::from_ref(&a), std::slice::from_ref(&b), Ok(&[a.clone(), b.clone()]));
        check(&[], &[a.clone(), b.clone()], Ok(&[a.clone(), b.clone()]));
        check(std::slice::from_ref(&refused), std::slice::from_ref(&a), Ok(std::slice::from_ref(&a)));
        check(std::slice::from_ref(&a), &[refused], Ok(std::slice::from_ref(&a)));
        let tested = score("a", Some(0.5), Some(0.9));
        check(&[a], std::slice::from_ref(&tested), Ok(std::slice::from_ref(&tested)));
    }

    #[test]
    fn different_scores_of_one_name_are_an_error() {
        let a = score("a", Some(0.5), None);
        check(std::slice::from_ref(&a), &[score("a", Some(0.75), None)], Err("naturalness/1"));
        let asked_otherwise = Score { prompt_digest: Some(Digest::of("asked otherwise")), ..a.clone() };
        check(&[a], &[asked_otherwise], Err("naturalness/1"));
    }
}
