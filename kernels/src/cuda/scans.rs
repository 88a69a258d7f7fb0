//! Recurrent layers: the sequences of a pass and their state slots, the convolution, the scans of Mamba-1 and Mamba-2, sums
//! of their steps.

use std::collections::HashMap;

use super::list::RowList;
use super::memory::{Buffer, PlainData, View};
use super::{Arg, Gpu, GpuError};

const TAPS_MAX: usize = 8;
/// Rows per thread of the convolution.
const CONV_SPAN: usize = 32;
const STATE_MAX: usize = 128;
const STEP_THREADS: usize = 256;

/// The rows and state slots of one sequence in a launch.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SequenceRows {
    /// First row.
    pub row: i32,
    /// Number of rows.
    pub len: i32,
    /// The slot of its state before the launch.
    pub from: i32,
    /// The slot of its state after the launch; may be the same.
    pub to: i32,
    /// Multiplies Δ in the decay; 1 is off.
    pub gain_decay: f32,
    /// Multiplies Δ in the input; 1 is off.
    pub gain_write: f32,
}

// SAFETY: six words.
unsafe impl PlainData for SequenceRows {}

/// The checked sequences of a pass, on the device.
#[derive(Debug)]
pub struct SequenceBatch {
    sequences: Buffer<SequenceRows>,
    /// A copy on the host.
    held: Vec<SequenceRows>,
    rows: usize,
    slots: usize,
    longest: usize,
}

impl SequenceBatch {
    /// `sequences` with states in `slots` slots. The rows of the sequences are consecutive.
    ///
    /// # Errors
    /// If out of memory.
    ///
    /// # Panics
    /// If a sequence is empty or not consecutive, a slot does not exist, or a written slot is used by another sequence.
    pub fn new(gpu: &Gpu, sequences: &[SequenceRows], slots: usize) -> Result<Self, GpuError> {
        let (rows, longest) = check(sequences, slots);
        Ok(Self { sequences: gpu.upload(sequences)?, held: sequences.to_vec(), rows, slots, longest })
    }

    /// An empty batch at a fixed address with capacity for `most` sequences of one row.
    ///
    /// # Errors
    /// If out of memory.
    pub fn with_capacity(gpu: &Gpu, most: usize, slots: usize) -> Result<Self, GpuError> {
        Ok(Self { sequences: gpu.zeros(most)?, held: Vec::new(), rows: 0, slots, longest: 1 })
    }

    /// Replaces the sequences by `sequences` of one row each, padded to `rows` with sequences to skip.
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// As [`new`](Self::new); also if a sequence has more than one row, or `rows` exceeds the capacity.
    pub fn set(&mut self, sequences: &[SequenceRows], rows: usize) -> Result<(), GpuError> {
        let (used, longest) = check(sequences, self.slots);
        assert!(
            longest <= 1 && used <= rows && rows <= self.sequences.len(),
            "SequenceBatch::set: {used} rows as {rows}"
        );
        let nothing = |row: usize| {
            let row = i32::try_from(row).expect("rows of a launch are below 2^31");
            SequenceRows { row, len: 0, from: 0, to: 0, gain_decay: 1.0, gain_write: 1.0 }
        };
        self.held.clear();
        self.held.extend_from_slice(sequences);
        self.held.extend((used..rows).map(nothing));
        self.rows = rows;
        self.sequences.write(&self.held)
    }

    /// The same sequences with other gains on Δ (decay, input) for each.
    ///
    /// # Errors
    /// If out of memory.
    ///
    /// # Panics
    /// If the numbers of gains and sequences differ.
    pub fn with_gains(&self, gpu: &Gpu, gains: &[(f32, f32)]) -> Result<Self, GpuError> {
        assert_eq!(gains.len(), self.held.len(), "SequenceBatch::with_gains: gains");
        let with = |(sequence, &(gain_decay, gain_write)): (&SequenceRows, _)| SequenceRows {
            gain_decay,
            gain_write,
            ..*sequence
        };
        let held: Vec<_> = self.held.iter().zip(gains).map(with).collect();
        let &Self { rows, slots, longest, .. } = self;
        Ok(Self { sequences: gpu.upload(&held)?, held, rows, slots, longest })
    }

