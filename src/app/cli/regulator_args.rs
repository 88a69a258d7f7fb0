//! The flags that set up a regulator, shared by the commands that run one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::Failure;
use super::input::read_file_limited;
use crate::foundation::base::limits::REGULATOR_STATE_BYTES_MAX;
use crate::governance::regulator::{BreakAction, ModelPrice, Settings};

/// Caps, thresholds and prices.
#[derive(Debug, clap::Args)]
pub(super) struct RegulatorArgs {
    /// Hard cap on tokens, input and output together
    #[arg(long, value_name = "N")]
    cost_cap_tokens: Option<u64>,
    /// Hard cap on output tokens
    #[arg(long, value_name = "N")]
    cost_cap_tokens_out: Option<u64>,
    /// Hard cap on money, in millionths of the currency
    #[arg(long, value_name = "N")]
    cost_cap_money_micros: Option<u64>,
    /// Hard cap on wall-clock time, in milliseconds
    #[arg(long, value_name = "N")]
    cost_cap_wallclock_ms: Option<u64>,
    /// Soft cap on tokens, input and output together: the decision is to throttle
    #[arg(long, value_name = "N")]
    cost_soft_cap_tokens: Option<u64>,
    /// At a hard cap, decide `pause_and_ask` instead of `stop`
    #[arg(long)]
    pause_and_ask: bool,
    /// Warn of replies whose drift from the task is at least this, 0 to 1
    #[arg(long, value_name = "SCORE")]
    drift: Option<f64>,
    /// Settings file, JSON; flags override it
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Prices of models, JSON: {"gpt-4o-mini": {"input": 0.15, "output": 0.6, "cached": 0.075}}, in units of the currency per
    /// million tokens; `*` is any other model
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
}

impl RegulatorArgs {
    /// The settings of the file, with the flags over them.
    pub(super) fn settings(&self) -> Result<Settings, Failure> {
        let mut settings = match &self.settings {
            None => Settings::default(),
            Some(path) => serde_json::from_str(&read_file_limited(path, REGULATOR_STATE_BYTES_MAX)?)
                .map_err(|error| Failure::usage(format!("{}: no regulator settings: {error}", path.display())))?,
        };
        let hard = &mut settings.cost.hard;
        hard.tokens = self.cost_cap_tokens.or(hard.tokens);
        hard.tokens_out = self.cost_cap_tokens_out.or(hard.tokens_out);
        hard.money_micros = self.cost_cap_money_micros.or(hard.money_micros);
        hard.wallclock_ms = self.cost_cap_wallclock_ms.or(hard.wallclock_ms);
        settings.cost.soft.tokens = self.cost_soft_cap_tokens.or(settings.cost.soft.tokens);
        if self.pause_and_ask {
            settings.cost.hard_action = BreakAction::PauseAndAsk;
        }
        if let Some(drift) = self.drift {
            settings.scope.drift = drift;
        }
        if let Some(path) = &self.prices {
            let prices: BTreeMap<String, ModelPrice> =
                serde_json::from_str(&read_file_limited(path, REGULATOR_STATE_BYTES_MAX)?)
                    .map_err(|error| Failure::usage(format!("{}: no price table: {error}", path.display())))?;
            settings.cost.prices.extend(prices);
        }
        settings.check().map_err(|error| Failure::usage(error.to_string()))?;
        Ok(settings)
    }
}
