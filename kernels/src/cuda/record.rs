//! Work that is recorded once and done again: CUDA graphs. A step of a network is hundreds of launches; recorded, it is
//! one.

use std::sync::Arc;

use super::{Gpu, GpuError, Machine};

/// Recorded work.
pub(crate) trait Recorded: Send {
    fn replay(&self) -> Result<(), GpuError>;
}

/// Work that was recorded: the same launches on the same memory, with what lies there when it is done.
pub struct Recording {
    recorded: Box<dyn Recorded>,
    /// Behind what was recorded: that goes first.
    _machine: Arc<dyn Machine>,
}

impl Gpu {
    /// Records what `work` enqueues, instead of doing it. Its buffers must outlive the recording, and it may neither allocate
    /// nor read. `None` where nothing is recorded (the CPU that plays a GPU): `work` was not called then.
    ///
    /// # Errors
    /// As `work`, or the driver, says.
    pub fn record(&self, mut work: impl FnMut() -> Result<(), GpuError>) -> Result<Option<Recording>, GpuError> {
        let recorded = self.machine().record(&mut work)?;
        Ok(recorded.map(|recorded| Recording { recorded, _machine: Arc::clone(self.machine()) }))
    }

    /// Enqueues recorded work.
    ///
    /// # Errors
    /// As the driver says.
    pub fn replay(&self, recording: &Recording) -> Result<(), GpuError> {
        recording.recorded.replay()
    }
}
