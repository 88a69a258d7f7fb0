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
    rows: usize,
    splits: usize,
    /// Positions are below this.
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
        check_dims([heads, kv_heads, head_dim]);
        let most = check(places, tables, pages);
        let rows = places.len();
        let splits = splits(rows, heads, most);
        let (places, tables) = (gpu.upload(places)?, gpu.upload(tables)?);
        Ok(Self { places, tables, rows, splits, most, pages, heads, kv_heads, head_dim })
    }

    /// Room for steps of up to `rows` rows at positions below `positions`, with tables of up to `entries` pages, that stays
    /// where it is.
    ///
    /// # Errors
    /// If the memory does not suffice.
    ///
    /// # Panics
    /// If the dims do not fit each other.
    pub fn room(
        gpu: &Gpu,
        [rows, positions, entries]: [usize; 3],
        pages: usize,
        [heads, kv_heads, head_dim]: [usize; 3],
    ) -> Result<Self, GpuError> {
        check_dims([heads, kv_heads, head_dim]);
        let (places, tables) = (gpu.room(rows)?, gpu.room(entries)?);
        Ok(Self { places, tables, rows: 0, splits: 1, most: positions, pages, heads, kv_heads, head_dim })
    }

    /// Replaces it by rows at `places`, filled up to `rows` with rows that see nothing, and gives into how many parts the
    /// positions are split: recorded work is of as many. `None` if the tables are too long for it.
    ///
    /// # Errors
    /// As the driver says.
    ///
    /// # Panics
    /// As [`new`](Self::new); also if there is no room for so many, or a position is beyond what it was made for.
    pub fn set(&mut self, places: &[Place], tables: &[i32], rows: usize) -> Result<Option<usize>, GpuError> {
        let most = check(places, tables, self.pages);
        assert!(most <= self.most, "Attend::set: {most} positions of {}", self.most);
        assert!(places.len() <= rows && rows <= self.places.len(), "Attend::set: {} places as {rows}", places.len());
        if tables.len() > self.tables.len() {
            return Ok(None);
        }
        let mut filled = places.to_vec();
        filled.resize(rows, Place { position: -1, table: 0 });
        self.places.write(&filled)?;
        self.tables.write(tables)?;
        let wanted = splits(rows, self.heads, most);
        // A power of two, downwards: few kinds of steps.
        (self.rows, self.splits) = (rows, 1 << wanted.ilog2());
        Ok(Some(self.splits))
    }

    /// Numbers that [`Gpu::attend`] needs as scratch.
    pub fn scratch(&self) -> usize {
        self.rows * self.heads * self.splits * (self.head_dim + 2)
    }

    /// What [`scratch`](Self::scratch) is at most for up to `rows` rows, wherever they stand.
    pub fn scratch_max(rows: usize, heads: usize, head_dim: usize) -> usize {
        (rows * heads + BLOCKS) * (head_dim + 2)
    }

    fn cache(&self) -> usize {
        self.pages * self.kv_heads * PAGE * self.head_dim
    }
}

/// Few rows share their positions among several blocks, so that the device has enough of them.
fn splits(rows: usize, heads: usize, most: usize) -> usize {
    BLOCKS.div_ceil((rows * heads).max(1)).min(most.div_ceil(ATTEND_SPAN)).max(1)
}

fn check_dims([heads, kv_heads, head_dim]: [usize; 3]) {
    assert!(kv_heads > 0 && heads.is_multiple_of(kv_heads), "Attend: {heads} heads over {kv_heads}");
    assert!(head_dim.is_multiple_of(2) && head_dim <= HEAD_DIM_MAX, "Attend: heads of {head_dim}");
}

/// How many positions the row furthest along sees.
fn check(places: &[Place], tables: &[i32], pages: usize) -> usize {
    assert!(tables.iter().all(|&page| (page as usize) < pages && page >= 0), "Attend: a page of {pages}");
    let inside = |place: &Place| {
        place.position >= 0 && place.table >= 0 && place.table as usize + place.position as usize / PAGE < tables.len()
    };
    assert!(places.iter().all(inside), "Attend: a place beyond its table");
    places.iter().map(|place| place.position as usize + 1).max().unwrap_or(0)
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
        let rows = attend.rows;
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
        let (rows, splits, width) = (attend.rows, attend.splits, heads * head_dim);
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
