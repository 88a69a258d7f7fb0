//! The CPU playing a GPU: device memory is the host's, and kernels run thread by thread (`cuda/simt.hpp`), one launch at
//! a time.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::{Arc, Mutex};

use super::{CAPABILITY_MIN, GpuError, GpuInfo, Machine};

unsafe extern "C" {
    fn loom_emulate(
        name: *const c_char,
        grid: *const c_uint,
        threads: c_uint,
        arguments: *mut *mut c_void,
        count: c_uint,
    ) -> c_int;
}

/// Blocks keep their shared memory in statics.
static TURN: Mutex<()> = Mutex::new(());

/// Allocations in use and their sizes.
static SIZES: Mutex<Option<HashMap<u64, usize>>> = Mutex::new(None);

struct Emulated;

#[expect(clippy::unnecessary_wraps, reason = "the form of the driver's")]
pub(super) fn all() -> Result<Vec<GpuInfo>, GpuError> {
    let name = "a CPU that plays a GPU".to_owned();
    Ok(vec![GpuInfo { ordinal: 0, name, capability: CAPABILITY_MIN, memory: MEMORY, driver: (0, 0) }])
}

pub(super) fn open(ordinal: usize) -> Result<Arc<dyn Machine>, GpuError> {
    if ordinal == 0 { Ok(Arc::new(Emulated)) } else { Err(GpuError(format!("there is no cuda:{ordinal}"))) }
}

/// What it says of its memory.
const MEMORY: usize = 1 << 30;

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 256).expect("a size that fits")
}

impl Machine for Emulated {
    fn free(&self) -> Result<usize, GpuError> {
        let sizes = SIZES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(MEMORY.saturating_sub(sizes.iter().flat_map(HashMap::values).sum()))
    }

    fn allocate(&self, bytes: usize) -> Result<u64, GpuError> {
        // SAFETY: `bytes` is not 0: `Gpu` asks for 16 at least.
        let at = unsafe { alloc(layout(bytes)) } as u64;
        // Poisoned: a kernel that reads what nobody wrote shows.
        // SAFETY: just allocated.
        unsafe { std::ptr::write_bytes(at as *mut u8, 0xff, bytes) };
        SIZES.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert_default().insert(at, bytes);
        Ok(at)
    }

    fn release(&self, at: u64) {
        let mut sizes = SIZES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(bytes) = sizes.as_mut().and_then(|sizes| sizes.remove(&at)) {
            // SAFETY: allocated with this layout, and taken out of the table.
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
        let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
}
