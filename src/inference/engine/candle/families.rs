//! The families that are read through candle. To add one, add an entry: its fields with the defaults of `transformers`, the
//! settings that candle assumes, and calls of its constructor and its forward pass.

use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models;
use serde_json::{Map, Value as Json, json};

use super::super::error::LoadError;
use super::super::network::SequenceMemory;
use super::Reader;
use super::fields::{Expected, Fields};

/// A family of candle-transformers.
pub(super) struct CandleFamily {
    model_type: &'static str,
    pub(super) expected: Expected,
    /// Its mask is right for several tokens after cached ones.
    pub(super) reads_on: bool,
    /// The name in the files of a tensor that candle asks for.
    pub(super) name: fn(&str) -> String,
    /// The embedding table's name in the files.
    pub(super) table: &'static str,
    pub(super) memory: fn(&Fields) -> SequenceMemory,
    pub(super) build: fn(&Fields, VarBuilder<'static>) -> Result<Box<dyn Reader>>,
}

/// What most decoders expect.
const EXPECTED: Expected = Expected {
    defaults: Map::new,
    fixed: Map::new,
    scalings: &[],
    dims: &[
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
    ],
    own_head_dim: false,
};

/// What most decoders have in common.
const DECODER: CandleFamily = CandleFamily {
    model_type: "",
    expected: EXPECTED,
    reads_on: true,
    name: str::to_owned,
    table: "model.embed_tokens.weight",
    memory: |fields| SequenceMemory { state: 0, cache_per_token: fields.cache_per_token() },
    build: |_, _| candle_core::bail!("no network"),
};

const FAMILIES: &[CandleFamily] = &[
    CandleFamily {
        model_type: "stablelm",
        expected: Expected {
            defaults: || {
                object(json!({
                    "hidden_act": "silu", "partial_rotary_factor": 0.25, "rope_theta": 1e4, "layer_norm_eps": 1e-5,
                    "use_qkv_bias": false, "use_cache": true, "max_position_embeddings": 4096,
                }))
            },
            // Without its cache, candle's network reads every token as the first.
            fixed: || object(json!({"use_parallel_residual": false, "qk_layernorm": false, "use_cache": true})),
            ..EXPECTED
        },
        build: |fields, builder| {
            let model = models::stable_lm::Model::new(&fields.to()?, builder)?;
            Ok(Box::new(Sole { model, read: |model, ids, position| model.forward(ids, position) }))
        },
        ..DECODER
    },
    CandleFamily {
        model_type: "starcoder2",
        expected: Expected {
            defaults: || {
                object(json!({
                    "hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "rope_theta": 1e4, "use_bias": true,
                    "tie_word_embeddings": true, "max_position_embeddings": 4096,
                }))
            },
            fixed: || object(json!({"tie_word_embeddings": true})),
            ..EXPECTED
        },
        build: |fields, builder| {
            let model = models::starcoder2::Model::new(&fields.to()?, builder)?;
            Ok(copied(model, models::starcoder2::Model::forward))
        },
        ..DECODER
    },
    CandleFamily {
        model_type: "glm4",
        expected: Expected {
            defaults: || {
                object(json!({
                    "hidden_act": "silu", "head_dim": 128, "partial_rotary_factor": 0.5, "rope_theta": 1e4,
                    "rms_norm_eps": 1.5625e-7, "attention_bias": false, "tie_word_embeddings": false,
                    "max_position_embeddings": 131_072,
                }))
            },
            own_head_dim: true,
            ..EXPECTED
        },
        build: |fields, builder| {
            let model = models::glm4_new::ModelForCausalLM::new(&fields.to()?, builder)?;
            Ok(aliased(model, models::glm4_new::ModelForCausalLM::forward))
        },
        ..DECODER
    },
    CandleFamily {
        model_type: "phi",
        expected: Expected {
            defaults: || {
                object(json!({
                    "hidden_act": "gelu_new", "partial_rotary_factor": 0.5, "rope_theta": 1e4, "layer_norm_eps": 1e-5,
                    "tie_word_embeddings": false, "qk_layernorm": false, "max_position_embeddings": 2048,
                }))
            },
            fixed: || object(json!({"qk_layernorm": false})),
            ..EXPECTED
        },
        reads_on: false,
        build: |fields, builder| {
            let model = models::phi::Model::new(&fields.to()?, builder)?;
            Ok(copied(model, |model, ids, _| model.forward(ids)))
        },
        ..DECODER
    },
    CandleFamily {
        model_type: "olmo",
        expected: Expected {
            defaults: || {
                object(json!({
                    "hidden_act": "silu", "rope_theta": 1e4, "attention_bias": false, "tie_word_embeddings": false,
                    "max_position_embeddings": 2048,
                }))
            },
            ..EXPECTED
        },
        build: |fields, builder| {
            let model = models::olmo::Model::new(&fields.to()?, builder)?;
            Ok(copied(model, models::olmo::Model::forward))
        },
        ..DECODER
    },
    CandleFamily {
        model_type: "gemma",
        expected: Expected {
            // Older files state `gelu` in `hidden_act`; every published Gemma uses the approximation by tanh.
            defaults: || {
                object(json!({
                    "hidden_activation": "gelu_pytorch_tanh", "head_dim": 256, "rope_theta": 1e4, "rms_norm_eps": 1e-6,
                    "attention_bias": false, "tie_word_embeddings": true, "max_position_embeddings": 8192,
                }))
            },
            fixed: || object(json!({"tie_word_embeddings": true})),
            own_head_dim: true,
            ..EXPECTED
        },
        build: |fields, builder| {
            let mut config: models::gemma::Config = fields.to()?;
            config.hidden_act = None;
            let model = models::gemma::Model::new(false, &config, builder)?;
            Ok(copied(model, models::gemma::Model::forward))
        },
        ..DECODER
    },
    // Families that are native, too.
    CandleFamily {
        model_type: "llama",
        expected: Expected {
            defaults: || {
                object(json!({
                    "rope_theta": 1e4, "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "max_position_embeddings": 2048,
                }))
            },
            fixed: || object(json!({"hidden_act": "silu", "attention_bias": false, "mlp_bias": false})),
            scalings: &["llama3"],
            ..EXPECTED
        },
        build: |fields, builder| {
            let config = fields.to::<models::llama::LlamaConfig>()?.into_config(false);
            let cache = models::llama::Cache::new(true, DType::F32, &config, &Device::Cpu)?;
            let model = Arc::new(models::llama::Llama::load(builder, &config)?);
            Ok(copied((model, cache), |(model, cache), ids, position| model.forward(ids, position, cache)))
        },
        ..DECODER
    },
    CandleFamily {
        model_type: "qwen2",
        expected: Expected {
            defaults: || {
                object(json!({
                    "hidden_act": "silu", "rope_theta": 1e4, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
                    "use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28,
                    "max_position_embeddings": 32_768,
                }))
            },
            ..EXPECTED
        },
        build: |fields, builder| {
            let model = models::qwen2::ModelForCausalLM::new(&fields.to()?, builder)?;
            Ok(copied(model, models::qwen2::ModelForCausalLM::forward))
        },
        ..DECODER
    },
    CandleFamily {
        model_type: "qwen3",
        expected: Expected {
            defaults: || {
                object(json!({
                    "hidden_act": "silu", "head_dim": 128, "rope_theta": 1e4, "rms_norm_eps": 1e-6,
                    "attention_bias": false, "tie_word_embeddings": false, "use_sliding_window": false,
                    "max_window_layers": 28, "max_position_embeddings": 32_768,
                }))
            },
            own_head_dim: true,
            ..EXPECTED
        },
        build: |fields, builder| {
            let model = models::qwen3::ModelForCausalLM::new(&fields.to()?, builder)?;
            Ok(copied(model, models::qwen3::ModelForCausalLM::forward))
        },
        ..DECODER
    },
    CandleFamily {
        model_type: "mistral",
        expected: Expected {
            defaults: || {
                object(json!({
                    "hidden_act": "silu", "rope_theta": 1e4, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
                    "max_position_embeddings": 131_072,
                }))
            },
            own_head_dim: true,
            ..EXPECTED
        },
        build: |fields, builder| {
            let model = models::mistral::Model::new(&fields.to()?, builder)?;
            Ok(copied(model, models::mistral::Model::forward))
        },
        ..DECODER
    },
    CandleFamily {
        model_type: "gemma2",
        expected: Expected {
            defaults: || {
                object(json!({
                    "hidden_activation": "gelu_pytorch_tanh", "head_dim": 256, "rope_theta": 1e4, "rms_norm_eps": 1e-6,
                    "attention_bias": false, "tie_word_embeddings": true, "max_position_embeddings": 8192,
                    "query_pre_attn_scalar": 256, "sliding_window": 4096, "final_logit_softcapping": 30.0,
                    "attn_logit_softcapping": 50.0,
                }))
            },
            fixed: || object(json!({"tie_word_embeddings": true})),
            own_head_dim: true,
            ..EXPECTED
        },
        build: |fields, builder| {
            let model = models::gemma2::Model::new(false, &fields.to()?, builder)?;
            Ok(copied(model, models::gemma2::Model::forward))
        },
        ..DECODER
    },
    CandleFamily {
        model_type: "phi3",
        expected: Expected {
            defaults: || {
                object(json!({
                    "hidden_act": "silu", "rope_theta": 1e4, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
                    "max_position_embeddings": 4096,
                }))
            },
            ..EXPECTED
        },
        // Candle multiplies where LongRoPE divides, so that `longrope` is refused.
        build: |fields, builder| {
            let model = models::phi3::Model::new(&fields.to()?, builder)?;
            Ok(copied(model, models::phi3::Model::forward))
        },
        ..DECODER
    },
    CandleFamily {
        model_type: "olmo2",
        expected: Expected {
            defaults: || {
                object(json!({
                    "hidden_act": "silu", "rope_theta": 1e4, "rms_norm_eps": 1e-5, "attention_bias": false,
                    "tie_word_embeddings": false, "max_position_embeddings": 2048,
                }))
            },
            ..EXPECTED
        },
        build: |fields, builder| {
            let model = models::olmo2::Model::new(&fields.to()?, builder)?;
            Ok(copied(model, models::olmo2::Model::forward))
        },
        ..DECODER
    },
    CandleFamily {
        model_type: "smollm3",
        expected: Expected {
            defaults: || {
                object(json!({
                    "hidden_act": "silu", "rope_theta": 2e6, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
                    "no_rope_layer_interval": 4, "use_sliding_window": false, "max_position_embeddings": 32_768,
                }))
            },
            ..EXPECTED
        },
        build: |fields, builder| {
            let model = models::smol::smollm3::ModelForCausalLM::new(&fields.to()?, builder)?;
            Ok(aliased(model, models::smol::smollm3::ModelForCausalLM::forward))
        },
        ..DECODER
    },
    CandleFamily {
        model_type: "mamba",
        expected: Expected {
            defaults: || object(json!({"tie_word_embeddings": true, "expand": 2})),
            fixed: || {
                object(json!({
                    "state_size": 16, "conv_kernel": 4, "expand": 2, "use_bias": false, "use_conv_bias": true,
                    "hidden_act": "silu", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true,
                }))
            },
            dims: &["vocab_size", "hidden_size", "num_hidden_layers"],
            ..EXPECTED
        },
        name: |name| match name {
            "embedding.weight" => "backbone.embeddings.weight".to_owned(),
            name => format!("backbone.{name}"),
        },
        table: "backbone.embeddings.weight",
        // The last four inputs of the convolution, and 16 states, for each channel.
        memory: |fields| {
            let channels = (fields.layers() as u64).saturating_mul(2 * fields.width() as u64);
            SequenceMemory { state: channels.saturating_mul(20), cache_per_token: 0 }
        },
        build: |fields, builder| {
            let config = models::mamba::Config {
                d_model: fields.width(),
                n_layer: fields.layers(),
                vocab_size: fields.vocabulary(),
                pad_vocab_size_multiple: 1,
            };
            let state = models::mamba::State::new(1, &config, DType::F32, &Device::Cpu)?;
            Ok(Box::new(Mamba { model: Arc::new(models::mamba::Model::new(&config, builder)?), state }))
        },
        ..DECODER
    },
];

/// The fields of an object.
fn object(json: Json) -> Map<String, Json> {
    match json {
        Json::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Whether candle has the family.
pub(in super::super) fn has(model_type: &str) -> bool {
    FAMILIES.iter().any(|family| family.model_type == model_type)
}

/// The family of a `model_type`.
pub(super) fn find(model_type: &str) -> std::result::Result<&'static CandleFamily, LoadError> {
    let supported = || FAMILIES.iter().map(|family| format!("`{}`", family.model_type)).collect::<Vec<_>>().join(", ");
    FAMILIES.iter().find(|family| family.model_type == model_type).ok_or_else(|| LoadError::Unsupported {
        what: format!("the architecture `{model_type}` through candle"),
        supported: supported(),
    })
}

/// The call of a network's forward pass: ids, `[1, tokens]`, after so many tokens.
type Forward<M> = fn(&mut M, &Tensor, usize) -> Result<Tensor>;

/// A network whose clones have caches of their own.
struct Copied<M> {
    model: M,
    read: Forward<M>,
}

fn copied<M: Clone + Send + Sync + 'static>(model: M, read: Forward<M>) -> Box<dyn Reader> {
    Box::new(Copied { model, read })
}

impl<M: Clone + Send + Sync + 'static> Reader for Copied<M> {
    fn read(&mut self, ids: &Tensor, position: usize) -> Result<Tensor> {
        (self.read)(&mut self.model, ids, position)
    }

