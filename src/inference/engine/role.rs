//! What a matrix is for, as far as that decides how narrow it may be kept.

use loom_kernels::Dtype;

/// What a matrix is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A layer's.
    Layer,
    /// Small, and decides on Δ, B and C: f32 where the rest becomes integers.
    Sensitive,
    /// An embedding table or a head: `q8_0` where the rest becomes `q4_k`.
    Table,
}

impl Role {
    /// Of the tensor `name`, as Hugging Face calls it.
    pub(super) fn of(name: &str) -> Self {
        let ends = |names: &[&str]| names.iter().any(|suffix| name.ends_with(suffix));
        if ends(&[".x_proj.weight", ".dt_proj.weight"]) {
            Self::Sensitive
        } else if ends(&["lm_head.weight", "embed_tokens.weight", "embeddings.weight", "embedding.weight"]) {
            Self::Table
        } else {
            Self::Layer
        }
    }

    /// The type in which such a matrix of rows of `inputs` is kept when `asked` is asked for.
    pub(super) fn kept(self, asked: Dtype, inputs: usize) -> Dtype {
        let dtype = match (self, asked) {
            (Self::Sensitive, Dtype::Q8_0 | Dtype::Q4K) => Dtype::F32,
            (Self::Table, Dtype::Q4K) => Dtype::Q8_0,
            (_, asked) => asked,
        };
        dtype.for_inputs(inputs)
    }
}
