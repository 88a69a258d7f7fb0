//! cuBLAS, loaded at run time if installed. It comes with the CUDA toolkit or with torch, not with the driver.

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use libloading::Library;

use super::GpuError;
use super::many::Gemm;

/// Size of the workspace that is passed to cuBLAS, as recommended by NVIDIA for Hopper; graph capture requires it.
pub(super) const WORKSPACE_BYTES: usize = 32 << 20;

/// Supported major versions, newest first.
const MAJORS: [u32; 2] = [13, 12];

/// Environment variable; `off` disables cuBLAS.
const SWITCH: &str = "LOOM_CUBLAS";

type Handle = *mut c_void;
type GemmEx = unsafe extern "C" fn(
    handle: Handle,
    operation_a: c_int,
    operation_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: *const c_void,
    type_a: c_int,
    lda: c_int,
    b: *const c_void,
    type_b: c_int,
    ldb: c_int,
    beta: *const c_void,
    c: *mut c_void,
    type_c: c_int,
    ldc: c_int,
    compute: c_int,
    algorithm: c_int,
) -> c_int;

// As cublas_api.h and library_types.h number them.
const OP_N: c_int = 0;
const OP_T: c_int = 1;
const R_32F: c_int = 0;
const R_16BF: c_int = 14;
const COMPUTE_32F: c_int = 68;
const GEMM_DEFAULT: c_int = -1;
const MAJOR_MINOR_PATCH: [c_int; 3] = [0, 1, 2];

/// The loaded library, independent of a GPU.
pub(super) struct Cublas {
    create: unsafe extern "C" fn(*mut Handle) -> c_int,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
    set_stream: unsafe extern "C" fn(Handle, *mut c_void) -> c_int,
    set_workspace: unsafe extern "C" fn(Handle, *mut c_void, usize) -> c_int,
    get_property: unsafe extern "C" fn(c_int, *mut c_int) -> c_int,
    gemm: GemmEx,
    /// Keeps the functions valid.
    _library: Library,
}

/// The library for a driver that supports CUDA up to version `driver`.0, loaded once.
pub(super) fn open(driver: u32) -> Result<&'static Cublas, String> {
    static OPENED: OnceLock<Result<Cublas, String>> = OnceLock::new();
    let opened = OPENED.get_or_init(|| {
        if std::env::var_os(SWITCH).is_some_and(|value| value == "off") {
            return Err(format!("{SWITCH} is off"));
        }
        let files: Vec<PathBuf> =
            MAJORS.iter().filter(|major| **major <= driver).flat_map(|major| files(*major)).collect();
        let found = files.iter().find_map(|file| Cublas::load(file).ok());
        found.ok_or_else(|| {
            let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
            format!("none of {} can be opened; LD_LIBRARY_PATH can name its folder", names.join(", "))
        })
    });
    opened.as_ref().map_err(Clone::clone)
}

/// Candidate paths of a version: the system's library search path, then the toolkit's folders.
fn files(major: u32) -> impl Iterator<Item = PathBuf> {
    let name = format!("libcublas.so.{major}");
    let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let homes = named.chain([PathBuf::from("/usr/local/cuda")]).map(|home| home.join("lib64"));
    std::iter::once(PathBuf::new()).chain(homes).map(move |folder| folder.join(&name))
}

impl Cublas {
    fn load(file: &std::path::Path) -> Result<Self, libloading::Error> {
        // SAFETY: loading the library only runs its initialisers; the functions have the types of cublas_api.h and are stored
        // with the library.
        unsafe {
            let library = Library::new(file)?;
            Ok(Self {
                create: *library.get(b"cublasCreate_v2\0")?,
                destroy: *library.get(b"cublasDestroy_v2\0")?,
                set_stream: *library.get(b"cublasSetStream_v2\0")?,
                set_workspace: *library.get(b"cublasSetWorkspace_v2\0")?,
                get_property: *library.get(b"cublasGetProperty\0")?,
                gemm: *library.get(b"cublasGemmEx\0")?,
                _library: library,
            })
        }
    }

