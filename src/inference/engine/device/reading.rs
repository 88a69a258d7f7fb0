//! Between what is asked of a row and the kernel that reads it.

use loom_kernels::cuda::{Ask, NO_ENTRY, Reading, TOP_MAX};

use super::super::row::{Entry, RowAsk, RowReading};

/// The kernel's form of `ask`; where that tells of fewer entries than asked for, its reading is not used.
pub(super) fn asked(ask: &RowAsk) -> Ask<'_> {
    let top = ask.top.min(TOP_MAX) as u32;
    match &ask.entry {
        Entry::Given(id) => Ask { given: *id, top, ..Ask::GREEDY },
        Entry::Drawn(draw) => Ask {
            temperature: draw.params.temperature,
            top_p: draw.params.top_p,
            min_p: draw.params.min_p,
            penalty: draw.penalty,
            top_k: draw.params.top_k.map_or(0, |k| u32::try_from(k).unwrap_or(u32::MAX)),
            top,
            uniform: draw.uniform,
            penalised: &draw.recent,
            given: NO_ENTRY,
        },
    }
}

/// What the kernel read; `None` where the row is no distribution.
pub(super) fn told(reading: &Reading, top: usize) -> Option<RowReading> {
    (reading.id != NO_ENTRY && reading.logprob.is_finite()).then(|| RowReading {
        id: reading.id,
        logprob: reading.logprob,
        entropy: reading.entropy,
        rank: reading.rank,
        top: reading.top.iter().take(top).map(|entry| (entry.id, entry.logprob)).collect(),
    })
}
