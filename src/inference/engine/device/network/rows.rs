//! From rows of the residual stream to what is read of them, or to whole rows of logits.

use loom_kernels::cuda::{Asks, Buffer, GpuError, Reading, TOP_MAX, View};

use super::super::super::row::{RowAsk, RowReading, Scratch};
use super::super::reading::{asked, told};
use super::{Body, GpuState, Network};

impl<B: Body> Network<B> {
    /// Enqueues reading `rows` rows of the residual stream, at most `some`, number `first` of `asks` and those after it.
    pub(super) fn judge(&self, x: View<'_, f32>, asks: &Asks, first: usize, rows: usize) -> Result<(), GpuError> {
        self.head(x, rows)?;
        let room = [&self.logits, &self.weights].map(Buffer::view);
        self.gpu.read_logits(room, (asks, first, rows), self.readings.from(first))
    }

    /// The logits of the first `rows` rows of the residual stream `x`, at most `some`.
    fn head(&self, x: View<'_, f32>, rows: usize) -> Result<(), GpuError> {
        let d_model = self.d_model;
        self.gpu.rms_norm(x, None, self.norm.view(), self.epsilon, self.normed.view(), [rows, d_model])?;
        let head = self.head.as_ref().unwrap_or(&self.table);
        self.gpu.matmul((self.normed.view(), d_model), rows, head, None, (self.logits.view(), self.vocabulary))
    }

    /// What is asked of the rows of `x`. The one place that waits for the device, but for rows of which more is asked than
    /// the kernel tells: these come over as they are.
    pub(super) fn answer(&self, x: View<'_, f32>, asks: &[&RowAsk]) -> Result<Vec<Option<RowReading>>, GpuError> {
        let (mut whole, mut scratch) = (Vec::new(), Scratch::default());
        let all: Vec<_> = asks.iter().map(|ask| Some(asked(ask))).collect();
        let all = Asks::new(&self.gpu, &all, self.vocabulary)?;
        for (index, asks) in asks.chunks(self.some).enumerate() {
            let first = index * self.some;
            self.judge(x.from(first * self.d_model), &all, first, asks.len())?;
            for (row, ask) in asks.iter().enumerate().filter(|(_, ask)| ask.top > TOP_MAX) {
                let mut logits = vec![0.0; self.vocabulary];
                self.gpu.read(self.logits.part(row * self.vocabulary, self.vocabulary), &mut logits)?;
                whole.push((first + row, ask.read(&logits, &mut scratch)));
            }
        }
        let mut readings = vec![Reading::NONE; asks.len()];
        if !readings.is_empty() {
            self.readings.read(&mut readings)?;
        }
        let mut answers: Vec<_> =
            readings.iter().zip(asks).map(|(reading, ask)| told(reading, ask.top.min(self.vocabulary))).collect();
        for (at, reading) in whole {
            if let Some(answer) = answers.get_mut(at) {
                *answer = reading;
            }
        }
        Ok(answers)
    }

    pub(super) fn at(&self, state: &GpuState<B::Rest>) -> View<'_, f32> {
        self.last.part(state.slot() * self.d_model, self.d_model)
    }

    /// Replaces `logits` by those of the first `rows` rows of `x`.
    pub(super) fn whole(&self, x: View<'_, f32>, rows: usize, logits: &mut Vec<f32>) -> Result<(), GpuError> {
        logits.clear();
        logits.resize(rows * self.vocabulary, 0.0);
        for (index, part) in logits.chunks_mut(self.some * self.vocabulary).enumerate() {
            self.head(x.from(index * self.some * self.d_model), part.len() / self.vocabulary)?;
            self.logits.read(part)?;
        }
        Ok(())
    }
}
