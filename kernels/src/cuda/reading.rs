//! Reading logits where they are: normaliser, entropy, the likeliest entries, a draw. A few dozen bytes a row come back.

use super::memory::{Buffer, Plain, View};
use super::{Gpu, GpuError};

/// The likeliest entries that a reading can hold.
pub const TOP_MAX: usize = 20;

/// No entry: as [`Ask::given`] it asks for a draw, as [`Reading::id`] it says that the row is no distribution.
pub const NO_ENTRY: u32 = u32::MAX;

/// What is asked of one row. Penalty, temperature and filters touch the draw alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ask<'a> {
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
    /// How many of the likeliest to report, at most [`TOP_MAX`].
    pub top: u32,
    /// [0, 1): the draw.
    pub uniform: f64,
    /// The ids that `penalty` looks at.
    pub penalised: &'a [u32],
    /// Read this entry instead of drawing one; [`NO_ENTRY`] draws.
    pub given: u32,
}

impl Ask<'_> {
    /// The likeliest entry, and no other.
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

/// `Ask` of `cuda/logits.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RawAsk {
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
unsafe impl Plain for RawAsk {}

/// An entry and its log-probability.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    /// Its place in the row.
    pub id: u32,
    /// Its log-probability, nats.
    pub logprob: f32,
}

/// What was read of one row. The log-probabilities are of the logits as they came.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// The drawn or given entry; [`NO_ENTRY`] where the row is no distribution.
    pub id: u32,
    /// Its log-probability, nats.
    pub logprob: f32,
    /// Of the row, nats.
    pub entropy: f32,
    /// How many entries are strictly greater.
    pub rank: u32,
    /// The likeliest, as many as were asked for; those behind them mean nothing.
    pub top: [Entry; TOP_MAX],
}

// SAFETY: numbers without padding.
unsafe impl Plain for Reading {}

impl Reading {
    /// Of a row that was not read yet.
    pub const NONE: Self = {
        let nothing = Entry { id: NO_ENTRY, logprob: f32::NAN };
        Self { id: NO_ENTRY, logprob: f32::NAN, entropy: f32::NAN, rank: 0, top: [nothing; TOP_MAX] }
    };
}

/// [`Ask::given`] of a row that nothing is asked of.
const NOTHING: u32 = NO_ENTRY - 1;

/// What is asked of rows, on the device; it stays where it is.
#[derive(Debug)]
pub struct Asks {
    raw: Buffer<RawAsk>,
    penalised: Buffer<u32>,
    len: usize,
    vocabulary: usize,
}

impl Asks {
    /// Room for `rows` asks of rows of `vocabulary` entries, with `penalised` ids between them.
    ///
    /// # Errors
    /// If the memory does not suffice.
    pub fn room(gpu: &Gpu, rows: usize, penalised: usize, vocabulary: usize) -> Result<Self, GpuError> {
        Ok(Self { raw: gpu.room(rows)?, penalised: gpu.room(penalised)?, len: 0, vocabulary })
    }

    /// `asks` of rows of `vocabulary` entries.
    ///
    /// # Errors
    /// If the memory does not suffice.
    ///
    /// # Panics
    /// If a given entry is beyond the row, or `top` exceeds [`TOP_MAX`].
    pub fn new(gpu: &Gpu, asks: &[Option<Ask<'_>>], vocabulary: usize) -> Result<Self, GpuError> {
        let (raw, penalised) = pack(asks, vocabulary);
        Ok(Self { raw: gpu.upload(&raw)?, penalised: gpu.upload(&penalised)?, len: raw.len(), vocabulary })
    }

    /// Replaces them by `asks`, filled up to `rows` with rows that nothing is asked of. Whether there was room for the
    /// penalised ids; if not, nothing has changed.
    ///
    /// # Errors
    /// As the driver says.
    ///
    /// # Panics
    /// As [`new`](Self::new); also if there is no room for so many rows.
    pub fn set(&mut self, asks: &[Option<Ask<'_>>], rows: usize) -> Result<bool, GpuError> {
        assert!(asks.len() <= rows && rows <= self.raw.len(), "Asks::set: {} as {rows}", asks.len());
        let mut asks = asks.to_vec();
        asks.resize(rows, None);
        let (raw, penalised) = pack(&asks, self.vocabulary);
        if penalised.len() > self.penalised.len() {
            return Ok(false);
        }
        self.len = rows;
        self.raw.write(&raw)?;
        self.penalised.write(&penalised)?;
        Ok(true)
    }
}

/// The kernel's form of `asks`, and the ids that penalties look at.
fn pack(asks: &[Option<Ask<'_>>], vocabulary: usize) -> (Vec<RawAsk>, Vec<u32>) {
    let mut penalised = Vec::new();
    let raw = asks.iter().map(|ask| {
        let ask = ask.unwrap_or(Ask { given: NOTHING, ..Ask::GREEDY });
        assert!(ask.top as usize <= TOP_MAX, "Asks: the top {}", ask.top);
        assert!(ask.given >= NOTHING || (ask.given as usize) < vocabulary, "Asks: entry {}", ask.given);
        let from = penalised.len() as u32;
        // Each once: threads would otherwise apply a penalty twice.
        let mut ids = ask.penalised.to_vec();
        ids.sort_unstable();
        ids.dedup();
        penalised.extend_from_slice(&ids);
        let Ask { temperature, top_p, min_p, penalty, top_k, top, uniform, given, .. } = ask;
        let count = ids.len() as u32;
        RawAsk { temperature, top_p, min_p, penalty, top_k, top, uniform, from, count, given, padding: 0 }
    });
    (raw.collect(), penalised)
}

impl Gpu {
    /// Reads rows of `logits` into `out`, both `[rows, …]`, as number `first` and those after it of `asks` say; `weights` is
    /// scratch of the logits' dims. Of rows that nothing is asked of nothing is read.
    ///
    /// # Errors
    /// As the driver says.
    ///
    /// # Panics
    /// If the dims disagree.
    pub fn read_logits(
        &self,
        [logits, weights]: [View<'_, f32>; 2],
        (asks, first, rows): (&Asks, usize, usize),
        out: View<'_, Reading>,
    ) -> Result<(), GpuError> {
        assert!(first + rows <= asks.len, "read_logits: rows {first} and {rows} more of {}", asks.len);
        let vocabulary = asks.vocabulary;
        let arguments = [
            logits.rows("read_logits logits", rows, vocabulary, vocabulary),
            weights.rows("read_logits weights", rows, vocabulary, vocabulary),
            asks.raw.from(first).at(),
            asks.penalised.view().at(),
            out.rows("read_logits out", rows, 1, 1),
            super::Arg::int(vocabulary),
        ];
        // SAFETY: the kernel's parameters, checked above; entries in `pack`.
        unsafe { self.launch("read_logits", [rows, 1, 1], 512, arguments) }
    }
}
