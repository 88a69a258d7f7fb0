//! Parsing of `config.json`: helpers for the families' own parsers. Whether the weights agree is checked in `weights.rs`.

use serde::Deserialize;
use serde_json::Value as Json;

use super::super::decoder::Activation;
use super::super::error::LoadError;
use crate::foundation::base::limits::MODEL_DIM_MAX;

pub(super) const FILE: &str = "config.json";

/// Python writes numbers that JSON lacks: `Infinity`, `-Infinity` and `NaN` outside strings become `null`.
pub(in super::super) fn standard_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (plain, string) = rest.split_at(rest.find('"').unwrap_or(rest.len()));
        out.push_str(&plain.replace("-Infinity", "null").replace("Infinity", "null").replace("NaN", "null"));
        let (string, after) = string.split_at(end_of_string(string));
        out.push_str(string);
        rest = after;
    }
    out
}

/// Length of the string literal that `text` begins with, both quotes included.
fn end_of_string(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

pub(super) fn parse<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, LoadError> {
    serde_json::from_str(json).map_err(|error| LoadError::malformed(FILE, error))
}

/// The object `json` with the fields of `defaults` that it lacks.
pub(super) fn with_defaults(json: &str, defaults: Json) -> Result<String, LoadError> {
    let mut config: Json = parse(json)?;
    if let (Some(config), Json::Object(defaults)) = (config.as_object_mut(), defaults) {
        for (name, value) in defaults {
            config.entry(name).or_insert(value);
        }
    }
    Ok(config.to_string())
}

pub(super) fn unsupported(what: String, supported: &str) -> LoadError {
    LoadError::Unsupported { what, supported: supported.to_owned() }
}

pub(super) fn check_silu(activation: &str) -> Result<(), LoadError> {
    if matches!(activation, "silu" | "swish") {
        return Ok(());
    }
    Err(unsupported(format!("the activation `{activation}`"), "`silu`"))
}

/// The function of a gate, by its name in `transformers`.
pub(super) fn activation(name: &str) -> Result<Activation, LoadError> {
    match name {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu_pytorch_tanh" | "gelu_python_tanh" | "gelu_new" => Ok(Activation::GeluTanh),
        _ => Err(unsupported(format!("the activation `{name}`"), "`silu`, `gelu_pytorch_tanh`")),
    }
}

/// Refuses factors that are not above 0.
pub(super) fn check_factors(factors: &[(&str, f32)]) -> Result<(), LoadError> {
    for (name, factor) in factors {
        if !(factor.is_finite() && *factor > 0.0) {
            return Err(LoadError::malformed(FILE, format!("`{name}` is {factor}; it must be above 0")));
        }
    }
    Ok(())
}

pub(super) fn check_dims(dims: &[(&str, usize)]) -> Result<(), LoadError> {
    for (name, dim) in dims {
        if !(1..=MODEL_DIM_MAX).contains(dim) {
            return Err(LoadError::malformed(FILE, format!("`{name}` is {dim}; it must be in 1..={MODEL_DIM_MAX}")));
        }
    }
    Ok(())
}

pub(super) fn check_epsilon(name: &str, epsilon: f32) -> Result<(), LoadError> {
    if epsilon > 0.0 && epsilon < 1.0 {
        return Ok(());
    }
    Err(LoadError::malformed(FILE, format!("`{name}` must be between 0 and 1")))
}

pub(super) fn two() -> f64 {
    2.0
}

pub(super) fn four() -> usize {
    4
}

pub(super) fn epsilon() -> f32 {
    1e-5
}

pub(super) fn one() -> f32 {
    1.0
}

pub(super) fn yes() -> bool {
    true
}

pub(super) fn silu() -> String {
    "silu".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_only_numbers_become_null_outside_strings() {
        let check = |text: &str, want: &str| assert_eq!(standard_json(text), want);
        check(r#"{"a": [0.0, Infinity], "b": -Infinity, "c": NaN}"#, r#"{"a": [0.0, null], "b": null, "c": null}"#);
        check(r#"{"NaN": "Infinity \" NaN", "é": 1}"#, r#"{"NaN": "Infinity \" NaN", "é": 1}"#);
        check(r#"["cut Infinity"#, r#"["cut Infinity"#);
        check("", "");
    }
}
