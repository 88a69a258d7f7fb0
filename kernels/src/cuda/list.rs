//! Lists of row indices on the device, checked when written. A list has a fixed address, so that recorded work uses its
//! latest content.

use super::memory::{Buffer, View};
use super::{Gpu, GpuError};

/// Marks an unused entry of a [`RowList`]: nothing is read or written for it.
pub const NO_ROW: u32 = u32::MAX;

/// Row indices, each below a bound or [`NO_ROW`].
#[derive(Debug)]
pub struct RowList {
    rows: Buffer<u32>,
    len: usize,
    below: usize,
}

impl RowList {
    /// An empty list with capacity `most` and bound `below`.
    ///
    /// # Errors
    /// If out of memory.
    pub fn with_capacity(gpu: &Gpu, most: usize, below: usize) -> Result<Self, GpuError> {
        Ok(Self { rows: gpu.zeros(most)?, len: 0, below })
    }

    /// A list of `rows` with bound `below`.
    ///
    /// # Errors
    /// If out of memory.
    ///
    /// # Panics
    /// If a row is not below the bound.
    pub fn new(gpu: &Gpu, rows: &[u32], below: usize) -> Result<Self, GpuError> {
        let mut list = Self::with_capacity(gpu, rows.len(), below)?;
        list.set(rows, rows.len())?;
        Ok(list)
    }

    /// Replaces the rows by `rows`, padded to `len` with [`NO_ROW`].
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// If a row is not below the bound, or `len` exceeds the capacity.
    pub fn set(&mut self, rows: &[u32], len: usize) -> Result<(), GpuError> {
        let inside = |row: &u32| *row == NO_ROW || (*row as usize) < self.below;
        assert!(rows.iter().all(inside), "RowList: a row beyond {}", self.below);
        assert!(rows.len() <= len && len <= self.rows.len(), "RowList: {} rows as {len}", rows.len());
        let mut filled = rows.to_vec();
        filled.resize(len, NO_ROW);
        self.len = len;
        self.rows.write(&filled)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The bound of its rows.
    pub(super) fn below(&self) -> usize {
        self.below
    }

    pub(super) fn view(&self) -> View<'_, u32> {
        self.rows.view()
    }
}
