//! The local engine: models that run inside the process.
//!
//! ```text
//! LocalModel (a handle, any number of clones)         local.rs
//!   text → token ids: template, history, tokenizer     prepare.rs; on the caller's task, long texts beside its runtime
//!   │ one job per request; as many at once as there is room for, the rest wait in order     admission.rs
//! the engine thread                                    thread.rs, sequence.rs, reply.rs, prefix.rs
//!   owns the model and its rayon pool; every step is one forward pass over all active sequences,
//!   one row for each that writes and a share of the pass for each that reads; what several prompts begin with
//!   is read once
//!   │ a ragged batch of segments, with what is asked of their rows; what was read of them comes back     row.rs
//! Architecture                                         mamba.rs, mamba2.rs, decoder.rs; device/network.rs on a GPU
//!   knows tensors and states; nothing of text or who asked
//! ```
//!
//! Beside it stands [`LocalEmbedder`] (`embedder.rs`, `bert.rs`): text in, a vector out, no state.
//!
//! What an architecture promises is on this page. On the CPU a row's result depends on its own sequence alone: the
//! same bits whether it was read in one piece or token by token, by itself or in a batch, with one thread or many.
//! That is what makes a score equal the generation it scores, and a resumed run equal the unbroken one.

mod admission;
mod awake;
mod bert;
mod bundled;
mod config;
mod decoder;
mod detokenize;
mod device;
mod embedder;
mod ends;
mod error;
mod gguf;
mod history;
mod linear;
mod local;
mod machine;
mod mamba2;
mod mamba;
mod once;
mod open;
mod prefix;
mod prepare;
mod recurrent;
mod reply;
mod role;
mod row;
mod sampler;
mod sequence;
mod shape;
mod steps;
mod stored;
mod template;
mod thread;
mod tokenizer;
mod weights;
#[doc(hidden)]
pub mod fuzzing;

pub use admission::Budget;
pub use bundled::bundled;
pub use device::{Device, DeviceChoice, Gpus, gpus};
pub use embedder::LocalEmbedder;
pub use error::LoadError;
pub use local::{EngineOptions, LocalModel};
pub use loom_kernels::Dtype;
pub use machine::{available_memory, total_memory};
pub use shape::{ModelShape, size};
pub(in crate::inference) use template::asks_for_the_date;
pub(in crate::inference) use weights::shard_names;

use std::ops::Range;

use rayon::prelude::*;

use self::row::{Room, RowAsk, RowReading, Scratch};
use self::steps::Steps;
use crate::foundation::base::limits::{ACTIVE_SEQUENCES_MAX, PASS_TOKENS_MAX};
use crate::foundation::chat::{DeltaGains, SsmReading, TokenId};

/// A network that reads ragged batches.
pub(crate) trait Architecture: Send + Sync + 'static {
    /// Everything the network keeps of one sequence. Cloning forks the sequence.
    type State: Clone + Send + Sync + 'static;

    /// Whether it has a Δ that gains can scale.
    const DELTA: bool;

    /// Number of layers; each takes its own gains where there is a Δ.
    fn layers(&self) -> usize;

    /// Vocabulary size: the length of a row of logits.
    fn vocabulary(&self) -> usize;

    /// Longest sequence that it can read, tokens; `None` where nothing sets an end.
    fn window(&self) -> Option<usize>;

    /// Bytes of a state that has read `tokens` tokens; never less for more of them.
    fn state_bytes(&self, tokens: usize) -> usize;

    /// The state before the first token.
    fn start(&self) -> Self::State;

    /// Reads every segment, advancing its state, and replaces the logits in `room` by the rows asked for: `[rows, vocabulary]`
    /// in the order of the segments. Ids are inside the vocabulary.
    fn forward(&self, batch: &mut [Segment<'_, Self::State>], room: &mut Room);

    /// Replaces `logits` by the row after the last token that `state` has read: the same bits that reading it gave.
    fn next(&self, state: &Self::State, logits: &mut Vec<f32>);

    /// Reads every segment, advancing its state, and what is asked of its rows, in the order of the segments: `None` for a
    /// row that is no distribution.
    fn read(&self, batch: &mut [Segment<'_, Self::State>], room: &mut Room) -> Vec<Option<RowReading>> {
        self.forward(batch, room);
        let asks: Vec<_> = batch.iter().flat_map(|segment| &segment.asks).collect();
        let rows = asks.into_par_iter().zip(room.logits.par_chunks_exact(self.vocabulary()));
        rows.map_init(Scratch::default, |scratch, (ask, row)| ask.read(row, scratch)).collect()
    }

    /// What is asked of the one row after the last token that `state` has read, in order.
    fn read_next(&self, state: &Self::State, asks: &[&RowAsk], room: &mut Room) -> Vec<Option<RowReading>> {
        self.next(state, &mut room.logits);
        asks.iter().map(|ask| ask.read(&room.logits, &mut room.scratch)).collect()
    }

    /// Sequences at work at the same time, at most.
    fn sequences_max(&self) -> usize {
        ACTIVE_SEQUENCES_MAX
    }

    /// Tokens read in one pass, at most.
    fn pass_tokens_max(&self) -> usize {
        PASS_TOKENS_MAX
    }

    /// Bytes set aside for states once and for all; `None` where they are taken as they are needed.
    fn states_bytes(&self) -> Option<u64> {
        None
    }

    /// Where it runs, for those who read what it said.
    fn place(&self) -> String {
        Device::Cpu.to_string()
    }

    /// Why the last pass or row failed, told once; its logits and states are then void. A CPU does not fail.
    fn fault(&self) -> Option<String> {
        None
    }

    /// What `steps` say of a sequence that `state` has read under `gains`; `None` where there is no Δ.
    fn look(&self, _state: &Self::State, _steps: &Steps, _gains: Option<&DeltaGains>) -> Option<SsmReading> {
        None
    }
}

/// What one sequence reads in one pass.
pub(crate) struct Segment<'a, S> {
    /// New tokens, at least one.
    pub(crate) ids: &'a [TokenId],
    /// What was read before; advanced.
    pub(crate) state: &'a mut S,
    /// Gains on Δ for these tokens.
    pub(crate) gains: Option<&'a DeltaGains>,
    /// Where to add up the steps Δ, if somebody looks on.
    pub(crate) steps: Option<&'a mut Steps>,
    /// Those of `ids`, by place, whose next-token logits are wanted.
    pub(crate) logits: Range<usize>,
    /// What is asked of each of them.
    pub(crate) asks: Vec<RowAsk>,
}