    /// Number of rows of all sequences.
    pub fn rows(&self) -> usize {
        self.rows
    }

    fn count(&self) -> usize {
        self.held.len()
    }
}

/// Checks the sequences; returns the total rows and the length of the longest.
fn check(sequences: &[SequenceRows], slots: usize) -> (usize, usize) {
    let (mut rows, mut longest) = (0, 0);
    let mut writers = HashMap::with_capacity(sequences.len());
    for (index, sequence) in sequences.iter().enumerate() {
        let other = writers.insert(sequence.to, index);
        assert!(other.is_none(), "SequenceBatch: slot {} is written for two sequences", sequence.to);
    }
    for (index, sequence) in sequences.iter().enumerate() {
        let inside = |slot: i32| usize::try_from(slot).is_ok_and(|slot| slot < slots);
        assert!(inside(sequence.from) && inside(sequence.to), "SequenceBatch: {sequence:?} with {slots} slots");
        assert!(sequence.len > 0 && sequence.row as usize == rows, "SequenceBatch: {sequence:?} at row {rows}");
        assert!(
            writers.get(&sequence.from).is_none_or(|&writer| writer == index),
            "SequenceBatch: slot {} is read for one sequence and written for another",
            sequence.from
        );
        rows += sequence.len as usize;
        longest = longest.max(sequence.len as usize);
    }
    (rows, longest)
}

/// The weights of a causal convolution.
#[derive(Debug, Clone, Copy)]
pub struct GpuConv<'a> {
    /// `[taps, channels]`, as the CPU's
    pub weight: View<'a, f32>,
    /// [channels]
    pub bias: Option<View<'a, f32>>,
    /// Channels.
    pub channels: usize,
    /// Inputs that an output sees, at most 8.
    pub taps: usize,
}

/// Inputs of Mamba-1's scan, as [`Scan`](crate::Scan) for all sequences at once.
#[derive(Debug, Clone, Copy)]
pub struct GpuScan<'a> {
    /// `[rows, channels]`
    pub u: View<'a, f32>,
    /// `[rows, channels]`, before bias and softplus.
    pub delta_raw: View<'a, f32>,
    /// [channels]
    pub dt_bias: View<'a, f32>,
    /// −exp(`A_log`), `[channels, d_state]`.
    pub a: View<'a, f32>,
    /// Rows of `bc_stride` numbers: B, then C, `d_state` each.
    pub bc: View<'a, f32>,
    /// Numbers from row to row of `bc`.
    pub bc_stride: usize,
    /// [channels]
    pub d: View<'a, f32>,
    /// The gate before its `SiLU`, and numbers from row to row.
    pub z: Option<(View<'a, f32>, usize)>,
    /// Channels.
    pub channels: usize,
    /// Numbers of state a channel, at most 128.
    pub d_state: usize,
}

/// Dims of a Mamba-2 layer.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct HeadDims {
    /// Heads.
    pub heads: i32,
    /// Numbers in a head.
    pub head_dim: i32,
    /// Numbers of state per number of a head.
    pub d_state: i32,
    /// Groups of heads that share B and C.
    pub groups: i32,
    /// Lower bound of Δ, after the softplus and before the gains.
    pub least: f32,
    /// Upper bound of Δ.
    pub most: f32,
}

