//! Every threshold of the regulator, by name, with its default.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeBounds;

use serde::{Deserialize, Serialize};

use super::decision::BreakAction;

/// The regulator's settings.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Caps on cost.
    pub cost: CostSettings,
    /// Thresholds on quality.
    pub quality: QualitySettings,
    /// Thresholds on log-probabilities.
    pub confidence: ConfidenceSettings,
    /// Thresholds on drift from the task.
    pub scope: ScopeSettings,
    /// Thresholds on repeated tool calls.
    pub tools: ToolSettings,
    /// Thresholds on learned corrections.
    pub corrections: CorrectionSettings,
}

/// An unknown setting, or a value out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("setting `{path}` cannot be {value}: {why}; name one as in `scope.drift=0.4` or `cost.hard.tokens=1000`")]
pub struct SettingError {
    path: String,
    value: String,
    why: String,
}

impl SettingError {
    pub(super) fn new(path: &str, value: &impl Display, why: String) -> Self {
        Self { path: path.to_owned(), value: value.to_string(), why }
    }
}

impl Settings {
    /// Checks that every threshold is in its range.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check(&self) -> Result<(), SettingError> {
        let Self { cost, quality, confidence, scope, tools, corrections } = self;
        for (path, share) in [
            ("cost.compound_quality", cost.compound_quality),
            ("quality.decline_per_turn", quality.decline_per_turn),
            ("quality.level_min", quality.level_min),
            ("quality.failure", quality.failure),
            ("quality.success", quality.success),
            ("scope.drift", scope.drift),
            ("corrections.same_rule", corrections.same_rule),
            ("corrections.same_topic", corrections.same_topic),
            ("corrections.asked_again", corrections.asked_again),
            ("quality.decline_below", quality.decline_below),
        ] {
            within(path, &share, 0.0..=1.0, "from 0 to 1 is needed")?;
        }
        let nats = [
            ("confidence.stop_nll", confidence.stop_nll.unwrap_or_default()),
            ("confidence.stop_group_confidence", confidence.stop_group_confidence.unwrap_or_default()),
            ("confidence.span_nll", confidence.span_nll),
            ("confidence.span_margin", confidence.span_margin),
            ("confidence.span_excess", confidence.span_excess),
        ];
        for (path, nll) in nats {
            within(path, &nll, 0.0..f64::INFINITY, "0 or more nats is needed")?;
        }
        for (path, turns, least, why) in [
            ("cost.compound_turns", cost.compound_turns, 1, "1 to 64 is needed"),
            ("quality.trend_turns", quality.trend_turns, 2, "2 to 64 is needed"),
            ("quality.level_turns", quality.level_turns, 1, "1 to 64 is needed"),
        ] {
            within(path, &turns, least..=JUDGED_MAX, why)?;
        }
        for (path, count, least, why) in [
            ("quality.repeated_failures", quality.repeated_failures, 1, "1 or more is needed"),
            ("confidence.group_tokens", confidence.group_tokens, 1, "1 or more is needed"),
            ("tools.cycle_repeats", tools.cycle_repeats, 2, "2 or more is needed"),
            ("tools.failure_streak", tools.failure_streak, 1, "1 or more is needed"),
            ("tools.polls", tools.polls, 2, "2 or more is needed"),
            ("tools.unanswered", tools.unanswered, 2, "2 or more is needed"),
            ("corrections.agree", corrections.agree, 1, "1 or more is needed"),
        ] {
            within(path, &count, least.., why)?;
        }
        for (model, price) in &cost.prices {
            for (name, value) in
                [("input", price.input), ("output", price.output), ("cached", price.cached.unwrap_or_default())]
            {
                within(&format!("cost.prices.{model}.{name}"), &value, 0.0..f64::INFINITY, "0 or more is needed")?;
            }
        }
        Ok(())
    }
}

fn within<T: PartialOrd + Display>(
    path: &str,
    value: &T,
    range: impl RangeBounds<T>,
    why: &str,
) -> Result<(), SettingError> {
    if range.contains(value) { Ok(()) } else { Err(SettingError::new(path, value, why.to_owned())) }
}

/// How many judged turns are stored.
pub(super) const JUDGED_MAX: usize = 64;

/// A limit on each resource; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResourceLimits {
    /// Tokens read and written together.
    pub tokens: Option<u64>,
    /// Tokens read.
    pub tokens_in: Option<u64>,
    /// Tokens written.
    pub tokens_out: Option<u64>,
    /// Tokens read from a cache.
    pub tokens_cached: Option<u64>,
    /// Millionths of the account's currency.
    pub money_micros: Option<u64>,
    /// Wall-clock time, ms.
    pub wallclock_ms: Option<u64>,
}

/// Caps on what a session may cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CostSettings {
    /// Hard caps: when one is reached, the circuit breaks at once, whatever the quality.
    pub hard: ResourceLimits,
    /// The action of a reached hard cap.
    pub hard_action: BreakAction,
    /// Soft caps.
    pub soft: ResourceLimits,
    /// The action of a reached soft cap.
    pub soft_action: BreakAction,
    /// The compound rule (spec §7, demo 2): it applies when this many tokens are spent and the last judged turns were poor.
    pub compound_tokens: Option<u64>,
    /// How many judged turns the compound rule averages.
    pub compound_turns: usize,
    /// A mean quality below this is poor.
    pub compound_quality: f64,
    /// Prices by model: the entry whose name is the longest prefix of the model's, or `*`.
    pub prices: BTreeMap<String, ModelPrice>,
}

