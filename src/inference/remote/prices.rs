//! The cost of a reply, from `configs/prices.yaml` or the user's own table. The cost of models outside the table is
//! unknown.

use std::path::Path;

use serde::Deserialize;

use crate::foundation::base::limits::CONFIG_BYTES_MAX;
use crate::foundation::chat::Usage;
use crate::foundation::store::read_text;

const TABLE: &str = include_str!("../../../configs/prices.yaml");
/// Names a file that replaces the built-in table.
const VARIABLE: &str = "LOOM_PRICES";
/// The supported version of the table's format.
const VERSION: u32 = 1;

/// A price table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Prices {
    version: u32,
    /// The date of the last look at the sources; for readers of the table.
    #[serde(rename = "checked")]
    _checked: String,
    #[serde(rename = "prices")]
    list: Vec<Price>,
}

/// US dollars per million tokens.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Price {
    /// Spec strings; each includes its dated snapshots.
    models: Vec<String>,
    input: f64,
    /// The price of cached prompt tokens; unknown if absent.
    cached_input: Option<f64>,
    output: f64,
    /// Longer prompts have another price, which is unknown.
    prompt_tokens_max: Option<u64>,
    /// For readers of the table.
    #[serde(rename = "source")]
    _source: String,
}

impl Prices {
    /// The user's table if there is one, else the built-in one.
    ///
    /// # Errors
    /// The error in the user's table.
    pub(super) fn load() -> Result<Self, String> {
        match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            None => Self::parse(TABLE),
            Some(path) => {
                let text = read_text(Path::new(&path), CONFIG_BYTES_MAX).map_err(|error| error.to_string());
                text.and_then(|text| Self::parse(&text))
                    .map_err(|why| format!("{VARIABLE} names {}, which is not a price table: {why}", path.display()))
            }
        }
    }

    fn parse(yaml: &str) -> Result<Self, String> {
        let table: Self = serde_saphyr::from_str(yaml).map_err(|error| error.to_string())?;
        let is_valid = |price: f64| price.is_finite() && price >= 0.0;
        if table.version != VERSION {
            return Err(format!("its version is {}, but only version {VERSION} is supported", table.version));
        }
        for price in &table.list {
            if ![Some(price.input), price.cached_input, Some(price.output)].into_iter().flatten().all(is_valid) {
                return Err(format!("a price of {:?} is not a valid amount", price.models));
            }
        }
        Ok(table)
    }

    /// The cost of `usage` with the model `spec`, in US dollars.
    pub(super) fn cost(&self, spec: &str, usage: Usage) -> Option<f64> {
        let price = self.list.iter().find(|price| price.models.iter().any(|name| matches_name(name, spec)))?;
        if price.prompt_tokens_max.is_some_and(|most| usage.tokens_in > most) {
            return None;
        }
        let cached = if usage.tokens_cached == 0 { 0.0 } else { price.cached_input? };
        let fresh = usage.tokens_in.saturating_sub(usage.tokens_cached) as f64 * price.input;
        Some((fresh + usage.tokens_cached as f64 * cached + usage.tokens_out as f64 * price.output) / 1e6)
    }
}

/// Whether `spec` is `name`, or `name` followed by a date (`-20250514`, `-2025-04-14`) or `-latest`.
fn matches_name(name: &str, spec: &str) -> bool {
    let Some(rest) = spec.strip_prefix(name) else { return false };
    let Some(rest) = rest.strip_prefix('-') else { return rest.is_empty() };
    let digits = rest.chars().filter(char::is_ascii_digit).count();
    rest == "latest" || digits == 8 && rest.chars().all(|c| c.is_ascii_digit() || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: &str, (tokens_in, tokens_cached, tokens_out): (u64, u64, u64), expected: Option<f64>) {
        let usage = Usage { tokens_in, tokens_out, tokens_cached };
        let cost = Prices::parse(TABLE).unwrap().cost(spec, usage);
        assert!(
            match (cost, expected) {
                (Some(cost), Some(expected)) => (cost - expected).abs() < 1e-12,
                (cost, expected) => cost == expected,
            },
            "{spec}: {cost:?}, not {expected:?}"
        );
    }

    #[test]
    fn costs_follow_the_table() {
        check("openai/gpt-4o", (1_000_000, 0, 1_000_000), Some(12.5));
        check("openai/gpt-4o-2024-08-06", (1_000_000, 400_000, 0), Some(0.6 * 2.5 + 0.4 * 1.25));
        check("openai/gpt-4o-mini", (1_000_000, 0, 0), Some(0.15));
        check("anthropic/claude-opus-4-1-20250805", (0, 0, 1_000), Some(0.075));
        check("anthropic/claude-3-5-haiku-latest", (1_000, 0, 0), Some(0.0008));
    }

    #[test]
    fn unknown_prices_give_no_cost() {
        check("openai/gpt-4o-audio-preview", (1, 0, 1), None);
        check("openai/gpt-99", (1, 0, 1), None);
        check("openai-compatible:http://127.0.0.1:8000/v1#gpt-4o", (1, 0, 1), None);
        check("anthropic/claude-sonnet-4-5", (200_001, 0, 1), None);
        let table = "version: 1\nchecked: \"\"\nprices: [{models: [a], input: 1, output: 1, source: s}]";
        let cost = |tokens_cached| {
            Prices::parse(table).unwrap().cost("a", Usage { tokens_in: 9, tokens_out: 1, tokens_cached })
        };
        assert_eq!((cost(0), cost(1)), (Some(1e-5), None));
    }

    #[test]
    fn an_invalid_table_is_an_error() {
        assert!(
            Prices::parse("version: 2\nchecked: \"\"\nprices: []").unwrap_err().contains("only version 1 is supported")
        );
        let bad = "version: 1\nchecked: \"\"\nprices: [{models: [a], input: -1, output: 1, source: s}]";
        assert!(Prices::parse(bad).unwrap_err().contains("not a valid amount"));
    }
}
