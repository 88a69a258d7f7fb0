//! Parses `config.json`: the architecture of a model and its dimensions. Whether the weights agree is checked in
//! `weights.rs`.

mod bert;
mod decoder;
mod mamba;
mod mamba2;

use serde::Deserialize;

pub(super) use self::bert::BertConfig;
pub(super) use self::decoder::{DecoderConfig, Rotary, Scaling};
pub(super) use self::mamba::MambaConfig;
pub(super) use self::mamba2::Mamba2Config;
use super::LoadError;
use crate::foundation::base::limits::MODEL_DIM_MAX;

const FILE: &str = "config.json";

macro_rules! supported {
    () => {
        "`mamba`, `mamba2`, `falcon_mamba`, `llama`, `qwen2`, `qwen3`"
    };
}
/// Every supported `model_type` of a language model.
const SUPPORTED: &str = supported!();
/// Every supported `model_type`.
pub(super) const SUPPORTED_WITH_EMBEDDERS: &str = concat!(supported!(), ", `bert`");

/// Supported formats of weights in a folder.
const PLAIN: &str = "plain f32, bf16 or f16 (use the original model; `--dtype` quantises it), or a GGUF file";

/// The parsed `config.json` of a language model, one variant per architecture.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Config {
    Mamba(MambaConfig),
    Mamba2(Mamba2Config),
    Decoder(DecoderConfig),
}

#[derive(Deserialize)]
struct Kind {
    model_type: Option<String>,
    quantization_config: Option<Quantised>,
}

/// Weights packed by another library, in its own tensor layout.
#[derive(Deserialize)]
struct Quantised {
    quant_method: Option<String>,
}

impl Config {
    /// Parses the text of a `config.json`.
    pub(super) fn parse(json: &str) -> Result<Self, LoadError> {
        match model_type(json)?.as_str() {
            "mamba" => MambaConfig::parse(json, false).map(Self::Mamba),
            "falcon_mamba" => MambaConfig::parse(json, true).map(Self::Mamba),
            "mamba2" => Mamba2Config::parse(json).map(Self::Mamba2),
            kind @ ("llama" | "qwen2" | "qwen3") => DecoderConfig::parse(json, kind).map(Self::Decoder),
            "bert" => Err(unsupported("`bert`, a sentence embedder that cannot generate text".to_owned(), SUPPORTED)),
            other => Err(unsupported(format!("the architecture `{other}`"), SUPPORTED)),
        }
    }
}

