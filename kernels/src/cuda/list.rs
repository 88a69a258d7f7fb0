//! Lists of rows on the device, checked when they are written. A list stays where it is, so that recorded work finds
//! there what was written last.

use super::memory::{Buffer, View};
use super::{Gpu, GpuError};

/// Stands in a [`List`] for no row: nothing is read or written for it.
pub const NO_ROW: u32 = u32::MAX;

/// Numbers of rows, each below a bound or [`NO_ROW`].
#[derive(Debug)]
pub struct List {
    rows: Buffer<u32>,
    len: usize,
    below: usize,
}

impl List {
    /// Room for `most` of them, below `below`; empty.
    ///
    /// # Errors
    /// If the memory does not suffice.
    pub fn room(gpu: &Gpu, most: usize, below: usize) -> Result<Self, GpuError> {
        Ok(Self { rows: gpu.zeros(most)?, len: 0, below })
    }

    /// `rows`, below `below`.
    ///
    /// # Errors
    /// If the memory does not suffice.
    ///
    /// # Panics
    /// If one is not.
    pub fn new(gpu: &Gpu, rows: &[u32], below: usize) -> Result<Self, GpuError> {
        let mut list = Self::room(gpu, rows.len(), below)?;
        list.set(rows, rows.len())?;
        Ok(list)
    }

    /// Replaces it by `rows`, filled up to `len` with [`NO_ROW`].
    ///
    /// # Errors
    /// As the driver says.
    ///
    /// # Panics
    /// If a row is not below the bound, or there is no room for so many.
    pub fn set(&mut self, rows: &[u32], len: usize) -> Result<(), GpuError> {
        let inside = |row: &u32| *row == NO_ROW || (*row as usize) < self.below;
        assert!(rows.iter().all(inside), "List: a row beyond {}", self.below);
        assert!(rows.len() <= len && len <= self.rows.len(), "List: {} rows as {len}", rows.len());
        let mut filled = rows.to_vec();
        filled.resize(len, NO_ROW);
        self.len = len;
        self.rows.write(&filled)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// All of its rows are below this.
    pub(super) fn below(&self) -> usize {
        self.below
    }

    pub(super) fn view(&self) -> View<'_, u32> {
        self.rows.view()
    }
}
