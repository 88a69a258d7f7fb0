//! The local engine: models that run inside this process.
//!
//! ```text
//! LocalModel (a handle; clones are cheap)              local.rs
//!   text → token ids: template, history, tokenizer     prepare.rs (long texts on a blocking thread)
//!   │ one job per request; requests beyond the memory budget wait in FIFO order     admission.rs
//! the engine thread                                    thread.rs, sequence.rs, reply.rs, prefix.rs
//!   owns the model and its rayon pool; each step is one forward pass over all active sequences:
//!   one row for each sequence that is generating, a share of the pass for each that is prefilling;
//!   a prefix shared by several prompts is read once
//!   │ a ragged batch of segments with queries for their logits; token statistics come back     logit_query.rs
//! Architecture                                         architecture.rs; decoder.rs, mamba.rs, mamba2.rs; gpu/ on a GPU;
//!                                                      candle.rs, the second provider
//!   knows tensors and states; knows no text and no requests
//! ```
//!
//! [`LocalEmbedder`] (`embedder.rs`, `models/bert.rs`) is separate: text in, one vector out, no state.
//!
//! The contract of an architecture is in `architecture.rs`; a model family is one file in `models/`. On a CPU the result for a row depends on its own sequence alone: it
//! has the same bits whether the sequence was read at once or token by token, alone or in a batch, with one thread or
//! several. Therefore a score equals the generation that it scores, and a resumed run equals an uninterrupted one.

mod admission;
mod architecture;
mod bundled;
mod candle;
mod decoder;
mod detokenize;
mod device;
mod embedder;
mod embedding_and_head;
mod error;
mod family;
mod gguf;
mod gpu;
mod history;
mod launch;
mod linear;
mod local;
mod logit_query;
mod machine;
mod mamba;
mod mamba2;
mod matrix_role;
mod models;
mod network;
mod open;
mod options;
mod prefix;
mod prepare;
mod recurrent;
mod reply;
mod sampler;
mod sequence;
mod shape;
mod shared;
mod spin_pool;
mod steps;
mod stored_type;
mod template;
mod tensors;
mod thread;
mod tokenizer;
mod unique_keys;
mod weights;
#[doc(hidden)]
pub mod fuzzing;

pub use admission::Budget;
pub use bundled::bundled;
pub use device::{Device, DeviceChoice, Gpus, gpus};
pub use embedder::LocalEmbedder;
pub use error::LoadError;
pub use local::LocalModel;
pub use loom_kernels::Dtype;
pub use machine::{available_memory, total_memory};
pub use options::{EngineOptions, Provider};
pub use shape::{ModelShape, size};
pub(in crate::inference) use template::asks_for_the_date;
pub(in crate::inference) use weights::shard_names;