/// Inputs of Mamba-2's scan, as [`HeadScan`](crate::HeadScan) for all sequences at once.
#[derive(Debug, Clone, Copy)]
pub struct GpuHeadScan<'a> {
    /// Rows of x `[heads · head_dim]`, then B and C, `[groups · d_state]` each.
    pub xbc: View<'a, f32>,
    /// Numbers from row to row of `delta_raw`, [heads] each.
    pub delta_stride: usize,
    /// Before bias and softplus.
    pub delta_raw: View<'a, f32>,
    /// [heads]
    pub dt_bias: View<'a, f32>,
    /// −exp(`A_log`), [heads].
    pub a: View<'a, f32>,
    /// [heads]
    pub d: View<'a, f32>,
    /// Dims.
    pub dims: HeadDims,
}

impl Gpu {
    /// y `[rows, channels]`: every sequence's convolution and `SiLU`, from inputs that are `stride` apart; `tails`
    /// `[slots, taps − 1, channels]` are advanced.
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// If the dims disagree.
    pub fn conv_silu(
        &self,
        batch: &SequenceBatch,
        conv: &GpuConv<'_>,
        (u, stride): (View<'_, f32>, usize),
        tails: View<'_, f32>,
        y: View<'_, f32>,
    ) -> Result<(), GpuError> {
        let &GpuConv { weight, bias, channels, taps } = conv;
        assert!((1..=TAPS_MAX).contains(&taps), "conv_silu: {taps} taps");
        let past = channels * (taps - 1);
        let arguments = [
            u.rows("conv_silu u", batch.rows, stride, channels),
            Arg::int(stride),
            weight.rows("conv_silu weight", taps, channels, channels),
            bias.map_or(Arg::At(0), |bias| bias.rows("conv_silu bias", 1, channels, channels)),
            tails.rows("conv_silu tails", batch.slots, past, past),
            batch.sequences.view().at(),
            Arg::int(channels),
            Arg::int(taps),
            y.rows("conv_silu y", batch.rows, channels, channels),
        ];
        let grid = [channels.div_ceil(128), batch.count(), batch.longest.div_ceil(CONV_SPAN)];
        // SAFETY: the kernel's parameters, checked above.
        unsafe { self.launch("conv_silu", grid, 128, arguments) }
    }

    /// y `[rows, channels]`: Mamba-1's scan of every sequence; `states` `[slots, channels, d_state]` are advanced.
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// If the dims disagree.
    pub fn selective_scan(
        &self,
        batch: &SequenceBatch,
        scan: &GpuScan<'_>,
        states: View<'_, f32>,
        y: View<'_, f32>,
    ) -> Result<(), GpuError> {
        let &GpuScan { channels, d_state, bc_stride, .. } = scan;
        assert!((1..=STATE_MAX).contains(&d_state), "selective_scan: a state of {d_state}");
        let (z, z_stride) = scan
            .z
            .map_or((Arg::At(0), 0), |(z, stride)| (z.rows("selective_scan z", batch.rows, stride, channels), stride));
        let wide = |what, view: View<'_, f32>| view.rows(what, batch.rows, channels, channels);
        let one = |what, view: View<'_, f32>| view.rows(what, 1, channels, channels);
        let [u, delta, y] = [
            wide("selective_scan u", scan.u),
            wide("selective_scan delta", scan.delta_raw),
            wide("selective_scan y", y),
        ];
        let [bias, d] = [one("selective_scan dt_bias", scan.dt_bias), one("selective_scan d", scan.d)];
        let a = scan.a.rows("selective_scan a", channels, d_state, d_state);
        let bc = scan.bc.rows("selective_scan bc", batch.rows, bc_stride, 2 * d_state);
        let state = channels * d_state;
        let fits =
            d_state == 16 && bc_stride.is_multiple_of(4) && [scan.a, scan.bc, states].iter().all(|view| view.is_wide());
        let states = states.rows("selective_scan states", batch.slots, state, state);
        let (stride, z_stride, sequences) = (Arg::int(bc_stride), Arg::int(z_stride), batch.sequences.view().at());
        let wide = Arg::int(channels);
        if batch.longest == 1 && fits {
            let arguments = [u, delta, bias, a, bc, stride, d, z, z_stride, states, sequences, wide, y];
            // SAFETY: the kernel's parameters, checked above.
            return unsafe { self.launch("scan_step16", [channels.div_ceil(32), batch.count(), 1], 128, arguments) };
        }
        let arguments = [u, delta, bias, a, bc, stride, d, z, z_stride, states, sequences, wide, Arg::int(d_state), y];
        // SAFETY: as above.
        unsafe { self.launch("scan_segments", [channels, batch.count(), 1], 128, arguments) }
    }

    /// Adds Δ = clamp(softplus(`delta_raw` + `dt_bias`), `limit`), before any gain, over the rows of each of the sequences
    /// `watched` to its row of `sums` in f64; rows of `sums` are `sums_stride` apart. See [`add_steps`](crate::add_steps).
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// If the dims disagree, or a watched sequence may not exist.
    pub fn add_steps(
        &self,
        (batch, watched): (&SequenceBatch, &RowList),
        (delta_raw, delta_stride): (View<'_, f32>, usize),
        dt_bias: View<'_, f32>,
        limit: (f32, f32),
        channels: usize,
        (sums, sums_stride): (View<'_, f64>, usize),
    ) -> Result<(), GpuError> {
        assert!(watched.below() <= batch.count(), "add_steps: sequences below {}", watched.below());
        let arguments = [
            delta_raw.rows("add_steps delta", batch.rows, delta_stride, channels),
            Arg::int(delta_stride),
            dt_bias.rows("add_steps dt_bias", 1, channels, channels),
            batch.sequences.view().at(),
            watched.view().at(),
            Arg::Float(limit.0),
            Arg::Float(limit.1),
            Arg::int(channels),
            sums.rows("add_steps sums", watched.len(), sums_stride, channels),
            Arg::int(sums_stride),
        ];
        // SAFETY: the kernel's parameters, checked above.
        unsafe { self.launch("add_steps", [channels.div_ceil(128), watched.len(), 1], 128, arguments) }
    }

    /// y `[rows, heads · head_dim]`: Mamba-2's scan of every sequence; `states` `[slots, heads, d_state, head_dim]` are
    /// advanced. Single tokens use the recurrence, longer segments the chunked form.
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// If the dims disagree.
    pub fn head_scan(
        &self,
        batch: &SequenceBatch,
        scan: &GpuHeadScan<'_>,
        states: View<'_, f32>,
        y: View<'_, f32>,
    ) -> Result<(), GpuError> {
        let [heads, head_dim, d_state, groups] =
            [scan.dims.heads, scan.dims.head_dim, scan.dims.d_state, scan.dims.groups].map(|n| n as usize);
        assert!(heads > 0 && groups > 0 && heads.is_multiple_of(groups), "head_scan: {heads} heads in {groups} groups");
        let width = heads * head_dim;
        let (row, state) = (width + 2 * groups * d_state, width * d_state);
        let one = |what, view: View<'_, f32>| view.rows(what, 1, heads, heads);
        let arguments = [
            scan.xbc.rows("head_scan xbc", batch.rows, row, row),
            Arg::int(row),
            scan.delta_raw.rows("head_scan delta", batch.rows, scan.delta_stride, heads),
            Arg::int(scan.delta_stride),
            one("head_scan dt_bias", scan.dt_bias),
            one("head_scan a", scan.a),
            one("head_scan d", scan.d),
            states.rows("head_scan states", batch.slots, state, state),
            batch.sequences.view().at(),
            Arg::HeadDims(scan.dims),
            y.rows("head_scan y", batch.rows, width, width),
        ];
        let fits = head_dim.is_multiple_of(4) && (4 * STEP_THREADS).is_multiple_of(head_dim) && states.is_wide();
        let kernel = if batch.longest == 1 && fits { "head_step" } else { "head_segments" };
        // SAFETY: the kernel's parameters, checked above.
        unsafe { self.launch(kernel, [heads, batch.count(), 1], STEP_THREADS as u32, arguments) }
    }
}
