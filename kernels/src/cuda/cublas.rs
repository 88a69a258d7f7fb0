//! cuBLAS, opened at run time where it is installed: it comes with the CUDA toolkit or with torch, not with the driver.

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use libloading::Library;

use super::GpuError;
use super::many::Gemm;

/// A workspace that is ours, without which its products could not be recorded: as large as NVIDIA recommends for Hopper.
pub(super) const WORKSPACE_BYTES: usize = 32 << 20;

/// Major versions that are served, the newest first.
const MAJORS: [u32; 2] = [13, 12];

/// Set to `off`, it leaves all products to the kernels here.
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

/// The library, before it has to do with any GPU.
pub(super) struct Cublas {
    create: unsafe extern "C" fn(*mut Handle) -> c_int,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
    set_stream: unsafe extern "C" fn(Handle, *mut c_void) -> c_int,
    set_workspace: unsafe extern "C" fn(Handle, *mut c_void, usize) -> c_int,
    get_property: unsafe extern "C" fn(c_int, *mut c_int) -> c_int,
    gemm: GemmEx,
    /// Its functions live as long as it does.
    _library: Library,
}

/// The library for a driver that serves CUDA up to version `driver`.0, opened once.
pub(super) fn open(driver: u32) -> Result<&'static Cublas, String> {
    static OPENED: OnceLock<Result<Cublas, String>> = OnceLock::new();
    let opened = OPENED.get_or_init(|| {
        if std::env::var_os(SWITCH).is_some_and(|told| told == "off") {
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

/// Where a version may lie: where the system looks for libraries, and where the toolkit puts itself.
fn files(major: u32) -> impl Iterator<Item = PathBuf> {
    let name = format!("libcublas.so.{major}");
    let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let homes = named.chain([PathBuf::from("/usr/local/cuda")]).map(|home| home.join("lib64"));
    std::iter::once(PathBuf::new()).chain(homes).map(move |folder| folder.join(&name))
}

impl Cublas {
    fn load(file: &std::path::Path) -> Result<Self, libloading::Error> {
        // SAFETY: opening the library runs its own initialisers only; the functions have the types of cublas_api.h, and
        // are kept together with it.
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

    /// Its name and version, for people.
    pub(super) fn name(&self) -> String {
        let numbers = MAJOR_MINOR_PATCH.map(|property| {
            let mut value = 0;
            // SAFETY: a pointer to one int, as the function asks.
            let status = unsafe { (self.get_property)(property, &raw mut value) };
            if status == 0 { value.to_string() } else { "?".to_owned() }
        });
        format!("cuBLAS {}", numbers.join("."))
    }

    /// A hold on it for work on `stream` of the current context, in `workspace`, which has [`WORKSPACE_BYTES`] bytes.
    ///
    /// # Safety
    /// Both live until [`release`](Self::release).
    pub(super) unsafe fn hold(&self, stream: *mut c_void, workspace: u64) -> Result<Handle, GpuError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the caller's promise. The stream goes first: setting it takes the workspace away.
        unsafe {
            told("start", (self.create)(&raw mut handle))?;
            let set = told("use a stream", (self.set_stream)(handle, stream)).and_then(|()| {
                told("use a workspace", (self.set_workspace)(handle, workspace as *mut c_void, WORKSPACE_BYTES))
            });
            if set.is_err() {
                (self.destroy)(handle);
            }
            set.map(|()| handle)
        }
    }

    /// # Safety
    /// `handle` is of [`hold`](Self::hold), and not used again.
    pub(super) unsafe fn release(&self, handle: Handle) {
        // SAFETY: the caller's promise; an error at the end changes nothing.
        unsafe { (self.destroy)(handle) };
    }

    /// Enqueues a product.
    ///
    /// # Safety
    /// `handle` is of [`hold`](Self::hold); what the product reads and writes lies in allocated memory.
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
        told("multiply", status)
    }
}

fn told(what: &str, status: c_int) -> Result<(), GpuError> {
    let why = match status {
        0 => return Ok(()),
        1 => "it could not be initialised",
        3 => "it could not allocate memory",
        7 => "a parameter is wrong: please report it",
        8 => "the GPU is too old for it",
        13 => "the GPU failed",
        15 => "it does not serve this product: please report it",
        _ => "its own error",
    };
    Err(GpuError(format!("cuBLAS cannot {what}: {why} (status {status}); LOOM_CUBLAS=off does without it")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs cuBLAS, and no GPU"]
    fn the_library_tells_its_version_and_says_no_without_a_gpu() {
        let cublas = open(13).unwrap();
        assert!(cublas.name().starts_with("cuBLAS 1"), "{}", cublas.name());
        // SAFETY: without a context nothing is begun, and the null stream is one.
        let told = unsafe { cublas.hold(std::ptr::null_mut(), 0) }.unwrap_err().to_string();
        assert!(told.contains("could not be initialised") && told.contains("LOOM_CUBLAS=off"), "{told}");
    }
}
