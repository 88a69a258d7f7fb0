//! Bamba (IBM, Princeton, CMU and UIUC 2024): layers of Mamba-2, and some of attention whose heads have rotary positions in
//! their first half.

use serde::Deserialize;
use serde_json::json;

use super::super::decoder::{DecoderConfig, MambaLayers};
use super::super::error::LoadError;
use super::super::family::{Family, boxed};
use super::config_json::{parse, with_defaults};
use super::falcon_h1::NAMES;
use super::llama::{Defaults, LlamaFields};
use super::mamba2::HybridFields;

/// Bamba. llama.cpp's converter writes it as a `granitehybrid`.
pub(super) const FAMILY: Family = Family { model_type: "bamba", parse: |json| config(json).map(boxed), gguf: None };

/// The fields of the file that are its own.
#[derive(Deserialize)]
struct Fields {
    /// The layers with attention.
    attn_layer_indices: Option<Vec<usize>>,
}

fn config(json: &str) -> Result<DecoderConfig, LoadError> {
    let defaults = json!({"rms_norm_eps": 1e-5, "num_key_value_heads": 8, "partial_rotary_factor": 0.5});
    let json = with_defaults(json, defaults)?;
    let attention = parse::<Fields>(&json)?.attn_layer_indices.unwrap_or_default();
    let llama = LlamaFields::parse(&json)?;
    let config = llama.config(&Defaults { window: 262_144, head_dim: None })?;
    let mamba = HybridFields::parse(&json)?.config(&config)?;
    let listed: Vec<_> = (0..config.layers).map(|layer| !attention.contains(&layer)).collect();
    let mamba = listed.contains(&true).then_some(MambaLayers { config: mamba, listed, beside_attention: false });
    Ok(DecoderConfig { mamba, feed_bias: llama.mlp_bias, names: &NAMES, ..config })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_layers_have_attention_with_rotary_positions_on_half_of_a_head() {
        let config = |extra: &str| {
            config(&format!(
                r#"{{"vocab_size": 9, "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 3,
                    "num_attention_heads": 2, "num_key_value_heads": 1, "mamba_n_heads": 4{extra}}}"#
            ))
            .unwrap()
        };
        let all = config("");
        assert_eq!((all.mamba.unwrap().listed, all.rotary.dims), (vec![true; 3], 4));
        let some = config(r#", "attn_layer_indices": [1]"#);
        assert_eq!(some.mamba.unwrap().listed, [true, false, true]);
        assert_eq!(config(r#", "attn_layer_indices": [0, 1, 2]"#).mamba, None);
    }
}
