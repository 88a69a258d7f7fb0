//! Sizes of a model, from its `config.json` or GGUF header alone: parameters, and the memory for weights and sequences.
//! Does not check whether the engine supports the model.

use std::path::Path;

use loom_kernels::Dtype;
use serde::{Deserialize, Serialize};

use super::error::LoadError;
use super::gguf::Gguf;
use super::models::{gguf_format, parse_candle_size, parse_size, standard_json};
use super::options::Provider;
use super::tensors::MatrixCount;

const FILE: &str = "config.json";
/// States and caches are f32.
const STATE_BYTES: u64 = 4;

/// The properties that determine how much memory a model takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelShape {
    /// Its `model_type`.
    pub architecture: String,
    /// Number of layers.
    pub layers: usize,
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Longest sequence in tokens; `None` if there is no limit.
    pub window_tokens: Option<usize>,
    /// Number of parameters; a head that is the embedding table counts once.
    pub parameters: u64,
    /// Parameters in matrices, which can be stored in narrower types.
    pub matrix_parameters: u64,
    /// The matrices by role and row length.
    #[serde(skip)]
    matrices: Vec<MatrixCount>,
    /// Bytes of a recurrent state per sequence, independent of its length.
    pub state_bytes: u64,
    /// Bytes of KV cache per token of a sequence.
    pub cache_bytes_per_token: u64,
    /// The type of matrices in its files, if the configuration states it; used if no dtype is requested.
    #[serde(skip)]
    pub stored: Option<Dtype>,
    /// Whose implementation of the network this is about.
    #[serde(skip_serializing_if = "is_native")]
    pub provider: Provider,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde takes")]
fn is_native(provider: &Provider) -> bool {
    *provider == Provider::Native
}

/// The fields that do not depend on the family.
#[derive(Deserialize)]
struct Common {
    #[serde(alias = "torch_dtype")]
    dtype: Option<String>,
}

impl ModelShape {
    /// Whether its state has a fixed size, independent of the number of tokens.
    pub fn is_recurrent(&self) -> bool {
        self.state_bytes > 0
    }

    /// Parses the text of a `config.json`.
    ///
    /// # Errors
    /// If it is not a configuration, or its architecture or a setting of it is not supported.
    pub fn parse(json: &str) -> Result<Self, LoadError> {
        Self::parse_for(json, Provider::Native)
    }

    /// Like [`parse`](Self::parse), for the network of `provider`.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_for(json: &str, provider: Provider) -> Result<Self, LoadError> {
        let json = standard_json(json);
        let (architecture, size) = match provider {
            Provider::Native => parse_size(&json)?,
            Provider::Candle => parse_candle_size(&json)?,
        };
        let common: Common = serde_json::from_str(&json).map_err(|error| LoadError::malformed(FILE, error))?;
        let matrices = size.parameters.matrices;
        let in_matrices = matrices.iter().fold(0u64, |sum, matrix| sum.saturating_add(matrix.parameters));
        let bytes = |numbers: u64| numbers.saturating_mul(STATE_BYTES);
        Ok(Self {
            architecture,
            layers: size.layers,
            vocabulary: size.vocabulary,
            window_tokens: size.window,
            parameters: in_matrices.saturating_add(size.parameters.vectors),
            matrix_parameters: in_matrices,
            matrices,
            state_bytes: bytes(size.memory.state),
            cache_bytes_per_token: bytes(size.memory.cache_per_token),
            provider,
            stored: match common.dtype.as_deref() {
                _ if provider == Provider::Candle => Some(Dtype::F32),
                Some("bfloat16") => Some(Dtype::Bf16),
                Some("float32" | "float16") => Some(Dtype::F32),
                _ => None,
            },
        })
    }

    /// Reads the header of a GGUF file.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and if it is not a GGUF file.
    pub fn of_gguf(path: &Path) -> Result<Self, LoadError> {
        let (gguf, _) = Gguf::open(path)?;
        let (model_type, format) = gguf_format(gguf.architecture()?)?;
        let config = gguf.config(model_type, format.config)?;
        Ok(Self { stored: gguf.stored_dtype(), ..Self::parse(&config)? })
    }

    /// Bytes of the weights if `dtype` is requested. Small and sensitive matrices are stored in wider types.
    pub fn weight_bytes(&self, dtype: Dtype) -> u64 {
        let matrices = self.matrices.iter().fold(0u64, |sum, &MatrixCount { role, inputs, parameters }| {
            let stored_dtype = role.stored_dtype(dtype, inputs as usize);
            sum.saturating_add(
                (parameters / stored_dtype.block() as u64).saturating_mul(stored_dtype.block_bytes() as u64),
            )
        });
        matrices.saturating_add((self.parameters - self.matrix_parameters).saturating_mul(4))
    }

    /// Bytes that one sequence of `tokens` tokens takes.
    pub fn sequence_bytes(&self, tokens: u64) -> u64 {
        self.state_bytes.saturating_add(self.cache_bytes_per_token.saturating_mul(tokens))
    }

    /// Returns an error with the sizes if weights stored as `dtype` and one sequence of `tokens` tokens exceed
    /// `available` bytes.
    ///
    /// # Errors
    /// [`LoadError::Start`].
    pub fn fits(&self, dtype: Dtype, tokens: u64, available: u64) -> Result<(), LoadError> {
        let (weights, sequence) = (self.weight_bytes(dtype), self.sequence_bytes(tokens));
        if weights.saturating_add(sequence) <= available {
            return Ok(());
        }
        Err(LoadError::Start(format!(
            "it needs {} ({} for {} parameters as {}, {} for a sequence of {tokens} tokens), but only {} are free; choose a smaller \
             model, or free memory",
            size(weights.saturating_add(sequence)),
            size(weights),
            self.parameters,
            dtype.name(),
            size(sequence),
            size(available)
        )))
    }
}

