//! Allocation of GPU memory when a model is opened: what remains after the weights and the buffers of a pass holds
//! states. Half of the states may be active, the other half is for snapshots that callers keep. If the memory does not
//! suffice, the error lists the sizes.

use loom_kernels::cuda::{GpuError, RowStats};

use crate::foundation::base::limits::{GPU_LOGIT_BYTES_MAX, GPU_PASS_TOKENS_MAX, GPU_SEQUENCES_MAX, GPU_STATES_MAX};

/// Memory needs of a network's layers, bytes.
#[derive(Clone, Copy)]
pub(in super::super) struct MemoryNeeds {
    /// Per slot.
    pub(super) slot: usize,
    /// Per page; 0 if there are no pages.
    pub(super) page: usize,
    /// Pages of the longest sequence.
    pub(super) longest: usize,
    /// Per row of a pass.
    pub(super) row: usize,
    /// Independent of the number of rows.
    pub(super) fixed: usize,
}

/// The allocation.
#[derive(Debug, PartialEq)]
pub(super) struct MemoryPlan {
    /// Maximum number of rows of a pass, and of the head.
    pub(super) rows: usize,
    pub(super) head_rows: usize,
    pub(super) slots: usize,
    pub(super) pages: usize,
    pub(super) sequences_max: usize,
    /// Bytes of states that may be active.
    pub(super) states_bytes: usize,
}

/// A request's own state and the one before its reply, and the same for snapshots of callers.
const STATES_PER_SEQUENCE: usize = 4;

impl MemoryPlan {
    /// `before` and `free` are the bytes that were free before and after loading the weights. The `workspace` of matrix
    /// products is already allocated.
    pub(super) fn new(
        needs: &MemoryNeeds,
        d_model: usize,
        vocabulary: usize,
        workspace: usize,
        [before, free]: [usize; 2],
    ) -> Result<Self, GpuError> {
        let rows = GPU_PASS_TOKENS_MAX.max(GPU_SEQUENCES_MAX);
        let head_rows = (GPU_LOGIT_BYTES_MAX / (8 * vocabulary)).clamp(1, rows);
        let width = size_of::<f32>() * d_model;
        let pass =
            rows * (needs.row + 2 * width + size_of::<RowStats>()) + head_rows * (width + 8 * vocabulary) + needs.fixed;
        let slot = needs.slot + width;
        // At least one sequence.
        let least = STATES_PER_SEQUENCE * (slot + needs.longest.min(SEQUENCE_PAGES_MIN) * needs.page);
        if pass + least > free {
            let weights = before.saturating_sub(free);
            return Err(GpuError::new(format!(
                "the weights ({}), work space of products ({}), a pass of {rows} tokens ({}) and the states of one conversation ({}) \
                 need {}, but only {} were free",
                gib(weights),
                gib(workspace),
                gib(pass),
                gib(least),
                gib(weights + workspace + pass + least),
                gib(before + workspace),
            )));
        }
        // Half of the rest is left to other models.
        let available = least.max((free - pass) / 2);
        let wanted = STATES_PER_SEQUENCE * GPU_SEQUENCES_MAX;
        // A decoder's slot holds only one row; most of its memory is in pages.
        let slots = if needs.page == 0 { available / slot } else { available / 8 / slot };
        let slots = slots.clamp(STATES_PER_SEQUENCE, GPU_STATES_MAX);
        let pages =
            (available - slots * slot).checked_div(needs.page).map_or(0, |pages| pages.min(wanted * needs.longest));
        let states_bytes = if needs.page == 0 { slots * slot } else { pages * needs.page } / 2;
        let sequences_max = (slots / STATES_PER_SEQUENCE).clamp(1, GPU_SEQUENCES_MAX);
        Ok(Self { rows, head_rows, slots, pages, sequences_max, states_bytes })
    }
}

/// A decoder is opened if at least this many pages of its longest sequence fit.
const SEQUENCE_PAGES_MIN: usize = 32;

fn gib(bytes: usize) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: usize = 1 << 30;

    /// Mamba-1.4b: 12.6 MiB per state.
    fn recurrent() -> MemoryNeeds {
        MemoryNeeds { slot: 13_200_000, page: 0, longest: 0, row: 140_000, fixed: 0 }
    }

    /// Qwen2.5-7B in f32: 114,688 bytes per position.
    fn paged() -> MemoryNeeds {
        MemoryNeeds { slot: 0, page: 64 * 114_688, longest: 512, row: 200_000, fixed: 300_000 }
    }

    #[test]
    fn as_many_sequences_as_fit_are_allocated() {
        let large = MemoryPlan::new(&recurrent(), 2_048, 50_280, GIB / 8, [139 * GIB, 136 * GIB]).unwrap();
        assert_eq!((large.slots, large.sequences_max, large.pages), (GPU_STATES_MAX, 512, 0));
        assert!(large.slots * 13_200_000 < 70 * GIB, "half is left to others");
        let small = MemoryPlan::new(&recurrent(), 2_048, 50_280, GIB / 8, [8 * GIB, 5 * GIB]).unwrap();
        assert_eq!(small.sequences_max, small.slots / 4);
        assert!((20..64).contains(&small.sequences_max), "{small:?}");
        let pages = MemoryPlan::new(&paged(), 3_584, 152_064, GIB / 8, [139 * GIB, 124 * GIB]).unwrap();
        assert!((7_000..9_000).contains(&pages.pages) && pages.sequences_max == 512, "{pages:?}");
        assert!(pages.head_rows * 152_064 * 8 <= GPU_LOGIT_BYTES_MAX);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_sizes() {
        let why = MemoryPlan::new(&recurrent(), 2_048, 50_280, GIB / 4, [3 * GIB, GIB / 2]).unwrap_err().to_string();
        assert!(
            why.starts_with("the weights (2.5 GiB), work space of products (0.2 GiB), a pass of 2048 tokens (0."),
            "{why}"
        );
        assert!(why.ends_with("but only 3.2 GiB were free") && why.contains("need 3."), "{why}");
    }
}
