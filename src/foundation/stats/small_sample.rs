//! Intervals and tests for few independent observations, such as the scores of 3 to 20 rollouts. None of them assumes a
//! normal distribution: rollouts are often of two kinds (some break down), and shares are often 0 or 1.
//!
//! The tests in `small_sample/coverage.rs` simulate the coverage of the intervals and the error rates of the tests.

use super::{Interval, mean, quantile};
use crate::foundation::base::RngStream;

/// One minus the level of all intervals and tests of this module.
pub const ALPHA: f64 = 0.05;
/// Monte Carlo draws behind [`bounded_mean`].
const DRAWS: u64 = 4_000;
/// Up to this many relabellings are enumerated; of more, as many are drawn.
const RELABELLINGS_MAX: u64 = 10_000;
/// The least number of observations for [`bounded_mean`].
pub const BOUNDED_MIN: usize = 3;

/// A 95 % interval for the mean of a distribution on `[low, high]`: Gaffke's bound (N. Gaffke 2005, *Three test statistics
/// for a nonparametric one-sided hypothesis on the mean of a nonnegative variable*), which for shares of 0 and 1 equals the
/// interval of Clopper and Pearson. It uses nothing but the bounds. `None` for fewer than [`BOUNDED_MIN`] values, or if a
/// value is outside the bounds.
pub fn bounded_mean(values: &[f64], (low, high): (f64, f64), stream: &RngStream) -> Option<Interval> {
    let inside = |value: &f64| (low..=high).contains(value);
    if values.len() < BOUNDED_MIN || high <= low || !values.iter().all(inside) {
        return None;
    }
    let share = |value: &f64| ((value - low) / (high - low)).clamp(0.0, 1.0);
    let upper = upper_bound(values.iter().map(share).collect(), &stream.child("upper", 0))?;
    let lower = 1.0 - upper_bound(values.iter().map(|value| 1.0 - share(value)).collect(), &stream.child("lower", 0))?;
    let scaled = |share: f64| low + (high - low) * share.clamp(0.0, 1.0);
    Some(Interval { low: scaled(lower), high: scaled(upper) })
}

/// The upper 97.5 % bound of the mean of a distribution on [0, 1].
fn upper_bound(mut values: Vec<f64>, stream: &RngStream) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = values.len() as u64;
    let above = values.iter().skip(1).copied().chain([1.0]);
    let gaps: Vec<f64> = values.iter().zip(above).map(|(value, next)| next - value).collect();
    let draws: Vec<f64> = (0..DRAWS)
        .map(|draw| {
            let mut uniforms: Vec<f64> = (0..n).map(|at| stream.uniform(draw * n + at)).collect();
            uniforms.sort_by(f64::total_cmp);
            1.0 - uniforms.iter().zip(&gaps).map(|(uniform, gap)| uniform * gap).sum::<f64>()
        })
        .collect();
    quantile(&draws, 1.0 - ALPHA / 2.0)
}

/// A 95 % interval for the median of any distribution, from order statistics. `None` for fewer than 6 values, for which
/// none has that level.
pub fn median(values: &[f64]) -> Option<Interval> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as u64;
    // The largest k such that at most 2.5 % of fair coins show fewer than k heads in n tosses.
    let mut below = 0.0;
    let mut k = 0;
    while k < n {
        below += binomial(n, k) * libm::pow(0.5, n as f64);
        if below > ALPHA / 2.0 {
            break;
        }
        k += 1;
    }
    let (low, high) =
        (sorted.get(usize::try_from(k.checked_sub(1)?).ok()?)?, sorted.get(usize::try_from(n - k).ok()?)?);
    Some(Interval { low: *low, high: *high })
}

