//! The contract of a network: states, and forward passes over ragged batches. On the CPU a row's result depends on its own
//! sequence alone (see [`super`]).

use std::ops::Range;

use rayon::prelude::*;

use super::device::Device;
use super::logit_query::{LogitQuery, RowScratch, Scratch, TokenStats};
use super::steps::Steps;
use crate::foundation::base::limits::{ACTIVE_SEQUENCES_MAX, PASS_TOKENS_MAX};
use crate::foundation::chat::{DeltaGains, SsmStats, TokenId};

/// A network that reads ragged batches.
pub(crate) trait Architecture: Send + Sync + 'static {
    /// Everything that the network stores for one sequence. Cloning it forks the sequence.
    type State: Clone + Send + Sync + 'static;

    /// Number of layers. Gains on Δ can be given per layer.
    fn layers(&self) -> usize;

    /// Whether the network has a Δ that gains can scale, in some layer.
    fn has_delta(&self) -> bool;

    /// Vocabulary size: the length of a row of logits.
    fn vocabulary(&self) -> usize;

    /// Longest sequence in tokens, or `None` if there is no limit.
    fn window(&self) -> Option<usize>;

    /// Size in bytes of a state that has read `tokens` tokens. Grows monotonically with `tokens`.
    fn state_bytes(&self, tokens: usize) -> usize;

    /// The state before the first token.
    fn start(&self) -> Self::State;

    /// Reads every segment, advances its state, and replaces the logits in `scratch` with the requested rows, `[rows,
    /// vocabulary]`, in the order of the segments. All ids are inside the vocabulary.
    fn forward(&self, batch: &mut [Segment<'_, Self::State>], scratch: &mut Scratch);

    /// Replaces `logits` with the row that follows the last token read into `state`, with the same bits as when that
    /// token was read.
    fn next(&self, state: &Self::State, logits: &mut Vec<f32>);

    /// Reads every segment, advances its state, and answers the queries of its rows in the order of the segments. An
    /// answer is `None` if the row is not a probability distribution (not finite).
    fn read(&self, batch: &mut [Segment<'_, Self::State>], scratch: &mut Scratch) -> Vec<Option<TokenStats>> {
        self.forward(batch, scratch);
        let queries: Vec<_> = batch.iter().flat_map(|segment| &segment.queries).collect();
        let rows = queries.into_par_iter().zip(scratch.logits.par_chunks_exact(self.vocabulary()));
        rows.map_init(RowScratch::default, |scratch, (query, row)| query.read(row, scratch)).collect()
    }

    /// Answers queries about the row that follows the last token read into `state`, in order.
    fn read_next(
        &self,
        state: &Self::State,
        queries: &[&LogitQuery],
        scratch: &mut Scratch,
    ) -> Vec<Option<TokenStats>> {
        self.next(state, &mut scratch.logits);
        queries.iter().map(|query| query.read(&scratch.logits, &mut scratch.row)).collect()
    }

    /// Maximum number of active sequences.
    fn sequences_max(&self) -> usize {
        ACTIVE_SEQUENCES_MAX
    }

    /// Maximum number of tokens in one pass.
    fn pass_tokens_max(&self) -> usize {
        PASS_TOKENS_MAX
    }

    /// Bytes preallocated for states, or `None` if states are allocated on demand.
    fn states_bytes(&self) -> Option<u64> {
        None
    }

    /// The device that it runs on, for display.
    fn device_name(&self) -> String {
        Device::Cpu.to_string()
    }

    /// The provider of the network with what does not hold there, for transcripts; `None` if it is Loom's own.
    fn provider(&self) -> Option<&'static str> {
        None
    }

    /// Why the last pass or query failed; reported once. Logits and states of that pass are then invalid. A CPU does
    /// not fail.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Statistics of Δ and of the state for a sequence that was read under `gains`; `None` if the network has no Δ.
    fn ssm_stats(&self, _state: &Self::State, _steps: &Steps, _gains: Option<&DeltaGains>) -> Option<SsmStats> {
        None
    }
}

/// What one sequence reads in one pass.
pub(crate) struct Segment<'a, S> {
    /// New tokens, at least one.
    pub(crate) ids: &'a [TokenId],
    /// State of the sequence before `ids`; advanced by the pass.
    pub(crate) state: &'a mut S,
    /// Gains on Δ for these tokens.
    pub(crate) gains: Option<&'a DeltaGains>,
    /// Accumulates the values of Δ, if the request records them.
    pub(crate) steps: Option<&'a mut Steps>,
    /// Range of indices into `ids` whose next-token logits are needed.
    pub(crate) logits: Range<usize>,
    /// One query for each index in `logits`.
    pub(crate) queries: Vec<LogitQuery>,
}
