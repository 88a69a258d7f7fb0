//! `config.json`: which architecture a model has, and its dims. Whether the weights agree is `weights.rs`' question.

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
/// Every `model_type` of a language model that is read.
const SUPPORTED: &str = supported!();
/// Every `model_type` that is read.
pub(super) const SUPPORTED_WITH_EMBEDDERS: &str = concat!(supported!(), ", `bert`");

/// How the weights of a folder are read.
const PLAIN: &str = "plain f32, bf16 or f16 (the model that it was made from; `--dtype` packs it), or a GGUF file";

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

/// Weights that another library has packed, in tensors of its own.
#[derive(Deserialize)]
struct Quantised {
    quant_method: Option<String>,
}

impl Config {
    /// Reads the text of a `config.json`.
    pub(super) fn parse(json: &str) -> Result<Self, LoadError> {
        match model_type(json)?.as_str() {
            "mamba" => MambaConfig::parse(json, false).map(Self::Mamba),
            "falcon_mamba" => MambaConfig::parse(json, true).map(Self::Mamba),
            "mamba2" => Mamba2Config::parse(json).map(Self::Mamba2),
            kind @ ("llama" | "qwen2" | "qwen3") => DecoderConfig::parse(json, kind).map(Self::Decoder),
            "bert" => Err(unsupported("the sentence embedder `bert`, which writes no text".to_owned(), SUPPORTED)),
            other => Err(unsupported(format!("the architecture `{other}`"), SUPPORTED)),
        }
    }
}

/// Python writes numbers that JSON does not have: outside of strings, `Infinity`, `-Infinity` and `NaN` become `null`.
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

/// Where the string ends that `text` begins with, both quotes included.
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
        return Err(unsupported(format!("weights packed by `{method}`"), PLAIN));
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
    fn a_stated_width_outweighs_the_one_that_would_follow() {
        let json = r#"{"model_type": "falcon_mamba", "vocab_size": 65024, "hidden_size": 4096, "num_hidden_layers": 64,
            "expand": 16, "intermediate_size": 8192}"#;
        let Config::Mamba(config) = Config::parse(json).unwrap() else { panic!("no Mamba") };
        assert_eq!((config.d_inner, config.mixer_norms), (8192, Some(1e-6)));
    }

    #[test]
    fn what_cannot_be_run_says_what_can() {
        check("{", "`config.json` is not usable");
        check("{}", "`model_type` is missing");
        check(
            r#"{"model_type": "gpt2"}"#,
            "the architecture `gpt2`; supported: `mamba`, `mamba2`, `falcon_mamba`, `llama`",
        );
        check(r#"{"model_type": "bert"}"#, "the sentence embedder `bert`, which writes no text; supported: `mamba`");
        check(r#"{"model_type": "mamba"}"#, "missing field `vocab_size`");
        check(
            r#"{"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4}}"#,
            "asks for weights packed by `gptq`; supported: plain f32, bf16 or f16",
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
    fn numbers_that_json_does_not_have_are_null_outside_of_strings() {
        let check = |text: &str, want: &str| assert_eq!(standard_json(text), want);
        check(r#"{"a": [0.0, Infinity], "b": -Infinity, "c": NaN}"#, r#"{"a": [0.0, null], "b": null, "c": null}"#);
        check(r#"{"NaN": "Infinity \" NaN", "é": 1}"#, r#"{"NaN": "Infinity \" NaN", "é": 1}"#);
        check(r#"["cut Infinity"#, r#"["cut Infinity"#);
        check("", "");
    }

    #[test]
    fn a_limit_on_delta_may_have_no_end() {
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
