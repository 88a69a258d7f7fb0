//! Options of the engine.

use jiff::Timestamp;
use loom_kernels::Dtype;

use super::admission::Budget;
use super::device::Device;
use super::error::LoadError;
use crate::foundation::base::limits::THREADS_MAX;

/// How to run a model.
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// Threads for computation; all cores if absent. Does not affect results.
    pub threads: Option<usize>,
    /// The device to run on.
    pub device: Device,
    /// Text of a chat template that replaces the model's own.
    pub chat_template: Option<String>,
    /// The time that `strftime_now` returns in a chat template; the time of opening if absent.
    pub now: Option<Timestamp>,
    /// Memory that may be used in addition to the weights.
    pub budget: Budget,
    /// The type that matrices are packed in; by default that of the model's files (f16 is widened to f32). Another
    /// dtype gives other results.
    pub dtype: Option<Dtype>,
}

impl EngineOptions {
    /// Number of threads for computation.
    pub(super) fn threads(&self) -> Result<usize, LoadError> {
        match self.threads {
            None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
            Some(threads) if (1..=THREADS_MAX).contains(&threads) => Ok(threads),
            Some(threads) => {
                Err(LoadError::Start(format!("{threads} threads were requested; the range is 1 to {THREADS_MAX}")))
            }
        }
    }
}
