//! Rotary positions and attention over pages of keys and values.

use super::memory::{Buffer, PlainData, View};
use super::{Arg, Gpu, GpuError};

/// Positions in a page of keys or values.
pub const PAGE: usize = 64;

const HEAD_DIM_MAX: usize = 256;
/// Positions per tile of an attention block.
const ATTEND_SPAN: usize = 128;
/// Number of blocks that occupies a device.
const BLOCKS: usize = 512;

/// The position of a row.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RowPosition {
    /// Its position in the sequence: it sees this many earlier positions and its own.
    pub position: i32,
    /// Start of its sequence's pages in the tables.
    pub table: i32,
}

// SAFETY: two words.
unsafe impl PlainData for RowPosition {}

/// The rows of one pass of rotary attention over pages of keys and values.
#[derive(Debug)]
pub struct AttentionPass {
    positions: Buffer<RowPosition>,
    tables: Buffer<i32>,
    rows: usize,
    splits: usize,
    /// Upper bound of positions.
    most: usize,
    pages: usize,
    /// Query heads: a multiple of `kv_heads`.
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
}

impl AttentionPass {
    /// A pass for rows at `positions`, with the pages of each sequence listed in `tables`, out of `pages` pages of `kv_heads`
    /// heads of `head_dim` (even, at most 256).
    ///
    /// # Errors
    /// If out of memory.
    ///
    /// # Panics
    /// If a position is beyond its table, a page does not exist, or the dims disagree.
    pub fn new(
        gpu: &Gpu,
        positions: &[RowPosition],
        tables: &[i32],
        pages: usize,
        [heads, kv_heads, head_dim]: [usize; 3],
    ) -> Result<Self, GpuError> {
        check_dims([heads, kv_heads, head_dim]);
        let most = check(positions, tables, pages);
        let rows = positions.len();
        let splits = splits(rows, heads, most);
        let (positions, tables) = (gpu.upload(positions)?, gpu.upload(tables)?);
        Ok(Self { positions, tables, rows, splits, most, pages, heads, kv_heads, head_dim })
    }

    /// An empty pass with buffers at fixed addresses, for [`set`](Self::set) with up to `rows` rows at positions below
    /// `positions_max`, with tables of up to `entries` pages.
    ///
    /// # Errors
    /// If out of memory.
    ///
    /// # Panics
    /// If the dims do not fit each other.
    pub fn with_capacity(
        gpu: &Gpu,
        [rows, positions_max, entries]: [usize; 3],
        pages: usize,
        [heads, kv_heads, head_dim]: [usize; 3],
    ) -> Result<Self, GpuError> {
        check_dims([heads, kv_heads, head_dim]);
        let (positions, tables) = (gpu.uninit(rows)?, gpu.uninit(entries)?);
        Ok(Self { positions, tables, rows: 0, splits: 1, most: positions_max, pages, heads, kv_heads, head_dim })
    }

    /// Repositions it by rows at `positions`, filled up to `rows` with rows that see nothing, and gives into how many parts the
    /// positions are split: recorded work is of as many. `None` if the tables are too long for it.
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// As [`new`](Self::new); also if there is no room for so many, or a position is beyond what it was made for.
    pub fn set(&mut self, positions: &[RowPosition], tables: &[i32], rows: usize) -> Result<Option<usize>, GpuError> {
        let most = check(positions, tables, self.pages);
        assert!(most <= self.most, "AttentionPass::set: {most} positions of {}", self.most);
        assert!(
            positions.len() <= rows && rows <= self.positions.len(),
            "AttentionPass::set: {} positions as {rows}",
            positions.len()
        );
        if tables.len() > self.tables.len() {
            return Ok(None);
        }
        let mut filled = positions.to_vec();
        filled.resize(rows, RowPosition { position: -1, table: 0 });
        self.positions.write(&filled)?;
        self.tables.write(tables)?;
        let wanted = splits(rows, self.heads, most);
        // Rounded down to a power of two, to limit the number of recordings.
        (self.rows, self.splits) = (rows, 1 << wanted.ilog2());
        Ok(Some(self.splits))
    }

    /// Length of the scratch buffer of [`Gpu::attend`].
    pub fn scratch(&self) -> usize {
        self.rows * self.heads * self.splits * (self.head_dim + 2)
    }

    /// Upper bound of [`scratch`](Self::scratch) for up to `rows` rows at any positions.
    pub fn scratch_max(rows: usize, heads: usize, head_dim: usize) -> usize {
        (rows * heads + BLOCKS) * (head_dim + 2)
    }

