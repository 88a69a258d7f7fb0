//! Qwen2 and Qwen2.5 (Yang et al. 2024, arXiv:2412.15115): a Llama with biases on queries, keys and values.

use serde::Deserialize;

use super::super::decoder::{DecoderConfig, Sliding, SlidingLayers};
use super::super::error::LoadError;
use super::super::family::{Family, GgufFormat, boxed};
use super::config_json::{check_dims, parse};
use super::llama::{Defaults, LlamaFields, gguf_config};

/// Qwen2.
pub(super) const FAMILY: Family = Family {
    model_type: "qwen2",
    parse: |json| {
        let config = LlamaFields::parse(json)?.config(&Defaults { window: 32_768, head_dim: None })?;
        Ok(boxed(DecoderConfig { qkv_bias: true, out_bias: false, sliding: SlidingFields::sliding(json)?, ..config }))
    },
    gguf: Some(GgufFormat { architecture: "qwen2", config: gguf_config, interleaved_rotary: false }),
};

/// The fields of Qwen's `config.json` about sliding windows.
#[derive(Deserialize)]
pub(super) struct SlidingFields {
    #[serde(default)]
    use_sliding_window: bool,
    #[serde(default = "sliding_window")]
    sliding_window: Option<usize>,
    #[serde(default = "max_window_layers")]
    max_window_layers: usize,
    layer_types: Option<Vec<String>>,
}

#[expect(clippy::unnecessary_wraps, reason = "the form that serde takes")]
fn sliding_window() -> Option<usize> {
    Some(4096)
}

fn max_window_layers() -> usize {
    28
}

impl SlidingFields {
    /// The sliding window, in the layers that `layer_types` names, else in those from `max_window_layers` on.
    pub(super) fn sliding(json: &str) -> Result<Option<Sliding>, LoadError> {
        let fields: Self = parse(json)?;
        let Some(tokens) = fields.sliding_window.filter(|_| fields.use_sliding_window) else { return Ok(None) };
        check_dims(&[("sliding_window", tokens)])?;
        let layers = match fields.layer_types {
            Some(types) => SlidingLayers::Listed(types.iter().map(|kind| kind == "sliding_attention").collect()),
            None => SlidingLayers::From(fields.max_window_layers),
        };
        Ok(Some(Sliding { tokens, layers }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_slide_in_the_layers_that_the_config_names() {
        let check =
            |json: &str, want: Option<Sliding>| assert_eq!(SlidingFields::sliding(json).unwrap(), want, "{json}");
        let sliding = |tokens, layers| Some(Sliding { tokens, layers });
        check("{}", None);
        check(r#"{"sliding_window": 9, "use_sliding_window": false}"#, None);
        check(r#"{"sliding_window": null, "use_sliding_window": true}"#, None);
        check(r#"{"use_sliding_window": true}"#, sliding(4096, SlidingLayers::From(28)));
        let listed = r#""layer_types": ["full_attention", "sliding_attention"]"#;
        check(
            &format!(r#"{{"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 1, {listed}}}"#),
            sliding(9, SlidingLayers::Listed(vec![false, true])),
        );
        assert!(SlidingFields::sliding(r#"{"use_sliding_window": true, "sliding_window": 0}"#).is_err());
    }
}
