//! Options of the engine.

use jiff::Timestamp;
use loom_kernels::Dtype;
use serde::Serialize;

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
    /// Whose implementation of the network is used.
    pub provider: Provider,
}

/// Whose implementation of a network is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// Loom's own.
    #[default]
    Native,
    /// candle-transformers: see [`limits`](Self::limits).
    Candle,
}

impl Provider {
    /// What does not hold that holds natively; nothing for [`Native`](Self::Native).
    pub fn limits(self) -> &'static [&'static str] {
        match self {
            Self::Native => &[],
            Self::Candle => &[
                "weights and states are f32, from safetensors, on the CPU",
                "sequences of a batch are read one after another, and scored rows token by token",
                "the last bits of a result depend on how a sequence was read: at once, token by token, or resumed",
                "there are no gains on Δ",
                "the window is at most a sliding window, where the model has one",
            ],
        }
    }
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
