//! Where a GPU's memory goes, decided when a model is opened: what is left beside the weights and the room of a pass holds
//! states. One half of them may be at work, the other is for those that callers keep. What does not fit is refused with
//! the sums.

use loom_kernels::cuda::{GpuError, Reading};

use crate::foundation::base::limits::{GPU_LOGIT_BYTES_MAX, GPU_PASS_TOKENS_MAX, GPU_SEQUENCES_MAX, GPU_STATES_MAX};

/// What a body needs of memory, bytes.
#[derive(Clone, Copy)]
pub(super) struct Needs {
    /// A slot.
    pub(super) slot: usize,
    /// A page; 0 if it has none.
    pub(super) page: usize,
    /// Pages of the longest sequence.
    pub(super) longest: usize,
    /// A row of a pass.
    pub(super) row: usize,
    /// What does not depend on the number of rows.
    pub(super) fixed: usize,
}

/// Where the memory goes.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    /// Rows of a pass, and of the head.
    pub(super) rows: usize,
    pub(super) some: usize,
    pub(super) slots: usize,
    pub(super) pages: usize,
    pub(super) sequences_max: usize,
    /// Of the states that may be at work.
    pub(super) states_bytes: usize,
}

/// A request's own state and the one before its reply, and as much again for what callers keep.
const STATES_PER_SEQUENCE: usize = 4;

impl Plan {
    /// `before` bytes were free in front of the weights, `free` are behind them; the products' `workspace` bytes have been
    /// taken already.
    pub(super) fn new(
        needs: &Needs,
        d_model: usize,
        vocabulary: usize,
        workspace: usize,
        [before, free]: [usize; 2],
    ) -> Result<Self, GpuError> {
        let rows = GPU_PASS_TOKENS_MAX.max(GPU_SEQUENCES_MAX);
        let some = (GPU_LOGIT_BYTES_MAX / (8 * vocabulary)).clamp(1, rows);
        let width = size_of::<f32>() * d_model;
        let pass =
            rows * (needs.row + 2 * width + size_of::<Reading>()) + some * (width + 8 * vocabulary) + needs.fixed;
        let slot = needs.slot + width;
        // One sequence at least, as long as they come.
        let least = STATES_PER_SEQUENCE * (slot + needs.longest.min(LONGEST_PAGES_MIN) * needs.page);
        if pass + least > free {
            let weights = before.saturating_sub(free);
            return Err(GpuError::new(format!(
                "the weights ({}), room for products ({}), a pass of {rows} tokens ({}) and the states of one conversation ({}) \
                 come to {}, and {} were free",
                gib(weights),
                gib(workspace),
                gib(pass),
                gib(least),
                gib(weights + workspace + pass + least),
                gib(before + workspace),
            )));
        }
        // Half of the rest is left to other models.
        let room = least.max((free - pass) / 2);
        let wanted = STATES_PER_SEQUENCE * GPU_SEQUENCES_MAX;
        // A decoder's slots hold a row each; the pages are what it needs.
        let slots = if needs.page == 0 { room / slot } else { room / 8 / slot };
        let slots = slots.clamp(STATES_PER_SEQUENCE, GPU_STATES_MAX);
        let pages = (room - slots * slot).checked_div(needs.page).map_or(0, |pages| pages.min(wanted * needs.longest));
        let states_bytes = if needs.page == 0 { slots * slot } else { pages * needs.page } / 2;
        let sequences_max = (slots / STATES_PER_SEQUENCE).clamp(1, GPU_SEQUENCES_MAX);
        Ok(Self { rows, some, slots, pages, sequences_max, states_bytes })
    }
}

/// A decoder whose longest sequence does not fit is opened if this many pages of one do.
const LONGEST_PAGES_MIN: usize = 32;

fn gib(bytes: usize) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: usize = 1 << 30;

    /// Mamba-1.4b: 12.6 MiB a state.
    fn recurrent() -> Needs {
        Needs { slot: 13_200_000, page: 0, longest: 0, row: 140_000, fixed: 0 }
    }

    /// Qwen2.5-7B in f32: 114,688 bytes a position.
    fn paged() -> Needs {
        Needs { slot: 0, page: 64 * 114_688, longest: 512, row: 200_000, fixed: 300_000 }
    }

    #[test]
    fn memory_is_planned_for_as_many_as_fit() {
        let large = Plan::new(&recurrent(), 2_048, 50_280, GIB / 8, [139 * GIB, 136 * GIB]).unwrap();
        assert_eq!((large.slots, large.sequences_max, large.pages), (GPU_STATES_MAX, 512, 0));
        assert!(large.slots * 13_200_000 < 70 * GIB, "half is left to others");
        let small = Plan::new(&recurrent(), 2_048, 50_280, GIB / 8, [8 * GIB, 5 * GIB]).unwrap();
        assert_eq!(small.sequences_max, small.slots / 4);
        assert!((20..64).contains(&small.sequences_max), "{small:?}");
        let pages = Plan::new(&paged(), 3_584, 152_064, GIB / 8, [139 * GIB, 124 * GIB]).unwrap();
        assert!((7_000..9_000).contains(&pages.pages) && pages.sequences_max == 512, "{pages:?}");
        assert!(pages.some * 152_064 * 8 <= GPU_LOGIT_BYTES_MAX);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_sums() {
        let why = Plan::new(&recurrent(), 2_048, 50_280, GIB / 4, [3 * GIB, GIB / 2]).unwrap_err().to_string();
        assert!(
            why.starts_with("the weights (2.5 GiB), room for products (0.2 GiB), a pass of 2048 tokens (0."),
            "{why}"
        );
        assert!(why.ends_with("and 3.2 GiB were free") && why.contains("come to 3."), "{why}");
    }
}
