//! Memory of a GPU: owned buffers and views into them.

use std::marker::PhantomData;
use std::mem::size_of;
use std::sync::Arc;

use super::{Gpu, GpuError, Machine};

/// Types whose every pattern of bits is a value, without padding: what may be copied to a GPU and back.
///
/// # Safety
/// Exactly that.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

// SAFETY: a number.
unsafe impl Plain for f32 {}
// SAFETY: a number.
unsafe impl Plain for f64 {}
// SAFETY: a number.
unsafe impl Plain for u16 {}
// SAFETY: a number.
unsafe impl Plain for i8 {}
// SAFETY: a number.
unsafe impl Plain for u32 {}
// SAFETY: a number.
unsafe impl Plain for i32 {}

/// Memory of a GPU, given back when it is dropped. Kernels write through shared references: they run in order, one after
/// the other.
pub struct Buffer<T: Plain> {
    machine: Arc<dyn Machine>,
    at: u64,
    len: usize,
    of: PhantomData<T>,
}

impl<T: Plain> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer[{}]", self.len)
    }
}

impl Gpu {
    /// `len` elements, all bits 0.
    ///
    /// # Errors
    /// If the memory does not suffice.
    pub fn zeros<T: Plain>(&self, len: usize) -> Result<Buffer<T>, GpuError> {
        let bytes = len * size_of::<T>();
        // An address for empty buffers too.
        let at = self.machine().allocate(bytes.max(16))?;
        let buffer = Buffer { machine: Arc::clone(self.machine()), at, len, of: PhantomData };
        self.machine().zero(at, bytes.max(16))?;
        Ok(buffer)
    }

    /// Room for `len` elements, whatever lies there: to be written before it is read.
    ///
    /// # Errors
    /// If the memory does not suffice.
    pub fn room<T: Plain>(&self, len: usize) -> Result<Buffer<T>, GpuError> {
        let at = self.machine().allocate((len * size_of::<T>()).max(16))?;
        Ok(Buffer { machine: Arc::clone(self.machine()), at, len, of: PhantomData })
    }

    /// A copy of `values`.
    ///
    /// # Errors
    /// If the memory does not suffice.
    pub fn upload<T: Plain>(&self, values: &[T]) -> Result<Buffer<T>, GpuError> {
        let bytes = size_of_val(values);
        let at = self.machine().allocate(bytes.max(16))?;
        let buffer = Buffer { machine: Arc::clone(self.machine()), at, len: values.len(), of: PhantomData };
        buffer.write(values)?;
        Ok(buffer)
    }
}

impl<T: Plain> Buffer<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts `values` at its beginning.
    ///
    /// # Errors
    /// As the driver says.
    ///
    /// # Panics
    /// If there are more of them than it holds.
    pub fn write(&self, values: &[T]) -> Result<(), GpuError> {
        assert!(values.len() <= self.len, "Buffer::write: {} into {}", values.len(), self.len);
        if values.is_empty() {
            return Ok(());
        }
        // SAFETY: `Plain` has no padding, so its bytes may be read.
        let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) };
        self.machine.write(self.at, bytes)
    }

    /// Fills `values` from its beginning, after all work before it.
    ///
    /// # Errors
    /// As the driver says; also if work before it failed.
    ///
    /// # Panics
    /// If more is wanted than it holds.
    pub fn read(&self, values: &mut [T]) -> Result<(), GpuError> {
        read(&*self.machine, self.view(), values)
    }

    /// All of it.
    pub fn view(&self) -> View<'_, T> {
        View { at: self.at, len: self.len, of: PhantomData }
    }

    /// What lies from element `from` on.
    ///
    /// # Panics
    /// If there is no such element.
    pub fn from(&self, from: usize) -> View<'_, T> {
        self.view().from(from)
    }

    /// `len` elements from `from` on.
    ///
    /// # Panics
    /// If it does not hold them.
    pub fn part(&self, from: usize, len: usize) -> View<'_, T> {
        let view = self.view().from(from);
        assert!(len <= view.len, "Buffer::part: {len} of {}", view.len);
        View { len, ..view }
    }
}

impl<T: Plain> Drop for Buffer<T> {
    fn drop(&mut self) {
        self.machine.release(self.at);
    }
}

/// A part of a buffer.
#[derive(Debug, Clone, Copy)]
pub struct View<'a, T: Plain> {
    at: u64,
    len: usize,
    of: PhantomData<&'a T>,
}

impl<T: Plain> View<'_, T> {
    /// What lies from element `from` on.
    ///
    /// # Panics
    /// If there is no such element.
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

    /// The address, after a check that `rows` rows of `width`, `stride` apart, lie within.
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

/// Fills `values` from the beginning of a view.
fn read<T: Plain>(machine: &dyn Machine, from: View<'_, T>, values: &mut [T]) -> Result<(), GpuError> {
    assert!(values.len() <= from.len, "read: {} of {}", values.len(), from.len);
    let len = size_of_val(values);
    // SAFETY: any bytes are a value of a `Plain`.
    let bytes = unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast::<u8>(), len) };
    machine.read(from.at, bytes)
}

impl Gpu {
    /// Fills `values` from the beginning of a view, after all work before it.
    ///
    /// # Errors
    /// As the driver says; also if work before it failed.
    ///
    /// # Panics
    /// If the view has fewer.
    pub fn read<T: Plain>(&self, from: View<'_, T>, values: &mut [T]) -> Result<(), GpuError> {
        read(&**self.machine(), from, values)
    }

    /// Copies `len` elements within a buffer or between two.
    ///
    /// # Errors
    /// As the driver says.
    ///
    /// # Panics
    /// If either has fewer.
    pub fn copy<T: Plain>(&self, from: View<'_, T>, to: View<'_, T>, len: usize) -> Result<(), GpuError> {
        assert!(len <= from.len && len <= to.len, "copy: {len} from {} to {}", from.len, to.len);
        self.machine().copy(from.at, to.at, len * size_of::<T>())
    }

    /// Sets all bits of a view to 0.
    ///
    /// # Errors
    /// As the driver says.
    pub fn clear<T: Plain>(&self, what: View<'_, T>) -> Result<(), GpuError> {
        self.machine().zero(what.at, what.len * size_of::<T>())
    }
}
