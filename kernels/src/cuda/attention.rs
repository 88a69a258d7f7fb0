//! Rotary positions and attention over pages of keys and values.

use super::memory::{Buffer, Plain, View};
use super::{Arg, Gpu, GpuError};

/// Positions in a page of keys or values.
pub const PAGE: usize = 64;

const HEAD_DIM_MAX: usize = 256;
/// Positions that one block of the attention looks at in a go.
const ATTEND_SPAN: usize = 128;
/// Blocks that keep a device busy.
const BLOCKS: usize = 512;

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

    /// What [`scratch`](Self::scratch) is at most for up to `rows` rows, wherever they stand.
    pub fn scratch_max(rows: usize, heads: usize, head_dim: usize) -> usize {
        (rows * heads + BLOCKS) * (head_dim + 2)
    }

    /// Few rows share their positions among several blocks, so that the device has enough of them.
    fn splits(&self) -> usize {
        let wanted = BLOCKS.div_ceil((self.places.len() * self.heads).max(1));
        wanted.min(self.most.div_ceil(ATTEND_SPAN)).max(1)
    }

    fn cache(&self) -> usize {
        self.pages * self.kv_heads * PAGE * self.head_dim
    }
}

impl Gpu {
    /// Turns queries `[rows, heads, head_dim]` in place and writes the turned keys and the values `[rows, kv_heads,
    /// head_dim]` to their pages: `[pages, kv_heads, head_dim, PAGE]` and `[pages, kv_heads, PAGE, head_dim]`. `turns`
    /// `[positions, head_dim]` holds the cosines and then the sines of every position.
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
        [k, v]: [View<'_, f32>; 2],
        turns: View<'_, f32>,
        [keys, values]: [View<'_, f32>; 2],
    ) -> Result<(), GpuError> {
        let &Attend { heads, kv_heads, head_dim, .. } = attend;
        let rows = attend.places.len();
        let row = |what, view: View<'_, f32>, heads: usize| view.rows(what, rows, heads * head_dim, heads * head_dim);
        let arguments = [
            row("rotary_write q", q, heads),
            row("rotary_write k", k, kv_heads),
            row("rotary_write v", v, kv_heads),
            turns.rows("rotary_write turns", attend.most, head_dim, head_dim),
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
