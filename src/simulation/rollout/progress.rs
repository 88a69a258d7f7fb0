//! What a run tells while it is played, and how it is asked to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::transcript::Outcome;

/// What happens in a run, as it happens.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Progress {
    /// A rollout begins, or goes on after `turns` turns of an earlier process.
    Begun {
        /// Which.
        rollout: usize,
        /// How many of its turns are finished.
        turns: usize,
    },
    /// A turn is finished and on the disk.
    Turn {
        /// Of which rollout.
        rollout: usize,
        /// How many of its turns are finished.
        turns: usize,
        /// Tokens written in it.
        tokens: u64,
        /// Findings of the monitors in it.
        events: usize,
    },
    /// Something that the user should know.
    Notice {
        /// About which rollout.
        rollout: usize,
        /// What.
        text: String,
    },
    /// A rollout is finished.
    Ended {
        /// Which.
        rollout: usize,
        /// How.
        outcome: Outcome,
    },
}

/// Hears what happens in a run; called from the rollouts' tasks, so be brief.
pub type Observer = Arc<dyn Fn(Progress) + Send + Sync>;

/// Asks a run to end after the turns under way.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Asks.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
