//! Recording and replay of work as CUDA graphs. A step of a network has hundreds of launches; a replay is one.

use std::sync::Arc;

use super::{Backend, Gpu, GpuError};

/// Recorded work.
pub(crate) trait Recorded: Send {
    fn replay(&self) -> Result<(), GpuError>;
}

/// Recorded work: the same launches on the same memory, with its content at the time of the replay.
pub struct Recording {
    recorded: Box<dyn Recorded>,
    /// Declared last, so that it is dropped after the recording.
    _machine: Arc<dyn Backend>,
}

impl Gpu {
    /// Records what `work` enqueues without running it. Its buffers must outlive the recording, and it must neither allocate
    /// nor read. `None` if the backend does not record (emulation); `work` is then not called.
    ///
    /// # Errors
    /// An error of `work` or the driver.
    pub fn record(&self, mut work: impl FnMut() -> Result<(), GpuError>) -> Result<Option<Recording>, GpuError> {
        let recorded = self.backend().record(&mut work)?;
        Ok(recorded.map(|recorded| Recording { recorded, _machine: Arc::clone(self.backend()) }))
    }

    /// Enqueues recorded work.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn replay(&self, recording: &Recording) -> Result<(), GpuError> {
        recording.recorded.replay()
    }
}
