//! One method a kernel, with every dim checked: norms, convolution, scans, attention.

use super::memory::{Buffer, Plain, View};
use super::{Arg, Gpu, GpuError};

/// Positions in a page of keys or values.
pub const PAGE: usize = 64;

const HEAD_DIM_MAX: usize = 256;
const TAPS_MAX: usize = 8;
const STATE_MAX: usize = 128;
/// Positions that one block of the attention looks at in a go.
const ATTEND_SPAN: usize = 128;
const STEP_THREADS: usize = 256;

/// One sequence's rows in a launch, and where its state lies.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Sequence {
    /// Its first row.
    pub row: i32,
    /// How many rows it has.
    pub len: i32,
    /// The slot with its state before.
    pub from: i32,
    /// The slot for its state after; may be the same.
    pub to: i32,
    /// Multiplies Δ where it decays the state; 1 is off.
    pub gain_decay: f32,
    /// Multiplies Δ where it writes to the state; 1 is off.
    pub gain_write: f32,
}

// SAFETY: six words.
unsafe impl Plain for Sequence {}

/// The sequences of a pass on the device, checked once.
#[derive(Debug)]
pub struct Batch {
    sequences: Buffer<Sequence>,
    rows: usize,
    slots: usize,
    longest: usize,
}

impl Batch {
    /// `sequences` over states in `slots` slots. The rows of each follow those of the one before it.
    ///
    /// # Errors
    /// If the memory does not suffice.
    ///
    /// # Panics
    /// If a sequence is empty or lies elsewhere, a slot does not exist, or one is written that another reads or writes.
    pub fn new(gpu: &Gpu, sequences: &[Sequence], slots: usize) -> Result<Self, GpuError> {
        let (mut rows, mut longest) = (0, 0);
        for (index, sequence) in sequences.iter().enumerate() {
            let inside = |slot: i32| usize::try_from(slot).is_ok_and(|slot| slot < slots);
            assert!(inside(sequence.from) && inside(sequence.to), "Batch: {sequence:?} with {slots} slots");
            assert!(sequence.len > 0 && sequence.row as usize == rows, "Batch: {sequence:?} at row {rows}");
            let mut others = sequences.iter().enumerate().filter(|&(other, _)| other != index);
            assert!(
                others.all(|(_, other)| other.from != sequence.to && other.to != sequence.to),
                "Batch: slot {} is written for one sequence and used by another",
                sequence.to
            );
            rows += sequence.len as usize;
            longest = longest.max(sequence.len as usize);
        }
        Ok(Self { sequences: gpu.upload(sequences)?, rows, slots, longest })
    }

    /// Rows of all sequences.
    pub fn rows(&self) -> usize {
        self.rows
    }

    fn count(&self) -> usize {
        self.sequences.len()
    }
}

/// The weights of a causal convolution.
#[derive(Debug, Clone, Copy)]
pub struct GpuConv<'a> {
    /// `[channels, taps]`
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
pub struct Heads {
    /// Heads.
    pub heads: i32,
    /// Numbers in a head.
    pub head_dim: i32,
    /// Numbers of state per number of a head.
    pub d_state: i32,
    /// Groups of heads with a B and a C of their own.
    pub groups: i32,
    /// Δ is kept at or above this, after the softplus and before the gains.
    pub least: f32,
    /// Δ is kept at or below this.
    pub most: f32,
}

/// Inputs of Mamba-2's scan, as [`HeadScan`](crate::HeadScan) for all sequences at once.
#[derive(Debug, Clone, Copy)]
pub struct GpuHeadScan<'a> {
    /// Rows of x `[heads · head_dim]`, B and C `[groups · d_state]` each, behind each other.
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
    pub dims: Heads,
}

/// Where a row stands.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Its position: it sees this many before it, and itself.
    pub position: i32,
    /// Where its sequence's pages begin in the tables.
    pub table: i32,
}

// SAFETY: two words.
unsafe impl Plain for Place {}

/// A pass of rotary attention over pages of keys and values.
#[derive(Debug)]
pub struct Attend {
    places: Buffer<Place>,
    tables: Buffer<i32>,
    most: usize,
    pages: usize,
    /// Query heads: a multiple of `kv_heads`.
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
}

