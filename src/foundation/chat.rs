//! Types for calling a language model, independent of engine and provider.
//!
//! The central trait is [`LanguageModel`]: one [`Request`] in, one [`Completion`] out. It is implemented by models inside
//! the process, which give true log-probabilities and snapshots of their state, and by hosted models, which may give
//! neither. A value that a provider does not report is `None`; no placeholder number is ever used.
//!
//! A [`Snapshot`] is an immutable model state after a prefix of tokens. Any number of requests may continue from the
//! same snapshot, and none of them reads the prefix again. Retries, probe questions and branches are all further
//! requests from one snapshot.

mod delta;
mod error;
mod message;
mod model;
mod sampling;
mod snapshot;
mod spec;
mod ssm;
mod thought;
mod token;
mod vocabulary;

pub use delta::{DeltaGains, LayerGains};
pub use error::ModelError;
pub use message::{Message, Role};
pub use model::{
    BoxFuture, Completion, Continuation, Embedder, Finish, HostedInfo, LanguageModel, ModelInfo, PrefixReuse, Prompt,
    Request, Scored, Usage,
};
pub use sampling::Sampling;
pub use snapshot::Snapshot;
pub use spec::{ModelChain, ModelSpec, ModelSpecError};
pub use ssm::{HalfLife, SsmLayerStats, SsmStats};
pub use thought::{Thinking, ThinkingInfo, Thought, ThoughtEnd, ThoughtTokens};
pub use token::{Basis, Flow, TokenId, TokenLogprob, TokenSink};
pub use vocabulary::{SpecialTokens, Vocabulary};
