//! Qwen3 with mixtures of experts (Yang et al. 2025, arXiv:2505.09388): a Qwen3 whose feed-forward networks are mixtures of
//! experts, in all layers or in some.

use serde::Deserialize;

use super::super::decoder::{DecoderConfig, DecoderNames, ExpertNames, ExpertsConfig, QkNorms, Weighting};
use super::super::error::LoadError;
use super::super::family::{Family, GgufFormat, boxed};
use super::super::gguf::Gguf;
use super::super::gguf::config::ConfigFields;
use super::config_json::{check_dims, parse};
use super::llama::{self, Defaults, LlamaFields, gguf_config};
use super::qwen2::SlidingFields;

/// Qwen3-MoE.
pub(super) const FAMILY: Family = Family {
    model_type: "qwen3_moe",
    parse: |json| {
        let fields: Fields = parse(json)?;
        let config = LlamaFields::parse(json)?.config(&Defaults { window: 32_768, head_dim: None })?;
        let experts = Some(fields.experts(config.layers)?);
        let sliding = SlidingFields::sliding(json)?;
        Ok(boxed(DecoderConfig { qk_norms: Some(QkNorms::PerHead), sliding, experts, names: &NAMES, ..config }))
    },
    gguf: Some(GgufFormat { architecture: "qwen3moe", config: gguf_qwen3_moe, interleaved_rotary: false }),
};

/// The fields of `config.json` about experts. Defaults are those of `transformers`.
#[derive(Deserialize)]
struct Fields {
    num_experts: Option<usize>,
    /// The name of `num_experts` in files from 2026 on.
    num_local_experts: Option<usize>,
    #[serde(default = "chosen")]
    num_experts_per_tok: usize,
    #[serde(default = "d_feed")]
    moe_intermediate_size: usize,
    #[serde(default)]
    norm_topk_prob: bool,
    #[serde(default = "step")]
    decoder_sparse_step: usize,
    mlp_only_layers: Option<Vec<usize>>,
}

fn chosen() -> usize {
    8
}

fn d_feed() -> usize {
    768
}

fn step() -> usize {
    1
}

/// Published files have the experts one by one; `transformers` from 2026 on keeps them stacked.
static NAMES: DecoderNames = DecoderNames {
    experts: ExpertNames { stacked: &[("mlp.experts.gate_up_proj", "mlp.experts.down_proj")], ..llama::NAMES.experts },
    ..llama::NAMES
};

impl Fields {
    fn experts(&self, layers: usize) -> Result<ExpertsConfig, LoadError> {
        check_dims(&[("decoder_sparse_step", self.decoder_sparse_step)])?;
        let listed = self.mlp_only_layers.as_deref().unwrap_or_default();
        let dense = |layer: usize| listed.contains(&layer) || !(layer + 1).is_multiple_of(self.decoder_sparse_step);
        let dense: Vec<_> = if listed.is_empty() && self.decoder_sparse_step == 1 {
            Vec::new()
        } else {
            (0..layers).map(dense).collect()
        };
        let weighting = if self.norm_topk_prob { Weighting::AmongChosen } else { Weighting::AmongAll };
        let count = self.num_experts.or(self.num_local_experts).unwrap_or(128);
        let (chosen, d_feed) = (self.num_experts_per_tok, self.moe_intermediate_size);
        check_dims(&[("num_experts", count), ("num_experts_per_tok", chosen), ("moe_intermediate_size", d_feed)])?;
        ExpertsConfig { count, chosen, d_feed, d_shared: None, weighting, dense }.checked()
    }
}

fn gguf_qwen3_moe(gguf: &Gguf, config: &mut ConfigFields) -> Result<(), LoadError> {
    gguf_config(gguf, config)?;
    config.set("num_experts", gguf.number("qwen3moe.expert_count")?);
    config.set("num_experts_per_tok", gguf.number("qwen3moe.expert_used_count")?);
    config.set("moe_intermediate_size", gguf.number("qwen3moe.expert_feed_forward_length")?);
    // llama.cpp always does, and has experts in every layer.
    config.set("norm_topk_prob", Some(true));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_layers_may_be_dense() {
        let check = |json: &str, want: &[bool]| {
            let fields: Fields = parse(json).unwrap();
            assert_eq!(fields.experts(4).unwrap().dense, want, "{json}");
        };
        check("{}", &[]);
        check(r#"{"mlp_only_layers": [2]}"#, &[false, false, true, false]);
        check(r#"{"decoder_sparse_step": 2, "mlp_only_layers": [3]}"#, &[true, false, true, true]);
    }

    #[test]
    fn more_experts_than_there_are_cannot_be_chosen() {
        let fields: Fields = parse(r#"{"num_experts": 4}"#).unwrap();
        let error = fields.experts(1).unwrap_err().to_string();
        assert!(error.contains("8 experts of each row, but there are 4"), "{error}");
    }
}