impl Attend {
    /// Rows at `places`, whose sequences' pages stand in `tables`, out of `pages` pages of `kv_heads` heads of `head_dim`
    /// (even, at most 256).
    ///
    /// # Errors
    /// If the memory does not suffice.
    ///
    /// # Panics
    /// If a place is beyond its table, a page does not exist, or the dims do not fit each other.
    pub fn new(
        gpu: &Gpu,
        places: &[Place],
        tables: &[i32],
        pages: usize,
        [heads, kv_heads, head_dim]: [usize; 3],
    ) -> Result<Self, GpuError> {
        assert!(kv_heads > 0 && heads.is_multiple_of(kv_heads), "Attend: {heads} heads over {kv_heads}");
        assert!(head_dim.is_multiple_of(2) && head_dim <= HEAD_DIM_MAX, "Attend: heads of {head_dim}");
        assert!(tables.iter().all(|&page| (page as usize) < pages && page >= 0), "Attend: a page of {pages}");
        let inside = |place: &Place| {
            place.position >= 0
                && place.table >= 0
                && place.table as usize + place.position as usize / PAGE < tables.len()
        };
        assert!(places.iter().all(inside), "Attend: a place beyond its table");
        let most = places.iter().map(|place| place.position as usize + 1).max().unwrap_or(0);
        Ok(Self { places: gpu.upload(places)?, tables: gpu.upload(tables)?, most, pages, heads, kv_heads, head_dim })
    }

    /// Numbers that [`Gpu::attend`] needs as scratch.
    pub fn scratch(&self) -> usize {
        self.places.len() * self.heads * self.splits() * (self.head_dim + 2)
    }

    /// Few rows share their positions among several blocks, so that the device has enough of them.
    fn splits(&self) -> usize {
        const BLOCKS: usize = 512;
        let wanted = BLOCKS.div_ceil((self.places.len() * self.heads).max(1));
        wanted.min(self.most.div_ceil(ATTEND_SPAN)).max(1)
    }

    fn cache(&self) -> usize {
        self.pages * self.kv_heads * PAGE * self.head_dim
    }
}

impl Gpu {
    /// x += added, where there is one; y = the RMS norm of x, row by row, times `weight` `[width]`.
    ///
    /// # Errors
    /// As the driver says. So for all methods below; and they panic if the dims disagree.
    ///
    /// # Panics
    /// If the dims disagree.
    pub fn rms_norm(
        &self,
        x: View<'_, f32>,
        added: Option<View<'_, f32>>,
        weight: View<'_, f32>,
        epsilon: f32,
        y: View<'_, f32>,
        [rows, width]: [usize; 2],
    ) -> Result<(), GpuError> {
        let row = |what, view: View<'_, f32>| view.rows(what, rows, width, width);
        let added = added.map_or(Arg::At(0), |added| row("rms_norm added", added));
        let arguments = [
            row("rms_norm x", x),
            added,
            weight.rows("rms_norm weight", 1, width, width),
            Arg::Float(epsilon),
            row("rms_norm y", y),
            Arg::int(width),
        ];
        // SAFETY: the kernel's parameters, checked above.
        unsafe { self.launch("rms_norm_residual", [rows, 1, 1], 256, arguments) }
    }

