//! Why a model could not be loaded.

use crate::foundation::chat::ModelError;

/// Why a model could not be loaded. Every message names the file or tensor and suggests what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file is missing or unreadable.
    #[error("`{file}` cannot be read: {why}")]
    Read {
        /// The file.
        file: String,
        /// The system's error, and what to do.
        why: String,
    },
    /// A file has unexpected content.
    #[error("`{file}` is not usable: {why}")]
    Malformed {
        /// The file.
        file: String,
        /// What is wrong.
        why: String,
    },
    /// The architecture, or one of its settings, is not supported.
    #[error("`config.json` requires {what}; supported: {supported}")]
    Unsupported {
        /// What the file requires.
        what: String,
        /// What is supported instead.
        supported: String,
    },
    /// A tensor is missing, surplus, has wrong dimensions or is not finite.
    #[error(
        "tensor `{name}` {why}; the weights do not fit `config.json`, or the download is damaged: fetch them again"
    )]
    Tensor {
        /// The tensor's name in the file.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The machine cannot run the model.
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
