//! Statistics and samples of logits on the device: normaliser, entropy, most likely entries, a draw. Only a few dozen bytes
//! per row are copied back.

use super::memory::{Buffer, PlainData, View};
use super::{Gpu, GpuError};

/// Capacity of [`RowStats::top`].
pub const TOP_MAX: usize = 20;

/// No entry: as [`RowQuery::given`] it requests a draw, as [`RowStats::id`] it means that the row is not a distribution.
pub const NO_ENTRY: u32 = u32::MAX;

/// A query of one row. Penalty, temperature and filters affect only the draw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowQuery<'a> {
    /// 0 is greedy.
    pub temperature: f32,
    /// As in [`SampleParams`](crate::SampleParams).
    pub top_p: f32,
    /// As in [`SampleParams`](crate::SampleParams).
    pub min_p: f32,
    /// As in [`penalise`](crate::penalise).
    pub penalty: f32,
    /// 0 keeps all.
    pub top_k: u32,
    /// Number of most likely entries to return, at most [`TOP_MAX`].
    pub top: u32,
    /// The uniform random number of the draw, in [0, 1).
    pub uniform: f64,
    /// The ids to which `penalty` applies.
    pub penalised: &'a [u32],
    /// Query this entry instead of drawing one; [`NO_ENTRY`] draws.
    pub given: u32,
}

impl RowQuery<'_> {
    /// Greedy selection.
    pub const GREEDY: Self = Self {
        temperature: 0.0,
        top_p: 1.0,
        min_p: 0.0,
        penalty: 1.0,
        top_k: 0,
        top: 0,
        uniform: 0.0,
        penalised: &[],
        given: NO_ENTRY,
    };
}

/// Memory layout of the query in `cuda/logits.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RawQuery {
    temperature: f32,
    top_p: f32,
    min_p: f32,
    penalty: f32,
    top_k: u32,
    top: u32,
    uniform: f64,
    from: u32,
    count: u32,
    given: u32,
    padding: u32,
}

// SAFETY: numbers; the padding is a field.
unsafe impl PlainData for RawQuery {}

/// An entry and its log-probability.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopEntry {
    /// Its index in the row.
    pub id: u32,
    /// Its log-probability, nats.
    pub logprob: f32,
}

/// Statistics of one row. Log-probabilities are of the unmodified logits.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowStats {
    /// The drawn or given entry; [`NO_ENTRY`] if the row is not a distribution.
    pub id: u32,
    /// Its log-probability, nats.
    pub logprob: f32,
    /// Of the row, nats.
    pub entropy: f32,
    /// Number of strictly greater entries.
    pub rank: u32,
    /// The most likely entries, as many as requested; the rest is undefined.
    pub top: [TopEntry; TOP_MAX],
}

// SAFETY: numbers without padding.
unsafe impl PlainData for RowStats {}

impl RowStats {
    /// Initial value.
    pub const NONE: Self = {
        let nothing = TopEntry { id: NO_ENTRY, logprob: f32::NAN };
        Self { id: NO_ENTRY, logprob: f32::NAN, entropy: f32::NAN, rank: 0, top: [nothing; TOP_MAX] }
    };
}

/// [`RowQuery::given`] of a row to skip.
const NOTHING: u32 = NO_ENTRY - 1;

/// Queries of rows, on the device at a fixed address.
#[derive(Debug)]
pub struct RowQueries {
    raw: Buffer<RawQuery>,
    penalised: Buffer<u32>,
    len: usize,
    vocabulary: usize,
}

impl RowQueries {
    /// Empty queries with capacity for `rows` rows of `vocabulary` entries, with `penalised` ids in total.
    ///
    /// # Errors
    /// If out of memory.
    pub fn with_capacity(gpu: &Gpu, rows: usize, penalised: usize, vocabulary: usize) -> Result<Self, GpuError> {
        Ok(Self { raw: gpu.uninit(rows)?, penalised: gpu.uninit(penalised)?, len: 0, vocabulary })
    }

    /// Uploads `queries` of rows of `vocabulary` entries.
    ///
    /// # Errors
    /// If out of memory.
    ///
    /// # Panics
    /// If a given entry is beyond the row, or `top` exceeds [`TOP_MAX`].
    pub fn new(gpu: &Gpu, queries: &[Option<RowQuery<'_>>], vocabulary: usize) -> Result<Self, GpuError> {
        let (raw, penalised) = pack(queries, vocabulary);
        Ok(Self { raw: gpu.upload(&raw)?, penalised: gpu.upload(&penalised)?, len: raw.len(), vocabulary })
    }

    /// Replaces the queries, padded to `rows` with rows to skip. Returns false, and changes nothing, if the penalised ids
    /// exceed the capacity.
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// As [`new`](Self::new); also if `rows` exceeds the capacity.
    pub fn set(&mut self, queries: &[Option<RowQuery<'_>>], rows: usize) -> Result<bool, GpuError> {
        assert!(queries.len() <= rows && rows <= self.raw.len(), "RowQueries::set: {} as {rows}", queries.len());
        let mut queries = queries.to_vec();
        queries.resize(rows, None);
        let (raw, penalised) = pack(&queries, self.vocabulary);
        if penalised.len() > self.penalised.len() {
            return Ok(false);
        }
        self.len = rows;
        self.raw.write(&raw)?;
        self.penalised.write(&penalised)?;
        Ok(true)
    }
}

/// The kernel's layout of `queries`, and the penalised ids.
fn pack(queries: &[Option<RowQuery<'_>>], vocabulary: usize) -> (Vec<RawQuery>, Vec<u32>) {
    let mut penalised = Vec::new();
    let raw = queries.iter().map(|query| {
        let query = query.unwrap_or(RowQuery { given: NOTHING, ..RowQuery::GREEDY });
        assert!(query.top as usize <= TOP_MAX, "RowQueries: the top {}", query.top);
        assert!(query.given >= NOTHING || (query.given as usize) < vocabulary, "RowQueries: entry {}", query.given);
        let from = penalised.len() as u32;
        // Unique, because threads would otherwise apply a penalty twice.
        let mut ids = query.penalised.to_vec();
        ids.sort_unstable();
        ids.dedup();
        penalised.extend_from_slice(&ids);
        let RowQuery { temperature, top_p, min_p, penalty, top_k, top, uniform, given, .. } = query;
        let count = ids.len() as u32;
        RawQuery { temperature, top_p, min_p, penalty, top_k, top, uniform, from, count, given, padding: 0 }
    });
    (raw.collect(), penalised)
}

impl Gpu {
    /// Writes the statistics of rows of `logits` to `out`, both `[rows, …]`, for the queries starting at `first`; `weights` is
    /// scratch of the logits' dims. Rows to skip are not read.
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// If the dims disagree.
    pub fn read_logits(
        &self,
        [logits, weights]: [View<'_, f32>; 2],
        (queries, first, rows): (&RowQueries, usize, usize),
        out: View<'_, RowStats>,
    ) -> Result<(), GpuError> {
        assert!(first + rows <= queries.len, "read_logits: rows {first} and {rows} more of {}", queries.len);
        let vocabulary = queries.vocabulary;
        let arguments = [
            logits.rows("read_logits logits", rows, vocabulary, vocabulary),
            weights.rows("read_logits weights", rows, vocabulary, vocabulary),
            queries.raw.from(first).at(),
            queries.penalised.view().at(),
            out.rows("read_logits out", rows, 1, 1),
            super::Arg::int(vocabulary),
        ];
        // SAFETY: the kernel's parameters, checked above; entries in `pack`.
        unsafe { self.launch("read_logits", [rows, 1, 1], 512, arguments) }
    }
}
