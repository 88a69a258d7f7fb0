//! Nemotron-H (NVIDIA 2025, arXiv:2504.03624): every layer is one of Mamba-2, attention without rotary positions, or a
//! feed-forward network without a gate.

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::super::decoder::{Activation, DecoderConfig, DecoderNames, FeedNames, Fused, Half, MambaLayers};
use super::super::error::LoadError;
use super::super::family::{Family, GgufFormat, boxed};
use super::super::gguf::Gguf;
use super::super::gguf::config::ConfigFields;
use super::config_json::{FILE, check_silu, parse, unsupported, with_defaults};
use super::llama::{self, Defaults, LlamaFields};
use super::mamba2::{self, Bound};

/// Nemotron-H without experts.
pub(super) const FAMILY: Family = Family {
    model_type: "nemotron_h",
    parse: |json| config(json).map(boxed),
    gguf: Some(GgufFormat { architecture: "nemotron_h", config: gguf_config, interleaved_rotary: false }),
};

static NAMES: DecoderNames = DecoderNames {
    tables: &["backbone.embeddings.weight", "model.embeddings.weight"],
    norms: &["backbone.norm_f.weight", "model.norm_f.weight"],
    layers: &["backbone.layers", "model.layers"],
    input_norm: ("norm", "attn_norm"),
    feed_norm: ("norm", "attn_norm"),
    q_proj: ("mixer.q_proj", "attn_q"),
    k_proj: ("mixer.k_proj", "attn_k"),
    v_proj: ("mixer.v_proj", "attn_v"),
    o_proj: ("mixer.o_proj", "attn_output"),
    feed: FeedNames {
        gate_proj: ("", ""),
        up_proj: ("mixer.up_proj", "ffn_up"),
        gate_up_proj: Fused::Never,
        down_proj: ("mixer.down_proj", "ffn_down"),
    },
    mamba: "mixer",
    ..llama::NAMES
};

/// What a layer is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Mamba2,
    Attention,
    Feed,
}

/// Fields of the file that Llama's lacks.
#[derive(Deserialize)]
struct Fields {
    layers_block_type: Option<Vec<String>>,
    /// The same in files from before 2026: a letter for each layer.
    hybrid_override_pattern: Option<String>,
    hidden_size: usize,
    vocab_size: usize,
    layer_norm_epsilon: f32,
    mamba_num_heads: usize,
    mamba_head_dim: usize,
    mamba_hidden_act: String,
    ssm_state_size: usize,
    n_groups: usize,
    conv_kernel: usize,
    use_conv_bias: bool,
    use_bias: bool,
    /// The lower limit of Δ, as `transformers` takes it.
    time_step_min: f32,
    mlp_hidden_act: String,
    tie_word_embeddings: bool,
}

impl Fields {
    fn kinds(&self) -> Result<Vec<Kind>, LoadError> {
        let kind = |name: &str| match name {
            "mamba" | "linear_attention" | "M" => Ok(Kind::Mamba2),
            "attention" | "full_attention" | "*" => Ok(Kind::Attention),
            "mlp" | "-" => Ok(Kind::Feed),
            other => Err(unsupported(format!("a layer of the kind `{other}`"), "`mamba`, `attention`, `mlp`")),
        };
        match (&self.layers_block_type, &self.hybrid_override_pattern) {
            (Some(names), _) => names.iter().map(|name| kind(name)).collect(),
            (None, Some(pattern)) => pattern.chars().map(|letter| kind(&letter.to_string())).collect(),
            (None, None) => Err(LoadError::malformed(FILE, "`layers_block_type` is missing")),
        }
    }
}