    fn cache(&self) -> usize {
        self.pages * self.kv_heads * PAGE * self.head_dim
    }
}

/// With few rows the positions are split among several blocks, to occupy the device.
fn splits(rows: usize, heads: usize, most: usize) -> usize {
    BLOCKS.div_ceil((rows * heads).max(1)).min(most.div_ceil(ATTEND_SPAN)).max(1)
}

fn check_dims([heads, kv_heads, head_dim]: [usize; 3]) {
    assert!(kv_heads > 0 && heads.is_multiple_of(kv_heads), "AttentionPass: {heads} heads over {kv_heads}");
    assert!(head_dim.is_multiple_of(2) && head_dim <= HEAD_DIM_MAX, "AttentionPass: heads of {head_dim}");
}

/// Checks the positions and returns the largest number of visible positions.
fn check(positions: &[RowPosition], tables: &[i32], pages: usize) -> usize {
    assert!(tables.iter().all(|&page| (page as usize) < pages && page >= 0), "AttentionPass: a page of {pages}");
    let inside = |place: &RowPosition| {
        place.position >= 0 && place.table >= 0 && place.table as usize + place.position as usize / PAGE < tables.len()
    };
    assert!(positions.iter().all(inside), "AttentionPass: a position beyond its table");
    positions.iter().map(|place| place.position as usize + 1).max().unwrap_or(0)
}

impl Gpu {
    /// Applies rotary positions to queries `[rows, heads, head_dim]` in place, and to the keys, which it writes with the values
    /// `[rows, kv_heads, head_dim]` to their pages: `[pages, kv_heads, head_dim, PAGE]` and `[pages, kv_heads, PAGE, head_dim]`. `rope_table`
    /// `[positions, head_dim]` holds the cosines and then the sines of every position.
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// If the dims disagree.
    pub fn rotary_write(
        &self,
        attend: &AttentionPass,
        q: View<'_, f32>,
        [k, v]: [View<'_, f32>; 2],
        rope_table: View<'_, f32>,
        [keys, values]: [View<'_, f32>; 2],
    ) -> Result<(), GpuError> {
        let &AttentionPass { heads, kv_heads, head_dim, .. } = attend;
        let rows = attend.rows;
        let row = |what, view: View<'_, f32>, heads: usize| view.rows(what, rows, heads * head_dim, heads * head_dim);
        let arguments = [
            row("rotary_write q", q, heads),
            row("rotary_write k", k, kv_heads),
            row("rotary_write v", v, kv_heads),
            rope_table.rows("rotary_write rope_table", attend.most, head_dim, head_dim),
            keys.rows("rotary_write keys", 1, attend.cache(), attend.cache()),
            values.rows("rotary_write values", 1, attend.cache(), attend.cache()),
            attend.positions.view().at(),
            attend.tables.view().at(),
            Arg::int(heads),
            Arg::int(kv_heads),
            Arg::int(head_dim),
        ];
        // SAFETY: the kernel's parameters, checked above; positions and pages in `AttentionPass::new`.
        unsafe { self.launch("rotary_write", [heads + kv_heads, rows, 1], 128, arguments) }
    }

    /// y `[rows, heads, head_dim]`: attention of every row over the positions up to its own.
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// If the dims disagree.
    pub fn attend(
        &self,
        attend: &AttentionPass,
        q: View<'_, f32>,
        [keys, values]: [View<'_, f32>; 2],
        scale: f32,
        scratch: View<'_, f32>,
        y: View<'_, f32>,
    ) -> Result<(), GpuError> {
        let &AttentionPass { heads, kv_heads, head_dim, .. } = attend;
        let (rows, splits, width) = (attend.rows, attend.splits, heads * head_dim);
        let parts = scratch.rows("attend scratch", 1, attend.scratch(), attend.scratch());
        let arguments = [
            q.rows("attend q", rows, width, width),
            keys.rows("attend keys", 1, attend.cache(), attend.cache()),
            values.rows("attend values", 1, attend.cache(), attend.cache()),
            attend.positions.view().at(),
            attend.tables.view().at(),
            Arg::int(kv_heads),
            Arg::int(head_dim),
            Arg::Float(scale),
            parts,
        ];
        let y = y.rows("attend y", rows, width, width);
        // SAFETY: the kernels' parameters, checked above; positions and pages in `AttentionPass::new`.
        unsafe {
            self.launch("attend_part", [heads, rows, splits], ATTEND_SPAN as u32, arguments)?;
            self.launch("attend_join", [heads, rows, 1], 128, [parts, Arg::int(splits), Arg::int(head_dim), y])
        }
    }
}
