//! The purpose of a matrix, as far as it determines the narrowest type that the matrix may be stored in.

use loom_kernels::Dtype;

/// The purpose of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MatrixRole {
    /// A matrix of a layer.
    Layer,
    /// A small matrix that determines Δ, B and C, or a router of experts: stored as f32 if the others are quantised.
    Sensitive,
    /// An embedding table or a head: stored as `q8_0` if the others are `q4_k`.
    Table,
}

impl MatrixRole {
    /// The role of the tensor `name` (in Hugging Face's naming).
    pub(super) fn of(name: &str) -> Self {
        let ends = |names: &[&str]| names.iter().any(|suffix| name.ends_with(suffix));
        if ends(&[".x_proj.weight", ".dt_proj.weight", ".mlp.gate.weight", ".router.layer.weight"]) {
            Self::Sensitive
        } else if ends(&["lm_head.weight", "embed_tokens.weight", "embeddings.weight", "embedding.weight"]) {
            Self::Table
        } else {
            Self::Layer
        }
    }

    /// The type in which a matrix with rows of `inputs` numbers is stored if `requested_dtype` is requested.
    pub(super) fn stored_dtype(self, requested_dtype: Dtype, inputs: usize) -> Dtype {
        let dtype = match (self, requested_dtype) {
            (Self::Sensitive, Dtype::Q8_0 | Dtype::Q4K) => Dtype::F32,
            (Self::Table, Dtype::Q4K) => Dtype::Q8_0,
            (_, requested_dtype) => requested_dtype,
        };
        dtype.for_inputs(inputs)
    }
}
