//! Simulated coverage and error rates on distributions like those of scores: symmetric, skewed, U-shaped, shares of
//! turns, mostly zero, and rollouts of which some break down. `LOOM_COVERAGE=1 cargo test --lib coverage -- --nocapture`
//! prints the table of `docs/SCORES.md` with more repetitions.

use super::*;

/// A distribution on [0, 1] and its mean.
struct Family {
    name: &'static str,
    mean: f64,
    draw: fn(&mut Draws) -> f64,
}

/// Uniform draws, one after the other.
struct Draws {
    stream: RngStream,
    at: u64,
}

impl Draws {
    fn uniform(&mut self) -> f64 {
        self.at += 1;
        self.stream.uniform(self.at)
    }

    fn normal(&mut self) -> f64 {
        normal_quantile(self.uniform().clamp(1e-12, 1.0 - 1e-12))
    }

    /// The mean of `turns` coins, each of which is 1 with the probability `p`.
    fn share(&mut self, p: f64, turns: usize) -> f64 {
        (0..turns).filter(|_| self.uniform() < p).count() as f64 / turns as f64
    }
}

const FAMILIES: [Family; 8] = [
    Family { name: "bell", mean: 0.5, draw: |draws| (0.5 + 0.1 * draws.normal()).clamp(0.0, 1.0) },
    // u^4 has the mean 1/5 and a long right tail.
    Family { name: "skewed", mean: 0.2, draw: |draws| libm::pow(draws.uniform(), 4.0) },
    // The arcsine distribution.
    Family { name: "U-shaped", mean: 0.5, draw: |draws| 0.5 - 0.5 * libm::cos(std::f64::consts::PI * draws.uniform()) },
    Family { name: "share of 20 turns", mean: 0.3, draw: |draws| draws.share(0.3, 20) },
    // The rate differs between rollouts: the mean of u/5 is 1/10.
    Family {
        name: "rare, uneven share",
        mean: 0.1,
        draw: |draws| {
            let rate = draws.uniform() / 5.0;
            draws.share(rate, 20)
        },
    },
    Family {
        name: "mostly zero",
        mean: 0.1,
        draw: |draws| if draws.uniform() < 0.2 { 0.25 + 0.5 * draws.uniform() } else { 0.0 },
    },
    Family {
        name: "1 in 10 breaks down",
        mean: 0.74,
        draw: |draws| (if draws.uniform() < 0.1 { 0.2 } else { 0.8 }) + 0.1 * (draws.uniform() - 0.5),
    },
    Family {
        name: "1 in 5 breaks down",
        mean: 0.68,
        draw: |draws| (if draws.uniform() < 0.2 { 0.2 } else { 0.8 }) + 0.1 * (draws.uniform() - 0.5),
    },
];

fn repetitions(quick: u64, thorough: u64) -> u64 {
    if std::env::var_os("LOOM_COVERAGE").is_some() { thorough } else { quick }
}

fn sample(family: &Family, name: &str, repetition: u64, n: usize) -> Vec<f64> {
    let mut draws = Draws { stream: RngStream::root(7).child(name, repetition), at: 0 };
    (0..n).map(|_| (family.draw)(&mut draws)).collect()
}

/// The percentile bootstrap covers .74 at n = 3 for a bell, and less where some rollouts break down.
#[test]
fn intervals_of_bounded_means_cover_what_they_claim() {
    let repetitions = repetitions(25, 2_000);
    for family in &FAMILIES {
        for n in [3, 4, 5, 7, 10, 20] {
            let mut covered = 0;
            let mut width = 0.0;
            for repetition in 0..repetitions {
                let values = sample(family, family.name, repetition, n);
                let interval = bounded_mean(&values, (0.0, 1.0), &RngStream::root(repetition)).unwrap();
                covered += u64::from(interval.low <= family.mean && family.mean <= interval.high);
                width += interval.high - interval.low;
            }
            let (coverage, width) = (covered as f64 / repetitions as f64, width / repetitions as f64);
            println!("mean    {:<20} n {n:>2}  coverage {coverage:.3}  width {width:.2}", family.name);
            assert!(coverage >= 0.93, "{} n {n}: {coverage}", family.name);
        }
    }
}

