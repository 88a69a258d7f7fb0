//! Converts a GGUF file's keys to `config.json` and `generation_config.json`.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use serde_json::{Map, Value as Json, json};

use super::names::ROPE_FACTORS;
use super::{Gguf, LoadError};

/// Constants that all Llama 3 models share; files contain only the factors computed from them.
const LLAMA3_LOW: f64 = 1.0;
const LLAMA3_HIGH: f64 = 4.0;
const LLAMA3_CONTEXT: f64 = 8192.0;

impl Gguf {
    /// `general.architecture`.
    pub(super) fn architecture(&self) -> Result<&str, LoadError> {
        let key = "general.architecture";
        self.need(key, self.text(key)?)
    }

    /// The architecture and its dimensions, as `config.json`.
    pub(in crate::inference::engine) fn config(&self) -> Result<String, LoadError> {
        let architecture = self.architecture()?;
        let key = |name: &str| format!("{architecture}.{name}");
        let mut config = Map::new();
        let mut set = |name: &str, value: Option<Json>| {
            if let Some(value) = value {
                config.insert(name.to_owned(), value);
            }
        };
        let number = |name: &str| self.number(&key(name)).map(|number| number.map(Json::from));
        let float = |name: &str| self.float(&key(name)).map(|number| number.map(Json::from));
        set("model_type", Some(architecture.into()));
        let embedding = self.tensors.iter().find(|tensor| tensor.name == "token_embd.weight");
        let vocabulary = embedding.and_then(|tensor| tensor.dims.first().copied());
        set("vocab_size", Some(self.need("token_embd.weight", vocabulary)?.into()));
        set("hidden_size", number("embedding_length")?);
        set("num_hidden_layers", number("block_count")?);
        set("tie_word_embeddings", Some((!self.tensors.iter().any(|tensor| tensor.name == "output.weight")).into()));
        set("bos_token_id", self.number("tokenizer.ggml.bos_token_id")?.map(Json::from));
        set("eos_token_id", self.number("tokenizer.ggml.eos_token_id")?.map(Json::from));
        let epsilon = float("attention.layer_norm_rms_epsilon")?;
        if architecture == "mamba" {
            if self.flag(&key("ssm.dt_b_c_rms"))? == Some(true) {
                return Err(self.malformed("it is a Mamba with norms on Δ, B and C; give its safetensors instead"));
            }
            let (width, inner) = (key("embedding_length"), key("ssm.inner_size"));
            let inner = self.need(&inner, self.number(&inner)?)? as f64;
            set("expand", Some((inner / self.need(&width, self.number(&width)?)?.max(1) as f64).into()));
            set("state_size", number("ssm.state_size")?);
            set("conv_kernel", number("ssm.conv_kernel")?);
            set("time_step_rank", number("ssm.time_step_rank")?);
            set("layer_norm_epsilon", epsilon);
            set("use_bias", Some(self.tensors.iter().any(|t| t.name.ends_with("ssm_in.bias")).into()));
            set("use_conv_bias", Some(self.tensors.iter().any(|t| t.name.ends_with("ssm_conv1d.bias")).into()));
        } else {
            set("max_position_embeddings", number("context_length")?);
            set("intermediate_size", number("feed_forward_length")?);
            set("num_attention_heads", number("attention.head_count")?);
            set("num_key_value_heads", number("attention.head_count_kv")?.or(number("attention.head_count")?));
            set("head_dim", number("attention.key_length")?);
            set("rms_norm_eps", epsilon);
            set("rope_theta", float("rope.freq_base")?);
            set("hidden_act", Some("silu".into()));
            set("attention_bias", Some(self.tensors.iter().any(|t| t.name.ends_with("attn_q.bias")).into()));
            set("rope_scaling", self.rope_scaling(&key("rope.scaling"))?);
        }
        Ok(Json::Object(config).to_string())
    }

    /// The end tokens, as `generation_config.json`.
    pub(in crate::inference::engine) fn generation_config(&self) -> Result<String, LoadError> {
        let mut ends = Vec::new();
        for key in ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"] {
            ends.extend(self.number(key)?);
        }
        Ok(if ends.is_empty() { json!({}) } else { json!({ "eos_token_id": ends }) }.to_string())
    }

    fn rope_scaling(&self, key: &str) -> Result<Option<Json>, LoadError> {
        if let Some(factors) = &self.rope_factors {
            return self.llama3(factors).map(Some);
        }
        let kind = self.text(&format!("{key}.type"))?;
        let factor = self.float(&format!("{key}.factor"))?;
        Ok(match kind {
            None | Some("none") => None,
            Some(kind) => Some(json!({ "rope_type": kind, "factor": factor })),
        })
    }

    /// The parameters of Llama 3's RoPE scaling, reconstructed from its factors. The largest factor is the scaling
    /// factor.
    fn llama3(&self, factors: &[f32]) -> Result<Json, LoadError> {
        let factor = factors.iter().copied().fold(1.0f32, f32::max);
        let base = self.float("llama.rope.freq_base")?.unwrap_or(10_000.0);
        let width = 2.0 * factors.len() as f64;
        let fits = factors.iter().enumerate().all(|(at, &given)| {
            let wavelength = std::f64::consts::TAU * libm::pow(base, 2.0 * at as f64 / width);
            let smooth = (LLAMA3_CONTEXT / wavelength - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW);
            let smooth = smooth.clamp(0.0, 1.0);
            let expected = 1.0 / ((1.0 - smooth) / f64::from(factor) + smooth);
            (f64::from(given) - expected).abs() <= 1e-3 * expected
        });
        if !fits {
            return Err(self.malformed(format!("`{ROPE_FACTORS}` holds factors that are not a Llama 3's")));
        }
        Ok(json!({
            "rope_type": "llama3", "factor": factor, "low_freq_factor": LLAMA3_LOW, "high_freq_factor": LLAMA3_HIGH,
            "original_max_position_embeddings": LLAMA3_CONTEXT as u64,
        }))
    }

    /// Reads the frequency factors, if the file has them.
    pub(super) fn read_rope_factors(&mut self, mut file: &File) -> Result<(), LoadError> {
        let Some(tensor) = self.tensors.iter().find(|tensor| tensor.name == ROPE_FACTORS) else { return Ok(()) };
        let mut bytes = Vec::new();
        let read = file.seek(SeekFrom::Start(tensor.begin));
        let read = read.and_then(|_| file.take(tensor.bytes as u64).read_to_end(&mut bytes));
        read.map_err(|error| LoadError::read(&self.file, error))?;
        let factors = tensor.stored.widen(&bytes, &tensor.dims).map_err(|error| self.malformed(error))?;
        self.rope_factors = Some(factors);
        Ok(())
    }
}
