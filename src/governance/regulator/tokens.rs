//! Estimators of uncertainty from log-probabilities, as streaming accumulators: one pass, constant memory but for the
//! group readings of the turn. Each is `None` without what it needs; nothing is ever put in the place of a number.

use serde::{Deserialize, Serialize};

use super::settings::ConfidenceSettings;
use crate::foundation::base::limits::REGULATOR_TOKENS_MAX;

/// vLLM writes −9999 where a log-probability is −∞: no number to reckon with.
const CLIPPED: f32 = -9999.0;

/// Estimates of how uncertain a reply was. In nats, and higher is less certain, unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Estimates {
    /// Mean negative log-probability per token (LN-NLL; Malinin and Gales 2021). Its exponential is the perplexity.
    pub ln_nll: Option<f64>,
    /// Negative log-probability of the whole reply (maximum sequence probability, MSP).
    pub msp: Option<f64>,
    /// One minus the probability of the least likely token.
    pub min_probability: Option<f64>,
    /// Mean entropy per token.
    pub entropy_mean: Option<f64>,
    /// Entropy of the least certain step.
    pub entropy_max: Option<f64>,
    /// The entropies are lower bounds: some were taken over the reported alternatives alone.
    pub entropy_truncated: bool,
    /// One minus the mean gap between the two likeliest tokens' probabilities.
    pub margin: Option<f64>,
    /// `DeepConf`'s lowest group confidence (Fu et al. 2025): higher is *more* certain. A token's confidence is the mean
    /// negative log-probability of its alternatives; a group's is the mean over neighbouring tokens.
    pub group_confidence_min: Option<f64>,
    /// Mean of the lowest tenth of the group confidences: higher is *more* certain.
    pub group_confidence_bottom: Option<f64>,
    /// Confidence of the last group: higher is *more* certain.
    pub group_confidence_tail: Option<f64>,
    /// Self-certainty (Kang et al. 2025): the divergence of the uniform distribution from the model's, averaged over
    /// tokens; higher is *more* certain. Needs alternatives for the whole vocabulary.
    pub self_certainty: Option<f64>,
}

/// A running mean and maximum.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    count: u64,
    sum: f64,
    max: f32,
}

impl Mean {
    fn push(&mut self, value: f32) {
        self.max = if self.count == 0 { value } else { self.max.max(value) };
        self.count += 1;
        self.sum += f64::from(value);
    }

    fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    fn max(&self) -> Option<f64> {
        (self.count > 0).then(|| f64::from(self.max))
    }
}

/// The mean of the last `size` values.
#[derive(Debug, Clone)]
struct Window {
    values: Vec<f32>,
    next: usize,
    size: usize,
    sum: f64,
}

impl Window {
    fn new(size: usize) -> Self {
        let size = size.clamp(1, REGULATOR_TOKENS_MAX);
        Self { values: Vec::with_capacity(size.min(1024)), next: 0, size, sum: 0.0 }
    }

    fn clear(&mut self) {
        self.values.clear();
        self.next = 0;
        self.sum = 0.0;
    }

    fn push(&mut self, value: f32) {
        self.sum += f64::from(value);
        if let Some(oldest) = self.values.get_mut(self.next) {
            self.sum -= f64::from(*oldest);
            *oldest = value;
        } else {
            self.values.push(value);
        }
        self.next += 1;
        if self.next == self.size {
            self.next = 0;
        }
    }

    fn full(&self) -> bool {
        self.values.len() == self.size
    }

    fn mean(&self) -> Option<f64> {
        (!self.values.is_empty()).then(|| self.sum / self.values.len() as f64)
    }
}

/// How a quantity moves within a reply: a quick and a slow exponential mean.
#[derive(Debug, Clone, Copy, Default)]
struct Trajectory {
    seen: bool,
    quick: f32,
    slow: f32,
    spike: f32,
}

