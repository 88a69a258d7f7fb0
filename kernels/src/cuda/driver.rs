//! The CUDA driver, loaded at its first use. CUDA is not needed to link or to start the program, nor to build it without
//! the feature.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::CUdevice_attribute::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
};
use cudarc::driver::{DriverError, result, sys};

use super::cublas::{self, Cublas};
use super::many::Gemm;
use super::pinned::{DOWN_BYTES, UP_BYTES, Uploads};
use super::record::Recorded;
use super::{Backend, CAPABILITY_MIN, GpuError, GpuInfo};

/// The kernels, compiled by build.rs for compute capability 8.0 and 9.0, and as PTX for later ones.
const IMAGES: [(&str, &[u8]); 6] = [
    ("attention", include_bytes!(concat!(env!("OUT_DIR"), "/attention.fatbin"))),
    ("logits", include_bytes!(concat!(env!("OUT_DIR"), "/logits.fatbin"))),
    ("mamba", include_bytes!(concat!(env!("OUT_DIR"), "/mamba.fatbin"))),
    ("mamba2", include_bytes!(concat!(env!("OUT_DIR"), "/mamba2.fatbin"))),
    ("norm", include_bytes!(concat!(env!("OUT_DIR"), "/norm.fatbin"))),
    ("product", include_bytes!(concat!(env!("OUT_DIR"), "/product.fatbin"))),
];

const KERNELS: [(&str, &[&str]); 6] = [
    ("attention", &["attend_join", "attend_part", "rotary_write"]),
    ("logits", &["read_logits"]),
    ("mamba", &["add_steps", "conv_silu", "scan_segments", "scan_step16"]),
    ("mamba2", &["head_segments", "head_step"]),
    ("norm", &["add_to", "copy_rows", "gated_rms_norm", "norm_parts", "rms_norm_residual", "silu_gate"]),
    (
        "product",
        &[
            "bias_rows",
            "embed_bf16",
            "embed_f16",
            "embed_f32",
            "embed_q8_0",
            "join_halves",
            "product_any",
            "product_bf16_1",
            "product_bf16_8",
            "product_f16_1",
            "product_f16_8",
            "product_f32_1",
            "product_f32_8",
            "product_q8_0_1",
            "product_q8_0_8",
            "split_halves",
        ],
    ),
];

/// Minimum CUDA version of the driver, as 1000·major + 10·minor.
const DRIVER_MIN: i32 = 12_000;

fn cuda_error(what: &str, error: DriverError) -> GpuError {
    let why = error.error_string().map_or("unknown error".into(), |text| text.to_string_lossy().into_owned());
    GpuError(format!("CUDA cannot {what}: {why}"))
}

/// Loads the driver's library and returns its CUDA version.
fn start() -> Result<(u32, u32), GpuError> {
    // SAFETY: loading the driver's library only runs its initialisers.
    if !unsafe { sys::is_culib_present() } {
        return Err(GpuError("there is no NVIDIA driver (libcuda cannot be loaded)".into()));
    }
    let mut version = 0;
    // SAFETY: a pointer to one int, as the function asks.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }
        .result()
        .map_err(|error| cuda_error("report its version", error))?;
    if version < DRIVER_MIN {
        let (major, minor) = (version / 1000, version % 1000 / 10);
        return Err(GpuError(format!(
            "the NVIDIA driver supports CUDA {major}.{minor}; 12.0 or newer is needed: update the driver"
        )));
    }
    result::init().map_err(|error| cuda_error("start", error))?;
    Ok(((version / 1000) as u32, (version % 1000 / 10) as u32))
}

pub(super) fn all() -> Result<Vec<GpuInfo>, GpuError> {
    let driver = start()?;
    let count = result::device::get_count().map_err(|error| cuda_error("count GPUs", error))?;
    (0..count).map(|ordinal| info(ordinal, driver)).collect()
}

