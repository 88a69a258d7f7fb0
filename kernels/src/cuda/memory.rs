//! Memory of a GPU: owned buffers and views into them.

use std::marker::PhantomData;
use std::mem::size_of;
use std::sync::Arc;

use super::{Backend, Gpu, GpuError};

/// Types that can be copied to a GPU and back as bytes.
///
/// # Safety
/// Every bit pattern is a valid value, and there is no padding.
pub unsafe trait PlainData: Copy + Send + Sync + 'static {}

// SAFETY: a number.
unsafe impl PlainData for f32 {}
// SAFETY: a number.
unsafe impl PlainData for f64 {}
// SAFETY: a number.
unsafe impl PlainData for u16 {}
// SAFETY: a number.
unsafe impl PlainData for i8 {}
// SAFETY: a number.
unsafe impl PlainData for u32 {}
// SAFETY: a number.
unsafe impl PlainData for i32 {}

/// A buffer in GPU memory, freed when dropped. Kernels write through shared references; they run in order, one at a time.
pub struct Buffer<T: PlainData> {
    backend: Arc<dyn Backend>,
    at: u64,
    len: usize,
    of: PhantomData<T>,
}

impl<T: PlainData> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer[{}]", self.len)
    }
}

impl Gpu {
    /// `len` elements, all bits 0.
    ///
    /// # Errors
    /// If out of memory.
    pub fn zeros<T: PlainData>(&self, len: usize) -> Result<Buffer<T>, GpuError> {
        let bytes = len * size_of::<T>();
        // Empty buffers need an address too.
        let at = self.backend().allocate(bytes.max(16))?;
        let buffer = Buffer { backend: Arc::clone(self.backend()), at, len, of: PhantomData };
        self.backend().zero(at, bytes.max(16))?;
        Ok(buffer)
    }

    /// `len` uninitialised elements, which must be written before they are read.
    ///
    /// # Errors
    /// If out of memory.
    pub fn uninit<T: PlainData>(&self, len: usize) -> Result<Buffer<T>, GpuError> {
        let at = self.backend().allocate((len * size_of::<T>()).max(16))?;
        Ok(Buffer { backend: Arc::clone(self.backend()), at, len, of: PhantomData })
    }

    /// A copy of `values`.
    ///
    /// # Errors
    /// If out of memory.
    pub fn upload<T: PlainData>(&self, values: &[T]) -> Result<Buffer<T>, GpuError> {
        let bytes = size_of_val(values);
        let at = self.backend().allocate(bytes.max(16))?;
        let buffer = Buffer { backend: Arc::clone(self.backend()), at, len: values.len(), of: PhantomData };
        buffer.write(values)?;
        Ok(buffer)
    }
}

impl<T: PlainData> Buffer<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes `values` to the start of the buffer.
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// If there are more values than elements.
    pub fn write(&self, values: &[T]) -> Result<(), GpuError> {
        assert!(values.len() <= self.len, "Buffer::write: {} into {}", values.len(), self.len);
        if values.is_empty() {
            return Ok(());
        }
        // SAFETY: `PlainData` has no padding, so its bytes may be read.
        let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) };
        self.backend.write(self.at, bytes)
    }

    /// Reads the start of the buffer into `values` after all earlier work.
    ///
    /// # Errors
    /// An error of the driver; also if earlier work failed.
    ///
    /// # Panics
    /// If there are more values than elements.
    pub fn read(&self, values: &mut [T]) -> Result<(), GpuError> {
        read(&*self.backend, self.view(), values)
    }

    /// A view of the whole buffer.
    pub fn view(&self) -> View<'_, T> {
        View { at: self.at, len: self.len, of: PhantomData }
    }

    /// A view starting at element `from`.
    ///
    /// # Panics
    /// If `from` exceeds the length.
    pub fn from(&self, from: usize) -> View<'_, T> {
        self.view().from(from)
    }

    /// `len` elements starting at `from`.
    ///
    /// # Panics
    /// If they are not in the buffer.
    pub fn part(&self, from: usize, len: usize) -> View<'_, T> {
        let view = self.view().from(from);
        assert!(len <= view.len, "Buffer::part: {len} of {}", view.len);
        View { len, ..view }
    }
}

impl<T: PlainData> Drop for Buffer<T> {
    fn drop(&mut self) {
        self.backend.release(self.at);
    }
}

/// A part of a buffer.
#[derive(Debug, Clone, Copy)]
pub struct View<'a, T: PlainData> {
    at: u64,
    len: usize,
    of: PhantomData<&'a T>,
}

impl<T: PlainData> View<'_, T> {
    /// A view starting at element `from`.
    ///
    /// # Panics
    /// If `from` exceeds the length.
    #[must_use]
    pub fn from(self, from: usize) -> Self {
        assert!(from <= self.len, "View::from: {from} of {}", self.len);
        Self { at: self.at + (from * size_of::<T>()) as u64, len: self.len - from, of: PhantomData }
    }

    pub(crate) fn at(self) -> super::Arg {
        super::Arg::At(self.at)
    }

    pub(crate) fn address(self) -> u64 {
        self.at
    }

    /// The address, after checking that `rows` rows of `width` with this `stride` are in the view.
    pub(crate) fn rows(self, what: &str, rows: usize, stride: usize, width: usize) -> super::Arg {
        assert!(width <= stride || rows <= 1, "{what}: rows of {width} overlap at stride {stride}");
        let end = rows.checked_sub(1).map_or(0, |last| last * stride + width);
        assert!(end <= self.len, "{what}: {rows} rows of {width} need {end} elements, got {}", self.len);
        self.at()
    }

    /// Whether the address is a multiple of 16 bytes.
    pub(crate) fn is_wide(self) -> bool {
        self.at.is_multiple_of(16)
    }
}

/// Reads the start of a view into `values`.
fn read<T: PlainData>(backend: &dyn Backend, from: View<'_, T>, values: &mut [T]) -> Result<(), GpuError> {
    assert!(values.len() <= from.len, "read: {} of {}", values.len(), from.len);
    let len = size_of_val(values);
    // SAFETY: any bytes are a value of a `PlainData`.
    let bytes = unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast::<u8>(), len) };
    backend.read(from.at, bytes)
}

impl Gpu {
    /// Reads the start of a view into `values` after all earlier work.
    ///
    /// # Errors
    /// An error of the driver; also if earlier work failed.
    ///
    /// # Panics
    /// If the view has fewer.
    pub fn read<T: PlainData>(&self, from: View<'_, T>, values: &mut [T]) -> Result<(), GpuError> {
        read(&**self.backend(), from, values)
    }

    /// Copies `len` elements within a buffer or between two.
    ///
    /// # Errors
    /// An error of the driver.
    ///
    /// # Panics
    /// If either has fewer.
    pub fn copy<T: PlainData>(&self, from: View<'_, T>, to: View<'_, T>, len: usize) -> Result<(), GpuError> {
        assert!(len <= from.len && len <= to.len, "copy: {len} from {} to {}", from.len, to.len);
        self.backend().copy(from.at, to.at, len * size_of::<T>())
    }

    /// Sets all bits of a view to 0.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn clear<T: PlainData>(&self, what: View<'_, T>) -> Result<(), GpuError> {
        self.backend().zero(what.at, what.len * size_of::<T>())
    }
}
