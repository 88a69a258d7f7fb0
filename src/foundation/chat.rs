//! The words all parts share about talking to a model, naming no engine and no provider.
//!
//! The centre is [`LanguageModel`]: one request in, one [`Completion`] out. It serves a model inside the process, which
//! gives true log-probabilities and forkable states, and a hosted one, which may give neither. What a provider does not
//! give is `None`, never a made-up number.
//!
//! State is a value. A [`Snapshot`] says "everything up to here has been read"; a request may continue from one, as
//! often as it likes, and nothing is re-read. A retry, a probe question and a branch are all the same thing: a second
//! request from the same snapshot.

mod delta;
mod message;
mod model;
mod sampling;
mod snapshot;
mod spec;
mod ssm;
mod token;
mod vocabulary;

pub use delta::{DeltaGains, LayerGains};
pub use message::{Message, Role};
pub use model::{
    BoxFuture, Completion, Continuation, Embedder, Finish, Hosted, LanguageModel, ModelError, ModelInfo, Prompt,
    Reading, Request, Scored, Usage,
};
pub use sampling::Sampling;
pub use snapshot::Snapshot;
pub use spec::{ModelChain, ModelSpec, ModelSpecError};
pub use ssm::{HalfLife, LayerReading, SsmReading};
pub use token::{Basis, Flow, TokenId, TokenLogprob, TokenSink};
pub use vocabulary::{SpecialTokens, Vocabulary};
