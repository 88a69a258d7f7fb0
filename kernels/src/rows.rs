//! Row views of buffers, and a writer with which threads write disjoint columns of one buffer.

use std::marker::PhantomData;

/// Rows of a larger buffer: row r starts at `r · stride`. For columns starting at `k`, slice the data: `&data[k..]`.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    data: &'a [f32],
    stride: usize,
}

impl<'a> Rows<'a> {
    /// Rows that start every `stride` numbers. The last row may be shorter than the stride.
    pub fn new(data: &'a [f32], stride: usize) -> Self {
        Self { data, stride }
    }

    /// The first `width` numbers of `row`.
    ///
    /// # Panics
    /// If they lie beyond the data.
    #[inline(always)]
    pub(crate) fn get(&self, row: usize, width: usize) -> &'a [f32] {
        &self.data[row * self.stride..][..width]
    }

    /// Panics unless `rows` rows of `width` lie within.
    pub(crate) fn check(&self, what: &str, rows: usize, width: usize) {
        assert!(width <= self.stride || rows <= 1, "{what}: rows of {width} overlap at stride {}", self.stride);
        let end = rows.checked_sub(1).map_or(0, |last| last * self.stride + width);
        assert!(end <= self.data.len(), "{what}: {rows} rows of {width} need {end} numbers, got {}", self.data.len());
    }
}

/// A matrix that several threads write, each to disjoint columns.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a> {
    data: *mut f32,
    rows: usize,
    width: usize,
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: `slice` is the only access, and its callers use disjoint columns.
unsafe impl Send for Columns<'_> {}
// SAFETY: as above.
unsafe impl Sync for Columns<'_> {}

impl<'a> Columns<'a> {
    /// # Panics
    /// Unless `data` is `rows` × `width`.
    pub(crate) fn new(what: &str, data: &'a mut [f32], rows: usize, width: usize) -> Self {
        assert_eq!(data.len(), rows * width, "{what}: expected {rows} × {width} numbers");
        Self { data: data.as_mut_ptr(), rows, width, owner: PhantomData }
    }

    /// Columns `from .. from + len` of `row`.
    ///
    /// # Safety
    /// No two live slices overlap: threads use disjoint columns, and a thread drops a slice before taking it again.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the purpose of the type; see Safety")]
    pub(crate) unsafe fn slice(&self, row: usize, from: usize, len: usize) -> &mut [f32] {
        assert!(row < self.rows && from + len <= self.width);
        // SAFETY: within the buffer by the assertion; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(row * self.width + from), len) }
    }
}
