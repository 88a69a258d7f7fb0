//! Answers by vote among samples: self-consistency, and `DeepConf` (Fu et al. 2025), which weighs each sample with its group
//! confidence, leaves out the least confident ones, and stops them early.
//!
//! The early stop is calibrated per question: the first samples run to their end, and the lowest group confidence of the most
//! confident share of them is the level below which a later sample is stopped. Stopped samples do not vote. Sampling ends once
//! the leading answer has 95 % of the weight.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::try_join_all;
use serde::Serialize;

use crate::foundation::chat::{Completion, Finish, Flow, LanguageModel, ModelError, TokenLogprob, TokenSink};
use crate::governance::regulator::{LlmEvent, Regulator, Settings};
use crate::simulation::resampling::{Answered, Cost, Costs, GroupConfidence, Sample, SamplingPlan, read_tokens, spent};

/// Most samples that calibrate the early stop; half of all if there are fewer.
const WARM_UP_MAX: usize = 16;
/// The share of the weight at which the vote is decided.
const CONSENSUS: f64 = 0.95;

/// How samples vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VoteMethod {
    /// Each counts once (Wang et al. 2023).
    Majority,
    /// Each weighs its mean confidence.
    DeepconfMean,
    /// The mean of the lowest tenth of its groups.
    DeepconfBottom,
    /// Its lowest group.
    DeepconfLowest,
    /// Its last group.
    DeepconfTail,
    /// Its lowest group, and only the most confident tenth votes.
    DeepconfLowestTop10,
    /// Its lowest group, and the least confident tenth does not vote.
    DeepconfLowestTop90,
    /// Stopped below the level of the most confident tenth of the first samples.
    DeepconfStopLow,
    /// Stopped below the level of the most confident nine tenths of them.
    DeepconfStopHigh,
}

impl VoteMethod {
    /// All methods.
    pub const ALL: [Self; 9] = [
        Self::Majority,
        Self::DeepconfMean,
        Self::DeepconfBottom,
        Self::DeepconfLowest,
        Self::DeepconfTail,
        Self::DeepconfLowestTop10,
        Self::DeepconfLowestTop90,
        Self::DeepconfStopLow,
        Self::DeepconfStopHigh,
    ];

    /// Its name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Majority => "majority",
            Self::DeepconfMean => "deepconf_mean",
            Self::DeepconfBottom => "deepconf_bottom",
            Self::DeepconfLowest => "deepconf_lowest",
            Self::DeepconfTail => "deepconf_tail",
            Self::DeepconfLowestTop10 => "deepconf_lowest_top10",
            Self::DeepconfLowestTop90 => "deepconf_lowest_top90",
            Self::DeepconfStopLow => "deepconf_stop_low",
            Self::DeepconfStopHigh => "deepconf_stop_high",
        }
    }

    /// A sample's weight.
    fn weight(self, groups: Option<GroupConfidence>) -> Option<f64> {
        match self {
            Self::Majority => Some(1.0),
            Self::DeepconfMean => groups.map(|groups| groups.mean),
            Self::DeepconfBottom => groups.map(|groups| groups.bottom),
            Self::DeepconfTail => groups.map(|groups| groups.tail),
            _ => groups.map(|groups| groups.lowest),
        }
    }

    /// The share of the samples that vote, the most confident ones; for an early stop, that the level is calibrated on.
    const fn share(self) -> f64 {
        match self {
            Self::DeepconfLowestTop10 | Self::DeepconfStopLow => 0.1,
            Self::DeepconfLowestTop90 | Self::DeepconfStopHigh => 0.9,
            _ => 1.0,
        }
    }
}

/// The outcome of a vote on one item.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Vote {
    /// How.
    pub method: VoteMethod,
    /// The answer that won; `None` if no sample could be read.
    pub answer: Option<String>,
    /// It is right.
    pub right: bool,
    /// The group confidence below which samples were stopped, nats, if they were.
    pub stop_below: Option<f64>,
    /// Samples that were stopped before their end.
    pub stopped: usize,
    /// What its samples cost, without the greedy answer and without the comparison of meanings.
    pub cost: Cost,
}