/// What a model's tokens cost, in units of the currency per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    /// Prompt tokens.
    pub input: f64,
    /// Output tokens.
    pub output: f64,
    /// Cached prompt tokens; by default as `input`.
    #[serde(default)]
    pub cached: Option<f64>,
}

impl Default for CostSettings {
    fn default() -> Self {
        Self {
            hard: ResourceLimits::default(),
            hard_action: BreakAction::Stop,
            soft: ResourceLimits::default(),
            soft_action: BreakAction::Throttle,
            compound_tokens: Some(10_000),
            compound_turns: 3,
            compound_quality: 0.5,
            prices: BTreeMap::new(),
        }
    }
}

/// Thresholds on quality.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QualitySettings {
    /// How many judged turns a trend is fitted to.
    pub trend_turns: usize,
    /// A fall per turn (least squares) at least this steep is a decline.
    pub decline_per_turn: f64,
    /// A decline counts only once the quality is below this.
    pub decline_below: f64,
    /// How many judged turns a level is averaged over.
    pub level_turns: usize,
    /// A mean below this is persistently low.
    pub level_min: f64,
    /// A turn below this failed; one at or above `success` succeeded.
    pub failure: f64,
    /// See `failure`.
    pub success: f64,
    /// This many failures in a row on one topic break the circuit.
    pub repeated_failures: usize,
}

impl Default for QualitySettings {
    fn default() -> Self {
        Self {
            trend_turns: 4,
            decline_per_turn: 0.1,
            decline_below: 0.55,
            level_turns: 6,
            level_min: 0.3,
            failure: 0.3,
            success: 0.6,
            repeated_failures: 4,
        }
    }
}

/// Thresholds on log-probabilities, in nats of negative log-probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConfidenceSettings {
    /// Tokens in a group (`DeepConf`, Fu et al. 2025).
    pub group_tokens: usize,
    /// A group whose mean is above this stops the reply; `None` disables early stops.
    pub stop_nll: Option<f64>,
    /// A group whose confidence is below this stops the reply (`DeepConf`'s early stop): the mean negative log-probability of
    /// its alternatives, nats. It depends on the model and on the number of alternatives, so it has to be calibrated
    /// (`loom confidence bench --vote`); `None` disables it.
    pub stop_group_confidence: Option<f64>,
    /// The reference value of Page's CUSUM (1954): a token above it adds to a span, a token below it subtracts.
    /// ln 10: the token had a probability of one in ten.
    pub span_nll: f64,
    /// After enough tokens, `span_nll` is raised to at least the session's mean plus this margin.
    pub span_margin: f64,
    /// The excess at which a span is reported (CUSUM's decision interval). ln 200: two hundred times less likely than at
    /// `span_nll`.
    pub span_excess: f64,
    /// The size of the model's vocabulary; self-certainty needs alternatives for all of it.
    pub vocabulary: Option<usize>,
}

impl Default for ConfidenceSettings {
    fn default() -> Self {
        Self {
            group_tokens: 32,
            stop_nll: Some(8.0),
            stop_group_confidence: None,
            span_nll: 2.3,
            span_margin: 1.0,
            span_excess: 5.3,
            vocabulary: None,
        }
    }
}

/// Thresholds on drift from the task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScopeSettings {
    /// Measure drift.
    pub enabled: bool,
    /// A drift score at or above this warns.
    pub drift: f64,
}

impl Default for ScopeSettings {
    fn default() -> Self {
        Self { enabled: true, drift: 0.5 }
    }
}

/// Thresholds on repeated tool calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolSettings {
    /// A cycle of up to four calls that repeats this often is a loop.
    pub cycle_repeats: usize,
    /// This many failures in a row are a loop.
    pub failure_streak: usize,
    /// The same call this often among the last ones, with at most two different answers, is polling without progress.
    pub polls: usize,
    /// The same call this often without any result is a loop.
    pub unanswered: usize,
}

impl Default for ToolSettings {
    fn default() -> Self {
        Self { cycle_repeats: 3, failure_streak: 4, polls: 6, unanswered: 6 }
    }
}

/// Thresholds on learned corrections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CorrectionSettings {
    /// This many similar corrections make a rule.
    pub agree: usize,
    /// Cosine similarity at or above which two corrections are the same rule.
    pub same_rule: f64,
    /// Cosine similarity between a task and a rule's tasks at or above which the rule's warning is given.
    pub same_topic: f64,
    /// Cosine similarity of a message with the previous one at or above which it repeats the request. A repeated request
    /// alone is not a correction.
    pub asked_again: f64,
    /// A repeated request that also voices dissatisfaction counts as a correction.
    pub infer_from_repeats: bool,
    /// A message that clearly complains about the last reply counts as a correction.
    pub infer_from_complaints: bool,
}

impl Default for CorrectionSettings {
    fn default() -> Self {
        Self {
            agree: 3,
            same_rule: 0.45,
            same_topic: 0.15,
            asked_again: 0.8,
            infer_from_repeats: true,
            infer_from_complaints: true,
        }
    }
}
