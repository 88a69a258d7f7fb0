//! Layer 2: running models inside the process, and opening [`LanguageModel`](crate::foundation::chat::LanguageModel)s.

mod thought;
pub mod engine;
pub mod remote;
pub mod providers;
