//! The instruction set of the kernels: detected once, or set with `LOOM_KERNELS` (`portable`, `neon`, `avx2`, `avx512`).
//!
//! The path changes only the speed, never the bits of a result.

use std::fmt;
use std::sync::OnceLock;

use crate::lanes::Lanes;
#[cfg(target_arch = "aarch64")]
use crate::lanes::neon::Neon;
use crate::lanes::portable::Portable;
#[cfg(target_arch = "x86_64")]
use crate::lanes::{avx2::Avx2, avx512::Avx512};

/// Environment variable that sets the path; an unsupported or unknown name is ignored.
pub const PATH_VARIABLE: &str = "LOOM_KERNELS";

/// An instruction set that the kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Path {
    /// Plain Rust: the reference, used if no faster path is available.
    Portable,
    /// NEON with dot products (Armv8.2; every Apple M).
    Neon,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 F, BW and VNNI (Ice Lake, Zen 4 and later; processors with AVX-512 but without VNNI use AVX2).
    Avx512,
}

impl Path {
    /// Every path that this processor can run, slowest first.
    pub fn available() -> Vec<Self> {
        [Self::Portable, Self::Neon, Self::Avx2, Self::Avx512].into_iter().filter(|path| path.runs_here()).collect()
    }

    fn runs_here(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "aarch64")]
            Self::Neon => ["neon", "dotprod"].into_iter().all(present),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => ["avx2", "fma", "f16c"].into_iter().all(present),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Self::Avx2.runs_here() && ["avx512f", "avx512bw", "avx512_vnni"].into_iter().all(present),
            #[cfg(not(target_arch = "aarch64"))]
            Self::Neon => false,
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// The name that `LOOM_KERNELS` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The path in use: the fastest supported one, unless `LOOM_KERNELS` names another. Fixed at the first call.
pub fn active_path() -> Path {
    static ACTIVE: OnceLock<Path> = OnceLock::new();
    *ACTIVE.get_or_init(|| {
        let available = Path::available();
        let forced = std::env::var(PATH_VARIABLE).ok();
        let named = available.iter().find(|path| forced.as_deref() == Some(path.name()));
        named.or(available.last()).copied().unwrap_or(Path::Portable)
    })
}

/// The relevant processor features, for reports: `(name, present)`.
pub fn cpu_features() -> Vec<(&'static str, bool)> {
    #[cfg(target_arch = "x86_64")]
    {
        vec![
            ("fma", is_x86_feature_detected!("fma")),
            ("f16c", is_x86_feature_detected!("f16c")),
            ("avx2", is_x86_feature_detected!("avx2")),
            ("avx512f", is_x86_feature_detected!("avx512f")),
            ("avx512bw", is_x86_feature_detected!("avx512bw")),
            ("avx512_vnni", is_x86_feature_detected!("avx512vnni")),
        ]
    }
    #[cfg(target_arch = "aarch64")]
    {
        vec![
            ("neon", std::arch::is_aarch64_feature_detected!("neon")),
            ("dotprod", std::arch::is_aarch64_feature_detected!("dotprod")),
        ]
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        Vec::new()
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn present(feature: &str) -> bool {
    cpu_features().contains(&(feature, true))
}

/// A kernel that is generic over lanes. `run` and everything it calls must be `#[inline(always)]` and must not use lanes in
/// closures, so that all of it is compiled inside the function that enables the instruction set.
pub(crate) trait Kernel {
    type Output;
    fn run<V: Lanes>(self) -> Self::Output;
}

/// Runs `kernel` on `path`.
#[inline]
pub(crate) fn dispatch<K: Kernel>(path: Path, kernel: K) -> K::Output {
    debug_assert!(path.runs_here());
    match path {
        Path::Portable => kernel.run::<Portable>(),
        // SAFETY: a `Path` other than `Portable` comes from `available`, which checks the processor.
        #[cfg(target_arch = "aarch64")]
        Path::Neon => unsafe { on_neon(kernel) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Path::Avx2 => unsafe { on_avx2(kernel) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Path::Avx512 => unsafe { on_avx512(kernel) },
        #[cfg(not(target_arch = "aarch64"))]
        Path::Neon => kernel.run::<Portable>(),
        #[cfg(not(target_arch = "x86_64"))]
        Path::Avx2 | Path::Avx512 => kernel.run::<Portable>(),
    }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,dotprod")]
fn on_neon<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Neon>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn on_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx2>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx2,fma,f16c")]
fn on_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx512>()
}
