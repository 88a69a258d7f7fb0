//! NVIDIA GPUs: memory, launches and the kernels of `cuda/*.cu`, one method each. What stands behind a [`Gpu`] is the CUDA
//! driver, opened at run time (feature `cuda`), or the CPU playing a GPU thread by thread (feature `cuda-emulation`,
//! for tests). Weights are f32, bf16, f16 or `Q8_0`; all arithmetic is in f32.
//!
//! Unlike the CPU's kernels these promise no bits: sums are taken in another order, so results agree within a tolerance.
//! A call enqueues work and returns; work of one [`Gpu`] is done in the order of the calls. [`Buffer::read`] waits.
//!
//! Wrong dims panic, as on the CPU; what the device or the driver refuses is a [`GpuError`].

// Where both features are on, the CPU plays: so a whole program can be tried without a GPU.
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
mod many;
mod matrix;
mod memory;
mod norms;
#[cfg(any(test, not(feature = "cuda-emulation")))]
mod pinned;
mod product;
mod reading;
mod record;
mod scans;

use std::ffi::c_void;
use std::sync::Arc;

pub use attention::{Attend, PAGE, Place};
pub use list::{List, NO_ROW};
pub use matrix::{Kind, Matrix};
pub use memory::{Buffer, Plain, View};
pub use reading::{Ask, Asks, Entry, NO_ENTRY, Reading, TOP_MAX};
pub use record::Recording;
pub use scans::{Batch, GpuConv, GpuHeadScan, GpuScan, Heads, Sequence};

/// Why a GPU cannot be used, or no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuError(pub(crate) String);

impl GpuError {
    /// With this message.
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

/// What is known of a GPU before it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuInfo {
    /// Its place in the driver's order: `cuda:N`.
    pub ordinal: usize,
    /// The maker's name for it.
    pub name: String,
    /// Compute capability: (9, 0) is Hopper.
    pub capability: (u32, u32),
    /// Its memory, bytes.
    pub memory: usize,
    /// The newest CUDA version that the driver serves: (13, 0).
    pub driver: (u32, u32),
}

/// The kernels are compiled for this compute capability and what follows it.
pub const CAPABILITY_MIN: (u32, u32) = (8, 0);

/// What runs kernels. Memory is named by its address there.
pub(crate) trait Machine: Send + Sync {
    /// Bytes in use by others and free, of the whole device.
    fn free(&self) -> Result<usize, GpuError>;
    fn allocate(&self, bytes: usize) -> Result<u64, GpuError>;
    fn release(&self, at: u64);
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), GpuError>;
    /// Waits for all work that was enqueued before.
    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), GpuError>;
    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), GpuError>;
    fn zero(&self, at: u64, bytes: usize) -> Result<(), GpuError>;
    /// # Safety
    /// The arguments are of the kernel's types in its order, and what it reads and writes lies in allocated memory.
    unsafe fn launch(
        &self,
        kernel: &'static str,
        grid: [u32; 3],
        threads: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), GpuError>;
    /// What multiplies many rows, by name and version; or why nothing does.
    fn library(&self) -> Result<String, String>;
    /// Enqueues a product of the library.
    ///
    /// # Safety
    /// What it reads and writes lies in allocated memory.
    unsafe fn gemm(&self, gemm: &many::Gemm) -> Result<(), GpuError>;
    /// Records what `work` enqueues instead of doing it; a machine that cannot does not call it.
    fn record(
        &self,
        _work: &mut dyn FnMut() -> Result<(), GpuError>,
    ) -> Result<Option<Box<dyn record::Recorded>>, GpuError> {
        Ok(None)
    }
}

/// A GPU at work. Clones share it.
#[derive(Clone)]
pub struct Gpu {
    info: GpuInfo,
    /// Where there is a library for many rows.
    room: Option<Arc<many::Room>>,
    machine: Arc<dyn Machine>,
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
    /// If there is no driver, or it refuses.
    pub fn all() -> Result<Vec<GpuInfo>, GpuError> {
        backend::all()
    }

    /// Opens GPU `ordinal`, loads the kernels, and takes the memory that products of many rows need.
    ///
    /// # Errors
    /// If there is no driver, no such GPU, it is older than [`CAPABILITY_MIN`], or its memory does not suffice.
    pub fn open(ordinal: usize) -> Result<Self, GpuError> {
        let (info, machine) = backend::open(ordinal)?;
        let mut gpu = Self { info, room: None, machine };
        if gpu.machine.library().is_ok() {
            gpu.room = Some(Arc::new(many::Room::new(&gpu)?));
        }
        Ok(gpu)
    }

    /// The library that products of many rows are left to, with its version; or why the kernels here, which are slower at
    /// that, do them all.
    ///
    /// # Errors
    /// The reason, in words.
    pub fn library(&self) -> Result<String, String> {
        self.machine.library()
    }

    /// The same before any GPU is opened.
    ///
    /// # Errors
    /// The reason, in words.
    pub fn installed_library() -> Result<String, String> {
        backend::library()
    }

    /// Bytes that products of many rows have taken.
    pub fn workspace_bytes(&self) -> usize {
        self.room.as_ref().map_or(0, |_| many::Room::BYTES + backend::WORKSPACE_BYTES)
    }

    /// What is known of it.
    pub fn info(&self) -> &GpuInfo {
        &self.info
    }

    /// Bytes of its memory that nobody uses.
    ///
    /// # Errors
    /// As the driver says.
    pub fn free_bytes(&self) -> Result<usize, GpuError> {
        self.machine.free()
    }

    pub(crate) fn machine(&self) -> &Arc<dyn Machine> {
        &self.machine
    }

    /// Room for products of many rows, where they have a library.
    fn for_many(&self) -> Option<&many::Room> {
        self.room.as_deref()
    }
}

/// An argument of a kernel, by value.
#[derive(Clone, Copy)]
pub(crate) enum Arg {
    At(u64),
    Int(i32),
    Float(f32),
    Heads(Heads),
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
            Self::Heads(x) => std::ptr::from_mut(x).cast(),
        }
    }
}

impl Gpu {
    /// # Safety
    /// As for [`Machine::launch`].
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
                "{kernel}: a grid of {grid:?} blocks is beyond a launch; read fewer tokens at once"
            )));
        }
        let mut payloads = arguments.each_mut().map(Arg::payload);
        // SAFETY: the caller's promise.
        unsafe { self.machine.launch(kernel, [x, y, z], threads, &mut payloads) }
    }
}
