//! What the layers of a Mamba on a GPU are told of a pass: its sequences, under each layer's gains, and whom somebody
//! looks on to.

use loom_kernels::cuda::{Batch, Buffer, Gpu, GpuError, List, Sequence, View};

use super::super::Segment;
use super::network::GpuState;
use crate::foundation::chat::{DeltaGains, LayerGains};

/// The sequences of a pass, and under gains wherever a layer has some.
pub(super) struct Plan {
    plain: Batch,
    modulated: Vec<Option<Batch>>,
    watch: Option<Watch>,
}

/// Sums of the steps Δ of those sequences that somebody looks on to.
struct Watch {
    sequences: List,
    layers: usize,
    /// Steps of a layer at one token.
    channels: usize,
    /// `[watched, layers, channels]`
    sums: Buffer<f64>,
}

impl Plan {
    /// Of `batch`, over states in `slots` slots, for `layers` layers with so many steps each.
    pub(super) fn new(
        gpu: &Gpu,
        batch: &[Segment<'_, GpuState<()>>],
        sequences: &[Sequence],
        slots: usize,
        [layers, channels]: [usize; 2],
    ) -> Result<Self, GpuError> {
        let plain = Batch::new(gpu, sequences, slots)?;
        let modulated = (0..layers).map(|index| {
            let gains = batch.iter().map(|segment| segment.gains.and_then(|gains| gains.layer(index)));
            let gains: Vec<_> = gains.map(|gains| gains.unwrap_or(LayerGains::ONE)).collect();
            if gains.iter().all(|gains| *gains == LayerGains::ONE) {
                return Ok(None);
            }
            let gains: Vec<_> = gains.iter().map(|gains| (gains.on_decay(), gains.on_write())).collect();
            plain.under(gpu, &gains).map(Some)
        });
        let modulated = modulated.collect::<Result<_, _>>()?;
        let watched: Vec<u32> =
            (0..).zip(batch).filter_map(|(index, segment)| segment.steps.as_ref().map(|_| index)).collect();
        let watch = || -> Result<_, GpuError> {
            let sequences = List::new(gpu, &watched, sequences.len())?;
            Ok(Watch { sequences, layers, channels, sums: gpu.room(watched.len() * layers * channels)? })
        };
        let watch = if watched.is_empty() { None } else { Some(watch()?) };
        Ok(Self { plain, modulated, watch })
    }

    /// Room for steps of up to `rows` sequences.
    pub(super) fn room(gpu: &Gpu, rows: usize, slots: usize) -> Result<Self, GpuError> {
        Ok(Self { plain: Batch::room(gpu, rows, slots)?, modulated: Vec::new(), watch: None })
    }

    /// Puts a step there; none under gains, which every layer would have to be told of, and none that is looked on to.
    pub(super) fn tell(
        &mut self,
        batch: &[Segment<'_, GpuState<()>>],
        sequences: &[Sequence],
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

    /// The batch as layer `index` sees it.
    pub(super) fn at(&self, index: usize) -> &Batch {
        self.modulated.get(index).and_then(Option::as_ref).unwrap_or(&self.plain)
    }

    /// Enqueues summing the steps of layer `index` for those who look on.
    pub(super) fn add_steps(
        &self,
        gpu: &Gpu,
        index: usize,
        delta_raw: (View<'_, f32>, usize),
        dt_bias: View<'_, f32>,
        limit: (f32, f32),
    ) -> Result<(), GpuError> {
        let Some(Watch { sequences, layers, channels, sums }) = &self.watch else { return Ok(()) };
        let sums = (sums.from(index * channels), layers * channels);
        gpu.add_steps((&self.plain, sequences), delta_raw, dt_bias, limit, *channels, sums)
    }

    /// Adds what was summed to what those who look on have. Waits for it.
    pub(super) fn look_on(&self, batch: &mut [Segment<'_, GpuState<()>>]) -> Result<(), GpuError> {
        let Some(Watch { layers, channels, sums, .. }) = &self.watch else { return Ok(()) };
        let mut all = vec![0.0; sums.len()];
        sums.read(&mut all)?;
        let watched = batch.iter_mut().filter_map(|segment| Some((segment.ids.len(), segment.steps.as_deref_mut()?)));
        for ((tokens, steps), sums) in watched.zip(all.chunks_exact(layers * channels)) {
            steps.tokens += tokens as u64;
            steps.sums.resize(sums.len(), 0.0);
            steps.sums.iter_mut().zip(sums).for_each(|(sum, more)| *sum += more);
        }
        Ok(())
    }
}
