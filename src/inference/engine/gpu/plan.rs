//! Inputs of a Mamba's layers for one pass on a GPU: sequences, gains per layer, and the sequences whose Δ is recorded.

use loom_kernels::cuda::{Buffer, Gpu, GpuError, RowList, SequenceBatch, SequenceRows, View};

use super::super::architecture::Segment;
use super::layers::GpuState;
use crate::foundation::chat::{DeltaGains, LayerGains};

/// The sequences of a pass, and a copy with gains for each layer that has some.
pub(in super::super) struct PassPlan {
    plain: SequenceBatch,
    modulated: Vec<Option<SequenceBatch>>,
    step_sums: Option<StepSums>,
}

/// Sums of Δ for the sequences that record it.
struct StepSums {
    sequences: RowList,
    layers: usize,
    /// Values of Δ per layer and token.
    channels: usize,
    /// `[observed, layers, channels]`
    sums: Buffer<f64>,
}

impl PassPlan {
    /// The plan of `batch`, with states in `slots` slots, for `layers` layers with `channels` values of Δ each.
    pub(super) fn new(
        gpu: &Gpu,
        batch: &[Segment<'_, GpuState<()>>],
        sequences: &[SequenceRows],
        slots: usize,
        [layers, channels]: [usize; 2],
    ) -> Result<Self, GpuError> {
        let plain = SequenceBatch::new(gpu, sequences, slots)?;
        let modulated = (0..layers).map(|index| {
            let gains = batch.iter().map(|segment| segment.gains.and_then(|gains| gains.layer(index)));
            let gains: Vec<_> = gains.map(|gains| gains.unwrap_or(LayerGains::ONE)).collect();
            if gains.iter().all(|gains| *gains == LayerGains::ONE) {
                return Ok(None);
            }
            let gains: Vec<_> = gains.iter().map(|gains| (gains.on_decay(), gains.on_write())).collect();
            plain.with_gains(gpu, &gains).map(Some)
        });
        let modulated = modulated.collect::<Result<_, _>>()?;
        let observed: Vec<u32> =
            (0..).zip(batch).filter_map(|(index, segment)| segment.steps.as_ref().map(|_| index)).collect();
        let step_sums = || -> Result<_, GpuError> {
            let sequences = RowList::new(gpu, &observed, sequences.len())?;
            Ok(StepSums { sequences, layers, channels, sums: gpu.uninit(observed.len() * layers * channels)? })
        };
        let step_sums = if observed.is_empty() { None } else { Some(step_sums()?) };
        Ok(Self { plain, modulated, step_sums })
    }

    /// A plan with fixed addresses for decoding steps of up to `rows` sequences.
    pub(super) fn allocate(gpu: &Gpu, rows: usize, slots: usize) -> Result<Self, GpuError> {
        Ok(Self { plain: SequenceBatch::with_capacity(gpu, rows, slots)?, modulated: Vec::new(), step_sums: None })
    }

    /// Fills it for a decoding step; `None` if a sequence has gains or records Δ.
    pub(super) fn set_decode_plan(
        &mut self,
        batch: &[Segment<'_, GpuState<()>>],
        sequences: &[SequenceRows],
        layers: usize,
        rows: usize,
    ) -> Result<Option<usize>, GpuError> {
        let plain = |gains: &DeltaGains| {
            (0..layers).all(|index| gains.layer(index).is_none_or(|gains| gains == LayerGains::ONE))
        };
        let plain = |segment: &Segment<'_, _>| segment.steps.is_none() && segment.gains.is_none_or(plain);
        if !batch.iter().all(plain) {
            return Ok(None);
        }
        self.plain.set(sequences, rows)?;
        Ok(Some(0))
    }

    /// The batch for layer `index`.
    pub(super) fn at(&self, index: usize) -> &SequenceBatch {
        self.modulated.get(index).and_then(Option::as_ref).unwrap_or(&self.plain)
    }

    /// Enqueues summing Δ of layer `index` for the sequences that record it.
    pub(super) fn add_steps(
        &self,
        gpu: &Gpu,
        index: usize,
        delta_raw: (View<'_, f32>, usize),
        dt_bias: View<'_, f32>,
        limit: (f32, f32),
    ) -> Result<(), GpuError> {
        let Some(StepSums { sequences, layers, channels, sums }) = &self.step_sums else { return Ok(()) };
        let sums = (sums.from(index * channels), layers * channels);
        gpu.add_steps((&self.plain, sequences), delta_raw, dt_bias, limit, *channels, sums)
    }

    /// Adds the sums to the sequences that record them. Waits for the device.
    pub(super) fn collect_steps(&self, batch: &mut [Segment<'_, GpuState<()>>]) -> Result<(), GpuError> {
        let Some(StepSums { layers, channels, sums, .. }) = &self.step_sums else { return Ok(()) };
        let mut all = vec![0.0; sums.len()];
        sums.read(&mut all)?;
        let observed = batch.iter_mut().filter_map(|segment| Some((segment.ids.len(), segment.steps.as_deref_mut()?)));
        for ((tokens, steps), sums) in observed.zip(all.chunks_exact(layers * channels)) {
            steps.tokens += tokens as u64;
            steps.sums.resize(sums.len(), 0.0);
            steps.sums.iter_mut().zip(sums).for_each(|(sum, more)| *sum += more);
        }
        Ok(())
    }
}
