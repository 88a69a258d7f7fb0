//! The parts that every language model has around its layers: the embedding table before the first layer, and the final
//! norm and the head after the last one. The head may be the embedding table.

use loom_kernels::{matmul, rms_norm};

use super::architecture::Segment;
use super::error::LoadError;
use super::tensors::{Name, OnCpu, Storage, TensorSource};

/// The name of a separate head.
const HEAD: Name<'static> = Name { hf: "lm_head.weight", gguf: "output.weight" };

pub(super) struct EmbeddingAndHead<S: Storage> {
    /// `[vocabulary, d_model]`
    pub(super) table: S::Matrix,
    pub(super) norm: S::Vector,
    /// `None` if the head is the table.
    pub(super) head: Option<S::Matrix>,
    pub(super) dims: EmbeddingDims,
}

/// Dimensions and constants.
#[derive(Debug, Clone, Copy)]
pub(super) struct EmbeddingDims {
    pub(super) vocabulary: usize,
    pub(super) d_model: usize,
    pub(super) norm_epsilon: f32,
    /// The head is the table.
    pub(super) tied: bool,
}

/// Names of the tensors, in safetensors; in GGUF they are always the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct EmbeddingNames {
    /// The table; files may use any of these names, the first is the usual one.
    pub(super) tables: &'static [&'static str],
    pub(super) norm: &'static str,
}

impl<S: Storage> EmbeddingAndHead<S> {
    pub(super) fn load<T: TensorSource<Storage = S>>(
        names: EmbeddingNames,
        dims: EmbeddingDims,
        source: &mut T,
    ) -> Result<Self, LoadError> {
        let EmbeddingDims { vocabulary, d_model, tied, .. } = dims;
        let present = names.tables.iter().find(|name| source.has(name));
        let table = present.or(names.tables.first()).copied().unwrap_or_default();
        let table = Name { hf: table, gguf: "token_embd.weight" };
        if tied && source.has(HEAD.hf) {
            source.tied_head(HEAD, table, &[vocabulary, d_model])?;
        }
        let table = source.matrix(table, vocabulary, d_model)?;
        let norm = source.vector(Name { hf: names.norm, gguf: "output_norm.weight" }, &[d_model])?;
        let head = if tied { None } else { Some(source.matrix(HEAD, vocabulary, d_model)?) };
        Ok(Self { table, norm, head, dims })
    }
}

impl EmbeddingAndHead<OnCpu> {
    pub(super) fn vocabulary(&self) -> usize {
        self.dims.vocabulary
    }

    /// The embeddings of all tokens of `batch`, `[rows, d_model]`.
    pub(super) fn embed<S>(&self, batch: &[Segment<'_, S>], x: &mut [f32]) {
        let ids = batch.iter().flat_map(|segment| segment.ids);
        ids.zip(x.chunks_exact_mut(self.dims.d_model)).for_each(|(&id, row)| self.table.unpack_row(id as usize, row));
    }

    /// Replaces `logits` with the logits after each row of the residual stream.
    pub(super) fn logits(&self, rows: &[f32], logits: &mut Vec<f32>) {
        let mut normed = vec![0.0; rows.len()];
        rms_norm(rows, &self.norm, self.dims.norm_epsilon, &mut normed);
        let rows = rows.len() / self.dims.d_model;
        logits.resize(rows * self.vocabulary(), 0.0);
        matmul(&normed, rows, self.head.as_ref().unwrap_or(&self.table), logits);
    }

    /// Copies each segment's last row of `x` to its state (`last` selects the field), and replaces `logits` with the
    /// requested rows.
    pub(super) fn finish<S>(
        &self,
        batch: &mut [Segment<'_, S>],
        mut x: &[f32],
        last: impl Fn(&mut S) -> &mut Vec<f32>,
        logits: &mut Vec<f32>,
    ) {
        let width = self.dims.d_model;
        let mut wanted = Vec::new();
        for segment in batch {
            let rows = x.split_off(..segment.ids.len() * width).unwrap_or_default().chunks_exact(width);
            if let Some(row) = rows.clone().next_back() {
                last(segment.state).copy_from_slice(row);
            }
            wanted.extend(rows.skip(segment.logits.start).take(segment.logits.len()).flatten());
        }
        self.logits(&wanted, logits);
    }
}