fn info(ordinal: i32, driver: (u32, u32)) -> Result<GpuInfo, GpuError> {
    let ask = |error: DriverError| cuda_error("describe a GPU", error);
    let device = result::device::get(ordinal).map_err(ask)?;
    // SAFETY: `device` comes from the driver.
    let (major, minor, memory) = unsafe {
        let number = |attribute| result::device::get_attribute(device, attribute).map_err(ask);
        (number(MAJOR)?, number(MINOR)?, result::device::total_mem(device).map_err(ask)?)
    };
    let name = result::device::get_name(device).map_err(ask)?;
    Ok(GpuInfo { ordinal: ordinal as usize, name, capability: (major as u32, minor as u32), memory, driver })
}

pub(super) fn open(ordinal: usize) -> Result<(GpuInfo, Arc<dyn Backend>), GpuError> {
    let gpus = all()?;
    let known = gpus.len();
    let Some(gpu) = gpus.into_iter().nth(ordinal) else {
        return Err(GpuError(format!("there is no cuda:{ordinal}; the driver reports {known} GPUs")));
    };
    let device = Device::open(&gpu)?;
    Ok((gpu, Arc::new(device)))
}

/// Name and version of the matrix library, or why there is none.
pub(super) fn library() -> Result<String, String> {
    let (major, _) = start().map_err(|error| error.to_string())?;
    cublas::open(major).map(Cublas::name)
}

/// Room for products of many rows, floats: 2,048 rows of 8,192 inputs fit at once, and steps of 512 sequences read
/// the weights of 8,192 outputs once.
pub(super) const OPERAND: usize = 16 << 20;
pub(super) const SUMS: usize = 8 << 20;
pub(super) use super::cublas::WORKSPACE_BYTES;

/// A device, its primary context, one stream, the kernels' functions and the matrix library.
struct Device {
    gpu: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    functions: HashMap<&'static str, sys::CUfunction>,
    pinned: Mutex<Pinned>,
    blas: Result<Blas, String>,
}

/// Page-locked memory: `UP_BYTES` bytes, then `DOWN_BYTES`.
struct Pinned {
    at: *mut u8,
    uploads: Uploads,
}

/// cuBLAS on the device's stream, and its workspace.
struct Blas {
    library: &'static Cublas,
    handle: *mut c_void,
    workspace: u64,
}

// SAFETY: handles of the driver, which is thread-safe; every method makes the context current on its own thread first.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    fn open(gpu: &GpuInfo) -> Result<Self, GpuError> {
        let ordinal = gpu.ordinal;
        if gpu.capability < CAPABILITY_MIN {
            let ((major, minor), (least, least_minor)) = (gpu.capability, CAPABILITY_MIN);
            return Err(GpuError(format!(
                "{} has compute capability {major}.{minor}; {least}.{least_minor} or newer is needed (A100, RTX 30 and later)",
                gpu.name
            )));
        }
        let open = |error: DriverError| cuda_error(&format!("open cuda:{ordinal}"), error);
        let device = i32::try_from(ordinal)
            .map_or(Err(DriverError(sys::CUresult::CUDA_ERROR_INVALID_DEVICE)), result::device::get)
            .map_err(open)?;
        // SAFETY: `device` comes from the driver; the context is released in `drop`.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(open)?;
        // SAFETY: just retained.
        unsafe { result::ctx::set_current(context) }.map_err(open)?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking).map_err(open)?;
        // SAFETY: released in `drop`.
        let at = unsafe { result::malloc_host(UP_BYTES + DOWN_BYTES, 0) }.map_err(open)?.cast::<u8>();
        // SAFETY: just allocated, that long.
        unsafe { at.write_bytes(0, UP_BYTES + DOWN_BYTES) };
        let pinned = Mutex::new(Pinned { at, uploads: Uploads::default() });
        let blas = Err(String::new());
        let mut opened = Self { gpu: device, context, stream, functions: HashMap::new(), pinned, blas };
        opened.blas = match cublas::open(gpu.driver.0) {
            Ok(library) => Ok(opened.open_blas(library)?),
            Err(why) => Err(why),
        };
        for ((name, image), (_, kernels)) in IMAGES.iter().zip(KERNELS) {
            let load = |error: DriverError| cuda_error(&format!("load the kernels of {name}"), error);
            // SAFETY: the image is a fat binary as nvcc wrote it, and lives as long as the program.
            let module = unsafe { result::module::load_data(image.as_ptr().cast()) }.map_err(load)?;
            for kernel in kernels {
                let symbol = CString::new(*kernel).expect("names hold no NUL");
                // SAFETY: the module was just loaded and is never unloaded.
                let function = unsafe { result::module::get_function(module, symbol) }.map_err(load)?;
                opened.functions.insert(kernel, function);
            }
        }
        Ok(opened)
    }

    /// cuBLAS with a handle for this device.
    fn open_blas(&self, library: &'static Cublas) -> Result<Blas, GpuError> {
        let workspace = self.allocate(cublas::WORKSPACE_BYTES)?;
        // SAFETY: both are released after the handle, in `drop`.
        let handle =
            unsafe { library.handle(self.stream.cast(), workspace) }.inspect_err(|_| self.release(workspace))?;
        Ok(Blas { library, handle, workspace })
    }

    /// Waits for the device.
    fn wait(&self) -> Result<(), DriverError> {
        // SAFETY: the device's stream.
        unsafe { result::stream::synchronize(self.stream) }
    }

    fn pinned(&self) -> std::sync::MutexGuard<'_, Pinned> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_current(&self) -> Result<(), GpuError> {
        // SAFETY: retained until `drop`.
        unsafe { result::ctx::set_current(self.context) }.map_err(|error| cuda_error("use its context", error))
    }
}