impl Trajectory {
    fn push(&mut self, value: f32) {
        if !self.seen {
            *self = Self { seen: true, quick: value, slow: value, spike: 0.0 };
            return;
        }
        self.spike = self.spike.max(value - self.slow);
        self.quick += (value - self.quick) * (1.0 / 8.0);
        self.slow += (value - self.slow) * (1.0 / 64.0);
    }
}

/// What one token brings, checked.
struct Alternatives {
    count: usize,
    sum: f32,
    entropy: f32,
    best: f32,
    second: f32,
}

/// The statistics of one reply.
#[derive(Debug, Clone)]
pub(super) struct TokenStats {
    tokens: u64,
    nll: Mean,
    entropy: Mean,
    truncated: bool,
    margin: Mean,
    self_certainty: Mean,
    vocabulary: Option<usize>,
    stop_nll: Option<f64>,
    recent: Window,
    groups: Window,
    group_readings: Vec<f32>,
    trajectory: Trajectory,
    unusable: u64,
}

/// A log-probability that can be reckoned with.
pub(super) fn usable(logprob: f32) -> bool {
    logprob <= 0.0 && logprob > CLIPPED
}

impl TokenStats {
    pub(super) fn new(settings: &ConfidenceSettings) -> Self {
        Self {
            tokens: 0,
            nll: Mean::default(),
            entropy: Mean::default(),
            truncated: false,
            margin: Mean::default(),
            self_certainty: Mean::default(),
            vocabulary: settings.vocabulary,
            stop_nll: settings.stop_nll,
            recent: Window::new(settings.group_tokens),
            groups: Window::new(settings.group_tokens),
            group_readings: Vec::new(),
            trajectory: Trajectory::default(),
            unusable: 0,
        }
    }

    /// Forgets the reply, keeps the buffers.
    pub(super) fn clear(&mut self) {
        self.tokens = 0;
        self.nll = Mean::default();
        self.entropy = Mean::default();
        self.truncated = false;
        self.margin = Mean::default();
        self.self_certainty = Mean::default();
        self.recent.clear();
        self.groups.clear();
        self.group_readings.clear();
        self.trajectory = Trajectory::default();
        self.unusable = 0;
    }

    /// One token. Gives its log-probability back if it is usable.
    pub(super) fn push<T>(
        &mut self,
        logprob: Option<f32>,
        entropy: Option<f32>,
        top: &[T],
        value: impl Fn(&T) -> f32,
    ) -> Option<f32> {
        self.tokens += 1;
        let known = logprob.filter(|&logprob| usable(logprob));
        let mut own_entropy = entropy.filter(|&entropy| entropy >= 0.0 && entropy.is_finite());
        self.unusable +=
            u64::from(known.is_none() && logprob.is_some()) + u64::from(own_entropy.is_none() && entropy.is_some());
        if !top.is_empty() {
            let over_top = self.alternatives(top, value);
            if own_entropy.is_none() && over_top.is_some() {
                own_entropy = over_top;
                self.truncated = true;
            }
        }
        if let Some(entropy) = own_entropy {
            self.entropy.push(entropy);
        }
        if let Some(logprob) = known {
            self.nll.push(-logprob);
            self.recent.push(-logprob);
        }
        if let Some(moving) = own_entropy.or(known.map(|logprob| -logprob)) {
            self.trajectory.push(moving);
        }
        known
    }

    /// What the alternatives say; their entropy, if there is any among them.
    fn alternatives<T>(&mut self, top: &[T], value: impl Fn(&T) -> f32) -> Option<f32> {
        let read = read_alternatives(top, value);
        self.unusable += (top.len() - read.count) as u64;
        if read.count == 0 {
            return None;
        }
        let confidence = -read.sum / read.count as f32;
        self.groups.push(confidence);
        if self.groups.full() && self.group_readings.len() < REGULATOR_TOKENS_MAX {
            self.group_readings.extend(self.groups.mean().map(|mean| mean as f32));
        }
        if read.count > 1 {
            self.margin.push(exp_nonpositive(read.best) - exp_nonpositive(read.second));
        }
        if self.vocabulary == Some(read.count) {
            self.self_certainty.push(confidence - (read.count as f32).ln());
        }
        Some(read.entropy)
    }