    /// out = the RMS norm of y · silu(z) in `groups` parts of a row, times `weight` `[width]`; rows of z lie `z_stride` apart.
    ///
    /// # Errors
    /// As the driver says.
    ///
    /// # Panics
    /// If the dims disagree.
    pub fn gated_rms_norm(
        &self,
        y: View<'_, f32>,
        (z, z_stride): (View<'_, f32>, usize),
        weight: View<'_, f32>,
        epsilon: f32,
        out: View<'_, f32>,
        [rows, width, groups]: [usize; 3],
    ) -> Result<(), GpuError> {
        assert!(groups > 0 && width.is_multiple_of(groups), "gated_rms_norm: {width} in {groups} groups");
        let arguments = [
            y.rows("gated_rms_norm y", rows, width, width),
            z.rows("gated_rms_norm z", rows, z_stride, width),
            Arg::int(z_stride),
            weight.rows("gated_rms_norm weight", 1, width, width),
            Arg::Float(epsilon),
            out.rows("gated_rms_norm out", rows, width, width),
            Arg::int(width),
        ];
        // SAFETY: the kernel's parameters, checked above.
        unsafe { self.launch("gated_rms_norm", [groups, rows, 1], 256, arguments) }
    }

    /// up = silu(gate) · up.
    ///
    /// # Errors
    /// As the driver says.
    ///
    /// # Panics
    /// If one is shorter than `count`.
    pub fn silu_gate(&self, gate: View<'_, f32>, up: View<'_, f32>, count: usize) -> Result<(), GpuError> {
        let arguments =
            [gate.rows("silu_gate gate", 1, count, count), up.rows("silu_gate up", 1, count, count), Arg::int(count)];
        // SAFETY: the kernel's parameters, checked above.
        unsafe { self.launch("silu_gate", [count.div_ceil(256), 1, 1], 256, arguments) }
    }

    /// x += added.
    ///
    /// # Errors
    /// As the driver says.
    ///
    /// # Panics
    /// If one is shorter than `count`.
    pub fn add_to(&self, x: View<'_, f32>, added: View<'_, f32>, count: usize) -> Result<(), GpuError> {
        let arguments =
            [x.rows("add_to x", 1, count, count), added.rows("add_to added", 1, count, count), Arg::int(count)];
        // SAFETY: the kernel's parameters, checked above.
        unsafe { self.launch("add_to", [count.div_ceil(256), 1, 1], 256, arguments) }
    }

    /// to[`to_rows`[r]] = from[`from_rows`[r]] for rows of `width` numbers, one target each; `None` stands for r itself.
    ///
    /// # Errors
    /// As the driver says.
    ///
    /// # Panics
    /// If a row lies beyond its buffer, or the lists are of different lengths.
    pub fn copy_rows(
        &self,
        (from, from_rows): (View<'_, f32>, &[i32]),
        (to, to_rows): (View<'_, f32>, Option<&[i32]>),
        width: usize,
    ) -> Result<(), GpuError> {
        let rows = from_rows.len();
        let end = |rows: &[i32]| rows.iter().map(|&row| usize::try_from(row).expect("a row") + 1).max().unwrap_or(0);
        assert!(to_rows.is_none_or(|list| list.len() == rows), "copy_rows: {rows} rows to another number of them");
        let (source, target) = (end(from_rows), to_rows.map_or(rows, end));
        let (from, to) =
            (from.rows("copy_rows from", source, width, width), to.rows("copy_rows to", target, width, width));
        let (from_list, to_list) = (self.upload(from_rows)?, to_rows.map(|list| self.upload(list)).transpose()?);
        let to_at = to_list.as_ref().map_or(Arg::At(0), |list| list.view().at());
        let arguments = [from, from_list.view().at(), to, to_at, Arg::int(width)];
        // SAFETY: the kernel's parameters, checked above.
        unsafe { self.launch("copy_rows", [rows, 1, 1], 256, arguments) }
    }

    /// y `[rows, channels]`: every sequence's convolution and `SiLU`, from inputs that lie `stride` apart; `tails`
    /// `[slots, channels, taps − 1]` move on.
    ///
    /// # Errors
    /// As the driver says.
    ///
    /// # Panics
    /// If the dims disagree.
    pub fn conv_silu(
        &self,
        batch: &Batch,
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
            weight.rows("conv_silu weight", channels, taps, taps),
            bias.map_or(Arg::At(0), |bias| bias.rows("conv_silu bias", 1, channels, channels)),
            tails.rows("conv_silu tails", batch.slots, past, past),
            batch.sequences.view().at(),
            Arg::int(channels),
            Arg::int(taps),
            y.rows("conv_silu y", batch.rows, channels, channels),
        ];
        // SAFETY: the kernel's parameters, checked above.
        unsafe { self.launch("conv_silu", [channels.div_ceil(128), batch.count(), 1], 128, arguments) }
    }

    /// y `[rows, channels]`: Mamba-1's scan of every sequence; `states` `[slots, channels, d_state]` move on.
    ///
    /// # Errors
    /// As the driver says.
    ///
    /// # Panics
    /// If the dims disagree.
    pub fn selective_scan(
        &self,
        batch: &Batch,
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
        let states = states.rows("selective_scan states", batch.slots, state, state);
        let (stride, z_stride, sequences) = (Arg::int(bc_stride), Arg::int(z_stride), batch.sequences.view().at());
        let wide = Arg::int(channels);
        if batch.longest == 1 && d_state == 16 {
            let arguments = [u, delta, bias, a, bc, stride, d, z, z_stride, states, sequences, wide, y];
            // SAFETY: the kernel's parameters, checked above.
            return unsafe { self.launch("scan_step16", [channels.div_ceil(8), batch.count(), 1], 128, arguments) };
        }
        let arguments = [u, delta, bias, a, bc, stride, d, z, z_stride, states, sequences, wide, Arg::int(d_state), y];
        // SAFETY: as above.
        unsafe { self.launch("scan_segments", [channels, batch.count(), 1], 128, arguments) }
    }

    /// y `[rows, heads · head_dim]`: Mamba-2's scan of every sequence; `states` `[slots, heads, d_state, head_dim]` move on.
    /// One token each is the recurrence; longer segments take the chunked form.
    ///
    /// # Errors
    /// As the driver says.
    ///
    /// # Panics
    /// If the dims disagree.
    pub fn head_scan(
        &self,
        batch: &Batch,
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
            Arg::Heads(scan.dims),
            y.rows("head_scan y", batch.rows, width, width),
        ];
        let fits = head_dim.is_multiple_of(4) && (4 * STEP_THREADS).is_multiple_of(head_dim) && states.is_wide();
        let kernel = if batch.longest == 1 && fits { "head_step" } else { "head_segments" };
        // SAFETY: the kernel's parameters, checked above.
        unsafe { self.launch(kernel, [heads, batch.count(), 1], STEP_THREADS as u32, arguments) }
    }

    /// Turns queries `[rows, heads, head_dim]` in place and writes the turned keys and the values `[rows, kv_heads,
    /// head_dim]` to their pages: `[pages, kv_heads, head_dim, PAGE]` and `[pages, kv_heads, PAGE, head_dim]`. `turns`
    /// `[rows, head_dim]` holds the cosines and then the sines of each row's position.
    ///
    /// # Errors
    /// As the driver says.
    ///
    /// # Panics
    /// If the dims disagree.
    pub fn rotary_write(
        &self,
        attend: &Attend,
        q: View<'_, f32>,
        [k, v, turns]: [View<'_, f32>; 3],
        [keys, values]: [View<'_, f32>; 2],
    ) -> Result<(), GpuError> {
        let &Attend { heads, kv_heads, head_dim, .. } = attend;
        let rows = attend.places.len();
        let row = |what, view: View<'_, f32>, heads: usize| view.rows(what, rows, heads * head_dim, heads * head_dim);
        let arguments = [
            row("rotary_write q", q, heads),
            row("rotary_write k", k, kv_heads),
            row("rotary_write v", v, kv_heads),
            row("rotary_write turns", turns, 1),
            keys.rows("rotary_write keys", 1, attend.cache(), attend.cache()),
            values.rows("rotary_write values", 1, attend.cache(), attend.cache()),
            attend.places.view().at(),
            attend.tables.view().at(),
            Arg::int(heads),
            Arg::int(kv_heads),
            Arg::int(head_dim),
        ];
        // SAFETY: the kernel's parameters, checked above; places and pages in `Attend::new`.
        unsafe { self.launch("rotary_write", [heads + kv_heads, rows, 1], 128, arguments) }
    }

    /// y `[rows, heads, head_dim]`: what every row's queries find among the positions up to its own.
    ///
    /// # Errors
    /// As the driver says.
    ///
    /// # Panics
    /// If the dims disagree.
    pub fn attend(
        &self,
        attend: &Attend,
        q: View<'_, f32>,
        [keys, values]: [View<'_, f32>; 2],
        scale: f32,
        scratch: View<'_, f32>,
        y: View<'_, f32>,
    ) -> Result<(), GpuError> {
        let &Attend { heads, kv_heads, head_dim, .. } = attend;
        let (rows, splits, width) = (attend.places.len(), attend.splits(), heads * head_dim);
        let parts = scratch.rows("attend scratch", 1, attend.scratch(), attend.scratch());
        let arguments = [
            q.rows("attend q", rows, width, width),
            keys.rows("attend keys", 1, attend.cache(), attend.cache()),
            values.rows("attend values", 1, attend.cache(), attend.cache()),
            attend.places.view().at(),
            attend.tables.view().at(),
            Arg::int(kv_heads),
            Arg::int(head_dim),
            Arg::Float(scale),
            parts,
        ];
        let y = y.rows("attend y", rows, width, width);
        // SAFETY: the kernels' parameters, checked above; places and pages in `Attend::new`.
        unsafe {
            self.launch("attend_part", [heads, rows, splits], ATTEND_SPAN as u32, arguments)?;
            self.launch("attend_join", [heads, rows, 1], 128, [parts, Arg::int(splits), Arg::int(head_dim), y])
        }
    }
}
