//! Emulation of a GPU on the CPU: device memory is host memory, and kernels run thread by thread (`cuda/simt.hpp`), one
//! launch at a time.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::{Arc, Mutex};

use super::many::Gemm;
use super::{Backend, CAPABILITY_MIN, GpuError, GpuInfo};

unsafe extern "C" {
    fn loom_emulate(
        name: *const c_char,
        grid: *const c_uint,
        threads: c_uint,
        arguments: *mut *mut c_void,
        count: c_uint,
    ) -> c_int;
}

/// Serialises launches, because shared memory of blocks is in statics.
static LAUNCH: Mutex<()> = Mutex::new(());

/// Allocations in use and their sizes.
static SIZES: Mutex<Option<HashMap<u64, usize>>> = Mutex::new(None);

struct Emulated;

#[expect(clippy::unnecessary_wraps, reason = "same signature as in driver.rs")]
pub(super) fn all() -> Result<Vec<GpuInfo>, GpuError> {
    let name = "emulated GPU (CPU)".to_owned();
    Ok(vec![GpuInfo { ordinal: 0, name, capability: CAPABILITY_MIN, memory: MEMORY, driver: (0, 0) }])
}

pub(super) fn open(ordinal: usize) -> Result<(GpuInfo, Arc<dyn Backend>), GpuError> {
    let gpu = all()?.into_iter().nth(ordinal).ok_or_else(|| GpuError(format!("there is no cuda:{ordinal}")))?;
    Ok((gpu, Arc::new(Emulated)))
}

/// Room for products of many rows, floats: small, so that tests cover products in pieces.
pub(super) const OPERAND: usize = 1 << 13;
pub(super) const SUMS: usize = 1 << 11;
pub(super) const WORKSPACE_BYTES: usize = 0;

#[expect(clippy::unnecessary_wraps, reason = "same signature as in driver.rs")]
pub(super) fn library() -> Result<String, String> {
    Ok("the reference definition of BLAS".to_owned())
}

/// Reported memory size.
const MEMORY: usize = 1 << 30;

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 256).expect("a size that fits")
}

impl Backend for Emulated {
    fn free(&self) -> Result<usize, GpuError> {
        let sizes = SIZES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(MEMORY.saturating_sub(sizes.iter().flat_map(HashMap::values).sum()))
    }

    fn allocate(&self, bytes: usize) -> Result<u64, GpuError> {
        // SAFETY: `bytes` is not 0: `Gpu` asks for 16 at least.
        let at = unsafe { alloc(layout(bytes)) } as u64;
        // Poisoned, to detect reads of uninitialised memory.
        // SAFETY: just allocated.
        unsafe { std::ptr::write_bytes(at as *mut u8, 0xff, bytes) };
        SIZES.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert_default().insert(at, bytes);
        Ok(at)
    }

    fn release(&self, at: u64) {
        let mut sizes = SIZES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(bytes) = sizes.as_mut().and_then(|sizes| sizes.remove(&at)) {
            // SAFETY: allocated with this layout, and removed from the table.
            unsafe { dealloc(at as *mut u8, layout(bytes)) };
        }
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), GpuError> {
        // SAFETY: `Buffer` checked the length.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
        Ok(())
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(at as *const u8, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), GpuError> {
        // SAFETY: `Gpu::copy` checked the lengths.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
        Ok(())
    }

    fn zero(&self, at: u64, bytes: usize) -> Result<(), GpuError> {
        // SAFETY: as above.
        unsafe { std::ptr::write_bytes(at as *mut u8, 0, bytes) };
        Ok(())
    }

    unsafe fn launch(
        &self,
        kernel: &'static str,
        grid: [u32; 3],
        threads: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), GpuError> {
        let _launch = LAUNCH.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let name = CString::new(kernel).expect("names hold no NUL");
        // SAFETY: the caller's promise about the arguments; the grid has three numbers.
        let known = unsafe {
            loom_emulate(name.as_ptr(), grid.as_ptr(), threads, arguments.as_mut_ptr(), arguments.len() as u32)
        };
        if known == 0 {
            return Err(GpuError(format!("no kernel {kernel} with {} arguments", arguments.len())));
        }
        Ok(())
    }

    fn library(&self) -> Result<String, String> {
        library()
    }

    unsafe fn gemm(&self, gemm: &Gemm) -> Result<(), GpuError> {
        let &Gemm { narrow, m, n, k, a: (a, lda), b: (b, ldb), c: (c, ldc), add } = gemm;
        let number = |at: u64, index: usize| {
            // SAFETY: the caller's promise.
            unsafe {
                if narrow {
                    f32::from_bits(u32::from(*(at as *const u16).add(index)) << 16)
                } else {
                    *(at as *const f32).add(index)
                }
            }
        };
        for column in 0..n {
            for row in 0..m {
                let sum: f64 =
                    (0..k).map(|i| f64::from(number(a, row * lda + i)) * f64::from(number(b, column * ldb + i))).sum();
                // SAFETY: the caller's promise.
                let out = unsafe { &mut *(c as *mut f32).add(column * ldc + row) };
                *out = if add { *out + sum as f32 } else { sum as f32 };
            }
        }
        Ok(())
    }
}