impl Backend for Device {
    fn free(&self) -> Result<usize, GpuError> {
        self.make_current()?;
        Ok(result::mem_get_info().map_err(|error| cuda_error("report its memory", error))?.0)
    }

    fn allocate(&self, bytes: usize) -> Result<u64, GpuError> {
        self.make_current()?;
        // SAFETY: the memory is used on this stream alone, and written before it is read.
        unsafe { result::malloc_async(self.stream, bytes) }
            .map_err(|error| cuda_error(&format!("allocate {} MiB", bytes.div_ceil(1 << 20)), error))
    }

    fn release(&self, at: u64) {
        // An error cannot be returned here; the next call will fail too.
        if self.make_current().is_ok() {
            // SAFETY: allocated on this stream, and its only owner is being dropped.
            let _ = unsafe { result::free_async(at, self.stream) };
        }
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.make_current()?;
        let failed = |error| cuda_error("copy to the GPU", error);
        // SAFETY: `Buffer` checked the length; `from` does not change until the device was synchronised.
        let copy = |from: &[u8]| unsafe { result::memcpy_htod_async(at, from, self.stream) }.map_err(failed);
        if bytes.len() > UP_BYTES {
            // From pageable memory: the driver has copied it when the call returns.
            return copy(bytes);
        }
        let mut pinned = self.pinned();
        let place = if let Some(place) = pinned.uploads.place(bytes.len()) {
            place
        } else {
            self.wait().map_err(failed)?;
            pinned.uploads.clear();
            pinned.uploads.place(bytes.len()).unwrap_or_default()
        };
        // SAFETY: within the upload part, and exclusive until the device was synchronised.
        let staged = unsafe { std::slice::from_raw_parts_mut(pinned.at.add(place), bytes.len()) };
        staged.copy_from_slice(bytes);
        copy(staged)
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.make_current()?;
        let mut pinned = self.pinned();
        let wait = |to: &mut [u8]| {
            // SAFETY: the caller checked the length, and the stream is waited for before `to` is used again.
            let copied = unsafe { result::memcpy_dtoh_async(to, at, self.stream) };
            self.wait().and(copied).map_err(|error| cuda_error("copy from the GPU", error))
        };
        if bytes.len() > DOWN_BYTES {
            wait(bytes)?;
        } else {
            // SAFETY: the part after the uploads, within its length, and exclusive while locked.
            let staged = unsafe { std::slice::from_raw_parts_mut(pinned.at.add(UP_BYTES), bytes.len()) };
            wait(staged)?;
            bytes.copy_from_slice(staged);
        }
        pinned.uploads.clear();
        Ok(())
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), GpuError> {
        self.make_current()?;
        // SAFETY: `Gpu::copy` checked the lengths.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream) }
            .map_err(|error| cuda_error("copy on the GPU", error))
    }

