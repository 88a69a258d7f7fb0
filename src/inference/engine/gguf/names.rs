//! Maps tensor names of GGUF to Hugging Face's names, one table per family.

use super::{Gguf, Tensor};
use crate::inference::engine::LoadError;

/// Llama, Qwen 2 and Qwen 3, inside a layer.
const DECODER: [(&str, &str); 11] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// Mamba-1, inside a layer.
const MAMBA: [(&str, &str); 8] = [
    ("attn_norm", "norm"),
    ("ssm_in", "mixer.in_proj"),
    ("ssm_conv1d", "mixer.conv1d"),
    ("ssm_x", "mixer.x_proj"),
    ("ssm_dt", "mixer.dt_proj"),
    ("ssm_a", "mixer.A"),
    ("ssm_d", "mixer.D"),
    ("ssm_out", "mixer.out_proj"),
];

/// RoPE frequency factors of Llama 3: a setting, not a weight.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";

impl Gguf {
    /// The tensors under Hugging Face's names and dims. Unknown names are left unchanged.
    pub(in crate::inference::engine) fn tensors(&self) -> Result<Vec<Tensor>, LoadError> {
        let architecture = self.architecture()?;
        let mamba = architecture == "mamba";
        let heads = |key: &str| {
            let heads = self.number(&format!("{architecture}.attention.{key}"))?.unwrap_or(0) as usize;
            Ok::<_, LoadError>(heads)
        };
        let query_heads = heads("head_count")?;
        let key_heads = if self.keys.contains_key(&format!("{architecture}.attention.head_count_kv")) {
            heads("head_count_kv")?
        } else {
            query_heads
        };
        let tensors = self.tensors.iter().filter(|tensor| tensor.name != ROPE_FACTORS).cloned();
        let renamed = tensors.map(|mut tensor| {
            tensor.name = renamed(&tensor.name, mamba);
            if let ([channels, taps], true) = (tensor.dims.as_slice(), tensor.name.ends_with("conv1d.weight")) {
                tensor.dims = vec![*channels, 1, *taps];
            }
            if architecture == "llama" {
                let of = |part: &str| tensor.name.contains(part);
                let heads = match () {
                    () if of(".q_proj.") => Some(query_heads),
                    () if of(".k_proj.") => Some(key_heads),
                    () => None,
                };
                let rows = tensor.dims.first().copied().unwrap_or(0);
                if let Some(heads) = heads {
                    if heads == 0 || !rows.is_multiple_of(2 * heads) {
                        let why = format!("has {rows} rows, which is not a multiple of twice its {heads} heads");
                        return Err(LoadError::tensor(&tensor.name, why));
                    }
                    tensor.interleaved = Some(heads);
                }
            }
            Ok(tensor)
        });
        renamed.collect()
    }
}

fn renamed(name: &str, mamba: bool) -> String {
    let (outer, layers) = if mamba { ("backbone", &MAMBA[..]) } else { ("model", &DECODER[..]) };
    match name {
        "token_embd.weight" if mamba => return "backbone.embeddings.weight".to_owned(),
        "token_embd.weight" => return "model.embed_tokens.weight".to_owned(),
        "output_norm.weight" if mamba => return "backbone.norm_f.weight".to_owned(),
        "output_norm.weight" => return "model.norm.weight".to_owned(),
        "output.weight" => return "lm_head.weight".to_owned(),
        _ => {}
    }
    let parts = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    let known = parts.and_then(|(layer, rest)| {
        let (part, kind) = rest.split_once('.').map_or((rest, None), |(part, kind)| (part, Some(kind)));
        let (_, ours) = layers.iter().find(|(theirs, _)| *theirs == part)?;
        let kind = kind.map_or(String::new(), |kind| format!(".{kind}"));
        Some(format!("{outer}.layers.{layer}.{ours}{kind}"))
    });
    known.unwrap_or_else(|| name.to_owned())
}