    fn copy(&self) -> Option<Box<dyn Reader>> {
        Some(Box::new(Self { model: self.model.clone(), read: self.read }))
    }
}

/// A network whose clones share a cache as soon as it holds something.
struct Aliased<M> {
    model: M,
    read: Forward<M>,
    is_empty: bool,
}

fn aliased<M: Clone + Send + Sync + 'static>(model: M, read: Forward<M>) -> Box<dyn Reader> {
    Box::new(Aliased { model, read, is_empty: true })
}

impl<M: Clone + Send + Sync + 'static> Reader for Aliased<M> {
    fn read(&mut self, ids: &Tensor, position: usize) -> Result<Tensor> {
        self.is_empty = false;
        (self.read)(&mut self.model, ids, position)
    }

    fn copy(&self) -> Option<Box<dyn Reader>> {
        self.is_empty.then(|| Box::new(Self { model: self.model.clone(), ..*self }) as Box<dyn Reader>)
    }
}

/// A network that cannot be cloned.
struct Sole<M> {
    model: M,
    read: Forward<M>,
}

impl<M: Send + Sync + 'static> Reader for Sole<M> {
    fn read(&mut self, ids: &Tensor, position: usize) -> Result<Tensor> {
        (self.read)(&mut self.model, ids, position)
    }

    fn copy(&self) -> Option<Box<dyn Reader>> {
        None
    }
}

/// Mamba, whose forward pass reads one token of every sequence. Its state holds one position, for one sequence here.
struct Mamba {
    model: Arc<models::mamba::Model>,
    state: models::mamba::State,
}

impl Reader for Mamba {
    fn read(&mut self, ids: &Tensor, _: usize) -> Result<Tensor> {
        let mut logits = None;
        for id in ids.flatten_all()?.to_vec1::<u32>()? {
            logits = Some(self.model.forward(&Tensor::new(&[id], &Device::Cpu)?, &mut self.state)?);
        }
        logits.ok_or_else(|| candle_core::Error::Msg("there is nothing to read".to_owned()))
    }

    fn copy(&self) -> Option<Box<dyn Reader>> {
        let models::mamba::State { hs, prev_xs, pos } = &self.state;
        // A pass replaces tensors and changes none.
        let state = models::mamba::State { hs: hs.clone(), prev_xs: prev_xs.clone(), pos: *pos };
        Some(Box::new(Self { model: Arc::clone(&self.model), state }))
    }
}