    /// Name and version, for messages.
    pub(super) fn name(&self) -> String {
        let numbers = MAJOR_MINOR_PATCH.map(|property| {
            let mut value = 0;
            // SAFETY: a pointer to one int, as the function asks.
            let status = unsafe { (self.get_property)(property, &raw mut value) };
            if status == 0 { value.to_string() } else { "?".to_owned() }
        });
        format!("cuBLAS {}", numbers.join("."))
    }

    /// Creates a handle for `stream` of the current context with `workspace` of [`WORKSPACE_BYTES`] bytes.
    ///
    /// # Safety
    /// Both must live until [`release`](Self::release).
    pub(super) unsafe fn handle(&self, stream: *mut c_void, workspace: u64) -> Result<Handle, GpuError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the caller's promise. The stream is set first because setting it resets the workspace.
        unsafe {
            check("start", (self.create)(&raw mut handle))?;
            let set = check("use a stream", (self.set_stream)(handle, stream)).and_then(|()| {
                check("use a workspace", (self.set_workspace)(handle, workspace as *mut c_void, WORKSPACE_BYTES))
            });
            if set.is_err() {
                (self.destroy)(handle);
            }
            set.map(|()| handle)
        }
    }

    /// # Safety
    /// `handle` is from [`handle`](Self::handle) and is not used again.
    pub(super) unsafe fn release(&self, handle: Handle) {
        // SAFETY: the caller's promise; an error here can be ignored.
        unsafe { (self.destroy)(handle) };
    }

    /// Enqueues a product.
    ///
    /// # Safety
    /// `handle` is from [`handle`](Self::handle); all memory that the product accesses is allocated.
    pub(super) unsafe fn multiply(&self, handle: Handle, gemm: &Gemm) -> Result<(), GpuError> {
        let &Gemm { narrow, m, n, k, a: (a, lda), b: (b, ldb), c: (c, ldc), add } = gemm;
        let int =
            |x: usize| c_int::try_from(x).map_err(|_| GpuError(format!("a product with a dim of {x} is too large")));
        let (alpha, beta) = (1.0f32, if add { 1.0f32 } else { 0.0 });
        let kind = if narrow { R_16BF } else { R_32F };
        // SAFETY: the caller's promise. The factors are read before the call returns.
        let status = unsafe {
            (self.gemm)(
                handle,
                OP_T,
                OP_N,
                int(m)?,
                int(n)?,
                int(k)?,
                (&raw const alpha).cast(),
                a as *const c_void,
                kind,
                int(lda)?,
                b as *const c_void,
                kind,
                int(ldb)?,
                (&raw const beta).cast(),
                c as *mut c_void,
                R_32F,
                int(ldc)?,
                COMPUTE_32F,
                GEMM_DEFAULT,
            )
        };
        check("multiply", status)
    }
}

fn check(what: &str, status: c_int) -> Result<(), GpuError> {
    let why = match status {
        0 => return Ok(()),
        1 => "it could not be initialised",
        3 => "it could not allocate memory",
        7 => "a parameter is wrong: please report it",
        8 => "the GPU is too old for it",
        13 => "the GPU failed",
        15 => "it does not support this product: please report it",
        _ => "unknown error",
    };
    Err(GpuError(format!("cuBLAS cannot {what}: {why} (status {status}); set LOOM_CUBLAS=off to disable it")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs cuBLAS, and no GPU"]
    fn the_library_reports_its_version_and_fails_without_a_gpu() {
        let cublas = open(13).unwrap();
        assert!(cublas.name().starts_with("cuBLAS 1"), "{}", cublas.name());
        // SAFETY: without a context nothing starts, and the null stream is valid.
        let message = unsafe { cublas.handle(std::ptr::null_mut(), 0) }.unwrap_err().to_string();
        assert!(message.contains("could not be initialised") && message.contains("LOOM_CUBLAS=off"), "{message}");
    }
}
