//! Progress events of a run, and the flag that stops it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::transcript::Outcome;

/// A progress event.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Progress {
    /// A rollout started, or resumed after `turns` turns of an earlier process.
    Started {
        /// Its number.
        rollout: usize,
        /// How many of its turns are finished.
        turns: usize,
    },
    /// A turn is finished and stored durably.
    Turn {
        /// The rollout's number.
        rollout: usize,
        /// How many of its turns are finished.
        turns: usize,
        /// Tokens written in it.
        tokens: u64,
        /// Findings of the monitors in it.
        events: usize,
    },
    /// A notice for the user.
    Notice {
        /// The rollout's number.
        rollout: usize,
        /// The text.
        text: String,
    },
    /// A rollout is finished.
    Finished {
        /// Its number.
        rollout: usize,
        /// How it ended.
        outcome: Outcome,
    },
}

/// Receives progress events. It is called from the rollouts' tasks, so it must return quickly.
pub type Observer = Arc<dyn Fn(Progress) + Send + Sync>;

/// Stops a run after the turns in progress.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Requests the stop.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was requested.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