fn config(json: &str) -> Result<DecoderConfig, LoadError> {
    let json = with_defaults(
        json,
        json!({
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 4096, "intermediate_size": 21504,
            "mlp_hidden_act": "relu2", "ssm_state_size": 128, "mamba_num_heads": 128, "mamba_head_dim": 64,
            "mamba_hidden_act": "silu", "n_groups": 8, "conv_kernel": 4, "use_conv_bias": true, "use_bias": false,
            "time_step_min": 0.001, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": false,
        }),
    )?;
    let fields: Fields = parse(&json)?;
    check_silu(&fields.mamba_hidden_act)?;
    if fields.mlp_hidden_act != "relu2" {
        return Err(unsupported(format!("the activation `{}`", fields.mlp_hidden_act), "`relu2`"));
    }
    let kinds = fields.kinds()?;
    let mut stated: Json = parse(&json)?;
    if let Some(stated) = stated.as_object_mut() {
        stated.insert("num_hidden_layers".to_owned(), json!(kinds.len()));
        stated.insert("rms_norm_eps".to_owned(), json!(fields.layer_norm_epsilon));
        // It has none of these.
        ["hidden_act", "attention_bias", "rope_parameters", "rope_scaling", "partial_rotary_factor"]
            .iter()
            .for_each(|name| drop(stated.remove(*name)));
    }
    let llama = LlamaFields::parse(&stated.to_string())?;
    let config = llama.config(&Defaults { window: 4096, head_dim: None })?;
    let mamba = mamba2::Dims {
        vocabulary: fields.vocab_size,
        d_model: fields.hidden_size,
        heads: fields.mamba_num_heads,
        head_dim: fields.mamba_head_dim,
        d_state: fields.ssm_state_size,
        groups: fields.n_groups,
        d_conv: fields.conv_kernel,
        layers: kinds.len(),
        d_inner: fields.mamba_num_heads.saturating_mul(fields.mamba_head_dim) as f64,
        norm_epsilon: fields.layer_norm_epsilon,
        time_step_limit: Some((Bound::Number(fields.time_step_min), Bound::Infinite(()))),
        use_bias: fields.use_bias,
        use_conv_bias: fields.use_conv_bias,
        tied: fields.tie_word_embeddings,
    }
    .config()?;
    let listed: Vec<_> = kinds.iter().map(|kind| *kind == Kind::Mamba2).collect();
    let half = |kind: &Kind| if *kind == Kind::Feed { Half::Feed } else { Half::Mixer };
    Ok(DecoderConfig {
        without_rotary: vec![true; config.layers],
        activation: Activation::SquaredRelu,
        mamba: listed.contains(&true).then_some(MambaLayers { config: mamba, listed, beside_attention: false }),
        halves: kinds.iter().map(half).collect(),
        feed_bias: llama.mlp_bias,
        names: &NAMES,
        ..config
    })
}

fn gguf_config(gguf: &Gguf, config: &mut ConfigFields) -> Result<(), LoadError> {
    let key = |name: &str| format!("nemotron_h.{name}");
    let number = |name: &str| gguf.number(&key(name));
    let each = |name: &str| gguf.numbers(&key(name)).map(Option::unwrap_or_default);
    // A layer without key heads and without a feed-forward network is one of Mamba-2.
    let (keys, feeds) = (each("attention.head_count_kv")?, each("feed_forward_length")?);
    let kinds = keys.iter().zip(&feeds).map(|layer| match layer {
        (0, 0) => "mamba",
        (0, _) => "mlp",
        _ => "attention",
    });
    config.set("layers_block_type", Some(kinds.collect::<Vec<_>>()));
    config.set("num_key_value_heads", keys.iter().copied().max().filter(|heads| *heads > 0));
    config.set("intermediate_size", feeds.iter().copied().max().filter(|width| *width > 0));
    config.set("num_attention_heads", each("attention.head_count")?.into_iter().max());
    config.set("head_dim", number("attention.key_length")?);
    config.set("max_position_embeddings", number("context_length")?);
    config.set("layer_norm_epsilon", gguf.float(&key("attention.layer_norm_rms_epsilon"))?);
    let (inner, heads) = (number("ssm.inner_size")?, number("ssm.time_step_rank")?);
    config.set("mamba_num_heads", heads);
    config.set("mamba_head_dim", inner.zip(heads).map(|(inner, heads)| inner / heads.max(1)));
    config.set("ssm_state_size", number("ssm.state_size")?);
    config.set("n_groups", number("ssm.group_count")?);
    config.set("conv_kernel", number("ssm.conv_kernel")?);
    config.set("use_conv_bias", Some(gguf.has_tensor_ending("ssm_conv1d.bias")));
    config.set("use_bias", Some(gguf.has_tensor_ending("ssm_in.bias")));
    config.set("mlp_bias", Some(gguf.has_tensor_ending("ffn_up.bias")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_one_of_three_kinds() {
        let config = |extra: &str| {
            config(&format!(
                r#"{{"vocab_size": 9, "hidden_size": 16, "intermediate_size": 8, "num_attention_heads": 2,
                    "num_key_value_heads": 1, "mamba_num_heads": 8, "mamba_head_dim": 4{extra}}}"#
            ))
        };
        let old = config(r#", "hybrid_override_pattern": "M-*M""#).unwrap();
        let new = config(r#", "layers_block_type": ["mamba", "mlp", "attention", "linear_attention"]"#).unwrap();
        assert_eq!(old, new);
        assert_eq!(old.halves, [Half::Mixer, Half::Feed, Half::Mixer, Half::Mixer]);
        assert_eq!(old.mamba.unwrap().listed, [true, false, false, true]);
        let check = |extra: &str, why: &str| {
            let error = config(extra).unwrap_err().to_string();
            assert!(error.contains(why), "{extra}: {error}");
        };
        check(r#", "hybrid_override_pattern": "ME""#, "a layer of the kind `E`; supported: `mamba`");
        check(r#", "hybrid_override_pattern": "M", "mlp_hidden_act": "silu""#, "`silu`; supported: `relu2`");
        check("", "`layers_block_type` is missing");
    }
}
