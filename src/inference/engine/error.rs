//! Why a model could not be loaded.

use crate::foundation::chat::ModelError;

/// Why a model could not be loaded. Every message names the file or tensor and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file is missing or unreadable.
    #[error("`{file}` cannot be read: {why}")]
    Read {
        /// The file.
        file: String,
        /// What the system said, and what to do.
        why: String,
    },
    /// A file is there but does not hold what it should.
    #[error("`{file}` is not usable: {why}")]
    Malformed {
        /// The file.
        file: String,
        /// What is wrong in it.
        why: String,
    },
    /// The architecture, or a setting of it, is not implemented.
    #[error("`config.json` asks for {what}; supported: {supported}")]
    Unsupported {
        /// What the file asks for.
        what: String,
        /// What there is instead.
        supported: &'static str,
    },
    /// A tensor is missing, surplus, of the wrong dims or not finite.
    #[error(
        "tensor `{name}` {why}; the weights do not fit `config.json`, or the download is damaged: fetch them again"
    )]
    Tensor {
        /// The tensor's name in the file.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The machine cannot run it.
    #[error("the engine cannot start: {0}")]
    Start(String),
}

#[expect(clippy::needless_pass_by_value, reason = "callers hand over paths, names and other errors alike")]
impl LoadError {
    pub(super) fn read(file: impl ToString, why: impl ToString) -> Self {
        Self::Read { file: file.to_string(), why: why.to_string() }
    }

    pub(super) fn malformed(file: impl ToString, why: impl ToString) -> Self {
        Self::Malformed { file: file.to_string(), why: why.to_string() }
    }

    pub(super) fn tensor(name: impl ToString, why: impl ToString) -> Self {
        Self::Tensor { name: name.to_string(), why: why.to_string() }
    }

    pub(super) fn of(self, model: &str) -> ModelError {
        ModelError::Unavailable { model: model.to_owned(), why: self.to_string() }
    }
}
