//! Statistics and samples of logit rows, compared with double precision.

use proptest::prelude::*;

use super::values::{close, noise, wide};
use crate::{SampleParams, SampleScratch, penalise, rank_of, read_logits, read_token, sample};

#[test]
fn reading_a_vocabulary_of_150_thousand() {
    for (scale, shift) in [(1.0, 0.0), (8.0, 300.0), (0.001, -5.0)] {
        // Rising, so that the running maximum changes often.
        let logits: Vec<f32> =
            noise(23, 150_001).iter().enumerate().map(|(i, x)| x * scale + shift + i as f32 * 1e-5).collect();
        let (summary, _) = read_logits(&logits, 5);
        let max = logits.iter().copied().map(wide).fold(f64::MIN, f64::max);
        let s: f64 = logits.iter().map(|&x| (wide(x) - max).exp()).sum();
        let log_z = max + s.ln();
        let entropy: f64 = logits.iter().map(|&x| wide(x) - log_z).map(|logp| -logp * logp.exp()).sum();
        close(summary.log_z, log_z, 2e-7);
        close(summary.entropy, entropy, 1e-6);
    }
}

#[test]
fn top_entries_are_ordered_with_ties_by_lower_id() {
    let check = |logits: &[f32], top: usize, want: &[u32]| {
        let ids: Vec<u32> = read_logits(logits, top).1.iter().map(|&(id, _)| id).collect();
        assert_eq!(ids, want);
    };
    check(&[1.0, 3.0, 2.0, 3.0, 3.0], 3, &[1, 3, 4]);
    check(&[1.0, 3.0, 2.0, 3.0, 3.0], 2, &[1, 3]);
    check(&[1.0, 2.0], 9, &[1, 0]);
    check(&[1.0, 2.0], 0, &[]);
    check(&[f32::NEG_INFINITY, 2.0], 2, &[1, 0]);
    let logits = noise(24, 5000);
    let mut order: Vec<u32> = (0..5000).collect();
    order.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
    check(&logits, 100, &order[..100]);
    for rank in [0, 1, 77, 4999] {
        assert_eq!(rank_of(&logits, order[rank]), Some(rank as u32));
    }
}

#[test]
fn rows_that_are_not_distributions_are_detected() {
    let check = |logits: &[f32], valid: bool| {
        assert_eq!(read_logits(logits, 2).0.is_valid(), valid, "{logits:?}");
        let params = SampleParams { temperature: 1.0, top_k: None, top_p: 0.9, min_p: 0.0 };
        assert_eq!(sample(logits, &params, 0.5, &mut SampleScratch::default()).is_some(), valid, "{logits:?}");
    };
    check(&[], false);
    check(&[f32::NAN, 1.0], false);
    check(&[1.0, f32::NAN], false);
    check(&[f32::INFINITY, 1.0], false);
    check(&[f32::NEG_INFINITY, f32::NEG_INFINITY], false);
    check(&[f32::NEG_INFINITY, 1.0], true);
    check(&[1.0], true);
    check(&[f32::MAX, f32::MIN], true);
    let reading = read_token(&[f32::NEG_INFINITY, 1.0, 1.0], 2, 1).unwrap();
    assert_eq!((reading.rank, reading.top[0].0), (0, 1));
    close(reading.logprob, 0.5f64.ln(), 1e-7);
    close(reading.entropy, 2f64.ln(), 1e-7);
    assert_eq!(read_token(&[1.0], 1, 1), None);
}

/// The kept distribution in double precision: ids in order with weights, or nothing where a filter's edge is too
/// close to call in single precision.
fn kept_distribution(logits: &[f32], params: &SampleParams) -> Option<Vec<(u32, f64)>> {
    let max = logits.iter().copied().fold(f32::MIN, f32::max);
    let weight = |x: f32| (wide(x - max) / wide(params.temperature)).exp();
    let mut kept: Vec<(u32, f64)> = logits.iter().enumerate().map(|(id, &x)| (id as u32, weight(x))).collect();
    kept.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    kept.truncate(params.top_k.unwrap_or(usize::MAX).max(1));
    let total: f64 = kept.iter().map(|x| x.1).sum();
    let mut before = 0.0;
    let mut within = 0;
    while within < kept.len() && (within == 0 || params.top_p >= 1.0 || before / total < wide(params.top_p)) {
        before += kept[within].1;
        within += 1;
        if params.top_p < 1.0 && (before / total - wide(params.top_p)).abs() < 1e-5 {
            return None;
        }
    }
    kept.truncate(within);
    if kept.iter().any(|x| (x.1 - wide(params.min_p)).abs() < 1e-5 && x.1 < 1.0) {
        return None;
    }
    kept.retain(|x| x.1 >= wide(params.min_p));
    kept.sort_by_key(|x| x.0);
    Some(kept)
}

