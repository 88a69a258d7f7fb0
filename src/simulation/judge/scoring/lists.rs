//! Lists of scores: which two are the same, what new ones do to old ones, and how two lists of one transcript become one.

use crate::simulation::rollout::Score;

/// Whether both are the same score, taken of the same in the same way by the same.
pub(super) fn same(one: &Score, other: &Score) -> bool {
    let by = |score: &Score| score.judge.as_ref().map(|judge| (judge.model.clone(), judge.digest));
    (&one.id, &one.dimension, one.method, one.prompt_digest, one.about, by(one))
        == (&other.id, &other.dimension, other.method, other.prompt_digest, other.about, by(other))
}

/// Whether a list has room for only one of them: another judge's stand beside each other.
fn stand_for_one(one: &Score, other: &Score) -> bool {
    let by = |score: &Score| score.judge.as_ref().map(|judge| judge.model.clone());
    (&one.id, &one.dimension) == (&other.id, &other.dimension)
        && (one.judge.is_none() || other.judge.is_none() || by(one) == by(other))
}

/// New scores stand in place of those that have the same name; another judge's stay. One without a value takes the place
/// of none that has one. How many were put in comes back.
pub(super) fn put(scores: &mut Vec<Score>, taken: Vec<Score>) -> usize {
    let mut put = taken.len();
    for score in taken {
        match scores.iter_mut().find(|there| stand_for_one(there, &score)) {
            // What can no longer be taken was taken once: its model, its digest and its prompt stand beside it.
            Some(there) if score.value.is_none() && there.value.is_some() => put -= 1,
            Some(there) => *there = score,
            None => scores.push(score),
        }
    }
    put
}

/// Joins the scores that another process took of the same transcript: what one of them has, both have.
///
/// # Errors
/// The id of a score that both have and that is not the same: taken in another way, or with another value.
pub fn join(scores: &mut Vec<Score>, others: Vec<Score>) -> Result<(), String> {
    for other in others {
        match scores.iter_mut().find(|there| stand_for_one(there, &other)) {
            None => scores.push(other),
            Some(_) if other.value.is_none() => {}
            Some(there) if there.value.is_none() => *there = other,
            Some(there) if same(there, &other) && (there.value, &there.points) == (other.value, &other.points) => {
                // The judge may have been tested in between.
                if let (Some(judge), Some(tested)) = (&mut there.judge, other.judge) {
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

    /// A score of `judge` with a value, and how well the judge did.
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
        let result = join(&mut joined, others.to_vec());
        assert_eq!(result.as_ref().map(|()| joined.as_slice()).map_err(String::as_str), expected);
    }

    #[test]
    fn what_one_has_both_have() {
        let (a, b, refused) = (score("a", Some(0.5), None), score("b", Some(1.0), None), score("a", None, None));
        check(std::slice::from_ref(&a), std::slice::from_ref(&b), Ok(&[a.clone(), b.clone()]));
        check(&[], &[a.clone(), b.clone()], Ok(&[a.clone(), b.clone()]));
        check(std::slice::from_ref(&refused), std::slice::from_ref(&a), Ok(std::slice::from_ref(&a)));
        check(std::slice::from_ref(&a), &[refused], Ok(std::slice::from_ref(&a)));
        let tested = score("a", Some(0.5), Some(0.9));
        check(&[a], std::slice::from_ref(&tested), Ok(std::slice::from_ref(&tested)));
    }

    #[test]
    fn what_both_have_in_two_ways_is_told() {
        let a = score("a", Some(0.5), None);
        check(std::slice::from_ref(&a), &[score("a", Some(0.75), None)], Err("naturalness/1"));
        let asked_otherwise = Score { prompt_digest: Some(Digest::of("asked otherwise")), ..a.clone() };
        check(&[a], &[asked_otherwise], Err("naturalness/1"));
    }
}
