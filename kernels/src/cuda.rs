//! NVIDIA GPUs: memory, launches and one method for each kernel of `cuda/*.cu`. The backend of a [`Gpu`] is the CUDA driver,
//! loaded at run time (feature `cuda`), or an emulation on the CPU, thread by thread (feature `cuda-emulation`, for
//! tests). Weights are f32, bf16, f16 or `Q8_0`; all arithmetic is in f32.
//!
//! Unlike the CPU kernels these are not bit-exact: sums have another order, so results agree within a tolerance. A call
//! enqueues work and returns; the work of one [`Gpu`] runs in the order of the calls. [`Buffer::read`] waits for it.
//!
//! Wrong dims panic, as on the CPU; errors of the device or the driver are a [`GpuError`].

// If both features are on, the emulation is used, so that the whole program can be tested without a GPU.
#[cfg(all(feature = "cuda", not(feature = "cuda-emulation")))]
#[path = "cuda/driver.rs"]
mod backend;
#[cfg(feature = "cuda-emulation")]
#[path = "cuda/emulated.rs"]
mod backend;
mod attention;
#[cfg(all(feature = "cuda", not(feature = "cuda-emulation")))]
mod cublas;
mod list;
mod logits;
mod many;
mod matrix;
mod memory;
mod norms;
#[cfg(any(test, not(feature = "cuda-emulation")))]
mod pinned;
mod product;
mod record;
mod scans;

use std::ffi::c_void;
use std::sync::Arc;

pub use attention::{AttentionPass, PAGE, RowPosition};
pub use list::{NO_ROW, RowList};
pub use logits::{NO_ENTRY, RowQueries, RowQuery, RowStats, TOP_MAX, TopEntry};
pub use matrix::{Matrix, MatrixWeights};
pub use memory::{Buffer, PlainData, View};
pub use record::Recording;
pub use scans::{GpuConv, GpuHeadScan, GpuScan, HeadDims, SequenceBatch, SequenceRows};

/// An error of a GPU or its driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuError(pub(crate) String);

impl GpuError {
    /// An error with this message.
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl std::fmt::Display for GpuError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for GpuError {}

/// Properties of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuInfo {
    /// Its index in the driver's order: `cuda:N`.
    pub ordinal: usize,
    /// Product name.
    pub name: String,
    /// Compute capability: (9, 0) is Hopper.
    pub capability: (u32, u32),
    /// Memory, bytes.
    pub memory: usize,
    /// The newest CUDA version that the driver supports: (13, 0).
    pub driver: (u32, u32),
}

/// Lowest compute capability for which the kernels are compiled.
pub const CAPABILITY_MIN: (u32, u32) = (8, 0);

/// Runs kernels. Memory is identified by its device address.
pub(crate) trait Backend: Send + Sync {
    /// Free bytes of the whole device.
    fn free(&self) -> Result<usize, GpuError>;
    fn allocate(&self, bytes: usize) -> Result<u64, GpuError>;
    fn release(&self, at: u64);
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), GpuError>;
    /// Waits for all work that was enqueued before.
    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), GpuError>;
    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), GpuError>;
    fn zero(&self, at: u64, bytes: usize) -> Result<(), GpuError>;
    /// # Safety
    /// The arguments have the kernel's types and order, and all memory that it accesses is allocated.
    unsafe fn launch(
        &self,
        kernel: &'static str,
        grid: [u32; 3],
        threads: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), GpuError>;
    /// Name and version of the matrix library, or why there is none.
    fn library(&self) -> Result<String, String>;
    /// Enqueues a product of the library.
    ///
    /// # Safety
    /// All memory that it accesses is allocated.
    unsafe fn gemm(&self, gemm: &many::Gemm) -> Result<(), GpuError>;
    /// Records what `work` enqueues without running it; a backend without recording does not call `work`.
    fn record(
        &self,
        _work: &mut dyn FnMut() -> Result<(), GpuError>,
    ) -> Result<Option<Box<dyn record::Recorded>>, GpuError> {
        Ok(None)
    }
}