    /// The last group is so unlikely that the rest is not worth generating: its mean log-probability.
    pub(super) fn hopeless(&self) -> Option<f64> {
        let limit = self.stop_nll?;
        if !self.recent.full() {
            return None;
        }
        self.recent.mean().filter(|&mean| mean > limit).map(|mean| -mean)
    }

    pub(super) fn tokens(&self) -> u64 {
        self.tokens
    }

    pub(super) fn known(&self) -> u64 {
        self.nll.count
    }

    pub(super) fn unusable(&self) -> u64 {
        self.unusable
    }

    pub(super) fn mean_logprob(&self) -> Option<f64> {
        self.nll.mean().map(|mean| -mean)
    }

    pub(super) fn min_logprob(&self) -> Option<f64> {
        self.nll.max().map(|max| -max)
    }

    /// How far the entropy has risen above its own level, and how far it has jumped at once, both in [0, 1).
    pub(super) fn rise_and_spike(&self) -> Option<(f64, f64)> {
        let Trajectory { seen, quick, slow, spike } = self.trajectory;
        // Relative to the level and half a nat, so that a confident model's ripples do not count as waves.
        let squash = |excess: f32| f64::from(excess.max(0.0)) / f64::from(excess.max(0.0) + slow + 0.5);
        seen.then(|| (squash(quick - slow), squash(spike)))
    }

    pub(super) fn estimates(&self) -> Estimates {
        let readings = &self.group_readings;
        let short = || self.groups.mean();
        Estimates {
            ln_nll: self.nll.mean(),
            msp: (self.nll.count > 0).then_some(self.nll.sum),
            min_probability: self.nll.max().map(|nll| 1.0 - libm::exp(-nll)),
            entropy_mean: self.entropy.mean(),
            entropy_max: self.entropy.max(),
            entropy_truncated: self.truncated,
            margin: self.margin.mean().map(|gap| 1.0 - gap),
            group_confidence_min: readings.iter().copied().reduce(f32::min).map(f64::from).or_else(short),
            group_confidence_bottom: bottom_tenth(readings).or_else(short),
            group_confidence_tail: short(),
            self_certainty: self.self_certainty.mean(),
        }
    }
}

fn bottom_tenth(readings: &[f32]) -> Option<f64> {
    let mut sorted = readings.to_vec();
    sorted.sort_unstable_by(f32::total_cmp);
    let lowest = readings.len().div_ceil(10);
    (lowest > 0).then(|| sorted.iter().take(lowest).copied().map(f64::from).sum::<f64>() / lowest as f64)
}

fn read_alternatives<T>(top: &[T], value: impl Fn(&T) -> f32) -> Alternatives {
    let (mut count, mut sum, mut entropy) = (0u32, 0f32, 0f32);
    let (mut best, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
    for item in top {
        let logprob = value(item);
        // Branches would cost more than the arithmetic: an unusable one adds nothing.
        let ok = usable(logprob);
        let safe = if ok { logprob } else { 0.0 };
        count += u32::from(ok);
        sum += safe;
        entropy -= exp_nonpositive(safe) * safe;
        let seen = if ok { logprob } else { f32::NEG_INFINITY };
        second = second.max(best.min(seen));
        best = best.max(seen);
    }
    Alternatives { count: count as usize, sum, entropy: entropy.max(0.0), best, second }
}

/// eˣ for x ≤ 0, within 3·10⁻⁷ relative; below e⁻⁸⁷ it stays there. Plain arithmetic, so that a loop over it becomes
/// vector instructions; the platform's `exp` would not. Reduction by ln 2 in two parts (Cody and Waite 1980), then the
/// series.
fn exp_nonpositive(x: f32) -> f32 {
    /// 1.5·2²³: adding it rounds to an integer that then sits in the low bits.
    const ROUNDER: f32 = 12_582_912.0;
    /// ln 2 in a part with few bits, so that its product with the exponent is exact, and the rest.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let x = x.max(-87.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUNDER;
    let exponent = shifted - ROUNDER;
    let r = (x - exponent * LN_2_HIGH) - exponent * LN_2_LOW;
    let poly = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0 + r / 720.0)))));
    let power = shifted.to_bits().wrapping_sub(ROUNDER.to_bits()).wrapping_add(127) << 23;
    poly * f32::from_bits(power)
}