proptest! {
    #[test]
    fn drawing_inverts_the_kept_distribution(
        logits in proptest::collection::vec(-8.0f32..8.0, 1..400), uniform in 0.0f64..1.0,
        temperature in 0.2f32..3.0, top_k in proptest::option::of(1usize..60),
        top_p in prop_oneof![Just(1.0f32), 0.01f32..1.0], min_p in prop_oneof![Just(0.0f32), 0.0f32..0.5],
    ) {
        let params = SampleParams { temperature, top_k, top_p, min_p };
        let kept = kept_distribution(&logits, &params);
        prop_assume!(kept.is_some());
        let kept = kept.unwrap();
        let total: f64 = kept.iter().map(|x| x.1).sum();
        let id = sample(&logits, &params, uniform, &mut SampleScratch::default()).unwrap();
        let before: f64 = kept.iter().filter(|x| x.0 < id).map(|x| x.1).sum();
        let own = kept.iter().find(|x| x.0 == id).map(|x| x.1);
        prop_assert!(own.is_some(), "drew {}, which is not kept", id);
        prop_assert!(before / total < uniform + 1e-5, "drawn too early");
        prop_assert!((before + own.unwrap()) / total > uniform - 1e-5, "drawn too late");
    }
}

#[test]
fn edges_of_drawing() {
    let check = |logits: &[f32], params: SampleParams, uniform: f64, want: u32| {
        assert_eq!(
            sample(logits, &params, uniform, &mut SampleScratch::default()),
            Some(want),
            "{params:?} at {uniform}"
        );
    };
    let all = SampleParams { temperature: 1.0, top_k: None, top_p: 1.0, min_p: 0.0 };
    let logits = [0.0, 2.0, 2.0, 1.0];
    check(&logits, SampleParams { temperature: 0.0, ..all }, 0.99, 1);
    check(&logits, SampleParams { top_k: Some(1), ..all }, 0.99, 1);
    check(&logits, SampleParams { top_k: Some(0), ..all }, 0.99, 1);
    check(&logits, SampleParams { top_p: 0.0, ..all }, 0.99, 1);
    check(&logits, SampleParams { min_p: 1.0, ..all }, 0.49, 1);
    check(&logits, SampleParams { min_p: 1.0, ..all }, 0.51, 2);
    check(&logits, all, 0.0, 0);
    check(&logits, all, 1.0 - 1e-12, 3);
    check(&[f32::NEG_INFINITY, 0.0], all, 0.0, 1);
    check(&[0.0, f32::NEG_INFINITY], all, 1.0 - 1e-12, 0);
}

#[test]
fn a_penalty_falls_once_on_each_entry() {
    let mut logits = [2.0, -2.0, 3.0];
    penalise(&mut logits, &[0, 1, 0, 99], 2.0);
    assert_eq!(logits, [1.0, -4.0, 3.0]);
}

#[test]
fn a_masked_beginning_is_worth_nothing() {
    let mut logits = vec![f32::NEG_INFINITY; 3_000];
    (logits[1_500], logits[2_900]) = (2.0, 2.0);
    let (summary, top) = read_logits(&logits, 3);
    close(summary.log_z, 2.0 + 2f64.ln(), 1e-6);
    close(summary.entropy, 2f64.ln(), 1e-6);
    assert_eq!(top[..2].iter().map(|&(id, _)| id).collect::<Vec<_>>(), [1_500, 2_900]);
    logits[7] = f32::NAN;
    assert!(!read_logits(&logits, 3).0.is_valid());
}

#[test]
fn a_probability_near_one_keeps_its_digits() {
    // ln Σ is near 24, where one f32 step is 1.9e-6; the log-probability of the first entry is −1.1e-6.
    let logits = [24.0, 24.0 - 13.7];
    let want = -(-13.7f64).exp().ln_1p();
    let got = f64::from(read_logits(&logits, 1).1[0].1);
    assert!((got - want).abs() < 1e-9, "{got} against {want}");
}
