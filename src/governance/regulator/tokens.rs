//! Uncertainty estimators from log-probabilities, as streaming accumulators: one pass, constant memory except for the
//! turn's group means. An estimator without its inputs is `None`; there are no placeholder values.

mod alternatives;

use serde::{Deserialize, Serialize};

use self::alternatives::{Ranks, read_alternatives};
use super::settings::ConfidenceSettings;
use crate::foundation::base::limits::REGULATOR_TOKENS_MAX;

/// vLLM writes −9999 for a log-probability of −∞; it is not usable.
const CLIPPED: f32 = -9999.0;

/// Estimates of how uncertain a reply was. In nats, and higher is less certain, unless said otherwise.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
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
    /// The entropies are lower bounds: some cover only the reported alternatives.
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
    /// The terms −p ln p of the most likely alternatives, by rank: the inputs of [`Estimates::wepr`]. Needs alternatives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank_entropies: Option<RankEntropies>,
    /// How the mean and the highest entropy compare with those of answers known to be right, in [0, 1]: the geometric
    /// mean of the shares of them that were less uncertain (CES). Needs such answers, [`EstimatorReferences::ces`](super::References::ces).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ces: Option<f64>,
    /// Log-odds of being right from [`Estimates::rank_entropies`] (WEPR): higher is *more* certain. Needs weights fitted
    /// to labelled answers, [`EstimatorReferences::wepr`](super::References::wepr).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wepr: Option<f64>,
    /// If the reply was chosen among scored candidates: its log-probability minus the next candidate's, nats; higher is *more*
    /// certain. Only set where candidates were scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice_margin: Option<f64>,
    /// The entropy of what samples of the same answer mean, nats (semantic entropy; Kuhn et al. 2023). Only set where
    /// answers were sampled, as are the next two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semantic_entropy: Option<f64>,
    /// The share of samples with the very words of the answer; higher is *more* certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_frequency: Option<f64>,
    /// The share of samples with the most frequent meaning (self-consistency; Wang et al. 2023); higher is *more* certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_consistency: Option<f64>,
    /// The probability of "Yes" when the model is asked whether its answer is right (Kadavath et al. 2022); higher is *more*
    /// certain. Only set where it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_true: Option<f64>,
    /// `CoCoA` (Vashurin et al. 2025): [`Estimates::msp`] times the mean dissimilarity between the answer and its samples. Only
    /// set where answers were sampled, as are the next three.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cocoa_msp: Option<f64>,
    /// The same with [`Estimates::ln_nll`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cocoa_ppl: Option<f64>,
    /// The same with [`Estimates::entropy_mean`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cocoa_mte: Option<f64>,
    /// The share of the samples' weight that agrees with the answer, each sample weighing its lowest group confidence
    /// (`DeepConf`'s voting; Fu et al. 2025); higher is *more* certain. Needs alternatives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deepconf_vote: Option<f64>,
}

/// The terms −p ln p of the alternatives, by rank from the most likely; nats.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankEntropies {
    /// Mean over the tokens, for the ranks that every token has, at most eight.
    pub mean: Vec<f64>,
    /// The largest.
    pub max: Vec<f64>,
}

/// A running mean and maximum of non-negative values.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    count: u64,
    sum: f64,
    max: f32,
}

impl Mean {
    fn push(&mut self, value: f32) {
        self.max = if value > self.max { value } else { self.max };
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
        let oldest = if let Some(oldest) = self.values.get_mut(self.next) {
            std::mem::replace(oldest, value)
        } else {
            self.values.push(value);
            0.0
        };
        // One addition to the sum, not two: the additions form a dependency chain.
        self.sum += f64::from(value) - f64::from(oldest);
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

/// The trend of a quantity within a reply: a fast and a slow exponential mean.
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
        let jump = value - self.slow;
        self.spike = if jump > self.spike { jump } else { self.spike };
        self.quick += (value - self.quick) * (1.0 / 8.0);
        self.slow += (value - self.slow) * (1.0 / 64.0);
    }
}

/// What of a group of tokens was below its stop level, nats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum StopLevel {
    /// The mean log-probability.
    Logprob(f64),
    /// The group confidence.
    Confidence(f64),
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
    ranks: Ranks,
    vocabulary: Option<usize>,
    /// The sum over a group above which the reply is stopped.
    stop_sum: f64,
    /// The sum of a group's confidences below which the reply is stopped.
    stop_confidence_sum: f64,
    recent: Window,
    groups: Window,
    group_means: Vec<f32>,
    trajectory: Trajectory,
    unusable: u64,
}

/// Whether a log-probability is a valid number.
pub(super) fn usable(logprob: f32) -> bool {
    logprob <= 0.0 && logprob > CLIPPED
}

