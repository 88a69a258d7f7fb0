//! The fields of a `config.json` as candle's networks expect them: rotary parameters at the top, absent fields filled in,
//! and what candle ignores refused.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json, json};

use super::super::error::LoadError;
use crate::foundation::base::limits::MODEL_DIM_MAX;

const FILE: &str = "config.json";

/// What candle's network of a family expects of its fields.
pub(super) struct Expected {
    /// Fields that a file may leave out.
    pub(super) defaults: fn() -> Map<String, Json>,
    /// Fields of which candle implements this value alone.
    pub(super) fixed: fn() -> Map<String, Json>,
    /// Types of rotary scaling besides `default`.
    pub(super) scalings: &'static [&'static str],
    /// Fields that must be dims.
    pub(super) dims: &'static [&'static str],
    /// It reads the field `head_dim`.
    pub(super) own_head_dim: bool,
}

/// Checked fields.
#[derive(Clone)]
pub(super) struct Fields(Map<String, Json>);

fn malformed(why: impl Into<String>) -> LoadError {
    LoadError::malformed(FILE, why.into())
}

impl Fields {
    /// Parses the text of a `config.json`.
    pub(super) fn parse(json: &str, expected: &Expected) -> Result<Self, LoadError> {
        let Json::Object(mut stated) = serde_json::from_str(json).map_err(|error| malformed(error.to_string()))? else {
            return Err(malformed("it is not an object"));
        };
        stated.retain(|_, value| !value.is_null());
        if stated.contains_key("quantization_config") {
            return Err(unsupported("quantised weights", "plain f32, bf16 or f16"));
        }
        let mut fields = Self(stated);
        fields.hoist_rotary(expected.scalings)?;
        for (name, value) in (expected.defaults)() {
            fields.0.entry(name).or_insert(value);
        }
        for (name, value) in (expected.fixed)() {
            if fields.0.get(&name).is_some_and(|stated| *stated != value) {
                let stated = fields.0.get(&name).map(ToString::to_string).unwrap_or_default();
                return Err(unsupported(&format!("`{name}` {stated} through candle"), &value.to_string()));
            }
        }
        fields.check(expected)?;
        Ok(fields)
    }

    /// Moves the parameters of rotary positions to the top, where files from before 2025 have them.
    fn hoist_rotary(&mut self, scalings: &[&str]) -> Result<(), LoadError> {
        let mut rotary = Map::new();
        for name in ["rope_scaling", "rope_parameters"] {
            if let Some(Json::Object(stated)) = self.0.remove(name) {
                rotary.extend(stated.into_iter().filter(|(_, value)| !value.is_null()));
            }
        }
        for name in ["rope_theta", "partial_rotary_factor"] {
            if let Some(value) = rotary.remove(name) {
                self.0.insert(name.to_owned(), value);
            }
        }
        let kind =
            rotary.get("rope_type").or(rotary.get("type")).and_then(Json::as_str).unwrap_or("default").to_owned();
        if kind == "default" {
            return Ok(());
        }
        if !scalings.contains(&kind.as_str()) {
            let known: Vec<_> = std::iter::once("default").chain(scalings.iter().copied()).collect();
            let known = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            return Err(unsupported(&format!("rotary positions of type `{kind}` through candle"), &known));
        }
        let window = self.0.get("max_position_embeddings").cloned();
        if let Some(window) = window {
            rotary.entry("original_max_position_embeddings").or_insert(window);
        }
        rotary.insert("rope_type".to_owned(), json!(kind));
        self.0.insert("rope_scaling".to_owned(), Json::Object(rotary));
        Ok(())
    }

    fn check(&mut self, expected: &Expected) -> Result<(), LoadError> {
        for &name in expected.dims {
            let dim = self.0.get(name).and_then(Json::as_u64).unwrap_or(0);
            if !(1..=MODEL_DIM_MAX as u64).contains(&dim) {
                return Err(malformed(format!("`{name}` is {dim}; it must be in 1..={MODEL_DIM_MAX}")));
            }
        }
        if expected.dims.contains(&"num_attention_heads") {
            let heads = self.number("num_attention_heads");
            self.0.entry("num_key_value_heads").or_insert(json!(heads));
            let (kv_heads, width) = (self.number("num_key_value_heads"), self.width());
            if kv_heads == 0 || !heads.is_multiple_of(kv_heads) || !width.is_multiple_of(heads) {
                let why = format!("{heads} heads and {kv_heads} key-value heads do not divide a width of {width}");
                return Err(malformed(why));
            }
            let per_head = width / heads;
            if !expected.own_head_dim && self.0.get("head_dim").is_some_and(|stated| *stated != json!(per_head)) {
                return Err(unsupported("heads of another width through candle", &format!("{per_head}")));
            }
        }
        Ok(())
    }

    /// The fields as candle's own type.
    pub(super) fn to<T: DeserializeOwned>(&self) -> candle_core::Result<T> {
        let mut fields = self.0.clone();
        // Lists of end tokens, which some of candle's types lack, are the engine's concern.
        fields.retain(|name, _| !name.ends_with("_token_id"));
        serde_json::from_value(Json::Object(fields)).map_err(candle_core::Error::wrap)
    }

    /// A number; 0 if it is not stated.
    pub(super) fn number(&self, name: &str) -> usize {
        self.0.get(name).and_then(Json::as_u64).and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
    }

    fn flag(&self, name: &str) -> Option<bool> {
        self.0.get(name).and_then(Json::as_bool)
    }

    pub(super) fn layers(&self) -> usize {
        self.number("num_hidden_layers")
    }

    pub(super) fn vocabulary(&self) -> usize {
        self.number("vocab_size")
    }

    /// The width of the residual stream.
    pub(super) fn width(&self) -> usize {
        self.number("hidden_size")
    }

    /// The head is the table.
    pub(super) fn tied(&self) -> bool {
        self.flag("tie_word_embeddings") == Some(true)
    }

    /// Longest sequence. Candle's masks ignore a sliding window for cached tokens or count it differently; up to its length
    /// every mask is causal.
    pub(super) fn window(&self) -> Option<usize> {
        let slides = self.flag("use_sliding_window") != Some(false);
        let sliding = Some(self.number("sliding_window")).filter(|window| *window > 0 && slides);
        let window = Some(self.number("max_position_embeddings")).filter(|window| *window > 0);
        [window, sliding].into_iter().flatten().min()
    }

    /// Keys and values of one token, in numbers.
    pub(super) fn cache_per_token(&self) -> u64 {
        let heads = self.number("num_attention_heads").max(1);
        let head_dim = Some(self.number("head_dim")).filter(|dim| *dim > 0).unwrap_or(self.width() / heads);
        let keys = (self.number("num_key_value_heads") as u64).saturating_mul(head_dim as u64);
        keys.saturating_mul(2 * self.layers() as u64)
    }
}

fn unsupported(what: &str, supported: &str) -> LoadError {
    LoadError::Unsupported { what: what.to_owned(), supported: supported.to_owned() }
}
