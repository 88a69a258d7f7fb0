//! The supported model families, one file each. To add one, write its file, and name it here.

mod bamba;
mod bert;
mod config_json;
mod falcon_h1;
mod falcon_mamba;
mod gemma;
mod granite;
mod llama;
mod mamba;
mod mamba2;
mod mistral;
mod nemotron_h;
mod olmo2;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3_moe;
mod smollm3;

use serde::Deserialize;

pub(super) use self::bert::{Bert, BertConfig};
pub(super) use self::config_json::standard_json;
use self::config_json::{FILE, parse, unsupported};
#[cfg(test)]
pub(super) use self::mamba::parse_config as parse_mamba;
use super::candle;
use super::error::LoadError;
use super::family::{Family, GgufFormat, ModelDescription};
use super::network::{HasSize, ModelSize};

/// The families of language models, in the order in which messages name them.
#[rustfmt::skip]
const FAMILIES: &[&Family] = &[
    &mamba::FAMILY,
    &mamba2::FAMILY,
    &falcon_mamba::FAMILY,
    &llama::FAMILY,
    &qwen2::FAMILY,
    &qwen3::FAMILY,
    &qwen3_moe::FAMILY,
    &mistral::FAMILY,
    &mistral::MISTRAL3,
    &smollm3::FAMILY,
    &gemma::GEMMA2,
    &gemma::GEMMA3,
    &gemma::GEMMA3_TEXT,
    &olmo2::FAMILY,
    &phi3::FAMILY,
    &granite::FAMILY,
    &granite::HYBRID,
    &falcon_h1::FAMILY,
    &bamba::FAMILY,
    &nemotron_h::FAMILY,
];

/// Supported formats of weights in a folder.
const PLAIN: &str = "plain f32, bf16 or f16 (use the original model; `--dtype` quantises it), or a GGUF file";

#[derive(Deserialize)]
struct Header {
    model_type: Option<String>,
    quantization_config: Option<Quantised>,
}

/// Weights packed by another library, in its own tensor layout.
#[derive(Deserialize)]
struct Quantised {
    quant_method: Option<String>,
}

impl Header {
    fn model_type(self) -> Result<String, LoadError> {
        let missing = "`model_type` is missing; it names the architecture, such as `mamba`";
        self.model_type.ok_or_else(|| LoadError::malformed(FILE, missing))
    }
}

/// The language model that a `config.json` describes.
pub(super) fn parse_language_model(json: &str) -> Result<Box<dyn ModelDescription>, LoadError> {
    let mut header: Header = parse(json)?;
    if let Some(Quantised { quant_method }) = header.quantization_config.take() {
        let method = quant_method.unwrap_or_else(|| "quantization_config".to_owned());
        return Err(unsupported(format!("weights quantised with `{method}`"), PLAIN));
    }
    let kind = header.model_type()?;
    if kind == bert::MODEL_TYPE {
        let what = "`bert`, a sentence embedder that cannot generate text";
        return Err(unsupported(what.to_owned(), &supported(false)));
    }
    (find(&kind, false)?.parse)(json)
}

/// The size of the model that a `config.json` describes, as candle implements it.
pub(super) fn parse_candle_size(json: &str) -> Result<(String, ModelSize), LoadError> {
    Ok((parse::<Header>(json)?.model_type()?, candle::parse(json)?.size()?))
}

/// The size of the model that a `config.json` describes, quantised or not: a language model or an embedder.
pub(super) fn parse_size(json: &str) -> Result<(String, ModelSize), LoadError> {
    let kind = parse::<Header>(json)?.model_type()?;
    let size = if kind == bert::MODEL_TYPE {
        BertConfig::parse(json)?.size()?
    } else {
        (find(&kind, true)?.parse)(json)?.size()?
    };
    Ok((kind, size))
}

/// The family of a GGUF file by its `general.architecture`: its `model_type` and its format.
pub(super) fn gguf_format(architecture: &str) -> Result<(&'static str, &'static GgufFormat), LoadError> {
    let formats = FAMILIES.iter().filter_map(|family| Some((family.model_type, family.gguf.as_ref()?)));
    if let Some(found) = formats.clone().find(|(_, format)| format.architecture == architecture) {
        return Ok(found);
    }
    let what = format!("the architecture `{architecture}` in a GGUF file");
    if FAMILIES.iter().any(|family| family.model_type == architecture) {
        return Err(unsupported(what, "its safetensors"));
    }
    let supported: Vec<_> = formats.map(|(_, format)| format!("`{}`", format.architecture)).collect();
    Err(unsupported(what, &supported.join(", ")))
}

fn find(model_type: &str, embedders: bool) -> Result<&'static Family, LoadError> {
    let known = FAMILIES.iter().find(|family| family.model_type == model_type);
    known.copied().ok_or_else(|| {
        let through_candle = if candle::has(model_type) {
            "; candle-transformers has it, with other properties (docs/MODELS.md): name the model `candle:local:DIR`"
        } else {
            ""
        };
        unsupported(format!("the architecture `{model_type}`"), &format!("{}{through_candle}", supported(embedders)))
    })
}

/// Every supported `model_type`, with or without embedders.
fn supported(embedders: bool) -> String {
    let all = FAMILIES.iter().map(|family| family.model_type).chain(embedders.then_some(bert::MODEL_TYPE));
    all.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, why: &str) {
        let error = parse_language_model(json).err().unwrap().to_string();
        assert!(error.contains(why), "{json}: {error}");
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
    }

    #[test]
    fn every_family_is_registered_once() {
        let mut names: Vec<_> = FAMILIES.iter().map(|family| family.model_type).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FAMILIES.len());
    }

    /// The size of a small decoder of family `kind`.
    fn parameters(kind: &str, extra: &str) -> u64 {
        let json = format!(
            r#"{{"model_type": "{kind}", "vocab_size": 10, "hidden_size": 64, "intermediate_size": 96,
                "num_hidden_layers": 1, "num_attention_heads": 4{extra}}}"#
        );
        let counted = parse_size(&json).unwrap().1.parameters;
        counted.vectors + counted.matrices.iter().map(|matrix| matrix.parameters).sum::<u64>()
    }

    #[test]
    fn families_differ_in_head_width_norms_and_biases() {
        // Tables, norms, and the feed-forward network; then attention with queries, keys, values and the way out.
        let rest = 2 * 10 * 64 + 3 * 64 + 3 * 64 * 96;
        assert_eq!(parameters("llama", ""), rest + 4 * 64 * 64);
        assert_eq!(parameters("qwen2", ""), rest + 4 * 64 * 64 + 3 * 64);
        // Heads of 128 unless it says otherwise.
        assert_eq!(parameters("qwen3", ""), rest + 4 * 64 * 512 + 2 * 128);
        assert_eq!(parameters("qwen3", r#", "head_dim": 16"#), rest + 4 * 64 * 64 + 2 * 16);
        // Llama alone has `mlp_bias`.
        let biased = r#", "mlp_bias": true"#;
        assert_eq!(parameters("llama", biased), rest + 4 * 64 * 64 + 2 * 96 + 64);
        assert_eq!(parameters("qwen2", biased), parameters("qwen2", ""));
        assert_eq!(parameters("qwen3", biased), parameters("qwen3", ""));
    }
}