impl TokenStats {
    pub(super) fn new(settings: &ConfidenceSettings) -> Self {
        let recent = Window::new(settings.group_tokens);
        Self {
            tokens: 0,
            nll: Mean::default(),
            entropy: Mean::default(),
            truncated: false,
            margin: Mean::default(),
            self_certainty: Mean::default(),
            ranks: Ranks::NONE,
            vocabulary: settings.vocabulary,
            stop_sum: settings.stop_nll.unwrap_or(f64::INFINITY) * recent.size as f64,
            stop_confidence_sum: settings
                .stop_group_confidence
                .map_or(f64::NEG_INFINITY, |stop| stop * recent.size as f64),
            recent,
            groups: Window::new(settings.group_tokens),
            group_means: Vec::new(),
            trajectory: Trajectory::default(),
            unusable: 0,
        }
    }

    /// Clears the statistics and keeps the buffers.
    pub(super) fn clear(&mut self) {
        self.tokens = 0;
        self.nll = Mean::default();
        self.entropy = Mean::default();
        self.truncated = false;
        self.margin = Mean::default();
        self.self_certainty = Mean::default();
        self.ranks = Ranks::NONE;
        self.recent.clear();
        self.groups.clear();
        self.group_means.clear();
        self.trajectory = Trajectory::default();
        self.unusable = 0;
    }

    /// Adds one token. Returns its log-probability if usable.
    #[inline]
    pub(super) fn push<T>(
        &mut self,
        logprob: Option<f32>,
        entropy: Option<f32>,
        top: &[T],
        value: impl Fn(&T) -> f32,
    ) -> Option<f32> {
        self.tokens += 1;
        let known = self.sound(logprob, usable);
        let mut own_entropy = self.sound(entropy, |entropy| (0.0..f32::INFINITY).contains(&entropy));
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

    /// The number, if present and valid; invalid ones are counted.
    fn sound(&mut self, number: Option<f32>, holds: impl Fn(f32) -> bool) -> Option<f32> {
        let number = number?;
        if holds(number) {
            return Some(number);
        }
        self.unusable += 1;
        None
    }

    /// Adds a token's alternatives; returns their entropy if any is usable.
    #[inline(never)]
    fn alternatives<T>(&mut self, top: &[T], value: impl Fn(&T) -> f32) -> Option<f32> {
        let read = read_alternatives(top, value);
        self.unusable += (top.len() - read.count) as u64;
        if read.count == 0 {
            return None;
        }
        let confidence = -read.sum / read.count as f32;
        self.groups.push(confidence);
        if self.groups.full() && self.group_means.len() < REGULATOR_TOKENS_MAX {
            self.group_means.extend(self.groups.mean().map(|mean| mean as f32));
        }
        self.ranks.push(read.terms, top.len());
        if read.count > 1 {
            self.margin.push(read.best - read.second);
        }
        if self.vocabulary == Some(read.count) {
            self.self_certainty.push(confidence - (read.count as f32).ln());
        }
        Some(read.entropy)
    }

    /// What of the last group is below its stop level, if anything.
    pub(super) fn below_stop_level(&self) -> Option<StopLevel> {
        // Called for every token: the rare conditions first, and no division before one holds.
        if self.recent.sum > self.stop_sum && self.recent.full() {
            return self.recent.mean().map(|mean| StopLevel::Logprob(-mean));
        }
        if self.groups.sum < self.stop_confidence_sum && self.groups.full() {
            return self.groups.mean().map(StopLevel::Confidence);
        }
        None
    }

    #[cfg(test)]
    pub(super) fn retained_bytes(&self) -> usize {
        (self.group_means.capacity() + self.recent.values.capacity() + self.groups.values.capacity()) * size_of::<f32>()
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

    /// How far the entropy has risen above its slow mean, and its largest single jump, both in [0, 1).
    pub(super) fn rise_and_spike(&self) -> Option<(f64, f64)> {
        let Trajectory { seen, quick, slow, spike } = self.trajectory;
        // Relative to the slow mean plus half a nat, so that small changes of a confident model stay small.
        let squash = |excess: f32| f64::from(excess.max(0.0)) / f64::from(excess.max(0.0) + slow + 0.5);
        seen.then(|| (squash(quick - slow), squash(spike)))
    }

    pub(super) fn estimates(&self) -> Estimates {
        let readings = &self.group_means;
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
            rank_entropies: self.ranks.entropies(),
            ces: None,
            wepr: None,
            choice_margin: None,
            semantic_entropy: None,
            answer_frequency: None,
            self_consistency: None,
            p_true: None,
            cocoa_msp: None,
            cocoa_ppl: None,
            cocoa_mte: None,
            deepconf_vote: None,
        }
    }
}

fn bottom_tenth(readings: &[f32]) -> Option<f64> {
    let mut sorted = readings.to_vec();
    sorted.sort_unstable_by(f32::total_cmp);
    let lowest = readings.len().div_ceil(10);
    (lowest > 0).then(|| sorted.iter().take(lowest).copied().map(f64::from).sum::<f64>() / lowest as f64)
}

#[cfg(test)]
mod tests;