#[cfg(test)]
mod tests {
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
        assert_eq!(exp_nonpositive(0.0), 1.0);
    }

    #[test]
    fn nothing_is_known_of_a_reply_without_logprobs() {
        let stats = stats(4, &[(None, None, &[]), (None, None, &[])]);
        assert_eq!(stats.estimates(), Estimates::default());
        assert_eq!((stats.tokens(), stats.known(), stats.mean_logprob()), (2, 0, None));
    }

    #[test]
    fn a_logprob_of_zero_is_a_number_and_an_impossible_one_is_not() {
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
        let mut stats = TokenStats::new(&ConfidenceSettings {
            group_tokens: 1,
            vocabulary: Some(3),
            ..ConfidenceSettings::default()
        });
        stats.push(Some(a[1]), None, &a, |&logprob| logprob);
        stats.push(Some(b[0]), None, &b, |&logprob| logprob);
        let found = stats.estimates();
        // References: scipy.stats.entropy([.5, .3, .2]) = 1.0296530140645737, of [.8, .1, .1] = 0.639031859650177.
        near(found.entropy_mean, (1.029_653_014_064_573_7 + 0.639_031_859_650_177) / 2.0);
        near(found.entropy_max, 1.029_653_014_064_573_7);
        assert!(found.entropy_truncated);
        near(found.ln_nll, -(0.3f64.ln() + 0.8f64.ln()) / 2.0);
        near(found.msp, -(0.3f64.ln() + 0.8f64.ln()));
        near(found.min_probability, 0.7);
        near(found.margin, 1.0 - (0.2 + 0.7) / 2.0);
        let (ca, cb) = (-(0.5f64 * 0.3 * 0.2).ln() / 3.0, -(0.8f64 * 0.1 * 0.1).ln() / 3.0);
        near(found.group_confidence_min, ca.min(cb));
        near(found.group_confidence_bottom, ca.min(cb));
        near(found.group_confidence_tail, cb);
        // scipy.stats.entropy([1/3]*3, p): 0.07018955, 0.42315556 → the mean divergence from uniform.
        near(found.self_certainty, f64::midpoint(ca, cb) - 3f64.ln());
    }

    #[test]
    fn a_full_entropy_is_preferred_to_one_over_alternatives() {
        let found = stats(4, &[(Some(-1.0), Some(2.5), &[-0.7, -0.9])]).estimates();
        assert_eq!((found.entropy_mean, found.entropy_truncated), (Some(2.5), false));
    }

    #[test]
    fn a_hopeless_group_is_noticed_once_the_window_is_full() {
        let bad: [(Option<f32>, Option<f32>, &[f32]); 3] = [(Some(-9.0), None, &[]); 3];
        assert_eq!(stats(4, &bad).hopeless(), None);
        assert_eq!(stats(3, &bad).hopeless(), Some(-9.0));
        let good: [(Option<f32>, Option<f32>, &[f32]); 3] = [(Some(-1.0), None, &[]); 3];
        assert_eq!(stats(3, &good).hopeless(), None);
    }

    #[test]
    fn rising_entropy_shows_and_falling_entropy_does_not() {
        let run = |entropies: &[f32]| {
            let tokens: Vec<_> = entropies.iter().map(|&h| (None, Some(h), &[] as &[f32])).collect();
            stats(4, &tokens).rise_and_spike().unwrap().0
        };
        let rising: Vec<f32> = (0..60).map(|step| step as f32 / 10.0).collect();
        let falling: Vec<f32> = rising.iter().rev().copied().collect();
        assert!(run(&rising) > 0.3);
        assert_eq!(run(&falling), 0.0);
    }
}