/// A sample that votes.
#[derive(Debug, Clone, Copy)]
struct Voter<'a> {
    text: &'a str,
    meaning: usize,
    groups: Option<GroupConfidence>,
}

/// The level of the most confident `share` of the samples: the lowest group confidence that one of them has.
fn level(voters: &[Voter<'_>], share: f64) -> Option<f64> {
    let mut lowest: Vec<f64> = voters.iter().filter_map(|voter| voter.groups.map(|groups| groups.lowest)).collect();
    lowest.sort_by(|a, b| b.total_cmp(a));
    let kept = ((share * lowest.len() as f64).ceil() as usize).max(1);
    lowest.get(kept - 1).copied()
}

/// The meanings by weight, the heaviest first, with the text of the first sample of each; of equal ones the first.
fn tally<'a>(method: VoteMethod, voters: &[Voter<'a>]) -> Vec<(usize, &'a str, f64)> {
    let mut sums: Vec<(usize, &str, f64)> = Vec::new();
    for voter in voters {
        let Some(weight) = method.weight(voter.groups) else { continue };
        match sums.iter_mut().find(|(meaning, ..)| *meaning == voter.meaning) {
            Some((.., sum)) => *sum += weight,
            None => sums.push((voter.meaning, voter.text, weight)),
        }
    }
    sums.sort_by(|a, b| b.2.total_cmp(&a.2));
    sums
}

/// All votes among `samples` of an answer. The early stops sample again, so that their time is measured.
pub(super) async fn votes(
    model: &Arc<dyn LanguageModel>,
    plan: &SamplingPlan,
    answered: Answered<'_>,
    samples: &[Sample],
    right: impl Fn(&str) -> bool,
    costs: &Costs,
) -> Result<Vec<Vote>, ModelError> {
    let readable = |text: &str| answered.read.is_none_or(|read| read(text).is_some());
    let all: Vec<Voter<'_>> = samples
        .iter()
        .map(|sample| Voter { text: &sample.text, meaning: sample.meaning, groups: sample.groups })
        .collect();
    let voters: Vec<Voter<'_>> = all.iter().copied().filter(|voter| readable(voter.text)).collect();
    let cost = costs.samples;
    let vote = |method: VoteMethod, voters: &[Voter<'_>], stop_below, stopped, cost| {
        let answer = tally(method, voters).first().map(|(_, text, _)| (*text).to_owned());
        Vote { method, right: answer.as_deref().is_some_and(&right), answer, stop_below, stopped, cost }
    };
    let mut found = Vec::new();
    let stops = [VoteMethod::DeepconfStopLow, VoteMethod::DeepconfStopHigh];
    for method in VoteMethod::ALL.into_iter().filter(|method| !stops.contains(method)) {
        let floor = if method.share() < 1.0 { level(&voters, method.share()) } else { None };
        let kept: Vec<Voter<'_>> = voters
            .iter()
            .copied()
            .filter(|voter| floor.is_none_or(|floor| voter.groups.is_some_and(|groups| groups.lowest >= floor)))
            .collect();
        found.push(vote(method, &kept, None, 0, cost));
    }
    // Without alternatives there are no group confidences to stop by.
    if all.iter().any(|voter| voter.groups.is_none()) {
        return Ok(found);
    }

    let warm_up = (plan.samples / 2).clamp(1, WARM_UP_MAX).min(plan.samples);
    let began = Instant::now();
    let first =
        try_join_all((0..warm_up).map(|number| model.complete(answered.request(model.info(), plan, number), None)))
            .await?;
    let mut warm = Cost::default();
    warm.add(first.iter().map(spent).sum(), began.elapsed());
    // On a CPU the same samples come again; elsewhere a text that was not there before is a meaning of its own.
    let known = |completion: &Completion| {
        let text = &completion.message.content;
        samples.iter().find(|sample| sample.text == *text).map_or(usize::MAX, |sample| sample.meaning)
    };
    for method in stops {
        let began = Instant::now();
        let mut cost = warm;
        let mut completions = first.clone();
        let Some(stop_below) = level(all.get(..warm_up).unwrap_or_default(), method.share()) else { continue };
        let mut stopped = 0;
        let mut number = warm_up;
        let winning = loop {
            let groups = |completion: &Completion| {
                let estimates = read_tokens(&**model, &completion.tokens, Some(plan.group_tokens));
                GroupConfidence::of(&completion.tokens, &estimates)
            };
            let voters: Vec<Voter<'_>> = completions
                .iter()
                .map(|completion| Voter {
                    text: &completion.message.content,
                    meaning: known(completion),
                    groups: groups(completion),
                })
                .filter(|voter| readable(voter.text) && voter.groups.is_some_and(|groups| groups.lowest >= stop_below))
                .collect();
            let sums = tally(method, &voters);
            let weight: f64 = sums.iter().map(|(.., sum)| sum).sum();
            let decided = sums.first().is_some_and(|(.., sum)| *sum >= CONSENSUS * weight);
            if decided || number == plan.samples {
                cost.add(0, began.elapsed());
                break vote(method, &voters, Some(stop_below), stopped, cost);
            }
            let sink = early_stop(plan, stop_below);
            let completion = model.complete(answered.request(model.info(), plan, number), Some(sink)).await?;
            cost.tokens += spent(&completion);
            number += 1;
            if completion.finish == Finish::Cancelled {
                stopped += 1;
            } else {
                completions.push(completion);
            }
        };
        found.push(winning);
    }
    Ok(found)
}

