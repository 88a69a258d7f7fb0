//! Steps of one token for every sequence: what a network does most. What they are told lies in memory that stays where it
//! is, and their rows are filled up to one of a few counts, so that the launches of a kind of step are the same every
//! time: recorded when they come for the second time, and one launch from then on. Where nothing is recorded, the same
//! kernels are launched one by one.

use std::collections::HashMap;

use loom_kernels::cuda::{Ask, Asks, Gpu, GpuError, List, Recording};

use super::network::Body;
use crate::foundation::base::limits::GPU_SEQUENCES_MAX;

/// Room for ids under a penalty, in all sequences together; a step with more is not recorded.
const PENALISED_MAX: usize = 1 << 18;

pub(super) struct Decode<P> {
    pub(super) ids: List,
    /// The slots written.
    pub(super) targets: List,
    pub(super) asks: Asks,
    pub(super) plan: P,
    /// By rows, and what else decides on the launches.
    known: HashMap<(usize, usize), Known>,
    records: bool,
}

/// How many rows a step of `sequences` has: as many up to 8, then a power of two.
pub(super) fn rows(sequences: usize) -> Option<usize> {
    let rows = if sequences <= 8 { sequences } else { sequences.next_power_of_two() };
    (1..=GPU_SEQUENCES_MAX).contains(&rows).then_some(rows)
}

enum Known {
    /// It was done once: its kernels are loaded.
    Done,
    Recorded(Recording),
    /// There is nothing to record with.
    Never,
}

impl<P> Decode<P> {
    pub(super) fn new<B: Body<Plan = P>>(
        gpu: &Gpu,
        body: &B,
        slots: usize,
        vocabulary: usize,
    ) -> Result<Self, GpuError> {
        let rows = GPU_SEQUENCES_MAX;
        Ok(Self {
            ids: List::room(gpu, rows, vocabulary)?,
            targets: List::room(gpu, rows, slots)?,
            asks: Asks::room(gpu, rows, PENALISED_MAX, vocabulary)?,
            plan: body.room(gpu, rows)?,
            known: HashMap::new(),
            records: std::env::var_os("LOOM_CUDA_GRAPHS").is_none_or(|told| told != "off"),
        })
    }

    pub(super) fn plan(&mut self) -> &mut P {
        &mut self.plan
    }

    /// Puts down what a step is told, filled up to `rows` rows. Whether there was room for it.
    pub(super) fn set(
        &mut self,
        ids: &[u32],
        targets: &[u32],
        asks: &[Option<Ask<'_>>],
        rows: usize,
    ) -> Result<bool, GpuError> {
        self.ids.set(ids, rows)?;
        self.targets.set(targets, rows)?;
        self.asks.set(asks, rows)
    }

    /// Does a step of this kind, whose launches are `work`.
    pub(super) fn run(
        &mut self,
        gpu: &Gpu,
        kind: (usize, usize),
        work: impl Fn(&Self) -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        let now = match self.known.get(&kind) {
            Some(Known::Recorded(recording)) => return gpu.replay(recording),
            Some(Known::Never) => return work(self),
            None if self.records => {
                work(self)?;
                Known::Done
            }
            None => {
                work(self)?;
                Known::Never
            }
            Some(Known::Done) => {
                if let Some(recording) = gpu.record(|| work(self))? {
                    gpu.replay(&recording)?;
                    Known::Recorded(recording)
                } else {
                    work(self)?;
                    Known::Never
                }
            }
        };
        self.known.insert(kind, now);
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
