//! Norms, gates, and row copies.

use super::list::RowList;
use super::memory::View;
use super::{Arg, Gpu, GpuError};

impl Gpu {
    /// x += added, if given; y = RMS norm of each row of x times `weight` `[width]`.
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// If the dims disagree.
    pub fn rms_norm(
        &self,
        x: View<'_, f32>,
        added: Option<View<'_, f32>>,
        weight: View<'_, f32>,
        epsilon: f32,
        y: View<'_, f32>,
        [rows, width]: [usize; 2],
    ) -> Result<(), GpuError> {
        let row = |what, view: View<'_, f32>| view.rows(what, rows, width, width);
        let added = added.map_or(Arg::At(0), |added| row("rms_norm added", added));
        let arguments = [
            row("rms_norm x", x),
            added,
            weight.rows("rms_norm weight", 1, width, width),
            Arg::Float(epsilon),
            row("rms_norm y", y),
            Arg::int(width),
        ];
        // SAFETY: the kernel's parameters, checked above.
        unsafe { self.launch("rms_norm_residual", [rows, 1, 1], 256, arguments) }
    }

    /// out = RMS norm of y · silu(z) over each of `groups` parts of a row, times `weight` `[width]`; rows of z are `z_stride` apart.
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// If the dims disagree.
    pub fn gated_rms_norm(
        &self,
        y: View<'_, f32>,
        (z, z_stride): (View<'_, f32>, usize),
        weight: View<'_, f32>,
        epsilon: f32,
        out: View<'_, f32>,
        [rows, width, groups]: [usize; 3],
    ) -> Result<(), GpuError> {
        assert!(groups > 0 && width.is_multiple_of(groups), "gated_rms_norm: {width} in {groups} groups");
        let arguments = [
            y.rows("gated_rms_norm y", rows, width, width),
            z.rows("gated_rms_norm z", rows, z_stride, width),
            Arg::int(z_stride),
            weight.rows("gated_rms_norm weight", 1, width, width),
            Arg::Float(epsilon),
            out.rows("gated_rms_norm out", rows, width, width),
            Arg::int(width),
        ];
        // SAFETY: the kernel's parameters, checked above.
        unsafe { self.launch("gated_rms_norm", [groups, rows, 1], 256, arguments) }
    }

    /// Falcon Mamba's norms without weights, in place, for rows of x that are `stride` apart: one over the first `first` numbers
    /// and two over `others` numbers each, starting at `begin`.
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// If the dims disagree.
    pub fn norm_parts(
        &self,
        (x, stride): (View<'_, f32>, usize),
        rows: usize,
        [first, begin, others]: [usize; 3],
        epsilon: f32,
    ) -> Result<(), GpuError> {
        assert!(first <= begin, "norm_parts: {first} numbers before {begin}");
        let x = x.rows("norm_parts x", rows, stride, begin + 2 * others);
        let [stride, first, begin, others] = [stride, first, begin, others].map(Arg::int);
        // SAFETY: the kernel's parameters, checked above.
        unsafe { self.launch("norm_parts", [3, rows, 1], 256, [x, stride, first, begin, others, Arg::Float(epsilon)]) }
    }

    /// up = silu(gate) · up.
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// If one is shorter than `count`.
    pub fn silu_gate(&self, gate: View<'_, f32>, up: View<'_, f32>, count: usize) -> Result<(), GpuError> {
        let arguments =
            [gate.rows("silu_gate gate", 1, count, count), up.rows("silu_gate up", 1, count, count), Arg::int(count)];
        // SAFETY: the kernel's parameters, checked above.
        unsafe { self.launch("silu_gate", [count.div_ceil(256), 1, 1], 256, arguments) }
    }

    /// x += added.
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// If one is shorter than `count`.
    pub fn add_to(&self, x: View<'_, f32>, added: View<'_, f32>, count: usize) -> Result<(), GpuError> {
        let arguments =
            [x.rows("add_to x", 1, count, count), added.rows("add_to added", 1, count, count), Arg::int(count)];
        // SAFETY: the kernel's parameters, checked above.
        unsafe { self.launch("add_to", [count.div_ceil(256), 1, 1], 256, arguments) }
    }

    /// to[`to_rows`[r]] = from[`from_rows`[r]] for `rows` rows of `width` numbers; a list that is `None` is the
    /// identity, and a row that is [`NO_ROW`](super::NO_ROW) is skipped. Targets must be distinct.
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// If the bound of a list exceeds its buffer, or a list has another length.
    pub fn copy_rows(
        &self,
        (from, from_rows): (View<'_, f32>, Option<&RowList>),
        (to, to_rows): (View<'_, f32>, Option<&RowList>),
        [rows, width]: [usize; 2],
    ) -> Result<(), GpuError> {
        let fits = |list: Option<&RowList>| list.is_none_or(|list| list.len() == rows);
        assert!(fits(from_rows) && fits(to_rows), "copy_rows: not {rows} rows");
        let end = |list: Option<&RowList>| list.map_or(rows, RowList::below);
        let at = |list: Option<&RowList>| list.map_or(Arg::At(0), |list| list.view().at());
        let arguments = [
            from.rows("copy_rows from", end(from_rows), width, width),
            at(from_rows),
            to.rows("copy_rows to", end(to_rows), width, width),
            at(to_rows),
            Arg::int(width),
        ];
        // SAFETY: the kernel's parameters, checked above; rows in `RowList`.
        unsafe { self.launch("copy_rows", [rows, 1, 1], 256, arguments) }
    }
}
