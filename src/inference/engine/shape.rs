//! Sizes of a model, from its `config.json` or GGUF header alone: parameters, and the memory for weights and sequences.
//! Does not check whether the engine supports the model.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use loom_kernels::Dtype;

use super::LoadError;
use super::config::{SUPPORTED_WITH_EMBEDDERS, standard_json};
use super::gguf::Gguf;
use super::matrix_role::MatrixRole;
use crate::foundation::base::limits::MODEL_DIM_MAX;

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
    /// Longest sequence in tokens, if the configuration states it.
    pub window_tokens: Option<usize>,
    /// Number of parameters; a head that is the embedding table counts once.
    pub parameters: u64,
    /// Parameters in matrices, which can be stored in narrower types.
    pub matrix_parameters: u64,
    /// The matrices by role and row length.
    #[serde(skip)]
    matrices: Vec<Matrices>,
    /// Bytes of a recurrent state per sequence, independent of its length.
    pub state_bytes: u64,
    /// Bytes of KV cache per token of a sequence.
    pub cache_bytes_per_token: u64,
    /// The type of matrices in its files, if the configuration states it; used if no dtype is requested.
    #[serde(skip)]
    pub stored: Option<Dtype>,
}

/// Number of parameters in matrices of one role and row length.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Matrices {
    role: MatrixRole,
    inputs: u64,
    parameters: u64,
}

/// The fields of all architectures, named as in `transformers`.
#[derive(Deserialize)]
struct Raw {
    model_type: Option<String>,
    vocab_size: u64,
    hidden_size: u64,
    num_hidden_layers: u64,
    intermediate_size: Option<u64>,
    max_position_embeddings: Option<u64>,
    tie_word_embeddings: Option<bool>,
    num_attention_heads: Option<u64>,
    num_key_value_heads: Option<u64>,
    head_dim: Option<u64>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    type_vocab_size: Option<u64>,
    expand: Option<f64>,
    state_size: Option<u64>,
    conv_kernel: Option<u64>,
    time_step_rank: Option<Rank>,
    use_bias: Option<bool>,
    use_conv_bias: Option<bool>,
    #[serde(alias = "torch_dtype")]
    dtype: Option<String>,
    num_heads: Option<u64>,
    n_groups: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Rank {
    Number(u64),
    Named(String),
}

/// Parameters of a network, in matrices and in vectors.
#[derive(Default)]
struct Count {
    matrices: Vec<Matrices>,
    vectors: u64,
}

impl Count {
    fn matrix(&mut self, outputs: u64, inputs: u64) -> &mut Self {
        self.matrix_for(MatrixRole::Layer, outputs, inputs)
    }

    fn matrix_for(&mut self, role: MatrixRole, outputs: u64, inputs: u64) -> &mut Self {
        self.matrices.push(Matrices { role, inputs, parameters: outputs.saturating_mul(inputs) });
        self
    }

    fn vector(&mut self, length: u64) -> &mut Self {
        self.vectors = self.vectors.saturating_add(length);
        self
    }

    fn vector_if(&mut self, there: bool, length: u64) -> &mut Self {
        if there { self.vector(length) } else { self }
    }

    fn times(mut self, layers: u64) -> Self {
        for matrices in &mut self.matrices {
            matrices.parameters = matrices.parameters.saturating_mul(layers);
        }
        self.vectors = self.vectors.saturating_mul(layers);
        self
    }
}

impl ModelShape {
    /// Whether its state has a fixed size, independent of the number of tokens.
    pub fn is_recurrent(&self) -> bool {
        self.state_bytes > 0
    }

    /// Parses the text of a `config.json`.
    ///
    /// # Errors
    /// If it is not a configuration, or of an unknown architecture.
    pub fn parse(json: &str) -> Result<Self, LoadError> {
        let raw: Raw = serde_json::from_str(&standard_json(json)).map_err(|error| LoadError::malformed(FILE, error))?;
        raw.check()?;
        let kind = raw.model_type.clone().unwrap_or_default();
        match kind.as_str() {
            "mamba" | "falcon_mamba" => raw.mamba(&kind),
            "mamba2" => raw.mamba2(&kind),
            "llama" | "qwen2" | "qwen3" => raw.decoder(&kind),
            "bert" => raw.bert(&kind),
            other => Err(LoadError::Unsupported {
                what: format!("the architecture `{other}`"),
                supported: SUPPORTED_WITH_EMBEDDERS,
            }),
        }
    }