/// Python writes numbers that JSON lacks: `Infinity`, `-Infinity` and `NaN` outside strings become `null`.
pub(super) fn standard_json(text: &str) -> String {
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

fn model_type(json: &str) -> Result<String, LoadError> {
    let kind: Kind = parse(json)?;
    if let Some(Quantised { quant_method }) = kind.quantization_config {
        let method = quant_method.unwrap_or_else(|| "quantization_config".to_owned());
        return Err(unsupported(format!("weights quantised with `{method}`"), PLAIN));
    }
    kind.model_type.ok_or_else(|| {
        LoadError::malformed(FILE, "`model_type` is missing; it names the architecture, such as `mamba`")
    })
}

fn parse<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, LoadError> {
    serde_json::from_str(json).map_err(|error| LoadError::malformed(FILE, error))
}

fn unsupported(what: String, supported: &'static str) -> LoadError {
    LoadError::Unsupported { what, supported }
}

fn check_silu(activation: &str) -> Result<(), LoadError> {
    if matches!(activation, "silu" | "swish") {
        return Ok(());
    }
    Err(unsupported(format!("the activation `{activation}`"), "`silu`"))
}

fn check_dims(dims: &[(&str, usize)]) -> Result<(), LoadError> {
    for (name, dim) in dims {
        if !(1..=MODEL_DIM_MAX).contains(dim) {
            return Err(LoadError::malformed(FILE, format!("`{name}` is {dim}; it must be in 1..={MODEL_DIM_MAX}")));
        }
    }
    Ok(())
}

fn check_epsilon(name: &str, epsilon: f32) -> Result<(), LoadError> {
    if epsilon > 0.0 && epsilon < 1.0 {
        return Ok(());
    }
    Err(LoadError::malformed(FILE, format!("`{name}` must lie between 0 and 1")))
}

fn two() -> f64 {
    2.0
}

fn four() -> usize {
    4
}

fn epsilon() -> f32 {
    1e-5
}

fn yes() -> bool {
    true
}

fn silu() -> String {
    "silu".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, why: &str) {
        let error = Config::parse(json).unwrap_err().to_string();
        assert!(error.contains(why), "{json}: {error}");
    }

    #[test]
    fn defaults_are_those_of_the_published_130m() {
        let json = r#"{"model_type": "mamba", "vocab_size": 50280, "hidden_size": 768, "num_hidden_layers": 24}"#;
        let Config::Mamba(config) = Config::parse(json).unwrap() else { panic!("no Mamba") };
        assert_eq!((config.d_inner, config.d_state, config.d_conv, config.dt_rank), (1536, 16, 4, 48));
        assert!(config.tied && config.use_conv_bias && !config.use_bias);
    }

    #[test]
    fn an_explicit_width_overrides_the_computed_one() {
        let json = r#"{"model_type": "falcon_mamba", "vocab_size": 65024, "hidden_size": 4096, "num_hidden_layers": 64,
            "expand": 16, "intermediate_size": 8192}"#;
        let Config::Mamba(config) = Config::parse(json).unwrap() else { panic!("no Mamba") };
        assert_eq!((config.d_inner, config.mixer_norms), (8192, Some(1e-6)));
    }

    #[test]
    fn an_unsupported_config_names_what_is_supported() {
        check("{", "`config.json` is not usable");
        check("{}", "`model_type` is missing");
        check(
            r#"{"model_type": "gpt2"}"#,
            "the architecture `gpt2`; supported: `mamba`, `mamba2`, `falcon_mamba`, `llama`",
        );
        check(r#"{"model_type": "bert"}"#, "`bert`, a sentence embedder that cannot generate text; supported: `mamba`");
        check(r#"{"model_type": "mamba"}"#, "missing field `vocab_size`");
        check(
            r#"{"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4}}"#,
            "requires weights quantised with `gptq`; supported: plain f32, bf16 or f16",
        );
        let with = |extra: &str| {
            format!(r#"{{"model_type": "mamba", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, {extra}}}"#)
        };
        check(&with(r#""hidden_act": "gelu""#), "the activation `gelu`; supported: `silu`");
        check(&with(r#""time_step_rank": "big""#), "`time_step_rank` \"big\"; supported: a number or \"auto\"");
        check(&with(r#""state_size": 0"#), "`state_size` is 0; it must be in 1..=");
        check(&with(r#""expand": -1"#), "or expand × hidden_size` is 0");
        check(&with(r#""expand": 1e300"#), "or expand × hidden_size` is 0");
        check(&with(r#""layer_norm_epsilon": 0"#), "`layer_norm_epsilon` must lie between 0 and 1");
    }

    #[test]
    fn python_only_numbers_become_null_outside_strings() {
        let check = |text: &str, want: &str| assert_eq!(standard_json(text), want);
        check(r#"{"a": [0.0, Infinity], "b": -Infinity, "c": NaN}"#, r#"{"a": [0.0, null], "b": null, "c": null}"#);
        check(r#"{"NaN": "Infinity \" NaN", "é": 1}"#, r#"{"NaN": "Infinity \" NaN", "é": 1}"#);
        check(r#"["cut Infinity"#, r#"["cut Infinity"#);
        check("", "");
    }

    #[test]
    fn an_upper_limit_on_delta_may_be_infinite() {
        let limit = |limit: &str| {
            let json = format!(
                r#"{{"model_type": "mamba2", "vocab_size": 9, "hidden_size": 8, "num_heads": 4, "head_dim": 4,
                    "n_groups": 2, "num_hidden_layers": 1, "time_step_limit": {limit}}}"#
            );
            Config::parse(&standard_json(&json)).map(|config| match config {
                Config::Mamba2(config) => config.dt_limit,
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(limit("[0.0, Infinity]").unwrap(), (0.0, f32::INFINITY));
        assert_eq!(limit(r#"[0.5, {"__float__": "Infinity"}]"#).unwrap(), (0.5, f32::INFINITY));
        assert_eq!(limit("null").unwrap(), (0.0, f32::INFINITY));
        assert_eq!(limit("[0.01, 2]").unwrap(), (0.01, 2.0));
        for wrong in ["[2, 1]", "[-1, 1]", r#"[0, {"__float__": "NaN"}]"#, "[1]"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
