//! Sums of the step sizes Δ of a scan, for statistics. The scan does not store Δ, so this is a separate pass over the same
//! inputs and does not affect the scan's results.

use crate::dispatch::{Kernel, Path, active_path, dispatch};
use crate::lanes::{LANES, Lanes};
use crate::math::softplus;
use crate::rows::Rows;

/// Adds Δ = clamp(softplus(`delta_raw` + `dt_bias`), `limit`) of `len` steps to `sums`, column by column: Δ is bit-identical
/// to that of [`selective_scan`](crate::selective_scan) (limit (0, ∞)) and [`head_scan`](crate::head_scan), before any
/// gain. A column is summed in f64 in the order of its steps, so the sums do not depend on how a text was split.
///
/// `delta_raw` `[len, columns]`, `dt_bias` and `sums` `[columns]`.
///
/// # Panics
/// If the dims disagree.
pub fn add_steps(delta_raw: Rows<'_>, dt_bias: &[f32], limit: (f32, f32), len: usize, sums: &mut [f64]) {
    add_steps_on(active_path(), delta_raw, dt_bias, limit, len, sums);
}

pub(crate) fn add_steps_on(
    path: Path,
    delta_raw: Rows<'_>,
    dt_bias: &[f32],
    limit: (f32, f32),
    len: usize,
    sums: &mut [f64],
) {
    assert_eq!(sums.len(), dt_bias.len(), "add_steps: sums and dt_bias");
    delta_raw.check("add_steps delta_raw", len, dt_bias.len());
    dispatch(path, AddSteps { delta_raw, dt_bias, limit, len, sums });
}

struct AddSteps<'a> {
    delta_raw: Rows<'a>,
    dt_bias: &'a [f32],
    limit: (f32, f32),
    len: usize,
    sums: &'a mut [f64],
}

impl Kernel for AddSteps<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let columns = self.dt_bias.len();
        for t in 0..self.len {
            let raw = self.delta_raw.get(t, columns);
            for first in (0..columns).step_by(LANES) {
                let some = LANES.min(columns - first);
                let bias = V::load_part(&self.dt_bias[first..][..some], 0.0);
                let delta = softplus(V::load_part(&raw[first..][..some], 0.0).add(bias));
                // In this order NaN stays NaN.
                let delta = V::splat(self.limit.1).min(V::splat(self.limit.0).max(delta));
                let mut lanes = [0.0; LANES];
                delta.store(&mut lanes);
                for i in 0..some {
                    self.sums[first + i] += f64::from(lanes[i]);
                }
            }
        }
    }
}
