//! Conversion between logit queries and the GPU kernel that answers them.

use loom_kernels::cuda::{NO_ENTRY, RowQuery, RowStats, TOP_MAX};

use super::super::logit_query::{LogitQuery, QueriedToken, TokenStats};

/// The kernel's form of `query`. The kernel reports at most [`TOP_MAX`] alternatives; its answer is not used if more
/// are requested.
pub(super) fn kernel_query(query: &LogitQuery) -> RowQuery<'_> {
    let top = query.top.min(TOP_MAX) as u32;
    match &query.token {
        QueriedToken::Given(id) => RowQuery { given: *id, top, ..RowQuery::GREEDY },
        QueriedToken::Drawn(draw) => RowQuery {
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

/// Statistics from the kernel; `None` if the row is not a distribution.
pub(super) fn token_stats(reading: &RowStats, top: usize) -> Option<TokenStats> {
    (reading.id != NO_ENTRY && reading.logprob.is_finite()).then(|| TokenStats {
        id: reading.id,
        logprob: reading.logprob,
        entropy: reading.entropy,
        rank: reading.rank,
        top: reading.top.iter().take(top).map(|token| (token.id, token.logprob)).collect(),
    })
}