    fn zero(&self, at: u64, bytes: usize) -> Result<(), GpuError> {
        self.make_current()?;
        // SAFETY: within one allocation, by the callers in memory.rs.
        unsafe { result::memset_d8_async(at, 0, bytes, self.stream) }.map_err(|error| cuda_error("clear memory", error))
    }

    unsafe fn launch(
        &self,
        kernel: &'static str,
        grid: [u32; 3],
        threads: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), GpuError> {
        self.make_current()?;
        let function = *self.functions.get(kernel).ok_or_else(|| GpuError(format!("no kernel {kernel}")))?;
        let [x, y, z] = grid;
        // SAFETY: the caller's promise; the function belongs to this context.
        unsafe { result::launch_kernel(function, (x, y, z), (threads, 1, 1), 0, self.stream, arguments) }
            .map_err(|error| cuda_error(&format!("launch {kernel}"), error))
    }

    fn library(&self) -> Result<String, String> {
        self.blas.as_ref().map(|blas| blas.library.name()).map_err(Clone::clone)
    }

    unsafe fn gemm(&self, gemm: &Gemm) -> Result<(), GpuError> {
        self.make_current()?;
        let blas = self.blas.as_ref().map_err(|why| GpuError(why.clone()))?;
        // SAFETY: the caller's promise; the handle is the device's own.
        unsafe { blas.library.multiply(blas.handle, gemm) }
    }

    fn record(&self, work: &mut dyn FnMut() -> Result<(), GpuError>) -> Result<Option<Box<dyn Recorded>>, GpuError> {
        self.make_current()?;
        let record = |error| cuda_error("record a step (LOOM_CUDA_GRAPHS=off launches kernel by kernel)", error);
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the device's stream; the capture is ended below even if `work` fails.
        unsafe { result::stream::begin_capture(self.stream, mode) }.map_err(record)?;
        let worked = work();
        // SAFETY: as above.
        let graph = unsafe { result::stream::end_capture(self.stream) };
        worked?;
        let graph = graph.map_err(record)?;
        // SAFETY: just recorded, and not used after this.
        let run = unsafe {
            let run = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
            let _ = result::graph::destroy(graph);
            run
        };
        let run = run.map_err(record)?;
        Ok(Some(Box::new(Graph { run, stream: self.stream, context: self.context })))
    }
}

/// A CUDA graph on a device's stream. `Recording` keeps the device alive.
struct Graph {
    run: sys::CUgraphExec,
    stream: sys::CUstream,
    context: sys::CUcontext,
}

// SAFETY: as for `Device`.
unsafe impl Send for Graph {}

impl Recorded for Graph {
    fn replay(&self) -> Result<(), GpuError> {
        // SAFETY: `Recording` keeps the device alive; the graph is destroyed in `drop`.
        unsafe { result::ctx::set_current(self.context).and_then(|()| result::graph::launch(self.run, self.stream)) }
            .map_err(|error| cuda_error("launch a recorded step", error))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: exclusive; an error here can be ignored.
        unsafe {
            if result::ctx::set_current(self.context).is_ok() {
                let _ = result::graph::exec_destroy(self.run);
            }
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.make_current().is_ok() {
            // SAFETY: the stream and this reference to the context are exclusive; errors here can be ignored.
            unsafe {
                let _ = result::stream::synchronize(self.stream);
                if let Ok(blas) = &self.blas {
                    blas.library.release(blas.handle);
                    let _ = result::free_async(blas.workspace, self.stream);
                }
                let _ = result::free_host(self.pinned().at.cast());
                let _ = result::stream::destroy(self.stream);
                let _ = result::primary_ctx::release(self.gpu);
            }
        }
    }
}