/// The exact 95 % interval of a share, `successes` of `trials` (Clopper and Pearson 1934).
pub fn proportion(successes: usize, trials: usize) -> Option<Interval> {
    if trials == 0 || successes > trials {
        return None;
    }
    let at_most = |k: usize, p: f64| -> f64 {
        let term = |i: usize| {
            let (i, n) = (i as u64, trials as u64);
            binomial(n, i) * libm::pow(p, i as f64) * libm::pow(1.0 - p, (n - i) as f64)
        };
        (0..=k).map(term).sum()
    };
    // Both tails fall or rise with p, so bisection finds where they are 2.5 %.
    let solve = |is_too_high: &dyn Fn(f64) -> bool| {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if is_too_high(middle) { high = middle } else { low = middle }
        }
        f64::midpoint(low, high)
    };
    let low = match successes.checked_sub(1) {
        None => 0.0,
        Some(before) => solve(&|p| 1.0 - at_most(before, p) > ALPHA / 2.0),
    };
    let high = if successes == trials { 1.0 } else { solve(&|p| at_most(successes, p) < ALPHA / 2.0) };
    Some(Interval { low, high })
}

/// How many rollouts without a failure show, at 95 %, that at most the share `rate` of rollouts fails.
pub fn clean_rollouts_needed(rate: f64) -> usize {
    libm::ceil(libm::log(ALPHA) / libm::log(1.0 - rate)) as usize
}

/// n over k, in floating point.
fn binomial(n: u64, k: u64) -> f64 {
    let k = k.min(n - k.min(n));
    (0..k).map(|i| (n - i) as f64 / (k - i) as f64).product()
}

/// The comparison of one score in two groups.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupDifference {
    /// The second mean minus the first.
    pub difference: f64,
    /// The 95 % interval of the difference, if the groups differ in location only; `None` for too few observations.
    pub interval: Option<Interval>,
    /// The p-value of this comparison by itself.
    pub p: f64,
    /// The p-value corrected for all comparisons: the probability, if nothing differs, that any score differs this much.
    pub p_corrected: f64,
}

/// Compares two groups of rollouts in several scores at once: `scores[s]` has the values of score `s`, first group `a`, then
/// group `b`; a missing value is `None`. The p-values are by relabelling the rollouts, the same relabelling for all scores;
/// corrected ones by the step-down maximum of Westfall and Young (1993), so that the probability of any false positive is at
/// most 5 % whatever the distributions are. A score without a value in one of the groups gives `None`.
pub fn compare_groups(
    scores: &[Vec<Option<f64>>],
    a: usize,
    b: usize,
    stream: &RngStream,
) -> Vec<Option<GroupDifference>> {
    let labellings = labellings(a, b, stream);
    let observed: Vec<Option<f64>> = scores.iter().map(|values| statistic(values, |rollout| rollout >= a)).collect();
    // Step-down: the largest statistic is compared with the maximum over all scores, the next with that over the rest.
    let mut order: Vec<usize> = (0..scores.len()).filter(|&s| observed.get(s).is_some_and(Option::is_some)).collect();
    let of = |s: &usize| observed.get(*s).copied().flatten().unwrap_or_default();
    order.sort_by(|one, other| of(other).total_cmp(&of(one)));
    let (mut alone, mut reached) = (vec![0usize; scores.len()], vec![0usize; order.len()]);
    for in_b in &labellings {
        let mut largest: f64 = 0.0;
        for (rank, s) in order.iter().enumerate().rev() {
            let value = scores.get(*s).and_then(|values| statistic(values, |rollout| in_b.get(rollout) == Some(&true)));
            let value = value.unwrap_or_default();
            if let (true, Some(count)) = (value >= of(s) - 1e-12, alone.get_mut(*s)) {
                *count += 1;
            }
            largest = largest.max(value);
            if let (true, Some(count)) = (largest >= of(s) - 1e-12, reached.get_mut(rank)) {
                *count += 1;
            }
        }
    }
    let total = labellings.len() as f64;
    let mut corrected = vec![1.0; scores.len()];
    let mut before: f64 = 0.0;
    for (s, reached) in order.iter().zip(&reached) {
        before = before.max(*reached as f64 / total);
        if let Some(slot) = corrected.get_mut(*s) {
            *slot = before;
        }
    }
    scores
        .iter()
        .enumerate()
        .map(|(s, values)| {
            observed.get(s).copied().flatten()?;
            let (first, second) = split(values, |rollout| rollout >= a);
            Some(GroupDifference {
                difference: mean(&second)? - mean(&first)?,
                interval: shift_interval(&first, &second, &stream.child("interval", s as u64)),
                p: *alone.get(s)? as f64 / total,
                p_corrected: *corrected.get(s)?,
            })
        })
        .collect()
}

