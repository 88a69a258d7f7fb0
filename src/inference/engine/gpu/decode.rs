//! Decoding steps, in which every sequence has one token. Their inputs are at fixed addresses, and the number of rows
//! is padded to one of a few values, so that all steps of a kind launch the same kernels. The second step of a kind is
//! recorded as a CUDA graph; later ones are a single launch. Without graph support the kernels are launched
//! individually.

use std::collections::HashMap;

use loom_kernels::cuda::{Gpu, GpuError, Recording, RowList, RowQueries, RowQuery};

use super::layers::GpuLayers;
use crate::foundation::base::limits::GPU_SEQUENCES_MAX;

/// Capacity for penalised ids of all sequences; a step with more is not recorded.
const PENALISED_MAX: usize = 1 << 18;

pub(super) struct Decode<P> {
    pub(super) ids: RowList,
    /// Slots that the step writes.
    pub(super) targets: RowList,
    pub(super) queries: RowQueries,
    pub(super) plan: P,
    /// By number of rows and the layers' own kind.
    kinds: HashMap<(usize, usize), KindState>,
    may_record: bool,
}

/// Padded number of rows for `sequences`: exact up to 8, then a power of two.
pub(super) fn rows(sequences: usize) -> Option<usize> {
    let rows = if sequences <= 8 { sequences } else { sequences.next_power_of_two() };
    (1..=GPU_SEQUENCES_MAX).contains(&rows).then_some(rows)
}

enum KindState {
    /// Executed once: its kernels are loaded.
    Done,
    Recorded(Recording),
    /// Recording is not supported.
    Never,
}

impl<P> Decode<P> {
    pub(super) fn new<B: GpuLayers<PassPlan = P>>(
        gpu: &Gpu,
        body: &B,
        slots: usize,
        vocabulary: usize,
    ) -> Result<Self, GpuError> {
        let rows = GPU_SEQUENCES_MAX;
        Ok(Self {
            ids: RowList::with_capacity(gpu, rows, vocabulary)?,
            targets: RowList::with_capacity(gpu, rows, slots)?,
            queries: RowQueries::with_capacity(gpu, rows, PENALISED_MAX, vocabulary)?,
            plan: body.allocate_plan(gpu, rows)?,
            kinds: HashMap::new(),
            may_record: std::env::var_os("LOOM_CUDA_GRAPHS").is_none_or(|value| value != "off"),
        })
    }

    pub(super) fn plan(&mut self) -> &mut P {
        &mut self.plan
    }

    /// Sets the inputs of a step, padded to `rows` rows. Returns whether they fit.
    pub(super) fn set(
        &mut self,
        ids: &[u32],
        targets: &[u32],
        queries: &[Option<RowQuery<'_>>],
        rows: usize,
    ) -> Result<bool, GpuError> {
        self.ids.set(ids, rows)?;
        self.targets.set(targets, rows)?;
        self.queries.set(queries, rows)
    }

    /// Executes a step of `kind`, whose launches are issued by `work`.
    pub(super) fn run(
        &mut self,
        gpu: &Gpu,
        kind: (usize, usize),
        work: impl Fn(&Self) -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        let now = match self.kinds.get(&kind) {
            Some(KindState::Recorded(recording)) => return gpu.replay(recording),
            Some(KindState::Never) => return work(self),
            None if self.may_record => {
                work(self)?;
                KindState::Done
            }
            None => {
                work(self)?;
                KindState::Never
            }
            Some(KindState::Done) => {
                if let Some(recording) = gpu.record(|| work(self))? {
                    gpu.replay(&recording)?;
                    KindState::Recorded(recording)
                } else {
                    work(self)?;
                    KindState::Never
                }
            }
        };
        self.kinds.insert(kind, now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_in_few_sizes() {
        let check = |sequences, expected| assert_eq!(rows(sequences), expected, "{sequences}");
        check(0, None);
        check(1, Some(1));
        check(7, Some(7));
        check(8, Some(8));
        check(9, Some(16));
        check(257, Some(512));
        check(512, Some(512));
        check(513, None);
    }
}