    /// Reads the header of a GGUF file.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and if it is not a GGUF file.
    pub fn of_gguf(path: &Path) -> Result<Self, LoadError> {
        let (gguf, _) = Gguf::open(path)?;
        let mut stored_dtype = BTreeMap::<Dtype, usize>::new();
        for tensor in gguf.tensors()? {
            *stored_dtype.entry(tensor.stored.kernel_dtype()).or_default() += tensor.bytes;
        }
        let stored = stored_dtype.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(dtype, _)| dtype);
        Ok(Self { stored, ..Self::parse(&gguf.config()?)? })
    }

    /// Bytes of the weights if `dtype` is requested. Small and sensitive matrices are stored in wider types.
    pub fn weight_bytes(&self, dtype: Dtype) -> u64 {
        let matrices = self.matrices.iter().fold(0u64, |sum, &Matrices { role, inputs, parameters }| {
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

impl Raw {
    fn check(&self) -> Result<(), LoadError> {
        for (name, dim) in [
            ("vocab_size", Some(self.vocab_size)),
            ("hidden_size", Some(self.hidden_size)),
            ("num_hidden_layers", Some(self.num_hidden_layers)),
            ("intermediate_size", self.intermediate_size),
            ("max_position_embeddings", self.max_position_embeddings),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("head_dim", self.head_dim),
            ("type_vocab_size", self.type_vocab_size),
            ("state_size", self.state_size),
            ("conv_kernel", self.conv_kernel),
            ("num_heads", self.num_heads),
            ("n_groups", self.n_groups),
        ] {
            if dim.is_some_and(|dim| !(1..=MODEL_DIM_MAX as u64).contains(&dim)) {
                let why = format!("`{name}` must be in 1..={MODEL_DIM_MAX}");
                return Err(LoadError::malformed(FILE, why));
            }
        }
        Ok(())
    }

    fn needed(name: &str, value: Option<u64>) -> Result<u64, LoadError> {
        value.ok_or_else(|| LoadError::malformed(FILE, format!("`{name}` is missing")))
    }

    /// Width of a Mamba layer. An explicit width takes precedence: `expand` is wrong in some published files.
    fn d_inner(&self) -> u64 {
        let expand = self.expand.unwrap_or(2.0).clamp(0.0, 1024.0);
        self.intermediate_size.unwrap_or((expand * self.hidden_size as f64) as u64)
    }

    fn shape(&self, architecture: &str, layer: Count, around: Count, state: u64, cache: u64) -> ModelShape {
        let layers = layer.times(self.num_hidden_layers);
        let all: Vec<_> = layers.matrices.into_iter().chain(around.matrices).collect();
        let matrices = all.iter().fold(0u64, |sum, matrices| sum.saturating_add(matrices.parameters));
        let vectors = layers.vectors.saturating_add(around.vectors);
        let per_model = |values: u64| values.saturating_mul(self.num_hidden_layers).saturating_mul(STATE_BYTES);
        ModelShape {
            architecture: architecture.to_owned(),
            layers: self.num_hidden_layers as usize,
            vocabulary: self.vocab_size as usize,
            window_tokens: self.max_position_embeddings.map(|tokens| tokens as usize),
            parameters: matrices.saturating_add(vectors),
            matrix_parameters: matrices,
            matrices: all,
            state_bytes: per_model(state),
            cache_bytes_per_token: per_model(cache),
            stored: match self.dtype.as_deref() {
                Some("bfloat16") => Some(Dtype::Bf16),
                Some("float32" | "float16") => Some(Dtype::F32),
                _ => None,
            },
        }
    }

    /// Embedding table, final norm, and the head unless it is the table.
    fn around(&self, tied_by_default: bool) -> Count {
        let mut around = Count::default();
        around.matrix_for(MatrixRole::Table, self.vocab_size, self.hidden_size).vector(self.hidden_size);
        if !self.tie_word_embeddings.unwrap_or(tied_by_default) {
            around.matrix_for(MatrixRole::Table, self.vocab_size, self.hidden_size);
        }
        around
    }

    fn mamba(&self, kind: &str) -> Result<ModelShape, LoadError> {
        let (width, inner) = (self.hidden_size, self.d_inner());
        let (states, kernel) = (self.state_size.unwrap_or(16), self.conv_kernel.unwrap_or(4));
        let rank = match &self.time_step_rank {
            Some(Rank::Number(rank)) => *rank,
            Some(Rank::Named(name)) if name != "auto" => {
                return Err(LoadError::malformed(
                    FILE,
                    format!("`time_step_rank` \"{name}\" is neither a number nor \"auto\""),
                ));
            }
            _ => width.div_ceil(16),
        };
        let biased = self.use_bias.unwrap_or(false);
        let mut layer = Count::default();
        layer
            .matrix(2 * inner, width)
            .vector_if(biased, 2 * inner)
            .vector(inner * kernel)
            .vector_if(self.use_conv_bias.unwrap_or(true), inner)
            .matrix_for(MatrixRole::Sensitive, rank + 2 * states, inner)
            .matrix_for(MatrixRole::Sensitive, inner, rank)
            .vector(inner)
            .vector(inner * states)
            .vector(inner)
            .matrix(width, inner)
            .vector_if(biased, width)
            .vector(width);
        Ok(self.shape(kind, layer, self.around(true), inner * (states + kernel - 1), 0))
    }

    fn mamba2(&self, kind: &str) -> Result<ModelShape, LoadError> {
        let heads = Self::needed("num_heads", self.num_heads)?;
        let head = Self::needed("head_dim", self.head_dim)?;
        let (width, inner) = (self.hidden_size, heads * head);
        let (states, kernel) = (self.state_size.unwrap_or(128), self.conv_kernel.unwrap_or(4));
        let channels = inner + 2 * self.n_groups.unwrap_or(8) * states;
        let biased = self.use_bias.unwrap_or(false);
        let mut layer = Count::default();
        layer
            .matrix(inner + channels + heads, width)
            .vector_if(biased, inner + channels + heads)
            .vector(channels * kernel)
            .vector_if(self.use_conv_bias.unwrap_or(true), channels)
            .vector(3 * heads)
            .vector(inner)
            .matrix(width, inner)
            .vector_if(biased, width)
            .vector(width);
        Ok(self.shape(kind, layer, self.around(false), inner * states + channels * (kernel - 1), 0))
    }

    fn decoder(&self, kind: &str) -> Result<ModelShape, LoadError> {
        let width = self.hidden_size;
        let heads = Self::needed("num_attention_heads", self.num_attention_heads)?;
        let inner = Self::needed("intermediate_size", self.intermediate_size)?;
        let head = self.head_dim.unwrap_or(width / heads);
        let (queries, keys) = (heads * head, self.num_key_value_heads.unwrap_or(heads) * head);
        let biased = self.attention_bias.unwrap_or(false);
        let mut layer = Count::default();
        layer
            .matrix(queries + 2 * keys, width)
            .vector_if(biased || kind == "qwen2", queries + 2 * keys)
            .matrix(width, queries)
            .vector_if(biased && kind != "qwen2", width)
            .vector_if(kind == "qwen3", 2 * head)
            .matrix(2 * inner, width)
            .matrix(width, inner)
            .vector_if(self.mlp_bias.unwrap_or(false), 2 * inner + width)
            .vector(2 * width);
        Ok(self.shape(kind, layer, self.around(false), 0, 2 * keys))
    }

    fn bert(&self, kind: &str) -> Result<ModelShape, LoadError> {
        let width = self.hidden_size;
        let inner = Self::needed("intermediate_size", self.intermediate_size)?;
        let places = self.max_position_embeddings.unwrap_or(512) + self.type_vocab_size.unwrap_or(2);
        let mut layer = Count::default();
        layer.matrix(4 * width, width).matrix(inner, width).matrix(width, inner).vector(9 * width + inner);
        let mut around = Count::default();
        around
            .matrix_for(MatrixRole::Table, self.vocab_size + places, width)
            .vector(2 * width)
            .matrix(width, width)
            .vector(width);
        Ok(self.shape(kind, layer, around, 0, 0))
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
            "head_dim": 4, "time_step_limit": [0.0, Infinity]}"#;
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
        let largest = format!(
            r#"{{"model_type": "llama", "num_hidden_layers": {most}, "vocab_size": {most}, "hidden_size": {most},
            "intermediate_size": {most}, "num_attention_heads": {most}, "head_dim": {most}}}"#
        );
        assert!(ModelShape::parse(&largest).unwrap().weight_bytes(Dtype::F32) > 0);
        assert!(
            ModelShape::parse(r#"{"model_type": "gpt2", "vocab_size": 1, "hidden_size": 1, "num_hidden_layers": 1}"#)
                .is_err()
        );
    }
}