/// The values of both groups.
fn split(values: &[Option<f64>], in_b: impl Fn(usize) -> bool) -> (Vec<f64>, Vec<f64>) {
    let mut groups = (Vec::new(), Vec::new());
    for (rollout, value) in values.iter().enumerate() {
        if let Some(value) = value {
            if in_b(rollout) { groups.1.push(*value) } else { groups.0.push(*value) }
        }
    }
    groups
}

/// The difference of means in units of the standard deviation over both groups; `None` without a value in one of them.
fn statistic(values: &[Option<f64>], in_b: impl Fn(usize) -> bool) -> Option<f64> {
    let (first, second) = split(values, in_b);
    let difference = (mean(&second)? - mean(&first)?).abs();
    let all: Vec<f64> = values.iter().flatten().copied().collect();
    let middle = mean(&all)?;
    let spread = (all.iter().map(|value| (value - middle).powi(2)).sum::<f64>() / all.len() as f64).sqrt();
    Some(if spread > 1e-12 { difference / spread } else { 0.0 })
}

/// Which rollouts are in the second group, for every relabelling, or for a sample of them; the first is the real one.
fn labellings(a: usize, b: usize, stream: &RngStream) -> Vec<Vec<bool>> {
    let n = a + b;
    if binomial(n as u64, b as u64) <= RELABELLINGS_MAX as f64 {
        let mut all = Vec::new();
        combinations(n, b, &mut vec![false; n], 0, &mut all);
        return all;
    }
    let real: Vec<bool> = (0..n).map(|rollout| rollout >= a).collect();
    let draw = |draw: u64| {
        let mut labels = real.clone();
        for at in (1..n).rev() {
            labels.swap(at, stream.index(draw * n as u64 + at as u64, at + 1));
        }
        labels
    };
    std::iter::once(real.clone()).chain((1..RELABELLINGS_MAX).map(draw)).collect()
}

fn combinations(n: usize, left: usize, labels: &mut Vec<bool>, from: usize, all: &mut Vec<Vec<bool>>) {
    if left == 0 {
        all.push(labels.clone());
        return;
    }
    for at in from..=(n - left) {
        if let Some(label) = labels.get_mut(at) {
            *label = true;
        }
        combinations(n, left - 1, labels, at + 1, all);
        if let Some(label) = labels.get_mut(at) {
            *label = false;
        }
    }
}

/// The 95 % interval of the shift between two groups, by inverting the relabelling test: a relabelling that exchanges k
/// members of each group is at least as extreme as the real one unless the shift exceeds the difference of their means.
fn shift_interval(first: &[f64], second: &[f64], stream: &RngStream) -> Option<Interval> {
    let (a, b) = (first.len(), second.len());
    let values: Vec<f64> = first.iter().chain(second).copied().collect();
    let labellings = labellings(a, b, stream);
    let mut limits: Vec<f64> = labellings
        .iter()
        .filter_map(|in_b| {
            let moved = |to_b: bool| {
                let each = values.iter().zip(in_b).enumerate();
                each.filter(|(at, (_, in_b))| (*at >= a) != to_b && **in_b == to_b)
                    .map(|(_, (value, _))| *value)
                    .collect::<Vec<_>>()
            };
            Some(mean(&moved(false))? - mean(&moved(true))?)
        })
        .collect();
    limits.sort_by(f64::total_cmp);
    let tail = libm::floor(ALPHA / 2.0 * labellings.len() as f64) as usize;
    let at = tail.checked_sub(1)?;
    Some(Interval { low: *limits.get(at)?, high: *limits.get(limits.len().checked_sub(tail)?)? })
}

