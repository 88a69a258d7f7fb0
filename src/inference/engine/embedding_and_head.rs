//! The parts that every language model has around its layers: the embedding table before the first layer, and the final
//! norm and the head after the last one. The head may be the embedding table.

use loom_kernels::{Panels, matmul, rms_norm};

use super::weights::Weights;
use super::{LoadError, Segment};

/// The name of a separate head.
const HEAD: &str = "lm_head.weight";

pub(super) struct EmbeddingAndHead {
    /// `[vocabulary, d_model]`
    pub(super) table: Panels,
    pub(super) norm: Vec<f32>,
    pub(super) norm_epsilon: f32,
    /// `None` if the head is the table.
    pub(super) head: Option<Panels>,
}

/// Names and dimensions of the tensors.
pub(super) struct EmbeddingAndHeadConfig<'a> {
    pub(super) table: &'a str,
    pub(super) norm: &'a str,
    pub(super) vocabulary: usize,
    pub(super) d_model: usize,
    pub(super) norm_epsilon: f32,
    pub(super) tied: bool,
}

impl EmbeddingAndHead {
    pub(super) fn load(config: &EmbeddingAndHeadConfig<'_>, weights: &mut Weights<'_>) -> Result<Self, LoadError> {
        let &EmbeddingAndHeadConfig { vocabulary, d_model, norm_epsilon, tied, .. } = config;
        if tied && weights.has(HEAD) {
            weights.take_tied_head(HEAD, config.table, &[vocabulary, d_model])?;
        }
        let table = weights.panels(config.table, vocabulary, d_model)?;
        let norm = weights.take(config.norm, &[d_model])?;
        let head = if tied { None } else { Some(weights.panels(HEAD, vocabulary, d_model)?) };
        Ok(Self { table, norm, norm_epsilon, head })
    }

    pub(super) fn vocabulary(&self) -> usize {
        self.table.outputs()
    }

    fn d_model(&self) -> usize {
        self.table.inputs()
    }

    /// The embeddings of all tokens of `batch`, `[rows, d_model]`.
    pub(super) fn embed<S>(&self, batch: &[Segment<'_, S>], x: &mut [f32]) {
        let ids = batch.iter().flat_map(|segment| segment.ids);
        ids.zip(x.chunks_exact_mut(self.d_model())).for_each(|(&id, row)| self.table.unpack_row(id as usize, row));
    }

    /// Replaces `logits` with the logits after each row of the residual stream.
    pub(super) fn logits(&self, rows: &[f32], logits: &mut Vec<f32>) {
        let mut normed = vec![0.0; rows.len()];
        rms_norm(rows, &self.norm, self.norm_epsilon, &mut normed);
        let rows = rows.len() / self.d_model();
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
        let width = self.d_model();
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