/// An opened GPU. Clones share it.
#[derive(Clone)]
pub struct Gpu {
    info: GpuInfo,
    /// Present if there is a matrix library.
    product_scratch: Option<Arc<many::ProductScratch>>,
    backend: Arc<dyn Backend>,
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gpu")
    }
}

impl Gpu {
    /// The GPUs that the driver knows.
    ///
    /// # Errors
    /// If there is no driver, or it fails.
    pub fn all() -> Result<Vec<GpuInfo>, GpuError> {
        backend::all()
    }

    /// Opens GPU `ordinal`, loads the kernels, and allocates the scratch memory of the matrix library.
    ///
    /// # Errors
    /// If there is no driver or no such GPU, if the GPU is older than [`CAPABILITY_MIN`], or out of memory.
    pub fn open(ordinal: usize) -> Result<Self, GpuError> {
        let (info, backend) = backend::open(ordinal)?;
        let mut gpu = Self { info, product_scratch: None, backend };
        if gpu.backend.library().is_ok() {
            gpu.product_scratch = Some(Arc::new(many::ProductScratch::new(&gpu)?));
        }
        Ok(gpu)
    }

    /// Name and version of the library that computes products of many rows.
    ///
    /// # Errors
    /// Why there is none; the slower kernels of this crate are then used.
    pub fn library(&self) -> Result<String, String> {
        self.backend.library()
    }

    /// As [`library`](Self::library), before a GPU is opened.
    ///
    /// # Errors
    /// Why there is none.
    pub fn installed_library() -> Result<String, String> {
        backend::library()
    }

    /// Bytes allocated for the matrix library.
    pub fn workspace_bytes(&self) -> usize {
        self.product_scratch.as_ref().map_or(0, |_| many::ProductScratch::BYTES + backend::WORKSPACE_BYTES)
    }

    /// Its properties.
    pub fn info(&self) -> &GpuInfo {
        &self.info
    }

    /// Bytes of free memory.
    ///
    /// # Errors
    /// As the driver says.
    pub fn free_bytes(&self) -> Result<usize, GpuError> {
        self.backend.free()
    }

    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Scratch memory for products of many rows, if there is a matrix library.
    fn product_scratch(&self) -> Option<&many::ProductScratch> {
        self.product_scratch.as_deref()
    }
}

/// A kernel argument, by value.
#[derive(Clone, Copy)]
pub(crate) enum Arg {
    At(u64),
    Int(i32),
    Float(f32),
    HeadDims(HeadDims),
}

impl Arg {
    pub(crate) fn int(x: usize) -> Self {
        Self::Int(i32::try_from(x).expect("dims of a launch are below 2^31"))
    }

    fn payload(&mut self) -> *mut c_void {
        match self {
            Self::At(x) => std::ptr::from_mut(x).cast(),
            Self::Int(x) => std::ptr::from_mut(x).cast(),
            Self::Float(x) => std::ptr::from_mut(x).cast(),
            Self::HeadDims(x) => std::ptr::from_mut(x).cast(),
        }
    }
}

impl Gpu {
    /// # Safety
    /// As for [`Backend::launch`].
    pub(crate) unsafe fn launch<const N: usize>(
        &self,
        kernel: &'static str,
        grid: [usize; 3],
        threads: u32,
        mut arguments: [Arg; N],
    ) -> Result<(), GpuError> {
        if grid.contains(&0) {
            return Ok(());
        }
        let [x, y, z] = grid.map(|n| n as u32);
        if grid[0] > i32::MAX as usize || grid[1] > 65_535 || grid[2] > 65_535 {
            return Err(GpuError(format!(
                "{kernel}: a grid of {grid:?} blocks is too large; process fewer tokens at a time"
            )));
        }
        let mut payloads = arguments.each_mut().map(Arg::payload);
        // SAFETY: the caller's promise.
        unsafe { self.backend.launch(kernel, [x, y, z], threads, &mut payloads) }
    }
}