/// How many rollouts per group show a difference of `difference` with 80 % probability, for scores with the standard
/// deviation `sd` within a group and `comparisons` scores at once (Bonferroni). `None` without a difference.
pub fn rollouts_needed(difference: f64, sd: f64, comparisons: usize) -> Option<usize> {
    if difference.abs() <= 1e-12 {
        return None;
    }
    let level = ALPHA / comparisons.max(1) as f64;
    let (z, power) = (normal_quantile(1.0 - level / 2.0), normal_quantile(0.8));
    let large = 2.0 * ((z + power) * sd / difference.abs()).powi(2);
    // The correction for the estimated spread, and as many as there must be relabellings for such a p-value.
    let mut n = libm::ceil(large + z * z / 4.0).max(2.0) as usize;
    while binomial(2 * n as u64, n as u64) * ALPHA < 2.0 {
        n += 1;
    }
    Some(n)
}

/// The smallest difference that `a` and `b` rollouts show with 80 % probability; see [`rollouts_needed`].
pub fn detectable_difference(sd: f64, a: usize, b: usize, comparisons: usize) -> Option<f64> {
    if a == 0 || b == 0 || binomial((a + b) as u64, b as u64) * ALPHA < 2.0 {
        return None;
    }
    let level = ALPHA / comparisons.max(1) as f64;
    let z = normal_quantile(1.0 - level / 2.0);
    let harmonic = 2.0 / (1.0 / a as f64 + 1.0 / b as f64);
    let effective = harmonic - z * z / 4.0;
    (effective > 0.0).then(|| (z + normal_quantile(0.8)) * sd * (2.0 / effective).sqrt())
}