#[test]
fn intervals_of_medians_and_proportions_cover_what_they_claim() {
    let repetitions = repetitions(200, 20_000);
    for n in 6..=20 {
        let mut covered = 0;
        for repetition in 0..repetitions {
            let values = sample(&FAMILIES[1], "median", repetition * 32 + n as u64, n);
            let (interval, truth) = (median(&values).unwrap(), libm::pow(0.5, 4.0));
            covered += u64::from(interval.low <= truth && truth <= interval.high);
        }
        let coverage = covered as f64 / repetitions as f64;
        println!("median  skewed n {n:>2}  coverage {coverage:.3}");
        assert!(coverage >= 0.93, "median, n {n}: {coverage}");
    }
    // A proportion's coverage is a sum over its outcomes: no simulation is needed.
    for n in 1..=20usize {
        for step in 1..20 {
            let p = f64::from(step) / 20.0;
            let covers = |k: usize| proportion(k, n).is_some_and(|i| i.low <= p && p <= i.high);
            let probability =
                |k: usize| binomial(n as u64, k as u64) * libm::pow(p, k as f64) * libm::pow(1.0 - p, (n - k) as f64);
            let coverage: f64 = (0..=n).filter(|&k| covers(k)).map(probability).sum();
            assert!(coverage >= 0.95 - 1e-9, "{n} {p}: {coverage}");
        }
    }
}

/// 40 scores of two groups with the same distribution: in at most 5 % of comparisons may any score differ.
#[test]
fn null_comparisons_have_no_more_false_positives_than_stated() {
    let comparisons = repetitions(40, 2_000);
    for (a, b) in [(3, 3), (4, 4), (5, 5)] {
        let (mut any, mut outside, mut intervals) = (0, 0, 0);
        for comparison in 0..comparisons {
            let scores: Vec<Vec<Option<f64>>> = (0..40)
                .map(|score| {
                    let family = &FAMILIES[score % FAMILIES.len()];
                    let values = sample(family, "null", comparison * 64 + score as u64, a + b);
                    values.into_iter().map(Some).collect()
                })
                .collect();
            let results = compare_groups(&scores, a, b, &RngStream::root(comparison));
            let results: Vec<GroupDifference> = results.into_iter().flatten().collect();
            any += u64::from(results.iter().any(|result| result.p_corrected <= ALPHA));
            for interval in results.iter().filter_map(|result| result.interval) {
                intervals += 1;
                outside += u64::from(interval.low > 0.0 || interval.high < 0.0);
            }
        }
        let rate = any as f64 / comparisons as f64;
        println!("null    {a} against {b}: any of 40 scores differs in {rate:.3} of comparisons");
        // Three standard errors above 5 %.
        assert!(rate <= 0.05 + 3.0 * (0.05 * 0.95 / comparisons as f64).sqrt(), "{a} against {b}: {rate}");
        assert_eq!(intervals > 0, a > 3, "3 against 3 have no interval");
        if intervals > 0 {
            let coverage = 1.0 - outside as f64 / f64::from(intervals);
            println!("null    {a} against {b}: coverage of the interval of a difference {coverage:.3}");
            assert!(coverage >= 0.93, "{a} against {b}: {coverage}");
        }
    }
}

#[test]
fn the_stated_number_of_rollouts_has_the_stated_power() {
    let repetitions = repetitions(60, 2_000);
    for difference in [1.0, 1.5] {
        let n = rollouts_needed(difference, 1.0, 1).unwrap();
        let mut found = 0;
        for repetition in 0..repetitions {
            let mut draws = Draws { stream: RngStream::root(9).child("power", repetition), at: 0 };
            let values = (0..2 * n).map(|at| Some(draws.normal() + if at < n { 0.0 } else { difference })).collect();
            let result = compare_groups(&[values], n, n, &RngStream::root(repetition))[0].unwrap();
            found += u64::from(result.p_corrected <= ALPHA);
        }
        let power = found as f64 / repetitions as f64;
        println!("power   {n} rollouts per group find a difference of {difference} sd with probability {power:.2}");
        assert!((0.68..0.95).contains(&power), "{power} with {n}");
        let detectable = detectable_difference(1.0, n, n, 1).unwrap();
        assert!(detectable <= difference * 1.01, "{detectable}");
    }
    assert_eq!(detectable_difference(1.0, 3, 3, 1), None, "3 against 3 can show nothing");
}