/// Ends a sample once a group's confidence is below `stop_below`.
fn early_stop(plan: &SamplingPlan, stop_below: f64) -> Box<dyn TokenSink> {
    let mut settings = Settings::default();
    settings.confidence.group_tokens = plan.group_tokens;
    settings.confidence.stop_nll = None;
    settings.confidence.stop_group_confidence = Some(stop_below);
    let mut regulator = Regulator::new(settings);
    regulator.on_event(LlmEvent::TurnStart { user_message: "" });
    Box::new(move |token: &TokenLogprob| -> Flow { regulator.on_token(token) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voter(text: &str, meaning: usize, lowest: f64) -> Voter<'_> {
        let groups = Some(GroupConfidence { mean: 1.0, bottom: lowest, lowest, tail: lowest });
        Voter { text, meaning, groups }
    }

    #[test]
    fn confident_samples_outvote_many_unsure_ones() {
        let voters = [voter("7", 1, 1.0), voter("8", 0, 9.0), voter("7", 1, 1.5), voter("7", 1, 2.0)];
        assert_eq!(tally(VoteMethod::Majority, &voters)[0], (1, "7", 3.0));
        assert_eq!(tally(VoteMethod::DeepconfMean, &voters)[0], (1, "7", 3.0));
        assert_eq!(tally(VoteMethod::DeepconfLowest, &voters)[0], (0, "8", 9.0));
        let bare = [Voter { groups: None, ..voters[0] }];
        assert_eq!(tally(VoteMethod::Majority, &bare).len() + tally(VoteMethod::DeepconfTail, &bare).len(), 1);
    }

    #[test]
    fn the_level_is_the_lowest_of_the_confident_share() {
        let voters: Vec<_> = (1..=10).map(|at| voter("x", 0, f64::from(at))).collect();
        assert_eq!((level(&voters, 0.1), level(&voters, 0.9), level(&voters, 1.0)), (Some(10.0), Some(2.0), Some(1.0)));
        assert_eq!((level(&voters[..1], 0.1), level(&[], 0.5)), (Some(1.0), None));
    }

    #[test]
    fn a_sample_is_stopped_in_the_group_that_falls_below_the_level() {
        let plan = SamplingPlan { samples: 2, temperature: 1.0, top_logprobs: 2, group_tokens: 2, embedder: None };
        let token = |confidence: f32| {
            let mut token = TokenLogprob::unknown(Some(1), "x");
            token.top = vec![(1, -confidence), (2, -confidence)];
            token
        };
        let mut sink = early_stop(&plan, 2.0);
        // The first group is full with the second token; its mean is 2, then 1.75.
        for (confidence, flow) in [(1.0, Flow::Continue), (3.0, Flow::Continue), (0.5, Flow::Stop)] {
            assert_eq!(sink.token(&token(confidence)), flow, "{confidence}");
        }
    }
}