/// The p-quantile of the standard normal distribution, by bisection of its distribution function.
fn normal_quantile(p: f64) -> f64 {
    let (mut low, mut high) = (-9.0, 9.0);
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if 0.5 * libm::erfc(-middle / std::f64::consts::SQRT_2) < p { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// Krippendorff's α for interval data (Krippendorff 2004, *Content Analysis*, ch. 11): `units[u]` has the ratings of one
/// item, at most one per rater. `None` if fewer than two ratings can be compared, or if all are equal.
pub fn krippendorff_alpha(units: &[Vec<f64>]) -> Option<f64> {
    let paired: Vec<&Vec<f64>> = units.iter().filter(|unit| unit.len() >= 2).collect();
    let all: Vec<f64> = paired.iter().flat_map(|unit| unit.iter().copied()).collect();
    let n = all.len() as f64;
    let pairs = |values: &[f64]| -> f64 {
        values.iter().flat_map(|one| values.iter().map(move |other| (one - other).powi(2))).sum()
    };
    let observed: f64 = paired.iter().map(|unit| pairs(unit) / (unit.len() - 1) as f64).sum::<f64>() / n;
    let expected = pairs(&all) / (n * (n - 1.0));
    (n >= 2.0 && expected > 0.0).then(|| 1.0 - observed / expected)
}

#[cfg(test)]
mod coverage;

#[cfg(test)]
mod tests {
    use super::*;

    fn close(actual: f64, expected: f64, tolerance: f64) {
        assert!((actual - expected).abs() <= tolerance, "{actual}, not {expected}");
    }

    /// `scipy.stats.binomtest(k, n).proportion_ci(method="exact")`.
    #[test]
    fn proportions_are_scipys() {
        for (k, n, low, high) in [
            (0, 3, 0.0, 0.707_598_226_179),
            (3, 3, 0.292_401_773_821, 1.0),
            (1, 10, 0.002_528_578_544, 0.445_016_117_028),
            (17, 20, 0.621_073_173_455, 0.967_929_062_814),
        ] {
            let interval = proportion(k, n).unwrap();
            close(interval.low, low, 1e-9);
            close(interval.high, high, 1e-9);
        }
        assert_eq!(proportion(1, 0), None);
    }

    /// For zeros and ones Gaffke's bound is that of Clopper and Pearson.
    #[test]
    fn the_mean_of_zeros_and_ones_is_a_proportion() {
        let values: Vec<f64> = (0..10).map(|at| f64::from(u8::from(at < 3))).collect();
        let (ours, exact) =
            (bounded_mean(&values, (0.0, 1.0), &RngStream::root(1)).unwrap(), proportion(3, 10).unwrap());
        close(ours.low, exact.low, 0.01);
        close(ours.high, exact.high, 0.01);
        assert_eq!(bounded_mean(&[0.5, 0.5], (0.0, 1.0), &RngStream::root(1)), None, "two are too few");
        assert_eq!(bounded_mean(&[0.5, 0.5, 1.5], (0.0, 1.0), &RngStream::root(1)), None);
    }

    #[test]
    fn the_median_has_an_interval_from_six_values_on() {
        assert_eq!(median(&[1.0, 2.0, 3.0, 4.0, 5.0]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0, 6.0, 5.0, 4.0]), Some(Interval { low: 1.0, high: 6.0 }));
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(median(&ten), Some(Interval { low: 2.0, high: 9.0 }));
    }

    /// Fisher's exact relabelling: 4 against 4 that do not overlap have p = 2/70.
    #[test]
    fn groups_that_do_not_overlap_differ() {
        let score = |values: [f64; 8]| values.map(Some).to_vec();
        let apart = score([1.0, 2.0, 3.0, 4.0, 11.0, 12.0, 13.0, 14.0]);
        let same = score([1.0, 2.0, 3.0, 4.0, 1.5, 2.5, 3.5, 3.0]);
        let result = compare_groups(&[apart, same, vec![Some(1.0); 8]], 4, 4, &RngStream::root(0));
        let apart = result[0].unwrap();
        close(apart.p, 2.0 / 70.0, 1e-12);
        assert!(apart.p_corrected <= ALPHA, "{apart:?}");
        assert_eq!(apart.interval, Some(Interval { low: 7.0, high: 13.0 }));
        assert!(result[1].unwrap().p_corrected > 0.3);
        close(result[2].unwrap().p, 1.0, 1e-12);
        assert!(compare_groups(&[vec![Some(1.0), None]], 1, 1, &RngStream::root(0))[0].is_none());
    }

    /// The example in Krippendorff, *Computing Krippendorff's Alpha-Reliability* (2011), section C: α for interval data is
    /// .849.
    #[test]
    fn alpha_is_krippendorffs() {
        let raters = [
            "1 2 3 3 2 1 4 1 2 . . .",
            "1 2 3 3 2 2 4 1 2 5 . 3",
            ". 3 3 3 2 3 4 2 2 5 1 .",
            "1 2 3 3 2 4 4 1 2 5 1 .",
        ];
        let ratings: Vec<Vec<Option<f64>>> =
            raters.iter().map(|rater| rater.split(' ').map(|rating| rating.parse().ok()).collect()).collect();
        let units: Vec<Vec<f64>> =
            (0..12).map(|unit| ratings.iter().filter_map(|rater| rater[unit]).collect()).collect();
        close(krippendorff_alpha(&units).unwrap(), 0.849, 0.0005);
        assert_eq!(krippendorff_alpha(&[vec![1.0, 1.0], vec![1.0, 1.0]]), None);
    }

    #[test]
    fn normal_quantiles_are_the_tables() {
        close(normal_quantile(0.975), 1.959_963_984_540, 1e-9);
        close(normal_quantile(0.8), 0.841_621_233_573, 1e-9);
        assert_eq!(clean_rollouts_needed(0.1), 29);
    }
}
