//! Answers queries about rows of the residual stream, or copies their logits to the host.

use loom_kernels::cuda::{Buffer, GpuError, RowQueries, RowStats, TOP_MAX, View};

use super::super::super::logit_query::{LogitQuery, RowScratch, TokenStats};
use super::super::layers::{GpuLayers, GpuState};
use super::super::query::{kernel_query, token_stats};
use super::Network;

impl<B: GpuLayers> Network<B> {
    /// Enqueues answering `queries` from number `first` on, for `rows` rows of the residual stream (at most
    /// `head_rows`).
    pub(super) fn query_rows(
        &self,
        x: View<'_, f32>,
        queries: &RowQueries,
        first: usize,
        rows: usize,
    ) -> Result<(), GpuError> {
        self.head(x, rows)?;
        let buffers = [&self.logits, &self.weights].map(Buffer::view);
        self.gpu.read_logits(buffers, (queries, first, rows), self.row_stats.from(first))
    }

    /// Computes the logits of the first `rows` rows of `x` (at most `head_rows`).
    fn head(&self, x: View<'_, f32>, rows: usize) -> Result<(), GpuError> {
        let d_model = self.d_model;
        self.gpu.rms_norm(x, None, self.norm.view(), self.epsilon, self.normed.view(), [rows, d_model])?;
        let head = self.head.as_ref().unwrap_or(&self.table);
        self.gpu.matmul((self.normed.view(), d_model), rows, head, None, (self.logits.view(), self.vocabulary))
    }

    /// Answers `queries` about the rows of `x`. Waits for the device once. Rows with more alternatives than the kernel
    /// reports are copied to the host.
    pub(super) fn answer_queries(
        &self,
        x: View<'_, f32>,
        queries: &[&LogitQuery],
    ) -> Result<Vec<Option<TokenStats>>, GpuError> {
        let (mut copy_logits, mut scratch) = (Vec::new(), RowScratch::default());
        let all: Vec<_> = queries.iter().map(|ask| Some(kernel_query(ask))).collect();
        let all = RowQueries::new(&self.gpu, &all, self.vocabulary)?;
        for (index, queries) in queries.chunks(self.head_rows).enumerate() {
            let first = index * self.head_rows;
            self.query_rows(x.from(first * self.d_model), &all, first, queries.len())?;
            for (row, ask) in queries.iter().enumerate().filter(|(_, ask)| ask.top > TOP_MAX) {
                let mut logits = vec![0.0; self.vocabulary];
                self.gpu.read(self.logits.part(row * self.vocabulary, self.vocabulary), &mut logits)?;
                copy_logits.push((first + row, ask.read(&logits, &mut scratch)));
            }
        }
        let mut row_stats = vec![RowStats::NONE; queries.len()];
        if !row_stats.is_empty() {
            self.row_stats.read(&mut row_stats)?;
        }
        let mut answers: Vec<_> = row_stats
            .iter()
            .zip(queries)
            .map(|(reading, ask)| token_stats(reading, ask.top.min(self.vocabulary)))
            .collect();
        for (last_row, reading) in copy_logits {
            if let Some(answer_queries) = answers.get_mut(last_row) {
                *answer_queries = reading;
            }
        }
        Ok(answers)
    }

    pub(super) fn last_row(&self, state: &GpuState<B::SequenceData>) -> View<'_, f32> {
        self.last.part(state.slot() * self.d_model, self.d_model)
    }

    /// Replaces `logits` with those of the first `rows` rows of `x`.
    pub(super) fn copy_logits(&self, x: View<'_, f32>, rows: usize, logits: &mut Vec<f32>) -> Result<(), GpuError> {
        logits.clear();
        logits.resize(rows * self.vocabulary, 0.0);
        for (index, part) in logits.chunks_mut(self.head_rows * self.vocabulary).enumerate() {
            self.head(x.from(index * self.head_rows * self.d_model), part.len() / self.vocabulary)?;
            self.logits.read(part)?;
        }
        Ok(())
    }
}
