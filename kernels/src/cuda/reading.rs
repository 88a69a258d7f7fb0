//! Reading logits where they are: normaliser, entropy, the likeliest entries, a draw. A few dozen bytes a row come back.

use super::memory::{Plain, View};
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
#[derive(Clone, Copy)]
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

impl Gpu {
    /// Reads rows of `logits` `[asks, vocabulary]` into `out` [asks]; `weights` is scratch of the logits' dims.
    ///
    /// # Errors
    /// As the driver says.
    ///
    /// # Panics
    /// If the dims disagree, a given entry is beyond the row, or `top` exceeds [`TOP_MAX`].
    pub fn read_logits(
        &self,
        logits: View<'_, f32>,
        weights: View<'_, f32>,
        asks: &[Ask<'_>],
        vocabulary: usize,
        out: View<'_, Reading>,
    ) -> Result<(), GpuError> {
        let mut penalised = Vec::new();
        let raw: Vec<_> = asks
            .iter()
            .map(|ask| {
                assert!(ask.top as usize <= TOP_MAX, "read_logits: the top {}", ask.top);
                assert!(ask.given == NO_ENTRY || (ask.given as usize) < vocabulary, "read_logits: entry {}", ask.given);
                let from = penalised.len() as u32;
                // Each once: threads would otherwise apply a penalty twice.
                let mut ids = ask.penalised.to_vec();
                ids.sort_unstable();
                ids.dedup();
                penalised.extend_from_slice(&ids);
                let &Ask { temperature, top_p, min_p, penalty, top_k, top, uniform, given, .. } = ask;
                let count = ids.len() as u32;
                RawAsk { temperature, top_p, min_p, penalty, top_k, top, uniform, from, count, given, padding: 0 }
            })
            .collect();
        let rows = asks.len();
        let (raw, penalised) = (self.upload(&raw)?, self.upload(&penalised)?);
        let arguments = [
            logits.rows("read_logits logits", rows, vocabulary, vocabulary),
            weights.rows("read_logits weights", rows, vocabulary, vocabulary),
            raw.view().at(),
            penalised.view().at(),
            out.rows("read_logits out", rows, 1, 1),
            super::Arg::int(vocabulary),
        ];
        // SAFETY: the kernel's parameters, checked above.
        unsafe { self.launch("read_logits", [rows, 1, 1], 512, arguments) }
    }
}
