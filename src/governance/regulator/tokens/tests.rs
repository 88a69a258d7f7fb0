//! The estimators against their formulas.

use super::alternatives::{RANKS, exp_nonpositive};
use super::*;

fn stats(group_tokens: usize, tokens: &[(Option<f32>, Option<f32>, &[f32])]) -> TokenStats {
    let mut stats = TokenStats::new(&ConfidenceSettings { group_tokens, ..ConfidenceSettings::default() });
    for &(logprob, entropy, top) in tokens {
        stats.push(logprob, entropy, top, |&logprob| logprob);
    }
    stats
}

fn near(found: Option<f64>, expected: f64) {
    let found = found.expect("an estimate");
    assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
}

#[test]
fn the_quick_exponential_agrees_with_libm() {
    for step in 0..87_000 {
        let x = -(step as f32) / 1000.0;
        let (ours, theirs) = (exp_nonpositive(x), libm::expf(x));
        assert!((ours - theirs).abs() <= 3e-7 * theirs, "exp({x}): {ours} against {theirs}");
    }
    assert_eq!(exp_nonpositive(0.0).to_bits(), 1f32.to_bits());
}

#[test]
fn without_logprobs_all_estimates_are_absent() {
    let stats = stats(4, &[(None, None, &[]), (None, None, &[])]);
    assert_eq!(stats.estimates(), Estimates::default());
    assert_eq!((stats.tokens(), stats.known(), stats.mean_logprob()), (2, 0, None));
}

#[test]
fn a_logprob_of_zero_is_valid_and_impossible_values_are_not() {
    let zero = stats(4, &[(Some(0.0), None, &[]), (Some(-2.0), None, &[])]);
    near(zero.mean_logprob(), -1.0);
    let odd = [Some(0.1), Some(f32::NAN), Some(f32::NEG_INFINITY), Some(-9999.0), Some(f32::INFINITY)];
    let odd = stats(4, &odd.map(|logprob| (logprob, Some(f32::NAN), &[] as &[f32])));
    assert_eq!((odd.known(), odd.unusable(), odd.mean_logprob()), (0, 10, None));
}

#[test]
fn estimates_follow_their_formulas() {
    // Two tokens of a three-word vocabulary with probabilities (.5, .3, .2) and (.8, .1, .1).
    let (a, b) = ([0.5f32.ln(), 0.3f32.ln(), 0.2f32.ln()], [0.8f32.ln(), 0.1f32.ln(), 0.1f32.ln()]);
    let mut stats =
        TokenStats::new(&ConfidenceSettings { group_tokens: 1, vocabulary: Some(3), ..ConfidenceSettings::default() });
    stats.push(Some(a[1]), None, &a, |&logprob| logprob);
    stats.push(Some(b[0]), None, &b, |&logprob| logprob);
    let found = stats.estimates();
    // References: scipy.stats.entropy([.5, .3, .2]) = 1.0296530140645737, of [.8, .1, .1] = 0.639031859650177.
    near(found.entropy_mean, f64::midpoint(1.029_653_014_064_573_7, 0.639_031_859_650_177));
    near(found.entropy_max, 1.029_653_014_064_573_7);
    assert!(found.entropy_truncated);
    near(found.ln_nll, -(0.3f64.ln() + 0.8f64.ln()) / 2.0);
    near(found.msp, -(0.3f64.ln() + 0.8f64.ln()));
    near(found.min_probability, 0.7);
    near(found.margin, 1.0 - f64::midpoint(0.2, 0.7));
    let (ca, cb) = (-(0.5f64 * 0.3 * 0.2).ln() / 3.0, -(0.8f64 * 0.1 * 0.1).ln() / 3.0);
    near(found.group_confidence_min, ca.min(cb));
    near(found.group_confidence_bottom, ca.min(cb));
    near(found.group_confidence_tail, cb);
    // scipy.stats.entropy([1/3]*3, p): 0.07018955, 0.42315556 → the mean divergence from uniform.
    near(found.self_certainty, f64::midpoint(ca, cb) - 3f64.ln());
    let term = |p: f64| -p * p.ln();
    let ranks = found.rank_entropies.unwrap();
    for (rank, (a, b)) in [(0.5, 0.8), (0.3, 0.1), (0.2, 0.1)].into_iter().enumerate() {
        near(ranks.mean.get(rank).copied(), f64::midpoint(term(a), term(b)));
        near(ranks.max.get(rank).copied(), term(a).max(term(b)));
    }
}

#[test]
fn a_full_entropy_is_preferred_to_one_over_alternatives() {
    let found = stats(4, &[(Some(-1.0), Some(2.5), &[-0.7, -0.9])]).estimates();
    assert_eq!((found.entropy_mean, found.entropy_truncated), (Some(2.5), false));
}

#[test]
fn a_hopeless_group_is_noticed_once_the_window_is_full() {
    let bad: [(Option<f32>, Option<f32>, &[f32]); 3] = [(Some(-9.0), None, &[]); 3];
    assert_eq!(stats(4, &bad).below_stop_level(), None);
    assert_eq!(stats(3, &bad).below_stop_level(), Some(StopLevel::Logprob(-9.0)));
    let good: [(Option<f32>, Option<f32>, &[f32]); 3] = [(Some(-1.0), None, &[]); 3];
    assert_eq!(stats(3, &good).below_stop_level(), None);
}

#[test]
fn a_group_of_low_confidence_is_noticed_where_a_level_is_set() {
    let settings =
        |stop| ConfidenceSettings { group_tokens: 2, stop_group_confidence: stop, ..ConfidenceSettings::default() };
    let after = |stop, confidences: &[f32]| {
        let mut stats = TokenStats::new(&settings(stop));
        for confidence in confidences {
            stats.push(Some(-0.1), None, &[-confidence, -confidence], |value| *value);
        }
        stats.below_stop_level()
    };
    assert_eq!(after(Some(2.0), &[3.0, 0.5]), Some(StopLevel::Confidence(1.75)));
    // The level itself is not below it; one token is no group; without a level nothing stops.
    assert_eq!(after(Some(2.0), &[3.0, 1.0]), None);
    assert_eq!(after(Some(2.0), &[0.1]), None);
    assert_eq!(after(None, &[0.1, 0.1]), None);
}

#[test]
fn rising_entropy_is_measured_and_falling_entropy_is_not() {
    let run = |entropies: &[f32]| {
        let tokens: Vec<_> = entropies.iter().map(|&h| (None, Some(h), &[] as &[f32])).collect();
        stats(4, &tokens).rise_and_spike().unwrap().0
    };
    let rising: Vec<f32> = (0..60).map(|step| step as f32 / 10.0).collect();
    let falling: Vec<f32> = rising.iter().rev().copied().collect();
    assert!(run(&rising) > 0.3);
    assert!(run(&falling).abs() < f64::EPSILON);
}

#[test]
fn only_ranks_that_every_token_has_are_averaged() {
    let ranks = |tops: &[&[f32]]| {
        let tokens: Vec<_> = tops.iter().map(|&top| (Some(-1.0), None, top)).collect();
        stats(4, &tokens).estimates().rank_entropies.map(|ranks| (ranks.mean.len(), ranks.max.len()))
    };
    assert_eq!(ranks(&[&[]]), None);
    assert_eq!(ranks(&[&[-1.0; 20], &[-0.5; 5], &[]]), Some((5, 5)));
    assert_eq!(ranks(&[&[-1.0; 20]]), Some((RANKS, RANKS)));
}
