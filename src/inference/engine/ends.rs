//! What stands at both ends of every language model here: the table of embeddings before the first layer, a norm and
//! the head after the last, which may be the same table.

use loom_kernels::{Panels, matmul, rms_norm};

use super::weights::Weights;
use super::{LoadError, Segment};

/// The name of a head of its own.
const HEAD: &str = "lm_head.weight";

pub(super) struct Ends {
    /// `[vocabulary, d_model]`
    pub(super) table: Panels,
    pub(super) norm: Vec<f32>,
    pub(super) norm_epsilon: f32,
    /// `None` when it is the table.
    pub(super) head: Option<Panels>,
}

/// The tensors' names and dims.
pub(super) struct EndsConfig<'a> {
    pub(super) table: &'a str,
    pub(super) norm: &'a str,
    pub(super) vocabulary: usize,
    pub(super) d_model: usize,
    pub(super) norm_epsilon: f32,
    pub(super) tied: bool,
}

impl Ends {
    pub(super) fn load(config: &EndsConfig<'_>, weights: &mut Weights<'_>) -> Result<Self, LoadError> {
        let &EndsConfig { vocabulary, d_model, norm_epsilon, tied, .. } = config;
        if tied && weights.has(HEAD) {
            weights.drop_twin(HEAD, config.table, &[vocabulary, d_model])?;
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

    /// Replaces `logits` by those after each row of the residual stream.
    pub(super) fn logits(&self, rows: &[f32], logits: &mut Vec<f32>) {
        let mut normed = vec![0.0; rows.len()];
        rms_norm(rows, &self.norm, self.norm_epsilon, &mut normed);
        let rows = rows.len() / self.d_model();
        logits.resize(rows * self.vocabulary(), 0.0);
        matmul(&normed, rows, self.head.as_ref().unwrap_or(&self.table), logits);
    }

    /// Leaves each segment's last row of `x` in its state, where `last` is, and replaces `logits` by the rows asked for.
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