/// A human-readable size.
pub fn size(bytes: u64) -> String {
    let (mega, giga) = (1u64 << 20, 1u64 << 30);
    match bytes {
        _ if bytes >= giga => format!("{:.2} GiB", bytes as f64 / giga as f64),
        _ if bytes >= mega => format!("{:.1} MiB", bytes as f64 / mega as f64),
        _ => format!("{:.1} KiB", bytes as f64 / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::foundation::base::limits::MODEL_DIM_MAX;

    #[test]
    fn parameter_counts_equal_those_of_transformers() {
        let shapes: serde_json::Map<String, Value> =
            serde_json::from_str(include_str!("../../../tests/data/model_shapes.json")).unwrap();
        assert!(shapes.len() >= 14);
        for (name, known) in shapes {
            let shape = ModelShape::parse(&known["config"].to_string()).unwrap();
            assert_eq!(Value::from(shape.parameters), known["parameters"], "{name}");
        }
    }

    #[test]
    fn python_only_numbers_are_accepted() {
        // As Mamba-2's files are published.
        let json = r#"{"model_type": "mamba2", "vocab_size": 8, "hidden_size": 4, "num_hidden_layers": 1, "num_heads": 2,
            "head_dim": 4, "n_groups": 1, "time_step_limit": [0.0, Infinity]}"#;
        assert_eq!(ModelShape::parse(json).unwrap().layers, 1);
    }

    #[test]
    fn memory_follows_from_the_dims() {
        let json = r#"{"model_type": "llama", "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 5632,
            "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4, "tie_word_embeddings": false}"#;
        let shape = ModelShape::parse(json).unwrap();
        // 22 layers, keys and values, 4 heads of 64, f32.
        assert_eq!(shape.sequence_bytes(1000), 1000 * 22 * 2 * 4 * 64 * 4);
        let vectors = 45 * 2048;
        assert_eq!(shape.weight_bytes(Dtype::F32), shape.parameters * 4);
        assert_eq!(shape.weight_bytes(Dtype::Bf16), (shape.parameters - vectors) * 2 + vectors * 4);
        // Table and head are kept as `q8_0`.
        let tables = 2 * 32000 * 2048;
        let layers = shape.parameters - vectors - tables;
        assert_eq!(shape.weight_bytes(Dtype::Q4K), layers / 256 * 144 + tables / 32 * 34 + vectors * 4);
        let why = shape.fits(Dtype::F32, 2048, 1 << 30).unwrap_err().to_string();
        assert!(
            why.contains("1.00 GiB are free") && why.contains("4.10 GiB for 1100048384 parameters as f32"),
            "{why}"
        );
        assert!(shape.fits(Dtype::Q8_0, 0, 2 << 30).is_ok());
        // Rows of 896 are no whole blocks of 256; those of 4864 (`down_proj`) are.
        let json = r#"{"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864,
            "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": true}"#;
        let shape = ModelShape::parse(json).unwrap();
        let down = 24 * 896 * 4864;
        let narrower = shape.weight_bytes(Dtype::Q8_0) - shape.weight_bytes(Dtype::Q4K);
        assert_eq!(narrower, down / 32 * 34 - down / 256 * 144);
    }

    #[test]
    fn extreme_dims_are_refused_and_never_overflow() {
        let with = |dims: &str| format!(r#"{{"model_type": "mamba", "num_hidden_layers": 1, {dims}}}"#);
        for dims in [r#""vocab_size": 0, "hidden_size": 8"#, r#""vocab_size": 1, "hidden_size": 18446744073709551615"#]
        {
            assert!(ModelShape::parse(&with(dims)).unwrap_err().to_string().contains("must be in 1..="));
        }
        let most = MODEL_DIM_MAX;
        let llama = |heads: usize, head_dim: usize| {
            ModelShape::parse(&format!(
                r#"{{"model_type": "llama", "num_hidden_layers": {most}, "vocab_size": {most}, "hidden_size": {most},
                "intermediate_size": {most}, "num_attention_heads": {heads}, "head_dim": {head_dim}}}"#
            ))
        };
        assert!(llama(most / 2, 2).unwrap().weight_bytes(Dtype::F32) > 1 << 63);
        let why = llama(most, most).unwrap_err().to_string();
        assert!(why.contains("`num_attention_heads × head_dim` is"), "{why}");
        assert!(
            ModelShape::parse(r#"{"model_type": "gpt2", "vocab_size": 1, "hidden_size": 1, "num_hidden_layers": 1}"#)
                .is_err()
        );
    }
}
