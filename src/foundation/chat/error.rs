//! Errors of models.

/// Why a model gave no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The model cannot be opened or reached.
    #[error("model `{model}` is not available: {why}")]
    Unavailable {
        /// Its spec string.
        model: String,
        /// The cause, and what to do.
        why: String,
    },
    /// The model does not support this request.
    #[error("model `{model}` cannot do this: {why}")]
    Unsupported {
        /// Its spec string.
        model: String,
        /// What it cannot do.
        why: String,
    },
    /// The gate denied the call.
    #[error("model `{model}` was not called: {why}")]
    Denied {
        /// Its spec string.
        model: String,
        /// The refusal, and what to do instead.
        why: String,
    },
    /// The model failed while processing the request.
    #[error("model `{model}` failed: {why}")]
    Failed {
        /// Its spec string.
        model: String,
        /// What went wrong.
        why: String,
    },
}
