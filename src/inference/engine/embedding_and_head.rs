//! The parts that every language model has around its layers: the embedding table before the first layer, and the final
//! norm and the head after the last one. The head may be the embedding table.

use loom_kernels::{matmul, rms_norm, soft_cap};
use rayon::prelude::*;

use super::architecture::Segment;
use super::error::LoadError;
use super::tensors::{Name, OnCpu, Storage, TensorSource};

/// Names of a separate head in safetensors: the usual one, and that in models with images.
const HEADS: &[&str] = &["lm_head.weight", "language_model.lm_head.weight"];

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
    /// The weight of the norm is stored as its difference from 1.
    pub(super) centred_norm: bool,
    pub(super) scales: Scales,
}

/// Factors around the layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scales {
    /// Multiplies the embeddings.
    pub(super) embedding: f32,
    /// Divides the logits.
    pub(super) logits: f32,
    /// Soft cap of the logits, after that.
    pub(super) logit_cap: Option<f32>,
}

impl Scales {
    /// Embeddings and logits as they are.
    pub(super) const ONE: Self = Self { embedding: 1.0, logits: 1.0, logit_cap: None };
}

/// Logits that one thread caps at once.
const CAPPED: usize = 1 << 13;

/// Names of the tensors, in safetensors; in GGUF they are always the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct EmbeddingNames {
    /// The table and the norm; files may use any of these names, the first is the usual one.
    pub(super) tables: &'static [&'static str],
    pub(super) norms: &'static [&'static str],
}

impl<S: Storage> EmbeddingAndHead<S> {
    pub(super) fn load<T: TensorSource<Storage = S>>(
        names: EmbeddingNames,
        dims: EmbeddingDims,
        source: &mut T,
    ) -> Result<Self, LoadError> {
        let EmbeddingDims { vocabulary, d_model, tied, .. } = dims;
        let present = |names: &'static [&'static str], source: &T| {
            names.iter().find(|name| source.has(name)).or(names.first()).copied().unwrap_or_default()
        };
        let table = Name { hf: present(names.tables, source), gguf: "token_embd.weight" };
        let head = Name { hf: present(HEADS, source), gguf: "output.weight" };
        if tied && source.has(head.hf) {
            source.tied_head(head, table, &[vocabulary, d_model])?;
        }
        let table = source.matrix(table, vocabulary, d_model)?;
        let norm = Name { hf: present(names.norms, source), gguf: "output_norm.weight" };
        let norm =
            if dims.centred_norm { source.centred_norm(norm, d_model)? } else { source.vector(norm, &[d_model])? };
        let head = if tied { None } else { Some(source.matrix(head, vocabulary, d_model)?) };
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
        let scale = self.dims.scales.embedding;
        for (&id, row) in ids.zip(x.chunks_exact_mut(self.dims.d_model)) {
            self.table.unpack_row(id as usize, row);
            row.iter_mut().for_each(|x| *x *= scale);
        }
    }

    /// Replaces `logits` with the logits after each row of the residual stream.
    pub(super) fn logits(&self, rows: &[f32], logits: &mut Vec<f32>) {
        let mut normed = vec![0.0; rows.len()];
        rms_norm(rows, &self.norm, self.dims.norm_epsilon, &mut normed);
        let rows = rows.len() / self.dims.d_model;
        logits.resize(rows * self.vocabulary(), 0.0);
        matmul(&normed, rows, self.head.as_ref().unwrap_or(&self.table), logits);
        let Scales { logits: divisor, logit_cap, .. } = self.dims.scales;
        logits.iter_mut().for_each(|logit| *logit /= divisor);
        if let Some(cap) = logit_cap {
            logits.par_chunks_mut(CAPPED).for_each(|part| soft_cap(cap, part));
        }
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
